package llmhttp

import (
	"context"
	"hash/maphash"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// NewLimiter returns a Limiter that keeps its buckets in memory, for a single
// process. It evicts the buckets of a key within minutes of all of them being
// full. Its methods return no errors.
func NewLimiter() Limiter { return &memoryLimiter{seed: maphash.MakeSeed()} }

const (
	limiterShards = 64

	// evictEvery is how often a shard evicts its full buckets.
	evictEvery = time.Minute

	// never is the RetryAfter of a cost that a bucket can never hold.
	never = time.Duration(math.MaxInt64)
)

// A memoryLimiter spreads keys over shards, so that requests of different keys seldom
// wait for the same lock. All buckets of a key are in one shard: its lock makes
// a Take of several buckets atomic.
type memoryLimiter struct {
	seed   maphash.Seed
	shards [limiterShards]limiterShard
}

type limiterShard struct {
	mu    sync.Mutex // guards the fields below and the buckets
	keys  map[string]keyBuckets
	peak  int         // the largest len(keys) since the map was allocated
	timer *time.Timer // calls evict; it runs while there are keys
}

// keyBuckets are the buckets of a key. A key has few, so a list is searched fastest;
// one with many also has an index.
type keyBuckets struct {
	list  []bucket
	index map[string]int // in list, by name; nil up to maxUnindexed buckets
}

const maxUnindexed = 16

func (k *keyBuckets) find(name string) *bucket {
	if k.index != nil {
		if i, ok := k.index[name]; ok {
			return &k.list[i]
		}
		return nil
	}
	for i := range k.list {
		if k.list[i].name == name {
			return &k.list[i]
		}
	}
	return nil
}

func (k *keyBuckets) add(b bucket) {
	k.list = append(k.list, b)
	if k.index == nil && len(k.list) > maxUnindexed {
		k.index = make(map[string]int)
		for i := range k.list {
			k.index[k.list[i].name] = i
		}
	}
	if k.index != nil {
		k.index[b.name] = len(k.list) - 1
	}
}

// A bucket is a token bucket with its name and its Rate, defaults filled in.
type bucket struct {
	name   string
	rate   Rate
	tokens *rate.Limiter
}

func (l *memoryLimiter) Take(_ context.Context, key string, draws ...Draw) ([]Level, error) {
	if len(draws) == 0 {
		return nil, nil
	}
	s := l.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	// The time is read under the lock. A rate.Limiter that sees time run
	// backwards counts what it gained in between twice.
	now := time.Now()
	buckets := make([]bucket, 0, 3) // on the stack for the draws of a Handler
	levels := make([]Level, len(draws))
	granted := true
	for i := range draws {
		b := s.getBucket(key, &draws[i], now)
		buckets = append(buckets, b)
		levels[i].RetryAfter = b.retryAfter(b.tokens.TokensAt(now), draws[i].Cost)
		granted = granted && levels[i].RetryAfter == 0
	}
	for i := range buckets {
		b := &buckets[i]
		if granted {
			b.take(draws[i].Cost, now)
		}
		tokens := b.tokens.TokensAt(now)
		levels[i].Remaining = b.remaining(tokens)
		levels[i].ResetAfter = b.timeToReach(float64(b.rate.Burst), tokens)
	}
	return levels, nil
}

func (l *memoryLimiter) Adjust(_ context.Context, key string, draws ...Draw) error {
	if len(draws) == 0 {
		return nil
	}
	s := l.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now() // under the lock, as in Take
	for i := range draws {
		b := s.getBucket(key, &draws[i], now)
		b.take(draws[i].Cost, now)
	}
	return nil
}

func (l *memoryLimiter) shard(key string) *limiterShard {
	return &l.shards[maphash.String(l.seed, key)%limiterShards]
}

// getBucket returns the bucket of a draw, with the Rate of the draw. It creates
// the bucket if there is none. It is called with mu held.
func (s *limiterShard) getBucket(key string, d *Draw, now time.Time) bucket {
	r := d.Rate.WithDefaults()
	buckets := s.keys[key]
	if b := buckets.find(d.Bucket); b != nil {
		if b.rate != r {
			b.rate = r
			b.tokens.SetLimitAt(now, refillRate(r))
			b.tokens.SetBurstAt(now, r.Burst)
		}
		return *b
	}
	if s.keys == nil {
		s.keys = make(map[string]keyBuckets)
		s.timer = time.AfterFunc(evictEvery, s.evict)
	}
	b := bucket{d.Bucket, r, rate.NewLimiter(refillRate(r), r.Burst)}
	buckets.add(b)
	s.keys[key] = buckets
	s.peak = max(s.peak, len(s.keys))
	return b
}

// evict removes the keys whose buckets are all full, because new buckets are
// the same.
func (s *limiterShard) evict() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(s.keys, func(_ string, buckets keyBuckets) bool {
		return !slices.ContainsFunc(buckets.list, func(b bucket) bool {
			return b.tokens.TokensAt(now) < float64(b.rate.Burst)
		})
	})
	if len(s.keys) == 0 {
		s.keys, s.peak, s.timer = nil, 0, nil
		return
	}
	if len(s.keys) < s.peak/2 { // a map keeps the memory of deleted entries
		s.keys, s.peak = maps.Collect(maps.All(s.keys)), len(s.keys)
	}
	s.timer.Reset(evictEvery)
}

func refillRate(r Rate) rate.Limit { return rate.Limit(float64(r.N) / r.Per.Seconds()) }

// take takes cost, which may leave b in debt. A negative cost returns tokens;
// the rate.Limiter discards those beyond its burst when it is next read.
func (b *bucket) take(cost int, now time.Time) {
	if cost > b.rate.Burst { // which ReserveN refuses
		b.tokens.SetBurstAt(now, math.MaxInt)
		defer b.tokens.SetBurstAt(now, b.rate.Burst)
	}
	b.tokens.ReserveN(now, cost)
}

// retryAfter returns the time until b, which holds tokens, holds cost.
func (b *bucket) retryAfter(tokens float64, cost int) time.Duration {
	switch {
	case cost == 0:
		return 0
	case cost > b.rate.Burst:
		return never
	}
	return b.timeToReach(float64(cost), tokens)
}

// timeToReach returns how long b, which holds tokens, needs to refill to want.
func (b *bucket) timeToReach(want, tokens float64) time.Duration {
	missing := want - tokens
	if missing <= b.epsilon() {
		return 0
	}
	wait := math.Ceil(missing * float64(b.rate.Per) / float64(b.rate.N))
	if wait >= float64(never) {
		return never
	}
	return time.Duration(wait)
}

// remaining returns tokens as a whole number that is not negative.
func (b *bucket) remaining(tokens float64) int {
	tokens += b.epsilon()
	if tokens >= math.MaxInt {
		return math.MaxInt
	}
	return int(max(tokens, 0))
}

// epsilon returns the number of tokens that may be missing because of rounding.
// Ignoring them makes a wait of RetryAfter always suffice.
func (b *bucket) epsilon() float64 { return max(1e-6, 1e-12*float64(b.rate.Burst)) }

// A concurrencyCounter counts the requests in progress of each key, where the Limiter is no
// [ConcurrencyLimiter].
type concurrencyCounter struct {
	mu sync.Mutex // guards n
	n  map[string]int
}

// Acquire is like that of a [ConcurrencyLimiter], but release must be called only
// once.
func (c *concurrencyCounter) Acquire(_ context.Context, key string, limit int) (release func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n[key] >= limit {
		return nil, nil
	}
	if c.n == nil {
		c.n = make(map[string]int)
	}
	c.n[key]++
	return func() { c.release(key) }, nil
}

func (c *concurrencyCounter) release(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n[key]--; c.n[key] <= 0 {
		delete(c.n, key)
	}
}
