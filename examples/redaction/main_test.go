package main

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

// post posts a body to h and returns the body of the reply.
func post(t *testing.T, h *llmhttp.Handler, path, body string) string {
	t.Helper()
	r := httptest.NewRequest("POST", path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	require.Equal(t, 200, w.Code, "%s", w.Body)
	return w.Body.String()
}

// A model repeats its input, byte by byte, as text, as reasoning and in a call of a tool, and
// tells a secret. It keeps what it has seen.
type model struct{ seen []string }

func (m *model) note(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	m.seen = append(m.seen, string(b))
	return string(b)
}

func (m *model) Chat(_ context.Context, req *llm.ChatRequest) llm.ChatStream {
	m.note(req)
	said := req.Messages[len(req.Messages)-1].Content.Text() + " swordfish"
	return func(yield func(*llm.ChatChunk, error) bool) {
		call := func(s string) []llm.ToolCallDelta {
			return []llm.ToolCallDelta{{ID: "c", Function: llm.FunctionCall{Name: "mail", Arguments: s}}}
		}
		var reasoning, content, calls []llm.Delta
		for _, s := range strings.Split(said, "") {
			reasoning = append(reasoning, llm.Delta{Reasoning: s})
			content = append(content, llm.Delta{Content: s})
			calls = append(calls, llm.Delta{ToolCalls: call(s)})
		}
		deltas := slices.Concat(reasoning, content, []llm.Delta{{ToolCalls: call(`{"to":"`)}}, calls, []llm.Delta{{ToolCalls: call(`"}`)}})
		for _, d := range deltas {
			if !yield(&llm.ChatChunk{Choices: []llm.ChunkChoice{{Delta: d}}}, nil) {
				return
			}
		}
	}
}

func (m *model) Embed(_ context.Context, req *llm.EmbeddingRequest) (*llm.EmbeddingResponse, error) {
	m.note(req)
	return &llm.EmbeddingResponse{Vectors: [][]float32{{1}}}, nil
}

func (m *model) GenerateImages(_ context.Context, req *llm.ImageRequest) (*llm.ImageResponse, error) {
	m.note(req)
	return &llm.ImageResponse{Data: []llm.Image{{URL: "https://images.example.com/1", RevisedPrompt: "A portrait: " + req.Prompt + " swordfish"}}}, nil
}

func TestRedact(t *testing.T) {
	for name, test := range map[string]struct{ path, body string }{
		"chat":       {"/v1/chat/completions", `{"model":"m","messages":[{"role":"system","content":"Serve bob@example.com."},{"role":"user","content":"Mail ada@example.com"}],"user":"ada@example.com"}`},
		"messages":   {"/v1/messages", `{"model":"m","max_tokens":1000,"system":"Serve bob@example.com.","messages":[{"role":"user","content":"Mail ada@example.com"}]}`},
		"responses":  {"/v1/responses", `{"model":"m","instructions":"Serve bob@example.com.","input":"Mail ada@example.com"}`},
		"images":     {"/v1/images/generations", `{"model":"m","prompt":"ada@example.com"}`},
		"embeddings": {"/v1/embeddings", `{"model":"m","input":"Mail ada@example.com and bob@example.com"}`},
	} {
		t.Run(name, func(t *testing.T) {
			m := new(model)
			h := newHandler(redact(m, "swordfish"))
			reply := post(t, h, test.path, test.body)
			require.Len(t, m.seen, 1)
			assert.NotContains(t, m.seen[0], "example.com")
			assert.Contains(t, m.seen[0], "[address-1]")
			assert.NotContains(t, reply, "swordfish")
			if name == "embeddings" {
				return
			}
			assert.Contains(t, reply, "ada@example.com")
			assert.NotContains(t, reply, "[address-")
			assert.Contains(t, reply, "[redacted]")
			if name == "images" {
				return
			}
			assert.GreaterOrEqual(t, strings.Count(reply, "Mail ada@example.com"), 3, "text, reasoning and arguments: %s", reply)
			stream := post(t, h, test.path, strings.Replace(test.body, "{", `{"stream":true,`, 1))
			assert.NotContains(t, stream, "swordfish")
			assert.NotContains(t, stream, "[address-")
			assert.Contains(t, stream, "ada@example.com", "an address arrives as one piece")
		})
	}
}
