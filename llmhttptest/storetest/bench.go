// The benchmarks.

package storetest

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llmhttptest/internal/kit"
)

// BenchmarkKeyStore measures a [llmhttp.KeyStore] with 1000 keys: Lookup of a
// key, Lookup of an unknown secret, and concurrent Lookups of keys.
func BenchmarkKeyStore(b *testing.B, newStore func(b testing.TB) KeyStoreFixture) {
	b.Helper()
	f := newStore(b)
	var secrets [1000]string
	for i := range secrets {
		secrets[i], _ = f.mustAdd(b, newKey())
	}
	lookup := func(i uint64) error {
		k, err := f.Store.Lookup(b.Context(), secrets[i%uint64(len(secrets))])
		if err == nil && k == nil {
			return errors.New("got neither a key nor an error from Lookup, want a key")
		}
		return err
	}
	kit.Bench(b, "Found", lookup)
	secret := llmhttp.NewSecret("sk-")
	kit.Bench(b, "Unknown", func(uint64) error {
		if k, err := f.Store.Lookup(b.Context(), secret); err == nil {
			return fmt.Errorf("got %+v from Lookup of a new secret, want ErrKeyNotFound", k)
		}
		return nil
	})
	kit.BenchParallel(b, "Parallel", lookup)
}

// BenchmarkUsageStore measures a [llmhttp.UsageStore]: Record of one request,
// concurrent Records, Record of a batch of 100 requests, and a Query that sums
// 10,000 requests of a month by day. Each uses a store of its own.
func BenchmarkUsageStore(b *testing.B, newStore func(b testing.TB) llmhttp.UsageStore) {
	b.Helper()
	one := newUsageBench(b, newStore)
	kit.Bench(b, "Record", func(i uint64) error { return one.Record(b.Context(), one.record(i)) })
	parallel := newUsageBench(b, newStore)
	kit.BenchParallel(b, "RecordParallel", func(i uint64) error { return parallel.Record(b.Context(), parallel.record(i)) })
	batches := newUsageBench(b, newStore)
	kit.Bench(b, "RecordBatch", func(i uint64) error { return batches.Record(b.Context(), batches.batch(i)...) })

	s := newUsageBench(b, newStore)
	for i := range uint64(benchRequests / benchBatch) {
		s.mustRecord(b, s.batch(i)...)
	}
	q := llmhttp.UsageQuery{Account: s.account, From: noon, To: noon.Add(30 * day), Step: day}
	kit.Bench(b, "Query", func(uint64) error {
		sums, err := s.Query(b.Context(), q)
		if want := 30 * len(benchModels); err == nil && len(sums) != want {
			return fmt.Errorf("got %d sums from Query, want %d", len(sums), want)
		}
		return err
	})
}

const (
	benchRequests = 10_000 // of a month
	benchBatch    = 100
)

var benchModels = []string{"demo-chat", "demo-embed", "demo-image-small"}

// A usageBench is a store to measure, with numbered records.
type usageBench struct {
	usageTest
	template llmhttp.UsageRecord
	buf      [benchBatch]llmhttp.UsageRecord // for batch
}

func newUsageBench(b testing.TB, newStore func(b testing.TB) llmhttp.UsageStore) *usageBench {
	s := &usageBench{usageTest: usageTest{newStore(b), kit.Unique("account")}}
	s.template = s.newRecord(noon, "", 100, 50)
	return s
}

func (s *usageBench) record(i uint64) llmhttp.UsageRecord {
	r := s.template
	r.ID += strconv.FormatUint(i, 10)
	r.Time = noon.Add(time.Duration(i%benchRequests) * 257 * time.Second)
	r.Model = benchModels[i%uint64(len(benchModels))]
	return r
}

// batch returns batch i of records. The next call overwrites it.
func (s *usageBench) batch(i uint64) []llmhttp.UsageRecord {
	for k := range s.buf {
		s.buf[k] = s.record(i*benchBatch + uint64(k))
	}
	return s.buf[:]
}
