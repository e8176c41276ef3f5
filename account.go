package llmhttp

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

// An accounting takes what a request uses from the limits of its key, and records it.
//
// Before the body is read, admit takes a slot and one request. Before the Backend is
// called, reserve reserves the tokens that the request is expected to use; a Protocol may
// have reserved a part of them before: see ReserveChat. When the request ends, settle
// corrects the reservation to what was used and records the usage.
//
// A slot is one of the Limits.Concurrent requests that a key may have in progress.
type accounting struct {
	q            *request
	record       *UsageRecord   // points to the element of records
	records      [1]UsageRecord // the argument of UsageStore.Record (budget: allocations of a whole request)
	promptTokens int            // an estimate
	images       int            // the number of images that the client asked for
	loaded       int            // bytes: see CountLoaded
	unsent       int            // bytes: see CountUnsent
	reported     *Usage         // by the Backend; guarded by q.res.mu
	reservation  tokenReservation
	quota        quotaReservation
	settleCtx    detachedContext // for the Limiter and the store after the request; see settleContext

	recordable    bool // the request reached the call of the Backend for a chat, images or embeddings, so there is a record of it
	notSent       bool // the error of the Backend wraps ErrNotSent
	settled       bool
	limiterCalled bool
	refundable    bool // admit has taken a request that refundRequest may return
	costly        bool // ReserveChat was called: what it took from the rates is not returned

	// The last known states of Limits.Requests and Limits.Tokens, guarded by q.res.mu.
	limits struct{ requests, tokens limitState }

	// release releases the slot of the request; nil if it has none.
	release func()
}

// A tokenReservation is what reserve has taken from buckets of the Limiter.
type tokenReservation struct {
	tokens  int
	draws   []Draw  // empty if the key has no bucket that counts tokens
	storage [2]Draw // the storage of draws, and before that of the draws of admit and ensureLimitsKnown
}

// A limitState is the state of a limit, if it is known.
type limitState struct {
	known bool
	info  LimitInfo
}

// admit takes a slot, and one request from its bucket. If it returns an error, it took no
// request; releaseSlot releases the slot.
func (a *accounting) admit() error {
	l := &a.q.key.Limits
	if l.Concurrent != 0 {
		if err := a.acquireSlot(l.Concurrent); err != nil {
			return err
		}
	}
	if l.Requests.N == 0 {
		return nil
	}
	bucket, rate := a.requestLimit()
	draws := appendDraw(a.reservation.storage[:0], bucket, rate, 1)
	if err := a.take(appendDraw(draws, BucketTokens, l.Tokens, 0)); err != nil {
		return err
	}
	a.refundable = true
	return nil
}

// requestLimit returns the bucket that admit takes one request from, and its rate.
func (a *accounting) requestLimit() (bucket string, r Rate) {
	l := &a.q.key.Limits
	if a.q.route.countsTokens {
		return BucketTokenCounts, l.tokenCountRate()
	}
	return BucketRequests, l.Requests
}

// An estimate is what a request is expected to use.
type estimate struct {
	tokens    int
	minTokens int // enough if a quota has less than tokens left
	images    int
}

// reserve reserves what the request is expected to use, from the quota and all
// buckets of tokens or from none. A second call, with a better estimate, takes from the
// buckets what the first one has not reserved.
func (a *accounting) reserve(e estimate) error {
	l, tokens := &a.q.key.Limits, max(e.tokens, a.reservation.tokens)
	if burst := l.Tokens.WithDefaults().Burst; l.Tokens.N != 0 && tokens > burst {
		a.q.observer.refusedBy = BucketTokens
		return errRequestTooLarge(burst, tokens)
	}
	draws := appendDraw(a.reservation.storage[:0], BucketTokens, l.Tokens, tokens-a.reservation.tokens)
	useBucket, err := a.reserveQuota(e)
	if err != nil {
		return err
	}
	if useBucket {
		draws = appendDraw(draws, BucketQuota, l.Quota.rate(), tokens-a.reservation.tokens)
	}
	if len(draws) == 0 {
		return nil
	}
	a.q.observer.stepClass = ClassLimiter
	if err := a.take(draws); err != nil {
		return err
	}
	a.reservation.draws, a.reservation.tokens = draws, tokens
	return nil
}

// appendDraw appends a Draw if its Rate is a limit.
func appendDraw(draws []Draw, bucket string, r Rate, cost int) []Draw {
	if r.N == 0 {
		return draws
	}
	return append(draws, Draw{Bucket: bucket, Rate: r, Cost: cost})
}

// take takes draws from the Limiter. If one of them has to wait, it takes none and returns
// the error for the client.
func (a *accounting) take(draws []Draw) error {
	a.limiterCalled = true
	levels, err := a.q.h.opts.Limiter.Take(a.q.life.ctx, a.q.key.ID, draws...)
	if err == nil && len(levels) != len(draws) {
		err = fmt.Errorf("llmhttp: the Limiter returned %d levels for %d draws", len(levels), len(draws))
	}
	if err != nil {
		return a.q.life.storeError(err, messageLimits)
	}
	a.noteLevels(draws, levels)
	bucket, err := refusal(draws, levels)
	if err != nil {
		a.q.observer.refusedBy = bucket
	}
	return err
}

// refusal returns the bucket of the draw that has to wait longest and the error
// for it, or nil if none has to.
func refusal(draws []Draw, levels []Level) (bucket string, err error) {
	var longest time.Duration
	for i, level := range levels {
		wait := level.RetryAfter
		switch {
		case wait <= 0:
		case draws[i].Bucket == BucketQuota:
			return BucketQuota, errQuota()
		case wait > longest:
			longest = wait
			bucket, err = draws[i].Bucket, errRateLimit(draws[i], level)
		}
	}
	return bucket, err
}

// takeLoad takes one request from BucketRequests for a count of tokens that is about to load
// something.
func (a *accounting) takeLoad() error {
	draws := appendDraw(a.reservation.storage[:0], BucketRequests, a.q.key.Limits.Requests, 1)
	if len(draws) == 0 {
		return nil
	}
	a.q.beginStep(ClassLimiter)
	defer a.q.beginStep(ClassInternal)
	return a.take(draws)
}

// countPrompt estimates the tokens of the prompt of a chat.
func (a *accounting) countPrompt(req *ChatRequest) int {
	return a.q.tokenCounter().prompt(req) + estimateTokens(a.unsent)
}

// acquireSlot takes a slot, or returns an error if limit requests are in progress.
func (a *accounting) acquireSlot(limit int) error {
	acquire := a.q.h.concurrent.Acquire
	if l, ok := a.q.h.opts.Limiter.(ConcurrencyLimiter); ok {
		acquire = l.Acquire
	}
	release, err := acquire(a.q.life.ctx, a.q.key.ID, limit)
	if err != nil {
		return a.q.life.storeError(err, messageLimits)
	}
	if release == nil {
		a.q.observer.refusedBy = LimitConcurrent
		return errConcurrent(limit)
	}
	a.release = release
	return nil
}

// slotRelease returns releaseSlot, or nil if the request has no slot.
func (a *accounting) slotRelease() func() {
	if a.release == nil {
		return nil
	}
	return a.releaseSlot
}

// releaseSlot releases the slot of the request, if it has one.
func (a *accounting) releaseSlot() {
	release := a.release
	if release == nil {
		return
	}
	a.release = nil
	a.q.log.callAndLog("concurrent request not released", func() error { release(); return nil })
}

// refundRequest returns what admit took from the bucket of requests, if the request has
// failed before the Backend was called.
func (a *accounting) refundRequest() {
	if !a.refundable {
		return
	}
	a.refundable = false
	bucket, r := a.requestLimit()
	a.q.log.callAndLog("limits not settled", func() error {
		return a.q.h.opts.Limiter.Adjust(a.settleContext(), a.q.key.ID, Draw{Bucket: bucket, Rate: r, Cost: -1})
	})
	a.q.res.mu.Lock()
	defer a.q.res.mu.Unlock()
	r = r.WithDefaults()
	info := &a.limits.requests.info
	info.Remaining = min(info.Remaining+1, info.Limit)
	info.ResetAfter = max(info.ResetAfter-r.Per/time.Duration(max(r.N, 1)), 0)
}

// commitRequest makes what admit took final: the Backend is about to be called, or the
// request is about to cost as much.
func (a *accounting) commitRequest() { a.refundable = false }

// ensureLimitsKnown asks the Limiter for the state of the limits if it was not called yet:
// the headers of every reply to a key with limits report it.
func (a *accounting) ensureLimitsKnown() {
	if a.q.key == nil || a.limiterCalled || a.q.life.endCause() == errClientLeft {
		return
	}
	bucket, rate := a.requestLimit()
	draws := appendDraw(a.reservation.storage[:0], bucket, rate, 0)
	if draws = appendDraw(draws, BucketTokens, a.q.key.Limits.Tokens, 0); len(draws) > 0 {
		a.q.log.callAndLog("limits are not known", func() error { return a.take(draws) })
	}
}

// noteLevels stores the levels of the buckets of requests and tokens for reportLimits.
func (a *accounting) noteLevels(draws []Draw, levels []Level) {
	a.q.res.mu.Lock()
	defer a.q.res.mu.Unlock()
	for i, level := range levels {
		info := LimitInfo{Limit: draws[i].Rate.WithDefaults().Burst, Remaining: level.Remaining, ResetAfter: level.ResetAfter}
		switch draws[i].Bucket {
		case BucketRequests, BucketTokenCounts:
			a.limits.requests = limitState{true, info}
		case BucketTokens:
			a.limits.tokens = limitState{true, info}
		}
	}
}

// reportLimits sets the limits in info whose state is known. q.res.mu is held.
func (a *accounting) reportLimits(info *ReplyInfo) {
	if a.limits.requests.known {
		info.Requests = &a.limits.requests.info
	}
	if a.limits.tokens.known {
		info.Tokens = &a.limits.tokens.info
	}
}

// settle finds out what was used, corrects the reservation to it and records it. A request
// that succeeds is settled before its reply ends, because the client may ask for its usage
// next. Others are settled by request.finish. Calls after the first only give back a
// reservation of the quota that is left, and so does a call for a request that has neither
// reserved nor used anything.
func (a *accounting) settle() {
	refused := !a.recordable
	if a.settled || refused && a.loaded == 0 && len(a.reservation.draws) == 0 {
		a.settleQuota(false)
		return
	}
	a.settled = true
	q := a.q
	q.idle.stopTimeout()
	billable := a.recordable && !a.failedAsNotFound() || refused && a.loaded > 0
	ctx := a.settleContext()
	runAll(
		func() { q.log.callAndLog("usage not counted", func() error { a.setUsage(billable); return nil }) },
		func() { q.log.callAndLog("limits not settled", func() error { return a.settleTokens(ctx) }) },
		func() { q.log.callAndLog("usage not recorded", func() error { return a.recordUsage(ctx, billable) }) },
		func() { q.log.callAndLog("quota not settled", func() error { a.settleQuota(billable); return nil }) },
	)
}

// settleContext returns a context with the values of the request. It is not cancelled when
// the client leaves, but ends after settleGrace.
func (a *accounting) settleContext() context.Context {
	c := &a.settleCtx
	if c.Context != nil { // a Limiter or a store that hangs may still use it
		c = new(detachedContext)
	}
	*c = detachedContext{a.q.h.settleContexts.next(), a.q.life.backendCtx}
	return c
}

// settleTokens takes the difference between the tokens used and those reserved. A costly
// request that did not reach the Backend gets nothing back from the rate of tokens.
func (a *accounting) settleTokens(ctx context.Context) error {
	difference, draws := a.record.Usage.TotalTokens-a.reservation.tokens, a.reservation.draws
	if a.costly && !a.recordable && difference < 0 {
		draws = slices.DeleteFunc(draws, func(d Draw) bool { return d.Bucket == BucketTokens })
	}
	if len(draws) == 0 || difference == 0 {
		return nil
	}
	for i := range draws {
		draws[i].Cost = difference
	}
	return a.q.h.opts.Limiter.Adjust(ctx, a.q.key.ID, draws...)
}

// recordUsage records the usage of a billable request.
func (a *accounting) recordUsage(ctx context.Context, billable bool) error {
	store, observer := a.q.h.opts.Usage, &a.q.observer
	if store == nil || !billable {
		return nil
	}
	if ctx.Err() != nil { // a Limiter that hangs does not take the store's time
		ctx = a.settleContext()
	}
	observer.recordErr = errNotRecorded // unless Record returns
	observer.recordErr = store.Record(ctx, a.records[:]...)
	return observer.recordErr
}

// failedAsNotFound reports whether the Backend knows no such model or has no such
// method, so that nothing was used.
func (a *accounting) failedAsNotFound() bool {
	q := a.q
	q.res.mu.Lock()
	defer q.res.mu.Unlock()
	return q.res.err != nil && q.observer.chunks == 0 && a.record.Images == 0 && q.failures.clientError(q.res.err).Status == http.StatusNotFound
}

// setUsage sets the usage to what the Backend reported, or to an estimate. A
// request that failed before its reply began used nothing, unless its client
// has left, which may be why. One that was refused after it had loaded something used that.
func (a *accounting) setUsage(billable bool) {
	q := a.q
	q.res.mu.Lock()
	left, reported := q.res.clientLeft, a.reported
	failed := q.res.err != nil && q.observer.chunks == 0 && !left
	q.res.mu.Unlock()
	u := &a.record.Usage
	if reported != nil && reported.dropInvalid() {
		q.log.warn(misuseInvalidExtra)
	}
	if billable && left && !a.notSent && a.record.Images == 0 && a.images > 0 {
		a.record.Images, a.record.Estimated = a.images, true // nobody waited for the images to be counted
	}
	switch {
	case !billable: // nothing was used
	case !a.recordable:
		a.record.Estimated = true
		u.PromptTokens = max(a.promptTokens, estimateTokens(a.loaded))
		u.bound()
	case reported != nil:
		*u = *reported
		u.bound()
		if u.TotalTokens > u.PromptTokens+u.CompletionTokens {
			a.divideTotal(u)
		}
	case failed, a.notSent, a.record.Endpoint == EndpointImages: // there is no estimate
	default:
		a.record.Estimated = true
		u.PromptTokens, u.CompletionTokens = a.promptTokens, a.estimateOutput()
		u.bound()
	}
	u.reconcile()
}

// estimateOutput estimates the tokens of the reply to a chat, as far as it was received.
func (a *accounting) estimateOutput() int {
	a.q.res.mu.Lock()
	output := a.q.chat.order.output
	a.q.res.mu.Unlock()
	return a.q.tokenCounter().output(&output)
}

// divideTotal adds those tokens of u.TotalTokens that are neither counted in PromptTokens nor in
// CompletionTokens to the one of these that is zero. If both are, the total of a chat is
// divided like the estimate, and the output of images is what the estimate of the prompt
// leaves. If neither is, they are tokens of the completion: xAI counts reasoning only in the
// total (https://docs.x.ai/docs/key-information/consumption-and-rate-limits). Embeddings
// have no completion.
func (a *accounting) divideTotal(u *Usage) {
	rest := u.TotalTokens - u.PromptTokens - u.CompletionTokens
	switch {
	case a.record.Endpoint == EndpointEmbeddings:
		u.PromptTokens += rest
	case u.PromptTokens > 0:
		u.CompletionTokens += rest
	case u.CompletionTokens > 0:
		u.PromptTokens = rest
	case a.record.Endpoint == EndpointImages:
		u.PromptTokens = min(a.promptTokens, rest)
		u.CompletionTokens = rest - u.PromptTokens
	default:
		u.PromptTokens = rest // unless counting the output panics
		if output := float64(a.estimateOutput()); output > 0 {
			u.PromptTokens = int(float64(rest) * float64(a.promptTokens) / (float64(a.promptTokens) + output))
		}
		u.CompletionTokens = rest - u.PromptTokens
	}
}

// ReportUsage tells the Handler what a request has used so far. A Backend calls it with the
// context that it got, or one that derives from it, as wrappers pass it on. It works for chats,
// images and embeddings, from the call of the Backend's method until that method, or for
// Chat the function of the stream, has returned: also when yield has returned false, and
// when the client has left. See [ClientLeft] for how to find out the usage then.
//
// u is the total of the request and not that of one call of a model. It takes the place of the
// usage that was yielded or reported before, unless its TotalTokens, or the sum of the
// other two if that is zero, is less: a report never lowers what a request
// pays. A Usage that is yielded or returned later takes the place of a report, even if it
// is less. A Backend that calls models several times, such as an agent, reports the sum
// of all calls, which [Usage.Add] makes, after each of them, so that a client that leaves has
// paid for them.
//
// If ctx does not belong to a request of a Handler, ReportUsage does nothing. If the Backend has
// returned, it logs a warning. It may be called concurrently. The caller must not modify
// u.Extra afterwards.
func ReportUsage(ctx context.Context, u Usage) {
	if q := requestFrom(ctx); q != nil {
		q.accounting.report(u)
	}
}

// report implements ReportUsage for this request.
func (a *accounting) report(u Usage) {
	u.bound()
	a.q.res.mu.Lock()
	defer a.q.res.mu.Unlock()
	switch {
	case !a.q.res.backendRuns:
		a.q.log.warnLocked(misuseLateUsage)
	case a.reported == nil || a.reported.total() <= u.total():
		a.reported = &u
	}
}

// setReported sets the usage that the Backend has returned, unless it is nil.
func (a *accounting) setReported(u *Usage) {
	if u == nil {
		return
	}
	a.q.res.mu.Lock()
	defer a.q.res.mu.Unlock()
	a.reported = u
}

// settleGrace bounds how long the Limiter and the usage store may take to settle a
// request that is over. They have at least half of it.
const settleGrace = 10 * time.Second

// settleContexts provides a context that ends after settleGrace and is replaced when
// half of that has passed. Requests share it, which saves each a timer and its
// context (TestAllocs_PerRequest).
type settleContexts struct {
	mu        sync.Mutex // guards the fields below
	ctx       context.Context
	cancel    context.CancelFunc // not called, because requests may still use ctx
	replaceAt time.Time          // when ctx is to be replaced
}

func (s *settleContexts) next() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); !now.Before(s.replaceAt) {
		s.ctx, s.cancel = context.WithDeadline(context.Background(), now.Add(settleGrace))
		s.replaceAt = now.Add(settleGrace / 2)
	}
	return s.ctx
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
