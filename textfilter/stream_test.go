package textfilter_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/textfilter"
)

// notFiltered are the places of a Delta whose strings stay as they are.
var notFiltered = map[string]string{
	"Delta.Role":                          "always assistant",
	"Delta.ReasoningDetails[0].Type":      "one of a few",
	"Delta.ReasoningDetails[0].Signature": "is over what the model has written",
	"Delta.ReasoningDetails[0].Data":      "encrypted",
	"Delta.ToolCalls[0].ID":               "an ID of the server",
	"Delta.ToolCalls[0].Type":             "one of a few",
}

// comesWhole are the places of a Delta whose strings do not come in pieces: those of several chunks
// are not joined.
func comesWhole(path string) bool {
	return path == "Delta.ToolCalls[0].Function.Name" || strings.HasSuffix(path, "name") ||
		strings.HasSuffix(path, ".inner") || // an array
		strings.HasSuffix(path, ".Function.Extra.value") || strings.HasPrefix(path, "Delta.ReasoningDetails[0].Extra")
}

// newDelta returns a Delta with s at the place number i, and with nothing outside of the field of that
// place. What else is in a detail of reasoning leaves it a text that goes on.
func newDelta(i int, s string) *llm.Delta {
	all := new(llm.Delta)
	place := places(reflect.ValueOf(all).Elem(), "Delta")[i]
	place.set(s)
	name, _, _ := strings.Cut(strings.TrimPrefix(place.path, "Delta."), "[")
	name, _, _ = strings.Cut(name, ".")
	d := new(llm.Delta)
	reflect.ValueOf(d).Elem().FieldByName(name).Set(reflect.ValueOf(all).Elem().FieldByName(name))
	if len(d.ReasoningDetails) > 0 && notFiltered[place.path] == "" {
		detail := &d.ReasoningDetails[0]
		detail.Type, detail.Signature, detail.Data = llm.ReasoningText, "", ""
		if detail.Summary == "p" {
			detail.Summary = ""
		} else {
			detail.Type, detail.Text = llm.ReasoningSummary, ""
		}
	}
	return d
}

// deltaPlaces returns the paths of all places of a Delta.
func deltaPlaces() (paths []string) {
	for _, p := range places(reflect.New(reflect.TypeFor[llm.Delta]()).Elem(), "Delta") {
		paths = append(paths, p.path)
	}
	return paths
}

// streamDeltas returns a stream of one chunk for each delta.
func streamDeltas(deltas ...*llm.Delta) llm.ChatStream {
	var chunks []*llm.ChatChunk
	for _, d := range deltas {
		chunks = append(chunks, &llm.ChatChunk{Choices: []llm.ChunkChoice{{Delta: *d}}})
	}
	return streamOf(chunks...)
}

// joinedStrings returns the strings of a reply that was joined of s. Those of Extra are decoded, and
// all of an object or a list of details are joined, as a reader would.
func joinedStrings(t *testing.T, s llm.ChatStream) string {
	t.Helper()
	r, err := join.Collect(s)
	require.NoError(t, err)
	if len(r.Choices) == 0 {
		return ""
	}
	m := &r.Choices[0].Message
	all := stringsIn(reflect.ValueOf(m).Elem())
	var details string
	for _, d := range m.ReasoningDetails {
		details += d.Text + d.Summary
	}
	return strings.Join(append(all, details), "\x00")
}

// Each string of a Delta is filtered, or is in notFiltered, wherever it is divided. A new text fails
// until the filter knows it.
func TestStream_EveryTextOfADelta(t *testing.T) {
	const text = "a " + filterSecret + " b"
	paths := deltaPlaces()
	for path := range notFiltered {
		assert.Contains(t, paths, path)
	}
	for i, path := range paths {
		if path == "Delta.Role" {
			continue
		}
		t.Run(path, func(t *testing.T) {
			_, stays := notFiltered[path]
			divided := len(text)
			if comesWhole(path) || stays {
				divided = 0
			}
			for at := range divided + 1 {
				for to := at; to <= divided; to++ {
					if strings.Contains(path, "Extra") && !(utf8.ValidString(text[:at]) && utf8.ValidString(text[:to])) {
						continue // a JSON string has whole characters
					}
					var deltas []*llm.Delta
					for _, piece := range []string{text[:at], text[at:to], text[to:]} {
						if piece != "" {
							deltas = append(deltas, newDelta(i, piece))
						}
					}
					got := joinedStrings(t, textfilter.Stream(streamDeltas(deltas...), 1, redact.Reply))
					require.Equal(t, stays, strings.Contains(got, filterSecret), "divided at %d and %d: %q", at, to, got)
					if !stays {
						require.Contains(t, got, "a "+filterMark+" b", "divided at %d and %d", at, to)
					}
				}
			}
		})
	}
}

// All texts at once, divided at the same place, and with chunks of other texts between their pieces.
func TestStream_Interleaved(t *testing.T) {
	delta := func(s string) *llm.Delta {
		return &llm.Delta{
			Reasoning: s, Content: s, Refusal: s, Extra: llm.Extra{"vendor": json.RawMessage(jsonText(s))},
			ReasoningDetails: []llm.ReasoningDetail{{Type: llm.ReasoningText, Text: s}},
			ToolCalls:        []llm.ToolCallDelta{{ID: "c", Function: llm.FunctionCall{Name: "f", Arguments: s}}},
		}
	}
	apart := func(s string) (all []*llm.Delta) {
		d := delta(s)
		return []*llm.Delta{{Reasoning: d.Reasoning}, {Content: d.Content}, {ReasoningDetails: d.ReasoningDetails}, {Refusal: d.Refusal}, {ToolCalls: d.ToolCalls}, {Extra: d.Extra}}
	}
	for at := range len(filterSecret) {
		head, tail := filterSecret[:at], filterSecret[at:]
		for name, deltas := range map[string][]*llm.Delta{
			"at once": {delta(head), delta(tail)},
			"apart":   append(apart(head), apart(tail)...),
		} {
			got := joinedStrings(t, textfilter.Stream(streamDeltas(deltas...), 1, redact.Reply))
			assert.NotContains(t, got, filterSecret, "%s %d", name, at)
			assert.GreaterOrEqual(t, strings.Count(got, filterMark), 6, "%s %d: %q", name, at, got)
		}
	}
}

// chunksOf returns the chunks of a stream as JSON, and its error.
func chunksOf(s llm.ChatStream) (lines []string, failure error) {
	for c, err := range s {
		if err != nil {
			return lines, err
		}
		b, _ := json.Marshal(c)
		line := strings.Replace(string(b), `,"object":"chat.completion.chunk","created":0,"model":""`, "", 1)
		if !strings.Contains(line, `[{"index":0,"delta":{},"finish_reason":null}]`) { // all is held back
			lines = append(lines, line)
		}
	}
	return lines, nil
}

// keepAll holds back all of each text until its end.
func keepAll(t *textfilter.ReplyText) (release, hold string, err error) { return "", t.Text, nil }

func TestStream_Order(t *testing.T) {
	s := jsonStream(t,
		`{"id":"r","choices":[{"index":1,"delta":{"reasoning_content":"hm"}}],"usage":{"prompt_tokens":1},"fingerprint":"f"}`,
		`{"id":"r","choices":[{"index":0,"delta":{"content":"a"},"logprobs":{"content":[{"token":"a"}]}}]}`,
		`{"id":"r","choices":[{"index":1,"delta":{"content":"b"},"finish_reason":"length","stop_reason":"x"}]}`,
		`{"id":"r","choices":[{"index":0,"delta":{"content":"c"}}]}`,
		`{"id":"r","choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2},"end":1}`,
	)
	got, err := chunksOf(textfilter.Stream(s, 2, keepAll))
	require.NoError(t, err)
	assert.Equal(t, []string{
		`{"id":"r","choices":[{"index":0,"delta":{"role":"assistant"},"finish_reason":null}]}`,
		`{"id":"r","choices":[{"index":1,"delta":{"role":"assistant"},"finish_reason":null}]}`,
		`{"id":"r","choices":[],"fingerprint":"f"}`,
		`{"id":"r","choices":[],"usage":{"prompt_tokens":1,"completion_tokens":0,"total_tokens":1}}`,
		`{"id":"r","choices":[{"index":1,"delta":{"reasoning_content":"hm","content":"b"},"finish_reason":null}]}`,
		`{"id":"r","choices":[{"index":1,"delta":{},"finish_reason":"length","stop_reason":"x"}]}`,
		`{"id":"r","choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}`,
		`{"id":"r","choices":[{"index":0,"delta":{"content":"ac"},"finish_reason":null}]}`,
		`{"id":"r","choices":[],"end":1}`,
	}, got)
}

// A filter that holds back the arguments of calls sees them whole before the reader sees the calls,
// which begin in their order.
func TestStream_HeldCalls(t *testing.T) {
	var seen []string
	s := jsonStream(t,
		`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"one","arguments":"{\"x\":"}}]}}]}`,
		`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"b","function":{"name":"two","arguments":"{}"}}]}}]}`,
		`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":2,"id":"c","type":"custom","custom":{"name":"three","input":"in"}}]}}]}`,
		`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"1}"}},{"index":2,"custom":{"input":"put"}}]}}]}`,
		`{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}`,
	)
	got, err := chunksOf(textfilter.Stream(s, 1, func(r *textfilter.ReplyText) (release, hold string, err error) {
		if r.Call >= 0 && r.End {
			seen = append(seen, fmt.Sprint(r.Kind, " ", r.Call, " ", r.Tool, " ", r.Text))
		}
		if r.Kind == textfilter.Arguments && r.Tool == "two" {
			return r.Text, "", nil // at once, but for the call before it
		}
		return "", r.Text, nil
	}))
	require.NoError(t, err)
	assert.Contains(t, seen, `arguments 0 one {"x":1}`)
	assert.Contains(t, seen, "other 2 three input")
	assert.Equal(t, []string{
		`{"id":"","choices":[{"index":0,"delta":{"role":"assistant"},"finish_reason":null}]}`,
		`{"id":"","choices":[{"index":0,"delta":{"tool_calls":[` +
			`{"index":0,"id":"a","type":"function","function":{"name":"one","arguments":"{\"x\":1}"}},` +
			`{"index":1,"id":"b","type":"function","function":{"name":"two","arguments":"{}"}},` +
			`{"index":2,"id":"c","type":"custom","custom":{"input":"input","name":"three"}}]},"finish_reason":null}]}`,
		`{"id":"","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}`,
	}, got)
}

// A filter learns that a text pauses, and can release what it holds before the next begins.
func TestStream_Paused(t *testing.T) {
	var calls []string
	s := streamDeltas(&llm.Delta{Reasoning: "let me"}, &llm.Delta{Reasoning: " see"}, &llm.Delta{Content: "the"}, &llm.Delta{Content: " end"}, &llm.Delta{Reasoning: "!"})
	got, err := chunksOf(textfilter.Stream(s, 1, func(r *textfilter.ReplyText) (release, hold string, err error) {
		calls = append(calls, fmt.Sprintf("%s %q %q paused=%t end=%t", r.Kind, r.Sent, r.Text, r.Paused, r.End))
		if r.Paused && r.Kind == textfilter.Reasoning {
			return r.Text, "", nil
		}
		return "", r.Text, nil
	}))
	require.NoError(t, err)
	assert.Equal(t, []string{
		`reasoning "" "let me" paused=false end=false`,
		`reasoning "" "let me see" paused=false end=false`,
		`reasoning "" "let me see" paused=true end=false`,
		`content "" "the" paused=false end=false`,
		`content "" "the end" paused=false end=false`,
		`content "" "the end" paused=true end=false`,
		`reasoning "let me see" "!" paused=false end=false`,
		`reasoning "let me see" "!" paused=false end=true`,
		`content "" "the end" paused=false end=true`,
	}, calls)
	assert.Equal(t, []string{
		`{"id":"","choices":[{"index":0,"delta":{"role":"assistant"},"finish_reason":null}]}`,
		`{"id":"","choices":[{"index":0,"delta":{"reasoning_content":"let me see"},"finish_reason":null}]}`,
		`{"id":"","choices":[{"index":0,"delta":{"reasoning_content":"!","content":"the end"},"finish_reason":null}]}`,
	}, got)
}

// refuseWord refuses texts with a word.
func refuseWord(word string) func(*textfilter.ReplyText) (string, string, error) {
	return func(r *textfilter.ReplyText) (string, string, error) {
		if strings.Contains(r.Text, word) {
			return "", "", fmt.Errorf("found it: %w", textfilter.ErrContentFiltered)
		}
		return r.Text, "", nil
	}
}

func TestStream_Refused(t *testing.T) {
	read := 0
	s := llm.Tee(jsonStream(t,
		`{"choices":[{"index":0,"delta":{"content":"good"}},{"index":1,"delta":{"content":"fine"}}]}`,
		`{"choices":[{"index":0,"delta":{"reasoning_content":"x","content":"bad"}},{"index":1,"delta":{"content":"too"}}]}`,
		`{"choices":[{"index":0,"delta":{"content":"more"}}]}`,
		`{"choices":[{"index":1,"delta":{},"finish_reason":"stop"}]}`,
		`{"choices":[{"index":0,"delta":{"content":"not read"}}]}`,
	), func(*llm.ChatChunk, error) { read++ })
	r, err := join.Collect(textfilter.Stream(s, 2, refuseWord("bad")))
	require.NoError(t, err)
	assert.Equal(t, llm.FinishContentFilter, r.Choices[0].FinishReason)
	assert.Equal(t, "good", r.Choices[0].Message.Content.Text())
	assert.Equal(t, llm.FinishStop, r.Choices[1].FinishReason)
	assert.Equal(t, "finetoo", r.Choices[1].Message.Content.Text())
	assert.Equal(t, 4, read, "the stream is not read when all choices have ended")
}

func TestStream_Errors(t *testing.T) {
	broken := errors.New("broken")
	text := func() llm.ChatStream {
		return streamDeltas(&llm.Delta{Content: "a"}, &llm.Delta{Content: "b"})
	}
	t.Run("of the filter", func(t *testing.T) {
		got, err := chunksOf(textfilter.Stream(text(), 1, func(*textfilter.ReplyText) (string, string, error) { return "x", "", broken }))
		assert.Equal(t, broken, err)
		assert.Len(t, got, 1, "the role")
	})
	t.Run("at the end", func(t *testing.T) {
		_, err := chunksOf(textfilter.Stream(text(), 1, func(r *textfilter.ReplyText) (string, string, error) {
			if r.End {
				return "", "", broken
			}
			return "", r.Text, nil
		}))
		assert.Equal(t, broken, err)
	})
	t.Run("of the stream", func(t *testing.T) {
		s := memory.Scripted(memory.Say("a"), memory.Say("b"), memory.Fail(broken)).Chat(t.Context(), new(llm.ChatRequest))
		got, err := chunksOf(textfilter.Stream(s, 1, keepAll))
		assert.Equal(t, broken, err)
		assert.Contains(t, got[len(got)-1], `"content":"ab"`)
	})
	t.Run("nothing", func(t *testing.T) {
		got, err := chunksOf(textfilter.Stream(streamOf(), 1, keepAll))
		assert.NoError(t, err)
		assert.Empty(t, got)
		_, err = chunksOf(textfilter.Stream(nil, 1, keepAll))
		assert.ErrorContains(t, err, "nil ChatStream")
	})
	t.Run("the reader stops", func(t *testing.T) {
		calls := 0
		for range textfilter.Stream(text(), 1, func(r *textfilter.ReplyText) (string, string, error) {
			calls++
			return r.Text, "", nil
		}) {
			break
		}
		assert.Zero(t, calls)
	})
	t.Run("too many calls", func(t *testing.T) {
		var d llm.Delta
		for i := range 1025 {
			d.ToolCalls = append(d.ToolCalls, llm.ToolCallDelta{Index: i, ID: fmt.Sprint(i)})
		}
		_, err := chunksOf(textfilter.Stream(streamDeltas(&d), 1, redact.Reply))
		assert.ErrorContains(t, err, "too many tool calls")
	})
}

// What repeats a text as it was before the filter is removed.
func TestStream_LogProbabilities(t *testing.T) {
	s := jsonStream(t,
		`{"choices":[{"index":0,"delta":{"content":"sec"},"logprobs":{"content":[{"token":"sec"}]},"token_ids":[7],"other":1}],"prompt_logprobs":[1],"prompt_token_ids":[1]}`,
		`{"choices":[{"index":0,"delta":{"content":"ret"},"logprobs":{"content":[{"token":"ret"}]},"finish_reason":"stop"}]}`,
	)
	got, err := chunksOf(textfilter.Stream(s, 1, redact.Reply))
	require.NoError(t, err)
	all := strings.Join(got, "\n")
	for _, name := range []string{"logprobs", "token_ids", "prompt_"} {
		assert.NotContains(t, all, name)
	}
	assert.Contains(t, all, `"other":1`)
}

// Escapes that a model need not have written do not hide a text, wherever they are divided.
func TestStream_EscapedArguments(t *testing.T) {
	const arguments = `{"x":"\u0073\u0033cr\u0022t\u005c\u00fc-key","y":"\ud83d\ude00\/\n\ud83d"}`
	for at := range len(arguments) {
		call := func(s string) *llm.Delta {
			return &llm.Delta{ToolCalls: []llm.ToolCallDelta{{ID: "c", Function: llm.FunctionCall{Name: "f", Arguments: s}}}}
		}
		r, err := join.Collect(textfilter.Stream(streamDeltas(call(arguments[:at]), call(arguments[at:])), 1, redact.Reply))
		require.NoError(t, err)
		assert.Equal(t, `{"x":"[redacted]","y":"😀/\n\ud83d"}`, r.Choices[0].Message.ToolCalls[0].Function.Arguments, "divided at %d", at)
	}
}

// A stream of the filter is as its Backend's in all that is not text.
func TestStream_Unchanged(t *testing.T) {
	unchanged := func(r *textfilter.ReplyText) (string, string, error) { return r.Text, "", nil }
	lines := []string{
		`{"id":"r","created":5,"model":"m","choices":[{"index":0,"delta":{"reasoning":"hm","reasoning_details":[{"type":"reasoning.text","text":"hm","index":0,"format":"f"}]}}]}`,
		`{"choices":[{"index":0,"delta":{"reasoning_details":[{"type":"reasoning.text","signature":"s","index":0}]}}]}`,
		`{"choices":[{"index":0,"delta":{"reasoning_details":[{"type":"reasoning.encrypted","data":"d"}],"content":"a","annotations":[{"type":"url_citation"}],"audio":{"id":"au","transcript":"x"}}}]}`,
		`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{}"},"extra_content":{"google":{"thought_signature":"t"}}}]}}]}`,
		`{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":3,"completion_tokens":4},"service_tier":"flex"}`,
	}
	want, err := join.Collect(jsonStream(t, lines...))
	require.NoError(t, err)
	got, err := join.Collect(textfilter.Stream(jsonStream(t, lines...), 1, unchanged))
	require.NoError(t, err)
	assert.Equal(t, want, got)
	held, err := join.Collect(textfilter.Stream(jsonStream(t, lines...), 1, keepAll))
	require.NoError(t, err)
	assert.Equal(t, want, held)
	assert.True(t, slices.Contains(deltaPlaces(), "Delta.ReasoningDetails[0].Text"))
}

// The reader of a stream of which all is held back sees that it goes on, and can stop it.
func TestStream_HeldStreamIsNotSilent(t *testing.T) {
	read := 0
	s := llm.Tee(streamDeltas(&llm.Delta{Content: "a"}, &llm.Delta{Content: "b"}, &llm.Delta{Content: "c"}),
		func(c *llm.ChatChunk, _ error) { read++ })
	var seen []bool
	for chunk, err := range textfilter.Stream(s, 1, keepAll) {
		require.NoError(t, err)
		if seen = append(seen, chunk.HasContent()); len(seen) == 3 {
			break
		}
	}
	assert.Equal(t, []bool{false, false, false}, seen, "the role, and a chunk for each that is held back")
	assert.Equal(t, 3, read)
}

// What a filter holds back has a bound, and takes linear memory although it gets all of it each time.
func TestStream_HeldTexts(t *testing.T) {
	const pieces = 100_000
	delta := &llm.Delta{ToolCalls: []llm.ToolCallDelta{{ID: "c", Function: llm.FunctionCall{Name: "f", Arguments: "0123456789"}}}}
	s := func(n int, d *llm.Delta) llm.ChatStream {
		return func(yield func(*llm.ChatChunk, error) bool) {
			for range n {
				if !yield((&llm.ChatChunk{Choices: []llm.ChunkChoice{{Delta: *d}}}).Clone(), nil) {
					return
				}
			}
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r, err := join.Collect(textfilter.Stream(s(pieces, delta), 1, keepAll))
	runtime.ReadMemStats(&after)
	require.NoError(t, err)
	assert.Len(t, r.Choices[0].Message.ToolCalls[0].Function.Arguments, 10*pieces)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<30), "not a copy of all for each piece")

	_, err = join.Collect(textfilter.Stream(s(70, &llm.Delta{Content: strings.Repeat("x", 1<<20)}), 1, keepAll))
	var e *llm.Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, 502, e.Status)
}
