// The sums of end users by month.

package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
)

// userMonthsBatch is the maximum number of rows that one transaction of addUpUserMonths reads.
const userMonthsBatch = 2000

// addUpUserMonths adds up the sums by day of end users in the months that ended until a stored
// time: see Prune. Sums of days of these months that are stored later stay as they are until
// the next month has ended.
func (s *usageStore) addUpUserMonths(ctx context.Context, until int64) error {
	end := monthOf(until)
	done, err := readState(ctx, s.db.read, stateUserMonths)
	if err != nil || done >= end {
		return err
	}
	var last, next sumRow
	for n := userMonthsBatch; n == userMonthsBatch; {
		err := s.db.retry(ctx, s.db.isTransient, func() error {
			return inTx(ctx, s.db.write, nil, func(tx *sql.Tx) error {
				rows, err := s.db.readUserSums(ctx, tx, last, end)
				if n = len(rows); err != nil || n == 0 {
					return err
				}
				if n == userMonthsBatch {
					rows = wholeUsers(rows)
				}
				if err := addUpMonths(ctx, tx, rows); err != nil {
					return err
				}
				next = rows[len(rows)-1].sumRow
				return nil
			})
		})
		if err != nil {
			return err
		}
		last = next
	}
	return s.raiseState(ctx, stateUserMonths, end)
}

// monthOf returns the stored form of the beginning, in UTC, of the month of a stored time.
func monthOf(m int64) int64 {
	year, month, _ := fromMicros(m).Date()
	return micros(time.Date(year, month, 1, 0, 0, 0, 0, time.UTC))
}

// A userSum is a row of the sums of end users.
type userSum struct {
	sumRow
	sum llmhttp.UsageSum // its numbers only
}

// readUserSums reads and locks up to userMonthsBatch rows that follow last, in the order of the
// primary key, without the days from end on.
func (db *database) readUserSums(ctx context.Context, tx *sql.Tx, last sumRow, end int64) (rows []userSum, err error) {
	err = forEachRow(ctx, tx, func(r *sql.Rows) error {
		row := userSum{sumRow: sumRow{kind: sumOfUser}}
		err := r.Scan(append([]any{&row.account, &row.subject, &row.day, &row.model}, sumNumbers(&row.sum)...)...)
		rows = append(rows, row)
		return err
	}, `
		SELECT account, subject, day, model, `+strings.Join(sumColumns, ", ")+`
		FROM llmhttp_usage_sums
		WHERE kind = '`+sumOfUser+`' AND (`+sumKeyColumns+`) > ('`+sumOfUser+`', $1, $2, $3, $4) AND day < $5
		ORDER BY `+sumKeyColumns+` LIMIT $6`+db.forUpdate(), last.account, last.subject, last.day, last.model, end, userMonthsBatch)
	return rows, err
}

// wholeUsers returns rows without those of the last end user, of whom more may follow, unless all
// are of that user.
func wholeUsers(rows []userSum) []userSum {
	last := &rows[len(rows)-1]
	for i := len(rows) - 1; i > 0; i-- {
		if r := &rows[i-1]; r.account != last.account || r.subject != last.subject {
			return rows[:i]
		}
	}
	return rows
}

// addUpMonths replaces rows of the same month, end user and model by the last of them, which gets
// their sum. The rows are in the order of their days.
func addUpMonths(ctx context.Context, tx *sql.Tx, rows []userSum) error {
	type month struct {
		last    *userSum
		earlier []int64 // days
	}
	months := make(map[sumRow]*month) // by a row with the month in place of the day
	for i := range rows {
		row := &rows[i]
		id := row.sumRow
		id.day = monthOf(row.day)
		m := months[id]
		if m == nil {
			months[id] = &month{last: row}
			continue
		}
		row.sum.Add(m.last.sum)
		m.last, m.earlier = row, append(m.earlier, m.last.day)
	}
	for _, m := range months {
		if len(m.earlier) == 0 {
			continue
		}
		if err := m.last.replace(ctx, tx, m.earlier); err != nil {
			return err
		}
	}
	return nil
}

var setSum = func() string {
	columns := make([]string, len(sumColumns))
	for i, column := range sumColumns {
		columns[i] = fmt.Sprintf("%s = $%d", column, 6+i)
	}
	return "UPDATE llmhttp_usage_sums SET " + strings.Join(columns, ", ") + " WHERE (" + sumKeyColumns + ") = ($1, $2, $3, $4, $5)"
}()

// replace stores the numbers of r, and deletes the rows of the same end user and model for earlier
// days.
func (r *userSum) replace(ctx context.Context, tx *sql.Tx, earlier []int64) error {
	values := append([]any{r.kind, r.account, r.subject, r.day, r.model}, sumValues(&r.sum)...)
	if _, err := tx.ExecContext(ctx, setSum, values...); err != nil {
		return err
	}
	var args sqlArgs
	statement := "DELETE FROM llmhttp_usage_sums WHERE kind = " + args.add(r.kind) + " AND account = " + args.add(r.account) +
		" AND subject = " + args.add(r.subject) + " AND model = " + args.add(r.model) + " AND day IN " + addList(&args, earlier)
	_, err := tx.ExecContext(ctx, statement, args...)
	return err
}
