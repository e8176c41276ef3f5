//go:build !race

// The race detector allocates, so this test runs without it.

package responses_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/largebody"
	"github.com/llmhttp/llmhttp/llm"
)

// A large image is copied a few times at most, each of which also reads it.
func TestAllocs_Image(t *testing.T) {
	body := []byte(`{"model":"m","input":[{"role":"user","content":[{"type":"input_image","image_url":"data:,` + strings.Repeat("a", 8<<20) + `"}]}]}`)
	h := newHandler(llmhttp.BackendFunc(func(context.Context, *llm.ChatRequest) llm.ChatStream { return llm.Reply("x") }))
	megabytes := largebody.Allocated(func() { serveDirectly(h, body) })
	assert.LessOrEqual(t, megabytes, uint64(52))
}

// The memory that a body of 16 MiB takes is bounded, whatever the body contains.
func TestAllocs_LargeBodies(t *testing.T) {
	repeat := largebody.Repeat
	const all = largebody.Size
	const message = `{"model":"m","input":[{"role":"user","content":`
	kilobyte := strings.Repeat("a", 1<<10)
	h := newHandler(llmhttp.BackendFunc(func(context.Context, *llm.ChatRequest) llm.ChatStream { return llm.Reply("x") }))
	for name, body := range map[string]string{
		"items":           repeat(`{"model":"m","input":[`, `{}`, `]}`, all),
		"16000 items":     repeat(`{"model":"m","input":[`, `{"role":"user","content":"x"}`, `]}`, 16_000),
		"parts":           repeat(message+`[`, `{}`, `]}]}`, all),
		"16000 parts":     repeat(message+`[`, `{"type":"input_text","text":""}`, `]}]}`, 16_000),
		"tools":           repeat(`{"model":"m","tools":[`, `{}`, `]}`, all),
		"16000 tools":     repeat(`{"model":"m","input":"x","tools":[`, `{"type":"function","name":"f%d"}`, `]}`, 16_000),
		"members":         repeat(`{"model":"m",`, `"k%d":0`, `}`, all),
		"130000 members":  repeat(`{"model":"m",`, `"k%d":0`, `}`, 130_000),
		"long reasoning":  repeat(`{"model":"m","input":[`, `{"type":"reasoning","summary":[{"text":"`+kilobyte+`"}]}`, `]}`, all),
		"long summary":    repeat(`{"model":"m","input":[{"type":"reasoning","summary":[`, `{"text":"`+kilobyte+`"}`, `]}]}`, all),
		"long refusals":   repeat(`{"model":"m","input":[{"role":"assistant","content":[`, `{"type":"refusal","refusal":"`+kilobyte+`"}`, `]}]}`, all),
		"refused items":   repeat(`{"model":"m","input":[`, `{"role":"assistant","content":[{"type":"refusal","refusal":"`+kilobyte+`"}]}`, `]}`, all),
		"one text":        repeat(message+`"`, `aaaaaaa\n`, `"}]}`, all),
		"brackets":        strings.Repeat("[", largebody.Size),
		"130000 elements": repeat(`{"model":"m","input":"x","metadata":{"x":[`, `1`, `]}}`, 130_000),
	} {
		t.Run(name, func(t *testing.T) {
			data := []byte(body)
			var w *httptest.ResponseRecorder
			megabytes := largebody.Allocated(func() { w = serveDirectly(h, data) })
			t.Logf("%d bytes: status %d, %d MB allocated", len(body), w.Code, megabytes)
			assert.NotEqual(t, http.StatusRequestEntityTooLarge, w.Code)
			assert.LessOrEqual(t, megabytes, uint64(150))
		})
	}
}
