package llmhttp

import (
	"context"
	"hash/maphash"
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// NewLimiter returns a Limiter for one process. It forgets a bucket within
// minutes of its being full again, for it is then like a new one.
func NewLimiter() Limiter { return &limiter{seed: maphash.MakeSeed()} }

const (
	limiterShards = 64

	// sweepEvery is how often full buckets are looked for.
	sweepEvery = time.Minute
)

// A limiter keeps the buckets of a key, which are drawn on together, in one
// shard, so that a decision over all of them takes one lock.
type limiter struct {
	seed   maphash.Seed
	shards [limiterShards]shard

	sweeping sync.Mutex
	timer    *time.Timer
	armed    bool
}

type shard struct {
	mu      sync.Mutex
	buckets map[string]*bucket
}

type bucket struct {
	limiter *rate.Limiter
	rate    Rate
}

func (l *limiter) shard(bucket string) *shard {
	return &l.shards[maphash.String(l.seed, bucketKey(bucket))%limiterShards]
}

// lock locks the shards of draws, in the order of their addresses in the array.
func (l *limiter) lock(draws []Draw) (unlock func()) {
	first := l.shard(draws[0].Bucket)
	same := true
	for _, d := range draws[1:] {
		same = same && l.shard(d.Bucket) == first
	}
	if same {
		first.mu.Lock()
		return first.mu.Unlock
	}
	var used [limiterShards]bool
	for _, d := range draws {
		used[maphash.String(l.seed, bucketKey(d.Bucket))%limiterShards] = true
	}
	for i := range used {
		if used[i] {
			l.shards[i].mu.Lock()
		}
	}
	return func() {
		for i := range used {
			if used[i] {
				l.shards[i].mu.Unlock()
			}
		}
	}
}

// bucket returns the bucket that d draws on, whose shard is locked.
func (l *limiter) bucket(d Draw, now time.Time) *bucket {
	s := l.shard(d.Bucket)
	b := s.buckets[d.Bucket]
	if b == nil {
		r := d.Rate.Normal()
		b = &bucket{rate.NewLimiter(limitOf(r), r.Burst), d.Rate}
		if s.buckets == nil {
			s.buckets = make(map[string]*bucket)
		}
		s.buckets[d.Bucket] = b
		l.arm()
	}
	if b.rate != d.Rate {
		r := d.Rate.Normal()
		b.limiter.SetLimitAt(now, limitOf(r))
		b.limiter.SetBurstAt(now, r.Burst)
		b.rate = d.Rate
	}
	return b
}

func limitOf(r Rate) rate.Limit {
	return rate.Limit(float64(r.N) / r.Per.Seconds())
}

func (l *limiter) Take(ctx context.Context, draws ...Draw) ([]Level, error) {
	if len(draws) == 0 {
		return nil, nil
	}
	now := time.Now()
	levels := make([]Level, len(draws))
	defer l.lock(draws)()
	granted := true
	for i, d := range draws {
		b := l.bucket(d, now)
		if wait := b.wait(now, d.Cost); wait > 0 {
			granted = false
			levels[i].RetryAfter = wait
		}
	}
	for i, d := range draws {
		b := l.bucket(d, now)
		if granted {
			b.spend(now, d.Cost)
		}
		b.level(now, &levels[i])
	}
	return levels, nil
}

func (l *limiter) Adjust(ctx context.Context, draws ...Draw) error {
	if len(draws) == 0 {
		return nil
	}
	now := time.Now()
	defer l.lock(draws)()
	for _, d := range draws {
		l.bucket(d, now).spend(now, d.Cost)
	}
	return nil
}

// never is the wait for what a bucket cannot hold.
const never = time.Duration(math.MaxInt64)

// wait returns how long it takes until b holds cost.
func (b *bucket) wait(now time.Time, cost int) time.Duration {
	if cost <= 0 {
		return 0
	}
	if cost > b.limiter.Burst() {
		return never
	}
	return b.until(b.limiter.TokensAt(now) - float64(cost))
}

// until returns how long it takes to gain what is short of zero.
func (b *bucket) until(short float64) time.Duration {
	if short >= 0 {
		return 0
	}
	seconds := -short / float64(b.limiter.Limit())
	if seconds >= never.Seconds() {
		return never
	}
	return max(time.Duration(seconds*float64(time.Second)), 1)
}

// spend takes cost from b, whatever it holds.
func (b *bucket) spend(now time.Time, cost int) {
	if cost == 0 {
		return
	}
	// A rate.Limiter takes no more than its burst at once, and keeps what is
	// given back above that until it is next looked at.
	burst := b.limiter.Burst()
	if cost > burst {
		b.limiter.SetBurstAt(now, math.MaxInt)
		b.limiter.ReserveN(now, cost)
		b.limiter.SetBurstAt(now, burst)
		return
	}
	b.limiter.ReserveN(now, cost)
}

func (b *bucket) level(now time.Time, l *Level) {
	tokens := b.limiter.TokensAt(now)
	l.Remaining = max(int(tokens), 0)
	if b.limiter.Burst() > 0 {
		l.ResetAfter = b.until(tokens - float64(b.limiter.Burst()))
	}
}

// arm sees to it that full buckets are looked for as long as there are any.
func (l *limiter) arm() {
	l.sweeping.Lock()
	defer l.sweeping.Unlock()
	if l.armed {
		return
	}
	l.armed = true
	if l.timer == nil {
		l.timer = time.AfterFunc(sweepEvery, l.sweep)
	} else {
		l.timer.Reset(sweepEvery)
	}
}

// sweep forgets the buckets that are full.
func (l *limiter) sweep() {
	l.sweeping.Lock()
	l.armed = false
	l.sweeping.Unlock()
	left := 0
	for i := range l.shards {
		left += l.shards[i].sweep(time.Now())
	}
	if left > 0 {
		l.arm()
	}
}

func (s *shard) sweep(now time.Time) (left int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := len(s.buckets)
	for name, b := range s.buckets {
		if b.limiter.TokensAt(now) >= float64(b.limiter.Burst()) {
			delete(s.buckets, name)
		}
	}
	left = len(s.buckets)
	if left < before/2 {
		// A map keeps the memory of what was deleted from it.
		smaller := make(map[string]*bucket, left)
		for name, b := range s.buckets {
			smaller[name] = b
		}
		s.buckets = smaller
	}
	return left
}
