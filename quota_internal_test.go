package llmhttp

import (
	"context"
	"math/rand/v2"
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
			cache.giveBack(reserve(strconv.Itoa(i)), quotaReservation{})
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
			cache.endSpending(cache.spend(r, want))
			most = max(most, len(cache.entries))
			if i%100 == 0 {
				time.Sleep(10 * time.Millisecond)
			}
		}
		assert.LessOrEqual(t, most, maxQuotaEntries+maxQuotaEntries/4)
		assert.Contains(t, cache.entries, newQuotaID(quotaOwner{"a", SubjectID{KindUser, "299999"}}, Quota{}, time.Now()))
	})
}

// A modelStore is a UsageStore whose Query calls during before and after it sums.
type modelStore struct {
	unusedStore
	sum    int64
	during func()
	fails  bool
}

func (s *modelStore) Query(context.Context, UsageQuery) ([]UsageSum, error) {
	s.during()
	sums := []UsageSum{{Units: Units{PromptTokens: s.sum}}}
	s.during()
	if s.fails {
		return nil, errGoexit
	}
	return sums, nil
}

// However requests, their records and reads of the sums overlap, a quotaCache takes for used at most
// what was used, and for used or doubtful at least that. When all is recorded and read, nothing is in
// doubt.
func TestQuotaCache_CountsOnce(t *testing.T) {
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			store := new(modelStore)
			cache := quotaCache{store: store, entries: make(map[quotaID]*quotaEntry)}
			owner, quota := quotaOwner{"a", SubjectID{KindKey, "key_1"}}, Quota{Tokens: 1 << 30}
			var entry *quotaEntry
			var used int64
			// A request has reserved, then its usage is spent, then it is stored unless that fails, and
			// then that has ended.
			type request struct {
				quotaReservation
				state int
			}
			var requests []*request
			nested := false // in Query
			reserve := func() {
				if nested && (entry == nil || !entry.known) {
					return // it would wait for the read in progress
				}
				want := amount{tokens: 1 + random.Int64N(100)}
				r, err := cache.reserve(t.Context(), owner, quota, quotaReservation{}, want, want, time.Now())
				if err == nil {
					requests, entry = append(requests, &request{r, 0}), r.entry
				}
			}
			advance := func(i int) {
				switch r := requests[i]; r.state {
				case 0:
					spent := amount{tokens: random.Int64N(200)}
					used += spent.tokens
					r.quotaReservation = cache.spend(r.quotaReservation, spent)
				case 1:
					store.sum += r.amount.tokens
				case 2:
					cache.endSpending(r.quotaReservation)
					requests = append(requests[:i], requests[i+1:]...)
					return
				}
				requests[i].state++
			}
			check := func() {
				if entry == nil || !entry.known {
					return
				}
				least := entry.used()
				assert.LessOrEqual(t, least.tokens, used, "seed %d", seed)
				assert.GreaterOrEqual(t, least.plus(entry.doubtful).tokens, used, "seed %d", seed)
				assert.GreaterOrEqual(t, entry.reserved.tokens, int64(0), "seed %d", seed)
			}
			step := func() {
				switch n := random.IntN(10); {
				case n < 3:
					reserve()
				case n < 9 && len(requests) > 0:
					advance(random.IntN(len(requests)))
				default:
					time.Sleep(time.Duration(random.Int64N(int64(4 * time.Second))))
				}
				check()
			}
			store.during = func() {
				if nested {
					return
				}
				nested = true
				for range random.IntN(4) {
					step()
				}
				nested = false
			}
			for range 100 {
				store.fails = random.IntN(4) == 0
				if step(); t.Failed() {
					return
				}
			}
			store.fails, nested = false, true
			for len(requests) > 0 {
				advance(0)
			}
			time.Sleep(quotaTTL)
			reserve()
			assert.Equal(t, used, entry.used().tokens)
			assert.Zero(t, entry.doubtful)
		})
	}
}
