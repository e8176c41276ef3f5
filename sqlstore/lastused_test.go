package sqlstore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
)

func TestStore_LastUsed(t *testing.T) {
	forEachDatabase(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, nil)
		used, secret := createKey(t, s, llmhttp.KeyParams{})
		idle, _ := createKey(t, s, llmhttp.KeyParams{})
		lastUsed := func(k llmhttp.KeyInfo) time.Time { return getKey(t, s, k.ID).LastUsed }
		set := func(uses ...keyUse) { require.NoError(t, s.db.setLastUsed(t.Context(), s.db.write, uses)) }

		start := time.Now().Truncate(time.Microsecond)
		lookup(t, s, secret)
		assert.Zero(t, lastUsed(used), "a lookup does not write")
		s.storeLastUsed(t.Context())
		first := lastUsed(used)
		assert.WithinRange(t, first, start, time.Now())
		assert.Zero(t, lastUsed(idle))

		later := micros(first) + lastUsedInterval.Microseconds()
		set(keyUse{used.ID, later - 1}, keyUse{"unknown", 1})
		assert.Equal(t, first, lastUsed(used), "less than lastUsedInterval later")
		set(keyUse{idle.ID, 5}, keyUse{used.ID, later})
		assert.Equal(t, fromMicros(later), lastUsed(used))
		assert.Equal(t, fromMicros(5), lastUsed(idle))
		set(keyUse{used.ID, micros(first)})
		assert.Equal(t, fromMicros(later), lastUsed(used), "an earlier time changes nothing")
	})
}

func TestStore_CloseStoresLastUsed(t *testing.T) {
	forEachSharedDatabase(t, func(t *testing.T, dsn string) {
		s, err := Open(t.Context(), dsn, nil)
		require.NoError(t, err)
		info, secret := createKey(t, s, llmhttp.KeyParams{})
		lookup(t, s, secret)
		require.NoError(t, s.Close())
		assert.NotZero(t, getKey(t, openStore(t, dsn, nil), info.ID).LastUsed)
	})
}
