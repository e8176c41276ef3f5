package llmhttptest

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
)

// BenchmarkKeyStore measures a [llmhttp.KeyStore] that holds 1000 keys: how
// long it takes to find one, one after the other and in parallel, and to find
// that there is none.
func BenchmarkKeyStore(b *testing.B, newStore func(b testing.TB) KeyStoreFixture) {
	b.Helper()
	f := newStore(b)
	secrets := make([]string, 1000)
	for i := range secrets {
		secrets[i], _ = f.mustAdd(b, newKey())
	}
	find := func(secret string) error {
		k, err := f.Store.Lookup(b.Context(), secret)
		if err == nil && k == nil {
			return errors.New("neither a key nor an error")
		}
		return err
	}
	b.Run("Found", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if err := find(secrets[i%len(secrets)]); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Unknown", func(b *testing.B) {
		b.ReportAllocs()
		secret := llmhttp.NewSecret("sk-")
		for b.Loop() {
			if find(secret) == nil {
				b.Fatal("a new secret is that of a key")
			}
		}
	})
	b.Run("Parallel", func(b *testing.B) {
		b.ReportAllocs()
		var next atomic.Uint32
		b.RunParallel(func(pb *testing.PB) {
			for i := int(next.Add(101)); pb.Next(); i++ {
				if err := find(secrets[i%len(secrets)]); err != nil {
					b.Error(err)
					return
				}
			}
		})
	})
}

// BenchmarkUsageStore measures a [llmhttp.UsageStore]: how long it takes to
// record one request, one after the other and in parallel, to record a batch
// of 100, and to sum up 10,000 requests of a month by day. Each of these has a
// store to itself.
func BenchmarkUsageStore(b *testing.B, newStore func(b testing.TB) llmhttp.UsageStore) {
	b.Helper()
	models := []string{"demo-chat", "demo-embed", "demo-image-small"}
	fresh := func(b *testing.B) (s usageTest, record func(i int) llmhttp.UsageRecord) {
		s = usageTest{newStore(b), unique("account")}
		template := s.record(noon, "", 100, 50)
		return s, func(i int) llmhttp.UsageRecord {
			r := template
			r.ID += strconv.Itoa(i)
			r.Time = noon.Add(time.Duration(i) * 257 * time.Second)
			r.Model = models[i%len(models)]
			return r
		}
	}
	b.Run("Record", func(b *testing.B) {
		s, record := fresh(b)
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if err := s.Record(b.Context(), record(i)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("RecordParallel", func(b *testing.B) {
		s, record := fresh(b)
		b.ReportAllocs()
		var next atomic.Int64
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if err := s.Record(b.Context(), record(int(next.Add(1)))); err != nil {
					b.Error(err)
					return
				}
			}
		})
	})
	b.Run("RecordBatch", func(b *testing.B) {
		s, record := fresh(b)
		batch := make([]llmhttp.UsageRecord, 100)
		b.ReportAllocs()
		for i := 0; b.Loop(); {
			for k := range batch {
				batch[k] = record(i)
				i++
			}
			if err := s.Record(b.Context(), batch...); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Query", func(b *testing.B) {
		s, record := fresh(b)
		const requests, batch = 10_000, 1000
		for i := 0; i < requests; i += batch {
			var records []llmhttp.UsageRecord
			for k := range batch {
				records = append(records, record(i+k))
			}
			if err := s.Record(b.Context(), records...); err != nil {
				b.Fatal(err)
			}
		}
		q := llmhttp.UsageQuery{Account: s.account, From: noon, To: noon.Add(30 * day), Step: day}
		b.ReportAllocs()
		for b.Loop() {
			sums, err := s.Query(b.Context(), q)
			if err != nil {
				b.Fatal(err)
			}
			if want := 30 * len(models); len(sums) != want {
				b.Fatalf("Query returned %d sums, want %d", len(sums), want)
			}
		}
	})
}

// BenchmarkLimiter measures a [llmhttp.Limiter]: a Take of one bucket, a Take of
// the three buckets that a Handler uses, an Adjust, a Take that is refused, and
// Takes in parallel for one key and for many.
func BenchmarkLimiter(b *testing.B, newLimiter func(b testing.TB) llmhttp.Limiter) {
	b.Helper()
	l := newLimiter(b)
	plenty := llmhttp.PerMinute(math.MaxInt32)
	draws := []llmhttp.Draw{
		{Bucket: llmhttp.BucketRequests, Rate: plenty, Cost: 1},
		{Bucket: llmhttp.BucketTokens, Rate: plenty, Cost: 1},
		{Bucket: llmhttp.BucketQuota, Rate: llmhttp.Rate{N: math.MaxInt32, Per: day}, Cost: 1},
	}
	take := func(want bool, key string, draws ...llmhttp.Draw) error {
		levels, err := l.Take(b.Context(), key, draws...)
		if err == nil && (len(levels) != len(draws) || isGranted(levels) != want) {
			err = fmt.Errorf("the levels of Take%s are %+v; want granted to be %t", describeDraws(draws), levels, want)
		}
		return err
	}
	loop := func(f func() error) func(b *testing.B) {
		return func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := f(); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	parallel := func(keys []string) func(b *testing.B) {
		return func(b *testing.B) {
			b.ReportAllocs()
			var next atomic.Uint32
			b.RunParallel(func(pb *testing.PB) {
				for i := int(next.Add(101)); pb.Next(); i++ {
					if err := take(true, keys[i%len(keys)], draws...); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
	}
	keys := make([]string, 1000)
	for i := range keys {
		keys[i] = unique("key")
	}
	b.Run("Take", loop(func() error { return take(true, keys[0], draws[0]) }))
	b.Run("TakeThree", loop(func() error { return take(true, keys[0], draws...) }))
	b.Run("Adjust", loop(func() error { return l.Adjust(b.Context(), keys[0], draws...) }))

	empty := llmhttp.Draw{Bucket: "bucket", Rate: slow(1), Cost: 1}
	if err := take(true, keys[0], empty); err != nil {
		b.Fatal(err)
	}
	b.Run("Refused", loop(func() error { return take(false, keys[0], empty) }))
	b.Run("ParallelOneKey", parallel(keys[:1]))
	b.Run("ParallelManyKeys", parallel(keys))
}
