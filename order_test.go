package llmhttp_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/llm"
)

// These tests check that chunks reach the client in valid order, even if a Backend yields
// them in another order. checkStream defines that order.

func TestOrder_FirstChunkIsOfChoice0(t *testing.T) {
	r := streamChat(t, jsonBackend(t,
		`{"choices":[{"index":2,"delta":{"content":"c"}}]}`,
		`{"choices":[{"index":1,"delta":{"content":"b"}}]}`,
		`{"choices":[{"index":0,"delta":{"content":"a"}}]}`), chatParams{n: 3})
	require.Len(t, r.Choices, 3)
	assert.Equal(t, "abc", r.Choices[0].Content+r.Choices[1].Content+r.Choices[2].Content)
}

func TestOrder_NothingFollowsTheEndOfAChoice(t *testing.T) {
	r := streamChat(t, jsonBackend(t,
		`{"choices":[{"index":1,"delta":{"content":"x"},"finish_reason":"length"},{"index":0,"delta":{"content":"a"}}]}`,
		`{"choices":[{"index":1,"delta":{"content":"late"}},{"index":1,"delta":{},"finish_reason":"stop"}]}`,
		`{"choices":[{"index":0,"delta":{"content":"b"},"finish_reason":"stop"}]}`,
		`{"choices":[{"index":0,"delta":{"tool_calls":[{"id":"c","function":{"name":"late"}}]}}]}`), chatParams{n: 2})
	assert.NotContains(t, r.raw, "late")
	assert.Equal(t, &chatMessage{Content: "ab", Finish: "stop"}, r.Choices[0])
	assert.Equal(t, &chatMessage{Content: "x", Finish: "length"}, r.Choices[1])
}

// All known ways in which Backends stream tool calls result in the same calls.
func TestOrder_ToolCalls(t *testing.T) {
	two := []toolCall{{"c1", "function", "f", `{"a":1}`}, {"c2", "function", "g", `{}`}}
	generated := hideIDs("call_" + strings.Repeat("0", 32))
	tests := map[string]struct {
		want   []toolCall
		deltas []string
	}{
		"as in the format": {two, []string{
			`{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":""}}`,
			`{"index":0,"function":{"arguments":"{\"a\""}}`, `{"index":0,"function":{"arguments":":1}"}}`,
			`{"index":1,"id":"c2","type":"function","function":{"name":"g","arguments":""}}`, `{"index":1,"function":{"arguments":"{}"}}`}},
		"each call whole": {two, []string{
			`{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}`,
			`{"index":1,"id":"c2","type":"function","function":{"name":"g","arguments":"{}"}}`}},
		"both calls in one delta": {two, []string{
			`{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}},{"index":1,"id":"c2","type":"function","function":{"name":"g","arguments":"{}"}}`}},
		"no index": {two, []string{
			`{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}`,
			`{"id":"c2","type":"function","function":{"name":"g","arguments":"{}"}}`}},
		"every index is 0, in pieces": {two, []string{
			`{"index":0,"id":"c1","function":{"name":"f","arguments":"{\"a\""}}`, `{"index":0,"function":{"arguments":":1}"}}`,
			`{"index":0,"id":"c2","function":{"name":"g"}}`, `{"index":0,"function":{"arguments":"{}"}}`}},
		"indices begin at 1": {two, []string{
			`{"index":1,"id":"c1","function":{"name":"f","arguments":"{\"a\":1}"}}`, `{"index":2,"id":"c2","function":{"name":"g","arguments":"{}"}}`}},
		"indices are negative and have a gap": {two, []string{
			`{"index":-3,"id":"c1","function":{"name":"f","arguments":"{\"a\":1}"}}`, `{"index":9,"id":"c2","function":{"name":"g"}}`, `{"index":9,"function":{"arguments":"{}"}}`}},
		"id, type and name are repeated": {two, []string{
			`{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\""}}`,
			`{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":":1}"}}`,
			`{"index":1,"id":"c2","type":"function","function":{"name":"g","arguments":"{"}}`,
			`{"index":1,"id":"c2","type":"function","function":{"name":"g","arguments":"}"}}`}},
		"calls are interleaved": {two, []string{
			`{"index":0,"id":"c1","function":{"name":"f","arguments":"{\"a\""}}`, `{"index":1,"id":"c2","function":{"name":"g","arguments":"{"}}`,
			`{"index":0,"function":{"arguments":":1}"}}`, `{"index":1,"function":{"arguments":"}"}}`}},
		"the name follows the id": {two, []string{
			`{"index":0,"id":"c1","type":"function"}`, `{"index":0,"function":{"name":"f"}}`, `{"index":0,"function":{"arguments":"{\"a\":1}"}}`,
			`{"index":1,"id":"c2"}`, `{"index":1,"function":{"arguments":"{"}}`, `{"index":1,"function":{"name":"g","arguments":"}"}}`}},
		"empty strings and nulls": {two, []string{
			`{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\""}}`, `{"index":0,"id":"","type":"","function":{"name":"","arguments":":1}"}}`,
			`{"index":1,"id":"c2","type":null,"function":{"name":"g","arguments":null}}`, `{"index":1,"id":null,"function":{"name":null,"arguments":"{}"}}`}},
		"no ids": {[]toolCall{{generated, "function", "f", `{"a":1}`}, {generated, "function", "g", `{}`}}, []string{
			`{"index":0,"function":{"name":"f","arguments":"{\"a\":1}"}}`, `{"index":1,"function":{"name":"g","arguments":"{}"}}`}},
		"no ids and no indices": {[]toolCall{{generated, "function", "f", `{"a":1}`}, {generated, "function", "f", `{}`}}, []string{
			`{"function":{"name":"f","arguments":"{\"a\":1}"}}`, `{"function":{"name":"f","arguments":"{}"}}`}},
		"arguments beyond ASCII": {[]toolCall{{"c1", "function", "f", `{"a":"é"}`}}, []string{
			`{"id":"c1","function":{"name":"f","arguments":"{\"a\":\"é\"}"}}`}},
		"another type": {[]toolCall{{"c1", "custom", "", ""}}, []string{
			`{"index":0,"id":"c1","type":"custom","custom":{"name":"f","input":"x"}}`}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var lines []string
			for _, d := range test.deltas {
				lines = append(lines, `{"choices":[{"delta":{"tool_calls":[`+d+`]}}]}`)
			}
			lines = append(lines, `{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}`)
			b := jsonBackend(t, lines...)
			want := &chatMessage{Calls: test.want, Finish: "tool_calls"}
			stream := streamChat(t, b, chatParams{})
			assert.Equal(t, want, stream.withoutIDs().Choices[0], "%s", stream.raw)
			whole := wholeChat(t, b, chatParams{})
			assert.Equal(t, want, whole.withoutIDs().Choices[0], "%s", whole.raw)
		})
	}
}

func TestOrder_GeneratedToolCallIDsAreUnique(t *testing.T) {
	calls := streamChat(t, jsonBackend(t, `{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"f"}},{"index":1,"function":{"name":"g"}}]}}]}`), chatParams{}).Choices[0].Calls
	require.Len(t, calls, 2)
	assert.NotEqual(t, calls[0].ID, calls[1].ID)
}

func TestOrder_CustomToolCallHasItsTypeOnce(t *testing.T) {
	r := streamChat(t, jsonBackend(t,
		`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c1","type":"custom","custom":{"name":"f","input":"a"}}]}}]}`,
		`{"choices":[{"delta":{"tool_calls":[{"index":0,"custom":{"input":"b"}}]}}]}`), chatParams{})
	assert.Equal(t, 1, strings.Count(r.raw, `"type"`))
}

// A tool call is buffered until its name arrives. Its Extra is kept.
func TestOrder_BufferedToolCallKeepsItsExtra(t *testing.T) {
	for name, last := range map[string]string{
		"the name comes":       `{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"f"}}]}}]}`,
		"the name never comes": `{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			r := streamChat(t, jsonBackend(t,
				`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c1","sig":"s","function":{"arguments":"{","x":1}}]}}]}`,
				`{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"}"}}]}}]}`, last), chatParams{})
			require.Len(t, r.Choices[0].Calls, 1)
			assert.Equal(t, "{}", r.Choices[0].Calls[0].Arguments)
			assert.Contains(t, r.raw, `"sig":"s"`)
			assert.Contains(t, r.raw, `"x":1`)
		})
	}
}

// checkLines fails t if a line of a stream is longer than old versions of openai-go can
// read.
func checkLines(t testing.TB, stream string) {
	t.Helper()
	for line := range strings.Lines(stream) {
		assert.LessOrEqual(t, len(line), 64<<10)
	}
}

func TestOrder_LongTextIsSplitIntoShortLines(t *testing.T) {
	text := strings.Repeat("the quick brown fox 🦊 ", 20_000)
	r := streamChat(t, textBackend(text), chatParams{})
	assert.True(t, r.Choices[0].Content == text, "the text is whole")
	checkLines(t, r.raw)
}

// A long text is split only between characters. Long runs of bytes that are no characters
// are split too.
func TestOrder_LongTextIsSplitBetweenCharacters(t *testing.T) {
	for name, text := range map[string]string{
		"emoji":                       strings.Repeat("😀", 10_000),
		"odd offset":                  "x" + strings.Repeat("é", 20_000),
		"no characters":               strings.Repeat("\x80", 20_000),
		"at the limit":                strings.Repeat("a", 8190) + "😀",
		"much longer when it is JSON": strings.Repeat("\u0000", 30_000),
	} {
		t.Run(name, func(t *testing.T) {
			want := string([]rune(text))
			b := chunkBackend(func() []*llm.ChatChunk {
				c := llm.TextChunk(text)
				d := &c.Choices[0].Delta
				d.Reasoning = text
				d.ToolCalls = []llm.ToolCallDelta{
					{ID: "c1", Function: llm.FunctionCall{Name: "f", Arguments: text}},
					{ID: "c2", Index: 1, Function: llm.FunctionCall{Name: "g", Arguments: text}},
				}
				return []*llm.ChatChunk{c}
			})
			r := streamChat(t, b, chatParams{})
			m := r.Choices[0]
			require.Len(t, m.Calls, 2)
			for _, got := range []string{m.Content, m.Reasoning, m.Calls[0].Arguments, m.Calls[1].Arguments} {
				assert.True(t, got == want, "%.20q is not whole", got)
			}
			checkLines(t, r.raw)
		})
	}
}

// A chunk with many pieces of arguments is split without repeating any of them.
func TestOrder_ManyPiecesOfArgumentsAreSplit(t *testing.T) {
	const pieces = 5000
	b := chunkBackend(func() []*llm.ChatChunk {
		calls := make([]llm.ToolCallDelta, pieces)
		for i := range calls {
			calls[i].Function.Arguments = "12345678"
		}
		calls[0].ID, calls[0].Function.Name = "c", "f"
		return []*llm.ChatChunk{{Choices: []llm.ChunkChoice{{Delta: llm.Delta{ToolCalls: calls}}}}}
	})
	r := streamChat(t, b, chatParams{})
	assert.Equal(t, []toolCall{{"c", "function", "f", strings.Repeat("12345678", pieces)}}, r.Choices[0].Calls)
	assert.Zero(t, strings.Count(r.raw, `{"index":0}`), "empty pieces")
}

// Text that a Backend cuts anywhere arrives complete, and each chunk has only whole
// characters.
func TestOrder_TextMayBeCutWithinCharacters(t *testing.T) {
	const text = "aé👩‍👩‍👧‍👦🇩🇪€\u00a0\U0010ffff~"
	fields := map[string]func(*llm.Delta, string){
		"content":   func(d *llm.Delta, s string) { d.Content = s },
		"reasoning": func(d *llm.Delta, s string) { d.Reasoning = s },
		"arguments": func(d *llm.Delta, s string) {
			d.ToolCalls = []llm.ToolCallDelta{{ID: "c", Function: llm.FunctionCall{Name: "f", Arguments: s}}}
		},
	}
	for field, set := range fields {
		t.Run(field, func(t *testing.T) {
			check := func(pieces ...string) {
				t.Helper()
				b := chunkBackend(func() (chunks []*llm.ChatChunk) {
					for _, p := range pieces {
						c := &llm.ChatChunk{Choices: make([]llm.ChunkChoice, 1)}
						set(&c.Choices[0].Delta, p)
						chunks = append(chunks, c)
					}
					return chunks
				})
				r := streamChat(t, b, chatParams{})
				m := r.Choices[0]
				got := m.Content + m.Reasoning
				for _, c := range m.Calls {
					got += c.Arguments
				}
				require.Equal(t, text, got, "%q", pieces)
				require.NotContains(t, r.raw, "\ufffd", "%q", pieces)
				require.NotContains(t, r.raw, `\ufffd`, "%q", pieces)
				require.Equal(t, m, wholeChat(t, b, chatParams{}).Choices[0], "%q", pieces)
			}
			var single []string
			for i := range len(text) {
				single = append(single, text[i:i+1])
				check(text[:i], text[i:])
				check(text[:i], "", text[i:i+1], text[i+1:])
			}
			check(single...)
		})
	}
}

// Incomplete characters are buffered separately for each text of each choice.
func TestOrder_InterleavedTextsDoNotMix(t *testing.T) {
	b := chunkBackend(func() []*llm.ChatChunk {
		var chunks []*llm.ChatChunk
		for i := range 4 {
			chunks = append(chunks, &llm.ChatChunk{Choices: []llm.ChunkChoice{
				{Index: 0, Delta: llm.Delta{Content: "😀"[i : i+1], Reasoning: "🎉"[i : i+1]}},
				{Index: 1, Delta: llm.Delta{Content: "🚀"[i : i+1]}},
			}})
		}
		return chunks
	})
	r := streamChat(t, b, chatParams{n: 2})
	assert.Equal(t, &chatMessage{Content: "😀", Reasoning: "🎉", Finish: "stop"}, r.Choices[0])
	assert.Equal(t, &chatMessage{Content: "🚀", Finish: "stop"}, r.Choices[1])
}

func TestOrder_AnyTextArrivesUnchanged(t *testing.T) {
	var controls bytes.Buffer
	for c := range rune(0xa1) {
		controls.WriteRune(c)
	}
	for _, text := range []string{
		controls.String(), "\u2028", "\u2029", "\u0085", "a\u2028b\u2029c\u0085d", "data: [DONE]", "\ndata: [DONE]\n\n", "\r\n\r\ndata: {}\r\n",
		": keep-alive\n", `"}]}`, `\`, `\u0000`, `{"error":{"message":"x"}}`, "</script><!--", "\ufeff", "\ufffd", "\uffff", "\x7f",
	} {
		b := textBackend(text, text)
		assert.Equal(t, text+text, streamChat(t, b, chatParams{}).Choices[0].Content)
		assert.Equal(t, text+text, wholeChat(t, b, chatParams{}).Choices[0].Content)
	}
}

// Invalid UTF-8 becomes U+FFFD in the same way wherever the text is cut.
func TestOrder_InvalidBytesAreReplaced(t *testing.T) {
	for in, want := range map[string]string{
		"\xff":                   "\ufffd",
		"a\x80\x80b":             "a\ufffd\ufffdb",
		"a\xc3(b":                "a\ufffd(b",
		"\xc0\xafx":              "\ufffd\ufffdx",
		"\xed\xa0\x80x":          "\ufffd\ufffd\ufffdx",
		"\xf4\x90\x80\x80x":      "\ufffd\ufffd\ufffd\ufffdx",
		"\xf0\x9f\x98A":          "\ufffd\ufffd\ufffdA",
		"é\xe2\x82é":             "é\ufffd\ufffdé",
		"ends within \xf0\x9f":   "ends within \ufffd",
		"ends within \xe2\x82":   "ends within \ufffd",
		"ends within \xc3":       "ends within \ufffd",
		"\xf0\x9f\x98\x80\xf0😀.": "😀\ufffd😀.",
	} {
		for i := range len(in) + 1 {
			b := textBackend(in[:i], in[i:])
			about := fmt.Sprintf("%q cut at %d", in, i)
			assert.Equal(t, want, streamChat(t, b, chatParams{}).Choices[0].Content, about)
			assert.Equal(t, want, wholeChat(t, b, chatParams{}).Choices[0].Content, about)
		}
	}
}
