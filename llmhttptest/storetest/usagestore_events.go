// Checks of stores that remember events of quotas.

package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp/llmhttptest/internal/kit"
	"github.com/llmhttp/llmhttp/quotawatch"
)

var quotaEventChecks = []kit.Check[usageTest]{
	{"QuotaEvents", checkQuotaEvents},
	{"QuotaEventLeases", checkQuotaEventLeases},
	{"ConcurrentClaims", checkConcurrentClaims},
}

// events returns the store as a QuotaEventStore. It skips the test if the store is none.
func (s *usageTest) events(t testing.TB) quotawatch.EventStore {
	t.Helper()
	e, ok := s.UsageStore.(quotawatch.EventStore)
	if !ok {
		t.Skip("the store is not a QuotaEventStore")
	}
	err := e.EndQuotaEvent(t.Context(), kit.Unique("quota"), true)
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip("the store does not support quota events")
	}
	kit.Must(t, "EndQuotaEvent of an unknown event", err)
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
	kit.Must(t, "ClaimQuotaEvent "+when, err)
	if claimed != want {
		kit.Wrong(t, "ClaimQuotaEvent "+when, claimed, want)
		t.FailNow()
	}
	return wait
}

func (c *claimTest) end(t testing.TB, handled bool) {
	t.Helper()
	kit.Must(t, "EndQuotaEvent", c.EndQuotaEvent(t.Context(), c.id, handled))
}

// wantHandled reports an error unless the event was handled.
func (c *claimTest) wantHandled(t testing.TB, when string) {
	t.Helper()
	if wait := c.claim(t, time.Hour, false, when); wait != 0 {
		kit.Wrong(t, "ClaimQuotaEvent "+when, fmt.Sprint("a wait of ", wait), "0s")
		t.FailNow()
	}
}

// checkQuotaEvents claims events with similar IDs.
func checkQuotaEvents(t testing.TB, s usageTest) {
	keep := []time.Time{{}, time.Now().Add(time.Hour), time.Date(2250, 1, 1, 0, 0, 0, 0, time.UTC)}
	var claims []claimTest
	prefix, events := kit.Unique("quota"), s.events(t)
	for i, name := range kit.TrickyNames() {
		c := claimTest{events, prefix + name, keep[i%len(keep)]}
		c.claim(t, time.Hour, true, "of a new event")
		claims = append(claims, c)
	}
	for _, c := range claims {
		if wait := c.claim(t, time.Hour, false, "of a claimed event"); wait <= 0 || wait > time.Hour {
			kit.Wrong(t, "ClaimQuotaEvent of an event that was claimed for an hour", fmt.Sprint("a wait of ", wait), "up to 1h")
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
	c := claimTest{events, kit.Unique("quota"), time.Now().Add(time.Hour)}
	begin := time.Now()
	c.claim(t, lease, true, "of a new event")
	for {
		claimed, wait, err := c.ClaimQuotaEvent(t.Context(), c.id, time.Hour, c.keep)
		kit.Must(t, "ClaimQuotaEvent", err)
		if claimed {
			break
		}
		if wait <= 0 || wait > lease {
			kit.Wrong(t, "ClaimQuotaEvent of a claimed event", fmt.Sprint("false, and a wait of ", wait), fmt.Sprint("up to ", lease))
			t.FailNow()
		}
		time.Sleep(wait)
	}
	// A store may round to microseconds.
	if elapsed := time.Since(begin); elapsed < lease-time.Microsecond {
		kit.Wrong(t, "ClaimQuotaEvent until it returned true", fmt.Sprint("a claim after ", elapsed), lease)
	}
	c.claim(t, time.Hour, false, "after a claim for another hour")
	c.end(t, true)
	c.wantHandled(t, "of an event whose first claim had lapsed")
}

func checkConcurrentClaims(t testing.TB, s usageTest) {
	events := s.events(t)
	const workers, n = 8, 20
	var mu sync.Mutex
	claims := make(map[string]int) // guarded by mu
	prefix := kit.Unique("quota")
	kit.Concurrently(t, workers, func(worker int) {
		for i := range n {
			id := fmt.Sprint(prefix, (i+worker*n/workers)%n)
			claimed, _, err := events.ClaimQuotaEvent(context.WithoutCancel(t.Context()), id, time.Hour, time.Time{})
			if err != nil {
				kit.Wrong(t, "ClaimQuotaEvent, concurrently", err, nil)
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
			kit.Wrong(t, fmt.Sprintf("ClaimQuotaEvent %d times, concurrently", workers), fmt.Sprintf("%d claims", claims[id]), "1")
		}
	}
}
