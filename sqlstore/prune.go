package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

const pruneBatch = 5000

// Prune removes the records of the days of UTC that ended before the given
// time, and returns how many those were. The sums of these days stay. From
// then on
//
//   - queries whose periods divide such a day count it as used when it began;
//   - a record of such a day whose ID was stored before is not skipped any more
//     and counts again. A [llmhttp.UsageBuffer] repeats records within minutes,
//     which is why those of the last day cannot be pruned.
//
// A Store prunes by itself, every hour, what is older than
// Options.KeepRecords. SQLite uses the space again, and does not give it back.
func (s *Store) Prune(ctx context.Context, before time.Time) (int64, error) {
	if before.After(s.now().Add(-day)) {
		return 0, errors.New("sqlstore: Prune: the time must be at least a day ago")
	}
	limit := dayOf(micros(before))
	// First, so that no query counts what is about to go.
	err := s.retry(ctx, s.isTransient, func() error {
		_, err := s.write.ExecContext(ctx, `
			INSERT INTO llmhttp_state (name, value) VALUES ('pruned', $1)
			ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE excluded.value > llmhttp_state.value`, limit)
		return err
	})
	if err != nil {
		return 0, s.fail("pruning records", err)
	}
	var total int64
	for {
		var n int64
		err := s.retry(ctx, s.isTransient, func() error {
			return inTx(ctx, s.write, nil, func(tx *sql.Tx) error {
				result, err := tx.ExecContext(ctx, `
					DELETE FROM llmhttp_usage_records WHERE id IN (
						SELECT id FROM llmhttp_usage_records WHERE time < $1 LIMIT $2`+s.skipLocked()+`)`, limit, pruneBatch)
				if err != nil {
					return err
				}
				n, err = result.RowsAffected()
				return err
			})
		})
		if err != nil {
			return total, s.fail("pruning records", err)
		}
		if total += n; n == 0 {
			return total, nil
		}
	}
}

// pruneOld prunes what is older than the options say.
func (s *Store) pruneOld() {
	if s.opts.KeepRecords < 0 {
		return
	}
	n, err := s.Prune(s.ctx, s.now().Add(-max(s.opts.KeepRecords, day)))
	switch {
	case s.ctx.Err() != nil:
	case err != nil:
		s.log().Error("usage records not pruned", "error", err)
	case n > 0:
		s.log().Info("usage records pruned", "records", n)
	}
}
