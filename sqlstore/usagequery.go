// Queries of a UsageStore.

package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
)

// Query implements [llmhttp.UsageStore]. For each UTC day that lies within one period it reads the
// sums of the day. For other days it reads single records. So if From and To are midnights in UTC
// and Step is a multiple of a day, the cost depends on the number of days and not on the number of
// requests.
//
// If the records of a day that several periods share have been pruned, the whole day counts as used
// at its beginning.
//
// With a Step it uses the connections of Options.ReportConns.
//
// It can sum for subjects of all kinds that have the form of a [llmhttp.SubjectID]. What an end
// user has used in a month whose records have been pruned may count as used on the last of its
// days: see [Store.Prune].
func (s *usageStore) Query(ctx context.Context, q llmhttp.UsageQuery) ([]llmhttp.UsageSum, error) {
	subject := q.Subject
	switch {
	case subject == llmhttp.SubjectID{}, subject.Kind == llmhttp.KindKey, isFurtherKind(subject.Kind):
	case subject.Kind == llmhttp.KindUser:
		if subject.ID == "" {
			return nil, nil // a record with an empty User has no end user
		}
	case subject.Kind != llmhttp.KindAccount:
		return nil, fmt.Errorf("sqlstore: cannot sum the usage of a %q: %w", subject.Kind, errors.ErrUnsupported)
	case subject.ID != q.Account:
		return nil, nil
	}
	if !q.From.Before(q.To) {
		return nil, nil
	}
	pool := s.db.read
	if q.Step != 0 { // not for a quota, which requests wait for
		pool = s.db.report
	}
	sums, err := retryRead(ctx, s.db, func() (sums usageSums, err error) {
		// Sums and records must be read from the same snapshot.
		opts := &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}
		err = inTx(ctx, pool, opts, func(tx *sql.Tx) (err error) {
			sums, err = newSelection(s.db, q).read(ctx, tx)
			return err
		})
		return sums, err
	})
	if err != nil {
		return nil, s.db.wrapError("querying usage", err)
	}
	return sums.list(q.From.Location()), nil
}

// A selection is a query for the rows of an account, or of one of its keys or other subjects.
type selection struct {
	llmhttp.UsageQuery
	ofSums, ofRecords condition // on rows of llmhttp_usage_sums and llmhttp_usage_records
}

// A condition is one in SQL with its arguments, of which the first is $3.
type condition struct {
	sql  string
	args []any
}

func newSelection(d dialect, q llmhttp.UsageQuery) *selection {
	account, subject := storedName(q.Account), storedSubject(q.Subject)
	switch q.Subject.Kind {
	case "", llmhttp.KindAccount:
		return &selection{
			q, condition{"kind = '" + sumOfAccount + "' AND account = $3 AND subject = ''", []any{account}},
			condition{"account = $3", []any{account}},
		}
	case llmhttp.KindKey:
		return &selection{
			q, condition{"kind = '" + sumOfKey + "' AND account = $3 AND subject = $4", []any{account, subject.ID}},
			condition{"account = $3 AND key_id = $4", []any{account, subject.ID}},
		}
	case llmhttp.KindUser:
		return &selection{
			q, condition{"kind = '" + sumOfUser + "' AND account = $3 AND subject = $4", []any{account, subject.ID}},
			condition{
				"account = $3 AND end_user <> '' AND end_user = $4",
				[]any{account, subject.ID},
			}, // the index has only records with an end user
		}
	}
	// A string in JSON has no quotation mark without a backslash before it, so an array contains
	// the text of an object only if that is an element.
	element := strings.Trim(encodeSubjects([]llmhttp.SubjectID{q.Subject}), "[]")
	return &selection{
		q, condition{"kind = $4 AND account = $3 AND subject = $5", []any{account, subject.Kind, subject.ID}},
		condition{"account = $3 AND " + d.has("$4", "subjects"), []any{account, element}},
	}
}

// usageSums are the results of a query.
type usageSums map[sumKey]*llmhttp.UsageSum

type sumKey struct {
	start time.Time // of a period, in UTC and without a monotonic clock reading, so that == works
	model string
}

func (s usageSums) add(start time.Time, storedModel string, numbers *llmhttp.UsageSum) {
	key := sumKey{start.UTC(), originalName(storedModel)}
	if s[key] == nil {
		s[key] = new(llmhttp.UsageSum)
	}
	s[key].Add(*numbers)
}

func (s usageSums) list(loc *time.Location) []llmhttp.UsageSum {
	byStartAndModel := func(a, b sumKey) int {
		return cmp.Or(a.start.Compare(b.start), strings.Compare(a.model, b.model))
	}
	var list []llmhttp.UsageSum
	for _, key := range slices.SortedFunc(maps.Keys(s), byStartAndModel) {
		sum := *s[key]
		sum.Start, sum.Model = key.start.In(loc), key.model
		list = append(list, sum)
	}
	return list
}

// read reads the usage that q selects.
func (q *selection) read(ctx context.Context, tx *sql.Tx) (usageSums, error) {
	pruned, err := readState(ctx, tx, statePruned)
	if err != nil {
		return nil, err
	}
	sums := make(usageSums)
	rest, err := q.addDays(ctx, tx, pruned, sums)
	if err != nil {
		return nil, err
	}
	for _, r := range rest {
		if err := q.addRecords(ctx, tx, r, sums); err != nil {
			return nil, err
		}
	}
	return sums, nil
}

// A timeRange is a range of stored times, excluding its end.
type timeRange struct{ from, to int64 }

// addDays adds the days that lie within one period, and those before pruned, to
// sums. It returns the ranges of the other days with usage.
func (q *selection) addDays(ctx context.Context, tx *sql.Tx, pruned int64, sums usageSums) (rest []timeRange, err error) {
	from, to := ceilMicros(q.From), ceilMicros(q.To)
	statement, args := q.daysStatement(from, to)
	err = forEachRow(ctx, tx, func(rows *sql.Rows) error {
		var day int64
		var model string
		var sum llmhttp.UsageSum
		if err := rows.Scan(append([]any{&day, &model}, sumNumbers(&sum)...)...); err != nil {
			return err
		}
		r := timeRange{max(day, from), min(day+dayMicros, to)}
		switch {
		case day < pruned && day < from: // counts at its beginning, which is not in the query
		case day < pruned, isWithinPeriod(q.UsageQuery, day):
			sums.add(q.PeriodStart(fromMicros(day)), model, &sum)
		case len(rest) > 0 && rest[len(rest)-1].to >= r.from:
			rest[len(rest)-1].to = r.to
		default:
			rest = append(rest, r)
		}
		return nil
	}, statement, args...)
	return rest, err
}

// daysStatement returns the query for the sums of the days between two stored times.
func (q *selection) daysStatement(from, to int64) (statement string, args []any) {
	return `
		SELECT day, model, ` + strings.Join(sumColumns, ", ") + `
		FROM llmhttp_usage_sums WHERE day >= $1 AND day < $2 AND ` + q.ofSums.sql + ` ORDER BY day`, append([]any{dayOf(from), to}, q.ofSums.args...)
}

// addRecords adds the records in r to sums. It does not add them up in SQL,
// because a period need not begin at a whole microsecond and sums saturate.
func (q *selection) addRecords(ctx context.Context, tx *sql.Tx, r timeRange, sums usageSums) error {
	statement, args := q.recordsStatement(r)
	return forEachRow(ctx, tx, func(rows *sql.Rows) error {
		var at int64
		var model string
		var sum llmhttp.UsageSum
		if err := rows.Scan(append([]any{&at, &model}, sumNumbers(&sum)...)...); err != nil {
			return err
		}
		sums.add(q.PeriodStart(fromMicros(at)), model, &sum)
		return nil
	}, statement, args...)
}

// recordsStatement returns the query for the records in r.
func (q *selection) recordsStatement(r timeRange) (statement string, args []any) {
	return `
		SELECT time, model, CASE WHEN part = 0 THEN 1 ELSE 0 END, CASE WHEN unpriced THEN 1 ELSE 0 END, ` + strings.Join(numberColumns, ", ") + `, cache_writes
		FROM llmhttp_usage_records WHERE time >= $1 AND time < $2 AND ` + q.ofRecords.sql, append([]any{r.from, r.to}, q.ofRecords.args...)
}

// isWithinPeriod reports whether the day that begins at m lies within one period of q.
func isWithinPeriod(q llmhttp.UsageQuery, m int64) bool {
	begin, end := fromMicros(m), fromMicros(m+dayMicros)
	last := end.Add(-time.Microsecond)
	return !begin.Before(q.From) && !end.After(q.To) && q.PeriodStart(begin).Equal(q.PeriodStart(last))
}
