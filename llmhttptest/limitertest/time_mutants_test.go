package limitertest

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
)

// timeMutants have faults in times, names, contexts or concurrent calls.
var timeMutants = []mutant[limiterTest]{
	{"a bucket never holds less than zero", randomCalls, limiterFixture(func(m *tokenMap) {
		spend := m.spend
		m.spend = func(b *tokens, cost int64) { spend(b, cost); b.held = max(0, b.held) }
	})},
	{"a debt is at most the burst", randomCalls, limiterFixture(func(m *tokenMap) {
		spend := m.spend
		m.spend = func(b *tokens, cost int64) { spend(b, cost); b.held = max(-float64(b.rate.Burst), b.held) }
	})},
	{"costs have 16 bits", randomCalls, limiterFixture(func(m *tokenMap) {
		m.spend = func(b *tokens, cost int64) { b.held = min(float64(b.rate.Burst), b.held-float64(int16(cost))) }
	})},
	{"RetryAfter ignores the debt", randomCalls, withLevel(func(l *llmhttp.BucketLevel, b *tokens, d llmhttp.BucketAmount, enough bool) {
		if b.held < 0 {
			l.RetryAfter = min(l.RetryAfter, seconds(float64(d.Amount)/b.perSecond()))
		}
	})},
	{"refilling forgives the debt", randomCalls, limiterFixture(func(m *tokenMap) {
		refill := m.refill
		m.refill = func(b *tokens, now time.Time) {
			if now.After(b.at) {
				b.held = max(0, b.held)
			}
			refill(b, now)
		}
	})},

	{"buckets do not refill", randomCalls, limiterFixture(func(m *tokenMap) { m.refill = func(*tokens, time.Time) {} })},
	{"buckets refill once per Per", randomCalls, limiterFixture(func(m *tokenMap) {
		m.refill = func(b *tokens, now time.Time) {
			if now.Sub(b.at) >= b.rate.Per {
				b.held, b.at = float64(b.rate.Burst), now
			}
		}
	})},
	{"buckets refill beyond the burst", randomCalls, limiterFixture(func(m *tokenMap) {
		m.refill = func(b *tokens, now time.Time) { b.held += now.Sub(b.at).Seconds() * b.perSecond(); b.at = now }
		m.spend = func(b *tokens, cost int64) { b.held -= float64(cost) }
	})},
	{"buckets refill up to N instead of the burst", randomCalls, limiterFixture(func(m *tokenMap) {
		m.refill = func(b *tokens, now time.Time) {
			b.held = min(float64(max(b.rate.N, b.rate.Burst)), b.held+now.Sub(b.at).Seconds()*b.perSecond())
			b.at = now
		}
		m.spend = func(b *tokens, cost int64) { b.held -= float64(cost) }
	})},
	{"buckets refill twice as fast", randomCalls, limiterFixture(func(m *tokenMap) {
		refill := m.refill
		m.refill = func(b *tokens, now time.Time) { b.at = b.at.Add(-now.Sub(b.at)); refill(b, now) }
	})},
	{"buckets refill a burst per Per", randomCalls, limiterFixture(func(m *tokenMap) {
		m.refill = func(b *tokens, now time.Time) {
			b.held = min(float64(b.rate.Burst), b.held+now.Sub(b.at).Seconds()*float64(b.rate.Burst)/b.rate.Per.Seconds())
			b.at = now
		}
	})},
	{"buckets refill for whole seconds only", randomCalls, limiterFixture(func(m *tokenMap) {
		refill := m.refill
		m.refill = func(b *tokens, now time.Time) { refill(b, b.at.Add(now.Sub(b.at).Truncate(time.Second))) }
	})},

	{"each call drops the fraction of a token", randomCalls, limiterFixture(func(m *tokenMap) {
		refill := m.refill
		m.refill = func(b *tokens, now time.Time) { refill(b, now); b.held = math.Floor(b.held) }
	})},
	{"each call drops the time of a fraction of a token", randomCalls, limiterFixture(func(m *tokenMap) {
		m.refill = func(b *tokens, now time.Time) {
			b.held = min(float64(b.rate.Burst), b.held+math.Floor(now.Sub(b.at).Seconds()*b.perSecond()))
			b.at = now
		}
	})},

	{"RetryAfter is rounded down to seconds", randomCalls, withLevel(func(l *llmhttp.BucketLevel, _ *tokens, _ llmhttp.BucketAmount, _ bool) {
		l.RetryAfter = l.RetryAfter.Truncate(time.Second)
	})},
	{"RetryAfter is rounded down to milliseconds", randomCalls, withLevel(func(l *llmhttp.BucketLevel, _ *tokens, _ llmhttp.BucketAmount, _ bool) {
		if l.RetryAfter > time.Millisecond {
			l.RetryAfter = l.RetryAfter.Truncate(time.Millisecond) - 1
		}
	})},
	{"RetryAfter is the time until there is one token", randomCalls, withLevel(func(l *llmhttp.BucketLevel, b *tokens, _ llmhttp.BucketAmount, enough bool) {
		if !enough {
			l.RetryAfter = max(1, b.until(1))
		}
	})},
	{"RetryAfter is the time until the bucket is full", randomCalls, withLevel(func(l *llmhttp.BucketLevel, _ *tokens, _ llmhttp.BucketAmount, enough bool) {
		if !enough {
			l.RetryAfter = l.ResetAfter
		}
	})},
	{"RetryAfter ignores what the bucket holds", randomCalls, withLevel(func(l *llmhttp.BucketLevel, b *tokens, d llmhttp.BucketAmount, enough bool) {
		if !enough {
			l.RetryAfter = seconds(float64(d.Amount) / b.perSecond())
		}
	})},
	{"tokens are counted in millionths", randomCalls, limiterFixture(func(m *tokenMap) { // which a slow Rate does not reach
		refill := m.refill
		m.refill = func(b *tokens, now time.Time) {
			if perMilli := b.perSecond() / 1000; perMilli < 1e-6 {
				b.at = now
			}
			refill(b, now)
		}
	})},

	{"a bucket is evicted after a minute", randomCalls, limiterFixture(func(m *tokenMap) {
		refill := m.refill
		m.refill = func(b *tokens, now time.Time) {
			if now.Sub(b.at) > time.Minute {
				b.held = max(b.held, float64(b.rate.Burst))
			}
			refill(b, now)
		}
	})},
	{"a bucket is evicted after Per", randomCalls, limiterFixture(func(m *tokenMap) {
		refill := m.refill
		m.refill = func(b *tokens, now time.Time) {
			if now.Sub(b.at) >= b.rate.Per {
				b.held = float64(b.rate.Burst)
			}
			refill(b, now)
		}
	})},

	{"the first Rate is kept", randomCalls, withSetRate(func(*tokens, llmhttp.Rate) {})},
	{"a new Rate fills the bucket", randomCalls, withSetRate(func(b *tokens, r llmhttp.Rate) { b.rate, b.held = r, float64(r.Burst) })},
	{"a new Rate empties the bucket", randomCalls, withSetRate(func(b *tokens, r llmhttp.Rate) { b.rate, b.held = r, 0 })},
	{"a new Rate forgives the debt", randomCalls, withSetRate(func(b *tokens, r llmhttp.Rate) {
		b.rate, b.held = r, max(0, min(b.held, float64(r.Burst)))
	})},
	{"a bucket holds more than its new burst", randomCalls, limiterFixture(func(m *tokenMap) {
		m.setRate = func(b *tokens, r llmhttp.Rate) { b.rate = r }
		m.refill = func(b *tokens, now time.Time) { b.held += now.Sub(b.at).Seconds() * b.perSecond(); b.at = now }
		m.spend = func(b *tokens, cost int64) { b.held -= float64(cost) }
	})},
	{"a new Rate keeps the used tokens, not the remaining ones", randomCalls, withSetRate(func(b *tokens, r llmhttp.Rate) {
		b.held += float64(r.Burst - b.rate.Burst)
		b.rate = r
	})},
	{"a new Rate scales the remaining tokens", randomCalls, withSetRate(func(b *tokens, r llmhttp.Rate) {
		b.held *= float64(r.Burst) / float64(b.rate.Burst)
		b.rate = r
	})},
	{"a new Rate keeps the time at which the bucket is full", randomCalls, withSetRate(func(b *tokens, r llmhttp.Rate) { // as GCRA does
		full := (float64(b.rate.Burst) - b.held) / b.perSecond()
		b.rate = r
		b.held = float64(r.Burst) - full*b.perSecond()
	})},
	{"the new Rate counts from the previous call", randomCalls, limiterFixture(func(m *tokenMap) {
		refill := m.refill
		m.refill = func(*tokens, time.Time) {}
		m.setRate = func(b *tokens, r llmhttp.Rate) { b.rate = r }
		m.take = func(m *tokenMap, _ context.Context, draws []llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) {
			for _, d := range draws {
				refill(m.bucket(d), time.Now())
			}
			return m.takeAll(draws), nil
		}
	})},

	{"RetryAfter overflows", randomCalls, withLevel(func(l *llmhttp.BucketLevel, b *tokens, d llmhttp.BucketAmount, enough bool) {
		if !enough {
			l.RetryAfter = time.Duration(int64(d.Amount)-int64(b.held)) * b.rate.Per / time.Duration(b.rate.N)
		}
	})},
	{"costs have 31 bits", randomCalls, limiterFixture(func(m *tokenMap) {
		m.spend = func(b *tokens, cost int64) { b.held = min(float64(b.rate.Burst), b.held-float64(min(cost, 1<<30))) }
	})},
	{"a bucket gains at most a token per nanosecond", randomCalls, limiterFixture(func(m *tokenMap) {
		m.refill = func(b *tokens, now time.Time) {
			every := b.rate.Per / time.Duration(max(1, b.rate.N))
			b.held = min(float64(b.rate.Burst), b.held+float64(now.Sub(b.at)/every))
			b.at = now
		}
	})},

	{"case is ignored", randomCalls, limiterFixture(func(m *tokenMap) { m.name = strings.ToLower })},
	{"spaces are trimmed", randomCalls, limiterFixture(func(m *tokenMap) { m.name = strings.TrimSpace })},
	{"names end at a colon", randomCalls, limiterFixture(func(m *tokenMap) {
		m.name = func(s string) string { s, _, _ = strings.Cut(s, ":"); return s }
	})},
	{"braces are removed", randomCalls, limiterFixture(func(m *tokenMap) {
		m.name = func(s string) string { return strings.NewReplacer("{", "", "}", "").Replace(s) }
	})},
	{"kinds are ignored", randomCalls, limiterFixture(func(m *tokenMap) {
		m.join = func(s llmhttp.SubjectID, bucket string) string { return fmt.Sprintf("%q %q", s.ID, bucket) }
	})},
	{"kinds and IDs are joined by nothing", randomCalls, limiterFixture(func(m *tokenMap) {
		m.join = func(s llmhttp.SubjectID, bucket string) string { return fmt.Sprintf("%q %q", s.Kind+s.ID, bucket) }
	})},
	{"subjects are ignored", randomCalls, limiterFixture(func(m *tokenMap) { m.join = func(_ llmhttp.SubjectID, bucket string) string { return bucket } })},
	{"subjects and buckets are joined by a colon", randomCalls, limiterFixture(func(m *tokenMap) {
		m.join = func(s llmhttp.SubjectID, bucket string) string { return s.Kind + ":" + s.ID + ":" + bucket }
	})},
	{"subjects and buckets are joined by nothing", randomCalls, limiterFixture(func(m *tokenMap) {
		m.join = func(s llmhttp.SubjectID, bucket string) string { return s.Kind + s.ID + bucket }
	})},
	{"names are cut at 255 bytes", randomCalls, limiterFixture(func(m *tokenMap) { m.name = func(s string) string { return s[:min(len(s), 255)] } })},

	{"a Take that fails takes from one bucket", randomCalls, withTake(func(m *tokenMap, ctx context.Context, draws []llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) {
		if ctx.Err() != nil {
			m.spend(m.bucket(draws[0]), 1)
			return nil, ctx.Err()
		}
		return m.takeAll(draws), nil
	})},
	{"a Take with a cancelled context is granted and takes nothing", randomCalls, withTake(func(m *tokenMap, ctx context.Context, draws []llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) {
		levels := m.takeAll(draws)
		if ctx.Err() != nil {
			m.spend(m.bucket(draws[0]), -draws[0].Amount)
		}
		return levels, nil
	})},
	{"a Take with a cancelled context returns nothing", randomCalls, withTake(func(m *tokenMap, ctx context.Context, draws []llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) {
		if ctx.Err() != nil {
			return nil, nil
		}
		return m.takeAll(draws), nil
	})},

	{"taking drops the fraction of a token", randomCalls, limiterFixture(func(m *tokenMap) {
		spend := m.spend
		m.spend = func(b *tokens, cost int64) { spend(b, cost); b.held = math.Floor(b.held) }
	})},
	{"the oldest of a thousand buckets is forgotten", "ManySubjects", limiterFixture(func(m *tokenMap) {
		initial := m.initial
		m.initial = func(r llmhttp.Rate) float64 {
			time.Sleep(time.Nanosecond) // so that one is the oldest
			if len(m.buckets) >= 1000 {
				names := slices.Collect(maps.Keys(m.buckets))
				delete(m.buckets, slices.MinFunc(names, func(a, b string) int { return m.buckets[a].at.Compare(m.buckets[b].at) }))
			}
			return initial(r)
		}
	})},
	{"a Take forgives the debt", randomCalls, limiterFixture(func(m *tokenMap) {
		take := m.take
		m.take = func(m *tokenMap, ctx context.Context, draws []llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) {
			levels, err := take(m, ctx, draws)
			for _, d := range draws {
				b := m.bucket(d)
				b.held = max(b.held, 0)
			}
			return levels, err
		}
	})},
	{"the third draw takes nothing", randomCalls, withTake(func(m *tokenMap, _ context.Context, draws []llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) {
		if len(draws) == 3 {
			draws = slices.Clone(draws)
			draws[2].Amount = 0
		}
		return m.takeAll(draws), nil
	})},

	{"Take checks and takes in two steps", "ConcurrentCalls", withTake(func(m *tokenMap, _ context.Context, draws []llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) {
		enough := make([]bool, len(draws))
		for i, d := range draws {
			enough[i] = m.holds(m.bucket(d), d.Amount)
		}
		m.pause()
		return m.finish(draws, enough), nil
	})},
	{"concurrent calls are an error", "ConcurrentCalls", func(testing.TB) limiterTest {
		return limiterTest{limiter: &busyLimiter{Limiter: newTokenMap()}, inBubble: true}
	}},
	{"Take takes bucket by bucket and returns the tokens", "ConcurrentCalls", withTake(func(m *tokenMap, _ context.Context, draws []llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) {
		enough := make([]bool, len(draws))
		for i, d := range draws {
			b := m.bucket(d)
			if enough[i] = m.holds(b, d.Amount); enough[i] {
				m.spend(b, d.Amount)
			}
			m.pause()
		}
		granted := !slices.Contains(enough, false)
		levels := make([]llmhttp.BucketLevel, len(draws))
		for i, d := range draws {
			b := m.bucket(d)
			if enough[i] && !granted {
				m.spend(b, -d.Amount)
			}
			levels[i] = m.level(b, d, enough[i])
		}
		return levels, nil
	})},
	{"giving back overwrites what others took", "ConcurrentCalls", withTake(func(m *tokenMap, _ context.Context, draws []llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) {
		held := make([]float64, len(draws))
		for i, d := range draws {
			held[i] = m.bucket(d).held
		}
		levels := m.takeEach(draws)
		m.pause()
		if !isGranted(levels) {
			for i, d := range draws {
				b := m.bucket(d)
				b.held = held[i]
			}
		}
		return levels, nil
	})},
	{"concurrent adjustments are lost", "ConcurrentCalls", limiterFixture(func(m *tokenMap) {
		m.adjust = func(m *tokenMap, draws []llmhttp.BucketAmount) {
			for _, d := range draws {
				b := m.bucket(d)
				held := b.held
				m.pause()
				b.held = min(float64(b.rate.Burst), held-float64(d.Amount))
			}
		}
	})},
}
