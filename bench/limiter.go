package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"golang.org/x/time/rate"

	"github.com/llmhttp/llmhttp"
)

// take takes from two buckets of a key, as a Handler does for a request.
func take(l llmhttp.Limiter, key string, r llmhttp.Rate) error {
	subject := llmhttp.SubjectID{Kind: llmhttp.KindKey, ID: key}
	_, err := l.Take(context.Background(),
		llmhttp.BucketAmount{Subject: subject, Bucket: llmhttp.BucketRequests, Rate: r, Amount: 1},
		llmhttp.BucketAmount{Subject: subject, Bucket: llmhttp.BucketTokens, Rate: r, Amount: 300})
	return err
}

// runLimiter compares Limiter.Take with two calls of rate.Limiter.AllowN, and
// then measures the memory of idle buckets.
func runLimiter(b *bench) {
	keys := 500_000 // with two buckets each
	if b.short {
		keys = 500
	}
	b.measureCase("Take/buckets=2", b.rounds, benchmarkTake(1), benchmarkAllowN())
	b.measureCase("Take/buckets=1000000", b.rounds, benchmarkTake(keys), benchmarkAllowN())
	if !b.short { // it takes minutes
		b.measureCase("Take/idle", 1, measurement{ours, func() (values, error) { return measureIdle(keyNames(keys)) }})
	}
}

// keyNames returns the names of n keys in random order.
func keyNames(n int) []string {
	names := make([]string, n)
	for i, key := range rand.Perm(n) {
		names[i] = fmt.Sprintf("key_%d", key)
	}
	return names
}

// benchmarkTake calls Take for keys in random order. Their buckets never become
// full again, so that none is idle.
func benchmarkTake(keys int) measurement {
	slow := llmhttp.Rate{N: 1, Per: time.Hour, Burst: 1 << 40}
	l := llmhttp.NewLimiter()
	for _, key := range keyNames(keys) {
		take(l, key, slow)
	}
	names := keyNames(keys) // in another order than in the Limiter's memory
	next := 0
	return benchmark(ours, func() error {
		next++
		return take(l, names[next%keys], slow)
	})
}

func benchmarkAllowN() measurement {
	requests, tokens := rate.NewLimiter(1, 1<<40), rate.NewLimiter(1, 1<<40)
	return benchmark(allowN, func() error {
		now := time.Now()
		if !requests.AllowN(now, 1) || !tokens.AllowN(now, 300) {
			return errors.New("refused")
		}
		return nil
	})
}

// measureIdle fills a Limiter with buckets that are full again at once, and
// measures the share of their memory that it gives back within three minutes.
func measureIdle(keys []string) (values, error) {
	fast := llmhttp.Rate{N: 1 << 40, Per: time.Second}
	l := llmhttp.NewLimiter()
	empty := liveHeap()
	for _, key := range keys {
		if err := take(l, key, fast); err != nil {
			return nil, err
		}
	}
	full := liveHeap()
	share := 0.0
	for began := time.Now(); share < 0.95 && time.Since(began) < 3*time.Minute; {
		time.Sleep(2 * time.Second)
		share = 1 - (liveHeap()-empty)/(full-empty)
	}
	runtime.KeepAlive(l)
	runtime.KeepAlive(keys) // whose memory would be counted too
	return values{unitGivenBack: share}, nil
}

// liveHeap returns the bytes of the heap after a garbage collection.
func liveHeap() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}
