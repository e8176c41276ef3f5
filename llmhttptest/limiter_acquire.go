package llmhttptest

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
)

// acquireChecks test a ConcurrencyLimiter.
var acquireChecks = []check[llmhttp.ConcurrencyLimiter]{
	{"Limit", "the count is compared with the limit wrongly, or release does not reduce it.", checkAcquireLimit},
	{"NoLimit", "a limit that is not positive is read as unlimited or as one.", checkAcquireNoLimit},
	{"LimitChange", "the limit of an earlier call is kept.", checkAcquireLimitChange},
	{"ReleaseTwice", "release reduces the count each time that it is called.", checkAcquireReleaseTwice},
	{"ReleaseAfterCancel", "release depends on the context of Acquire, or its end releases.", checkAcquireReleaseAfterCancel},
	{"Weights", "each acquired slot counts as one, whatever its Amount.", checkAcquireWeights},
	{"AllOrNothing", "slots before one that is full remain acquired, or full is not the index of one that is.", checkAcquireAllOrNothing},
	{"Names", "subjects or names are normalised, cut, parsed or ignored.", checkAcquireNames},
	{"IndependentOfTokens", "requests in progress are stored under the same name as a token bucket.", checkAcquireIndependentOfTokens},
	{"Concurrent", "checking the count and increasing it is not one atomic step.", checkAcquireConcurrent},
	{
		"ConcurrentSubjects",
		"slots of several subjects are acquired one after the other, and are given back wrongly.",
		checkAcquireConcurrentSubjects,
	},
}

// requests returns the slot of a request in progress.
func requests(s llmhttp.SubjectID, limit int64) llmhttp.Slot {
	return llmhttp.Slot{Subject: s, Name: llmhttp.SlotConcurrent, Amount: 1, Limit: limit}
}

func describeSlots(slots []llmhttp.Slot) string {
	var list []string
	for _, s := range slots {
		list = append(list, fmt.Sprintf("%d of at most %d of %.40q of %s %.40q", s.Amount, s.Limit, s.Name, s.Subject.Kind, s.Subject.ID))
	}
	return "(" + strings.Join(list, "; ") + ")"
}

// acquire calls Acquire and checks what it returns. release is nil if it refused.
func acquire(t testing.TB, l llmhttp.ConcurrencyLimiter, slots []llmhttp.Slot) (release func(), full int) {
	t.Helper()
	passed := slices.Clone(slots)
	release, full, err := l.Acquire(t.Context(), passed...)
	if err != nil {
		t.Fatalf("Acquire%s returned the error %v, want nil", describeSlots(slots), err)
	}
	if release == nil && (full < 0 || full >= len(slots)) {
		t.Fatalf("Acquire%s refused the slot %d, want one of the %d slots", describeSlots(slots), full, len(slots))
	}
	if !slices.Equal(passed, slots) {
		t.Errorf("Acquire%s changed its slots to %s, want them as they were", describeSlots(slots), describeSlots(passed))
	}
	return release, full
}

// mustAcquireAll acquires slots and fails the test if that is refused.
func mustAcquireAll(t testing.TB, l llmhttp.ConcurrencyLimiter, slots ...llmhttp.Slot) (release func()) {
	t.Helper()
	release, full := acquire(t, l, slots)
	if release == nil {
		t.Fatalf("Acquire%s was refused because of slot %d, want it granted", describeSlots(slots), full)
	}
	return release
}

// mustNotAcquireAll fails the test unless Acquire refuses because the slot full is full.
func mustNotAcquireAll(t testing.TB, l llmhttp.ConcurrencyLimiter, full int, slots ...llmhttp.Slot) {
	t.Helper()
	release, got := acquire(t, l, slots)
	if release != nil {
		t.Fatalf("Acquire%s was granted, want it refused", describeSlots(slots))
	}
	if got != full {
		t.Errorf("Acquire%s was refused because of slot %d, want slot %d", describeSlots(slots), got, full)
	}
}

// mustAcquire acquires a request in progress and fails the test if that is refused.
func mustAcquire(t testing.TB, l llmhttp.ConcurrencyLimiter, s llmhttp.SubjectID, limit int64) (release func()) {
	t.Helper()
	return mustAcquireAll(t, l, requests(s, limit))
}

// mustNotAcquire fails the test unless a request in progress is refused.
func mustNotAcquire(t testing.TB, l llmhttp.ConcurrencyLimiter, s llmhttp.SubjectID, limit int64) {
	t.Helper()
	mustNotAcquireAll(t, l, 0, requests(s, limit))
}

func checkAcquireLimit(t testing.TB, l llmhttp.ConcurrencyLimiter) {
	for _, limit := range []int64{1, 2, 7} {
		key := newSubject()
		releases := make([]func(), limit)
		for i := range releases {
			releases[i] = mustAcquire(t, l, key, limit)
		}
		for i := range 3 * limit {
			mustNotAcquire(t, l, key, limit)
			releases[i%limit]()
			releases[i%limit] = mustAcquire(t, l, key, limit)
		}
		for _, release := range releases {
			release()
		}
		for range limit {
			defer mustAcquire(t, l, key, limit)()
		}
		mustNotAcquire(t, l, key, limit)
	}
}

func checkAcquireNoLimit(t testing.TB, l llmhttp.ConcurrencyLimiter) {
	key := newSubject()
	for _, limit := range []int64{0, -1, -1 << 31, math.MinInt64} {
		mustNotAcquire(t, l, key, limit)
	}
	defer mustAcquire(t, l, key, 1)()
}

func checkAcquireLimitChange(t testing.TB, l llmhttp.ConcurrencyLimiter) {
	key := newSubject()
	first := mustAcquire(t, l, key, 1)
	mustNotAcquire(t, l, key, 1)
	second := mustAcquire(t, l, key, 2)
	mustNotAcquire(t, l, key, 1)
	first()
	mustNotAcquire(t, l, key, 1)
	second()
	defer mustAcquire(t, l, key, 1)()
}

func checkAcquireReleaseTwice(t testing.TB, l llmhttp.ConcurrencyLimiter) {
	key := newSubject()
	first := mustAcquire(t, l, key, 2)
	defer mustAcquire(t, l, key, 2)()
	for range 3 {
		first()
	}
	defer mustAcquire(t, l, key, 2)()
	first()
	mustNotAcquire(t, l, key, 2)
}

func checkAcquireReleaseAfterCancel(t testing.TB, l llmhttp.ConcurrencyLimiter) {
	key := newSubject()
	ctx, cancel := context.WithCancel(t.Context())
	release, _, err := l.Acquire(ctx, requests(key, 1))
	if err != nil || release == nil {
		t.Fatalf("Acquire returned the error %v, granted is %t, want nil and true", err, release != nil)
	}
	cancel()
	mustNotAcquire(t, l, key, 1) // cancelling does not release
	release()
	defer mustAcquire(t, l, key, 1)()
}

// checkAcquireWeights checks that a slot counts with its Amount.
func checkAcquireWeights(t testing.TB, l llmhttp.ConcurrencyLimiter) {
	key := newSubject()
	slot := func(amount, limit int64) llmhttp.Slot {
		return llmhttp.Slot{Subject: key, Name: "weighted", Amount: amount, Limit: limit}
	}
	mustNotAcquireAll(t, l, 0, slot(11, 10))
	three := mustAcquireAll(t, l, slot(3, 10))
	mustNotAcquireAll(t, l, 0, slot(8, 10))
	seven := mustAcquireAll(t, l, slot(7, 10))
	mustNotAcquireAll(t, l, 0, slot(1, 10))
	one := mustAcquireAll(t, l, slot(1, 11))
	three()
	mustNotAcquireAll(t, l, 0, slot(3, 10))
	two := mustAcquireAll(t, l, slot(2, 10))
	for _, release := range []func(){one, two, seven} {
		release()
	}
	large := mustAcquireAll(t, l, slot(1<<40, 1<<41))
	mustNotAcquireAll(t, l, 0, slot(1<<40+1, 1<<41))
	mustAcquireAll(t, l, slot(1<<40, 1<<41))()
	large()
	defer mustAcquireAll(t, l, slot(10, 10))()
}

// checkAcquireAllOrNothing acquires slots of several subjects, two of each, of which one is
// full.
func checkAcquireAllOrNothing(t testing.TB, l llmhttp.ConcurrencyLimiter) {
	for full := range 6 {
		var slots []llmhttp.Slot
		for _, kind := range []string{llmhttp.KindUser, llmhttp.KindKey, llmhttp.KindAccount} {
			s := llmhttp.SubjectID{Kind: kind, ID: unique("subject")}
			slots = append(slots, requests(s, 2), llmhttp.Slot{Subject: s, Name: "weighted", Amount: 5, Limit: 10})
		}
		fill := slots[full]
		fill.Amount = fill.Limit - fill.Amount + 1
		release := mustAcquireAll(t, l, fill)
		for range 3 {
			mustNotAcquireAll(t, l, full, slots...)
		}
		release()
		for range 2 { // all of each slot is left
			first := mustAcquireAll(t, l, slots...)
			second := mustAcquireAll(t, l, slots...)
			mustNotAcquireAll(t, l, 0, slots[full])
			first()
			first()
			mustAcquireAll(t, l, slots...)()
			second()
		}
	}
}

func checkAcquireNames(t testing.TB, l llmhttp.ConcurrencyLimiter) {
	prefix := unique("key")
	for _, name := range trickyNames() {
		for _, id := range []string{prefix + name, prefix + name + ":", prefix + ":" + name} {
			for _, s := range []llmhttp.SubjectID{keySubject(id), {Kind: llmhttp.KindAccount, ID: id}, {Kind: "key-", ID: id}, {Kind: "ke", ID: "y" + id}} {
				defer mustAcquire(t, l, s, 1)()
				mustNotAcquire(t, l, s, 1)
			}
		}
		slot := llmhttp.Slot{Subject: keySubject(prefix + "plain"), Name: "slot" + name, Amount: 1, Limit: 1}
		defer mustAcquireAll(t, l, slot)()
		mustNotAcquireAll(t, l, 0, slot)
	}
}

// checkAcquireIndependentOfTokens checks that requests in progress use no bucket of the key,
// whatever its name.
func checkAcquireIndependentOfTokens(t testing.TB, l llmhttp.ConcurrencyLimiter) {
	for _, bucket := range []string{"", llmhttp.BucketRequests, llmhttp.SlotConcurrent, "leases"} {
		tracker := limiterTest{limiter: l}.track(t)
		d := llmhttp.Draw{Bucket: bucket, Rate: slowRate(10), Amount: 4}
		tracker.mustTake(d)
		release := mustAcquire(t, l, tracker.subject, 1)
		tracker.wantRemaining(6, d)
		mustNotAcquire(t, l, tracker.subject, 1)
		release()
		tracker.wantRemaining(6, d)
	}
}

func checkAcquireConcurrent(t testing.TB, l llmhttp.ConcurrencyLimiter) {
	const workers, limit = 16, 5
	key := newSubject()
	for range 3 {
		var mu sync.Mutex
		var releases []func()
		runConcurrently(t, workers, func(int) {
			release, _, err := l.Acquire(t.Context(), requests(key, limit))
			if err != nil {
				t.Errorf("Acquire returned the error %v, want nil", err)
			} else if release != nil {
				mu.Lock()
				defer mu.Unlock()
				releases = append(releases, release)
			}
		})
		if len(releases) != limit {
			t.Errorf("%d of %d concurrent Acquires were granted, want %d", len(releases), workers, limit)
		}
		runConcurrently(t, len(releases), func(i int) { releases[i]() })
	}
}

// checkAcquireConcurrentSubjects acquires slots of a key and of an account that is shared. A
// call may be refused because of another one that is refused later, but in the end all slots
// are free.
func checkAcquireConcurrentSubjects(t testing.TB, l llmhttp.ConcurrencyLimiter) {
	const workers, limit = 8, 3
	account := llmhttp.SubjectID{Kind: llmhttp.KindAccount, ID: unique("account")}
	keys := make([]llmhttp.SubjectID, workers)
	for i := range keys {
		keys[i] = newSubject()
	}
	var inUse atomic.Int64
	runConcurrently(t, workers, func(i int) {
		for range 10 {
			release, _, err := l.Acquire(t.Context(), requests(keys[i], 1), requests(account, limit))
			switch {
			case err != nil:
				t.Errorf("Acquire returned the error %v, want nil", err)
			case release != nil:
				if n := inUse.Add(1); n > limit {
					t.Errorf("%d requests of an account are in progress, want at most %d", n, limit)
				}
				time.Sleep(time.Microsecond)
				inUse.Add(-1)
				release()
			}
		}
	})
	for _, key := range keys {
		defer mustAcquire(t, l, key, 1)()
	}
	for range limit {
		defer mustAcquire(t, l, account, limit)()
	}
}
