package llmhttp

import (
	"strings"
	"testing"
)

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
