// What Router.Status tells of targets.

package route

import (
	"maps"
	"slices"
	"time"
)

// A TargetStatus describes the state of a target.
type TargetStatus struct {
	Route  string // the route's Model
	Target string // the target's Name

	// State is StateOpen if a circuit breaker of the target is open, and else
	// StateHalfOpen if one is half-open. Breakers lists these breakers.
	State    State
	Breakers []BreakerStatus

	// RestUntil is the time until which the target asked for no requests for one
	// of its models, with a RetryAfter. It is zero if there is no such time or if
	// it has passed.
	RestUntil time.Time

	InFlight int   // tries that have not ended
	Tries    int64 // tries since New, or since Update added the target
	Failures int64 // those of Tries that count as failures for circuit breakers

	// LastError is the status of the last failure or 429, followed by its code or by the operating
	// system's name of the error, such as "429 rate_limit_exceeded" or "502 connection refused". It
	// is empty if there was none. It contains nothing of the error's own text.
	LastError string
}

// A BreakerStatus describes a circuit breaker that is not closed.
type BreakerStatus struct {
	Model   string    // the Backend's name of the model
	Account string    // the only account for which the breaker is not closed; empty means all accounts
	State   State     // StateOpen or StateHalfOpen
	Since   time.Time // when the breaker entered State
	RetryAt time.Time // when the breaker lets the next request through; zero unless State is StateOpen
}

// Status returns the status of all targets, in the order of the routes.
func (r *Router) Status() []TargetStatus {
	now := time.Now()
	var list []TargetStatus
	for _, rt := range r.current.Load().routes {
		list = append(list, rt.pool.status(rt.model, now)...)
	}
	return list
}

func (p *pool) status(route string, now time.Time) []TargetStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []TargetStatus
	for i := range p.states {
		st := p.states[i]
		s := TargetStatus{
			Route: route, Target: p.targets[i].name, State: StateClosed,
			InFlight: st.inFlight, Tries: st.tries, Failures: st.failures, LastError: st.lastError,
		}
		for _, model := range slices.Sorted(maps.Keys(st.models)) {
			s.addModel(model, st.models[model], now)
		}
		list = append(list, s)
	}
	return list
}

// addModel adds the state of a model to the status.
func (s *TargetStatus) addModel(model string, m *modelState, now time.Time) {
	if m.resting(now) && m.restUntil.After(s.RestUntil) {
		s.RestUntil = m.restUntil
	}
	b := &m.breaker
	switch b.currentState() {
	case StateClosed:
		return
	case StateHalfOpen:
		if s.State == StateClosed {
			s.State = StateHalfOpen
		}
	case StateOpen:
		s.State = StateOpen
	}
	status := BreakerStatus{Model: model, Account: b.account, State: b.state, Since: b.since}
	if b.state == StateOpen {
		status.RetryAt = b.until
	}
	s.Breakers = append(s.Breakers, status)
}
