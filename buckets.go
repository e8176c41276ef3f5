package llmhttp

import (
	"math"
	"sync"
	"time"
)

// A shard keeps buckets in one open table, without a pointer in it: with a
// million of them each pointer to follow is a wait for memory, and work for the
// garbage collector.
type shard struct {
	mu    sync.Mutex
	table []pair // of a length that is a power of two, or zero; a pair is at its hash or soon after
	used  int
}

// A pair is two buckets whose names are alike up to their last colon; where
// there are more than two, there are more pairs of the same hash. It fills one
// line of a CPU's cache.
type pair struct {
	hash  uint64    // of what the names have in common; zero for no pair
	tags  [2]uint32 // hashes of the rest; zero for no bucket
	holds [2]holding
}

// A holding is what a bucket holds.
type holding struct {
	tokens float64 // at the time at; below zero is a debt
	at     time.Duration

	// Of the last draw: exact enough to tell whether the next one has others.
	rate, burst float32
}

// A bucket is a holding with the rate at which it fills from now on.
type bucket struct {
	*holding
	rate  float64 // tokens a nanosecond
	burst float64
}

// crumb is how much of a token may be lost in rounding. Whoever waits until a
// token is due gets it, and owes the crumb.
const crumb = 1e-6

// find returns what the bucket with the given hashes holds, and whether it is
// new. It is valid until there is another new one.
func (s *shard) find(hash uint64, tag uint32) (h *holding, fresh bool) {
	if s.used >= len(s.table)/4*3 {
		s.resize(max(2*len(s.table), 8))
	}
	last := uint64(len(s.table) - 1)
	for i := hash / limiterShards; ; i++ {
		p := &s.table[i&last]
		if p.hash == 0 {
			p.hash = hash
			s.used++
		}
		if p.hash != hash {
			continue
		}
		for k := range p.tags {
			switch p.tags[k] {
			case tag:
				return &p.holds[k], false
			case 0:
				p.tags[k] = tag
				return &p.holds[k], true
			}
		}
	}
}

// resize gives s a table of another size.
func (s *shard) resize(size int) {
	before := s.table
	s.table = make([]pair, size)
	last := uint64(size - 1)
	for k := range before {
		if before[k].hash == 0 {
			continue
		}
		i := before[k].hash / limiterShards
		for s.table[i&last].hash != 0 {
			i++
		}
		s.table[i&last] = before[k]
	}
}

// sweep forgets the pairs whose buckets are full, and returns how many are
// left.
func (s *shard) sweep(now time.Duration) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := 0
	for i := range s.table {
		switch p := &s.table[i]; {
		case p.hash == 0:
		case p.holds[0].full(now) && p.holds[1].full(now):
			p.hash = 0
		default:
			left++
		}
	}
	if left == s.used {
		return left
	}
	s.used = left
	if left == 0 {
		s.table = nil
		return 0
	}
	size := 8
	for size/4*3 <= left {
		size *= 2
	}
	s.resize(size) // those behind a gap could not be found
	return left
}

// full reports whether h is certain to be full, which a holding of no bucket
// is.
func (h *holding) full(now time.Duration) bool {
	const doubt = 1e-6 // more than what rate and burst are off
	gained := float64(now-h.at) * float64(h.rate) * (1 - doubt)
	return h.tokens+gained >= float64(h.burst)*(1+doubt)
}

// filled returns h as a bucket with the rate r, which is from now on. A new bucket
// is full.
func (h *holding) filled(now time.Duration, r Rate, fresh bool) bucket {
	r = r.Normal()
	b := bucket{h, float64(r.N) / float64(r.Per), float64(r.Burst)}
	if fresh {
		h.tokens, h.at = b.burst, now
	}
	rate, burst := b.rate, b.burst
	if float32(rate) != h.rate || float32(burst) != h.burst {
		rate, burst = float64(h.rate), float64(h.burst)
		h.rate, h.burst = float32(b.rate), float32(b.burst)
	}
	// Where time seems to go back, nothing was gained.
	if now > h.at {
		h.tokens = min(h.tokens+float64(now-h.at)*rate, max(h.tokens, burst))
		h.at = now
	}
	h.tokens = min(h.tokens, b.burst)
	return b
}

// never is the wait for what a bucket cannot hold.
const never = time.Duration(math.MaxInt64)

// wait returns how long it takes until b holds cost.
func (b *bucket) wait(cost int) time.Duration {
	switch {
	case cost <= 0:
		return 0
	case float64(cost) > b.burst:
		return never
	}
	return b.until(float64(cost))
}

// until returns how long it takes until b holds so many tokens.
func (b *bucket) until(tokens float64) time.Duration {
	short := tokens - b.tokens
	if short <= crumb {
		return 0
	}
	if wait := math.Ceil(short / b.rate); wait < float64(never) {
		return time.Duration(wait)
	}
	return never
}

// spend takes cost from b, whatever it holds.
func (b *bucket) spend(cost int) { b.tokens = min(b.burst, b.tokens-float64(cost)) }

func (b *bucket) level(l *Level) {
	if l.Remaining = math.MaxInt; b.tokens < math.MaxInt {
		l.Remaining = max(int(b.tokens+crumb), 0)
	}
	if b.burst > 0 {
		l.ResetAfter = b.until(b.burst)
	}
}
