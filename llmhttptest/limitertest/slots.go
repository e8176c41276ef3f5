// The model of what is in use of slots.

package limitertest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llmhttptest/internal/kit"
)

// heldSlots are what an Acquire or a Reserve has returned.
type heldSlots struct {
	slots    []llmhttp.SlotAmount
	settle   func(linger time.Duration, amounts ...int64) // release ignores the arguments
	reserved bool
	given    bool // back
}

func slotID(s llmhttp.SlotAmount) bucketID { return bucketID{s.Subject, s.Name} }

// A slotCall is a Slot with a Limit that exceeds what is in use by Room.
type slotCall struct {
	Subject      llmhttp.SubjectID // see tracker.subject
	Name         string
	Amount, Room int64
}

// checkAcquire calls Acquire, or Reserve, whose context ends after that if cancel is true. It checks
// the result, and keeps what was granted under id, in place of what it had there.
func (l *tracker) checkAcquire(id int, reserve, cancel bool, calls ...slotCall) {
	l.t.Helper()
	var slots []llmhttp.SlotAmount
	for _, c := range calls {
		s := llmhttp.SlotAmount{Subject: l.subject(c.Subject), Name: c.Name, Amount: c.Amount}
		s.Limit = l.inUse[slotID(s)] + c.Room
		slots = append(slots, s)
	}
	ctx, end := context.WithCancel(l.t.Context())
	defer end()
	if !cancel {
		ctx = l.t.Context()
	}
	passed, h, call := slices.Clone(slots), &heldSlots{slots: slots, reserved: reserve}, "Acquire"
	var full int
	var err error
	if reserve {
		call = "Reserve"
		h.settle, full, err = l.limiter.(llmhttp.Reserver).Reserve(ctx, passed...)
	} else {
		var release func()
		release, full, err = l.limiter.(llmhttp.ConcurrencyLimiter).Acquire(ctx, passed...)
		if release != nil {
			h.settle = func(time.Duration, ...int64) { release() }
		}
	}
	kit.Must(l.t, call, err)
	if !slices.Equal(passed, slots) {
		kit.Wrong(l.t, call, "changed slots: "+kit.Describe(passed), "them as they were")
	}
	isFull := func(s llmhttp.SlotAmount) bool { return s.Limit < s.Amount || l.inUse[slotID(s)] > s.Limit-s.Amount }
	i := slices.IndexFunc(slots, isFull)
	switch granted := h.settle != nil; {
	case granted && i >= 0:
		kit.Wrong(l.t, call, "it granted", fmt.Sprintf("a refusal, because %d are in use of slot %d", l.inUse[slotID(slots[i])], i))
	case !granted && i < 0:
		kit.Wrong(l.t, call, fmt.Sprint("a refusal because of slot ", full), "it granted, because less is in use")
	case !granted && (full < 0 || full >= len(slots) || !isFull(slots[full])):
		kit.Wrong(l.t, call, fmt.Sprint("a refusal because of slot ", full), fmt.Sprintf("one that is full, such as %d", i))
	case granted:
		l.held[id] = h
		for _, s := range slots {
			l.inUse[slotID(s)] += s.Amount
		}
	}
}

// checkSettle calls the function that an Acquire or a Reserve has returned, if that was granted.
// linger must be so long that it does not end during the test. It passes as many amounts as there are
// slots, or none if amounts has less.
func (l *tracker) checkSettle(id int, linger time.Duration, amounts ...int64) {
	h := l.held[id]
	if h == nil {
		return
	}
	if len(amounts) < len(h.slots) {
		amounts = nil
	}
	passed := slices.Clone(amounts[:min(len(amounts), len(h.slots))])
	h.settle(linger, passed...)
	clear(passed)
	if h.given {
		return
	}
	h.given = true
	for i, s := range h.slots {
		l.inUse[slotID(s)] -= s.Amount
		if h.reserved && linger > 0 && amounts != nil {
			l.inUse[slotID(s)] += max(amounts[i], 0)
		}
	}
}
