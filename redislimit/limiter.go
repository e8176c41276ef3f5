package redislimit

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmhttp/llmhttp"
)

// Options configure a [Limiter], which keeps a copy. The zero value is ready
// to use.
type Options struct {
	// Prefix begins the name of every key in Redis; if empty, it is "llmhttp:".
	// Limiters limit as one whose Redis and Prefix are the same. With a hash tag
	// in it, such as "{limits}:", a cluster keeps all buckets in one slot.
	Prefix string

	// Timeout bounds each call, and so what a Redis that does not answer adds to
	// a request. Zero or negative means 250 ms.
	Timeout time.Duration

	// Fallback limits while Redis does not. If nil, calls fail, and the
	// Handler refuses requests with 503. [llmhttp.NewLimiter] has each process
	// limit for itself, and [FailOpen] admits what Redis cannot decide about.
	//
	// Its buckets know nothing of those in Redis, and are not merged into them.
	// With any Fallback, a process counts its own requests in progress alone as
	// long as Redis is away.
	Fallback llmhttp.Limiter

	// Lease is for how long a request in progress counts whose process is
	// silent, because it died or does not reach Redis. Zero or negative means
	// 30 s, and less than a second a second. Leases are renewed three times in
	// that time.
	Lease time.Duration

	// Logger is told, now and then, what the caller of a Limiter is not: that
	// the Fallback decides, and that leases are not renewed. If nil,
	// slog.Default() is.
	Logger *slog.Logger
}

// A Limiter is a [llmhttp.Limiter] and a [llmhttp.ConcurrencyLimiter] on Redis.
// Its methods may be called concurrently.
//
// A call that failed may have been done all the same, where Redis did not
// answer in time. It is never done twice.
type Limiter struct {
	redis   server
	opts    Options
	leases  leases
	trouble trouble

	now func() int64 // in microseconds, for tests; if nil, the clock of Redis
}

var _ llmhttp.ConcurrencyLimiter = (*Limiter)(nil)

// New returns a Limiter on the Redis of client: a [redis.Client], also that of
// a Sentinel, a [redis.ClusterClient] or a [redis.Ring]. If opts is nil, it is
// as if it were zero. The client remains the caller's, to be closed after the
// Limiter. It is best made with ContextTimeoutEnabled. Without it a call takes
// longer, as it needs a goroutine of its own to be left behind by, and one that
// timed out occupies a connection for as long as the client's ReadTimeout. What
// the client's own package logs, addresses included, is for [redis.SetLogger].
//
// New sends nothing: it does not fail if Redis is away. It panics if client is
// nil, and if the Prefix has the empty hash tag {} in it.
func New(client redis.UniversalClient, opts *Options) *Limiter {
	if client == nil {
		panic("redislimit: nil client")
	}
	l := &Limiter{}
	if opts != nil {
		l.opts = *opts
	}
	o := &l.opts
	if o.Prefix == "" {
		o.Prefix = "llmhttp:"
	}
	if _, tag, ok := strings.Cut(o.Prefix, "{"); ok && strings.HasPrefix(tag, "}") {
		panic("redislimit: a Prefix with an empty hash tag")
	}
	if o.Timeout <= 0 {
		o.Timeout = 250 * time.Millisecond
	}
	if o.Lease <= 0 {
		o.Lease = 30 * time.Second
	}
	o.Lease = max(o.Lease, time.Second)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	l.redis = server{client: client, heeds: heeds(client), timeout: o.Timeout, pause: o.Timeout}
	l.leases.id = rand.Text()[:16]
	l.leases.held = make(map[string]map[string]struct{})
	return l
}

//go:embed buckets.lua
var bucketsSource string

var bucketsScript = newScript(bucketsSource)

// Take implements [llmhttp.Limiter]. All draws have to be on buckets whose
// names are alike up to their last colon.
func (l *Limiter) Take(ctx context.Context, draws ...llmhttp.Draw) ([]llmhttp.Level, error) {
	if len(draws) == 0 {
		return nil, nil
	}
	values, err := l.run(ctx, "take", draws)
	if err != nil {
		if l.fallsBack(ctx, err) {
			return l.opts.Fallback.Take(ctx, draws...)
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

// Adjust implements [llmhttp.Limiter]. All draws have to be on buckets whose
// names are alike up to their last colon.
func (l *Limiter) Adjust(ctx context.Context, draws ...llmhttp.Draw) error {
	if len(draws) == 0 {
		return nil
	}
	_, err := l.run(ctx, "adjust", draws)
	if err != nil && l.fallsBack(ctx, err) {
		return l.opts.Fallback.Adjust(ctx, draws...)
	}
	return err
}

// run runs the script of buckets, and returns three numbers for each draw.
func (l *Limiter) run(ctx context.Context, what string, draws []llmhttp.Draw) ([]int64, error) {
	keys := make([]string, len(draws))
	numbers := make([]byte, 0, 4*8*len(draws))
	group, _ := split(draws[0].Bucket)
	prefix := l.opts.Prefix + tag(group)
	for i := range draws {
		d := &draws[i]
		g, rest := split(d.Bucket)
		if g != group {
			return nil, fmt.Errorf("redislimit: draws on %q and %q: names of buckets must be alike up to the last colon", draws[0].Bucket, d.Bucket)
		}
		keys[i] = prefix + rest
		rate := d.Rate.WithDefaults()
		for _, f := range [...]float64{float64(d.Cost), float64(rate.N), float64(rate.Per) / float64(time.Microsecond), float64(rate.Burst)} {
			numbers = binary.LittleEndian.AppendUint64(numbers, math.Float64bits(f))
		}
	}
	args := []any{what, numbers}
	if l.now != nil {
		args = append(args, l.now())
	}
	reply, err := l.redis.run(ctx, bucketsScript, keys, args...)
	if err != nil {
		return nil, err
	}
	l.trouble.ended(ctx, l.opts.Logger)
	values, err := reply.Int64Slice()
	if err == nil && len(values) != 3*len(draws) {
		err = fmt.Errorf("%d numbers for %d draws", len(values), len(draws))
	}
	if err != nil {
		return nil, fmt.Errorf("redislimit: unexpected reply: %w", err)
	}
	return values, nil
}

// split splits the name of a bucket at its last colon.
func split(bucket string) (group, rest string) {
	if i := strings.LastIndexByte(bucket, ':'); i >= 0 {
		return bucket[:i], bucket[i:]
	}
	return bucket, ""
}

// tag returns group as a hash tag, which is what a cluster looks at to find
// the slot of a key: what is between the first brace and the next that closes,
// unless that is nothing.
func tag(group string) string {
	if group == "" || group[0] == '}' || group[0] == '\\' {
		group = `\` + group
	}
	return "{" + group + "}"
}

// duration returns a number of microseconds as the script has them.
func duration(micros int64) time.Duration {
	if micros < 0 {
		return math.MaxInt64
	}
	return time.Duration(micros) * time.Microsecond
}
