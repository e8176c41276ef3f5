package route

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/llmhttp/llmhttp"
)

// A pool selects the targets of a route and records their state. It identifies a
// target by its index in the route. Its methods may be called concurrently.
type pool struct {
	strategy Strategy
	breakers breakerOptions
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

	models map[string]*modelHealth // by the Backend's name of the model; only models that had a failure or a RetryAfter
}

// A modelHealth is the state of a target for one model. A nil modelHealth is that
// of a model without failures.
type modelHealth struct {
	breaker   breaker
	restUntil time.Time // from the target's RetryAfter
	used      time.Time // when a try was last settled
}

// A requestInfo has the properties of a request that decide which targets can serve
// it and which breakers apply to it.
type requestInfo struct {
	model    string // the client's name
	account  string // the account of the key; empty if it is not known
	endpoint llmhttp.Endpoint
}

// minMaxRest is the minimum of pool.maxRest, which is longer if Options.MaxWait is.
const minMaxRest = 5 * time.Minute

// newPool returns the pool for targets, which are those of the route c.
func newPool(c *Route, targets []*target, o *Options) *pool {
	p := &pool{
		strategy: cmp.Or(c.Strategy, Weighted),
		breakers: breakerOptions{o.Failures, o.OpenFor},
		maxRest:  max(minMaxRest, o.MaxWait),
		targets:  targets,
	}
	for i := range c.Targets {
		p.states = append(p.states, targetState{weight: max(c.Targets[i].Weight, 1)})
	}
	return p
}

func (h *modelHealth) resting(now time.Time) bool { return h != nil && now.Before(h.restUntil) }

func (h *modelHealth) ready(account string, now time.Time) bool {
	return h == nil || h.breaker.ready(account, now)
}

// findHealth returns the health of target i for the model of info, or nil if it has
// none. The caller holds mu.
func (p *pool) findHealth(i int, info *requestInfo) *modelHealth {
	st := &p.states[i]
	if len(st.models) == 0 {
		return nil
	}
	return st.models[p.targets[i].backendModel(info.model)]
}

const (
	maxHealths   = 256  // for each target; clients choose the names of models
	maxModelName = 1024 // in bytes; a model with a longer name has no health
)

// addHealth is like findHealth, but creates a health if there is none. It returns
// nil if the name of the model is too long.
func (p *pool) addHealth(i int, info *requestInfo, now time.Time) *modelHealth {
	st, name := &p.states[i], p.targets[i].backendModel(info.model)
	h := st.models[name]
	if h != nil || len(name) > maxModelName {
		return h
	}
	if st.models == nil {
		st.models = make(map[string]*modelHealth)
	}
	if len(st.models) >= maxHealths {
		st.evictHealth(now)
	}
	h = &modelHealth{used: now}
	st.models[name] = h
	return h
}

// evictHealth removes the least recently used health. Those whose breaker is closed
// are removed first.
func (st *targetState) evictHealth(now time.Time) {
	var oldest string
	var age time.Duration = -1
	for name, h := range st.models {
		d := now.Sub(h.used)
		if h.breaker.currentState() == StateClosed {
			d += forever
		}
		if d > age {
			oldest, age = name, d
		}
	}
	delete(st.models, oldest)
}

// pickOptions tell which targets may be picked if there is no better one.
type pickOptions struct {
	allowResting bool // targets that asked for no requests with a RetryAfter
	allowBlocked bool // targets whose breaker is not ready
}

// pick selects one of candidates, counts a request in flight to it, and returns
// its index and the breaker's ticket. If it can select none it returns -1.
func (p *pool) pick(info *requestInfo, candidates []int, opts pickOptions, now time.Time) (int, ticket) {
	p.mu.Lock()
	defer p.mu.Unlock()
	usable := make([]int, 0, len(candidates))
	var resting, blocked []int
	for _, i := range candidates {
		switch h := p.findHealth(i, info); {
		case !h.ready(info.account, now):
			blocked = append(blocked, i)
		case h.resting(now):
			resting = append(resting, i)
		default:
			usable = append(usable, i)
		}
	}
	if len(usable) == 0 && opts.allowResting {
		usable = resting
	}
	if len(usable) == 0 && opts.allowBlocked {
		usable = blocked
	}
	if len(usable) == 0 {
		return -1, ticket{}
	}
	i := p.applyStrategy(usable)
	st := &p.states[i]
	st.inFlight++
	st.tries++
	if h := p.findHealth(i, info); h != nil {
		return i, h.breaker.admit(info.account, now)
	}
	return i, ticket{account: info.account}
}

// applyStrategy applies the strategy to candidates, which must not be empty. It
// overwrites candidates.
func (p *pool) applyStrategy(candidates []int) int {
	switch p.strategy {
	case InOrder:
		return candidates[0]
	case LeastInFlight:
		load := func(a, b int) int { return compareLoad(&p.states[a], &p.states[b]) }
		least := slices.MinFunc(candidates, load)
		candidates = slices.DeleteFunc(candidates, func(i int) bool { return load(i, least) > 0 })
	}
	// Smooth weighted round-robin: the weight of each candidate is added to its
	// credit. The one with the most credit is chosen, and the sum of the weights
	// is subtracted from its credit. This spreads the requests to a target as
	// evenly as possible.
	best, total := &p.states[candidates[0]], 0
	chosen := candidates[0]
	for _, i := range candidates {
		st := &p.states[i]
		st.credit += st.weight
		total += st.weight
		if st.credit > best.credit {
			best, chosen = st, i
		}
	}
	best.credit -= total
	return chosen
}

// compareLoad compares a and b by the number of requests in flight that each would
// have with one more request, divided by its weight.
func compareLoad(a, b *targetState) int {
	return cmp.Compare(int64(a.inFlight+1)*int64(b.weight), int64(b.inFlight+1)*int64(a.weight))
}

// A stateChange is the effect of a result on the state of a circuit breaker: none if
// from and to are equal.
type stateChange struct {
	from, to State
	openFor  time.Duration // until the breaker is half-open, if to is StateOpen
	account  string        // the only account for which the breaker is open; empty if it is open for all
}

// settle records the result of a try and ends its request in flight. The jitter
// is in [0, 1).
func (p *pool) settle(i int, info *requestInfo, tk ticket, res *result, now time.Time, jitter float64) stateChange {
	p.mu.Lock()
	defer p.mu.Unlock()
	st := &p.states[i]
	st.inFlight--
	if res.outcome == outcomeFailure {
		st.failures++
	}
	if res.summary != "" {
		st.lastError = res.summary
	}
	h := p.findHealth(i, info)
	if res.outcome == outcomeFailure || res.retryAfter > 0 {
		h = p.addHealth(i, info, now)
	}
	if h == nil {
		return stateChange{}
	}
	if res.retryAfter > 0 {
		if until := now.Add(min(res.retryAfter, p.maxRest)); until.After(h.restUntil) {
			h.restUntil = until
		}
	}
	h.used = now
	return p.settleBreaker(i, info, tk, res.outcome, now, jitter)
}

// confirm records that the target of a try works, before the try has ended. It
// returns the ticket with which to settle the try.
func (p *pool) confirm(i int, info *requestInfo, tk ticket, now time.Time) (ticket, stateChange) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.findHealth(i, info)
	if h == nil {
		return tk, stateChange{} // the health was evicted
	}
	change := p.settleBreaker(i, info, tk, outcomeSuccess, now, 0)
	return ticket{account: tk.account, epoch: h.breaker.epoch}, change
}

// settleBreaker settles tk with the breaker of target i, which must have a
// health. The caller holds mu.
func (p *pool) settleBreaker(i int, info *requestInfo, tk ticket, out outcome, now time.Time, jitter float64) stateChange {
	b := &p.findHealth(i, info).breaker
	change := stateChange{from: b.currentState()}
	b.settle(tk, out, now, p.breakers, p.hasOther(i, info), jitter)
	change.to, change.openFor, change.account = b.currentState(), b.until.Sub(now), b.account
	return change
}

// hasOther reports whether a target other than i can serve the request.
func (p *pool) hasOther(i int, info *requestInfo) bool {
	for j, t := range p.targets {
		if j == i || !t.supports(info.endpoint) {
			continue
		}
		if h := p.findHealth(j, info); h == nil || h.breaker.closedFor(info.account) {
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
		h := p.findHealth(i, info)
		if !h.ready(info.account, now) {
			continue
		}
		var d time.Duration
		if h.resting(now) {
			d = h.restUntil.Sub(now)
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
	return p.findHealth(i, info).ready(info.account, now)
}

func newRequestInfo(ctx context.Context, model string, endpoint llmhttp.Endpoint) *requestInfo {
	s := &requestInfo{model: model, endpoint: endpoint}
	if key := llmhttp.KeyFrom(ctx); key != nil {
		s.account = key.Account
	}
	return s
}
