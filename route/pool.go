package route

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/llmhttp/llmhttp"
)

// A pool selects the targets of a route and records how they are doing. It
// identifies a target by its index in the route. Its methods may be called
// concurrently.
type pool struct {
	strategy Strategy
	breakers breakerOptions
	maxRest  time.Duration // limit for RetryAfter
	targets  []*target

	mu      sync.Mutex // guards members
	members []member
}

// A member is the state of a target.
type member struct {
	weight   int
	credit   int // of the weighted round-robin
	inFlight int

	tries     int64
	failures  int64
	lastError string

	models map[string]*health // by the Backend's name of the model; those that had a failure or a RetryAfter
}

// A health is how a target is doing with one model. A nil health is that of a
// model without failures.
type health struct {
	breaker   breaker
	restUntil time.Time // from the target's RetryAfter
	used      time.Time // when a try was last settled
}

// A subject is what a request is about, as far as breakers distinguish requests.
type subject struct {
	model    string // the client's name
	account  string // of the key; empty if it is not known
	endpoint llmhttp.Endpoint
}

// minMaxRest is the shortest limit for a RetryAfter. The limit is longer if
// requests may wait for longer.
const minMaxRest = 5 * time.Minute

// newPool returns the pool for the targets of a route, whose configuration is c.
func newPool(c *Route, targets []*target, o *Options) *pool {
	p := &pool{
		strategy: cmp.Or(c.Strategy, Weighted),
		breakers: breakerOptions{o.Failures, o.OpenFor},
		maxRest:  max(minMaxRest, o.MaxWait),
		targets:  targets,
	}
	for i := range c.Targets {
		p.members = append(p.members, member{weight: max(c.Targets[i].Weight, 1)})
	}
	return p
}

func (h *health) resting(now time.Time) bool { return h != nil && now.Before(h.restUntil) }

func (h *health) ready(account string, now time.Time) bool {
	return h == nil || h.breaker.ready(account, now)
}

// health returns how target i is doing with the model of s. The caller holds mu.
func (p *pool) health(i int, s *subject) *health {
	m := &p.members[i]
	if len(m.models) == 0 {
		return nil
	}
	return m.models[p.targets[i].backendModel(s.model)]
}

const (
	maxHealths   = 256  // of a target; clients choose the names of models
	maxModelName = 1024 // the longest name of a model that has a health, in bytes
)

// newHealth is like health, but creates the health if there is none. It returns
// nil for a name that is too long.
func (p *pool) newHealth(i int, s *subject, now time.Time) *health {
	m, name := &p.members[i], p.targets[i].backendModel(s.model)
	h := m.models[name]
	if h != nil || len(name) > maxModelName {
		return h
	}
	if m.models == nil {
		m.models = make(map[string]*health)
	}
	if len(m.models) >= maxHealths {
		m.evictHealth(now)
	}
	h = &health{used: now}
	m.models[name] = h
	return h
}

// evictHealth removes the health that was not used for longest. Those whose
// breaker is closed go first.
func (m *member) evictHealth(now time.Time) {
	var oldest string
	var age time.Duration = -1
	for name, h := range m.models {
		d := now.Sub(h.used)
		if h.breaker.current() == StateClosed {
			d += forever
		}
		if d > age {
			oldest, age = name, d
		}
	}
	delete(m.models, oldest)
}

// An allowance says which targets may be picked if there is no better one.
type allowance struct {
	resting bool
	blocked bool // those whose breaker is not ready
}

// pick selects one of candidates, counts a request in flight to it, and returns
// its index and the breaker's ticket. If it can select none it returns -1.
func (p *pool) pick(s *subject, candidates []int, allow allowance, now time.Time) (int, ticket) {
	p.mu.Lock()
	defer p.mu.Unlock()
	usable := make([]int, 0, len(candidates))
	var resting, blocked []int
	for _, i := range candidates {
		switch h := p.health(i, s); {
		case !h.ready(s.account, now):
			blocked = append(blocked, i)
		case h.resting(now):
			resting = append(resting, i)
		default:
			usable = append(usable, i)
		}
	}
	if len(usable) == 0 && allow.resting {
		usable = resting
	}
	if len(usable) == 0 && allow.blocked {
		usable = blocked
	}
	if len(usable) == 0 {
		return -1, ticket{}
	}
	i := p.choose(usable)
	m := &p.members[i]
	m.inFlight++
	m.tries++
	if h := p.health(i, s); h != nil {
		return i, h.breaker.admit(s.account, now)
	}
	return i, ticket{account: s.account}
}

// choose applies the strategy to candidates, which must not be empty. It
// overwrites candidates.
func (p *pool) choose(candidates []int) int {
	switch p.strategy {
	case InOrder:
		return candidates[0]
	case LeastInFlight:
		load := func(a, b int) int { return compareLoad(&p.members[a], &p.members[b]) }
		least := slices.MinFunc(candidates, load)
		candidates = slices.DeleteFunc(candidates, func(i int) bool { return load(i, least) > 0 })
	}
	// Smooth weighted round-robin: every candidate earns its weight as credit,
	// and the one with the most credit is chosen and pays for all. This spreads
	// the turns of a target as evenly as possible.
	best, total := &p.members[candidates[0]], 0
	chosen := candidates[0]
	for _, i := range candidates {
		m := &p.members[i]
		m.credit += m.weight
		total += m.weight
		if m.credit > best.credit {
			best, chosen = m, i
		}
	}
	best.credit -= total
	return chosen
}

// compareLoad compares the requests in flight for each unit of weight that a
// and b would have with one more request.
func compareLoad(a, b *member) int {
	return cmp.Compare(int64(a.inFlight+1)*int64(b.weight), int64(b.inFlight+1)*int64(a.weight))
}

// A stateChange is the effect of a result on a circuit breaker. From and to may
// be equal.
type stateChange struct {
	from, to State
	openFor  time.Duration // until the breaker is half-open, if to is StateOpen
	account  string        // the only one for which the breaker is open; empty if for all
}

// settle records the result of a try and ends its request in flight. The jitter
// is in [0, 1).
func (p *pool) settle(i int, s *subject, tk ticket, res *result, now time.Time, jitter float64) stateChange {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := &p.members[i]
	m.inFlight--
	if res.outcome == failed {
		m.failures++
	}
	if res.summary != "" {
		m.lastError = res.summary
	}
	h := p.health(i, s)
	if res.outcome == failed || res.retryAfter > 0 {
		h = p.newHealth(i, s, now)
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
	return p.settleBreaker(i, s, tk, res.outcome, now, jitter)
}

// confirm records, while a try goes on, that its target works. It returns the
// ticket with which to settle the try.
func (p *pool) confirm(i int, s *subject, tk ticket, now time.Time) (ticket, stateChange) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.health(i, s)
	if h == nil {
		return tk, stateChange{} // it was evicted
	}
	change := p.settleBreaker(i, s, tk, worked, now, 0)
	return ticket{account: tk.account, epoch: h.breaker.epoch}, change
}

// settleBreaker settles tk with the breaker of target i, which must have a
// health. The caller holds mu.
func (p *pool) settleBreaker(i int, s *subject, tk ticket, out outcome, now time.Time, jitter float64) stateChange {
	b := &p.health(i, s).breaker
	change := stateChange{from: b.current()}
	b.settle(tk, out, now, p.breakers, p.hasOther(i, s), jitter)
	change.to, change.openFor, change.account = b.current(), b.until.Sub(now), b.account
	return change
}

// hasOther reports whether a target other than i can serve s.
func (p *pool) hasOther(i int, s *subject) bool {
	for j, t := range p.targets {
		if j == i || !t.supports(s.endpoint) {
			continue
		}
		if h := p.health(j, s); h == nil || h.breaker.closedFor(s.account) {
			return true
		}
	}
	return false
}

// nextRecovery returns how long it takes until one of candidates is no longer
// resting. It reports false if the breakers of all are open.
func (p *pool) nextRecovery(s *subject, candidates []int, now time.Time) (wait time.Duration, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, i := range candidates {
		h := p.health(i, s)
		if !h.ready(s.account, now) {
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
func (p *pool) ready(i int, s *subject, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.health(i, s).ready(s.account, now)
}
