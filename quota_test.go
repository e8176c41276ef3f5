package llmhttp_test

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/memory"
)

func TestQuota_Start(t *testing.T) {
	now := time.Date(2026, 3, 1, 1, 0, 0, 0, time.FixedZone("ahead", 2*3600)) // still February in UTC
	for _, tt := range []struct {
		name  string
		quota llmhttp.Quota
		want  time.Time
	}{
		{"month", llmhttp.Quota{}, day(2026, 2, 1)},
		{"sliding", llmhttp.Quota{Per: time.Hour}, now.Add(-time.Hour)},
		{"all", llmhttp.Quota{Per: -1}, time.Time{}},
		{"month, reset", llmhttp.Quota{Since: day(2026, 2, 20)}, day(2026, 2, 20)},
		{"month, reset before", llmhttp.Quota{Since: day(2026, 1, 20)}, day(2026, 2, 1)},
		{"sliding, reset", llmhttp.Quota{Per: 24 * time.Hour, Since: now.Add(-time.Hour)}, now.Add(-time.Hour)},
		{"all, reset", llmhttp.Quota{Per: -1, Since: day(2020, 1, 1)}, day(2020, 1, 1)},
	} {
		t.Run(tt.name, func(t *testing.T) { assert.True(t, tt.want.Equal(tt.quota.Start(now)), "%s", tt.quota.Start(now)) })
	}
}

// A quotaTest serves one key, whose quota and time can be changed.
type quotaTest struct {
	store llmhttp.UsageStore
	quota llmhttp.Quota
	now   time.Time
	cost  func(llmhttp.UsageSum) float64
}

// start starts a Handler in a bubble. Each request uses 10 tokens and reserves 4 and max_tokens.
func (q *quotaTest) start(t *testing.T) *testServer {
	return startPipeServer(t, config{
		backend: usageBackend(4, 6),
		keys: llmhttp.KeyFunc(func(context.Context, string) (*llmhttp.Key, error) {
			return &llmhttp.Key{ID: "key_1", Account: "acme", Limits: llmhttp.Limits{Quota: q.quota}}, nil
		}),
		opts: llmhttp.Options{Usage: q.store, CountTokens: countWords, Cost: q.cost, Now: func() time.Time { return q.now }},
	})
}

const tenTokens = `"max_tokens":6`

// requireLeft requires that the quota permits n more requests of ten tokens.
func requireLeft(t *testing.T, s *testServer, n int) {
	t.Helper()
	for i := range n {
		require.Equal(t, 200, s.chat(chatWith(tenTokens)).StatusCode, "request %d of %d", i, n)
	}
	require.Equal(t, "insufficient_quota", s.chat(chatWith(tenTokens)).checkError(t, 429).Code)
}

// The used part of a quota is read from the store, so that it survives a restart.
func TestQuota_SurvivesRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &quotaTest{store: memory.NewUsageStore(), quota: llmhttp.Quota{Tokens: 50}, now: day(2026, 3, 10)}
		requireLeft(t, q.start(t), 5)
		requireLeft(t, q.start(t), 0)

		q.quota.Since = q.now.Add(time.Second)
		q.now = q.now.Add(time.Minute)
		s := q.start(t)
		requireLeft(t, s, 5) // reset
		q.quota.Tokens = 60
		requireLeft(t, s, 1)
	})
}

func TestQuota_Periods(t *testing.T) {
	for name, tt := range map[string]struct {
		quota llmhttp.Quota
		later time.Duration
	}{
		"month":   {llmhttp.Quota{}, 22 * 24 * time.Hour}, // the 1st of April
		"sliding": {llmhttp.Quota{Per: 3 * time.Hour}, 3*time.Hour + time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := &quotaTest{store: memory.NewUsageStore(), quota: tt.quota, now: day(2026, 3, 10)}
				q.quota.Tokens = 20
				s := q.start(t)
				requireLeft(t, s, 2)
				q.now = q.now.Add(tt.later - time.Hour)
				time.Sleep(time.Minute) // the sums are read again
				requireLeft(t, s, 0)
				q.now = q.now.Add(time.Hour)
				time.Sleep(time.Minute)
				requireLeft(t, s, 2)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		q := &quotaTest{store: memory.NewUsageStore(), quota: llmhttp.Quota{Tokens: 20, Per: -1}, now: day(2026, 3, 10)}
		requireLeft(t, q.start(t), 2)
		q.now = q.now.AddDate(50, 0, 0)
		requireLeft(t, q.start(t), 0)
	})
}

func TestQuota_Cost(t *testing.T) {
	perToken := func(s llmhttp.UsageSum) float64 { return 0.01 * float64(s.PromptTokens+s.CompletionTokens) }
	synctest.Test(t, func(t *testing.T) {
		q := &quotaTest{store: memory.NewUsageStore(), quota: llmhttp.Quota{Cost: 0.505, Tokens: 1000}, now: day(2026, 3, 10), cost: perToken}
		requireLeft(t, q.start(t), 5)
		requireLeft(t, q.start(t), 0)
	})
	for name, q := range map[string]*quotaTest{
		"no Options.Cost":    {store: memory.NewUsageStore(), quota: llmhttp.Quota{Cost: 1}},
		"no KeyUsageStore":   {store: new(usageLog), quota: llmhttp.Quota{Cost: 1}, cost: perToken},
		"no store by key":    {store: llmhttp.NewUsageBuffer(new(usageLog), 0, 0), quota: llmhttp.Quota{Cost: 1}, cost: perToken},
		"Options.Cost fails": {store: memory.NewUsageStore(), quota: llmhttp.Quota{Cost: 1}, cost: func(llmhttp.UsageSum) float64 { panic("boom") }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := q.start(t)
				s.chat(chatBody).checkError(t, 500)
				assert.Contains(t, s.log.String(), `"msg":"request failed"`)
			})
		})
	}
}

func TestQuota_PermitsNothing(t *testing.T) {
	for _, quota := range []llmhttp.Quota{{Tokens: -1}, {Cost: -1}, {Tokens: math.MinInt, Per: -1}, {Tokens: 100, Cost: -0.1}} {
		synctest.Test(t, func(t *testing.T) {
			q := &quotaTest{store: memory.NewUsageStore(), quota: quota, cost: func(llmhttp.UsageSum) float64 { return 0 }}
			requireLeft(t, q.start(t), 0)
		})
	}
}

// The Limiter enforces quotas if the UsageStore is not a KeyUsageStore.
func TestQuota_WithoutKeyUsageStore(t *testing.T) {
	for name, store := range map[string]llmhttp.UsageStore{"store": new(usageLog), "buffer": llmhttp.NewUsageBuffer(new(usageLog), 0, 0)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := &quotaTest{store: store, quota: llmhttp.Quota{Tokens: 30}, now: day(2026, 3, 10)}
				requireLeft(t, q.start(t), 3)
				requireLeft(t, q.start(t), 3) // each has a Limiter of its own
			})
		})
	}
}

// Of two Handlers with one store, each counts the usage of the other when it reads the
// sums again.
func TestQuota_TwoHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &quotaTest{store: memory.NewUsageStore(), quota: llmhttp.Quota{Tokens: 100}, now: day(2026, 3, 10)}
		first, second := q.start(t), q.start(t)
		require.Equal(t, 200, first.chat(chatWith(tenTokens)).StatusCode)
		require.Equal(t, 200, second.chat(chatWith(tenTokens)).StatusCode)
		requireLeft(t, first, 9) // it has not read the usage of the second Handler yet
		time.Sleep(5 * time.Second)
		requireLeft(t, second, 0)
	})
}

// Concurrent requests are admitted exactly up to the quota. A request that fits only
// without the reservations of others is told to retry.
func TestQuota_Reservations(t *testing.T) {
	store := memory.NewUsageStore()
	started, release := make(chan struct{}, 9), make(chan struct{})
	s := startServer(t, config{
		keys: limitedKeys(llmhttp.Limits{Quota: llmhttp.Quota{Tokens: 54}}),
		opts: llmhttp.Options{Usage: store, CountTokens: countWords},
		backend: streamBackend(func(_ context.Context, yield yieldFunc) {
			started <- struct{}{}
			<-release
			yield(&llmhttp.ChatChunk{Usage: &llmhttp.Usage{PromptTokens: 4}}, nil)
		}),
	})
	var replies []<-chan reply
	for range 5 {
		replies = append(replies, s.begin("POST", chatPath, chatWith(tenTokens)))
		receive(t, "the Backend to be called", started)
	}
	r := s.chat(chatWith(tenTokens))
	assert.Equal(t, "rate_limit_exceeded", r.checkError(t, 429).Code)
	assert.Equal(t, "1", r.Header.Get("Retry-After"))
	close(release)
	for _, c := range replies {
		assert.Equal(t, 200, receive(t, "a reply", c).StatusCode)
	}
	assert.Equal(t, 200, s.chat(chatWith(tenTokens)).StatusCode, "five requests used 20 tokens")
	assert.Equal(t, "insufficient_quota", s.chat(chatWith(`"max_tokens":60`)).checkError(t, 429).Code)
}

// Requests in progress reserve their images, at the price of Options.Cost.
func TestQuota_ReservesImages(t *testing.T) {
	started, release := make(chan struct{}, 1), make(chan struct{})
	s := startServer(t, config{
		keys: limitedKeys(llmhttp.Limits{Quota: llmhttp.Quota{Cost: 5}}),
		opts: llmhttp.Options{Usage: memory.NewUsageStore(), Cost: func(u llmhttp.UsageSum) float64 { return float64(u.Images) }},
		backend: &stubBackend{images: func(_ context.Context, r *llmhttp.ImageRequest) (*llmhttp.ImageResponse, error) {
			started <- struct{}{}
			<-release
			return &llmhttp.ImageResponse{Data: make([]llmhttp.Image, 1)}, nil
		}},
	})
	request := func(n int) string { return fmt.Sprintf(`{"model":"m","prompt":"x","n":%d}`, n) }
	assert.Equal(t, "insufficient_quota", s.do("POST", imagesPath, request(6)).checkError(t, 429).Code)
	first := s.begin("POST", imagesPath, request(3))
	receive(t, "the Backend to be called", started)
	second := receive(t, "a refusal", s.begin("POST", imagesPath, request(3)))
	assert.Equal(t, "rate_limit_exceeded", second.checkError(t, 429).Code)
	close(release)
	receive(t, "a reply", first)
	s.do("POST", imagesPath, request(4)) // the first request cost 1
	assert.Len(t, started, 1)
}

// A request that fails, or that another limit refuses, leaves no reservation.
func TestQuota_FailuresReserveNothing(t *testing.T) {
	store := memory.NewUsageStore()
	s := startServer(t, config{
		keys:    limitedKeys(llmhttp.Limits{Quota: llmhttp.Quota{Tokens: 20}, Tokens: noRefill(15)}),
		opts:    llmhttp.Options{Usage: store, CountTokens: countWords},
		backend: failingBackend(errCause),
	})
	for range 9 {
		s.chat(chatWith(tenTokens)).checkError(t, 500)
		assert.Contains(t, s.chat(chatWith(`"max_tokens":16`)).checkError(t, 429).Message, "Request too large")
	}
}

// A hangingStore is a store in memory that can be made to hang.
type hangingStore struct {
	*memory.UsageStore
	hangs, fails atomic.Bool
	calls        atomic.Int64 // of QueryKey
}

func (s *hangingStore) QueryKey(ctx context.Context, keyID string, q llmhttp.UsageQuery) ([]llmhttp.UsageSum, error) {
	s.calls.Add(1)
	if s.hangs.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.UsageStore.QueryKey(ctx, keyID, q)
}

func (s *hangingStore) Record(ctx context.Context, records ...llmhttp.UsageRecord) error {
	if s.fails.Load() {
		return errCause
	}
	return s.UsageStore.Record(ctx, records...)
}

func TestQuota_StoreHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hangingStore{UsageStore: memory.NewUsageStore()}
		q := &quotaTest{store: store, quota: llmhttp.Quota{Tokens: 60}, now: day(2026, 3, 10)}
		store.hangs.Store(true)
		s := q.start(t)
		begin := time.Now()
		r := s.chat(chatWith(tenTokens))
		r.checkError(t, 503)
		assert.Equal(t, "1", r.Header.Get("Retry-After"))
		assert.Equal(t, 2*time.Second, time.Since(begin))

		store.hangs.Store(false)
		require.Equal(t, 200, s.chat(chatWith(tenTokens)).StatusCode)
		time.Sleep(5 * time.Second)
		store.hangs.Store(true)
		store.fails.Store(true)
		var waited atomic.Int64
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				begin := time.Now()
				assert.Equal(t, 200, s.chat(chatWith(tenTokens)).StatusCode)
				waited.Add(int64(time.Since(begin)))
			})
		}
		wg.Wait()
		assert.Equal(t, 2*time.Second, time.Duration(waited.Load()), "only one request waits for the store")
		begin = time.Now()
		requireLeft(t, s, 2) // what was served since the last sums counts, although it is not recorded
		assert.Zero(t, time.Since(begin), "the store is asked every 5 seconds")
		assert.EqualValues(t, 3, store.calls.Load())

		store.hangs.Store(false)
		time.Sleep(5 * time.Second)
		store.fails.Store(false)
		requireLeft(t, s, 5) // what was not recorded is forgotten
	})
}

// Records in a UsageBuffer count toward the quota even if they cannot be stored.
func TestQuota_UsageBuffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hangingStore{UsageStore: memory.NewUsageStore()}
		buffer := llmhttp.NewUsageBuffer(store, 100, time.Hour)
		buffer.Logger = noLog
		t.Cleanup(func() { buffer.Close(context.Background()) })
		q := &quotaTest{store: buffer, quota: llmhttp.Quota{Tokens: 60}, now: day(2026, 3, 10)}
		s := q.start(t)
		for i := range 6 {
			require.Equal(t, 200, s.chat(chatWith(tenTokens)).StatusCode)
			store.fails.Store(i >= 2)
			time.Sleep(5 * time.Second) // the sums are read again
		}
		requireLeft(t, s, 0)
		requireLeft(t, q.start(t), 0)
		sums, err := buffer.QueryKey(t.Context(), "key_1", llmhttp.UsageQuery{Account: "acme", From: q.now, To: q.now.Add(1), Step: time.Hour})
		require.NoError(t, err)
		assert.Equal(t, []llmhttp.UsageSum{{Start: q.now, Model: "demo-chat", Requests: 6, PromptTokens: 24, CompletionTokens: 36}}, sums)
		other, err := buffer.QueryKey(t.Context(), "key_2", llmhttp.UsageQuery{Account: "acme", From: q.now, To: q.now.Add(1)})
		require.NoError(t, err)
		assert.Empty(t, other)
	})
}

// A request without max_tokens is admitted as long as its prompt is within the quota.
func TestQuota_DefaultReservation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &quotaTest{store: memory.NewUsageStore(), quota: llmhttp.Quota{Tokens: 2013}, now: day(2026, 3, 10)}
		s := q.start(t)
		for range 201 { // of 10 tokens each
			require.Equal(t, 200, s.chat(chatWith(`"n":1`)).StatusCode)
		}
		require.Equal(t, "insufficient_quota", s.chat(chatWith(`"n":1`)).checkError(t, 429).Code)
	})
}
