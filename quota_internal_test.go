package llmhttp

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// An unusedStore is a UsageStore that reports no usage.
type unusedStore struct{ UsageStore }

func (unusedStore) Query(context.Context, UsageQuery) ([]UsageSum, error) { return nil, nil }

// A quotaCache evicts idle keys, except those with requests in progress.
func TestQuotaCache_EvictsIdleKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := quotaCache{store: unusedStore{}, entries: make(map[quotaID]*quotaEntry)}
		want := amount{tokens: 1}
		reserve := func(key string) quotaReservation {
			u, err := cache.reserve(t.Context(), quotaOwner{"a", SubjectID{KindKey, key}}, Quota{Tokens: 1}, quotaReservation{}, want, want, time.Now())
			require.NoError(t, err)
			return u
		}
		reserve("in progress")
		for i := range 500 {
			cache.settle(quotaOwner{}, Quota{}, reserve(strconv.Itoa(i)), amount{}, time.Now())
			time.Sleep(time.Minute)
		}
		assert.LessOrEqual(t, len(cache.entries), 64)
		_, err := cache.reserve(t.Context(), quotaOwner{"a", SubjectID{KindKey, "in progress"}}, Quota{Tokens: 1}, quotaReservation{}, want, want, time.Now())
		assert.Error(t, err)
	})
}

// Of a million end users, a quotaCache keeps those who were used in the last seconds.
func TestQuotaCache_EvictsUsers_NoRace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := quotaCache{store: unusedStore{}, entries: make(map[quotaID]*quotaEntry)}
		want, most := amount{tokens: 1}, 0
		for i := range 300_000 {
			owner := quotaOwner{"a", SubjectID{KindUser, strconv.Itoa(i)}}
			r, err := cache.reserve(t.Context(), owner, Quota{Tokens: 1}, quotaReservation{}, want, want, time.Now())
			require.NoError(t, err)
			cache.settle(owner, Quota{Tokens: 1}, r, want, time.Now())
			most = max(most, len(cache.entries))
			if i%100 == 0 {
				time.Sleep(10 * time.Millisecond)
			}
		}
		assert.LessOrEqual(t, most, maxQuotaEntries+maxQuotaEntries/4)
		assert.Contains(t, cache.entries, newQuotaID(quotaOwner{"a", SubjectID{KindUser, "299999"}}, Quota{}, time.Now()))
	})
}
