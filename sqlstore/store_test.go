package sqlstore

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/manage"
)

func TestStore_Close(t *testing.T) {
	forEachDatabase(t, func(t *testing.T, dsn string) {
		s, err := Open(t.Context(), dsn, nil)
		require.NoError(t, err)
		info, secret := createKey(t, s, manage.KeyParams{})
		require.NoError(t, s.Ping(t.Context()))
		require.NoError(t, s.Close())
		require.NoError(t, s.Close())
		_, lookup := s.Lookup(t.Context(), secret)
		_, key := s.Key(t.Context(), info.ID)
		_, _, create := s.CreateKey(t.Context(), manage.KeyParams{})
		_, query := s.Query(t.Context(), llmhttp.UsageQuery{Account: "a", To: time.Now()})
		record := s.Record(t.Context(), llmhttp.UsageRecord{ID: "r"})
		for _, err := range []error{lookup, key, create, query, record, s.RevokeKey(t.Context(), info.ID), s.Ping(t.Context())} {
			assert.ErrorContains(t, err, ": the store is closed")
		}
	})
}

func TestOptions_ZeroAndNegative(t *testing.T) {
	for name, test := range map[string]struct{ give, want Options }{
		"zero": {Options{}, Options{
			KeyTTL: 10 * time.Second, KeyCache: 10_000, ReportConns: 2, KeepRecords: 400 * day, MaxResponseBytes: 1 << 30, SecretPrefix: "sk-",
		}},
		"negative": {
			Options{KeyTTL: -1, KeyGrace: -1, KeyCache: -1, ReportConns: -1, KeepRecords: -1, MaxResponseBytes: -1},
			Options{KeyTTL: -1, KeyGrace: -1, KeyCache: -1, ReportConns: -1, KeepRecords: -1, MaxResponseBytes: -1, SecretPrefix: "sk-"},
		},
	} {
		require.NoError(t, test.give.setDefaults(), name)
		assert.Equal(t, test.want, test.give, name)
	}
}

func TestOpen_InvalidSecretPrefix(t *testing.T) {
	for _, prefix := range []string{"sk ", "clé", strings.Repeat("x", 33), "\x00"} {
		_, err := Open(t.Context(), ":memory:", &Options{SecretPrefix: prefix})
		assert.ErrorContains(t, err, "SecretPrefix")
	}
}
