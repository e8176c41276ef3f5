package llmhttptest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
)

func TestAcquireMutants(t *testing.T) {
	testMutants(t, acquireChecks, counterFixture(func(*counter) {}), acquireMutants)
}

func TestLimiter_AcceptsCorrectConcurrencyLimiter(t *testing.T) {
	TestLimiter(t, func(t testing.TB) llmhttp.Limiter { return counterFixture(func(*counter) {})(t) })
}

// A counter is a simple correct ConcurrencyLimiter. Mutants replace its
// functions. The lock of the tokenMap guards inProgress.
type counter struct {
	*tokenMap
	inProgress map[string]int

	keyName  func(key string) string
	full     func(n, limit int) bool
	between  func(m *counter) // runs between counting and deciding
	releaser func(m *counter, ctx context.Context, key string) func()
}

// counterFixture returns a constructor of a counter with a fault.
func counterFixture(fault func(*counter)) func(testing.TB) llmhttp.ConcurrencyLimiter {
	return func(testing.TB) llmhttp.ConcurrencyLimiter {
		m := &counter{tokenMap: newTokenMap(), inProgress: map[string]int{}}
		m.keyName = func(key string) string { return key }
		m.full = func(n, limit int) bool { return n >= limit }
		m.between = func(*counter) {}
		m.releaser = func(m *counter, _ context.Context, key string) func() {
			return sync.OnceFunc(func() { m.end(key) })
		}
		fault(m)
		return m
	}
}

func (m *counter) end(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.inProgress[key]--
}

func (m *counter) Acquire(ctx context.Context, key string, limit int) (func(), error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key = m.keyName(key)
	n := m.inProgress[key]
	m.between(m)
	if m.full(n, limit) {
		return nil, nil
	}
	m.inProgress[key]++
	return m.releaser(m, ctx, key), nil
}

// A bucketCounter counts requests in progress in a token bucket.
type bucketCounter struct{ *tokenMap }

func (m bucketCounter) Acquire(ctx context.Context, key string, limit int) (func(), error) {
	d := llmhttp.Draw{Bucket: "concurrent", Rate: llmhttp.Rate{N: max(limit, 1), Per: 1000 * time.Hour}, Cost: 1}
	levels, err := m.Take(ctx, key, d)
	if err != nil || !isGranted(levels) {
		return nil, err
	}
	d.Cost = -1
	return func() { _ = m.Adjust(ctx, key, d) }, nil
}

// A busyCounter fails when Acquire is called during another Acquire.
type busyCounter struct {
	llmhttp.ConcurrencyLimiter
	busy sync.Mutex // held during an Acquire
}

func (l *busyCounter) Acquire(ctx context.Context, key string, limit int) (func(), error) {
	if !l.busy.TryLock() {
		return nil, errors.New("busy")
	}
	defer l.busy.Unlock()
	time.Sleep(time.Microsecond)
	return l.ConcurrencyLimiter.Acquire(ctx, key, limit)
}

var acquireMutants = []mutant[llmhttp.ConcurrencyLimiter]{
	{"one too many", "Limit", counterFixture(func(m *counter) { m.full = func(n, limit int) bool { return n > max(limit, -1) } })},
	{"one too few", "Limit", counterFixture(func(m *counter) { m.full = func(n, limit int) bool { return n+1 >= max(limit, 2) } })},
	{"release does nothing", "Limit", counterFixture(func(m *counter) {
		m.releaser = func(*counter, context.Context, string) func() { return func() {} }
	})},
	{"a limit of zero means no limit", "NoLimit", counterFixture(func(m *counter) { m.full = func(n, limit int) bool { return limit > 0 && n >= limit } })},
	{"a limit of zero means one", "NoLimit", counterFixture(func(m *counter) { m.full = func(n, limit int) bool { return n >= max(limit, 1) } })},
	{"the first limit is kept", "LimitChange", counterFixture(func(m *counter) {
		first := 0
		m.full = func(n, limit int) bool {
			if first == 0 {
				first = limit
			}
			return n >= first
		}
	})},
	{"each call of release counts", "ReleaseTwice", counterFixture(func(m *counter) {
		m.releaser = func(m *counter, _ context.Context, key string) func() { return func() { m.end(key) } }
	})},
	{"the end of the context releases", "ReleaseAfterCancel", counterFixture(func(m *counter) {
		m.releaser = func(m *counter, ctx context.Context, key string) func() {
			once := sync.OnceFunc(func() { m.end(key) })
			context.AfterFunc(ctx, once)
			return once
		}
		m.keyName = func(key string) string { m.pause(); return key }
	})},
	{"release fails after the end of the context", "ReleaseAfterCancel", counterFixture(func(m *counter) {
		m.releaser = func(m *counter, ctx context.Context, key string) func() {
			return sync.OnceFunc(func() {
				if ctx.Err() == nil {
					m.end(key)
				}
			})
		}
	})},
	{"keys end at a colon", "Names", counterFixture(func(m *counter) {
		m.keyName = func(key string) string { key, _, _ = strings.Cut(key, ":"); return key }
	})},
	{"the last colon and what follows are cut off", "Names", counterFixture(func(m *counter) {
		m.keyName = func(key string) string {
			if i := strings.LastIndexByte(key, ':'); i >= 0 {
				return key[:i]
			}
			return key
		}
	})},
	{"case is ignored", "Names", counterFixture(func(m *counter) { m.keyName = strings.ToLower })},
	{"a token bucket counts", "IndependentOfTokens", func(testing.TB) llmhttp.ConcurrencyLimiter { return bucketCounter{newTokenMap()} }},
	{"Acquire checks and counts in two steps", "Concurrent", counterFixture(func(m *counter) { m.between = func(m *counter) { m.pause() } })},
	{"concurrent calls are an error", "Concurrent", func(testing.TB) llmhttp.ConcurrencyLimiter {
		return &busyCounter{ConcurrencyLimiter: counterFixture(func(*counter) {})(nil)}
	}},
}
