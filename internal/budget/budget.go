// Package budget counts what subjects use of their quotas: what a store has recorded, and what this process has
// served or reserved since that was read, each once.
package budget

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/llmhttp/llmhttp/internal/panics"
	"github.com/llmhttp/llmhttp/internal/saturating"
)

const (
	// TTL is how long the recorded usage of a subject is cached.
	TTL = 5 * time.Second

	// Timeout is how long the store may take to answer a query.
	Timeout = 2 * time.Second

	// idle is how long the entry of a subject that is not used is kept. If there are
	// more than maxEntries, as with a million end users, it is TTL.
	idle       = 5 * time.Minute
	maxEntries = 1 << 16
)

// An Amount is a number of tokens and their cost.
type Amount struct{ Tokens, Cost int64 }

// Plus returns a + b, or the nearest Amount.
func (a Amount) Plus(b Amount) Amount {
	return Amount{saturating.Add(a.Tokens, b.Tokens), saturating.Add(a.Cost, b.Cost)}
}

// Minus returns a - b, or the nearest Amount.
func (a Amount) Minus(b Amount) Amount {
	return Amount{saturating.Sub(a.Tokens, b.Tokens), saturating.Sub(a.Cost, b.Cost)}
}

// A Limit is how much may be used. Zero means no limit; a negative number permits nothing.
type Limit struct{ Tokens, Cost int64 }

// isExceeded reports whether a is more than l permits.
func (l Limit) isExceeded(a Amount) bool {
	return l.Tokens != 0 && a.Tokens > max(l.Tokens, 0) || l.Cost != 0 && a.Cost > max(l.Cost, 0)
}

// isReached reports whether l permits nothing beyond a.
func (l Limit) isReached(a Amount) bool {
	return l.Tokens != 0 && a.Tokens >= max(l.Tokens, 0) || l.Cost != 0 && a.Cost >= max(l.Cost, 0)
}

var (
	// ErrExhausted is the error of a quota that is used up.
	ErrExhausted = errors.New("the quota is used up")

	// ErrReserved is the error of a quota that is not used up, but reserved.
	ErrReserved = errors.New("the rest of the quota is reserved")
)

// An Owner is whose usage a quota limits: that of a subject in an account.
type Owner struct{ Account, Kind, ID string }

// A Period is the time in which usage counts toward the quota of an Owner.
type Period struct {
	Owner
	Sliding time.Duration // its length if it slides; zero for a month, and negative if it does not end
	Since   time.Time     // its beginning, or if it slides, a time before which usage does not count

	From, To time.Time // at the time of the request
}

// id identifies the usage that counts.
func (p *Period) id() periodID { return periodID{p.Owner, p.Sliding, p.Since.UnixMicro()} }

type periodID struct {
	Owner
	sliding time.Duration
	since   int64 // in Unix microseconds
}

// A Reservation is what a request has reserved of the quota of a subject, and when that is recorded, what
// it has used. The zero Reservation has none.
type Reservation struct {
	entry  *entry // nil if nothing is reserved
	amount Amount

	reads uint64 // entry.reads before the usage is recorded

	Used      Amount // what was used when the request has last looked, without what is in doubt
	Known     bool   // the request has looked
	Exhausted bool   // it was refused because of ErrExhausted
}

// IsMade reports whether something is reserved, or its use not recorded yet.
func (r *Reservation) IsMade() bool { return r.entry != nil }

// Amount returns what is reserved or used.
func (r *Reservation) Amount() Amount { return r.amount }

// Stored returns what the store has reported.
func (c *Cache) Stored(r *Reservation) Amount {
	c.mu.Lock()
	defer c.mu.Unlock()
	return r.entry.stored
}

// A Cache has what subjects have used of their quotas: see entry. Its methods may be called concurrently.
type Cache struct {
	sum Sum

	mu      sync.Mutex // guards the fields below, and those of the entries
	entries map[periodID]*entry
	sweepAt int // the len(entries) at which idle entries are removed
}

// A Sum asks the store what the Owner of p has used from p.From to p.To, and what of that may be counted
// twice. ctx ends after [Timeout].
type Sum func(ctx context.Context, p *Period) (stored, doubtful Amount, err error)

// NewCache returns a Cache of what sum returns.
func NewCache(sum Sum) *Cache { return &Cache{sum: sum, entries: make(map[periodID]*entry)} }

// An entry has what counts toward the quota of a subject. Usage is unread from when the store is
// asked to record it until a read of the sums has succeeded that began after the store had answered.
// In between, a read that overlaps with the recording leaves it in doubt.
type entry struct {
	stored  Amount        // what the store reported
	known   bool          // the store has reported
	reads   uint64        // that have succeeded
	readAt  time.Time     // when the last read of the store began
	usedAt  time.Time     // when the subject was last used
	reading chan struct{} // closed when the read in progress ends; nil if there is none
	err     error         // of the last read

	unread    Amount // usage that stored need not include
	recording Amount // the part of unread that the store has not answered for
	doubtful  Amount // the part of stored and unread that may be in both
	clears    bool   // a read would make doubtful smaller

	reserved Amount // by requests in progress
	requests int    // in progress
}

// used returns what was used for certain.
func (e *entry) used() Amount { return e.stored.Plus(e.unread).Minus(e.doubtful) }

// isFresh reports whether the use of e at usedAt needs no read of the store, because the
// last one is recent or another request is reading.
func (e *entry) isFresh() bool {
	return e.known && (e.reading != nil || e.usedAt.Sub(e.readAt) < TTL)
}

// Reserve reserves want of a quota, or minimum if want exceeds what is left. It returns what it reserved, in
// place of old, which the request has reserved before. After an error, which wraps [ErrExhausted],
// [ErrReserved] or that of the [Sum], old is still reserved.
func (c *Cache) Reserve(ctx context.Context, p *Period, l Limit, old Reservation, want, minimum Amount) (Reservation, error) {
	for retried := false; ; retried = true {
		e, err := c.read(ctx, p)
		if err != nil {
			return old, err
		}
		c.mu.Lock()
		r, err := e.reserve(l, old, want, minimum)
		r.Used, r.Known, r.Exhausted = e.used(), true, err == ErrExhausted
		retry := err == ErrReserved && e.clears && e.reading == nil && !retried
		if retry {
			e.readAt = time.Time{} // so that the sums are not fresh
		}
		c.mu.Unlock()
		if !retry {
			return r, err
		}
	}
}

// reserve is Cache.Reserve with the entry of a subject. The caller holds Cache.mu.
func (e *entry) reserve(l Limit, old Reservation, want, minimum Amount) (Reservation, error) {
	used, reserved := e.used(), e.reserved.Minus(old.amount)
	most := used.Plus(e.doubtful).Plus(reserved)
	if l.isExceeded(most.Plus(want)) {
		want = minimum
	}
	switch {
	case l.isReached(used), l.isExceeded(used.Plus(want)):
		return old, ErrExhausted
	case l.isExceeded(most.Plus(want)):
		return old, ErrReserved
	}
	e.reserved = reserved.Plus(want)
	if old.entry == nil {
		e.requests++
	}
	return Reservation{entry: e, amount: want}, nil
}

// GiveBack replaces a reservation by old, in whose place Reserve has made it. It returns old, which then
// tells what r has told.
func (c *Cache) GiveBack(r, old Reservation) Reservation {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := r.entry
	e.reserved = e.reserved.Minus(r.amount).Plus(old.amount)
	if old.entry == nil {
		e.requests--
	}
	old.Used, old.Known, old.Exhausted = r.Used, r.Known, r.Exhausted
	return old
}

// Spend counts what a request has used of a quota, in place of what it has reserved, before the
// store is asked to record that. EndSpending must follow.
func (c *Cache) Spend(r Reservation, used Amount) Reservation {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := r.entry
	e.reserved = e.reserved.Minus(r.amount)
	e.unread, e.recording = e.unread.Plus(used), e.recording.Plus(used)
	return Reservation{entry: e, amount: used, reads: e.reads, Used: e.used(), Known: true}
}

// EndSpending ends what Spend has returned, when the store has answered. It returns a Reservation that is
// not made, and tells what r has told.
func (c *Cache) EndSpending(r Reservation) Reservation {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := r.entry
	e.recording = e.recording.Minus(r.amount)
	e.requests--
	e.clears = e.clears || e.reads != r.reads
	r.entry, r.amount = nil, Amount{}
	return r
}

// read returns the entry of p with what the store has recorded: the sums of the last
// TTL, or older ones if the store does not answer. If the sums are not fresh, one
// request reads them again. Other requests wait for it only if there are no older sums.
func (c *Cache) read(ctx context.Context, p *Period) (*entry, error) {
	c.mu.Lock()
	e := c.find(p.id())
	if e.isFresh() {
		c.mu.Unlock()
		return e, nil
	}
	reading := e.reading
	if reading == nil {
		e.reading = make(chan struct{})
		e.readAt, e.clears = e.usedAt, false
		recorded := e.unread.Minus(e.recording)
		c.mu.Unlock()
		c.query(ctx, *p, e, recorded)
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

// find returns the entry with the given ID, and creates it if it is missing. The caller holds mu.
func (c *Cache) find(id periodID) *entry {
	now := time.Now()
	e := c.entries[id]
	if e == nil {
		if len(c.entries) >= c.sweepAt {
			c.sweep(now)
		}
		e = new(entry)
		c.entries[id] = e
	}
	e.usedAt = now
	return e
}

// sweep removes the entries that are idle. It is called with mu held.
func (c *Cache) sweep(now time.Time) {
	most := idle
	if len(c.entries) >= maxEntries {
		most = TTL
	}
	for id, e := range c.entries {
		if e.requests == 0 && e.reading == nil && now.Sub(e.usedAt) > most {
			delete(c.entries, id)
		}
	}
	c.sweepAt = max(64, 2*len(c.entries))
	if c.sweepAt > maxEntries {
		c.sweepAt = max(maxEntries, len(c.entries)+maxEntries/4)
	}
}

// query asks the store for what the owner of p has used and writes it to e. recorded is the part of
// e.unread that was recorded before the query: the sums include it.
func (c *Cache) query(ctx context.Context, p Period, e *entry, recorded Amount) {
	var stored, doubtful Amount
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
			e.unread = e.unread.Minus(recorded)
			e.doubtful = e.unread.Plus(doubtful)
			e.clears = e.clears || e.unread != e.recording
		}
	}()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Timeout)
	defer cancel()
	stored, doubtful, err = c.sum(ctx, &p)
}

var errGoexit = errors.New("llmhttp: runtime.Goexit was called")
