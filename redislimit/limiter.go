package redislimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/manage"
)

// Options configure a [Limiter], which keeps a copy. The zero value is ready
// to use.
type Options struct {
	// Prefix begins all names in Redis. If empty, it is "llmhttp:". Limiters
	// share their limits if they have the same Redis and Prefix. A hash tag in
	// the Prefix, as in "{limits}:", makes a Redis Cluster keep all data on one
	// node.
	Prefix string

	// Timeout bounds each call to Redis. A request waits that long for a Redis
	// that hangs. Zero means 250 ms, negative no timeout.
	Timeout time.Duration

	// Fallback decides while Redis does not answer or refuses. If nil, calls
	// return an error then, and the Handler refuses requests with 503. With
	// [llmhttp.NewLimiter] each process limits on its own; [FailOpen] admits
	// all requests.
	//
	// The buckets of the Fallback are independent of those in Redis. With any
	// Fallback, a process counts its own requests in progress until Redis
	// answers again.
	Fallback llmhttp.Limiter

	// Lease is how long a request in progress counts after its process last
	// renewed its lease. Processes renew their leases three times in that time.
	// Zero means 30 s. Negative means that leases do not expire. The minimum
	// is a second.
	Lease time.Duration

	// Logger receives a warning when the Fallback decides and when leases
	// cannot be renewed, at most every 10 s, and a message when Redis answers
	// again. If nil, it is slog.Default().
	Logger *slog.Logger
}

// forever replaces durations that mean "none".
const forever = 100 * 365 * 24 * time.Hour

func (o *Options) setDefaults() {
	o.Prefix = cmp.Or(o.Prefix, "llmhttp:")
	o.Timeout = cmp.Or(o.Timeout, 250*time.Millisecond)
	if o.Timeout < 0 {
		o.Timeout = forever
	}
	o.Lease = cmp.Or(o.Lease, 30*time.Second)
	if o.Lease < 0 {
		o.Lease = forever
	}
	o.Lease = max(o.Lease, time.Second)
	o.Logger = cmp.Or(o.Logger, slog.Default())
}

// A Limiter is a [manage.ConcurrencyCounter] on Redis. Its methods may be
// called concurrently.
//
// When a call fails because Redis did not answer in time, Redis may have
// executed it. A call is never executed twice.
type Limiter struct {
	client client
	opts   Options
	leases *leases
	log    outageLog

	now func() int64 // the clock of the buckets, in microseconds; only tests set it, and Redis uses its own if it is nil
}

var _ manage.ConcurrencyCounter = (*Limiter)(nil)

// New returns a Limiter on the Redis of c, which may be a [redis.Client] (of a
// Sentinel, too), a [redis.ClusterClient] or a [redis.Ring]. If opts is nil, the
// zero Options are used. New sends nothing to Redis.
//
// The caller closes c after the Limiter. Its option ContextTimeoutEnabled
// should be set: otherwise a call that times out keeps its connection until
// the ReadTimeout of c. The redis package logs on its own, addresses included;
// [redis.SetLogger] changes that.
//
// New panics if c is nil, and if the Prefix has an empty hash tag.
func New(c redis.UniversalClient, opts *Options) *Limiter {
	if c == nil {
		panic("redislimit: nil client")
	}
	l := &Limiter{}
	if opts != nil {
		l.opts = *opts
	}
	l.opts.setDefaults()
	// Redis hashes the whole name if the first hash tag is empty.
	if _, tag, ok := strings.Cut(l.opts.Prefix, "{"); ok && strings.HasPrefix(tag, "}") {
		panic("redislimit: the Prefix has an empty hash tag")
	}
	l.client = client{redis: c, timeout: l.opts.Timeout, retryInterval: min(l.opts.Timeout, time.Second)}
	l.log.logger = l.opts.Logger
	l.leases = newLeases(l)
	return l
}

// Take implements [llmhttp.Limiter]. If ctx is canceled, for example because the client
// leaves, Take still waits for the answer of Redis, until the Timeout or the deadline of
// ctx. Otherwise the caller could not return tokens that were taken.
func (l *Limiter) Take(ctx context.Context, key string, draws ...llmhttp.Draw) ([]llmhttp.Level, error) {
	if err := ctx.Err(); err != nil || len(draws) == 0 {
		return nil, err
	}
	callCtx, cancel := l.withoutCancel(ctx)
	defer cancel()
	levels, err := l.runBuckets(callCtx, "take", key, draws)
	if l.fallsBack(ctx, err) {
		l.logFallback(ctx, err)
		return l.opts.Fallback.Take(ctx, key, draws...)
	}
	return levels, err
}

// withoutCancel returns a context that ends at the deadline of ctx, but not when ctx is
// canceled. Without a Timeout it is ctx.
func (l *Limiter) withoutCancel(ctx context.Context) (context.Context, context.CancelFunc) {
	if l.opts.Timeout == forever {
		return ctx, func() {}
	}
	callCtx := context.WithoutCancel(ctx)
	if deadline, ok := ctx.Deadline(); ok {
		return context.WithDeadline(callCtx, deadline)
	}
	return callCtx, func() {}
}

// Adjust implements [llmhttp.Limiter].
func (l *Limiter) Adjust(ctx context.Context, key string, draws ...llmhttp.Draw) error {
	if len(draws) == 0 {
		return nil
	}
	_, err := l.runBuckets(ctx, "adjust", key, draws)
	if l.fallsBack(ctx, err) {
		l.logFallback(ctx, err)
		return l.opts.Fallback.Adjust(ctx, key, draws...)
	}
	return err
}

// Acquire implements [llmhttp.ConcurrencyLimiter]. It acquires a lease, which
// is renewed until it is released or the Limiter is closed.
//
// release calls Redis. If that fails, it is repeated in the background. If
// Redis loses its data, the next renewal restores the leases.
func (l *Limiter) Acquire(ctx context.Context, key string, limit int) (release func(), err error) {
	if err := ctx.Err(); err != nil || limit <= 0 {
		return nil, err
	}
	requested, err := l.leases.newLease(l.leasesKey(key))
	if err != nil {
		return nil, err
	}
	reply, err := l.client.run(ctx, leasesScript, []string{requested.redisKey}, limit, l.opts.Lease.Milliseconds(), requested.name)
	if err != nil {
		return l.acquireLocally(ctx, requested, limit, err)
	}
	l.log.answered(ctx)
	if acquired, err := reply.Bool(); err != nil || !acquired {
		return nil, err
	}
	l.leases.hold(requested, math.MaxInt)
	return l.releaseFunc(requested), nil
}

// acquireLocally decides about a lease whose script failed with err. With a
// Fallback it counts the leases of this process, and otherwise returns err.
func (l *Limiter) acquireLocally(ctx context.Context, requested lease, limit int, err error) (release func(), _ error) {
	fallsBack := l.fallsBack(ctx, err)
	if fallsBack {
		l.logFallback(ctx, err)
		if l.leases.hold(requested, limit) {
			return l.releaseFunc(requested), nil
		}
	}
	if f, ok := errors.AsType[*callError](err); !ok || !f.notSent {
		l.leases.removeLater(requested) // Redis may have executed the script
	}
	if fallsBack {
		return nil, nil
	}
	return nil, err
}

// releaseFunc returns a function that releases a lease. It may be called several times.
func (l *Limiter) releaseFunc(acquired lease) func() {
	return sync.OnceFunc(func() { l.leases.release(acquired) })
}

// Concurrent implements [manage.ConcurrencyCounter]. It counts the leases of all
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

// Close removes the leases that are still held, after which their release
// functions do nothing. Acquire returns an error from then on; Take and Adjust
// still work. Call Close after [llmhttp.Handler.Shutdown]. It does not close
// the redis client. If it returns an error, the leases expire.
func (l *Limiter) Close() error { return l.leases.close() }

// hashTag returns key as a hash tag: the part of a name in braces by which a
// Redis Cluster finds its node. Different keys have different tags, and no tag
// is empty or has another brace in it.
func hashTag(key string) string {
	escaped := url.PathEscape(key)
	if key == "" {
		escaped = "%" // no other key has this form
	}
	return "{" + escaped + "}"
}

// leasesKey returns the name in Redis of the leases of a key. After the hash
// tag of a bucket there is a colon instead of a slash.
func (l *Limiter) leasesKey(key string) string { return l.opts.Prefix + hashTag(key) + "/leases" }
