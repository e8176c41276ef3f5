package llmhttp

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/llmhttp/llmhttp/internal/callctx"
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

// A servedRequest is a request for which a Backend works: the value of its context for callctx.Key.
type servedRequest interface {
	// ReportUsage takes what the request has used so far.
	ReportUsage(ctx context.Context, u Usage)

	// AfterClient returns a context for what is left to do, if the client has left.
	AfterClient() (context.Context, bool)

	// StartCall begins a call of a model.
	StartCall(ctx context.Context, model string) (_ context.Context, end func(Call))
}

// ReportUsage implements servedRequest.
func (q *request) ReportUsage(ctx context.Context, u Usage) {
	report := q.usage.report
	if c := callFrom(ctx, q); c != nil {
		report = c.report
	}
	if !report(u) {
		q.log.warn(misuseLateUsage)
	}
}

// AfterClient implements servedRequest.
func (q *request) AfterClient() (context.Context, bool) { return q.client.AfterClient() }

// ClientLeft reports whether ctx, which a Handler passed to a Backend, has ended because the
// client of the request left. If so, it returns a context for what the Backend still has to
// do, such as finding out what the request has used for [ReportUsage]. That context has the
// values of ctx. It ends with the request, and when the Handler ends the request for another
// reason: Options.Timeout, or Shutdown with a context that is done. A host that cancels the
// context of its requests ends it only if it does so before the client leaves. A
// Backend should set a deadline of its own: while it runs, the request holds its place in
// Limits.Concurrent, and both Handler.Shutdown and [http.Server.Shutdown] wait for it.
//
// It reports false while the client is there, if the request has ended for another
// reason or is over, and if ctx does not belong to a request of a Handler: then the caller
// that canceled ctx may be waiting for the Backend. ClientLeft may be called concurrently.
func ClientLeft(ctx context.Context) (context.Context, bool) {
	r, ok := ctx.Value(callctx.Key{}).(servedRequest)
	if !ok {
		return ctx, false
	}
	after, ok := r.AfterClient()
	if !ok {
		return ctx, false
	}
	return &detachedContext{Context: after, values: ctx}, true
}

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
func keptBackend(ctx context.Context, s *Swap, current *Forwarder) *Forwarder {
	if q := requestFrom(ctx); q != nil {
		return q.notes.keep(s, current)
	}
	return current
}

// warnMisuses logs mistakes of a Backend that a wrapper has put right, if ctx belongs to a request.
func warnMisuses(ctx context.Context, misuses misuseSet) {
	if q := requestFrom(ctx); q != nil {
		q.log.warn(misuses)
	}
}

// keepObservation sets the Observation of the request that ctx belongs to, whose Observer
// panics.
func keepObservation(ctx context.Context, all observations) {
	if q := requestFrom(ctx); q != nil {
		q.observer.keep(all)
	}
}

// ReportUsage tells the Handler what a request has used so far. A Backend calls it with the
// context that it got, or one that derives from it, as wrappers pass it on. It works for each
// [Operation], from the call of the Backend's method until that method, or for Chat the
// function of the stream, has returned: also when yield has returned false, and when the
// client has left. See [ClientLeft] for how to find out the usage then.
//
// u is the total of the request. It takes the place of the usage that was yielded or reported
// before, unless its TotalTokens, or the sum of the other two if that is zero, is less: a report
// never lowers what a request pays. A Usage that is yielded or returned later takes the place of a
// report, even if it is less. With the context of a call that [StartCall] has begun, u is the total
// of that call, by the same rules.
//
// If ctx does not belong to a request of a Handler, ReportUsage does nothing. If the Backend has
// returned, or the call has ended, it logs a warning. It may be called concurrently. The caller must
// not modify u.Extra afterwards.
func ReportUsage(ctx context.Context, u Usage) {
	if r, ok := ctx.Value(callctx.Key{}).(servedRequest); ok {
		r.ReportUsage(ctx, u)
	}
}

// StartCall tells that a Backend is about to call a model for the request that ctx belongs
// to, such as in a turn of an agent, so that each call is priced by itself: prices are not
// proportional to tokens if long prompts cost more, or each request. model is the name that the
// Backend asks for, and empty if that is the name in the request. The Backend must use the returned
// context for the call, and call end when it has ended. Calls of end after the first do nothing. A
// call that is not ended when the Backend returns, or when the call that it is in ends, has used what
// was reported with its context.
//
// What a request has used is the sum of its calls, which is the usage that the client sees. A Backend
// may also yield, return or report the total of the request, as it does without calls. The total
// includes the calls. If it is more than their sum, the difference is priced like a further call, of
// the model of the request; if it is less, the sum counts. What a request uses besides tokens, such as
// images, is a part of that difference. If a call did not fail and its usage is not known, that of the
// request is at least what is estimated.
//
// Calls can contain calls: if the Backend that is called is itself one that calls StartCall, with a
// context that derives from the one of the call, these are to the call what the call is to the
// request, and nothing is counted twice. So a call of an agent, or of package upstream, which
// reports with [ReportUsage] what it finds out when the client has left, needs nothing else.
//
// If ctx does not belong to a request, StartCall returns ctx, and an end that does nothing. It may be
// called concurrently, and so may end.
func StartCall(ctx context.Context, model string) (_ context.Context, end func(Call)) {
	if r, ok := ctx.Value(callctx.Key{}).(servedRequest); ok {
		return r.StartCall(ctx, model)
	}
	return ctx, func(Call) {}
}

// StartCall implements servedRequest.
func (q *request) StartCall(ctx context.Context, model string) (_ context.Context, end func(Call)) {
	tree := q.callTree()
	if tree == nil {
		q.log.warn(misuseLateUsage)
		return ctx, func(Call) {}
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

// Spent returns what those calls have cost that [StartCall] has begun with ctx, or with a context that
// derives from it, and that have ended. It is the sum that the UsageRecord will have, so that a
// Backend can end its work when that has cost enough. With the context of a call, it is that of
// the calls within it.
//
// The error tells that the cost of a call is not known, because Options.Price has failed or because
// the usage was not reported. It wraps [errors.ErrUnsupported] if there is no Options.Price, or if ctx
// does not belong to a request of a Handler. The Cost is then that of the other calls. Spent may be
// called concurrently.
func Spent(ctx context.Context) (Cost, error) {
	q := requestFrom(ctx)
	if q == nil || q.ledger.price == nil {
		return Cost{}, errNoPrice
	}
	tree := q.notes.getCalls()
	if tree == nil {
		return Cost{}, nil
	}
	sum := tree.spent(callFrom(ctx, q))
	if sum.err == nil && sum.unknown {
		sum.err = errUsageUnknown
	}
	return sum.cost, sum.err
}

var errNoPrice = fmt.Errorf("llmhttp: Spent: there is no Options.Price, or no request: %w", errors.ErrUnsupported)

// SetReplyHeader sets a header of the reply to the request that ctx belongs to, whether that is
// whole, a stream or an error. It replaces an earlier value, also one that middleware has set on the
// ResponseWriter. It returns an error that says why it has set nothing:
//
//   - The reply has begun. That of a Backend begins with its first chunk, or a second of silence if
//     Framing.StartsEarly is set, or when Options.KeepAlive is due, so the Backend sets headers before.
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

// A detachedContext is cancelled with its Context and has the values of another context.
type detachedContext struct {
	context.Context
	values context.Context
}

func (c *detachedContext) Value(key any) any {
	// Package context asks with a key of its own for what cancels the Context.
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.values.Value(key)
}
