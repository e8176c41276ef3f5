package llmhttptest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp/quotawatch"
)

var quotaEventChecks = []check[usageTest]{
	{
		"QuotaEvents",
		"an event can be claimed twice, or not any more after its claim was ended, or an event that was handled can be claimed.",
		checkQuotaEvents,
	},
	{
		"QuotaEventLeases",
		"a claim does not lapse when its process was killed, or lapses too early, or one that has lapsed cannot be ended.",
		checkQuotaEventLeases,
	},
	{"QuotaEventIDs", "IDs of events are normalised or cut, or events have one claim together.", checkQuotaEventIDs},
	{"ConcurrentClaims", "looking for a claim and storing it is not one atomic step.", checkConcurrentClaims},
}

// events returns the store as a QuotaEventStore. It skips the test if the store is none.
func (s *usageTest) events(t testing.TB) quotawatch.EventStore {
	t.Helper()
	e, ok := s.UsageStore.(quotawatch.EventStore)
	if !ok {
		t.Skip("the store is not a QuotaEventStore")
	}
	switch err := e.EndQuotaEvent(t.Context(), unique("quota"), true); {
	case errors.Is(err, errors.ErrUnsupported):
		t.Skip("the store does not support quota events")
	case err != nil:
		usually(t, "EndQuotaEvent fails if it changes nothing.").Fatalf("EndQuotaEvent of an unknown event returned the error %v, want nil", err)
	}
	return e
}

// A claimTest claims one event of a store.
type claimTest struct {
	quotawatch.EventStore
	id   string
	keep time.Time
}

// claim claims the event for the time of lease, and reports an error unless that is possible. If it
// is not, it returns how long to wait.
func (c *claimTest) claim(t testing.TB, lease time.Duration, want bool, when string) (wait time.Duration) {
	t.Helper()
	claimed, wait, err := c.ClaimQuotaEvent(t.Context(), c.id, lease, c.keep)
	if err != nil {
		unexplained(t).Fatalf("ClaimQuotaEvent %s returned the error %v, want nil", when, err)
	}
	if claimed != want {
		t.Fatalf("ClaimQuotaEvent %s returned %t, want %t", when, claimed, want)
	}
	return wait
}

func (c *claimTest) end(t testing.TB, handled bool) {
	t.Helper()
	if err := c.EndQuotaEvent(t.Context(), c.id, handled); err != nil {
		unexplained(t).Fatalf("EndQuotaEvent returned the error %v, want nil", err)
	}
}

// wantHandled reports an error unless the event was handled.
func (c *claimTest) wantHandled(t testing.TB, when string) {
	t.Helper()
	if wait := c.claim(t, time.Hour, false, when); wait != 0 {
		t.Fatalf("ClaimQuotaEvent %s returned a wait of %v, want 0", when, wait)
	}
}

func checkQuotaEvents(t testing.TB, s usageTest) {
	events := s.events(t)
	for _, keep := range []time.Time{{}, time.Now().Add(time.Hour), time.Date(2250, 1, 1, 0, 0, 0, 0, time.UTC)} {
		c := claimTest{events, unique("quota"), keep}
		c.claim(t, time.Hour, true, "of a new event")
		for range 2 {
			if wait := c.claim(t, time.Hour, false, "of a claimed event"); wait <= 0 || wait > time.Hour {
				t.Errorf("ClaimQuotaEvent of an event that was claimed for an hour returned a wait of %v, want up to 1h", wait)
			}
		}
		c.end(t, false)
		c.claim(t, time.Hour, true, "after EndQuotaEvent of one that was not handled")
		c.end(t, true)
		c.wantHandled(t, "of a handled event")
		c.end(t, false)
		c.wantHandled(t, "of a handled event that was ended again")
	}
}

// checkQuotaEventLeases waits until leases have lapsed.
func checkQuotaEventLeases(t testing.TB, s usageTest) {
	events := s.events(t)
	const lease = 50 * time.Millisecond
	c := claimTest{events, unique("quota"), time.Now().Add(time.Hour)}
	begin := time.Now()
	c.claim(t, lease, true, "of a new event")
	for {
		claimed, wait, err := c.ClaimQuotaEvent(t.Context(), c.id, time.Hour, c.keep)
		if err != nil {
			unexplained(t).Fatalf("ClaimQuotaEvent returned the error %v, want nil", err)
		}
		if claimed {
			break
		}
		if wait <= 0 || wait > lease {
			t.Fatalf("ClaimQuotaEvent after a claim for %v returned false and a wait of %v", lease, wait)
		}
		time.Sleep(wait)
	}
	// A store may round to microseconds.
	if elapsed := time.Since(begin); elapsed < lease-time.Microsecond {
		t.Errorf("an event that was claimed for %v was claimed again after %v", lease, elapsed)
	}
	c.claim(t, time.Hour, false, "after a claim for another hour")
	c.end(t, true)
	c.wantHandled(t, "of an event whose first claim had lapsed")
}

func checkQuotaEventIDs(t testing.TB, s usageTest) {
	events := s.events(t)
	prefix := unique("quota")
	for i, name := range trickyNames() {
		c := claimTest{events, prefix + name, time.Time{}}
		c.claim(t, time.Hour, true, "of a new event")
		if i%2 == 0 {
			c.end(t, true)
		}
	}
	for _, name := range trickyNames() {
		c := claimTest{events, prefix + name, time.Time{}}
		c.claim(t, time.Hour, false, "of a known event")
	}
}

func checkConcurrentClaims(t testing.TB, s usageTest) {
	events := s.events(t)
	const workers, n = 8, 20
	var mu sync.Mutex
	claims := make(map[string]int) // guarded by mu
	prefix := unique("quota")
	runConcurrently(t, workers, func(worker int) {
		for i := range n {
			id := fmt.Sprint(prefix, (i+worker*n/workers)%n)
			claimed, _, err := events.ClaimQuotaEvent(context.WithoutCancel(t.Context()), id, time.Hour, time.Time{})
			if err != nil {
				unexplained(t).Errorf("ClaimQuotaEvent returned the error %v, want nil", err)
				return
			}
			mu.Lock()
			if claimed {
				claims[id]++
			}
			mu.Unlock()
		}
	})
	for i := range n {
		if id := fmt.Sprint(prefix, i); claims[id] != 1 {
			t.Errorf("%d of %d concurrent calls of ClaimQuotaEvent returned true, want 1", claims[id], workers)
		}
	}
}
