package limitertest

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

func TestLimiter_AcceptsCorrectLimiter(t *testing.T) {
	correct := func(testing.TB) llmhttp.Limiter { return newTokenMap() }
	t.Run("TestLimiter", func(t *testing.T) { TestLimiter(t, correct) })
	t.Run("TestLimiterInBubble", func(t *testing.T) { TestLimiterInBubble(t, correct) })
	t.Run("subject by subject", func(t *testing.T) {
		newLimiter := withSubjects(giveBackAll)
		TestLimiterInBubble(t, func(t testing.TB) llmhttp.Limiter { return newLimiter(t).limiter })
	})
}

// countMutants count tokens wrongly.
var countMutants = []mutant[limiterTest]{
	{"a new bucket is empty", randomCalls, limiterFixture(func(m *tokenMap) { m.initial = func(llmhttp.Rate) float64 { return 0 } })},
	{"a new bucket holds N", randomCalls, limiterFixture(func(m *tokenMap) {
		m.initial = func(r llmhttp.Rate) float64 { return min(float64(r.N), float64(r.Burst)) }
	})},
	{"Burst is ignored", randomCalls, limiterFixture(func(m *tokenMap) {
		m.defaults = func(r llmhttp.Rate) llmhttp.Rate { r.Burst = 0; return r.WithDefaults() }
	})},
	{"the last token cannot be taken", randomCalls, limiterFixture(func(m *tokenMap) {
		m.holds = func(b *tokens, cost int64) bool { return cost == 0 || b.held > float64(cost)+0.5 }
	})},
	{"one token more than there is can be taken", randomCalls, limiterFixture(func(m *tokenMap) {
		m.holds = func(b *tokens, cost int64) bool { return cost <= int64(b.rate.Burst) && b.held > float64(cost)-1.5 }
	})},
	{"Remaining is the state before the call", randomCalls, withLevel(func(l *llmhttp.BucketLevel, b *tokens, d llmhttp.BucketAmount, enough bool) {
		if enough {
			l.Remaining += d.Amount
		}
	})},
	{"Remaining is one too small", randomCalls, withLevel(func(l *llmhttp.BucketLevel, _ *tokens, _ llmhttp.BucketAmount, _ bool) {
		l.Remaining = max(0, l.Remaining-1)
	})},
	{"Remaining has the tolerance of times", "LargeBuckets", withLevel(func(l *llmhttp.BucketLevel, b *tokens, _ llmhttp.BucketAmount, _ bool) {
		l.Remaining = int64(b.held + max(1e-6, 1e-12*float64(b.rate.Burst)))
	})},
	{"a Take may lack a small share of a bucket", "LargeBuckets", limiterFixture(func(m *tokenMap) {
		m.holds = func(b *tokens, cost int64) bool {
			return cost <= int64(b.rate.Burst) && b.held >= float64(cost)-1e-12*float64(b.rate.Burst)
		}
	})},
	{"Remaining has 32 bits", "LargeBuckets", withLevel(func(l *llmhttp.BucketLevel, _ *tokens, _ llmhttp.BucketAmount, _ bool) {
		l.Remaining = int64(int32(l.Remaining))
	})},
	{"ResetAfter is always zero", randomCalls, withLevel(func(l *llmhttp.BucketLevel, _ *tokens, _ llmhttp.BucketAmount, _ bool) { l.ResetAfter = 0 })},
	{"ResetAfter is Per", randomCalls, withLevel(func(l *llmhttp.BucketLevel, b *tokens, _ llmhttp.BucketAmount, _ bool) { l.ResetAfter = b.rate.Per })},
	{"ResetAfter is the time until the next token", randomCalls, withLevel(func(l *llmhttp.BucketLevel, b *tokens, _ llmhttp.BucketAmount, _ bool) {
		l.ResetAfter = b.until(b.held + 1)
	})},
	{"Take returns an error", randomCalls, withTake(func(*tokenMap, context.Context, []llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) {
		return nil, errors.New("down")
	})},
	{"Take returns no levels", randomCalls, withTake(func(m *tokenMap, _ context.Context, draws []llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) {
		m.takeAll(draws)
		return nil, nil
	})},
	{"RetryAfter is always zero", randomCalls, withLevel(func(l *llmhttp.BucketLevel, _ *tokens, _ llmhttp.BucketAmount, _ bool) { l.RetryAfter = 0 })},

	{"a Per of zero means a second", randomCalls, limiterFixture(func(m *tokenMap) {
		m.defaults = func(r llmhttp.Rate) llmhttp.Rate {
			if r.Per == 0 {
				r.Per = time.Second
			}
			return r.WithDefaults()
		}
	})},
	{"the sign of Per is ignored", randomCalls, limiterFixture(func(m *tokenMap) {
		m.defaults = func(r llmhttp.Rate) llmhttp.Rate { r.Per = max(r.Per, -r.Per); return r.WithDefaults() }
	})},
	{"a Burst of zero means one", randomCalls, limiterFixture(func(m *tokenMap) {
		m.defaults = func(r llmhttp.Rate) llmhttp.Rate {
			if r.Burst == 0 {
				r.Burst = 1
			}
			return r.WithDefaults()
		}
	})},
	{"a negative Burst means zero", randomCalls, limiterFixture(func(m *tokenMap) {
		m.defaults = func(r llmhttp.Rate) llmhttp.Rate {
			burst := r.Burst
			if r = r.WithDefaults(); burst < 0 {
				r.Burst = 0
			}
			return r
		}
	})},

	{"Take takes from each bucket on its own", randomCalls, withTake(func(m *tokenMap, _ context.Context, draws []llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) {
		var levels []llmhttp.BucketLevel
		for _, d := range draws {
			levels = append(levels, m.takeAll([]llmhttp.BucketAmount{d})...)
		}
		return levels, nil
	})},
	{"Take takes from the buckets before one that lacks", randomCalls, withTake(func(m *tokenMap, _ context.Context, draws []llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) {
		for i, d := range draws {
			if !m.holds(m.bucket(d), d.Amount) {
				break
			}
			if i == len(draws)-1 {
				return m.takeAll(draws), nil
			}
			m.spend(m.bucket(d), d.Amount)
			draws = slices.Clone(draws)
			draws[i].Amount = 0
		}
		return m.takeAll(draws), nil
	})},
	{"a refused draw takes a token", randomCalls, limiterFixture(func(m *tokenMap) {
		holds := m.holds
		m.holds = func(b *tokens, cost int64) bool {
			if !holds(b, cost) {
				b.held--
				return false
			}
			return true
		}
	})},
	{"only the first draw is checked", randomCalls, withTake(func(m *tokenMap, _ context.Context, draws []llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) {
		enough := make([]bool, len(draws))
		for i := range draws {
			enough[i] = m.holds(m.bucket(draws[0]), draws[0].Amount)
		}
		return m.finish(draws, enough), nil
	})},

	{"all draws are on the first subject", randomCalls, withTake(func(m *tokenMap, _ context.Context, draws []llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) {
		draws = slices.Clone(draws)
		for i := range draws {
			draws[i].Subject = draws[0].Subject
		}
		return m.takeAll(draws), nil
	})},
	{"each subject decides on its own", randomCalls, withTake(func(m *tokenMap, _ context.Context, draws []llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) {
		var levels []llmhttp.BucketLevel
		for _, group := range bySubject(draws) {
			levels = append(levels, m.takeAll(group)...)
		}
		return levels, nil
	})},
	{"nothing is given back when a later subject refuses", randomCalls, withSubjects(func(*tokenMap, []llmhttp.BucketAmount) {})},
	{"one token is given back when a later subject refuses", randomCalls, withSubjects(func(m *tokenMap, draws []llmhttp.BucketAmount) {
		for _, d := range draws {
			m.spend(m.bucket(d), -1)
		}
	})},
	{"later subjects are not checked", randomCalls, withTake(func(m *tokenMap, _ context.Context, draws []llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) {
		first := bySubject(draws)[0]
		levels := m.takeAll(first)
		if isGranted(levels) {
			m.adjustAll(draws[len(first):])
		}
		for _, d := range draws[len(first):] {
			levels = append(levels, m.level(m.bucket(d), d, true))
		}
		return levels, nil
	})},
	{"levels before a refusal are Unknown", randomCalls, withTake(func(m *tokenMap, _ context.Context, draws []llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) {
		levels := m.takeAll(draws)
		for i := range levels {
			if !isGranted(levels) && levels[i].RetryAfter == 0 {
				levels[i] = llmhttp.BucketLevel{Unknown: true}
			}
		}
		return levels, nil
	})},
	{"levels of a read are Unknown", randomCalls, withTake(func(m *tokenMap, _ context.Context, draws []llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) {
		levels := m.takeAll(draws)
		for i, d := range draws {
			if d.Amount == 0 && d.Subject != draws[0].Subject {
				levels[i] = llmhttp.BucketLevel{Unknown: true}
			}
		}
		return levels, nil
	})},
	{"Adjust skips later subjects", randomCalls, limiterFixture(func(m *tokenMap) {
		m.adjust = func(m *tokenMap, draws []llmhttp.BucketAmount) { m.adjustAll(bySubject(draws)[0]) }
	})},

	{"levels are in reverse order", randomCalls, withTake(func(m *tokenMap, _ context.Context, draws []llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) {
		levels := m.takeAll(draws)
		slices.Reverse(levels)
		return levels, nil
	})},
	{"levels are sorted by bucket", randomCalls, withTake(func(m *tokenMap, _ context.Context, draws []llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) {
		draws = slices.Clone(draws)
		slices.SortFunc(draws, func(a, b llmhttp.BucketAmount) int { return strings.Compare(a.Bucket, b.Bucket) })
		return m.takeAll(draws), nil
	})},
	{"Take sorts its argument", randomCalls, withTake(func(m *tokenMap, _ context.Context, draws []llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) {
		levels := m.takeAll(draws)
		slices.SortFunc(draws, func(a, b llmhttp.BucketAmount) int { return strings.Compare(a.Bucket, b.Bucket) })
		return levels, nil
	})},
	{"RetryAfter is the longest of all draws", randomCalls, withTake(func(m *tokenMap, _ context.Context, draws []llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) {
		levels := m.takeAll(draws)
		longest := slices.MaxFunc(levels, func(a, b llmhttp.BucketLevel) int { return int(a.RetryAfter - b.RetryAfter) }).RetryAfter
		for i := range levels {
			levels[i].RetryAfter = longest
		}
		return levels, nil
	})},
	{"RetryAfter is set only for the first bucket that lacks", randomCalls, withTake(func(m *tokenMap, _ context.Context, draws []llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) {
		levels := m.takeAll(draws)
		reported := false
		for i := range levels {
			if reported {
				levels[i].RetryAfter = 0
			}
			reported = reported || levels[i].RetryAfter > 0
		}
		return levels, nil
	})},
	{"Remaining of a refused Take is that of a granted one", randomCalls, withTake(func(m *tokenMap, _ context.Context, draws []llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) {
		levels := m.takeAll(draws)
		if !isGranted(levels) {
			for i, d := range draws {
				if levels[i].RetryAfter == 0 {
					levels[i].Remaining -= d.Amount
				}
			}
		}
		return levels, nil
	})},

	{"an empty bucket refuses a cost of zero", randomCalls, limiterFixture(func(m *tokenMap) {
		m.holds = func(b *tokens, cost int64) bool { return b.held >= float64(max(1, cost)) }
	})},
	{"a bucket in debt refuses a cost of zero", randomCalls, limiterFixture(func(m *tokenMap) {
		m.holds = func(b *tokens, cost int64) bool { return b.held >= float64(cost) }
	})},
	{"a cost of zero takes a token", randomCalls, limiterFixture(func(m *tokenMap) {
		spend := m.spend
		m.spend = func(b *tokens, cost int64) {
			if spend(b, cost); cost == 0 && b.held >= 1 {
				b.held--
			}
		}
	})},
	{"Remaining is negative in debt", randomCalls, withLevel(func(l *llmhttp.BucketLevel, b *tokens, _ llmhttp.BucketAmount, _ bool) {
		l.Remaining = int64(math.Floor(b.held))
	})},

	{"a cost above the burst leaves a debt", randomCalls, limiterFixture(func(m *tokenMap) {
		m.holds = func(b *tokens, cost int64) bool { return b.held >= float64(min(cost, int64(b.rate.Burst))) }
	})},
	{"the cost is compared with N", randomCalls, limiterFixture(func(m *tokenMap) {
		holds := m.holds
		m.holds = func(b *tokens, cost int64) bool {
			return cost > int64(b.rate.Burst) && cost <= int64(b.rate.N) || holds(b, cost)
		}
	})},
	{"RetryAfter is zero for a cost above the burst", randomCalls, withLevel(func(l *llmhttp.BucketLevel, b *tokens, d llmhttp.BucketAmount, _ bool) {
		if d.Amount > int64(b.rate.Burst) {
			l.RetryAfter = 0
		}
	})},
	{"a cost above the burst is an error", randomCalls, withTake(func(m *tokenMap, _ context.Context, draws []llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) {
		for _, d := range draws {
			if d.Amount > int64(m.bucket(d).rate.Burst) {
				return nil, errors.New("cost exceeds burst")
			}
		}
		return m.takeAll(draws), nil
	})},

	{"a negative N means no limit", randomCalls, limiterFixture(func(m *tokenMap) {
		m.defaults = func(r llmhttp.Rate) llmhttp.Rate {
			if r.N < 0 {
				r.N, r.Burst = math.MaxInt32, 0
			}
			return r.WithDefaults()
		}
	})},
	{"a negative N keeps the burst", randomCalls, limiterFixture(func(m *tokenMap) {
		m.defaults = func(r llmhttp.Rate) llmhttp.Rate {
			burst := max(0, r.Burst)
			if r.N >= 0 {
				return r.WithDefaults()
			}
			r = r.WithDefaults()
			r.Burst = burst
			return r
		}
	})},
	{"the sign of N is ignored", randomCalls, limiterFixture(func(m *tokenMap) {
		m.defaults = func(r llmhttp.Rate) llmhttp.Rate {
			r.N = max(r.N, -r.N)
			return r.WithDefaults()
		}
	})},
	{"a burst of zero does not bound returned tokens", randomCalls, limiterFixture(func(m *tokenMap) {
		m.spend = func(b *tokens, cost int64) { b.held -= float64(cost) }
		m.holds = func(b *tokens, cost int64) bool { return b.held >= float64(cost) }
	})},

	{"Take panics without draws", randomCalls, withTake(func(m *tokenMap, _ context.Context, draws []llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) {
		_ = draws[0]
		return m.takeAll(draws), nil
	})},
	{"Take returns a level without draws", randomCalls, withTake(func(m *tokenMap, _ context.Context, draws []llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) {
		if len(draws) == 0 {
			return make([]llmhttp.BucketLevel, 1), nil
		}
		return m.takeAll(draws), nil
	})},

	{"Adjust does nothing", randomCalls, limiterFixture(func(m *tokenMap) { m.adjust = func(*tokenMap, []llmhttp.BucketAmount) {} })},
	{"Adjust ignores negative costs", randomCalls, limiterFixture(func(m *tokenMap) {
		spend := m.spend
		m.spend = func(b *tokens, cost int64) { spend(b, max(0, cost)) }
	})},
	{"Adjust returns tokens beyond the burst", randomCalls, limiterFixture(func(m *tokenMap) {
		m.spend = func(b *tokens, cost int64) { b.held -= float64(cost) }
		m.refill = func(*tokens, time.Time) {}
	})},
	{"Adjust refuses like Take", randomCalls, limiterFixture(func(m *tokenMap) {
		m.adjust = func(m *tokenMap, draws []llmhttp.BucketAmount) { m.takeAll(draws) }
	})},
	{"Adjust handles only the first draw", randomCalls, limiterFixture(func(m *tokenMap) {
		m.adjust = func(m *tokenMap, draws []llmhttp.BucketAmount) { m.adjustAll(draws[:min(1, len(draws))]) }
	})},
	{"Adjust skips new buckets", randomCalls, limiterFixture(func(m *tokenMap) {
		m.adjust = func(m *tokenMap, draws []llmhttp.BucketAmount) {
			for _, d := range draws {
				if m.buckets[m.join(d.Subject, d.Bucket)] != nil {
					m.adjustAll([]llmhttp.BucketAmount{d})
				}
			}
		}
	})},
	{"Adjust reorders its argument", randomCalls, limiterFixture(func(m *tokenMap) {
		m.adjust = func(m *tokenMap, draws []llmhttp.BucketAmount) {
			m.adjustAll(draws)
			slices.Reverse(draws)
		}
	})},
}
