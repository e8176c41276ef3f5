package llmhttp_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

// The log has the cause of a failure, the ID of the request and that of the key.
func TestLog_CauseOfAFailure(t *testing.T) {
	s := startServer(t, config{backend: failingBackend(errCause)})
	r := s.chat(chatBody)
	var line struct {
		Level, Msg, Error, Scope string
		RequestID                string `json:"request_id"`
		KeyID                    string `json:"key_id"`
	}
	require.NoError(t, json.Unmarshal([]byte(s.log.String()), &line), "%s", s.log)
	assert.Equal(t, "ERROR", line.Level)
	assert.Equal(t, secretCause, line.Error)
	assert.Equal(t, r.Header.Get("X-Request-Id"), line.RequestID)
	assert.Equal(t, "key_1", line.KeyID)
	assert.Equal(t, "chat", line.Scope)
}

func TestLog_MistakesOfClientsAreNotLogged(t *testing.T) {
	s := startServer(t, config{})
	s.chat("{")
	s.chat(chatBody, withoutKey)
	s.get("/x")
	assert.Empty(t, s.log.String())
}

// The line of a refused request tells why, and which model was asked for.
func TestLog_RefusedRequests(t *testing.T) {
	for model, want := range map[string]any{
		"big": "big", `a\nb`: "ab", testSecret: "[redacted]", strings.Repeat("x", 400): strings.Repeat("x", 128) + "...", "small": nil,
	} {
		var out logBuffer
		key := testKey()
		key.Models = []string{"small"}
		s := startServer(t, config{keys: keysFor(key), opts: llmhttp.Options{Observe: llmhttp.LogRequests(slog.New(slog.NewJSONHandler(&out, nil)))}})
		status := s.chat(strings.Replace(chatBody, "demo-chat", model, 1)).StatusCode
		s.shutdown()
		var line map[string]any
		require.NoError(t, json.Unmarshal([]byte(out.String()), &line))
		assert.Equal(t, want, line["requested_model"])
		assert.NotContains(t, line, "error")
		if want == nil {
			assert.Equal(t, 200, status)
			assert.Equal(t, model, line["model"])
			assert.NotContains(t, line, "code")
			continue
		}
		assert.Equal(t, 404, status)
		assert.Equal(t, "model_not_found", line["code"])
		assert.NotContains(t, line, "model")
	}
}

func TestLog_Requests(t *testing.T) {
	var out logBuffer
	log := llmhttp.LogRequests(slog.New(slog.NewJSONHandler(&out, nil)))
	s := startServer(t, config{
		opts: llmhttp.Options{Observe: log},
		backend: streamBackend(func(ctx context.Context, yield yieldFunc) {
			_, end := llmhttp.StartTry(ctx, "a")
			end(nil)
			c := llm.TextChunk("reply")
			c.Usage = &llm.Usage{PromptTokens: 3, CompletionTokens: 4}
			_ = yield(c, nil) && yield(nil, errCause)
		}),
	})
	s.chat(streamBody)
	s.chat(`{"model":"demo-chat","messages":[{"role":"user","content":17}]}`)
	s.get("/v1/models/"+testSecret+"?q=query", withoutKey)
	s.get("/v1/models/" + testSecret + "?q=query")
	s.shutdown()
	var lines []map[string]any
	for line := range strings.Lines(out.String()) {
		var v map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &v))
		delete(v, "time")
		lines = append(lines, v)
	}
	require.Len(t, lines, 4)
	for _, name := range []string{"admitted_ms", "first_token_ms", "duration_ms"} {
		assert.Positive(t, lines[0][name], name)
		delete(lines[0], name)
	}
	assert.Equal(t, map[string]any{
		"level": "INFO", "msg": "request", "request_id": s.summaries()[0].Record.ID, "client": "127.0.0.1", "method": "POST", "path": chatPath,
		"status": 200.0, "protocol": "chat", "scope": "chat", "account": "acme", "key": "key_1", "model": "demo-chat",
		"target": "a", "tries": 1.0, "streamed": true, "prompt_tokens": 3.0, "completion_tokens": 4.0,
		"error_class": "backend", "error": secretCause,
	}, lines[0])
	assert.Equal(t, 400.0, lines[1]["status"])
	assert.Equal(t, "invalid_request", lines[1]["error_class"])
	assert.Equal(t, "messages[0].content", lines[1]["param"])
	assert.Equal(t, "invalid_type", lines[1]["code"])
	assert.NotContains(t, lines[1], "error", "it may quote the request")
	assert.NotContains(t, lines[1], "streamed", "the request was not read to its end")
	assert.Equal(t, "/v1/models/[redacted]", lines[3]["path"])
	assert.NotContains(t, out.String(), "query")
}
