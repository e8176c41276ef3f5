package llmhttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/llmhttp/llmhttp/internal/panics"
	"github.com/llmhttp/llmhttp/internal/saturating"
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
// If the store does not answer within 2 seconds, the last sums are used, with
// what the Handler itself has served since. If there are none, because the key
// was not used for minutes or its period has just begun, requests get a 503.
type Quota struct {
	// Tokens is the number of tokens of prompts and completions together. Zero
	// means no limit. A negative number permits nothing.
	Tokens int

	// Cost is an amount of money, in the currency of Options.Price. Zero means no limit. A negative
	// amount permits nothing. Without Options.Price, it is a mistake: requests get a 500, and the
	// cause is logged.
	Cost Money

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

// isSet reports whether q sets a limit.
func (q Quota) isSet() bool { return q.Tokens != 0 || q.Cost != 0 }

const day = 24 * time.Hour

// An amount is a number of tokens and their cost, which count toward a Quota.
type amount struct {
	tokens int64
	cost   Money
}

func (a amount) plus(b amount) amount {
	return amount{saturating.Add(a.tokens, b.tokens), a.cost.Add(b.cost)}
}

func (a amount) minus(b amount) amount { return amount{a.tokens - b.tokens, a.cost.Sub(b.cost)} }

// exceeds reports whether a is more than q permits.
func (a amount) exceeds(q Quota) bool {
	return q.Tokens != 0 && a.tokens > int64(max(q.Tokens, 0)) || q.Cost != 0 && a.cost > max(q.Cost, 0)
}

// reaches reports whether q permits nothing beyond a.
func (a amount) reaches(q Quota) bool {
	return q.Tokens != 0 && a.tokens >= int64(max(q.Tokens, 0)) || q.Cost != 0 && a.cost >= max(q.Cost, 0)
}

// sumAmounts returns what sums count toward a quota.
func sumAmounts(sums []UsageSum) (total amount) {
	for i := range sums {
		total = total.plus(amount{sums[i].Units.Tokens(), sums[i].Cost.Total()})
	}
	return total
}

// A quotaReservation is what a request has reserved of the quota of a subject, and when that is
// recorded, what it has used.
type quotaReservation struct {
	entry  *quotaEntry // nil if nothing is reserved
	amount amount

	reads uint64 // quotaEntry.reads before the usage is recorded
	use   usedQuota
}

// A usedQuota is what was used of a quota when a request has last looked.
type usedQuota struct {
	amount
	known     bool // the request has looked
	exhausted bool // see QuotaUse
}

// A QuotaUse tells what was used of a Quota when a request had ended. Package quotawatch makes events of
// it.
type QuotaUse struct {
	Subject SubjectID // the ID of an end user is the User of the record
	Quota   Quota

	// Tokens and Cost are what the UsageStore has recorded for the subject since the Quota's Start, and what
	// this Handler has served since the sums were read, without what may be in both.
	Tokens int64
	Cost   Money

	Exhausted bool // the request was refused because too little of the Quota is left, also when others have ended
}

// uses returns the QuotaUses of a request that has the record r, or nil if it has looked at no quota.
func (l *ledger) quotaUses(r *UsageRecord) (uses []QuotaUse) {
	for i := range l.subjects {
		if s := &l.subjects[i]; s.quota.use.known {
			u := &s.quota.use
			uses = append(uses, QuotaUse{l.quotaOwner(s, r).subject, s.limits.Quota, u.tokens, u.cost, u.exhausted})
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
	replaced := make([]quotaReservation, 0, maxSubjects+3) // on the stack
	for i := range l.subjects {
		s := &l.subjects[i]
		replaced = append(replaced, s.quota)
		if !s.limits.Quota.isSet() {
			continue
		}
		if s.quota, err = l.quotas.reserve(ctx, l.quotaOwner(s, r), s.limits.Quota, s.quota, want, minimum, r.Time); err != nil {
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

// quotaOwner returns whose usage the quota of s limits.
func (l *ledger) quotaOwner(s *limitedSubject, r *UsageRecord) quotaOwner {
	o := quotaOwner{l.key.Account, s.id}
	if s.id.Kind == KindUser {
		o.subject.ID = r.User // as it is recorded
	}
	return o
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
func (l *ledger) giveBackQuotas(subjects []limitedSubject, replaced []quotaReservation) {
	for i := range subjects {
		if s := &subjects[i]; s.limits.Quota.isSet() {
			l.quotas.giveBack(s.quota, replaced[i])
			replaced[i].use = s.quota.use
			s.quota = replaced[i]
		}
	}
}

// quotaError returns the error of a request for which the quota of s was not reserved because
// of err, and notes who has refused it.
func (l *ledger) quotaError(s *limitedSubject, err error) error {
	switch refusal, told := errors.AsType[*llm.Error](err); {
	case told && refusal != nil && refusal.Status == http.StatusTooManyRequests:
		l.refused = Refusal{s.id, LimitQuota}
		return err
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
func (l *ledger) expect(r *UsageRecord, tokens int, inMoney bool) (amount, Cost, error) {
	prompt := min(l.expected.prompt, tokens)
	var units Units
	if asked := l.expected.units; asked != nil {
		units = *asked
	}
	units.PromptTokens, units.CompletionTokens = int64(prompt), int64(tokens-prompt)
	if !inMoney {
		return amount{tokens: units.Tokens()}, Cost{}, nil
	}
	used := amount{tokens: units.Tokens()}
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
	used.cost = cost.Total()
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
		if s := &l.subjects[i]; s.quota.entry != nil {
			s.quota = l.quotas.spend(s.quota, spentAmount(r, billable))
		}
	}
}

// endQuota is called after spendQuota when the store has been asked to record the usage, which
// counts even if that has failed.
func (l *ledger) endQuota(r *UsageRecord, billable bool) {
	for i := range l.subjects {
		if s := &l.subjects[i]; s.quota.entry != nil {
			l.quotas.endSpending(s.quota)
			s.quota = quotaReservation{use: s.quota.use}
		}
	}
	l.settleShared(spentAmount(r, billable))
}

// spentAmount returns what a request counts toward quotas: nothing unless it is billable.
func spentAmount(r *UsageRecord, billable bool) amount {
	if !billable {
		return amount{}
	}
	return amount{r.Units.Tokens(), r.Cost.Total()}
}

// releaseQuota gives back what is reserved by a request that has used nothing.
func (l *ledger) releaseQuota() {
	for i := range l.subjects {
		if s := &l.subjects[i]; s.quota.entry != nil {
			l.quotas.giveBack(s.quota, quotaReservation{})
			s.quota = quotaReservation{use: s.quota.use}
		}
	}
	l.settleShared(amount{})
}
