// The script that takes tokens, and its call. On a single server, a script takes from all subjects of
// a call. On a cluster, a script takes from one subject; if a later one refuses or fails, the Limiter
// gives back what it has taken from those before.

package redislimit

import (
	"context"
	_ "embed"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/llmhttp/llmhttp"
)

//go:embed buckets.lua
var bucketsSource string

var bucketsScript = newScript(bucketsSource)

// takeAll takes from all draws or from none. If not all names are on one node of Redis, it
// takes from one subject after the other, and gives back what it has taken when one refuses or
// fails.
func (l *Limiter) takeAll(ctx context.Context, draws []llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) {
	levels := make([]llmhttp.BucketLevel, 0, len(draws))
	for _, group := range groups(l, draws, subjectOfDraw) {
		taken := draws[:len(levels)]
		got, err := l.runBuckets(ctx, "take", group)
		if err != nil {
			l.giveBack(ctx, taken)
			return nil, err
		}
		levels = append(levels, got...)
		if slices.ContainsFunc(got, func(l llmhttp.BucketLevel) bool { return l.RetryAfter > 0 }) {
			copy(levels, l.giveBack(ctx, taken))
			break
		}
	}
	for len(levels) < len(draws) {
		levels = append(levels, llmhttp.BucketLevel{Unknown: true})
	}
	return levels, nil
}

// giveBack returns what takeAll has taken from draws, and the levels afterwards, up to those of
// a subject for which that fails. Its tokens are missing until the bucket has refilled.
func (l *Limiter) giveBack(ctx context.Context, draws []llmhttp.BucketAmount) (levels []llmhttp.BucketLevel) {
	if l.opts.Timeout != forever { // or nothing else would bound the calls
		ctx = context.WithoutCancel(ctx)
	}
	failed := false
	for _, group := range groups(l, draws, subjectOfDraw) {
		group = slices.Clone(group)
		for i := range group {
			group[i].Amount = -group[i].Amount
		}
		got, err := l.runBuckets(ctx, "adjust", group)
		if err != nil {
			l.log.failed(ctx, "redislimit: tokens are not given back", err)
			failed = true
		}
		if !failed {
			levels = append(levels, got...)
		}
	}
	return levels
}

// runBuckets runs buckets.lua, which describes the operations "take" and "adjust". It
// returns a BucketLevel for each draw. All draws must be on one node of Redis.
func (l *Limiter) runBuckets(ctx context.Context, operation string, draws []llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) {
	var now any = "" // the time of the server
	if l.now != nil {
		now = l.now()
	}
	keys := make([]string, 0, len(draws))
	args := make([]any, 0, 2+4*len(draws))
	args = append(args, operation, now)
	var prefix string
	for i, d := range draws {
		if i == 0 || d.Subject != draws[i-1].Subject {
			prefix = l.opts.Prefix + hashTag(d.Subject)
		}
		rate := d.Rate.WithDefaults()
		keys = append(keys, prefix+":"+d.Bucket)
		args = append(args, d.Amount, rate.N, rate.Per.Nanoseconds(), rate.Burst)
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
	levels := make([]llmhttp.BucketLevel, len(draws))
	for i := range levels {
		levels[i] = llmhttp.BucketLevel{
			Remaining:  values[3*i],
			RetryAfter: duration(values[3*i+1]),
			ResetAfter: duration(values[3*i+2]),
		}
	}
	return levels, nil
}

// duration returns a number of microseconds of buckets.lua, where a negative
// number means never.
func duration(micros int64) time.Duration {
	if micros < 0 {
		return math.MaxInt64
	}
	return time.Duration(micros) * time.Microsecond
}
