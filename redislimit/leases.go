// What this process has acquired of slots, its renewal and its removal. A lease whose call failed is
// removed later, and once more if a renewal that Redis executed late may have restored it.

package redislimit

import (
	"cmp"
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmhttp/llmhttp"
)

//go:embed leases.lua
var leasesSource string

var leasesScript = newScript(leasesSource)

var errClosed = errors.New("redislimit: the Limiter is closed")

// leases are the leases of this process. A timer renews those in held and removes
// those in toRemove from Redis, while there are any.
type leases struct {
	client   *client
	opts     *Options
	log      *outageLog
	id       string         // begins the names of all leases
	interval time.Duration  // between renewals
	renewals sync.WaitGroup // renewals in progress, for close

	mu       sync.Mutex                  // guards the fields below
	serial   int                         // of the last lease
	held     map[string]map[string]int64 // amounts of leases by their slot in Redis and their name
	toRemove []lease                     // may be in Redis, because release failed or a renewal restored them
	timer    *time.Timer                 // calls renew
	next     time.Time                   // when the timer fires; zero if it is stopped
	closed   bool

	renewing        bool // a renewal is in progress
	lastMayStillRun bool // the last renewal failed, but Redis may still execute it
}

// A lease is an amount in use of a slot, such as a request in progress. Its name is unique.
type lease struct {
	redisKey, name string // of the slot, and of the lease in it
	amount         int64
	subject        llmhttp.SubjectID // of the slot
	settled        int64             // what replaces amount; only set by Limiter.settle
	expires        time.Time         // when Redis has dropped it at the latest; only set in toRemove
}

func newLeases(l *Limiter) *leases {
	return &leases{
		client: &l.client, opts: &l.opts, log: &l.log,
		id: rand.Text()[:16], interval: l.opts.Lease / 3, held: make(map[string]map[string]int64),
	}
}

// newLeases returns a lease with a new name for each slot. They are not in Redis yet.
func (s *leases) newLeases(prefix string, slots []llmhttp.SlotAmount) ([]lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errClosed
	}
	list := make([]lease, len(slots))
	for i, slot := range slots {
		s.serial++
		name := s.id + "." + strconv.Itoa(s.serial) + ":" + strconv.FormatInt(slot.Amount, 10)
		list[i] = lease{redisKey: slotKey(prefix, slot.Subject, slot.Name), name: name, amount: slot.Amount, subject: slot.Subject}
	}
	return list, nil
}

// acquire acquires leases of slots in Redis, all or none. It returns the index of a slot that
// is full, or -1. All slots must be on one node of Redis.
func (s *leases) acquire(ctx context.Context, list []lease, slots []llmhttp.SlotAmount) (full int, err error) {
	keys := make([]string, 0, len(list))
	args := make([]any, 0, 2+2*len(list))
	args = append(args, "acquire", s.opts.Lease.Milliseconds())
	for i, l := range list {
		keys = append(keys, l.redisKey)
		args = append(args, slots[i].Limit, l.name)
	}
	reply, err := s.client.run(ctx, leasesScript, keys, args...)
	if err != nil {
		return 0, err
	}
	index, err := reply.Int()
	if err == nil && index > len(list) {
		err = fmt.Errorf("slot %d of %d is full", index, len(list))
	}
	if err != nil {
		return 0, fmt.Errorf("redislimit: unexpected reply: %w", err)
	}
	return index - 1, nil
}

// settle replaces leases that are not held by what was settled, which expires after linger. All
// must be on one node of Redis.
func (s *leases) settle(ctx context.Context, list []lease, linger time.Duration) error {
	keys := make([]string, 0, len(list))
	args := make([]any, 0, 2+2*len(list))
	args = append(args, "settle", max(linger.Milliseconds(), 1))
	for _, l := range list {
		settled := ""
		if l.settled > 0 {
			settled = l.name + ":" + strconv.FormatInt(l.settled, 10)
		}
		keys = append(keys, l.redisKey)
		args = append(args, l.name, settled)
	}
	_, err := s.client.run(ctx, leasesScript, keys, args...)
	return err
}

// hold starts to renew leases.
func (s *leases) hold(list []lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holdLocked(list)
}

// holdLocked is hold for a caller that holds mu.
func (s *leases) holdLocked(list []lease) {
	for _, l := range list {
		if s.held[l.redisKey] == nil {
			s.held[l.redisKey] = make(map[string]int64)
		}
		s.held[l.redisKey][l.name] = l.amount
	}
	s.scheduleRenewal(s.interval)
}

// holdWithin is hold if what this process holds does not exceed the limits of slots. Otherwise
// it returns the index of a slot that is full. It returns -1 if it holds the leases.
func (s *leases) holdWithin(list []lease, slots []llmhttp.SlotAmount) (full int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, l := range list {
		left := slots[i].Limit - l.amount
		for _, amount := range s.held[l.redisKey] {
			left -= amount
		}
		if left < 0 {
			return i
		}
	}
	s.holdLocked(list)
	return -1
}

// drop stops renewing leases. It returns those that were held, and whether a renewal
// may restore them after they were removed from Redis.
func (s *leases) drop(list []lease) (held []lease, mayBeRestored bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range list {
		names := s.held[l.redisKey]
		if _, ok := names[l.name]; ok {
			held = append(held, l)
		}
		delete(names, l.name)
		if len(names) == 0 {
			delete(s.held, l.redisKey)
		}
	}
	return held, s.renewing || s.lastMayStillRun
}

// release removes leases, except those that close has removed.
func (s *leases) release(list []lease) { s.remove(s.drop(list)) }

// remove removes leases that are not held from Redis. It does so once more in the background if
// that fails, or if a renewal may restore them.
func (s *leases) remove(list []lease, mayBeRestored bool) {
	if len(list) == 0 {
		return
	}
	ctx := context.Background()
	var err error
	if len(list) == 1 {
		_, err = s.client.run(ctx, leasesScript, []string{list[0].redisKey}, "release", 0, list[0].name)
	} else {
		err = s.send(ctx, nil, list)
	}
	if err != nil || mayBeRestored {
		s.removeLater(list)
	}
}

// removeLater removes leases from Redis in the background. It stops trying when they have
// expired.
func (s *leases) removeLater(list []lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range list {
		l.expires = time.Now().Add(s.opts.Timeout + s.opts.Lease)
		s.toRemove = append(s.toRemove, l)
	}
	if len(list) > 0 {
		s.scheduleRenewal(s.retryDelay())
	}
}

// retryDelay returns the time until the next renewal after a call to Redis has failed.
func (s *leases) retryDelay() time.Duration {
	return min(s.opts.Timeout, s.interval, time.Second)
}

// scheduleRenewal makes the timer fire after d, unless it fires earlier anyway or a
// renewal is in progress, which schedules the next one when it ends. The caller holds
// mu.
func (s *leases) scheduleRenewal(d time.Duration) {
	next := time.Now().Add(d)
	if s.closed || s.renewing || !s.next.IsZero() && !s.next.After(next) {
		return
	}
	s.next = next
	if s.timer == nil {
		s.timer = time.AfterFunc(d, s.renew)
	} else {
		s.timer.Reset(d)
	}
}

// renew renews the leases in held, removes those in toRemove, and schedules the next
// renewal.
func (s *leases) renew() {
	held, toRemove, ok := s.startRenewal()
	if !ok {
		return
	}
	defer s.renewals.Done()
	ctx := context.Background()
	err := s.send(ctx, held, toRemove)
	if err != nil {
		s.log.failed(ctx, "redislimit: leases are not renewed", err)
	} else {
		s.log.answered(ctx)
	}
	s.endRenewal(toRemove, err)
}

// startRenewal returns the names in held, by their slot in Redis, and the leases in
// toRemove, which is empty then. It returns false if a renewal is in progress or the
// Limiter is closed.
func (s *leases) startRenewal() (held map[string][]string, toRemove []lease, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.renewing {
		return nil, nil, false
	}
	held = make(map[string][]string, len(s.held))
	for key, names := range s.held {
		held[key] = slices.Collect(maps.Keys(names))
	}
	toRemove = s.toRemove
	s.toRemove, s.renewing, s.next = nil, true, time.Time{}
	s.renewals.Add(1)
	return held, toRemove, true
}

// endRenewal schedules the next renewal after one that removed the leases in toRemove
// and returned err. The next one removes them once more if this one failed, or if the
// one before it may have restored them.
func (s *leases) endRenewal(toRemove []lease, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if err != nil {
		toRemove = slices.DeleteFunc(toRemove, func(l lease) bool { return !now.Before(l.expires) })
	}
	if err != nil || s.lastMayStillRun {
		s.toRemove = append(s.toRemove, toRemove...)
	}
	s.renewing, s.lastMayStillRun = false, err != nil
	switch {
	case len(s.toRemove) > 0, err != nil && len(s.held) > 0:
		s.scheduleRenewal(s.retryDelay())
	case len(s.held) > 0:
		s.scheduleRenewal(s.interval)
	}
}

// batchSize is the largest number of commands that are sent together, and of
// leases in one command.
const batchSize = 500

// send renews the leases in held, which are names by their slot in Redis, and removes
// those in toRemove. It sends all commands, and returns the first error.
func (s *leases) send(ctx context.Context, held map[string][]string, toRemove []lease) error {
	var commands []func(redis.Pipeliner)
	add := func(operation, key string, names []string) {
		for batch := range slices.Chunk(names, batchSize) {
			args := make([]any, 0, 2+len(batch))
			args = append(args, operation, s.opts.Lease.Milliseconds())
			for _, name := range batch {
				args = append(args, name)
			}
			commands = append(commands, func(p redis.Pipeliner) { p.Eval(ctx, leasesSource, []string{key}, args...) })
		}
	}
	for key, names := range held {
		add("renew", key, names)
	}
	released := make(map[string][]string)
	for _, l := range toRemove {
		released[l.redisKey] = append(released[l.redisKey], l.name)
	}
	for key, names := range released {
		add("release", key, names)
	}
	var first error
	for batch := range slices.Chunk(commands, batchSize) {
		first = cmp.Or(first, s.sendBatch(ctx, batch))
	}
	return first
}

// sendBatch sends commands together. It returns the first error.
func (s *leases) sendBatch(ctx context.Context, commands []func(redis.Pipeliner)) error {
	_, err := call(ctx, s.client, func(ctx context.Context) ([]redis.Cmder, error) {
		return s.client.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, command := range commands {
				command(p)
			}
			return nil
		})
	})
	return err
}

// close removes all leases of this process and makes newLease fail.
func (s *leases) close() error {
	s.mu.Lock()
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
	}
	s.next = time.Time{}
	s.mu.Unlock()
	s.renewals.Wait() // or they would restore leases
	s.mu.Lock()
	toRemove := s.toRemove
	for key, names := range s.held {
		for name := range names {
			toRemove = append(toRemove, lease{redisKey: key, name: name})
		}
	}
	s.held, s.toRemove = make(map[string]map[string]int64), nil
	s.mu.Unlock()
	return s.send(context.Background(), nil, toRemove)
}
