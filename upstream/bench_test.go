package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/memory"
)

const (
	benchChunk = `{"id":"chatcmpl-9a8b7c6d5e4f3a2b1c0d","object":"chat.completion.chunk","created":1755137933,"model":"demo-chat",` +
		`"choices":[{"index":0,"delta":{"content":" dark"},"finish_reason":null}]}`
	benchVendorChunk = `{"id":"chatcmpl-9a8b7c6d5e4f3a2b1c0d","object":"chat.completion.chunk","created":1755137933,"model":"demo-chat",` +
		`"service_tier":"default","system_fingerprint":"fp_44709d6fcb","choices":[{"index":0,"delta":{"content":" dark"},"logprobs":null,"finish_reason":null}],` +
		`"usage":null,"obfuscation":"aXbYcZ"}`
	benchReply = `{"id":"chatcmpl-9a8b7c6d5e4f3a2b1c0d","object":"chat.completion","created":1755137933,"model":"demo-chat",` +
		`"choices":[{"index":0,"message":{"role":"assistant","content":"It was a dark and stormy night.","refusal":null},"logprobs":null,"finish_reason":"stop"}],` +
		`"usage":{"prompt_tokens":12,"completion_tokens":8,"total_tokens":20}}`
)

func BenchmarkDecodeChunk(b *testing.B) {
	for name, text := range map[string]string{"plain": benchChunk, "vendor": benchVendorChunk, "whole": benchReply} {
		b.Run(name, func(b *testing.B) {
			var d decoder
			data := []byte(text)
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := d.chunk(data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkReadEvents(b *testing.B) {
	stream := strings.Repeat("data: "+benchChunk+"\n\n", 100)
	var e eventReader
	b.SetBytes(int64(len(stream)))
	b.ReportAllocs()
	for b.Loop() {
		buf := getBuffer()
		e.reset(strings.NewReader(stream), buf, 1<<20)
		for {
			if _, _, err := e.next(); err == io.EOF {
				break
			} else if err != nil {
				b.Fatal(err)
			}
		}
		putBuffer(buf)
	}
}

// canned is a transport that replies at once, for what the Backend costs alone.
type canned struct {
	contentType, body string
}

func (t canned) RoundTrip(r *http.Request) (*http.Response, error) {
	io.Copy(io.Discard, r.Body)
	r.Body.Close()
	return &http.Response{
		StatusCode: 200, Header: http.Header{"Content-Type": {t.contentType}}, ProtoMajor: 1, Request: r,
		ContentLength: int64(len(t.body)), Body: io.NopCloser(strings.NewReader(t.body)),
	}, nil
}

func benchRequest(size int, stream bool) *llmhttp.ChatRequest {
	return &llmhttp.ChatRequest{Model: "demo-chat", Stream: stream,
		Messages: []llmhttp.Message{{Role: llmhttp.RoleUser, Content: llmhttp.Text(strings.Repeat("words ", size/6))}}}
}

func benchChat(b *testing.B, backend *Backend, req *llmhttp.ChatRequest, want int) {
	b.ReportAllocs()
	for b.Loop() {
		chunks := 0
		for _, err := range backend.Chat(context.Background(), req) {
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

var benchStream = strings.Repeat("data: "+benchChunk+"\n\n", 100) + "data: [DONE]\n\n"

// BenchmarkChat is of chats without a network.
func BenchmarkChat(b *testing.B) {
	for _, c := range []struct {
		name  string
		reply canned
		size  int
		want  int
	}{
		{"whole", canned{"application/json", benchReply}, 512, 1},
		{"1MB", canned{"application/json", benchReply}, 1 << 20, 1},
		{"stream", canned{"text/event-stream", benchStream}, 512, 100},
	} {
		b.Run(c.name, func(b *testing.B) {
			backend, err := New("http://bench.invalid/v1", &Options{Transport: c.reply})
			if err != nil {
				b.Fatal(err)
			}
			benchChat(b, backend, benchRequest(c.size, c.want > 1), c.want)
		})
	}
}

// BenchmarkHandler is of chats that a Handler passes on, without a network.
func BenchmarkHandler(b *testing.B) {
	const secret = "sk-bench-0123456789"
	backend, err := New("http://bench.invalid/v1", &Options{Key: "sk-server", Transport: canned{"application/json", benchReply}})
	if err != nil {
		b.Fatal(err)
	}
	keys := memory.Keys()
	plenty := llmhttp.PerMinute(1 << 40)
	keys.Add(secret, &llmhttp.Key{ID: "key_1", Limits: llmhttp.Limits{Requests: plenty, Tokens: plenty}})
	h := llmhttp.NewHandler(backend, keys, &llmhttp.Options{Usage: memory.NewUsageStore()})
	for _, size := range []int{512, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			body, err := json.Marshal(benchRequest(size, false))
			if err != nil {
				b.Fatal(err)
			}
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

// BenchmarkServer is of chats with a server on this machine, which takes part
// in the cost.
func BenchmarkServer(b *testing.B) {
	for _, c := range []struct {
		name, contentType, body string
		size, want              int
	}{
		{"whole", "application/json", benchReply, 512, 1},
		{"1MB", "application/json", benchReply, 1 << 20, 1},
		{"stream", "text/event-stream", benchStream, 512, 100},
	} {
		b.Run(c.name, func(b *testing.B) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				w.Header().Set("Content-Type", c.contentType)
				w.Header().Set("Content-Length", fmt.Sprint(len(c.body)))
				io.WriteString(w, c.body)
			}))
			defer srv.Close()
			backend, err := New(srv.URL+"/v1", nil)
			if err != nil {
				b.Fatal(err)
			}
			defer backend.CloseIdleConnections()
			benchChat(b, backend, benchRequest(c.size, c.want > 1), c.want)
		})
	}
}
