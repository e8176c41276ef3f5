package sqlstore

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/reportsum"
	"github.com/llmhttp/llmhttp/manage"
)

// Report implements [manage.UsageReporter]. It reads sums by day, so its cost does not depend on
// the number of requests. A report on all accounts together reads one sum for each day and model.
// The cost of other reports depends on the number of accounts, or keys, that were used on each of
// the days. In SQLite, sums of more than 2^53 are rounded.
//
// For end users and labels there are no sums. Such a report reads the records of the period
// that have the end user, or else those of the account, or of all accounts. It begins after the
// days whose records were pruned: see [Store.Prune].
func (s *usageStore) Report(ctx context.Context, q manage.ReportQuery) (manage.Report, error) {
	if !reportsum.IsKnown(q.By) {
		return manage.Report{}, fmt.Errorf("sqlstore: cannot report usage by %q: %w", string(q.By), errors.ErrUnsupported)
	}
	if !q.From.Before(q.To) {
		return manage.Report{}, nil
	}
	read := s.reportSums
	if q.NeedsDetail() {
		read = s.reportRecords
	}
	r, err := retryRead(ctx, s.db, func() (manage.Report, error) { return read(ctx, &q) })
	if err != nil {
		return manage.Report{}, s.db.wrapError("reporting usage", err)
	}
	reportsum.Sort(r.Sums)
	return r, nil
}

// reportSums reads sums by day.
func (s *usageStore) reportSums(ctx context.Context, q *manage.ReportQuery) (manage.Report, error) {
	sums, err := newSumReport(s.db, q).read(ctx, s.db.report)
	return manage.Report{Sums: sums}, err
}

// reportRecords reads records. The time until which they were pruned must be from the same
// snapshot.
func (s *usageStore) reportRecords(ctx context.Context, q *manage.ReportQuery) (r manage.Report, err error) {
	opts := &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}
	err = inTx(ctx, s.db.report, opts, func(tx *sql.Tx) error {
		pruned, err := readState(ctx, tx, statePruned)
		if err != nil {
			return err
		}
		from := ceilMicros(q.From)
		if pruned > from {
			from, r.Since = pruned, fromMicros(pruned)
		}
		r.Sums, err = newRecordReport(s.db, q, from).read(ctx, tx)
		return err
	})
	return r, err
}

// A report is a ReportQuery in SQL.
type report struct {
	db      *database
	query   *manage.ReportQuery
	table   string
	day     string   // the day of a row
	account string   // the columns of a row that identify a group
	key     string   // likewise
	numbers []string // in the order of sumNumberColumns
	where   []string // conditions on the rows of the table, which is named d
	args    sqlArgs  // of where
}

// newSumReport returns a report that reads sums.
func newSumReport(db *database, q *manage.ReportQuery) *report {
	r := &report{db: db, query: q, table: "llmhttp_usage_sums", day: "d.day", account: "d.account", key: "d.subject"}
	for _, column := range sumNumberColumns {
		r.numbers = append(r.numbers, "d."+column)
	}
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
	r.addConditions()
	return r
}

// newRecordReport returns a report that reads the records from a stored time on.
func newRecordReport(db *database, q *manage.ReportQuery, from int64) *report {
	r := &report{db: db, query: q, table: "llmhttp_usage_records", day: dayOfTime, account: "d.account", key: "d.key_id"}
	r.numbers = []string{"CASE WHEN d.part = 0 THEN 1 ELSE 0 END", "CASE WHEN d.unpriced THEN 1 ELSE 0 END"}
	for _, column := range numberColumns {
		r.numbers = append(r.numbers, "d."+column)
	}
	r.where = []string{"d.time >= " + r.args.add(from), "d.time < " + r.args.add(ceilMicros(q.To))}
	if q.User != "" {
		// The index has only records with an end user.
		r.where = append(r.where, "d.end_user <> ''", "d.end_user = "+r.args.add(storedName(q.User)))
	}
	if q.Label.Name != "" {
		// This may select further records, which read skips.
		member := strings.Trim(encodeLabels([]llmhttp.Label{q.Label}), "{}")
		r.where = append(r.where, db.has(r.args.add(member), "d.labels"))
	}
	r.addConditions()
	return r
}

// addConditions adds the conditions that sums and records share, and the limit if it can be
// one in SQL.
func (r *report) addConditions() {
	q := r.query
	if q.Account != "" {
		r.where = append(r.where, r.account+" = "+r.args.add(storedName(q.Account)))
	}
	if q.KeyID != "" {
		r.where = append(r.where, r.key+" = "+r.args.add(storedName(q.KeyID)))
	}
	if q.Model != "" {
		r.where = append(r.where, "d.model = "+r.args.add(storedName(q.Model)))
	}
	if q.Limit > 0 && len(r.groups()) > 0 && !r.readsLabels() {
		r.where = append(r.where, r.largest())
	}
}

// readsLabels reports whether the groups of rows are known only when their labels are decoded.
func (r *report) readsLabels() bool { return r.query.By == manage.ByLabel || r.query.Label.Name != "" }

// groups returns the expressions by which the report groups.
func (r *report) groups() []string {
	switch r.query.By {
	case manage.ByDay:
		return []string{r.day}
	case manage.ByKey:
		return []string{r.account, r.key}
	case manage.ByAccount:
		return []string{r.account}
	case manage.ByModel:
		return []string{"d.model"}
	case manage.ByUser:
		return []string{r.account, "d.end_user"}
	}
	return nil
}

// largest returns a condition for the rows of the Limit groups with the most tokens.
func (r *report) largest() string {
	where := strings.Join(r.where, " AND ")
	if !r.query.NeedsDetail() && r.query.By != manage.ByDay && r.query.To.Sub(r.query.From) > longPeriod {
		where = strings.ReplaceAll(where, "d.day", r.db.unindexed("d.day"))
	}
	// Sums of floating-point numbers do not overflow.
	return fmt.Sprintf(`(%[1]s) IN (
		SELECT %[1]s FROM %[4]s AS d WHERE %[2]s GROUP BY %[1]s
		ORDER BY sum(CAST(d.prompt_tokens AS double precision) + d.completion_tokens) DESC, sum(CAST(%[5]s AS double precision)) DESC, %[1]s LIMIT %[3]d)`,
		strings.Join(r.groups(), ", "), where, r.query.Limit, r.table, r.numbers[0])
}

// longPeriod is the period above which SQLite finds the largest accounts and keys
// without the index by day, because the primary key has them in order. This saves
// two thirds of the time of BenchmarkStore/SQLite/Report100DaysByKey.
const longPeriod = 60 * day

// statement returns the query for the sums of each group and model. If the report reads labels,
// rows with different labels have sums of their own.
func (r *report) statement() string {
	groups := append(r.groups(), "d.model")
	if r.readsLabels() {
		groups = append(groups, "d.labels")
	}
	// Each query has the same columns, so a column that is not grouped by is a constant.
	columns := []string{"0", "''", "''", "''", "''", "d.model"}
	for i, column := range []string{r.day, r.account, r.key, "d.end_user", "d.labels"} {
		if slices.Contains(groups, column) {
			columns[i] = column
		}
	}
	for _, number := range r.numbers {
		columns = append(columns, r.db.sum(number))
	}
	columns = append(columns, fmt.Sprintf(summedCacheWrites, "d.cache_writes"))
	return "SELECT " + strings.Join(
		columns,
		", ",
	) + " FROM " + r.table + " AS d WHERE " + strings.Join(
		r.where,
		" AND ",
	) + " GROUP BY " + strings.Join(
		groups,
		", ",
	)
}

// read reads the sums of each group and model.
func (r *report) read(ctx context.Context, q querier) ([]manage.ReportSum, error) {
	var sums reportsum.Adder
	err := forEachRow(ctx, q, func(rows *sql.Rows) error {
		var day int64
		var account, key, user, labels, model string
		var sum llmhttp.UsageSum
		if err := rows.Scan(append([]any{&day, &account, &key, &user, &labels, &model}, sumNumbers(&sum)...)...); err != nil {
			return err
		}
		g := reportsum.Group{
			Start: r.query.From, Account: originalName(account), KeyID: originalName(key), User: originalName(user), Model: originalName(model),
		}
		if r.query.By == manage.ByDay {
			g.Start = fromMicros(day)
		}
		if r.readsLabels() {
			decoded, err := decodeLabels(labels)
			if err != nil {
				return err
			}
			if value, ok := decoded[r.query.Label.Name]; r.query.Label.Name != "" && (!ok || value != r.query.Label.Value) {
				return nil
			}
			if r.query.By == manage.ByLabel {
				g.Label = decoded[r.query.GroupLabel]
			}
		}
		sums.Add(g, &sum)
		return nil
	}, r.statement(), r.args...)
	if err != nil || !r.readsLabels() {
		return sums.Sums(), err
	}
	return reportsum.Largest(r.query, sums.Sums()), nil
}

// decodeLabels is the inverse of encodeLabels.
func decodeLabels(encoded string) (labels map[string]string, err error) {
	if encoded != "" {
		err = json.Unmarshal([]byte(encoded), &labels)
	}
	return labels, err
}
