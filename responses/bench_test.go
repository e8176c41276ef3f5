package responses_test

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

// BenchmarkStream compares a stream of 100 chunks with the same stream of chat
// completions, without a network.
func BenchmarkStream(b *testing.B) {
	chunk := llm.TextChunk("word ")
	h := newHandler(llmhttp.BackendFunc(func(context.Context, *llm.ChatRequest) llm.ChatStream {
		return func(yield func(*llm.ChatChunk, error) bool) {
			for range 100 {
				if !yield(chunk, nil) {
					return
				}
			}
		}
	}))
	for name, request := range map[string][2]string{
		"chat":      {"/v1/chat/completions", `{"model":"m","stream":true,"messages":[{"role":"user","content":"Hi"}]}`},
		"responses": {"/v1/responses", `{"model":"m","stream":true,"input":"Hi"}`},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r := httptest.NewRequest("POST", request[0], bytes.NewReader([]byte(request[1])))
				r.Header.Set("Content-Type", "application/json")
				h.ServeHTTP(&discardWriter{make(http.Header)}, r)
			}
		})
	}
}

// BenchmarkRequest_Image serves a request with an image of 8 MB.
func BenchmarkRequest_Image(b *testing.B) {
	body := []byte(`{"model":"m","input":[{"role":"user","content":[{"type":"input_image","image_url":"data:image/png;base64,` + strings.Repeat("iVBORw0KGgoAAAAN", 8<<20/16) + `"}]}]}`)
	h := newHandler(llmhttp.BackendFunc(func(context.Context, *llm.ChatRequest) llm.ChatStream { return llm.Reply("x") }))
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		h.ServeHTTP(&discardWriter{make(http.Header)}, httptest.NewRequest("POST", "/v1/responses", bytes.NewReader(body)))
	}
}

// A discardWriter is a ResponseWriter that discards the reply.
type discardWriter struct{ header http.Header }

func (w *discardWriter) Header() http.Header         { return w.header }
func (w *discardWriter) WriteHeader(int)             {}
func (w *discardWriter) Write(p []byte) (int, error) { return len(p), nil }
func (w *discardWriter) FlushError() error           { return nil }
