package sqlstore

import (
	"context"
	"crypto/rand"
	"database/sql"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/internal/servertest"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(childRole); role != "" {
		os.Exit(runChild(role))
	}
	status := m.Run()
	servertest.Close()
	os.Exit(status)
}

// databases make the DSN of a database that is empty and of the test alone.
var databases = map[string]func(t testing.TB) string{
	"SQLite":     sqliteDSN,
	"Memory":     func(testing.TB) string { return ":memory:" },
	"PostgreSQL": postgresDSN,
}

func sqliteDSN(t testing.TB) string { return filepath.Join(t.TempDir(), "llm.db") }

// postgresDSN returns that of a schema in the PostgreSQL that tests share.
func postgresDSN(t testing.TB) string {
	return schemaDSN(t, servertest.SharedPostgres(t).DSN())
}

func schemaDSN(t testing.TB, server string) string {
	t.Helper()
	schema := "test_" + strings.ToLower(rand.Text())
	db, err := sql.Open("pgx", server)
	require.NoError(t, err)
	defer db.Close()
	_, err = db.Exec("CREATE SCHEMA " + schema)
	require.NoError(t, err)
	u, err := url.Parse(server)
	require.NoError(t, err)
	q := u.Query()
	q.Set("search_path", schema)
	u.RawQuery = q.Encode()
	return u.String()
}

// forEach runs f with each of databases.
func forEach(t *testing.T, f func(t *testing.T, dsn string)) {
	for name, dsn := range databases {
		t.Run(name, func(t *testing.T) { f(t, dsn(t)) })
	}
}

var quiet = slog.New(slog.DiscardHandler)

// openStore opens a Store that keeps what it is given, and ends with the test.
func openStore(t testing.TB, dsn string, opts *Options) *Store {
	t.Helper()
	if opts == nil {
		opts = &Options{KeepRecords: -1}
	}
	s, err := Open(t.Context(), dsn, opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// eventually waits until f returns true.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// count returns what a query of one number returns.
func count(t testing.TB, s *Store, query string, args ...any) (n int64) {
	t.Helper()
	require.NoError(t, s.read.QueryRowContext(context.WithoutCancel(t.Context()), query, args...).Scan(&n))
	return n
}
