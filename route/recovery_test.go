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

// alone returns a Router whose only target has failed, and which leaves it
// alone for ten to fifteen seconds now.
func alone(t testing.TB, opts *route.Options, next ...step) (*route.Router, *fake) {
	t.Helper()
	b := steps(append([]step{status(500)}, next...)...)
	o := route.Options{Failures: 1, Rounds: 1}
	if opts != nil {
		o.Logger, o.TryTimeout = opts.Logger, opts.TryTimeout
	}
	r := inOrder(t, &o, b)
	_, err := say(t.Context(), r)
	require.Error(t, err)
	require.Equal(t, route.StateOpen, r.Status()[0].State)
	return r, b
}

// refused checks that r refuses a request without asking anybody.
func refused(t testing.TB, r llmhttp.Backend, b *fake) *llmhttp.Error {
	t.Helper()
	before := b.calls.Load()
	_, err := say(t.Context(), r)
	var e *llmhttp.Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, 503, e.Status)
	assert.Equal(t, "The model is not available at the moment. Please try again.", e.Message)
	assert.Equal(t, before, b.calls.Load())
	return e
}

func TestBreakerOpens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, test := range []struct {
			failures int
			tries    int64 // of ten requests
		}{{0, 5}, {1, 1}, {3, 3}, {-1, 10}} {
			b := steps(status(500))
			r := inOrder(t, &route.Options{Failures: test.failures, Rounds: 1}, b)
			for range 10 {
				_, err := say(t.Context(), r)
				require.Error(t, err)
			}
			assert.Equal(t, test.tries, b.calls.Load())
		}
	})
}

// An OpenFor that is meant as forever is.
func TestBreakerForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := steps(status(500))
		r := inOrder(t, &route.Options{Failures: 1, Rounds: 1, OpenFor: math.MaxInt64}, b)
		for range 3 {
			_, err := say(t.Context(), r)
			require.Error(t, err)
			time.Sleep(365 * 24 * time.Hour)
		}
		assert.Equal(t, int64(1), b.calls.Load())
		assert.Equal(t, route.StateOpen, r.Status()[0].State)
	})
}

// Only failures in a row count, and answers of any kind interrupt them.
func TestBreakerStaysClosed(t *testing.T) {
	for name, s := range map[string]step{"an answer": says("a"), "nothing": then(), "429": limited(0), "400": status(400), "404": status(404)} {
		t.Run(name, func(t *testing.T) {
			r := inOrder(t, &route.Options{Failures: 2, Rounds: 1}, steps(status(500), s, status(500), s, status(500), s))
			for range 6 {
				say(t.Context(), r)
			}
			st := r.Status()[0]
			assert.Equal(t, route.StateClosed, st.State)
			assert.Equal(t, int64(6), st.Tries)
			assert.Equal(t, int64(3), st.Failures)
		})
	}
	t.Run("but not a break", func(t *testing.T) {
		r := inOrder(t, &route.Options{Failures: 2, Rounds: 1}, steps(status(500), says("a", "b"), status(500)))
		say(t.Context(), r)
		for range r.Chat(t.Context(), request()) {
			break
		}
		assert.Equal(t, route.StateClosed, r.Status()[0].State)
		say(t.Context(), r)
		assert.Equal(t, route.StateOpen, r.Status()[0].State)
	})
	t.Run("but not a departure", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		leave := then(func(context.Context, func(*llmhttp.ChatChunk, error) bool) { cancel() }, status(500))
		r := inOrder(t, &route.Options{Failures: 2, Rounds: 1}, steps(status(500), leave, status(500)))
		say(t.Context(), r)
		say(ctx, r)
		assert.Equal(t, route.StateClosed, r.Status()[0].State)
		say(t.Context(), r)
		assert.Equal(t, route.StateOpen, r.Status()[0].State)
	})
}

func TestBreakerRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger, log := newLogger()
		start := time.Now()
		r, b := alone(t, &route.Options{Logger: logger}, says("a"))
		s := r.Status()[0]
		assert.Equal(t, start, s.Since)
		open := s.Retry.Sub(start)
		assert.GreaterOrEqual(t, open, 10*time.Second)
		assert.Less(t, open, 15*time.Second)

		assert.Equal(t, open, refused(t, r, b).RetryAfter)
		time.Sleep(open - 100*time.Millisecond)
		assert.Equal(t, time.Second, refused(t, r, b).RetryAfter, "no client is to come back sooner")
		time.Sleep(100 * time.Millisecond)
		text, err := say(t.Context(), r)
		require.NoError(t, err)
		assert.Equal(t, "a", text)
		s = r.Status()[0]
		assert.Equal(t, route.StateClosed, s.State)
		assert.Equal(t, time.Now(), s.Since)
		assert.Zero(t, s.Retry)
		assert.Contains(t, log.String(), `level=INFO msg="circuit breaker closed" request_id="" route=m target=a`)
	})
}

// Where a target is left alone that might know the model, nobody can say that
// it does not exist.
func TestBreakerOfOneThatMightKnow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unknown := steps(fails(llmhttp.ModelNotFound("m")))
		down := steps(status(500), says("b"))
		r := inOrder(t, &route.Options{Failures: 1, Rounds: 1}, unknown, down)
		_, err := say(t.Context(), r)
		require.Error(t, err)
		e := refused(t, r, down)
		assert.Equal(t, time.Until(r.Status()[1].Retry), e.RetryAfter)
		time.Sleep(15 * time.Second)
		text, err := say(t.Context(), r)
		require.NoError(t, err)
		assert.Equal(t, "b", text)
	})
}

// A target that stays down is asked ever more rarely.
func TestBreakerDoubles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, b := alone(t, nil)
		for _, want := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
			s := r.Status()[0]
			open := s.Retry.Sub(s.Since)
			assert.GreaterOrEqual(t, open, want*time.Second)
			assert.Less(t, open, want*time.Second*3/2)
			refused(t, r, b)
			time.Sleep(open)
			_, err := say(t.Context(), r)
			require.Error(t, err)
		}
		assert.Equal(t, int64(8), b.calls.Load())
	})
}

// Of many that come when the time is over, one is let through.
func TestBreakerProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(ctx context.Context, yield func(*llmhttp.ChatChunk, error) bool) {
			time.Sleep(time.Second)
			yield(llmhttp.TextChunk("a"), nil)
			time.Sleep(time.Hour)
		}
		r, b := alone(t, nil, slow, says("b"))
		time.Sleep(15 * time.Second)
		var wg sync.WaitGroup
		var mu sync.Mutex
		answered := 0
		for range 50 {
			wg.Go(func() {
				_, err := say(t.Context(), r)
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
		refused(t, r, b)
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, route.StateClosed, r.Status()[0].State, "with the first chunk of a long reply")
		text, err := say(t.Context(), r)
		require.NoError(t, err)
		assert.Equal(t, "b", text)
		wg.Wait()
		assert.Equal(t, 1, answered)
	})
}

// A probe that tells nothing makes room for the next.
func TestBreakerProbeLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, b := alone(t, nil, hangs, then(says(""), hangs, fails(errBoom)), says("a"))
		time.Sleep(15 * time.Second)
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := say(ctx, r)
			cancel()
			assert.Equal(t, context.DeadlineExceeded, err)
			assert.Equal(t, route.StateHalfOpen, r.Status()[0].State)
		}
		text, err := say(t.Context(), r)
		require.NoError(t, err)
		assert.Equal(t, "a", text)
		assert.Equal(t, int64(4), b.calls.Load())
		assert.Equal(t, route.StateClosed, r.Status()[0].State)
	})
}

// A probe that panics, and one in whose midst the client panics.
func TestBreakerProbePanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := alone(t, nil, func(context.Context, func(*llmhttp.ChatChunk, error) bool) { panic("boom") }, says("a"))
		time.Sleep(15 * time.Second)
		assert.Panics(t, func() { say(t.Context(), r) })
		assert.Equal(t, route.StateOpen, r.Status()[0].State)
		time.Sleep(30 * time.Second)
		assert.Panics(t, func() {
			for range r.Chat(t.Context(), request()) {
				panic("the client's")
			}
		})
		assert.Equal(t, route.StateClosed, r.Status()[0].State, "it has said something")
		assert.Zero(t, r.Status()[0].InFlight)
	})
}

// A reply that breaks off after it has closed the breaker counts again.
func TestBreakerProbeBreaksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := alone(t, nil, then(says("a"), fails(errBoom)))
		time.Sleep(15 * time.Second)
		_, err := say(t.Context(), r)
		require.ErrorIs(t, err, errBoom)
		s := r.Status()[0]
		assert.Equal(t, route.StateOpen, s.State)
		assert.Equal(t, int64(2), s.Failures)
		assert.Less(t, s.Retry.Sub(s.Since), 15*time.Second, "it had worked in between")
	})
}

// What began before the breaker opened says nothing of what came after.
func TestBreakerForgetsTheOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wait := func(ctx context.Context, yield func(*llmhttp.ChatChunk, error) bool) { time.Sleep(time.Minute) }
		b := steps(then(says("a"), wait), then(says("b"), wait, fails(errBoom)), status(500), then(says("c"), hangs))
		r := inOrder(t, &route.Options{Failures: 1, Rounds: 1}, b)
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { say(t.Context(), r) })
			synctest.Wait()
		}
		_, err := say(t.Context(), r)
		require.Error(t, err)
		opened := r.Status()[0]
		require.Equal(t, route.StateOpen, opened.State)
		time.Sleep(50 * time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		wg.Go(func() { say(ctx, r) })
		synctest.Wait()
		closed := r.Status()[0]
		require.Equal(t, route.StateClosed, closed.State)
		time.Sleep(20 * time.Second) // both have ended now, one with a failure
		s := r.Status()[0]
		assert.Equal(t, closed.Since, s.Since)
		assert.Equal(t, route.StateClosed, s.State)
		assert.Equal(t, int64(2), s.Failures)
		assert.Equal(t, 1, s.InFlight)
		cancel()
		wg.Wait()
	})
}

// A target that is up and down by turns costs no client its reply.
func TestFlapping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		flapping := llmhttp.BackendFunc(func(context.Context, *llmhttp.ChatRequest) llmhttp.ChatStream {
			if int(time.Since(start)/time.Minute)%2 == 1 {
				return llmhttp.Fail(errBoom)
			}
			return llmhttp.Reply("a")
		})
		r := newRouter(t, nil, route.Route{Model: "m", Targets: targets(flapping, steps(says("b")))})
		got := map[string]int{}
		for range 12_000 { // twenty minutes
			text, err := say(t.Context(), r)
			require.NoError(t, err)
			got[text]++
			time.Sleep(100 * time.Millisecond)
		}
		s := r.Status()[0]
		assert.LessOrEqual(t, s.Failures, int64(10*8), "5 failures each time, and up to 3 that look whether it is up")
		assert.Greater(t, got["a"], 500, "it is up for 15 s at least after somebody has looked")
		assert.Greater(t, got["b"], 6000)
	})
}

// Half of the replies of one target are errors, and of the other, too.
func TestHalfFailing(t *testing.T) {
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
		for range 1000 {
			_, err := say(t.Context(), r)
			require.NoError(t, err)
		}
		for _, s := range r.Status() {
			assert.Equal(t, route.StateClosed, s.State)
		}
	})
}
