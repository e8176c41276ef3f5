package route_test

import (
	"context"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/route"
)

// maxOpenFor is the longest time for which a breaker is open at first, by
// default.
const maxOpenFor = 15 * time.Second

// withOpenBreaker returns a Router whose only target has just failed, so that
// its breaker is open, and which performs the steps from here on.
func withOpenBreaker(t testing.TB, opts route.Options, steps ...step) (*route.Router, *fake) {
	t.Helper()
	b := newFake(append([]step{failStatus(500)}, steps...)...)
	opts.Failures, opts.Rounds = 1, 1
	r := inOrder(t, &opts, b)
	_, err := ask(t.Context(), r)
	require.Error(t, err)
	require.Equal(t, route.StateOpen, r.Status()[0].State)
	return r, b
}

// requireRefused checks that r refuses a request and does not call b.
func requireRefused(t testing.TB, r llmhttp.Backend, b *fake) *llmhttp.Error {
	t.Helper()
	before := b.calls.Load()
	_, err := ask(t.Context(), r)
	e := requireStatus(t, err, 503)
	assert.Equal(t, "The model is not available at the moment. Please try again.", e.Message)
	assert.Equal(t, before, b.calls.Load())
	return e
}

func TestBreaker_OpensAfterFailures(t *testing.T) {
	for name, test := range map[string]struct {
		failures int
		tries    int64 // of ten requests
	}{"default": {0, 5}, "one": {1, 1}, "three": {3, 3}, "never": {-1, 10}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newFake(failStatus(500))
				r := inOrder(t, &route.Options{Failures: test.failures, Rounds: 1}, b)
				for range 10 {
					_, err := ask(t.Context(), r)
					require.Error(t, err)
				}
				assert.Equal(t, test.tries, b.calls.Load())
			})
		})
	}
}

func TestBreaker_OpenForLimits(t *testing.T) {
	t.Run("maximum is forever", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r, b := withOpenBreaker(t, route.Options{OpenFor: math.MaxInt64})
			for range 3 {
				time.Sleep(365 * 24 * time.Hour)
				requireRefused(t, r, b)
			}
			assert.Equal(t, route.StateOpen, r.Status()[0].State)
		})
	})
	t.Run("negative is no time", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r, b := withOpenBreaker(t, route.Options{OpenFor: -1}, failStatus(500), failStatus(500), say("a"))
			for range 2 {
				_, err := ask(t.Context(), r)
				requireStatus(t, err, 500)
			}
			assert.Equal(t, "a", askTimes(t, r, 1))
			assert.Equal(t, int64(4), b.calls.Load())
			assert.Equal(t, route.StateClosed, r.Status()[0].State)
		})
	})
}

func TestBreaker_OnlyConsecutiveFailuresCount(t *testing.T) {
	for name, s := range map[string]step{"reply": say("a"), "empty reply": sequence(), "429": rateLimit(0), "400": failStatus(400), "404": failStatus(404)} {
		t.Run("interrupted by "+name, func(t *testing.T) {
			r := inOrder(t, &route.Options{Failures: 2, Rounds: 1}, newFake(failStatus(500), s, failStatus(500), s, failStatus(500), s))
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
			r := inOrder(t, &route.Options{Failures: 2, Rounds: 1}, newFake(failStatus(500), test.step, failStatus(500)))
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
		s := r.Status()[0]
		assert.Equal(t, start, s.Since)
		openFor := s.Retry.Sub(start)
		assert.GreaterOrEqual(t, openFor, 10*time.Second)
		assert.Less(t, openFor, maxOpenFor)

		assert.Equal(t, openFor, requireRefused(t, r, b).RetryAfter)
		time.Sleep(openFor - 100*time.Millisecond)
		assert.Equal(t, time.Second, requireRefused(t, r, b).RetryAfter, "the minimum is a second")
		time.Sleep(100 * time.Millisecond)
		assert.Equal(t, "a", askTimes(t, r, 1))
		s = r.Status()[0]
		assert.Equal(t, route.StateClosed, s.State)
		assert.Equal(t, time.Now(), s.Since)
		assert.Zero(t, s.Retry)
		assert.Contains(t, log.String(), `level=INFO msg="circuit breaker closed" request_id="" route=m target=a`)
	})
}

// The target whose breaker is open might know the model, so the error must not
// be that the model does not exist.
func TestBreaker_OtherTargetsDoNotKnowTheModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unknown := newFake(fail(llmhttp.ModelNotFound("m")))
		down := newFake(failStatus(500), say("b"))
		r := inOrder(t, &route.Options{Failures: 1, Rounds: 1}, unknown, down)
		_, err := ask(t.Context(), r)
		require.Error(t, err)
		assert.Equal(t, time.Until(r.Status()[1].Retry), requireRefused(t, r, down).RetryAfter)
		time.Sleep(maxOpenFor)
		assert.Equal(t, "b", askTimes(t, r, 1))
	})
}

func TestBreaker_OpenForDoubles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, b := withOpenBreaker(t, route.Options{})
		for _, want := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
			s := r.Status()[0]
			openFor := s.Retry.Sub(s.Since)
			assert.GreaterOrEqual(t, openFor, want*time.Second)
			assert.Less(t, openFor, want*time.Second*3/2)
			requireRefused(t, r, b)
			time.Sleep(openFor)
			_, err := ask(t.Context(), r)
			require.Error(t, err)
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
				_, err := ask(t.Context(), r)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					answered++
				}
			})
		}
		synctest.Wait()
		assert.Equal(t, int64(2), b.calls.Load())
		assert.Equal(t, route.StateHalfOpen, r.Status()[0].State)
		assert.Equal(t, 1, r.Status()[0].InFlight)
		requireRefused(t, r, b)
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, route.StateClosed, r.Status()[0].State, "the first chunk of a long reply closes the breaker")
		assert.Equal(t, "b", askTimes(t, r, 1))
		wg.Wait()
		assert.Equal(t, 1, answered)
	})
}

// If the client of the only request leaves, the next request is let through.
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

// A reply that breaks off after its first chunk closed the breaker is a new
// failure.
func TestHalfOpen_ReplyBreaksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := withOpenBreaker(t, route.Options{}, sequence(say("a"), fail(errDial)))
		time.Sleep(maxOpenFor)
		_, err := ask(t.Context(), r)
		require.ErrorIs(t, err, errDial)
		s := r.Status()[0]
		assert.Equal(t, route.StateOpen, s.State)
		assert.Equal(t, int64(2), s.Failures)
		assert.Less(t, s.Retry.Sub(s.Since), maxOpenFor, "the time has not doubled")
	})
}

// The results of requests that began before the breaker opened do not change
// its state.
func TestBreaker_IgnoresOldRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		minute := pause(time.Minute)
		b := newFake(sequence(say("a"), minute), sequence(say("b"), minute, fail(errDial)), failStatus(500), sequence(say("c"), hang))
		r := inOrder(t, &route.Options{Failures: 1, Rounds: 1}, b)
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
		closed := r.Status()[0]
		require.Equal(t, route.StateClosed, closed.State)
		time.Sleep(20 * time.Second) // the two old requests end, one with a failure
		s := r.Status()[0]
		assert.Equal(t, closed.Since, s.Since)
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
		flapping := llmhttp.BackendFunc(func(context.Context, *llmhttp.ChatRequest) llmhttp.ChatStream {
			if int(time.Since(start)/time.Minute)%2 == 1 {
				return llmhttp.Fail(errDial)
			}
			return llmhttp.Reply("a")
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
			return llmhttp.BackendFunc(func(context.Context, *llmhttp.ChatRequest) llmhttp.ChatStream {
				if n++; n%2 == 0 {
					return llmhttp.Fail(llmhttp.Errorf(500, "", "x"))
				}
				return llmhttp.Reply("a")
			})
		}
		r := newRouter(t, nil, route.Route{Model: "m", Targets: targets(half(), half())})
		askTimes(t, r, 1000)
		for _, s := range r.Status() {
			assert.Equal(t, route.StateClosed, s.State)
		}
	})
}
