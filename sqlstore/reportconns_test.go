package sqlstore

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/manage"
)

// holdReportConns takes all connections for reports until the test ends.
func holdReportConns(t *testing.T, s *Store) {
	for range s.opts.ReportConns {
		c, err := s.db.report.Conn(t.Context())
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, c.Close()) })
	}
}

// With every connection for reports held, what requests wait for goes on. What people look at waits.
func TestReports_HaveTheirOwnConnections(t *testing.T) {
	forEachSharedDatabase(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, &Options{KeyTTL: -1, ReportConns: 3})
		info, secret := createKey(t, s, manage.KeyParams{Account: "acme"})
		holdReportConns(t, s)
		for range 10 { // more than there are connections
			key, err := s.Lookup(t.Context(), secret)
			require.NoError(t, err)
			assert.Equal(t, info.ID, key.ID)
		}
		now := time.Now()
		require.NoError(t, s.Record(t.Context(), llmhttp.UsageRecord{ID: "1", Account: "acme", KeyID: info.ID, Model: "m", Time: now}))
		quota := llmhttp.UsageQuery{
			Account: "acme", Subject: llmhttp.SubjectID{Kind: llmhttp.KindKey, ID: info.ID}, From: now.Add(-time.Hour), To: now.Add(time.Hour),
		}
		sums, err := s.Query(t.Context(), quota)
		require.NoError(t, err)
		assert.Len(t, sums, 1)
		require.NoError(t, s.Ping(t.Context()))
		_, err = s.Key(t.Context(), info.ID)
		require.NoError(t, err)
		_, _, err = s.KeyBySecret(t.Context(), llmhttp.HashSecret(secret))
		require.NoError(t, err)

		today := now.UTC().Truncate(day)
		report := manage.ReportQuery{From: today, To: today.Add(day)}
		byUser, inSteps := report, quota
		byUser.By, inSteps.Step = manage.ByUser, day
		for name, ask := range map[string]func(context.Context) error{
			"report":           func(ctx context.Context) error { _, err := s.Report(ctx, report); return err },
			"report by user":   func(ctx context.Context) error { _, err := s.Report(ctx, byUser); return err },
			"query with steps": func(ctx context.Context) error { _, err := s.Query(ctx, inSteps); return err },
			"list of keys":     func(ctx context.Context) error { _, err := s.ListKeys(ctx, manage.KeyQuery{}); return err },
			"list of accounts": func(ctx context.Context) error { _, err := s.ListAccounts(ctx, manage.AccountQuery{}); return err },
		} {
			waiting := s.db.report.Stats().InUse
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- ask(ctx) }()
			cancel()
			assert.ErrorIs(t, <-ended, context.Canceled, name)
			assert.Equal(t, waiting, s.db.report.Stats().InUse, name)
		}
	})
}

// Without connections of their own, reports use the others.
func TestReports_SharedConnections(t *testing.T) {
	forEachDatabase(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, &Options{ReportConns: -1})
		assert.Same(t, s.db.read, s.db.report)
	})
}

// A report whose context ends is cancelled in the server, and its connection is used again.
func TestReports_CanceledInPostgres(t *testing.T) {
	s := openStore(t, newPostgres(t), &Options{ReportConns: 1})
	pid := func() (pid int) {
		require.NoError(t, s.db.report.QueryRowContext(t.Context(), "SELECT pg_backend_pid()").Scan(&pid))
		return pid
	}
	before := pid()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- forEachRow(ctx, s.db.report, func(*sql.Rows) error { return nil }, "SELECT pg_sleep(600)")
	}()
	isRunning := func(want bool) {
		require.Eventually(t, func() bool {
			var active bool
			err := s.db.read.QueryRowContext(t.Context(), "SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE pid = $1 AND state = 'active')", before).Scan(&active)
			return err == nil && active == want
		}, time.Minute, 10*time.Millisecond)
	}
	isRunning(true)
	cancel()
	assert.Error(t, <-ended)
	isRunning(false)
	assert.Equal(t, before, pid())
}
