package llmhttptest

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
)

// A tracker calls a Limiter and reports results that cannot be right. It must see all calls
// for the subjects that it is used with. It is not safe for concurrent use.
type tracker struct {
	limiter  llmhttp.Limiter
	inBubble bool // see limiterTest
	t        testing.TB
	subject  llmhttp.SubjectID // of draws without one
	buckets  map[bucketID]*bucketState
	created  int // names returned by newBucket

	inUse map[bucketID]int64 // by the subjects and names of slots
	held  map[int]*heldSlots
}

type bucketID struct {
	subject llmhttp.SubjectID
	name    string
}

// track returns a tracker for a new key.
func (l limiterTest) track(t testing.TB) *tracker { return l.trackSubject(t, newSubject()) }

func (l limiterTest) trackSubject(t testing.TB, s llmhttp.SubjectID) *tracker {
	return &tracker{
		limiter: l.limiter, inBubble: l.inBubble, t: t, subject: s,
		buckets: map[bucketID]*bucketState{}, inUse: map[bucketID]int64{}, held: map[int]*heldSlots{},
	}
}

// withSubject returns a copy of draws in which those without a subject have that of l.
func (l *tracker) withSubject(draws []llmhttp.Draw) []llmhttp.Draw {
	draws = slices.Clone(draws)
	for i := range draws {
		if draws[i].Subject == (llmhttp.SubjectID{}) {
			draws[i].Subject = l.subject
		}
	}
	return draws
}

// newBucket returns the name of a bucket that has not been used.
func (l *tracker) newBucket() string {
	l.created++
	return fmt.Sprintf("bucket-%d", l.created)
}

// A bucketState has bounds of the tokens in a bucket.
type bucketState struct {
	rate        llmhttp.Rate // with its defaults
	least, most float64
	begin, end  time.Time // of the last call
	uncertain   bool      // whether the latest Rate is in use is unknown, and so are the tokens
	isNew       bool      // and therefore certainly full
}

func (b *bucketState) perSecond() float64 { return float64(b.rate.N) / b.rate.Per.Seconds() }

// slack returns the largest error of a number of about n tokens.
func (b *bucketState) slack(n float64) float64 {
	return clockError.Seconds()*b.perSecond() + floatError*(math.Abs(n)+float64(b.rate.Burst))
}

// holds reports whether b must have held enough for cost, and whether it must
// have held less. Both are false if either may be true.
func (b *bucketState) holds(cost int64) (mustHold, mustLack bool) {
	c := float64(cost)
	switch {
	case cost == 0:
		return true, false
	case cost > int64(b.rate.Burst):
		return false, true
	case b.isNew:
		return true, false
	}
	return b.least >= c+b.slack(c), b.most < c-b.slack(c)
}

// spend takes amount, or returns tokens up to the burst. A debt that was as large as a few
// billions leaves a rounding error when it is paid.
func (b *bucketState) spend(amount int64) {
	n := float64(amount)
	rounding := 1e-15 * max(math.Abs(b.least), math.Abs(n))
	b.least = min(float64(b.rate.Burst), b.least-n-rounding)
	b.most = min(float64(b.rate.Burst), b.most-n+rounding)
}

func (b *bucketState) String() string {
	tokens, most := fmt.Sprintf("%.6g", b.least), fmt.Sprintf("%.6g", b.most)
	if most != tokens {
		tokens += " to " + most
	}
	return fmt.Sprintf("%s tokens of %d, refilling %d per %v", tokens, b.rate.Burst, b.rate.N, b.rate.Per)
}

// refill returns the bucket of d as it was during a call that lasted from begin
// to end.
func (l *tracker) refill(d llmhttp.Draw, begin, end time.Time) *bucketState {
	rate := d.Rate.WithDefaults()
	burst := float64(rate.Burst)
	id := bucketID{d.Subject, d.Bucket}
	b := l.buckets[id]
	switch {
	case b == nil:
		b = &bucketState{rate: rate, least: burst, most: burst, isNew: true}
		l.buckets[id] = b
	case b.uncertain:
		b.uncertain, b.isNew, b.rate = false, false, rate
		b.least, b.most = -1e18, burst
	default:
		b.isNew = false
		drift := driftError
		if l.inBubble {
			drift = 0
		}
		oldBurst := float64(b.rate.Burst)
		b.least = min(oldBurst, b.least+b.perSecond()*begin.Sub(b.end).Seconds()*(1-drift))
		b.most = min(oldBurst, b.most+b.perSecond()*end.Sub(b.begin).Seconds()*(1+drift))
		if b.rate != rate {
			if b.most >= oldBurst-b.slack(oldBurst) {
				b.most = max(b.most, burst) // a full bucket may have been evicted
			}
			b.rate = rate
			// The new rate may be in use from the begin of the call on: a Limiter with several servers
			// asks one twice if another one refuses.
			b.most += b.perSecond() * end.Sub(begin).Seconds() * (1 + drift)
			b.least, b.most = min(b.least, burst), min(b.most, burst)
		}
	}
	b.begin, b.end = begin, end
	return b
}

// checkTake calls Take, checks the result, and reports whether the tokens were
// taken.
func (l *tracker) checkTake(draws ...llmhttp.Draw) ([]llmhttp.Level, bool) {
	l.t.Helper()
	draws = l.withSubject(draws)
	passed := slices.Clone(draws)
	begin := time.Now()
	levels, err := l.limiter.Take(l.t.Context(), passed...)
	end := time.Now()
	call := "Take" + describe(draws)
	switch {
	case err != nil:
		unexplained(l.t).Fatalf("%s returned the error %v, want nil", call, err)
	case len(levels) != len(draws):
		l.t.Fatalf("%s returned %d levels, want one for each of %d draws", call, len(levels), len(draws))
	case !slices.Equal(passed, draws):
		l.t.Errorf("%s changed its draws to %s, want them as they were", call, describe(passed))
	}
	granted := isGranted(levels)
	var refused bool              // a draw before has been
	var refuser llmhttp.SubjectID // of the last draw that was refused
	for i, d := range draws {
		if levels[i].Unknown {
			l.wantUnknown(fmt.Sprintf("%s: level %d", call, i), levels[i], refused && refuser != d.Subject)
			if b := l.buckets[bucketID{d.Subject, d.Bucket}]; b != nil && b.rate != d.Rate.WithDefaults() {
				b.uncertain = true
			}
			continue
		}
		b := l.refill(d, begin, end)
		if levels[i].RetryAfter > 0 {
			refused, refuser = true, d.Subject
		}
		l.wantRetryAfter(fmt.Sprintf("%s: RetryAfter of draw %d", call, i), levels[i].RetryAfter, b, d.Amount)
		if granted {
			b.spend(d.Amount)
		}
		what := fmt.Sprintf("%s: level %d", call, i)
		l.wantLevel(what, levels[i], b)
		if levels[i].RetryAfter > 0 && b.rate.N > 0 && d.Amount <= int64(b.rate.Burst) {
			l.wantWait(what+": RetryAfter", levels[i].RetryAfter, b, float64(d.Amount))
		}
	}
	return levels, granted
}

// wantUnknown reports an error unless level may be Unknown and has no other field.
func (l *tracker) wantUnknown(what string, level llmhttp.Level, permitted bool) {
	l.t.Helper()
	if !permitted {
		l.t.Errorf("%s is Unknown, want it known unless another subject before it has refused", what)
	}
	if level != (llmhttp.Level{Unknown: true}) {
		l.t.Errorf("%s is %+v, want no other field of a level that is Unknown", what, level)
	}
}

// wantRetryAfter reports an error if wait says wrongly whether b held enough for cost.
func (l *tracker) wantRetryAfter(what string, wait time.Duration, b *bucketState, cost int64) {
	l.t.Helper()
	mustHold, mustLack := b.holds(cost)
	if wait > 0 && mustHold {
		l.t.Errorf("%s is %v, want 0, because the bucket held %v", what, wait, b)
	}
	if wait <= 0 && mustLack {
		l.t.Errorf("%s is %v, want more than 0, because the bucket held %v", what, wait, b)
	}
}

// wantLevel reports an error unless level is right for b after the call. RetryAfter is only
// checked for its sign.
func (l *tracker) wantLevel(what string, level llmhttp.Level, b *bucketState) {
	l.t.Helper()
	if level.Remaining < 0 || level.RetryAfter < 0 || level.ResetAfter < 0 {
		l.t.Errorf("%s is %+v, want no negative field", what, level)
		return
	}
	least := math.Floor(max(0, b.least-b.slack(b.least)))
	most := math.Floor(max(0, b.most+b.slack(b.most)))
	if r := float64(level.Remaining); r < least || r > most {
		l.t.Errorf("%s: Remaining is %d, want %.0f to %.0f, because the bucket holds %v", what, level.Remaining, least, most, b)
	}
	if b.rate.N > 0 {
		l.wantWait(what+": ResetAfter", level.ResetAfter, b, float64(b.rate.Burst))
	}
}

// wantWait checks a time that a Limiter gave until b holds tokens. A time of more than a
// hundred years need only be as long.
func (l *tracker) wantWait(what string, wait time.Duration, b *bucketState, tokens float64) {
	l.t.Helper()
	const long = 100 * 365 * day
	least := min(seconds((tokens-b.most)/b.perSecond()*(1-floatError))-clockError, long)
	most := seconds((tokens - b.least) / b.perSecond() * (1 + floatError))
	if most += min(clockError, math.MaxInt64-most); most > long {
		most = math.MaxInt64
	}
	if wait < least || wait > most {
		l.t.Errorf(
			"%s is %v, want %v to %v until the bucket holds %.0f tokens, because it holds %v",
			what,
			wait,
			max(least, 0),
			most,
			tokens,
			b,
		)
	}
}

// seconds returns s as a Duration, or the longest Duration if s is longer.
func seconds(s float64) time.Duration {
	if s *= float64(time.Second); s < math.MaxInt64 {
		return time.Duration(s)
	}
	return math.MaxInt64
}

// checkTakeOne is checkTake for one draw.
func (l *tracker) checkTakeOne(d llmhttp.Draw) llmhttp.Level {
	l.t.Helper()
	levels, _ := l.checkTake(d)
	return levels[0]
}

// mustTake is checkTake that also reports an error unless the tokens were taken.
func (l *tracker) mustTake(draws ...llmhttp.Draw) []llmhttp.Level {
	l.t.Helper()
	levels, granted := l.checkTake(draws...)
	if !granted {
		l.t.Errorf("Take%s was refused, want it granted; the levels are %+v", describe(draws), levels)
	}
	return levels
}

// mustRefuse is checkTake that also reports an error if the tokens were taken.
func (l *tracker) mustRefuse(draws ...llmhttp.Draw) []llmhttp.Level {
	l.t.Helper()
	levels, granted := l.checkTake(draws...)
	if granted {
		l.t.Errorf("Take%s was granted, want it refused; the levels are %+v", describe(draws), levels)
	}
	return levels
}

// wantRemaining reports an error unless remaining tokens are in the bucket of d, whose Amount does
// not matter.
func (l *tracker) wantRemaining(remaining int64, d llmhttp.Draw) {
	l.t.Helper()
	d.Amount = 0
	if levels := l.mustTake(d); levels[0].Remaining != remaining {
		l.t.Errorf("%d tokens remain in the bucket %.40q, want %d", levels[0].Remaining, d.Bucket, remaining)
	}
}

// checkAdjust calls Adjust and checks that it returns no error.
func (l *tracker) checkAdjust(draws ...llmhttp.Draw) {
	l.t.Helper()
	draws = l.withSubject(draws)
	passed := slices.Clone(draws)
	begin := time.Now()
	err := l.limiter.Adjust(l.t.Context(), passed...)
	end := time.Now()
	call := "Adjust" + describe(draws)
	if err != nil {
		unexplained(l.t).Fatalf("%s returned the error %v, want nil", call, err)
	}
	if !slices.Equal(passed, draws) {
		l.t.Errorf("%s changed its draws to %s, want them as they were", call, describe(passed))
	}
	for _, d := range draws {
		l.refill(d, begin, end).spend(d.Amount)
	}
}
