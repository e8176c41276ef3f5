package quotawatch_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/proctest"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/quotawatch"
	"github.com/llmhttp/llmhttp/usagebuffer"
)

// An eventLog keeps the events that it is told.
type eventLog struct {
	mu     sync.Mutex
	events []quotawatch.Event // guarded by mu
	fail   func(ctx context.Context, e *quotawatch.Event) error
}

func (l *eventLog) reached(ctx context.Context, e *quotawatch.Event) error {
	l.mu.Lock()
	l.events = append(l.events, *e)
	l.mu.Unlock()
	if l.fail != nil {
		return l.fail(ctx, e)
	}
	return nil
}

// take waits until the bubble is idle, and returns what was told since the last call, by share.
func (l *eventLog) take() []quotawatch.Event {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	events := l.events
	l.events = nil
	slices.SortFunc(events, func(a, b quotawatch.Event) int { return a.Share - b.Share })
	return events
}

// shares returns the shares that take returns.
func (l *eventLog) shares() (shares []int) {
	for _, e := range l.take() {
		shares = append(shares, e.Share)
	}
	return shares
}

// An eventTest serves keys of acme in a bubble. Each request uses ten tokens and reserves nine.
type eventTest struct {
	store llmhttp.UsageStore
	quota llmhttp.Quota
	now   time.Time
	price func(*llmhttp.UsageRecord) (llmhttp.Cost, error)
	log   eventLog
	key   func() *llmhttp.Key // nil means one with the quota
}

func newEventTest(quota llmhttp.Quota) *eventTest {
	return &eventTest{store: memory.NewUsageStore(), quota: quota, now: day(2026, 3, 10)}
}

// A server is a process with a Handler and a Watcher.
type server struct {
	handler *llmhttp.Handler
	watcher *quotawatch.Watcher
	log     *proctest.Buffer
}

func (q *eventTest) start(t *testing.T) *server {
	s := &server{log: new(proctest.Buffer)}
	logger, now := slog.New(slog.NewJSONHandler(s.log, nil)), func() time.Time { return q.now }
	s.watcher = quotawatch.New(q.store, q.log.reached, &quotawatch.Options{Logger: logger, Now: now})
	backend := llmhttp.BackendFunc(func(context.Context, *llm.ChatRequest) llm.ChatStream {
		return func(yield func(*llm.ChatChunk, error) bool) {
			c := llm.TextChunk("Hello!")
			c.Usage = &llm.Usage{PromptTokens: 4, CompletionTokens: 6}
			yield(c, nil)
		}
	})
	keys := llmhttp.KeyStoreFunc(func(context.Context, string) (*llmhttp.Key, error) {
		if q.key != nil {
			return q.key(), nil
		}
		return &llmhttp.Key{ID: "key_1", Account: "acme", Limits: llmhttp.Limits{Quota: q.quota}}, nil
	})
	s.handler = llmhttp.NewHandler(backend, keys, &llmhttp.Options{
		Usage: q.store, Price: q.price, Observe: s.watcher.Observe, Logger: logger, Now: now,
		Estimates: llmhttp.TokenEstimates{TextTokens: func(_, _ string) int { return 0 }}, // a message counts four
	})
	t.Cleanup(s.shutdown)
	return s
}

func (s *server) shutdown() { s.watcher.Close(context.Background()) }

const chatBody = `{"model":"m","messages":[{"role":"user","content":"Hello, how are you?"}]}`

func chatWith(members string) string { return chatBody[:len(chatBody)-1] + "," + members + "}" }

func asUser(user string) string { return chatWith(`"max_tokens":5,"user":"` + user + `"`) }

func day(year int, month time.Month, day int) time.Time {
	return time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
}

// chat sends a chat, and returns the status of the reply.
func (s *server) chat(body string) int {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer secret")
	s.handler.ServeHTTP(w, r)
	return w.Code
}

// chats sends n requests, which succeed.
func chats(t *testing.T, s *server, n int) {
	t.Helper()
	for range n {
		require.Equal(t, 200, s.chat(chatWith(`"max_tokens":5`)), s.log)
	}
}

// Each share of a quota is told once in a period, also after a restart.
func TestWatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newEventTest(llmhttp.Quota{Tokens: 100})
		s := q.start(t)
		chats(t, s, 7)
		assert.Empty(t, q.log.take())
		chats(t, s, 1)
		events := q.log.take()
		require.Len(t, events, 1)
		id := events[0].ID
		assert.Regexp(t, `^[a-zA-Z0-9_]{1,64}$`, id)
		assert.Equal(t, quotawatch.Event{
			ID: id, Account: "acme", Subject: llmhttp.SubjectID{Kind: llmhttp.KindKey, ID: "key_1"}, Quota: q.quota, Share: 80,
			Start: day(2026, 3, 1), Tokens: 80,
		}, events[0])
		chats(t, s, 1)
		assert.Empty(t, q.log.take())
		chats(t, s, 1)
		events = q.log.take()
		require.Len(t, events, 1)
		assert.Equal(t, 100, events[0].Share)
		assert.EqualValues(t, 100, events[0].Tokens)
		assert.NotEqual(t, id, events[0].ID)
		assert.Equal(t, 429, s.chat(chatBody))
		assert.Empty(t, q.log.take())

		restarted := q.start(t)
		assert.Equal(t, 429, restarted.chat(chatBody))
		assert.Empty(t, q.log.take(), "the store remembers")

		q.now = day(2026, 4, 1)
		chats(t, restarted, 10)
		events = q.log.take()
		require.Len(t, events, 2)
		assert.NotEqual(t, id, events[0].ID)
		assert.Equal(t, day(2026, 4, 1), events[0].Start)
	})
}

// A request that too little is left for tells that the quota is used up, once 80 % are used.
func TestWatcher_ByARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newEventTest(llmhttp.Quota{Tokens: 105})
		s := q.start(t)
		chats(t, s, 8)
		assert.Equal(t, 429, s.chat(chatWith(`"max_tokens":50`)))
		assert.Empty(t, q.log.take(), "a request that is too large")
		chats(t, s, 1)
		assert.Equal(t, []int{80}, q.log.shares())
		chats(t, s, 1)
		assert.Empty(t, q.log.take())
		assert.Equal(t, 429, s.chat(chatWith(`"max_tokens":5`)))
		assert.Equal(t, []int{100}, q.log.shares())
	})
}

// A request that uses more than is left tells both shares.
func TestWatcher_BothAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newEventTest(llmhttp.Quota{Tokens: 10, Cost: 1000})
		q.price = func(*llmhttp.UsageRecord) (llmhttp.Cost, error) { return llmhttp.Cost{Input: 3}, nil }
		chats(t, q.start(t), 1)
		events := q.log.take()
		require.Len(t, events, 2)
		assert.Equal(t, []int{80, 100}, []int{events[0].Share, events[1].Share})
		assert.EqualValues(t, 3, events[0].Cost)
	})
}

// A quota that was changed, or one that begins anew, is told again.
func TestWatcher_Changed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newEventTest(llmhttp.Quota{Tokens: 10, Per: -1})
		s := q.start(t)
		chats(t, s, 1)
		events := q.log.take()
		require.Len(t, events, 2)
		assert.True(t, events[0].Start.IsZero())
		q.quota.Tokens = 25
		chats(t, s, 1)
		assert.Equal(t, []int{80}, q.log.shares())
		q.quota.Since = q.now.Add(time.Second)
		q.now = q.now.Add(time.Minute)
		chats(t, s, 1)
		assert.Empty(t, q.log.take())
		chats(t, s, 1)
		events = q.log.take()
		require.Len(t, events, 1)
		assert.Equal(t, q.quota.Since, events[0].Start)
	})
}

// The periods of a sliding quota follow each other. In each, a share is told once, also if less was
// used meanwhile.
func TestWatcher_Sliding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newEventTest(llmhttp.Quota{Tokens: 60, Per: time.Hour})
		s := q.start(t)
		at := func(clock time.Duration, n int) []quotawatch.Event {
			q.now = day(2026, 3, 10).Add(clock)
			time.Sleep(time.Minute) // so that the sums are read again
			chats(t, s, n)
			return q.log.take()
		}
		events := at(9*time.Hour+30*time.Minute, 5)
		require.Len(t, events, 1)
		assert.Equal(t, day(2026, 3, 10).Add(9*time.Hour), events[0].Start)
		events = at(10*time.Hour+5*time.Minute, 1)
		require.Len(t, events, 2, "in the next period")
		assert.Equal(t, day(2026, 3, 10).Add(10*time.Hour), events[0].Start)
		assert.EqualValues(t, 60, events[0].Tokens)
		assert.Empty(t, at(10*time.Hour+35*time.Minute, 4), "the first five requests have slid out")
		assert.Len(t, at(11*time.Hour+time.Minute, 1), 2, "in the next period")
	})
}

// The subjects of a key and its end users are told apart.
func TestWatcher_Subjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newEventTest(llmhttp.Quota{})
		team := llmhttp.SubjectID{Kind: "team", ID: "red"}
		q.key = func() *llmhttp.Key {
			return &llmhttp.Key{
				ID: "key_1", Account: "acme",
				Subjects: []llmhttp.Subject{{ID: team, Limits: llmhttp.Limits{Quota: llmhttp.Quota{Tokens: 50}}}},
				PerUser:  llmhttp.Limits{Quota: llmhttp.Quota{Tokens: 25}},
			}
		}
		s := q.start(t)
		require.Equal(t, 200, s.chat(asUser("ann")))
		require.Equal(t, 200, s.chat(asUser("ann")))
		require.Equal(t, 200, s.chat(asUser("bob")))
		events := q.log.take()
		require.Len(t, events, 1)
		assert.Equal(t, llmhttp.SubjectID{Kind: llmhttp.KindUser, ID: "ann"}, events[0].Subject)
		require.Equal(t, 200, s.chat(asUser("bob")))
		events = q.log.take()
		require.Len(t, events, 2)
		subjects := []llmhttp.SubjectID{events[0].Subject, events[1].Subject}
		assert.ElementsMatch(t, []llmhttp.SubjectID{{Kind: llmhttp.KindUser, ID: "bob"}, team}, subjects)
	})
}

// A quota that permits nothing is not told.
func TestWatcher_PermitsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newEventTest(llmhttp.Quota{Tokens: -1})
		assert.Equal(t, 429, q.start(t).chat(chatBody))
		assert.Empty(t, q.log.take())
	})
}

// A call that fails or panics is repeated, with backoff, until one succeeds. Requests do not wait.
func TestWatcher_Fails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newEventTest(llmhttp.Quota{Tokens: 12})
		begin := time.Now()
		var at []time.Duration
		q.log.fail = func(context.Context, *quotawatch.Event) error {
			at = append(at, time.Since(begin))
			switch len(at) {
			case 1:
				return errors.New("the receiver is down")
			case 2:
				panic("boom")
			case 3:
				time.Sleep(50 * time.Second)
				return errors.New("the receiver is slow")
			}
			return nil
		}
		s := q.start(t)
		chats(t, s, 1)
		assert.Zero(t, time.Since(begin), "the request did not wait")
		time.Sleep(time.Hour)
		events := q.log.take()
		assert.Equal(t, []time.Duration{0, time.Second, 3 * time.Second, 57 * time.Second}, at)
		assert.Len(t, slices.CompactFunc(events, func(a, b quotawatch.Event) bool { return a.ID == b.ID }), 1)
		assert.Contains(t, s.log.String(), `"msg":"quota event not handled"`)
		assert.Contains(t, s.log.String(), "the receiver is down")
		assert.Contains(t, s.log.String(), "panic: boom")
	})
}

// A plainStore has the methods of a UsageStore alone.
type plainStore struct{ llmhttp.UsageStore }

func forEachStore(t *testing.T, f func(t *testing.T, usage llmhttp.UsageStore)) {
	for name, newStore := range map[string]func() llmhttp.UsageStore{
		"plain":    func() llmhttp.UsageStore { return plainStore{memory.NewUsageStore()} },
		"memory":   func() llmhttp.UsageStore { return memory.NewUsageStore() },
		"a buffer": func() llmhttp.UsageStore { return usagebuffer.New(memory.NewUsageStore(), nil) },
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { f(t, newStore()) }) })
	}
}

// Of several processes with one store, one calls.
func TestWatcher_SeveralHandlers(t *testing.T) {
	forEachStore(t, func(t *testing.T, store llmhttp.UsageStore) {
		q := newEventTest(llmhttp.Quota{Tokens: 100})
		q.store = store
		a, b := q.start(t), q.start(t)
		chats(t, a, 4)
		chats(t, b, 4)
		time.Sleep(quotaStale)
		chats(t, a, 1)
		chats(t, b, 1)
		time.Sleep(quotaStale)
		assert.Equal(t, 429, a.chat(chatBody))
		want := []int{80, 100}
		if _, remembers := store.(quotawatch.EventStore); !remembers {
			want = []int{80, 80, 100, 100} // each Handler by itself
		}
		assert.Equal(t, want, q.log.shares())
		a.shutdown()
		b.shutdown()
	})
}

const quotaStale = 6 * time.Second // after which a Handler reads sums again

// A process that was killed after it had claimed an event leads to a call when its claim has lapsed.
func TestWatcher_Killed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newEventTest(llmhttp.Quota{Tokens: 100})
		killed := q.start(t)
		blocked := make(chan struct{})
		q.log.fail = func(context.Context, *quotawatch.Event) error { <-blocked; return errors.New("killed") }
		chats(t, killed, 8)
		require.Equal(t, []int{80}, q.log.shares())

		q.log.fail = nil
		s := q.start(t)
		chats(t, s, 1)
		assert.Empty(t, q.log.take())
		time.Sleep(2*time.Minute + time.Second)
		assert.Equal(t, []int{80}, q.log.shares())
		close(blocked)
		killed.shutdown()
	})
}

// Shutdown waits for calls. When its context is done, it cancels them, and another process is told.
func TestWatcher_Shutdown(t *testing.T) {
	for _, graceful := range []bool{true, false} {
		t.Run(fmt.Sprint(graceful), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newEventTest(llmhttp.Quota{Tokens: 12})
				q.log.fail = func(ctx context.Context, _ *quotawatch.Event) error {
					select {
					case <-time.After(30 * time.Second):
						return nil
					case <-ctx.Done():
						return ctx.Err()
					}
				}
				s := q.start(t)
				chats(t, s, 1)
				timeout := time.Minute
				if !graceful {
					timeout = 10 * time.Second
				}
				ctx, cancel := context.WithTimeout(t.Context(), timeout)
				defer cancel()
				begin := time.Now()
				err := s.watcher.Close(ctx)
				took := time.Since(begin)
				require.Equal(t, []int{80}, q.log.shares())
				q.log.fail = nil
				restarted := q.start(t)
				assert.Equal(t, 429, restarted.chat(chatBody))
				if graceful {
					assert.NoError(t, err)
					assert.Equal(t, 30*time.Second, took)
					assert.Equal(t, []int{100}, q.log.shares(), "the refusal")
				} else {
					assert.ErrorIs(t, err, context.DeadlineExceeded)
					assert.Equal(t, 10*time.Second, took)
					assert.Equal(t, []int{80, 100}, q.log.shares())
				}
			})
		})
	}
}

// Shutdown does not wait for the repetition of a call that has failed.
func TestWatcher_ShutdownAfterFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newEventTest(llmhttp.Quota{Tokens: 12})
		q.log.fail = func(context.Context, *quotawatch.Event) error { return errors.New("the receiver is down") }
		s := q.start(t)
		chats(t, s, 1)
		require.Len(t, q.log.take(), 1)
		time.Sleep(time.Minute)
		begin := time.Now()
		assert.NoError(t, s.watcher.Close(t.Context()))
		assert.Zero(t, time.Since(begin))
	})
}

// At most 16 calls are in progress, and 1,000 events. Others wait for the next request of their subject.
func TestWatcher_Bounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newEventTest(llmhttp.Quota{})
		q.key = func() *llmhttp.Key {
			return &llmhttp.Key{ID: "key_1", Account: "acme", PerUser: llmhttp.Limits{Quota: llmhttp.Quota{Tokens: 12}}}
		}
		var running, most atomic.Int32
		q.log.fail = func(context.Context, *quotawatch.Event) error {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			time.Sleep(time.Second)
			return nil
		}
		s := q.start(t)
		const users = 1010
		for i := range users {
			require.Equal(t, 200, s.chat(asUser(fmt.Sprint(i))))
		}
		time.Sleep(10 * time.Minute)
		assert.Len(t, q.log.take(), 1000)
		assert.EqualValues(t, 16, most.Load())
		for i := range 10 {
			assert.Equal(t, 429, s.chat(asUser(fmt.Sprint(users-1-i))))
		}
		time.Sleep(time.Minute)
		events := q.log.take()
		assert.Len(t, events, 20, "both shares of ten users")
	})
}

func TestNew_Panics(t *testing.T) {
	const text = "quotawatch: New needs a UsageStore and a function"
	assert.PanicsWithValue(t, text, func() { quotawatch.New(nil, new(eventLog).reached, nil) })
	assert.PanicsWithValue(t, text, func() { quotawatch.New(memory.NewUsageStore(), nil, nil) })
}

// Events of different subjects, quotas, periods and shares have different IDs.
func TestEvent_IDs(t *testing.T) {
	ids := make(map[string]string)
	serve := func(name string, quota llmhttp.Quota, account, key string, now time.Time) {
		synctest.Test(t, func(t *testing.T) {
			q := newEventTest(quota)
			q.now = now
			q.price = func(*llmhttp.UsageRecord) (llmhttp.Cost, error) { return llmhttp.Cost{Input: 100}, nil }
			q.key = func() *llmhttp.Key {
				return &llmhttp.Key{ID: key, Account: account, Limits: llmhttp.Limits{Quota: quota}}
			}
			chats(t, q.start(t), 1)
			for _, e := range q.log.take() {
				other, known := ids[e.ID]
				assert.False(t, known, "%s has the ID of %s", name, other)
				ids[e.ID] = fmt.Sprint(name, " ", e.Share)
			}
		})
	}
	march := day(2026, 3, 10)
	serve("tokens", llmhttp.Quota{Tokens: 10}, "acme", "k", march)
	serve("other tokens", llmhttp.Quota{Tokens: 9}, "acme", "k", march)
	serve("cost", llmhttp.Quota{Cost: 100}, "acme", "k", march)
	serve("both", llmhttp.Quota{Tokens: 10, Cost: 100}, "acme", "k", march)
	serve("sliding", llmhttp.Quota{Tokens: 10, Per: time.Hour}, "acme", "k", march)
	serve("for ever", llmhttp.Quota{Tokens: 10, Per: -1}, "acme", "k", march)
	serve("since", llmhttp.Quota{Tokens: 10, Since: march.Add(-time.Hour)}, "acme", "k", march)
	serve("April", llmhttp.Quota{Tokens: 10}, "acme", "k", day(2026, 4, 1))
	serve("another account", llmhttp.Quota{Tokens: 10}, "acm", "k", march)
	serve("another key", llmhttp.Quota{Tokens: 10}, "acme", strings.Repeat("k", 2), march)
	assert.Len(t, ids, 20)
}

// The first request uses 90 of 100 tokens.
func ExampleWatcher() {
	usage := memory.NewUsageStore()
	watcher := quotawatch.New(usage, func(_ context.Context, e *quotawatch.Event) error {
		fmt.Printf("%s %s has used %d %%: %d of %d tokens\n", e.Subject.Kind, e.Subject.ID, e.Share, e.Tokens, e.Quota.Tokens)
		return nil
	}, nil)
	key := &llmhttp.Key{ID: "key_1", Account: "acme", Limits: llmhttp.Limits{Quota: llmhttp.Quota{Tokens: 100}}}
	backend := llmhttp.BackendFunc(func(context.Context, *llm.ChatRequest) llm.ChatStream {
		return func(yield func(*llm.ChatChunk, error) bool) {
			yield(&llm.ChatChunk{Usage: &llm.Usage{PromptTokens: 30, CompletionTokens: 60}}, nil)
		}
	})
	h := llmhttp.NewHandler(
		backend,
		llmhttp.KeyStoreFunc(func(context.Context, string) (*llmhttp.Key, error) { return key, nil }),
		&llmhttp.Options{Usage: usage, Observe: watcher.Observe},
	)

	r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(
		`{"model":"m","max_tokens":50,"messages":[{"role":"user","content":"Hi"}]}`))
	r.Header.Set("Authorization", "Bearer secret")
	h.ServeHTTP(httptest.NewRecorder(), r)
	watcher.Close(context.Background())
	// Output: key key_1 has used 80 %: 90 of 100 tokens
}
