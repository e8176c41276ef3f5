// Random chats, and what every Protocol must make of them.

package llmhttptest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
	"github.com/llmhttp/llmhttp/llmhttptest/internal/kit"
)

// A chatCall is a request for a chat to which the Backend replies with Chunks, which may be nil.
// No Choices means that the client does not ask for several.
type chatCall struct {
	Choices int
	Chunks  []*llm.ChatChunk
}

// protocolSequences are of one call each.
var protocolSequences = kit.Sequences[*protocolTest, chatCall]{
	Count: 200, Generate: randomChatCalls,
	Begin: func(t testing.TB, p *protocolTest) func(chatCall) {
		return func(c chatCall) {
			chunks, choices := append(slices.Clone(c.Chunks), new(llm.ChatChunk)), max(c.Choices, 1) // a Backend must yield one
			if yielded, err := join.Collect(streamOf(chunks)); err == nil && isValidReply(yielded, choices) {
				p.wantSameReplies(t, chunks, choices, yielded)
			}
		}
	},
	Simpler: kit.SimplerEach(kit.SimplerFields[chatCall]), Describe: chatCall.String,
}

// isValidReply reports whether a Backend may yield r if it is asked for a number of choices. A choice
// that is complete tells by its FinishReason whether it has calls.
func isValidReply(r *llm.ChatResponse, choices int) bool {
	return (r.Usage == nil || r.Usage.CompletionTokens > 0) && !slices.ContainsFunc(r.Choices, func(c llm.Choice) bool {
		calls := c.Message.ToolCalls
		return c.Index >= choices || c.FinishReason == llm.FinishToolCalls && calls == nil || c.FinishReason == llm.FinishStop && calls != nil ||
			slices.ContainsFunc(calls, func(call llm.ToolCall) bool { return !isValidCall(call.Function) })
	})
}

// isValidCall reports whether f has a name, and no arguments after a brace that may end them.
func isValidCall(f llm.FunctionCall) bool {
	return f.Name != "" && (json.Valid([]byte(f.Arguments)) || !strings.Contains(strings.TrimSuffix(f.Arguments, "}"), "}"))
}

// String has a line for each chunk.
func (c chatCall) String() string {
	s := fmt.Sprintf("Chat(%d choices) with the chunks", max(c.Choices, 1))
	for _, chunk := range c.Chunks {
		s += "\n         " + kit.Describe(chunk)
	}
	return s
}

// randomChatCalls returns a chat whose chunks a Backend may yield, including those that the Handler
// must correct. Most streams are short.
func randomChatCalls(rng *rand.Rand, p *protocolTest, _ int) []chatCall {
	choices := 1 + rng.IntN(min(p.opts.Choices, 3)) // with more, few choices have several chunks
	c := chatCall{Choices: choices}
	chance := func(n int) bool { return rng.IntN(n) == 0 }
	text := func(d *llm.Delta) { d.Content = randomText(rng) }
	reasoning := func(d *llm.Delta) { d.Reasoning = randomText(rng) }
	call := func(d *llm.Delta) { d.ToolCalls = []llm.ToolCallDelta{randomToolCall(rng)} }
	type deltas []func(d *llm.Delta)
	kinds := kit.Pick(rng, deltas{text}, deltas{text, reasoning}, deltas{text, call}, deltas{call}, deltas{text, reasoning, call})
	for range rng.IntN(10) {
		chunk := new(llm.ChatChunk)
		if chance(8) {
			chunk.Usage = &llm.Usage{PromptTokens: rng.IntN(100), CompletionTokens: 1 + rng.IntN(100)}
		}
		for range kit.Pick(rng, 0, 1, 1, 1, 1, 2) {
			choice := llm.ChunkChoice{Index: rng.IntN(choices)}
			for range kit.Pick(rng, 1, 1, 1, 2) {
				kit.Pick(rng, kinds...)(&choice.Delta)
			}
			if chance(8) {
				choice.FinishReason = kit.Pick(rng, llm.FinishStop, llm.FinishLength, llm.FinishContentFilter, llm.FinishToolCalls)
			}
			if chance(50) {
				choice.Index = 200 // not asked for
			}
			chunk.Choices = append(chunk.Choices, choice)
		}
		if chance(20) {
			chunk = nil
		}
		c.Chunks = append(c.Chunks, chunk)
	}
	return []chatCall{c}
}

// randomText returns a piece of text, which may begin or end within a character.
func randomText(rng *rand.Rand) string {
	if rng.IntN(100) == 0 {
		return strings.Repeat("0123456789\u00e9", 5000)
	}
	return kit.Pick(rng, "a", "Hello ", "\u00e9", "\u6771", "\xf0\x9f\x99", "\x82", "\n", "\r\n\u2028\u2029\u0085", `"`, "\\", "{", "}")
}

// randomToolCall returns a piece of a call, which may be any of it.
func randomToolCall(rng *rand.Rand) llm.ToolCallDelta {
	d := llm.ToolCallDelta{Index: kit.Pick(rng, 0, 0, 0, 1, 1, 7), ID: kit.Pick(rng, "", "", "", "call_1", "call_2")}
	d.Function.Name = kit.Pick(rng, "", "f", "g")
	d.Function.Arguments = kit.Pick(rng, "", "{}", `{"a":`, `1}`, `{"a" `, `"b`, "\\ud83d\xf0\x9f", "\u6771")
	return d
}

// streamOf returns a stream of copies of chunks, because a Handler may change the
// chunks that it receives.
func streamOf(chunks []*llm.ChatChunk) llm.ChatStream {
	return func(yield func(*llm.ChatChunk, error) bool) {
		for _, c := range chunks {
			if !yield(c.Clone(), nil) {
				return
			}
		}
	}
}
