package manage

import (
	"context"

	"github.com/llmhttp/llmhttp"
)

// A ConcurrencyCounter is a [llmhttp.ConcurrencyLimiter] that can tell how many requests
// are in progress. A [llmhttp.Handler] does not need one; programs that show limits do.
type ConcurrencyCounter interface {
	llmhttp.ConcurrencyLimiter

	// Concurrent returns the number of requests in progress of a key.
	Concurrent(ctx context.Context, key string) (int, error)
}
