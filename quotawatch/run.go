package quotawatch

import (
	"context"
	"errors"
	"time"

	"github.com/llmhttp/llmhttp/internal/panics"
)

const (
	maxEvents = 1000 // goroutines
	maxCalls  = 16
	maxTold   = 1 << 16

	callTimeout  = time.Minute
	lease        = 2 * time.Minute // of a claim: a call, and two of the store
	storeTimeout = 10 * time.Second

	minRetry = time.Second
	maxRetry = 10 * time.Minute
	giveUp   = 24 * time.Hour // after which an event is left to the next request of its subject

	// keepFor is how long after its period an event is remembered, because of requests that
	// began in it and clocks that differ.
	keepFor = 24 * time.Hour

	// grace is how long Close waits for calls that it has cancelled.
	grace = 5 * time.Second
)

// run notifies the host of e until that has succeeded, for some process, or w is closed.
func (w *Watcher) run(n notedEvent, e *Event) {
	handled := false
	defer func() { w.end(n, handled) }()
	deadline := time.Now().Add(giveUp)
	for retry := minRetry; ; retry = min(2*retry, maxRetry) {
		var wait time.Duration
		if handled, wait = w.try(e, retry); handled || time.Now().After(deadline) {
			return
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-w.closing:
			timer.Stop()
			return
		}
	}
}

// end notes that the goroutine of an event ends.
func (w *Watcher) end(n notedEvent, handled bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !handled {
		delete(w.told, n)
	}
	w.running--
	if w.closed && w.running == 0 {
		close(w.ended)
	}
}

// try notifies the host of e unless another process does or did. It reports whether e is handled,
// and otherwise when to try again: after the time of retry, or when the other process has had its
// time.
func (w *Watcher) try(e *Event, retry time.Duration) (handled bool, wait time.Duration) {
	select {
	case w.calls <- struct{}{}:
		defer func() { <-w.calls }()
	case <-w.ctx.Done():
		return false, retry
	}
	claimed, wait, err := w.claim(e)
	switch {
	case err != nil:
		w.logger.Error("quota event not claimed", "id", e.ID, "error", panics.Text(err), "retry_after", retry)
		return false, retry
	case !claimed:
		return wait <= 0, wait
	}
	err = w.callHost(e)
	if err != nil {
		w.logger.Error("quota event not handled", "id", e.ID, "account", e.Account, "subject_kind", e.Subject.Kind,
			"subject", e.Subject.ID, "share", e.Share, "error", panics.Text(err), "retry_after", retry)
	}
	if endErr := w.endClaim(e, err == nil); endErr != nil {
		w.logger.Error("quota event not stored, so that it may be told again", "id", e.ID, "error", panics.Text(endErr))
	}
	return err == nil, retry
}

// callHost calls the function of the host. A panic is an error.
func (w *Watcher) callHost(e *Event) (err error) {
	ctx, cancel := context.WithTimeout(w.ctx, callTimeout)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = panics.New(p)
		}
	}()
	return w.reached(ctx, new(*e))
}

// claim is EventStore.ClaimQuotaEvent.
func (w *Watcher) claim(e *Event) (claimed bool, wait time.Duration, err error) {
	var keep time.Time
	if _, end := period(&e.Quota, e.Start); !end.IsZero() {
		keep = end.Add(keepFor)
	}
	err = w.askStore(func(ctx context.Context) (err error) {
		claimed, wait, err = w.store.ClaimQuotaEvent(ctx, e.ID, lease, keep)
		return err
	})
	if errors.Is(err, errors.ErrUnsupported) {
		claimed, wait = w.local.Claim(e.ID, w.now(), lease, keep)
		err = nil
	}
	return claimed, wait, err
}

// endClaim is EventStore.EndQuotaEvent.
func (w *Watcher) endClaim(e *Event, handled bool) error {
	err := w.askStore(func(ctx context.Context) error { return w.store.EndQuotaEvent(ctx, e.ID, handled) })
	if errors.Is(err, errors.ErrUnsupported) {
		w.local.End(e.ID, handled)
		err = nil
	}
	return err
}

// askStore calls ask, which asks the store. The context is not that of calls, because what the
// host has done is to be stored when Close has cancelled that.
func (w *Watcher) askStore(ask func(ctx context.Context) error) (err error) {
	if w.store == nil {
		return errors.ErrUnsupported
	}
	defer func() {
		if p := recover(); p != nil {
			err = panics.New(p)
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	return ask(ctx)
}
