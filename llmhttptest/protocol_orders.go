package llmhttptest

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/llmhttp/llmhttp"
)

// chosenOrders has streams that have broken clients or servers before, or that the
// Handler must correct.
var chosenOrders = map[string][]*llmhttp.ChatChunk{
	"nothing":            {{}},
	"only usage":         {usageChunk(3, 0)},
	"one chunk":          {llmhttp.TextChunk("Hello"), finishChunk(llmhttp.FinishStop)},
	"no finish reason":   {llmhttp.TextChunk("Hel"), llmhttp.TextChunk("lo")},
	"length":             {llmhttp.TextChunk("Hel"), finishChunk(llmhttp.FinishLength)},
	"content filter":     {llmhttp.TextChunk("Hel"), finishChunk(llmhttp.FinishContentFilter)},
	"text after the end": {llmhttp.TextChunk("Hello"), finishChunk(llmhttp.FinishStop), llmhttp.TextChunk(" again")},
	"cut characters": {
		llmhttp.TextChunk("\xf0\x9f"),
		llmhttp.TextChunk("\x99\x82 \xe6\x9d"),
		llmhttp.TextChunk("\xb1"),
		llmhttp.TextChunk("\xe4"),
	},
	"a long text":           {llmhttp.TextChunk(strings.Repeat("0123456789é", 5000))},
	"line breaks":           {llmhttp.TextChunk("a\nb\r\nc\u2028d\u2029e\u0085f")},
	"usage before the text": {usageChunk(3, 4), llmhttp.TextChunk("Hello"), finishChunk(llmhttp.FinishStop)},
	"usage twice":           {llmhttp.TextChunk("Hello"), usageChunk(3, 1), finishChunk(llmhttp.FinishStop), usageChunk(3, 4)},
	"reasoning, then text": {
		reasoningChunk("Let me "),
		reasoningChunk("see."),
		llmhttp.TextChunk("Hello"),
		finishChunk(llmhttp.FinishStop),
	},
	"reasoning between text": {
		llmhttp.TextChunk("Hel"),
		reasoningChunk("Hmm."),
		llmhttp.TextChunk("lo"),
		finishChunk(llmhttp.FinishStop),
	},
	"a call":                   {callChunk(0, "call_1", "f", `{"a":`), callChunk(0, "", "", `1}`), finishChunk(llmhttp.FinishToolCalls)},
	"text, then a call":        {llmhttp.TextChunk("Wait."), callChunk(0, "call_1", "f", `{}`), finishChunk(llmhttp.FinishToolCalls)},
	"a call, then text":        {callChunk(0, "call_1", "f", `{}`), llmhttp.TextChunk("Done."), finishChunk(llmhttp.FinishToolCalls)},
	"a call without arguments": {callChunk(0, "call_1", "f", ``), finishChunk(llmhttp.FinishToolCalls)},
	"a cut call":               {callChunk(0, "call_1", "f", `{"a":"b`), finishChunk(llmhttp.FinishLength)},
	"calls cut in a character": {
		callChunk(0, "call_1", "f", `{}`),
		callChunk(1, "call_2", "g", "{\"b\":\"\\ud83d\xf0\x9f"),
		finishChunk(llmhttp.FinishLength),
	},
	"malformed arguments": {callChunk(0, "call_1", "f", `{"a" `), callChunk(0, "", "", `1}`), finishChunk(llmhttp.FinishToolCalls)},
	"parallel calls": {
		callChunk(0, "call_1", "f", `{}`),
		callChunk(1, "call_2", "g", `{"b":2}`),
		finishChunk(llmhttp.FinishToolCalls),
	},
	"interleaved calls": {callChunk(0, "call_1", "f", `{"a":`), callChunk(1, "call_2", "g", `{"b":`), callChunk(0, "", "", `1}`),
		callChunk(1, "", "", `2}`), finishChunk(llmhttp.FinishToolCalls)},
	"indices with gaps":       {callChunk(3, "call_1", "f", `{}`), callChunk(7, "call_2", "g", `{}`)},
	"repeated IDs and names":  {callChunk(0, "call_1", "f", `{"a":`), callChunk(0, "call_1", "f", `1}`)},
	"all indices zero":        {callChunk(0, "call_1", "f", `{}`), callChunk(0, "call_2", "g", `{}`)},
	"calls without IDs":       {callChunk(0, "", "f", `{"a":1}`), callChunk(0, "", "f", `{"a":2}`)},
	"a name after arguments":  {callChunk(0, "call_1", "", `{"a":`), callChunk(0, "", "f", `1}`)},
	"reasoning between calls": {callChunk(0, "call_1", "f", `{}`), reasoningChunk("And."), callChunk(1, "call_2", "g", `{}`)},
	"several in one chunk": {
		{
			Choices: []llmhttp.ChunkChoice{{Delta: llmhttp.Delta{Content: "Hi", Reasoning: "Hm"}, FinishReason: llmhttp.FinishStop}},
			Usage:   &llmhttp.Usage{PromptTokens: 1, CompletionTokens: 2},
		},
	},
	"a choice not asked for": {
		llmhttp.TextChunk("Hi"),
		{Choices: []llmhttp.ChunkChoice{{Index: 200, Delta: llmhttp.Delta{Content: "x"}}}},
	},
	"nil chunks": {nil, llmhttp.TextChunk("Hi"), nil},
}

func deltaChunk(d llmhttp.Delta) *llmhttp.ChatChunk {
	return &llmhttp.ChatChunk{Choices: []llmhttp.ChunkChoice{{Delta: d}}}
}

func reasoningChunk(s string) *llmhttp.ChatChunk { return deltaChunk(llmhttp.Delta{Reasoning: s}) }

func callChunk(index int, id, name, arguments string) *llmhttp.ChatChunk {
	return deltaChunk(llmhttp.Delta{ToolCalls: []llmhttp.ToolCallDelta{
		{Index: index, ID: id, Function: llmhttp.FunctionCall{Name: name, Arguments: arguments}},
	}})
}

func finishChunk(r llmhttp.FinishReason) *llmhttp.ChatChunk {
	return &llmhttp.ChatChunk{Choices: []llmhttp.ChunkChoice{{FinishReason: r}}}
}

func usageChunk(prompt, completion int) *llmhttp.ChatChunk {
	return &llmhttp.ChatChunk{Usage: &llmhttp.Usage{PromptTokens: prompt, CompletionTokens: completion}}
}

// randomChunks returns chunks of random content in random order.
func randomChunks(rng *rand.Rand, choices int) []*llmhttp.ChatChunk {
	pieces := []string{"a", "Hello ", "é", "\xf0\x9f\x99", "\x82", "東", "\n", `"`, "\\", "{", "}"}
	var chunks []*llmhttp.ChatChunk
	calls := make([]int, choices)
	for range rng.IntN(12) {
		c := llmhttp.ChunkChoice{Index: rng.IntN(choices)}
		switch rng.IntN(6) {
		case 0, 1, 2:
			c.Delta.Content = pick(rng, pieces...)
		case 3:
			c.Delta.Reasoning = pick(rng, pieces...)
		case 4:
			n := calls[c.Index]
			calls[c.Index]++
			c.Delta.ToolCalls = []llmhttp.ToolCallDelta{{Index: n, ID: fmt.Sprintf("call_%d_%d", c.Index, n),
				Function: llmhttp.FunctionCall{Name: "f", Arguments: `{"n":` + fmt.Sprint(n) + `}`}}}
		case 5:
			if rng.IntN(3) == 0 {
				c.FinishReason = llmhttp.FinishLength
			}
		}
		chunks = append(chunks, &llmhttp.ChatChunk{Choices: []llmhttp.ChunkChoice{c}})
	}
	return append(chunks, &llmhttp.ChatChunk{Usage: &llmhttp.Usage{PromptTokens: rng.IntN(100), CompletionTokens: 1 + rng.IntN(100)}})
}

// streamOf returns a stream of copies of chunks, because a Handler may change the
// chunks that it receives.
func streamOf(chunks []*llmhttp.ChatChunk) llmhttp.ChatStream {
	return func(yield func(*llmhttp.ChatChunk, error) bool) {
		for _, c := range chunks {
			if !yield(c.Clone(), nil) {
				return
			}
		}
	}
}
