package route

import "time"

// A TargetStatus reports how a target is doing.
type TargetStatus struct {
	Route  string // the route's Model
	Target string // the target's Name

	State State     // of the circuit breaker
	Since time.Time // when the breaker entered State
	Retry time.Time // when an open breaker lets the next request through; zero unless State is StateOpen
	Rest  time.Time // until when the target asked, with a RetryAfter, for no requests; zero if it did not or the time has passed

	InFlight int
	Tries    int64 // since New
	Failures int64 // how many of Tries failed; a 429 and other answers are no failures

	// LastError is the status of the last failure or 429, followed by its code
	// or by the operating system's name of the error, such as
	// "429 rate_limit_exceeded" or "502 connection refused". It is empty if
	// there was none. It contains nothing of the error's own text.
	LastError string
}

// Status returns the status of all targets, in the order of the routes.
func (r *Router) Status() []TargetStatus {
	now := time.Now()
	var list []TargetStatus
	for _, rt := range r.routes {
		for i, m := range rt.pool.snapshot() {
			s := TargetStatus{
				Route: rt.model, Target: rt.targets[i].name,
				State: m.breaker.current(), Since: m.breaker.since,
				InFlight: m.inFlight, Tries: m.tries, Failures: m.failures, LastError: m.lastError,
			}
			if s.State == StateOpen {
				s.Retry = m.breaker.until
			}
			if m.resting(now) {
				s.Rest = m.restUntil
			}
			list = append(list, s)
		}
	}
	return list
}
