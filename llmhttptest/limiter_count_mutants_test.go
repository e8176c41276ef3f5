package llmhttptest

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
)

// limiterMutants are for a test in a bubble.
var limiterMutants = slices.Concat(countMutants, timeMutants)

func TestLimiterMutants(t *testing.T) {
	testMutants(t, limiterChecks, limiterFixture(func(*tokenMap) {}), limiterMutants)
}

// TestLimiterMutantsByTheClock tests what TestLimiter sees, which has neither
// an exact clock nor all the time in the world.
func TestLimiterMutantsByTheClock(t *testing.T) {
	byTheClock := func(newS func(testing.TB) limiterTest) func(testing.TB) limiterTest {
		return func(t testing.TB) limiterTest {
			s := newS(t)
			s.exact = false
			return s
		}
	}
	needsBubble := []string{"Idle", "RetryAfter/RetryAfter is rounded down", "RetryAfter/microtokens"}
	checks := slices.DeleteFunc(slices.Clone(limiterChecks), func(c check[limiterTest]) bool { return slices.Contains(needsBubble, c.name) })
	var mutants []mutant[limiterTest]
	for _, m := range limiterMutants {
		if !slices.Contains(needsBubble, m.check) && !slices.Contains(needsBubble, m.check+"/"+m.fault) {
			m.newS = byTheClock(m.newS)
			mutants = append(mutants, m)
		}
	}
	testMutants(t, checks, byTheClock(limiterFixture(func(*tokenMap) {})), mutants)
}

// TestLimiterSound tests a sound Limiter, also by the clock on the wall.
func TestLimiterSound(t *testing.T) {
	sound := func(testing.TB) llmhttp.Limiter { return newTokenMap() }
	t.Run("Clock", func(t *testing.T) { TestLimiter(t, sound) })
	t.Run("Bubble", func(t *testing.T) { TestLimiterInBubble(t, sound) })
}

// countMutants count wrongly.
var countMutants = []mutant[limiterTest]{
	{"empty at first", "Full", limiterFixture(func(m *tokenMap) { m.fresh = func(llmhttp.Rate) float64 { return 0 } })},
	{"N at first", "Full", limiterFixture(func(m *tokenMap) {
		m.fresh = func(r llmhttp.Rate) float64 { return min(float64(r.N), float64(r.Burst)) }
	})},
	{"no bursts", "Full", limiterFixture(func(m *tokenMap) {
		m.normal = func(r llmhttp.Rate) llmhttp.Rate { r.Burst = 0; return r.WithDefaults() }
	})},
	{"the last token stays", "Full", limiterFixture(func(m *tokenMap) {
		m.enough = func(b *tokens, cost int) bool { return cost == 0 || b.held > float64(cost)+0.5 }
	})},
	{"one more than there is", "Full", limiterFixture(func(m *tokenMap) {
		m.enough = func(b *tokens, cost int) bool { return cost <= b.rate.Burst && b.held > float64(cost)-1.5 }
	})},
	{"Remaining is before the call", "Full", tells(func(l *llmhttp.Level, b *tokens, d llmhttp.Draw, enough bool) {
		if enough {
			l.Remaining += d.Cost
		}
	})},
	{"Remaining is rounded down twice", "Full", tells(func(l *llmhttp.Level, _ *tokens, _ llmhttp.Draw, _ bool) { l.Remaining = max(0, l.Remaining-1) })},
	{"no ResetAfter", "Full", tells(func(l *llmhttp.Level, _ *tokens, _ llmhttp.Draw, _ bool) { l.ResetAfter = 0 })},
	{"ResetAfter is the period", "Full", tells(func(l *llmhttp.Level, b *tokens, _ llmhttp.Draw, _ bool) { l.ResetAfter = b.rate.Per })},
	{"ResetAfter is until the next token", "Full", tells(func(l *llmhttp.Level, b *tokens, _ llmhttp.Draw, _ bool) { l.ResetAfter = b.until(b.held + 1) })},
	{"failing", "Full", takes(func(*tokenMap, context.Context, []llmhttp.Draw) ([]llmhttp.Level, error) {
		return nil, errors.New("down")
	})},
	{"no levels", "Full", takes(func(m *tokenMap, _ context.Context, draws []llmhttp.Draw) ([]llmhttp.Level, error) {
		m.takeAll(draws)
		return nil, nil
	})},
	{"RetryAfter is not told", "Full", tells(func(l *llmhttp.Level, _ *tokens, _ llmhttp.Draw, _ bool) { l.RetryAfter = 0 })},

	{"no Per is a second", "Defaults", limiterFixture(func(m *tokenMap) {
		m.normal = func(r llmhttp.Rate) llmhttp.Rate {
			if r.Per == 0 {
				r.Per = time.Second
			}
			return r.WithDefaults()
		}
	})},
	{"a negative Per is taken for its size", "Defaults", limiterFixture(func(m *tokenMap) {
		m.normal = func(r llmhttp.Rate) llmhttp.Rate { r.Per = max(r.Per, -r.Per); return r.WithDefaults() }
	})},
	{"no Burst is one", "Defaults", limiterFixture(func(m *tokenMap) {
		m.normal = func(r llmhttp.Rate) llmhttp.Rate {
			if r.Burst == 0 {
				r.Burst = 1
			}
			return r.WithDefaults()
		}
	})},
	{"a negative Burst is none", "Defaults", limiterFixture(func(m *tokenMap) {
		m.normal = func(r llmhttp.Rate) llmhttp.Rate {
			burst := r.Burst
			if r = r.WithDefaults(); burst < 0 {
				r.Burst = 0
			}
			return r
		}
	})},

	{"takes what there is", "AllOrNothing", takes(func(m *tokenMap, _ context.Context, draws []llmhttp.Draw) ([]llmhttp.Level, error) {
		var levels []llmhttp.Level
		for _, d := range draws {
			levels = append(levels, m.takeAll([]llmhttp.Draw{d})...)
		}
		return levels, nil
	})},
	{"takes until there is too little", "AllOrNothing", takes(func(m *tokenMap, _ context.Context, draws []llmhttp.Draw) ([]llmhttp.Level, error) {
		for i, d := range draws {
			if !m.enough(m.bucket(d), d.Cost) {
				break
			}
			if i == len(draws)-1 {
				return m.takeAll(draws), nil
			}
			m.spend(m.bucket(d), d.Cost)
			draws = slices.Clone(draws)
			draws[i].Cost = 0
		}
		return m.takeAll(draws), nil
	})},
	{"a refusal costs", "AllOrNothing", limiterFixture(func(m *tokenMap) {
		enough := m.enough
		m.enough = func(b *tokens, cost int) bool {
			if !enough(b, cost) {
				b.held--
				return false
			}
			return true
		}
	})},
	{"only the first counts", "AllOrNothing", takes(func(m *tokenMap, _ context.Context, draws []llmhttp.Draw) ([]llmhttp.Level, error) {
		enough := make([]bool, len(draws))
		for i := range draws {
			enough[i] = m.enough(m.bucket(draws[0]), draws[0].Cost)
		}
		return m.finish(draws, enough), nil
	})},

	{"levels are reversed", "Levels", takes(func(m *tokenMap, _ context.Context, draws []llmhttp.Draw) ([]llmhttp.Level, error) {
		levels := m.takeAll(draws)
		slices.Reverse(levels)
		return levels, nil
	})},
	{"levels are sorted", "Levels", takes(func(m *tokenMap, _ context.Context, draws []llmhttp.Draw) ([]llmhttp.Level, error) {
		draws = slices.Clone(draws)
		slices.SortFunc(draws, func(a, b llmhttp.Draw) int { return strings.Compare(a.Bucket, b.Bucket) })
		return m.takeAll(draws), nil
	})},
	{"draws are sorted", "Levels", takes(func(m *tokenMap, _ context.Context, draws []llmhttp.Draw) ([]llmhttp.Level, error) {
		levels := m.takeAll(draws)
		slices.SortFunc(draws, func(a, b llmhttp.Draw) int { return strings.Compare(a.Bucket, b.Bucket) })
		return levels, nil
	})},
	{"one RetryAfter for all", "Levels", takes(func(m *tokenMap, _ context.Context, draws []llmhttp.Draw) ([]llmhttp.Level, error) {
		levels := m.takeAll(draws)
		longest := slices.MaxFunc(levels, func(a, b llmhttp.Level) int { return int(a.RetryAfter - b.RetryAfter) }).RetryAfter
		for i := range levels {
			levels[i].RetryAfter = longest
		}
		return levels, nil
	})},
	{"only the first refusal is told", "Levels", takes(func(m *tokenMap, _ context.Context, draws []llmhttp.Draw) ([]llmhttp.Level, error) {
		levels := m.takeAll(draws)
		told := false
		for i := range levels {
			if told {
				levels[i].RetryAfter = 0
			}
			told = told || levels[i].RetryAfter > 0
		}
		return levels, nil
	})},
	{"Remaining is what would be", "Levels", takes(func(m *tokenMap, _ context.Context, draws []llmhttp.Draw) ([]llmhttp.Level, error) {
		levels := m.takeAll(draws)
		if !isGranted(levels) {
			for i, d := range draws {
				if levels[i].RetryAfter == 0 {
					levels[i].Remaining -= d.Cost
				}
			}
		}
		return levels, nil
	})},

	{"nothing of nothing is refused", "ZeroCost", limiterFixture(func(m *tokenMap) {
		m.enough = func(b *tokens, cost int) bool { return b.held >= float64(max(1, cost)) }
	})},
	{"debtors may not ask", "ZeroCost", limiterFixture(func(m *tokenMap) {
		m.enough = func(b *tokens, cost int) bool { return b.held >= float64(cost) }
	})},
	{"asking costs", "ZeroCost", limiterFixture(func(m *tokenMap) {
		spend := m.spend
		m.spend = func(b *tokens, cost int) {
			if spend(b, cost); cost == 0 && b.held >= 1 {
				b.held--
			}
		}
	})},
	{"Remaining shows debts", "ZeroCost", tells(func(l *llmhttp.Level, b *tokens, _ llmhttp.Draw, _ bool) { l.Remaining = int(math.Floor(b.held)) })},

	{"too much is taken on credit", "TooMuch", limiterFixture(func(m *tokenMap) {
		m.enough = func(b *tokens, cost int) bool { return b.held >= float64(min(cost, b.rate.Burst)) }
	})},
	{"N is the most", "TooMuch", limiterFixture(func(m *tokenMap) {
		enough := m.enough
		m.enough = func(b *tokens, cost int) bool { return cost > b.rate.Burst && cost <= b.rate.N || enough(b, cost) }
	})},
	{"never is no RetryAfter", "TooMuch", tells(func(l *llmhttp.Level, b *tokens, d llmhttp.Draw, _ bool) {
		if d.Cost > b.rate.Burst {
			l.RetryAfter = 0
		}
	})},
	{"too much is an error", "TooMuch", takes(func(m *tokenMap, _ context.Context, draws []llmhttp.Draw) ([]llmhttp.Level, error) {
		for _, d := range draws {
			if d.Cost > m.bucket(d).rate.Burst {
				return nil, errors.New("cost exceeds burst")
			}
		}
		return m.takeAll(draws), nil
	})},

	{"negative is no limit", "Nothing", limiterFixture(func(m *tokenMap) {
		m.normal = func(r llmhttp.Rate) llmhttp.Rate {
			if r.N < 0 {
				r.N, r.Burst = math.MaxInt32, 0
			}
			return r.WithDefaults()
		}
	})},
	{"negative has bursts", "Nothing", limiterFixture(func(m *tokenMap) {
		m.normal = func(r llmhttp.Rate) llmhttp.Rate {
			burst := max(0, r.Burst)
			if r.N >= 0 {
				return r.WithDefaults()
			}
			r = r.WithDefaults()
			r.Burst = burst
			return r
		}
	})},
	{"negative refills backwards", "Nothing", limiterFixture(func(m *tokenMap) {
		m.normal = func(r llmhttp.Rate) llmhttp.Rate {
			r.N = max(r.N, -r.N)
			return r.WithDefaults()
		}
	})},
	{"nothing can be given to it", "Nothing", limiterFixture(func(m *tokenMap) {
		m.spend = func(b *tokens, cost int) { b.held -= float64(cost) }
		m.enough = func(b *tokens, cost int) bool { return b.held >= float64(cost) }
	})},

	{"no draws panic", "NoDraws", takes(func(m *tokenMap, _ context.Context, draws []llmhttp.Draw) ([]llmhttp.Level, error) {
		_ = draws[0]
		return m.takeAll(draws), nil
	})},
	{"no draws have a level", "NoDraws", takes(func(m *tokenMap, _ context.Context, draws []llmhttp.Draw) ([]llmhttp.Level, error) {
		if len(draws) == 0 {
			return make([]llmhttp.Level, 1), nil
		}
		return m.takeAll(draws), nil
	})},

	{"adjusting has no effect", "Adjust", limiterFixture(func(m *tokenMap) { m.adjust = func(*tokenMap, []llmhttp.Draw) {} })},
	{"nothing is given back", "Adjust", limiterFixture(func(m *tokenMap) {
		spend := m.spend
		m.spend = func(b *tokens, cost int) { spend(b, max(0, cost)) }
	})},
	{"given back without end", "Adjust", limiterFixture(func(m *tokenMap) {
		m.spend = func(b *tokens, cost int) { b.held -= float64(cost) }
		m.refill = func(*tokens, time.Time) {}
	})},
	{"adjusting is taking", "Adjust", limiterFixture(func(m *tokenMap) {
		m.adjust = func(m *tokenMap, draws []llmhttp.Draw) { m.takeAll(draws) }
	})},
	{"only the first is adjusted", "Adjust", limiterFixture(func(m *tokenMap) {
		m.adjust = func(m *tokenMap, draws []llmhttp.Draw) { m.adjustAll(draws[:min(1, len(draws))]) }
	})},
	{"new buckets are not adjusted", "Adjust", limiterFixture(func(m *tokenMap) {
		m.adjust = func(m *tokenMap, draws []llmhttp.Draw) {
			for _, d := range draws {
				if m.buckets[d.Bucket] != nil {
					m.adjustAll([]llmhttp.Draw{d})
				}
			}
		}
	})},
	{"adjusting changes draws", "Adjust", limiterFixture(func(m *tokenMap) {
		m.adjust = func(m *tokenMap, draws []llmhttp.Draw) {
			m.adjustAll(draws)
			slices.Reverse(draws)
		}
	})},
}
