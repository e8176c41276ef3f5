// The benchmark.

package limitertest

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llmhttptest/internal/kit"
)

// BenchmarkLimiter measures a [llmhttp.Limiter]: a Take of one bucket, a Take of three buckets of a
// key, a Take of two buckets of each of two keys, an Adjust, a Take that is refused, and concurrent
// Takes for one key and for many.
func BenchmarkLimiter(b *testing.B, newLimiter func(b testing.TB) llmhttp.Limiter) {
	b.Helper()
	l := newLimiter(b)
	plenty := llmhttp.PerMinute(math.MaxInt32)
	draws := []llmhttp.BucketAmount{
		{Bucket: llmhttp.BucketRequests, Rate: plenty, Amount: 1},
		{Bucket: llmhttp.BucketTokens, Rate: plenty, Amount: 1},
		{Bucket: llmhttp.BucketTokenCounts, Rate: llmhttp.Rate{N: math.MaxInt32, Per: day}, Amount: 1},
	}
	take := func(want bool, draws ...llmhttp.BucketAmount) error {
		levels, err := l.Take(b.Context(), draws...)
		if err == nil && (len(levels) != len(draws) || isGranted(levels) != want) {
			err = fmt.Errorf("the levels of Take%s are %+v; want granted to be %t", kit.Describe(draws), levels, want)
		}
		return err
	}
	var ofKeys [1000][]llmhttp.BucketAmount // draws for different keys
	for i := range ofKeys {
		ofKeys[i] = slices.Clone(draws)
		key := newSubject()
		for k := range ofKeys[i] {
			ofKeys[i][k].Subject = key
		}
	}
	draws = ofKeys[0]
	kit.Bench(b, "Take", func(uint64) error { return take(true, draws[0]) })
	kit.Bench(b, "TakeThree", func(uint64) error { return take(true, draws...) })
	twoSubjects := slices.Concat(ofKeys[0][:2], ofKeys[1][:2])
	kit.Bench(b, "TakeTwoSubjects", func(uint64) error { return take(true, twoSubjects...) })
	kit.Bench(b, "Adjust", func(uint64) error { return l.Adjust(b.Context(), draws...) })

	empty := llmhttp.BucketAmount{Subject: draws[0].Subject, Bucket: "bucket", Rate: slowRate(1), Amount: 1}
	if err := take(true, empty); err != nil {
		b.Fatal(err)
	}
	kit.Bench(b, "Refused", func(uint64) error { return take(false, empty) })
	kit.BenchParallel(b, "ParallelOneKey", func(uint64) error { return take(true, draws...) })
	kit.BenchParallel(b, "ParallelManyKeys", func(i uint64) error { return take(true, ofKeys[i%uint64(len(ofKeys))]...) })
}
