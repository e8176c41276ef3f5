package llmhttptest

import (
	"context"
	"sync"
	"testing"

	"github.com/llmhttp/llmhttp"
)

// acquireChecks are for a Limiter that counts requests in progress.
var acquireChecks = []check[llmhttp.ConcurrencyLimiter]{
	{"Limit", checkAcquireLimit},
	{"None", checkAcquireNone},
	{"LimitChange", checkAcquireLimitChange},
	{"ReleaseTwice", checkAcquireReleaseTwice},
	{"ReleaseLate", checkAcquireReleaseLate},
	{"Names", checkAcquireNames},
	{"Tokens", checkAcquireTokens},
	{"Together", checkAcquireTogether},
}

// mustAcquire acquires what has to be granted, or not.
func mustAcquire(t testing.TB, l llmhttp.ConcurrencyLimiter, want bool, bucket string, limit int) (release func()) {
	t.Helper()
	release, err := l.Acquire(t.Context(), bucket, limit)
	if err != nil {
		t.Fatalf("Acquire(%.40q, %d): error %v", bucket, limit, err)
	}
	if got := release != nil; got != want {
		t.Fatalf("Acquire(%.40q, %d): granted is %t, want %t", bucket, limit, got, want)
	}
	return release
}

func checkAcquireLimit(t testing.TB, l llmhttp.ConcurrencyLimiter) {
	for _, limit := range []int{1, 2, 7} {
		bucket := newBucket()
		releases := make([]func(), limit)
		for i := range releases {
			releases[i] = mustAcquire(t, l, true, bucket, limit)
		}
		for i := range 3 * limit {
			mustAcquire(t, l, false, bucket, limit)
			releases[i%limit]()
			releases[i%limit] = mustAcquire(t, l, true, bucket, limit)
		}
		for _, release := range releases {
			release()
		}
		for range limit {
			defer mustAcquire(t, l, true, bucket, limit)()
		}
		mustAcquire(t, l, false, bucket, limit)
	}
}

func checkAcquireNone(t testing.TB, l llmhttp.ConcurrencyLimiter) {
	bucket := newBucket()
	for _, limit := range []int{0, -1, -1 << 31} {
		mustAcquire(t, l, false, bucket, limit)
	}
	defer mustAcquire(t, l, true, bucket, 1)()
}

func checkAcquireLimitChange(t testing.TB, l llmhttp.ConcurrencyLimiter) {
	bucket := newBucket()
	first := mustAcquire(t, l, true, bucket, 1)
	mustAcquire(t, l, false, bucket, 1)
	second := mustAcquire(t, l, true, bucket, 2)
	mustAcquire(t, l, false, bucket, 1)
	first()
	mustAcquire(t, l, false, bucket, 1)
	second()
	defer mustAcquire(t, l, true, bucket, 1)()
}

func checkAcquireReleaseTwice(t testing.TB, l llmhttp.ConcurrencyLimiter) {
	bucket := newBucket()
	first := mustAcquire(t, l, true, bucket, 2)
	defer mustAcquire(t, l, true, bucket, 2)()
	for range 3 {
		first()
	}
	defer mustAcquire(t, l, true, bucket, 2)()
	first()
	mustAcquire(t, l, false, bucket, 2)
}

func checkAcquireReleaseLate(t testing.TB, l llmhttp.ConcurrencyLimiter) {
	bucket := newBucket()
	ctx, cancel := context.WithCancel(t.Context())
	release, err := l.Acquire(ctx, bucket, 1)
	if err != nil || release == nil {
		t.Fatalf("Acquire: error %v, granted is %t", err, release != nil)
	}
	cancel()
	mustAcquire(t, l, false, bucket, 1) // the context's end is not that of the request
	release()
	defer mustAcquire(t, l, true, bucket, 1)()
}

func checkAcquireNames(t testing.TB, l llmhttp.ConcurrencyLimiter) {
	prefix := unique("bucket")
	for _, name := range names() {
		for _, bucket := range []string{prefix + name + ":", prefix + name + ":concurrent", prefix + ":" + name} {
			defer mustAcquire(t, l, true, bucket, 1)()
			mustAcquire(t, l, false, bucket, 1)
		}
	}
}

// checkAcquireTokens checks that buckets of tokens are others.
func checkAcquireTokens(t testing.TB, l llmhttp.ConcurrencyLimiter) {
	ledger := limiterTest{Limiter: l}.ledger(t)
	at := llmhttp.Draw{Bucket: newBucket(), Rate: slow(10), Cost: 4}
	ledger.mustTake(true, at)
	release := mustAcquire(t, l, true, at.Bucket, 1)
	ledger.expect(6, at)
	mustAcquire(t, l, false, at.Bucket, 1)
	release()
	ledger.expect(6, at)
}

func checkAcquireTogether(t testing.TB, l llmhttp.ConcurrencyLimiter) {
	const workers, limit = 16, 5
	bucket := newBucket()
	for range 3 {
		var mu sync.Mutex
		var releases []func()
		together(t, workers, func(int) {
			release, err := l.Acquire(t.Context(), bucket, limit)
			if err != nil {
				t.Errorf("Acquire: error %v", err)
			} else if release != nil {
				mu.Lock()
				defer mu.Unlock()
				releases = append(releases, release)
			}
		})
		if len(releases) != limit {
			t.Errorf("%d of %d concurrent Acquires were granted, want %d", len(releases), workers, limit)
		}
		together(t, len(releases), func(i int) { releases[i]() })
	}
}
