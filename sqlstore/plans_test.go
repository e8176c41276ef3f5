package sqlstore

import (
	"database/sql"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/manage"
)

// fullScan matches a plan that reads all rows of a table or index, or a part of an index that is
// not bounded by a value.
var fullScan = regexp.MustCompile(`(?m)Seq Scan on llmhttp_|^SCAN (d|llmhttp_\w+)\b`)

// Reports and queries about few of a million records read them by an index.
func TestUsage_Plans_NoRace(t *testing.T) {
	const days, rows = 400, 1_000_000
	start := noon.Truncate(day)
	forEachSharedDatabase(t, func(t *testing.T, dsn string) {
		t.Parallel() // each needs some 10 seconds of a CPU
		if !strings.HasPrefix(dsn, "postgres") {
			dsn = "file:" + dsn + "?_pragma=synchronous(0)&_pragma=journal_mode(memory)" // to fill it faster
		}
		s := openStore(t, dsn, nil)
		fillUsage(t, s, start, rows, days)
		t.Run("Report", func(t *testing.T) { checkReportPlans(t, s, start, days) })
		t.Run("Query", func(t *testing.T) { checkQueryPlans(t, s, start) })
	})
}

// plan returns how the database runs a statement.
func plan(t *testing.T, s *Store, statement string, args ...any) string {
	t.Helper()
	explain := "EXPLAIN "
	if s.db.name() == "sqlite" {
		explain = "EXPLAIN QUERY PLAN "
	}
	var lines []string
	err := forEachRow(t.Context(), s.db.read, func(rows *sql.Rows) error {
		var id, parent, unused int64
		var line string
		columns := []any{&id, &parent, &unused, &line}
		if s.db.name() == "postgres" {
			columns = columns[3:]
		}
		err := rows.Scan(columns...)
		lines = append(lines, line)
		return err
	}, explain+statement, args...)
	require.NoError(t, err)
	return strings.Join(lines, "\n")
}

// reportPlan returns the plan of a report.
func reportPlan(t *testing.T, s *Store, q *manage.ReportQuery) string {
	t.Helper()
	starts, err := q.Intervals()
	require.NoError(t, err)
	r := newReport(s.db, q, starts, math.MinInt64)
	statement := r.statement()
	return plan(t, s, statement, r.args...)
}

func checkReportPlans(t *testing.T, s *Store, start time.Time, days int) {
	from := start.Add(200 * day)
	base := manage.ReportQuery{From: from, To: from.Add(2 * day), GroupLabel: "team"}
	allTime := func(q *manage.ReportQuery) { q.From, q.To = start, start.Add(time.Duration(days)*day) }
	for name, test := range map[string]struct {
		change  func(q *manage.ReportQuery)
		records bool // whether it must read records, by all groups
	}{
		"all":       {func(*manage.ReportQuery) {}, false},
		"account":   {func(q *manage.ReportQuery) { q.Account = "account 1" }, false},
		"key":       {func(q *manage.ReportQuery) { q.Account, q.KeyID = "account 1", "key 1" }, false},
		"any key":   {func(q *manage.ReportQuery) { q.KeyID = "key 1" }, false},
		"model":     {func(q *manage.ReportQuery) { q.Model = "model 1" }, false},
		"user":      {func(q *manage.ReportQuery) { q.Account, q.User = "account 1", "user 9001" }, false},
		"any user":  {func(q *manage.ReportQuery) { q.User = "user 9001" }, false},
		"days":      {func(q *manage.ReportQuery) { q.Interval, q.PerModel = manage.EveryDay, true }, false},
		"months":    {func(q *manage.ReportQuery) { q.Interval = manage.EveryMonth }, false},
		"hours":     {func(q *manage.ReportQuery) { q.Interval = manage.EveryHour }, true},
		"Berlin":    {func(q *manage.ReportQuery) { q.Interval, q.Location = manage.EveryDay, berlin }, true},
		"label":     {func(q *manage.ReportQuery) { q.Label = llmhttp.Label{Name: "team", Value: "1"} }, true},
		"operation": {func(q *manage.ReportQuery) { q.Operation = "chat" }, true},
		"target":    {func(q *manage.ReportQuery) { q.Target = "t" }, true},
		"status":    {func(q *manage.ReportQuery) { q.Status = manage.StatusFailed }, true},
		"user for all time": {func(q *manage.ReportQuery) {
			q.Account, q.User = "account 1", "user 9001"
			allTime(q)
		}, false},
		"hours of a user": {func(q *manage.ReportQuery) { q.Account, q.User, q.Interval = "account 1", "user 1", manage.EveryHour }, true},
	} {
		for _, by := range reportGroups {
			for _, q := range []manage.ReportQuery{{}, {Limit: 5}, {Limit: 5, Order: manage.OrderByRequests}} {
				limit, order := q.Limit, q.Order
				q = base
				q.By, q.Limit, q.Order = by, limit, order
				test.change(&q)
				text := reportPlan(t, s, &q)
				assert.NotRegexp(t, fullScan, text, "%+v", q)
				_, isSummed := sumsFor(&q)
				assert.Equal(t, !isSummed || test.records, strings.Contains(text, "llmhttp_usage_records"), "%s by %q reads records: %s", name, by, text)
				if q.User != "" && test.records {
					assert.Contains(t, text, "llmhttp_usage_records_user", "%+v", q)
				}
			}
		}
	}

	// Days and months of all accounts, for all time, are those of one row for each day and model.
	q := base
	q.Interval = manage.EveryMonth
	allTime(&q)
	assert.NotRegexp(t, fullScan, reportPlan(t, s, &q))
	// Months in another location read the records of two days each.
	q.Location = berlin
	text := reportPlan(t, s, &q)
	assert.NotRegexp(t, fullScan, text)
	assert.Regexp(t, `llmhttp_usage_sums_|PRIMARY KEY \(kind=\? AND account=\? AND subject=\? AND day>`, text)
	assert.Contains(t, text, "llmhttp_usage_records_time")

	q = base
	q.Target = "t"
	r := newReport(s.db, &q, []time.Time{q.From}, math.MinInt64)
	statement := strings.ReplaceAll(r.statement(), "d.time", "d.time + 0") // which has no index
	assert.Regexp(t, fullScan, plan(t, s, statement, r.args...), "a full scan is found")
}

// checkQueryPlans checks the queries for quotas of a month, and of all time.
func checkQueryPlans(t *testing.T, s *Store, start time.Time) {
	for _, subject := range []llmhttp.SubjectID{
		{}, {Kind: llmhttp.KindAccount, ID: "account 1"}, {Kind: llmhttp.KindKey, ID: "key 1"}, {Kind: llmhttp.KindUser, ID: "user 9001"}, {Kind: "team", ID: "red"},
	} {
		for _, from := range []time.Time{{}, start.Add(200 * day)} {
			q := newSelection(s.db, llmhttp.UsageQuery{Account: "account 1", Subject: subject, From: from})
			statement, args := q.daysStatement(ceilMicros(from), micros(start.Add(230*day)))
			text := plan(t, s, statement, args...)
			assert.NotRegexp(t, fullScan, text, "sums of %v", subject)
			if subject.Kind != "team" { // of which there are no sums
				assert.Regexp(t, `llmhttp_usage_sums_pkey|PRIMARY KEY`, text, "sums of %v", subject)
			}

			statement, args = q.recordsStatement(timeRange{micros(start.Add(200 * day)), micros(start.Add(201 * day))})
			text = plan(t, s, statement, args...)
			assert.NotRegexp(t, fullScan, text, "records of %v", subject)
		}
	}
}

// fillUsage inserts rows records of 100 accounts and keys and 10,000 users on the given number of days,
// and their sums, of end users those of some. The numbers in the sums are not those of the records.
func fillUsage(t *testing.T, s *Store, start time.Time, rows, days int) {
	t.Helper()
	texts := map[string]string{
		"id": "'id ' || (1000000000 + i)", "account": "'account ' || (i % 100)", "key_id": "'key ' || (i % 100)", "end_user": "'user ' || (i % 10000)",
		"model": "'model ' || (i % 7)", "labels": `'{"team":"' || (i % 10) || '"}'`, "estimated": "1 = 0", "unpriced": "1 = 0",
		"time": fmt.Sprintf("%d + CAST(i AS bigint) * %d", micros(start), int64(days)*dayMicros/int64(rows)),
	}
	values := make([]string, len(recordColumns))
	for i, column := range recordColumns {
		switch {
		case texts[column] != "":
			values[i] = texts[column]
		case i < len(recordTexts):
			values[i] = "''"
		default:
			values[i] = "1"
		}
	}
	run := func(statement string) {
		_, err := s.db.write.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	// To make an index of all rows is faster than to insert each of them into it.
	indexes := usageIndexes(t, s)
	for name := range indexes {
		run("DROP INDEX " + name)
	}
	run("INSERT INTO llmhttp_usage_records (" + strings.Join(recordColumns, ", ") + ")" +
		fmt.Sprintf(" WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < %d) SELECT ", rows-1) + strings.Join(values, ", ") + " FROM n")
	for _, key := range []string{"'key', account, key_id", "'account', account, ''", "'', '', ''", "'user', account, end_user"} {
		run("INSERT INTO llmhttp_usage_sums (" + sumKeyColumns + ", " + strings.Join(sumColumns, ", ") + ") SELECT " + key + ", " + dayOfTime + ", model, count(*), 0" +
			strings.Repeat(", 1", len(numberColumns)) + ", '' FROM llmhttp_usage_records WHERE " + key[:strings.Index(key, ",")] + " <> 'user' OR end_user >= 'user 9' GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5")
	}
	for statement := range maps.Values(indexes) {
		run(statement)
	}
	run("ANALYZE")
	if s.db.name() == "postgres" {
		run("VACUUM llmhttp_usage_records") // which summarizes the index by time, as the server does later
	}
}

// usageIndexes returns the statements that create the indexes of usage, by their names.
func usageIndexes(t *testing.T, s *Store) map[string]string {
	t.Helper()
	query := "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name LIKE 'llmhttp_usage%' AND sql IS NOT NULL"
	if s.db.name() == "postgres" {
		query = "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = current_schema() AND tablename LIKE 'llmhttp_usage%' AND indexdef NOT LIKE '%UNIQUE%'"
	}
	indexes := make(map[string]string)
	err := forEachRow(t.Context(), s.db.write, func(rows *sql.Rows) error {
		var name, statement string
		err := rows.Scan(&name, &statement)
		indexes[name] = statement
		return err
	}, query)
	require.NoError(t, err)
	require.True(t, slices.Contains(slices.Collect(maps.Keys(indexes)), "llmhttp_usage_records_user"))
	return indexes
}
