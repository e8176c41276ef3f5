package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/manage"
)

// A conflictCounter is a dialect that counts conflicts.
type conflictCounter struct {
	dialect
	conflicts  atomic.Int64
	onConflict func() // called for each conflict, if not nil
}

func (d *conflictCounter) isConflict(err error) bool {
	if !d.dialect.isConflict(err) {
		return false
	}
	d.conflicts.Add(1)
	if d.onConflict != nil {
		d.onConflict()
	}
	return true
}

func countConflicts(s *Store) *conflictCounter {
	d := &conflictCounter{dialect: s.db.dialect}
	s.db.dialect = d
	return d
}

func TestStore_RetriesSerializationFailures(t *testing.T) {
	s := openStore(t, newPostgres(t)+"&default_transaction_isolation=serializable", nil)
	counter := countConflicts(s)
	var n atomic.Int64
	eventually(t, func() bool {
		var running sync.WaitGroup
		for range 4 {
			running.Go(func() {
				for range 10 {
					assert.NoError(t, s.Record(t.Context(), usageRecord(fmt.Sprint(n.Add(1)), "acme", "m", noon, 1)))
				}
			})
		}
		running.Wait()
		return counter.conflicts.Load() > 0
	}, "a serialization failure")
	assert.Equal(t, n.Load(), countRequests(mustQuery(t, s, allTime("acme"))))
}

func TestStore_RetriesDeadlocks(t *testing.T) {
	dsn := newPostgres(t)
	s := openStore(t, dsn+"&deadlock_timeout=10ms", nil)
	counter := countConflicts(s)
	other := openStore(t, dsn, nil)
	lock := func(tx *sql.Tx, model string) error {
		_, err := tx.Exec("UPDATE llmhttp_usage_sums SET images = images WHERE model = $1", model)
		return err
	}
	record := func(round int) error {
		return s.Record(context.WithoutCancel(t.Context()),
			usageRecord(fmt.Sprint(round, "-1"), "acme", "m1", noon, 1),
			usageRecord(fmt.Sprint(round, "-2"), "acme", "m2", noon, 1))
	}
	require.NoError(t, record(0))
	rounds := 1
	eventually(t, func() bool {
		tx, err := other.db.write.Begin()
		require.NoError(t, err)
		defer tx.Rollback()
		require.NoError(t, lock(tx, "m2"))
		recorded := make(chan error)
		go func() { recorded <- record(rounds) }() // locks m1 and waits for m2
		eventually(t, func() bool {
			return queryInt(t, other, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%INSERT INTO llmhttp_usage_records%'") > 0
		}, "Record waits for the lock")
		// PostgreSQL makes one of the two transactions fail.
		if err := lock(tx, "m1"); err != nil {
			assert.True(t, other.db.isConflict(err), err)
		}
		require.NoError(t, tx.Rollback())
		require.NoError(t, <-recorded)
		rounds++
		return counter.conflicts.Load() > 0
	}, "a deadlock makes Record fail")
	assert.EqualValues(t, 2*rounds, countRequests(mustQuery(t, s, allTime("acme"))))
}

func TestStore_SQLiteWriterWaitsForOtherStore(t *testing.T) {
	dsn := newSQLite(t)
	s, other := openStore(t, dsn, nil), openStore(t, dsn, nil)
	counter := countConflicts(s)
	tx, err := other.db.write.Begin()
	require.NoError(t, err)
	defer tx.Rollback()

	ctx, cancel := context.WithCancel(t.Context())
	counter.onConflict = cancel
	require.ErrorIs(t, s.Record(ctx, usageRecord("1", "acme", "m", noon, 1)), context.Canceled)
	assert.EqualValues(t, 1, counter.conflicts.Load(), "Record stops when its context ends")
	assert.Empty(t, mustQuery(t, s, allTime("acme")), "readers do not wait")

	counter.onConflict = func() { _ = tx.Rollback() }
	require.NoError(t, s.Record(t.Context(), usageRecord("1", "acme", "m", noon, 1)))
	assert.EqualValues(t, 2, counter.conflicts.Load())
	assert.EqualValues(t, 1, countRequests(mustQuery(t, s, allTime("acme"))))
}

func TestStore_SQLiteFull(t *testing.T) {
	for _, journal := range []string{"wal", "delete"} {
		t.Run(journal, func(t *testing.T) {
			s := openStore(t, "file:"+newSQLite(t)+"?_pragma=max_page_count(40)&_pragma=synchronous(0)&_pragma=journal_mode("+journal+")", nil)
			var recorded int64
			// fill records until there is an error.
			fill := func() (err error) {
				for err == nil && recorded < 100_000 {
					var batch []llmhttp.UsageRecord
					for i := range int64(20) {
						batch = append(batch, usageRecord(fmt.Sprint(recorded+i), "acme", "m", noon, 1))
					}
					if err = s.Record(t.Context(), batch...); err == nil {
						recorded += 20
					}
				}
				return err
			}
			for range 2 {
				before := recorded
				for range 3 {
					require.ErrorContains(t, fill(), "full")
				}
				assert.Greater(t, recorded, before)
				assert.Equal(t, recorded, countRequests(mustQuery(t, s, allTime("acme"))))
				_, err := s.Prune(t.Context(), noon.Add(day))
				require.NoError(t, err)
			}
			assert.Equal(t, recorded, countRequests(mustQuery(t, s, allTime("acme"))))
		})
	}
}

// TestStore_InterruptedCalls interrupts calls at random moments. They must
// return the error of the context, change all or nothing, and leave the
// connections usable.
func TestStore_InterruptedCalls(t *testing.T) {
	forEachDatabase(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, &Options{KeyTTL: -1, KeepRecords: -1})
		info, secret := createKey(t, s, manage.KeyParams{Account: "acme"})
		const batchSize = 20
		calls := []func(ctx context.Context, id string) error{
			func(ctx context.Context, id string) error {
				var batch []llmhttp.UsageRecord
				for i := range batchSize {
					batch = append(batch, usageRecord(fmt.Sprint(id, "-", i), "acme", "m", noon, 1))
				}
				return s.Record(ctx, batch...)
			},
			func(ctx context.Context, _ string) error {
				_, err := s.Query(ctx, llmhttp.UsageQuery{Account: "acme", From: noon.Add(-time.Hour), To: noon.Add(time.Hour)})
				return err
			},
			func(ctx context.Context, _ string) error {
				_, err := s.UpdateKey(ctx, info.ID, func(p *manage.KeyParams) error { p.Limits.Concurrent++; return nil })
				return err
			},
			func(ctx context.Context, _ string) error {
				_, _, err := s.RotateKey(ctx, info.ID, time.Hour)
				return err
			},
			func(ctx context.Context, _ string) error { _, err := s.Lookup(ctx, secret); return err },
			func(ctx context.Context, _ string) error { _, err := s.ListKeys(ctx, manage.KeyQuery{}); return err },
			func(ctx context.Context, _ string) error {
				_, err := s.Prune(ctx, noon.Add(-100*day))
				return err
			},
		}
		var running sync.WaitGroup
		for w := range 4 {
			running.Go(func() {
				for i := range 20 * len(calls) {
					ctx, cancel := context.WithTimeout(t.Context(), rand.N(3*time.Millisecond))
					err := calls[i%len(calls)](ctx, fmt.Sprint(w, "-", i))
					cancel()
					if !errors.Is(err, context.DeadlineExceeded) {
						assert.NoError(t, err)
					}
				}
			})
		}
		running.Wait()
		for i, call := range calls {
			expired, cancel := context.WithTimeout(t.Context(), 0)
			assert.ErrorIs(t, call(expired, fmt.Sprint("expired", i)), context.DeadlineExceeded)
			cancel()
			assert.NoError(t, call(t.Context(), fmt.Sprint("after", i)))
		}
		assert.Zero(t, len(storedIDs(t, s))%batchSize, "each batch is stored as a whole or not at all")
	})
}
