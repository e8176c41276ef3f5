package redislimit

import (
	"context"
	_ "embed"
	"fmt"
	"math"
	"time"

	"github.com/llmhttp/llmhttp"
)

//go:embed buckets.lua
var bucketsSource string

var bucketsScript = newScript(bucketsSource)

// runBuckets runs buckets.lua, which describes the operations "take" and "adjust". It
// returns a Level for each draw.
func (l *Limiter) runBuckets(ctx context.Context, operation, key string, draws []llmhttp.Draw) ([]llmhttp.Level, error) {
	var now any = "" // the time of the server
	if l.now != nil {
		now = l.now()
	}
	keys := make([]string, 0, len(draws))
	args := make([]any, 0, 2+4*len(draws))
	args = append(args, operation, now)
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

// duration returns a number of microseconds of buckets.lua, where a negative
// number means never.
func duration(micros int64) time.Duration {
	if micros < 0 {
		return math.MaxInt64
	}
	return time.Duration(micros) * time.Microsecond
}
