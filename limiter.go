// The Limiter in memory, and the requests in progress that a Handler counts itself. Each shard of the
// Limiter has a lock. A call for several subjects holds the locks of all their shards, and acquires them
// in the order of the shards.

package llmhttp

import (
	"cmp"
	"context"
	"hash/maphash"
	"maps"
	"math"
	"math/bits"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/llmhttp/llmhttp/internal/slots"
)

// NewLimiter returns a Limiter that keeps its buckets in memory, for a single
// process. It evicts the buckets of a subject within minutes of all of them being
// full. Clients can name any number of end users, so it keeps about 262,144 subjects of
// [KindUser]: of more, it forgets those whose buckets would be full first, which are those that
// have been idle for longest if their rates are the same, and never one in debt. Its methods
// return no errors.
func NewLimiter() Limiter { return &memoryLimiter{seed: maphash.MakeSeed()} }

const (
	limiterShards = 64

	// evictEvery is how often a shard evicts its full buckets.
	evictEvery = time.Minute

	// maxShardUsers is the number of end users above which a shard forgets some. Each has about
	// 400 bytes.
	maxShardUsers = 4096

	// never is the RetryAfter of a cost that a bucket can never hold.
	never = time.Duration(math.MaxInt64)
)

// A memoryLimiter spreads subjects over shards, so that requests of different subjects seldom
// wait for the same lock. All buckets of a subject are in one shard. A Take of several
// subjects holds the locks of all their shards, which it acquires in the order of the array.
type memoryLimiter struct {
	seed   maphash.Seed
	shards [limiterShards]limiterShard
}

type limiterShard struct {
	mu       sync.Mutex // guards the fields below and the buckets
	subjects map[SubjectID]subjectBuckets
	peak     int         // the largest len(subjects) since the map was allocated
	users    int         // how many of subjects are of KindUser
	forgetAt int         // the number of users above which evict is to be called at once
	timer    *time.Timer // calls evict; it runs while there are subjects
}

// subjectBuckets are the buckets of a subject. A subject has few, so a list is searched
// fastest; one with many also has an index.
type subjectBuckets struct {
	list  []bucket
	index map[string]int // in list, by name; nil up to maxUnindexed buckets
}

const maxUnindexed = 16

func (sb *subjectBuckets) find(name string) *bucket {
	if sb.index != nil {
		if i, ok := sb.index[name]; ok {
			return &sb.list[i]
		}
		return nil
	}
	for i := range sb.list {
		if sb.list[i].name == name {
			return &sb.list[i]
		}
	}
	return nil
}

func (sb *subjectBuckets) add(b bucket) {
	sb.list = append(sb.list, b)
	if sb.index == nil && len(sb.list) > maxUnindexed {
		sb.index = make(map[string]int)
		for i := range sb.list {
			sb.index[sb.list[i].name] = i
		}
	}
	if sb.index != nil {
		sb.index[b.name] = len(sb.list) - 1
	}
}

// A bucket is a token bucket with its name and its Rate, defaults filled in.
type bucket struct {
	name   string
	rate   Rate
	tokens *rate.Limiter
}

func (l *memoryLimiter) Take(_ context.Context, draws ...BucketAmount) ([]BucketLevel, error) {
	if len(draws) == 0 {
		return nil, nil
	}
	locked := l.lock(draws)
	defer l.unlock(locked)
	// The time is read under the lock. A rate.Limiter that sees time run
	// backwards counts what it gained in between twice.
	now := time.Now()
	buckets := make([]bucket, 0, 3) // on the stack for the draws of a Handler
	levels := make([]BucketLevel, len(draws))
	granted := true
	var s *limiterShard
	var ofSubject subjectBuckets
	for i := range draws {
		if i == 0 || draws[i].Subject != draws[i-1].Subject {
			s = l.shard(locked, draws[i].Subject)
			ofSubject = s.subjects[draws[i].Subject]
		}
		b := s.getBucket(&ofSubject, &draws[i], now)
		buckets = append(buckets, b)
		levels[i].RetryAfter = b.retryAfter(b.tokens.TokensAt(now), draws[i].Amount)
		granted = granted && levels[i].RetryAfter == 0
	}
	for i := range buckets {
		b := &buckets[i]
		if granted {
			b.take(draws[i].Amount, now)
		}
		tokens := b.tokens.TokensAt(now)
		levels[i].Remaining = b.remaining(tokens)
		levels[i].ResetAfter = b.timeToReach(float64(b.rate.Burst), tokens)
	}
	return levels, nil
}

func (l *memoryLimiter) Adjust(_ context.Context, draws ...BucketAmount) error {
	if len(draws) == 0 {
		return nil
	}
	locked := l.lock(draws)
	defer l.unlock(locked)
	now := time.Now() // under the lock, as in Take
	var s *limiterShard
	var ofSubject subjectBuckets
	for i := range draws {
		if i == 0 || draws[i].Subject != draws[i-1].Subject {
			s = l.shard(locked, draws[i].Subject)
			ofSubject = s.subjects[draws[i].Subject]
		}
		b := s.getBucket(&ofSubject, &draws[i], now)
		b.take(draws[i].Amount, now)
	}
	return nil
}

// A shardSet has a bit for each shard.
type shardSet uint64

const _ = uint(64 - limiterShards) // does not compile if there are more

// lock locks the shards of draws, in the order of their indices, and returns which they are.
func (l *memoryLimiter) lock(draws []BucketAmount) (locked shardSet) {
	for i := range draws {
		if i == 0 || draws[i].Subject != draws[i-1].Subject {
			locked |= 1 << l.shardIndex(draws[i].Subject)
		}
	}
	for rest := locked; rest != 0; rest &= rest - 1 {
		l.shards[bits.TrailingZeros64(uint64(rest))].mu.Lock()
	}
	return locked
}

func (l *memoryLimiter) unlock(locked shardSet) {
	for ; locked != 0; locked &= locked - 1 {
		l.shards[bits.TrailingZeros64(uint64(locked))].mu.Unlock()
	}
}

// shardIndex returns the index of the shard of s, which depends only on its ID.
func (l *memoryLimiter) shardIndex(s SubjectID) uint64 {
	return maphash.String(l.seed, s.ID) % limiterShards
}

// shard returns the shard of s, which is one of locked.
func (l *memoryLimiter) shard(locked shardSet, s SubjectID) *limiterShard {
	if locked&(locked-1) == 0 { // it is the only one
		return &l.shards[bits.TrailingZeros64(uint64(locked))]
	}
	return &l.shards[l.shardIndex(s)]
}

// getBucket returns the bucket of a draw, with the Rate of the draw. It creates
// the bucket if there is none. buckets are those in s.subjects of the subject. It is called
// with mu held.
func (s *limiterShard) getBucket(buckets *subjectBuckets, d *BucketAmount, now time.Time) bucket {
	r := d.Rate.WithDefaults()
	if b := buckets.find(d.Bucket); b != nil {
		if b.rate != r {
			b.rate = r
			b.tokens.SetLimitAt(now, refillRate(r))
			b.tokens.SetBurstAt(now, r.Burst)
		}
		return *b
	}
	if s.subjects == nil {
		s.subjects = make(map[SubjectID]subjectBuckets)
		s.forgetAt = maxShardUsers
		s.timer = time.AfterFunc(evictEvery, s.evict)
	}
	if d.Subject.Kind == KindUser && len(buckets.list) == 0 {
		if s.users++; s.users > s.forgetAt {
			s.timer.Reset(0) // the call in progress uses the buckets of its subjects
		}
	}
	b := bucket{d.Bucket, r, rate.NewLimiter(refillRate(r), r.Burst)}
	buckets.add(b)
	s.subjects[d.Subject] = *buckets
	s.peak = max(s.peak, len(s.subjects))
	return b
}

// evict removes the subjects whose buckets are all full, because new buckets are
// the same. If there are too many end users left, it forgets some of them.
func (s *limiterShard) evict() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.users = 0
	maps.DeleteFunc(s.subjects, func(id SubjectID, buckets subjectBuckets) bool {
		isFull := !slices.ContainsFunc(buckets.list, func(b bucket) bool {
			return b.tokens.TokensAt(now) < float64(b.rate.Burst)
		})
		if !isFull && id.Kind == KindUser {
			s.users++
		}
		return isFull
	})
	if s.users > maxShardUsers {
		s.forgetUsers(s.users-maxShardUsers/4*3, now)
	}
	if len(s.subjects) == 0 {
		s.subjects, s.peak, s.timer = nil, 0, nil
		return
	}
	s.forgetAt = max(maxShardUsers, s.users+maxShardUsers/4) // users in debt may be more
	if len(s.subjects) < s.peak/2 {                          // a map keeps the memory of deleted entries
		s.subjects, s.peak = maps.Collect(maps.All(s.subjects)), len(s.subjects)
	}
	s.timer.Reset(evictEvery)
}

// forgetUsers removes n of the end users who owe nothing, those whose buckets would be full first,
// or all of them if there are fewer. It is called with mu held.
func (s *limiterShard) forgetUsers(n int, now time.Time) {
	type candidate struct {
		id     SubjectID
		fullIn time.Duration
	}
	var candidates []candidate
	for id, buckets := range s.subjects {
		if id.Kind != KindUser {
			continue
		}
		if fullIn, owes := buckets.timeToFull(now); !owes {
			candidates = append(candidates, candidate{id, fullIn})
		}
	}
	slices.SortFunc(candidates, func(a, b candidate) int { return cmp.Compare(a.fullIn, b.fullIn) })
	for _, c := range candidates[:min(n, len(candidates))] {
		delete(s.subjects, c.id)
		s.users--
	}
}

// timeToFull returns the time until all buckets are full, and reports whether one is in debt.
func (sb *subjectBuckets) timeToFull(now time.Time) (wait time.Duration, owes bool) {
	for i := range sb.list {
		b := &sb.list[i]
		tokens := b.tokens.TokensAt(now)
		wait, owes = max(wait, b.timeToReach(float64(b.rate.Burst), tokens)), owes || tokens < -b.epsilon()
	}
	return wait, owes
}

func refillRate(r Rate) rate.Limit { return rate.Limit(float64(r.N) / r.Per.Seconds()) }

// take takes cost, which may leave b in debt. A negative cost returns tokens; the rate.Limiter
// discards those beyond its burst when it is next read.
func (b *bucket) take(cost int64, now time.Time) {
	if cost > int64(b.rate.Burst) { // which ReserveN refuses
		b.tokens.SetBurstAt(now, math.MaxInt)
		defer b.tokens.SetBurstAt(now, b.rate.Burst)
	}
	b.tokens.ReserveN(now, int(max(min(cost, math.MaxInt), math.MinInt))) // an int may have 32 bits
}

// retryAfter returns the time until b, which holds tokens, holds cost.
func (b *bucket) retryAfter(tokens float64, cost int64) time.Duration {
	switch {
	case cost == 0:
		return 0
	case cost > int64(b.rate.Burst):
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

// remaining returns tokens as a whole number from zero to the burst.
func (b *bucket) remaining(tokens float64) int64 {
	tokens += min(b.epsilon(), 0.5) // so that a whole number remains that
	if tokens >= float64(b.rate.Burst) {
		return int64(b.rate.Burst) // a float64 of it may be larger, and not fit in an int64
	}
	return int64(max(tokens, 0))
}

// epsilon returns the number of tokens that may be missing because of rounding. Ignoring them makes a
// wait of RetryAfter always suffice. Of large buckets these are a few units in the last place of a
// float64: TestBucket_WaitOfRetryAfterSuffices finds up to 1.7e-15 of the burst.
func (b *bucket) epsilon() float64 { return max(1e-6, 4e-15*float64(b.rate.Burst)) }

// A localSlots counts what the requests of a Handler have in use, where the Limiter is no
// [ConcurrencyLimiter].
type localSlots struct{ table slots.Table[slotID] }

// A slotID tells slots apart.
type slotID struct {
	subject SubjectID
	name    string
}

// Acquire is like that of a [ConcurrencyLimiter], but release must be called only once.
func (l *localSlots) Acquire(_ context.Context, wanted ...SlotAmount) (release func(), full int, err error) {
	list := make([]slots.Slot[slotID], len(wanted))
	for i := range wanted {
		w := &wanted[i]
		list[i] = slots.Slot[slotID]{Key: slotID{w.Subject, w.Name}, Amount: w.Amount, Limit: w.Limit}
	}
	release, full = l.table.Acquire(list...)
	return release, full, nil
}
