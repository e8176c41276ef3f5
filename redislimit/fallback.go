// FailOpen, and when Options.Fallback decides.

package redislimit

import (
	"context"
	"errors"
	"math"

	"github.com/llmhttp/llmhttp"
)

// FailOpen returns a Limiter for [Options.Fallback] that admits every request
// that full buckets would admit. It refuses only an Amount above the burst, and so
// every Amount at a Rate that permits nothing.
func FailOpen() llmhttp.Limiter { return failOpen{} }

type failOpen struct{}

func (failOpen) Take(_ context.Context, draws ...llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) {
	levels := make([]llmhttp.BucketLevel, len(draws))
	granted := true
	for i, d := range draws {
		levels[i].Remaining = int64(d.Rate.WithDefaults().Burst)
		if d.Amount > levels[i].Remaining {
			levels[i].RetryAfter = math.MaxInt64
			granted = false
		}
	}
	if granted {
		for i, d := range draws {
			levels[i].Remaining -= d.Amount
		}
	}
	return levels, nil
}

func (failOpen) Adjust(context.Context, ...llmhttp.BucketAmount) error { return nil }

// fallsBack reports whether the Fallback decides after a call that returned err.
func (l *Limiter) fallsBack(ctx context.Context, err error) bool {
	if l.opts.Fallback == nil || ctx.Err() != nil {
		return false
	}
	_, ok := errors.AsType[*callError](err)
	return ok
}

// logFallback logs that the Fallback decides because a call failed with err.
func (l *Limiter) logFallback(ctx context.Context, err error) {
	l.log.failed(ctx, "redislimit: the fallback limits", err)
}
