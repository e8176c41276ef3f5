package upstream_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/upstream"
)

// FuzzHandler checks that a Backend reads the replies of a Handler, and that a streamed
// reply equals the whole one.
func FuzzHandler(f *testing.F) {
	f.Add("It was a dark", " and stormy night", "{}", uint8(0))
	f.Add("Gr\xc3", "\xbc\xc3\x9fe \xf0\x9f\x91\x8b", "{\"a\":\"\u2028\"}", uint8(1))
	f.Add("data: [DONE]\r\n\r\n", "\x00\x1b\ufeff", "\"", uint8(2))
	f.Add("", "", "", uint8(3))
	f.Add("\xff\xfe", "\xed\xa0\xbd", "\xf4\x8f\xa0\xbd", uint8(7))
	f.Fuzz(func(t *testing.T, a, b, c string, flags uint8) {
		h := llmhttp.NewHandler(memory.Scripted(scriptedReply(t, a, b, c, flags)...), llmhttp.AllowAll("fuzz"), nil)
		var got [2]string
		for i, stream := range []bool{false, true} {
			backend, err := upstream.New("http://localhost/v1", &upstream.Options{Transport: handlerTransport(h, flags&4 != 0)})
			require.NoError(t, err)
			req := &llm.ChatRequest{Model: "m", Stream: stream, Messages: []llm.Message{{Role: llm.RoleUser, Content: llm.TextContent("?")}}}
			resp, err := join.Collect(backend.Chat(t.Context(), req))
			require.NoError(t, err, "stream %t", stream)
			resp.ID, resp.Created = "", 0
			text, err := resp.MarshalJSON()
			require.NoError(t, err)
			got[i] = string(text)
		}
		assert.Equal(t, got[0], got[1], "whole and streamed")
	})
}

// scriptedReply returns the steps of a reply with three texts.
func scriptedReply(t *testing.T, a, b, c string, flags uint8) []memory.Step {
	one := func(d llm.Delta) memory.Step {
		return memory.Chunk(&llm.ChatChunk{Choices: []llm.ChunkChoice{{Delta: d}}})
	}
	call := func(id, name, args string) memory.Step {
		return one(llm.Delta{ToolCalls: []llm.ToolCallDelta{{ID: id, Function: llm.FunctionCall{Name: name, Arguments: args}}}})
	}
	steps := []memory.Step{
		one(llm.Delta{Reasoning: c}), one(llm.Delta{Reasoning: a}), one(llm.Delta{Content: a}), one(llm.Delta{Content: b}),
	}
	if flags&1 != 0 {
		steps = append(steps, call("call_1", "f", c), call("", "", a))
	}
	if flags&2 != 0 {
		extra, err := json.Marshal(b)
		require.NoError(t, err)
		steps = append(steps, one(llm.Delta{Content: c, Extra: llm.Extra{"reasoning": extra}}))
	}
	return append(steps, memory.Chunk(&llm.ChatChunk{
		Choices: []llm.ChunkChoice{{FinishReason: llm.FinishLength}}, Usage: &llm.Usage{PromptTokens: 3, CompletionTokens: 4},
	}))
}

// handlerTransport returns a transport to h without a network, whose replies are
// read in halves or byte by byte.
func handlerTransport(h http.Handler, halves bool) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		resp := w.Result()
		body := iotest.OneByteReader(bytes.NewReader(w.Body.Bytes()))
		if halves {
			body = iotest.HalfReader(bytes.NewReader(w.Body.Bytes()))
		}
		resp.Body, resp.ContentLength, resp.Request = io.NopCloser(body), -1, r
		return resp, nil
	})
}

// FuzzReply checks that the client gets a valid reply or an error, for arbitrary bytes
// from the server.
func FuzzReply(f *testing.F) {
	for _, s := range []string{
		eventStream(textChunk("Hello"), done), "data: {}\n\n", wholeReply, "<html>", "event: error\ndata: x\n\n",
		eventStream(`{"error":{"message":"m","code":429}}`), eventStream(`{"choices":[{"index":5,"delta":{"content":"a"},"finish_reason":"stop"}]}`),
		eventStream(`{"choices":[{"delta":{"content":"\ud83d"}}]}`, `{"choices":[{"delta":{"content":"\ude42"}}]}`),
		"data: {\"x\":\"\xff\"}\n\n", `{"choices":[{"message":{"content":[{"type":"text","text":"a"},{"type":"b","c":1}]}}]}`, `{"error":"a"}`, `{"created":"1e3"}`,
	} {
		f.Add(s, true)
		f.Add(s, false)
	}
	f.Fuzz(func(t *testing.T, body string, stream bool) {
		backend, err := upstream.New("http://localhost/v1", &upstream.Options{Transport: roundTripper(func(*http.Request) (*http.Response, error) {
			return okResponse("", iotest.HalfReader(strings.NewReader(body))), nil
		})})
		require.NoError(t, err)
		h := llmhttp.NewHandler(backend, llmhttp.AllowAll("fuzz"), &llmhttp.Options{Logger: noLog})
		ask := askWhole
		if stream {
			ask = askStream
		}
		w := httptest.NewRecorder()
		func() {
			defer func() {
				if p := recover(); p != nil && p != http.ErrAbortHandler {
					panic(p)
				}
			}()
			r := httptest.NewRequest("POST", chatPath, strings.NewReader(ask))
			r.Header.Set("Content-Type", "application/json")
			h.ServeHTTP(w, r)
		}()
		switch {
		case w.Code == 200 && stream:
			list := eventData(t, w.Body.String())
			if last := list[len(list)-1]; last != done {
				readError(t, last)
			}
		case w.Code == 200:
			var r llm.ChatResponse
			require.NoError(t, r.UnmarshalJSON(w.Body.Bytes()), "%q", w.Body)
		default:
			readError(t, w.Body.String())
		}
	})
}
