package ownstore_test

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/examples/ownstore"
	"github.com/llmhttp/llmhttp/llmhttptest/storetest"
)

// openDB returns a new database.
func openDB(t testing.TB) *sql.DB {
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "test.db")+"?_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)")
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	db.SetMaxOpenConns(1)
	return db
}

func newUsage(t testing.TB) llmhttp.UsageStore {
	usage, err := ownstore.OpenUsage(t.Context(), openDB(t))
	require.NoError(t, err)
	return usage
}

func TestUsageStore(t *testing.T) { storetest.TestUsageStore(t, newUsage) }

func BenchmarkUsageStore(b *testing.B) { storetest.BenchmarkUsageStore(b, newUsage) }
