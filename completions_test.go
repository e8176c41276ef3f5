package llmhttp

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
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

func TestAppendWhole_IsLikeTheTable(t *testing.T) {
	texts := []string{"", "token ", "\n\"", "é\u2028", "\xff"}
	text := func() string { return texts[rand.IntN(len(texts))] }
	rarely := func() bool { return rand.IntN(10) == 0 }
	var extra = Extra{"x": json.RawMessage("1")}
	for range 1000 {
		m := Message{Role: RoleAssistant, Content: Text(text())}
		c := Choice{Index: rand.IntN(2), FinishReason: FinishReason(text())}
		r := ChatResponse{ID: "chatcmpl-1", Created: rand.Int64N(2e9), Model: text(), Usage: &Usage{PromptTokens: rand.IntN(2), CompletionTokens: 3}}
		for _, change := range []func(){
			func() { m.Content = nil },
			func() { m.Content[0].Type = PartAudio },
			func() { m.Content = append(m.Content, m.Content...) },
			func() { m.Role = "" },
			func() { m.Reasoning = text() },
			func() { m.Refusal = text() },
			func() { m.Name = text() },
			func() { m.ToolCallID = text() },
			func() { m.IsError = true },
			func() { m.ReasoningDetails = []ReasoningDetail{{Type: ReasoningText}} },
			func() { m.ToolCalls = []ToolCall{{ID: "call_1"}} },
			func() { m.Extra = extra },
			func() { c.StopSequence = text() },
			func() { c.Extra = Extra{memberLogprobs: json.RawMessage("{}")} },
			func() { r.Extra = extra },
			func() { r.Usage = nil },
			func() { r.Usage.Extra = extra },
			func() { r.Usage.PromptTokensDetails.CachedTokens = 1 },
			func() { r.Usage.PromptTokensDetails.CacheWriteTokens = 1 },
			func() { r.Usage.PromptTokensDetails.AudioTokens = 1 },
			func() { r.Usage.PromptTokensDetails.Extra = Extra{} },
			func() { r.Usage.CompletionTokensDetails.ReasoningTokens = 1 },
			func() { r.Usage.CompletionTokensDetails.AudioTokens = 1 },
			func() { r.Usage.CompletionTokensDetails.Extra = extra },
		} {
			if rarely() && r.Usage != nil && len(m.Content) == 1 {
				change()
			}
		}
		c.Message = m
		r.Choices = slices.Repeat([]Choice{c}, 1+rand.IntN(10)/9)
		got, err := wholeCompletion.AppendWhole(nil, &r)
		require.NoError(t, err)
		want, err := chatResponseJSON.Append(nil, &r)
		require.NoError(t, err)
		require.Equal(t, string(want), string(got))
	}
}

func BenchmarkAppendDelta(b *testing.B) {
	d := &Delta{Content: "token "}
	b.ReportAllocs()
	var buf []byte
	for b.Loop() {
		buf, _ = appendDelta(buf[:0], d)
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
