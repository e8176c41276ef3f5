package sqlstore

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
)

// reportFrom is in the middle of a block of 32 days.
var reportFrom = fromMicros(blockOf(micros(noon))).Add(16 * day)

// insertReportRecords stores 4000 records of 90 days in two accounts.
// key chooses a key for a random number between 0 and 1.
func insertReportRecords(t *testing.T, s *Store, key func(random float64) int) {
	rng := rand.New(rand.NewPCG(1, 2))
	var records []llmhttp.UsageRecord
	for i := range 4000 {
		k := key(rng.Float64())
		r := usageRecord(fmt.Sprint("req_", i), fmt.Sprint("account ", k%2), fmt.Sprint("m", rng.IntN(2)), reportFrom.Add(time.Duration(rng.Int64N(int64(90*day)))), 1+rng.IntN(1_000_000))
		r.KeyID = fmt.Sprint("key ", k)
		records = append(records, r)
	}
	mustRecord(t, s, records...)
}

// A report by key with a limit is the part of the whole report with the most
// tokens, whether or not the sums by block tell which keys these are.
func TestReportUsage_LargestKeys(t *testing.T) {
	for _, test := range []struct {
		name   string
		key    func(random float64) int
		blocks bool // the sums by block tell which keys are the largest
	}{
		{"a few keys have most tokens", func(x float64) int { return int(200 * x * x * x * x) }, true},
		{"keys have about as many tokens", func(x float64) int { return int(2000 * x) }, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			forEachSharedDatabase(t, func(t *testing.T, dsn string) {
				s := openStore(t, dsn, nil)
				insertReportRecords(t, s, test.key)
				for _, q := range []llmhttp.ReportQuery{
					{From: reportFrom, To: reportFrom.Add(90 * day), Limit: 5},
					{From: reportFrom.Add(10 * day), To: reportFrom.Add(40 * day), Limit: 5},
					{From: reportFrom.Add(10 * day), To: reportFrom.Add(40 * day), Limit: 5, Account: "account 1"},
				} {
					q.By = llmhttp.ByKey
					sums, err := newReport(s.db, &q).largestKeys(t.Context())
					require.NoError(t, err)
					assert.Equal(t, test.blocks, sums != nil)
					assertLargest(t, s, q)
				}
				for _, q := range []llmhttp.ReportQuery{
					{From: reportFrom.Add(20 * day), To: reportFrom.Add(22 * day), Limit: 3, By: llmhttp.ByKey},
					{From: reportFrom, To: reportFrom.Add(90 * day), Limit: 1, By: llmhttp.ByAccount},
					{From: reportFrom, To: reportFrom.Add(90 * day), Limit: 1500, By: llmhttp.ByKey},
				} {
					assertLargest(t, s, q)
				}
			})
		})
	}
}

// assertLargest asserts that a report is the part of the report without a limit
// that has the groups with the most tokens.
func assertLargest(t *testing.T, s *Store, q llmhttp.ReportQuery) {
	t.Helper()
	got, err := s.ReportUsage(t.Context(), q)
	require.NoError(t, err)
	limit := q.Limit
	q.Limit = 0
	want, err := s.ReportUsage(t.Context(), q)
	require.NoError(t, err)
	group := func(s *llmhttp.ReportSum) string { return s.Account + s.KeyID }
	tokens := make(map[string]int64)
	var groups []string
	for i := range want {
		g := group(&want[i])
		if !slices.Contains(groups, g) {
			groups = append(groups, g)
		}
		tokens[g] += want[i].PromptTokens + want[i].CompletionTokens
	}
	slices.SortFunc(groups, func(a, b string) int { return cmp.Compare(tokens[b], tokens[a]) })
	groups = groups[:min(limit, len(groups))]
	want = slices.DeleteFunc(want, func(s llmhttp.ReportSum) bool { return !slices.Contains(groups, group(&s)) })
	assert.Equal(t, want, got)
}
