package llmhttp

import (
	"context"
	"hash/maphash"
	"maps"
	"math"
	"math/bits"
	"strings"
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
// place: a decision over all of them takes one lock and one look-up.
type limiter struct {
	seed   maphash.Seed
	shards [limiterShards]shard

	sweeping sync.Mutex
	timer    *time.Timer
	armed    bool
}

type shard struct {
	mu     sync.Mutex
	groups map[string]*group // by what the names of their buckets have in common
}

// A group is the buckets whose names are alike up to their last colon.
type group struct{ buckets []bucket }

// A bucket lies in its group, and so does its rate.Limiter: with a million of
// them each pointer to follow is a wait for memory.
type bucket struct {
	tag     uint64 // the hash of the rest of its name
	rate    Rate
	limiter rate.Limiter
}

// shardSet is a set of shards by their number.
type shardSet uint64

// shard returns the number of the shard that a group is in.
func (l *limiter) shard(group string) int {
	return int(maphash.String(l.seed, group) % limiterShards)
}

// lock locks the shards of draws, always in the same order, and returns them.
func (l *limiter) lock(draws []Draw) shardSet {
	var set shardSet
	last := ""
	for i := range draws {
		if group := bucketKey(draws[i].Bucket); i == 0 || group != last {
			set |= 1 << l.shard(group)
			last = group
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

// A finder finds the buckets of draws, most of which are in one group.
type finder struct {
	l     *limiter
	set   shardSet // which are locked
	now   time.Time
	name  string // of the group found last
	group *group
}

// bucket returns the bucket that d draws on. It is valid until the next is
// asked for that is new.
func (f *finder) bucket(d *Draw) *bucket {
	if name := bucketKey(d.Bucket); f.group == nil || name != f.name {
		number := bits.TrailingZeros64(uint64(f.set))
		if f.set&(f.set-1) != 0 {
			number = f.l.shard(name)
		}
		f.name, f.group = name, f.l.shards[number].group(f.l, name)
	}
	g := f.group
	tag := maphash.String(f.l.seed, d.Bucket[len(f.name):])
	for i := range g.buckets {
		if b := &g.buckets[i]; b.tag == tag {
			b.limit(f.now, d.Rate)
			return b
		}
	}
	if g.buckets == nil {
		g.buckets = make([]bucket, 0, 2)
	}
	g.buckets = append(g.buckets, bucket{tag: tag})
	b := &g.buckets[len(g.buckets)-1]
	b.limit(f.now, d.Rate)
	b.limiter.ReserveN(f.now, -b.limiter.Burst()) // it is full at first
	return b
}

func (s *shard) group(l *limiter, name string) *group {
	g := s.groups[name]
	if g == nil {
		g = new(group)
		if s.groups == nil {
			s.groups = make(map[string]*group)
		}
		s.groups[strings.Clone(name)] = g
		l.arm()
	}
	return g
}

// limit gives b its rate, if it has another.
func (b *bucket) limit(now time.Time, r Rate) {
	if b.rate == r {
		return
	}
	b.rate = r
	r = r.Normal()
	b.limiter.SetLimitAt(now, limitOf(r))
	b.limiter.SetBurstAt(now, r.Burst)
}

func limitOf(r Rate) rate.Limit {
	return rate.Limit(float64(r.N) / r.Per.Seconds())
}

func (l *limiter) Take(ctx context.Context, draws ...Draw) ([]Level, error) {
	if len(draws) == 0 {
		return nil, nil
	}
	levels := make([]Level, len(draws))
	set := l.lock(draws)
	defer l.unlock(set)
	f := finder{l: l, set: set, now: time.Now()} // a bucket that saw time go back would gain it twice
	granted := true
	for i := range draws {
		if wait := f.bucket(&draws[i]).wait(f.now, draws[i].Cost); wait > 0 {
			granted = false
			levels[i].RetryAfter = wait
		}
	}
	for i := range draws {
		b := f.bucket(&draws[i])
		if granted {
			b.spend(f.now, draws[i].Cost)
		}
		b.level(f.now, &levels[i])
	}
	return levels, nil
}

func (l *limiter) Adjust(ctx context.Context, draws ...Draw) error {
	if len(draws) == 0 {
		return nil
	}
	set := l.lock(draws)
	defer l.unlock(set)
	f := finder{l: l, set: set, now: time.Now()}
	for i := range draws {
		f.bucket(&draws[i]).spend(f.now, draws[i].Cost)
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
	return time.Duration(math.Ceil(seconds * float64(time.Second)))
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
	before := len(s.groups)
	for name, g := range s.groups {
		if g.full(now) {
			delete(s.groups, name)
		}
	}
	left = len(s.groups)
	if left < before/2 {
		// A map keeps the memory of what was deleted from it.
		smaller := make(map[string]*group, left)
		maps.Copy(smaller, s.groups)
		s.groups = smaller
	}
	return left
}

func (g *group) full(now time.Time) bool {
	for i := range g.buckets {
		if l := &g.buckets[i].limiter; l.TokensAt(now) < float64(l.Burst()) {
			return false
		}
	}
	return true
}
