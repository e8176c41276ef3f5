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
	"github.com/llmhttp/llmhttp/manage"
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

func TestUsageReporter(t *testing.T) {
	storetest.TestUsageReporter(t, func(t testing.TB) manage.UsageReporter { return newUsage(t).(*ownstore.UsageStore) })
}

func BenchmarkUsageStore(b *testing.B) { storetest.BenchmarkUsageStore(b, newUsage) }
