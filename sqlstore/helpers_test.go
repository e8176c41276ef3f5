package sqlstore

import (
	"bytes"
	"crypto/rand"
	"database/sql"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/servertest"
	"github.com/llmhttp/llmhttp/manage"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(childRole); role != "" {
		os.Exit(runChild(role))
	}
	status := m.Run()
	servertest.Close()
	os.Exit(status)
}

// sharedDatabases create an empty database and return its DSN. Several Stores
// can open the database.
var sharedDatabases = map[string]func(testing.TB) string{
	"SQLite":     newSQLite,
	"PostgreSQL": newPostgres,
}

// databases has the sharedDatabases and the database in memory.
var databases = map[string]func(testing.TB) string{
	"SQLite":     newSQLite,
	"Memory":     func(testing.TB) string { return ":memory:" },
	"PostgreSQL": newPostgres,
}

func newSQLite(t testing.TB) string { return filepath.Join(t.TempDir(), "llm.db") }

// newPostgres creates a schema in the PostgreSQL server that the tests share.
func newPostgres(t testing.TB) string {
	t.Helper()
	server := servertest.SharedPostgres(t).DSN()
	schema := "test_" + strings.ToLower(rand.Text())
	db, err := sql.Open("pgx", server)
	require.NoError(t, err)
	defer db.Close()
	_, err = db.Exec("CREATE SCHEMA " + schema)
	require.NoError(t, err)
	return withParam(t, server, "search_path", schema)
}

func withParam(t testing.TB, dsn, name, value string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	q := u.Query()
	q.Set(name, value)
	u.RawQuery = q.Encode()
	return u.String()
}

func forEachDatabase(t *testing.T, f func(t *testing.T, dsn string)) {
	for name, newDatabase := range databases {
		t.Run(name, func(t *testing.T) { f(t, newDatabase(t)) })
	}
}

func forEachSharedDatabase(t *testing.T, f func(t *testing.T, dsn string)) {
	for name, newDatabase := range sharedDatabases {
		t.Run(name, func(t *testing.T) { f(t, newDatabase(t)) })
	}
}

// openStore opens a Store and closes it at the end of the test. With nil opts
// it keeps all records.
func openStore(t testing.TB, dsn string, opts *Options) *Store {
	t.Helper()
	if opts == nil {
		opts = &Options{KeepRecords: -1}
	}
	s, err := Open(t.Context(), dsn, opts)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

func createKey(t testing.TB, s *Store, params manage.KeyParams) (manage.KeyInfo, string) {
	t.Helper()
	info, secret, err := s.CreateKey(t.Context(), params)
	require.NoError(t, err)
	return info, secret
}

func getKey(t testing.TB, s *Store, id string) manage.KeyInfo {
	t.Helper()
	info, err := s.Key(t.Context(), id)
	require.NoError(t, err)
	return info
}

func lookup(t testing.TB, s *Store, secret string) *llmhttp.Key {
	t.Helper()
	key, err := s.Lookup(t.Context(), secret)
	require.NoError(t, err)
	return key
}

// eventually waits until condition returns true.
func eventually(t testing.TB, condition func() bool, message string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !condition(); time.Sleep(5 * time.Millisecond) {
		require.True(t, time.Now().Before(end), "timeout: %s", message)
	}
}

// queryInt returns the result of a query for one number.
func queryInt(t testing.TB, s *Store, query string, args ...any) (n int64) {
	t.Helper()
	require.NoError(t, s.db.read.QueryRowContext(t.Context(), query, args...).Scan(&n))
	return n
}

var noon = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)

func usageRecord(id, account, model string, at time.Time, prompt int) llmhttp.UsageRecord {
	return llmhttp.UsageRecord{
		ID: id, RequestID: id, Account: account, Model: model, Time: at, KeyID: "key_1", Operation: llmhttp.OperationChat, Protocol: "chat",
		Units: llmhttp.Units{PromptTokens: int64(prompt), CompletionTokens: 1, Images: 2},
	}
}

func mustRecord(t testing.TB, s llmhttp.UsageStore, records ...llmhttp.UsageRecord) {
	t.Helper()
	require.NoError(t, s.Record(t.Context(), records...))
}

func mustQuery(t testing.TB, s llmhttp.UsageStore, q llmhttp.UsageQuery) []llmhttp.UsageSum {
	t.Helper()
	sums, err := s.Query(t.Context(), q)
	require.NoError(t, err)
	return sums
}

// allTime queries the usage of 200 years around noon.
func allTime(account string) llmhttp.UsageQuery {
	return llmhttp.UsageQuery{Account: account, From: noon.AddDate(-100, 0, 0), To: noon.AddDate(100, 0, 0)}
}

func countRequests(sums []llmhttp.UsageSum) (n int64) {
	for _, s := range sums {
		n += s.Requests
	}
	return n
}

// storedIDs returns the IDs of all records. It checks that the sums by day count
// each of them once.
func storedIDs(t testing.TB, s *Store) map[string]bool {
	t.Helper()
	ctx := t.Context()
	var ofKeys, sum, total int64
	ids, err := retryRead(ctx, s.db, func() (map[string]bool, error) {
		ids := make(map[string]bool)
		snapshot := &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}
		err := inTx(ctx, s.db.read, snapshot, func(tx *sql.Tx) error {
			err := forEachRow(ctx, tx, func(rows *sql.Rows) error {
				var id string
				err := rows.Scan(&id)
				ids[id] = true
				return err
			}, "SELECT id FROM llmhttp_usage_records")
			if err != nil {
				return err
			}
			const requests = "(SELECT CAST(coalesce(sum(requests), 0) AS bigint) FROM llmhttp_usage_sums WHERE kind = "
			return tx.QueryRowContext(ctx, "SELECT "+requests+"'key'), "+requests+"'account'), "+requests+"'')").Scan(&ofKeys, &sum, &total)
		})
		return ids, err
	})
	require.NoError(t, err)
	assert.EqualValues(t, len(ids), ofKeys, "requests in the sums of keys")
	assert.EqualValues(t, len(ids), sum, "requests in the sums of accounts")
	assert.EqualValues(t, len(ids), total, "requests in the sums of all accounts")
	return ids
}

// countMissing returns how many of ids are not in set.
func countMissing(ids []string, set map[string]bool) (n int) {
	for _, id := range ids {
		if !set[id] {
			n++
		}
	}
	return n
}

var discardLogger = slog.New(slog.DiscardHandler)

// A logBuffer keeps log output. It is safe for concurrent use.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
