package redislimit

import (
	"context"
	_ "embed"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// leases are those that this process has.
type leases struct {
	id string // unique, begins the names of the leases

	mu     sync.Mutex
	serial int
	held   map[string]map[string]struct{} // names by key
	due    []lease                        // to be given back, which failed or may have been made
	timer  *time.Timer
	next   time.Time // when the timer fires; zero if it does not
	closed bool

	renewing sync.Mutex
}

type lease struct {
	key, name string
	expires   time.Time // at the latest
}

//go:embed leases.lua
var leasesSource string

var leasesScript = newScript(leasesSource)

var errClosed = errors.New("redislimit: the Limiter is closed")

// Acquire implements [llmhttp.ConcurrencyLimiter]. What is acquired is a lease,
// which is renewed until it is released or the Limiter is closed; that of a
// process that died comes free after [Options.Lease]. A Redis that lost its
// data learns of the leases when they are renewed.
//
// To release is a call to Redis as well. If that fails, it is tried again.
func (l *Limiter) Acquire(ctx context.Context, bucket string, limit int) (release func(), err error) {
	if err := ctx.Err(); err != nil || limit <= 0 {
		return nil, err
	}
	group, rest := split(bucket)
	// The slash tells it from a bucket of tokens, in the same slot.
	e := lease{key: l.opts.Prefix + tag(group) + "/" + rest}
	if e.name, err = l.leases.newName(); err != nil {
		return nil, err
	}
	reply, err := l.redis.run(ctx, leasesScript, []string{e.key}, limit, l.opts.Lease.Milliseconds(), e.name)
	if err == nil {
		l.trouble.ended(ctx, l.opts.Logger)
		if made, err := reply.Bool(); err != nil || !made {
			return nil, err
		}
		l.hold(e, 0)
	} else {
		// As long as Redis is away, those of this process count.
		fallsBack := l.fallsBack(ctx, err)
		if !fallsBack || !l.hold(e, limit) {
			if f, ok := errors.AsType[*failure](err); !ok || !f.skipped {
				l.giveBackLater(e) // Redis may have made it
			}
			if fallsBack {
				err = nil
			}
			return nil, err
		}
	}
	return sync.OnceFunc(func() { l.release(e) }), nil
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

// hold keeps e until it is released. With a limit, it does so only if there
// are fewer here.
func (l *Limiter) hold(e lease, limit int) bool {
	s := &l.leases
	s.mu.Lock()
	defer s.mu.Unlock()
	names := s.held[e.key]
	if limit > 0 && len(names) >= limit {
		return false
	}
	if names == nil {
		names = make(map[string]struct{})
		s.held[e.key] = names
	}
	names[e.name] = struct{}{}
	l.renewAfter(l.opts.Lease / 3)
	return true
}

// drop reports whether e was held, and is no more.
func (s *leases) drop(e lease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := s.held[e.key]
	_, ok := names[e.name]
	delete(names, e.name)
	if len(names) == 0 {
		delete(s.held, e.key)
	}
	return ok
}

func (l *Limiter) release(e lease) {
	if !l.leases.drop(e) {
		return // Close has given it back
	}
	_, err := call(context.Background(), &l.redis, func(ctx context.Context) (int64, error) {
		return l.redis.client.ZRem(ctx, e.key, e.name).Result()
	})
	if err != nil {
		l.giveBackLater(e)
	}
}

// giveBackLater has e given back soon, unless it expires before.
func (l *Limiter) giveBackLater(e lease) {
	s := &l.leases
	s.mu.Lock()
	defer s.mu.Unlock()
	e.expires = time.Now().Add(l.opts.Timeout + l.opts.Lease)
	s.due = append(s.due, e)
	l.renewAfter(min(l.opts.Timeout, l.opts.Lease/3))
}

// renewAfter sees to it that leases are renewed after d, or before. It is
// called with mu held.
func (l *Limiter) renewAfter(d time.Duration) {
	s := &l.leases
	next := time.Now().Add(d)
	if s.closed || !s.next.IsZero() && !s.next.After(next) {
		return
	}
	s.next = next
	if s.timer == nil {
		s.timer = time.AfterFunc(d, l.renew)
	} else {
		s.timer.Reset(d)
	}
}

// renew renews what is held and gives back what is due.
func (l *Limiter) renew() {
	s := &l.leases
	s.renewing.Lock() // Close waits for it
	defer s.renewing.Unlock()
	s.mu.Lock()
	s.next = time.Time{}
	if s.closed {
		s.mu.Unlock()
		return
	}
	held := make(map[string][]string, len(s.held))
	for key, names := range s.held {
		held[key] = slices.Collect(maps.Keys(names))
	}
	due := s.due
	s.due = nil
	s.mu.Unlock()

	ctx := context.Background()
	err := l.sendLeases(ctx, held, due)
	s.mu.Lock()
	late := s.released(held)
	s.mu.Unlock()
	lateErr := l.sendLeases(ctx, nil, late)

	s.mu.Lock()
	defer s.mu.Unlock()
	again := l.opts.Lease / 3
	if err != nil {
		l.trouble.log(ctx, l.opts.Logger, "redislimit: leases are not renewed", err)
		now := time.Now()
		for _, e := range due {
			if now.Before(e.expires) {
				s.due = append(s.due, e)
			}
		}
		again = min(again, retryRenewal)
	} else {
		l.trouble.ended(ctx, l.opts.Logger)
	}
	if err != nil || lateErr != nil { // the renewal may come yet
		for _, e := range s.released(held) {
			e.expires = time.Now().Add(l.opts.Timeout + l.opts.Lease)
			s.due = append(s.due, e)
		}
	}
	if len(s.due) > 0 {
		again = min(again, l.opts.Timeout)
	}
	if len(s.held) > 0 || len(s.due) > 0 {
		l.renewAfter(again)
	}
}

// released returns those of held that are not held any more. They may have
// been renewed after they were given back. It is called with mu held.
func (s *leases) released(held map[string][]string) []lease {
	var late []lease
	for key, names := range held {
		for _, name := range names {
			if _, ok := s.held[key][name]; !ok {
				late = append(late, lease{key: key, name: name})
			}
		}
	}
	return late
}

// retryRenewal is when renewal is tried again after it failed.
const retryRenewal = time.Second

// batch is how many commands, and how many leases in one, are sent at a time.
const batch = 500

// sendLeases renews the leases held, which are names by key, and gives back
// those due. It sends commands together, for as many leases as there may be.
func (l *Limiter) sendLeases(ctx context.Context, held map[string][]string, due []lease) error {
	var pending []func(redis.Pipeliner) // commands
	var first error
	flush := func() {
		if len(pending) == 0 {
			return
		}
		commands := pending
		pending = nil
		_, err := call(ctx, &l.redis, func(ctx context.Context) ([]redis.Cmder, error) {
			return l.redis.client.Pipelined(ctx, func(p redis.Pipeliner) error {
				for _, send := range commands {
					send(p)
				}
				return nil
			})
		})
		if first == nil {
			first = err
		}
	}
	add := func(command func(redis.Pipeliner)) {
		if pending = append(pending, command); len(pending) == batch {
			flush()
		}
	}
	for key, names := range held {
		for names := range slices.Chunk(names, batch) {
			args := make([]any, 0, 2+len(names))
			args = append(args, 0, l.opts.Lease.Milliseconds())
			for _, name := range names {
				args = append(args, name)
			}
			add(func(p redis.Pipeliner) { p.Eval(ctx, leasesSource, []string{key}, args...) })
		}
	}
	for _, e := range due {
		add(func(p redis.Pipeliner) { p.ZRem(ctx, e.key, e.name) })
	}
	flush()
	return first
}

// Close gives back the leases that are still held; a func that releases one
// has nothing to do then. After it, Acquire fails; Take and Adjust do not need
// to be closed and go on. Call it after [llmhttp.Handler.Shutdown]. If it
// fails, the leases expire by themselves. It does not close the client.
func (l *Limiter) Close() error {
	s := &l.leases
	s.mu.Lock()
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
	}
	s.mu.Unlock()
	s.renewing.Lock()
	defer s.renewing.Unlock()
	s.mu.Lock()
	due := s.due
	for key, names := range s.held {
		for name := range names {
			due = append(due, lease{key: key, name: name})
		}
	}
	s.held, s.due = make(map[string]map[string]struct{}), nil
	s.mu.Unlock()
	return l.sendLeases(context.Background(), nil, due)
}
