package messages_test

import (
	"context"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/messages"
)

func TestCountTokens(t *testing.T) {
	s := newServer(nil, func(o *llmhttp.Options) {
		o.Estimates.TextTokens = func(_, text string) int { return 100 * len(strings.Fields(text)) }
	})
	w := s.do("POST", messagesPath+"/count_tokens", `{"model":"m","system":"Be brief."`+hi+`}`)
	require.Equal(t, 200, w.Code, w.Body)
	var got struct {
		InputTokens int `json:"input_tokens"`
	}
	require.NoError(t, decodeStrict(w.Body.Bytes(), &got))
	assert.Greater(t, got.InputTokens, 300)
	assert.Empty(t, s.usage, "it is not billed")
	assert.Nil(t, s.last)
	require.Len(t, s.ends, 1)
	assert.Equal(t, "messages", s.ends[0].Record.Protocol)
	assert.Equal(t, "m", s.ends[0].Record.Model)

	w = s.do("POST", messagesPath+"/count_tokens", `{"model":"m"}`)
	assert.Equal(t, 400, w.Code)
	_, message, err := readError(w.Body.Bytes())
	require.NoError(t, err)
	assert.Equal(t, "messages: Field required", message)
}

// A counter is a Backend that counts tokens.
type counter struct{ llmhttp.Backend }

func (counter) CountTokens(_ context.Context, req *llm.ChatRequest) (int, error) {
	if req.Model == "negative" {
		return -1, nil
	}
	return len(req.Messages) + 10*len(req.Tools), nil
}

func TestCountTokens_ByTheBackend(t *testing.T) {
	keys := llmhttp.KeyStoreFunc(func(context.Context, string) (*llmhttp.Key, error) {
		return &llmhttp.Key{ID: "k", Models: []string{"m", "negative"}, Limits: llmhttp.Limits{Requests: llmhttp.Rate{N: 3, Per: 1e15}}}, nil
	})
	h := llmhttp.NewHandler(counter{}, keys, &llmhttp.Options{Protocols: []llmhttp.Protocol{messages.New(nil)}})
	s := &server{Handler: h}
	const members = hi + `,"tools":[{"name":"f","input_schema":{}}]}`
	w := s.do("POST", messagesPath+"/count_tokens", `{"model":"m"`+members)
	assert.Equal(t, 200, w.Code)
	assert.JSONEq(t, `{"input_tokens":11}`, w.Body.String())
	w = s.do("POST", messagesPath+"/count_tokens", `{"model":"negative"`+members)
	assert.JSONEq(t, `{"input_tokens":0}`, w.Body.String())
	w = s.do("POST", messagesPath+"/count_tokens", `{"model":"other"`+members)
	assert.Equal(t, 404, w.Code)
}

// Requests that count tokens have a bucket of their own, which holds those that Claude Code
// makes at once.
func TestCountTokens_Limit(t *testing.T) {
	keys := llmhttp.KeyStoreFunc(func(context.Context, string) (*llmhttp.Key, error) {
		return &llmhttp.Key{ID: "k", Limits: llmhttp.Limits{Requests: llmhttp.Rate{N: 2, Per: 1e15}}}, nil
	})
	h := llmhttp.NewHandler(llmhttp.BackendFunc(func(context.Context, *llm.ChatRequest) llm.ChatStream { return llm.Reply("Hi") }),
		keys, &llmhttp.Options{Protocols: []llmhttp.Protocol{messages.New(nil)}})
	s := &server{Handler: h}
	count := func(body string) *httptest.ResponseRecorder { return s.do("POST", messagesPath+"/count_tokens", body) }
	chat := func() int { return s.do("POST", messagesPath, requestBody(hi)).Code }
	for i := range 100 {
		w := count(`{"model":"m"` + hi + `}`)
		require.Equal(t, 200, w.Code)
		assert.Equal(t, strconv.Itoa(99-i), w.Header().Get("Anthropic-Ratelimit-Requests-Remaining"))
	}
	w := count(`{"model":"m"` + hi + `}`)
	assert.Equal(t, 429, w.Code)
	typ, _, err := readError(w.Body.Bytes())
	require.NoError(t, err)
	assert.Equal(t, "rate_limit_error", typ)
	assert.Equal(t, []int{200, 200, 429}, []int{chat(), chat(), chat()})
}

// A request that is refused before tokens are counted is given back to their bucket.
func TestCountTokens_Refund(t *testing.T) {
	keys := llmhttp.KeyStoreFunc(func(context.Context, string) (*llmhttp.Key, error) {
		return &llmhttp.Key{ID: "k", Limits: llmhttp.Limits{Requests: llmhttp.Rate{N: 200, Per: 1e15}}}, nil
	})
	limiter := llmhttp.NewLimiter()
	h := llmhttp.NewHandler(counter{}, keys, &llmhttp.Options{Limiter: limiter, Protocols: []llmhttp.Protocol{messages.New(nil)}})
	w := (&server{Handler: h}).do("POST", messagesPath+"/count_tokens", "{}", "Content-Encoding", "zstd")
	assert.Equal(t, 415, w.Code)
	rate := llmhttp.Rate{N: 200, Per: 1e15, Burst: 200}
	key := llmhttp.SubjectID{Kind: llmhttp.KindKey, ID: "k"}
	levels, err := limiter.Take(t.Context(), llmhttp.BucketAmount{Subject: key, Bucket: llmhttp.BucketTokenCounts, Rate: rate}, llmhttp.BucketAmount{Subject: key, Bucket: llmhttp.BucketRequests, Rate: rate})
	require.NoError(t, err)
	assert.Equal(t, []int64{200, 200}, []int64{levels[0].Remaining, levels[1].Remaining})
}
