package responses_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

// TestCreate_RandomReplies checks for random orders of all kinds of deltas that a
// strict client accepts the stream, that the whole reply equals it, and that
// no text is lost.
func TestCreate_RandomReplies(t *testing.T) {
	for seed := range uint64(400) {
		random := rand.New(rand.NewPCG(seed, 1))
		lines, texts := randomReply(random)
		script := strings.Join(lines, "\n")
		h := newHandler(llmhttp.BackendFunc(func(context.Context, *llm.ChatRequest) llm.ChatStream { return scriptedStream(script) }))
		const body = `{"model":"m","input":"Hi","tools":[{"type":"custom","name":"patch"}],"include":["message.output_text.logprobs"]`
		streamed := serveDirectly(h, []byte(body+`,"stream":true}`))
		r, err := accumulate(readEvents(t, streamed.Body.String()))
		require.NoError(t, err, "seed %d: %s\n%s", seed, script, streamed.Body)
		whole := serveDirectly(h, []byte(body+"}"))
		var w object
		require.NoError(t, json.Unmarshal(whole.Body.Bytes(), &w))
		require.Equal(t, withoutIDs(w), withoutIDs(r), "seed %d: %s", seed, script)
		assert.Equal(t, texts, textsOf(r), "seed %d: %s", seed, script)
	}
}

// randomReply returns chunks as JSON, and the joined texts of each type.
func randomReply(random *rand.Rand) (lines []string, texts map[string]string) {
	texts = make(map[string]string)
	lines = []string{`{"choices":[]}`} // a stream without chunks fails
	calls := 0
	for range random.IntN(20) {
		piece := []string{"a", "é ", "\n", `"x\`, "東京", "{}"}[random.IntN(6)]
		quoted, _ := json.Marshal(piece)
		var delta string
		switch random.IntN(7) {
		case 0, 1:
			delta = fmt.Sprintf(`{"content":%s}`, quoted)
			texts["text"] += piece
		case 2:
			delta = fmt.Sprintf(`{"refusal":%s}`, quoted)
			texts["refusal"] += piece
		case 3:
			delta = fmt.Sprintf(`{"reasoning_content":%s,"reasoning_details":[{"type":"reasoning.text","text":%s}]}`, quoted, quoted)
			texts["reasoning"] += piece
		case 4:
			name := []string{"f", "patch"}[random.IntN(2)]
			delta = fmt.Sprintf(`{"tool_calls":[{"index":%d,"id":"c%d","function":{"name":"%s","arguments":""}}]}`, calls, calls, name)
			if name == "f" {
				texts[fmt.Sprintf("c%d", calls)] = ""
			}
			calls++
		case 5:
			if calls == 0 {
				continue
			}
			i := random.IntN(calls)
			delta = fmt.Sprintf(`{"tool_calls":[{"index":%d,"function":{"arguments":%s}}]}`, i, quoted)
			texts[fmt.Sprintf("c%d", i)] += piece
		case 6:
			delta = fmt.Sprintf(`{"content":%s,"reasoning_content":%s}`, quoted, quoted)
			texts["text"] += piece
			texts["reasoning"] += piece
		}
		lines = append(lines, `{"choices":[{"delta":`+delta+`,"logprobs":{"content":[{"token":"t","logprob":-1}]}}]}`)
	}
	if random.IntN(3) == 0 {
		lines = append(lines, `{"choices":[{"delta":{},"finish_reason":"stop"}]}`)
	}
	for id, arguments := range texts {
		if arguments == "" {
			texts[id] = "{}" // clients parse the arguments of functions
		}
	}
	return lines, texts
}

// randomChunks returns chunks of random content in random order. Many of them are
// invalid.
func randomChunks(random *rand.Rand) []*llm.ChatChunk {
	pick := func(list ...string) string { return list[random.IntN(len(list))] }
	text := func() string {
		return pick("", "a", "é ", "\n", `"x\`, "東京", "\xf0\x9f\x99", "\x82", "\u2028", "\xff", "{}")
	}
	chunks := make([]*llm.ChatChunk, random.IntN(16))
	for i := range chunks {
		if random.IntN(30) == 0 {
			continue // a nil chunk
		}
		c := &llm.ChatChunk{Choices: []llm.ChunkChoice{{Index: random.IntN(20) / 19}}}
		chunks[i] = c
		choice := &c.Choices[0]
		for range 1 + random.IntN(2) {
			randomDelta(random, pick, text, &choice.Delta)
		}
		if random.IntN(3) == 0 {
			choice.Extra = llm.Extra{"logprobs": json.RawMessage(`{"content":[{"token":"t","logprob":-1}]}`)}
		}
		if random.IntN(30) == 0 {
			choice.FinishReason = llm.FinishReason(pick("stop", "length", "tool_calls", "content_filter", "other"))
		}
		if random.IntN(12) == 0 {
			c.Usage = &llm.Usage{PromptTokens: random.IntN(50), CompletionTokens: random.IntN(50)}
		}
	}
	return chunks
}

// randomDelta adds something to d.
func randomDelta(random *rand.Rand, pick func(...string) string, text func() string, d *llm.Delta) {
	switch random.IntN(7) {
	case 0, 1:
		d.Content = text()
	case 2:
		d.Refusal = text()
	case 3:
		d.Reasoning = text()
	case 4:
		d.ReasoningDetails = append(d.ReasoningDetails, llm.ReasoningDetail{
			Type: pick(llm.ReasoningText, llm.ReasoningEncrypted, llm.ReasoningSummary), Text: text(), Signature: pick("", "s"), Data: "d",
		})
	default:
		d.ToolCalls = append(d.ToolCalls, llm.ToolCallDelta{Index: random.IntN(3), ID: pick("", "", "c1", "c2", "c3"),
			Function: llm.FunctionCall{Name: pick("", "f", "patch", "n__f"), Arguments: pick(`{}`, `{"input":`, `"x"}`, `null`, text())}})
	}
}

// textsOf returns the joined texts of each type in a response.
func textsOf(r object) map[string]string {
	texts := make(map[string]string)
	add := func(kind, text string) {
		if text != "" {
			texts[kind] += text
		}
	}
	for _, it := range r["output"].([]any) {
		it := it.(object)
		for _, p := range append(listOf(it["content"]), listOf(it["summary"])...) {
			p := p.(object)
			switch p["type"] {
			case "output_text":
				add("text", p["text"].(string))
			case "refusal":
				add("refusal", p["refusal"].(string))
			case "summary_text":
				add("reasoning", p["text"].(string))
			}
		}
		if input, ok := it["input"].(string); ok {
			add(it["call_id"].(string), input)
		}
		if arguments, ok := it["arguments"].(string); ok {
			add(it["call_id"].(string), arguments)
		}
	}
	return texts
}

func listOf(v any) []any {
	list, _ := v.([]any)
	return list
}
