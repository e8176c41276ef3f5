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
	testMutants(t, acquireChecks, tallyFixture(func(*tally) {}), acquireMutants)
}

// TestAcquireSound tests a sound ConcurrencyLimiter as its authors do.
func TestAcquireSound(t *testing.T) {
	TestLimiter(t, func(t testing.TB) llmhttp.Limiter { return tallyFixture(func(*tally) {})(t) })
}

// A tally is a ConcurrencyLimiter in its plainest form, with places for faults.
type tally struct {
	*tokenMap
	inProgress map[string]int

	name    func(bucket string) string
	full    func(n, limit int) bool
	look    func(m *tally) // between counting and deciding
	release func(m *tally, ctx context.Context, bucket string) func()
}

func tallyFixture(fault func(*tally)) func(testing.TB) llmhttp.ConcurrencyLimiter {
	return func(testing.TB) llmhttp.ConcurrencyLimiter {
		m := &tally{tokenMap: newTokenMap(), inProgress: map[string]int{}}
		m.name = func(bucket string) string { return bucket }
		m.full = func(n, limit int) bool { return n >= limit }
		m.look = func(*tally) {}
		m.release = func(m *tally, _ context.Context, bucket string) func() {
			return sync.OnceFunc(func() { m.end(bucket) })
		}
		fault(m)
		return m
	}
}

func (m *tally) end(bucket string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.inProgress[bucket]--
}

func (m *tally) Acquire(ctx context.Context, bucket string, limit int) (func(), error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	bucket = m.name(bucket)
	n := m.inProgress[bucket]
	m.look(m)
	if m.full(n, limit) {
		return nil, nil
	}
	m.inProgress[bucket]++
	return m.release(m, ctx, bucket), nil
}

// A tallyOfTokens keeps requests in progress in buckets of tokens.
type tallyOfTokens struct{ *tokenMap }

func (m tallyOfTokens) Acquire(ctx context.Context, bucket string, limit int) (func(), error) {
	at := llmhttp.Draw{Bucket: bucket, Rate: llmhttp.Rate{N: max(limit, 1), Per: 1000 * time.Hour}, Cost: 1}
	levels, err := m.Take(ctx, at)
	if err != nil || !isGranted(levels) {
		return nil, err
	}
	at.Cost = -1
	return func() { _ = m.Adjust(ctx, at) }, nil
}

var acquireMutants = []mutant[llmhttp.ConcurrencyLimiter]{
	{"one too many", "Limit", tallyFixture(func(m *tally) { m.full = func(n, limit int) bool { return n > max(limit, -1) } })},
	{"one too few", "Limit", tallyFixture(func(m *tally) { m.full = func(n, limit int) bool { return n+1 >= max(limit, 2) } })},
	{"never released", "Limit", tallyFixture(func(m *tally) {
		m.release = func(*tally, context.Context, string) func() { return func() {} }
	})},
	{"no limit is none", "None", tallyFixture(func(m *tally) { m.full = func(n, limit int) bool { return limit > 0 && n >= limit } })},
	{"at least one", "None", tallyFixture(func(m *tally) { m.full = func(n, limit int) bool { return n >= max(limit, 1) } })},
	{"the first limit stays", "LimitChange", tallyFixture(func(m *tally) {
		first := 0
		m.full = func(n, limit int) bool {
			if first == 0 {
				first = limit
			}
			return n >= first
		}
	})},
	{"each release counts", "ReleaseTwice", tallyFixture(func(m *tally) {
		m.release = func(m *tally, _ context.Context, bucket string) func() { return func() { m.end(bucket) } }
	})},
	{"released by the context", "ReleaseLate", tallyFixture(func(m *tally) {
		m.release = func(m *tally, ctx context.Context, bucket string) func() {
			once := sync.OnceFunc(func() { m.end(bucket) })
			context.AfterFunc(ctx, once)
			return once
		}
		m.name = func(bucket string) string { m.pause(); return bucket }
	})},
	{"released with the context", "ReleaseLate", tallyFixture(func(m *tally) {
		m.release = func(m *tally, ctx context.Context, bucket string) func() {
			return sync.OnceFunc(func() {
				if ctx.Err() == nil {
					m.end(bucket)
				}
			})
		}
	})},
	{"by key alone", "Names", tallyFixture(func(m *tally) {
		m.name = func(bucket string) string { return bucket[:strings.LastIndexByte(bucket, ':')] }
	})},
	{"names in any case", "Names", tallyFixture(func(m *tally) { m.name = strings.ToLower })},
	{"in buckets of tokens", "Tokens", func(testing.TB) llmhttp.ConcurrencyLimiter { return tallyOfTokens{newTokenMap()} }},
	{"looks, then counts", "Together", tallyFixture(func(m *tally) { m.look = func(m *tally) { m.pause() } })},
	{"fails when busy", "Together", func(testing.TB) llmhttp.ConcurrencyLimiter {
		return &busyTally{ConcurrencyLimiter: tallyFixture(func(*tally) {})(nil)}
	}},
}

// A busyTally fails when it is called while it is called.
type busyTally struct {
	llmhttp.ConcurrencyLimiter
	mu sync.Mutex
}

func (l *busyTally) Acquire(ctx context.Context, bucket string, limit int) (func(), error) {
	if !l.mu.TryLock() {
		return nil, errors.New("busy")
	}
	defer l.mu.Unlock()
	time.Sleep(time.Microsecond)
	return l.ConcurrencyLimiter.Acquire(ctx, bucket, limit)
}
