package llmhttp_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/llmhttp/llmhttp"
)

// marshalers has a value of each type of the format, by its name, as a
// pointer to a fresh one.
var marshalers = map[string]func() any{
	"ChatRequest":       func() any { return new(llmhttp.ChatRequest) },
	"Message":           func() any { return new(llmhttp.Message) },
	"Content":           func() any { return new(llmhttp.Content) },
	"Part":              func() any { return new(llmhttp.Part) },
	"ImageURL":          func() any { return new(llmhttp.ImageURL) },
	"Tool":              func() any { return new(llmhttp.Tool) },
	"Function":          func() any { return new(llmhttp.Function) },
	"ToolCall":          func() any { return new(llmhttp.ToolCall) },
	"FunctionCall":      func() any { return new(llmhttp.FunctionCall) },
	"StreamOptions":     func() any { return new(llmhttp.StreamOptions) },
	"ResponseFormat":    func() any { return new(llmhttp.ResponseFormat) },
	"StringList":        func() any { return new(llmhttp.StringList) },
	"ChatResponse":      func() any { return new(llmhttp.ChatResponse) },
	"Choice":            func() any { return new(llmhttp.Choice) },
	"ChatChunk":         func() any { return new(llmhttp.ChatChunk) },
	"ChunkChoice":       func() any { return new(llmhttp.ChunkChoice) },
	"Delta":             func() any { return new(llmhttp.Delta) },
	"ToolCallDelta":     func() any { return new(llmhttp.ToolCallDelta) },
	"Usage":             func() any { return new(llmhttp.Usage) },
	"ReasoningDetail":   func() any { return new(llmhttp.ReasoningDetail) },
	"PromptTokens":      func() any { return new(llmhttp.PromptTokensDetails) },
	"CompletionTokens":  func() any { return new(llmhttp.CompletionTokensDetails) },
	"ImageRequest":      func() any { return new(llmhttp.ImageRequest) },
	"ImageResponse":     func() any { return new(llmhttp.ImageResponse) },
	"Image":             func() any { return new(llmhttp.Image) },
	"Model":             func() any { return new(llmhttp.Model) },
	"EmbeddingRequest":  func() any { return new(llmhttp.EmbeddingRequest) },
	"EmbeddingResponse": func() any { return new(llmhttp.EmbeddingResponse) },
}

// exact are documents in the very form in which they are encoded again.
var exact = []struct{ typ, doc string }{
	{"ChatRequest", `{"model":"m","messages":[{"role":"user","content":"hi"}]}`},
	{"ChatRequest", `{"model":"m","messages":[],"stream":true,"stream_options":{"include_usage":true,"x":1},"temperature":0,"top_p":1,"presence_penalty":-2,"frequency_penalty":0.5,"max_tokens":1,"max_completion_tokens":2,"n":3,"stop":["a","b"],"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{}}},"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"},"strict":true},"x":1}],"tool_choice":"auto","logit_bias":{"50256":-100},"metadata":null,"seed":7,"user":"u"}`},
	{"ChatRequest", `{"model":"m","messages":[],"stop":"a","tool_choice":{"type":"function","function":{"name":"f"}},"Model":"wrong case is another name"}`},
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
	{"StreamOptions", `{"include_usage":false,"include_obfuscation":true}`},
	{"StringList", `null`}, {"StringList", `[]`}, {"StringList", `"a"`}, {"StringList", `["a","b"]`}, {"StringList", `""`},
	{"ChatResponse", `{"id":"i","object":"chat.completion","created":7,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"a","refusal":null,"x":1},"finish_reason":"stop","logprobs":{"content":[]},"y":1}],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3,"prompt_tokens_details":{"cached_tokens":1}},"service_tier":"default","system_fingerprint":null}`},
	{"ChatChunk", `{"id":"i","object":"chat.completion.chunk","created":7,"model":"m","choices":[{"index":1,"delta":{"role":"assistant","reasoning_content":"r","content":"a","tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"f","arguments":"","x":1},"y":2},{"index":1,"function":{"arguments":"}"}}],"x":null},"finish_reason":null,"logprobs":{"content":[]},"y":null}],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3},"obfuscation":"x"}`},
	{"ChatChunk", `{"id":"i","object":"chat.completion.chunk","created":7,"model":"m","choices":[]}`},
	{"ImageRequest", `{"model":"m","prompt":"p","n":2,"size":"256x256","quality":"hd","response_format":"url","style":"vivid"}`},
	{"ImageResponse", `{"created":7,"data":[{"url":"u","revised_prompt":"r","x":1},{"b64_json":"AAE="}],"usage":{"input_tokens":1,"output_tokens":2,"total_tokens":3,"input_tokens_details":{}},"background":"opaque"}`},
	{"Model", `{"id":"m","object":"model","created":7,"owned_by":"o","meta":{"a":1},"parent":null}`},
	{"EmbeddingRequest", `{"model":"m","input":["a",""],"dimensions":3,"encoding_format":"base64","user":"u"}`},
	{"EmbeddingRequest", `{"model":"m","input":[[1,2],[3]]}`},
	{"EmbeddingResponse", `{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.5,-1]}],"model":"m","usage":{"prompt_tokens":1,"total_tokens":1},"x":1}`},
}

// Documents come back as they are: named members in the order of the format,
// others behind them in the order of their names.
func TestExactRoundTrip(t *testing.T) {
	for _, test := range exact {
		v := marshalers[test.typ]()
		if err := json.Unmarshal([]byte(test.doc), v); err != nil {
			t.Errorf("%s %s: %v", test.typ, test.doc, err)
			continue
		}
		got, err := json.Marshal(v)
		if err != nil || string(got) != test.doc {
			t.Errorf("%s\n%s\nbecame\n%s, %v", test.typ, test.doc, got, err)
		}
	}
}

// The order of members, and space, are of no matter.
func TestDecodeAnyOrder(t *testing.T) {
	for _, test := range exact {
		var o map[string]json.RawMessage
		if json.Unmarshal([]byte(test.doc), &o) != nil || o == nil {
			continue
		}
		names := slices.Sorted(maps.Keys(o))
		for range 2 {
			slices.Reverse(names)
			var b strings.Builder
			b.WriteString("\n{")
			for i, name := range names {
				if i > 0 {
					b.WriteString(" ,")
				}
				fmt.Fprintf(&b, "%q :\t%s\r\n", name, o[name])
			}
			b.WriteString("} ")
			v := marshalers[test.typ]()
			if err := json.Unmarshal([]byte(b.String()), v); err != nil {
				t.Errorf("%s: %v", b.String(), err)
				continue
			}
			if got, _ := json.Marshal(v); string(got) != test.doc {
				t.Errorf("%s became %s", b.String(), got)
			}
		}
	}
}

// Through encoding/json it works as a value, a pointer, a field, an element
// and in streams of values.
func TestThroughEncodingJSON(t *testing.T) {
	for _, test := range exact {
		p := reflect.New(reflect.TypeOf(marshalers[test.typ]()).Elem())
		if err := json.Unmarshal([]byte(test.doc), p.Interface()); err != nil {
			t.Errorf("%s: %v", test.doc, err)
			continue
		}
		value := p.Elem().Interface()
		holder := map[string]any{"v": value, "p": p.Interface(), "s": []any{value, p.Interface()}}
		got, err := json.Marshal(holder)
		if want := fmt.Sprintf(`{"p":%s,"s":[%s,%s],"v":%s}`, test.doc, test.doc, test.doc, test.doc); err != nil || string(got) != want {
			t.Errorf("got %s, want %s, %v", got, want, err)
		}
		list := reflect.MakeSlice(reflect.SliceOf(p.Elem().Type()), 2, 2)
		list.Index(1).Set(p.Elem())
		got, err = json.Marshal(list.Interface())
		if err != nil || !strings.HasSuffix(string(got), ","+test.doc+"]") {
			t.Errorf("slice: %s, %v", got, err)
		}
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(value); err != nil || b.String() != test.doc+"\n" {
			t.Errorf("encoder: %s, %v", b.String(), err)
		}
		// null changes nothing, or makes nil; broken JSON changes nothing.
		if err := json.Unmarshal([]byte(`{"a":`), p.Interface()); err == nil {
			t.Error("broken JSON is accepted")
		}
		if test.typ != "Content" && test.typ != "StringList" {
			if err := p.Interface().(json.Unmarshaler).UnmarshalJSON([]byte(`{"model":`)); err == nil {
				t.Error("broken JSON is accepted")
			}
			if err := json.Unmarshal([]byte("null"), p.Interface()); err != nil {
				t.Error(err)
			}
		}
		if got, _ := json.Marshal(p.Interface()); string(got) != test.doc {
			t.Errorf("%s: has become %s", test.doc, got)
		}
	}
	var nilRequest *llmhttp.ChatRequest
	if got, err := json.Marshal(nilRequest); string(got) != "null" || err != nil {
		t.Errorf("a nil pointer is %s, %v", got, err)
	}
}

// Unmarshal replaces: what was there before does not shine through.
func TestUnmarshalReplaces(t *testing.T) {
	r := llmhttp.ChatRequest{Model: "old", Messages: []llmhttp.Message{{Role: "user"}}, Extra: llmhttp.Extra{"x": json.RawMessage("1")}, Stop: llmhttp.StringList{"s"}}
	if err := json.Unmarshal([]byte(`{"n":2}`), &r); err != nil {
		t.Fatal(err)
	}
	if r.Model != "" || r.Messages != nil || r.Extra != nil || r.Stop != nil || *r.N != 2 {
		t.Errorf("%+v", r)
	}
	c := llmhttp.Text("old")
	if err := json.Unmarshal([]byte(`null`), &c); err != nil || c != nil {
		t.Errorf("%v, %v", c, err)
	}
	l := llmhttp.StringList{"old"}
	if err := json.Unmarshal([]byte(`null`), &l); err != nil || l != nil {
		t.Errorf("%v, %v", l, err)
	}
}

// An explicit null is the default, for every member.
func TestExplicitNulls(t *testing.T) {
	var full llmhttp.ChatRequest
	doc := `{"model":null,"messages":null,"stream":null,"stream_options":null,"temperature":null,"top_p":null,"presence_penalty":null,"frequency_penalty":null,"max_tokens":null,"max_completion_tokens":null,"n":null,"stop":null,"response_format":null,"tools":null,"tool_choice":null}`
	if err := json.Unmarshal([]byte(doc), &full); err != nil || !reflect.DeepEqual(full, llmhttp.ChatRequest{}) {
		t.Errorf("%+v, %v", full, err)
	}
	for typ, doc := range map[string]string{
		"Message":          `{"role":null,"content":null,"reasoning_content":null,"name":null,"tool_calls":null,"tool_call_id":null}`,
		"Part":             `{"type":null}`,
		"ImageURL":         `{"url":null,"detail":null}`,
		"Tool":             `{"type":null,"function":null}`,
		"Function":         `{"name":null,"description":null,"parameters":null}`,
		"ToolCall":         `{"id":null,"type":null,"function":null}`,
		"FunctionCall":     `{"name":null,"arguments":null}`,
		"StreamOptions":    `{"include_usage":null}`,
		"ResponseFormat":   `{"type":null}`,
		"ChatChunk":        `{"id":null,"created":null,"model":null,"choices":null,"usage":null}`,
		"ChunkChoice":      `{"index":null,"delta":null,"finish_reason":null}`,
		"Delta":            `{"role":null,"content":null,"reasoning_content":null,"tool_calls":null}`,
		"ToolCallDelta":    `{"index":null,"id":null,"type":null,"function":null}`,
		"Usage":            `{"prompt_tokens":null,"completion_tokens":null,"total_tokens":null}`,
		"ImageRequest":     `{"model":null,"prompt":null,"n":null,"size":null,"quality":null,"response_format":null}`,
		"Image":            `{"url":null,"b64_json":null,"revised_prompt":null}`,
		"EmbeddingRequest": `{"model":null,"input":null,"dimensions":null,"encoding_format":null}`,
		"ChatResponse":     `{"id":null,"created":null,"model":null,"choices":null,"usage":null}`,
		"Choice":           `{"index":null,"message":null,"finish_reason":null,"logprobs":null}`,
		"Model":            `{"id":null,"created":null,"owned_by":null}`,
	} {
		v := marshalers[typ]()
		if err := json.Unmarshal([]byte(doc), v); err != nil || !reflect.ValueOf(v).Elem().IsZero() {
			t.Errorf("%s: %+v, %v", typ, v, err)
		}
	}
}

func TestContentText(t *testing.T) {
	for doc, want := range map[string]string{
		`null`: "", `"a"`: "a", `[]`: "", `[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"u"}},{"type":"text","text":"b"}]`: "ab", `[{"type":"odd","text":"x"}]`: "",
	} {
		var c llmhttp.Content
		if err := json.Unmarshal([]byte(doc), &c); err != nil || c.Text() != want {
			t.Errorf("%s: %q, %v", doc, c.Text(), err)
		}
	}
	for _, doc := range []string{`7`, `true`, `{}`, `[7]`, `["a"]`, `[[]]`, `[{"type":"text"}]`, `[{"type":7}]`} {
		var c llmhttp.Content
		if err := json.Unmarshal([]byte(doc), &c); err == nil {
			t.Errorf("%s is accepted as %+v", doc, c)
		}
	}
}

// What the named members say is not said by Extra, too.
func TestExtraDoesNotOverride(t *testing.T) {
	all := llmhttp.Extra{}
	for _, name := range []string{"id", "object", "created", "model", "choices", "usage", "error", "role", "content", "type", "text", "function", "index", "delta", "finish_reason", "message", "name", "arguments", "prompt_tokens", "url", "data", "tool_calls"} {
		all[name] = json.RawMessage(`"extra"`)
	}
	for _, v := range []any{
		llmhttp.ChatRequest{Extra: all}, llmhttp.Message{Extra: all}, llmhttp.Part{Type: "text", Extra: all}, llmhttp.Tool{Function: &llmhttp.Function{Extra: all}, Extra: all},
		llmhttp.ToolCall{Function: llmhttp.FunctionCall{Extra: all}, Extra: all}, llmhttp.ChatResponse{Choices: []llmhttp.Choice{{Extra: all}}, Extra: all},
		llmhttp.ChatChunk{Choices: []llmhttp.ChunkChoice{{Delta: llmhttp.Delta{Extra: all}, Extra: all}}, Extra: all, Usage: &llmhttp.Usage{Extra: all}},
		llmhttp.Model{Extra: all}, llmhttp.ImageResponse{Data: []llmhttp.Image{{URL: "u", Extra: all}}, Extra: all}, llmhttp.EmbeddingResponse{Extra: all},
	} {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		again := reflect.New(reflect.TypeOf(v)) // refuses duplicate names
		if err := json.Unmarshal(b, again.Interface()); err != nil {
			t.Errorf("%T: %s: %v", v, b, err)
		}
	}
	if _, err := json.Marshal(llmhttp.Model{Extra: llmhttp.Extra{"x": json.RawMessage(`{"a":1,"a":2}`)}}); err == nil {
		t.Error("a broken member is encoded")
	}
}

// Names that only differ in bytes that are no characters must not become
// twice the same name.
func TestExtraNamesStayDifferent(t *testing.T) {
	b, err := llmhttp.Model{Extra: llmhttp.Extra{"a\xff": json.RawMessage("1"), "a\xfe": json.RawMessage("2")}}.MarshalJSON()
	if err != nil {
		return
	}
	var m llmhttp.Model
	if err := m.UnmarshalJSON(b); err != nil {
		t.Errorf("%s: %v", b, err)
	}
}

// What unmarshalling keeps is a reply that can be told again.
func TestChatResponseRoundTrip(t *testing.T) {
	r, err := llmhttp.Collect(llmhttp.Reply("hi"))
	if err != nil {
		t.Fatal(err)
	}
	b, _ := json.Marshal(r)
	again := new(llmhttp.ChatResponse)
	if err := json.Unmarshal(b, again); err != nil || !reflect.DeepEqual(r, again) {
		t.Errorf("%+v became %+v, %v", r, again, err)
	}
}
