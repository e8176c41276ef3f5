package llmhttp

import (
	"context"
	"net/http"
	"time"
)

// An Observer is called as a request begins. It returns the context in which
// to serve it and, if not nil, a function that is called once when it ended,
// whether it succeeded, failed, panicked or was abandoned. The RequestSummary is
// that function's to keep.
//
// The returned context must derive from ctx, of which [RequestIDFrom] tells
// the request's ID. An Observer must be safe for concurrent use and must not
// read the request's body.
type Observer func(ctx context.Context, r *http.Request) (context.Context, func(*RequestSummary))

// Observers returns an Observer that calls each of obs. They end in the
// reverse of the order they began in.
func Observers(obs ...Observer) Observer {
	return func(ctx context.Context, r *http.Request) (context.Context, func(*RequestSummary)) {
		var ends []func(*RequestSummary)
		for _, o := range obs {
			if o == nil {
				continue
			}
			var end func(*RequestSummary)
			if ctx, end = o(ctx, r); end != nil {
				ends = append(ends, end)
			}
		}
		return ctx, func(e *RequestSummary) {
			for i := len(ends) - 1; i >= 0; i-- {
				ends[i](e)
			}
		}
	}
}

// An RequestSummary is what became of a request. It holds no secrets, and nothing of
// what was said but what Err quotes: the errors of bad requests do.
type RequestSummary struct {
	UsageRecord               // zero as far as the request did not get
	Status      int           // HTTP status; 499 if the client left before it was told one
	Err         error         // why it failed, or nil; in mid-stream the Status is 200 nevertheless
	Streamed    bool          // whether the reply was a stream
	Chunks      int           // that the Backend yielded
	FirstChunk  time.Duration // since arrival; zero if there was none
	Duration    time.Duration // since arrival
	Target      string        // whom the Backend turned to last, if it told; see [ReportTry]
	Tries       int           // how many tries that took; zero if it did not tell
}

// ReportTry tells the [RequestSummary] of the request that ctx is of to whom its
// Backend turns, and which try that is, counted from 1. Backends that pick
// among others call it before each try; the last call counts. The name should
// be one that the host has given, and no address. Outside of a Handler
// ReportTry does nothing.
func ReportTry(ctx context.Context, name string, try int) {
	if x, _ := ctx.Value(exchangeKey{}).(*exchange); x != nil {
		x.mu.Lock()
		x.target, x.tries = name, try
		x.mu.Unlock()
	}
}
