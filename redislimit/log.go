// Log lines about failures.

package redislimit

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

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

// failed logs a failure, unless one was logged less than logInterval ago.
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

// answered ends an outage. It is called after each call that succeeded.
func (o *outageLog) answered(ctx context.Context) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failing {
		o.failing = false
		o.logger.InfoContext(ctx, "redislimit: Redis answers again")
	}
}
