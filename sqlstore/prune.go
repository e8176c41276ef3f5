// Deletes old records.

package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// pruneBatch is the maximum number of rows that one transaction of deleteBefore deletes.
const pruneBatch = 5000

// Prune deletes the records of the UTC days that ended before the given time and returns how many
// it deleted. The sums of these days remain. Afterwards:
//
//   - A query whose periods divide such a day counts the whole day as used at
//     its beginning.
//   - A record of such a day is counted again if it is recorded again. A
//     Buffer of package usagebuffer repeats records within minutes, so Prune refuses to
//     delete the records of the last 24 hours.
//   - What an end user has used in a calendar month in UTC, all of whose days are
//     such ones, is one sum for each model, so that a million end users need little
//     space. The sum counts as used on the last day of the month on which the user
//     used the model. So a [llmhttp.Quota] of an end user forgets nothing. If it begins
//     within such a month, it may count what was used earlier in that month.
//
// A Store prunes the records that are older than Options.KeepRecords once an hour. SQLite reuses
// the space of deleted records but does not return it to the file system.
func (s *usageStore) Prune(ctx context.Context, before time.Time) (int64, error) {
	if before.After(s.db.now().Add(-day)) {
		return 0, errors.New("sqlstore: pruning records: the time must be at least a day ago")
	}
	limit := dayOf(micros(before))
	if err := s.raiseState(ctx, statePruned, limit); err != nil {
		return 0, s.db.wrapError("pruning records", err)
	}
	deleted, err := s.db.deleteBefore(ctx, "llmhttp_usage_records", "time", limit)
	if err != nil {
		return deleted, s.db.wrapError("pruning records", err)
	}
	return deleted, s.db.wrapError("adding up the usage of end users", s.addUpUserMonths(ctx, limit))
}

// The names of values in llmhttp_state, which are times.
const (
	statePruned     = "pruned"      // records from before it may be missing
	stateUserMonths = "user_months" // addUpUserMonths has been called for the months before it
)

// raiseState sets a value of llmhttp_state unless it is larger. Queries must see that records may
// be missing before the first of them disappears.
func (s *usageStore) raiseState(ctx context.Context, name string, value int64) error {
	return s.db.retry(ctx, s.db.isTransient, func() error {
		_, err := s.db.write.ExecContext(ctx, `
			INSERT INTO llmhttp_state (name, value) VALUES ($1, $2)
			ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE excluded.value > llmhttp_state.value`, name, value)
		return err
	})
}

// readState returns a value of llmhttp_state, or the smallest one if it was not set.
func readState(ctx context.Context, q querier, name string) (value int64, err error) {
	err = q.QueryRowContext(ctx, "SELECT coalesce(max(value), $2) FROM llmhttp_state WHERE name = $1", name, int64(math.MinInt64)).
		Scan(&value)
	return value, err
}

// deleteBefore deletes the rows of a table, whose key is id, with a time in a column that is before
// limit, and returns their number. It deletes up to pruneBatch rows in a transaction.
func (db *database) deleteBefore(ctx context.Context, table, column string, limit int64) (deleted int64, err error) {
	statement := fmt.Sprintf(
		"DELETE FROM %[1]s WHERE id IN (SELECT id FROM %[1]s WHERE %[2]s < $1 LIMIT $2%[3]s)",
		table,
		column,
		db.skipLocked(),
	)
	for n := int64(1); n > 0 && err == nil; deleted += n {
		err = db.retry(ctx, db.isTransient, func() error {
			result, err := db.write.ExecContext(ctx, statement, limit, pruneBatch)
			if err != nil {
				n = 0
				return err
			}
			n, err = result.RowsAffected()
			return err
		})
	}
	return deleted, err
}
