package redislimit

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/servertest"
	"github.com/llmhttp/llmhttp/llmhttptest/limitertest"
)

// BenchmarkLimiter measures with the client options that the package
// documentation recommends, and with the default ones.
func BenchmarkLimiter(b *testing.B) {
	for _, enabled := range []bool{true, false} {
		b.Run(fmt.Sprintf("ContextTimeoutEnabled=%t", enabled), func(b *testing.B) {
			limitertest.BenchmarkLimiter(b, func(b testing.TB) llmhttp.Limiter {
				c := redis.NewClient(&redis.Options{Addr: servertest.SharedRedis(b).Addr(), ContextTimeoutEnabled: enabled})
				b.Cleanup(func() { _ = c.Close() })
				return newLimiter(b, c, nil)
			})
		})
	}
}

// info returns the number in the INFO of Redis that pattern matches, or zero.
func info(b *testing.B, c *redis.Client, section, pattern string) float64 {
	b.Helper()
	text, err := c.Info(b.Context(), section).Result()
	if err != nil {
		b.Fatal(err)
	}
	m := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	f, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		b.Fatal(err)
	}
	return f
}

// BenchmarkRedis reports what a Take from the three buckets of a new key costs
// Redis: time of its only thread, and memory.
func BenchmarkRedis(b *testing.B) {
	for _, tt := range []struct {
		name string
		cost int64
	}{{"admitted", 1}, {"refused", 100}} {
		b.Run(tt.name, func(b *testing.B) {
			c := newClient(b, servertest.Redis(b))
			l := newLimiter(b, c, nil)
			key := func(i int) string { return "key_" + strconv.FormatInt(1_000_000_000_000+int64(i), 10) }
			draws := func(key string, cost int64) []llmhttp.BucketAmount {
				return []llmhttp.BucketAmount{
					{Bucket: llmhttp.BucketRequests, Rate: llmhttp.Rate{N: 50, Per: time.Hour}, Amount: cost},
					{Bucket: llmhttp.BucketTokens, Rate: llmhttp.Rate{N: 60_000, Per: time.Hour}, Amount: 1000},
					{Bucket: llmhttp.BucketTokenCounts, Rate: llmhttp.Rate{N: 10_000_000, Per: 30 * 24 * time.Hour}, Amount: 1000},
				}
			}
			take(b, l, draws(key(-1), 1)...) // sends the script
			if err := c.ConfigResetStat(b.Context()).Err(); err != nil {
				b.Fatal(err)
			}
			memory := info(b, c, "memory", `used_memory:(\d+)`)
			n := 0
			for b.Loop() {
				if levels := take(b, l, draws(key(n), tt.cost)...); granted(levels) != (tt.cost == 1) {
					b.Fatalf("%+v", levels)
				}
				n++
			}
			b.ReportMetric(info(b, c, "commandstats", `cmdstat_evalsha:.*usec_per_call=([\d.]+)`), "redis-µs/op")
			b.ReportMetric((info(b, c, "memory", `used_memory:(\d+)`)-memory)/float64(3*n), "redis-B/bucket")
		})
	}
}

func BenchmarkAcquire(b *testing.B) {
	l, key := newLimiter(b, nil, nil), uniqueKey()
	b.ReportAllocs()
	for b.Loop() {
		mustAcquire(b, l, key, 10)()
	}
}
