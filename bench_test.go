package llmhttp_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

// A discardWriter is a ResponseWriter that allocates nothing.
type discardWriter struct{ header http.Header }

func (w *discardWriter) Header() http.Header              { return w.header }
func (w *discardWriter) WriteHeader(int)                  {}
func (w *discardWriter) Write(p []byte) (int, error)      { return len(p), nil }
func (w *discardWriter) FlushError() error                { return nil }
func (w *discardWriter) SetWriteDeadline(time.Time) error { return nil }
func (w *discardWriter) SetReadDeadline(time.Time) error  { return nil }

// A discardStore is a UsageStore that keeps nothing.
type discardStore struct{}

func (discardStore) Record(context.Context, ...llmhttp.UsageRecord) error { return nil }
func (discardStore) Query(context.Context, llmhttp.UsageQuery) ([]llmhttp.UsageSum, error) {
	return nil, nil
}

// A repeatableRequest is a chat request that can be served repeatedly without allocating.
type repeatableRequest struct {
	body   string
	reader *strings.Reader
	r      *http.Request
	w      *discardWriter
}

func newRepeatableRequest(body string) *repeatableRequest {
	q := &repeatableRequest{body: body, reader: strings.NewReader(""), r: newChatRequest(""), w: &discardWriter{http.Header{}}}
	q.r.Body = io.NopCloser(q.reader)
	q.r.ContentLength = int64(len(body))
	return q
}

func (q *repeatableRequest) serve(h http.Handler) {
	q.reader.Reset(q.body)
	clear(q.w.header)
	h.ServeHTTP(q.w, q.r)
}

// benchBody returns a chat request of half a kilobyte.
func benchBody(stream bool) []byte {
	body := `{"model":"demo-chat","messages":[{"role":"system","content":"You are a helpful assistant. ` +
		`Answer briefly and say so when you do not know."},{"role":"user","content":"` +
		strings.Repeat("What is the capital of France, and why? ", 6) +
		`"}],"temperature":0.7,"max_tokens":256,"top_p":1`
	if stream {
		body += `,"stream":true`
	}
	return []byte(body + "}")
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
			key := testKey()
			key.Limits = llmhttp.Limits{Requests: llmhttp.PerMinute(hugeLimit), Tokens: llmhttp.PerMinute(hugeLimit)}
			keys := llmhttp.KeyStoreFunc(func(context.Context, string) (*llmhttp.Key, error) { return &key, nil })
			backend := streamBackend(func(_ context.Context, yield yieldFunc) {
				chunk := llm.TextChunk("")
				usage := &llm.Usage{PromptTokens: 80, CompletionTokens: bm.chunks}
				for range bm.chunks {
					chunk.Choices[0].Delta.Content = "token "
					if !yield(chunk, nil) {
						return
					}
				}
				yield(&llm.ChatChunk{Usage: usage}, nil)
			})
			h := llmhttp.NewHandler(backend, keys, &llmhttp.Options{Usage: discardStore{}})
			r := newRepeatableRequest(string(benchBody(bm.stream)))
			b.ReportAllocs()
			for b.Loop() {
				r.serve(h)
			}
		})
	}
}
