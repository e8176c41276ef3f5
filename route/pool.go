package route

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// A pool selects the targets of a route and records how they are doing. It
// identifies a target by its index in the route. Its methods may be called
// concurrently.
type pool struct {
	strategy Strategy
	failures int           // Options.Failures
	openFor  time.Duration // Options.OpenFor
	maxRest  time.Duration // limit for RetryAfter

	mu      sync.Mutex
	members []member
}

// A member is the state of a target.
type member struct {
	weight   int
	credit   int // of the weighted round-robin
	inFlight int

	breaker   breaker
	restUntil time.Time // from the target's RetryAfter

	tries     int64
	failures  int64
	lastError string
}

// minMaxRest is the shortest limit for a RetryAfter. The limit is longer if
// requests may wait for longer.
const minMaxRest = 5 * time.Minute

func newPool(c *Route, o *Options) *pool {
	p := &pool{
		strategy: cmp.Or(c.Strategy, Weighted),
		failures: o.Failures, openFor: o.OpenFor, maxRest: max(minMaxRest, o.MaxWait),
	}
	now := time.Now()
	for i := range c.Targets {
		p.members = append(p.members, member{weight: max(c.Targets[i].Weight, 1), breaker: breaker{since: now}})
	}
	return p
}

func (m *member) resting(now time.Time) bool { return now.Before(m.restUntil) }

// pick selects one of candidates, counts a request in flight to it, and returns
// its index and the breaker's ticket. It skips candidates whose breaker is open,
// and prefers those that are not resting; it selects a resting one only if
// allowResting is true. If it can select none it returns -1, and reports in
// blocked whether a breaker is the reason.
func (p *pool) pick(candidates []int, allowResting bool, now time.Time) (i int, tk ticket, blocked bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	usable := make([]int, 0, len(candidates))
	var resting []int
	for _, i := range candidates {
		switch m := &p.members[i]; {
		case !m.breaker.ready(now):
			blocked = true
		case m.resting(now):
			resting = append(resting, i)
		default:
			usable = append(usable, i)
		}
	}
	if len(usable) == 0 && allowResting {
		usable = resting
	}
	if len(usable) == 0 {
		return -1, ticket{}, blocked
	}
	i = p.choose(usable)
	m := &p.members[i]
	m.inFlight++
	m.tries++
	return i, m.breaker.admit(now), false
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
}

// settle records the result of a try and ends its request in flight. The jitter
// is in [0, 1).
func (p *pool) settle(i int, tk ticket, res *result, now time.Time, jitter float64) stateChange {
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
	if res.retryAfter > 0 {
		if until := now.Add(min(res.retryAfter, p.maxRest)); until.After(m.restUntil) {
			m.restUntil = until
		}
	}
	return p.settleBreaker(m, tk, res.outcome, now, jitter)
}

// confirm records, while a try goes on, that its target works. It returns the
// ticket with which to settle the try.
func (p *pool) confirm(i int, tk ticket, now time.Time) (ticket, stateChange) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := &p.members[i]
	change := p.settleBreaker(m, tk, worked, now, 0)
	return ticket{epoch: m.breaker.epoch}, change
}

// settleBreaker settles tk with m's breaker. The caller holds mu.
func (p *pool) settleBreaker(m *member, tk ticket, o outcome, now time.Time, jitter float64) stateChange {
	change := stateChange{from: m.breaker.current()}
	m.breaker.settle(tk, o, now, p.failures, p.openFor, jitter)
	change.to, change.openFor = m.breaker.current(), m.breaker.until.Sub(now)
	return change
}

// nextRecovery returns how long it takes until one of candidates is no longer
// resting. It reports false if the breakers of all are open.
func (p *pool) nextRecovery(candidates []int, now time.Time) (wait time.Duration, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, i := range candidates {
		m := &p.members[i]
		if !m.breaker.ready(now) {
			continue
		}
		if d := max(m.restUntil.Sub(now), 0); !ok || d < wait {
			wait, ok = d, true
		}
	}
	return wait, ok
}

// nextHalfOpen returns how long it takes until the breaker of one of candidates
// lets a request through. It is at least a second, within which a request that
// is under way may close the breaker.
func (p *pool) nextHalfOpen(candidates []int, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	wait := maxOpen
	for _, i := range candidates {
		switch b := &p.members[i].breaker; b.current() {
		case StateOpen:
			wait = min(wait, b.until.Sub(now))
		case StateHalfOpen:
			wait = 0
		}
	}
	return max(wait, time.Second)
}

// snapshot returns a copy of the state of all targets.
func (p *pool) snapshot() []member {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.members)
}
