// Package callctx has what packages llm, llmhttp and textfilter share about a call of a Backend: the key under
// which its context has the request, and the errors of a Backend's mistakes.
package callctx

import "errors"

// Key is the key of a value that implements the interface servedRequest of package llm, and has the
// method WarnMisuses that package textfilter calls.
type Key struct{}

// Errors of streams.
var (
	ErrNilStream = errors.New("llmhttp: the Backend returned a nil ChatStream")
	ErrNoChunk   = errors.New("llmhttp: the stream ended without a chunk or an error")
)
