package messages_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/messages"
)

func TestErrors(t *testing.T) {
	failure := func(status int) error { return llmhttp.Errorf(status, "", "It failed.") }
	tooLong := func(message string) error { return llmhttp.Errorf(400, "context_length_exceeded", "%s", message) }
	for name, test := range map[string]struct {
		err     error
		status  int
		typ     string
		message string
	}{
		"400":      {failure(400), 400, "invalid_request_error", "It failed."},
		"401":      {failure(401), 401, "authentication_error", "It failed."},
		"402":      {failure(402), 402, "billing_error", "It failed."},
		"403":      {failure(403), 403, "permission_error", "It failed."},
		"404":      {failure(404), 404, "not_found_error", "It failed."},
		"409":      {failure(409), 409, "conflict_error", "It failed."},
		"413":      {failure(413), 413, "request_too_large", "It failed."},
		"422":      {failure(422), 422, "invalid_request_error", "It failed."},
		"429":      {failure(429), 429, "rate_limit_error", "It failed."},
		"500":      {failure(500), 500, "api_error", "It failed."},
		"502":      {failure(502), 502, "api_error", "It failed."},
		"503":      {failure(503), 529, "overloaded_error", "It failed."},
		"504":      {failure(504), 504, "timeout_error", "It failed."},
		"529":      {failure(529), 529, "overloaded_error", "It failed."},
		"a cause":  {errors.New("a secret cause"), 500, "api_error", "The server had an error while processing your request. Sorry about that!"},
		"too long": {tooLong("This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens."), 400, "invalid_request_error", "prompt is too long: 9000 tokens > 8192 maximum"},
		"too long, with the reply": {tooLong("This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4000 in the messages, 1000 in the completion)."), 400,
			"invalid_request_error", "prompt is too long: 5000 tokens > 4096 maximum"},
		"too long, in reverse": {tooLong("Your prompt has 5000 tokens, but the maximum is 4096."), 400, "invalid_request_error", "prompt is too long: 5000 tokens > 4096 maximum"},
		"too long, no numbers": {tooLong("Shorten it."), 400, "invalid_request_error", "prompt is too long: Shorten it."},
		"too long, one number": {tooLong("The maximum is 4096 tokens."), 400, "invalid_request_error", "prompt is too long: The maximum is 4096 tokens."},
		"too long, as wanted":  {tooLong("prompt is too long: 2 tokens > 1 maximum"), 400, "invalid_request_error", "prompt is too long: 2 tokens > 1 maximum"},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(func() llmhttp.ChatStream { return llmhttp.Fail(test.err) }, nil)
			for _, stream := range []string{"false", "true"} {
				w := s.do("POST", path, chat(hi+`,"stream":`+stream))
				assert.Equal(t, test.status, w.Code)
				typ, message, err := readError(w.Body.Bytes())
				require.NoError(t, err)
				assert.Equal(t, test.typ, typ)
				assert.Equal(t, test.message, message)
				assert.Contains(t, w.Body.String(), `"request_id":"`+w.Header().Get("Request-Id")+`"`)
			}
			s = serve(func() llmhttp.ChatStream {
				return func(yield func(*llmhttp.ChatChunk, error) bool) {
					if yield(llmhttp.TextChunk("Hi"), nil) {
						yield(nil, test.err)
					}
				}
			}, nil)
			body, aborted := s.stream(chat(hi + `,"stream":true`))
			assert.True(t, aborted)
			events, err := parseEvents(body)
			require.NoError(t, err)
			last := events[len(events)-1]
			assert.Equal(t, "error", last.Name)
			typ, message, err := readError([]byte(last.Data))
			require.NoError(t, err)
			assert.Equal(t, test.typ, typ)
			assert.Equal(t, test.message, message)
		})
	}
}

func TestHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // at midnight UTC, 2000-01-01
		key := &llmhttp.Key{ID: "k", Limits: llmhttp.Limits{Requests: llmhttp.PerMinute(2), Tokens: llmhttp.PerMinute(600)}}
		keys := llmhttp.KeyFunc(func(context.Context, string) (*llmhttp.Key, error) { return key, nil })
		backend := llmhttp.BackendFunc(func(context.Context, *llmhttp.ChatRequest) llmhttp.ChatStream {
			time.Sleep(100 * time.Millisecond)
			return (&llmhttp.ChatResponse{Usage: &llmhttp.Usage{PromptTokens: 50, CompletionTokens: 10}}).Stream()
		})
		s := &server{Handler: llmhttp.NewHandler(backend, keys, &llmhttp.Options{Protocols: []llmhttp.Protocol{messages.New(nil)}})}
		w := s.do("POST", path, chat(hi))
		require.Equal(t, 200, w.Code)
		for name, want := range map[string]string{
			"Anthropic-Ratelimit-Requests-Limit":     "2",
			"Anthropic-Ratelimit-Requests-Remaining": "1",
			"Anthropic-Ratelimit-Requests-Reset":     "2000-01-01T00:00:31Z", // rounded up
			"Anthropic-Ratelimit-Tokens-Limit":       "600",
			"X-Ratelimit-Limit-Requests":             "",
			"X-Request-Id":                           "",
		} {
			assert.Equal(t, want, w.Header().Get(name), name)
		}
		assert.Equal(t, 200, s.do("POST", path, chat(hi)).Code)
		w = s.do("POST", path, chat(hi))
		assert.Equal(t, 429, w.Code)
		assert.Equal(t, "30", w.Header().Get("Retry-After"))
		assert.NotEmpty(t, w.Header().Get("Retry-After-Ms"))
		assert.Equal(t, "true", w.Header().Get("X-Should-Retry"))
		assert.Equal(t, "0", w.Header().Get("Anthropic-Ratelimit-Requests-Remaining"))
	})
}

// Keys in X-Api-Key work on the paths of this protocol only, and every error there has
// its form.
func TestKeys(t *testing.T) {
	keys := llmhttp.KeyFunc(func(_ context.Context, secret string) (*llmhttp.Key, error) {
		if secret != "sk-good" {
			return nil, llmhttp.ErrKeyNotFound
		}
		return &llmhttp.Key{ID: "k", Scopes: []llmhttp.Endpoint{llmhttp.EndpointChat}}, nil
	})
	h := llmhttp.NewHandler(lister{Backend: llmhttp.BackendFunc(func(context.Context, *llmhttp.ChatRequest) llmhttp.ChatStream { return llmhttp.Reply("Hi") })},
		keys, &llmhttp.Options{Protocols: []llmhttp.Protocol{messages.New(nil)}})
	s := &server{Handler: h}
	for _, test := range []struct {
		path   string
		header []string
		status int
	}{
		{path, []string{"X-Api-Key", "sk-good"}, 200},
		{path, []string{"Authorization", "Bearer sk-good"}, 200},
		{path, []string{"X-Api-Key", "sk-good", "Authorization", "Bearer sk-other"}, 200},
		{path, []string{"X-Api-Key", "sk-bad"}, 401},
		{path, nil, 401},
		{path + "/count_tokens", []string{"X-Api-Key", "sk-good"}, 200},
		{"/v1/chat/completions", []string{"X-Api-Key", "sk-good"}, 401},
	} {
		w := s.do(http.MethodPost, test.path, chat(hi), test.header...)
		assert.Equal(t, test.status, w.Code, "%s %v", test.path, test.header)
		if test.status != 200 && test.path == path {
			typ, _, err := readError(w.Body.Bytes())
			require.NoError(t, err)
			assert.Equal(t, "authentication_error", typ)
		}
	}
	w := s.do("GET", "/v1/models", "", "X-Api-Key", "sk-good")
	assert.Equal(t, 403, w.Code, "the key has no scope for models")
	typ, _, err := readError(w.Body.Bytes())
	require.NoError(t, err)
	assert.Equal(t, "permission_error", typ)
}

// A Handler that shuts down refuses requests in the form of the protocol.
func TestShutdown(t *testing.T) {
	s := serve(nil, nil)
	require.NoError(t, s.Handler.(*llmhttp.Handler).Shutdown(t.Context()))
	w := s.do("POST", path, chat(hi))
	assert.Equal(t, 529, w.Code)
	typ, _, err := readError(w.Body.Bytes())
	require.NoError(t, err)
	assert.Equal(t, "overloaded_error", typ)
	assert.NotEmpty(t, w.Header().Get("Retry-After"))
}

func TestRecords(t *testing.T) {
	s := serve(nil, nil)
	s.do("POST", path, chat(hi))
	s.stream(chat(hi + `,"stream":true`))
	require.Len(t, s.usage, 2)
	require.Len(t, s.ends, 2)
	for i, end := range s.ends {
		assert.Equal(t, "messages", end.Protocol)
		assert.Equal(t, i == 1, end.Streamed)
		assert.Equal(t, "m", s.usage[i].Model)
		assert.Equal(t, llmhttp.EndpointChat, s.usage[i].Endpoint)
	}
}

func TestAllocs(t *testing.T) {
	_, encoder, err := messages.New(nil).Routes()[0].Chat(t.Context(), nil, []byte(chat(hi+`,"stream":true`)))
	require.NoError(t, err)
	b := encoder.AppendStart(make([]byte, 0, 64<<10), &llmhttp.ReplyStart{Model: "m"})
	c := llmhttp.TextChunk("some text")
	_, err = encoder.AppendChunk(b, c)
	require.NoError(t, err)
	assert.Zero(t, testing.AllocsPerRun(1000, func() { encoder.AppendChunk(b, c) }), "per text delta")
}
