package llmhttptest

import (
	"cmp"
	"fmt"
	"math/big"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
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
	newTest := func(t testing.TB) usageTest { return usageTest{newStore(t), unique("account")} }
	t.Run(randomCalls, func(t *testing.T) { usageSequences.run(t, newTest) })
	runChecks(t, slices.Concat(usageChecks, quotaEventChecks), newTest)
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
	id := unique("request")
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

// mustRecord records records. It fails the test if Record fails, and reports an
// error if it changes the records.
func (s *usageTest) mustRecord(t testing.TB, records ...llmhttp.UsageRecord) {
	t.Helper()
	passed := slices.Clone(records)
	if err := s.Record(t.Context(), passed...); err != nil {
		t.Fatalf("Record of %d records returned the error %v, want nil", len(records), err)
	}
	if !slices.EqualFunc(passed, records, func(a, b llmhttp.UsageRecord) bool { return reflect.DeepEqual(a, b) }) {
		t.Error("Record changed the records that it was passed, want them as they were")
	}
}

// wantSums reports an error unless Query of q returns want. An empty q.Account means the test's
// account.
func (s *usageTest) wantSums(t testing.TB, q llmhttp.UsageQuery, want ...llmhttp.UsageSum) {
	t.Helper()
	q.Account = cmp.Or(q.Account, s.account)
	got, err := s.Query(t.Context(), q)
	if err != nil {
		t.Fatalf("Query of %s returned the error %v, want nil", describeQuery(q), err)
	}
	if diff := diffSums(got, want); diff != "" {
		t.Errorf("Query of %s: %s", describeQuery(q), diff)
	}
}

// wantSumsOf reports an error unless Query of q returns the sums of records,
// which may include records of other accounts and times.
func (s *usageTest) wantSumsOf(t testing.TB, q llmhttp.UsageQuery, records []llmhttp.UsageRecord) {
	t.Helper()
	q.Account = cmp.Or(q.Account, s.account)
	s.wantSums(t, q, sumRecords(q, records)...)
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

func describeQuery(q llmhttp.UsageQuery) string {
	subject := ""
	if q.Subject.Kind != "" {
		subject = fmt.Sprintf(" of the %s %q", q.Subject.Kind, q.Subject.ID)
	}
	return fmt.Sprintf("[%s, %s) in steps of %v%s", q.From.Format(time.RFC3339Nano), q.To.Format(time.RFC3339Nano), q.Step, subject)
}

// describeNumbers describes the numbers of s that are not zero.
func describeNumbers(s *llmhttp.UsageSum) string {
	b := fmt.Appendf(nil, "%d requests", s.Requests)
	if s.Unpriced != 0 {
		b = fmt.Appendf(b, ", %d unpriced", s.Unpriced)
	}
	for name, n := range s.Units.All() {
		if *n != 0 {
			b = fmt.Appendf(b, ", %d %s", *n, name)
		}
	}
	for lifetime, n := range s.Units.CacheWrites.All() {
		b = fmt.Appendf(b, ", %d written to a cache for %v", n, lifetime)
	}
	for name, m := range s.Cost.All() {
		if *m != 0 {
			b = fmt.Appendf(b, ", a cost of %s for %s", *m, name)
		}
	}
	return string(b)
}

// diffSums describes the first difference between got and want, or returns "".
func diffSums(got, want []llmhttp.UsageSum) string {
	describe := func(sums []llmhttp.UsageSum, i int) string {
		if i >= len(sums) {
			return "missing"
		}
		s := sums[i]
		return fmt.Sprintf("%s %q with %s", s.Start.UTC().Format(time.RFC3339Nano), s.Model, describeNumbers(&s))
	}
	for i := range max(len(got), len(want)) {
		if g, w := describe(got, i), describe(want, i); g != w {
			return fmt.Sprintf("got %d sums, want %d; sum %d is %s, want %s", len(got), len(want), i, g, w)
		}
	}
	return ""
}
