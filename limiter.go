package llmhttp

import (
	"context"
	"hash/maphash"
	"math"
	"math/bits"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// NewLimiter returns a Limiter for one process. It forgets a bucket within
// minutes of its being full again, for it is then like a new one.
func NewLimiter() Limiter { return &limiter{seed: maphash.MakeSeed()} }

const (
	limiterShards = 64 // as many as a shardSet has bits

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

// shard returns the number of the shard that bucket is in.
func (l *limiter) shard(bucket string) uint {
	return uint(maphash.String(l.seed, bucketKey(bucket)) % limiterShards)
}

// shardSet is a set of shards by their number.
type shardSet uint64

// lock locks the shards of draws, always in the same order, and returns them.
func (l *limiter) lock(draws []Draw) shardSet {
	var set shardSet
	for i := range draws {
		if i == 0 || bucketKey(draws[i].Bucket) != bucketKey(draws[i-1].Bucket) {
			set |= 1 << l.shard(draws[i].Bucket)
		}
	}
	for rest := set; rest != 0; rest &= rest - 1 {
		l.shards[bits.TrailingZeros64(uint64(rest))].mu.Lock()
	}
	return set
}

func (l *limiter) unlock(set shardSet) {
	for ; set != 0; set &= set - 1 {
		l.shards[bits.TrailingZeros64(uint64(set))].mu.Unlock()
	}
}

// bucket returns the bucket that d draws on. Its shard is locked: it is the
// one in set, if there is only one.
func (l *limiter) bucket(d *Draw, set shardSet, now time.Time) *bucket {
	number := bits.TrailingZeros64(uint64(set))
	if set&(set-1) != 0 {
		number = int(l.shard(d.Bucket))
	}
	s := &l.shards[number]
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
	levels := make([]Level, len(draws))
	var few [4]*bucket
	buckets := few[:0]
	set := l.lock(draws)
	defer l.unlock(set)
	now := time.Now() // a bucket that saw time go back would gain it twice
	granted := true
	for i := range draws {
		b := l.bucket(&draws[i], set, now)
		buckets = append(buckets, b)
		if wait := b.wait(now, draws[i].Cost); wait > 0 {
			granted = false
			levels[i].RetryAfter = wait
		}
	}
	for i, b := range buckets {
		if granted {
			b.spend(now, draws[i].Cost)
		}
		b.level(now, &levels[i])
	}
	return levels, nil
}

func (l *limiter) Adjust(ctx context.Context, draws ...Draw) error {
	if len(draws) == 0 {
		return nil
	}
	set := l.lock(draws)
	defer l.unlock(set)
	now := time.Now()
	for i := range draws {
		l.bucket(&draws[i], set, now).spend(now, draws[i].Cost)
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
	if l.Remaining = math.MaxInt; tokens < math.MaxInt {
		l.Remaining = max(int(tokens), 0)
	}
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
