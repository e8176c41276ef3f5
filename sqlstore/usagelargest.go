package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/llmhttp/llmhttp"
)

// largest returns the sums of the Limit groups with the most tokens.
func (r *report) largest(ctx context.Context) ([]llmhttp.ReportSum, error) {
	if r.query.By == llmhttp.ByKey && r.query.KeyID == "" {
		sums, err := r.largestKeys(ctx)
		if sums != nil || err != nil {
			return sums, err
		}
	}
	groups, err := r.largestGroups(ctx)
	if err != nil {
		return nil, err
	}
	var sums []llmhttp.ReportSum
	for some := range slices.Chunk(groups, maxGroups) {
		part, err := r.within(some).sums(ctx)
		if err != nil {
			return nil, err
		}
		sums = append(sums, part...)
	}
	return sums, nil
}

// maxGroups is the maximum number of groups in a query. Databases limit the
// number of parameters.
const maxGroups = 1000

// A reportGroup has the values of the columns of a group, as they are stored.
type reportGroup []any

// largestGroups returns the Limit groups with the most tokens.
func (r *report) largestGroups(ctx context.Context) (groups []reportGroup, err error) {
	where := r.where
	if r.query.By == llmhttp.ByAccount && r.query.To.Sub(r.query.From) > longPeriod {
		where = strings.ReplaceAll(where, "d.day", r.db.unindexed("d.day"))
	}
	// Sums of floating-point numbers are faster than those of total and do not overflow.
	query := fmt.Sprintf(`
		SELECT %[1]s FROM %[2]s WHERE %[3]s GROUP BY %[1]s
		ORDER BY sum(CAST(d.prompt_tokens AS double precision) + d.completion_tokens) DESC, sum(CAST(d.requests AS double precision)) DESC, %[1]s LIMIT %[4]d`,
		strings.Join(r.groups, ", "), r.from, where, r.query.Limit)
	err = forEachRow(ctx, r.db.read, func(rows *sql.Rows) error {
		group := make(reportGroup, len(r.groups))
		values := make([]any, len(r.groups))
		for i := range group {
			values[i] = &group[i]
		}
		groups = append(groups, group)
		return rows.Scan(values...)
	}, query, r.args...)
	return groups, err
}

// For a period of more than longPeriod, SQLite adds up the days of accounts faster
// without the index by day, because the primary key has the accounts in order.
const longPeriod = 60 * day

// within returns a copy of r that is restricted to some groups.
func (r *report) within(groups []reportGroup) *report {
	c := *r
	c.args = slices.Clone(r.args)
	rows := make([]string, len(groups))
	for i, group := range groups {
		values := make([]string, len(group))
		for j, value := range group {
			if day, ok := value.(int64); ok {
				values[j] = strconv.FormatInt(day, 10) // PostgreSQL takes a parameter in VALUES for a text
			} else {
				values[j] = c.arg(value)
			}
		}
		rows[i] = "(" + strings.Join(values, ", ") + ")"
	}
	c.join("VALUES " + strings.Join(rows, ", "))
	return &c
}

// join restricts r to the groups that a query returns in column1 and so on. In
// SQLite, a CROSS JOIN looks up the rows of one group after the other.
func (r *report) join(query string) {
	r.from = "(" + query + ") AS g CROSS JOIN " + r.from
	for i, column := range r.groups {
		r.where += fmt.Sprintf(" AND %s = g.column%d", column, i+1)
	}
}

// blockMicros is the length of a block: the days whose tokens
// llmhttp_usage_key_blocks adds up for each key.
const blockMicros = 32 * dayMicros

// blockOf returns the beginning of the block of m, as a stored time.
func blockOf(m int64) int64 { return m - (m%blockMicros+blockMicros)%blockMicros }

// largestKeys is tried only if the blocks that a period touches are together at most
// maxOverlap times as long as the period.
const maxOverlap = 4

// largestKeys does what largest does, for keys, without reading the sums of all of
// them. Its candidates are the keys with the most tokens in a block. Any other key
// has in each block at most as many tokens as the last candidate of that block, so
// the sum of these numbers is a bound for its tokens. If each key of the result has
// more, the result is right. If not, largestKeys tries again with more candidates,
// and then returns nil.
func (r *report) largestKeys(ctx context.Context) ([]llmhttp.ReportSum, error) {
	from, to := r.args[0].(int64), r.args[1].(int64)
	if (blockOf(to-1)+blockMicros-blockOf(from))/maxOverlap > to-from {
		return nil, nil
	}
	for _, n := range []int{3 * r.query.Limit, 16 * r.query.Limit} {
		bound, err := r.candidateBound(ctx, n)
		if err != nil {
			return nil, err
		}
		c := *r
		c.join(candidateQuery(from, to, n))
		sums, err := c.sums(ctx)
		if err != nil {
			return nil, err
		}
		if sums, tokens := largestSums(sums, r.query.Limit); tokens > bound {
			return sums, nil
		}
	}
	return nil, nil
}

// largestSums returns the sums of the n keys with the most tokens, and the number
// of tokens of the last of them, which is 0 if there are fewer than n.
func largestSums(sums []llmhttp.ReportSum, n int) (largest []llmhttp.ReportSum, tokens float64) {
	type key struct{ account, id string }
	type total struct{ tokens, requests float64 }
	totals := make(map[key]total)
	for i := range sums {
		s := &sums[i]
		k := key{s.Account, s.KeyID}
		t := totals[k]
		totals[k] = total{t.tokens + float64(s.PromptTokens) + float64(s.CompletionTokens), t.requests + float64(s.Requests)}
	}
	keys := slices.SortedFunc(maps.Keys(totals), func(a, b key) int {
		return cmp.Or(cmp.Compare(totals[b].tokens, totals[a].tokens), cmp.Compare(totals[b].requests, totals[a].requests))
	})
	if len(keys) < n {
		return sums, 0
	}
	for _, k := range keys[n:] {
		delete(totals, k)
	}
	largest = slices.DeleteFunc(sums, func(s llmhttp.ReportSum) bool { _, ok := totals[key{s.Account, s.KeyID}]; return !ok })
	return largest, totals[keys[n-1]].tokens
}

// candidateBound returns an upper bound for the tokens of a key that is not among the
// n candidates of any block.
func (r *report) candidateBound(ctx context.Context, n int) (bound float64, err error) {
	from, to := r.args[0].(int64), r.args[1].(int64)
	for block := blockOf(from); block < to; block += blockMicros {
		var least float64
		err := r.db.read.QueryRowContext(ctx, "SELECT coalesce((SELECT tokens FROM llmhttp_usage_key_blocks WHERE block = $1 ORDER BY tokens DESC LIMIT 1 OFFSET $2), 0)", block, n-1).Scan(&least)
		if err != nil {
			return 0, err
		}
		bound += least
	}
	return bound, nil
}

// candidateQuery returns an SQL query for the n candidates of each block.
func candidateQuery(from, to int64, n int) string {
	var blocks []string
	for block := blockOf(from); block < to; block += blockMicros {
		blocks = append(blocks, fmt.Sprintf("SELECT * FROM (SELECT account AS column1, key_id AS column2 FROM llmhttp_usage_key_blocks WHERE block = %d ORDER BY tokens DESC LIMIT %d) AS b", block, n))
	}
	return strings.Join(blocks, " UNION ")
}
