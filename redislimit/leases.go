package redislimit

import (
	"cmp"
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"math"
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

// Acquire implements [llmhttp.ConcurrencyLimiter]. It acquires a lease, which
// is renewed until it is released or the Limiter is closed.
//
// release calls Redis. If that fails, it is repeated in the background. If
// Redis loses its data, the next renewal restores the leases.
func (l *Limiter) Acquire(ctx context.Context, key string, limit int) (release func(), err error) {
	if err := ctx.Err(); err != nil || limit <= 0 {
		return nil, err
	}
	e := lease{redisKey: l.leasesKey(key)}
	if e.name, err = l.leases.newName(); err != nil {
		return nil, err
	}
	reply, err := l.client.run(ctx, leasesScript, []string{e.redisKey}, limit, l.opts.Lease.Milliseconds(), e.name)
	if err != nil {
		return l.acquireLocally(ctx, e, limit, err)
	}
	l.log.answered(ctx)
	if acquired, err := reply.Bool(); err != nil || !acquired {
		return nil, err
	}
	l.leases.hold(e, math.MaxInt)
	return sync.OnceFunc(func() { l.leases.release(e) }), nil
}

// Concurrent implements [llmhttp.ConcurrencyCounter]. It counts the leases of all
// processes in Redis.
func (l *Limiter) Concurrent(ctx context.Context, key string) (int, error) {
	n, err := call(ctx, &l.client, func(ctx context.Context) (int64, error) {
		now, err := l.client.redis.Time(ctx).Result()
		if err != nil {
			return 0, err
		}
		return l.client.redis.ZCount(ctx, l.leasesKey(key), fmt.Sprintf("(%d", now.UnixMilli()), "+inf").Result()
	})
	return int(n), err
}

// acquireLocally decides about a lease whose script failed with err. With a
// Fallback it counts the leases of this process, and otherwise returns err.
func (l *Limiter) acquireLocally(ctx context.Context, e lease, limit int, err error) (release func(), _ error) {
	fallsBack := l.fallsBack(ctx, err)
	if fallsBack && l.leases.hold(e, limit) {
		return sync.OnceFunc(func() { l.leases.release(e) }), nil
	}
	if f, ok := errors.AsType[*callError](err); !ok || !f.notSent {
		l.leases.removeLater(e) // Redis may have executed the script
	}
	if fallsBack {
		return nil, nil
	}
	return nil, err
}

// leasesKey returns the name in Redis of the leases of a key. After the hash
// tag of a bucket there is a colon instead of a slash.
func (l *Limiter) leasesKey(key string) string { return l.opts.Prefix + hashTag(key) + "/leases" }

// Close removes the leases that are still held, after which their release
// functions do nothing. Acquire returns an error from then on; Take and Adjust
// still work. Call Close after [llmhttp.Handler.Shutdown]. It does not close
// the redis client. If it returns an error, the leases expire.
func (l *Limiter) Close() error { return l.leases.close() }

// leases are the leases of this process. A timer renews those that are held
// and removes those in released from Redis, while there are any.
type leases struct {
	client   *client
	opts     *Options
	log      *outageLog
	id       string         // begins the names of all leases
	interval time.Duration  // between renewals
	renewals sync.WaitGroup // renewals in progress, for close

	mu       sync.Mutex // guards the fields below
	serial   int
	held     map[string]map[string]struct{} // names of leases by their key in Redis
	released []lease                        // may be in Redis, because release failed or a renewal restored them
	renewing bool                           // a renewal is in progress
	late     bool                           // the last renewal failed, but Redis may still execute it
	timer    *time.Timer                    // calls renew
	next     time.Time                      // when the timer fires; zero if it is stopped
	closed   bool
}

type lease struct {
	redisKey, name string
	expires        time.Time // when Redis has dropped it at the latest; set in released
}

func newLeases(l *Limiter) *leases {
	return &leases{
		client: &l.client, opts: &l.opts, log: &l.log,
		id: rand.Text()[:16], interval: l.opts.Lease / 3, held: make(map[string]map[string]struct{}),
	}
}

func (s *leases) newName() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return "", errClosed
	}
	s.serial++
	return s.id + "." + strconv.Itoa(s.serial), nil
}

// hold starts to renew e, unless this process holds limit leases of its key.
func (s *leases) hold(e lease, limit int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.held[e.redisKey]) >= limit {
		return false
	}
	if s.held[e.redisKey] == nil {
		s.held[e.redisKey] = make(map[string]struct{})
	}
	s.held[e.redisKey][e.name] = struct{}{}
	s.scheduleRenewal(s.interval)
	return true
}

// drop stops renewing e. It reports whether e was held, and whether a renewal
// may restore e after it was removed from Redis.
func (s *leases) drop(e lease) (held, mayBeRestored bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := s.held[e.redisKey]
	_, held = names[e.name]
	delete(names, e.name)
	if len(names) == 0 {
		delete(s.held, e.redisKey)
	}
	return held, s.renewing || s.late
}

func (s *leases) release(e lease) {
	held, mayBeRestored := s.drop(e)
	if !held {
		return // removed by close
	}
	_, err := call(context.Background(), s.client, func(ctx context.Context) (int64, error) {
		return s.client.redis.ZRem(ctx, e.redisKey, e.name).Result()
	})
	if err != nil || mayBeRestored {
		s.removeLater(e)
	}
}

// removeLater removes e from Redis in the background. It stops trying when e has expired.
func (s *leases) removeLater(e lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.expires = time.Now().Add(s.opts.Timeout + s.opts.Lease)
	s.released = append(s.released, e)
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

// renew renews the leases that are held, removes those that were released, and
// schedules the next renewal.
func (s *leases) renew() {
	held, released, ok := s.startRenewal()
	if !ok {
		return
	}
	defer s.renewals.Done()
	ctx := context.Background()
	err := s.send(ctx, held, released)
	if err != nil {
		s.log.failed(ctx, "redislimit: leases are not renewed", err)
	} else {
		s.log.answered(ctx)
	}
	s.endRenewal(released, err)
}

// startRenewal returns the names of the leases that are held, by their key in Redis,
// and the leases that were released. It returns false if a renewal is in progress
// or the Limiter is closed.
func (s *leases) startRenewal() (held map[string][]string, released []lease, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.renewing {
		return nil, nil, false
	}
	held = make(map[string][]string, len(s.held))
	for key, names := range s.held {
		held[key] = slices.Collect(maps.Keys(names))
	}
	released = s.released
	s.released, s.renewing, s.next = nil, true, time.Time{}
	s.renewals.Add(1)
	return held, released, true
}

// endRenewal schedules the next renewal after one that returned err. The next one
// removes the leases in released once more if this one failed, or if the one before
// it may have restored them.
func (s *leases) endRenewal(released []lease, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	switch {
	case err != nil:
		released = slices.DeleteFunc(released, func(e lease) bool { return !now.Before(e.expires) })
		s.released = append(s.released, released...)
	case s.late:
		s.released = append(s.released, released...)
	}
	s.renewing, s.late = false, err != nil
	switch {
	case len(s.released) > 0, err != nil && len(s.held) > 0:
		s.scheduleRenewal(s.retryDelay())
	case len(s.held) > 0:
		s.scheduleRenewal(s.interval)
	}
}

// batchSize is the largest number of commands that are sent together, and of
// leases in one command.
const batchSize = 500

// send renews the leases held, which are names by key, and removes the
// leases released. It sends all of them, and returns the first error.
func (s *leases) send(ctx context.Context, held map[string][]string, released []lease) error {
	var commands []func(redis.Pipeliner)
	for key, names := range held {
		for names := range slices.Chunk(names, batchSize) {
			args := make([]any, 0, 2+len(names))
			args = append(args, 0, s.opts.Lease.Milliseconds())
			for _, name := range names {
				args = append(args, name)
			}
			commands = append(commands, func(p redis.Pipeliner) { p.Eval(ctx, leasesSource, []string{key}, args...) })
		}
	}
	for _, e := range released {
		commands = append(commands, func(p redis.Pipeliner) { p.ZRem(ctx, e.redisKey, e.name) })
	}
	var first error
	for commands := range slices.Chunk(commands, batchSize) {
		_, err := call(ctx, s.client, func(ctx context.Context) ([]redis.Cmder, error) {
			return s.client.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
				for _, command := range commands {
					command(p)
				}
				return nil
			})
		})
		first = cmp.Or(first, err)
	}
	return first
}

// close removes all leases of this process and makes newName fail.
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
	released := s.released
	for key, names := range s.held {
		for name := range names {
			released = append(released, lease{redisKey: key, name: name})
		}
	}
	s.held, s.released = make(map[string]map[string]struct{}), nil
	s.mu.Unlock()
	return s.send(context.Background(), nil, released)
}
