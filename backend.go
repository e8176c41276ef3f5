package llmhttp

import (
	"context"

	"github.com/llmhttp/llmhttp/llm"
)

// A Backend answers chat requests. It may also implement other interfaces, such as
// [ModelLister] and [Embedder], without which a [Handler] answers 404 on their
// endpoints: see [As], which finds them also in what a Backend wraps. All methods
// must be safe for concurrent use.
type Backend interface {
	// Chat returns the reply to req. The work is done while the returned stream is iterated over,
	// not before, and must stop when ctx is done.
	//
	// A stream that ends without an error is a complete reply, unless ctx is done: then it need not
	// yield ctx's error. If req asks for several choices, the stream contains all of them. For an
	// unknown model the stream yields [llm.ModelNotFound].
	//
	// A Usage that it yields is the total of the request so far, not that of a
	// chunk: the last one counts. A Backend that learns it in steps yields it after each step or
	// calls [llm.ReportUsage], so that a client that leaves has paid for what was done. One that calls
	// models several times, such as an agent, tells each call with [llm.StartCall].
	//
	// The Backend owns req and everything it points to.
	Chat(ctx context.Context, req *llm.ChatRequest) llm.ChatStream
}

// The BackendFunc type is an adapter to use an ordinary function as a
// [Backend].
type BackendFunc func(ctx context.Context, req *llm.ChatRequest) llm.ChatStream

// Chat returns f(ctx, req).
func (f BackendFunc) Chat(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
	return f(ctx, req)
}
