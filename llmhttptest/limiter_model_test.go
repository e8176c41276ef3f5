package llmhttptest

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
)

// A tokenMap is a Limiter in its plainest form, with places for faults.
type tokenMap struct {
	mu      sync.Mutex
	buckets map[string]*tokens

	name   func(bucket string) string
	normal func(r llmhttp.Rate) llmhttp.Rate
	fresh  func(r llmhttp.Rate) float64                               // what a new bucket holds
	refill func(b *tokens, now time.Time)                             // up to now
	change func(b *tokens, r llmhttp.Rate)                            // the Rate
	enough func(b *tokens, cost int) bool                             // to take cost
	spend  func(b *tokens, cost int)                                  // whatever there is
	level  func(b *tokens, d llmhttp.Draw, enough bool) llmhttp.Level // after the call
	take   func(m *tokenMap, ctx context.Context, draws []llmhttp.Draw) ([]llmhttp.Level, error)
	adjust func(m *tokenMap, draws []llmhttp.Draw)
}

type tokens struct {
	held float64
	rate llmhttp.Rate
	at   time.Time
}

func newTokenMap() *tokenMap {
	m := &tokenMap{
		buckets: map[string]*tokens{},
		name:    func(bucket string) string { return bucket },
		normal:  llmhttp.Rate.WithDefaults,
		fresh:   func(r llmhttp.Rate) float64 { return float64(r.Burst) },
		refill: func(b *tokens, now time.Time) {
			b.held = min(float64(b.rate.Burst), b.held+now.Sub(b.at).Seconds()*b.perSecond())
			b.at = now
		},
		change: func(b *tokens, r llmhttp.Rate) { b.rate, b.held = r, min(b.held, float64(r.Burst)) },
		enough: func(b *tokens, cost int) bool {
			return cost == 0 || cost <= b.rate.Burst && b.held+1e-6 >= float64(cost)
		},
		spend: func(b *tokens, cost int) { b.held = min(float64(b.rate.Burst), b.held-float64(cost)) },
		level: soundLevel,
	}
	m.take = func(m *tokenMap, _ context.Context, draws []llmhttp.Draw) ([]llmhttp.Level, error) {
		return m.takeAll(draws), nil
	}
	m.adjust = (*tokenMap).adjustAll
	return m
}

func (b *tokens) perSecond() float64 { return float64(b.rate.N) / b.rate.Per.Seconds() }

// until returns how long it takes until b holds n.
func (b *tokens) until(n float64) time.Duration {
	if b.rate.N == 0 {
		return time.Hour
	}
	return seconds(math.Ceil(1e9*max(0, n-b.held)/b.perSecond()) / 1e9)
}

func soundLevel(b *tokens, d llmhttp.Draw, enough bool) llmhttp.Level {
	l := llmhttp.Level{Remaining: max(0, int(b.held+1e-6)), ResetAfter: b.until(float64(b.rate.Burst))}
	if !enough {
		l.RetryAfter = max(1, b.until(float64(d.Cost)))
	}
	return l
}

func (m *tokenMap) Take(ctx context.Context, draws ...llmhttp.Draw) ([]llmhttp.Level, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.take(m, ctx, draws)
}

func (m *tokenMap) Adjust(_ context.Context, draws ...llmhttp.Draw) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.adjust(m, draws)
	return nil
}

func (m *tokenMap) bucket(d llmhttp.Draw) *tokens {
	now, rate, name := time.Now(), m.normal(d.Rate), m.name(d.Bucket)
	b := m.buckets[name]
	if b == nil {
		b = &tokens{m.fresh(rate), rate, now}
		m.buckets[name] = b
	}
	m.refill(b, now)
	if b.rate != rate {
		m.change(b, rate)
	}
	return b
}

func (m *tokenMap) takeAll(draws []llmhttp.Draw) []llmhttp.Level {
	enough := make([]bool, len(draws))
	for i, d := range draws {
		enough[i] = m.enough(m.bucket(d), d.Cost)
	}
	return m.finish(draws, enough)
}

// finish takes from all buckets if there is enough in each.
func (m *tokenMap) finish(draws []llmhttp.Draw, enough []bool) []llmhttp.Level {
	levels := make([]llmhttp.Level, len(draws))
	for i, d := range draws {
		b := m.bucket(d)
		if !slices.Contains(enough, false) {
			m.spend(b, d.Cost)
		}
		levels[i] = m.level(b, d, enough[i])
	}
	return levels
}

func (m *tokenMap) adjustAll(draws []llmhttp.Draw) {
	for _, d := range draws {
		m.spend(m.bucket(d), d.Cost)
	}
}

// limiterFixture returns a tokenMap with a fault.
func limiterFixture(fault func(*tokenMap)) func(testing.TB) limiterTest {
	return func(testing.TB) limiterTest {
		m := newTokenMap()
		fault(m)
		return limiterTest{Limiter: m, exact: true}
	}
}

// tells is the fault of a Limiter whose Levels are wrong.
func tells(change func(l *llmhttp.Level, b *tokens, d llmhttp.Draw, enough bool)) func(testing.TB) limiterTest {
	return limiterFixture(func(m *tokenMap) {
		m.level = func(b *tokens, d llmhttp.Draw, enough bool) llmhttp.Level {
			l := soundLevel(b, d, enough)
			change(&l, b, d, enough)
			return l
		}
	})
}

// takes is the fault of a Limiter that takes in its own way.
func takes(take func(m *tokenMap, ctx context.Context, draws []llmhttp.Draw) ([]llmhttp.Level, error)) func(testing.TB) limiterTest {
	return limiterFixture(func(m *tokenMap) { m.take = take })
}

// changes is the fault of a Limiter that changes Rates in its own way.
func changes(change func(b *tokens, r llmhttp.Rate)) func(testing.TB) limiterTest {
	return limiterFixture(func(m *tokenMap) { m.change = change })
}

// unlocked calls f while others may go on.
func (m *tokenMap) pause() {
	m.mu.Unlock()
	time.Sleep(time.Microsecond)
	m.mu.Lock()
}

// A busyLimiter fails when it is called while it is called.
type busyLimiter struct {
	llmhttp.Limiter
	mu sync.Mutex
}

func (l *busyLimiter) Take(ctx context.Context, draws ...llmhttp.Draw) ([]llmhttp.Level, error) {
	if !l.mu.TryLock() {
		return nil, errors.New("busy")
	}
	defer l.mu.Unlock()
	time.Sleep(time.Microsecond)
	return l.Limiter.Take(ctx, draws...)
}
