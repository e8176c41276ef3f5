package limitertest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
)

// A tokenMap is a simple correct Limiter. Mutants replace its functions.
//
// Take calls take, which finds each bucket with name and join, creates it with initial or
// refills it with refill, and then calls setRate if its Rate, with defaults applied, is not
// that of the draw. When all draws have passed holds or one has not, it calls spend if all
// have, and then level. Adjust calls adjust, which finds each bucket in the same way and
// calls spend.
type tokenMap struct {
	mu      sync.Mutex
	buckets map[string]*tokens // guarded by mu

	name     func(name string) string                        // normalises the ID of a subject or a bucket name
	join     func(s llmhttp.SubjectID, bucket string) string // makes a key of buckets
	defaults func(r llmhttp.Rate) llmhttp.Rate
	initial  func(r llmhttp.Rate) float64                                             // the tokens of a new bucket
	refill   func(b *tokens, now time.Time)                                           // adds what was gained
	setRate  func(b *tokens, r llmhttp.Rate)                                          // changes the Rate of a bucket
	holds    func(b *tokens, cost int64) bool                                         // reports whether b holds cost
	spend    func(b *tokens, cost int64)                                              // takes cost, perhaps leaving a debt
	level    func(b *tokens, d llmhttp.BucketAmount, enough bool) llmhttp.BucketLevel // the BucketLevel after the call
	take     func(m *tokenMap, ctx context.Context, draws []llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error)
	adjust   func(m *tokenMap, draws []llmhttp.BucketAmount)
}

// tokens is a bucket of a tokenMap.
type tokens struct {
	held float64
	rate llmhttp.Rate
	at   time.Time // when it held that
}

func newTokenMap() *tokenMap {
	m := &tokenMap{
		buckets:  map[string]*tokens{},
		name:     func(name string) string { return name },
		join:     func(s llmhttp.SubjectID, bucket string) string { return fmt.Sprintf("%q %q %q", s.Kind, s.ID, bucket) },
		defaults: llmhttp.Rate.WithDefaults,
		initial:  func(r llmhttp.Rate) float64 { return float64(r.Burst) },
		refill: func(b *tokens, now time.Time) {
			b.held = min(float64(b.rate.Burst), b.held+now.Sub(b.at).Seconds()*b.perSecond())
			b.at = now
		},
		setRate: func(b *tokens, r llmhttp.Rate) { b.rate, b.held = r, min(b.held, float64(r.Burst)) },
		holds: func(b *tokens, cost int64) bool {
			return cost == 0 || cost <= int64(b.rate.Burst) && b.held+1e-6 >= float64(cost)
		},
		spend: func(b *tokens, cost int64) { b.held = min(float64(b.rate.Burst), b.held-float64(cost)) },
		level: correctLevel,
	}
	m.take = func(m *tokenMap, _ context.Context, draws []llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) {
		return m.takeAll(draws), nil
	}
	m.adjust = (*tokenMap).adjustAll
	return m
}

func (b *tokens) perSecond() float64 { return float64(b.rate.N) / b.rate.Per.Seconds() }

// until returns the time until b holds n.
func (b *tokens) until(n float64) time.Duration {
	if b.rate.N == 0 {
		return time.Hour
	}
	return seconds(math.Ceil(1e9*max(0, n-b.held)/b.perSecond()) / 1e9)
}

func correctLevel(b *tokens, d llmhttp.BucketAmount, enough bool) llmhttp.BucketLevel {
	l := llmhttp.BucketLevel{Remaining: int64(max(0, b.held+1e-6)), ResetAfter: b.until(float64(b.rate.Burst))}
	if b.held >= float64(b.rate.Burst) {
		l.Remaining = int64(b.rate.Burst) // a float64 may be too large
	}
	if !enough {
		l.RetryAfter = max(1, b.until(float64(d.Amount)))
	}
	return l
}

func (m *tokenMap) Take(ctx context.Context, draws ...llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.take(m, ctx, draws)
}

func (m *tokenMap) Adjust(_ context.Context, draws ...llmhttp.BucketAmount) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.adjust(m, draws)
	return nil
}

// bucket returns the bucket of d, refilled and with the Rate of d.
func (m *tokenMap) bucket(d llmhttp.BucketAmount) *tokens {
	now, rate := time.Now(), m.defaults(d.Rate)
	name := m.join(llmhttp.SubjectID{Kind: d.Subject.Kind, ID: m.name(d.Subject.ID)}, m.name(d.Bucket))
	b := m.buckets[name]
	if b == nil {
		b = &tokens{m.initial(rate), rate, now}
		m.buckets[name] = b
	}
	m.refill(b, now)
	if b.rate != rate {
		m.setRate(b, rate)
	}
	return b
}

func (m *tokenMap) takeAll(draws []llmhttp.BucketAmount) []llmhttp.BucketLevel {
	enough := make([]bool, len(draws))
	for i, d := range draws {
		enough[i] = m.holds(m.bucket(d), d.Amount)
	}
	return m.finish(draws, enough)
}

// finish takes from all buckets if each holds enough, and returns the levels.
func (m *tokenMap) finish(draws []llmhttp.BucketAmount, enough []bool) []llmhttp.BucketLevel {
	levels := make([]llmhttp.BucketLevel, len(draws))
	for i, d := range draws {
		b := m.bucket(d)
		if !slices.Contains(enough, false) {
			m.spend(b, d.Amount)
		}
		levels[i] = m.level(b, d, enough[i])
	}
	return levels
}

func (m *tokenMap) adjustAll(draws []llmhttp.BucketAmount) {
	for _, d := range draws {
		m.spend(m.bucket(d), d.Amount)
	}
}

// limiterFixture returns a constructor of a tokenMap with a fault.
func limiterFixture(fault func(*tokenMap)) func(testing.TB) limiterTest {
	return func(testing.TB) limiterTest {
		m := newTokenMap()
		fault(m)
		return limiterTest{limiter: m, inBubble: true}
	}
}

// withLevel returns a constructor of a Limiter whose Levels are changed.
func withLevel(change func(l *llmhttp.BucketLevel, b *tokens, d llmhttp.BucketAmount, enough bool)) func(testing.TB) limiterTest {
	return limiterFixture(func(m *tokenMap) {
		m.level = func(b *tokens, d llmhttp.BucketAmount, enough bool) llmhttp.BucketLevel {
			l := correctLevel(b, d, enough)
			change(&l, b, d, enough)
			return l
		}
	})
}

// withTake returns a constructor of a Limiter with another Take.
func withTake(take func(m *tokenMap, ctx context.Context, draws []llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error)) func(testing.TB) limiterTest {
	return limiterFixture(func(m *tokenMap) { m.take = take })
}

// bySubject returns the draws of each subject.
func bySubject(draws []llmhttp.BucketAmount) (groups [][]llmhttp.BucketAmount) {
	for len(draws) > 0 {
		n := 1
		for n < len(draws) && draws[n].Subject == draws[0].Subject {
			n++
		}
		groups, draws = append(groups, draws[:n]), draws[n:]
	}
	return groups
}

// takeEach takes from one subject after the other, and stops at the first that refuses. It
// gives nothing back.
func (m *tokenMap) takeEach(draws []llmhttp.BucketAmount) []llmhttp.BucketLevel {
	levels := make([]llmhttp.BucketLevel, 0, len(draws))
	for _, group := range bySubject(draws) {
		levels = append(levels, m.takeAll(group)...)
		if !isGranted(levels) {
			break
		}
	}
	for len(levels) < len(draws) {
		levels = append(levels, llmhttp.BucketLevel{Unknown: true})
	}
	return levels
}

// withSubjects returns a constructor of a Limiter that takes from one subject after the
// other, and calls giveBack with the draws of those before one that refuses. It is correct if
// giveBack is adjustAll of the negative costs.
func withSubjects(giveBack func(m *tokenMap, draws []llmhttp.BucketAmount)) func(testing.TB) limiterTest {
	return withTake(func(m *tokenMap, _ context.Context, draws []llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) {
		levels := m.takeEach(draws)
		if refused := slices.IndexFunc(levels, func(l llmhttp.BucketLevel) bool { return l.RetryAfter > 0 }); refused >= 0 {
			n := slices.IndexFunc(draws, func(d llmhttp.BucketAmount) bool { return d.Subject == draws[refused].Subject })
			giveBack(m, draws[:n])
			for i, d := range draws[:n] {
				levels[i] = m.level(m.bucket(d), d, true)
			}
		}
		return levels, nil
	})
}

// giveBackAll gives back what draws took.
func giveBackAll(m *tokenMap, draws []llmhttp.BucketAmount) {
	for _, d := range draws {
		m.spend(m.bucket(d), -d.Amount)
	}
}

// withSetRate returns a constructor of a Limiter that changes Rates in another
// way.
func withSetRate(setRate func(b *tokens, r llmhttp.Rate)) func(testing.TB) limiterTest {
	return limiterFixture(func(m *tokenMap) { m.setRate = setRate })
}

// pause releases the lock for a moment, so that other calls interfere.
func (m *tokenMap) pause() {
	m.mu.Unlock()
	time.Sleep(time.Microsecond)
	m.mu.Lock()
}

// A busyLimiter fails when Take is called during another Take.
type busyLimiter struct {
	llmhttp.Limiter
	busy sync.Mutex // held during a Take
}

func (l *busyLimiter) Take(ctx context.Context, draws ...llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) {
	if !l.busy.TryLock() {
		return nil, errors.New("busy")
	}
	defer l.busy.Unlock()
	time.Sleep(time.Microsecond)
	return l.Limiter.Take(ctx, draws...)
}
