package llmhttp

import (
	"context"
	"hash/maphash"
	"math/bits"
	"sync"
	"time"
)

// NewLimiter returns a Limiter for one process. It forgets a bucket within
// minutes of its being full again, for it is then like a new one.
func NewLimiter() Limiter { return &limiter{seed: maphash.MakeSeed(), epoch: time.Now()} }

const (
	limiterShards = 64 // as many as a shardSet has bits

	// sweepEvery is how often full buckets are looked for.
	sweepEvery = time.Minute
)

// A limiter keeps the buckets of a key, which are drawn on together, in one
// place: a decision over all of them takes one lock and one look-up.
type limiter struct {
	seed   maphash.Seed
	epoch  time.Time // from which it counts time
	shards [limiterShards]shard

	sweeping sync.Mutex
	timer    *time.Timer
	armed    bool
}

func (l *limiter) Take(ctx context.Context, draws ...Draw) ([]Level, error) {
	if len(draws) == 0 {
		return nil, nil
	}
	levels := make([]Level, len(draws))
	l.take(levels, draws)
	return levels, nil
}

// take is Take into levels, of which there are as many as draws. It keeps
// neither.
func (l *limiter) take(levels []Level, draws []Draw) {
	var space opening
	hashes := l.hashes(space.hashes[:0], draws)
	set := l.lock(hashes)
	defer l.unlock(set)
	buckets := l.buckets(space.buckets[:0], hashes, draws)
	granted := true
	for i := range buckets {
		b := &buckets[i]
		if levels[i].RetryAfter = b.wait(draws[i].Cost); levels[i].RetryAfter > 0 {
			granted = false
		}
	}
	for i := range buckets {
		b := &buckets[i]
		if granted {
			b.spend(draws[i].Cost)
		}
		b.level(&levels[i])
	}
}

func (l *limiter) Adjust(ctx context.Context, draws ...Draw) error {
	var space opening
	hashes := l.hashes(space.hashes[:0], draws)
	set := l.lock(hashes)
	defer l.unlock(set)
	buckets := l.buckets(space.buckets[:0], hashes, draws)
	for i := range buckets {
		buckets[i].spend(draws[i].Cost)
	}
	return nil
}

// An opening is memory for a look at the buckets of some draws.
type opening struct {
	hashes  [4]uint64
	buckets [4]bucket
}

// hash returns the hash of a part of a bucket's name, which is not zero.
func (l *limiter) hash(s string) uint64 { return max(maphash.String(l.seed, s), 1) }

// hashes appends the hashes of the draws' groups.
func (l *limiter) hashes(to []uint64, draws []Draw) []uint64 {
	last := ""
	for i := range draws {
		if group := bucketKey(draws[i].Bucket); i == 0 || group != last {
			to = append(to, l.hash(group))
			last = group
		} else {
			to = append(to, to[i-1])
		}
	}
	return to
}

// shardSet is a set of shards by their number.
type shardSet uint64

// lock locks the shards of groups, always in the same order, and returns them.
func (l *limiter) lock(hashes []uint64) (set shardSet) {
	for _, h := range hashes {
		set |= 1 << (h % limiterShards)
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

// buckets appends the buckets of draws, as they are now. Their shards are
// locked.
func (l *limiter) buckets(to []bucket, hashes []uint64, draws []Draw) []bucket {
	now := time.Since(l.epoch)
	grown := false
	for i := range draws {
		d := &draws[i]
		tag := uint32(l.hash(d.Bucket[len(bucketKey(d.Bucket)):])) | 1
		s := &l.shards[hashes[i]%limiterShards]
		h, fresh := s.find(hashes[i], tag)
		to = append(to, s.bucket(h, now, d.Rate))
		grown = grown || fresh
	}
	if grown {
		l.arm()
		return l.buckets(to[:0], hashes, draws) // those found before a new one may have moved
	}
	return to
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
		left += l.shards[i].sweep(time.Since(l.epoch))
	}
	if left > 0 {
		l.arm()
	}
}
