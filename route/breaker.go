// The circuit breaker of a target for a model.

package route

import "time"

// A State is the state of a target's circuit breaker.
type State string

const (
	StateClosed   State = "closed"    // the target gets requests
	StateOpen     State = "open"      // the target has failed repeatedly and gets no requests
	StateHalfOpen State = "half-open" // the target gets one request at a time, to find out whether it works again
)

// An outcome is what a try tells about its target.
type outcome int

const (
	outcomeNone outcome = iota // neither success nor failure
	outcomeSuccess
	outcomeFailure
)

// A breaker is a circuit breaker. The zero value is closed. It does not read a
// clock and has no lock: the caller passes the time and serializes the calls.
//
// To let a request through, call admit, which returns a ticket. When the outcome is
// known, call recordOutcome with the ticket. If the state has changed in between,
// recordOutcome ignores the outcome.
//
// Failures of requests of a single account open the breaker for that account
// only, because its requests may be the reason. If another account's request fails
// as well, the breaker is open for all accounts.
type breaker struct {
	state    State         // empty means StateClosed
	since    time.Time     // when the state was entered
	until    time.Time     // while open: when it becomes half-open
	failures int           // while closed: consecutive failures
	account  string        // the account whose requests failed; empty if there were several or it is not known
	period   time.Duration // for how long it was last opened, without jitter
	epoch    int           // counts state changes
	probing  bool          // while half-open: whether a request is in flight
}

// maxOpen limits the doubling of the time for which a breaker is open.
const maxOpen = 5 * time.Minute

// A ticket identifies a request that a breaker let through.
type ticket struct {
	account string
	epoch   int
	probe   bool // the request was let through by a half-open breaker
}

// breakerOptions are the parts of [Options] that a breaker needs.
type breakerOptions struct {
	failures int
	openFor  time.Duration
}

func (b *breaker) currentState() State {
	if b.state == "" {
		return StateClosed
	}
	return b.state
}

// closedFor reports whether the breaker is closed for requests of an account.
func (b *breaker) closedFor(account string) bool {
	return b.currentState() == StateClosed || b.account != "" && b.account != account
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

// admit lets a request through, even if the breaker is not ready. The caller must call
// recordOutcome with the ticket once.
func (b *breaker) admit(account string, now time.Time) ticket {
	if b.closedFor(account) {
		return ticket{account: account, epoch: b.epoch}
	}
	if b.state == StateOpen {
		b.setState(StateHalfOpen, now)
	}
	b.probing = true
	return ticket{account, b.epoch, true}
}

// recordOutcome records the outcome of a request, unless the state has changed since it was
// admitted. The breaker opens after o.failures consecutive failures, or never if that is negative
// or mayOpen is false. It stays open for o.openFor or longer: jitter, in [0, 1), adds up to half of
// it.
func (b *breaker) recordOutcome(tk ticket, out outcome, now time.Time, o breakerOptions, mayOpen bool, jitter float64) {
	if tk.epoch != b.epoch {
		return
	}
	if tk.probe {
		b.probing = false
	}
	switch {
	case out == outcomeNone:
	case out == outcomeSuccess:
		b.failures, b.period = 0, 0
		if b.currentState() != StateClosed {
			b.setState(StateClosed, now)
		}
	case !tk.probe && b.currentState() != StateClosed:
		b.account = "" // another account's request failed too
	case tk.probe && mayOpen:
		b.open(now, min(2*b.period, max(maxOpen, o.openFor)), jitter)
	case tk.probe:
		b.setState(StateClosed, now)
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
	b.setState(StateOpen, now)
	b.period = period
	b.until = now.Add(period + time.Duration(jitter*float64(period/2)))
}

func (b *breaker) setState(s State, now time.Time) {
	b.state, b.since = s, now
	b.epoch++
	b.failures, b.probing = 0, false
}
