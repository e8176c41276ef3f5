package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
)

// A record is a row of llmhttp_usage_records.
type record struct {
	id, account, keyID, model string
	endpoint, protocol        string
	time                      int64
	estimated                 bool
	sum                       llmhttp.UsageSum // its numbers only
}

// newRecord returns the stored form of r. It keeps only the numbers of r.Usage that
// a UsageSum has.
func newRecord(r *llmhttp.UsageRecord) record {
	return record{
		id:        storedName(r.ID),
		account:   storedName(r.Account),
		keyID:     storedName(r.KeyID),
		model:     storedName(r.Model),
		endpoint:  storedName(string(r.Endpoint)),
		protocol:  storedName(r.Protocol),
		time:      micros(r.Time),
		estimated: r.Estimated,
		sum:       r.Sum(),
	}
}

// sumColumns are the columns of the numbers of a UsageSum. Records have all but the
// first.
var sumColumns = []string{"requests", "prompt_tokens", "completion_tokens", "cached_tokens", "reasoning_tokens", "images"}

// sumNumbers returns pointers to the numbers of s in the order of sumColumns.
func sumNumbers(s *llmhttp.UsageSum) []any {
	return []any{&s.Requests, &s.PromptTokens, &s.CompletionTokens, &s.CachedTokens, &s.ReasoningTokens, &s.Images}
}

// columnList formats each of columns and joins the results with commas.
func columnList(columns []string, format string) string {
	list := make([]string, len(columns))
	for i, column := range columns {
		list[i] = fmt.Sprintf(format, column)
	}
	return strings.Join(list, ", ")
}

// addSums adds the numbers of a and b. They saturate at the bounds of int64, so that an
// upstream that reports absurd numbers cannot make a record fail.
func addSums(a, b llmhttp.UsageSum) llmhttp.UsageSum {
	return llmhttp.UsageSum{
		Requests:         saturatingAdd(a.Requests, b.Requests),
		PromptTokens:     saturatingAdd(a.PromptTokens, b.PromptTokens),
		CompletionTokens: saturatingAdd(a.CompletionTokens, b.CompletionTokens),
		CachedTokens:     saturatingAdd(a.CachedTokens, b.CachedTokens),
		ReasoningTokens:  saturatingAdd(a.ReasoningTokens, b.ReasoningTokens),
		Images:           saturatingAdd(a.Images, b.Images),
	}
}

func saturatingAdd(a, b int64) int64 {
	switch {
	case b > 0 && a > math.MaxInt64-b:
		return math.MaxInt64
	case b < 0 && a < math.MinInt64-b:
		return math.MinInt64
	}
	return a + b
}

// A usageStore keeps usage. It implements [llmhttp.KeyUsageStore] and
// [llmhttp.UsageReporter].
type usageStore struct{ db *database }

// maxBatch is the maximum number of records, or of uses of keys, that one
// transaction stores.
const maxBatch = 5000

// Record implements [llmhttp.UsageStore]. When it returns nil, the records are
// committed. When it returns an error, some of them may be committed, and the
// caller may repeat the call.
//
// IDs, accounts, key IDs, models, endpoints and protocols can be any strings.
// Record stores only the beginning and a hash of a string of more than 512 bytes.
// It stores only these numbers of the Usage: prompt, completion, cached and
// reasoning tokens.
//
// Record skips a record whose ID is already stored. IDs of deleted records are
// unknown; see [Store.Prune].
func (s *usageStore) Record(ctx context.Context, records ...llmhttp.UsageRecord) error {
	rows := make([]record, len(records))
	for i := range records {
		rows[i] = newRecord(&records[i])
	}
	// The stable sort keeps the first record of each ID.
	slices.SortStableFunc(rows, func(a, b record) int { return strings.Compare(a.id, b.id) })
	rows = slices.CompactFunc(rows, func(a, b record) bool { return a.id == b.id })
	for batch := range slices.Chunk(rows, maxBatch) {
		err := s.db.retry(ctx, s.db.isTransient, func() error { return s.db.addUsage(ctx, s.db.write, batch) })
		if err != nil {
			return s.db.wrapError("recording usage", err)
		}
	}
	return nil
}

// Query implements [llmhttp.UsageStore]. For each UTC day that lies within one
// period it reads the sums of the day. For other days it reads single records.
// So if From and To are midnights in UTC and Step is a multiple of a day, the
// cost depends on the number of days and not on the number of requests.
//
// If the records of a day that several periods share have been pruned, the
// whole day counts as used at its beginning.
func (s *usageStore) Query(ctx context.Context, q llmhttp.UsageQuery) ([]llmhttp.UsageSum, error) {
	return s.query(ctx, selection{q, "llmhttp_usage_days", "account = $3", []any{storedName(q.Account)}})
}

// QueryKey implements [llmhttp.KeyUsageStore]. Like Query, it reads sums by day and
// single records.
func (s *usageStore) QueryKey(ctx context.Context, keyID string, q llmhttp.UsageQuery) ([]llmhttp.UsageSum, error) {
	return s.query(ctx, selection{q, "llmhttp_usage_key_days", "account = $3 AND key_id = $4", []any{storedName(q.Account), storedName(keyID)}})
}

// A selection is a query for the rows of an account or of one of its keys.
type selection struct {
	llmhttp.UsageQuery
	days      string // the table of sums by day
	condition string // on a row, in SQL; its parameters begin with $3
	args      []any
}

func (s *usageStore) query(ctx context.Context, q selection) ([]llmhttp.UsageSum, error) {
	if !q.From.Before(q.To) {
		return nil, nil
	}
	sums, err := retryRead(ctx, s.db, func() (usageSums, error) {
		sums := make(usageSums)
		// Sums and records must be read from the same snapshot.
		opts := &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}
		err := inTx(ctx, s.db.read, opts, func(tx *sql.Tx) error { return sums.read(ctx, tx, q) })
		return sums, err
	})
	if err != nil {
		return nil, s.db.wrapError("querying usage", err)
	}
	return sums.list(q.From.Location()), nil
}

// usageSums are the results of a query.
type usageSums map[sumKey]llmhttp.UsageSum

type sumKey struct {
	start time.Time // of a period, in UTC and without a monotonic clock reading, so that == works
	model string
}

func (s usageSums) add(start time.Time, storedModel string, numbers llmhttp.UsageSum) {
	key := sumKey{start.UTC(), originalName(storedModel)}
	s[key] = addSums(s[key], numbers)
}

func (s usageSums) list(loc *time.Location) []llmhttp.UsageSum {
	byStartAndModel := func(a, b sumKey) int {
		return cmp.Or(a.start.Compare(b.start), strings.Compare(a.model, b.model))
	}
	var list []llmhttp.UsageSum
	for _, key := range slices.SortedFunc(maps.Keys(s), byStartAndModel) {
		sum := s[key]
		sum.Start, sum.Model = key.start.In(loc), key.model
		list = append(list, sum)
	}
	return list
}

// read adds the usage that q asks for.
func (s usageSums) read(ctx context.Context, tx *sql.Tx, q selection) error {
	var pruned int64 // records from before this midnight may be missing
	err := tx.QueryRowContext(ctx, "SELECT coalesce(max(value), $1) FROM llmhttp_state WHERE name = 'pruned'", int64(math.MinInt64)).Scan(&pruned)
	if err != nil {
		return err
	}
	rest, err := s.readDays(ctx, tx, q, pruned)
	if err != nil {
		return err
	}
	for _, r := range rest {
		if err := s.readRecords(ctx, tx, q, r); err != nil {
			return err
		}
	}
	return nil
}

// A timeRange is a range of stored times, excluding its end.
type timeRange struct{ from, to int64 }

// readDays adds the sums of the days that lie within one period, and of days
// before pruned. It returns the ranges of the other days with usage.
func (s usageSums) readDays(ctx context.Context, tx *sql.Tx, q selection, pruned int64) (rest []timeRange, err error) {
	from, to := ceilMicros(q.From), ceilMicros(q.To)
	err = forEachRow(ctx, tx, func(rows *sql.Rows) error {
		var day int64
		var model string
		var sum llmhttp.UsageSum
		if err := rows.Scan(append([]any{&day, &model}, sumNumbers(&sum)...)...); err != nil {
			return err
		}
		switch r := (timeRange{max(day, from), min(day+dayMicros, to)}); {
		case day < pruned && day < from: // counts at its beginning, which is not in the query
		case day < pruned, isWithinPeriod(q.UsageQuery, day):
			s.add(q.PeriodStart(fromMicros(day)), model, sum)
		case len(rest) > 0 && rest[len(rest)-1].to >= r.from:
			rest[len(rest)-1].to = r.to
		default:
			rest = append(rest, r)
		}
		return nil
	}, `
		SELECT day, model, `+strings.Join(sumColumns, ", ")+`
		FROM `+q.days+` WHERE day >= $1 AND day < $2 AND `+q.condition+` ORDER BY day`, append([]any{dayOf(from), to}, q.args...)...)
	return rest, err
}

// readRecords adds the records in r. It adds them up here and not in SQL,
// because a period need not begin at a whole microsecond and sums saturate.
func (s usageSums) readRecords(ctx context.Context, tx *sql.Tx, q selection, r timeRange) error {
	return forEachRow(ctx, tx, func(rows *sql.Rows) error {
		var at int64
		var model string
		sum := llmhttp.UsageSum{Requests: 1}
		if err := rows.Scan(append([]any{&at, &model}, sumNumbers(&sum)[1:]...)...); err != nil {
			return err
		}
		s.add(q.PeriodStart(fromMicros(at)), model, sum)
		return nil
	}, `
		SELECT time, model, `+strings.Join(sumColumns[1:], ", ")+`
		FROM llmhttp_usage_records WHERE time >= $1 AND time < $2 AND `+q.condition, append([]any{r.from, r.to}, q.args...)...)
}

// isWithinPeriod reports whether the day that begins at m lies within one
// period of q.
func isWithinPeriod(q llmhttp.UsageQuery, m int64) bool {
	begin, end := fromMicros(m), fromMicros(m+dayMicros)
	last := end.Add(-time.Microsecond)
	return !begin.Before(q.From) && !end.After(q.To) && q.PeriodStart(begin).Equal(q.PeriodStart(last))
}
