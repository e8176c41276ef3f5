//go:build !race

// The race detector allocates, so these are tests without it.

package llmhttp_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
)

// A bodyAgain is a body that can be read again.
type bodyAgain struct{ bytes.Reader }

func (*bodyAgain) Close() error { return nil }

// allocsOf returns how many allocations it takes h to serve body, without
// those of a request of its own.
func allocsOf(t *testing.T, h http.Handler, body string, runs int) float64 {
	w := &voidWriter{header: http.Header{}}
	r, err := http.NewRequest("POST", "/v1/chat/completions", io.NopCloser(strings.NewReader(body)))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer sk-test")
	r.Header.Set("Content-Type", "application/json")
	r.ContentLength = int64(len(body))
	again := new(bodyAgain)
	r.Body = again
	raw := []byte(body)
	return testing.AllocsPerRun(runs, func() {
		again.Reset(raw)
		clear(w.header)
		h.ServeHTTP(w, r)
	})
}

// repeatChunk yields one chunk n times, and waits for pause before each.
func repeatChunk(n int, pause time.Duration) llmhttp.Backend {
	chunk := llmhttp.TextChunk("token ")
	stream := func(yield func(*llmhttp.ChatChunk, error) bool) {
		for range n {
			for start := time.Now(); time.Since(start) < pause; {
			}
			if !yield(chunk, nil) {
				return
			}
		}
	}
	return llmhttp.BackendFunc(func(context.Context, *llmhttp.ChatRequest) llmhttp.ChatStream { return stream })
}

// The path of a text chunk allocates nothing, whether it comes alone or in a
// burst. What a burst allocates is by the write, not by the chunk.
func TestAllocsPerChunk(t *testing.T) {
	for name, test := range map[string]struct {
		pause time.Duration
		runs  int
		most  float64 // for 1000 chunks
	}{
		"burst": {0, 100, 60},
		"alone": {70 * time.Microsecond, 10, 5},
	} {
		t.Run(name, func(t *testing.T) {
			opts := &llmhttp.Options{Usage: voidStore{}}
			body := chatAsk{stream: true}.body()
			few := allocsOf(t, llmhttp.NewHandler(repeatChunk(100, test.pause), anyKey, opts), body, test.runs)
			many := allocsOf(t, llmhttp.NewHandler(repeatChunk(1100, test.pause), anyKey, opts), body, test.runs)
			t.Logf("%v allocations for 100 chunks, %v for 1100", few, many)
			if many-few > test.most {
				t.Errorf("%v allocations for 100 chunks, %v for 1100", few, many)
			}
		})
	}
}

// A whole request of 0.5 KB takes few allocations inside the Handler.
func TestAllocsPerRequest(t *testing.T) {
	body := fmt.Sprintf(`{"model":"demo-chat","messages":[{"role":"system","content":"You are a helpful assistant."},{"role":"user","content":"%s"}],"temperature":0.7,"top_p":1,"max_tokens":100}`,
		strings.Repeat("word ", 68))
	if len(body) < 480 || len(body) > 540 {
		t.Fatalf("the body has %d bytes", len(body))
	}
	key := &llmhttp.Key{ID: "key_1", Account: "acme", Limits: llmhttp.Limits{Requests: llmhttp.PerMinute(1e9), Tokens: llmhttp.PerMinute(1e12)}}
	keys := llmhttp.KeyFunc(func(context.Context, string) (*llmhttp.Key, error) { return key, nil })
	chunk := llmhttp.TextChunk(strings.Repeat("answer ", 10))
	usage := &llmhttp.Usage{PromptTokens: 90, CompletionTokens: 10}
	stream := func(yield func(*llmhttp.ChatChunk, error) bool) {
		chunk.Choices[0].FinishReason = llmhttp.FinishStop
		chunk.Usage = usage
		yield(chunk, nil)
	}
	b := llmhttp.BackendFunc(func(context.Context, *llmhttp.ChatRequest) llmhttp.ChatStream { return stream })
	got := allocsOf(t, llmhttp.NewHandler(b, keys, &llmhttp.Options{Usage: voidStore{}}), body, 100)
	t.Logf("%v allocations", got)
	if got > 25 {
		t.Errorf("%v allocations", got)
	}
}

// Small elements in great number cost no more memory than large ones.
func TestAmplification(t *testing.T) {
	const size = 16 << 20
	fill := func(head, element, tail string) []byte {
		b := make([]byte, 0, size)
		b = append(b, head...)
		for len(b) < size-len(element)-len(tail)-1 {
			b = append(append(b, element...), ',')
		}
		return append(b[:len(b)-1], tail...)
	}
	numbered := func(head, format, tail string, most int) []byte {
		b := append(make([]byte, 0, size), head...)
		for i := 0; len(b) < size-len(format)-100-len(tail) && i < most; i++ {
			b = append(fmt.Appendf(b, format, i), ',')
		}
		return append(b[:len(b)-1], tail...)
	}
	deep := func() []byte {
		b := append(make([]byte, 0, size), `{"model":"m","x":`...)
		depth := 0
		for ; len(b) < size-200_000 && depth < 500; depth++ {
			b = append(b, '{')
			for i := range 16_000 {
				b = append(fmt.Appendf(b, `"%x":0`, i), ',')
			}
			b = append(b, `"next":`...)
		}
		b = append(b, '0')
		return append(b, strings.Repeat("}", depth+1)...)
	}
	const msg = `{"model":"m","messages":[{"role":"user","content":`
	bodies := map[string][]byte{
		"messages":               fill(`{"model":"m","messages":[`, `{}`, `]}`),
		"parts":                  fill(msg+`[`, `{}`, `]}]}`),
		"parts of messages":      numbered(`{"model":"m","messages":[`, `{"role":"user","content":[`+strings.TrimSuffix(strings.Repeat(`{},`, 1000), ",")+`],"x%d":0}`, `]}`, 1e9),
		"tools":                  fill(`{"model":"m","messages":[],"tools":[`, `{}`, `]}`),
		"tool calls":             fill(`{"model":"m","messages":[{"role":"assistant","tool_calls":[`, `{}`, `]}]}`),
		"stops":                  fill(`{"model":"m","messages":[],"stop":[`, `""`, `]}`),
		"members":                numbered(`{"model":"m",`, `"k%d":0`, `}`, 1e9),
		"members of messages":    numbered(`{"model":"m","messages":[`, `{"k%d":0}`, `]}`, 1e9),
		"members of few":         numbered(`{"model":"m","messages":[`, `{"role":"user","content":"","k%d":0,"b":0,"c":0}`, `]}`, 16_000),
		"a member of an array":   fill(`{"model":"m","x":[`, `{}`, `]}`),
		"members within members": deep(),
		"one text":               fill(msg+`"`, `aaaaaaa\n`, `"}]}`),
		"inputs":                 fill(`{"model":"m","input":[`, `""`, `]}`),
		"token inputs":           fill(`{"model":"m","input":[`, `[1]`, `]}`),
		"tokens":                 fill(`{"model":"m","input":[`, `1`, `]}`),
		"nothing":                []byte(strings.Repeat("[", size)),
		"duplicates":             numbered(`{"model":"m","x":{`, `"k%d":0`, `,"k0":0}}`, 16_000),
	}
	h := llmhttp.NewHandler(chunksOf(textChunks("x")), anyKey, &llmhttp.Options{Logger: noLog})
	for name, body := range bodies {
		path := "/v1/chat/completions"
		if strings.Contains(name, "input") || name == "tokens" {
			path = "/v1/embeddings"
		}
		r := httptest.NewRequest("POST", path, bytes.NewReader(body))
		r.Header.Set("Authorization", "Bearer sk-test")
		w := httptest.NewRecorder()
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		start := time.Now()
		h.ServeHTTP(w, r)
		runtime.ReadMemStats(&after)
		got := after.TotalAlloc - before.TotalAlloc
		t.Logf("%-22s %8d bytes: status %d, %d MB allocated, %v", name, len(body), w.Code, got>>20, time.Since(start))
		if w.Code == 413 {
			t.Errorf("%s: the body has %d bytes", name, len(body))
		}
		if got > 100<<20 {
			t.Errorf("%s: %d MB allocated", name, got>>20)
		}
	}
}
