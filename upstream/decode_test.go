package upstream

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
)

// decodeOne decodes one chunk and encodes it again.
func decodeOne(t testing.TB, text string) string {
	t.Helper()
	var d decoder
	c, err := d.chunk([]byte(text))
	require.NoError(t, err)
	require.Nil(t, d.problem)
	out, err := c.MarshalJSON()
	require.NoError(t, err)
	return string(out)
}

func TestDecodeChunk(t *testing.T) {
	const head, choice = `{"id":"","object":"chat.completion.chunk","created":0,"model":"",`, `"choices":[{"index":0,"delta":`
	for _, c := range []struct{ name, in, want string }{
		{"plain", `{"id":"x","object":"chat.completion.chunk","created":5,"model":"m","choices":[{"index":1,"delta":{"role":"assistant","content":"Hi"},"finish_reason":null}]}`,
			`{"id":"x","object":"chat.completion.chunk","created":5,"model":"m","choices":[{"index":1,"delta":{"content":"Hi"},"finish_reason":null}]}`},
		{"vendor's members", `{"choices":[{"delta":{"reasoning":"r","x":{"a":[1,null]}},"logprobs":{"content":[]},"y":1}],"service_tier":"default","system_fingerprint":null}`,
			head + choice + `{"reasoning":"r","x":{"a":[1,null]}},"finish_reason":null,"logprobs":{"content":[]},"y":1}],"service_tier":"default","system_fingerprint":null}`},
		{"nulls", `{"id":null,"created":null,"model":null,"choices":[{"index":null,"delta":{"role":null,"content":null,"reasoning_content":null,"tool_calls":null,"refusal":null},"logprobs":null,"finish_reason":null}],"usage":null,"error":null}`,
			head + choice + `{},"finish_reason":null}]}`},
		{"null choices", `{"choices":null}`, head + `"choices":[]}`},
		{"null delta", `{"choices":[{"delta":null},null,5]}`, head + choice + `{},"finish_reason":null}]}`},
		{"choices without an index", `{"choices":[null,{"index":null,"delta":{"content":"a"}},{"index":[],"delta":{"tool_calls":[null,{"id":"b"}]}}]}`,
			head + choice + `{"content":"a"},"finish_reason":null},{"index":1,"delta":{"tool_calls":[{"index":0,"id":"b"}]},"finish_reason":null}]}`},
		{"choices in order", `{"choices":[{"delta":{"content":"a"}},{"delta":{"content":"b"}}]}`,
			head + choice + `{"content":"a"},"finish_reason":null},{"index":1,"delta":{"content":"b"},"finish_reason":null}]}`},
		{"nothing", `{}`, head + `"choices":[]}`},
		{"odd types", `{"id":17,"created":"1755137933","model":3.5,"choices":[{"index":"2","delta":{"content":7},"finish_reason":""}]}`,
			`{"id":"17","object":"chat.completion.chunk","created":1755137933,"model":"3.5","choices":[{"index":2,"delta":{"content":"7"},"finish_reason":null}]}`},
		{"a fraction of a second", `{"created":1755137933.75}`, strings.Replace(head, `"created":0`, `"created":1755137933`, 1) + `"choices":[]}`},
		{"no time at all", `{"created":1e300}`, head + `"choices":[]}`},
		{"usage", `{"choices":[],"usage":{"prompt_tokens":12.0,"completion_tokens":"3","total_tokens":null,"prompt_tokens_details":{"cached_tokens":4}}}`,
			head + `"choices":[],"usage":{"prompt_tokens":12,"completion_tokens":3,"total_tokens":15,"prompt_tokens_details":{"cached_tokens":4}}}`},
		{"usage of zeros", `{"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}}`, head + `"choices":[]}`},
		{"usage below zero", `{"choices":[],"usage":{"prompt_tokens":-1,"completion_tokens":-1,"total_tokens":-1}}`, head + `"choices":[]}`},
		{"tool calls", `{"choices":[{"delta":{"tool_calls":[{"index":2,"id":"call_1","type":"function","function":{"name":"f","arguments":"{","z":1},"w":true},{"function":{"arguments":null}},null]}}]}`,
			head + choice + `{"tool_calls":[{"index":2,"id":"call_1","type":"function","function":{"name":"f","arguments":"{","z":1},"w":true},{"index":1}]},"finish_reason":null}]}`},
		{"arguments that are no text", `{"choices":[{"delta":{"tool_calls":[{"id":"a","type":null,"function":{"name":"f","arguments":{"a": 1}}}]}}]}`,
			head + choice + `{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"a\": 1}"}}]},"finish_reason":null}]}`},
		{"content in parts", `{"choices":[{"delta":{"content":[{"type":"thinking","thinking":[]},{"type":"text","text":"a"},null,{"type":"text","text":"b"}]}}]}`,
			head + choice + `{"content":"ab","content_parts":[{"type":"thinking","thinking":[]}]},"finish_reason":null}]}`},
		{"a whole reply", `{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"Hi","reasoning_content":"so","refusal":null,"annotations":[],"tool_calls":[{"index":9,"id":"a","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"b","type":"x","x":1}]},"logprobs":null,"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":1}}`,
			head + choice + `{"reasoning_content":"so","content":"Hi","tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":"{}"}},{"index":1,"id":"b","type":"x","x":1}],"annotations":[]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":1,"completion_tokens":0,"total_tokens":1}}`},
		{"bytes that are not UTF-8", "{\"choices\":[{\"delta\":{\"content\":\"a\xffb\"}}]}", head + choice + "{\"content\":\"a\ufffdb\"},\"finish_reason\":null}]}"},
	} {
		t.Run(c.name, func(t *testing.T) { assert.Equal(t, c.want, decodeOne(t, c.in)) })
	}
}

// What is no int counts as none, rather than as another.
func TestDecodeInt(t *testing.T) {
	n := int64(maxInteger - 1)
	large := int(n)
	if int64(large) != n {
		large = 0
	}
	for in, want := range map[string]int{"2147483647": math.MaxInt32, "-2147483648": math.MinInt32, "9007199254740991": large, "9007199254740993": 0, "1e300": 0} {
		var d decoder
		c, err := d.chunk([]byte(`{"usage":{"prompt_tokens":` + in + `,"total_tokens":1}}`))
		require.NoError(t, err)
		assert.Equal(t, want, c.Usage.PromptTokens, in)
	}
}

func TestDecodeChunkRefuses(t *testing.T) {
	for _, text := range []string{
		``, `{`, `[]`, `"a"`, `null`, `{"choices":[{"delta":{"content":"a`, `{"id":"a"}{"id":"b"}`, `{"id":"a","id":"b"}`, `data: {}`, "\x00",
		`{"choices":[{"delta":{"content":"a","content":"b"}}]}`, strings.Repeat(`{"a":`, 10_000),
	} {
		var d decoder
		_, err := d.chunk([]byte(text))
		assert.Error(t, err, "%.40q", text)
	}
}

func TestDecodeProblem(t *testing.T) {
	for in, want := range map[string]string{
		`{"error":{"message":"m"}}`:                       `{"message":"m"}`,
		`{"id":"a","choices":[],"error":"text"}`:          `"text"`,
		`{"object":"error","message":"m","code":400}`:     `{"object":"error","message":"m","code":400}`,
		`{"error":null,"object":"chat.completion.chunk"}`: ``,
		`{"error":"","choices":[]}`:                       ``,
		`{"error":false,"choices":[]}`:                    ``,
		`{"error":0,"choices":[]}`:                        ``,
		`{"error":{}}`:                                    `{}`,
	} {
		var d decoder
		_, err := d.chunk([]byte(in))
		require.NoError(t, err)
		assert.Equal(t, want, string(d.problem))
	}
}

// Chunks do not share what they are decoded from, nor the decoder's memory.
func TestDecodeCopies(t *testing.T) {
	var d decoder
	var chunks []*llmhttp.ChatChunk
	for _, text := range []string{"alpha", "bravo", "charlie"} {
		data := []byte(`{"id":"` + text + `","choices":[{"delta":{"content":"` + text + `","x":"` + text + `","content_parts":1}}]}`)
		c, err := d.chunk(data)
		require.NoError(t, err)
		clear(data)
		chunks = append(chunks, c)
	}
	for i, text := range []string{"alpha", "bravo", "charlie"} {
		assert.Equal(t, text, chunks[i].ID)
		delta := chunks[i].Choices[0].Delta
		assert.Equal(t, text, delta.Content)
		assert.Equal(t, `"`+text+`"`, string(delta.Extra["x"]))
	}
}

// chunksOf returns chunks that add texts to a member of the given choice.
func chunkOf(choice, member, text string, end bool) string {
	finish := "null"
	if end {
		finish = `"stop"`
	}
	delta := `{"` + member + `":"` + text + `"}`
	if member == "arguments" {
		delta = `{"tool_calls":[{"index":3,"function":` + delta + `}]}`
	}
	return `{"choices":[{"index":` + choice + `,"delta":` + delta + `,"finish_reason":` + finish + `}]}`
}

func TestHalvesOfCharacters(t *testing.T) {
	for _, c := range []struct {
		name   string
		pieces []string
		want   string
	}{
		{"whole", []string{`a\ud83d\ude42b`}, "a\U0001f642b"},
		{"cut", []string{`a\ud83d`, `\ude42b`}, "a\U0001f642b"},
		{"cut, in capitals", []string{`a\uD83D`, `\uDE42b`}, "a\U0001f642b"},
		{"cut twice", []string{`\ud83d`, `\ude42\ud83d`, `\ude43`}, "\U0001f642\U0001f643"},
		{"cut, and more", []string{`\ud83d`, `\ude42`, `b`, `c\ud83d`, `\ude43`, ``}, "\U0001f642bc\U0001f643"},
		{"empty between", []string{`\ud83d`, ``, `\ude42`}, "\U0001f642"},
		{"no second", []string{`\ud83d`, `b`}, "\ufffdb"},
		{"no second at the end", []string{`a\ud83d`, ``}, "a\ufffd"},
		{"no second in a text", []string{`a\ud83db`}, "a\ufffdb"},
		{"two firsts", []string{`\ud83d`, `\ud83d`, `\ude42`}, "\ufffd\U0001f642"},
		{"no first", []string{`a`, `\ude42b`}, "a\ufffdb"},
		{"escaped backslash", []string{`\\ud83d`, `\\ude42`}, `\ud83d\ude42`},
		{"with a private character", []string{"\U0010f83d" + `\ud83d`, `\ude42`}, "\U0010f83d\ufffd\ufffd"},
		{"a private character alone", []string{"\U0010f83d", `\udbfe\udc3d`}, "\U0010f83d\U0010f83d"},
	} {
		for _, member := range []string{"content", "reasoning_content", "reasoning", "arguments"} {
			t.Run(c.name+"/"+member, func(t *testing.T) {
				var d decoder
				var got [2]string
				for i, piece := range c.pieces {
					for k, choice := range []string{"0", "1"} { // in turns
						chunk, err := d.chunk([]byte(chunkOf(choice, member, piece, i == len(c.pieces)-1)))
						require.NoError(t, err)
						delta := chunk.Choices[0].Delta
						got[k] += delta.Content + delta.Reasoning
						if len(delta.ToolCalls) > 0 {
							got[k] += delta.ToolCalls[0].Function.Arguments
						}
						if raw := delta.Extra["reasoning"]; raw != nil {
							var s string
							require.NoError(t, json.Unmarshal(raw, &s))
							got[k] += s
						}
					}
				}
				assert.Equal(t, c.want, got[0])
				assert.Equal(t, c.want, got[1])
			})
		}
	}
}

// A server that never sends the second halves does not make the mender grow.
func TestHalvesAreBounded(t *testing.T) {
	var d decoder
	for i := range 3 * maxHeld {
		_, err := d.chunk(fmt.Appendf(nil, `{"choices":[{"delta":{"x%d":"\ud83d"}}]}`, i))
		require.NoError(t, err)
	}
	assert.Len(t, d.mender.held, maxHeld)
}

// Halves elsewhere than in texts become U+FFFD.
func TestHalvesElsewhere(t *testing.T) {
	got := decodeOne(t, `{"x":"\ud83d","choices":[{"delta":{"x":{"a":"\ude42"}},"y":["\ud83d"]}]}`)
	assert.Contains(t, got, "\"x\":\"\ufffd\"")
	assert.Contains(t, got, "{\"a\":\"\ufffd\"}")
	assert.Contains(t, got, "[\"\ufffd\"]")
}

// Whatever a server sends, what is decoded can be encoded.
func FuzzDecodeChunk(f *testing.F) {
	for _, s := range []string{
		benchChunk, benchVendorChunk, benchReply, `{"choices":[{"delta":{"content":"\ud83d"}}]}`, "{\"x\":\"\xff\"}",
		`{"choices":[{"message":{"content":[{"type":"text","text":"a"},{"type":"b","c":1}]}}]}`, `{"error":"a"}`, `{"created":"1e3"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var d decoder
		before := string(data)
		c, err := d.chunk(data)
		if string(data) != before {
			t.Fatal("the data was changed")
		}
		if err != nil {
			return
		}
		out, err := c.MarshalJSON()
		if err != nil {
			t.Fatalf("%q cannot be encoded: %v", data, err)
		}
		again, err := new(decoder).chunk(out)
		if err != nil {
			t.Fatalf("%q was encoded as %q: %v", data, out, err)
		}
		twice, err := again.MarshalJSON()
		if err != nil || string(twice) != string(out) {
			t.Fatalf("%q was encoded as\n%q and then as\n%q, %v", data, out, twice, err)
		}
	})
}
