package route

import "time"

// A State is that of a target's circuit breaker.
type State string

const (
	StateClosed   State = "closed"    // the target gets requests
	StateOpen     State = "open"      // it keeps failing, and gets none for a while
	StateHalfOpen State = "half-open" // it gets one at a time, to see whether it works again
)

// An outcome is what a try says of its target.
type outcome int

const (
	neutral outcome = iota // nothing
	worked
	failed
)

// A breaker is a circuit breaker. Its zero value is closed. It neither locks
// nor reads a clock, and is asked whether it would let a request through before
// it does: a target is picked from those whose breakers would. What became of a
// request may be known long after, and may be nothing that counts.
type breaker struct {
	state    State     // StateClosed if empty
	since    time.Time // of the state
	until    time.Time // while open, when it is half-open
	failures int       // in a row, while closed
	period   time.Duration
	epoch    int  // how often the state has changed
	probing  bool // while half-open, whether a request is under way
}

// maxOpen bounds the time for which a breaker is open.
const maxOpen = 5 * time.Minute

// A ticket is what a breaker gives to a request that it lets through.
type ticket struct {
	epoch int
	probe bool
}

func (b *breaker) is() State {
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

// admit lets a request through, which is to be settled once.
func (b *breaker) admit(now time.Time) ticket {
	if b.state == StateOpen {
		b.become(StateHalfOpen, now)
	}
	b.probing = b.state == StateHalfOpen
	return ticket{b.epoch, b.probing}
}

// settle takes note of what became of a request. What was let through before
// the state changed says nothing of it any more. The breaker opens after limit
// failures in a row, unless that is negative, for at least openFor; jitter, in
// [0, 1), says for how much longer.
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
