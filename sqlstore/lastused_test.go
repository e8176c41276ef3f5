package sqlstore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/manage"
)

func TestStore_LastUsed(t *testing.T) {
	forEachDatabase(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, nil)
		used, secret := createKey(t, s, manage.KeyParams{})
		idle, _ := createKey(t, s, manage.KeyParams{})
		lastUsed := func(k manage.KeyInfo) time.Time { // as stored
			info, err := readKey(t.Context(), s.db.read, k.ID, "")
			require.NoError(t, err)
			return info.LastUsed
		}
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

// A use is in what the same process reads before it is stored.
func TestStore_LastUsedIsKnownAtOnce(t *testing.T) {
	forEachDatabase(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, nil)
		start := time.Now().Truncate(time.Microsecond)
		info, secret := createKey(t, s, manage.KeyParams{Account: "just-used"})
		assert.Zero(t, getKey(t, s, info.ID).LastUsed)
		lookup(t, s, secret)
		assert.WithinRange(t, getKey(t, s, info.ID).LastUsed, start, time.Now())
		page, err := s.ListKeys(t.Context(), manage.KeyQuery{Account: "just-used"})
		require.NoError(t, err)
		require.Len(t, page, 1)
		assert.WithinRange(t, page[0].LastUsed, start, time.Now())
		s.storeLastUsed(t.Context())
		assert.WithinRange(t, getKey(t, s, info.ID).LastUsed, start, time.Now())
	})
}

func TestStore_CloseStoresLastUsed(t *testing.T) {
	forEachSharedDatabase(t, func(t *testing.T, dsn string) {
		s, err := Open(t.Context(), dsn, nil)
		require.NoError(t, err)
		info, secret := createKey(t, s, manage.KeyParams{})
		lookup(t, s, secret)
		require.NoError(t, s.Close())
		assert.NotZero(t, getKey(t, openStore(t, dsn, nil), info.ID).LastUsed)
	})
}
