package llmhttp

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/llmhttp/llmhttp/internal/claims"
	"github.com/llmhttp/llmhttp/internal/panics"
)

// A quotaNotifier calls Options.QuotaReached, on goroutines of its own.
type quotaNotifier struct {
	call   func(ctx context.Context, e *QuotaEvent) error
	store  QuotaEventStore // nil if the host's remembers no events
	local  claims.Set      // takes the place of store
	now    func() time.Time
	logger *slog.Logger

	calls   chan struct{}   // is full when maxQuotaCalls are in progress
	ctx     context.Context // of the calls
	cancel  context.CancelFunc
	closing chan struct{} // closed by stop

	mu      sync.Mutex          // guards the fields below
	pending map[string]struct{} // the IDs of the events that have a goroutine
	stopped bool
	ended   chan struct{} // closed when stopped is set and pending is empty
}

// The bounds of a quotaNotifier.
const (
	maxQuotaEvents = 1000 // goroutines
	maxQuotaCalls  = 16

	quotaCallTimeout = time.Minute
	quotaLease       = 2 * time.Minute // of a claim: a call, and two of the store
	quotaStoreTime   = 10 * time.Second

	minQuotaRetry = time.Second
	maxQuotaRetry = 10 * time.Minute
	quotaGiveUp   = 24 * time.Hour // after which an event is left to the next request of its subject

	// quotaKeep is how long after its period an event is remembered, because of requests that
	// began in it and clocks that differ.
	quotaKeep = 24 * time.Hour
)

// newQuotaNotifier returns nil if no Options.QuotaReached is set.
func newQuotaNotifier(o *Options) *quotaNotifier {
	if o.QuotaReached == nil {
		return nil
	}
	n := &quotaNotifier{
		call: o.QuotaReached, now: o.Now, logger: o.Logger,
		calls: make(chan struct{}, maxQuotaCalls), closing: make(chan struct{}),
		pending: make(map[string]struct{}), ended: make(chan struct{}),
	}
	if n.now == nil {
		n.now = time.Now
	}
	n.store, _ = StoreAs[QuotaEventStore](o.Usage)
	n.ctx, n.cancel = context.WithCancel(context.Background())
	return n
}

// begin begins to notify the host of events of o. It reports false if there are too many. An event
// that is in progress is not begun again.
func (n *quotaNotifier) begin(o *quotaOwner, events []*QuotaEvent) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, e := range events {
		e.setOwner(o)
		_, known := n.pending[e.ID]
		switch {
		case known || n.stopped:
		case len(n.pending) >= maxQuotaEvents:
			return false
		default:
			n.pending[e.ID] = struct{}{}
			go n.run(e)
		}
	}
	return true
}

// run notifies the host of e until that has succeeded, for some process, or n is stopped.
func (n *quotaNotifier) run(e *QuotaEvent) {
	defer n.end(e.ID)
	giveUp := time.Now().Add(quotaGiveUp)
	for retry := minQuotaRetry; ; retry = min(2*retry, maxQuotaRetry) {
		handled, wait := n.try(e, retry)
		if handled || time.Now().After(giveUp) {
			return
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-n.closing:
			timer.Stop()
			return
		}
	}
}

// end notes that the goroutine of an event ends.
func (n *quotaNotifier) end(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.pending, id)
	if n.stopped && len(n.pending) == 0 {
		close(n.ended)
	}
}

// try notifies the host of e unless another process does or did. It reports whether e is handled,
// and otherwise when to try again: after the time of retry, or when the other process has had its
// time.
func (n *quotaNotifier) try(e *QuotaEvent, retry time.Duration) (handled bool, wait time.Duration) {
	select {
	case n.calls <- struct{}{}:
		defer func() { <-n.calls }()
	case <-n.ctx.Done():
		return false, retry
	}
	claimed, wait, err := n.claim(e)
	switch {
	case err != nil:
		n.logger.Error("quota event not claimed", "id", e.ID, "error", panics.Text(err), "retry_after", retry)
		return false, retry
	case !claimed:
		return wait <= 0, wait
	}
	err = n.callHost(e)
	if err != nil {
		n.logger.Error("Options.QuotaReached failed", "id", e.ID, "account", e.Account, "subject_kind", e.Subject.Kind,
			"subject", e.Subject.ID, "share", e.Share, "error", panics.Text(err), "retry_after", retry)
	}
	if endErr := n.endClaim(e, err == nil); endErr != nil {
		n.logger.Error("quota event not stored, so that it may be told again", "id", e.ID, "error", panics.Text(endErr))
	}
	return err == nil, retry
}

// callHost calls Options.QuotaReached. A panic is an error.
func (n *quotaNotifier) callHost(e *QuotaEvent) (err error) {
	ctx, cancel := context.WithTimeout(n.ctx, quotaCallTimeout)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = panics.New(p)
		}
	}()
	c := *e
	return n.call(ctx, &c)
}

// claim is QuotaEventStore.ClaimQuotaEvent.
func (n *quotaNotifier) claim(e *QuotaEvent) (claimed bool, wait time.Duration, err error) {
	var keep time.Time
	if _, end := e.Quota.eventPeriod(e.Start); !end.IsZero() {
		keep = end.Add(quotaKeep)
	}
	err = n.askStore(func(ctx context.Context) (err error) {
		claimed, wait, err = n.store.ClaimQuotaEvent(ctx, e.ID, quotaLease, keep)
		return err
	})
	if errors.Is(err, errors.ErrUnsupported) {
		claimed, wait = n.local.Claim(e.ID, n.now(), quotaLease, keep)
		err = nil
	}
	return claimed, wait, err
}

// endClaim is QuotaEventStore.EndQuotaEvent.
func (n *quotaNotifier) endClaim(e *QuotaEvent, handled bool) error {
	err := n.askStore(func(ctx context.Context) error { return n.store.EndQuotaEvent(ctx, e.ID, handled) })
	if errors.Is(err, errors.ErrUnsupported) {
		n.local.End(e.ID, handled)
		err = nil
	}
	return err
}

// askStore calls ask, which asks the store. The context is not that of calls, because what the
// host has done is to be stored when Shutdown has cancelled that.
func (n *quotaNotifier) askStore(ask func(ctx context.Context) error) (err error) {
	if n.store == nil {
		return errors.ErrUnsupported
	}
	defer func() {
		if p := recover(); p != nil {
			err = panics.New(p)
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), quotaStoreTime)
	defer cancel()
	return ask(ctx)
}

// stop makes n begin no more events, and lets those end that wait to be tried again. It returns a
// channel that is closed when no call is left. A nil n has none.
func (n *quotaNotifier) stop() <-chan struct{} {
	if n == nil {
		ended := make(chan struct{})
		close(ended)
		return ended
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.stopped {
		n.stopped = true
		close(n.closing)
		if len(n.pending) == 0 {
			close(n.ended)
		}
	}
	return n.ended
}

// interrupt cancels the context of the calls in progress.
func (n *quotaNotifier) interrupt() {
	if n != nil {
		n.cancel()
	}
}
