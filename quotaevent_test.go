package llmhttp_test

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/llmhttp/llmhttp/memory"
)

// An eventLog is an Options.QuotaReached that keeps its events.
type eventLog struct {
	mu     sync.Mutex
	events []llmhttp.QuotaEvent // guarded by mu
	fail   func(ctx context.Context, e *llmhttp.QuotaEvent) error
}

func (l *eventLog) reached(ctx context.Context, e *llmhttp.QuotaEvent) error {
	l.mu.Lock()
	l.events = append(l.events, *e)
	l.mu.Unlock()
	if l.fail != nil {
		return l.fail(ctx, e)
	}
	return nil
}

// take waits until the bubble is idle, and returns what was told since the last call, by share.
func (l *eventLog) take() []llmhttp.QuotaEvent {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	events := l.events
	l.events = nil
	slices.SortFunc(events, func(a, b llmhttp.QuotaEvent) int { return a.Share - b.Share })
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
	quotaTest
	log eventLog
	key func() *llmhttp.Key // nil means one with the quota
}

func newEventTest(quota llmhttp.Quota) *eventTest {
	return &eventTest{quotaTest: quotaTest{store: memory.NewUsageStore(), quota: quota, now: day(2026, 3, 10)}}
}

func (q *eventTest) start(t *testing.T) *testServer {
	return startPipeServer(t, config{
		backend: usageBackend(4, 6),
		keys: llmhttp.KeyStoreFunc(func(context.Context, string) (*llmhttp.Key, error) {
			if q.key != nil {
				return q.key(), nil
			}
			return &llmhttp.Key{ID: "key_1", Account: "acme", Limits: llmhttp.Limits{Quota: q.quota}}, nil
		}),
		opts: llmhttp.Options{
			Usage: q.store, TextTokens: countWords, Price: q.price, QuotaReached: q.log.reached,
			Now: func() time.Time { return q.now },
		},
	})
}

// chats sends n requests, which succeed.
func chats(t *testing.T, s *testServer, n int) {
	t.Helper()
	for range n {
		r := s.chat(chatWith(`"max_tokens":5`))
		require.Equal(t, 200, r.StatusCode, r.body)
	}
}

// Each share of a quota is told once in a period, also after a restart.
func TestQuotaReached(t *testing.T) {
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
		assert.Equal(t, llmhttp.QuotaEvent{
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
		s.chat(chatBody).checkError(t, 429)
		assert.Empty(t, q.log.take())

		restarted := q.start(t)
		restarted.chat(chatBody).checkError(t, 429)
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
func TestQuotaReached_ByARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newEventTest(llmhttp.Quota{Tokens: 105})
		s := q.start(t)
		chats(t, s, 8)
		s.chat(chatWith(`"max_tokens":50`)).checkError(t, 429)
		assert.Empty(t, q.log.take(), "a request that is too large")
		chats(t, s, 1)
		assert.Equal(t, []int{80}, q.log.shares())
		chats(t, s, 1)
		assert.Empty(t, q.log.take())
		s.chat(chatWith(`"max_tokens":5`)).checkError(t, 429)
		assert.Equal(t, []int{100}, q.log.shares())
	})
}

// A request that uses more than is left tells both shares.
func TestQuotaReached_BothAtOnce(t *testing.T) {
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
func TestQuotaReached_Changed(t *testing.T) {
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
func TestQuotaReached_Sliding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newEventTest(llmhttp.Quota{Tokens: 60, Per: time.Hour})
		s := q.start(t)
		at := func(clock time.Duration, n int) []llmhttp.QuotaEvent {
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
		assert.EqualValues(t, 50, events[0].Tokens)
		assert.Empty(t, at(10*time.Hour+35*time.Minute, 4), "the first five requests have slid out")
		assert.Len(t, at(11*time.Hour+time.Minute, 1), 2, "in the next period")
	})
}

// The subjects of a key and its end users are told apart.
func TestQuotaReached_Subjects(t *testing.T) {
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
		require.Equal(t, 200, s.chat(asUser("ann")).StatusCode)
		require.Equal(t, 200, s.chat(asUser("ann")).StatusCode)
		require.Equal(t, 200, s.chat(asUser("bob")).StatusCode)
		events := q.log.take()
		require.Len(t, events, 1)
		assert.Equal(t, llmhttp.SubjectID{Kind: llmhttp.KindUser, ID: "ann"}, events[0].Subject)
		require.Equal(t, 200, s.chat(asUser("bob")).StatusCode)
		events = q.log.take()
		require.Len(t, events, 2)
		subjects := []llmhttp.SubjectID{events[0].Subject, events[1].Subject}
		assert.ElementsMatch(t, []llmhttp.SubjectID{{Kind: llmhttp.KindUser, ID: "bob"}, team}, subjects)
	})
}

// A quota that permits nothing is not told.
func TestQuotaReached_PermitsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newEventTest(llmhttp.Quota{Tokens: -1})
		q.start(t).chat(chatBody).checkError(t, 429)
		assert.Empty(t, q.log.take())
	})
}

// A call that fails or panics is repeated, with backoff, until one succeeds. Requests do not wait.
func TestQuotaReached_Fails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newEventTest(llmhttp.Quota{Tokens: 12})
		begin := time.Now()
		var at []time.Duration
		q.log.fail = func(context.Context, *llmhttp.QuotaEvent) error {
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
		assert.Len(t, slices.CompactFunc(events, func(a, b llmhttp.QuotaEvent) bool { return a.ID == b.ID }), 1)
		assert.Contains(t, s.log.String(), `"msg":"Options.QuotaReached failed"`)
		assert.Contains(t, s.log.String(), "the receiver is down")
		assert.Contains(t, s.log.String(), "panic: boom")
	})
}

// Of several Handlers with one store, one calls.
func TestQuotaReached_SeveralHandlers(t *testing.T) {
	forEachUserStore(t, func(t *testing.T, store llmhttp.UsageStore) {
		q := newEventTest(llmhttp.Quota{Tokens: 100})
		q.store = store
		a, b := q.start(t), q.start(t)
		chats(t, a, 4)
		chats(t, b, 4)
		time.Sleep(quotaStale)
		chats(t, a, 1)
		chats(t, b, 1)
		time.Sleep(quotaStale)
		a.chat(chatBody).checkError(t, 429)
		want := []int{80, 100}
		if _, remembers := store.(llmhttp.QuotaEventStore); !remembers {
			want = []int{80, 80, 100, 100} // each Handler by itself
		}
		assert.Equal(t, want, q.log.shares())
		a.shutdown()
		b.shutdown()
	})
}

const quotaStale = 6 * time.Second // after which a Handler reads sums again

// A process that was killed after it had claimed an event leads to a call when its claim has lapsed.
func TestQuotaReached_Killed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newEventTest(llmhttp.Quota{Tokens: 100})
		killed := q.start(t)
		blocked := make(chan struct{})
		q.log.fail = func(context.Context, *llmhttp.QuotaEvent) error { <-blocked; return errors.New("killed") }
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
func TestQuotaReached_Shutdown(t *testing.T) {
	for _, graceful := range []bool{true, false} {
		t.Run(fmt.Sprint(graceful), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newEventTest(llmhttp.Quota{Tokens: 12})
				q.log.fail = func(ctx context.Context, _ *llmhttp.QuotaEvent) error {
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
				err := s.handler.Shutdown(ctx)
				took := time.Since(begin)
				require.Equal(t, []int{80}, q.log.shares())
				q.log.fail = nil
				restarted := q.start(t)
				restarted.chat(chatBody).checkError(t, 429)
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
func TestQuotaReached_ShutdownAfterFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newEventTest(llmhttp.Quota{Tokens: 12})
		q.log.fail = func(context.Context, *llmhttp.QuotaEvent) error { return errCause }
		s := q.start(t)
		chats(t, s, 1)
		require.Len(t, q.log.take(), 1)
		time.Sleep(time.Minute)
		begin := time.Now()
		assert.NoError(t, s.handler.Shutdown(t.Context()))
		assert.Zero(t, time.Since(begin))
	})
}

// At most 16 calls are in progress, and 1,000 events. Others wait for the next request of their subject.
func TestQuotaReached_Bounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newEventTest(llmhttp.Quota{})
		q.key = func() *llmhttp.Key {
			return &llmhttp.Key{ID: "key_1", Account: "acme", PerUser: llmhttp.Limits{Quota: llmhttp.Quota{Tokens: 12}}}
		}
		var running, most atomic.Int32
		q.log.fail = func(context.Context, *llmhttp.QuotaEvent) error {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			time.Sleep(time.Second)
			return nil
		}
		s := q.start(t)
		const users = 1010
		for i := range users {
			require.Equal(t, 200, s.chat(asUser(fmt.Sprint(i))).StatusCode)
		}
		time.Sleep(10 * time.Minute)
		assert.Len(t, q.log.take(), 1000)
		assert.EqualValues(t, 16, most.Load())
		for i := range 10 {
			s.chat(asUser(fmt.Sprint(users-1-i))).checkError(t, 429)
		}
		time.Sleep(time.Minute)
		events := q.log.take()
		assert.Len(t, events, 20, "both shares of ten users")
	})
}

func TestQuotaReached_NeedsUsage(t *testing.T) {
	assert.PanicsWithValue(t, "llmhttp: Options.QuotaReached needs Options.Usage", func() {
		llmhttp.NewHandler(usageBackend(1, 1), llmhttp.AllowAll("acme"), &llmhttp.Options{QuotaReached: func(context.Context, *llmhttp.QuotaEvent) error { return nil }})
	})
}

// Events of different subjects, quotas, periods and shares have different IDs.
func TestQuotaEvent_IDs(t *testing.T) {
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
