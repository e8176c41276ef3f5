package llm_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/internal/codectest"
	"github.com/llmhttp/llmhttp/llm"
)

// jsonSuite has the types that encode and decode themselves.
var jsonSuite = codectest.Suite{
	Types: map[string]func() any{
		"ChatRequest":       func() any { return new(llm.ChatRequest) },
		"Message":           func() any { return new(llm.Message) },
		"Content":           func() any { return new(llm.Content) },
		"Part":              func() any { return new(llm.Part) },
		"ImageURL":          func() any { return new(llm.ImageURL) },
		"Tool":              func() any { return new(llm.Tool) },
		"Function":          func() any { return new(llm.Function) },
		"ToolCall":          func() any { return new(llm.ToolCall) },
		"FunctionCall":      func() any { return new(llm.FunctionCall) },
		"StreamOptions":     func() any { return new(llm.StreamOptions) },
		"ResponseFormat":    func() any { return new(llm.ResponseFormat) },
		"JSONSchema":        func() any { return new(llm.JSONSchema) },
		"ToolChoice":        func() any { return new(llm.ToolChoice) },
		"NamedTool":         func() any { return new(llm.NamedTool) },
		"AllowedTools":      func() any { return new(llm.AllowedTools) },
		"AllowedTool":       func() any { return new(llm.AllowedTool) },
		"StringList":        func() any { return new(llm.StringList) },
		"ChatResponse":      func() any { return new(llm.ChatResponse) },
		"Choice":            func() any { return new(llm.Choice) },
		"ChatChunk":         func() any { return new(llm.ChatChunk) },
		"ChunkChoice":       func() any { return new(llm.ChunkChoice) },
		"Delta":             func() any { return new(llm.Delta) },
		"ToolCallDelta":     func() any { return new(llm.ToolCallDelta) },
		"Usage":             func() any { return new(llm.Usage) },
		"ReasoningDetail":   func() any { return new(llm.ReasoningDetail) },
		"PromptTokens":      func() any { return new(llm.PromptTokensDetails) },
		"CompletionTokens":  func() any { return new(llm.CompletionTokensDetails) },
		"ImageRequest":      func() any { return new(llm.ImageRequest) },
		"ImageResponse":     func() any { return new(llm.ImageResponse) },
		"Image":             func() any { return new(llm.Image) },
		"Model":             func() any { return new(llm.Model) },
		"EmbeddingInput":    func() any { return new(llm.EmbeddingInput) },
		"EmbeddingRequest":  func() any { return new(llm.EmbeddingRequest) },
		"EmbeddingResponse": func() any { return new(llm.EmbeddingResponse) },
	},
	Documents: []codectest.Document{
		{"ChatRequest", `{"model":"m","messages":[{"role":"user","content":"hi"}]}`},
		{"ChatRequest", `{"model":"m","messages":[],"stream":true,"stream_options":{"include_usage":true,"x":1},"temperature":0,"top_p":1,"presence_penalty":-2,"frequency_penalty":0.5,"max_tokens":1,"max_completion_tokens":2,"n":3,"stop":["a","b"],"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{}}},"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"},"strict":true},"x":1}],"tool_choice":"auto","logit_bias":{"50256":-100},"metadata":null,"sampler":7,"user":"u"}`},
		{"ChatRequest", `{"model":"m","messages":[],"stop":"a","tool_choice":{"type":"function","function":{"name":"f"}}}`},
		{"Message", `{"role":"assistant","content":null,"reasoning_content":"r","name":"n","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}","x":1},"x":[2]},{"id":"d","type":"custom","custom":{"name":"g","input":"x"}}],"refusal":"no","annotations":[]}`},
		{"Message", `{"role":"tool","content":"r","tool_call_id":"c"}`},
		{"Message", `{"role":"oracle","content":[]}`},
		{"Content", `null`}, {"Content", `""`}, {"Content", `"a"`}, {"Content", `[]`},
		{"Content", `[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}]`},
		{"Content", `[{"type":"text","text":"a"},{"type":"text","text":""}]`},
		{"Content", `[{"type":"image_url","image_url":{"url":"https://x/y.png","detail":"low","x":1},"y":2}]`},
		{"Content", `[{"type":"input_audio","input_audio":{"data":"AA==","format":"wav"}},{"type":"file","file":{"file_id":"f"}},{"type":"refusal","refusal":"no"},{"type":"brand_new","brand_new":{"a":[1]}}]`},
		{"Part", `{"type":"odd","text":"t","x":1}`},
		{"Part", `{"type":"odd","image_url":"https://x/y.png"}`},
		{"Part", `{"type":"odd","text":{"value":"t","annotations":[]}}`},
		{"Part", `{"type":"odd","text":""}`},
		{"Tool", `{"type":"custom","custom":{"name":"g"},"x":1}`},
		{"Function", `{"name":"f","x":1}`},
		{"ToolCall", `{"id":"c","type":"custom","custom":{"name":"f","input":"x"}}`},
		{"ResponseFormat", `{"type":"grammar","grammar":"x"}`},
		{"ResponseFormat", `{"type":"json_object","schema":{"type":"object"}}`},
		{"JSONSchema", `{"name":"n","description":"d","schema":{"type":"object"},"strict":false,"x":1}`},
		{"JSONSchema", `{"schema":true}`},
		{"ToolChoice", `"none"`}, {"ToolChoice", `"required"`}, {"ToolChoice", `"some"`},
		{"ToolChoice", `{"type":"function","function":{"name":"f","x":1},"y":2}`},
		{"ToolChoice", `{"type":"custom","custom":{"name":"g","x":1},"y":2}`},
		{"ToolChoice", `{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"f"}},{"type":"custom","custom":{"name":"g"}},{"type":"mcp","server_label":"s"}],"x":1},"y":2}`},
		{"ToolChoice", `{"type":"mcp","allowed_tools":["a"],"custom":1,"function":"f","name":"n","server_label":"s"}`},
		{"AllowedTool", `{"type":"image_generation","custom":1,"function":"f"}`},
		{"StreamOptions", `{"include_usage":false,"include_obfuscation":true}`},
		{"StringList", `null`}, {"StringList", `[]`}, {"StringList", `"a"`}, {"StringList", `["a","b"]`}, {"StringList", `""`},
		{"ChatResponse", `{"id":"i","object":"chat.completion","created":7,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"a","refusal":null,"x":1},"finish_reason":"stop","logprobs":{"content":[]},"y":1}],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3,"prompt_tokens_details":{"cached_tokens":1}},"service_tier":"default","system_fingerprint":null}`},
		{"ChatChunk", `{"id":"i","object":"chat.completion.chunk","created":7,"model":"m","choices":[{"index":1,"delta":{"role":"assistant","reasoning_content":"r","content":"a","tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"f","arguments":"","x":1},"y":2},{"index":1,"function":{"arguments":"}"}}],"x":null},"finish_reason":null,"logprobs":{"content":[]},"y":null}],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3},"obfuscation":"x"}`},
		{"ChatChunk", `{"id":"i","object":"chat.completion.chunk","created":7,"model":"m","choices":[]}`},
		{"ImageRequest", `{"model":"m","prompt":"p","n":2,"size":"256x256","quality":"hd","response_format":"url","style":"vivid"}`},
		{"ImageResponse", `{"created":7,"data":[{"url":"u","revised_prompt":"r","x":1},{"b64_json":"AAE="}],"usage":{"input_tokens":5,"output_tokens":2,"total_tokens":7,"input_tokens_details":{"text_tokens":1,"image_tokens":4,"audio_tokens":1,"cached_tokens":2,"x":1},"output_tokens_details":{"image_tokens":2}},"background":"opaque"}`},
		{"Model", `{"id":"m","object":"model","created":7,"owned_by":"o","meta":{"a":1},"parent":null}`},
		{"Model", `{"id":"m","object":"model","created":7,"owned_by":"o","name":"n","context_length":9,"max_output_tokens":8,"capabilities":[],"x":1}`},
		{"EmbeddingRequest", `{"model":"m","input":["a",""],"dimensions":3,"encoding_format":"base64","user":"u"}`},
		{"EmbeddingRequest", `{"model":"m","input":[[1,2],[3]]}`},
		{"EmbeddingResponse", `{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.5,-1]}],"model":"m","usage":{"prompt_tokens":1,"total_tokens":1},"x":1}`},
	},
	NotObjects: []string{"EmbeddingInput"},
	Always:     map[string]string{"ToolCall": "function"}, // unless the type is another one
}

var (
	_ = codectest.MakesConsistent(func(c *llm.ToolChoice) { c.Mode, c.Type, c.Function, c.Custom = "", "allowed_tools", nil, nil })
	_ = codectest.MakesConsistent(func(a *llm.AllowedTool) { a.Type, a.Function = "custom", nil })
	_ = codectest.MakesConsistent(func(d *llm.Delta) { d.Progress = false }) // between Backends and encoders alone
	_ = codectest.MakesConsistent(func(r *llm.ChatResponse) {
		for i := range r.Choices {
			r.Choices[i].Index = i
		}
	})
	_ = codectest.MakesConsistent(func(p *llm.Part) { p.Type, p.ImageURL = llm.PartText, nil })
	_ = codectest.MakesConsistent(func(in *llm.EmbeddingInput) { in.Tokens = nil })
	_ = codectest.MakesConsistent(func(r *llm.EmbeddingResponse) {
		r.Usage.CompletionTokens, r.Usage.CompletionTokensDetails = 0, llm.CompletionTokensDetails{}
	})

	// The usage of images has no details.
	_ = codectest.MakesConsistent(func(r *llm.ImageResponse) {
		r.Usage.PromptTokensDetails, r.Usage.CompletionTokensDetails = llm.PromptTokensDetails{}, llm.CompletionTokensDetails{}
	})
)

func TestJSON(t *testing.T) {
	jsonSuite.Test(t, "CacheWrites") // a form of stores and reports, which no request has: TestCacheWrites_JSON
}

func TestMembers_OtherCaseByType(t *testing.T) {
	assert.Greater(t, jsonSuite.OtherCase(t), 100)
}

// Decoding replaces the whole old value.
func TestJSON_DecodingReplaces(t *testing.T) {
	r := llm.ChatRequest{Model: "old", Messages: []llm.Message{{Role: "user"}}, Extra: llm.Extra{"x": json.RawMessage("1")}, Stop: llm.StringList{"s"}}
	require.NoError(t, json.Unmarshal([]byte(`{"n":2}`), &r))
	assert.Equal(t, llm.ChatRequest{N: new(2)}, r)
	c := llm.TextContent("old")
	require.NoError(t, json.Unmarshal([]byte(`null`), &c))
	assert.Nil(t, c)
	l := llm.StringList{"old"}
	require.NoError(t, json.Unmarshal([]byte(`null`), &l))
	assert.Nil(t, l)
}

// An explicit null sets any member to its zero value.
func TestJSON_ExplicitNulls(t *testing.T) {
	for typ, names := range map[string]string{
		"ChatRequest":      "model messages stream stream_options temperature top_p presence_penalty frequency_penalty max_tokens max_completion_tokens n stop response_format tools tool_choice reasoning_effort parallel_tool_calls",
		"Message":          "role content reasoning_content name tool_calls tool_call_id",
		"Part":             "type",
		"ImageURL":         "url detail",
		"Tool":             "type function",
		"Function":         "name description parameters",
		"ToolCall":         "id type function",
		"FunctionCall":     "name arguments",
		"StreamOptions":    "include_usage",
		"ResponseFormat":   "type json_schema",
		"JSONSchema":       "name description schema strict",
		"ToolChoice":       "type",
		"NamedTool":        "name",
		"AllowedTools":     "mode tools",
		"AllowedTool":      "type",
		"ChatChunk":        "id created model choices usage",
		"ChunkChoice":      "index delta finish_reason",
		"Delta":            "role content reasoning_content tool_calls",
		"ToolCallDelta":    "index id type function",
		"Usage":            "prompt_tokens completion_tokens total_tokens",
		"ImageRequest":     "model prompt n size quality response_format",
		"Image":            "url b64_json revised_prompt",
		"EmbeddingRequest": "model input dimensions encoding_format",
		"ChatResponse":     "id created model choices usage",
		"Choice":           "index message finish_reason logprobs",
		"Model":            "id created owned_by",
	} {
		t.Run(typ, func(t *testing.T) {
			v := jsonSuite.Types[typ]()
			doc := `{"` + strings.ReplaceAll(names, " ", `":null,"`) + `":null}`
			require.NoError(t, json.Unmarshal([]byte(doc), v))
			assert.True(t, reflect.ValueOf(v).Elem().IsZero(), "%+v", v)
		})
	}
}

func encode(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	return string(b)
}

// reencode decodes a document as a T and encodes it again.
func reencode[T any](t testing.TB, doc string) string {
	t.Helper()
	v := new(T)
	require.NoError(t, any(v).(json.Unmarshaler).UnmarshalJSON([]byte(doc)), "%.200s", doc)
	b, err := json.Marshal(v)
	require.NoError(t, err)
	return string(b)
}

func TestJSON_TypedMembers(t *testing.T) {
	strict, parallel := true, false
	for name, test := range map[string]struct {
		doc  string
		want any
	}{
		"request": {
			`{"model":"m","messages":[],"reasoning_effort":"high","tools":[{"type":"function","function":{"name":"f","strict":true}}],"parallel_tool_calls":false}`,
			llm.ChatRequest{Model: "m", Messages: []llm.Message{}, ReasoningEffort: "high", ParallelToolCalls: &parallel,
				Tools: []llm.Tool{{Type: "function", Function: &llm.Function{Name: "f", Strict: &strict}}}},
		},
		"refusal": {
			`{"role":"assistant","content":null,"refusal":"no"}`,
			llm.Message{Role: llm.RoleAssistant, Refusal: "no"},
		},
		"failed tool": {
			`{"role":"tool","content":"x","tool_call_id":"c","is_error":true}`,
			llm.Message{Role: llm.RoleTool, Content: llm.TextContent("x"), ToolCallID: "c", IsError: true},
		},
		"reasoning details": {
			`{"role":"assistant","content":"x","reasoning_details":[{"type":"reasoning.text","text":"t","signature":"s","index":0},{"type":"reasoning.summary","summary":"u"},{"type":"reasoning.encrypted","data":"d","id":"i"}]}`,
			llm.Message{Role: llm.RoleAssistant, Content: llm.TextContent("x"), ReasoningDetails: []llm.ReasoningDetail{
				{Type: llm.ReasoningText, Text: "t", Signature: "s", Extra: llm.Extra{"index": json.RawMessage("0")}},
				{Type: llm.ReasoningSummary, Summary: "u"},
				{Type: llm.ReasoningEncrypted, Data: "d", Extra: llm.Extra{"id": json.RawMessage(`"i"`)}},
			}},
		},
		"delta": {
			`{"reasoning_details":[{"type":"reasoning.text","text":"t"}],"refusal":"no"}`,
			llm.Delta{Refusal: "no", ReasoningDetails: []llm.ReasoningDetail{{Type: llm.ReasoningText, Text: "t"}}},
		},
		"stop sequence": {
			`{"index":0,"delta":{},"finish_reason":"stop","stop_reason":"END"}`,
			llm.ChunkChoice{FinishReason: llm.FinishStop, StopSequence: "END"},
		},
		"stop sequence of a whole reply": {
			`{"index":0,"message":{"role":"assistant","content":"x","refusal":null},"logprobs":null,"finish_reason":"stop","stop_reason":"END"}`,
			llm.Choice{Message: llm.Message{Role: llm.RoleAssistant, Content: llm.TextContent("x")}, FinishReason: llm.FinishStop, StopSequence: "END"},
		},
		"usage": {
			`{"prompt_tokens":9,"completion_tokens":8,"total_tokens":17,"prompt_tokens_details":{"cached_tokens":1,"cache_write_tokens":2,"audio_tokens":3,"video_tokens":4},"completion_tokens_details":{"reasoning_tokens":5,"audio_tokens":6,"accepted_prediction_tokens":0},"cost":1}`,
			llm.Usage{PromptTokens: 9, CompletionTokens: 8, TotalTokens: 17,
				PromptTokensDetails:     llm.PromptTokensDetails{CachedTokens: 1, CacheWriteTokens: 2, AudioTokens: 3, Extra: llm.Extra{"video_tokens": json.RawMessage("4")}},
				CompletionTokensDetails: llm.CompletionTokensDetails{ReasoningTokens: 5, AudioTokens: 6, Extra: llm.Extra{"accepted_prediction_tokens": json.RawMessage("0")}},
				Extra:                   llm.Extra{"cost": json.RawMessage("1")}},
		},
		"no details":        {`{"prompt_tokens":9,"completion_tokens":8,"total_tokens":17}`, llm.Usage{PromptTokens: 9, CompletionTokens: 8, TotalTokens: 17}},
		"texts":             {`["a","b"]`, llm.EmbeddingInput{Texts: []string{"a", "b"}}},
		"one text":          {`"a"`, llm.EmbeddingInput{Texts: []string{"a"}}},
		"no texts":          {`[]`, llm.EmbeddingInput{Texts: []string{}}},
		"tokens":            {`[[1,2],[3]]`, llm.EmbeddingInput{Tokens: [][]int{{1, 2}, {3}}}},
		"one text's tokens": {`[1,2]`, llm.EmbeddingInput{Tokens: [][]int{{1, 2}}}},
		"no input":          {`null`, llm.EmbeddingInput{}},
	} {
		t.Run(name, func(t *testing.T) {
			got := reflect.New(reflect.TypeOf(test.want))
			require.NoError(t, json.Unmarshal([]byte(test.doc), got.Interface()))
			assert.Equal(t, test.want, got.Elem().Interface())
			b, err := json.Marshal(test.want)
			require.NoError(t, err)
			assert.Equal(t, test.doc, string(b))
		})
	}
}

// Decoded values share no memory with the document or with values that are decoded later.
func TestJSON_DecodingCopies(t *testing.T) {
	var chunks []llm.ChatChunk
	names := []string{"alpha", "bravo", "charlie"}
	for _, name := range names {
		data := []byte(`{"id":"` + name + `","choices":[{"delta":{"content":"` + name + `","x":"` + name + `"}}]}`)
		var c llm.ChatChunk
		require.NoError(t, c.UnmarshalJSON(data))
		clear(data)
		chunks = append(chunks, c)
	}
	for i, name := range names {
		assert.Equal(t, name, chunks[i].ID)
		assert.Equal(t, name, chunks[i].Choices[0].Delta.Content)
		assert.Equal(t, `"`+name+`"`, string(chunks[i].Choices[0].Delta.Extra["x"]))
	}
}

// U+2028 and U+2029, which some readers take for line breaks, are escaped in texts, names
// and raw values.
func TestJSON_LineBreaksAreEscaped(t *testing.T) {
	const breaks = "a\u0085\u2028\u2029\n\r“é”"
	raw, err := json.Marshal(map[string]string{breaks: breaks})
	require.NoError(t, err)
	raw = []byte(strings.NewReplacer(`\u2028`, "\u2028", `\u2029`, "\u2029").Replace(string(raw)))
	m := llm.Message{Role: llm.RoleUser, Content: llm.TextContent(breaks), Name: breaks, Extra: llm.Extra{breaks: raw}}
	b, err := m.MarshalJSON()
	require.NoError(t, err)
	const escaped = `"a\u0085\u2028\u2029\n\r“é”"`
	assert.Equal(t, `{"role":"user","content":`+escaped+`,"name":`+escaped+`,`+escaped+`:{`+escaped+`:`+escaped+`}}`, string(b))
	var again llm.Message
	require.NoError(t, again.UnmarshalJSON(b))
	assert.Equal(t, breaks, again.Name)
}

// Decoding does not depend on earlier uses of the decoder.
func TestJSON_DecodersAreReusable(t *testing.T) {
	docs := []string{`{"model":"a","messages":[{"role":"user","content":[{"text":"x","type":"text"}]}]}`, `{"model":`, `{"model":5}`, `{"messages":[{"content":[{"type":"text"}]}]}`, `{"model":"b","n":3}`}
	want := make(map[string]string)
	for range 3 {
		for _, doc := range docs {
			var r llm.ChatRequest
			err := r.UnmarshalJSON([]byte(doc))
			got := fmt.Sprint(r.Model, r.Messages, r.N != nil, err)
			if want[doc] == "" {
				want[doc] = got
			}
			assert.Equal(t, want[doc], got)
		}
	}
}

// Extra cannot duplicate or replace a member that its type declares.
func TestExtra_DoesNotOverride(t *testing.T) {
	all := llm.Extra{}
	for _, name := range []string{"id", "object", "created", "model", "choices", "usage", "error", "role", "content", "type", "text", "function", "index", "delta", "finish_reason", "message", "name", "arguments", "prompt_tokens", "url", "data", "tool_calls"} {
		all[name] = json.RawMessage(`"extra"`)
	}
	for _, v := range []any{
		llm.ChatRequest{Extra: all},
		llm.Message{Extra: all},
		llm.Part{Type: "text", Extra: all},
		llm.Tool{Function: &llm.Function{Extra: all}, Extra: all},
		llm.ToolCall{Function: llm.FunctionCall{Extra: all}, Extra: all},
		llm.ChatResponse{Choices: []llm.Choice{{Extra: all}}, Extra: all},
		llm.ChatChunk{Choices: []llm.ChunkChoice{{Delta: llm.Delta{Extra: all}, Extra: all}}, Extra: all, Usage: &llm.Usage{Extra: all}},
		llm.Model{Extra: all},
		llm.ImageResponse{Data: []llm.Image{{URL: "u", Extra: all}}, Extra: all},
		llm.EmbeddingResponse{Extra: all},
	} {
		doc := encode(t, v)
		again := reflect.New(reflect.TypeOf(v)).Interface()
		assert.NoError(t, json.Unmarshal([]byte(doc), again), "%s", doc) // refuses duplicate names
	}
}

func TestExtra_InvalidJSONIsNotEncoded(t *testing.T) {
	_, err := json.Marshal(llm.Model{Extra: llm.Extra{"x": json.RawMessage(`{"a":1,"a":2}`)}})
	assert.Error(t, err)
}

// Names in Extra that differ only in invalid UTF-8 are not encoded as duplicates.
func TestExtra_NamesWithInvalidBytes(t *testing.T) {
	b, err := llm.Model{Extra: llm.Extra{"a\xff": json.RawMessage("1"), "a\xfe": json.RawMessage("2")}}.MarshalJSON()
	if err == nil { // an error is good too
		require.NoError(t, new(llm.Model).UnmarshalJSON(b), "%s", b)
	}
}
