package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/llmhttp/llmhttp/manage"
)

// Report implements [manage.UsageReporter]. It reads sums by day, so its
// cost does not depend on the number of requests. A report on all accounts together
// reads one sum for each day and model. The cost of other reports depends on the
// number of accounts, or keys, that were used on each of the days. In SQLite, sums of
// more than 2^53 are rounded.
func (s *usageStore) Report(ctx context.Context, q manage.ReportQuery) ([]manage.ReportSum, error) {
	if !q.From.Before(q.To) {
		return nil, nil
	}
	sums, err := retryRead(ctx, s.db, func() ([]manage.ReportSum, error) { return newReport(s.db, &q).sums(ctx) })
	if err != nil {
		return nil, s.db.wrapError("reporting usage", err)
	}
	slices.SortFunc(sums, func(a, b manage.ReportSum) int {
		return cmp.Or(a.Start.Compare(b.Start), strings.Compare(a.Account, b.Account), strings.Compare(a.KeyID, b.KeyID), strings.Compare(a.Model, b.Model))
	})
	return sums, nil
}

// A report is a ReportQuery in SQL.
type report struct {
	db     *database
	query  *manage.ReportQuery
	groups []string // the columns by which it groups
	where  []string // conditions on the rows of llmhttp_usage_sums, which is named d
	args   sqlArgs  // of where
}

func newReport(db *database, q *manage.ReportQuery) *report {
	r := &report{db: db, query: q}
	r.groups = map[manage.ReportGroup][]string{manage.ByDay: {"d.day"}, manage.ByKey: {"d.account", "d.subject"}, manage.ByAccount: {"d.account"}}[q.By]
	switch {
	case q.KeyID != "" || q.By == manage.ByKey:
		r.where = []string{"d.kind = '" + sumOfKey + "'"}
	case q.Account == "" && q.By != manage.ByAccount:
		// These sums of all accounts save more than a second in
		// BenchmarkStore/SQLite/Report100DaysByDay, with 1000 accounts and a million records.
		r.where = []string{"d.kind = '" + sumOfAll + "' AND d.account = '' AND d.subject = ''"}
	default:
		r.where = []string{"d.kind = '" + sumOfAccount + "' AND d.subject = ''"}
	}
	r.where = append(r.where, "d.day >= "+r.args.add(dayOf(micros(q.From))), "d.day < "+r.args.add(ceilMicros(q.To)))
	if q.Account != "" {
		r.where = append(r.where, "d.account = "+r.args.add(storedName(q.Account)))
	}
	if q.KeyID != "" {
		r.where = append(r.where, "d.subject = "+r.args.add(storedName(q.KeyID)))
	}
	if q.Limit > 0 && len(r.groups) > 0 {
		r.where = append(r.where, r.largest())
	}
	return r
}

// largest returns a condition for the rows of the Limit groups with the most tokens.
func (r *report) largest() string {
	where := strings.Join(r.where, " AND ")
	if r.query.By != manage.ByDay && r.query.To.Sub(r.query.From) > longPeriod {
		where = strings.ReplaceAll(where, "d.day", r.db.unindexed("d.day"))
	}
	// Sums of floating-point numbers do not overflow.
	return fmt.Sprintf(`(%[1]s) IN (
		SELECT %[1]s FROM llmhttp_usage_sums AS d WHERE %[2]s GROUP BY %[1]s
		ORDER BY sum(CAST(d.prompt_tokens AS double precision) + d.completion_tokens) DESC, sum(CAST(d.requests AS double precision)) DESC, %[1]s LIMIT %[3]d)`,
		strings.Join(r.groups, ", "), where, r.query.Limit)
}

// longPeriod is the period above which SQLite finds the largest accounts and keys
// without the index by day, because the primary key has them in order. This saves
// two thirds of the time of BenchmarkStore/SQLite/Report100DaysByKey.
const longPeriod = 60 * day

// sums reads the sums of each group and model.
func (r *report) sums(ctx context.Context) (sums []manage.ReportSum, err error) {
	// Each query has the same columns, so a column that is not grouped by is a constant.
	columns := []string{"0", "''", "''", "d.model"}
	for i, column := range []string{"d.day", "d.account", "d.subject"} {
		if slices.Contains(r.groups, column) {
			columns[i] = column
		}
	}
	for _, column := range sumColumns {
		columns = append(columns, r.db.sum("d."+column))
	}
	query := "SELECT " + strings.Join(columns, ", ") + " FROM llmhttp_usage_sums AS d WHERE " + strings.Join(r.where, " AND ") +
		" GROUP BY " + strings.Join(append(r.groups, "d.model"), ", ")
	err = forEachRow(ctx, r.db.read, func(rows *sql.Rows) error {
		sum, err := r.scan(rows)
		sums = append(sums, sum)
		return err
	}, query, r.args...)
	return sums, err
}

// scan reads a row of the query in sums.
func (r *report) scan(rows *sql.Rows) (manage.ReportSum, error) {
	var sum manage.ReportSum
	var day int64
	var account, key, model string
	err := rows.Scan(append([]any{&day, &account, &key, &model}, sumNumbers(&sum.UsageSum)...)...)
	sum.Model, sum.Account, sum.KeyID = originalName(model), originalName(account), originalName(key)
	sum.Start = r.query.From
	if r.query.By == manage.ByDay {
		sum.Start = fromMicros(day)
	}
	return sum, err
}
