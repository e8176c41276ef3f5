package sqlstore

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/manage"
	"github.com/llmhttp/llmhttp/memory"
)

// booksDays are the days of pricedRecords, which begin 90 days ago.
const booksDays = 60

// pricedRecords returns n random records in the order of their times. The price changes after half
// of them.
func pricedRecords(rng *rand.Rand, n int) []llmhttp.UsageRecord {
	first := time.Now().UTC().Truncate(day).Add(-90 * day)
	records := make([]llmhttp.UsageRecord, n)
	for i := range records {
		at := first.Add(time.Duration(i)*(booksDays*day/time.Duration(n)) + time.Duration(rng.IntN(1000))*time.Microsecond)
		r := usageRecord(fmt.Sprint(i), fmt.Sprint("account ", rng.IntN(3)), fmt.Sprint("m", rng.IntN(3)), at, rng.IntN(10_000))
		r.KeyID = fmt.Sprint("key ", rng.IntN(3))
		r.Units.CompletionTokens = rng.Int64N(1000)
		if rng.IntN(5) > 0 {
			r.User = fmt.Sprint("user ", rng.IntN(4))
		}
		for _, name := range []string{"team", "project"} {
			if rng.IntN(2) == 0 {
				r.Labels = append(r.Labels, llmhttp.Label{Name: name, Value: fmt.Sprint(rng.IntN(3))})
			}
		}
		if rng.IntN(20) == 0 {
			r.Part = 1
		}
		input, output := 3*llm.MoneyUnit, 15*llm.MoneyUnit
		if i >= n/2 {
			input, output = 2*input+1, output/7
		}
		if r.Unpriced = rng.IntN(20) == 0; !r.Unpriced {
			r.Cost = llmhttp.Cost{
				Input: input.Scale(r.Units.PromptTokens, 1_000_000), Output: output.Scale(r.Units.CompletionTokens, 1_000_000),
				Other: llm.Money(rng.IntN(3)),
			}
		}
		records[i] = r
	}
	return records
}

var reportGroups = []manage.ReportGroup{manage.ByTotal, manage.ByKey, manage.ByAccount, manage.ByModel, manage.ByUser, manage.ByLabel}

// randomReport returns a query of whole days in UTC, or in Berlin, with the models of each group.
func randomReport(rng *rand.Rand, first time.Time) manage.ReportQuery {
	q := manage.ReportQuery{By: reportGroups[rng.IntN(len(reportGroups))], From: first.Add(time.Duration(rng.IntN(40)-10) * day)}
	q.To = q.From.Add(time.Duration(1+rng.IntN(booksDays+20)) * day)
	if rng.IntN(3) == 0 {
		q.From, q.To = first, first.Add(booksDays*day)
	}
	q.GroupLabel, q.PerModel = "team", true
	q.Interval = []manage.ReportInterval{manage.NoInterval, manage.NoInterval, manage.EveryDay, manage.EveryMonth, manage.EveryHour}[rng.IntN(5)]
	if rng.IntN(4) == 0 {
		q.Location = berlin
		q.From = q.From.Add(-time.Duration(rng.IntN(3)) * time.Hour)
	}
	if rng.IntN(4) == 0 { // a month
		q.From = time.Date(first.Year(), first.Month()+time.Month(rng.IntN(3)), 1, 0, 0, 0, 0, time.UTC)
		q.To = q.From.AddDate(0, 1, 0)
	}
	for _, set := range []func(){
		func() { q.Account = fmt.Sprint("account ", rng.IntN(4)) },
		func() { q.Account, q.KeyID = "account 1", fmt.Sprint("key ", rng.IntN(3)) },
		func() { q.Model = fmt.Sprint("m", rng.IntN(3)) },
		func() { q.User = fmt.Sprint("user ", rng.IntN(4)) },
		func() { q.Label = llmhttp.Label{Name: "project", Value: fmt.Sprint(rng.IntN(3))} },
	} {
		if rng.IntN(4) == 0 {
			set()
		}
	}
	return q
}

// A bookLine identifies the sums of a report that are for the same.
type bookLine struct {
	start                            time.Time
	account, key, user, label, model string
}

// expectedReport returns the sums of records from since on that q selects.
func expectedReport(q *manage.ReportQuery, since time.Time, records []llmhttp.UsageRecord) map[bookLine]llmhttp.UsageSum {
	sums := make(map[bookLine]llmhttp.UsageSum)
	for i := range records {
		r := &records[i]
		if r.Time.Before(q.From) || r.Time.Before(since) || !r.Time.Before(q.To) ||
			q.Account != "" && r.Account != q.Account || q.KeyID != "" && r.KeyID != q.KeyID || q.Model != "" && r.Model != q.Model ||
			q.User != "" && r.User != q.User || q.Label.Name != "" && !slices.Contains(r.Labels, q.Label) {
			continue
		}
		line := bookLine{start: intervalOf(q, r.Time), model: r.Model}
		switch q.By {
		case manage.ByKey:
			line.account, line.key = r.Account, r.KeyID
		case manage.ByAccount:
			line.account = r.Account
		case manage.ByUser:
			line.account, line.user = r.Account, r.User
		case manage.ByLabel:
			if j := slices.IndexFunc(r.Labels, func(l llmhttp.Label) bool { return l.Name == q.GroupLabel }); j >= 0 {
				line.label = r.Labels[j].Value
			}
		}
		sum := sums[line]
		sum.Add(r.Sum())
		sums[line] = sum
	}
	return sums
}

var berlin = func() *time.Location {
	loc, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		panic(err)
	}
	return loc
}()

// intervalOf returns the start, in UTC, of the interval of q that contains at.
func intervalOf(q *manage.ReportQuery, at time.Time) time.Time {
	at = at.In(cmp.Or(q.Location, time.UTC))
	year, month, day := at.Date()
	start := q.From
	switch q.Interval {
	case manage.EveryHour:
		start = at.Truncate(time.Hour) // offsets are whole hours
	case manage.EveryDay:
		start = time.Date(year, month, day, 0, 0, 0, 0, at.Location())
	case manage.EveryMonth:
		start = time.Date(year, month, 1, 0, 0, 0, 0, at.Location())
	}
	if start.Before(q.From) {
		start = q.From
	}
	return start.UTC()
}

// checkBooks compares reports with the records. Those by each group that begin after 30 days must
// be complete.
func checkBooks(t *testing.T, rng *rand.Rand, u manage.UsageReporter, records []llmhttp.UsageRecord) {
	t.Helper()
	first := records[0].Time.Truncate(day)
	var queries []manage.ReportQuery
	for _, by := range reportGroups {
		queries = append(queries, manage.ReportQuery{By: by, GroupLabel: "team", PerModel: true, From: first.Add(30 * day), To: first.Add(booksDays * day)})
	}
	for range 200 {
		queries = append(queries, randomReport(rng, first))
	}
	for i, q := range queries {
		r, err := u.Report(t.Context(), q)
		require.NoError(t, err)
		got := make(map[bookLine]llmhttp.UsageSum)
		for _, row := range r.Rows {
			for _, s := range row.Sums {
				line := bookLine{start: s.Start.UTC(), account: row.Account, key: row.KeyID, user: row.User, label: row.Label, model: s.Model}
				s.Start, s.Model = time.Time{}, ""
				got[line] = s
			}
		}
		require.Equal(t, expectedReport(&q, r.Since, records), got, "%+v since %v", q, r.Since)
		if i < len(reportGroups) {
			require.NotEmpty(t, got, q.By)
			require.Zero(t, r.Since, q.By)
		}
	}
}

// What requests have cost is what every complete report tells, and what others tell from the time
// on at which they begin: after records were pruned, and with another price for half of them.
func TestBooks_NoRace(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	t.Run("memory, added up", func(t *testing.T) {
		rng := rand.New(rand.NewPCG(seed, 0))
		records := pricedRecords(rng, 70_000) // more than the store keeps one by one
		u := memory.NewUsageStore()
		mustRecord(t, u, records...)
		checkBooks(t, rng, u, records)
	})
	forEachDatabase(t, func(t *testing.T, dsn string) {
		rng := rand.New(rand.NewPCG(seed, 1))
		records := pricedRecords(rng, 3000)
		s := openStore(t, dsn, nil)
		mustRecord(t, s, records[:2000]...)
		checkBooks(t, rng, s, records[:2000])
		_, err := s.Prune(t.Context(), records[500+rng.IntN(500)].Time)
		require.NoError(t, err)
		checkBooks(t, rng, s, records[:2000])
		mustRecord(t, s, records[1900:]...)
		checkBooks(t, rng, s, records)
	})
}
