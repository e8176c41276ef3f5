package llmhttp

import (
	"context"
	"strconv"
	"time"
)

// A QuotaEvent tells that a subject has used a share of its [Quota] in a period: see
// Options.QuotaReached.
type QuotaEvent struct {
	// ID identifies the subject, the Quota, the period and the Share. It is the same for all
	// calls about them, by any process, so that what follows from a call can be made to
	// happen once. It has 1 to 64 letters, digits and underscores.
	ID string

	Account string    // of the key
	Subject SubjectID // the ID of an end user is the User of records
	Quota   Quota
	Share   int // in percent: 80 or 100

	// Start is the beginning of the period: Quota.Start, or for a sliding Quota the one
	// that Options.QuotaReached defines.
	Start time.Time

	// Tokens and Cost are what was used of the Quota when the Handler noticed: what has been
	// recorded, and what it has served since. Of a sliding Quota, they are those of its Per
	// until then.
	Tokens int64
	Cost   Money
}

// A QuotaEventStore is a [UsageStore] that remembers for all processes that share it which events
// were handled: see Options.QuotaReached. The IDs are those of a [QuotaEvent].
//
// A store that wraps another one, which may not be a QuotaEventStore, returns an error that wraps
// [errors.ErrUnsupported] in place of what that one lacks. The Handler then remembers events by
// itself.
type QuotaEventStore interface {
	UsageStore

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

// quotaShares are the shares of a Quota of which events tell, in percent.
var quotaShares = [...]int{80, 100}

// shareOf returns the largest of quotaShares that a is of q, and zero if it is none or if q
// permits nothing.
func (q *Quota) shareOf(a amount) int {
	if q.Tokens < 0 || q.Cost < 0 {
		return 0
	}
	return max(shareOf(a.tokens, int64(q.Tokens)), shareOf(int64(a.cost), int64(q.Cost)))
}

// shareOf returns the largest of quotaShares that used is of limit, and zero if it is none or if
// there is no limit.
func shareOf(used, limit int64) int {
	switch {
	case limit <= 0 || used < limit-limit/5:
		return 0
	case used < limit:
		return 80
	}
	return 100
}

// eventPeriod returns the period of q at a time for which there is one event of each share. A zero
// end means that it has none.
func (q *Quota) eventPeriod(at time.Time) (start, end time.Time) {
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

// A notedShare is the last share for which a quotaEntry has begun an event, of a quota in a period.
type notedShare struct {
	tokens int
	cost   Money
	start  int64 // in Unix microseconds
	share  int
}

// noteShare returns events, with neither an ID nor an owner, for the shares of q that were used
// at a time and for which there was none. exhausted means that a request was refused because
// too little is left.
func (e *quotaEntry) noteShare(q *Quota, at time.Time, exhausted bool) (events []*QuotaEvent) {
	used := e.used()
	share := q.shareOf(used)
	if share == 0 {
		return nil
	}
	if exhausted {
		share = 100
	}
	start, _ := q.eventPeriod(at)
	now := notedShare{q.Tokens, q.Cost, start.UnixMicro(), share}
	before := e.noted
	if before.tokens != now.tokens || before.cost != now.cost || before.start != now.start {
		before.share = 0
	}
	if before.share >= share {
		return nil
	}
	e.noted = now
	for _, s := range quotaShares {
		if s > before.share && s <= share {
			events = append(events, &QuotaEvent{Quota: *q, Share: s, Start: start, Tokens: used.tokens, Cost: used.cost})
		}
	}
	return events
}

// setOwner sets whose event e is, and its ID.
func (e *QuotaEvent) setOwner(o *quotaOwner) {
	e.Account, e.Subject = o.account, o.subject
	var b []byte
	for _, text := range [...]string{e.Account, e.Subject.Kind, e.Subject.ID} {
		b = append(strconv.AppendQuote(b, text), ' ')
	}
	for _, n := range [...]int64{int64(e.Quota.Tokens), int64(e.Quota.Cost), int64(e.Quota.Per), e.Start.UnixMicro(), int64(e.Share)} {
		b = append(strconv.AppendInt(b, n, 10), ' ')
	}
	e.ID = "quota_" + HashSecret(string(b))[:32]
}
