package upstream_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/iotest"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/upstream"
)

// A handlerTransport has a Handler reply, without a network. What it replies is
// read in small pieces, or in halves.
type handlerTransport struct {
	h      http.Handler
	halves bool
}

func (t handlerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	t.h.ServeHTTP(w, r)
	resp := w.Result()
	body := iotest.OneByteReader(bytes.NewReader(w.Body.Bytes()))
	if t.halves {
		body = iotest.HalfReader(bytes.NewReader(w.Body.Bytes()))
	}
	resp.Body, resp.ContentLength, resp.Request = io.NopCloser(body), -1, r
	return resp, nil
}

// What a Handler writes, a Backend reads: streamed or whole, a reply is the
// same behind both of them.
func FuzzHandler(f *testing.F) {
	f.Add("It was a dark", " and stormy night", "{}", uint8(0))
	f.Add("Gr\xc3", "\xbc\xc3\x9fe \xf0\x9f\x91\x8b", "{\"a\":\"\u2028\"}", uint8(1))
	f.Add("data: [DONE]\r\n\r\n", "\x00\x1b\ufeff", "\"", uint8(2))
	f.Add("", "", "", uint8(3))
	f.Add("\xff\xfe", "\xed\xa0\xbd", "\xf4\x8f\xa0\xbd", uint8(7))
	f.Fuzz(func(t *testing.T, a, b, c string, flags uint8) {
		call := func(id, name, args string) llmhttp.ToolCallDelta {
			return llmhttp.ToolCallDelta{ID: id, Function: llmhttp.FunctionCall{Name: name, Arguments: args}}
		}
		extra, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		one := func(d llmhttp.Delta) memory.Step {
			return memory.Chunk(&llmhttp.ChatChunk{Choices: []llmhttp.ChunkChoice{{Delta: d}}})
		}
		steps := []memory.Step{
			one(llmhttp.Delta{Reasoning: c}), one(llmhttp.Delta{Reasoning: a}), one(llmhttp.Delta{Content: a}), one(llmhttp.Delta{Content: b}),
		}
		if flags&1 != 0 {
			steps = append(steps, one(llmhttp.Delta{ToolCalls: []llmhttp.ToolCallDelta{call("call_1", "f", c)}}),
				one(llmhttp.Delta{ToolCalls: []llmhttp.ToolCallDelta{call("", "", a)}}))
		}
		if flags&2 != 0 {
			steps = append(steps, one(llmhttp.Delta{Content: c, Extra: llmhttp.Extra{"reasoning": extra}}))
		}
		steps = append(steps, memory.Chunk(&llmhttp.ChatChunk{
			Choices: []llmhttp.ChunkChoice{{FinishReason: llmhttp.FinishLength}}, Usage: &llmhttp.Usage{PromptTokens: 3, CompletionTokens: 4},
		}))
		h := llmhttp.NewHandler(memory.Scripted(steps...), llmhttp.AllowAll("fuzz"), nil)
		var got [2]string
		for i, stream := range []bool{false, true} {
			backend, err := upstream.New("http://fuzz.invalid/v1", &upstream.Options{Transport: handlerTransport{h, flags&4 != 0}})
			if err != nil {
				t.Fatal(err)
			}
			req := &llmhttp.ChatRequest{Model: "m", Stream: stream, Messages: []llmhttp.Message{{Role: llmhttp.RoleUser, Content: llmhttp.Text("?")}}}
			resp, err := llmhttp.Collect(backend.Chat(context.Background(), req))
			if err != nil {
				t.Fatalf("stream %t: %v", stream, err)
			}
			resp.ID, resp.Created = "", 0
			text, err := resp.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			got[i] = string(text)
		}
		if got[0] != got[1] {
			t.Fatalf("whole\n%s\nstreamed\n%s", got[0], got[1])
		}
	})
}

// Whatever a server sends for a stream, the client gets a stream or an error of
// the format, and nothing is lost on the way that was whole.
func FuzzStream(f *testing.F) {
	for _, s := range []string{
		"data: " + chunk("Hello") + "\n\ndata: [DONE]\n\n", "data: {}\n\n", wholeReply, "<html>", "event: error\ndata: x\n\n",
		"data: {\"error\":{\"message\":\"m\",\"code\":429}}\n\n", "data: {\"choices\":[{\"index\":5,\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}\n\n",
	} {
		f.Add(s, true)
		f.Add(s, false)
	}
	f.Fuzz(func(t *testing.T, body string, stream bool) {
		backend, err := upstream.New("http://fuzz.invalid/v1", &upstream.Options{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Header: http.Header{}, ContentLength: -1, ProtoMajor: 1, Request: r,
				Body: io.NopCloser(iotest.HalfReader(bytes.NewReader([]byte(body))))}, nil
		})})
		if err != nil {
			t.Fatal(err)
		}
		h := llmhttp.NewHandler(backend, llmhttp.AllowAll("fuzz"), &llmhttp.Options{Logger: quiet})
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
			h.ServeHTTP(w, httptest.NewRequest("POST", chatPath, bytes.NewReader([]byte(ask))))
		}()
		switch {
		case w.Code == 200 && stream:
			list := frames(t, w.Body.String())
			if last := list[len(list)-1]; last != done {
				readError(t, last)
			}
		case w.Code == 200:
			var r llmhttp.ChatResponse
			if err := r.UnmarshalJSON(w.Body.Bytes()); err != nil {
				t.Fatalf("%q: %v", w.Body, err)
			}
		default:
			readError(t, w.Body.String())
		}
	})
}
