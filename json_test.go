package llmhttp_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

// jsonTypes maps the name of each type of the API to a function that returns a pointer to
// a new value.
var jsonTypes = map[string]func() any{
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
	"Transcription":     func() any { return new(llmhttp.TranscriptionChunk) },
	"Segment":           func() any { return new(llmhttp.TranscriptionSegment) },
	"Word":              func() any { return new(llmhttp.TranscriptionWord) },
	"EmbeddingInput":    func() any { return new(llm.EmbeddingInput) },
	"EmbeddingRequest":  func() any { return new(llm.EmbeddingRequest) },
	"EmbeddingResponse": func() any { return new(llm.EmbeddingResponse) },
}

// Every type that decodes itself is in jsonTypes.
func TestJSON_TypesAreComplete(t *testing.T) {
	tested := make(map[string]bool)
	for _, newValue := range jsonTypes {
		tested[reflect.TypeOf(newValue()).Elem().Name()] = true
	}
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	vocabulary, err := filepath.Glob("llm/*.go")
	require.NoError(t, err)
	files = append(files, vocabulary...)
	method := regexp.MustCompile(`(?m)^func \(\w+ \*(\w+)\) UnmarshalJSON\(`)
	found := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, match := range method.FindAllSubmatch(source, -1) {
			found++
			if string(match[1]) == "CacheWrites" {
				continue // a form of stores and reports, which no request has: TestCacheWrites_JSON
			}
			assert.True(t, tested[string(match[1])], "jsonTypes lacks %s", match[1])
		}
	}
	assert.Greater(t, found, 20)
}

// A jsonDocument is JSON of one of jsonTypes.
type jsonDocument = struct{ typ, doc string }

// jsonDocuments are documents that encoding reproduces byte for byte.
var jsonDocuments = []jsonDocument{
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
	{"ImageResponse", `{"created":7,"data":[{"url":"u","revised_prompt":"r","x":1},{"b64_json":"AAE="}],"usage":{"input_tokens":1,"output_tokens":2,"total_tokens":3,"input_tokens_details":{}},"background":"opaque"}`},
	{"Model", `{"id":"m","object":"model","created":7,"owned_by":"o","meta":{"a":1},"parent":null}`},
	{"Model", `{"id":"m","object":"model","created":7,"owned_by":"o","name":"n","context_length":9,"max_output_tokens":8,"capabilities":[],"x":1}`},
	{"EmbeddingRequest", `{"model":"m","input":["a",""],"dimensions":3,"encoding_format":"base64","user":"u"}`},
	{"EmbeddingRequest", `{"model":"m","input":[[1,2],[3]]}`},
	{"EmbeddingResponse", `{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.5,-1]}],"model":"m","usage":{"prompt_tokens":1,"total_tokens":1},"x":1}`},
}

// The struct tags, which only document the types, agree with the tables that encode and
// decode: each tag has the name of its member, and options if a zero value is left out.
func TestJSON_TagsAgreeWithTables(t *testing.T) {
	constants := []string{"object", "logprobs", "meta"} // have no field
	for name, newValue := range jsonTypes {
		typ := reflect.TypeOf(newValue()).Elem()
		if typ.Kind() != reflect.Struct || name == "EmbeddingInput" || name == "CompletionPrompt" || name == "ModerationInput" || name == "RerankDocument" {
			continue
		}
		always := make(map[string]bool)
		for i := range typ.NumField() {
			field := typ.Field(i)
			member, options, _ := strings.Cut(field.Tag.Get("json"), ",")
			if !field.IsExported() || member == "-" {
				continue
			}
			require.NotEmpty(t, member, "%s.%s", name, field.Name)
			always[member] = options == ""
			v := newValue()
			fillValue(reflect.ValueOf(v).Elem().Field(i), rand.New(rand.NewPCG(1, 2)), 0)
			if typ := reflect.ValueOf(v).Elem().FieldByName("Type"); typ.IsValid() && typ.String() == "" {
				typ.SetString(member) // which has the member, as image_url and allowed_tools do
			}
			assert.Contains(t, encodedMembers(t, v), member, "%s.%s", name, field.Name)
		}
		if name == "ToolCall" {
			always["function"] = true // unless the type is another one
		}
		for member := range encodedMembers(t, newValue()) {
			assert.True(t, always[member] || slices.Contains(constants, member), "%s has %q", name, member)
			delete(always, member)
		}
		for member, left := range always {
			assert.False(t, left, "%s lacks %q", name, member)
		}
	}
}

func encodedMembers(t *testing.T, v any) object {
	var members object
	require.NoError(t, json.Unmarshal([]byte(encode(t, v)), &members))
	return members
}

// eachDocument calls test with each document and the value it is decoded to.
func eachDocument(t *testing.T, test func(t *testing.T, newValue func() any, doc string)) {
	for _, d := range jsonDocuments {
		t.Run(fmt.Sprintf("%s/%.40s", d.typ, d.doc), func(t *testing.T) { test(t, jsonTypes[d.typ], d.doc) })
	}
}

func encode(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	return string(b)
}

// Decoding and encoding reproduces a document: declared members are in the order of the
// format, and unknown ones follow, sorted by name.
func TestJSON_RoundTrip(t *testing.T) {
	eachDocument(t, func(t *testing.T, newValue func() any, doc string) {
		v := newValue()
		require.NoError(t, json.Unmarshal([]byte(doc), v))
		assert.Equal(t, doc, encode(t, v))
	})
}

// Members may be in any order, with any white space between them.
func TestJSON_OrderAndSpaceDoNotMatter(t *testing.T) {
	eachDocument(t, func(t *testing.T, newValue func() any, doc string) {
		var members object
		if json.Unmarshal([]byte(doc), &members) != nil || members == nil {
			t.Skip("not an object")
		}
		names := slices.Sorted(maps.Keys(members))
		for range 2 {
			slices.Reverse(names)
			var list []string
			for _, name := range names {
				list = append(list, fmt.Sprintf("%q :\t%s\r\n", name, members[name]))
			}
			v := newValue()
			require.NoError(t, json.Unmarshal([]byte("\n{"+strings.Join(list, " ,")+"} "), v))
			assert.Equal(t, doc, encode(t, v))
		}
	})
}

// The types work with encoding/json as values, pointers, elements and members.
func TestJSON_WithinOtherValues(t *testing.T) {
	eachDocument(t, func(t *testing.T, newValue func() any, doc string) {
		pointer := newValue()
		require.NoError(t, json.Unmarshal([]byte(doc), pointer))
		value := reflect.ValueOf(pointer).Elem()
		assert.Equal(t, fmt.Sprintf(`{"p":%s,"s":[%[1]s,%[1]s],"v":%[1]s}`, doc),
			encode(t, map[string]any{"v": value.Interface(), "p": pointer, "s": []any{value.Interface(), pointer}}))

		list := reflect.MakeSlice(reflect.SliceOf(value.Type()), 2, 2)
		list.Index(1).Set(value)
		assert.True(t, strings.HasSuffix(encode(t, list.Interface()), ","+doc+"]"))

		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		require.NoError(t, e.Encode(value.Interface()))
		assert.Equal(t, doc+"\n", b.String())
	})
	var nilRequest *llm.ChatRequest
	assert.Equal(t, "null", encode(t, nilRequest))
}

// Invalid JSON leaves a value unchanged. So does null, except that it sets lists to nil.
func TestJSON_InvalidJSONChangesNothing(t *testing.T) {
	eachDocument(t, func(t *testing.T, newValue func() any, doc string) {
		v := newValue()
		require.NoError(t, json.Unmarshal([]byte(doc), v))
		require.Error(t, json.Unmarshal([]byte(`{"a":`), v))
		switch v.(type) {
		case *llm.Content, *llm.StringList:
		default:
			require.Error(t, v.(json.Unmarshaler).UnmarshalJSON([]byte(`{"model":`)))
			require.NoError(t, json.Unmarshal([]byte("null"), v))
		}
		assert.Equal(t, doc, encode(t, v))
	})
}

// Decoding replaces the whole old value.
func TestJSON_DecodingReplaces(t *testing.T) {
	r := llm.ChatRequest{Model: "old", Messages: []llm.Message{{Role: "user"}}, Extra: llm.Extra{"x": json.RawMessage("1")}, Stop: llm.StringList{"s"}}
	require.NoError(t, json.Unmarshal([]byte(`{"n":2}`), &r))
	assert.Equal(t, llm.ChatRequest{N: new(2)}, r)
	c := llm.Text("old")
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
			v := jsonTypes[typ]()
			doc := `{"` + strings.ReplaceAll(names, " ", `":null,"`) + `":null}`
			require.NoError(t, json.Unmarshal([]byte(doc), v))
			assert.True(t, reflect.ValueOf(v).Elem().IsZero(), "%+v", v)
		})
	}
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
			llm.Message{Role: llm.RoleTool, Content: llm.Text("x"), ToolCallID: "c", IsError: true},
		},
		"reasoning details": {
			`{"role":"assistant","content":"x","reasoning_details":[{"type":"reasoning.text","text":"t","signature":"s","index":0},{"type":"reasoning.summary","summary":"u"},{"type":"reasoning.encrypted","data":"d","id":"i"}]}`,
			llm.Message{Role: llm.RoleAssistant, Content: llm.Text("x"), ReasoningDetails: []llm.ReasoningDetail{
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
			llm.Choice{Message: llm.Message{Role: llm.RoleAssistant, Content: llm.Text("x")}, FinishReason: llm.FinishStop, StopSequence: "END"},
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
	m := llm.Message{Role: llm.RoleUser, Content: llm.Text(breaks), Name: breaks, Extra: llm.Extra{breaks: raw}}
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

// fillValue sets v, and everything that it refers to, to random values other than zero.
func fillValue(v reflect.Value, r *rand.Rand, depth int) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				fillValue(v.Field(i), r, depth)
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillValue(v.Elem(), r, depth)
	case reflect.Slice:
		if v.Type() == rawType {
			v.SetBytes([]byte(fmt.Sprint(r.IntN(1000))))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			fillValue(v.Index(i), r, depth)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		value := reflect.New(v.Type().Elem()).Elem()
		fillValue(value, r, depth)
		key := reflect.ValueOf(fmt.Sprintf("x_%d", r.IntN(1000)))
		if v.Type() == reflect.TypeFor[llm.CacheWrites]() {
			key = reflect.ValueOf(time.Duration(1+r.IntN(1000)) * time.Second)
		}
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString(fmt.Sprint("s", r.IntN(1000)))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(1 + r.Int64N(1000))
	case reflect.Float32, reflect.Float64:
		v.SetFloat(float64(1 + r.IntN(1000)))
	}
}

// Every field of each type survives encoding and decoding.
func TestJSON_EveryFieldIsEncoded(t *testing.T) {
	for name, newValue := range jsonTypes {
		t.Run(name, func(t *testing.T) {
			v := newValue()
			fillValue(reflect.ValueOf(v).Elem(), rand.New(rand.NewPCG(3, 4)), 0)
			makeConsistent(reflect.ValueOf(v).Elem())
			b, err := json.Marshal(v)
			require.NoError(t, err)
			again := newValue()
			require.NoError(t, json.Unmarshal(b, again), "%s", b)
			assert.Equal(t, v, again, "%s", b)
		})
	}
}

// consistency has the functions of makesConsistent.
var consistency = make(map[reflect.Type]func(v any))

// makesConsistent registers a function that removes combinations of fields that no document of a
// T has. It stands beside the tests of T.
func makesConsistent[T any](f func(v *T)) struct{} {
	consistency[reflect.TypeFor[T]()] = func(v any) { f(v.(*T)) }
	return struct{}{}
}

// makeConsistent calls the functions of makesConsistent for v and all that it refers to.
func makeConsistent(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			makeConsistent(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				makeConsistent(v.Field(i))
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			makeConsistent(v.Index(i))
		}
	}
	if f := consistency[v.Type()]; f != nil {
		f(v.Addr().Interface())
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
