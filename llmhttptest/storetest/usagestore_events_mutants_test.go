package storetest

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/claims"
)

// An eventList is a simple correct QuotaEventStore. Mutants set its fields.
type eventList struct {
	llmhttp.UsageStore
	set claims.Set

	id      func(id string) string
	lease   func(d time.Duration) time.Duration
	claimed func(claimed bool, wait time.Duration) (bool, time.Duration)
	ended   func(handled bool) bool
	endErr  error

	mu   sync.Mutex
	seen map[string]bool // guarded by mu; nil unless claims are not atomic
}

func (l *eventList) ClaimQuotaEvent(_ context.Context, id string, lease time.Duration, keep time.Time) (bool, time.Duration, error) {
	if l.seen != nil {
		l.mu.Lock()
		known := l.seen[id]
		l.mu.Unlock()
		if known {
			return false, lease, nil
		}
		time.Sleep(time.Millisecond)
		runtime.Gosched()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.seen[id] = true
		return true, 0, nil
	}
	claimed, wait := l.claimed(l.set.Claim(l.id(id), time.Now(), l.lease(lease), keep))
	return claimed, wait, nil
}

func (l *eventList) EndQuotaEvent(_ context.Context, id string, handled bool) error {
	l.set.End(l.id(id), l.ended(handled))
	return l.endErr
}

// remembering returns a constructor of an eventList with a fault.
func remembering(fault func(*eventList)) func(testing.TB) usageTest {
	return func(t testing.TB) usageTest {
		s := usageFixture(func(*usageList) {})(t)
		l := &eventList{
			UsageStore: s.UsageStore,
			id:         func(id string) string { return id },
			lease:      func(d time.Duration) time.Duration { return d },
			claimed:    func(claimed bool, wait time.Duration) (bool, time.Duration) { return claimed, wait },
			ended:      func(handled bool) bool { return handled },
		}
		fault(l)
		s.UsageStore = l
		return s
	}
}

func TestQuotaEventMutants(t *testing.T) {
	testMutants(t, nil, quotaEventChecks, remembering(func(*eventList) {}), []mutant[usageTest]{
		{"every claim is granted", "QuotaEvents", remembering(func(l *eventList) {
			l.claimed = func(bool, time.Duration) (bool, time.Duration) { return true, 0 }
		})},
		{"no claim is granted", "QuotaEvents", remembering(func(l *eventList) {
			l.claimed = func(bool, time.Duration) (bool, time.Duration) { return false, 0 }
		})},
		{"the wait is not told", "QuotaEvents", remembering(func(l *eventList) {
			l.claimed = func(claimed bool, _ time.Duration) (bool, time.Duration) { return claimed, 0 }
		})},
		{"a handled event has a wait", "QuotaEvents", remembering(func(l *eventList) {
			l.claimed = func(claimed bool, _ time.Duration) (bool, time.Duration) { return claimed, time.Second }
		})},
		{"a claim that was ended is handled", "QuotaEvents", remembering(func(l *eventList) { l.ended = func(bool) bool { return true } })},
		{"a handled event is forgotten", "QuotaEvents", remembering(func(l *eventList) { l.ended = func(bool) bool { return false } })},
		{"an unknown event is an error", "QuotaEvents", remembering(func(l *eventList) { l.endErr = errNoRows })},
		{"claims never lapse", "QuotaEventLeases", remembering(func(l *eventList) {
			l.lease = func(time.Duration) time.Duration { return time.Hour }
		})},
		{"claims lapse early", "QuotaEventLeases", remembering(func(l *eventList) { l.lease = func(d time.Duration) time.Duration { return d / 2 } })},
		{"IDs have no case", "QuotaEvents", remembering(func(l *eventList) { l.id = strings.ToLower })},
		{"claims are not atomic", "ConcurrentClaims", remembering(func(l *eventList) { l.seen = make(map[string]bool) })},
	})
}
