// TestUsageStore and its checks.

package storetest

import (
	"cmp"
	"context"
	"fmt"
	"math/big"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llmhttptest/internal/kit"
)

// TestUsageStore tests a [llmhttp.UsageStore]. It calls newStore once for each subtest. The stores
// may share a database, because each subtest uses accounts of its own.
//
// Query must see everything that Record has accepted, and must sort models by their bytes, as Go
// compares strings. If a store records in the background, test a wrapper whose Query waits for
// that. Recorded times are whole microseconds of the year 2025. The bounds of a query may be much
// earlier, such as the zero Time, or later. For a subject whose kind the store cannot sum for,
// Query must return an error that wraps [errors.ErrUnsupported]. If the store is a
// [quotawatch.EventStore], that is tested, too, unless its methods return such an error.
func TestUsageStore(t *testing.T, newStore func(t testing.TB) llmhttp.UsageStore) {
	t.Helper()
	newTest := func(t testing.TB) usageTest { return usageTest{newStore(t), kit.Unique("account")} }
	kit.Run(t, &usageSequences, slices.Concat(usageChecks, quotaEventChecks), newTest)
}

// A usageTest is the UsageStore that a check tests, with an account that is
// unused.
type usageTest struct {
	llmhttp.UsageStore
	account string
}

// noon is the time of the first usage in most checks.
var noon = time.Date(2025, 3, 14, 12, 0, 0, 0, time.UTC)

const day = 24 * time.Hour

// newRecord returns a record of the test's account with a unique ID.
func (s *usageTest) newRecord(at time.Time, model string, prompt, completion int) llmhttp.UsageRecord {
	id := kit.Unique("request")
	return llmhttp.UsageRecord{
		ID:        id,
		RequestID: id,
		Time:      at,
		Account:   s.account,
		KeyID:     "key of " + s.account,
		Model:     model,
		Operation: llmhttp.OperationChat,
		Protocol:  "chat",
		Units:     llmhttp.Units{PromptTokens: int64(prompt), CompletionTokens: int64(completion)},
	}
}

// record records records. It reports an error if that changes them.
func (s *usageTest) record(t testing.TB, ctx context.Context, records ...llmhttp.UsageRecord) error {
	t.Helper()
	passed := slices.Clone(records)
	err := s.Record(ctx, passed...)
	if !reflect.DeepEqual(passed, records) {
		kit.Wrong(t, "Record", "other records than it was passed: "+kit.Describe(passed), kit.Describe(records))
	}
	return err
}

// mustRecord is record without an error.
func (s *usageTest) mustRecord(t testing.TB, records ...llmhttp.UsageRecord) {
	t.Helper()
	kit.Must(t, fmt.Sprintf("Record of %d records", len(records)), s.record(t, t.Context(), records...))
}

// wantSums reports an error unless Query of q returns the sums of records, which may include
// records of other accounts and times. It then overwrites them, which the store must not keep. It
// returns the error of Query.
func (s *usageTest) wantSums(t testing.TB, ctx context.Context, q llmhttp.UsageQuery, records []llmhttp.UsageRecord) error {
	t.Helper()
	got, err := s.Query(ctx, q)
	if err != nil {
		return err
	}
	normal := func(sums []llmhttp.UsageSum) (c struct{ Sums []llmhttp.UsageSum }) {
		c.Sums = append([]llmhttp.UsageSum{}, sums...)
		for i := range c.Sums {
			if writes := &c.Sums[i].Units.CacheWrites; len(*writes) == 0 {
				*writes = nil
			}
		}
		return c
	}
	kit.WantSame(t, "Query"+kit.Describe(q), normal(got), normal(sumRecords(q, records)))
	for i := range got {
		got[i] = llmhttp.UsageSum{Model: "overwritten"}
	}
	return nil
}

// mustSum is wantSums without an error.
func (s *usageTest) mustSum(t testing.TB, q llmhttp.UsageQuery, records []llmhttp.UsageRecord) {
	t.Helper()
	kit.Must(t, "Query"+kit.Describe(q), s.wantSums(t, t.Context(), q, records))
}

// sumRecords returns what Query of q must return after Record of records, whose
// IDs must be distinct.
func sumRecords(q llmhttp.UsageQuery, records []llmhttp.UsageRecord) []llmhttp.UsageSum {
	var sums []llmhttp.UsageSum
	for _, r := range records {
		if r.Account != q.Account || r.Time.Before(q.From) || !r.Time.Before(q.To) || q.Subject.Kind != "" && !isOfSubject(&r, q.Subject) {
			continue
		}
		start := q.From
		if q.Step > 0 {
			start = r.Time.Add(-timeInPeriod(r.Time, q.From, q.Step))
		}
		i := slices.IndexFunc(sums, func(sum llmhttp.UsageSum) bool { return sum.Model == r.Model && sum.Start.Equal(start) })
		if i < 0 {
			i = len(sums)
			sums = append(sums, llmhttp.UsageSum{Start: start, Model: r.Model})
		}
		sums[i].Add(r.Sum())
	}
	slices.SortFunc(sums, func(a, b llmhttp.UsageSum) int {
		return cmp.Or(a.Start.Compare(b.Start), strings.Compare(a.Model, b.Model))
	})
	return sums
}

// isOfSubject reports whether r counts toward the usage of s.
func isOfSubject(r *llmhttp.UsageRecord, s llmhttp.SubjectID) bool {
	subjects := append([]llmhttp.SubjectID{{Kind: llmhttp.KindAccount, ID: r.Account}, {Kind: llmhttp.KindKey, ID: r.KeyID}}, r.Subjects...)
	if r.User != "" {
		subjects = append(subjects, llmhttp.SubjectID{Kind: llmhttp.KindUser, ID: r.User})
	}
	return slices.Contains(subjects, s)
}

// timeInPeriod returns how long after the start of its period t is, if periods of the given length
// begin at from. A Duration cannot hold the time since the zero Time, which may be from.
func timeInPeriod(t, from time.Time, length time.Duration) time.Duration {
	n := big.NewInt(t.Unix() - from.Unix())
	n.Mul(n, big.NewInt(int64(time.Second)))
	n.Add(n, big.NewInt(int64(t.Nanosecond()-from.Nanosecond())))
	return time.Duration(n.Mod(n, big.NewInt(int64(length))).Int64())
}

// usageChecks test what random calls do not: large batches, and other calls at the same time.
var usageChecks = []kit.Check[usageTest]{{"LargeBatch", checkUsageLargeBatch}, {"ConcurrentCalls", checkUsageConcurrent}}

// queryAll returns allUsage of the test's account.
func (s *usageTest) queryAll() llmhttp.UsageQuery {
	q := allUsage
	q.Account = s.account
	return q
}

func checkUsageLargeBatch(t testing.TB, s usageTest) {
	records := s.randomRecords(kit.FixedRand(0), 5000)
	s.mustRecord(t, records...)
	s.mustSum(t, s.queryAll(), records)
	s.mustRecord(t, records...)
	q := s.queryAll()
	q.Step = day
	s.mustSum(t, q, records)
}

// checkUsageConcurrent lets each worker record all records in an order of its
// own.
func checkUsageConcurrent(t testing.TB, s usageTest) {
	const workers, size = 8, 60
	records := s.randomRecords(kit.FixedRand(0), size)
	for i := range records {
		records[i].Part = 0 // so that the number of requests is that of records
	}
	q := s.queryAll()
	kit.Concurrently(t, workers, func(worker int) {
		rng := kit.FixedRand(uint64(worker))
		rest := slices.Clone(records)
		rng.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
		for len(rest) > 0 {
			n := min(1+rng.IntN(15), len(rest))
			if err := s.Record(t.Context(), rest[:n]...); err != nil {
				kit.Wrong(t, "Record, concurrently", err, nil)
				return
			}
			rest = rest[n:]
			sums, err := s.Query(t.Context(), q)
			if err != nil {
				kit.Wrong(t, "Query, concurrently", err, nil)
				return
			}
			var requests int64
			for _, sum := range sums {
				requests += sum.Requests
			}
			if recorded := size - len(rest); requests < int64(recorded) || requests > size {
				kit.Wrong(t, "Query, concurrently", fmt.Sprintf("%d requests", requests), fmt.Sprintf("%d to %d", recorded, size))
			}
		}
	})
	s.mustSum(t, q, records)
}
