// Package callctx has what packages llm, llmhttp, textfilter and upstream share about a call of a Backend: the
// key under which its context has the request, and the errors of a Backend's mistakes.
package callctx

import (
	"context"
	"errors"
)

// Key is the key of a value that implements the interface servedRequest of package llm, and has the
// method WarnMisuses that package textfilter calls, and RequestID.
type Key struct{}

// RequestID returns the ID of the request that ctx belongs to, or "".
func RequestID(ctx context.Context) string {
	if q, ok := ctx.Value(Key{}).(interface{ RequestID() string }); ok {
		return q.RequestID()
	}
	return ""
}

// Errors of streams.
var (
	ErrNilStream = errors.New("llmhttp: the Backend returned a nil ChatStream")
	ErrNoChunk   = errors.New("llmhttp: the stream ended without a chunk or an error")
)
