package manage

import (
	"context"

	"github.com/llmhttp/llmhttp"
)

// A ConcurrencyCounter is a [llmhttp.ConcurrencyLimiter] that can tell how many requests
// are in progress. A [llmhttp.Handler] does not need one; programs that show limits do.
type ConcurrencyCounter interface {
	llmhttp.ConcurrencyLimiter

	// Concurrent returns the number of requests in progress of a subject: what is in use of its
	// [llmhttp.SlotConcurrent]. It is zero for a subject that is not known.
	Concurrent(ctx context.Context, subject llmhttp.SubjectID) (int64, error)
}
