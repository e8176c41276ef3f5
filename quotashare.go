package llmhttp

import (
	"context"
	"fmt"
	"time"

	"github.com/llmhttp/llmhttp/internal/budget"
)

// A sharedQuota is what a request has reserved of the quotas of its subjects with a Reserver.
type sharedQuota struct {
	settle func(linger time.Duration, amounts ...int64)
	slots  []Slot
	inCost []bool // whether each of slots is in money, not in tokens
}

// quotaSlot returns the slot of an amount of a quota, of which a store has recorded what was
// used. name is SlotQuotaTokens or SlotQuotaCost. The Amount is positive also if nothing is
// reserved, because that is what usage is settled with.
func quotaSlot(s SubjectID, name, account string, reserved, limit, used int64) Slot {
	return Slot{Subject: s, Name: name + "/" + account, Amount: max(reserved, 1), Limit: limit - used}
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
		l.refused = Refusal{subject, LimitQuota}
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
