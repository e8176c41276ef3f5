package llmhttp_test

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/usagebuffer"
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
	price func(*llmhttp.UsageRecord) (llmhttp.Cost, error)
}

// start starts a Handler in a bubble. Each request uses 10 tokens and reserves 4 and max_tokens.
func (q *quotaTest) start(t *testing.T) *testServer {
	return startPipeServer(t, config{
		backend: usageBackend(4, 6),
		keys: llmhttp.KeyStoreFunc(func(context.Context, string) (*llmhttp.Key, error) {
			return &llmhttp.Key{ID: "key_1", Account: "acme", Limits: llmhttp.Limits{Quota: q.quota}}, nil
		}),
		opts: llmhttp.Options{Usage: q.store, Estimates: llmhttp.TokenEstimates{TextTokens: countWords}, Price: q.price, Now: func() time.Time { return q.now }},
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
	perToken := func(r *llmhttp.UsageRecord) (llmhttp.Cost, error) {
		return llmhttp.Cost{Output: (llm.USD(0.01)).Scale(r.Units.Tokens(), 1)}, nil
	}
	synctest.Test(t, func(t *testing.T) {
		q := &quotaTest{store: memory.NewUsageStore(), quota: llmhttp.Quota{Cost: llm.USD(505) / 1000, Tokens: 1000}, now: day(2026, 3, 10), price: perToken}
		requireLeft(t, q.start(t), 5)
		requireLeft(t, q.start(t), 0)
	})
	for name, q := range map[string]*quotaTest{
		"no Options.Price":    {store: memory.NewUsageStore(), quota: llmhttp.Quota{Cost: 1}},
		"no sums for keys":    {store: new(accountLog), quota: llmhttp.Quota{Cost: 1}, price: perToken},
		"no store by key":     {store: usagebuffer.New(new(accountLog), nil), quota: llmhttp.Quota{Cost: 1}, price: perToken},
		"Options.Price fails": {store: memory.NewUsageStore(), quota: llmhttp.Quota{Cost: 1}, price: func(*llmhttp.UsageRecord) (llmhttp.Cost, error) { panic("boom") }},
		"Options.Price has no price": {store: memory.NewUsageStore(), quota: llmhttp.Quota{Cost: 1}, price: func(*llmhttp.UsageRecord) (llmhttp.Cost, error) {
			return llmhttp.Cost{}, errCause
		}},
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
	for _, quota := range []llmhttp.Quota{{Tokens: -1}, {Cost: -1}, {Tokens: math.MinInt, Per: -1}, {Tokens: 100, Cost: -llm.USD(0.1)}} {
		synctest.Test(t, func(t *testing.T) {
			q := &quotaTest{store: memory.NewUsageStore(), quota: quota, price: func(*llmhttp.UsageRecord) (llmhttp.Cost, error) { return llmhttp.Cost{}, nil }}
			requireLeft(t, q.start(t), 0)
		})
	}
}

// A Quota that nothing can enforce is told to the host, and requests fail.
func TestQuota_WithoutSumsForKeys(t *testing.T) {
	for name, tt := range map[string]struct {
		store llmhttp.UsageStore
		cause string
	}{
		"a store of accounts":  {new(accountLog), "the quota of key key_1 needs a UsageStore that can sum for each key: no sums for key: "},
		"a buffer of that one": {usagebuffer.New(new(accountLog), nil), "the quota of key key_1 needs a UsageStore that can sum for each key: no sums for key: "},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := (&quotaTest{store: tt.store, quota: llmhttp.Quota{Tokens: 30}, now: day(2026, 3, 10)}).start(t)
				s.chat(chatWith(tenTokens)).checkError(t, 500)
				assert.Contains(t, s.log.String(), tt.cause)
			})
		})
	}
}

func TestQuota_WithoutAStore(t *testing.T) {
	log := new(logBuffer)
	h := llmhttp.NewHandler(usageBackend(4, 6), limitedKeys(llmhttp.Limits{Quota: llmhttp.Quota{Tokens: 30}}), &llmhttp.Options{Logger: slog.New(slog.NewTextHandler(log, nil))})
	r := httptest.NewRequest("POST", chatPath, strings.NewReader(chatBody))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+testSecret)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	assert.Equal(t, 500, w.Code)
	assert.Contains(t, log.String(), "the quota of key key_1 needs Options.Usage")
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
		opts: llmhttp.Options{Usage: store, Estimates: llmhttp.TokenEstimates{TextTokens: countWords}},
		backend: streamBackend(func(_ context.Context, yield yieldFunc) {
			started <- struct{}{}
			<-release
			yield(&llm.ChatChunk{Usage: &llm.Usage{PromptTokens: 4}}, nil)
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

// Requests in progress reserve their images, at the price of Options.Price.
func TestQuota_ReservesImages(t *testing.T) {
	started, release := make(chan struct{}, 1), make(chan struct{})
	s := startServer(t, config{
		keys: limitedKeys(llmhttp.Limits{Quota: llmhttp.Quota{Cost: llm.USD(5)}}),
		opts: llmhttp.Options{Usage: memory.NewUsageStore(), Price: func(r *llmhttp.UsageRecord) (llmhttp.Cost, error) {
			return llmhttp.Cost{Output: llm.MoneyUnit.Scale(r.Units.Images, 1)}, nil
		}},
		backend: &stubBackend{images: func(_ context.Context, r *llm.ImageRequest) (*llm.ImageResponse, error) {
			started <- struct{}{}
			<-release
			return &llm.ImageResponse{Data: make([]llm.Image, 1)}, nil
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
		opts:    llmhttp.Options{Usage: store, Estimates: llmhttp.TokenEstimates{TextTokens: countWords}},
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
	calls        atomic.Int64 // of Query
}

func (s *hangingStore) Query(ctx context.Context, q llmhttp.UsageQuery) ([]llmhttp.UsageSum, error) {
	s.calls.Add(1)
	if s.hangs.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.UsageStore.Query(ctx, q)
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

// Records in a Buffer count toward the quota even if they cannot be stored.
func TestQuota_Buffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hangingStore{UsageStore: memory.NewUsageStore()}
		buffer := usagebuffer.New(store, &usagebuffer.Options{BatchSize: 100, Delay: time.Hour, Logger: noLog})
		t.Cleanup(func() { buffer.Close(context.Background()) })
		q := &quotaTest{store: buffer, quota: llmhttp.Quota{Tokens: 60}, now: day(2026, 3, 10)}
		s := q.start(t)
		for i := range 6 {
			require.Equal(t, 200, s.chat(chatWith(tenTokens)).StatusCode)
			store.fails.Store(i >= 2)
			time.Sleep(5 * time.Second) // the sums are read again
		}
		for _, s := range []*testServer{s, q.start(t)} { // the store may have what it refuses
			require.Equal(t, "rate_limit_exceeded", s.chat(chatWith(tenTokens)).checkError(t, 429).Code)
		}
		sums, err := buffer.Query(t.Context(), llmhttp.UsageQuery{Account: "acme", Subject: llmhttp.SubjectID{Kind: llmhttp.KindKey, ID: "key_1"}, From: q.now, To: q.now.Add(1), Step: time.Hour})
		require.NoError(t, err)
		assert.Equal(t, []llmhttp.UsageSum{{Start: q.now, Model: "demo-chat", Requests: 6, Units: llmhttp.Units{PromptTokens: 24, CompletionTokens: 36}}}, sums)
		other, err := buffer.Query(t.Context(), llmhttp.UsageQuery{Account: "acme", Subject: llmhttp.SubjectID{Kind: llmhttp.KindKey, ID: "key_2"}, From: q.now, To: q.now.Add(1)})
		require.NoError(t, err)
		assert.Empty(t, other)

		store.fails.Store(false)
		time.Sleep(5 * time.Second)
		requireLeft(t, s, 0)
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

// Observers are told what was used of each quota that a request has looked at.
func TestQuota_Summary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quota := llmhttp.Quota{Tokens: 25}
		account := llmhttp.Subject{ID: llmhttp.SubjectID{Kind: llmhttp.KindAccount, ID: "acme"}, Limits: llmhttp.Limits{Quota: llmhttp.Quota{Tokens: 100, Per: -1}}}
		var told []llmhttp.QuotaUse
		fail := false
		s := startPipeServer(t, config{
			backend: llmhttp.BackendFunc(func(ctx context.Context, r *llm.ChatRequest) llm.ChatStream {
				if fail {
					return llm.Fail(errCause)
				}
				return usageBackend(4, 6).Chat(ctx, r)
			}),
			keys: llmhttp.KeyStoreFunc(func(context.Context, string) (*llmhttp.Key, error) {
				return &llmhttp.Key{
					ID: "key_1", Account: "acme", Limits: llmhttp.Limits{Requests: llmhttp.PerMinute(100)}, Subjects: []llmhttp.Subject{account},
					PerUser: llmhttp.Limits{Quota: quota},
				}, nil
			}),
			opts: llmhttp.Options{Usage: memory.NewUsageStore(), Estimates: llmhttp.TokenEstimates{TextTokens: countWords}, Observe: func(ctx context.Context, _ *http.Request) (context.Context, llmhttp.Observation) {
				return ctx, llmhttp.Observation{Ended: func(s *llmhttp.RequestSummary) { told = s.Quotas }}
			}},
		})
		ann := llmhttp.SubjectID{Kind: llmhttp.KindUser, ID: "ann"}
		for i, tt := range []struct {
			body      string
			fail      bool
			status    int
			user, all int64
			exhausted bool
		}{
			{asUser("ann"), false, 200, 10, 10, false},
			{asUser("ann"), true, 500, 10, 10, false},
			{asUser("ann"), false, 200, 20, 20, false},
			{asUser("ann"), false, 429, 20, 20, true},
		} {
			fail = tt.fail
			require.Equal(t, tt.status, s.chat(tt.body).StatusCode, i)
			synctest.Wait()
			want := []llmhttp.QuotaUse{{Subject: ann, Quota: quota, Tokens: tt.user, Exhausted: tt.exhausted}}
			if !tt.exhausted { // the account was not asked then
				want = append(want, llmhttp.QuotaUse{Subject: account.ID, Quota: account.Limits.Quota, Tokens: tt.all})
			}
			assert.Equal(t, want, told, i)
		}
		s.do("GET", "/v1/models", "")
		synctest.Wait()
		assert.Empty(t, told)
	})
}
