package llmhttp_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
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
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
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
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
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
	if got > 20 {
		t.Errorf("%v allocations", got)
	}
}
