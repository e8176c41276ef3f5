package llmhttptest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
)

// TestUsageStore tests a [llmhttp.UsageStore]. It calls newStore for each of
// its subtests, which record usage of accounts that nothing else uses.
//
// It expects of a Query to tell what was recorded before, and to sort models by
// their bytes, as Go compares strings. Wrap a store that records behind the
// caller's back in one whose Query waits for that. Times are whole
// microseconds, in years that fit 64-bit nanoseconds except for the zero Time.
func TestUsageStore(t *testing.T, newStore func(t testing.TB) llmhttp.UsageStore) {
	t.Helper()
	runChecks(t, usageChecks, func(t testing.TB) usageTest {
		return usageTest{newStore(t), unique("account")}
	})
}

// A usageTest is a store and the account that a check is to use.
type usageTest struct {
	llmhttp.UsageStore
	account string
}

// noon is when usage begins in the tests.
var noon = time.Date(2025, 3, 14, 12, 0, 0, 0, time.UTC)

const day = 24 * time.Hour

// record returns a record of the test's account with a unique ID.
func (s *usageTest) record(at time.Time, model string, prompt, completion int) llmhttp.UsageRecord {
	return llmhttp.UsageRecord{
		ID:       unique("request"),
		Time:     at,
		Account:  s.account,
		KeyID:    "key of " + s.account,
		Model:    model,
		Endpoint: llmhttp.EndpointChat,
		Usage:    llmhttp.Usage{PromptTokens: prompt, CompletionTokens: completion, TotalTokens: prompt + completion},
	}
}

// mustRecord records, and reports an error if that fails or changes records.
func (s *usageTest) mustRecord(t testing.TB, records ...llmhttp.UsageRecord) {
	t.Helper()
	passed := slices.Clone(records)
	if err := s.Record(t.Context(), passed...); err != nil {
		t.Fatalf("Record of %d records: error %v", len(records), err)
	}
	if !slices.EqualFunc(passed, records, sameRecord) {
		t.Errorf("Record changed the records that it was passed")
	}
}

// sameRecord compares records without Extra.
func sameRecord(a, b llmhttp.UsageRecord) bool {
	return a.ID == b.ID && a.Time == b.Time && a.Account == b.Account && a.KeyID == b.KeyID && a.Model == b.Model &&
		a.Endpoint == b.Endpoint && a.Images == b.Images && a.Estimated == b.Estimated &&
		a.Usage.PromptTokens == b.Usage.PromptTokens && a.Usage.CompletionTokens == b.Usage.CompletionTokens &&
		a.Usage.TotalTokens == b.Usage.TotalTokens
}

// expect reports an error unless want is what q asks for. An account that is
// empty stands for the test's.
func (s *usageTest) expect(t testing.TB, q llmhttp.UsageQuery, want ...llmhttp.UsageSum) {
	t.Helper()
	if q.Account == "" {
		q.Account = s.account
	}
	got, err := s.Query(t.Context(), q)
	if err != nil {
		t.Fatalf("Query of %v: error %v", describe(q), err)
	}
	if !slices.EqualFunc(got, want, sameSum) {
		t.Errorf("Query of %v:\n got %v\nwant %v", describe(q), describeSums(got), describeSums(want))
	}
}

// expectOf is expect of what records add up to.
func (s *usageTest) expectOf(t testing.TB, q llmhttp.UsageQuery, records []llmhttp.UsageRecord) {
	t.Helper()
	if q.Account == "" {
		q.Account = s.account
	}
	s.expect(t, q, addUp(q, records)...)
}

// addUp is a UsageStore's Query in its plainest form. No two of records have
// the same ID.
func addUp(q llmhttp.UsageQuery, records []llmhttp.UsageRecord) []llmhttp.UsageSum {
	var sums []llmhttp.UsageSum
	for _, r := range records {
		if r.Account != q.Account || r.Time.Before(q.From) || !r.Time.Before(q.To) {
			continue
		}
		start := q.From
		if q.Step > 0 {
			start = q.From.Add(r.Time.Sub(q.From) / q.Step * q.Step)
		}
		i := slices.IndexFunc(sums, func(sum llmhttp.UsageSum) bool { return sum.Model == r.Model && sum.Start.Equal(start) })
		if i < 0 {
			i = len(sums)
			sums = append(sums, llmhttp.UsageSum{Start: start, Model: r.Model})
		}
		sums[i].Requests++
		sums[i].PromptTokens += int64(r.Usage.PromptTokens)
		sums[i].CompletionTokens += int64(r.Usage.CompletionTokens)
		sums[i].Images += int64(r.Images)
	}
	slices.SortFunc(sums, func(a, b llmhttp.UsageSum) int {
		if c := a.Start.Compare(b.Start); c != 0 {
			return c
		}
		return strings.Compare(a.Model, b.Model)
	})
	return sums
}

func sameSum(a, b llmhttp.UsageSum) bool {
	return a.Start.Equal(b.Start) && a.Model == b.Model && a.Requests == b.Requests &&
		a.PromptTokens == b.PromptTokens && a.CompletionTokens == b.CompletionTokens && a.Images == b.Images
}

func describe(q llmhttp.UsageQuery) string {
	return fmt.Sprintf("[%s, %s) in steps of %v", q.From.Format(time.RFC3339Nano), q.To.Format(time.RFC3339Nano), q.Step)
}

// describeSums has a line for each of the first few of sums.
func describeSums(sums []llmhttp.UsageSum) string {
	if len(sums) == 0 {
		return "none"
	}
	var b strings.Builder
	for i, s := range sums {
		if i == 12 {
			fmt.Fprintf(&b, "\n\t... (%d in all)", len(sums))
			break
		}
		fmt.Fprintf(&b, "\n\t%s %.40q: %d requests, %d prompt and %d completion tokens, %d images",
			s.Start.Format(time.RFC3339Nano), s.Model, s.Requests, s.PromptTokens, s.CompletionTokens, s.Images)
	}
	return b.String()
}
