package route

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/llmhttp/llmhttp"
)

// A pool selects the targets of a route and records their state. It identifies a
// target by its index in the route. Its methods may be called concurrently.
type pool struct {
	strategy Strategy
	breaker  breakerOptions
	maxRest  time.Duration // a longer RetryAfter is shortened to this
	targets  []*target

	mu     sync.Mutex // guards states
	states []targetState
}

// A targetState is the mutable state of a target.
type targetState struct {
	weight   int
	credit   int // see applyStrategy
	inFlight int

	tries     int64
	failures  int64
	lastError string

	models map[string]*modelState // by the Backend's name of the model; only models that had a failure or a RetryAfter
}

// A requestInfo has the properties of a request that decide which targets can serve
// it and which breakers apply to it.
type requestInfo struct {
	model     string // the client's name
	account   string // the account of the key; empty if it is not known
	operation llmhttp.Operation
	listed    bool // a target lists the model: see route.isListed
}

// newRequestInfo returns the requestInfo of a request to rt.
func (rt *route) newRequestInfo(ctx context.Context, model string, op llmhttp.Operation) *requestInfo {
	info := &requestInfo{model: model, operation: op, listed: rt.isListed(model)}
	if key := llmhttp.KeyFrom(ctx); key != nil {
		info.account = key.Account
	}
	return info
}

// minMaxRest is the minimum of pool.maxRest, which is longer if Options.MaxWait is.
const minMaxRest = 5 * time.Minute

// newPool returns the pool for targets, which are those of the route config.
func newPool(config *Route, targets []*target, o *Options) *pool {
	p := &pool{
		strategy: cmp.Or(config.Strategy, Weighted),
		breaker:  breakerOptions{o.Failures, o.OpenFor},
		maxRest:  max(minMaxRest, o.MaxWait),
		targets:  targets,
	}
	for i := range config.Targets {
		p.states = append(p.states, targetState{weight: max(config.Targets[i].Weight, 1)})
	}
	return p
}

// pickOptions tell which targets may be picked if there is no better one.
type pickOptions struct {
	allowResting     bool // targets that asked for no requests with a RetryAfter
	allowOpenBreaker bool // targets whose breaker is open, or half-open with a request in flight
}

// An admission is a request that a pool has let through to a target.
type admission struct {
	info   *requestInfo
	index  int // of the target
	ticket ticket
}

// pick selects one of candidates and counts a request in flight to it. It returns false
// if it can select none. The caller must call recordResult with the admission once.
func (p *pool) pick(info *requestInfo, candidates []int, opts pickOptions, now time.Time) (admission, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	usable := make([]int, 0, len(candidates))
	var resting, openBreaker []int
	for _, i := range candidates {
		switch m := p.findModel(i, info); {
		case !m.ready(info.account, now):
			openBreaker = append(openBreaker, i)
		case m.resting(now):
			resting = append(resting, i)
		default:
			usable = append(usable, i)
		}
	}
	if len(usable) == 0 && opts.allowResting {
		usable = resting
	}
	if len(usable) == 0 && opts.allowOpenBreaker {
		usable = openBreaker
	}
	if len(usable) == 0 {
		return admission{}, false
	}
	i := p.applyStrategy(usable)
	st := &p.states[i]
	st.inFlight++
	st.tries++
	a := admission{info: info, index: i, ticket: ticket{account: info.account}}
	if m := p.findModel(i, info); m != nil {
		a.ticket = m.breaker.admit(info.account, now)
	}
	return a, true
}

// A stateChange is the effect of a result on the state of a circuit breaker: none if
// from and to are equal.
type stateChange struct {
	from, to State
	openFor  time.Duration // until the breaker is half-open, if to is StateOpen
	account  string        // the only account for which the breaker is open; empty if it is open for all
}

// recordResult records the result of a try and ends its request in flight. The jitter is
// in [0, 1).
func (p *pool) recordResult(a *admission, res *result, now time.Time, jitter float64) stateChange {
	p.mu.Lock()
	defer p.mu.Unlock()
	st := &p.states[a.index]
	st.inFlight--
	if res.outcome == outcomeFailure {
		st.failures++
	}
	if res.summary != "" {
		st.lastError = res.summary
	}
	m := p.findModel(a.index, a.info)
	if res.outcome == outcomeFailure || res.retryAfter > 0 {
		m = p.findOrAddModel(a.index, a.info, now)
	}
	if m == nil {
		return stateChange{}
	}
	if res.retryAfter > 0 {
		if until := now.Add(min(res.retryAfter, p.maxRest)); until.After(m.restUntil) {
			m.restUntil = until
		}
	}
	m.used = now
	return p.updateBreaker(m, a, res.outcome, now, jitter)
}

// confirm records that the target of a try works, before the try has ended. It replaces
// the ticket of a, because the outcome of that is known now.
func (p *pool) confirm(a *admission, now time.Time) stateChange {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.findModel(a.index, a.info)
	if m == nil {
		return stateChange{} // the model was evicted
	}
	change := p.updateBreaker(m, a, outcomeSuccess, now, 0)
	a.ticket = ticket{account: a.ticket.account, epoch: m.breaker.epoch}
	return change
}

// updateBreaker records the outcome of a in the breaker of m. The caller holds mu.
func (p *pool) updateBreaker(m *modelState, a *admission, out outcome, now time.Time, jitter float64) stateChange {
	b := &m.breaker
	change := stateChange{from: b.currentState()}
	b.recordOutcome(a.ticket, out, now, p.breaker, p.hasOther(a.index, a.info), jitter)
	change.to, change.openFor, change.account = b.currentState(), b.until.Sub(now), b.account
	return change
}

// hasOther reports whether another target than i, with a closed breaker, can serve the
// request.
func (p *pool) hasOther(i int, info *requestInfo) bool {
	for j, t := range p.targets {
		if j == i || !t.serves(info) {
			continue
		}
		if m := p.findModel(j, info); m == nil || m.breaker.closedFor(info.account) {
			return true
		}
	}
	return false
}

// nextRecovery returns how long it takes until one of candidates is no longer
// resting. It returns false if the breakers of all of them are open.
func (p *pool) nextRecovery(info *requestInfo, candidates []int, now time.Time) (wait time.Duration, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, i := range candidates {
		m := p.findModel(i, info)
		if !m.ready(info.account, now) {
			continue
		}
		var d time.Duration
		if m.resting(now) {
			d = m.restUntil.Sub(now)
		}
		if !ok || d < wait {
			wait, ok = d, true
		}
	}
	return wait, ok
}

// ready reports whether the breaker of target i lets requests through.
func (p *pool) ready(i int, info *requestInfo, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.findModel(i, info).ready(info.account, now)
}
