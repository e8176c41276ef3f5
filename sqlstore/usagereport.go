// Reports.

package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/manage"
)

// reportFields are the fields of a query that Report knows.
var reportFields = []string{
	"Account", "KeyID", "Model", "User", "Label", "Operation", "Target", "Status", "From", "To", "By", "GroupLabel",
	"Interval", "Location", "PerModel", "Order", "Limit",
}

// Report implements [manage.UsageReporter]. It can do all that a [manage.ReportQuery] asks for. It reads
// sums by day in UTC where they are enough, so that the cost depends on the number of accounts, keys or
// end users that were used on each day, and not on the number of requests. Reports on all accounts
// together read one sum for each day and model.
//
// It reads the records of the period for labels, operations, targets and failures, and for keys of end
// users. It also reads those of the days in UTC that the bounds of the period or of an interval divide:
// all of them for hours, and for days in a Location that is not at UTC; the first and the last one
// for months there. What is thus needed of records that were pruned is missing: see [Store.Prune]. So it
// is with end users if a bound divides a month in UTC whose records were pruned.
//
// In SQLite, sums of more than 2^53 are rounded. Groups that are equal in all numbers that decide
// about the Limit are compared by their names as they are stored.
func (s *usageStore) Report(ctx context.Context, q manage.ReportQuery) (manage.Report, error) {
	if err := q.CheckFields(reportFields...); err != nil {
		return manage.Report{}, err
	}
	// A group that a later version of package manage knows has no columns here.
	if _, ok := groupColumns[q.By]; !ok {
		return manage.Report{}, fmt.Errorf("sqlstore: usage cannot be grouped by %q: %w", string(q.By), errors.ErrUnsupported)
	}
	r, err := retryRead(ctx, s.db, func() (r manage.Report, err error) {
		sums, err := manage.NewReportBuilder(q)
		if err != nil || len(sums.Starts()) == 0 {
			return r, err
		}
		// The time until which records were pruned must be from the same snapshot.
		opts := &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}
		err = inTx(ctx, s.db.report, opts, func(tx *sql.Tx) error {
			pruned, err := readState(ctx, tx, statePruned)
			if err != nil {
				return err
			}
			report := newReport(s.db, &q, sums.Starts(), pruned)
			if report.incomplete {
				r.Since = fromMicros(report.from)
			}
			return report.read(ctx, tx, sums)
		})
		if err != nil {
			return r, err
		}
		complete := sums.Report()
		complete.Since = r.Since
		return complete, nil
	})
	if err != nil {
		return manage.Report{}, s.db.wrapError("reporting usage", err)
	}
	return r, nil
}

// groupColumns are the columns of reportNames by which a report groups.
var groupColumns = map[manage.ReportGroup][]string{
	manage.ByTotal: nil, manage.ByKey: {"account", "key_id"}, manage.ByAccount: {"account"}, manage.ByModel: {"model"},
	manage.ByUser: {"account", "end_user"}, manage.ByLabel: {"label"},
}

// reportNames are the columns that name a group.
var reportNames = []string{"account", "key_id", "end_user", "label", "model"}

// A report is a ReportQuery in SQL. Its statements read rows named u, which are sums, records or both:
// they have the columns of cellColumns and sumColumns.
type report struct {
	db    *database
	query *manage.ReportQuery
	reportTimes

	groups []string // columns of u
	args   sqlArgs
}

// newReport returns the report for q, whose intervals begin at starts, when the records from before a
// stored time may be missing.
func newReport(db *database, q *manage.ReportQuery, starts []time.Time, pruned int64) *report {
	return &report{db: db, query: q, reportTimes: newReportTimes(q, starts, pruned), groups: groupColumns[q.By]}
}

// read adds what the report selects to sums.
func (r *report) read(ctx context.Context, q querier, sums *manage.ReportBuilder) error {
	if len(r.days) == 0 && len(r.records) == 0 {
		return nil
	}
	groups := make(map[manage.ReportRowID]bool)
	statement := r.statement()
	err := r.forEachSum(ctx, q, statement, func(isOther bool, id manage.ReportRowID, sum *llmhttp.UsageSum) {
		if isOther {
			sums.AddOthers(sum)
			return
		}
		groups[id] = true
		sums.Add(id, sum)
	})
	if err != nil || !r.isOfLargest() || len(groups) < r.query.Limit {
		return err
	}
	all := *r
	all.kind, all.groups = sumsOfAll(r.query), nil
	statement = all.statement()
	return all.forEachSum(ctx, q, statement, func(_ bool, _ manage.ReportRowID, sum *llmhttp.UsageSum) { sums.AddTotal(sum) })
}

// forEachSum runs a statement of r and calls f for each row.
func (r *report) forEachSum(ctx context.Context, q querier, statement string, f func(isOther bool, id manage.ReportRowID, sum *llmhttp.UsageSum)) error {
	return forEachRow(ctx, q, func(rows *sql.Rows) error {
		var isOther bool
		var id manage.ReportRowID
		var start int64
		var sum llmhttp.UsageSum
		names := []any{&id.Account, &id.KeyID, &id.User, &id.Label, &id.Model, &sum.Model} // as reportNames, and then the model of the sum
		if err := rows.Scan(slices.Concat([]any{&isOther, &start}, names, sumNumbers(&sum))...); err != nil {
			return err
		}
		for _, name := range names {
			name := name.(*string)
			*name = originalName(*name)
		}
		sum.Start = fromMicros(start)
		f(isOther, id, &sum)
		return nil
	}, statement, r.args...)
}

// isLimited reports whether some groups may have no row.
func (r *report) isLimited() bool { return r.query.Limit > 0 && len(r.groups) > 0 }

// isOfLargest reports whether statement selects only the largest groups, because those of the others are
// what is left of the sums of all.
func (r *report) isOfLargest() bool { return r.isLimited() && len(r.records) == 0 }

// statement returns the query for the sums of each group, interval and model. It sets args.
func (r *report) statement() string {
	r.args = nil
	const day = "d.day"
	rows := "(" + r.rows(day) + ") AS u"
	from, with, where := rows, "", ""
	isOther, start, model := "1 = 0", "", "''"
	names := make(map[string]string) // expressions for those of reportNames that are needed
	var by []string
	for _, column := range r.cellColumns() {
		by = append(by, "u."+column)
	}
	same := strings.Join(eachColumn(r.groups, "l.%[1]s = u.%[1]s"), " AND ")
	switch {
	case r.isOfLargest():
		// A CROSS JOIN makes SQLite read the sums of one group after the other.
		top := day
		if r.query.To.Sub(r.query.From) > longPeriod {
			top = r.db.unindexed(day)
		}
		with = "WITH largest AS (" + r.largest("("+r.rows(top)+") AS u") + ") "
		from, where = "largest AS l CROSS JOIN "+rows, " WHERE "+same
	case r.isLimited():
		// Records are read once, and what they add up to is added up again.
		with = "WITH cells AS MATERIALIZED (SELECT " + strings.Join(append(slices.Clone(by), r.totals()...), ", ") + " FROM " + rows +
			groupBy(by) + "), largest AS (" + r.largest("cells AS u") + ") "
		from = "cells AS u LEFT JOIN largest AS l ON " + same
		isOther = "l." + r.groups[0] + " IS NULL"
		copy(by, eachColumn(r.groups, "l.%s"))
	}
	for i, group := range r.groups {
		names[group] = "coalesce(" + by[i] + ", '')"
	}
	if r.query.PerModel {
		if model = "u.model"; !slices.Contains(by, model) { // of the smaller models
			by = append(by, model)
		}
	}
	if start = "u.start"; !slices.Contains(by, start) {
		start = r.number(r.steps[0].start)
	}
	columns := []string{isOther, start}
	for _, name := range reportNames {
		columns = append(columns, cmp.Or(names[name], "''"))
	}
	statement := with + "SELECT " + strings.Join(append(append(columns, model), r.totals()...), ", ") + " FROM " + from + where + groupBy(by)
	if len(by) == 0 {
		statement += " HAVING count(*) > 0" // no sum of nothing
	}
	return statement
}

// cellColumns returns the columns of u by which sums are divided, those of the group first.
func (r *report) cellColumns() []string {
	columns := slices.Clone(r.groups)
	if len(r.steps) > 1 || r.steps[0].length > 0 {
		columns = append(columns, "start")
	}
	if r.query.PerModel && !slices.Contains(columns, "model") {
		columns = append(columns, "model")
	}
	return columns
}

// totals returns expressions for the sums of u, which are named as sumColumns.
func (r *report) totals() (columns []string) {
	for _, number := range sumNumberColumns {
		columns = append(columns, r.db.sum("u."+number)+" AS "+number)
	}
	return append(columns, fmt.Sprintf(summedCacheWrites, "u.cache_writes")+" AS cache_writes")
}

func groupBy(columns []string) string {
	if len(columns) == 0 {
		return ""
	}
	return " GROUP BY " + strings.Join(columns, ", ")
}

// largest returns a query for the Limit largest groups of rows u.
func (r *report) largest(from string) string {
	// Sums of floating-point numbers do not overflow.
	total := func(columns ...string) string {
		return "sum(CAST(u." + columns[0] + " AS double precision)" + strings.Join(eachColumn(columns[1:], " + u.%s"), "") + ") DESC"
	}
	cost, tokens, requests := total(costColumns...), total("prompt_tokens", "completion_tokens"), total("requests")
	order := []string{cost, tokens, requests}
	switch by := r.query.Order; by {
	case manage.OrderByCost:
	case manage.OrderByTokens:
		order = []string{tokens, cost, requests}
	case manage.OrderByRequests:
		order = []string{requests, cost, tokens}
	default:
		order = append([]string{total(string(by))}, order...) // a name of Units.All, which NewReportBuilder has checked
	}
	groups := strings.Join(eachColumn(r.groups, "u.%s"), ", ")
	return fmt.Sprintf("SELECT %[1]s FROM %[2]s GROUP BY %[1]s ORDER BY %[3]s, %[1]s LIMIT %[4]d", groups, from, strings.Join(order, ", "), r.query.Limit)
}

// start returns an expression for the start of the interval that contains the time in a column.
func (r *report) start(column string) string {
	b := new(strings.Builder)
	for i, step := range r.steps {
		isLast := i == len(r.steps)-1
		if !isLast {
			fmt.Fprintf(b, "CASE WHEN %s < %s THEN ", column, r.number(r.steps[i+1].start))
		}
		start := r.number(step.start)
		if b.WriteString(start); step.length > 0 {
			fmt.Fprintf(b, " + (%[1]s - %[2]s) / %[3]s * %[3]s", column, start, r.number(step.length))
		}
		if !isLast {
			b.WriteString(" ELSE ")
		}
	}
	b.WriteString(strings.Repeat(" END", len(r.steps)-1))
	return b.String()
}

// number adds n to args and returns an expression for it.
func (r *report) number(n int64) string { return "CAST(" + r.args.add(n) + " AS bigint)" }

// rows returns the query for the rows u. day is an expression for the day of a sum.
func (r *report) rows(day string) string {
	var queries []string
	if len(r.days) > 0 {
		queries = append(queries, r.sums(day))
	}
	if len(r.records) > 0 {
		queries = append(queries, r.recordRows())
	}
	return strings.Join(queries, " UNION ALL ")
}

// A rowQuery is a query for rows u of one table, which is named d.
type rowQuery struct {
	table   string
	columns map[string]string // expressions for columns of u, unless they are those of d with the same name
	time    string            // the column of d with the time
	where   []string
}

// rowQuery returns q in SQL, with the conditions that both tables have.
func (r *report) rowQuery(q *rowQuery) string {
	column := func(name string) string { return cmp.Or(q.columns[name], "d."+name) }
	for _, c := range []struct{ name, value string }{
		{"account", r.query.Account}, {"key_id", r.query.KeyID}, {"end_user", r.query.User}, {"model", r.query.Model},
	} {
		if c.value != "" {
			q.where = append(q.where, column(c.name)+" = "+r.args.add(storedName(c.value)))
		}
	}
	var columns []string
	for _, name := range append(r.cellColumns(), sumColumns...) {
		value := column(name)
		if name == "start" {
			value = r.start(q.time)
		}
		columns = append(columns, value+" AS "+name)
	}
	return "SELECT " + strings.Join(columns, ", ") + " FROM " + q.table + " AS d WHERE " + strings.Join(q.where, " AND ")
}

// longPeriod is the period above which SQLite finds the largest accounts, keys and end users
// without the index by day, because the primary key has them in order. This saves
// two thirds of the time of BenchmarkStore/SQLite/Report100DaysByKey.
const longPeriod = 60 * day

// sums returns the query for the rows that are sums.
func (r *report) sums(day string) string {
	kind := "d.kind = '" + r.kind + "'"
	switch r.kind {
	case sumOfAll:
		// These sums of all accounts save more than a second in
		// BenchmarkStore/SQLite/Report100DaysByDay, with 1000 accounts and a million records.
		kind += " AND d.account = '' AND d.subject = ''"
	case sumOfAccount:
		kind += " AND d.subject = ''"
	}
	query := &rowQuery{
		table:   "llmhttp_usage_sums",
		columns: map[string]string{"key_id": "d.subject", "end_user": "d.subject"},
		time:    "d.day",
		where:   []string{kind, r.within(day, timeRange{r.days[0].from, r.days[len(r.days)-1].to})},
	}
	if len(r.days) > 1 {
		query.where = append(query.where, r.within("d.day + 0", r.days...)) // an index is of use for all days only
	}
	return r.rowQuery(query)
}

// recordRows returns the query for the rows that are records.
func (r *report) recordRows() string {
	q := r.query
	query := &rowQuery{
		table: "llmhttp_usage_records",
		columns: map[string]string{
			"requests": "CASE WHEN d.part = 0 THEN 1 ELSE 0 END", "unpriced": "CASE WHEN d.unpriced THEN 1 ELSE 0 END",
		},
		time:  "d.time",
		where: []string{r.within("d.time", r.records...)},
	}
	if r.query.By == manage.ByLabel {
		query.columns["label"] = r.label(q.GroupLabel)
	}
	if q.User != "" {
		query.where = append(query.where, "d.end_user <> ''") // the index has only records with an end user
	}
	if q.Label.Name != "" {
		// Most records without the label lack its text, and are skipped faster.
		member := strings.Trim(encodeLabels([]llmhttp.Label{q.Label}), "{}")
		query.where = append(query.where, r.db.has(r.args.add(member), "d.labels"), r.label(q.Label.Name)+" = "+r.args.add(storedName(q.Label.Value)))
	}
	if q.Operation != "" {
		query.where = append(query.where, "d.operation = "+r.args.add(storedName(string(q.Operation))))
	}
	if q.Target != "" {
		query.where = append(query.where, "d.target = "+r.args.add(storedName(q.Target)))
	}
	switch q.Status {
	case manage.StatusAny:
	case manage.StatusSucceeded:
		query.where = append(query.where, "d.error_class = ''")
	case manage.StatusFailed:
		query.where = append(query.where, "d.error_class <> ''")
	default:
		query.where = append(query.where, "d.error_class = "+r.args.add(storedName(string(q.Status))))
	}
	return r.rowQuery(query)
}

// label returns an expression for the value of a label of a record, which is empty if it has none.
func (r *report) label(name string) string {
	return "coalesce(" + r.db.member(&r.args, "d.labels", storedName(name)) + ", '')"
}

// within returns a condition that a column is in one of ranges.
func (r *report) within(column string, ranges ...timeRange) string {
	list := make([]string, len(ranges))
	for i, t := range ranges {
		list[i] = fmt.Sprintf("%[1]s >= %[2]s AND %[1]s < %[3]s", column, r.args.add(t.from), r.args.add(t.to))
	}
	if len(list) == 1 {
		return list[0]
	}
	return "(" + strings.Join(list, " OR ") + ")"
}

// eachColumn formats each of columns.
func eachColumn(columns []string, format string) []string {
	list := make([]string, len(columns))
	for i, column := range columns {
		list[i] = fmt.Sprintf(format, column)
	}
	return list
}
