package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/servertest"
	"github.com/llmhttp/llmhttp/manage"
	"github.com/llmhttp/llmhttp/usagebuffer"
)

func TestStore_KilledPostgresLosesNoRecord(t *testing.T) {
	t.Parallel()
	server := servertest.Postgres(t)
	s := openStore(t, server.DSN(), nil)
	const workers = 8
	var recorded [workers][]string
	var total, failed atomic.Int64
	var stop atomic.Bool
	var running sync.WaitGroup
	for w := range workers {
		running.Go(func() {
			for i := 0; !stop.Load(); i++ {
				id := fmt.Sprint(w, "-", i)
				err := s.Record(t.Context(), usageRecord(id, "acme", fmt.Sprint("m", i%3), noon.Add(time.Duration(i)*time.Minute), 1))
				if err != nil {
					failed.Add(1)
					continue
				}
				recorded[w] = append(recorded[w], id)
				total.Add(1)
			}
		})
	}
	await100 := func() {
		before := total.Load()
		eventually(t, func() bool { return total.Load() >= before+100 }, "100 more records are stored")
	}
	for range 2 {
		await100()
		server.Kill(t)
		server.Start(t)
		await100()
	}
	stop.Store(true)
	running.Wait()
	ids, lost := storedIDs(t, s), 0
	for _, list := range recorded {
		lost += countMissing(list, ids)
	}
	t.Logf("recorded: %d; failed: %d; lost: %d", total.Load(), failed.Load(), lost)
	assert.Zero(t, lost)
}

// Credit that was added survives that PostgreSQL is killed, and counts once although what has
// failed is repeated.
func TestStore_KilledPostgresKeepsCredit(t *testing.T) {
	t.Parallel()
	server := servertest.Postgres(t)
	s := openStore(t, server.DSN(), nil)
	createAccount(t, s, "acme", manage.AccountParams{Prepaid: true})
	const workers = 4
	var added, failed atomic.Int64
	var stop atomic.Bool
	var running sync.WaitGroup
	for w := range workers {
		running.Go(func() {
			for i := 0; !stop.Load(); i++ {
				e := manage.CreditEntry{ID: fmt.Sprint(w, "-", i), Account: "acme", Amount: 3}
				for {
					if _, err := s.AddCredit(t.Context(), e); err == nil {
						break
					}
					failed.Add(1)
				}
				added.Add(1)
			}
		})
	}
	await50 := func() {
		before := added.Load()
		eventually(t, func() bool { return added.Load() >= before+50 }, "50 more entries are added")
	}
	for range 2 {
		await50()
		server.Kill(t)
		server.Start(t)
		await50()
	}
	stop.Store(true)
	running.Wait()
	info, err := s.Account(t.Context(), "acme")
	require.NoError(t, err)
	t.Logf("added: %d; failed: %d", added.Load(), failed.Load())
	assert.EqualValues(t, 3*added.Load(), info.Credit)
	assert.EqualValues(t, added.Load(), queryInt(t, s, "SELECT count(*) FROM llmhttp_credit"))
	assert.EqualValues(t, 3*added.Load(), queryInt(t, s, "SELECT sum(amount) FROM llmhttp_credit"))
}

func TestBuffer_UnavailablePostgres(t *testing.T) {
	t.Parallel()
	server := servertest.Postgres(t)
	var log logBuffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	s := openStore(t, server.DSN(), &Options{KeepRecords: -1, Logger: logger})
	b := usagebuffer.New(s, &usagebuffer.Options{BatchSize: 100, Delay: 10 * time.Millisecond, Logger: logger})
	const capacity = 10_000 // of a buffer with batches of 100
	next := 0
	record := func(n int) error {
		records := make([]llmhttp.UsageRecord, n)
		for i := range records {
			records[i] = usageRecord(fmt.Sprint(next), "acme", "m", noon, 1)
			next++
		}
		return b.Record(t.Context(), records...)
	}
	require.NoError(t, record(250))
	eventually(t, func() bool { return queryInt(t, s, "SELECT count(*) FROM llmhttp_usage_records") == 250 }, "all records are stored")

	server.Kill(t)
	require.NoError(t, record(capacity), "the buffer does not wait for the database")
	require.ErrorIs(t, record(5), usagebuffer.ErrDropped)

	server.Start(t)
	require.NoError(t, b.Close(context.WithoutCancel(t.Context())))
	assert.Len(t, storedIDs(t, s), 250+capacity)
	assert.NotContains(t, log.String(), "password")
}

func TestStore_LookupWhilePostgresIsUnavailable(t *testing.T) {
	t.Parallel()
	server := servertest.Postgres(t, servertest.Args("-c", "fsync=off"))
	var log logBuffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	withGrace := openStore(t, server.DSN(), &Options{KeyTTL: -1, KeyGrace: time.Hour, Logger: logger})
	withoutGrace := openStore(t, server.DSN(), &Options{KeyTTL: -1, Logger: logger})
	info, secret := createKey(t, withGrace, manage.KeyParams{Account: "acme"})
	lookup(t, withGrace, secret)
	lookup(t, withoutGrace, secret)

	server.Kill(t)
	assert.Equal(t, &info.Key, lookup(t, withGrace, secret))
	_, err := withGrace.Lookup(t.Context(), "sk-unknown")
	require.Error(t, err)
	require.NotErrorIs(t, err, llmhttp.ErrKeyNotFound)
	_, err = withoutGrace.Lookup(t.Context(), secret)
	require.Error(t, err)
	require.NotErrorIs(t, err, llmhttp.ErrKeyNotFound)
	require.Error(t, withoutGrace.Ping(t.Context()))
	assert.Contains(t, log.String(), "serving cached keys")
	assert.NotContains(t, log.String(), secret)

	server.Start(t)
	require.NoError(t, withoutGrace.RevokeKey(t.Context(), info.ID))
	eventually(t, func() bool {
		_, err := withGrace.Lookup(t.Context(), secret)
		return errors.Is(err, llmhttp.ErrKeyNotFound)
	}, "the revoked key is refused")

	// A server that hangs delays only the first of many lookups.
	_, secret = createKey(t, withGrace, manage.KeyParams{})
	lookup(t, withGrace, secret)
	server.Pause(t)
	defer server.Resume(t)
	for range 100 {
		lookup(t, withGrace, secret)
	}
}

// TestStore_LostIdleConnections terminates all idle connections before each
// call. The call must succeed nevertheless.
func TestStore_LostIdleConnections(t *testing.T) {
	t.Parallel()
	server := servertest.Postgres(t, servertest.Args("-c", "fsync=off"))
	s := openStore(t, server.DSN()+"&pool_max_conns=8", nil)
	admin := openStore(t, server.DSN()+"&application_name=admin", nil)
	createAccount(t, admin, "acme", manage.AccountParams{})
	for name, call := range map[string]func() error{
		"Lookup":   func() error { _, err := s.Lookup(t.Context(), "sk-unknown"); return err },
		"ListKeys": func() error { _, err := s.ListKeys(t.Context(), manage.KeyQuery{}); return err },
		"Key":      func() error { _, err := s.Key(t.Context(), "key_x"); return err },
		"Account":  func() error { _, err := s.Account(t.Context(), "acme"); return err },
		"AddCredit": func() error {
			_, err := s.AddCredit(t.Context(), manage.CreditEntry{ID: "a", Account: "acme", Amount: 1})
			return err
		},
		"Query of days": func() error { _, err := s.Query(t.Context(), allTime("acme")); return err },
		"Query of an hour": func() error {
			_, err := s.Query(t.Context(), llmhttp.UsageQuery{From: noon, To: noon.Add(time.Hour)})
			return err
		},
		"Record": func() error { return s.Record(t.Context(), usageRecord("1", "acme", "m", noon, 1)) },
	} {
		s.db.discardIdle() // the call before has noticed that of one pool only
		conns := make([]*sql.Conn, 8+defaultReportConns)
		var running sync.WaitGroup
		for i := range conns {
			pool := s.db.read
			if i >= 8 {
				pool = s.db.report
			}
			running.Go(func() {
				var err error
				conns[i], err = pool.Conn(t.Context())
				assert.NoError(t, err)
			})
		}
		running.Wait()
		for _, c := range conns {
			require.NoError(t, c.Close())
		}
		const sessions = " FROM pg_stat_activity WHERE application_name = 'llmhttp'"
		assert.EqualValues(t, len(conns), queryInt(t, admin, "SELECT count(pg_terminate_backend(pid))"+sessions))
		eventually(t, func() bool { return queryInt(t, admin, "SELECT count(*)"+sessions) == 0 }, "the sessions end")
		if err := call(); !errors.Is(err, llmhttp.ErrKeyNotFound) {
			assert.NoError(t, err, name)
		}
	}
}
