package redislimit

import (
	"cmp"
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
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

	mu       sync.Mutex                     // guards the fields below
	serial   int                            // of the last lease
	held     map[string]map[string]struct{} // names of leases by their key in Redis
	toRemove []lease                        // may be in Redis, because release failed or a renewal restored them
	timer    *time.Timer                    // calls renew
	next     time.Time                      // when the timer fires; zero if it is stopped
	closed   bool

	renewing        bool // a renewal is in progress
	lastMayStillRun bool // the last renewal failed, but Redis may still execute it
}

// A lease counts a request in progress. Its name is unique.
type lease struct {
	redisKey, name string
	expires        time.Time // when Redis has dropped it at the latest; only set in toRemove
}

func newLeases(l *Limiter) *leases {
	return &leases{
		client: &l.client, opts: &l.opts, log: &l.log,
		id: rand.Text()[:16], interval: l.opts.Lease / 3, held: make(map[string]map[string]struct{}),
	}
}

// newLease returns a lease with a new name. It is not in Redis yet.
func (s *leases) newLease(redisKey string) (lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return lease{}, errClosed
	}
	s.serial++
	return lease{redisKey: redisKey, name: s.id + "." + strconv.Itoa(s.serial)}, nil
}

// hold starts to renew l, unless this process holds limit leases of its key.
func (s *leases) hold(l lease, limit int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.held[l.redisKey]) >= limit {
		return false
	}
	if s.held[l.redisKey] == nil {
		s.held[l.redisKey] = make(map[string]struct{})
	}
	s.held[l.redisKey][l.name] = struct{}{}
	s.scheduleRenewal(s.interval)
	return true
}

// drop stops renewing l. It reports whether l was held, and whether a renewal
// may restore l after it was removed from Redis.
func (s *leases) drop(l lease) (held, mayBeRestored bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := s.held[l.redisKey]
	_, held = names[l.name]
	delete(names, l.name)
	if len(names) == 0 {
		delete(s.held, l.redisKey)
	}
	return held, s.renewing || s.lastMayStillRun
}

func (s *leases) release(l lease) {
	held, mayBeRestored := s.drop(l)
	if !held {
		return // removed by close
	}
	_, err := call(context.Background(), s.client, func(ctx context.Context) (int64, error) {
		return s.client.redis.ZRem(ctx, l.redisKey, l.name).Result()
	})
	if err != nil || mayBeRestored {
		s.removeLater(l)
	}
}

// removeLater removes l from Redis in the background. It stops trying when l has expired.
func (s *leases) removeLater(l lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.expires = time.Now().Add(s.opts.Timeout + s.opts.Lease)
	s.toRemove = append(s.toRemove, l)
	s.scheduleRenewal(s.retryDelay())
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

// startRenewal returns the names in held, by their key in Redis, and the leases in
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

const (
	// batchSize is the largest number of commands that are sent together, and of
	// leases in one command.
	batchSize = 500

	// limitOfRenewal is what leases.lua gets in place of a limit to renew leases.
	limitOfRenewal = 0
)

// send renews the leases in held, which are names by their key in Redis, and removes
// those in toRemove. It sends all commands, and returns the first error.
func (s *leases) send(ctx context.Context, held map[string][]string, toRemove []lease) error {
	var commands []func(redis.Pipeliner)
	for key, names := range held {
		for batch := range slices.Chunk(names, batchSize) {
			args := make([]any, 0, 2+len(batch))
			args = append(args, limitOfRenewal, s.opts.Lease.Milliseconds())
			for _, name := range batch {
				args = append(args, name)
			}
			commands = append(commands, func(p redis.Pipeliner) { p.Eval(ctx, leasesSource, []string{key}, args...) })
		}
	}
	for _, l := range toRemove {
		commands = append(commands, func(p redis.Pipeliner) { p.ZRem(ctx, l.redisKey, l.name) })
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
	s.held, s.toRemove = make(map[string]map[string]struct{}), nil
	s.mu.Unlock()
	return s.send(context.Background(), nil, toRemove)
}
