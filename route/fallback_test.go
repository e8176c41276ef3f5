package route_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/route"
	"github.com/llmhttp/llmhttp/upstream"
)

// decide returns a Fallback that makes the same decision each time.
func decide(d route.Decision) func(context.Context, error) route.Decision {
	return func(context.Context, error) route.Decision { return d }
}

func TestFallback_Decision(t *testing.T) {
	tooLong := llm.Errorf(400, "context_length_exceeded", "Too long.")
	replaced := llm.Errorf(403, "provider_key_refused", "The provider has refused your key.")
	for name, test := range map[string]struct {
		step     step
		decision route.Decision
		text     string // of the reply; if empty, there is an error
		status   int
		failed   bool
		resting  bool
		logged   bool
	}{
		"nothing of a failure":         {failStatus(500), route.Decision{}, "next", 0, true, false, true},
		"nothing of a refusal":         {fail(tooLong), route.Decision{}, "", 400, false, false, false},
		"next after a refusal":         {fail(tooLong), route.Decision{TryNext: route.Yes}, "next", 0, false, false, false},
		"none after a failure":         {failStatus(500), route.Decision{TryNext: route.No}, "", 500, true, false, true},
		"none after a 429":             {rateLimit(time.Hour), route.Decision{TryNext: route.No}, "", 429, false, true, true},
		"a refusal is a failure":       {fail(tooLong), route.Decision{Failed: route.Yes}, "", 400, true, false, true},
		"a failure is none":            {failStatus(500), route.Decision{Failed: route.No}, "next", 0, false, false, false},
		"a 429 lets nobody rest":       {rateLimit(time.Hour), route.Decision{Failed: route.No}, "next", 0, false, false, false},
		"another error":                {failStatus(502), route.Decision{TryNext: route.No, Failed: route.No, Err: replaced}, "", 403, false, false, false},
		"another error, not sent":      {failStatus(502), route.Decision{Err: replaced}, "next", 0, true, false, true},
		"yes to what would be anyway":  {failStatus(500), route.Decision{TryNext: route.Yes, Failed: route.Yes}, "next", 0, true, false, true},
		"next after a reply has begun": {sequence(say("begun"), failStatus(500)), route.Decision{TryNext: route.Yes}, "begun", 500, true, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				logger, log := newLogger()
				r := newInOrderRouter(t, &route.Options{Failures: 1, Logger: logger, Fallback: decide(test.decision)}, newFake(test.step), newFake(say("next")))
				text, err := ask(t.Context(), r)
				assert.Equal(t, test.text, text)
				if test.status != 0 {
					requireStatus(t, err, test.status)
				} else {
					assert.NoError(t, err)
				}
				s := r.Status()[0]
				assert.Equal(t, test.failed, s.Failures > 0)
				assert.Equal(t, test.failed, s.State == route.StateOpen)
				assert.Equal(t, test.resting, !s.RestUntil.IsZero())
				assert.Equal(t, test.logged, s.LastError != "")
				assert.Equal(t, test.logged, log.Len() > 0)
			})
		})
	}
}

// What a target has refused is the client's error only if no other target has had a failure.
func TestFallback_ErrorWhenAllTargetsFail(t *testing.T) {
	refuse := fail(llm.Errorf(400, "context_length_exceeded", "x"))
	for name, test := range map[string]struct {
		steps  []step
		status int
		tries  int64 // of the target that refuses
	}{
		"all refuse":                    {[]step{refuse, refuse}, 400, 1},
		"a failure":                     {[]step{refuse, failStatus(503)}, 503, 1},
		"a 429":                         {[]step{refuse, rateLimit(0)}, 429, 1},
		"no other target has the model": {[]step{refuse, fail(llm.ModelNotFound("m"))}, 400, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first := newFake(test.steps[0])
				r := newInOrderRouter(t, &route.Options{Fallback: func(_ context.Context, err error) route.Decision {
					if route.IsContextLength(err) {
						return route.Decision{TryNext: route.Yes}
					}
					return route.Decision{}
				}}, first, newFake(test.steps[1]))
				_, err := ask(t.Context(), r)
				requireStatus(t, err, test.status)
				assert.Equal(t, test.tries, first.calls.Load(), "a target that refuses a request is not asked again")
			})
		})
	}
}

// If a prompt is too long for all targets with a closed breaker, it is sent to one whose
// breaker is open.
func TestFallback_OnlyAnOpenBreakerIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		large := newFake(failStatus(500), say("large"))
		small := newFake(say("small"), fail(llm.Errorf(400, "context_length_exceeded", "x")))
		r := newInOrderRouter(t, &route.Options{Failures: 1, OpenFor: time.Hour, Fallback: decide(route.Decision{TryNext: route.Yes})}, large, small)
		assert.Equal(t, "small", askTimes(t, r, 1))
		assert.Equal(t, "large", askTimes(t, r, 1))
	})
}

func TestFallback_IsAskedForErrorsOfTargets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []error
		opts := &route.Options{Fallback: func(ctx context.Context, err error) route.Decision {
			assert.Equal(t, "value", ctx.Value("key"))
			got = append(got, err)
			return route.Decision{}
		}}
		r := newRouter(t, opts, route.Route{Model: "m", Targets: singleTarget(newFake(fail(llm.Errorf(400, "", "The model `internal` is bad."))), "internal")})
		ctx := context.WithValue(t.Context(), "key", "value") //lint:ignore SA1029 a test
		ask(ctx, r)
		require.Len(t, got, 1)
		assert.Equal(t, "The model `m` is bad.", requireStatus(t, got[0], 400).Message)

		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		ask(ctx, newInOrderRouter(t, opts, newFake(hang)))
		for range newInOrderRouter(t, opts, newFake(say("a", "b"))).Chat(ctx, newRequest("m")) {
			break
		}
		assert.Len(t, got, 1, "it is not asked if the client has left")
	})
}

// A Fallback that panics is no failure of the target.
func TestFallback_Panics(t *testing.T) {
	r := newInOrderRouter(t, &route.Options{Failures: 1, Fallback: func(context.Context, error) route.Decision { panic("host") }},
		newFake(failStatus(500)), newFake(say("b")))
	assert.PanicsWithValue(t, "host", func() { ask(t.Context(), r) })
	s := r.Status()[0]
	assert.Equal(t, []any{route.StateClosed, int64(0), 0}, []any{s.State, s.Failures, s.InFlight})
}

// Errors of servers are recognized through package upstream.
func TestFallback_ErrorsOfServers(t *testing.T) {
	for name, test := range map[string]struct {
		status                           int
		body                             string
		contextLength, filter, keyRefuse bool
	}{
		"OpenAI": {400, `{"error":{"message":"This model's maximum context length is 8192 tokens.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}`,
			true, false, false},
		"vLLM": {400, `{"object":"error","message":"This model's maximum context length is 6048 tokens. However, you requested 6616 tokens.","type":"BadRequestError","param":null,"code":400}`,
			true, false, false},
		"llama.cpp": {400, `{"error":{"code":400,"message":"request (4390 tokens) exceeds the available context size (4096 tokens), try increasing it","type":"exceed_context_size_error","n_prompt_tokens":4390,"n_ctx":4096}}`,
			true, false, false},
		"SGLang": {400, `{"object":"error","message":"The input (9000 tokens) is longer than the model's context length (8192 tokens).","type":"BadRequest","param":null,"code":400}`,
			true, false, false},
		"TGI": {422, "{\"error\":\"Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8192. Given: 9000 `inputs` tokens and 100 `max_new_tokens`\",\"error_type\":\"validation\"}",
			true, false, false},
		"Mistral": {400, `{"object":"error","message":"Prompt contains 9000 tokens and 0 draft tokens, too large for model with 8192 maximum context length","type":"invalid_request_error","code":3051}`,
			true, false, false},
		"a filter":             {400, `{"error":{"message":"Filtered.","code":"content_filter"}}`, false, true, false},
		"a policy":             {400, `{"error":{"message":"Filtered.","code":"content_policy_violation"}}`, false, true, false},
		"another 400":          {400, `{"error":{"message":"Bad.","code":"invalid_value"}}`, false, false, false},
		"the text in a 500":    {500, `{"error":{"message":"maximum context length"}}`, false, false, false},
		"a key":                {401, `{"error":{"message":"Incorrect API key provided.","code":"invalid_api_key"}}`, false, false, true},
		"an unpaid bill":       {402, `{"error":{"message":"Pay."}}`, false, false, true},
		"a key without rights": {403, `{"error":{"message":"Not with this key."}}`, false, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(test.status)
				io.WriteString(w, test.body)
			}))
			defer server.Close()
			b, err := upstream.New(server.URL, nil)
			require.NoError(t, err)
			_, err = ask(t.Context(), newInOrderRouter(t, &route.Options{Rounds: 1}, b))
			require.Error(t, err)
			for _, err := range []error{err, fmt.Errorf("wrapped: %w", err)} {
				assert.Equal(t, []bool{test.contextLength, test.filter, test.keyRefuse},
					[]bool{route.IsContextLength(err), route.IsContentFilter(err), route.IsKeyRefused(err)}, err)
			}
		})
	}
	for _, status := range []int{400, 413, 422} { // of a Backend that is not package upstream's
		assert.True(t, route.IsContextLength(llm.Errorf(status, "", "prompt is too long: 9000 tokens > 8192 maximum")))
	}
	for _, err := range []error{nil, errors.New("x"), (*llm.Error)(nil)} {
		assert.False(t, route.IsContextLength(err) || route.IsContentFilter(err) || route.IsKeyRefused(err))
	}
}
