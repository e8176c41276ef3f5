package exchange

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// A timer calls fire when one of the timeouts of an Exchange may have passed. There is one timer for
// all of them, and it is rarely set: what makes a timeout later only notes that, and fire sets
// the timer again. So neither a chunk nor a write costs a timer operation (budgets: stream, a
// flush per chunk; whole 0.5 KB, of bare with the same headers).
type timer struct {
	began time.Time    // noMoment as a time
	fire  func()       // is called on a goroutine of its own
	due   atomicMoment // when the timer fires; never if it is not set

	mu     sync.Mutex // guards the fields below
	timer  *time.Timer
	closed bool
}

// A moment is a time after timer.began, in nanoseconds since then.
type moment int64

const (
	hasPassed moment = -1 // that of a read or write whose deadline was set
	noMoment  moment = 0
	never     moment = math.MaxInt64
)

func (t *timer) init(now time.Time, fire func()) {
	t.began, t.fire = now.Add(-1), fire // so that the present is no noMoment
	t.due.Store(never)
}

// at returns a time as a moment.
func (t *timer) at(when time.Time) moment { return moment(when.Sub(t.began)) }

// arm makes the timer fire at a moment, or earlier. now is the current time.
func (t *timer) arm(due, now moment) {
	if due >= t.due.Load() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || due >= t.due.Load() {
		return
	}
	t.due.Store(due)
	d := max(time.Duration(due-now), 0)
	if t.timer == nil {
		t.timer = time.AfterFunc(d, t.fire)
	} else {
		t.timer.Reset(d)
	}
}

// close stops the timer for good.
func (t *timer) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	if t.timer != nil {
		t.timer.Stop()
	}
}

// An atomicMoment is a moment that several goroutines use.
type atomicMoment struct{ n atomic.Int64 }

func (m *atomicMoment) Load() moment         { return moment(m.n.Load()) }
func (m *atomicMoment) Store(v moment)       { m.n.Store(int64(v)) }
func (m *atomicMoment) Swap(v moment) moment { return moment(m.n.Swap(int64(v))) }

func (m *atomicMoment) CompareAndSwap(old, v moment) bool {
	return m.n.CompareAndSwap(int64(old), int64(v))
}
