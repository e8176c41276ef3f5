package route_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/route"
)

func TestCall_FallbackByError(t *testing.T) {
	var typedNil *llm.Error
	const yes, no = true, false
	for name, test := range map[string]struct {
		err       error
		fallsBack bool // another target is tried
		retries   bool // the same target is tried again
		failure   bool // it counts as a failure of the target
		lastError string
	}{
		"not an *Error":           {errDial, yes, yes, yes, "500"},
		"nil *Error":              {typedNil, yes, yes, yes, "500"},
		"wrapped *Error":          {fmt.Errorf("wrapped: %w", llm.Errorf(503, "overloaded", "x")), yes, yes, yes, "503 overloaded"},
		"text in place of a code": {llm.Errorf(502, "Bearer sk-secret", "x"), yes, yes, yes, "502"},
		"deadline exceeded":       {fmt.Errorf("x: %w", context.DeadlineExceeded), yes, yes, yes, "504"},
		"canceled":                {context.Canceled, yes, yes, yes, "500"},
		"no status":               {&llm.Error{}, yes, yes, yes, "500"},
		"500":                     {llm.Errorf(500, "", "x"), yes, yes, yes, "500"},
		"599":                     {llm.Errorf(599, "", "x"), yes, yes, yes, "599"},
		"408":                     {llm.Errorf(408, "", "x"), yes, yes, yes, "408"},
		"501":                     {llm.Errorf(501, "", "x"), yes, no, yes, "501"},
		"503, no retry":           {&llm.Error{Status: 503, NoRetry: true}, yes, no, yes, "503"},
		"429":                     {llm.Errorf(429, "rate_limit_exceeded", "x"), yes, yes, no, "429 rate_limit_exceeded"},
		"429, no retry":           {&llm.Error{Status: 429, NoRetry: true}, yes, no, no, "429"},
		"429, quota":              {llm.Errorf(429, "insufficient_quota", "x"), yes, no, no, "429 insufficient_quota"},
		"model not found":         {llm.ModelNotFound("m"), yes, no, no, ""},
		"unsupported":             {errors.ErrUnsupported, yes, no, no, ""},
		"another 404":             {llm.Errorf(404, "file_not_found", "x"), no, no, no, ""},
		"400":                     {llm.Errorf(400, "invalid_value", "x"), no, no, no, ""},
		"401":                     {llm.Errorf(401, "", "x"), no, no, no, ""},
		"409":                     {llm.Errorf(409, "", "x"), no, no, no, ""},
		"413":                     {llm.Errorf(413, "context_length_exceeded", "x"), no, no, no, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bad, good := newFake(fail(test.err)), newFake(say("good"))
				r := newInOrderRouter(t, nil, bad, good)
				text, err := ask(t.Context(), r)
				if test.fallsBack {
					require.NoError(t, err)
					assert.Equal(t, "good", text)
				} else {
					assert.ErrorIs(t, err, test.err)
					assert.Zero(t, good.calls.Load())
				}
				assert.Equal(t, int64(1), bad.calls.Load(), "the other target is tried before the same one again")
				s := r.Status()[0]
				assert.Equal(t, test.lastError, s.LastError)
				assert.Equal(t, test.failure, s.Failures > 0)

				bad = newFake(fail(test.err), say("at last"))
				text, err = ask(t.Context(), newInOrderRouter(t, nil, bad))
				if test.retries {
					require.NoError(t, err)
					assert.Equal(t, "at last", text)
				} else {
					require.Error(t, err)
					assert.Equal(t, int64(1), bad.calls.Load())
				}
			})
		})
	}
}

func TestCall_ErrorWhenAllTargetsFail(t *testing.T) {
	unknown := fail(llm.ModelNotFound("internal"))
	unsupported := fail(fmt.Errorf("x: %w", errors.ErrUnsupported))
	for name, test := range map[string]struct {
		steps      []step // one for each target
		status     int
		retryAfter time.Duration
	}{
		"the last failure":             {[]step{failStatus(500), failStatus(502), unknown, unsupported}, 502, 0},
		"a 429 before a failure":       {[]step{rateLimit(0), failStatus(502)}, 429, 0},
		"the shortest RetryAfter":      {[]step{rateLimit(40 * time.Second), rateLimit(20 * time.Second), rateLimit(30 * time.Second)}, 429, 20 * time.Second},
		"a RetryAfter before none":     {[]step{rateLimit(0), rateLimit(20 * time.Second), rateLimit(0)}, 429, 20 * time.Second},
		"a failure before not found":   {[]step{unknown, failStatus(503), unknown}, 503, 0},
		"not found before unsupported": {[]step{unsupported, unknown, unsupported}, 404, 0},
		"the client's fault at once":   {[]step{failStatus(500), failStatus(400), failStatus(500)}, 400, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var backends []llmhttp.Backend
				for _, s := range test.steps {
					backends = append(backends, newFake(s))
				}
				_, err := ask(t.Context(), newInOrderRouter(t, nil, backends...))
				e := requireStatus(t, err, test.status)
				assert.Equal(t, test.retryAfter, e.RetryAfter)
				assert.NotContains(t, e.Message, "internal")
			})
		})
	}
	t.Run("unsupported by all", func(t *testing.T) {
		_, err := ask(t.Context(), newInOrderRouter(t, nil, newFake(unsupported)))
		assert.ErrorIs(t, err, errors.ErrUnsupported)
	})
	t.Run("with the name of the target", func(t *testing.T) {
		_, err := ask(t.Context(), newInOrderRouter(t, &route.Options{Rounds: 1}, newFake(fail(errDial))))
		assert.EqualError(t, err, `route: target "a": `+errDial.Error())
	})
}

func TestCall_TriesAndRounds(t *testing.T) {
	const ms = time.Millisecond
	for name, test := range map[string]struct {
		opts     route.Options
		targets  int
		tries    int64
		min, max time.Duration
	}{
		"one target":       {route.Options{}, 1, 2, 125 * ms, 250 * ms},
		"two targets":      {route.Options{}, 2, 4, 125 * ms, 250 * ms},
		"many targets":     {route.Options{}, 9, 6, 0, 0},
		"one round":        {route.Options{Rounds: 1}, 3, 3, 0, 0},
		"many rounds":      {route.Options{Rounds: 9, Tries: 3}, 1, 3, 375 * ms, 750 * ms},
		"MaxWait":          {route.Options{Rounds: 4, Tries: 99, Backoff: time.Second, MaxWait: 2 * time.Second}, 2, 8, 2500 * ms, 5000 * ms},
		"default MaxWait":  {route.Options{Backoff: time.Hour}, 1, 2, 2500 * ms, 5000 * ms},
		"negative MaxWait": {route.Options{Backoff: time.Hour, Rounds: 3, MaxWait: -1}, 1, 3, 90 * time.Minute, 3 * time.Hour},
		"negative Backoff": {route.Options{Backoff: -1, Rounds: 9, Tries: 9}, 1, 9, 0, 0},
		"negative Tries":   {route.Options{Tries: -1, Rounds: 1}, 9, 9, 0, 0},
		"negative Rounds":  {route.Options{Rounds: -1, Tries: 200, Backoff: -1}, 1, 200, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bad := newFake(failStatus(500))
				var backends []llmhttp.Backend
				for range test.targets {
					backends = append(backends, bad)
				}
				test.opts.Failures = -1
				start := time.Now()
				_, err := ask(t.Context(), newInOrderRouter(t, &test.opts, backends...))
				assert.Error(t, err)
				assert.Equal(t, test.tries, bad.calls.Load())
				assert.GreaterOrEqual(t, time.Since(start), test.min)
				assert.LessOrEqual(t, time.Since(start), test.max)
			})
		})
	}
}

// Without limits, the tries end with the request.
func TestCall_NoLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		bad := newFake(failStatus(500))
		_, err := ask(ctx, newInOrderRouter(t, &route.Options{Tries: -1, Rounds: -1, Failures: -1, Backoff: time.Second, MaxWait: time.Second}, bad))
		assert.Error(t, err)
		assert.Greater(t, bad.calls.Load(), int64(time.Hour/time.Second))
	})
}

func TestCall_RetryAfter(t *testing.T) {
	seconds := func(n int) step { return rateLimit(time.Duration(n) * time.Second) }
	const never = time.Duration(0)
	for name, test := range map[string]struct {
		maxWait  time.Duration
		deadline time.Duration // of the request; zero means none
		a, b     []step
		want     string
		min, max time.Duration
		calls    [2]int64
	}{
		"another target at once": {0, never, []step{seconds(1)}, []step{say("b")}, "b", 0, 0, [2]int64{1, 1}},
		"final error of another": {0, never, []step{seconds(3), say("a")}, []step{failStatus(400)}, "", 0, 0, [2]int64{1, 1}},
		"the shortest first": {0, never, []step{seconds(4), say("a")}, []step{seconds(3), say("b")},
			"b", 3 * time.Second, 3 * time.Second, [2]int64{1, 2}},
		"a target without RetryAfter first": {0, never, []step{seconds(4), say("a")}, []step{failStatus(500), say("b")},
			"b", 125 * time.Millisecond, 250 * time.Millisecond, [2]int64{1, 2}},
		"longer than MaxWait": {0, never, []step{seconds(6), say("a")}, []step{seconds(7)}, "", 0, 0, [2]int64{1, 1}},
		"as long as MaxWait": {7 * time.Second, never, []step{seconds(7), say("a")}, []step{seconds(8)},
			"a", 7 * time.Second, 7 * time.Second, [2]int64{2, 1}},
		"longer than five minutes": {10 * time.Minute, never, []step{seconds(480), say("a")}, []step{seconds(3600)},
			"a", 8 * time.Minute, 8 * time.Minute, [2]int64{2, 1}},
		"no MaxWait": {-1, never, []step{seconds(86_400), say("a")}, []step{seconds(86_401)},
			"a", 24 * time.Hour, 24 * time.Hour, [2]int64{2, 1}},
		"after the deadline": {0, 2 * time.Second, []step{seconds(3), say("a")}, []step{seconds(4)}, "", 0, 0, [2]int64{1, 1}},
		"before the deadline": {0, 4 * time.Second, []step{seconds(3), say("a")}, []step{seconds(9)},
			"a", 3 * time.Second, 3 * time.Second, [2]int64{2, 1}},
		"resting in the second round": {0, never, []step{seconds(4), say("a")}, []step{seconds(3), failStatus(500), say("b")},
			"", 3 * time.Second, 3 * time.Second, [2]int64{1, 2}},
		"of a 503": {0, never, []step{fail(&llm.Error{Status: 503, RetryAfter: 3 * time.Second}), say("a")}, []step{seconds(3600)},
			"a", 3 * time.Second, 3 * time.Second, [2]int64{2, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if test.deadline != never {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, test.deadline)
					defer cancel()
				}
				a, b := newFake(test.a...), newFake(test.b...)
				start := time.Now()
				text, err := ask(ctx, newInOrderRouter(t, &route.Options{MaxWait: test.maxWait}, a, b))
				assert.Equal(t, test.want, text)
				assert.Equal(t, test.want == "", err != nil)
				assert.GreaterOrEqual(t, time.Since(start), test.min)
				assert.LessOrEqual(t, time.Since(start), test.max)
				assert.Equal(t, test.calls, [2]int64{a.calls.Load(), b.calls.Load()})
			})
		})
	}
}

// A target that sent a RetryAfter gets no new requests, unless there is no other
// target.
func TestCall_RestingTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newFake(rateLimit(10*time.Second), say("a")), newFake(say("b"), say("b"), failStatus(500), say("b"))
		r := newInOrderRouter(t, nil, a, b)
		order := askTimes(t, r, 1)
		assert.Equal(t, 10*time.Second, time.Until(r.Status()[0].RestUntil))
		order += askTimes(t, r, 3) // the third request uses a, because b fails
		time.Sleep(10 * time.Second)
		assert.Zero(t, r.Status()[0].RestUntil)
		assert.Equal(t, "bbaba", order+askTimes(t, r, 1))
	})
	t.Run("for five minutes at most", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newInOrderRouter(t, nil, newFake(rateLimit(24*time.Hour), say("a")), newFake(say("b")))
			assert.Equal(t, "b", askTimes(t, r, 1))
			time.Sleep(5 * time.Minute)
			assert.Equal(t, "a", askTimes(t, r, 1))
		})
	})
}
