package route_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/route"
	"github.com/llmhttp/llmhttp/upstream"
)

func TestTry_Timeout(t *testing.T) {
	obedient := func(ctx context.Context, yield yieldFunc) {
		<-ctx.Done()
		yield(nil, ctx.Err())
	}
	for name, test := range map[string]struct {
		timeout time.Duration
		step    step
		want    string
		after   time.Duration
	}{
		"no answer":                  {time.Second, hang, "b", time.Second},
		"no answer, default timeout": {0, hang, "b", 2 * time.Minute},
		"error of the context":       {time.Second, obedient, "b", time.Second},
		"late chunk":                 {time.Second, sequence(pause(3*time.Second), say("late")), "b", 3 * time.Second},
		"late end":                   {time.Second, pause(3 * time.Second), "b", 3 * time.Second},
		"answer in time":             {4 * time.Second, sequence(pause(3*time.Second), say("a")), "a", 3 * time.Second},
		"no timeout":                 {-1, sequence(pause(time.Hour), say("a")), "a", time.Hour},
		"pause after text":           {time.Second, sequence(say("a"), pause(time.Hour), say("a")), "aa", time.Hour},
		"pause after a role":         {time.Second, sequence(say(""), pause(time.Hour), say("a")), "a", time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				r := newInOrderRouter(t, &route.Options{TryTimeout: test.timeout}, newFake(test.step), newFake(say("b")))
				assert.Equal(t, test.want, askTimes(t, r, 1))
				assert.Equal(t, test.after, time.Since(start))
				if s := r.Status()[0]; test.want == "b" {
					assert.Equal(t, int64(1), s.Failures)
					assert.Equal(t, "504", s.LastError)
				}
			})
		})
	}
	t.Run("error for the client", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			_, err := ask(t.Context(), newInOrderRouter(t, &route.Options{TryTimeout: time.Second}, newFake(hang)))
			requireStatus(t, err, 504)
		})
	})
	t.Run("each try has its own", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newInOrderRouter(t, &route.Options{TryTimeout: time.Second},
				newFake(sequence(say(""), fail(errDial))), newFake(hang), newFake(sequence(say("c"), pause(time.Minute), say("c"))))
			assert.Equal(t, "cc", askTimes(t, r, 1))
		})
	})
}

func TestTry_ContextEndsWithTheTry(t *testing.T) {
	var ctxs []context.Context
	keep := func(ctx context.Context, _ yieldFunc) {
		ctxs = append(ctxs, ctx)
		assert.NoError(t, ctx.Err())
	}
	type key struct{}
	ctx := context.WithValue(t.Context(), key{}, "value")
	_, err := ask(ctx, newInOrderRouter(t, nil, newFake(sequence(keep, fail(errDial))), newFake(sequence(keep, say("b"), keep))))
	require.NoError(t, err)
	require.Len(t, ctxs, 3)
	for _, c := range ctxs {
		assert.Error(t, c.Err())
		assert.Equal(t, "value", c.Value(key{}))
	}
	assert.NoError(t, ctx.Err())
}

// Nothing that a target does after the client has left counts as a failure.
func TestTry_ClientLeaves(t *testing.T) {
	gone := errors.New("gone")
	for name, test := range map[string]struct {
		step     step
		failures int64
	}{
		"target returns":            {hang, 0},
		"target fails":              {sequence(hang, fail(errDial)), 0},
		"target fails with 500":     {sequence(hang, failStatus(500)), 0},
		"target fails with context": {sequence(hang, fail(context.Canceled)), 0},
		"target answers":            {sequence(hang, say("late")), 0},
		"in mid-stream":             {sequence(say("a"), hang), 0},
		"in mid-stream, then fails": {sequence(say("a"), hang, fail(errDial)), 0},
		"after a role, then fails":  {sequence(say(""), hang, fail(errDial)), 0},
		"while the target rests":    {rateLimit(4 * time.Second), 0},
		"between two tries":         {failStatus(500), 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newFake(test.step)
				r := newInOrderRouter(t, &route.Options{Failures: 9}, b)
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(100*time.Millisecond, func() { cancel(gone) })
				_, err := ask(ctx, r)
				assert.Equal(t, gone, err)
				assert.Equal(t, int64(1), b.calls.Load())
				s := r.Status()[0]
				assert.Zero(t, s.InFlight)
				assert.Equal(t, test.failures, s.Failures)

				_, err = ask(ctx, r)
				assert.ErrorIs(t, err, gone)
				assert.ErrorIs(t, err, llm.ErrNotSent)
				assert.Equal(t, int64(1), b.calls.Load(), "there is no try for a client that has left")
			})
		})
	}
	t.Run("by ending the iteration", func(t *testing.T) {
		r := newInOrderRouter(t, &route.Options{Failures: 1}, newFake(sequence(say("a", "b"), fail(errDial))))
		for range r.Chat(t.Context(), newRequest("m")) {
			break
		}
		s := r.Status()[0]
		assert.Zero(t, s.InFlight)
		assert.Zero(t, s.Failures)
		assert.Equal(t, route.StateClosed, s.State)
	})
}

func TestTry_DeadlineAndIdleTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newInOrderRouter(t, nil, newFake(hang))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := ask(ctx, r)
		assert.Equal(t, context.DeadlineExceeded, err)
		assert.Zero(t, r.Status()[0].Failures, "the deadline of the request says nothing about the target")

		h := llmhttp.NewHandler(r, llmhttp.AllowAll("acme"), &llmhttp.Options{Bounds: llmhttp.Bounds{Timeout: time.Second}})
		assert.Equal(t, 504, post(h, "m").Code)
		assert.Equal(t, int64(1), r.Status()[0].Failures, "the idle timeout of the Handler is a failure of the target")
		assert.Equal(t, "504", r.Status()[0].LastError)
	})
}

func TestTry_Panic(t *testing.T) {
	boom := func(context.Context, yieldFunc) { panic("boom") }
	r := newInOrderRouter(t, nil, newFake(boom, sequence(say("a"), boom), say("a")), newFake(say("b")))
	for range 2 {
		assert.PanicsWithValue(t, "boom", func() { ask(t.Context(), r) })
	}
	s := r.Status()[0]
	assert.Zero(t, s.InFlight)
	assert.Equal(t, int64(2), s.Failures)

	assert.PanicsWithValue(t, "of the client", func() {
		for range r.Chat(t.Context(), newRequest("m")) {
			panic("of the client")
		}
	})
	s = r.Status()[0]
	assert.Zero(t, s.InFlight)
	assert.Equal(t, int64(3), s.Tries)
	assert.Equal(t, int64(2), s.Failures)
}

func TestTry_Log(t *testing.T) {
	logger, log := newLogger()
	r := newInOrderRouter(t, &route.Options{Logger: logger, Failures: 1},
		newFake(fail(&llm.Error{Status: 502, Message: "sk-secret", Err: errDial})), newFake(fail(errDial), say("b")))
	askTimes(t, r, 1)
	assert.Contains(t, log.String(), `level=INFO msg="target failed" request_id="" route=m target=a try=1 error=502`)
	assert.Contains(t, log.String(), `level=WARN msg="circuit breaker opened" request_id="" route=m target=a model=m account="" retry_after=1`)
	assert.Contains(t, log.String(), `target=b try=2 error=500`)
	assertNoSecrets(t, log.String())
	for _, s := range r.Status() {
		assertNoSecrets(t, s.LastError)
	}
}

// LastError names the system's error even if an upstream.Backend wraps it.
func TestTry_LastErrorOfTheSystem(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	b, err := upstream.New("http://"+l.Addr().String()+"/v1", nil)
	require.NoError(t, err)
	r := newInOrderRouter(t, nil, b)
	_, err = ask(t.Context(), r)
	require.Error(t, err)
	assert.Equal(t, "502 connection refused", r.Status()[0].LastError)
}

// A prompt that no target has seen is not charged when the client leaves.
func TestTry_ClientLeavesBetweenTries(t *testing.T) {
	for name, test := range map[string]struct {
		step    step
		charged bool
	}{
		"not sent":        {fail(fmt.Errorf("no connection: %w", llm.ErrNotSent)), false},
		"sent":            {failStatus(500), true},
		"sent, and hangs": {hang, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var sums summaries
				r := newInOrderRouter(t, &route.Options{Backoff: 2 * time.Second, TryTimeout: -1}, newFake(test.step))
				h := llmhttp.NewHandler(r, llmhttp.AllowAll("a"), &llmhttp.Options{Observe: sums.observe, Bounds: llmhttp.Bounds{Timeout: -1}})
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(500*time.Millisecond, cancel)
				body := strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"Hello!"}]}`)
				req := httptest.NewRequest("POST", "/v1/chat/completions", body).WithContext(ctx)
				req.Header.Set("Content-Type", "application/json")
				h.ServeHTTP(httptest.NewRecorder(), req)
				s := sums.all()[0]
				assert.Equal(t, 499, s.Status)
				assert.Len(t, s.Tries, 1)
				assert.Equal(t, test.charged, s.Record.Units.PromptTokens > 0)
			})
		})
	}
}

// An Observer that looks for an Error does not find a nil one.
func TestTry_NilError(t *testing.T) {
	_, err := ask(t.Context(), newInOrderRouter(t, &route.Options{Rounds: 1}, newFake(fail((*llm.Error)(nil)))))
	require.Error(t, err)
	_, ok := errors.AsType[*llm.Error](err)
	assert.False(t, ok)
}
