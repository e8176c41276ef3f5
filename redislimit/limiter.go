package redislimit

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"log/slog"
	"math"
	"net/url"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmhttp/llmhttp"
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
	if o.Timeout = cmp.Or(o.Timeout, 250*time.Millisecond); o.Timeout < 0 {
		o.Timeout = forever
	}
	if o.Lease = cmp.Or(o.Lease, 30*time.Second); o.Lease < 0 {
		o.Lease = forever
	}
	o.Lease = max(o.Lease, time.Second)
	o.Logger = cmp.Or(o.Logger, slog.Default())
}

// A Limiter is a [llmhttp.ConcurrencyCounter] on Redis. Its methods may be
// called concurrently.
//
// When a call fails because Redis did not answer in time, Redis may have
// executed it. A call is never executed twice.
type Limiter struct {
	client client
	opts   Options
	leases *leases
	log    outageLog

	now func() int64 // in microseconds; if nil, Redis uses its clock
}

var _ llmhttp.ConcurrencyCounter = (*Limiter)(nil)

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

//go:embed buckets.lua
var bucketsSource string

var bucketsScript = newScript(bucketsSource)

// Take implements [llmhttp.Limiter]. If ctx is canceled, for example because the client
// leaves, Take still waits for the answer of Redis, until the Timeout or the deadline of
// ctx. Otherwise the caller could not return tokens that were taken.
func (l *Limiter) Take(ctx context.Context, key string, draws ...llmhttp.Draw) ([]llmhttp.Level, error) {
	if err := ctx.Err(); err != nil || len(draws) == 0 {
		return nil, err
	}
	answered, cancel := l.withoutCancel(ctx)
	defer cancel()
	values, err := l.runBuckets(answered, "take", key, draws)
	if err != nil {
		if l.fallsBack(ctx, err) {
			return l.opts.Fallback.Take(ctx, key, draws...)
		}
		return nil, err
	}
	levels := make([]llmhttp.Level, len(draws))
	for i := range levels {
		levels[i] = llmhttp.Level{
			Remaining:  int(min(values[3*i], math.MaxInt)),
			RetryAfter: duration(values[3*i+1]),
			ResetAfter: duration(values[3*i+2]),
		}
	}
	return levels, nil
}

// withoutCancel returns a context that ends at the deadline of ctx, but not when ctx is
// canceled. Without a Timeout it is ctx.
func (l *Limiter) withoutCancel(ctx context.Context) (context.Context, context.CancelFunc) {
	if l.opts.Timeout == forever {
		return ctx, func() {}
	}
	kept := context.WithoutCancel(ctx)
	if deadline, ok := ctx.Deadline(); ok {
		return context.WithDeadline(kept, deadline)
	}
	return kept, func() {}
}

// Adjust implements [llmhttp.Limiter].
func (l *Limiter) Adjust(ctx context.Context, key string, draws ...llmhttp.Draw) error {
	if len(draws) == 0 {
		return nil
	}
	_, err := l.runBuckets(ctx, "adjust", key, draws)
	if err != nil && l.fallsBack(ctx, err) {
		return l.opts.Fallback.Adjust(ctx, key, draws...)
	}
	return err
}

// runBuckets runs buckets.lua and returns three numbers for each draw.
func (l *Limiter) runBuckets(ctx context.Context, operation, key string, draws []llmhttp.Draw) ([]int64, error) {
	keys := make([]string, 0, len(draws))
	args := make([]any, 0, 2+4*len(draws))
	args = append(args, operation, "")
	if l.now != nil {
		args[1] = l.now()
	}
	prefix := l.opts.Prefix + hashTag(key)
	for _, d := range draws {
		rate := d.Rate.WithDefaults()
		keys = append(keys, prefix+":"+d.Bucket)
		args = append(args, d.Cost, rate.N, rate.Per.Nanoseconds(), rate.Burst)
	}
	reply, err := l.client.run(ctx, bucketsScript, keys, args...)
	if err != nil {
		return nil, err
	}
	l.log.answered(ctx)
	values, err := reply.Int64Slice()
	if err == nil && len(values) != 3*len(draws) {
		err = fmt.Errorf("%d numbers for %d draws", len(values), len(draws))
	}
	if err != nil {
		return nil, fmt.Errorf("redislimit: unexpected reply: %w", err)
	}
	return values, nil
}

// hashTag returns key as a hash tag: the part of a name in braces by which a
// Redis Cluster finds its node. Different keys have different tags, and no tag
// is empty or has another brace in it.
func hashTag(key string) string {
	escaped := url.PathEscape(key)
	if key == "" {
		escaped = "%" // which escapes nothing else
	}
	return "{" + escaped + "}"
}

// duration returns a number of microseconds of buckets.lua, where a negative
// number means never.
func duration(micros int64) time.Duration {
	if micros < 0 {
		return math.MaxInt64
	}
	return time.Duration(micros) * time.Microsecond
}
