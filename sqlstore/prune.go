package sqlstore

import (
	"context"
	"errors"
	"time"
)

// pruneBatch is the maximum number of records that one transaction deletes.
const pruneBatch = 5000

// Prune deletes the records of the UTC days that ended before the given time
// and returns how many it deleted. The sums of these days remain. Afterwards:
//
//   - A query whose periods divide such a day counts the whole day as used at
//     its beginning.
//   - A record of such a day is counted again if it is recorded again. A
//     [llmhttp.UsageBuffer] repeats records within minutes, so Prune refuses to
//     delete the records of the last 24 hours.
//
// A Store prunes the records that are older than Options.KeepRecords once an
// hour. SQLite reuses the space of deleted records but does not return it to
// the file system.
func (s *usageStore) Prune(ctx context.Context, before time.Time) (int64, error) {
	if before.After(s.db.now().Add(-day)) {
		return 0, errors.New("sqlstore: pruning records: the time must be at least a day ago")
	}
	limit := dayOf(micros(before))
	if err := s.setPruned(ctx, limit); err != nil {
		return 0, s.db.wrapError("pruning records", err)
	}
	var deleted int64
	for {
		n, err := s.deleteRecords(ctx, limit)
		deleted += n
		if err != nil || n == 0 {
			return deleted, s.db.wrapError("pruning records", err)
		}
	}
}

// setPruned stores that records from before limit may be missing. Queries must
// see that before the first record disappears.
func (s *usageStore) setPruned(ctx context.Context, limit int64) error {
	return s.db.retry(ctx, s.db.isTransient, func() error {
		_, err := s.db.write.ExecContext(ctx, `
			INSERT INTO llmhttp_state (name, value) VALUES ('pruned', $1)
			ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE excluded.value > llmhttp_state.value`, limit)
		return err
	})
}

// deleteRecords deletes up to pruneBatch records from before limit and returns
// how many it deleted.
func (s *usageStore) deleteRecords(ctx context.Context, limit int64) (n int64, err error) {
	err = s.db.retry(ctx, s.db.isTransient, func() error {
		result, err := s.db.write.ExecContext(ctx, `
			DELETE FROM llmhttp_usage_records WHERE id IN (
				SELECT id FROM llmhttp_usage_records WHERE time < $1 LIMIT $2`+s.db.skipLocked()+`)`, limit, pruneBatch)
		if err != nil {
			return err
		}
		n, err = result.RowsAffected()
		return err
	})
	return n, err
}
