// Route, Target and Options.

package route

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/option"
)

// A Route lists the targets that serve requests for a model.
type Route struct {
	// Model is the name of the model that clients use, or a pattern of names in which each *
	// matches any text, as in [llmhttp.Key]. A route with the exact name takes precedence over
	// patterns. Of several patterns that match, the first is used.
	Model string

	// Strategy selects the target of a request. Empty means Weighted.
	Strategy Strategy

	// Targets are the Backends to select from. There must be at least one. If
	// they serve embeddings, all must use the same embedding model, because
	// vectors of different models cannot be compared.
	Targets []Target
}

// A Target is a Backend that serves requests of a [Route].
type Target struct {
	// Name identifies the target in logs, in [Router.Status] and in
	// [llmhttp.RequestSummary]. It must not be empty and must be unique in
	// the route.
	Name string

	// Backend serves the requests. It must not be nil. A target whose Backend does not implement
	// the optional interface that a request needs is not used for that request.
	Backend llmhttp.Backend

	// Model is the Backend's name of the model. Empty means the name that the client sent. If the
	// route's Model has exactly one *, Model may have one too: it is replaced by the text that the
	// route's * matched. Clients always see their own name, in replies and in error messages.
	Model string

	// Params are rules for parameters that the model does not take.
	Params ParamRules

	// Allow reports whether the target may serve a request, for example because it is in the
	// region of the account ([llmhttp.KeyFrom]) or because the account has a key of its own
	// for it. A target that may not is left out as if the route did not have it, in lists of models
	// too. If none is left, the client gets the 404 of a model that does not exist. Allow
	// is called on the goroutine of the request, once for each request and target, or for
	// each model that may be listed, and must return quickly. Nil allows all.
	Allow func(ctx context.Context, req Request) bool

	// Weight is the target's share of the requests, relative to the weights of
	// the other targets. Zero means 1; the maximum is 1,000,000. A negative
	// Weight is an error of [New]. InOrder ignores it.
	Weight int
}

// A Strategy selects one of the targets that can be tried.
type Strategy string

const (
	// Weighted distributes requests in proportion to the weights, in a smooth weighted round-robin:
	// with weights 3 and 1, the first target gets 3 of any 4 consecutive requests.
	Weighted Strategy = "weighted"

	// LeastInFlight selects the target with the fewest requests in flight
	// relative to its weight. Ties are resolved as with Weighted. Each Router counts its own
	// requests, and knows nothing of other processes.
	LeastInFlight Strategy = "least-in-flight"

	// InOrder selects the first target that can be tried.
	InOrder Strategy = "in-order"

	// Affinity sends the requests of a session to the same target, so that its prompt cache
	// has what they have in common. A session is, in this order:
	//
	//   - the member prompt_cache_key of the request;
	//   - the Conversation of [llmhttp.RequestInfo], which package responses sets;
	//   - the end user whom the request names: see [llm.ChatRequest.EndUser];
	//
	// each within the account. Requests without one are distributed as with Weighted.
	// Sessions are distributed by a hash of them and of the names of the targets, in proportion
	// to the weights, and alike in all processes. While a target cannot be tried, its sessions,
	// and no others, are at other targets, each at its own one. They return when it can. A
	// target that has more than 8 requests in flight, and more than one and a half times
	// its share of all, gets no more of a session: the next target of that session does.
	Affinity Strategy = "affinity"
)

// strategies are the valid values of Route.Strategy.
var strategies = []Strategy{"", Weighted, LeastInFlight, InOrder, Affinity}

// Options configure a [Router]. The zero value uses the defaults.
type Options struct {
	// Tries is the maximum number of tries for one request. Zero means 6;
	// negative means no limit.
	Tries int

	// Rounds is the maximum number of tries of the same target for one request. Zero means 2;
	// negative means no limit. Without this limit and that of Tries, targets are tried until one
	// answers, all breakers are open, or the request ends.
	Rounds int

	// TryTimeout is the maximum time until the first chunk of a try, or until
	// its whole reply if that is not a stream. Zero means 2 minutes; negative
	// means no timeout. A timeout that is not shorter than
	// [llmhttp.Bounds].Timeout has no effect, because that ends the request. A try runs on the
	// goroutine of the request: no other target is tried before a Backend that ignores its context
	// has returned.
	TryTimeout time.Duration

	// Backoff is the maximum delay before the second round; the minimum is half of it. It doubles
	// with each round, up to MaxWait. Zero means 250 ms; negative means no delay.
	Backoff time.Duration

	// MaxWait is the maximum delay between two rounds. A request does not wait
	// for a target whose RetryAfter is longer. Zero means 5 seconds; negative
	// means no maximum. MaxWait should be shorter than
	// [llmhttp.Bounds].Timeout, which ends the request.
	MaxWait time.Duration

	// Fallback decides what follows from the error of a try, with which it is called on the
	// goroutine of the request. ctx is the Router's: [llmhttp.KeyFrom] and
	// [llmhttp.RequestInfoFrom] tell whose request it is. [errors.As] finds the
	// [llm.Error] in err, whose model is the client's, and upstream.Error. Fallback is not
	// called if the client has left or the time of the request is over. Nil, and the
	// zero Decision, leave it to the Router.
	Fallback func(ctx context.Context, err error) Decision

	// Failures is the number of consecutive failures with a model that opens the
	// circuit breaker of a target. Zero means 5; negative means no limit: it
	// never opens.
	Failures int

	// OpenFor is the minimum time for which a breaker stays open; the maximum is one and a half
	// times that. It doubles whenever the request that is let through afterwards fails too, up to 5
	// minutes or OpenFor, whichever is longer. Zero means 10 seconds; negative means no time: the
	// breaker is half-open at once.
	OpenFor time.Duration

	// ModelsTTL is how long the model list of a target is valid. Zero means a
	// minute; negative means no time: each call of [Router.ListModels] requests
	// new lists. Requests to a route with a pattern and several targets refresh
	// lists too, at most every 5 seconds.
	ModelsTTL time.Duration

	// Logger receives a message for each failed try and for each breaker that
	// opens or closes. Nil means slog.Default(). The texts of errors are not
	// logged, because they may contain addresses and secrets.
	Logger *slog.Logger
}

// forever stands for a duration without limit. Doubling it does not overflow.
const forever time.Duration = math.MaxInt64 / 2 // 146 years

// withDefaults returns a copy of o in which every field has its final value. o may be nil.
func (o *Options) withDefaults() Options {
	var d Options
	if o != nil {
		d = *o
	}
	d.Tries = option.Bound(d.Tries, 6)
	d.Rounds = option.Bound(d.Rounds, 2)
	d.TryTimeout = cmp.Or(d.TryTimeout, 2*time.Minute)
	d.Backoff = max(cmp.Or(d.Backoff, 250*time.Millisecond), 0)
	d.MaxWait = cmp.Or(d.MaxWait, 5*time.Second)
	if d.MaxWait < 0 {
		d.MaxWait = forever
	}
	d.Failures = cmp.Or(d.Failures, 5)
	d.OpenFor = min(max(cmp.Or(d.OpenFor, 10*time.Second), 0), forever)
	d.ModelsTTL = max(cmp.Or(d.ModelsTTL, time.Minute), 0)
	d.Logger = cmp.Or(d.Logger, slog.Default())
	return d
}
