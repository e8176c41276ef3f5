package llmhttp_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/usagebuffer"
)

// A stubReserver grants all reservations, unless refuse tells otherwise, and notes its calls.
type stubReserver struct {
	stubConcurrencyLimiter
	refuse   func(slots []llmhttp.SlotAmount) (full int, refused bool, err error) // nil grants
	onSettle func()                                                               // nil does nothing

	mu    sync.Mutex
	calls []string
}

func (l *stubReserver) note(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = append(l.calls, fmt.Sprintf(format, args...))
}

func (l *stubReserver) noted() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.calls)
}

func (l *stubReserver) Reserve(_ context.Context, slots ...llmhttp.SlotAmount) (func(time.Duration, ...int64), int, error) {
	call := "reserve"
	for _, s := range slots {
		call += fmt.Sprintf(" %d/%d %s of %s %s", s.Amount, s.Limit, s.Name, s.Subject.Kind, s.Subject.ID)
	}
	l.note("%s", call)
	if l.refuse != nil {
		if full, refused, err := l.refuse(slots); refused || err != nil {
			return nil, full, err
		}
	}
	return func(linger time.Duration, amounts ...int64) {
		l.note("settle %v %v", linger, amounts)
		if l.onSettle != nil {
			l.onSettle()
		}
	}, 0, nil
}

// What is left of each quota, by what the store has recorded, is the limit of what is reserved.
// It is replaced by what was used until all Handlers have read that.
func TestQuota_IsReserved(t *testing.T) {
	both := llmhttp.Quota{Tokens: 1000, Cost: 5000}
	for _, test := range []struct {
		name     string
		key      llmhttp.Key
		buffered bool
		backend  llmhttp.Backend // nil uses ten tokens
		want     []string
	}{
		{"no quota", llmhttp.Key{Account: "acme", Limits: llmhttp.Limits{Concurrent: 5}}, false, nil, nil},
		{"tokens", llmhttp.Key{Limits: llmhttp.Limits{Quota: llmhttp.Quota{Tokens: 1000}}}, false, nil, []string{
			"reserve 10/1000 quota_tokens/key_1 of key key_1", "settle 10s [9]",
			"reserve 10/1000 quota_tokens/key_1 of key key_1", "settle 10s [9]",
			"reserve 10/982 quota_tokens/key_1 of key key_1", "settle 10s [9]",
		}},
		{"a buffer", llmhttp.Key{Limits: llmhttp.Limits{Quota: llmhttp.Quota{Tokens: 1000}}}, true, nil, []string{
			"reserve 10/1000 quota_tokens/key_1 of key key_1", "settle 13s [9]",
			"reserve 10/1000 quota_tokens/key_1 of key key_1", "settle 13s [9]",
			"reserve 10/982 quota_tokens/key_1 of key key_1", "settle 13s [9]",
		}},
		{"two subjects", llmhttp.Key{
			Account: "acme", Limits: llmhttp.Limits{Quota: both},
			Subjects: []llmhttp.Subject{
				{ID: llmhttp.SubjectID{Kind: "team", ID: "red"}, Limits: llmhttp.Limits{Concurrent: 9}},
				{ID: llmhttp.SubjectID{Kind: llmhttp.KindAccount, ID: "acme"}, Limits: llmhttp.Limits{Quota: llmhttp.Quota{Cost: 7000}}},
			},
		}, false, nil, []string{
			"reserve 10/1000 quota_tokens/acme of key key_1 20/5000 quota_cost/acme of key key_1 20/7000 quota_cost/acme of account acme", "settle 10s [9 18 18]",
			"reserve 10/1000 quota_tokens/acme of key key_1 20/5000 quota_cost/acme of key key_1 20/7000 quota_cost/acme of account acme", "settle 10s [9 18 18]",
			"reserve 10/982 quota_tokens/acme of key key_1 20/4964 quota_cost/acme of key key_1 20/6964 quota_cost/acme of account acme", "settle 10s [9 18 18]",
		}},
		{"nothing used", llmhttp.Key{Limits: llmhttp.Limits{Quota: llmhttp.Quota{Tokens: 1000}}}, false, failingBackend(llm.ModelNotFound("m")), []string{
			"reserve 10/1000 quota_tokens/key_1 of key key_1", "settle 0s []",
			"reserve 10/1000 quota_tokens/key_1 of key key_1", "settle 0s []",
			"reserve 10/1000 quota_tokens/key_1 of key key_1", "settle 0s []",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				test.key.ID = "key_1"
				limiter := new(stubReserver)
				limiter.acquire = func(context.Context, ...llmhttp.SlotAmount) (func(), int, error) { return func() {}, 0, nil }
				var store llmhttp.UsageStore = memory.NewUsageStore()
				if test.buffered {
					buffer := usagebuffer.New(store, &usagebuffer.Options{Delay: 3 * time.Second})
					defer buffer.Close(t.Context())
					store = wrappedStore{buffer}
				}
				backend := test.backend
				if backend == nil {
					backend = usageBackend(4, 5)
				}
				s := startPipeServer(t, config{
					backend: backend,
					keys:    llmhttp.KeyStoreFunc(func(context.Context, string) (*llmhttp.Key, error) { return &test.key, nil }),
					opts: llmhttp.Options{Limiter: limiter, Usage: store, Estimates: llmhttp.TokenEstimates{TextTokens: countWords}, Price: func(r *llmhttp.UsageRecord) (llmhttp.Cost, error) {
						return llmhttp.Cost{Output: llm.Money(2 * r.Units.Tokens())}, nil
					}},
				})
				s.chat(chatWith(tenTokens))
				s.chat(chatWith(tenTokens)) // the sums are those of the first request
				time.Sleep(6 * time.Second)
				s.chat(chatWith(tenTokens))
				synctest.Wait()
				assert.Equal(t, test.want, limiter.noted())
			})
		})
	}
}

// A Reserver that refuses what a request is expected to use is asked for the least that it needs.
func TestQuota_ReserverRefuses(t *testing.T) {
	above := func(limit int64) func([]llmhttp.SlotAmount) (int, bool, error) {
		return func(slots []llmhttp.SlotAmount) (int, bool, error) { return 0, slots[0].Amount > limit, nil }
	}
	for _, test := range []struct {
		name    string
		refuse  func([]llmhttp.SlotAmount) (int, bool, error)
		members string
		status  int
		code    string
		asked   int
	}{
		{"what has no bound", above(100), "", 200, "", 2},
		{"the least, too", above(1), "", 429, "rate_limit_exceeded", 2},
		{"what has a bound", above(9), tenTokens, 429, "rate_limit_exceeded", 1},
		{"no slot", func([]llmhttp.SlotAmount) (int, bool, error) { return 1, true, nil }, tenTokens, 503, "", 1},
		{"a negative slot", func([]llmhttp.SlotAmount) (int, bool, error) { return -1, true, nil }, tenTokens, 503, "", 1},
		{"by an error", func([]llmhttp.SlotAmount) (int, bool, error) { return 0, false, errors.New("down") }, tenTokens, 503, "", 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limiter := &stubReserver{refuse: test.refuse}
				s := startPipeServer(t, config{
					backend: usageBackend(4, 5), keys: limitedKeys(llmhttp.Limits{Quota: llmhttp.Quota{Tokens: 1000}}),
					opts: llmhttp.Options{Limiter: limiter, Usage: memory.NewUsageStore(), Estimates: llmhttp.TokenEstimates{TextTokens: countWords}},
				})
				body := chatBody
				if test.members != "" {
					body = chatWith(test.members)
				}
				for i := range 3 { // a refusal leaves nothing reserved in the Handler
					r := s.chat(body)
					if test.status == 200 {
						assert.Equal(t, 200, r.StatusCode)
						continue
					}
					assert.Equal(t, test.code, r.checkError(t, test.status).Code)
					assert.Len(t, limiter.noted(), test.asked*(i+1))
				}
			})
		})
	}
}

// A settle that panics does not fail the request.
func TestQuota_SettlePanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := &stubReserver{onSettle: func() { panic("boom") }}
		s := startPipeServer(t, config{
			backend: usageBackend(4, 5), keys: limitedKeys(llmhttp.Limits{Quota: llmhttp.Quota{Tokens: 1000}}),
			opts: llmhttp.Options{Limiter: limiter, Usage: memory.NewUsageStore(), Estimates: llmhttp.TokenEstimates{TextTokens: countWords}},
		})
		assert.Equal(t, 200, s.chat(chatWith(tenTokens)).StatusCode)
		assert.Contains(t, s.log.String(), "shared quota not settled")
	})
}

// A better estimate replaces the first reservation, which is given back before.
func TestQuota_ReservedTwice(t *testing.T) {
	limiter := new(stubReserver)
	s := startServer(t, config{
		keys: limitedKeys(llmhttp.Limits{Quota: llmhttp.Quota{Tokens: 65}}), backend: usageBackend(4, 3),
		opts: llmhttp.Options{Protocols: []llmhttp.Protocol{reservingProtocol{}}, Limiter: limiter, Usage: memory.NewUsageStore(), Estimates: llmhttp.TokenEstimates{TextTokens: countWords}},
	})
	assert.Equal(t, 200, s.do("POST", "/plain", `{"model":"m","text":"Hi"}`, withoutKey, withPlainKey).StatusCode)
	calls := limiter.noted()
	assert.Len(t, calls, 4)
	assert.Equal(t, "settle 0s []", calls[1])
	assert.Equal(t, "settle 10s [7]", calls[3])
}
