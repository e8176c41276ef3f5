package llmhttp

import "context"

// A requestContext is a context that has the request as a value. It is part of a request,
// where context.WithValue would allocate (budget: allocations of a whole request).
type requestContext struct {
	context.Context
	q *request
}

type requestKey struct{}

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
	q := requestFrom(ctx)
	if q == nil {
		return ctx, false
	}
	after, ok := q.client.AfterClient()
	if !ok {
		return ctx, false
	}
	return &detachedContext{after, ctx}, true
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
// u is the total of the request and not that of one call of a model. It takes the place of the
// usage that was yielded or reported before, unless its TotalTokens, or the sum of the other two if
// that is zero, is less: a report never lowers what a request pays. A Usage that is yielded or
// returned later takes the place of a report, even if it is less. A Backend that calls models
// several times, such as an agent, reports the sum of all calls, which [Usage.Add] makes, after
// each of them, so that a client that leaves has paid for them.
//
// If ctx does not belong to a request of a Handler, ReportUsage does nothing. If the Backend has
// returned, it logs a warning. It may be called concurrently. The caller must not modify
// u.Extra afterwards.
func ReportUsage(ctx context.Context, u Usage) {
	u.Add(usedBefore(ctx))
	if r, ok := ctx.Value(usageRelayKey{}).(*usageRelay); ok {
		r.report.report(u)
		ReportUsage(r.ctx, u)
		return
	}
	q := requestFrom(ctx)
	if q == nil {
		return
	}
	if !q.usage.report(u) {
		q.log.warn(misuseLateUsage)
	}
}

type usedBeforeKey struct{}

// WithUsage returns a context for the next call of a Backend by one that serves a request with
// several calls and has used u for it until now. What is reported with that context by ReportUsage
// counts in addition to u. So the usage that package upstream still finds out when the client has
// left is added to that of the calls before, in place of being less and without effect.
//
// If ctx has a usage already, because the Backend is itself called by such a Backend, u is added
// to it.
func WithUsage(ctx context.Context, u Usage) context.Context {
	u.Add(usedBefore(ctx))
	return context.WithValue(ctx, usedBeforeKey{}, &u)
}

// usedBefore returns the usage that WithUsage has set, or nil.
func usedBefore(ctx context.Context) *Usage {
	u, _ := ctx.Value(usedBeforeKey{}).(*Usage)
	return u
}

// relayUsage returns a context for one of the calls of a Backend by one that has used u for the request until
// now. As with WithUsage, what is reported with it counts in addition to u. The sum is in the usageReport too,
// which the caller sets to what is yielded.
func relayUsage(ctx context.Context, u Usage) (context.Context, *usageReport) {
	r := &usageRelay{ctx, usageReport{open: true}}
	return context.WithValue(context.WithValue(ctx, usedBeforeKey{}, &u), usageRelayKey{}, r), &r.report
}

type usageRelayKey struct{}

// A usageRelay is where ReportUsage with a context of relayUsage reports.
type usageRelay struct {
	ctx    context.Context // that relayUsage got
	report usageReport
}

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
