package llmhttp

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAppendDelta_IsLikeTheTable(t *testing.T) {
	texts := []string{"", "token ", "\n\"", "é\u2028", "\xff"}
	text := func() string { return texts[rand.IntN(len(texts))] }
	for range 1000 {
		d := Delta{Content: text()}
		if rand.IntN(2) == 0 {
			d.Reasoning, d.Refusal = text(), text()
			d.Role = []Role{"", RoleAssistant}[rand.IntN(2)]
			d.ToolCalls = make([]ToolCallDelta, rand.IntN(2))
			d.ReasoningDetails = make([]ReasoningDetail, rand.IntN(2))
			d.Extra = []Extra{nil, {}, {"x": json.RawMessage("1")}}[rand.IntN(3)]
		}
		got, err := appendDelta(nil, &d)
		require.NoError(t, err)
		want, err := deltaJSON.Append(nil, &d)
		require.NoError(t, err)
		assert.Equal(t, string(want), string(got))
	}
}

func BenchmarkAppendDelta(b *testing.B) {
	d := &Delta{Content: "token "}
	b.ReportAllocs()
	var buf []byte
	for b.Loop() {
		buf, _ = deltaJSON.Append(buf[:0], d)
	}
}

func BenchmarkAppendWhole(b *testing.B) {
	r := &ChatResponse{
		ID: "chatcmpl-1", Created: 1700000000, Model: "demo", Usage: &Usage{PromptTokens: 10, CompletionTokens: 20},
		Choices: []Choice{{Message: Message{Role: RoleAssistant, Content: Text(strings.Repeat("token ", 50))}, FinishReason: FinishStop}},
	}
	b.ReportAllocs()
	var buf []byte
	for b.Loop() {
		buf, _ = new(completionEncoder).AppendWhole(buf[:0], r)
	}
}
