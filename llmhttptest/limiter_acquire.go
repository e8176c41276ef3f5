package llmhttptest

import (
	"context"
	"sync"
	"testing"

	"github.com/llmhttp/llmhttp"
)

// acquireChecks test a ConcurrencyLimiter.
var acquireChecks = []check[llmhttp.ConcurrencyLimiter]{
	{"Limit", "the count is compared with the limit wrongly, or release does not reduce it.", checkAcquireLimit},
	{"NoLimit", "a limit that is not positive is read as unlimited or as one.", checkAcquireNoLimit},
	{"LimitChange", "the limit of an earlier call is kept.", checkAcquireLimitChange},
	{"ReleaseTwice", "release reduces the count each time that it is called.", checkAcquireReleaseTwice},
	{"ReleaseAfterCancel", "release depends on the context of Acquire, or its end releases.", checkAcquireReleaseAfterCancel},
	{"Names", "keys are normalised, cut or parsed.", checkAcquireNames},
	{"IndependentOfTokens", "requests in progress are stored under the same name as a token bucket.", checkAcquireIndependentOfTokens},
	{"Concurrent", "checking the count and increasing it is not one atomic step.", checkAcquireConcurrent},
}

// mustAcquire acquires and fails the test if that is refused.
func mustAcquire(t testing.TB, l llmhttp.ConcurrencyLimiter, key string, limit int) (release func()) {
	t.Helper()
	release, err := l.Acquire(t.Context(), key, limit)
	if err != nil {
		t.Fatalf("Acquire(%.40q, %d) returned the error %v, want nil", key, limit, err)
	}
	if release == nil {
		t.Fatalf("Acquire(%.40q, %d) was refused, want it granted", key, limit)
	}
	return release
}

// mustNotAcquire fails the test unless Acquire refuses.
func mustNotAcquire(t testing.TB, l llmhttp.ConcurrencyLimiter, key string, limit int) {
	t.Helper()
	release, err := l.Acquire(t.Context(), key, limit)
	if err != nil {
		t.Fatalf("Acquire(%.40q, %d) returned the error %v, want nil", key, limit, err)
	}
	if release != nil {
		t.Fatalf("Acquire(%.40q, %d) was granted, want it refused", key, limit)
	}
}

func checkAcquireLimit(t testing.TB, l llmhttp.ConcurrencyLimiter) {
	for _, limit := range []int{1, 2, 7} {
		key := unique("key")
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
	key := unique("key")
	for _, limit := range []int{0, -1, -1 << 31} {
		mustNotAcquire(t, l, key, limit)
	}
	defer mustAcquire(t, l, key, 1)()
}

func checkAcquireLimitChange(t testing.TB, l llmhttp.ConcurrencyLimiter) {
	key := unique("key")
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
	key := unique("key")
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
	key := unique("key")
	ctx, cancel := context.WithCancel(t.Context())
	release, err := l.Acquire(ctx, key, 1)
	if err != nil || release == nil {
		t.Fatalf("Acquire returned the error %v, granted is %t, want nil and true", err, release != nil)
	}
	cancel()
	mustNotAcquire(t, l, key, 1) // cancelling does not release
	release()
	defer mustAcquire(t, l, key, 1)()
}

func checkAcquireNames(t testing.TB, l llmhttp.ConcurrencyLimiter) {
	prefix := unique("key")
	for _, name := range trickyNames() {
		for _, key := range []string{prefix + name, prefix + name + ":", prefix + ":" + name} {
			defer mustAcquire(t, l, key, 1)()
			mustNotAcquire(t, l, key, 1)
		}
	}
}

// checkAcquireIndependentOfTokens checks that requests in progress use no
// bucket of the key, whatever its name.
func checkAcquireIndependentOfTokens(t testing.TB, l llmhttp.ConcurrencyLimiter) {
	for _, bucket := range []string{"", llmhttp.BucketRequests, "concurrent", "leases"} {
		tracker := limiterTest{limiter: l}.track(t)
		d := llmhttp.Draw{Bucket: bucket, Rate: slowRate(10), Cost: 4}
		tracker.mustTake(d)
		release := mustAcquire(t, l, tracker.key, 1)
		tracker.wantRemaining(6, d)
		mustNotAcquire(t, l, tracker.key, 1)
		release()
		tracker.wantRemaining(6, d)
	}
}

func checkAcquireConcurrent(t testing.TB, l llmhttp.ConcurrencyLimiter) {
	const workers, limit = 16, 5
	key := unique("key")
	for range 3 {
		var mu sync.Mutex
		var releases []func()
		runConcurrently(t, workers, func(int) {
			release, err := l.Acquire(t.Context(), key, limit)
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
