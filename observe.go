package llmhttp

import (
	"context"
	"net/http"
	"time"
)

// An Observer is called when a request begins. It returns the context in which
// to serve the request, which must derive from ctx, and a function that is
// called once when the request has ended, whether it succeeded, failed,
// panicked or was abandoned by its client. Both may be nil. The function may
// keep its argument.
//
// [RequestIDFrom] of ctx is the ID of the request. An Observer must be safe for
// concurrent use and must not read the body of the request.
type Observer func(ctx context.Context, r *http.Request) (context.Context, func(*RequestSummary))

// Observers returns an Observer that calls each of obs in order. Their
// functions for the end of the request are called in reverse order; if one
// panics, the others are still called.
func Observers(obs ...Observer) Observer {
	return func(ctx context.Context, r *http.Request) (context.Context, func(*RequestSummary)) {
		var ends []func(*RequestSummary)
		for _, o := range obs {
			if o == nil {
				continue
			}
			next, end := o(ctx, r)
			if next != nil {
				ctx = next
			}
			if end != nil {
				ends = append(ends, end)
			}
		}
		return ctx, func(s *RequestSummary) {
			for _, end := range ends {
				defer end(s)
			}
		}
	}
}

// A RequestSummary describes a request that has ended. It contains no API keys.
// Of the request's body it has the model; the text of Err may quote more, as
// errors of invalid requests do, and errors of a Backend may.
type RequestSummary struct {
	UsageRecord               // fields are zero if the request failed before they were known
	Status      int           // HTTP status; 499 if the client disconnected before one was sent
	Err         error         // why the request failed; nil if it succeeded. If a stream fails, Status is still 200
	Protocol    string        // the name of the wire format; "chat" for the endpoints of OpenAI's API
	Streamed    bool          // whether the client asked for a stream
	Chunks      int           // number of chunks that the Backend yielded
	FirstChunk  time.Duration // from the arrival to the first chunk; zero if there was none
	Duration    time.Duration // from the arrival to the end
	Target      string        // the target of the last try, if the Backend called [ReportTry]
	Tries       int           // the number of that try; zero if the Backend did not call ReportTry
}

// ReportTry sets Target and Tries in the [RequestSummary] of the request that ctx
// belongs to. A Backend that selects one of several targets calls it before each
// try, with the name of the target and the number of the try, counted from 1.
// Each call replaces the values of the one before. Use a name that the host has
// configured and not an address, because summaries are logged. If ctx does not
// belong to a request of a Handler, ReportTry does nothing.
func ReportTry(ctx context.Context, target string, try int) {
	if q := requestFrom(ctx); q != nil {
		q.res.mu.Lock()
		q.stats.target, q.stats.tries = target, try
		q.res.mu.Unlock()
	}
}
