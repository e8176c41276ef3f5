package redislimit

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/llmhttp/llmhttp"
)

// FailOpen returns a Limiter for [Options.Fallback] that admits every request
// that full buckets would admit. It refuses only a Cost above the burst, and so
// every Cost at a Rate that permits nothing.
func FailOpen() llmhttp.Limiter { return failOpen{} }

type failOpen struct{}

func (failOpen) Take(_ context.Context, _ string, draws ...llmhttp.Draw) ([]llmhttp.Level, error) {
	levels := make([]llmhttp.Level, len(draws))
	granted := true
	for i, d := range draws {
		levels[i].Remaining = d.Rate.WithDefaults().Burst
		if d.Cost > levels[i].Remaining {
			levels[i].RetryAfter = math.MaxInt64
			granted = false
		}
	}
	if granted {
		for i, d := range draws {
			levels[i].Remaining -= d.Cost
		}
	}
	return levels, nil
}

func (failOpen) Adjust(context.Context, string, ...llmhttp.Draw) error { return nil }

// fallsBack reports whether the Fallback decides after a call failed with err.
func (l *Limiter) fallsBack(ctx context.Context, err error) bool {
	if l.opts.Fallback == nil || ctx.Err() != nil {
		return false
	}
	if _, ok := errors.AsType[*callError](err); !ok {
		return false
	}
	l.log.failed(ctx, "redislimit: the fallback limits", err)
	return true
}

// logInterval is the time between two warnings of an outageLog.
const logInterval = 10 * time.Second

// An outageLog logs failures without filling the log.
type outageLog struct {
	logger *slog.Logger

	mu      sync.Mutex // guards the fields below
	failing bool       // a failure was logged, and no recovery since
	next    time.Time  // when to log the next failure
	skipped int        // failures since the last that was logged
}

func (o *outageLog) failed(ctx context.Context, message string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if now.Before(o.next) {
		o.skipped++
		return
	}
	o.logger.WarnContext(ctx, message, "error", err, "skipped", o.skipped)
	o.next, o.skipped, o.failing = now.Add(logInterval), 0, true
}

// answered is called after each call that succeeded.
func (o *outageLog) answered(ctx context.Context) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failing {
		o.failing = false
		o.logger.InfoContext(ctx, "redislimit: Redis answers again")
	}
}
