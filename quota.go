// Quota: what has been used of it, what requests have reserved, and how Handlers share that. Package
// budget has the sums.

package llmhttp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/llmhttp/llmhttp/internal/budget"
	"github.com/llmhttp/llmhttp/internal/panics"
	"github.com/llmhttp/llmhttp/llm"
)

// A Quota limits what a key or another subject uses in a period: tokens, money or
// both. The zero Quota sets no limit. A request beyond it fails with the code
// insufficient_quota, which clients do not retry.
//
// A Handler compares a Quota with the usage that its UsageStore has recorded for the subject in
// the account of the key, and with what the requests in progress have reserved. So a Quota
// survives restarts, and the data of a Limiter can be lost. Without Options.Usage, or with a
// store that cannot sum for subjects of that kind, a Quota is a mistake: requests get a 500,
// and the cause is logged.
//
// The sums of a subject are read every 5 seconds while it is used. Meanwhile a Handler
// counts its own requests. A single Handler exceeds a Quota only by what requests use beyond their
// reservations.
//
// While the store records usage, sums that are read may include it or not. Until they have been read
// again, such usage is reserved but does not count as used: it can only lead to an error that
// clients retry.
//
// So do several Handlers on the same store that share a [Reserver]. It has what their requests
// have reserved, and for 10 seconds after a request has ended also what it has used, and
// longer by the Delay of Options.Usage (see [UsageStore]): until then the sums of a Handler
// may not include it. As they may include it sooner, requests can be refused for that long
// because of usage that counts twice, with an error that clients retry. The bound does not hold
// for usage that a store shows later than that, nor for what a Reserver loses or cannot store.
// With any other Limiter a Handler does not see the requests of the others: together they can
// exceed a Quota by what the others serve between two reads, or have in progress or in a
// buffer of usage.
//
// Usage is summed within an account. The quota of a key that is moved to another account begins anew,
// and a team with keys of two accounts has its quota twice.
//
// If the store does not answer within 2 seconds, the last sums are used, with
// what the Handler itself has served since. If there are none, because the key
// was not used for minutes or its period has just begun, requests get a 503.
type Quota struct {
	// Tokens is the number of tokens of prompts and completions together. Zero
	// means no limit. A negative number permits nothing.
	Tokens int

	// Cost is an amount of money, in the currency of Options.Price. Zero means no limit. A negative
	// amount permits nothing. Without Options.Price, it is a mistake: requests get a 500, and the
	// cause is logged. What is reserved does not depend on who will serve the request: the Quota is
	// exceeded by what a dearer target costs more.
	Cost llm.Money

	// Per is the length of a sliding period, which ends at the time of the
	// request. Zero means the calendar month in UTC. If negative, all usage
	// counts, as for a prepaid amount. With a [Reserver] it should be minutes or longer: what was used in the
	// last 10 seconds may count twice, so requests are refused if that is more than what is left.
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

// isSet reports whether q sets a limit.
func (q Quota) isSet() bool { return q.Tokens != 0 || q.Cost != 0 }

const day = 24 * time.Hour

// sumAmounts returns what sums count toward a quota.
func sumAmounts(sums []UsageSum) (total budget.Amount) {
	for i := range sums {
		total = total.Plus(budget.Amount{Tokens: sums[i].Units.Tokens(), Cost: int64(sums[i].Cost.Total())})
	}
	return total
}

// limit returns how much q permits.
func (q *Quota) limit() budget.Limit {
	return budget.Limit{Tokens: int64(q.Tokens), Cost: int64(q.Cost)}
}

// period returns the time in which usage of o counts toward q for a request that has arrived at a time.
func (q *Quota) period(o budget.Owner, arrived time.Time) budget.Period {
	p := budget.Period{Owner: o, Sliding: q.Per, Since: q.Since, From: q.Start(arrived)}
	if q.Per <= 0 {
		p.Since = p.From
	}
	// The range ends with a day, of which a store may keep sums. It includes the
	// records of copies whose clocks are ahead.
	p.To = arrived.UTC().Truncate(day).Add(2 * day)
	return p
}

// sumQuota is the [budget.Sum] of the store.
func (b *books) sumQuota(ctx context.Context, p *budget.Period) (stored, doubtful budget.Amount, err error) {
	twice := new(doubtfulAmount)
	sums, err := b.store.Query(context.WithValue(ctx, doubtfulKey{}, twice), UsageQuery{
		Account: p.Account, Subject: SubjectID{p.Kind, p.ID}, From: p.From, To: p.To,
	})
	return sumAmounts(sums), twice.sum(), err
}

// A QuotaUse tells what was used of a Quota when a request had ended. Package quotawatch makes events of
// it.
type QuotaUse struct {
	Subject SubjectID // the ID of an end user is the User of the record
	Quota   Quota

	// Tokens and Cost are what the UsageStore has recorded for the subject since the Quota's Start, and what
	// this Handler has served since the sums were read, without what may be in both.
	Tokens int64
	Cost   llm.Money

	Exhausted bool // the request was refused because too little of the Quota is left, also when others have ended
}

// quotaUses returns the QuotaUses of a request that has the record r, or nil if it has looked at no quota.
func (l *ledger) quotaUses(r *UsageRecord) (uses []QuotaUse) {
	for i := range l.subjects {
		if s := &l.subjects[i]; s.quota.Known {
			uses = append(uses, QuotaUse{l.recordedID(s, r), s.limits.Quota, s.quota.Used.Tokens, llm.Money(s.quota.Used.Cost), s.quota.Exhausted})
		}
	}
	return uses
}

// reserveQuota reserves from the quotas of all subjects, or of none, what the request is expected
// to use, or minTokens if less is left.
func (l *ledger) reserveQuota(ctx context.Context, r *UsageRecord) error {
	e := &l.expected
	if !slices.ContainsFunc(l.subjects, func(s limitedSubject) bool { return s.limits.Quota.isSet() }) {
		return nil
	}
	inMoney, err := l.checkQuotas()
	if err != nil {
		return classify(ClassInternal, err)
	}
	want, cost, err := l.expect(r, e.tokens, inMoney)
	if err != nil {
		return classify(ClassInternal, err)
	}
	minimum := want
	if e.minTokens != e.tokens {
		if minimum, _, err = l.expect(r, e.minTokens, inMoney); err != nil {
			return classify(ClassInternal, err)
		}
	}
	if inMoney {
		l.prices.reserved = cost
	}
	replaced := make([]budget.Reservation, 0, maxSubjects+3) // on the stack
	for i := range l.subjects {
		s := &l.subjects[i]
		replaced = append(replaced, s.quota)
		if !s.limits.Quota.isSet() {
			continue
		}
		id := l.recordedID(s, r)
		period := s.limits.Quota.period(budget.Owner{Account: l.key.Account, Kind: id.Kind, ID: id.ID}, r.Time)
		if s.quota, err = l.quotas.Reserve(ctx, &period, s.limits.Quota.limit(), s.quota, want, minimum); err != nil {
			l.giveBackQuotas(l.subjects[:i], replaced)
			return l.quotaError(s, err)
		}
	}
	if err := l.shareQuotas(ctx, minimum); err != nil {
		l.giveBackQuotas(l.subjects, replaced)
		return err
	}
	return nil
}

// recordedID returns the ID of s as r has it.
func (l *ledger) recordedID(s *limitedSubject, r *UsageRecord) SubjectID {
	if s.id.Kind == KindUser {
		return SubjectID{KindUser, r.User}
	}
	return s.id
}

// checkQuotas returns an error if a subject has a quota that cannot be enforced. Otherwise
// it reports whether there is one in money.
func (l *ledger) checkQuotas() (inMoney bool, err error) {
	for i := range l.subjects {
		s, q := &l.subjects[i], &l.subjects[i].limits.Quota
		switch {
		case q.isSet() && l.store == nil:
			return false, fmt.Errorf("llmhttp: the quota of %s %s needs Options.Usage", s.id.Kind, s.id.ID)
		case q.Cost != 0 && l.price == nil:
			return false, fmt.Errorf("llmhttp: the quota of %s %s has a Cost, which needs Options.Price", s.id.Kind, s.id.ID)
		}
		inMoney = inMoney || q.Cost != 0
	}
	return inMoney, nil
}

// giveBackQuotas replaces the reservations of subjects by those that they have replaced.
func (l *ledger) giveBackQuotas(subjects []limitedSubject, replaced []budget.Reservation) {
	for i := range subjects {
		if s := &subjects[i]; s.limits.Quota.isSet() {
			s.quota = l.quotas.GiveBack(s.quota, replaced[i])
		}
	}
}

// quotaError returns the error of a request for which the quota of s was not reserved because
// of err, and notes who has refused it.
func (l *ledger) quotaError(s *limitedSubject, err error) error {
	switch _, told := errors.AsType[*llm.Error](err); {
	case err == budget.ErrExhausted:
		l.refused = LimitRefusal{s.id, LimitQuota}
		return errQuota(s.id)
	case err == budget.ErrReserved:
		l.refused = LimitRefusal{s.id, LimitQuota}
		return errQuotaReserved(s.id)
	case told:
		return classify(ClassUsageStore, err)
	case errors.Is(err, errors.ErrUnsupported):
		err = fmt.Errorf("llmhttp: the quota of %s %s needs a UsageStore that can sum for each %[1]s: %[3]v", s.id.Kind, s.id.ID, err)
		return classify(ClassUsageStore, err)
	}
	return storeError(ClassUsageStore, err, messageLimits)
}

// expect returns what the request is expected to use if it uses a number of tokens, besides those of
// audio and images in the reply, which only count for the price. Its cost is that of Options.Price if
// inMoney is set, and otherwise zero.
func (l *ledger) expect(r *UsageRecord, tokens int, inMoney bool) (budget.Amount, Cost, error) {
	prompt := min(l.expected.prompt, tokens)
	var units Units
	if asked := l.expected.units; asked != nil {
		units = *asked
	}
	units.PromptTokens, units.CompletionTokens = int64(prompt), int64(tokens-prompt)
	if !inMoney {
		return budget.Amount{Tokens: units.Tokens()}, Cost{}, nil
	}
	used := budget.Amount{Tokens: units.Tokens()}
	units.CompletionTokens += l.mediaTokens(r, &units)
	if l.op.output == OutputAudio {
		units.CompletionAudioTokens = units.CompletionTokens
	}
	estimated := l.copyToPrice(r)
	estimated.Units, estimated.Estimated, estimated.ServiceTier = units, true, l.expected.serviceTier
	cost, err := callPrice(l.price, estimated)
	if _, told := errors.AsType[*llm.Error](err); err != nil && !told {
		err = fmt.Errorf("llmhttp: Options.Price: %w", err)
	}
	used.Cost = int64(cost.Total())
	return used, cost, err
}

// callPrice returns what price returns. If it panics, that is the error.
func callPrice(price func(*UsageRecord) (Cost, error), r *UsageRecord) (cost Cost, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panics.New(p)
		}
	}()
	return price(r)
}

// spendQuota counts what the request has used, in place of its reservations. It is called before the
// store records that.
func (l *ledger) spendQuota(r *UsageRecord, billable bool) {
	for i := range l.subjects {
		if s := &l.subjects[i]; s.quota.IsMade() {
			s.quota = l.quotas.Spend(s.quota, spentAmount(r, billable))
		}
	}
}

// endQuota is called after spendQuota when the store has been asked to record the usage, which
// counts even if that has failed.
func (l *ledger) endQuota(r *UsageRecord, billable bool) {
	for i := range l.subjects {
		if s := &l.subjects[i]; s.quota.IsMade() {
			s.quota = l.quotas.EndSpending(s.quota)
		}
	}
	l.settleShared(spentAmount(r, billable))
}

// spentAmount returns what a request counts toward quotas: nothing unless it is billable.
func spentAmount(r *UsageRecord, billable bool) budget.Amount {
	if !billable {
		return budget.Amount{}
	}
	return budget.Amount{Tokens: r.Units.Tokens(), Cost: int64(r.Cost.Total())}
}

// releaseQuota gives back what is reserved by a request that has used nothing.
func (l *ledger) releaseQuota() {
	for i := range l.subjects {
		if s := &l.subjects[i]; s.quota.IsMade() {
			s.quota = l.quotas.GiveBack(s.quota, budget.Reservation{})
		}
	}
	l.settleShared(budget.Amount{})
}

// doubtfulKey is the key under which the context of a query has its doubtfulAmount.
type doubtfulKey struct{}

// A doubtfulAmount adds up what a store tells by ReportDoubtful.
type doubtfulAmount struct {
	mu    sync.Mutex // guards total
	total budget.Amount
}

func (d *doubtfulAmount) sum() budget.Amount {
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
	d.total = d.total.Plus(sumAmounts(sums))
}

// A sharedQuota is what a request has reserved of the quotas of its subjects with a Reserver.
type sharedQuota struct {
	settle func(linger time.Duration, amounts ...int64)
	slots  []SlotAmount
	inCost []bool // whether each of slots is in money, not in tokens
}

// quotaSlot returns the slot of an amount of a quota, of which a store has recorded what was
// used. name is SlotQuotaTokens or SlotQuotaCost. The Amount is positive also if nothing is
// reserved, because that is what usage is settled with.
func quotaSlot(s SubjectID, name, account string, reserved, limit, used int64) SlotAmount {
	return SlotAmount{Subject: s, Name: name + "/" + account, Amount: max(reserved, 1), Limit: limit - used}
}

// shareQuotas reserves with the Reserver, if the Limiter is one, what reserveQuota has reserved
// in this Handler, or minimum if less is left. It replaces what it has reserved before; that is
// given back first, because the Backend has not been called.
func (l *ledger) shareQuotas(ctx context.Context, minimum budget.Amount) error {
	reserver, ok := LimiterAs[Reserver](l.limiter)
	if !ok {
		return nil
	}
	l.settleShared(budget.Amount{})
	shared := l.newSharedQuota()
	settle, full, err := reserver.Reserve(ctx, shared.slots...)
	if err == nil && settle == nil && shared.reduce(minimum) {
		settle, full, err = reserver.Reserve(ctx, shared.slots...)
	}
	if err == nil && settle == nil && (full < 0 || full >= len(shared.slots)) {
		err = fmt.Errorf("llmhttp: the Limiter refused slot %d of %d", full, len(shared.slots))
	}
	if err != nil {
		return storeError(ClassLimiter, err, messageLimits)
	}
	if settle == nil {
		subject := shared.slots[full].Subject
		l.refused = LimitRefusal{subject, LimitQuota}
		return errQuotaReserved(subject)
	}
	shared.settle = settle
	l.shared = shared
	return nil
}

// newSharedQuota returns the slots of the quotas that reserveQuota has reserved.
func (l *ledger) newSharedQuota() *sharedQuota {
	shared := new(sharedQuota)
	for i := range l.subjects {
		s := &l.subjects[i]
		if !s.quota.IsMade() {
			continue
		}
		q, reserved, used := s.limits.Quota, s.quota.Amount(), l.quotas.Stored(&s.quota)
		if q.Tokens != 0 {
			shared.slots = append(shared.slots,
				quotaSlot(s.id, SlotQuotaTokens, l.key.Account, reserved.Tokens, int64(q.Tokens), used.Tokens))
			shared.inCost = append(shared.inCost, false)
		}
		if q.Cost != 0 {
			shared.slots = append(shared.slots,
				quotaSlot(s.id, SlotQuotaCost, l.key.Account, reserved.Cost, int64(q.Cost), used.Cost))
			shared.inCost = append(shared.inCost, true)
		}
	}
	return shared
}

// amount returns what a counts in the slot with an index.
func (s *sharedQuota) amount(slot int, a budget.Amount) int64 {
	if s.inCost[slot] {
		return a.Cost
	}
	return a.Tokens
}

// reduce reduces the Amounts of the slots to minimum, and reports whether one was larger.
func (s *sharedQuota) reduce(minimum budget.Amount) (reduced bool) {
	for i := range s.slots {
		if least := max(s.amount(i, minimum), 1); s.slots[i].Amount > least {
			s.slots[i].Amount, reduced = least, true
		}
	}
	return reduced
}

// quotaLinger is how long usage that was recorded counts in a Reserver. The sums of a Handler may miss it
// for budget.TTL and budget.Timeout; the rest is for stores that show it late.
const quotaLinger = 10 * time.Second

// linger returns how long usage that the store has taken counts in a Reserver. A day is enough for
// any buffer.
func (b *books) linger() time.Duration {
	if s, ok := StoreAs[interface{ Delay() time.Duration }](b.store); ok {
		return quotaLinger + min(max(s.Delay(), 0), day)
	}
	return quotaLinger
}

// settleShared replaces what was reserved with the Reserver by what was spent, until the sums of
// all Handlers include that.
func (l *ledger) settleShared(spent budget.Amount) {
	shared := l.shared
	if shared == nil {
		return
	}
	l.shared = nil
	l.log.callAndLog("shared quota not settled", func() error {
		if spent == (budget.Amount{}) {
			shared.settle(0)
			return nil
		}
		amounts := make([]int64, len(shared.slots))
		for i := range amounts {
			amounts[i] = shared.amount(i, spent)
		}
		shared.settle(l.linger(), amounts...)
		return nil
	})
}
