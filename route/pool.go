// Selects the target of a try, and keeps the state of the targets of a route.

package route

import (
	"cmp"
	"sync"
	"time"
)

// A pool selects the targets of a route and records their state. It identifies a
// target by its index in the route. Its methods may be called concurrently.
type pool struct {
	strategy Strategy
	breaker  breakerOptions
	maxRest  time.Duration // a longer RetryAfter is shortened to this
	targets  []*target

	mu     *sync.Mutex    // guards what states point to; pools that share a state share mu
	states []*targetState // of each target
}

// A targetState is the mutable state of a target. Router.Update keeps it.
type targetState struct {
	credit   int // see applyStrategy
	inFlight int

	tries     int64
	failures  int64
	lastError string

	models map[string]*modelState // by the Backend's name of the model; only models that had a failure or a RetryAfter
}

// minMaxRest is the minimum of pool.maxRest, which is longer if Options.MaxWait is.
const minMaxRest = 5 * time.Minute

// newPool returns the pool for the targets of a route. Those that previous has too keep their
// state. previous is nil if the route is new.
func newPool(strategy Strategy, targets []*target, o *Options, previous *pool) *pool {
	p := &pool{
		strategy: cmp.Or(strategy, Weighted),
		breaker:  breakerOptions{o.Failures, o.OpenFor},
		maxRest:  max(minMaxRest, o.MaxWait),
		targets:  targets,
		mu:       new(sync.Mutex),
	}
	if previous != nil {
		p.mu = previous.mu
	}
	for _, t := range targets {
		p.states = append(p.states, previous.stateOf(t))
	}
	return p
}

// stateOf returns the state of the target of p that has the name and the Backend of t. If there
// is none, or p is nil, it returns a new state.
func (p *pool) stateOf(t *target) *targetState {
	if p != nil {
		for i, other := range p.targets {
			if other.name == t.name && sameBackend(other.backend, t.backend) {
				return p.states[i]
			}
		}
	}
	return new(targetState)
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

// pick selects one of candidates, which it overwrites, and counts a request in flight to it. It
// returns false if it can select none. The caller must call recordResult with the admission once.
func (p *pool) pick(info *requestInfo, candidates []int, opts pickOptions, now time.Time) (admission, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	usable := candidates[:0]
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
	i := p.applyStrategy(usable, info.session)
	st := p.states[i]
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
	st := p.states[a.index]
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
	for _, j := range info.serving {
		if m := p.findModel(j, info); j != i && (m == nil || m.breaker.closedFor(info.account)) {
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
