package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/sqlstore"
)

// The last day of a report is that of --to, as in the console. Usage by day needs no account.
func TestUsage_Days(t *testing.T) {
	dsn := filepath.Join(t.TempDir(), "llm.db")
	s, err := sqlstore.Open(t.Context(), dsn, &sqlstore.Options{KeepRecords: -1})
	require.NoError(t, err)
	first := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	for i, at := range []time.Time{first, first.Add(day - 1000), first.Add(day), first.Add(2*day - 1000), first.Add(2 * day)} {
		account := []string{"a", "b"}[i%2]
		require.NoError(t, s.Record(t.Context(), llmhttp.UsageRecord{ID: account + at.String(), Account: account, Model: "m", Time: at}))
	}
	require.NoError(t, s.Close())
	for want, args := range map[string][]string{
		"2026-03-01: 2":                               {"--from", "2026-03-01", "--to", "2026-03-01"},
		"2026-03-01: 2; 2026-03-02: 2":                {"--from", "2026-03-01", "--to", "2026-03-02"},
		"2026-03-01: 2; 2026-03-02: 2; 2026-03-03: 1": {"--to", "2026-03-03"},
		"2026-03-01: 1; 2026-03-02: 1":                {"--to", "2026-03-02", "--account", "b"},
		"":                                            {"--to", "2026-02-28"},
	} {
		stdout, stderr, status := runProcess(t, dsn, append([]string{"usage", "--by", "day", "--totals", "--csv"}, args...)...)
		require.Zero(t, status, stderr)
		var got []string
		for _, line := range strings.Split(strings.TrimSpace(stdout), "\n")[1:] { // after the header
			values := strings.Split(line, ",")
			got = append(got, values[0]+": "+values[1])
		}
		assert.Equal(t, want, strings.Join(got, "; "), args)
	}
}
