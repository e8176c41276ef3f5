package route

import "time"

// A State is the state of a target's circuit breaker.
type State string

const (
	StateClosed   State = "closed"    // the target gets requests
	StateOpen     State = "open"      // the target has failed repeatedly and gets no requests
	StateHalfOpen State = "half-open" // the target gets one request at a time, to find out whether it works again
)

// An outcome is what a try shows about its target.
type outcome int

const (
	neutral outcome = iota // nothing
	worked
	failed
)

// A breaker is a circuit breaker. The zero value is closed. It does not read a
// clock and has no lock: the caller passes the time and serializes the calls.
//
// To let a request through, call ready and then admit, which returns a ticket.
// Settle the ticket when the outcome is known. The state may have changed in
// between, and then the outcome is ignored.
type breaker struct {
	state    State         // empty means StateClosed
	since    time.Time     // when the state was entered
	until    time.Time     // while open: when it becomes half-open
	failures int           // while closed: consecutive failures
	period   time.Duration // for which it was last opened, without jitter
	epoch    int           // counts state changes
	probing  bool          // while half-open: a request is in flight
}

// maxOpen limits the doubling of the time for which a breaker is open.
const maxOpen = 5 * time.Minute

// A ticket identifies a request that a breaker let through.
type ticket struct {
	epoch int
	probe bool // the only request of a half-open breaker
}

func (b *breaker) current() State {
	if b.state == "" {
		return StateClosed
	}
	return b.state
}

// ready reports whether admit may be called.
func (b *breaker) ready(now time.Time) bool {
	switch b.state {
	case StateOpen:
		return !now.Before(b.until)
	case StateHalfOpen:
		return !b.probing
	}
	return true
}

// admit lets a request through. The ticket must be settled once.
func (b *breaker) admit(now time.Time) ticket {
	if b.state == StateOpen {
		b.become(StateHalfOpen, now)
	}
	b.probing = b.state == StateHalfOpen
	return ticket{b.epoch, b.probing}
}

// settle records the outcome of a request, unless the state has changed since
// it was admitted. The breaker opens after limit consecutive failures, or never
// if limit is negative. It stays open for openFor or longer: jitter, in [0, 1),
// adds up to half of it.
func (b *breaker) settle(tk ticket, o outcome, now time.Time, limit int, openFor time.Duration, jitter float64) {
	if tk.epoch != b.epoch {
		return
	}
	b.probing = false
	switch {
	case o == neutral:
	case o == worked:
		b.failures, b.period = 0, 0
		if b.state == StateHalfOpen {
			b.become(StateClosed, now)
		}
	case b.state == StateHalfOpen:
		b.open(now, min(2*b.period, max(maxOpen, openFor)), jitter)
	default:
		if b.failures++; limit >= 0 && b.failures >= limit {
			b.open(now, openFor, jitter)
		}
	}
}

func (b *breaker) open(now time.Time, period time.Duration, jitter float64) {
	b.become(StateOpen, now)
	b.period = period
	b.until = now.Add(period + time.Duration(jitter*float64(period/2)))
}

func (b *breaker) become(s State, now time.Time) {
	b.state, b.since = s, now
	b.epoch++
	b.failures, b.probing = 0, false
}
