package sqlstore

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/servertest"
)

// PostgreSQL is killed while many record. What was recorded is there, once.
func TestKillPostgres(t *testing.T) {
	t.Parallel()
	server := servertest.Postgres(t)
	dsn := server.DSN()
	s := openStore(t, dsn, nil)
	var mu sync.Mutex
	var recorded []string
	failed := 0
	progress := func() (int, int) {
		mu.Lock()
		defer mu.Unlock()
		return len(recorded), failed
	}
	stop := make(chan struct{})
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				id := fmt.Sprint(w, "-", i)
				err := s.Record(t.Context(), newRecord(id, "acme", fmt.Sprint("m", i%3), noon.Add(time.Duration(i)*time.Minute), 1))
				mu.Lock()
				if err == nil {
					recorded = append(recorded, id)
				} else {
					failed++
				}
				mu.Unlock()
			}
		})
	}
	for range 2 {
		before, _ := progress()
		more := func() bool { n, _ := progress(); return n >= before+100 }
		eventually(t, "100 records", more)
		server.Kill(t)
		server.Start(t)
		before, _ = progress()
		eventually(t, "100 records more", more)
	}
	close(stop)
	all.Wait()
	ids := stored(t, s)
	lost := without(recorded, ids)
	t.Logf("recorded while PostgreSQL was killed twice: %d; refused: %d; lost: %d; stored of what was refused: %d", len(recorded), failed, lost, len(ids)+lost-len(recorded))
	assert.Zero(t, lost)
}

// A database that is away for a while loses nothing that a buffer holds, which
// says what it cannot hold, and keeps nobody waiting.
func TestPostgresAway(t *testing.T) {
	t.Parallel()
	server := servertest.Postgres(t)
	var log lockedBuilder
	s := openStore(t, server.DSN(), &Options{KeepRecords: -1, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	b := llmhttp.NewUsageBuffer(s, 100, 10*time.Millisecond)
	b.Logger = s.opts.Logger
	const limit = 10_000 // what such a buffer holds
	next := 0
	record := func(n int) error {
		records := make([]llmhttp.UsageRecord, n)
		for i := range records {
			records[i] = newRecord(fmt.Sprint(next), "acme", "m", noon, 1)
			next++
		}
		start := time.Now()
		err := b.Record(t.Context(), records...)
		assert.Less(t, time.Since(start), 5*time.Second, "nobody waits for the database")
		return err
	}
	require.NoError(t, record(250))
	eventually(t, "records stored", func() bool { return count(t, s, "SELECT count(*) FROM llmhttp_usage_records") == 250 })
	server.Kill(t)
	require.NoError(t, record(limit))
	err := record(5)
	require.ErrorIs(t, err, llmhttp.ErrUsageDropped)
	assert.ErrorContains(t, err, "5 records, 5 in all")
	server.Start(t)
	require.NoError(t, b.Close(context.WithoutCancel(t.Context())))
	ids := stored(t, s)
	t.Logf("recorded: %d; of these while PostgreSQL was away: %d; refused: 5; stored: %d", next-5, limit, len(ids))
	assert.Len(t, ids, 250+limit)
	assert.NotContains(t, log.String(), "password")
}

// Keys that were found are served for a while when the database is away, and
// that it is does not cost each request seconds.
func TestKeysWhileAway(t *testing.T) {
	t.Parallel()
	server := servertest.Postgres(t, servertest.Args("-c", "fsync=off"))
	var log lockedBuilder
	logger := slog.New(slog.NewTextHandler(&log, nil))
	graceful := openStore(t, server.DSN(), &Options{KeyTTL: -1, KeyGrace: time.Hour, Logger: logger})
	strict := openStore(t, server.DSN(), &Options{KeyTTL: -1, Logger: logger})
	info, secret, err := graceful.CreateKey(t.Context(), KeyParams{Account: "acme"})
	require.NoError(t, err)
	for _, s := range []*Store{graceful, strict} {
		_, err := s.Lookup(t.Context(), secret)
		require.NoError(t, err)
	}
	server.Kill(t)
	key, err := graceful.Lookup(t.Context(), secret)
	require.NoError(t, err)
	assert.Equal(t, &info.Key, key)
	_, err = graceful.Lookup(t.Context(), "sk-unknown")
	require.Error(t, err)
	require.NotErrorIs(t, err, llmhttp.ErrKeyNotFound, "nobody knows")
	_, err = strict.Lookup(t.Context(), secret)
	require.Error(t, err)
	require.NotErrorIs(t, err, llmhttp.ErrKeyNotFound)
	require.Error(t, strict.Ping(t.Context()))
	assert.Contains(t, log.String(), "keys are served as they were")
	assert.NotContains(t, log.String(), secret)

	server.Start(t)
	require.NoError(t, strict.RevokeKey(t.Context(), info.ID))
	eventually(t, "the revocation", func() bool {
		_, err := graceful.Lookup(t.Context(), secret)
		return err != nil
	})
	_, err = graceful.Lookup(t.Context(), secret)
	require.ErrorIs(t, err, llmhttp.ErrKeyNotFound)

	// One that hangs is waited for as long as readTimeout, once a second.
	_, secret, err = graceful.CreateKey(t.Context(), KeyParams{})
	require.NoError(t, err)
	_, err = graceful.Lookup(t.Context(), secret)
	require.NoError(t, err)
	server.Pause(t)
	defer server.Resume(t)
	for range 100 {
		_, err = graceful.Lookup(t.Context(), secret)
		require.NoError(t, err)
	}
}

// Connections that were lost while they were idle cost no reader anything,
// however many there were.
func TestLostConnections(t *testing.T) {
	t.Parallel()
	server := servertest.Postgres(t, servertest.Args("-c", "fsync=off"))
	s := openStore(t, server.DSN()+"&pool_max_conns=8", nil)
	admin := openStore(t, server.DSN()+"&application_name=admin", nil)
	for i, read := range []func() error{
		func() error {
			_, err := s.Lookup(t.Context(), "sk-unknown")
			return ignore(err, llmhttp.ErrKeyNotFound)
		},
		func() error { _, err := s.ListKeys(t.Context(), KeyQuery{}); return err },
		func() error { _, err := s.Key(t.Context(), "key_x"); return ignore(err, llmhttp.ErrKeyNotFound) },
		func() error { _, err := s.Query(t.Context(), always("acme")); return err },
		func() error {
			_, err := s.Query(t.Context(), llmhttp.UsageQuery{Account: "acme", From: noon, To: noon.Add(time.Hour)})
			return err
		},
		func() error { return s.Record(t.Context(), newRecord("1", "acme", "m", noon, 1)) },
	} {
		var all sync.WaitGroup
		var used [8]*sql.Conn
		for c := range used {
			all.Go(func() {
				var err error
				used[c], err = s.read.Conn(t.Context())
				assert.NoError(t, err)
			})
		}
		all.Wait()
		for _, c := range used {
			require.NoError(t, c.Close())
		}
		const sessions = " FROM pg_stat_activity WHERE application_name = 'llmhttp'"
		assert.EqualValues(t, len(used), count(t, admin, "SELECT count(pg_terminate_backend(pid))"+sessions))
		eventually(t, "the end of all", func() bool { return count(t, admin, "SELECT count(*)"+sessions) == 0 })
		assert.NoError(t, read(), i)
	}
}

// ignore returns err, unless it is what.
func ignore(err, what error) error {
	if errors.Is(err, what) {
		return nil
	}
	return err
}

func TestWrongPassword(t *testing.T) {
	t.Parallel()
	server := servertest.Postgres(t, servertest.Args("-c", "fsync=off"))
	admin := openStore(t, server.DSN(), nil)
	for _, statement := range []string{
		"CREATE USER host PASSWORD 'hunter2'",
		"COPY (SELECT 'host all host 127.0.0.1/32 scram-sha-256') TO PROGRAM 'cat >pg_hba.conf'",
		"SELECT pg_reload_conf()",
	} {
		_, err := admin.write.Exec(statement)
		require.NoError(t, err)
	}
	dsn := strings.Replace(server.DSN(), "postgres@", "host:hunter3@", 1)
	eventually(t, "a refusal", func() bool {
		s, err := Open(t.Context(), dsn, nil)
		if err == nil {
			s.Close()
			return false
		}
		assert.NotContains(t, err.Error(), "hunter")
		return strings.Contains(err.Error(), "password authentication failed")
	})
}

func TestEncoding(t *testing.T) {
	dsn := postgresDSN(t)
	s := openStore(t, dsn, nil)
	name := "latin1_" + strings.ToLower(rand.Text())
	_, err := s.write.Exec("CREATE DATABASE " + name + " ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
	require.NoError(t, err)
	_, err = Open(t.Context(), strings.Replace(dsn, "/postgres?", "/"+name+"?", 1), nil)
	assert.EqualError(t, err, "sqlstore: the database's encoding is LATIN1, and must be UTF8")
}

// A lockedBuilder is a strings.Builder for several goroutines.
type lockedBuilder struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuilder) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuilder) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
