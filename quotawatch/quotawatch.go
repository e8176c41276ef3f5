// Package quotawatch tells a host when its customers have used 80 % and when they have used all of a
// [llmhttp.Quota], once in each period, of all processes that share a store.
//
//	watcher := quotawatch.New(usage, func(ctx context.Context, e *quotawatch.Event) error {
//		return mail(ctx, e.Account, fmt.Sprintf("You have used %d %% of your budget.", e.Share))
//	}, nil)
//	h := llmhttp.NewHandler(backend, keys, &llmhttp.Options{Usage: usage, Price: price, Observe: watcher.Observe})
//	err := llmhttp.Serve(ctx, server, h, nil)
//	err = errors.Join(err, watcher.Close(context.Background()))
package quotawatch

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/claims"
	"github.com/llmhttp/llmhttp/internal/option"
	"github.com/llmhttp/llmhttp/llm"
)

// An Event tells that a subject has used a share of its Quota in a period.
//
// The period is the calendar month, or begins at Quota.Since if that is later. A Quota with a negative Per
// has one period, which does not end. The periods of a sliding Quota follow each other without a gap: each
// begins at a time that [time.Time.Truncate] of Per returns, in UTC. So one that is used evenly is told in
// each of them. A Quota whose Tokens or Cost was changed is another one.
type Event struct {
	// ID identifies the subject, the Quota, the period and the Share. It is the same for all
	// calls about them, by any process, so that what follows from a call can be made to
	// happen once. It has 1 to 64 letters, digits and underscores.
	ID string

	Account string            // of the key
	Subject llmhttp.SubjectID // the ID of an end user is the User of records
	Quota   llmhttp.Quota

	// Share is 80 or 100, in percent, of the tokens or of the money, of which the larger share counts. A
	// subject that has used 80 % has also used all if a request is refused because too little is left.
	Share int

	Start time.Time // of the period; zero if it has no beginning

	// Tokens and Cost are what was used of the Quota when that was noticed: what has been recorded, and
	// what this process has served since. Of a sliding Quota, they are those of its Per until then.
	Tokens int64
	Cost   llm.Money
}

// An EventStore remembers, for all processes that share it, which events were handled. The IDs are
// those of an [Event]. Stores of packages memory and sqlstore are EventStores, also behind package
// usagebuffer.
//
// A method that returns an error which wraps [errors.ErrUnsupported] is not there: a [Watcher] then
// remembers events by itself. So it does if a wrapper of the store has neither these methods nor an
// Unwrap: see [llmhttp.StoreAs].
type EventStore interface {
	// ClaimQuotaEvent claims an event for the caller, for the time of lease. It reports
	// false if the event was handled, or if it is claimed and the lease of that has not
	// lapsed. Then wait is the time until it does, and zero if the event was handled. Of
	// concurrent calls for one ID, at most one gets the claim. The time is that of the store
	// or of the process.
	//
	// The store remembers the event until keep, or for ever if that is zero, and may forget
	// it afterwards.
	ClaimQuotaEvent(ctx context.Context, id string, lease time.Duration, keep time.Time) (claimed bool, wait time.Duration, err error)

	// EndQuotaEvent ends the claim of an event. If handled is set, the event is not claimed
	// again; otherwise it can be at once. Ending the claim of an event that was handled or is
	// not known does nothing.
	EndQuotaEvent(ctx context.Context, id string, handled bool) error
}

// Options configure a [Watcher]. The zero value is ready to use.
type Options struct {
	Logger *slog.Logger     // gets errors; if nil, slog.Default() is used
	Now    func() time.Time // is that of llmhttp.Options; if nil, time.Now
}

// A Watcher calls a function of the host for each [Event]. It notices when a request of the subject has
// ended, by what the Handler knows then: of what other processes have served, up to 5 seconds later.
//
// If its store is an [EventStore], of all processes that share it one calls, and none after a restart. A
// process that is killed between the call and its end in the store leads to a second call, when its claim
// of two minutes has lapsed: the same ID tells so. Then, and after a day of errors, a request of the
// subject is needed, which any process may get. With any other store each Watcher calls by itself, once for
// as long as it runs.
type Watcher struct {
	reached func(ctx context.Context, e *Event) error
	store   EventStore // nil if the host's remembers no events
	local   claims.Set // takes the place of store
	now     func() time.Time
	logger  *slog.Logger

	calls   chan struct{}   // is full when maxCalls are in progress
	ctx     context.Context // of the calls
	cancel  context.CancelFunc
	closing chan struct{} // closed by Close

	mu      sync.Mutex              // guards the fields below
	told    map[notedEvent]struct{} // what was handled or has a goroutine; a part of it if that is much
	running int                     // goroutines
	closed  bool
	ended   chan struct{} // closed when closed is set and running is 0
}

// New returns a Watcher of the quotas of the Handlers whose Options.Observe calls its Observe, and whose
// usage is that of store, as [llmhttp.StoreAs] sees it. Nil o means the zero Options. New panics if store
// or reached is nil.
//
// reached is called outside of requests, which it neither delays nor fails, by at most 16 goroutines at a
// time, in any order. ctx has none of the values of a request. It ends after a minute, or when that of
// Close does; reached must return then. After an error or a panic, which is logged, it is called again,
// after 1 second at first and at most 10 minutes, for a day. The call that has succeeded is the last one.
func New(store llmhttp.UsageStore, reached func(ctx context.Context, e *Event) error, o *Options) *Watcher {
	if option.IsNil(store) || reached == nil {
		panic("quotawatch: New needs a UsageStore and a function")
	}
	if o == nil {
		o = new(Options)
	}
	w := &Watcher{
		reached: reached, now: o.Now, logger: cmp.Or(o.Logger, slog.Default()),
		calls: make(chan struct{}, maxCalls), closing: make(chan struct{}),
		told: make(map[notedEvent]struct{}), ended: make(chan struct{}),
	}
	if w.now == nil {
		w.now = time.Now
	}
	w.store, _ = llmhttp.StoreAs[EventStore](store)
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w
}

// Observe is an [llmhttp.Observer].
func (w *Watcher) Observe(ctx context.Context, _ *http.Request) (context.Context, llmhttp.Observation) {
	return ctx, llmhttp.Observation{Ended: w.note}
}

// Close waits for the calls in progress. When ctx is done, it cancels them, and returns an error; what
// waits to be tried again is left to the next request of the subject, in any process. It is called when the
// Handlers have shut down, and before the store is closed.
func (w *Watcher) Close(ctx context.Context) error {
	w.stop()
	select {
	case <-w.ended:
		return nil
	case <-ctx.Done():
	}
	w.cancel()
	select {
	case <-w.ended:
	case <-time.After(grace):
	}
	return ctx.Err()
}

// stop makes w begin no more events, and lets those end that wait to be tried again.
func (w *Watcher) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	w.closed = true
	close(w.closing)
	if w.running == 0 {
		close(w.ended)
	}
}

// shares are the shares of a Quota of which events tell, in percent.
var shares = [...]int{80, 100}

// note begins the events of a request that has ended.
func (w *Watcher) note(s *llmhttp.RequestSummary) {
	for i := range s.Quotas {
		u := &s.Quotas[i]
		share := shareOf(u)
		if share > 0 && u.Exhausted {
			share = 100
		}
		for _, reached := range shares {
			if reached > share || !w.begin(&s.Record, u, reached) {
				break
			}
		}
	}
}

// shareOf returns the largest of shares that was used, and zero if it is none or if the Quota permits
// nothing.
func shareOf(u *llmhttp.QuotaUse) int {
	if u.Quota.Tokens < 0 || u.Quota.Cost < 0 {
		return 0
	}
	return max(largest(u.Tokens, int64(u.Quota.Tokens)), largest(int64(u.Cost), int64(u.Quota.Cost)))
}

// largest returns the largest of shares that used is of limit, and zero if it is none or if there is no
// limit.
func largest(used, limit int64) int {
	switch {
	case limit <= 0 || used < limit-limit/5:
		return 0
	case used < limit:
		return 80
	}
	return 100
}

// period returns the period of q at a time for which there is one event of each share. A zero end means
// that it has none.
func period(q *llmhttp.Quota, at time.Time) (start, end time.Time) {
	switch {
	case q.Per > 0:
		start = at.UTC().Truncate(q.Per)
		end = start.Add(q.Per)
	case q.Per == 0:
		start = q.Start(at)
		year, month, _ := at.UTC().Date()
		return start, time.Date(year, month+1, 1, 0, 0, 0, 0, time.UTC)
	}
	if q.Since.After(start) {
		start = q.Since
	}
	return start, end
}

// A notedEvent identifies an event, as its ID does, which takes longer to make.
type notedEvent struct {
	account string
	subject llmhttp.SubjectID
	tokens  int
	cost    llm.Money
	per     time.Duration
	start   int64 // in Unix microseconds
	share   int
}

// id returns the ID of the event.
func (n *notedEvent) id() string {
	var b []byte
	for _, text := range [...]string{n.account, n.subject.Kind, n.subject.ID} {
		b = append(strconv.AppendQuote(b, text), ' ')
	}
	for _, number := range [...]int64{int64(n.tokens), int64(n.cost), int64(n.per), n.start, int64(n.share)} {
		b = append(strconv.AppendInt(b, number, 10), ' ')
	}
	return "quota_" + llmhttp.HashSecret(string(b))[:32]
}

// begin begins to notify the host of an event, unless that has begun. It reports false if there are too
// many in progress; then the next request of the subject tries again.
func (w *Watcher) begin(r *llmhttp.UsageRecord, u *llmhttp.QuotaUse, share int) bool {
	start, _ := period(&u.Quota, r.Time)
	n := notedEvent{r.Account, u.Subject, u.Quota.Tokens, u.Quota.Cost, u.Quota.Per, start.UnixMicro(), share}
	w.mu.Lock()
	defer w.mu.Unlock()
	_, told := w.told[n]
	switch {
	case told || w.closed:
		return true
	case w.running >= maxEvents:
		return false
	}
	if len(w.told) >= maxTold {
		clear(w.told) // the store, or local, knows what was handled
	}
	w.told[n] = struct{}{}
	w.running++
	go w.run(n, &Event{
		ID: n.id(), Account: r.Account, Subject: u.Subject, Quota: u.Quota, Share: share, Start: start, Tokens: u.Tokens, Cost: u.Cost,
	})
	return true
}
