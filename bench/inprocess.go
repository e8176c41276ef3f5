package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/sashabaranov/go-openai"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

// benchmark returns a measurement of f by an ordinary Go benchmark.
func benchmark(contender string, f func() error) measurement {
	return measurement{contender, func() (_ values, err error) {
		r := testing.Benchmark(func(b *testing.B) {
			for b.Loop() {
				if err = f(); err != nil {
					b.FailNow()
				}
			}
		})
		return values{unitTime: r.T.Seconds() / float64(r.N), unitAllocs: float64(r.AllocsPerOp())}, err
	}}
}

// runDecode compares decoders of requests.
func runDecode(b *bench) {
	measure := func(name string, r request) {
		b.measureCase(name, b.rounds,
			benchmark(ours, func() error { return new(llm.ChatRequest).UnmarshalJSON(r.body) }),
			benchmark(goOpenAI, func() error { return json.Unmarshal(r.body, new(openai.ChatCompletionRequest)) }))
	}
	measure("Decode/size=128KB", imageRequest(128<<10))
	measure("Decode/size=1MB", imageRequest(1<<20))
	measure("Decode/request=agent", agentRequest())
}

// runHandler measures the Handler without net/http. The difference between the
// streams is the cost of 1,000 chunks.
func runHandler(b *bench) {
	b.measureCase("Handler/whole", b.rounds, benchmarkHandler(1, false))
	b.measureCase("Handler/chunks=100", b.rounds, benchmarkHandler(100, true))
	b.measureCase("Handler/chunks=1100", b.rounds, benchmarkHandler(1100, true))
}

func benchmarkHandler(chunks int, stream bool) measurement {
	serve := inProcess(newOurs(cannedBackend(chunks), llmhttp.Options{}), chatRequest(512, stream))
	return benchmark(ours, func() error {
		serve()
		return nil
	})
}

// cannedBackend returns a Backend that yields a chunk n times. It allocates
// nothing.
func cannedBackend(n int) llmhttp.Backend {
	chunk := llm.TextChunk(word(0))
	end := &llm.ChatChunk{Usage: &llm.Usage{PromptTokens: promptTokens, CompletionTokens: n}}
	stream := func(yield func(*llm.ChatChunk, error) bool) {
		for range n {
			if !yield(chunk, nil) {
				return
			}
		}
		yield(end, nil)
	}
	return llmhttp.BackendFunc(func(context.Context, *llm.ChatRequest) llm.ChatStream { return stream })
}

// inProcess returns a function that has h serve r. Apart from h it allocates
// nothing.
func inProcess(h http.Handler, r request) (serve func()) {
	w := &nullWriter{header: make(http.Header)}
	body := bytes.NewReader(nil)
	req := r.http("localhost")
	req.Body = io.NopCloser(body)
	return func() {
		body.Reset(r.body)
		clear(w.header)
		h.ServeHTTP(w, req)
	}
}

// A nullWriter is a ResponseWriter that drops what it is given. Like that of
// net/http it supports flushes and deadlines.
type nullWriter struct{ header http.Header }

func (w *nullWriter) Header() http.Header              { return w.header }
func (w *nullWriter) WriteHeader(int)                  {}
func (w *nullWriter) Write(p []byte) (int, error)      { return len(p), nil }
func (w *nullWriter) FlushError() error                { return nil }
func (w *nullWriter) SetReadDeadline(time.Time) error  { return nil }
func (w *nullWriter) SetWriteDeadline(time.Time) error { return nil }
