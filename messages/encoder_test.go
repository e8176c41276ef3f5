package messages_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
)

func TestReplies(t *testing.T) {
	const (
		text  = `{"delta":{"content":"Hi"}}`
		call1 = `{"delta":{"tool_calls":[{"index":0,"id":"c1","function":{"name":"f","arguments":""}}]}}`
		call2 = `{"delta":{"tool_calls":[{"index":1,"id":"c2","function":{"name":"g","arguments":""}}]}}`
	)
	arguments := func(index int, text string) string {
		return fmt.Sprintf(`{"delta":{"tool_calls":[{"index":%d,"function":{"arguments":%q}}]}}`, index, text)
	}
	reasoning := func(text string) string { return fmt.Sprintf(`{"delta":{"reasoning_content":%q}}`, text) }
	cite := func(host string) string {
		return fmt.Sprintf(`{"delta":{"annotations":[{"type":"url_citation","url_citation":{"url":"https://%s","title":"Title","content":"From the page.","start_index":0,"end_index":2}}]}}`, host)
	}
	detail := func(typ, members string) string {
		return fmt.Sprintf(`{"delta":{"reasoning_details":[{"type":"reasoning.%s",%s}]}}`, typ, members)
	}
	finish := func(reason string) string { return fmt.Sprintf(`{"delta":{},"finish_reason":%q}`, reason) }
	stop, length, signature := finish("stop"), finish("length"), detail("text", `"signature":"s"`)
	malformed := "The model called a tool without its name, or added arguments to a call that had ended."
	// invalid returns the input of a call whose arguments are not a JSON object.
	invalid := func(arguments string) string {
		quoted, _ := json.Marshal(arguments)
		return `{"INVALID_JSON":` + string(quoted) + `}`
	}
	// want is what message.describe returns: a block of text as text(Hi), thinking and its
	// signature as thinking(Hm|s), redacted thinking as redacted(data), a call with the ID c1 of
	// the function f as c1:f{}, and then the stop_reason.
	for name, test := range map[string]struct {
		chunks string
		want   string
	}{
		"nothing":                {`{"choices":[]}`, "end_turn"},
		"text":                   {text + text, "text(HiHi) end_turn"},
		"stop sequence":          {text + `{"delta":{},"finish_reason":"stop","stop_reason":"END"}`, "text(Hi) stop_sequence END"},
		"length":                 {text + length, "text(Hi) max_tokens"},
		"content filter":         {text + finish("content_filter"), "text(Hi) refusal"},
		"refusal":                {`{"delta":{"refusal":"No."}}` + stop, "text(No.) refusal"},
		"unknown finish reason":  {text + finish("bored"), "text(Hi) end_turn"},
		"tool_calls without any": {text + finish("tool_calls"), "text(Hi) end_turn"},

		"call":                   {call1 + arguments(0, `{"a":`) + arguments(0, `1}`) + stop, `c1:f{"a":1} tool_use`},
		"call without arguments": {call1 + stop, `c1:f{} tool_use`},
		"null arguments":         {call1 + arguments(0, ` null `) + stop, `c1:f{} tool_use`},
		"space around arguments": {call1 + arguments(0, ` {"a":1} `) + call2 + arguments(0, "\n") + stop, `c1:f{"a":1} c2:g{} tool_use`},
		"text, call, text":       {text + call1 + arguments(0, `{}`) + text, `text(Hi) c1:f{} text(Hi) tool_use`},
		"parallel calls":         {call1 + arguments(0, `{"a":1}`) + call2 + arguments(1, `{"b":2}`), `c1:f{"a":1} c2:g{"b":2} tool_use`},
		"interleaved calls": {
			call1 + call2 + arguments(1, `{"b`) + arguments(0, `{"a"`) + arguments(1, `":2}`) + arguments(0, `:1}`),
			`c1:f{"a":1} c2:g{"b":2} tool_use`,
		},
		"text within a call": {call1 + arguments(0, `{"a"`) + text + arguments(0, `:1}`) + text, `c1:f{"a":1} text(HiHi) tool_use`},
		"thinking within a call": {
			call1 + arguments(0, `{"a"`) + reasoning("Hm") + signature + text + arguments(0, `:1}`),
			`c1:f{"a":1} thinking(Hm|s) text(Hi) tool_use`,
		},
		"redacted thinking within": {
			call1 + arguments(0, `{"a"`) + detail("encrypted", `"data":"d"`) + arguments(0, `:1}`),
			`c1:f{"a":1} redacted(d) tool_use`,
		},
		"too many blocks within a call": {
			call1 + arguments(0, `{"a`) + strings.Repeat(text+reasoning("Hm"), 2049) + arguments(0, `":1}`),
			"The reply of the model has too many content blocks.",
		},
		"braces in strings":    {call1 + arguments(0, `{"a":"}\"{"`) + text + arguments(0, `}`), `c1:f{"a":"}\"{"} text(Hi) tool_use`},
		"cut arguments":        {call1 + arguments(0, `{"a":"b`) + length, `c1:f` + invalid(`{"a":"b`) + ` max_tokens`},
		"cut by a filter":      {call1 + arguments(0, `{"a":"b`) + finish("content_filter"), `c1:f` + invalid(`{"a":"b`) + ` refusal`},
		"cut before arguments": {call1 + length, `c1:f{} max_tokens`},
		"cut after arguments":  {call1 + arguments(0, `{"a":1}`) + length, `c1:f{"a":1} max_tokens`},
		"cut in null":          {call1 + arguments(0, ` n`) + arguments(0, `ul`) + length, `c1:f` + invalid(` nul`) + ` max_tokens`},
		"cut in an escape":     {call1 + arguments(0, `{"a":"b\`) + length, `c1:f` + invalid(`{"a":"b\`) + ` max_tokens`},
		"cut in a code point":  {call1 + arguments(0, `{"a":"\ud83d\ude`) + length, `c1:f` + invalid(`{"a":"\ud83d\ude`) + ` max_tokens`},
		"cut calls": {
			call1 + call2 + arguments(0, `{"a`) + arguments(1, `{"b":[1,`) + length,
			`c1:f` + invalid(`{"a`) + ` c2:g` + invalid(`{"b":[1,`) + ` max_tokens`,
		},
		"a call before a cut one": {
			call1 + arguments(0, `{"a":1}`) + call2 + arguments(1, `{"b":`) + length,
			`c1:f{"a":1} c2:g` + invalid(`{"b":`) + ` max_tokens`,
		},
		"incomplete arguments":           {call1 + arguments(0, `{"a":"b`) + stop, `c1:f` + invalid(`{"a":"b`) + ` tool_use`},
		"arguments that are an array":    {call1 + arguments(0, `[1]`) + stop, `c1:f` + invalid(`[1]`) + ` tool_use`},
		"arguments that are text":        {call1 + arguments(0, `not`) + text + arguments(0, ` JSON`) + stop, `c1:f` + invalid(`not JSON`) + ` text(Hi) tool_use`},
		"arguments that are no JSON":     {call1 + arguments(0, `{"a" 1}`) + text + stop, `c1:f` + invalid(`{"a" 1}`) + ` text(Hi) tool_use`},
		"cut arguments that are no JSON": {call1 + arguments(0, `{a`) + length, `c1:f` + invalid(`{a`) + ` max_tokens`},
		"two objects":                    {call1 + arguments(0, `{}`) + arguments(0, `{}`) + stop, `c1:f` + invalid(`{}{}`) + ` tool_use`},
		"late arguments":                 {call1 + arguments(0, `{}`) + text + arguments(0, `{}`) + stop, malformed},
		"late arguments of a call that waits": {
			call1 + arguments(0, `{`) + call2 + arguments(1, `{}`) + text + arguments(1, `{}`) + stop, malformed,
		},
		"call without a name": {`{"delta":{"tool_calls":[{"index":0,"id":"c1"}]}}` + stop, malformed},
		"call of another tool": {
			`{"delta":{"tool_calls":[{"index":0,"id":"x","type":"custom","custom":{"name":"x","input":"y"}}]}}` + `{"delta":{"tool_calls":[{"index":0,` +
				`"custom":{"input":"z"}}]}}` + call2 + stop,
			`c2:g{} tool_use`,
		},

		"citations": {
			text + cite("a") + cite("b") + text, "text(Hi|https://a Title From the page.|https://b Title From the page.) text(Hi) end_turn",
		},
		"citation with its text":        {`{"delta":{"content":"Hi","annotations":[{"type":"url_citation","url":"https://a"}]}}`, "text(Hi|https://a  ) end_turn"},
		"citation within a call":        {call1 + arguments(0, `{"a"`) + text + cite("a") + arguments(0, `:1}`) + text, `c1:f{"a":1} text(Hi|https://a Title From the page.) text(Hi) tool_use`},
		"citation of what has ended":    {text + call1 + cite("a") + stop, "text(Hi) c1:f{} tool_use"},
		"citation of nothing":           {cite("a") + text, "text(Hi) end_turn"},
		"citation of a refusal":         {`{"delta":{"refusal":"No."}}` + cite("a") + stop, "text(No.|https://a Title From the page.) refusal"},
		"annotations that are no pages": {`{"delta":{"content":"Hi","annotations":[{"type":"file_citation","file_id":"f"}]}}`, "text(Hi) end_turn"},

		"thinking":  {reasoning("Hm") + reasoning(".") + text, "thinking(Hm.|) text(Hi) end_turn"},
		"signature": {reasoning("Hm") + signature + text, "thinking(Hm|s) text(Hi) end_turn"},
		"signature with its text": {
			`{"delta":{"reasoning_content":"Hm","reasoning_details":[{"type":"reasoning.text","signature":"s"}],"content":"Hi"}}`,
			"thinking(Hm|s) text(Hi) end_turn",
		},
		"text in details": {detail("text", `"text":"H"`) + detail("text", `"text":"m"`) + signature + text, "thinking(Hm|s) text(Hi) end_turn"},
		"text twice": {
			`{"delta":{"reasoning_content":"Hm","reasoning_details":[{"type":"reasoning.text","text":"Hm"}]}}` + signature,
			"thinking(Hm|s) end_turn",
		},
		"text again at the end": {reasoning("H") + reasoning("m") + detail("text", `"text":"Hm","signature":"s"`), "thinking(Hm|s) end_turn"},
		"text of details first": {detail("text", `"text":"Hm"`) + reasoning("Hm."), "thinking(Hm.|) end_turn"},
		"two thoughts": {
			detail("text", `"text":"A","signature":"1"`) + detail("text", `"text":"B","signature":"2"`) + text,
			"thinking(A|1) thinking(B|2) text(Hi) end_turn",
		},
		"thoughts of two indices":      {detail("text", `"text":"A","index":0`) + detail("text", `"text":"B","index":1`), "thinking(A|) thinking(B|) end_turn"},
		"summary":                      {detail("summary", `"summary":"Sum"`) + text, "thinking(Sum|) text(Hi) end_turn"},
		"signature of nothing":         {signature + text, "thinking(|s) text(Hi) end_turn"},
		"redacted":                     {detail("encrypted", `"data":"d"`) + text, "redacted(d) text(Hi) end_turn"},
		"thinking between calls":       {call1 + arguments(0, `{}`) + reasoning("Hm") + call2 + arguments(1, `{}`), `c1:f{} thinking(Hm|) c2:g{} tool_use`},
		"line separators":              {`{"delta":{"content":"a\u2028b\u2029c\u0085d"}}`, "text(a\u2028b\u2029c\u0085d) end_turn"},
		"members of other APIs":        {`{"delta":{"content":"Hi","annotations":[{}]},"logprobs":{}}`, "text(Hi) end_turn"},
		"choices nobody has asked for": {text + `{"index":1,"delta":{"content":"x"}}`, "text(Hi) end_turn"},
	} {
		t.Run(name, func(t *testing.T) {
			chunks := func() (list []*llm.ChatChunk) {
				d := json.NewDecoder(strings.NewReader(test.chunks))
				for d.More() {
					var raw json.RawMessage
					require.NoError(t, d.Decode(&raw))
					list = append(list, chunk(t, string(raw)))
				}
				return list
			}
			whole, streamed, failure := sendBoth(t, chunks)
			if failure != "" {
				assert.Equal(t, test.want, failure)
				return
			}
			assert.Equal(t, test.want, whole.describe())
			assert.Equal(t, whole.describe(), streamed.describe())
		})
	}
}

// What an agent tells of its work has a block of its own, so that the signatures of the model's thinking stay valid.
func TestReplies_Progress(t *testing.T) {
	progress := &llm.ChatChunk{Choices: []llm.ChunkChoice{{Delta: llm.Delta{Reasoning: "Looking", Progress: true}}}}
	text := chunk(t, `{"delta":{"reasoning_content":"B"}}`)
	both := chunk(t, `{"delta":{"reasoning_content":"B","reasoning_details":[{"type":"reasoning.text","text":"B"}]}}`)
	details := chunk(t, `{"delta":{"reasoning_details":[{"type":"reasoning.text","text":"B","signature":"s"}]}}`)
	signature := chunk(t, `{"delta":{"reasoning_details":[{"type":"reasoning.text","signature":"s"}]}}`)
	const own, signed, omitted = "thinking Looking ", "thinking B s", "thinking  s"
	for name, test := range map[string]struct {
		chunks []*llm.ChatChunk
		want   []string
	}{
		"before a text and its details": {[]*llm.ChatChunk{progress, text, details}, []string{own, signed}},
		"before details":                {[]*llm.ChatChunk{progress, details}, []string{own, signed}},
		"before both":                   {[]*llm.ChatChunk{progress, both, signature}, []string{own, signed}},
		"before thinking without text":  {[]*llm.ChatChunk{progress, signature}, []string{own, omitted}},
		"after thinking":                {[]*llm.ChatChunk{text, details, progress}, []string{signed, own}},
		"between":                       {[]*llm.ChatChunk{both, signature, progress, progress, text, details}, []string{signed, "thinking LookingLooking ", signed}},
	} {
		t.Run(name, func(t *testing.T) {
			whole, streamed, failure := sendBoth(t, func() []*llm.ChatChunk { return append(slices.Clone(test.chunks), llm.TextChunk("Hi")) })
			require.Empty(t, failure)
			for _, m := range []*message{whole, streamed} {
				var blocks []string
				for _, b := range m.Content[:len(m.Content)-1] {
					blocks = append(blocks, b.Type+" "+*b.Thinking+" "+*b.Signature)
				}
				assert.Equal(t, test.want, blocks)
			}
		})
	}
}

// A stream drops a signature that arrives after its thinking block has ended. A whole
// reply has it.
func TestReplies_LateSignature(t *testing.T) {
	whole, streamed, _ := sendBoth(t, func() []*llm.ChatChunk {
		return []*llm.ChatChunk{chunk(t, `{"delta":{"reasoning_content":"Hm"}}`), chunk(t, `{"delta":{"content":"Hi"}}`),
			chunk(t, `{"delta":{"reasoning_details":[{"type":"reasoning.text","text":"Hm","signature":"s"}]}}`)}
	})
	assert.Equal(t, "thinking(Hm|s) text(Hi) end_turn", whole.describe())
	assert.Equal(t, "thinking(Hm|) text(Hi) end_turn", streamed.describe())
}

// Reasoning details with members for which this API has no field are the same in the
// next request, when the client has returned the content.
func TestReplies_ReasoningDetailsRoundTrip(t *testing.T) {
	details := `[{"type":"reasoning.text","text":"Hm","signature":"s","format":"anthropic-claude-v1","index":0},` +
		`{"type":"reasoning.encrypted","data":"d","id":"rs_1","format":"openai-responses-v1","index":1},` +
		`{"type":"reasoning.text","text":"So.","signature":"llmhttp.not sealed"},{"type":"reasoning.encrypted","data":"plain"}]`
	whole, streamed, _ := sendBoth(t, func() []*llm.ChatChunk {
		return []*llm.ChatChunk{chunk(t, `{"delta":{"reasoning_details":`+details+`}}`)}
	})
	for _, m := range []*message{whole, streamed} {
		content, err := json.Marshal(m.Content)
		require.NoError(t, err)
		s := newServer(nil, nil)
		w := s.do("POST", messagesPath, requestBody(`,"messages":[{"role":"assistant","content":`+string(content)+`}]`))
		require.Equal(t, 200, w.Code, w.Body)
		got, err := json.Marshal(s.last.Messages[0].ReasoningDetails)
		require.NoError(t, err)
		assert.JSONEq(t, details, string(got))
		assert.Equal(t, "HmSo.", s.last.Messages[0].Reasoning)
	}
}

func TestReplies_Usage(t *testing.T) {
	t.Run("lifetimes unknown", func(t *testing.T) { testReplyUsage(t, nil, nil) })
	t.Run("an hour", func(t *testing.T) {
		testReplyUsage(t, llm.CacheWrites{time.Hour: 20}, map[string]int{"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 20})
	})
	t.Run("others", func(t *testing.T) {
		testReplyUsage(t, llm.CacheWrites{5 * time.Minute: 1, 30 * time.Minute: 2, time.Hour: 3, 12 * time.Hour: 4}, map[string]int{
			"ephemeral_5m_input_tokens": 1, "ephemeral_30m_input_tokens": 2, "ephemeral_1h_input_tokens": 3, "ephemeral_12h_input_tokens": 4,
		})
	})
}

func testReplyUsage(t *testing.T, writes llm.CacheWrites, want map[string]int) {
	whole, streamed, _ := sendBoth(t, func() []*llm.ChatChunk {
		u := &llm.Usage{PromptTokens: 100, CompletionTokens: 20}
		u.PromptTokensDetails.CachedTokens, u.PromptTokensDetails.CacheWriteTokens = 60, 30
		u.PromptTokensDetails.CacheWrites = writes
		u.CompletionTokensDetails.ReasoningTokens = 5
		early := &llm.ChatChunk{Usage: &llm.Usage{PromptTokens: 100, CompletionTokens: 1}}
		return []*llm.ChatChunk{early, llm.TextChunk("Hi"), chunk(t, `{"delta":{},"finish_reason":"stop"}`), {Usage: u}}
	})
	for _, m := range []*message{whole, streamed} {
		u := m.Usage
		assert.Equal(t, []int{10, 30, 60, 20, 5}, []int{*u.InputTokens, *u.CacheCreation, *u.CacheRead, *u.OutputTokens, *u.OutputDetails.ThinkingTokens})
		assert.Equal(t, want, u.CacheWrites)
	}
}

// FuzzReplies yields random chunks, valid and invalid. It reads the replies as a strict
// client does and compares them with the result of Collect.
func FuzzReplies(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		list := func() []*llm.ChatChunk { return randomChunks(rand.New(rand.NewPCG(seed, 1))) }
		whole, streamed, failure := sendBoth(t, list)
		if failure != "" {
			return
		}
		require.Equal(t, whole.response().Choices[0].Message.Content, streamed.response().Choices[0].Message.Content)
		want, err := join.Collect(func(yield func(*llm.ChatChunk, error) bool) {
			for _, c := range list() {
				if !yield(c, nil) {
					return
				}
			}
		})
		require.NoError(t, err)
		if len(want.Choices) == 0 || want.Choices[0].Index != 0 {
			return
		}
		require.Equal(t, want.Choices[0].Message.Content.Text()+want.Choices[0].Message.Refusal, textInOrder(whole, want))
		require.Equal(t, len(want.Choices[0].Message.ToolCalls), countBlocks(whole, "tool_use"))
		require.Equal(t, countBlocks(whole, "tool_use"), countBlocks(streamed, "tool_use"))
		require.Equal(t, countBlocks(whole, "redacted_thinking"), countBlocks(streamed, "redacted_thinking"))
	})
}

// textInOrder returns the text of m, with the refusal of collected at the end. Collect
// does not tell where in the text the refusal was, so only the length is compared.
func textInOrder(m *message, collected *llm.ChatResponse) string {
	text := m.response().Choices[0].Message.Content.Text()
	message := collected.Choices[0].Message
	if want := message.Content.Text() + message.Refusal; message.Refusal != "" && len(text) == len(want) {
		return want
	}
	return text
}

// randomChunks returns chunks of random content in random order.
func randomChunks(random *rand.Rand) []*llm.ChatChunk {
	pick := func(list ...string) string { return list[random.IntN(len(list))] }
	text := func() string {
		return pick("", "a", "Hello ", "é", "\xf0\x9f\x99", "\x82", "東", "\n", `"`, "\\", "\u2028", "\xff")
	}
	piece := func() string {
		return pick(`{`, `}`, `"a"`, `:`, `1`, `{"a":1}`, `[`, `]`, `{"b":"}`, `"}`, `\`, ` `, `null`, `x`, ``, `{}`)
	}
	var chunks []*llm.ChatChunk
	for range random.IntN(16) {
		c := &llm.ChatChunk{Choices: []llm.ChunkChoice{{Index: random.IntN(20) / 19}}}
		choice := &c.Choices[0]
		d := &choice.Delta
		for range 1 + random.IntN(2) {
			switch random.IntN(9) {
			case 0, 1:
				d.Content = text()
			case 2:
				d.Reasoning = text()
			case 3:
				d.ReasoningDetails = append(d.ReasoningDetails, llm.ReasoningDetail{
					Type: pick(llm.ReasoningText, llm.ReasoningEncrypted, llm.ReasoningSummary),
					Text: pick("", "a", "Hello "), Signature: pick("", "s"), Data: "d",
				})
			case 4, 5:
				d.ToolCalls = append(d.ToolCalls, llm.ToolCallDelta{Index: random.IntN(3), ID: pick("", "", "c1", "c2", "c3"),
					Function: llm.FunctionCall{Name: pick("", "f", "g"), Arguments: pick(`{}`, `{"a":1}`, piece(), piece())}})
			case 6:
				d.Refusal = pick("", "", "No.")
			case 7:
				if random.IntN(4) == 0 {
					choice.FinishReason = llm.FinishReason(pick("stop", "length", "tool_calls", "content_filter", "other"))
					choice.StopSequence = pick("", "END")
				}
			case 8:
				c.Usage = &llm.Usage{PromptTokens: random.IntN(50), CompletionTokens: random.IntN(50)}
			}
		}
		chunks = append(chunks, c)
	}
	return chunks
}

// A call that was cut, or whose arguments are malformed, is logged once for a reply, without
// its arguments.
func TestReplies_InvalidArgumentsAreLogged(t *testing.T) {
	for finish, want := range map[string]string{
		"length":     "a tool call was cut",
		"tool_calls": "the arguments of a tool call are not a JSON object",
	} {
		for _, stream := range []string{"", `,"stream":true`} {
			t.Run(finish+stream, func(t *testing.T) {
				var log strings.Builder
				chunks := []string{
					`{"delta":{"tool_calls":[{"index":0,"id":"c1","function":{"name":"f","arguments":"{\"secret"}}]}}`,
					`{"delta":{"tool_calls":[{"index":1,"id":"c2","function":{"name":"f","arguments":"{\"secret"}}]},"finish_reason":"` + finish + `"}`,
				}
				s := newServer(func() llm.ChatStream {
					return func(yield func(*llm.ChatChunk, error) bool) {
						for _, c := range chunks {
							yield(chunk(t, c), nil)
						}
					}
				}, func(o *llmhttp.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
				w := s.do("POST", messagesPath, requestBody(hi+stream))
				assert.Equal(t, 200, w.Code)
				assert.Equal(t, 1, strings.Count(log.String(), "level=WARN"), "%s", &log)
				assert.Contains(t, log.String(), want)
				assert.Contains(t, log.String(), w.Header().Get("Request-Id"))
				assert.NotContains(t, log.String(), "secret")
			})
		}
	}
}

// The arguments of a call reach the client as far as the model wrote them, wherever the token
// limit cuts them, in whole replies as text. Cut characters become U+FFFD.
func FuzzReplies_CutArguments(f *testing.F) {
	for _, seed := range []string{
		`{"a":"b\"c\\d\u00e9\ud83d\ude42","e":[1,-2.5e+10,true,false,null,{}],"f":{"g":[[]],"h":""}}`,
		` { "a" : 1 , "b" : [ 1 , 2 ] } `, `{}`, `{"é東":"🦊"}`, `null`, ` n`, `[1]`, `{"a" 1}`, `x`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, document string) {
		if len(document) > 300 || !utf8.ValidString(document) || strings.Contains(document, invalidJSON) {
			return
		}
		for end := range len(document) + 1 {
			want := strings.ToValidUTF8(document[:end], "\uFFFD")
			whole, streamed, failure := sendBoth(t, func() []*llm.ChatChunk {
				c := llm.TextChunk("")
				c.Choices[0].Delta.ToolCalls = []llm.ToolCallDelta{{ID: "c", Function: llm.FunctionCall{Name: "f", Arguments: document[:end]}}}
				c.Choices[0].FinishReason = llm.FinishLength
				return []*llm.ChatChunk{c}
			})
			require.Empty(t, failure, "%q", want)
			require.Equal(t, "max_tokens", *whole.StopReason)
			got := argumentsOf(whole.Content[0].Input)
			require.Equal(t, got, argumentsOf(streamed.Content[0].Input))
			if trimmed := strings.Trim(want, " \t\r\n"); trimmed == "" || trimmed == "null" {
				require.Equal(t, "{}", got)
			} else if json.Valid([]byte(trimmed)) && trimmed[0] == '{' {
				require.Equal(t, trimmed, got)
			} else {
				require.Equal(t, want, got)
			}
		}
	})
}
