package redislimit

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/servertest"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
)

var _ llmhttp.Reserver = (*Limiter)(nil)

// quotaTokens is what the fleet of the tests below may use, and recorded what it has used before.
const quotaTokens, recorded = 1000, 900

// tokenPrice is the price of a token.
const tokenPrice = llm.MoneyUnit / 100

// newQuotaFleet returns Handlers that share a store of usage. All requests have the same key in
// an account. used is called for each request and returns the tokens of its completion.
func newQuotaFleet(limiters []llmhttp.Limiter, key *llmhttp.Key, store llmhttp.UsageStore, used func() int) (fleet []*llmhttp.Handler) {
	keys := memory.NewKeyStore()
	keys.Add("sk-fleet", key)
	backend := llmhttp.BackendFunc(func(context.Context, *llm.ChatRequest) llm.ChatStream {
		c := llm.TextChunk("Hello")
		c.Usage = &llm.Usage{PromptTokens: promptTokens, CompletionTokens: used()}
		return func(yield func(*llm.ChatChunk, error) bool) { yield(c, nil) }
	})
	for _, l := range limiters {
		fleet = append(fleet, llmhttp.NewHandler(backend, keys, &llmhttp.Options{
			Limiter: l, Usage: store, Estimates: llmhttp.TokenEstimates{TextTokens: func(string, string) int { return 0 }}, Logger: slog.New(slog.DiscardHandler),
			Price: func(r *llmhttp.UsageRecord) (llmhttp.Cost, error) {
				return llmhttp.Cost{Output: llm.Money(r.Units.Tokens()) * tokenPrice}, nil
			},
		}))
	}
	return fleet
}

// usedTokens returns what the store has recorded.
func usedTokens(t testing.TB, store llmhttp.UsageStore, key *llmhttp.Key) (n int64) {
	t.Helper()
	sums, err := store.Query(t.Context(), llmhttp.UsageQuery{
		Account: key.Account, Subject: keySubject(key.ID), From: time.Now().Add(-time.Hour), To: time.Now().Add(time.Hour),
	})
	require.NoError(t, err)
	for _, s := range sums {
		n += s.Units.Tokens()
	}
	return n
}

// Two Handlers serve a key whose quota is nearly used, first many requests at once, and then one
// after the other. Their sums are read at the beginning, so that both see the same rest.
func TestQuota_IsShared(t *testing.T) {
	t.Parallel()
	nodes := servertest.RedisCluster(t, 3)
	for _, test := range []struct {
		name   string
		quota  llmhttp.Quota
		client func(t testing.TB) redis.UniversalClient
	}{
		{"tokens", llmhttp.Quota{Tokens: quotaTokens}, nil},
		{"cost", llmhttp.Quota{Cost: quotaTokens * tokenPrice}, nil},
		{"both, on a cluster", llmhttp.Quota{Tokens: quotaTokens, Cost: quotaTokens * tokenPrice},
			func(t testing.TB) redis.UniversalClient { return newClusterClient(t, nodes[0]) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			account := llmhttp.SubjectID{Kind: llmhttp.KindAccount, ID: uniqueKey()}
			key := &llmhttp.Key{
				ID: uniqueKey(), Account: account.ID,
				Limits:   llmhttp.Limits{Quota: test.quota},
				Subjects: []llmhttp.Subject{{ID: account, Limits: llmhttp.Limits{Quota: test.quota}}},
			}
			limiters := make([]llmhttp.Limiter, 2)
			for i := range limiters {
				var c redis.UniversalClient
				if test.client != nil {
					c = test.client(t)
				}
				limiters[i] = newLimiter(t, c, nil)
			}
			store := memory.NewUsageStore()
			require.NoError(t, store.Record(t.Context(), llmhttp.UsageRecord{
				ID: uniqueKey(), Time: time.Now(), KeyID: key.ID, Account: account.ID, Subjects: []llmhttp.SubjectID{account},
				Units: llmhttp.Units{PromptTokens: recorded}, Cost: llmhttp.Cost{Input: recorded * tokenPrice},
			}))
			var requests atomic.Int64
			first, gate := sync.WaitGroup{}, make(chan struct{})
			fleet := newQuotaFleet(limiters, key, store, func() int {
				if requests.Add(1) <= 2 {
					return 0
				}
				<-gate
				return completionTokens / 2
			})
			for _, h := range fleet {
				require.Equal(t, http.StatusOK, chat(h).Code)
			}
			var refused atomic.Int64
			for i := range 60 {
				first.Go(func() {
					if w := chat(fleet[i%2]); w.Code != http.StatusOK {
						assert.Equal(t, http.StatusTooManyRequests, w.Code, w.Body)
						refused.Add(1)
					}
				})
			}
			const reservation = promptTokens + completionTokens
			const most = int64((quotaTokens - recorded) / reservation)
			eventually(t, func() bool { return requests.Load()-2+refused.Load() == 60 }, "all requests are decided")
			assert.LessOrEqual(t, requests.Load()-2, most, "reservations that are in progress")
			assert.Positive(t, requests.Load()-2)
			close(gate)
			first.Wait()
			for i := range 60 { // the sums of one Handler lack what the other one has served
				chat(fleet[i%2])
			}
			used := usedTokens(t, store, key)
			assert.LessOrEqual(t, used, int64(quotaTokens))
			assert.Greater(t, used, int64(recorded))
		})
	}
}

// A process that died gives back what it has reserved when its lease expires, and what it has
// settled when that has lingered.
func TestReserve_ProcessDies(t *testing.T) {
	t.Parallel()
	l, other := newLimiter(t, nil, &Options{Lease: time.Second}), newLimiter(t, nil, nil)
	slot := llmhttp.SlotAmount{Subject: keySubject(uniqueKey()), Name: llmhttp.SlotQuotaTokens, Amount: 10, Limit: 10}
	reserve := func() func(time.Duration, ...int64) {
		settle, _, err := l.Reserve(t.Context(), slot)
		require.NoError(t, err)
		require.NotNil(t, settle)
		return settle
	}
	settle := reserve()
	dead := []lease{}
	for name := range l.leases.held[slotKey(l.opts.Prefix, slot.Subject, slot.Name)] {
		dead = append(dead, lease{redisKey: slotKey(l.opts.Prefix, slot.Subject, slot.Name), name: name})
	}
	l.leases.drop(dead) // no longer renewed
	assert.EqualValues(t, 10, inUse(t, other, slot))
	eventually(t, func() bool { return inUse(t, other, slot) == 0 }, "the lease expires")
	settle(time.Hour, 7)
	assert.Zero(t, inUse(t, other, slot), "a lease that is not held is not settled")

	settle = reserve()
	settle(time.Hour, 7)
	require.NoError(t, l.Close())
	assert.EqualValues(t, 7, inUse(t, other, slot), "what was settled does not end with the process")
}

// While Redis fails, settle does not leave a reservation behind.
func TestReserve_SettleFails(t *testing.T) {
	t.Parallel()
	c := newClient(t, servertest.SharedRedis(t))
	l := newLimiter(t, c, nil)
	slot := llmhttp.SlotAmount{Subject: keySubject(uniqueKey()), Name: llmhttp.SlotQuotaTokens, Amount: 10, Limit: 10}
	var fails atomic.Bool
	calls := failOn(c, slot.Subject, "settle", &fails)
	settle, _, err := l.Reserve(t.Context(), slot)
	require.NoError(t, err)
	fails.Store(true)
	settle(time.Hour, 7)
	assert.EqualValues(t, 1, calls.Load())
	eventually(t, func() bool { return inUse(t, l, slot) == 0 }, "the lease is removed")
}
