// Limiter, its options and methods, and the names in Redis.

package redislimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/manage"
)

// Options configure a [Limiter], which keeps a copy. The zero value is ready to use.
type Options struct {
	// Prefix begins all names in Redis. If empty, it is "llmhttp:". Limiters
	// share their limits if they have the same Redis and Prefix. A hash tag in
	// the Prefix, as in "{limits}:", makes a Redis Cluster keep all data on one
	// node. A redis.Client that is connected to a proxy in front of a cluster needs one.
	Prefix string

	// Timeout bounds each call to Redis. A request waits that long for a Redis
	// that hangs. Zero means 250 ms; negative means no timeout.
	Timeout time.Duration

	// Fallback decides while Redis does not answer or refuses. If nil, calls
	// return an error then, and the Handler refuses requests with 503. With
	// [llmhttp.NewLimiter] each process limits on its own; [FailOpen] admits
	// all requests.
	//
	// The buckets of the Fallback are independent of those in Redis. With any Fallback, a process
	// counts its own requests in progress until Redis answers again.
	Fallback llmhttp.Limiter

	// Lease is how long a request in progress counts after its process last
	// renewed its lease. Processes renew their leases three times in that time.
	// Zero means 30 s; negative means no limit: leases do not expire. The minimum
	// is a second.
	Lease time.Duration

	// Logger receives a warning when the Fallback decides and when leases cannot be renewed, at
	// most every 10 s, and a message when Redis answers again. If nil, it is slog.Default().
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

// A Limiter is a [manage.ConcurrencyCounter] and a [llmhttp.Reserver] on Redis. Its methods may be
// called concurrently.
//
// When a call fails because Redis did not answer in time, Redis may have executed it. A call is
// never executed twice.
type Limiter struct {
	client  client
	opts    Options
	oneNode bool // all names are on one node of Redis
	leases  *leases
	log     outageLog

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
// New returns an error if c is nil, if the Fallback holds a nil pointer, or if the Prefix has an
// empty hash tag.
func New(c redis.UniversalClient, opts *Options) (*Limiter, error) {
	if isNil(c) {
		return nil, errors.New("redislimit: nil client")
	}
	l := &Limiter{}
	if opts != nil {
		l.opts = *opts
	}
	if f := l.opts.Fallback; f != nil && isNil(f) {
		return nil, fmt.Errorf("redislimit: Options.Fallback holds a nil %T", f)
	}
	l.opts.setDefaults()
	// Redis hashes the whole name if the first hash tag is empty.
	if _, tag, ok := strings.Cut(l.opts.Prefix, "{"); ok && strings.HasPrefix(tag, "}") {
		return nil, errors.New("redislimit: Options.Prefix has an empty hash tag")
	}
	l.oneNode = isOnOneNode(c, l.opts.Prefix)
	l.client = client{redis: c, timeout: l.opts.Timeout, retryInterval: min(l.opts.Timeout, time.Second)}
	l.log.logger = l.opts.Logger
	l.leases = newLeases(l)
	return l, nil
}

// isNil reports whether v is nil or holds a nil pointer or function: a variable that was never set, whose methods
// would fail at the first request.
func isNil(v any) bool {
	r := reflect.ValueOf(v)
	return !r.IsValid() || (r.Kind() == reflect.Pointer || r.Kind() == reflect.Func) && r.IsNil()
}

// Take implements [llmhttp.Limiter]. If ctx is canceled, for example because the client
// leaves, Take still waits for the answer of Redis, until the Timeout or the deadline of
// ctx. Otherwise the caller could not return tokens that were taken.
func (l *Limiter) Take(ctx context.Context, draws ...llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) {
	if err := ctx.Err(); err != nil || len(draws) == 0 {
		return nil, err
	}
	callCtx, cancel := l.withoutCancel(ctx)
	defer cancel()
	levels, err := l.takeAll(callCtx, draws)
	if l.fallsBack(ctx, err) {
		l.logFallback(ctx, err)
		return l.opts.Fallback.Take(ctx, draws...)
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

// Adjust implements [llmhttp.Limiter]. The Fallback adjusts the subjects for which Redis fails.
func (l *Limiter) Adjust(ctx context.Context, draws ...llmhttp.BucketAmount) (first error) {
	for _, group := range groups(l, draws, subjectOfDraw) {
		_, err := l.runBuckets(ctx, "adjust", group)
		if l.fallsBack(ctx, err) {
			l.logFallback(ctx, err)
			err = l.opts.Fallback.Adjust(ctx, group...)
		}
		first = cmp.Or(first, err)
	}
	return first
}

// Acquire implements [llmhttp.ConcurrencyLimiter]. It acquires a lease of each slot, which
// is renewed until it is released or the Limiter is closed.
//
// release calls Redis. If that fails, it is repeated in the background. If Redis loses its data,
// the next renewal restores the leases.
func (l *Limiter) Acquire(ctx context.Context, slots ...llmhttp.SlotAmount) (release func(), full int, err error) {
	acquired, full, err := l.acquire(ctx, slots)
	if acquired == nil {
		return nil, full, err
	}
	return sync.OnceFunc(func() { l.leases.release(acquired) }), 0, nil
}

// Reserve implements [llmhttp.Reserver], with leases as Acquire. settle calls Redis, which then
// drops the amounts by its own clock. If that fails, the leases are given back as by release,
// and the amounts do not count; neither do those that Redis loses.
func (l *Limiter) Reserve(
	ctx context.Context,
	slots ...llmhttp.SlotAmount,
) (settle func(linger time.Duration, amounts ...int64), full int, err error) {
	acquired, full, err := l.acquire(ctx, slots)
	if acquired == nil {
		return nil, full, err
	}
	var once sync.Once
	return func(linger time.Duration, amounts ...int64) {
		once.Do(func() { l.settle(acquired, linger, amounts) })
	}, 0, nil
}

// acquire acquires a lease of each slot, or returns nil and the index of a slot that is full.
func (l *Limiter) acquire(ctx context.Context, slots []llmhttp.SlotAmount) (_ []lease, full int, err error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	if full := slices.IndexFunc(slots, func(s llmhttp.SlotAmount) bool { return s.Limit < s.Amount }); full >= 0 {
		return nil, full, nil
	}
	requested, err := l.leases.newLeases(l.opts.Prefix, slots)
	if err != nil {
		return nil, 0, err
	}
	acquired := 0
	for _, group := range groups(l, slots, subjectOfSlot) {
		leases := requested[acquired : acquired+len(group)]
		full, err := l.leases.acquire(ctx, leases, group)
		if err != nil {
			return l.acquireLocally(ctx, requested, slots, acquired, acquired+len(group), err)
		}
		if full >= 0 {
			l.leases.remove(requested[:acquired], false)
			return nil, acquired + full, nil
		}
		acquired += len(group)
	}
	l.log.answered(ctx)
	l.leases.hold(requested)
	return requested, 0, nil
}

// acquireLocally decides about leases of which a script failed with err. Redis has those before
// acquired, and perhaps those from there up to asked. With a Fallback it counts the leases of
// this process, and otherwise returns err.
func (l *Limiter) acquireLocally(
	ctx context.Context,
	requested []lease,
	slots []llmhttp.SlotAmount,
	acquired, asked int,
	err error,
) (_ []lease, full int, _ error) {
	fallsBack := l.fallsBack(ctx, err)
	if fallsBack {
		l.logFallback(ctx, err)
		if full = l.leases.holdWithin(requested, slots); full < 0 {
			return requested, 0, nil
		}
	}
	if f, ok := errors.AsType[*callError](err); !ok || !f.notSent {
		l.leases.removeLater(requested[acquired:asked]) // Redis may have executed the script
	}
	l.leases.remove(requested[:acquired], false)
	if fallsBack {
		return nil, full, nil
	}
	return nil, 0, err
}

// settle replaces leases by amounts that are not renewed and expire after linger.
func (l *Limiter) settle(acquired []lease, linger time.Duration, amounts []int64) {
	if linger <= 0 || len(amounts) != len(acquired) {
		l.leases.release(acquired)
		return
	}
	for i := range acquired {
		acquired[i].settled = amounts[i]
	}
	held, mayBeRestored := l.leases.drop(acquired)
	for _, group := range groups(l, held, func(l *lease) *llmhttp.SubjectID { return &l.subject }) {
		err := l.leases.settle(context.Background(), group, linger)
		if err != nil {
			l.log.failed(context.Background(), "redislimit: usage is not shared", err)
		}
		if err != nil || mayBeRestored {
			l.leases.removeLater(group)
		}
	}
}

// Concurrent implements [manage.ConcurrencyCounter]. It counts the leases of all
// processes in Redis.
func (l *Limiter) Concurrent(ctx context.Context, subject llmhttp.SubjectID) (int64, error) {
	reply, err := l.client.run(ctx, leasesScript, []string{slotKey(l.opts.Prefix, subject, llmhttp.SlotConcurrent)}, "count", 0)
	if err != nil {
		return 0, err
	}
	return reply.Int64()
}

// Close removes the leases that are still held, after which their release functions do nothing.
// Acquire returns an error from then on; Take and Adjust still work. Call Close after
// [llmhttp.Handler.Shutdown]. It does not close the redis client. If it returns an error, the
// leases expire.
func (l *Limiter) Close() error { return l.leases.close() }

// groups returns the parts of a call of which Redis can execute each in one step: the whole
// call if all names are on one node, and otherwise the part of each subject. list is a list of
// draws or of slots.
func groups[T any](l *Limiter, list []T, subject func(*T) *llmhttp.SubjectID) (parts [][]T) {
	for len(list) > 0 {
		n := 1
		for n < len(list) && (l.oneNode || *subject(&list[n]) == *subject(&list[0])) {
			n++
		}
		parts, list = append(parts, list[:n]), list[n:]
	}
	return parts
}

func subjectOfDraw(d *llmhttp.BucketAmount) *llmhttp.SubjectID { return &d.Subject }

func subjectOfSlot(s *llmhttp.SlotAmount) *llmhttp.SubjectID { return &s.Subject }

// isOnOneNode reports whether all names with a prefix are on the same node.
func isOnOneNode(c redis.UniversalClient, prefix string) bool {
	_, isClient := c.(*redis.Client)
	_, tag, hasTag := strings.Cut(prefix, "{")
	return isClient || hasTag && strings.Contains(tag, "}")
}

// hashTag returns a subject as a hash tag: the part of a name in braces by which a
// Redis Cluster finds its node. Different subjects have different tags, and no tag
// is empty or has another brace or slash in it.
func hashTag(s llmhttp.SubjectID) string {
	return "{" + url.PathEscape(s.Kind) + "/" + url.PathEscape(s.ID) + "}"
}

// slotKey returns the name in Redis of a slot. In that of a bucket, there is a colon after the
// hash tag instead of a slash.
func slotKey(prefix string, s llmhttp.SubjectID, name string) string {
	return prefix + hashTag(s) + "/" + name
}
