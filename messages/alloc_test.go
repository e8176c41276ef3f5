//go:build !race

// The race detector allocates, so this test runs without it.

package messages_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/llmhttp/llmhttp/internal/largebody"
	"github.com/stretchr/testify/assert"
)

// The memory that a body of 16 MiB takes is bounded, whatever the body contains.
func TestAllocs_LargeBodies(t *testing.T) {
	repeat := largebody.Repeat
	const all = largebody.Size
	const turn = `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":`
	const call = `{"model":"m","max_tokens":9,"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":`
	kilobyte := strings.Repeat("a", 1<<10)
	blocks := `{"role":"user","content":[` + strings.TrimSuffix(strings.Repeat(`{},`, 1000), ",") + `]}`
	bodies := map[string]string{
		"turns":                 repeat(`{"messages":[`, `{}`, `]}`, all),
		"65000 turns":           repeat(`{"messages":[`, `{}`, `]}`, 65_000),
		"43000 turns with text": repeat(`{"model":"m","max_tokens":9,"messages":[`, `{"role":"user","content":""}`, `]}`, 43_000),
		"blocks":                repeat(turn+`[`, `{}`, `]}]}`, all),
		"65000 blocks":          repeat(turn+`[`, `{}`, `]}]}`, 65_000),
		"43000 texts":           repeat(turn+`[`, `{"type":"text","text":"x"}`, `]}]}`, 43_000),
		"21000 marked texts":    repeat(turn+`[`, `{"type":"text","text":"x","cache_control":{"type":"ephemeral"}}`, `]}]}`, 21_000),
		"43000 blocks of tools": repeat(turn+`[{"type":"tool_result","tool_use_id":"t","content":[`, `{"type":"text","text":"x"}`, `]}]}]}`, 43_000),
		"blocks of turns":       repeat(`{"messages":[`, blocks, `]}`, all),
		"system":                repeat(`{"system":[`, `{}`, `]}`, all),
		"tools":                 repeat(`{"tools":[`, `{}`, `]}`, all),
		"65000 tools":           repeat(`{"tools":[`, `{}`, `]}`, 65_000),
		"stop sequences":        repeat(`{"stop_sequences":[`, `""`, `]}`, all),
		"130000 stop sequences": repeat(`{"stop_sequences":[`, `""`, `]}`, 130_000),
		"members":               repeat(`{"model":"m",`, `"k%d":0`, `}`, all),
		"130000 members":        repeat(`{"model":"m",`, `"k%d":0`, `}`, 130_000),
		"members of an input":   repeat(call+`{`, `"k%d":0`, `}}]}]}`, all),
		"elements of an input":  repeat(call+`{"x":[`, `1`, `]}}]}]}`, all),
		"elements of a member":  repeat(`{"model":"m","x":[`, `{}`, `]}`, all),
		"long thinking":         repeat(`{"model":"m","max_tokens":9,"messages":[{"role":"assistant","content":[`, `{"type":"thinking","thinking":"`+kilobyte+`"}`, `]}]}`, all),
		"one text":              repeat(turn+`"`, `aaaaaaa\n`, `"}]}`, all),
		"brackets":              strings.Repeat("[", largebody.Size),
	}
	for name, body := range bodies {
		t.Run(name, func(t *testing.T) {
			s := newServer(nil, nil)
			var w *httptest.ResponseRecorder
			megabytes := largebody.Allocated(func() { w = s.do("POST", messagesPath, body) })
			t.Logf("%d bytes: status %d, %d MB allocated", len(body), w.Code, megabytes)
			assert.NotEqual(t, 413, w.Code)
			assert.LessOrEqual(t, megabytes, uint64(100))
		})
	}
}
