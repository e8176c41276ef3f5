package limitertest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
)

func TestLimiter_AcceptsCorrectReserver(t *testing.T) {
	TestLimiter(t, func(t testing.TB) llmhttp.Limiter { return reservingFixture(func(*reservingCounter) {})(t).limiter })
}

// A reservingCounter is a simple correct Reserver. Mutants replace its functions.
type reservingCounter struct {
	*counter

	once    func(f func()) func()                                           // makes later calls do nothing
	amount  func(reserved llmhttp.SlotAmount, amounts []int64, i int) int64 // what lingers
	linger  func(time.Duration) time.Duration
	give    func(m *counter, slots []llmhttp.SlotAmount) // gives back what was reserved
	full    func(int) int
	reserve func(ctx context.Context, slots []llmhttp.SlotAmount) (func(), int, error)
}

// reservingFixture returns a constructor of a reservingCounter with a fault.
func reservingFixture(fault func(*reservingCounter)) func(testing.TB) limiterTest {
	return func(t testing.TB) limiterTest {
		m := &reservingCounter{counter: counterFixture(func(*counter) {})(t).limiter.(*counter)}
		m.once = sync.OnceFunc
		m.amount = func(_ llmhttp.SlotAmount, amounts []int64, i int) int64 { return max(amounts[i], 0) }
		m.linger = func(d time.Duration) time.Duration { return d }
		m.give = (*counter).end
		m.full = func(i int) int { return i }
		m.reserve = func(ctx context.Context, slots []llmhttp.SlotAmount) (func(), int, error) {
			return m.Acquire(ctx, slots...)
		}
		fault(m)
		return limiterTest{limiter: m, inBubble: true}
	}
}

func (m *reservingCounter) Reserve(ctx context.Context, slots ...llmhttp.SlotAmount) (func(time.Duration, ...int64), int, error) {
	slots = slices.Clone(slots)
	release, full, err := m.reserve(ctx, slots)
	if release == nil {
		return nil, m.full(full), err
	}
	var linger time.Duration
	var amounts []int64
	settle := m.once(func() {
		m.give(m.counter, slots)
		if linger <= 0 || len(amounts) != len(slots) {
			return
		}
		lingering := slices.Clone(slots)
		for i := range lingering {
			lingering[i].Amount = m.amount(slots[i], amounts, i)
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		m.add(lingering, 1)
		time.AfterFunc(m.linger(linger), func() { m.end(lingering) })
	})
	return func(d time.Duration, a ...int64) {
		linger, amounts = d, a
		settle()
	}, 0, nil
}

var reserveMutants = []mutant[limiterTest]{
	{"Acquire counts other slots", randomCalls, reservingFixture(func(m *reservingCounter) {
		other := counterFixture(func(*counter) {})(nil).limiter.(*counter)
		m.reserve = func(ctx context.Context, slots []llmhttp.SlotAmount) (func(), int, error) {
			return other.Acquire(ctx, slots...)
		}
		m.give = func(_ *counter, slots []llmhttp.SlotAmount) { other.end(slots) }
	})},
	{"a reservation counts as one", randomCalls, reservingFixture(func(m *reservingCounter) {
		m.counter.amount = func(llmhttp.SlotAmount) int64 { return 1 }
	})},
	{"slots before one that is full remain reserved", randomCalls, reservingFixture(func(m *reservingCounter) {
		m.reserve = func(ctx context.Context, slots []llmhttp.SlotAmount) (func(), int, error) {
			for i := range slots {
				if release, _, err := m.Acquire(ctx, slots[i]); release == nil {
					return nil, i, err
				}
			}
			return func() {}, 0, nil
		}
	})},
	{"full is always zero", randomCalls, reservingFixture(func(m *reservingCounter) { m.full = func(int) int { return 0 } })},
	{"the reservation lingers, not what was used", randomCalls, reservingFixture(func(m *reservingCounter) {
		m.amount = func(s llmhttp.SlotAmount, _ []int64, _ int) int64 { return s.Amount }
	})},
	{"the first amount lingers for all slots", randomCalls, reservingFixture(func(m *reservingCounter) {
		m.amount = func(_ llmhttp.SlotAmount, amounts []int64, _ int) int64 { return amounts[0] }
	})},
	{"no more lingers than was reserved", randomCalls, reservingFixture(func(m *reservingCounter) {
		m.amount = func(s llmhttp.SlotAmount, amounts []int64, i int) int64 { return min(s.Amount, amounts[i]) }
	})},
	{"settle keeps the reservation", randomCalls, reservingFixture(func(m *reservingCounter) { m.give = func(*counter, []llmhttp.SlotAmount) {} })},
	{"negative amounts are counted", randomCalls, reservingFixture(func(m *reservingCounter) {
		m.amount = func(_ llmhttp.SlotAmount, amounts []int64, i int) int64 { return amounts[i] }
	})},
	{"nothing lingers", "Linger", reservingFixture(func(m *reservingCounter) { m.amount = func(llmhttp.SlotAmount, []int64, int) int64 { return 0 } })},
	{"half of the time", "Linger", reservingFixture(func(m *reservingCounter) { m.linger = func(d time.Duration) time.Duration { return d / 2 } })},
	{"each call of settle counts", randomCalls, reservingFixture(func(m *reservingCounter) { m.once = func(f func()) func() { return f } })},
	{"the end of the context gives back", randomCalls, reservingFixture(func(m *reservingCounter) {
		reserve, give := m.reserve, m.give
		m.reserve = func(ctx context.Context, slots []llmhttp.SlotAmount) (func(), int, error) {
			release, full, err := reserve(ctx, slots)
			if release == nil {
				return nil, full, err
			}
			once := sync.OnceFunc(func() { give(m.counter, slots) })
			m.give = func(*counter, []llmhttp.SlotAmount) { once() }
			context.AfterFunc(ctx, once)
			m.counter.acquire = func(c *counter, ctx context.Context, slots []llmhttp.SlotAmount) (func(), int, error) {
				c.pause()
				return c.acquireAll(ctx, slots)
			}
			return release, full, err
		}
	})},
}
