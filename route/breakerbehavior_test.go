package route_test

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
	"github.com/llmhttp/llmhttp/route"
	"github.com/llmhttp/llmhttp/upstream"
)

// maxOpenFor is the maximum time for which a breaker with the default options is open
// before its first half-open state.
const maxOpenFor = 15 * time.Second

// withOpenBreaker returns a Router whose first target has an open breaker, and the
// Backend of that target, which then performs steps. The second target replies with
// "standby".
func withOpenBreaker(t testing.TB, opts route.Options, steps ...step) (*route.Router, *fake) {
	t.Helper()
	b := newFake(append([]step{failStatus(500)}, steps...)...)
	opts.Failures, opts.Rounds = 1, 1
	r := newInOrderRouter(t, &opts, b, newFake(say("standby")))
	require.Equal(t, "standby", askTimes(t, r, 1))
	require.Equal(t, route.StateOpen, r.Status()[0].State)
	return r, b
}

// assertAvoided checks that r answers a request without calling b.
func assertAvoided(t testing.TB, r llmhttp.Backend, b *fake) {
	t.Helper()
	before := b.calls.Load()
	assert.Equal(t, "standby", askTimes(t, r, 1))
	assert.Equal(t, before, b.calls.Load())
}

func TestBreaker_OpensAfterFailures(t *testing.T) {
	for name, test := range map[string]struct {
		failures int
		tries    int64 // of ten requests
	}{"default": {0, 5}, "one": {1, 1}, "three": {3, 3}, "never": {-1, 10}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newFake(failStatus(500))
				r := newInOrderRouter(t, &route.Options{Failures: test.failures, Rounds: 1}, b, newFake(say("b")))
				askTimes(t, r, 10)
				assert.Equal(t, test.tries, b.calls.Load())
			})
		})
	}
}

// The breaker of the last working target of a model never opens.
func TestBreaker_LastTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, last := newFake(failStatus(500)), newFake(failStatus(500))
		r := newInOrderRouter(t, &route.Options{Failures: 3, Rounds: 1}, first, last)
		for range 20 {
			_, err := ask(t.Context(), r)
			requireStatus(t, err, 500)
		}
		assert.Equal(t, int64(3), first.calls.Load())
		assert.Equal(t, int64(20), last.calls.Load())
		assert.Equal(t, route.StateClosed, r.Status()[1].State)

		time.Sleep(maxOpenFor)
		first.steps = []step{say("a")}
		assert.Equal(t, "aaa", askTimes(t, r, 3), "the first target has recovered")
	})
}

func TestBreaker_OnlyTarget(t *testing.T) {
	b := newFake(failStatus(500))
	r := newInOrderRouter(t, &route.Options{Failures: 1, Rounds: 1}, b)
	for range 10 {
		_, err := ask(t.Context(), r)
		requireStatus(t, err, 500)
	}
	assert.Equal(t, int64(10), b.calls.Load())
	assert.Equal(t, route.StateClosed, r.Status()[0].State)
}

// Failures with one model do not affect the other models of a target, even if clients
// request many models.
func TestBreaker_PerModel(t *testing.T) {
	var tries sync.Map
	failing := llmhttp.BackendFunc(func(_ context.Context, req *llm.ChatRequest) llm.ChatStream {
		n, _ := tries.LoadOrStore(req.Model, new(int))
		*n.(*int)++
		if req.Model == "works" {
			return llm.Reply("a")
		}
		return llm.Fail(errDial)
	})
	list := []route.Target{{Name: "a", Backend: failing, Model: "*"}, {Name: "b", Backend: newFake(say("b"))}}
	r := newRouter(t, &route.Options{Failures: 3}, route.Route{Model: "x/*", Strategy: route.InOrder, Targets: list})
	text := func(model string) string {
		resp, err := join.Collect(r.Chat(t.Context(), newRequest(model)))
		require.NoError(t, err)
		return resp.Choices[0].Message.Content.Text()
	}
	for range 5 {
		assert.Equal(t, "b", text("x/fails"))
		assert.Equal(t, "a", text("x/works"))
	}
	n, _ := tries.Load("fails")
	assert.Equal(t, 3, *n.(*int))
	s := r.Status()[0]
	require.Len(t, s.Breakers, 1)
	assert.Equal(t, "fails", s.Breakers[0].Model)

	for i := range 10_000 {
		text(fmt.Sprintf("x/%d", i))
	}
	assert.Equal(t, "b", text("x/fails"))
	assert.Equal(t, 3, *n.(*int), "an open breaker is kept when clients use many names")
}

// A Router keeps a bounded number of breakers.
func TestBreaker_ManyModels(t *testing.T) {
	list := []route.Target{{Name: "a", Backend: newFake(fail(errDial))}, {Name: "b", Backend: newFake(say("b"))}}
	r := newRouter(t, &route.Options{Failures: 1, OpenFor: time.Hour}, route.Route{Model: "*", Strategy: route.InOrder, Targets: list})
	for i := range 1000 {
		join.Collect(r.Chat(t.Context(), newRequest(fmt.Sprint(i))))
	}
	join.Collect(r.Chat(t.Context(), newRequest(strings.Repeat("x", 1<<20))))
	breakers := r.Status()[0].Breakers
	assert.Len(t, breakers, 256)
	models := make(map[string]bool)
	for _, b := range breakers {
		models[b.Model] = true
	}
	assert.True(t, models["999"], "the most recent ones are kept")
}

// Failures of one account's requests open a breaker for that account only.
func TestBreaker_PerAccount(t *testing.T) {
	provoke := newFake(failStatus(500))
	provoked := provoke.steps
	r := newInOrderRouter(t, &route.Options{Failures: 3, Rounds: 1}, provoke, newFake(say("b")))
	h := llmhttp.NewHandler(r, llmhttp.KeyStoreFunc(func(_ context.Context, secret string) (*llmhttp.Key, error) {
		return &llmhttp.Key{ID: secret, Account: secret[:1]}, nil
	}), nil)
	post := func(secret string) {
		t.Helper()
		req := httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"x"}]}`))
		req.Header.Set("Authorization", "Bearer "+secret)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		require.Equal(t, 200, w.Code, w.Body)
	}
	for range 5 {
		post("a1")
		post("a2")
	}
	assert.Equal(t, int64(3), provoke.calls.Load(), "two keys of an account count as one")
	s := r.Status()[0]
	require.Len(t, s.Breakers, 1)
	assert.Equal(t, "a", s.Breakers[0].Account)

	provoke.steps = []step{say("a")}
	post("b")
	assert.Equal(t, int64(4), provoke.calls.Load(), "another account is not affected")
	assert.Equal(t, route.StateClosed, r.Status()[0].State, "its success shows that the target works")

	provoke.steps = provoked
	for range 3 {
		post("a1")
	}
	post("b")
	post("b")
	post("c")
	assert.Equal(t, int64(8), provoke.calls.Load(), "when two accounts have failed, the breaker is open for all")
	assert.Empty(t, r.Status()[0].Breakers[0].Account)
}

// A 4xx with which a server refuses a request is not a failure, except for 401, 402
// and 408.
func TestBreaker_UpstreamStatus(t *testing.T) {
	for status, want := range map[int]route.State{401: route.StateOpen, 402: route.StateOpen, 408: route.StateOpen, 500: route.StateOpen,
		403: route.StateClosed, 409: route.StateClosed, 451: route.StateClosed} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
			defer server.Close()
			b, err := upstream.New(server.URL, nil)
			require.NoError(t, err)
			r := newInOrderRouter(t, &route.Options{Failures: 1, Rounds: 1}, b, newFake(say("b")))
			assert.Equal(t, "b", askTimes(t, r, 1))
			assert.Equal(t, want, r.Status()[0].State)
		})
	}
}

func TestBreaker_OpenForLimits(t *testing.T) {
	t.Run("maximum is forever", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r, b := withOpenBreaker(t, route.Options{OpenFor: math.MaxInt64})
			for range 3 {
				time.Sleep(365 * 24 * time.Hour)
				assertAvoided(t, r, b)
			}
			assert.Equal(t, route.StateOpen, r.Status()[0].State)
		})
	})
	t.Run("negative is no time", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r, b := withOpenBreaker(t, route.Options{OpenFor: -1}, failStatus(500), failStatus(500), say("a"))
			assert.Equal(t, "standbystandbya", askTimes(t, r, 3))
			assert.Equal(t, int64(4), b.calls.Load())
			assert.Equal(t, route.StateClosed, r.Status()[0].State)
		})
	})
}

func TestBreaker_OnlyConsecutiveFailuresCount(t *testing.T) {
	for name, s := range map[string]step{"reply": say("a"), "empty reply": sayRole(""), "429": rateLimit(0), "400": failStatus(400), "404": failStatus(404)} {
		t.Run("interrupted by "+name, func(t *testing.T) {
			r := newInOrderRouter(t, &route.Options{Failures: 2, Rounds: 1}, newFake(failStatus(500), s, failStatus(500), s, failStatus(500), s), newFake(say("b")))
			for range 6 {
				ask(t.Context(), r)
			}
			st := r.Status()[0]
			assert.Equal(t, route.StateClosed, st.State)
			assert.Equal(t, int64(6), st.Tries)
			assert.Equal(t, int64(3), st.Failures)
		})
	}
	canceled, cancel := context.WithCancel(t.Context())
	for name, test := range map[string]struct {
		step step
		ctx  context.Context
	}{
		"the client ends the iteration": {say("a", "b"), t.Context()},
		"the client cancels":            {sequence(func(context.Context, yieldFunc) { cancel() }, failStatus(500)), canceled},
	} {
		t.Run("not interrupted if "+name, func(t *testing.T) {
			r := newInOrderRouter(t, &route.Options{Failures: 2, Rounds: 1}, newFake(failStatus(500), test.step, failStatus(500)), newFake(say("b")))
			ask(t.Context(), r)
			for range r.Chat(test.ctx, newRequest("m")) {
				break
			}
			assert.Equal(t, route.StateClosed, r.Status()[0].State)
			ask(t.Context(), r)
			assert.Equal(t, route.StateOpen, r.Status()[0].State)
		})
	}
}

func TestBreaker_Recovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger, log := newLogger()
		start := time.Now()
		r, b := withOpenBreaker(t, route.Options{Logger: logger}, say("a"))
		s := r.Status()[0].Breakers[0]
		assert.Equal(t, start, s.Since)
		openFor := s.RetryAt.Sub(start)
		assert.GreaterOrEqual(t, openFor, 10*time.Second)
		assert.Less(t, openFor, maxOpenFor)

		assertAvoided(t, r, b)
		time.Sleep(openFor - 100*time.Millisecond)
		assertAvoided(t, r, b)
		time.Sleep(100 * time.Millisecond)
		assert.Equal(t, "a", askTimes(t, r, 1))
		assert.Equal(t, route.StateClosed, r.Status()[0].State)
		assert.Empty(t, r.Status()[0].Breakers)
		assert.Contains(t, log.String(), `level=INFO msg="circuit breaker closed" request_id="" route=m target=a`)
	})
}

// A target with an open breaker is tried if the other targets do not know the model.
func TestBreaker_OtherTargetsDoNotKnowTheModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unknown := newFake(fail(llm.ModelNotFound("m")))
		down := newFake(failStatus(500), failStatus(500), say("b"))
		r := newInOrderRouter(t, &route.Options{Failures: 1, Rounds: 1}, unknown, down)
		for range 2 {
			_, err := ask(t.Context(), r)
			requireStatus(t, err, 500)
			assert.Equal(t, route.StateOpen, r.Status()[1].State)
		}
		assert.Equal(t, "b", askTimes(t, r, 1))
	})
}

func TestBreaker_OpenForDoubles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, b := withOpenBreaker(t, route.Options{})
		for _, want := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
			s := r.Status()[0].Breakers[0]
			openFor := s.RetryAt.Sub(s.Since)
			assert.GreaterOrEqual(t, openFor, want*time.Second)
			assert.Less(t, openFor, want*time.Second*3/2)
			assertAvoided(t, r, b)
			time.Sleep(openFor)
			askTimes(t, r, 1)
		}
		assert.Equal(t, int64(8), b.calls.Load())
	})
}

func TestHalfOpen_OneRequestAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, b := withOpenBreaker(t, route.Options{}, sequence(pause(time.Second), say("a"), pause(time.Hour)), say("b"))
		time.Sleep(maxOpenFor)
		var wg sync.WaitGroup
		var mu sync.Mutex
		answered := 0
		for range 50 {
			wg.Go(func() {
				text, err := ask(t.Context(), r)
				mu.Lock()
				defer mu.Unlock()
				if err == nil && text == "a" {
					answered++
				}
			})
		}
		synctest.Wait()
		assert.Equal(t, int64(2), b.calls.Load())
		assert.Equal(t, route.StateHalfOpen, r.Status()[0].State)
		assert.Equal(t, 1, r.Status()[0].InFlight)
		assertAvoided(t, r, b)
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, route.StateClosed, r.Status()[0].State, "the first chunk of a long reply closes the breaker")
		assert.Equal(t, "b", askTimes(t, r, 1))
		wg.Wait()
		assert.Equal(t, 1, answered)
	})
}

// If the client of the request in the half-open state leaves, the next request is let
// through.
func TestHalfOpen_ClientLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, b := withOpenBreaker(t, route.Options{}, hang, sequence(say(""), hang, fail(errDial)), say("a"))
		time.Sleep(maxOpenFor)
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := ask(ctx, r)
			cancel()
			assert.Equal(t, context.DeadlineExceeded, err)
			assert.Equal(t, route.StateHalfOpen, r.Status()[0].State)
		}
		assert.Equal(t, "a", askTimes(t, r, 1))
		assert.Equal(t, int64(4), b.calls.Load())
		assert.Equal(t, route.StateClosed, r.Status()[0].State)
	})
}

func TestHalfOpen_Panic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := withOpenBreaker(t, route.Options{}, func(context.Context, yieldFunc) { panic("boom") }, say("a"))
		time.Sleep(maxOpenFor)
		assert.Panics(t, func() { ask(t.Context(), r) })
		assert.Equal(t, route.StateOpen, r.Status()[0].State)
		time.Sleep(2 * maxOpenFor)
		assert.PanicsWithValue(t, "of the client", func() {
			for range r.Chat(t.Context(), newRequest("m")) {
				panic("of the client")
			}
		})
		assert.Equal(t, route.StateClosed, r.Status()[0].State, "the target had started its reply")
		assert.Zero(t, r.Status()[0].InFlight)
	})
}

// The first chunk of a reply closes the breaker. If the reply then breaks off, that is
// a new first failure.
func TestHalfOpen_ReplyBreaksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := withOpenBreaker(t, route.Options{}, sequence(say("a"), fail(errDial)))
		time.Sleep(maxOpenFor)
		_, err := ask(t.Context(), r)
		require.ErrorIs(t, err, errDial)
		s := r.Status()[0]
		assert.Equal(t, route.StateOpen, s.State)
		assert.Equal(t, int64(2), s.Failures)
		assert.Less(t, s.Breakers[0].RetryAt.Sub(s.Breakers[0].Since), maxOpenFor, "the time has not doubled")
	})
}

// The results of requests that began before the breaker opened do not change
// its state.
func TestBreaker_IgnoresOldRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		minute := pause(time.Minute)
		b := newFake(sequence(say("a"), minute), sequence(say("b"), minute, fail(errDial)), failStatus(500), sequence(say("c"), hang))
		r := newInOrderRouter(t, &route.Options{Failures: 1, Rounds: 1}, b, newFake(fail(llm.ModelNotFound("m"))))
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { ask(t.Context(), r) })
			synctest.Wait()
		}
		_, err := ask(t.Context(), r)
		require.Error(t, err)
		require.Equal(t, route.StateOpen, r.Status()[0].State)
		time.Sleep(50 * time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		wg.Go(func() { ask(ctx, r) })
		synctest.Wait()
		require.Equal(t, route.StateClosed, r.Status()[0].State)
		time.Sleep(20 * time.Second) // the two old requests end, one with a failure
		s := r.Status()[0]
		assert.Equal(t, route.StateClosed, s.State)
		assert.Equal(t, int64(2), s.Failures)
		assert.Equal(t, 1, s.InFlight)
		cancel()
		wg.Wait()
	})
}

// All requests are answered while a target alternates between a good and a bad
// minute.
func TestBreaker_FlappingTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		flapping := llmhttp.BackendFunc(func(context.Context, *llm.ChatRequest) llm.ChatStream {
			if int(time.Since(start)/time.Minute)%2 == 1 {
				return llm.Fail(errDial)
			}
			return llm.Reply("a")
		})
		r := newRouter(t, nil, route.Route{Model: "m", Targets: targets(flapping, newFake(say("b")))})
		got := map[string]int{}
		for range 12_000 { // twenty minutes
			got[askTimes(t, r, 1)]++
			time.Sleep(100 * time.Millisecond)
		}
		assert.LessOrEqual(t, r.Status()[0].Failures, int64(10*8), "each bad minute has 5 failures and up to 3 of a half-open breaker")
		assert.Greater(t, got["a"], 500)
		assert.Greater(t, got["b"], 6000)
	})
}

func TestBreaker_EverySecondRequestFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		half := func() llmhttp.Backend {
			n := 0
			return llmhttp.BackendFunc(func(context.Context, *llm.ChatRequest) llm.ChatStream {
				n++
				if n%2 == 0 {
					return llm.Fail(llm.Errorf(500, "", "x"))
				}
				return llm.Reply("a")
			})
		}
		r := newRouter(t, nil, route.Route{Model: "m", Targets: targets(half(), half())})
		askTimes(t, r, 1000)
		for _, s := range r.Status() {
			assert.Equal(t, route.StateClosed, s.State)
		}
	})
}
