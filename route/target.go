package route

import (
	"cmp"
	"sync"
	"time"

	"github.com/llmhttp/llmhttp"
)

// A route is a Route in use.
type route struct {
	model         string
	stars         int    // in model
	before, after string // the first of them
	strategy      Strategy

	mu      sync.Mutex // guards what changes of the targets
	targets []*target
}

// A target is a Target in use.
type target struct {
	route         *route
	name          string
	backend       llmhttp.Backend
	model         string
	star          bool   // in model
	before, after string // it
	weight        int
	kinds         kind
	list          *modelList // nil if the Backend lists no models

	// What changes is guarded by the route's mu.

	breaker  breaker
	rested   time.Time // until when others are preferred
	inFlight int
	turn     int  // of Weighted: what it is owed
	eligible bool // while one is picked
	tries    int64
	failures int64
	lastErr  string
}

// A mark is what a request remembers of a target that failed it.
type mark struct {
	round int  // in which it was tried last
	out   bool // it is not tried again
}

// maxRest bounds how long a target is passed over because it said so, unless
// requests wait for longer.
const maxRest = 5 * time.Minute

func (t *target) resting(now time.Time) bool { return now.Before(t.rested) }

// may reports whether a request with the given marks may try a target in a
// round if its breaker lets it.
func (t *target) may(i, round int, marks []mark, k kind) bool {
	return t.kinds&k != 0 && (marks == nil || !marks[i].out && marks[i].round < round)
}

// pick picks a target and lets the request through to it. If there is none
// left in this round it returns -1, and whether breakers are the reason.
func (rt *route) pick(now time.Time, round int, marks []mark, k kind) (i int, tk ticket, blocked bool) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	found, awake := false, false
	for i, t := range rt.targets {
		t.eligible = t.may(i, round, marks, k)
		if t.eligible && !t.breaker.ready(now) {
			t.eligible, blocked = false, true
		}
		found = found || t.eligible
		awake = awake || (t.eligible && !t.resting(now))
	}
	if !found || (!awake && round > 1) {
		return -1, ticket{}, blocked
	}
	if awake {
		for _, t := range rt.targets {
			t.eligible = t.eligible && !t.resting(now)
		}
	}
	i = rt.choose()
	t := rt.targets[i]
	t.inFlight++
	t.tries++
	return i, t.breaker.admit(now), false
}

// choose returns one of the eligible targets, of which there is at least one.
func (rt *route) choose() int {
	if rt.strategy == LeastInFlight {
		var least *target
		for _, t := range rt.targets {
			if t.eligible && (least == nil || t.compareLoad(least) < 0) {
				least = t
			}
		}
		for _, t := range rt.targets {
			t.eligible = t.eligible && t.compareLoad(least) == 0
		}
	}
	// Each is owed its weight, and the one that is owed most pays for all. So
	// the turns of a target are as far apart as they can be.
	best, total := -1, 0
	for i, t := range rt.targets {
		if !t.eligible {
			continue
		}
		if rt.strategy == InOrder {
			return i
		}
		t.turn += t.weight
		total += t.weight
		if best < 0 || t.turn > rt.targets[best].turn {
			best = i
		}
	}
	rt.targets[best].turn -= total
	return best
}

// compareLoad compares the requests in flight that t and o would have for
// their weight with one more.
func (t *target) compareLoad(o *target) int {
	return cmp.Compare(int64(t.inFlight+1)*int64(o.weight), int64(o.inFlight+1)*int64(t.weight))
}

// recovery returns how long it takes until a target may be tried, in the round
// that follows the given one, or false if none will by itself.
func (rt *route) recovery(now time.Time, round int, marks []mark, k kind) (time.Duration, bool) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	var soonest time.Duration
	found := false
	for i, t := range rt.targets {
		if !t.may(i, round+1, marks, k) || !t.breaker.ready(now) {
			continue
		}
		if d := max(t.rested.Sub(now), 0); !found || d < soonest {
			soonest, found = d, true
		}
	}
	return soonest, found
}

// reopening returns how long it takes until a breaker lets a request through:
// at least a second, within which a probe that is under way may tell.
func (rt *route) reopening(now time.Time, k kind) time.Duration {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	soonest := maxOpen
	for _, t := range rt.targets {
		switch {
		case t.kinds&k == 0:
		case t.breaker.state == StateOpen:
			soonest = min(soonest, t.breaker.until.Sub(now))
		case t.breaker.state == StateHalfOpen:
			soonest = 0
		}
	}
	return max(soonest, time.Second)
}

// A TargetStatus tells how a target is doing.
type TargetStatus struct {
	Route  string // its Model
	Target string // its Name

	State State
	Since time.Time // when it became so
	Retry time.Time // when an open breaker lets a request through; zero if it is not open
	Rest  time.Time // until when the target asked for none; zero if it did not, or that is over

	InFlight int
	Tries    int64 // all in all
	Failures int64 // of them; 429 and other answers are none

	// LastError is the status of the last failure or 429, with its code or the
	// system's word for it if there is one, such as "429 rate_limit_exceeded" or
	// "502 connection refused". It is empty if there was none, and has nothing of
	// an error's own text.
	LastError string
}

// Status tells how the targets are doing, in the order of the routes.
func (r *Router) Status() []TargetStatus {
	now := time.Now()
	var list []TargetStatus
	for _, rt := range r.routes {
		rt.mu.Lock()
		for _, t := range rt.targets {
			s := TargetStatus{
				Route: rt.model, Target: t.name,
				State: t.breaker.is(), Since: t.breaker.since,
				InFlight: t.inFlight, Tries: t.tries, Failures: t.failures, LastError: t.lastErr,
			}
			if s.State == StateOpen {
				s.Retry = t.breaker.until
			}
			if t.resting(now) {
				s.Rest = t.rested
			}
			list = append(list, s)
		}
		rt.mu.Unlock()
	}
	return list
}
