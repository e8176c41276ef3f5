package llmhttptest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
)

// reserveChecks test a Reserver.
var reserveChecks = []check[llmhttp.Reserver]{
	{"Limit", "Reserve and Acquire count different slots, or a reservation counts as one.", checkReserveLimit},
	{"AllOrNothing", "slots before one that is full remain reserved, or full is not the index of one that is.", checkReserveAllOrNothing},
	{"Settle", "settle does not replace each Amount by that of the same slot.", checkReserveSettle},
	{"GiveBack", "settle keeps amounts that are not positive, or that have no time to linger.", checkReserveGiveBack},
	{"Linger", "what was settled is given back too early or never.", checkReserveLinger},
	{"SettleTwice", "a second call of settle has an effect.", checkReserveSettleTwice},
	{"SettleAfterCancel", "settle depends on the context of Reserve, or its end settles.", checkReserveSettleAfterCancel},
}

type settleFunc = func(linger time.Duration, amounts ...int64)

// reserved returns two slots of a key and one of an account, which have 10 each.
func reserved() (slots []llmhttp.Slot) {
	key, account := newSubject(), llmhttp.SubjectID{Kind: llmhttp.KindAccount, ID: unique("account")}
	return []llmhttp.Slot{
		{Subject: key, Name: llmhttp.SlotQuotaTokens, Amount: 4, Limit: 10},
		{Subject: key, Name: llmhttp.SlotQuotaCost, Amount: 5, Limit: 10},
		{Subject: account, Name: llmhttp.SlotQuotaTokens, Amount: 6, Limit: 10},
	}
}

// reserve calls Reserve and checks what it returns. settle is nil if it refused.
func reserve(t testing.TB, l llmhttp.Reserver, slots []llmhttp.Slot) (settle settleFunc, full int) {
	t.Helper()
	passed := slices.Clone(slots)
	settle, full, err := l.Reserve(t.Context(), passed...)
	if err != nil {
		t.Fatalf("Reserve%s returned the error %v, want nil", describeSlots(slots), err)
	}
	if !slices.Equal(passed, slots) {
		t.Errorf("Reserve%s changed its slots to %s, want them as they were", describeSlots(slots), describeSlots(passed))
	}
	return settle, full
}

func mustReserve(t testing.TB, l llmhttp.Reserver, slots ...llmhttp.Slot) settleFunc {
	t.Helper()
	settle, full := reserve(t, l, slots)
	if settle == nil {
		t.Fatalf("Reserve%s was refused because of slot %d, want it granted", describeSlots(slots), full)
	}
	return settle
}

// wantInUse checks how much of each slot is in use.
func wantInUse(t testing.TB, l llmhttp.Reserver, slots []llmhttp.Slot, want ...int64) {
	t.Helper()
	for i, s := range slots {
		s.Amount, s.Limit = 1, want[i]
		if release, _ := acquire(t, l, []llmhttp.Slot{s}); release != nil {
			release()
			t.Errorf("less than %d is in use of slot %d of %s", want[i], i, describeSlots(slots))
		}
		s.Limit++
		release, _ := acquire(t, l, []llmhttp.Slot{s})
		if release == nil {
			t.Errorf("more than %d is in use of slot %d of %s", want[i], i, describeSlots(slots))
			continue
		}
		release()
	}
}

func checkReserveLimit(t testing.TB, l llmhttp.Reserver) {
	slots := reserved()
	settle := mustReserve(t, l, slots...)
	wantInUse(t, l, slots, 4, 5, 6)
	first := slots[:1]
	release := mustAcquireAll(t, l, first...)
	if again, _ := reserve(t, l, first); again != nil {
		t.Errorf("Reserve%s was granted when 8 were in use, want it refused", describeSlots(first))
	}
	settle(0)
	mustReserve(t, l, first...)(0)
	release()
	wantInUse(t, l, slots, 0, 0, 0)
	if settle, _ := reserve(t, l, []llmhttp.Slot{{Subject: newSubject(), Name: llmhttp.SlotQuotaTokens, Amount: 1}}); settle != nil {
		t.Error("Reserve with the Limit 0 was granted, want it refused")
	}
}

func checkReserveAllOrNothing(t testing.TB, l llmhttp.Reserver) {
	for i := range 3 {
		slots := reserved()
		fill := slots[i]
		fill.Amount = 10
		settleFill := mustReserve(t, l, fill)
		if settle, full := reserve(t, l, slots); settle != nil || full != i {
			t.Errorf(
				"Reserve%s returned a refusal of slot %d, granted is %t, want %d and false",
				describeSlots(slots),
				full,
				settle != nil,
				i,
			)
		}
		want := make([]int64, 3)
		want[i] = 10
		wantInUse(t, l, slots, want...)
		settleFill(0)
		mustReserve(t, l, slots...)(0)
	}
}

func checkReserveSettle(t testing.TB, l llmhttp.Reserver) {
	slots := reserved()
	settle := mustReserve(t, l, slots...)
	amounts := []int64{1, 5, 1 << 40}
	settle(time.Hour, amounts...)
	wantInUse(t, l, slots, 1, 5, 1<<40)
	clear(amounts)
	second := slots[:2]
	settle = mustReserve(t, l, second...)
	wantInUse(t, l, slots, 5, 10, 1<<40)
	settle(time.Hour, 3, 0)
	wantInUse(t, l, slots, 4, 5, 1<<40)
}

func checkReserveGiveBack(t testing.TB, l llmhttp.Reserver) {
	for _, test := range []struct {
		linger  time.Duration
		amounts []int64
	}{
		{0, nil}, {time.Hour, nil}, {0, []int64{4, 5, 6}}, {-time.Hour, []int64{4, 5, 6}},
		{time.Hour, []int64{0, 0, 0}}, {time.Hour, []int64{-1, 0, -1 << 40}},
	} {
		slots := reserved()
		for i := range slots {
			slots[i].Limit = 20
		}
		settle := mustReserve(t, l, slots...)
		mustReserve(t, l, slots...)(test.linger, test.amounts...)
		wantInUse(t, l, slots, 4, 5, 6)
		settle(0)
	}
}

func checkReserveLinger(t testing.TB, l llmhttp.Reserver) {
	const linger = 300 * time.Millisecond
	slots := reserved()
	settle := mustReserve(t, l, slots...)
	whole := slices.Clone(slots)
	for i := range whole {
		whole[i].Amount = 10
	}
	began := time.Now()
	settle(linger, 1, 2, 3)
	for {
		release, _ := acquire(t, l, whole)
		passed := time.Since(began)
		switch {
		case release != nil && passed < linger-clockError:
			t.Errorf("what was settled was given back after %v, want %v", passed, linger)
			fallthrough
		case release != nil:
			release()
			return
		case passed > linger+10*time.Second:
			t.Fatalf("what was settled is in use after %v, want %v", passed, linger)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func checkReserveSettleTwice(t testing.TB, l llmhttp.Reserver) {
	slots := reserved()
	settle := mustReserve(t, l, slots...)
	settle(time.Hour, 1, 2, 3)
	settle(time.Hour, 1, 2, 3)
	settle(0)
	wantInUse(t, l, slots, 1, 2, 3)
}

func checkReserveSettleAfterCancel(t testing.TB, l llmhttp.Reserver) {
	slots := reserved()
	ctx, cancel := context.WithCancel(t.Context())
	settle, _, err := l.Reserve(ctx, slots...)
	if err != nil || settle == nil {
		t.Fatalf("Reserve returned the error %v, granted is %t, want nil and true", err, settle != nil)
	}
	cancel()
	wantInUse(t, l, slots, 4, 5, 6)
	settle(time.Hour, 1, 2, 3)
	wantInUse(t, l, slots, 1, 2, 3)
}
