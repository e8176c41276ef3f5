package redislimit

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/llmhttp/llmhttp"
)

// FailOpen returns a Limiter for [Options.Fallback] that admits every request
// which a full bucket would admit: that is all but those of a Rate that
// permits nothing, and those of more than a Burst.
func FailOpen() llmhttp.Limiter { return failOpen{} }

type failOpen struct{}

func (failOpen) Take(_ context.Context, draws ...llmhttp.Draw) ([]llmhttp.Level, error) {
	levels := make([]llmhttp.Level, len(draws))
	granted := true
	for i := range draws {
		burst := draws[i].Rate.WithDefaults().Burst
		levels[i].Remaining = burst
		if cost := draws[i].Cost; cost > 0 && cost > burst {
			levels[i].RetryAfter = math.MaxInt64
			granted = false
		}
	}
	if granted {
		for i := range levels {
			levels[i].Remaining -= draws[i].Cost
		}
	}
	return levels, nil
}

func (failOpen) Adjust(context.Context, ...llmhttp.Draw) error { return nil }

// fallsBack reports whether a call that failed is the Fallback's.
func (l *Limiter) fallsBack(ctx context.Context, err error) bool {
	if l.opts.Fallback == nil || ctx.Err() != nil {
		return false
	}
	if _, ok := errors.AsType[*failure](err); !ok {
		return false
	}
	l.trouble.log(ctx, l.opts.Logger, "redislimit: the fallback limits", err)
	return true
}

// logEvery is how often trouble that lasts is logged.
const logEvery = 10 * time.Second

// trouble is what its log is told of now and then.
type trouble struct {
	lasts atomic.Bool // it was logged, and its end was not

	mu      sync.Mutex
	next    time.Time // when to log again
	skipped int       // since it was logged last
}

func (t *trouble) log(ctx context.Context, log *slog.Logger, message string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if now.Before(t.next) {
		t.skipped++
		return
	}
	log.WarnContext(ctx, message, "error", err, "skipped", t.skipped)
	t.next, t.skipped = now.Add(logEvery), 0
	t.lasts.Store(true)
}

// ended is called whenever there is no trouble.
func (t *trouble) ended(ctx context.Context, log *slog.Logger) {
	if t.lasts.Load() && t.lasts.CompareAndSwap(true, false) {
		log.InfoContext(ctx, "redislimit: Redis answers again")
	}
}
