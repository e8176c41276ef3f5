// The model of a Limiter: computes what its buckets may hold.

package limitertest

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llmhttptest/internal/kit"
)

// A tracker calls a Limiter and reports results that cannot be right. It must see all calls
// for the subjects that it is used with. It is not safe for concurrent use.
type tracker struct {
	limiterTest
	t       testing.TB
	id      string // stands for # in the IDs of subjects
	buckets map[bucketID]*bucketState

	inUse map[bucketID]int64 // by the subjects and names of slots
	held  map[int]*heldSlots
}

type bucketID struct {
	subject llmhttp.SubjectID
	name    string
}

// track returns a tracker for subjects that have never been used.
func (l limiterTest) track(t testing.TB) *tracker {
	return &tracker{
		limiterTest: l, t: t, id: kit.Unique("key"),
		buckets: map[bucketID]*bucketState{}, inUse: map[bucketID]int64{}, held: map[int]*heldSlots{},
	}
}

// subject returns s with the ID of l for each # in its ID, or a key with that ID if s is zero.
func (l *tracker) subject(s llmhttp.SubjectID) llmhttp.SubjectID {
	if s == (llmhttp.SubjectID{}) {
		return keySubject(l.id)
	}
	return llmhttp.SubjectID{Kind: s.Kind, ID: strings.ReplaceAll(s.ID, "#", l.id)}
}

// withSubjects returns a copy of draws with the subjects that l uses.
func (l *tracker) withSubjects(draws []llmhttp.BucketAmount) []llmhttp.BucketAmount {
	draws = slices.Clone(draws)
	for i := range draws {
		draws[i].Subject = l.subject(draws[i].Subject)
	}
	return draws
}

// A bucketState has bounds of the tokens in a bucket.
type bucketState struct {
	rate        llmhttp.Rate // with its defaults
	least, most float64
	begin, end  time.Time // of the last call
	clockError  time.Duration
	uncertain   bool // whether the latest Rate is in use is unknown, and so are the tokens
	isNew       bool // and therefore certainly full
	changed     bool // whether the last call had another Rate than the one before
}

func (b *bucketState) perSecond() float64 { return float64(b.rate.N) / b.rate.Per.Seconds() }

// slack returns the largest error of a number of about n tokens.
func (b *bucketState) slack(n float64) float64 {
	return b.clockError.Seconds()*b.perSecond() + floatError*(math.Abs(n)+float64(b.rate.Burst))
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

// maySpend is spend, or not. The Rate may be the previous one.
func (b *bucketState) maySpend(amount int64) {
	b.isNew = false
	b.least -= float64(max(amount, 0))
	b.uncertain = b.uncertain || b.changed
}

func (l *tracker) wantUnchanged(call string, passed, draws []llmhttp.BucketAmount) {
	l.t.Helper()
	if !slices.Equal(passed, draws) {
		kit.Wrong(l.t, call, "changed draws: "+kit.Describe(passed), "them as they were")
	}
}

// refill returns the bucket of d as it was during a call that lasted from begin
// to end.
func (l *tracker) refill(d llmhttp.BucketAmount, begin, end time.Time) *bucketState {
	rate := d.Rate.WithDefaults()
	burst := float64(rate.Burst)
	id := bucketID{d.Subject, d.Bucket}
	b := l.buckets[id]
	switch {
	case b == nil:
		b = &bucketState{rate: rate, least: burst, most: burst, isNew: true, clockError: l.clockError()}
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
		if b.changed = b.rate != rate; b.changed {
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

// checkTake calls Take and checks the result, which may be an error if ctx is done.
func (l *tracker) checkTake(ctx context.Context, draws ...llmhttp.BucketAmount) {
	l.t.Helper()
	draws = l.withSubjects(draws)
	passed := slices.Clone(draws)
	begin := time.Now()
	levels, err := l.limiter.Take(ctx, passed...)
	end := time.Now()
	call := "Take" + kit.Describe(draws)
	if err != nil && ctx.Err() != nil {
		for _, d := range draws {
			l.refill(d, begin, end).maySpend(d.Amount)
		}
		return
	}
	kit.Must(l.t, call, err)
	if len(levels) != len(draws) {
		kit.Wrong(l.t, call, fmt.Sprintf("%d levels", len(levels)), len(draws))
		l.t.FailNow()
	}
	l.wantUnchanged(call, passed, draws)
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
}

// wantUnknown reports an error unless level may be Unknown and has no other field.
func (l *tracker) wantUnknown(what string, level llmhttp.BucketLevel, permitted bool) {
	l.t.Helper()
	if !permitted {
		kit.Wrong(l.t, what, "Unknown", "known unless another subject before it has refused")
	}
	if level != (llmhttp.BucketLevel{Unknown: true}) {
		kit.Wrong(l.t, what, kit.Describe(level), "Unknown alone")
	}
}

// wantRetryAfter reports an error if wait says wrongly whether b held enough for cost.
func (l *tracker) wantRetryAfter(what string, wait time.Duration, b *bucketState, cost int64) {
	l.t.Helper()
	mustHold, mustLack := b.holds(cost)
	if wait > 0 && mustHold {
		kit.Wrong(l.t, what, wait, fmt.Sprint("0, because the bucket held ", b))
	}
	if wait <= 0 && mustLack {
		kit.Wrong(l.t, what, wait, fmt.Sprint("more than 0, because the bucket held ", b))
	}
}

// wantLevel reports an error unless level is right for b after the call. RetryAfter is only
// checked for its sign.
func (l *tracker) wantLevel(what string, level llmhttp.BucketLevel, b *bucketState) {
	l.t.Helper()
	if level.Remaining < 0 || level.RetryAfter < 0 || level.ResetAfter < 0 {
		kit.Wrong(l.t, what, kit.Describe(level), "no negative field")
		return
	}
	least := math.Floor(max(0, b.least-b.slack(b.least)))
	most := math.Floor(max(0, b.most+b.slack(b.most)))
	if r := float64(level.Remaining); r < least || r > most {
		kit.Wrong(l.t, what, fmt.Sprint("Remaining ", level.Remaining), fmt.Sprintf("%.0f to %.0f, because the bucket holds %v", least, most, b))
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
	least := min(seconds((tokens-b.most)/b.perSecond()*(1-floatError))-l.clockError(), long)
	most := seconds((tokens - b.least) / b.perSecond() * (1 + floatError))
	if most += min(l.clockError(), math.MaxInt64-most); most > long {
		most = math.MaxInt64
	}
	if wait < least || wait > most {
		kit.Wrong(l.t, what, wait, fmt.Sprintf("%v to %v until the bucket holds %.0f, because it holds %v", max(least, 0), most, tokens, b))
	}
}

// seconds returns s as a Duration, or the longest Duration if s is longer.
func seconds(s float64) time.Duration {
	if s *= float64(time.Second); s < math.MaxInt64 {
		return time.Duration(s)
	}
	return math.MaxInt64
}

// checkAdjust calls Adjust and checks that it returns no error.
func (l *tracker) checkAdjust(draws ...llmhttp.BucketAmount) {
	l.t.Helper()
	draws = l.withSubjects(draws)
	passed := slices.Clone(draws)
	begin := time.Now()
	err := l.limiter.Adjust(l.t.Context(), passed...)
	end := time.Now()
	call := "Adjust" + kit.Describe(draws)
	kit.Must(l.t, call, err)
	l.wantUnchanged(call, passed, draws)
	for _, d := range draws {
		l.refill(d, begin, end).spend(d.Amount)
	}
}
