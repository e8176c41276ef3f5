package budget

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

// unused is a Sum of no usage.
func unused(context.Context, *Period) (Amount, Amount, error) { return Amount{}, Amount{}, nil }

// period returns the period of a subject.
func period(kind, id string, sliding time.Duration) *Period {
	return &Period{Owner: Owner{"a", kind, id}, Sliding: sliding}
}

// A Cache evicts idle keys, except those with requests in progress.
func TestCache_EvictsIdleKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := NewCache(unused)
		want := Amount{Tokens: 1}
		reserve := func(key string) Reservation {
			u, err := cache.Reserve(t.Context(), period("key", key, 0), Limit{Tokens: 1}, Reservation{}, want, want)
			require.NoError(t, err)
			return u
		}
		reserve("in progress")
		for i := range 500 {
			cache.GiveBack(reserve(strconv.Itoa(i)), Reservation{})
			time.Sleep(time.Minute)
		}
		assert.LessOrEqual(t, len(cache.entries), 64)
		_, err := cache.Reserve(t.Context(), period("key", "in progress", 0), Limit{Tokens: 1}, Reservation{}, want, want)
		assert.Error(t, err)
	})
}

// Of a million end users, a Cache keeps those who were used in the last seconds.
func TestCache_EvictsUsers_NoRace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := NewCache(unused)
		want, most := Amount{Tokens: 1}, 0
		for i := range 300_000 {
			r, err := cache.Reserve(t.Context(), period("user", strconv.Itoa(i), 0), Limit{Tokens: 1}, Reservation{}, want, want)
			require.NoError(t, err)
			cache.EndSpending(cache.Spend(r, want))
			most = max(most, len(cache.entries))
			if i%100 == 0 {
				time.Sleep(10 * time.Millisecond)
			}
		}
		assert.LessOrEqual(t, most, maxEntries+maxEntries/4)
		assert.Contains(t, cache.entries, period("user", "299999", 0).id())
	})
}

// A modelStore has a Sum that calls during before and after it sums.
type modelStore struct {
	sum    int64
	during func()
	fails  bool
}

func (s *modelStore) Query(context.Context, *Period) (stored, doubtful Amount, err error) {
	s.during()
	sum := Amount{Tokens: s.sum}
	s.during()
	if s.fails {
		return Amount{}, Amount{}, errGoexit
	}
	return sum, Amount{}, nil
}

// However requests, their records and reads of the sums overlap, a Cache takes for used at most
// what was used, and for used or doubtful at least that. When all is recorded and read, nothing is in
// doubt.
func TestCache_CountsOnce(t *testing.T) {
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			store := new(modelStore)
			cache := NewCache(store.Query)
			var entry *entry
			var used int64
			// A request has reserved, then its usage is spent, then it is stored unless that fails, and
			// then that has ended.
			type request struct {
				Reservation
				state int
			}
			var requests []*request
			nested := false // in Query
			reserve := func() {
				if nested && (entry == nil || !entry.known) {
					return // it would wait for the read in progress
				}
				want := Amount{Tokens: 1 + random.Int64N(100)}
				r, err := cache.Reserve(t.Context(), period("key", "key_1", 0), Limit{Tokens: 1 << 30}, Reservation{}, want, want)
				if err == nil {
					requests, entry = append(requests, &request{r, 0}), r.entry
				}
			}
			advance := func(i int) {
				switch r := requests[i]; r.state {
				case 0:
					spent := Amount{Tokens: random.Int64N(200)}
					used += spent.Tokens
					r.Reservation = cache.Spend(r.Reservation, spent)
				case 1:
					store.sum += r.amount.Tokens
				case 2:
					cache.EndSpending(r.Reservation)
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
				assert.LessOrEqual(t, least.Tokens, used, "seed %d", seed)
				assert.GreaterOrEqual(t, least.Plus(entry.doubtful).Tokens, used, "seed %d", seed)
				assert.GreaterOrEqual(t, entry.reserved.Tokens, int64(0), "seed %d", seed)
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
			time.Sleep(TTL)
			reserve()
			assert.Equal(t, used, entry.used().Tokens)
			assert.Zero(t, entry.doubtful)
		})
	}
}
