package llmhttp

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"sync"
	"time"
)

// A Quota limits what a key uses in a period: tokens, money or both. The zero
// Quota sets no limit. A request beyond it fails with the code
// insufficient_quota, which clients do not retry.
//
// A Handler whose UsageStore is a [KeyUsageStore] compares a Quota with the usage
// that the store has recorded for the key and with what the requests in progress
// have reserved. So a Quota survives restarts, and the data of a
// Limiter can be lost. The sums of a key are read at most every 5 seconds while
// it is used. Meanwhile a Handler counts its own requests and does not see those
// of other Handlers on the same store: together they can exceed a Quota by what
// the others serve in that time, or have in progress or in a [UsageBuffer]. A
// single Handler exceeds a Quota only by what requests use beyond their
// reservations.
//
// If the store does not answer within 2 seconds, the last sums are used, with
// what the Handler itself has served since. If there are none, because the key
// was not used for minutes or its period has just begun, requests get a 503.
//
// If the store is not a KeyUsageStore, the bucket [BucketQuota] of the Limiter
// counts the Tokens. It is full at first, refills evenly during the period, for
// which a month has 30 days, and ignores Since. A Cost is then an error: requests
// get a 500, and the cause is logged.
type Quota struct {
	// Tokens is the number of tokens of prompts and completions together. Zero
	// means no limit. A negative number permits nothing.
	Tokens int

	// Cost is an amount in US dollars, as Options.Cost returns it. Zero means
	// no limit. A negative amount permits nothing. Without Options.Cost, it is
	// an error as described above.
	Cost float64

	// Per is the length of a sliding period, which ends at the time of the
	// request. Zero means the calendar month in UTC. If negative, all usage
	// counts, as for a prepaid amount.
	Per time.Duration

	// Since is a time before which usage does not count. Set it to the present
	// time to reset the quota. Zero means that all usage of the period counts.
	Since time.Time
}

// Start returns the time from which usage counts at now: the start of the period,
// or Since if that is later. It is the From of a query for what was used.
func (q Quota) Start(now time.Time) time.Time {
	var start time.Time
	switch {
	case q.Per > 0:
		start = now.Add(-q.Per)
	case q.Per == 0:
		year, month, _ := now.UTC().Date()
		start = time.Date(year, month, 1, 0, 0, 0, 0, time.UTC)
	}
	if q.Since.After(start) {
		return q.Since
	}
	return start
}

// limits reports whether q sets a limit.
func (q Quota) limits() bool { return q.Tokens != 0 || q.Cost != 0 }

func errQuota() *Error {
	return Errorf(http.StatusTooManyRequests, codeQuota, "You exceeded your current quota, please check your plan and billing details.")
}

// rate returns the Rate of the bucket that replaces q.
func (q Quota) rate() Rate {
	switch {
	case q.Per == 0:
		return Rate{N: q.Tokens, Per: 30 * day}
	case q.Per < 0:
		return Rate{N: q.Tokens, Per: maxDuration}
	}
	return Rate{N: q.Tokens, Per: q.Per}
}

const (
	// quotaTTL is how long the recorded usage of a key is cached.
	quotaTTL = 5 * time.Second

	// quotaTimeout is how long the store may take to report it.
	quotaTimeout = 2 * time.Second

	// quotaIdle is how long the usage of a key that is not used is kept.
	quotaIdle = 5 * time.Minute
)

// An amount is what counts toward a Quota.
type amount struct {
	tokens  int64
	dollars float64
}

func (a amount) plus(b amount) amount {
	if b.tokens > 0 && a.tokens > math.MaxInt64-b.tokens {
		return amount{math.MaxInt64, a.dollars + b.dollars}
	}
	return amount{a.tokens + b.tokens, a.dollars + b.dollars}
}

func (a amount) minus(b amount) amount { return amount{a.tokens - b.tokens, a.dollars - b.dollars} }

// exceeds reports whether a is more than q permits.
func (a amount) exceeds(q Quota) bool {
	return q.Tokens != 0 && a.tokens > int64(max(q.Tokens, 0)) || q.Cost != 0 && !(a.dollars <= max(q.Cost, 0))
}

// reaches reports whether q permits nothing beyond a.
func (a amount) reaches(q Quota) bool {
	return q.Tokens != 0 && a.tokens >= int64(max(q.Tokens, 0)) || q.Cost != 0 && !(a.dollars < max(q.Cost, 0))
}

// A quotaCache has what keys have used of their quotas.
type quotaCache struct {
	store UsageStore
	cost  func(UsageSum) float64 // nil if costs are not known

	mu      sync.Mutex // guards keys and the fields of their values
	keys    map[quotaID]*quotaEntry
	sweepAt int // the len(keys) at which idle keys are removed
}

// A quotaID identifies whose usage counts toward a quota, and from when. It has
// the start of the period, unless that slides.
type quotaID struct {
	account, key string
	per          time.Duration
	start        int64 // in Unix microseconds
}

func newQuotaID(k *Key, now time.Time) quotaID {
	q := k.Limits.Quota
	start := q.Since
	if q.Per <= 0 {
		start = q.Start(now)
	}
	return quotaID{k.Account, k.ID, q.Per, start.UnixMicro()}
}

// A quotaEntry is what counts toward the quota of a key.
type quotaEntry struct {
	stored   amount        // what the store reported
	known    bool          // the store has reported
	readAt   time.Time     // when the last read of the store began
	usedAt   time.Time     // when the key was last used
	reading  chan struct{} // closed when the read in progress ends; nil if there is none
	err      error         // of the last read
	settled  amount        // used since the last successful read began
	reserved amount        // by requests in progress
	requests int           // in progress
}

func (u *quotaEntry) isFresh(now time.Time) bool {
	return u.known && (u.reading != nil || now.Sub(u.readAt) < quotaTTL)
}

// reserve reserves want for a request of k at the time now, or least if want exceeds
// what is left of the quota. It returns what it reserved. If the UsageStore is not a
// KeyUsageStore, the error wraps errors.ErrUnsupported.
func (b *quotaCache) reserve(ctx context.Context, k *Key, want, least amount, now time.Time) (quotaReservation, error) {
	var none quotaReservation
	u, err := b.read(ctx, k, now)
	if err != nil {
		return none, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	q, used := k.Limits.Quota, u.stored.plus(u.settled)
	if used.plus(u.reserved).plus(want).exceeds(q) {
		want = least
	}
	switch {
	case used.reaches(q), used.plus(want).exceeds(q):
		return none, errQuota()
	case used.plus(u.reserved).plus(want).exceeds(q):
		e := Errorf(http.StatusTooManyRequests, codeRateLimit, "Requests in progress have reserved the rest of your quota. Please try again when one has ended.")
		e.RetryAfter = time.Second
		return none, e
	}
	u.reserved = u.reserved.plus(want)
	u.requests++
	return quotaReservation{u, want}, nil
}

// settle ends a reservation, after what the request used was recorded.
func (b *quotaCache) settle(r quotaReservation, used amount) {
	b.mu.Lock()
	defer b.mu.Unlock()
	u := r.entry
	u.reserved = u.reserved.minus(r.amount)
	if u.requests--; u.requests == 0 {
		u.reserved = amount{} // without rounding errors
	}
	u.settled = u.settled.plus(used)
}

// read returns the use of k with sums that are fresh, or with older ones if the
// store does not answer. One request reads them. Others wait for it only if
// there are no older ones.
func (b *quotaCache) read(ctx context.Context, k *Key, now time.Time) (*quotaEntry, error) {
	b.mu.Lock()
	u := b.entry(newQuotaID(k, now))
	if u.isFresh(u.usedAt) {
		b.mu.Unlock()
		return u, nil
	}
	reading := u.reading
	if reading == nil {
		u.reading = make(chan struct{})
		u.readAt = u.usedAt
		settled := u.settled
		b.mu.Unlock()
		b.query(ctx, k, u, settled, now)
	} else {
		b.mu.Unlock()
		select {
		case <-reading:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if u.known {
		return u, nil
	}
	return nil, u.err
}

// use returns the use with the given ID. It is called with mu held.
func (b *quotaCache) entry(id quotaID) *quotaEntry {
	now := time.Now()
	u := b.keys[id]
	if u == nil {
		if len(b.keys) >= b.sweepAt {
			b.sweep(now)
		}
		u = new(quotaEntry)
		b.keys[id] = u
	}
	u.usedAt = now
	return u
}

// sweep removes the uses that are idle. It is called with mu held.
func (b *quotaCache) sweep(now time.Time) {
	for id, u := range b.keys {
		if u.requests == 0 && u.reading == nil && now.Sub(u.usedAt) > quotaIdle {
			delete(b.keys, id)
		}
	}
	b.sweepAt = max(64, 2*len(b.keys))
	if b.keys == nil {
		b.keys = make(map[quotaID]*quotaEntry)
	}
}

// query asks the store for what k has used. Afterwards u.settled lacks what was
// settled before, which the sums include.
func (b *quotaCache) query(ctx context.Context, k *Key, u *quotaEntry, settled amount, now time.Time) {
	stored, err := amount{}, errGoexit
	defer func() {
		if p := recover(); p != nil {
			err = newPanicError(p)
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		close(u.reading)
		u.reading, u.err = nil, err
		if err == nil {
			u.stored, u.known = stored, true
			u.settled = u.settled.minus(settled)
		}
	}()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), quotaTimeout)
	defer cancel()
	// The range ends with a day, of which a store may keep sums. It includes the
	// records of copies whose clocks are ahead.
	sums, err2 := QueryKey(ctx, b.store, k.ID, UsageQuery{
		Account: k.Account, From: k.Limits.Quota.Start(now), To: now.UTC().Truncate(day).Add(2 * day),
	})
	stored = b.sum(sums)
	err = err2
}

// sum returns what sums count toward a quota.
func (b *quotaCache) sum(sums []UsageSum) (total amount) {
	for _, s := range sums {
		total = total.plus(b.amount(s))
	}
	return total
}

// amount returns what s counts toward a quota.
func (b *quotaCache) amount(s UsageSum) amount {
	a := amount{tokens: s.PromptTokens}.plus(amount{tokens: s.CompletionTokens})
	if b.cost != nil {
		a.dollars = b.cost(s)
	}
	return a
}

// A quotaReservation is what a request has reserved of the quota of its key.
type quotaReservation struct {
	entry  *quotaEntry // nil if nothing is reserved
	amount amount
}

// reserveQuota reserves what the request is expected to use, or the least of it
// if not so much is left. It reports whether a bucket of the Limiter has to do so
// instead.
func (a *accounting) reserveQuota(e estimate) (useBucket bool, err error) {
	q, book := a.q, &a.q.h.quotas
	quota := q.key.Limits.Quota
	if !quota.limits() || e.tokens == 0 {
		return false, nil
	}
	if quota.Cost != 0 && book.cost == nil {
		return false, fmt.Errorf("llmhttp: the quota of key %s has a Cost, which needs Options.Cost", q.key.ID)
	}
	expected := func(tokens int) amount {
		return book.amount(UsageSum{
			Model: a.record.Model, Requests: 1, Images: int64(e.images),
			PromptTokens: int64(min(a.promptTokens, tokens)), CompletionTokens: int64(max(tokens-a.promptTokens, 0)),
		})
	}
	q.observer.stepClass = ClassUsageStore
	reserved, err := book.reserve(q.life.ctx, q.key, expected(e.tokens), expected(e.minTokens), a.record.Time)
	switch refusal, refused := errors.AsType[*Error](err); {
	case err == nil:
		a.quota = reserved
		return false, nil
	case refused:
		if refusal != nil && refusal.Status == http.StatusTooManyRequests {
			q.observer.refusedBy = BucketQuota
		}
		return false, err
	case !errors.Is(err, errors.ErrUnsupported):
		return false, q.life.storeError(err, messageLimits)
	case quota.Cost != 0:
		return false, fmt.Errorf("llmhttp: the quota of key %s has a Cost, which needs a KeyUsageStore: %v", q.key.ID, err)
	}
	return true, nil
}

// settleQuota ends the reservation. It counts the usage of a request that is to be
// recorded, even if the store failed: until the next read, the sums lack it.
func (a *accounting) settleQuota(used bool) {
	r := a.quota
	if r.entry == nil {
		return
	}
	a.quota = quotaReservation{}
	var spent amount
	defer func() { a.q.h.quotas.settle(r, spent) }() // even if Options.Cost panics
	if used {
		spent = a.q.h.quotas.amount(a.record.Sum())
	}
}
