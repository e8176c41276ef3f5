// Claims of quota events.

package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

// ClaimQuotaEvent implements [quotawatch.EventStore]. The times of leases are those of the
// processes, whose clocks must not differ by more than a lease. A Store deletes the events that
// need not be kept once an hour.
func (s *usageStore) ClaimQuotaEvent(
	ctx context.Context,
	id string,
	lease time.Duration,
	keep time.Time,
) (claimed bool, wait time.Duration, err error) {
	err = s.db.retry(ctx, s.db.isTransient, func() (err error) {
		claimed, wait, err = s.claimQuotaEvent(ctx, storedName(id), lease, keep)
		return err
	})
	return claimed, wait, s.db.wrapError("claiming a quota event", err)
}

func (s *usageStore) claimQuotaEvent(
	ctx context.Context,
	id string,
	lease time.Duration,
	keep time.Time,
) (claimed bool, wait time.Duration, err error) {
	now := s.db.now()
	// Most events of which a process asks were handled, and reading takes no lock.
	if free, wait, err := s.readQuotaEvent(ctx, s.db.read, id, now); err != nil || !free {
		return false, wait, err
	}
	result, err := s.db.write.ExecContext(ctx, `
		INSERT INTO llmhttp_quota_events (id, claimed, keep) VALUES ($1, $2, $3)
		ON CONFLICT (id) DO UPDATE SET claimed = excluded.claimed, keep = excluded.keep WHERE llmhttp_quota_events.claimed <= $4`,
		id, micros(now.Add(lease)), encodeTime(keep), micros(now))
	if err != nil {
		return false, 0, err
	}
	if n, err := result.RowsAffected(); err != nil || n > 0 {
		return err == nil, 0, err
	}
	// Another process was faster. It may have ended its claim meanwhile.
	free, wait, err := s.readQuotaEvent(ctx, s.db.write, id, now)
	if free {
		wait = minRetryDelay
	}
	return false, wait, err
}

// readQuotaEvent reports whether an event can be claimed. If not, wait is the time until its claim
// lapses, and zero if it was handled.
func (s *usageStore) readQuotaEvent(ctx context.Context, db *sql.DB, id string, now time.Time) (free bool, wait time.Duration, err error) {
	var claimed sql.NullInt64
	err = db.QueryRowContext(ctx, "SELECT claimed FROM llmhttp_quota_events WHERE id = $1", id).Scan(&claimed)
	if errors.Is(err, sql.ErrNoRows) {
		return true, 0, nil
	}
	if err != nil || !claimed.Valid {
		return false, 0, err
	}
	wait = fromMicros(claimed.Int64).Sub(now)
	return wait <= 0, max(wait, 0), nil
}

// EndQuotaEvent implements [quotawatch.EventStore].
func (s *usageStore) EndQuotaEvent(ctx context.Context, id string, handled bool) error {
	claimed := sql.NullInt64{Valid: !handled} // a claim that lapsed in 1970
	err := s.db.retry(ctx, s.db.isTransient, func() error {
		_, err := s.db.write.ExecContext(
			ctx,
			"UPDATE llmhttp_quota_events SET claimed = $2 WHERE id = $1 AND claimed IS NOT NULL",
			storedName(id),
			claimed,
		)
		return err
	})
	return s.db.wrapError("ending the claim of a quota event", err)
}

// pruneQuotaEvents deletes the events that need not be kept, and returns their number.
func (s *usageStore) pruneQuotaEvents(ctx context.Context) (int64, error) {
	n, err := s.db.deleteBefore(ctx, "llmhttp_quota_events", "keep", micros(s.db.now()))
	return n, s.db.wrapError("pruning quota events", err)
}
