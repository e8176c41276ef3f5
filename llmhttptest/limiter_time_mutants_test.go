package llmhttptest

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
)

// timeMutants go wrong as time goes by, or when several are in a hurry.
var timeMutants = []mutant[limiterTest]{
	{"no debts", "Debt", limiterFixture(func(m *tokenMap) {
		spend := m.spend
		m.spend = func(b *tokens, cost int) { spend(b, cost); b.held = max(0, b.held) }
	})},
	{"debts have a bound", "Debt", limiterFixture(func(m *tokenMap) {
		spend := m.spend
		m.spend = func(b *tokens, cost int) { spend(b, cost); b.held = max(-float64(b.rate.Burst), b.held) }
	})},
	{"debts are of 16 bits", "Debt", limiterFixture(func(m *tokenMap) {
		m.spend = func(b *tokens, cost int) { b.held = min(float64(b.rate.Burst), b.held-float64(int16(cost))) }
	})},
	{"RetryAfter forgets the debt", "Debt", tells(func(l *llmhttp.Level, b *tokens, d llmhttp.Draw, enough bool) {
		if b.held < 0 {
			l.RetryAfter = min(l.RetryAfter, seconds(float64(d.Cost)/b.perSecond()))
		}
	})},
	{"what comes in forgives the debt", "Debt", limiterFixture(func(m *tokenMap) {
		refill := m.refill
		m.refill = func(b *tokens, now time.Time) {
			if now.After(b.at) {
				b.held = max(0, b.held)
			}
			refill(b, now)
		}
	})},

	{"no refill", "Refill", limiterFixture(func(m *tokenMap) { m.refill = func(*tokens, time.Time) {} })},
	{"refills once a period", "Refill", limiterFixture(func(m *tokenMap) {
		m.refill = func(b *tokens, now time.Time) {
			if now.Sub(b.at) >= b.rate.Per {
				b.held, b.at = float64(b.rate.Burst), now
			}
		}
	})},
	{"refills without end", "Refill", limiterFixture(func(m *tokenMap) {
		m.refill = func(b *tokens, now time.Time) { b.held += now.Sub(b.at).Seconds() * b.perSecond(); b.at = now }
		m.spend = func(b *tokens, cost int) { b.held -= float64(cost) }
	})},
	{"refills up to N", "Refill", limiterFixture(func(m *tokenMap) {
		m.refill = func(b *tokens, now time.Time) {
			b.held = min(float64(max(b.rate.N, b.rate.Burst)), b.held+now.Sub(b.at).Seconds()*b.perSecond())
			b.at = now
		}
		m.spend = func(b *tokens, cost int) { b.held -= float64(cost) }
	})},
	{"refills twice as fast", "Refill", limiterFixture(func(m *tokenMap) {
		refill := m.refill
		m.refill = func(b *tokens, now time.Time) { b.at = b.at.Add(-now.Sub(b.at)); refill(b, now) }
	})},
	{"refills in bursts", "Refill", limiterFixture(func(m *tokenMap) {
		m.refill = func(b *tokens, now time.Time) {
			b.held = min(float64(b.rate.Burst), b.held+now.Sub(b.at).Seconds()*float64(b.rate.Burst)/b.rate.Per.Seconds())
			b.at = now
		}
	})},
	{"refills whole seconds", "Refill", limiterFixture(func(m *tokenMap) {
		refill := m.refill
		m.refill = func(b *tokens, now time.Time) { refill(b, b.at.Add(now.Sub(b.at).Truncate(time.Second))) }
	})},

	{"asking takes the fraction away", "Polled", limiterFixture(func(m *tokenMap) {
		refill := m.refill
		m.refill = func(b *tokens, now time.Time) { refill(b, now); b.held = math.Floor(b.held) }
	})},
	{"refusals start the clock anew", "Polled", limiterFixture(func(m *tokenMap) {
		enough := m.enough
		m.refill = func(b *tokens, now time.Time) {
			b.held = min(float64(b.rate.Burst), b.held+math.Floor(now.Sub(b.at).Seconds()*b.perSecond()))
			b.at = now
		}
		m.enough = enough
	})},

	{"RetryAfter is in whole seconds", "RetryAfter", tells(func(l *llmhttp.Level, _ *tokens, _ llmhttp.Draw, _ bool) {
		l.RetryAfter = l.RetryAfter.Truncate(time.Second)
	})},
	{"RetryAfter is rounded down", "RetryAfter", tells(func(l *llmhttp.Level, _ *tokens, _ llmhttp.Draw, _ bool) {
		if l.RetryAfter > time.Millisecond {
			l.RetryAfter = l.RetryAfter.Truncate(time.Millisecond) - 1
		}
	})},
	{"RetryAfter is for one token", "RetryAfter", tells(func(l *llmhttp.Level, b *tokens, _ llmhttp.Draw, enough bool) {
		if !enough {
			l.RetryAfter = max(1, b.until(1))
		}
	})},
	{"RetryAfter is until it is full", "RetryAfter", tells(func(l *llmhttp.Level, _ *tokens, _ llmhttp.Draw, enough bool) {
		if !enough {
			l.RetryAfter = l.ResetAfter
		}
	})},
	{"RetryAfter is for the cost alone", "RetryAfter", tells(func(l *llmhttp.Level, b *tokens, d llmhttp.Draw, enough bool) {
		if !enough {
			l.RetryAfter = seconds(float64(d.Cost) / b.perSecond())
		}
	})},
	{"microtokens", "RetryAfter", limiterFixture(func(m *tokenMap) { // which a slow Rate has none of
		refill := m.refill
		m.refill = func(b *tokens, now time.Time) {
			if perMilli := b.perSecond() / 1000; perMilli < 1e-6 {
				b.at = now
			}
			refill(b, now)
		}
	})},

	{"forgotten after a minute", "Idle", limiterFixture(func(m *tokenMap) {
		refill := m.refill
		m.refill = func(b *tokens, now time.Time) {
			if now.Sub(b.at) > time.Minute {
				b.held = max(b.held, float64(b.rate.Burst))
			}
			refill(b, now)
		}
	})},
	{"forgotten after a period", "Idle", limiterFixture(func(m *tokenMap) {
		refill := m.refill
		m.refill = func(b *tokens, now time.Time) {
			if now.Sub(b.at) >= b.rate.Per {
				b.held = float64(b.rate.Burst)
			}
			refill(b, now)
		}
	})},

	{"the first Rate stays", "RateChange", changes(func(*tokens, llmhttp.Rate) {})},
	{"a new Rate is a new bucket", "RateChange", changes(func(b *tokens, r llmhttp.Rate) { b.rate, b.held = r, float64(r.Burst) })},
	{"a new Rate empties the bucket", "RateChange", changes(func(b *tokens, r llmhttp.Rate) { b.rate, b.held = r, 0 })},
	{"a new Rate forgives debts", "RateChange", changes(func(b *tokens, r llmhttp.Rate) {
		b.rate, b.held = r, max(0, min(b.held, float64(r.Burst)))
	})},
	{"a bucket holds more than it can", "RateChange", limiterFixture(func(m *tokenMap) {
		m.change = func(b *tokens, r llmhttp.Rate) { b.rate = r }
		m.refill = func(b *tokens, now time.Time) { b.held += now.Sub(b.at).Seconds() * b.perSecond(); b.at = now }
		m.spend = func(b *tokens, cost int) { b.held -= float64(cost) }
	})},
	{"what is used stays, not what is left", "RateChange", changes(func(b *tokens, r llmhttp.Rate) {
		b.held += float64(r.Burst - b.rate.Burst)
		b.rate = r
	})},
	{"what is left stays in proportion", "RateChange", changes(func(b *tokens, r llmhttp.Rate) {
		b.held *= float64(r.Burst) / float64(b.rate.Burst)
		b.rate = r
	})},
	{"GCRA", "RateChange", changes(func(b *tokens, r llmhttp.Rate) { // keeps when it is full
		full := (float64(b.rate.Burst) - b.held) / b.perSecond()
		b.rate = r
		b.held = float64(r.Burst) - full*b.perSecond()
	})},
	{"the new Rate counts from the last draw on", "RateChange", limiterFixture(func(m *tokenMap) {
		refill := m.refill
		m.refill = func(*tokens, time.Time) {}
		m.change = func(b *tokens, r llmhttp.Rate) { b.rate = r }
		m.take = func(m *tokenMap, _ context.Context, draws []llmhttp.Draw) ([]llmhttp.Level, error) {
			for _, d := range draws {
				refill(m.bucket(d), time.Now())
			}
			return m.takeAll(draws), nil
		}
	})},

	{"waits overflow", "Huge", tells(func(l *llmhttp.Level, b *tokens, d llmhttp.Draw, enough bool) {
		if !enough {
			l.RetryAfter = time.Duration(int64(d.Cost)-int64(b.held)) * b.rate.Per / time.Duration(b.rate.N)
		}
	})},
	{"costs of 31 bits", "Huge", limiterFixture(func(m *tokenMap) {
		m.spend = func(b *tokens, cost int) { b.held = min(float64(b.rate.Burst), b.held-float64(min(cost, 1<<30))) }
	})},
	{"no more than one in a nanosecond", "Huge", limiterFixture(func(m *tokenMap) {
		m.refill = func(b *tokens, now time.Time) {
			every := b.rate.Per / time.Duration(max(1, b.rate.N))
			b.held = min(float64(b.rate.Burst), b.held+float64(now.Sub(b.at)/every))
			b.at = now
		}
	})},

	{"case is ignored", "Names", limiterFixture(func(m *tokenMap) { m.name = strings.ToLower })},
	{"spaces are trimmed", "Names", limiterFixture(func(m *tokenMap) { m.name = strings.TrimSpace })},
	{"only what is before the colon counts", "Names", limiterFixture(func(m *tokenMap) {
		m.name = func(s string) string { s, _, _ = strings.Cut(s, ":"); return s }
	})},
	{"braces are cut off", "Names", limiterFixture(func(m *tokenMap) {
		m.name = func(s string) string { return strings.NewReplacer("{", "", "}", "").Replace(s) }
	})},
	{"names are cut off", "Names", limiterFixture(func(m *tokenMap) { m.name = func(s string) string { return s[:min(len(s), 255)] } })},

	{"cancelled is half done", "Cancelled", takes(func(m *tokenMap, ctx context.Context, draws []llmhttp.Draw) ([]llmhttp.Level, error) {
		if ctx.Err() != nil {
			m.spend(m.bucket(draws[0]), 1)
			return nil, ctx.Err()
		}
		return m.takeAll(draws), nil
	})},
	{"cancelled is granted for free", "Cancelled", takes(func(m *tokenMap, ctx context.Context, draws []llmhttp.Draw) ([]llmhttp.Level, error) {
		levels := m.takeAll(draws)
		if ctx.Err() != nil {
			m.spend(m.bucket(draws[0]), -draws[0].Cost)
		}
		return levels, nil
	})},
	{"cancelled is nothing at all", "Cancelled", takes(func(m *tokenMap, ctx context.Context, draws []llmhttp.Draw) ([]llmhttp.Level, error) {
		if ctx.Err() != nil {
			return nil, nil
		}
		return m.takeAll(draws), nil
	})},

	{"fractions are lost", "Random", limiterFixture(func(m *tokenMap) {
		spend := m.spend
		m.spend = func(b *tokens, cost int) { spend(b, cost); b.held = math.Floor(b.held) }
	})},
	{"debts are paid by the next Take", "Random", limiterFixture(func(m *tokenMap) {
		take := m.take
		m.take = func(m *tokenMap, ctx context.Context, draws []llmhttp.Draw) ([]llmhttp.Level, error) {
			levels, err := take(m, ctx, draws)
			for _, d := range draws {
				b := m.bucket(d)
				b.held = max(b.held, 0)
			}
			return levels, err
		}
	})},
	{"the third draw is for free", "Random", takes(func(m *tokenMap, _ context.Context, draws []llmhttp.Draw) ([]llmhttp.Level, error) {
		if len(draws) == 3 {
			draws = slices.Clone(draws)
			draws[2].Cost = 0
		}
		return m.takeAll(draws), nil
	})},

	{"looks, then takes", "Concurrent", takes(func(m *tokenMap, _ context.Context, draws []llmhttp.Draw) ([]llmhttp.Level, error) {
		enough := make([]bool, len(draws))
		for i, d := range draws {
			enough[i] = m.enough(m.bucket(d), d.Cost)
		}
		m.pause()
		return m.finish(draws, enough), nil
	})},
	{"busy is an error", "Concurrent", func(testing.TB) limiterTest {
		return limiterTest{Limiter: &busyLimiter{Limiter: newTokenMap()}, exact: true}
	}},
	{"bucket by bucket", "ConcurrentSeveral", takes(func(m *tokenMap, _ context.Context, draws []llmhttp.Draw) ([]llmhttp.Level, error) {
		enough := make([]bool, len(draws))
		for i, d := range draws { // takes, and gives back
			b := m.bucket(d)
			if enough[i] = m.enough(b, d.Cost); enough[i] {
				m.spend(b, d.Cost)
			}
			m.pause()
		}
		granted := !slices.Contains(enough, false)
		levels := make([]llmhttp.Level, len(draws))
		for i, d := range draws {
			b := m.bucket(d)
			if enough[i] && !granted {
				m.spend(b, -d.Cost)
			}
			levels[i] = m.level(b, d, enough[i])
		}
		return levels, nil
	})},
	{"adjustments are lost", "ConcurrentAdjust", limiterFixture(func(m *tokenMap) {
		m.adjust = func(m *tokenMap, draws []llmhttp.Draw) {
			for _, d := range draws {
				b := m.bucket(d)
				held := b.held
				m.pause()
				b.held = min(float64(b.rate.Burst), held-float64(d.Cost))
			}
		}
	})},
}
