package redislimit

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
)

// A modelBucket is a token bucket that computes with exact fractions.
type modelBucket struct {
	rate  llmhttp.Rate // with its defaults
	level *big.Rat
	at    int64 // in microseconds
}

func ratio(a, b int64) *big.Rat { return big.NewRat(a, b) }

func least(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) < 0 {
		return a
	}
	return b
}

func (b *modelBucket) burst() *big.Rat { return ratio(int64(b.rate.Burst), 1) }

// refill adds the tokens gained until now and sets the rate of b.
func (b *modelBucket) refill(now int64, r llmhttp.Rate) {
	gained := new(big.Rat).Mul(ratio(now-b.at, 1), ratio(int64(b.rate.N), b.rate.Per.Microseconds()))
	b.level = least(new(big.Rat).Add(b.level, gained), b.burst())
	if b.level.Cmp(b.burst()) == 0 {
		b.level = ratio(int64(r.Burst), 1) // a full bucket is the same as a new one
	}
	b.at, b.rate = now, r
	b.level = least(b.level, b.burst())
}

func (b *modelBucket) spend(cost int64) {
	b.level = least(new(big.Rat).Sub(b.level, ratio(cost, 1)), b.burst())
}

// lacks returns how many of tokens b lacks. It is not negative.
func (b *modelBucket) lacks(tokens *big.Rat) *big.Rat {
	d := new(big.Rat).Sub(tokens, b.level)
	if d.Sign() < 0 {
		return new(big.Rat)
	}
	return d
}

// wait returns the microseconds until b holds tokens, or -1 for never.
func (b *modelBucket) wait(tokens *big.Rat) float64 {
	if b.rate.N == 0 {
		return -1
	}
	d := new(big.Rat).Mul(b.lacks(tokens), ratio(b.rate.Per.Microseconds(), int64(b.rate.N)))
	f, _ := d.Float64()
	return f
}

// TestLimiter_Model compares the Limiter with a model over random calls.
func TestLimiter_Model(t *testing.T) {
	t.Parallel()
	rates := []llmhttp.Rate{
		llmhttp.PerMinute(60), {N: 60, Per: 5 * time.Minute}, llmhttp.PerMinute(7), {N: 100, Per: time.Hour, Burst: 20}, {N: 13, Per: 17 * time.Second, Burst: 1000},
		{N: 1_000_000, Per: 30 * 24 * time.Hour}, {N: 3, Per: time.Second, Burst: 90}, {N: min(1<<31, math.MaxInt), Per: 400 * 24 * time.Hour}, {N: -1},
	}
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 5))
			l := newLimiter(t, nil, nil)
			now, passed := time.Now().UnixMicro(), time.Now()
			l.now = func() int64 { return now }
			// Buckets expire by the clock of Redis. The clock of the test runs
			// faster, so that they are full in the model by then.
			pass := func(d int64) {
				now += max(d, time.Since(passed).Microseconds()+200_000)
				passed = time.Now()
			}
			model := map[string]*modelBucket{}
			key := uniqueKey()
			current := make([]llmhttp.Rate, 4)
			for i := range current {
				current[i] = rates[rnd.IntN(len(rates))]
			}
			var wait int64 // RetryAfter of the latest Take, in microseconds
			for step := range 400 {
				switch rnd.IntN(4) {
				case 0:
					pass(0)
				case 1:
					pass(wait - rnd.Int64N(3)) // just long enough, or just too short
				case 2:
					pass(rnd.Int64N(int64(10 * time.Second / time.Microsecond)))
				default:
					pass(int64(1) << rnd.IntN(40))
				}
				wait = 0
				var draws []llmhttp.BucketAmount
				for _, i := range rnd.Perm(len(current))[:1+rnd.IntN(3)] {
					// Rounding many tokens would change the time at a slow rate by much.
					if few := func(n int) bool { return 0 < n && n <= 1_000_000 }; rnd.IntN(40) == 0 && few(current[i].N) {
						if r := rates[rnd.IntN(len(rates))]; few(r.N) {
							current[i] = r
						}
					}
					burst := int64(current[i].WithDefaults().Burst)
					cost := rnd.Int64N(burst/3 + 2)
					switch rnd.IntN(8) {
					case 0:
						cost = 0
					case 1:
						cost = burst
					case 2:
						cost = min(burst, 1<<30) + 1
					}
					draws = append(draws, llmhttp.BucketAmount{Subject: keySubject(key), Bucket: strconv.Itoa(i), Rate: current[i], Amount: cost})
				}
				var buckets []*modelBucket
				for _, d := range draws {
					r := d.Rate.WithDefaults()
					b := model[d.Bucket]
					if b == nil {
						b = &modelBucket{rate: r, level: ratio(int64(r.Burst), 1), at: now}
						model[d.Bucket] = b
					}
					b.refill(now, r)
					buckets = append(buckets, b)
				}
				call := fmt.Sprintf("step %d: %+v", step, draws)
				if rnd.IntN(3) == 0 {
					for i, b := range buckets {
						draws[i].Amount *= 1 - 2*rnd.Int64N(2)
						b.spend(draws[i].Amount)
					}
					require.NoError(t, l.Adjust(t.Context(), draws...), call)
					continue
				}
				levels, err := l.Take(t.Context(), draws...)
				require.NoError(t, err, call)
				granted := true
				for _, level := range levels {
					granted = granted && level.RetryAfter == 0
				}
				for i, b := range buckets {
					cost := ratio(draws[i].Amount, 1)
					// Within the slack, rounding decides.
					slack := 1e-9 * (1 + float64(b.rate.Burst))
					lacks, _ := b.lacks(cost).Float64()
					over, _ := new(big.Rat).Sub(b.level, cost).Float64()
					retry := levels[i].RetryAfter
					switch {
					case draws[i].Amount == 0:
						require.Zero(t, retry, call)
					case draws[i].Amount > int64(b.rate.Burst):
						require.Equal(t, duration(-1), retry, call)
					case lacks > slack:
						require.Positive(t, retry, call)
					case over > slack:
						require.Zero(t, retry, call)
					}
					// A wait is rounded up, and may be a microsecond longer.
					if retry > 0 && retry < duration(-1) {
						require.InDelta(t, b.wait(cost), float64(retry.Microseconds()), 2+slack, call)
						wait = max(wait, retry.Microseconds())
					}
					if granted {
						b.spend(draws[i].Amount)
					}
					held, _ := b.level.Float64()
					require.GreaterOrEqual(t, float64(levels[i].Remaining), max(held-1-slack, 0), call)
					require.LessOrEqual(t, float64(levels[i].Remaining), max(held+slack, 0), call)
					reset := b.wait(b.burst())
					if b.lacks(b.burst()).Sign() == 0 {
						reset = 0
					}
					if reset < 0 || reset > 9.2e15 {
						require.Equal(t, duration(-1), levels[i].ResetAfter, call)
					} else {
						require.InDelta(t, reset, float64(levels[i].ResetAfter.Microseconds()), 2+reset*1e-9, call)
					}
				}
			}
		})
	}
}

// A wait of RetryAfter suffices to get the tokens, and a shorter one does not.
func TestLimiter_RetryAfterIsExact(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 6))
	l, key := newLimiter(t, nil, nil), uniqueKey()
	now := time.Now().UnixMicro()
	l.now = func() int64 { return now }
	for i := range 400 {
		r := llmhttp.Rate{N: 1 + rnd.IntN(1000), Per: time.Hour + time.Duration(rnd.Int64N(int64(24*time.Hour)))}
		if i%2 == 0 { // the time of a token is round, so that rounding errors matter
			r.Per = time.Duration(r.N) * time.Duration(10+rnd.IntN(90)) * time.Second
		}
		d := llmhttp.BucketAmount{Subject: keySubject(key), Bucket: strconv.Itoa(i), Rate: r, Amount: int64(r.N)}
		take := func() time.Duration {
			levels, err := l.Take(t.Context(), d)
			require.NoError(t, err)
			return levels[0].RetryAfter
		}
		require.Zero(t, take())
		for range 1 + rnd.IntN(3) { // so that its tokens are not a whole number
			now += int64(time.Minute/time.Microsecond) + rnd.Int64N(1e9)
			d.Amount = 1
			take()
		}
		d.Amount = 1 + rnd.Int64N(int64(r.N))
		wait := take()
		if wait == 0 {
			continue
		}
		now += wait.Microseconds() - 2
		require.InDelta(t, 2*time.Microsecond, take(), float64(time.Microsecond), "%+v", d)
		now += 2
		require.Zero(t, take(), "%+v", d)
	}
}

// If rounding leaves too few tokens after the computed wait, RetryAfter is a microsecond
// longer.
func TestLimiter_RetryAfterWithRoundingError(t *testing.T) {
	const level, cost, elapsed = 0.9130148679245274, 15, 746610212
	r := llmhttp.Rate{N: 279, Per: 14787 * time.Second}
	require.Equal(t, float64(elapsed), math.Ceil((cost-level)*float64(r.Per.Microseconds())/float64(r.N)))
	require.Less(t, level+elapsed*float64(r.N)/float64(r.Per.Microseconds()), float64(cost), "the numbers do not show the rounding error")

	l, key := newLimiter(t, nil, nil), uniqueKey()
	now := time.Now().UnixMicro()
	l.now = func() int64 { return now }
	var stored []byte
	for _, f := range []float64{level, float64(now), float64(r.N), float64(r.Per.Microseconds()), float64(r.N)} {
		stored = binary.LittleEndian.AppendUint64(stored, math.Float64bits(f))
	}
	require.NoError(t, l.client.redis.Set(t.Context(), "llmhttp:{key/"+key+"}:bucket", stored, time.Hour).Err())
	for _, wait := range []time.Duration{elapsed + 1, 0} {
		levels, err := l.Take(t.Context(), llmhttp.BucketAmount{Subject: keySubject(key), Bucket: "bucket", Rate: r, Amount: cost})
		require.NoError(t, err)
		require.Equal(t, wait*time.Microsecond, levels[0].RetryAfter)
		now += elapsed + 1
	}
}
