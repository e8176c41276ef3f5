package tasks

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/openai/openai-go/v3/option"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The helpers of the tests with httptest.

// serve starts a server and returns its base URL.
func serve(t *testing.T, h http.HandlerFunc) string {
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv.URL + "/v1"
}

// completion returns the JSON of a reply with the given message.
func completion(message map[string]any, finish string) []byte {
	b, _ := json.Marshal(map[string]any{
		"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "gpt-4o",
		"choices": []any{map[string]any{"index": 0, "message": message, "finish_reason": finish}},
	})
	return b
}

// text returns the JSON of a reply with a text.
func text(s string) []byte {
	return completion(map[string]any{"role": "assistant", "content": s}, "stop")
}

// writeJSON writes a reply.
func writeJSON(w http.ResponseWriter, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Write(body)
}

// writeChunk writes a piece of a stream.
func writeChunk(w http.ResponseWriter, s, finish string) {
	choice := map[string]any{"index": 0, "delta": map[string]any{"content": s}, "finish_reason": nil}
	if finish != "" {
		choice["finish_reason"] = finish
	}
	b, _ := json.Marshal(map[string]any{
		"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o", "choices": []any{choice},
	})
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprintf(w, "data: %s\n\n", b)
	w.(http.Flusher).Flush()
}

func TestHttptest_1(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, r *http.Request) { writeJSON(w, text("It rains.")) })
	got, err := ask(t.Context(), newClient(option.WithBaseURL(url)), "Rain?")
	require.NoError(t, err)
	assert.Equal(t, "It rains.", got)
}

func TestHttptest_2(t *testing.T) { // with channels in place of time
	next := make(chan struct{})
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		for _, s := range []string{"It", " rains", " today."} {
			writeChunk(w, s, "")
			select {
			case <-next:
			case <-r.Context().Done():
				return
			}
		}
		writeChunk(w, "", "stop")
		fmt.Fprint(w, "data: [DONE]\n\n")
	})
	n := 0
	err := read(t.Context(), newClient(option.WithBaseURL(url)), "Rain?", func(string) {
		n++
		next <- struct{}{}
	})
	require.NoError(t, err)
	assert.Equal(t, 3, n)
}

func TestHttptest_3(t *testing.T) {
	n := 0
	var second struct {
		Messages []struct{ Role, Content string }
	}
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		n++
		if n == 1 {
			writeJSON(w, completion(map[string]any{"role": "assistant", "content": nil, "tool_calls": []any{map[string]any{
				"id": "call_1", "type": "function", "function": map[string]any{"name": "forecast", "arguments": `{"city":"Bergen"}`},
			}}}, "tool_calls"))
			return
		}
		json.NewDecoder(r.Body).Decode(&second)
		writeJSON(w, text("It rains."))
	})
	got, err := runAgent(t.Context(), newClient(option.WithBaseURL(url)), "Rain?")
	require.NoError(t, err)
	assert.Equal(t, "It rains.", got)
	require.Len(t, second.Messages, 4)
	assert.Equal(t, "tool", second.Messages[3].Role)
	assert.Contains(t, second.Messages[3].Content, "rain: ")
}

func TestHttptest_4(t *testing.T) {
	b, err := json.Marshal(forecast{"Bergen", true})
	require.NoError(t, err)
	url := serve(t, func(w http.ResponseWriter, r *http.Request) { writeJSON(w, text(string(b))) })
	got, err := extract(t.Context(), newClient(option.WithBaseURL(url)), "Rain?")
	require.NoError(t, err)
	assert.Equal(t, forecast{"Bergen", true}, got)
}

func TestHttptest_5(t *testing.T) { // waits for a second
	n := 0
	began := time.Now()
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		n++
		if n == 1 {
			w.Header().Set("Retry-After", "1")
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusTooManyRequests)
			fmt.Fprint(w, `{"error":{"message":"Rate limit reached.","type":"requests","param":null,"code":"rate_limit_exceeded"}}`)
			return
		}
		writeJSON(w, text("It rains."))
	})
	got, err := ask(t.Context(), newClient(option.WithBaseURL(url)), "Rain?")
	require.NoError(t, err)
	assert.Equal(t, "It rains.", got)
	assert.GreaterOrEqual(t, time.Since(began), time.Second)
}

func TestHttptest_6(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		writeChunk(w, "It", "")
		writeChunk(w, " rains", "")
		panic(http.ErrAbortHandler)
	})
	var got string
	err := read(t.Context(), newClient(option.WithBaseURL(url)), "Rain?", func(s string) { got += s })
	assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
	assert.Equal(t, "It rains", got)
}

func TestHttptest_7(t *testing.T) {
	var body struct {
		Model    string
		Messages []struct{ Role, Content string }
	}
	var key string
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		key = r.Header.Get("Authorization")
		json.NewDecoder(r.Body).Decode(&body)
		writeJSON(w, text("It rains."))
	})
	_, err := ask(t.Context(), newClient(option.WithBaseURL(url)), "Rain?")
	require.NoError(t, err)
	assert.Equal(t, "gpt-4o", body.Model)
	require.Len(t, body.Messages, 2)
	assert.Equal(t, "system", body.Messages[0].Role)
	assert.Equal(t, "Be brief.", body.Messages[0].Content)
	assert.Equal(t, "Rain?", body.Messages[1].Content)
	assert.Equal(t, "Bearer test", key)
}

func TestHttptest_8(t *testing.T) {
	tb := &fakeTB{TB: t}
	var mu sync.Mutex
	replies := map[string]string{"Snow?": "No."}
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Messages []struct{ Content string } }
		json.NewDecoder(r.Body).Decode(&body)
		asked := body.Messages[len(body.Messages)-1].Content
		mu.Lock()
		reply, ok := replies[asked]
		delete(replies, asked)
		mu.Unlock()
		if !ok {
			tb.Errorf("unexpected request: %q", asked)
			http.Error(w, "unexpected", http.StatusBadRequest)
			return
		}
		writeJSON(w, text(reply))
	})
	ask(t.Context(), newClient(option.WithBaseURL(url)), "Rain?")
	for asked := range replies {
		tb.Errorf("reply to %q was not asked for", asked)
	}
	assert.Contains(t, tb.errors, `unexpected request: "Rain?"`)
	assert.Contains(t, tb.errors, `reply to "Snow?" was not asked for`)
}

func TestHttptest_10(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, []byte(`{"id":"msg_1","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[{"type":"text","text":"It rains."}],
			"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":1}}`))
	})
	got, err := askClaude(t.Context(), newClaude(anthropicoption.WithBaseURL(url[:len(url)-len("/v1")])), "Rain?")
	require.NoError(t, err)
	assert.Equal(t, "It rains.", got)
}
