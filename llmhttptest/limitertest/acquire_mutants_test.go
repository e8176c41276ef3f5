package limitertest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
)

func TestLimiter_AcceptsCorrectConcurrencyLimiter(t *testing.T) {
	TestLimiter(t, func(t testing.TB) llmhttp.Limiter { return counterFixture(func(*counter) {})(t).limiter })
}

// A counter is a simple correct ConcurrencyLimiter. Mutants replace its
// functions. The lock of the tokenMap guards inUse.
type counter struct {
	*tokenMap
	inUse map[llmhttp.SlotAmount]int64 // by slots without Amount and Limit

	id       func(s llmhttp.SlotAmount) llmhttp.SlotAmount // normalises the subject and the name
	amount   func(s llmhttp.SlotAmount) int64
	full     func(n int64, s llmhttp.SlotAmount) bool // whether s is full if n are in use
	between  func(m *counter)                         // runs between counting and deciding
	acquire  func(m *counter, ctx context.Context, slots []llmhttp.SlotAmount) (func(), int, error)
	releaser func(m *counter, ctx context.Context, slots []llmhttp.SlotAmount) func()
}

// counterFixture returns a constructor of a counter with a fault.
func counterFixture(fault func(*counter)) func(testing.TB) limiterTest {
	return func(testing.TB) limiterTest {
		m := &counter{tokenMap: newTokenMap(), inUse: map[llmhttp.SlotAmount]int64{}}
		m.id = func(s llmhttp.SlotAmount) llmhttp.SlotAmount { return s }
		m.amount = func(s llmhttp.SlotAmount) int64 { return s.Amount }
		m.full = func(n int64, s llmhttp.SlotAmount) bool { return s.Limit < s.Amount || n > s.Limit-s.Amount }
		m.between = func(*counter) {}
		m.acquire = (*counter).acquireAll
		m.releaser = func(m *counter, _ context.Context, slots []llmhttp.SlotAmount) func() {
			return sync.OnceFunc(func() { m.end(slots) })
		}
		fault(m)
		return limiterTest{limiter: m, inBubble: true}
	}
}

// slot returns the key of inUse for s.
func (m *counter) slot(s llmhttp.SlotAmount) llmhttp.SlotAmount {
	s = m.id(s)
	s.Amount, s.Limit = 0, 0
	return s
}

func (m *counter) end(slots []llmhttp.SlotAmount) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.add(slots, -1)
}

// add adds the amounts of slots, times sign, to what is in use.
func (m *counter) add(slots []llmhttp.SlotAmount, sign int64) {
	for _, s := range slots {
		m.inUse[m.slot(s)] += sign * m.amount(s)
	}
}

func (m *counter) Acquire(ctx context.Context, slots ...llmhttp.SlotAmount) (func(), int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.acquire(m, ctx, slots)
}

func (m *counter) acquireAll(ctx context.Context, slots []llmhttp.SlotAmount) (func(), int, error) {
	for i, s := range slots {
		n := m.inUse[m.slot(s)]
		m.between(m)
		if m.full(n, s) {
			return nil, i, nil
		}
	}
	m.add(slots, 1)
	return m.releaser(m, ctx, slices.Clone(slots)), 0, nil
}

// withAcquire returns a constructor of a counter with another Acquire.
func withAcquire(acquire func(m *counter, ctx context.Context, slots []llmhttp.SlotAmount) (func(), int, error)) func(testing.TB) limiterTest {
	return counterFixture(func(m *counter) { m.acquire = acquire })
}

// withID returns a constructor of a counter that changes the IDs of subjects.
func withID(id func(string) string) func(testing.TB) limiterTest {
	return counterFixture(func(m *counter) {
		m.id = func(s llmhttp.SlotAmount) llmhttp.SlotAmount { s.Subject.ID = id(s.Subject.ID); return s }
	})
}

// A bucketCounter counts requests in progress in a token bucket.
type bucketCounter struct{ *tokenMap }

func (m bucketCounter) Acquire(ctx context.Context, slots ...llmhttp.SlotAmount) (func(), int, error) {
	s := slots[0]
	d := llmhttp.BucketAmount{Subject: s.Subject, Bucket: s.Name, Rate: llmhttp.Rate{N: max(int(s.Limit), 1), Per: 1000 * time.Hour}, Amount: 1}
	levels, err := m.Take(ctx, d)
	if err != nil || !isGranted(levels) {
		return nil, 0, err
	}
	d.Amount = -1
	return func() { _ = m.Adjust(ctx, d) }, 0, nil
}

// A busyCounter fails when Acquire is called during another Acquire.
type busyCounter struct {
	llmhttp.ConcurrencyLimiter
	busy sync.Mutex // held during an Acquire
}

func (l *busyCounter) Acquire(ctx context.Context, slots ...llmhttp.SlotAmount) (func(), int, error) {
	if !l.busy.TryLock() {
		return nil, 0, errors.New("busy")
	}
	defer l.busy.Unlock()
	time.Sleep(time.Microsecond)
	return l.ConcurrencyLimiter.Acquire(ctx, slots...)
}

var acquireMutants = []mutant[limiterTest]{
	{"one too many", randomCalls, counterFixture(func(m *counter) { m.full = func(n int64, s llmhttp.SlotAmount) bool { return n > max(s.Limit, -1) } })},
	{"one too few", randomCalls, counterFixture(func(m *counter) { m.full = func(n int64, s llmhttp.SlotAmount) bool { return n+1 >= max(s.Limit, 2) } })},
	{"release does nothing", randomCalls, counterFixture(func(m *counter) {
		m.releaser = func(*counter, context.Context, []llmhttp.SlotAmount) func() { return func() {} }
	})},
	{"a limit of zero means no limit", randomCalls, counterFixture(func(m *counter) {
		m.full = func(n int64, s llmhttp.SlotAmount) bool { return s.Limit > 0 && n >= s.Limit }
	})},
	{"a limit of zero means one", randomCalls, counterFixture(func(m *counter) { m.full = func(n int64, s llmhttp.SlotAmount) bool { return n >= max(s.Limit, 1) } })},
	{"the first limit is kept", randomCalls, counterFixture(func(m *counter) {
		first := int64(0)
		m.full = func(n int64, s llmhttp.SlotAmount) bool {
			if first == 0 {
				first = s.Limit
			}
			return n >= first
		}
	})},
	{"each call of release counts", randomCalls, counterFixture(func(m *counter) {
		m.releaser = func(m *counter, _ context.Context, slots []llmhttp.SlotAmount) func() { return func() { m.end(slots) } }
	})},
	{"the end of the context releases", randomCalls, counterFixture(func(m *counter) {
		m.releaser = func(m *counter, ctx context.Context, slots []llmhttp.SlotAmount) func() {
			once := sync.OnceFunc(func() { m.end(slots) })
			context.AfterFunc(ctx, once)
			return once
		}
		m.acquire = func(m *counter, ctx context.Context, slots []llmhttp.SlotAmount) (func(), int, error) {
			m.pause()
			return m.acquireAll(ctx, slots)
		}
	})},
	{"release fails after the end of the context", randomCalls, counterFixture(func(m *counter) {
		m.releaser = func(m *counter, ctx context.Context, slots []llmhttp.SlotAmount) func() {
			return sync.OnceFunc(func() {
				if ctx.Err() == nil {
					m.end(slots)
				}
			})
		}
	})},
	{"IDs end at a colon", randomCalls, withID(func(id string) string { id, _, _ = strings.Cut(id, ":"); return id })},
	{"the last colon and what follows are cut off", randomCalls, withID(func(id string) string {
		if i := strings.LastIndexByte(id, ':'); i >= 0 {
			return id[:i]
		}
		return id
	})},
	{"case is ignored", randomCalls, withID(strings.ToLower)},
	{"kinds are ignored", randomCalls, counterFixture(func(m *counter) {
		m.id = func(s llmhttp.SlotAmount) llmhttp.SlotAmount { s.Subject.Kind = ""; return s }
	})},
	{"kinds and IDs are joined by nothing", randomCalls, counterFixture(func(m *counter) {
		m.id = func(s llmhttp.SlotAmount) llmhttp.SlotAmount {
			s.Subject = llmhttp.SubjectID{ID: s.Subject.Kind + s.Subject.ID}
			return s
		}
	})},
	{"names of slots are ignored", randomCalls, counterFixture(func(m *counter) {
		m.id = func(s llmhttp.SlotAmount) llmhttp.SlotAmount { s.Name = ""; return s }
	})},

	{"each slot counts as one", randomCalls, counterFixture(func(m *counter) { m.amount = func(llmhttp.SlotAmount) int64 { return 1 } })},
	{"the Amount is not compared with what is left", randomCalls, counterFixture(func(m *counter) {
		m.full = func(n int64, s llmhttp.SlotAmount) bool { return n >= s.Limit }
	})},
	{"release gives back one", randomCalls, counterFixture(func(m *counter) {
		m.releaser = func(m *counter, _ context.Context, slots []llmhttp.SlotAmount) func() {
			for i := range slots {
				slots[i].Amount = 1
			}
			return sync.OnceFunc(func() { m.end(slots) })
		}
	})},
	{"amounts have 32 bits", randomCalls, counterFixture(func(m *counter) {
		m.amount = func(s llmhttp.SlotAmount) int64 { return int64(int32(s.Amount)) }
	})},

	{"slots before one that is full remain acquired", randomCalls, withAcquire(func(m *counter, ctx context.Context, slots []llmhttp.SlotAmount) (func(), int, error) {
		for i, s := range slots {
			if m.full(m.inUse[m.slot(s)], s) {
				return nil, i, nil
			}
			m.add(slots[i:i+1], 1)
		}
		return m.releaser(m, ctx, slices.Clone(slots)), 0, nil
	})},
	{"only the first slot is checked", randomCalls, withAcquire(func(m *counter, ctx context.Context, slots []llmhttp.SlotAmount) (func(), int, error) {
		if m.full(m.inUse[m.slot(slots[0])], slots[0]) {
			return nil, 0, nil
		}
		m.add(slots, 1)
		return m.releaser(m, ctx, slices.Clone(slots)), 0, nil
	})},
	{"full is always zero", randomCalls, withAcquire(func(m *counter, ctx context.Context, slots []llmhttp.SlotAmount) (func(), int, error) {
		release, _, err := m.acquireAll(ctx, slots)
		return release, 0, err
	})},
	{"release gives back the first slot only", randomCalls, counterFixture(func(m *counter) {
		m.releaser = func(m *counter, _ context.Context, slots []llmhttp.SlotAmount) func() {
			return sync.OnceFunc(func() { m.end(slots[:1]) })
		}
	})},
	{"release uses the slice of Acquire", randomCalls, withAcquire(func(m *counter, ctx context.Context, slots []llmhttp.SlotAmount) (func(), int, error) {
		release, full, err := m.acquireAll(ctx, slots)
		slices.Reverse(slots)
		return release, full, err
	})},
	{"a token bucket counts", randomCalls, func(testing.TB) limiterTest {
		return limiterTest{limiter: bucketCounter{newTokenMap()}, inBubble: true}
	}},
	{"Acquire checks and counts in two steps", "ConcurrentCalls", counterFixture(func(m *counter) { m.between = func(m *counter) { m.pause() } })},
	{"concurrent calls are an error", "ConcurrentCalls", func(testing.TB) limiterTest {
		return limiterTest{limiter: &busyCounter{ConcurrencyLimiter: counterFixture(func(*counter) {})(nil).limiter.(*counter)}}
	}},
	{"giving back overwrites what others have acquired", "ConcurrentCalls", withAcquire(func(m *counter, ctx context.Context, slots []llmhttp.SlotAmount) (func(), int, error) {
		for i, s := range slots {
			id := m.slot(s)
			before := m.inUse[id]
			if m.full(before, s) {
				m.add(slots[:i], -1)
				return nil, i, nil
			}
			m.pause()
			m.inUse[id] = before + m.amount(s)
		}
		return m.releaser(m, ctx, slices.Clone(slots)), 0, nil
	})},
}
