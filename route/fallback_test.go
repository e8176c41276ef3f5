package route_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/route"
)

// Which errors another target can make good, whether the same one is tried
// again, and whether they are its fault.
func TestFallback(t *testing.T) {
	var typedNil *llmhttp.Error
	for name, test := range map[string]struct {
		err                    error
		falls, repeats, blamed bool
		last                   string
	}{
		"no *Error":           {errBoom, true, true, true, "500"},
		"a nil *Error":        {typedNil, true, true, true, "500"},
		"a wrapped *Error":    {fmt.Errorf("wrapped: %w", llmhttp.Errorf(503, "overloaded", "x")), true, true, true, "503 overloaded"},
		"a code with a text":  {llmhttp.Errorf(502, "Bearer sk-secret", "x"), true, true, true, "502"},
		"a deadline":          {fmt.Errorf("x: %w", context.DeadlineExceeded), true, true, true, "504"},
		"somebody's cancel":   {context.Canceled, true, true, true, "500"},
		"no status":           {&llmhttp.Error{}, true, true, true, "500"},
		"500":                 {llmhttp.Errorf(500, "", "x"), true, true, true, "500"},
		"599":                 {llmhttp.Errorf(599, "", "x"), true, true, true, "599"},
		"408":                 {llmhttp.Errorf(408, "", "x"), true, true, true, "408"},
		"501":                 {llmhttp.Errorf(501, "", "x"), true, false, true, "501"},
		"503, no retry":       {&llmhttp.Error{Status: 503, NoRetry: true}, true, false, true, "503"},
		"429":                 {llmhttp.Errorf(429, "rate_limit_exceeded", "x"), true, true, false, "429 rate_limit_exceeded"},
		"429, no retry":       {&llmhttp.Error{Status: 429, NoRetry: true}, true, false, false, "429"},
		"429, quota":          {llmhttp.Errorf(429, "insufficient_quota", "x"), true, false, false, "429 insufficient_quota"},
		"model not found":     {llmhttp.ModelNotFound("m"), true, false, false, ""},
		"unsupported":         {errors.ErrUnsupported, true, false, false, ""},
		"another 404":         {llmhttp.Errorf(404, "file_not_found", "x"), false, false, false, ""},
		"400":                 {llmhttp.Errorf(400, "invalid_value", "x"), false, false, false, ""},
		"401":                 {llmhttp.Errorf(401, "", "x"), false, false, false, ""},
		"409":                 {llmhttp.Errorf(409, "", "x"), false, false, false, ""},
		"413, context length": {llmhttp.Errorf(413, "context_length_exceeded", "x"), false, false, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bad, good := steps(fails(test.err)), steps(says("good"))
				r := inOrder(t, nil, bad, good)
				text, err := say(t.Context(), r)
				if test.falls {
					require.NoError(t, err)
					assert.Equal(t, "good", text)
				} else {
					assert.ErrorIs(t, err, test.err)
					assert.Zero(t, good.calls.Load())
				}
				assert.Equal(t, int64(1), bad.calls.Load(), "another target comes before the same again")
				s := r.Status()[0]
				assert.Equal(t, test.last, s.LastError)
				assert.Equal(t, test.blamed, s.Failures > 0)

				bad = steps(fails(test.err), says("at last"))
				text, err = say(t.Context(), inOrder(t, nil, bad))
				if test.repeats {
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

// What the client is told when all have failed.
func TestFailure(t *testing.T) {
	unknown := fails(llmhttp.ModelNotFound("internal"))
	unsupported := fails(fmt.Errorf("x: %w", errors.ErrUnsupported))
	for name, test := range map[string]struct {
		steps  []step
		status int
		retry  time.Duration
	}{
		"the last failure":           {[]step{status(500), status(502), unknown, unsupported}, 502, 0},
		"429 before others":          {[]step{limited(0), status(502)}, 429, 0},
		"the shortest wait":          {[]step{limited(40 * time.Second), limited(20 * time.Second), limited(30 * time.Second)}, 429, 20 * time.Second},
		"a wait before none":         {[]step{limited(0), limited(20 * time.Second), limited(0)}, 429, 20 * time.Second},
		"a failure before not found": {[]step{unknown, status(503), unknown}, 503, 0},
		"not found":                  {[]step{unsupported, unknown, unsupported}, 404, 0},
		"the client's fault":         {[]step{status(500), status(400), status(500)}, 400, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var backends []llmhttp.Backend
				for _, s := range test.steps {
					backends = append(backends, steps(s))
				}
				_, err := say(t.Context(), inOrder(t, nil, backends...))
				var e *llmhttp.Error
				require.ErrorAs(t, err, &e)
				assert.Equal(t, test.status, e.Status)
				assert.Equal(t, test.retry, e.RetryAfter)
				assert.NotContains(t, e.Message, "internal")
			})
		})
	}
	_, err := say(t.Context(), inOrder(t, nil, steps(unsupported)))
	assert.ErrorIs(t, err, errors.ErrUnsupported)
	_, err = say(t.Context(), inOrder(t, &route.Options{Rounds: 1}, steps(fails(errBoom))))
	assert.EqualError(t, err, `route: target "a": `+errBoom.Error(), "for the log, which tells whose error it is")
}

// A reply that has begun is never replaced.
func TestNoFallbackAfterTheFirstChunk(t *testing.T) {
	chunk := func(c llmhttp.ChunkChoice) step {
		return func(_ context.Context, yield func(*llmhttp.ChatChunk, error) bool) {
			yield(&llmhttp.ChatChunk{Choices: []llmhttp.ChunkChoice{c}}, nil)
		}
	}
	usage := func(_ context.Context, yield func(*llmhttp.ChatChunk, error) bool) {
		yield(&llmhttp.ChatChunk{Usage: &llmhttp.Usage{PromptTokens: 1}}, nil)
	}
	role := llmhttp.ChunkChoice{Delta: llmhttp.Delta{Role: llmhttp.RoleAssistant}}
	refusal := func(v string) llmhttp.Extra { return llmhttp.Extra{"refusal": json.RawMessage(v)} }
	announce := chunk(role)
	for name, test := range map[string]struct {
		first step
		begun bool
	}{
		"text":            {says("x"), true},
		"reasoning":       {chunk(llmhttp.ChunkChoice{Delta: llmhttp.Delta{Reasoning: "x"}}), true},
		"a tool call":     {chunk(llmhttp.ChunkChoice{Delta: llmhttp.Delta{ToolCalls: []llmhttp.ToolCallDelta{{ID: "1"}}}}), true},
		"a finish reason": {chunk(llmhttp.ChunkChoice{FinishReason: llmhttp.FinishStop}), true},
		"usage":           {usage, true},
		"a refusal":       {chunk(llmhttp.ChunkChoice{Delta: llmhttp.Delta{Extra: refusal(`"no"`)}}), true},
		"logprobs":        {chunk(llmhttp.ChunkChoice{Extra: llmhttp.Extra{"logprobs": json.RawMessage(`{}`)}}), true},
		"the second":      {then(announce, says("x")), true},
		"17 roles":        {then(then(announce, announce, announce, announce, announce, announce, announce, announce), then(announce, announce, announce, announce, announce, announce, announce, announce), announce), true},
		"a role":          {announce, false},
		"an empty text":   {says(""), false},
		"no refusal":      {chunk(llmhttp.ChunkChoice{Delta: llmhttp.Delta{Extra: refusal(`null`)}}), false},
		"two roles":       {then(announce, announce), false},
		"no choice": {func(_ context.Context, yield func(*llmhttp.ChatChunk, error) bool) {
			yield(&llmhttp.ChatChunk{Extra: refusal("1")}, nil)
		}, false},
		"no chunk at all":  {func(_ context.Context, yield func(*llmhttp.ChatChunk, error) bool) { yield(nil, nil) }, false},
		"nothing whatever": {func(context.Context, func(*llmhttp.ChatChunk, error) bool) {}, false},
	} {
		t.Run(name, func(t *testing.T) {
			for what, err := range map[string]error{"500": llmhttp.Errorf(500, "", "x"), "429": llmhttp.Errorf(429, "", "x"), "other": errBoom} {
				bad, good := steps(then(test.first, fails(err))), steps(says("good"))
				r := inOrder(t, nil, bad, good)
				text, got := say(t.Context(), r)
				if test.begun {
					assert.ErrorIs(t, got, err)
					assert.Zero(t, good.calls.Load())
					assert.Equal(t, what != "429", r.Status()[0].Failures == 1)
				} else {
					require.NoError(t, got)
					assert.Equal(t, "good", text)
				}
				assert.Equal(t, int64(1), bad.calls.Load())
			}
		})
	}
}

// What was kept back comes first, and in order; a reply of nothing else is one.
func TestHeldChunks(t *testing.T) {
	announce := func(id string) step {
		return func(_ context.Context, yield func(*llmhttp.ChatChunk, error) bool) {
			yield(&llmhttp.ChatChunk{ID: id, Choices: []llmhttp.ChunkChoice{{Delta: llmhttp.Delta{Role: llmhttp.RoleAssistant}}}}, nil)
		}
	}
	for name, test := range map[string]struct {
		step step
		take int // chunks until the client leaves
		want []string
	}{
		"and text":      {then(announce("1"), announce("2"), says("x", "y")), 9, []string{"1", "2", "", ""}},
		"and no more":   {then(announce("1"), announce("2")), 9, []string{"1", "2"}},
		"and departure": {then(announce("1"), announce("2"), says("x")), 1, []string{"1"}},
		"nothing":       {then(), 9, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := inOrder(t, nil, steps(then(announce("0"), fails(errBoom))), steps(test.step))
			var ids []string
			for c, err := range r.Chat(t.Context(), request()) {
				require.NoError(t, err)
				if ids = append(ids, c.ID); len(ids) == test.take {
					break
				}
			}
			assert.Equal(t, test.want, ids)
			assert.Zero(t, r.Status()[1].InFlight)
		})
	}
}

// A target may do with its request what it likes: the next one gets it whole.
func TestCopies(t *testing.T) {
	number, n := 0.5, 2
	whole := func() *llmhttp.ChatRequest {
		number, n := number, n
		extra := func() llmhttp.Extra { return llmhttp.Extra{"x": json.RawMessage(`1`)} }
		return &llmhttp.ChatRequest{
			Model: "m", Temperature: &number, TopP: &number, PresencePenalty: &number, FrequencyPenalty: &number,
			MaxTokens: &n, MaxCompletionTokens: &n, N: &n, Stop: llmhttp.StringList{"a"},
			StreamOptions:  &llmhttp.StreamOptions{Extra: extra()},
			ResponseFormat: &llmhttp.ResponseFormat{Type: "text", Extra: extra()},
			ToolChoice:     json.RawMessage(`"auto"`),
			Tools:          []llmhttp.Tool{{Type: "function", Function: &llmhttp.Function{Name: "f", Extra: extra()}, Extra: extra()}, {Type: "x"}},
			Messages: []llmhttp.Message{{
				Role: llmhttp.RoleUser, Extra: extra(),
				Content: llmhttp.Content{{Type: llmhttp.PartText, Text: "a", Extra: extra()},
					{Type: llmhttp.PartImage, ImageURL: &llmhttp.ImageURL{URL: "u", Extra: extra()}}},
				ToolCalls: []llmhttp.ToolCall{{ID: "1", Extra: extra(), Function: llmhttp.FunctionCall{Name: "f", Extra: extra()}}},
			}},
			Extra: extra(),
		}
	}
	vandal := llmhttp.BackendFunc(func(_ context.Context, r *llmhttp.ChatRequest) llmhttp.ChatStream {
		assert.Equal(t, whole(), r)
		r.Model = "vandal"
		for _, p := range []*float64{r.Temperature, r.TopP, r.PresencePenalty, r.FrequencyPenalty} {
			*p = 0
		}
		for _, p := range []*int{r.MaxTokens, r.MaxCompletionTokens, r.N} {
			*p = 0
		}
		m := &r.Messages[0]
		r.Stop[0], r.StreamOptions.IncludeUsage, r.ResponseFormat.Type = "", true, ""
		r.Tools[0].Function.Name, r.Tools[1].Type = "", ""
		m.Role, m.Content[0].Text, m.Content[1].ImageURL.URL, m.ToolCalls[0].ID = "", "", "", ""
		for _, e := range []llmhttp.Extra{r.Extra, r.StreamOptions.Extra, r.ResponseFormat.Extra, r.Tools[0].Extra, r.Tools[0].Function.Extra,
			m.Extra, m.Content[0].Extra, m.Content[1].ImageURL.Extra, m.ToolCalls[0].Extra, m.ToolCalls[0].Function.Extra} {
			delete(e, "x")
		}
		return llmhttp.Fail(errBoom)
	})
	synctest.Test(t, func(t *testing.T) {
		_, err := llmhttp.Collect(inOrder(t, nil, vandal, vandal).Chat(t.Context(), whole()))
		assert.ErrorIs(t, err, errBoom)
	})
}

func TestRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, test := range []struct {
			opts           route.Options
			targets        int
			tries          int64
			least, longest time.Duration
		}{
			{route.Options{}, 1, 2, 125 * time.Millisecond, 250 * time.Millisecond},
			{route.Options{}, 2, 4, 125 * time.Millisecond, 250 * time.Millisecond},
			{route.Options{}, 9, 6, 0, 0},
			{route.Options{Rounds: 1}, 3, 3, 0, 0},
			{route.Options{Rounds: 9, Tries: 3}, 1, 3, 375 * time.Millisecond, 750 * time.Millisecond},
			{route.Options{Rounds: 4, Tries: 99, Backoff: time.Second, MaxWait: 2 * time.Second}, 2, 8, 2500 * time.Millisecond, 5 * time.Second},
			{route.Options{Rounds: 2, Backoff: time.Hour}, 1, 2, 2500 * time.Millisecond, 5 * time.Second},
		} {
			bad := steps(status(500))
			var list []llmhttp.Backend
			for range test.targets {
				list = append(list, bad)
			}
			test.opts.Failures = -1
			start := time.Now()
			_, err := say(t.Context(), inOrder(t, &test.opts, list...))
			assert.Error(t, err)
			assert.Equal(t, test.tries, bad.calls.Load())
			assert.GreaterOrEqual(t, time.Since(start), test.least)
			assert.LessOrEqual(t, time.Since(start), test.longest)
		}
	})
}

func TestRetryAfter(t *testing.T) {
	for name, test := range map[string]struct {
		opts     route.Options
		deadline time.Duration
		a, b     []step
		want     string
		at       time.Duration // when it is over, at the least
		within   time.Duration // and how much later, at most
		calls    [2]int64
	}{
		"the next at once": {route.Options{}, 0, []step{limited(time.Second)}, []step{says("b")}, "b", 0, 0, [2]int64{1, 1}},
		"the client's fault": {route.Options{}, 0, []step{limited(3 * time.Second), says("a")}, []step{status(400)}, "", 0, 0,
			[2]int64{1, 1}},
		"the first that comes back": {route.Options{}, 0, []step{limited(4 * time.Second), says("a")}, []step{limited(3 * time.Second), says("b")},
			"b", 3 * time.Second, 0, [2]int64{1, 2}},
		"one that does not ask for time": {route.Options{}, 0, []step{limited(4 * time.Second), says("a")}, []step{status(500), says("b")},
			"b", 125 * time.Millisecond, 125 * time.Millisecond, [2]int64{1, 2}},
		"too long": {route.Options{}, 0, []step{limited(6 * time.Second), says("a")}, []step{limited(7 * time.Second)},
			"", 0, 0, [2]int64{1, 1}},
		"as long as allowed": {route.Options{MaxWait: 7 * time.Second}, 0, []step{limited(7 * time.Second), says("a")}, []step{limited(8 * time.Second)},
			"a", 7 * time.Second, 0, [2]int64{2, 1}},
		"beyond the deadline": {route.Options{}, 2 * time.Second, []step{limited(3 * time.Second), says("a")}, []step{limited(4 * time.Second)},
			"", 0, 0, [2]int64{1, 1}},
		"before the deadline": {route.Options{}, 4 * time.Second, []step{limited(3 * time.Second), says("a")}, []step{limited(9 * time.Second)},
			"a", 3 * time.Second, 0, [2]int64{2, 1}},
		"not before its time": {route.Options{}, 0, []step{limited(4 * time.Second), says("a")}, []step{limited(3 * time.Second), status(500), says("b")},
			"", 3 * time.Second, 0, [2]int64{1, 2}},
		"503 too": {route.Options{}, 0, []step{fails(&llmhttp.Error{Status: 503, RetryAfter: 3 * time.Second}), says("a")}, []step{limited(time.Hour)},
			"a", 3 * time.Second, 0, [2]int64{2, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if test.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, test.deadline)
					defer cancel()
				}
				a, b := steps(test.a...), steps(test.b...)
				start := time.Now()
				text, err := say(ctx, inOrder(t, &test.opts, a, b))
				assert.Equal(t, test.want, text)
				assert.Equal(t, test.want == "", err != nil)
				assert.GreaterOrEqual(t, time.Since(start), test.at)
				assert.LessOrEqual(t, time.Since(start), test.at+test.within)
				assert.Equal(t, test.calls, [2]int64{a.calls.Load(), b.calls.Load()})
			})
		})
	}
}

// A target that asked for time is left alone by other requests too, as long as
// there is another.
func TestRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := steps(limited(10*time.Second), says("a")), steps(says("b"), says("b"), status(500), says("b"))
		r := inOrder(t, nil, a, b)
		order := ""
		ask := func() {
			text, err := say(t.Context(), r)
			require.NoError(t, err)
			order += text
		}
		ask()
		rest := r.Status()[0].Rest
		assert.Equal(t, 10*time.Second, time.Until(rest))
		ask()
		ask() // b fails, and then a is better than none
		assert.Equal(t, "bba", order)
		ask()
		time.Sleep(10 * time.Second)
		assert.Zero(t, r.Status()[0].Rest)
		ask()
		assert.Equal(t, "bbaba", order)

		r = inOrder(t, nil, steps(limited(24*time.Hour), says("a")), steps(says("b")))
		ask()
		time.Sleep(5 * time.Minute)
		ask()
		assert.Equal(t, "bbababa", order, "five minutes are the most that a target is spared")
	})
}

func TestTryTimeout(t *testing.T) {
	slowly := func(d time.Duration, s step) step {
		return func(ctx context.Context, yield func(*llmhttp.ChatChunk, error) bool) {
			time.Sleep(d) // deaf to ctx
			s(ctx, yield)
		}
	}
	obedient := func(ctx context.Context, yield func(*llmhttp.ChatChunk, error) bool) {
		<-ctx.Done()
		yield(nil, ctx.Err())
	}
	synctest.Test(t, func(t *testing.T) {
		for name, test := range map[string]struct {
			timeout time.Duration
			step    step
			want    string
			after   time.Duration
		}{
			"hangs":             {time.Second, hangs, "b", time.Second},
			"hangs by default":  {0, hangs, "b", 2 * time.Minute},
			"says so":           {time.Second, obedient, "b", time.Second},
			"speaks too late":   {time.Second, slowly(3*time.Second, says("late")), "b", 3 * time.Second},
			"ends too late":     {time.Second, slowly(3*time.Second, then()), "b", 3 * time.Second},
			"in time":           {4 * time.Second, slowly(3*time.Second, says("a")), "a", 3 * time.Second},
			"without a limit":   {-1, slowly(time.Hour, says("a")), "a", time.Hour},
			"slow only then":    {time.Second, then(says("a"), slowly(time.Hour, says("a"))), "aa", time.Hour},
			"slow after a role": {time.Second, then(says(""), slowly(time.Hour, says("a"))), "a", time.Hour},
		} {
			start := time.Now()
			r := inOrder(t, &route.Options{TryTimeout: test.timeout}, steps(test.step), steps(says("b")))
			text, err := say(t.Context(), r)
			require.NoError(t, err, name)
			assert.Equal(t, test.want, text, name)
			assert.Equal(t, test.after, time.Since(start), name)
			if s := r.Status()[0]; test.want == "b" {
				assert.Equal(t, int64(1), s.Failures, name)
				assert.Equal(t, "504", s.LastError, name)
			}
		}
		_, err := say(t.Context(), inOrder(t, &route.Options{TryTimeout: time.Second}, steps(hangs)))
		var e *llmhttp.Error
		require.ErrorAs(t, err, &e)
		assert.Equal(t, 504, e.Status)
	})
}

// That a target was heard is not remembered of the next.
func TestTryTimeoutOfTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pause := func(context.Context, func(*llmhttp.ChatChunk, error) bool) { time.Sleep(time.Minute) }
		r := inOrder(t, &route.Options{TryTimeout: time.Second},
			steps(then(says(""), fails(errBoom))), steps(hangs), steps(then(says("c"), pause, says("c"))))
		text, err := say(t.Context(), r)
		require.NoError(t, err)
		assert.Equal(t, "cc", text)
	})
}

// The context of a try is done when the try is over.
func TestContextOfATry(t *testing.T) {
	var ctxs []context.Context
	keep := func(ctx context.Context, _ func(*llmhttp.ChatChunk, error) bool) {
		ctxs = append(ctxs, ctx)
		assert.NoError(t, ctx.Err())
	}
	type key struct{}
	ctx := context.WithValue(t.Context(), key{}, "value")
	_, err := say(ctx, inOrder(t, nil, steps(then(keep, fails(errBoom))), steps(then(keep, says("b"), keep))))
	require.NoError(t, err)
	require.Len(t, ctxs, 3)
	for _, c := range ctxs {
		assert.Error(t, c.Err())
		assert.Equal(t, "value", c.Value(key{}))
	}
	assert.NoError(t, ctx.Err())
}

// A client that leaves counts as nothing, whenever it does and whatever the
// target makes of it.
func TestClientLeaves(t *testing.T) {
	cause := errors.New("gone")
	for name, s := range map[string]step{
		"silent":            hangs,
		"fails":             then(hangs, fails(errBoom)),
		"fails with 500":    then(hangs, status(500)),
		"fails with ctx":    then(hangs, fails(context.Canceled)),
		"succeeds":          then(hangs, says("late")),
		"in mid-stream":     then(says("a"), hangs),
		"then fails":        then(says("a"), hangs, fails(errBoom)),
		"after a role":      then(says(""), hangs, fails(errBoom)),
		"while it is idle":  limited(4 * time.Second),
		"between two tries": status(500),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := steps(s)
				r := inOrder(t, &route.Options{Failures: 9}, b)
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(100*time.Millisecond, func() { cancel(cause) })
				_, err := say(ctx, r)
				if name != "succeeds" {
					assert.Equal(t, cause, err)
				}
				assert.Equal(t, int64(1), b.calls.Load())
				status := r.Status()[0]
				assert.Zero(t, status.InFlight)
				assert.Equal(t, name == "between two tries", status.Failures == 1)

				before := b.calls.Load()
				_, err = say(ctx, r)
				assert.Equal(t, cause, err)
				assert.Equal(t, before, b.calls.Load(), "nobody is asked for a client that has left")
			})
		})
	}

	t.Run("by breaking off", func(t *testing.T) {
		r := inOrder(t, &route.Options{Failures: 1}, steps(then(says("a", "b"), fails(errBoom))))
		for range r.Chat(t.Context(), request()) {
			break
		}
		s := r.Status()[0]
		assert.Zero(t, s.InFlight)
		assert.Zero(t, s.Failures)
		assert.Equal(t, route.StateClosed, s.State)
	})
}

// A deadline of the request's is not the target's fault, but the silence that
// a Handler ends is.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := inOrder(t, nil, steps(hangs))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := say(ctx, r)
		assert.Equal(t, context.DeadlineExceeded, err)
		assert.Zero(t, r.Status()[0].Failures)

		h := llmhttp.NewHandler(r, llmhttp.AllowAll("acme"), &llmhttp.Options{Timeout: time.Second})
		w := chat(h, "m")
		assert.Equal(t, 504, w.Code)
		assert.Equal(t, int64(1), r.Status()[0].Failures)
		assert.Equal(t, "504", r.Status()[0].LastError)
	})
}

// A panic is a failure of the target, and nobody else's business.
func TestPanic(t *testing.T) {
	boom := func(context.Context, func(*llmhttp.ChatChunk, error) bool) { panic("boom") }
	r := inOrder(t, nil, steps(boom, then(says("a"), boom), says("a")), steps(says("b")))
	assert.PanicsWithValue(t, "boom", func() { say(t.Context(), r) })
	assert.PanicsWithValue(t, "boom", func() { say(t.Context(), r) })
	s := r.Status()[0]
	assert.Zero(t, s.InFlight)
	assert.Equal(t, int64(2), s.Failures)

	assert.PanicsWithValue(t, "the client's", func() {
		for range r.Chat(t.Context(), request()) {
			panic("the client's")
		}
	})
	s = r.Status()[0]
	assert.Zero(t, s.InFlight)
	assert.Equal(t, int64(3), s.Tries)
	assert.Equal(t, int64(2), s.Failures)
}

// A target that goes on when it was told to stop changes nothing.
func TestStubborn(t *testing.T) {
	stubborn := func(_ context.Context, yield func(*llmhttp.ChatChunk, error) bool) {
		yield(nil, errBoom)
		yield(llmhttp.TextChunk("x"), nil)
		yield(nil, nil)
	}
	text, err := say(t.Context(), inOrder(t, nil, steps(stubborn), steps(says("b"))))
	require.NoError(t, err)
	assert.Equal(t, "b", text)

	deaf := func(_ context.Context, yield func(*llmhttp.ChatChunk, error) bool) {
		for range 3 {
			yield(llmhttp.TextChunk("x"), nil)
		}
		yield(nil, errBoom)
	}
	n := 0
	inOrder(t, nil, steps(deaf)).Chat(t.Context(), request())(func(*llmhttp.ChatChunk, error) bool { n++; return false })
	assert.Equal(t, 1, n)
}

func TestLog(t *testing.T) {
	logger, log := newLogger()
	r := inOrder(t, &route.Options{Logger: logger, Failures: 1}, steps(fails(&llmhttp.Error{Status: 502, Message: "sk-secret", Err: errBoom})), steps(fails(errBoom), says("b")))
	_, err := say(t.Context(), r)
	require.Error(t, err)
	assert.Contains(t, log.String(), `level=INFO msg="target failed" request_id="" route=m target=a try=1 error=502`)
	assert.Contains(t, log.String(), `level=WARN msg="circuit breaker opened" request_id="" route=m target=a retry_after=1`)
	assert.Contains(t, log.String(), `target=b try=2 error=500`)
	assert.NotContains(t, log.String(), "sk-secret")
	assert.NotContains(t, log.String(), "10.0.0.1")
	for _, s := range r.Status() {
		assert.NotContains(t, s.LastError, "sk-secret")
	}
}

// A Router that may wait for long asks a target when it said, and not before.
func TestLongWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []time.Duration
		start := time.Now()
		b := llmhttp.BackendFunc(func(context.Context, *llmhttp.ChatRequest) llmhttp.ChatStream {
			asked = append(asked, time.Since(start))
			return llmhttp.Fail(&llmhttp.Error{Status: 429, RetryAfter: 8 * time.Minute})
		})
		r := newRouter(t, &route.Options{MaxWait: 10 * time.Minute}, route.Route{Model: "m", Targets: targets(b)})
		_, err := llmhttp.Collect(r.Chat(t.Context(), &llmhttp.ChatRequest{Model: "m"}))
		require.Error(t, err)
		assert.Equal(t, []time.Duration{0, 8 * time.Minute}, asked)
	})
}
