// What a host asks and tells with the context of a request. Only these functions, and request, ask a
// context for the request.

package llmhttp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/llmhttp/llmhttp/internal/callctx"
	"github.com/llmhttp/llmhttp/internal/order"
	"github.com/llmhttp/llmhttp/llm"
)

// A requestContext is a context that has the request as a value. It is part of a request,
// where context.WithValue would allocate (budget: allocations of a whole request).
type requestContext struct {
	context.Context
	q *request
}

// A requestKey is the key by which a context has the request.
type requestKey = callctx.Key

func (c *requestContext) Value(key any) any {
	if key == (requestKey{}) {
		return c.q
	}
	return c.Context.Value(key)
}

// requestFrom returns the request that ctx belongs to, or nil.
func requestFrom(ctx context.Context) *request {
	q, _ := ctx.Value(requestKey{}).(*request)
	return q
}

// ReportUsage implements servedRequest.
func (q *request) ReportUsage(ctx context.Context, u llm.Usage) {
	report := q.usage.report
	if c := callFrom(ctx, q); c != nil {
		report = c.report
	}
	if !report(u) {
		q.log.warn(misuseLateUsage)
	}
}

// UsageUnknown implements what callctx.UsageUnknown needs. It logs the first error of a request.
func (q *request) UsageUnknown(err error) {
	if q.notes.setUsageUnknown() {
		q.log.print(slog.LevelWarn, "the usage of a reply is not known", err)
	}
}

// RequestID implements what callctx.RequestID needs.
func (q *request) RequestID() string { return q.record.RequestID }

// Conversation implements what callctx.Conversation needs.
func (q *request) Conversation() (account, conversation string) {
	if info := q.info.load(); info != nil {
		account, conversation = info.Account, info.Conversation
	}
	return account, conversation
}

// AfterClient implements servedRequest.
func (q *request) AfterClient() (context.Context, bool) { return q.client.AfterClient() }

// StartTry tells the Handler and the Observer of a request that the Backend is about to call one
// of several targets. ctx is the context that the Backend got for the request. The Backend must
// use the context that StartTry returns for the call, and must call end when the call has ended,
// with the error or nil. Calls of end after the first do nothing.
//
// The [UsageRecord] has the target of the last try. Use a name that the host has configured and not
// an address, because requests are recorded, logged and counted by target. A target of more than
// 512 bytes, or with control characters, is taken for "". If the Handler has no Observer, or if ctx
// does not belong to a request of a Handler, StartTry returns ctx, and an end that does nothing. It
// may be called concurrently.
func StartTry(ctx context.Context, target string) (_ context.Context, end func(error)) {
	q := requestFrom(ctx)
	if q == nil {
		return ctx, func(error) {}
	}
	target = recordedName(target)
	q.notes.setTarget(target)
	return q.observer.startTry(ctx, target)
}

// keptBackend returns the Backend that the request that ctx belongs to uses of s. current is that
// for requests that begin.
func keptBackend(ctx context.Context, s *SwappableBackend, current *Backend) *Backend {
	if q := requestFrom(ctx); q != nil {
		return q.notes.keep(s, current)
	}
	return current
}

// WarnMisuses logs mistakes of a Backend that a wrapper has put right. Package textfilter finds it
// with the key of the context.
func (q *request) WarnMisuses(set order.Misuses) { q.log.warn(set) }

// keepObservation sets the Observation of the request that ctx belongs to, whose Observer
// panics.
func keepObservation(ctx context.Context, all observations) {
	if q := requestFrom(ctx); q != nil {
		q.observer.keep(all)
	}
}

// StartCall implements servedRequest.
func (q *request) StartCall(ctx context.Context, model string) (_ context.Context, end func(llm.CallResult)) {
	tree := q.callTree()
	if tree == nil {
		q.log.warn(misuseLateUsage)
		return ctx, func(llm.CallResult) {}
	}
	return tree.start(ctx, callFrom(ctx, q), cmp.Or(model, tree.record.Model))
}

// callTree returns the calls of the request, or nil if the Backend has returned.
func (q *request) callTree() *callTree {
	if !q.usage.hold() { // so that the record does not change
		return nil
	}
	defer q.usage.release()
	t := q.notes.getCalls()
	if t == nil {
		t = q.notes.setCalls(&callTree{notes: &q.notes, books: q.ledger.books, record: *q.record})
	}
	return t
}

// callFrom returns the call of q that ctx belongs to, or nil.
func callFrom(ctx context.Context, q *request) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	if c == nil {
		return nil
	}
	if q.notes.getCalls() != c.tree {
		return nil // of a request of another Handler, around this one
	}
	return c
}

// Spent implements servedRequest.
func (q *request) Spent(ctx context.Context) (llm.Money, error) {
	if q.ledger.price == nil {
		return 0, errNoPrice
	}
	tree := q.notes.getCalls()
	if tree == nil {
		return 0, nil
	}
	sum := tree.spent(callFrom(ctx, q))
	if sum.err == nil && sum.unknown {
		sum.err = errUsageUnknown
	}
	return sum.cost.Total(), sum.err
}

var errNoPrice = fmt.Errorf("llmhttp: Spent: there is no Options.Price: %w", errors.ErrUnsupported)

// SetReplyHeader sets a header of the reply to the request that ctx belongs to, whether that is
// whole, a stream or an error. It replaces an earlier value, also one that middleware has set on the
// ResponseWriter. It returns an error that says why it has set nothing:
//
//   - The reply has begun. That of a Backend begins with its first chunk, or a second of silence if
//     Framing.StartsEarly is set, or when Options.Bounds.KeepAlive is due, so the Backend sets headers before.
//   - ctx does not belong to a request of a Handler.
//   - The name is not that of a header, or is one of those that the Handler, its protocols or net/http
//     set, such as Content-Type, Content-Length, Connection, X-Request-Id and those that begin with
//     X-Ratelimit-.
//   - The value has a control character, such as a line break.
//
// SetReplyHeader may be called concurrently, and on other goroutines of a Backend.
func SetReplyHeader(ctx context.Context, name, value string) error {
	field, err := newHeaderField(name, value)
	if err != nil {
		return err
	}
	q := requestFrom(ctx)
	if q == nil {
		return errNoRequest
	}
	return q.format.add(field)
}

// RequestInfoFrom returns the RequestInfo of the request that ctx belongs to: the one that
// Observation.Started gets, also if there is no [Observer]. It must not be modified, and
// may be kept.
//
// It returns nil until a request for an operation that calls a model has been decoded and
// admitted, and the Backend is about to be called. So it is nil for a KeyStore, and when the
// Limiter reserves tokens. For other requests, and if ctx does not belong to a request of a
// Handler, it is always nil. RequestInfoFrom may be called concurrently.
func RequestInfoFrom(ctx context.Context) *RequestInfo {
	if q := requestFrom(ctx); q != nil {
		return q.info.load()
	}
	return nil
}

// maxConversation is how many bytes of an ID ConversationHeader accepts.
const maxConversation = 128

// ConversationHeader returns an [Observer] that calls [SetConversation] with the value of a header, such as
// "X-Conversation-Id", for clients of formats that have no member for it. IDs of more than 128
// bytes are ignored. In the Responses API with stored responses, the header has no effect.
func ConversationHeader(name string) Observer {
	return func(ctx context.Context, r *http.Request) (context.Context, Observation) {
		if id := r.Header.Get(name); len(id) <= maxConversation {
			SetConversation(ctx, id)
		}
		return ctx, Observation{}
	}
}
