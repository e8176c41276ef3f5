package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
)

// A usageLog keeps the records.
type usageLog struct {
	llmhttp.UsageStore
	records []llmhttp.UsageRecord
}

func (u *usageLog) Record(_ context.Context, records ...llmhttp.UsageRecord) error {
	u.records = append(u.records, records...)
	return nil
}

// keys has a key for each account, whose secret is the name of the account.
var keys = llmhttp.KeyStoreFunc(func(_ context.Context, secret string) (*llmhttp.Key, error) {
	return &llmhttp.Key{ID: "of " + secret, Account: secret}, nil
})

// newModel returns a Backend that reasons, says something and calls a tool, and counts its calls.
func newModel(calls *int) llmhttp.Backend {
	script := memory.Scripted(
		memory.Reason("let me "), memory.Reason("see"), memory.Say("one "), memory.Say("moment"), memory.Call("call_1", "look", `{"x":1}`),
		memory.Chunk(&llm.ChatChunk{Usage: &llm.Usage{PromptTokens: 1000, CompletionTokens: 500}}),
	)
	return llmhttp.BackendFunc(func(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
		*calls++
		return script.Chat(ctx, req)
	})
}

const (
	whole  = `{"model":"m","messages":[{"role":"user","content":"Hello!"}]}`
	stream = `{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"Hello!"}]}`
)

// post sends a chat for an account. It returns the reply without what differs in each, and whether it
// is from the cache.
func post(t *testing.T, h *llmhttp.Handler, account, body string) (reply, hit string) {
	t.Helper()
	r := httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+account)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	require.Equal(t, 200, w.Code)
	if body == whole {
		var v map[string]any
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &v))
		delete(v, "id")
		delete(v, "created")
		b, _ := json.Marshal(v)
		return string(b), w.Header().Get("X-Cache")
	}
	for line := range strings.Lines(w.Body.String()) {
		if i := strings.Index(line, `"choices"`); i >= 0 {
			reply += line[i:]
		}
	}
	return reply, w.Header().Get("X-Cache")
}

func TestCache(t *testing.T) {
	calls, usage := 0, new(usageLog)
	h := newHandler(newModel(&calls), keys, usage, false, false)
	wholes, streams := make(map[string]bool), make(map[string]bool)
	for i, want := range []string{"miss", "hit", "hit", "hit"} {
		body, replies := whole, wholes
		if i%2 == 1 {
			body, replies = stream, streams
		}
		reply, hit := post(t, h, "acme", body)
		assert.Equal(t, want, hit, "the stream flag makes no difference")
		replies[reply] = true
	}
	assert.Equal(t, 1, calls)
	assert.Len(t, wholes, 1)
	assert.Len(t, streams, 1)
	for reply := range streams {
		for _, want := range []string{"let me ", "see", "one ", "moment", `"name":"look"`, `"finish_reason":"tool_calls"`, `"total_tokens":1500`} {
			assert.Contains(t, reply, want)
		}
	}
	const million = 1_000_000
	cost := llm.MoneyUnit.Scale(1000, million) + (4*llm.MoneyUnit).Scale(500, million)
	for i, r := range usage.records {
		assert.EqualValues(t, 1000, r.Units.PromptTokens, "the usage is recorded")
		assert.Equal(t, i == 0, r.Cost.Total() == cost)
		assert.Equal(t, i != 0, r.Cost.Total() == 0, "and free, if the cache answers")
	}
}

func TestCache_Keys(t *testing.T) {
	for name, test := range map[string]struct {
		shared        bool
		account, body string
		want          string
	}{
		"the same":              {false, "acme", whole, "hit"},
		"of another account":    {false, "other", whole, "miss"},
		"of one that may share": {true, "other", whole, "hit"},
		"another text":          {true, "acme", strings.Replace(whole, "Hello", "Bye", 1), "miss"},
		"another parameter":     {true, "acme", strings.Replace(whole, "{", `{"temperature":0,`, 1), "miss"},
		"a member of a vendor":  {true, "acme", strings.Replace(whole, "{", `{"top_k":3,`, 1), "miss"},
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			h := newHandler(newModel(&calls), keys, new(usageLog), test.shared, true)
			post(t, h, "acme", whole)
			_, hit := post(t, h, test.account, test.body)
			assert.Equal(t, test.want, hit)
		})
	}
}

func TestCache_PricedHits(t *testing.T) {
	calls, usage := 0, new(usageLog)
	h := newHandler(newModel(&calls), keys, usage, false, true)
	post(t, h, "acme", whole)
	post(t, h, "acme", whole)
	require.Len(t, usage.records, 2)
	assert.Equal(t, usage.records[0].Cost, usage.records[1].Cost)
	assert.NotZero(t, usage.records[1].Cost)
}

// What is not a complete reply is not kept.
func TestCache_Failures(t *testing.T) {
	chat := func(c *cache, ctx context.Context, n int) {
		for range c.Chat(ctx, &llm.ChatRequest{Model: "m"}) {
			if n--; n == 0 {
				break
			}
		}
	}
	newCache := func(steps ...memory.Step) *cache {
		return &cache{Backend: memory.Scripted(steps...), size: 2, replies: make(map[key][]*llm.ChatChunk)}
	}
	failing := newCache(memory.Say("a"), memory.Fail(errors.New("broken")))
	chat(failing, t.Context(), 9)
	assert.Empty(t, failing.replies)

	left := newCache(memory.Say("a"), memory.Say("b"))
	chat(left, t.Context(), 1)
	assert.Empty(t, left.replies)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	chat(left, ctx, 9)
	assert.Empty(t, left.replies)

	bounded := newCache(memory.Say("a"))
	for i := range 5 {
		for range bounded.Chat(t.Context(), &llm.ChatRequest{Model: string(rune('a' + i))}) {
		}
	}
	assert.Len(t, bounded.replies, 2)
}
