package llmhttp

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"sync"
	"time"
)

// An account is what a request takes from the limits of its key, and what it
// used in the end.
//
// The tokens that a request is expected to use are reserved before the Backend
// is called. When the request ends, settle corrects the reservation to what was
// used and records the usage.
type account struct {
	q         *request
	record    UsageRecord
	prompt    int    // the estimated tokens of the prompt
	billed    bool   // the Backend was called, so the request is recorded
	reported  *Usage // by the Backend, for images and embeddings
	settled   bool
	draws     []Draw
	drawSpace [3]Draw      // the memory of draws
	levels    []Level      // of draws; nil if they are not known; guarded by q.res.mu
	limits    [2]LimitInfo // the memory of what setLimits sets
	reserved  int          // tokens
	taken     bool         // draws were taken from the buckets
	asked     bool         // the Limiter was called

	// releaseConcurrent gives up the request's place among the concurrent
	// ones; nil if it has none.
	releaseConcurrent func()
}

// bill marks that the request is to be recorded from here on.
func (a *account) bill() { a.billed = true }

// setDraws sets the draws of a request that is expected to use tokens.
func (a *account) setDraws(tokens int) {
	l := &a.q.key.Limits
	a.reserved = tokens
	a.draws = a.drawSpace[:0]
	a.addDraw(BucketRequests, l.Requests, 1)
	a.addDraw(BucketTokens, l.Tokens, tokens)
	if tokens > 0 {
		a.addDraw(BucketQuota, l.Quota, tokens)
	}
}

func (a *account) addDraw(bucket string, r Rate, cost int) {
	if r.N != 0 {
		a.draws = append(a.draws, Draw{Bucket: bucket, Rate: r, Cost: cost})
	}
}

// admit takes what a request that is expected to use tokens needs of all limits
// of its key, or takes nothing and returns an error.
func (a *account) admit(tokens int) error {
	l := &a.q.key.Limits
	if l.Concurrent != 0 {
		if err := a.acquire(l.Concurrent); err != nil {
			return err
		}
	}
	a.setDraws(tokens)
	if len(a.draws) == 0 {
		return nil
	}
	if burst := l.Tokens.WithDefaults().Burst; l.Tokens.N != 0 && tokens > burst {
		e := Errorf(http.StatusTooManyRequests, codeRateLimit,
			"Request too large: Limit %d tokens, Requested %d. Ask for fewer tokens, or shorten the messages.", burst, tokens)
		e.Type, e.NoRetry = "tokens", true
		return e
	}
	if err := a.take(); err != nil {
		return err
	}
	if err := a.refusal(); err != nil {
		return err
	}
	a.taken = true
	return nil
}

// refusal returns the error for the draw that has to wait longest, or nil if
// none has to.
func (a *account) refusal() error {
	var refused error
	var longest time.Duration
	for i, level := range a.levels {
		wait := level.RetryAfter
		switch {
		case wait <= 0:
		case a.draws[i].Bucket == BucketQuota:
			return Errorf(http.StatusTooManyRequests, codeQuota, "You exceeded your current quota, please check your plan and billing details.")
		case wait > longest:
			longest = wait
			refused = errRateLimit(a.draws[i], level)
		}
	}
	return refused
}

// acquire takes a place among the concurrent requests of the key.
func (a *account) acquire(limit int) error {
	acquire := a.q.h.concurrent.Acquire
	if l, ok := a.q.h.opts.Limiter.(ConcurrencyLimiter); ok {
		acquire = l.Acquire
	}
	release, err := acquire(a.q.life.ctx, a.q.key.ID, limit)
	if err != nil {
		return a.q.life.storeError(err, messageLimits)
	}
	if release == nil {
		e := Errorf(http.StatusTooManyRequests, codeRateLimit,
			"Too many requests in progress: Limit %d. Please try again when one has ended.", max(limit, 0))
		e.RetryAfter = time.Second
		return e
	}
	a.releaseConcurrent = release
	return nil
}

// release gives up the place among the concurrent requests, if there is one.
func (a *account) release() {
	release := a.releaseConcurrent
	if release == nil {
		return
	}
	a.releaseConcurrent = nil
	a.q.idle.stopTimeout(a.q)
	a.q.log.try("concurrent request not released", func() error { release(); return nil })
}

// take asks the Limiter for the draws.
func (a *account) take() error {
	a.asked = true
	levels, err := a.q.h.opts.Limiter.Take(a.q.life.ctx, a.q.key.ID, a.draws...)
	if err == nil && len(levels) != len(a.draws) {
		err = fmt.Errorf("llmhttp: the Limiter returned %d levels for %d draws", len(levels), len(a.draws))
	}
	if err != nil {
		return a.q.life.storeError(err, messageLimits)
	}
	a.q.res.mu.Lock()
	a.levels = levels
	a.q.res.mu.Unlock()
	return nil
}

// peek asks for the state of the limits if the request was not admitted: every
// reply to a key with limits tells it.
func (a *account) peek() {
	if a.q.key == nil || a.asked || a.q.life.ended() == errGone {
		return
	}
	a.setDraws(0)
	for i := range a.draws {
		a.draws[i].Cost = 0
	}
	if len(a.draws) > 0 {
		a.q.log.try("limits are not known", a.take)
	}
}

// setLimits sets the limits in info as far as their state is known.
func (a *account) setLimits(info *ReplyInfo) {
	for i, level := range a.levels {
		l := LimitInfo{Limit: a.draws[i].Rate.WithDefaults().Burst, Remaining: level.Remaining, ResetAfter: level.ResetAfter}
		switch a.draws[i].Bucket {
		case BucketRequests:
			a.limits[0] = l
			info.Requests = &a.limits[0]
		case BucketTokens:
			a.limits[1] = l
			info.Tokens = &a.limits[1]
		}
	}
}

// settleGrace is how long the Limiter and the usage store may take to settle a
// request that is over.
const settleGrace = 10 * time.Second

// settle corrects the reservation to what was used, and records it. It does so
// once, whether the client is still there or not. A request that succeeds is
// settled before its reply ends: the client may ask for its usage next.
func (a *account) settle() {
	if a.settled || !a.billed && !a.taken {
		return
	}
	a.settled = true
	q := a.q
	q.idle.stopTimeout(q)
	defer a.release()
	q.log.try("usage not counted", a.measure)
	a.record.Usage.TotalTokens = a.record.Usage.total()
	ctx, cancel := a.settleContext()
	defer cancel()
	q.log.try("limits not settled", func() error { return a.adjust(ctx) })
	if q.h.opts.Usage == nil || !a.billed || a.isNotFound() {
		return
	}
	if ctx.Err() != nil { // a Limiter that hangs does not take the store's time
		cancel()
		ctx, cancel = a.settleContext()
		defer cancel()
	}
	q.log.try("usage not recorded", func() error { return q.h.opts.Usage.Record(ctx, a.record) })
}

// settleContext returns a context with the values of the request that outlives
// its client.
func (a *account) settleContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(a.q.life.ctx), settleGrace)
}

// adjust takes the difference between the tokens used and those reserved.
func (a *account) adjust(ctx context.Context) error {
	used := a.record.Usage.TotalTokens
	if !a.taken || used == a.reserved {
		return nil
	}
	a.taken = false
	draws := a.draws
	if draws[0].Bucket == BucketRequests { // which setDraws adds first
		draws = draws[1:]
	}
	if len(draws) == 0 {
		return nil
	}
	for i := range draws {
		draws[i].Cost = used - a.reserved
	}
	return a.q.h.opts.Limiter.Adjust(ctx, a.q.key.ID, draws...)
}

// isNotFound reports whether the Backend knows no such model or has no such
// method, so that nothing was used.
func (a *account) isNotFound() bool {
	q := a.q
	q.res.mu.Lock()
	defer q.res.mu.Unlock()
	return q.res.err != nil && q.stats.chunks == 0 && a.record.Images == 0 && q.failures.clientError(q.res.err).Status == http.StatusNotFound
}

// measure sets the usage to what the Backend reported, or to an estimate. A
// request that failed before its reply began used nothing, unless its client
// has left, which may be why.
func (a *account) measure() error {
	q := a.q
	q.res.mu.Lock()
	failed := q.res.err != nil && q.stats.chunks == 0 && !q.res.clientLeft
	output := q.chat.order.output
	reported := a.reported
	if q.chat.order.usage != nil {
		reported = q.chat.order.usage
	}
	q.res.mu.Unlock()
	u := &a.record.Usage
	switch {
	case reported != nil:
		*u = *reported
		for _, n := range []*int{&u.PromptTokens, &u.CompletionTokens, &u.TotalTokens} {
			*n = min(max(*n, 0), math.MaxInt/2) // so that two can be added
		}
	case !a.billed, a.record.Endpoint == EndpointImages:
	case failed:
	default:
		a.record.Estimated = true
		u.PromptTokens, u.CompletionTokens = a.prompt, q.tokens().output(&output)
	}
	return nil
}

// limitsTokens reports whether the key has a limit that counts tokens.
func (k *Key) limitsTokens() bool { return k.Limits.Tokens.N != 0 || k.Limits.Quota.N != 0 }

const messageLimits = "We could not check your rate limits. Please try again."

const (
	codeRateLimit = "rate_limit_exceeded"
	codeQuota     = "insufficient_quota"
)

// maxRetryAfter is the longest time that a client is told to wait. What takes
// longer, such as more tokens than a bucket holds, never comes.
const maxRetryAfter = 366 * 24 * time.Hour

// errRateLimit tells which limit was reached, in OpenAI's words.
func errRateLimit(d Draw, l Level) *Error {
	rate := d.Rate.WithDefaults()
	short, typ := "RPM", "requests"
	if d.Bucket == BucketTokens {
		short, typ = "TPM", "tokens"
	}
	period := "min (" + short + ")"
	if rate.Per != time.Minute {
		period = rate.Per.String()
	}
	if l.RetryAfter > maxRetryAfter {
		e := Errorf(http.StatusTooManyRequests, codeRateLimit, "Rate limit reached on %s per %s: Limit %d.", typ, period, rate.Burst)
		e.Type, e.NoRetry = typ, true
		return e
	}
	e := Errorf(http.StatusTooManyRequests, codeRateLimit, "Rate limit reached on %s per %s: Limit %d, Used %d, Requested %d. Please try again in %s.",
		typ, period, rate.Burst, max(rate.Burst-l.Remaining, 0), d.Cost, formatReset(l.RetryAfter))
	e.Type, e.RetryAfter = typ, l.RetryAfter
	return e
}

// formatReset formats a duration as the x-ratelimit-reset headers do: as
// [time.Duration.String] does, here rounded up to milliseconds.
func formatReset(d time.Duration) string {
	if rest := d % time.Millisecond; rest > 0 {
		d += time.Millisecond - rest
	}
	return d.String()
}

// A gauge counts the concurrent requests of each key, where the Limiter is no
// [ConcurrencyLimiter].
type gauge struct {
	mu sync.Mutex // guards n
	n  map[string]int
}

// Acquire is like that of a [ConcurrencyLimiter], but release must be called only
// once.
func (g *gauge) Acquire(_ context.Context, key string, limit int) (release func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.n[key] >= limit {
		return nil, nil
	}
	if g.n == nil {
		g.n = make(map[string]int)
	}
	g.n[key]++
	return func() { g.release(key) }, nil
}

func (g *gauge) release(key string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.n[key]--; g.n[key] <= 0 {
		delete(g.n, key)
	}
}
