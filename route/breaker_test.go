package route

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A referenceBreaker is a simple implementation of a breaker without jitter. Tickets
// of earlier states are removed from valid.
type referenceBreaker struct {
	limit   int
	openFor time.Duration

	state   State
	until   time.Time
	opened  int // consecutive times
	failed  int // consecutive times
	probing bool
	valid   map[int]bool
	next    int
}

func (m *referenceBreaker) ready(now time.Time) bool {
	return m.state == StateClosed || m.state == StateOpen && !now.Before(m.until) || m.state == StateHalfOpen && !m.probing
}

func (m *referenceBreaker) change(s State) {
	m.state, m.failed, m.probing = s, 0, false
	m.valid = map[int]bool{}
}

func (m *referenceBreaker) admit() int {
	if m.state == StateOpen {
		m.change(StateHalfOpen)
	}
	if m.state == StateHalfOpen {
		m.probing = true
	}
	m.next++
	m.valid[m.next] = true
	return m.next
}

func (m *referenceBreaker) recordOutcome(id int, o outcome, now time.Time) {
	if !m.valid[id] {
		return
	}
	delete(m.valid, id)
	if m.state == StateHalfOpen {
		m.probing = false
		switch o {
		case outcomeSuccess:
			m.opened = 0
			m.change(StateClosed)
		case outcomeFailure:
			m.open(now)
		}
		return
	}
	switch o {
	case outcomeSuccess:
		m.failed = 0
	case outcomeFailure:
		m.failed++
		if m.limit >= 0 && m.failed >= m.limit {
			m.opened = 0
			m.open(now)
		}
	}
}

func (m *referenceBreaker) open(now time.Time) {
	m.change(StateOpen)
	d := m.openFor
	for range m.opened {
		d = min(2*d, max(maxOpen, m.openFor))
	}
	m.opened++
	m.until = now.Add(d)
}

// FuzzBreaker performs the operations of a script on a breaker and on a
// referenceBreaker, and compares the two.
func FuzzBreaker(f *testing.F) {
	f.Add(2, int64(10), []byte{0, 0, 1, 1, 3, 200, 0, 2, 0, 1, 3, 255})
	f.Add(1, int64(1), []byte("aAbBcCdDeEfF0123456789"))
	f.Add(-1, int64(1), []byte{0, 1, 0, 1, 0, 1})
	f.Add(5, int64(600), []byte{0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 3, 3, 3, 0, 1, 3, 3, 3, 3, 0, 2, 0, 5})
	f.Fuzz(func(t *testing.T, limit int, seconds int64, script []byte) {
		limit = max(-1, limit%8)
		if limit == 0 {
			limit = 1
		}
		openFor := time.Duration(1+(seconds&0xfff)) * time.Second
		now := time.Unix(0, 0)
		b := new(breaker)
		m := &referenceBreaker{limit: limit, openFor: openFor, state: StateClosed, valid: map[int]bool{}}
		type request struct {
			ticket ticket
			id     int
		}
		var requests []request // in flight
		for _, op := range script {
			switch arg := int(op >> 2); op & 3 {
			case 0:
				ready := b.ready("", now)
				assert.Equal(t, m.ready(now), ready)
				if ready {
					requests = append(requests, request{b.admit("", now), m.admit()})
				}
			case 1, 2:
				if len(requests) == 0 {
					continue
				}
				i := arg % len(requests)
				r := requests[i]
				requests = append(requests[:i], requests[i+1:]...)
				o := outcomeFailure
				if op&3 == 2 {
					o = []outcome{outcomeSuccess, outcomeNone}[arg&1]
				}
				b.recordOutcome(r.ticket, o, now, breakerOptions{limit, openFor}, true, 0)
				m.recordOutcome(r.id, o, now)
			case 3:
				now = now.Add(openFor * time.Duration(arg) / 16)
			}
			require.Equal(t, m.state, b.currentState())
			switch m.state {
			case StateOpen:
				require.Equal(t, m.until, b.until)
			case StateHalfOpen:
				require.Equal(t, m.probing, b.probing)
			}
		}
	})
}

func TestBreaker_Jitter(t *testing.T) {
	now := time.Unix(0, 0)
	for jitter, want := range map[float64]time.Duration{0: 10 * time.Second, 0.5: 12500 * time.Millisecond, 0.999: 14995 * time.Millisecond} {
		var b breaker
		b.recordOutcome(b.admit("", now), outcomeFailure, now, breakerOptions{1, 10 * time.Second}, true, jitter)
		assert.Equal(t, want, b.until.Sub(now))
	}
}
