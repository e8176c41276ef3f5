package route

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// A breakerModel is a breaker as its users would describe it: a list of what
// happened since it last changed.
type breakerModel struct {
	limit   int
	openFor time.Duration

	state   State
	until   time.Time
	opened  int  // how many times in a row
	failed  int  // in a row
	probing bool // somebody has the only ticket
	valid   map[int]bool
	next    int
}

func (m *breakerModel) ready(now time.Time) bool {
	return m.state == StateClosed || m.state == StateOpen && !now.Before(m.until) || m.state == StateHalfOpen && !m.probing
}

func (m *breakerModel) change(s State) {
	m.state, m.failed, m.probing = s, 0, false
	m.valid = map[int]bool{}
}

func (m *breakerModel) admit() int {
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

func (m *breakerModel) settle(id int, o outcome, now time.Time) {
	if !m.valid[id] {
		return
	}
	delete(m.valid, id)
	if m.state == StateHalfOpen {
		m.probing = false
		switch o {
		case worked:
			m.opened = 0
			m.change(StateClosed)
		case failed:
			m.open(now)
		}
		return
	}
	switch o {
	case worked:
		m.failed = 0
	case failed:
		if m.failed++; m.limit >= 0 && m.failed >= m.limit {
			m.opened = 0
			m.open(now)
		}
	}
}

func (m *breakerModel) open(now time.Time) {
	m.change(StateOpen)
	d := m.openFor
	for range m.opened {
		d = min(2*d, max(maxOpen, m.openFor))
	}
	m.opened++
	m.until = now.Add(d)
}

// FuzzBreaker does with a breaker what the bytes say, and with its model.
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
		m := &breakerModel{limit: limit, openFor: openFor, state: StateClosed, valid: map[int]bool{}}
		type pass struct {
			ticket ticket
			id     int
		}
		var passes []pass // those out, the latest last
		for _, op := range script {
			switch arg := int(op >> 2); op & 3 {
			case 0:
				ready := b.ready(now)
				assert.Equal(t, m.ready(now), ready)
				if ready {
					passes = append(passes, pass{b.admit(now), m.admit()})
				}
			case 1, 2:
				if len(passes) == 0 {
					continue
				}
				i := arg % len(passes)
				p := passes[i]
				passes = append(passes[:i], passes[i+1:]...)
				o := failed
				if op&3 == 2 {
					o = []outcome{worked, neutral}[arg&1]
				}
				b.settle(p.ticket, o, now, limit, openFor, 0)
				m.settle(p.id, o, now)
			case 3:
				now = now.Add(openFor * time.Duration(arg) / 16)
			}
			if b.current() != m.state || b.state == StateOpen && !b.until.Equal(m.until) {
				t.Fatalf("the breaker is %s until %v, want %s until %v", b.current(), b.until, m.state, m.until)
			}
			if m.state == StateHalfOpen {
				assert.Equal(t, m.probing, b.probing)
			}
		}
	})
}

func TestBreakerJitter(t *testing.T) {
	now := time.Unix(0, 0)
	for _, test := range []struct {
		jitter float64
		want   time.Duration
	}{{0, 10 * time.Second}, {0.5, 12500 * time.Millisecond}, {0.999, 14995 * time.Millisecond}} {
		var b breaker
		b.settle(b.admit(now), failed, now, 1, 10*time.Second, test.jitter)
		assert.Equal(t, test.want, b.until.Sub(now))
	}
}
