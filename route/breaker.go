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
// To let a request through, call admit, which returns a ticket. Settle the ticket
// when the outcome is known. The state may have changed in between, and then the
// outcome is ignored.
//
// Failures of requests of a single account open the breaker for that account
// only, because its requests may be the reason. If another account's request fails
// as well, the breaker is open for all accounts.
type breaker struct {
	state    State         // empty means StateClosed
	since    time.Time     // when the state was entered
	until    time.Time     // while open: when it becomes half-open
	failures int           // while closed: consecutive failures
	account  string        // whose requests failed; empty if those of several did, or it is not known
	period   time.Duration // for which it was last opened, without jitter
	epoch    int           // counts state changes
	probing  bool          // while half-open: a request is in flight
}

// maxOpen limits the doubling of the time for which a breaker is open.
const maxOpen = 5 * time.Minute

// A ticket identifies a request that a breaker let through.
type ticket struct {
	account string
	epoch   int
	probe   bool // a request that finds out whether the target works again
}

// breakerOptions are the parts of [Options] that a breaker needs.
type breakerOptions struct {
	failures int
	openFor  time.Duration
}

func (b *breaker) current() State {
	if b.state == "" {
		return StateClosed
	}
	return b.state
}

// closedFor reports whether the breaker does not hold up requests of an account.
func (b *breaker) closedFor(account string) bool {
	return b.current() == StateClosed || b.account != "" && b.account != account
}

// ready reports whether a request of an account should be let through.
func (b *breaker) ready(account string, now time.Time) bool {
	switch {
	case b.closedFor(account):
		return true
	case b.state == StateOpen:
		return !now.Before(b.until)
	}
	return !b.probing
}

// admit lets a request through, even if the breaker is not ready. The ticket must
// be settled once.
func (b *breaker) admit(account string, now time.Time) ticket {
	if b.closedFor(account) {
		return ticket{account: account, epoch: b.epoch}
	}
	if b.state == StateOpen {
		b.become(StateHalfOpen, now)
	}
	b.probing = true
	return ticket{account, b.epoch, true}
}

// settle records the outcome of a request, unless the state has changed since
// it was admitted. The breaker opens after o.failures consecutive failures, or
// never if that is negative or mayOpen is false. It stays open for o.openFor or
// longer: jitter, in [0, 1), adds up to half of it.
func (b *breaker) settle(tk ticket, out outcome, now time.Time, o breakerOptions, mayOpen bool, jitter float64) {
	if tk.epoch != b.epoch {
		return
	}
	if tk.probe {
		b.probing = false
	}
	switch {
	case out == neutral:
	case out == worked:
		b.failures, b.period = 0, 0
		if b.current() != StateClosed {
			b.become(StateClosed, now)
		}
	case !tk.probe && b.current() != StateClosed:
		b.account = "" // another account's request failed too
	case tk.probe && mayOpen:
		b.open(now, min(2*b.period, max(maxOpen, o.openFor)), jitter)
	case tk.probe:
		b.become(StateClosed, now)
	default:
		b.countFailure(tk.account)
		if mayOpen && o.failures >= 0 && b.failures >= o.failures {
			b.open(now, o.openFor, jitter)
		}
	}
}

func (b *breaker) countFailure(account string) {
	if b.failures == 0 {
		b.account = account
	} else if b.account != account {
		b.account = ""
	}
	b.failures++
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
