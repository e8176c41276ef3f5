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
	rates rateSet // of the buckets in it
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
	rateID uint32 // of the last draw's Rate; zero for none yet
}

// A bucket is a holding with the rate at which it fills from now on.
type bucket struct {
	*holding
	flow
}

// A flow is a Rate as it is counted with.
type flow struct {
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
	var room *pair // of this hash, for one bucket more
	for i := hash / limiterShards; ; i++ {
		p := &s.table[i&last]
		switch {
		case p.hash == hash:
			switch tag {
			case p.tags[0]:
				return &p.holds[0], false
			case p.tags[1]:
				return &p.holds[1], false
			}
			if p.tags[1] == 0 {
				room = p // though the bucket may be in a pair behind it
			}
		case p.hash != 0:
		case room != nil:
			room.tags[1] = tag
			return &room.holds[1], true
		default:
			p.hash, p.tags[0] = hash, tag
			s.used++
			return &p.holds[0], true
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
		case s.full(&p.holds[0], now) && s.full(&p.holds[1], now):
			p.hash = 0
			s.rates.leave(p.holds[0].rateID)
			s.rates.leave(p.holds[1].rateID)
		default:
			left++
		}
	}
	if left == s.used {
		return left
	}
	s.used = left
	if left == 0 {
		s.table, s.rates = nil, rateSet{}
		return 0
	}
	size := 8
	for size/4*3 <= left {
		size *= 2
	}
	s.resize(size) // those behind a gap could not be found
	return left
}

// full reports whether h is full, which a holding of no bucket is.
func (s *shard) full(h *holding, now time.Duration) bool {
	return h.rateID == 0 || h.held(now, s.rates.list[h.rateID].flow) >= s.rates.list[h.rateID].burst
}

// bucket returns h as a bucket with the rate r, which is from now on. A new one
// is full.
func (s *shard) bucket(h *holding, now time.Duration, r Rate) bucket {
	if h.rateID == 0 {
		h.rateID = s.rates.join(r)
		h.tokens, h.at = s.rates.list[h.rateID].burst, now
	}
	of := &s.rates.list[h.rateID]
	h.tokens, h.at = h.held(now, of.flow), max(h.at, now)
	if of.Rate != r {
		s.rates.leave(h.rateID)
		h.rateID = s.rates.join(r)
		of = &s.rates.list[h.rateID]
		h.tokens = min(h.tokens, of.burst)
	}
	return bucket{h, of.flow}
}

// held returns what h, which fills by f, holds now. Where time seems to go
// back, nothing was gained.
func (h *holding) held(now time.Duration, f flow) float64 {
	return min(h.tokens+float64(max(0, now-h.at))*f.rate, f.burst)
}

// A rateSet is the Rates of a shard's buckets, which have a number each, so
// that a bucket needs no room for its own: most buckets share few of them.
type rateSet struct {
	list []ratesEntry // by number, from 1
	ids  map[Rate]uint32
	free []uint32 // numbers nobody uses
}

type ratesEntry struct {
	Rate // as draws have it
	flow
	buckets int // that have it
}

// join returns the number of r, for one bucket more.
func (s *rateSet) join(r Rate) uint32 {
	id, ok := s.ids[r]
	if !ok {
		if s.ids == nil {
			s.ids = map[Rate]uint32{}
			s.list = make([]ratesEntry, 1)
		}
		if last := len(s.free) - 1; last >= 0 {
			id, s.free = s.free[last], s.free[:last]
		} else {
			id = uint32(len(s.list))
			s.list = append(s.list, ratesEntry{})
		}
		n := r.WithDefaults()
		s.list[id] = ratesEntry{Rate: r, flow: flow{float64(n.N) / float64(n.Per), float64(n.Burst)}}
		s.ids[r] = id
	}
	s.list[id].buckets++
	return id
}

// leave takes one bucket from the Rate with the number id, which may be zero.
func (s *rateSet) leave(id uint32) {
	if id == 0 {
		return
	}
	e := &s.list[id]
	if e.buckets--; e.buckets == 0 {
		delete(s.ids, e.Rate)
		s.free = append(s.free, id)
	}
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
