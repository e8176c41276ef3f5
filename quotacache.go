package llmhttp

import (
	"context"
	"sync"
	"time"

	"github.com/llmhttp/llmhttp/internal/panics"
	"github.com/llmhttp/llmhttp/llm"
)

const (
	// quotaTTL is how long the recorded usage of a subject is cached.
	quotaTTL = 5 * time.Second

	// quotaTimeout is how long the store may take to answer a query.
	quotaTimeout = 2 * time.Second

	// quotaLinger is how long usage that was recorded counts in a Reserver. The sums of a Handler
	// may miss it for quotaTTL and quotaTimeout; the rest is for stores that show it late.
	quotaLinger = 10 * time.Second

	// quotaIdle is how long the entry of a subject that is not used is kept. If there are
	// more than maxQuotaEntries, as with a million end users, it is quotaTTL.
	quotaIdle       = 5 * time.Minute
	maxQuotaEntries = 1 << 16
)

// A quotaCache has what subjects have used of their quotas: the sums of the UsageStore,
// and what this Handler has served or reserved since they were read, each once: see quotaEntry.
type quotaCache struct {
	store UsageStore

	mu      sync.Mutex // guards the fields below, and those of the entries
	entries map[quotaID]*quotaEntry
	sweepAt int // the len(entries) at which idle entries are removed
}

// A quotaOwner is whose usage a quota limits: that of a subject in an account.
type quotaOwner struct {
	account string
	subject SubjectID
}

// A quotaID identifies whose usage counts toward a quota, and from when. It has
// the start of the period, unless that slides.
type quotaID struct {
	quotaOwner
	per   time.Duration
	start int64 // in Unix microseconds
}

func newQuotaID(o quotaOwner, q Quota, arrived time.Time) quotaID {
	start := q.Since
	if q.Per <= 0 {
		start = q.Start(arrived)
	}
	return quotaID{o, q.Per, start.UnixMicro()}
}

// A quotaEntry has what counts toward the quota of a subject. Usage is unread from when the store is
// asked to record it until a read of the sums has succeeded that began after the store had answered.
// In between, a read that overlaps with the recording leaves it in doubt.
type quotaEntry struct {
	stored  amount        // what the store reported
	known   bool          // the store has reported
	reads   uint64        // that have succeeded
	readAt  time.Time     // when the last read of the store began
	usedAt  time.Time     // when the subject was last used
	reading chan struct{} // closed when the read in progress ends; nil if there is none
	err     error         // of the last read

	unread    amount // usage that stored need not include
	recording amount // the part of unread that the store has not answered for
	doubtful  amount // the part of stored and unread that may be in both
	clears    bool   // a read would make doubtful smaller

	reserved amount // by requests in progress
	requests int    // in progress
}

// used returns what was used for certain.
func (e *quotaEntry) used() amount { return e.stored.plus(e.unread).minus(e.doubtful) }

// isFresh reports whether the use of e at usedAt needs no read of the store, because the
// last one is recent or another request is reading.
func (e *quotaEntry) isFresh() bool {
	return e.known && (e.reading != nil || e.usedAt.Sub(e.readAt) < quotaTTL)
}

// reserve reserves want of the quota q of o for a request that has arrived at a time, or minimum
// if want exceeds what is left. It returns what it reserved, in place of old, which the request
// has reserved before. After an error, old is still reserved. If the UsageStore cannot sum for
// subjects of that kind, the error wraps errors.ErrUnsupported.
func (c *quotaCache) reserve(
	ctx context.Context, o quotaOwner, q Quota, old quotaReservation, want, minimum amount, arrived time.Time,
) (quotaReservation, error) {
	for retried := false; ; retried = true {
		e, err := c.read(ctx, o, q, arrived)
		if err != nil {
			return old, err
		}
		c.mu.Lock()
		r, refused := e.reserve(o.subject, q, old, want, minimum)
		use := usedQuota{amount: e.used(), known: true, exhausted: refused != nil && refused.Code == codeQuota}
		retry := refused != nil && refused.Code != codeQuota && e.clears && e.reading == nil && !retried
		if retry {
			e.readAt = time.Time{} // so that the sums are not fresh
		}
		c.mu.Unlock()
		switch {
		case retry:
		case refused != nil:
			old.use = use
			return old, refused
		default:
			r.use = use
			return r, nil
		}
	}
}

// reserve is quotaCache.reserve with the entry of a subject. The caller holds quotaCache.mu.
func (e *quotaEntry) reserve(s SubjectID, q Quota, old quotaReservation, want, minimum amount) (_ quotaReservation, refused *llm.Error) {
	used, reserved := e.used(), e.reserved.minus(old.amount)
	most := used.plus(e.doubtful).plus(reserved)
	if most.plus(want).exceeds(q) {
		want = minimum
	}
	switch {
	case used.reaches(q), used.plus(want).exceeds(q):
		return old, errQuota(s)
	case most.plus(want).exceeds(q):
		return old, errQuotaReserved(s)
	}
	e.reserved = reserved.plus(want)
	if old.entry == nil {
		e.requests++
	}
	return quotaReservation{entry: e, amount: want}, nil
}

// giveBack replaces a reservation by old, in whose place reserve has made it.
func (c *quotaCache) giveBack(r, old quotaReservation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := r.entry
	e.reserved = e.reserved.minus(r.amount).plus(old.amount)
	if old.entry == nil {
		e.requests--
	}
}

// spend counts what a request has used of a quota, in place of what it has reserved, before the
// store is asked to record that. endSpending must follow.
func (c *quotaCache) spend(r quotaReservation, used amount) quotaReservation {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := r.entry
	e.reserved = e.reserved.minus(r.amount)
	e.unread, e.recording = e.unread.plus(used), e.recording.plus(used)
	return quotaReservation{entry: e, amount: used, reads: e.reads, use: usedQuota{amount: e.used(), known: true}}
}

// endSpending ends what spend has returned, when the store has answered.
func (c *quotaCache) endSpending(r quotaReservation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := r.entry
	e.recording = e.recording.minus(r.amount)
	e.requests--
	e.clears = e.clears || e.reads != r.reads
}

// read returns the entry of o with what the store has recorded: the sums of the last
// quotaTTL, or older ones if the store does not answer. If the sums are not fresh, one
// request reads them again. Other requests wait for it only if there are no older sums.
func (c *quotaCache) read(ctx context.Context, o quotaOwner, q Quota, arrived time.Time) (*quotaEntry, error) {
	c.mu.Lock()
	e := c.entry(newQuotaID(o, q, arrived))
	if e.isFresh() {
		c.mu.Unlock()
		return e, nil
	}
	reading := e.reading
	if reading == nil {
		e.reading = make(chan struct{})
		e.readAt, e.clears = e.usedAt, false
		recorded := e.unread.minus(e.recording)
		c.mu.Unlock()
		c.query(ctx, o, q, e, recorded, arrived)
	} else {
		c.mu.Unlock()
		select {
		case <-reading:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.known {
		return e, nil
	}
	return nil, e.err
}

// entry returns the entry with the given ID, and creates it if it is missing. The caller
// holds mu.
func (c *quotaCache) entry(id quotaID) *quotaEntry {
	now := time.Now()
	e := c.entries[id]
	if e == nil {
		if len(c.entries) >= c.sweepAt {
			c.sweep(now)
		}
		e = new(quotaEntry)
		c.entries[id] = e
	}
	e.usedAt = now
	return e
}

// sweep removes the entries that are idle. It is called with mu held.
func (c *quotaCache) sweep(now time.Time) {
	idle := quotaIdle
	if len(c.entries) >= maxQuotaEntries {
		idle = quotaTTL
	}
	for id, e := range c.entries {
		if e.requests == 0 && e.reading == nil && now.Sub(e.usedAt) > idle {
			delete(c.entries, id)
		}
	}
	c.sweepAt = max(64, 2*len(c.entries))
	if c.sweepAt > maxQuotaEntries {
		c.sweepAt = max(maxQuotaEntries, len(c.entries)+maxQuotaEntries/4)
	}
}

// query asks the store for what o has used and writes it to e. recorded is the part of e.unread
// that was recorded before the query: the sums include it.
func (c *quotaCache) query(ctx context.Context, o quotaOwner, q Quota, e *quotaEntry, recorded amount, arrived time.Time) {
	var stored, doubtful amount
	err := errGoexit
	defer func() {
		if p := recover(); p != nil {
			err = panics.New(p)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		close(e.reading)
		e.reading, e.err = nil, err
		if err == nil {
			e.stored, e.known = stored, true
			e.reads++
			e.unread = e.unread.minus(recorded)
			e.doubtful = e.unread.plus(doubtful)
			e.clears = e.clears || e.unread != e.recording
		}
	}()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), quotaTimeout)
	defer cancel()
	// The range ends with a day, of which a store may keep sums. It includes the
	// records of copies whose clocks are ahead.
	query := UsageQuery{
		Account: o.account, Subject: o.subject, From: q.Start(arrived), To: arrived.UTC().Truncate(day).Add(2 * day),
	}
	twice := new(doubtfulAmount)
	sums, queryErr := c.store.Query(context.WithValue(ctx, doubtfulKey{}, twice), query)
	stored, doubtful = sumAmounts(sums), twice.sum()
	err = queryErr
}

// doubtfulKey is the key under which the context of a query has its doubtfulAmount.
type doubtfulKey struct{}

// A doubtfulAmount adds up what a store tells by ReportDoubtful.
type doubtfulAmount struct {
	mu    sync.Mutex // guards total
	total amount
}

func (d *doubtfulAmount) sum() amount {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.total
}

// ReportDoubtful tells the Handler that sums, which are a part of those that Query of a [UsageStore] is
// about to return, may count twice. ctx is that of Query, or of a context made of it, so wrappers of
// the store need not know of this. A store calls it that adds records to the sums of another store which
// may have them, because it has not confirmed that it has stored them.
//
// For a [Quota], such usage is reserved but does not count as used: it can only lead to an error that
// clients retry. The next Query tells anew what is doubtful.
//
// ReportDoubtful may be called several times, also concurrently, before Query returns. It does nothing
// with a context that is of no query for a Quota.
func ReportDoubtful(ctx context.Context, sums ...UsageSum) {
	d, ok := ctx.Value(doubtfulKey{}).(*doubtfulAmount)
	if !ok {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.total = d.total.plus(sumAmounts(sums))
}
