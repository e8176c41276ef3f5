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
		return cmp.Or(a.Start.Compare(b.Start), strings.Compare(a.Account, b.Account), strings.Compare(a.KeyID, b.KeyID), strings.Compare(a.Model, b.Model))
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

	// Each query has the same columns, so a group that is not asked for is a constant.
	groups := map[llmhttp.ReportGroup][]string{llmhttp.ByDay: {"day"}, llmhttp.ByKey: {"account", "key_id"}, llmhttp.ByAccount: {"account"}}[q.By]
	columns := []string{"0", "''", "''"}
	for i, column := range []string{"day", "account", "key_id"} {
		if slices.Contains(groups, column) {
			columns[i] = column
		}
	}
	list := strings.Join(groups, ", ")
	from := table + where
	if list != "" && q.Limit > 0 {
		args = append(args, q.Limit)
		from = fmt.Sprintf("(SELECT %[1]s FROM %[2]s GROUP BY %[1]s ORDER BY %[3]s + %[4]s DESC, %[5]s DESC, %[1]s LIMIT $%[6]d) top JOIN %[7]s USING (%[1]s) %[8]s",
			list, from, db.total("prompt_tokens"), db.total("completion_tokens"), db.total("requests"), len(args), table, where)
	}
	query = "SELECT " + strings.Join(columns, ", ") + ", model"
	for _, column := range []string{"requests", "prompt_tokens", "completion_tokens", "cached_tokens", "reasoning_tokens", "images"} {
		query += ", " + db.toInteger(db.total(column))
	}
	return query + " FROM " + from + " GROUP BY " + strings.Join(append(groups, "model"), ", "), args
}

// scanReport reads a row of the result of reportQuery.
func scanReport(rows *sql.Rows, q *llmhttp.ReportQuery) (llmhttp.ReportSum, error) {
	var sum llmhttp.ReportSum
	var day int64
	var account, key, model string
	u := &sum.UsageSum
	err := rows.Scan(&day, &account, &key, &model, &u.Requests, &u.PromptTokens, &u.CompletionTokens, &u.CachedTokens, &u.ReasoningTokens, &u.Images)
	u.Model, sum.Account, sum.KeyID = originalName(model), originalName(account), originalName(key)
	if u.Start = q.From; q.By == llmhttp.ByDay {
		u.Start = fromMicros(day)
	}
	return sum, err
}
