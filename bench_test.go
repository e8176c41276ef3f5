package llmhttp_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
)

// A voidWriter is a ResponseWriter whose methods allocate nothing.
type voidWriter struct{ header http.Header }

func (w *voidWriter) Header() http.Header               { return w.header }
func (w *voidWriter) WriteHeader(int)                   {}
func (w *voidWriter) Write(p []byte) (int, error)       { return len(p), nil }
func (w *voidWriter) FlushError() error                 { return nil }
func (w *voidWriter) SetWriteDeadline(time.Time) error  { return nil }
func (w *voidWriter) SetReadDeadline(t time.Time) error { return nil }

// A voidStore is a UsageStore that forgets.
type voidStore struct{}

func (voidStore) Record(context.Context, ...llmhttp.UsageRecord) error { return nil }
func (voidStore) Query(context.Context, llmhttp.UsageQuery) ([]llmhttp.UsageSum, error) {
	return nil, nil
}

// benchBody is a request of about half a kilobyte, as clients send them.
func benchBody(stream bool) []byte {
	body := `{"model":"demo-chat","messages":[{"role":"system","content":"You are a helpful assistant. ` +
		`Answer briefly and say so when you do not know."},{"role":"user","content":"` +
		strings.Repeat("What is the capital of France, and why? ", 6) +
		`"}],"temperature":0.7,"max_tokens":256,"top_p":1`
	if stream {
		body += `,"stream":true`
	}
	return []byte(body + `}`)
}

func benchHandler(chunks int) http.Handler {
	key := &llmhttp.Key{ID: "key_1", Account: "acme", Limits: llmhttp.Limits{
		Requests: llmhttp.PerMinute(1 << 40), Tokens: llmhttp.PerMinute(1 << 40),
	}}
	keys := llmhttp.KeyFunc(func(context.Context, string) (*llmhttp.Key, error) { return key, nil })
	backend := llmhttp.BackendFunc(func(context.Context, *llmhttp.ChatRequest) llmhttp.ChatStream {
		return func(yield func(*llmhttp.ChatChunk, error) bool) {
			chunk := llmhttp.TextChunk("")
			usage := &llmhttp.Usage{PromptTokens: 80, CompletionTokens: chunks}
			for range chunks {
				chunk.Choices[0].Delta.Content = "token "
				if !yield(chunk, nil) {
					return
				}
			}
			yield(&llmhttp.ChatChunk{Usage: usage}, nil)
		}
	})
	return llmhttp.NewHandler(backend, keys, &llmhttp.Options{Usage: voidStore{}})
}

func BenchmarkHandler(b *testing.B) {
	for _, bm := range []struct {
		name   string
		stream bool
		chunks int
	}{
		{"whole", false, 1},
		{"stream-1", true, 1},
		{"stream-100", true, 100},
	} {
		b.Run(bm.name, func(b *testing.B) {
			h := benchHandler(bm.chunks)
			body := benchBody(bm.stream)
			reader := bytes.NewReader(body)
			r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", nil)
			r.Header.Set("Authorization", "Bearer sk-benchmark")
			r.Header.Set("Content-Type", "application/json")
			r.Body = io.NopCloser(reader)
			r.ContentLength = int64(len(body))
			w := &voidWriter{header: http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				reader.Reset(body)
				clear(w.header)
				h.ServeHTTP(w, r)
			}
		})
	}
}
