//go:build !race

// The race detector allocates, so these tests run without it.

package llmhttp_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/largebody"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/rerank"
)

// allocsPerRequest returns the average number of allocations of a request with body.
func allocsPerRequest(b llmhttp.Backend, keys llmhttp.KeyStore, body string, runs int) float64 {
	return allocsObserved(b, keys, nil, body, runs)
}

// allocsObserved is allocsPerRequest with an Observer.
func allocsObserved(b llmhttp.Backend, keys llmhttp.KeyStore, observe llmhttp.Observer, body string, runs int) float64 {
	h := llmhttp.NewHandler(b, keys, &llmhttp.Options{Usage: discardStore{}, Observe: observe})
	r := newRepeatableRequest(body)
	return testing.AllocsPerRun(runs, func() { r.serve(h) })
}

// repeatChunk returns a Backend that yields one chunk n times, with a pause before each.
func repeatChunk(n int, pause time.Duration) llmhttp.Backend {
	chunk := llm.TextChunk("token ")
	stream := func(yield func(*llm.ChatChunk, error) bool) {
		for range n {
			for start := time.Now(); time.Since(start) < pause; { // time.Sleep would be too long
			}
			if !yield(chunk, nil) {
				return
			}
		}
	}
	return llmhttp.BackendFunc(func(context.Context, *llm.ChatRequest) llm.ChatStream { return stream })
}

// A chunk of text causes no allocation of its own. When chunks come faster than they are
// written, each write allocates, but not each chunk.
func TestAllocs_PerChunk(t *testing.T) {
	for _, test := range []struct {
		name  string
		pause time.Duration
		runs  int
		most  float64 // for 1000 chunks
	}{
		{"at once", 0, 100, 60},
		{"one by one", 70 * time.Microsecond, 10, 5},
	} {
		t.Run(test.name, func(t *testing.T) {
			keys := keysFor(testKey())
			few := allocsPerRequest(repeatChunk(100, test.pause), keys, streamBody, test.runs)
			many := allocsPerRequest(repeatChunk(1100, test.pause), keys, streamBody, test.runs)
			t.Logf("%v allocations for 100 chunks, %v for 1100", few, many)
			assert.LessOrEqual(t, many-few, test.most)
		})
	}
}

// TestAllocs_PerRequest bounds the allocations of a chat request of half a kilobyte with
// a reply that is not a stream.
func TestAllocs_PerRequest(t *testing.T) {
	body := fmt.Sprintf(`{"model":"demo-chat","messages":[{"role":"system","content":"You are a helpful assistant."},{"role":"user","content":"%s"}],"temperature":0.7,"top_p":1,"max_tokens":100}`,
		strings.Repeat("word ", 68))
	assert.InDelta(t, 510, len(body), 30)
	key := testKey()
	key.Limits = llmhttp.Limits{Requests: llmhttp.PerMinute(1e9), Tokens: llmhttp.PerMinute(hugeLimit)}
	keys := llmhttp.KeyStoreFunc(func(context.Context, string) (*llmhttp.Key, error) { return &key, nil })
	chunk := llm.TextChunk(strings.Repeat("answer ", 10))
	usage := &llm.Usage{PromptTokens: 90, CompletionTokens: 10}
	stream := func(yield func(*llm.ChatChunk, error) bool) {
		chunk.Choices[0].FinishReason = llm.FinishStop
		chunk.Usage = usage
		yield(chunk, nil)
	}
	b := llmhttp.BackendFunc(func(context.Context, *llm.ChatRequest) llm.ChatStream { return stream })
	got := allocsPerRequest(b, keys, body, 100)
	t.Logf("%v allocations", got)
	assert.LessOrEqual(t, got, 30.0) // the budget in docs/performance.md

	// An Observer gets a copy of the numbers, and the state of its request.
	observe := func(ctx context.Context, _ *http.Request) (context.Context, llmhttp.Observation) {
		return ctx, llmhttp.Observation{Ended: func(*llmhttp.RequestSummary) {}}
	}
	observed := allocsObserved(b, keys, observe, body, 100)
	t.Logf("%v allocations with an Observer", observed)
	assert.LessOrEqual(t, observed-got, 4.0)
}

// The memory that the Handler allocates for a body of 16 MiB is bounded, whatever the
// body contains.
func TestAllocs_LargeBodies(t *testing.T) {
	repeat := largebody.Repeat
	nested := func() string {
		b := append(make([]byte, 0, largebody.Size), `{"model":"m","x":`...)
		depth := 0
		for ; len(b) < largebody.Size-200_000 && depth < 500; depth++ {
			b = append(b, '{')
			for i := range 16_000 {
				b = append(fmt.Appendf(b, `"%x":0`, i), ',')
			}
			b = append(b, `"next":`...)
		}
		return string(b) + "0" + strings.Repeat("}", depth+1)
	}
	const all = largebody.Size
	const message = `{"model":"m","messages":[{"role":"user","content":`
	bodies := map[string]string{
		"messages":               repeat(`{"model":"m","messages":[`, `{}`, `]}`, all),
		"parts":                  repeat(message+`[`, `{}`, `]}]}`, all),
		"parts of messages":      repeat(`{"model":"m","messages":[`, `{"role":"user","content":[`+strings.TrimSuffix(strings.Repeat(`{},`, 1000), ",")+`],"x%d":0}`, `]}`, all),
		"tools":                  repeat(`{"model":"m","messages":[],"tools":[`, `{}`, `]}`, all),
		"tool calls":             repeat(`{"model":"m","messages":[{"role":"assistant","tool_calls":[`, `{}`, `]}]}`, all),
		"stop sequences":         repeat(`{"model":"m","messages":[],"stop":[`, `""`, `]}`, all),
		"members":                repeat(`{"model":"m",`, `"k%d":0`, `}`, all),
		"members of messages":    repeat(`{"model":"m","messages":[`, `{"k%d":0}`, `]}`, all),
		"members of 16000":       repeat(`{"model":"m","messages":[`, `{"role":"user","content":"","k%d":0,"b":0,"c":0}`, `]}`, 16_000),
		"elements of a member":   repeat(`{"model":"m","x":[`, `{}`, `]}`, all),
		"members within members": nested(),
		"one text":               repeat(message+`"`, `aaaaaaa\n`, `"}]}`, all),
		"inputs":                 repeat(`{"model":"m","input":[`, `""`, `]}`, all),
		"inputs of tokens":       repeat(`{"model":"m","input":[`, `[1]`, `]}`, all),
		"input of tokens":        repeat(`{"model":"m","input":[`, `1`, `]}`, all),
		"document":               repeat(`{"model":"m","query":"q","documents":[{"text":"`, `aaaaaaa\n`, `"}]}`, all),
		"documents":              repeat(`{"model":"m","query":"q","documents":[`, `{"a":[1,2,3]}`, `]}`, 10_000),
		"brackets":               strings.Repeat("[", largebody.Size),
		"duplicate names":        repeat(`{"model":"m","x":{`, `"k%d":0`, `,"k0":0}}`, 16_000),
	}
	h := llmhttp.NewHandler(new(stubBackend), keysFor(testKey()), &llmhttp.Options{Logger: noLog, Routes: rerank.Routes()})
	for name, body := range bodies {
		t.Run(name, func(t *testing.T) {
			r := newChatRequest(body)
			if strings.Contains(name, "input") {
				r.URL.Path = embeddingsPath
			}
			if strings.Contains(name, "document") {
				r.URL.Path = rerankPath
			}
			w := httptest.NewRecorder()
			megabytes := largebody.Allocated(func() { h.ServeHTTP(w, r) })
			t.Logf("%d bytes: status %d, %d MB allocated", len(body), w.Code, megabytes)
			assert.NotEqual(t, 413, w.Code)
			assert.LessOrEqual(t, megabytes, uint64(100))
		})
	}
}
