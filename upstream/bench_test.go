package upstream

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/upstream/internal/client"
)

const (
	benchChunk = `{"id":"chatcmpl-9a8b7c6d5e4f3a2b1c0d","object":"chat.completion.chunk","created":1755137933,"model":"demo-chat",` +
		`"choices":[{"index":0,"delta":{"content":" dark"},"finish_reason":null}]}`
	benchReply = `{"id":"chatcmpl-9a8b7c6d5e4f3a2b1c0d","object":"chat.completion","created":1755137933,"model":"demo-chat",` +
		`"choices":[{"index":0,"message":{"role":"assistant","content":"It was a dark and stormy night.","refusal":null},"logprobs":null,"finish_reason":"stop"}],` +
		`"usage":{"prompt_tokens":12,"completion_tokens":8,"total_tokens":20}}`
)

var benchStream = strings.Repeat("data: "+benchChunk+"\n\n", 100) + "data: [DONE]\n\n"

// benchCases are the replies and sizes of requests that are measured.
var benchCases = []struct {
	name, contentType, reply string
	size                     int // of the request, in bytes
	chunks                   int
}{
	{"whole", client.MediaJSON, benchReply, 512, 1},
	{"1MB", client.MediaJSON, benchReply, 1 << 20, 1},
	{"stream", "text/event-stream", benchStream, 512, 100},
}

func benchRequest(size int, stream bool) *llm.ChatRequest {
	return &llm.ChatRequest{Model: "demo-chat", Stream: stream,
		Messages: []llm.Message{{Role: llm.RoleUser, Content: llm.TextContent(strings.Repeat("words ", size/6))}}}
}

func benchChat(b *testing.B, backend *Backend, req *llm.ChatRequest, want int) {
	b.ReportAllocs()
	for b.Loop() {
		chunks := 0
		for _, err := range backend.Chat(b.Context(), req) {
			if err != nil {
				b.Fatal(err)
			}
			chunks++
		}
		if chunks != want {
			b.Fatalf("%d chunks, want %d", chunks, want)
		}
	}
}

// A cannedTransport replies without a network.
type cannedTransport struct{ contentType, body string }

func (t cannedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	io.Copy(io.Discard, r.Body)
	r.Body.Close()
	return t.reply(r), nil
}

func (t cannedTransport) reply(r *http.Request) *http.Response {
	return &http.Response{
		StatusCode: 200, Header: http.Header{"Content-Type": {t.contentType}}, ProtoMajor: 1, Request: r,
		ContentLength: int64(len(t.body)), Body: io.NopCloser(strings.NewReader(t.body)),
	}
}

// BenchmarkChat measures chats without a network.
func BenchmarkChat(b *testing.B) {
	for _, test := range benchCases {
		b.Run(test.name, func(b *testing.B) {
			backend, err := New("http://bench.invalid/v1", &Options{Transport: cannedTransport{test.contentType, test.reply}})
			require.NoError(b, err)
			benchChat(b, backend, benchRequest(test.size, test.chunks > 1), test.chunks)
		})
	}
}

// BenchmarkServer measures chats with a server in the same process, whose cost
// is included.
func BenchmarkServer(b *testing.B) {
	for _, test := range benchCases {
		b.Run(test.name, func(b *testing.B) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				w.Header().Set("Content-Type", test.contentType)
				w.Header().Set("Content-Length", fmt.Sprint(len(test.reply)))
				io.WriteString(w, test.reply)
			}))
			defer srv.Close()
			backend, err := New(srv.URL+"/v1", nil)
			require.NoError(b, err)
			defer backend.CloseIdleConnections()
			benchChat(b, backend, benchRequest(test.size, test.chunks > 1), test.chunks)
		})
	}
}

// BenchmarkHandler measures a Handler in front of a Backend without a network.
func BenchmarkHandler(b *testing.B) {
	const secret = "sk-bench-0123456789"
	backend, err := New("http://bench.invalid/v1", &Options{Key: "sk-server", Transport: cannedTransport{client.MediaJSON, benchReply}})
	require.NoError(b, err)
	keys := memory.NewKeyStore()
	plenty := llmhttp.PerMinute(min(1<<40, math.MaxInt))
	keys.Add(secret, &llmhttp.Key{ID: "key_1", Limits: llmhttp.Limits{Requests: plenty, Tokens: plenty}})
	h := llmhttp.NewHandler(backend, keys, &llmhttp.Options{Usage: memory.NewUsageStore()})
	for _, size := range []int{512, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			body, err := json.Marshal(benchRequest(size, false))
			require.NoError(b, err)
			r := httptest.NewRequest("POST", "/v1/chat/completions", nil)
			r.Header.Set("Authorization", "Bearer "+secret)
			b.ReportAllocs()
			for b.Loop() {
				r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
				w := httptest.NewRecorder()
				if h.ServeHTTP(w, r); w.Code != http.StatusOK {
					b.Fatal(w.Body)
				}
			}
		})
	}
}
