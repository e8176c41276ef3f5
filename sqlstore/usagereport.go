package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/llmhttp/llmhttp"
)

// ReportUsage implements [llmhttp.UsageReporter]. It reads the sums by day, so
// its cost depends on the number of accounts, or keys, that were used on each of
// the days, and not on the number of requests. In SQLite, sums of more than 2^53
// are rounded.
func (s *Store) ReportUsage(ctx context.Context, q llmhttp.ReportQuery) ([]llmhttp.ReportSum, error) {
	if !q.From.Before(q.To) {
		return nil, nil
	}
	query, args := s.reportQuery(&q)
	var sums []llmhttp.ReportSum
	err := s.retryRead(ctx, func() error {
		sums = nil
		return forEachRow(ctx, s.read, func(rows *sql.Rows) error {
			sum, err := scanReport(rows, &q)
			sums = append(sums, sum)
			return err
		}, query, args...)
	})
	if err != nil {
		return nil, s.wrapError("reporting usage", err)
	}
	slices.SortFunc(sums, func(a, b llmhttp.ReportSum) int {
		return cmp.Or(a.Start.Compare(b.Start), strings.Compare(a.KeyID, b.KeyID), strings.Compare(a.Account, b.Account), strings.Compare(a.Model, b.Model))
	})
	return sums, nil
}

// reportQuery returns the SQL query for q and its arguments.
func (db *database) reportQuery(q *llmhttp.ReportQuery) (query string, args []any) {
	table := "llmhttp_usage_days"
	if q.KeyID != "" || q.By == llmhttp.ByKey {
		table = "llmhttp_usage_key_days"
	}
	args = []any{dayOf(micros(q.From)), ceilMicros(q.To)}
	where := " WHERE day >= $1 AND day < $2"
	filter := func(column, name string) {
		if name != "" {
			args = append(args, storedName(name))
			where += fmt.Sprintf(" AND %s = $%d", column, len(args))
		}
	}
	filter("account", q.Account)
	filter("key_id", q.KeyID)

	group := map[llmhttp.ReportGroup]string{llmhttp.ByDay: "day", llmhttp.ByKey: "key_id", llmhttp.ByAccount: "account"}[q.By]
	columns, from := "''", table+where
	if group != "" {
		columns = group
	}
	if group != "" && q.Limit > 0 {
		args = append(args, q.Limit)
		from += fmt.Sprintf(" AND %[1]s IN (SELECT %[1]s FROM %[2]s GROUP BY %[1]s ORDER BY %[4]s DESC, %[5]s DESC, %[1]s LIMIT $%[3]d)",
			group, from, len(args), db.total("prompt_tokens")+" + "+db.total("completion_tokens"), db.total("requests"))
	}
	query = "SELECT " + columns + ", model"
	for _, column := range []string{"requests", "prompt_tokens", "completion_tokens", "cached_tokens", "reasoning_tokens", "images"} {
		query += ", " + db.toInteger(db.total(column))
	}
	query += " FROM " + from + " GROUP BY model"
	if group != "" {
		query += ", " + group
	}
	return query, args
}

// scanReport reads a row of the result of reportQuery.
func scanReport(rows *sql.Rows, q *llmhttp.ReportQuery) (llmhttp.ReportSum, error) {
	var sum llmhttp.ReportSum
	var name, model string
	var day int64
	sum.Start = q.From
	group := any(&name)
	if q.By == llmhttp.ByDay {
		group = &day
	}
	u := &sum.UsageSum
	err := rows.Scan(group, &model, &u.Requests, &u.PromptTokens, &u.CompletionTokens, &u.CachedTokens, &u.ReasoningTokens, &u.Images)
	u.Model = originalName(model)
	switch q.By {
	case llmhttp.ByDay:
		u.Start = fromMicros(day)
	case llmhttp.ByKey:
		sum.KeyID = originalName(name)
	case llmhttp.ByAccount:
		sum.Account = originalName(name)
	}
	return sum, err
}
