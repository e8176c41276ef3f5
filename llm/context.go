package llm

import (
	"context"
	"errors"
	"fmt"

	"github.com/llmhttp/llmhttp/internal/callctx"
)

// A CallResult is the end of a call of a model that [StartCall] has begun.
type CallResult struct {
	// Model is the name in the reply, which the price may depend on. Empty means that it is not
	// known.
	Model string

	// ServiceTier is the service_tier in the reply. Empty means that there was none.
	ServiceTier string

	// Usage is what the call has used. It takes the place of what was reported with the context
	// of the call, unless its total is less. Nil, or a Usage without tokens, adds nothing to that.
	Usage *Usage

	// Err is why the call failed, or nil. A call that failed has used what is known of it, which may
	// be nothing. One that did not fail has used something: if nothing is known of it, its usage and
	// its cost are not known. So has one that ended with an error after the context that StartCall got was
	// done, for example because the client has left, unless Err wraps ErrNotSent.
	Err error
}

// A servedRequest is a request for which a Backend works: the value of its context for callctx.Key.
type servedRequest interface {
	// ReportUsage takes what the request has used so far.
	ReportUsage(ctx context.Context, u Usage)

	// AfterClient returns a context for what is left to do, if the client has left.
	AfterClient() (context.Context, bool)

	// StartCall begins a call of a model.
	StartCall(ctx context.Context, model string) (_ context.Context, end func(CallResult))

	// Spent returns what the calls of models have cost.
	Spent(ctx context.Context) (Money, error)
}

// ClientLeft reports whether ctx, which a Backend got for a request, has ended because the client
// of the request left. If so, it returns a context for what the Backend still has to do, such as
// finding out what the request has used for [ReportUsage]. That context has the values of ctx. It
// ends with the request, and when the request is ended for another reason, such as a timeout. A
// host that cancels the context of its requests ends it only if it does so before the client
// leaves. A Backend should set a deadline of its own: until it has returned, the request is not over.
//
// It reports false while the client is there, if the request has ended for another reason or is
// over, and if ctx does not belong to a request: then the caller that canceled ctx may be waiting
// for the Backend. ClientLeft may be called concurrently.
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

// ReportUsage tells what a request has used so far. A Backend calls it with the
// context that it got, or one that derives from it, as wrappers pass it on. It works for each
// Operation, from the call of the Backend's method until that method, or for Chat the
// function of the stream, has returned: also when yield has returned false, and when the
// client has left. See [ClientLeft] for how to find out the usage then.
//
// u is the total of the request. It takes the place of the usage that was yielded or reported
// before, unless its TotalTokens, or the sum of the other two if that is zero, is less: a report
// never lowers what a request pays. A Usage that is yielded or returned later takes the place of a
// report, even if it is less. With the context of a call that [StartCall] has begun, u is the total
// of that call, by the same rules.
//
// If ctx does not belong to a request, ReportUsage does nothing. If the Backend has returned, or the
// call has ended, the report is ignored and a warning is logged. It may be called concurrently. The caller must
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
func StartCall(ctx context.Context, model string) (_ context.Context, end func(CallResult)) {
	if r, ok := ctx.Value(callctx.Key{}).(servedRequest); ok {
		return r.StartCall(ctx, model)
	}
	return ctx, func(CallResult) {}
}

// Spent returns what those calls have cost that [StartCall] has begun with ctx, or with a context that
// derives from it, and that have ended. It is the sum that will be recorded of the request, so that a
// Backend can end its work when that has cost enough. With the context of a call, it is that of
// the calls within it.
//
// The error tells that the cost of a call is not known, because the call has no price or because its
// usage was not reported. The Money is then that of the other calls. The error wraps
// [errors.ErrUnsupported], and the Money is zero, if there are no prices or if ctx does not belong to a
// request. Spent may be called concurrently.
func Spent(ctx context.Context) (Money, error) {
	if r, ok := ctx.Value(callctx.Key{}).(servedRequest); ok {
		return r.Spent(ctx)
	}
	return 0, errNoRequest
}

var errNoRequest = fmt.Errorf("llmhttp: Spent: the context does not belong to a request: %w", errors.ErrUnsupported)

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
