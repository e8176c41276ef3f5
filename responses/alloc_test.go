//go:build !race

// The race detector allocates, so this test runs without it.

package responses_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp"
)

// The memory that a body of 16 MiB takes is bounded, whatever the body contains.
func TestAllocs_LargeBodies(t *testing.T) {
	const size = 16 << 20
	// repeat returns head, most elements or as many as fit, and tail. A %d in element
	// is the element's number.
	repeat := func(head, element, tail string, most int) []byte {
		b := append(make([]byte, 0, size), head...)
		for i := 0; i < most && len(b) < size-len(element)-len(tail)-100; i++ {
			if strings.Contains(element, "%d") {
				b = fmt.Appendf(b, element, i)
			} else {
				b = append(b, element...)
			}
			b = append(b, ',')
		}
		return append(b[:len(b)-1], tail...)
	}
	const all = size
	const message = `{"model":"m","input":[{"role":"user","content":`
	h := newHandler(llmhttp.BackendFunc(func(context.Context, *llmhttp.ChatRequest) llmhttp.ChatStream { return llmhttp.Reply("x") }))
	for name, body := range map[string][]byte{
		"items":           repeat(`{"model":"m","input":[`, `{}`, `]}`, all),
		"16000 items":     repeat(`{"model":"m","input":[`, `{"role":"user","content":"x"}`, `]}`, 16_000),
		"parts":           repeat(message+`[`, `{}`, `]}]}`, all),
		"16000 parts":     repeat(message+`[`, `{"type":"input_text","text":""}`, `]}]}`, 16_000),
		"tools":           repeat(`{"model":"m","tools":[`, `{}`, `]}`, all),
		"16000 tools":     repeat(`{"model":"m","input":"x","tools":[`, `{"type":"function","name":"f%d"}`, `]}`, 16_000),
		"members":         repeat(`{"model":"m",`, `"k%d":0`, `}`, all),
		"130000 members":  repeat(`{"model":"m",`, `"k%d":0`, `}`, 130_000),
		"one text":        repeat(message+`"`, `aaaaaaa\n`, `"}]}`, all),
		"brackets":        bytes.Repeat([]byte("["), size),
		"130000 elements": repeat(`{"model":"m","input":"x","metadata":{"x":[`, `1`, `]}}`, 130_000),
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			w, _ := serveDirectly(h, body)
			runtime.ReadMemStats(&after)
			megabytes := (after.TotalAlloc - before.TotalAlloc) >> 20
			t.Logf("%d bytes: status %d, %d MB allocated", len(body), w.Code, megabytes)
			assert.NotEqual(t, http.StatusRequestEntityTooLarge, w.Code)
			assert.LessOrEqual(t, megabytes, uint64(150))
		})
	}
}
