package llmhttp_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/llmhttp/llmhttp"
)

// roundTrip decodes data into fresh values and encodes them again: what is
// accepted must be strictly JSON, and must come back the same. It returns the
// first value and what it is encoded as.
func roundTrip[T any](t testing.TB, data []byte) (v *T, encoded []byte, ok bool) {
	t.Helper()
	v, encoded, ok = roundTripReply[T](t, data)
	if ok && !jsontext.Value(data).IsValid() {
		t.Fatalf("accepted, but not strictly JSON: %q", data)
	}
	return v, encoded, ok
}

// roundTripReply is like roundTrip for types that are decoded leniently: what is
// accepted must be encoded as strict JSON.
func roundTripReply[T any](t testing.TB, data []byte) (v *T, encoded []byte, ok bool) {
	t.Helper()
	v = new(T)
	if err := any(v).(json.Unmarshaler).UnmarshalJSON(data); err != nil {
		return nil, nil, false
	}
	encoded, err := any(v).(json.Marshaler).MarshalJSON()
	if err != nil {
		t.Fatalf("%q: decoded, but not encoded: %v", data, err)
	}
	if !jsontext.Value(encoded).IsValid() {
		t.Fatalf("%q: encoded as %q, which is not strictly JSON", data, encoded)
	}
	again := new(T)
	if err := any(again).(json.Unmarshaler).UnmarshalJSON(encoded); err != nil {
		t.Fatalf("%q: encoded as %q, not decoded again: %v", data, encoded, err)
	}
	twice, err := any(again).(json.Marshaler).MarshalJSON()
	if err != nil || !bytes.Equal(twice, encoded) {
		t.Fatalf("%q: encoded as\n%q, and then as\n%q, %v", data, encoded, twice, err)
	}
	return v, encoded, true
}

// keepsMembers fails t if an old_object of in has a member that out lacks, unless
// its value says nothing.
func keepsMembers(t testing.TB, in, out []byte) {
	t.Helper()
	var a, b any
	if json.Unmarshal(in, &a) != nil || json.Unmarshal(out, &b) != nil {
		return
	}
	var walk func(a, b any, path string)
	walk = func(a, b any, path string) {
		switch a := a.(type) {
		case map[string]any:
			b, ok := b.(map[string]any)
			if !ok && len(a) > 0 {
				t.Fatalf("%s is not an old_object any more:\n%q\n%q", path, in, out)
			}
			for name, v := range a {
				w, ok := b[name]
				if !ok {
					switch v {
					case nil, "", false:
						continue
					}
					if list, isList := v.([]any); isList && len(list) == 0 {
						continue
					}
					t.Fatalf("%s.%s is lost:\n%q\n%q", path, name, in, out)
				}
				walk(v, w, path+"."+name)
			}
		case []any:
			list, ok := b.([]any)
			if !ok {
				return // a list of one, and content of one text, become strings
			}
			if len(list) != len(a) {
				t.Fatalf("%s has another length:\n%q\n%q", path, in, out)
			}
			for i := range a {
				walk(a[i], list[i], path+"[]")
			}
		case string:
			if s, ok := b.(string); ok && s != a && a != "" { // an empty type stands for another
				t.Fatalf("%s has changed:\n%q\n%q", path, in, out)
			}
		case float64:
			if f, ok := b.(float64); ok && f != a {
				t.Fatalf("%s has changed:\n%q\n%q", path, in, out)
			}
		}
	}
	walk(a, b, "")
}

var requestSeeds = []string{
	`{}`, `null`, `[]`, `{"model":null,"messages":null}`,
	`{"model":"m","messages":[{"role":"user","content":"hi"}]}`,
	`{"model":"m","messages":[{"role":"system","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"u","detail":"low","x":1}},{"type":"input_audio","input_audio":{"data":"","format":"wav"}},{"type":"odd","text":"t"}],"name":"n","x":{"y":[1]}}],"n":2.0,"stop":["a"],"temperature":1e0,"top_p":0,"max_tokens":1,"max_completion_tokens":2,"presence_penalty":-2,"frequency_penalty":2,"stream":true,"stream_options":{"include_usage":true,"include_obfuscation":false},"response_format":{"type":"json_schema","json_schema":{"name":"a"}},"tools":[{"type":"function","strict":true,"function":{"name":"f","description":"d","parameters":{"type":"object"},"strict":null}},{"type":"custom","custom":{}}],"tool_choice":{"type":"function","function":{"name":"f"}},"seed":7,"Model":"x"}`,
	`{"messages":[{"role":"assistant","content":null,"reasoning_content":"r","refusal":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}","x":1},"y":2},{"id":"d","type":"custom","custom":{"name":"g"}}]},{"role":"tool","tool_call_id":"c","content":[]}],"stop":"x","tool_choice":"auto"}`,
	`{"model":"m","prompt":"p","n":1,"size":"256x256","quality":"hd","response_format":"url","style":"vivid","user":null}`,
	`{"model":"m","input":["a","b"],"dimensions":3,"encoding_format":"base64","user":"u"}`,
	`{"model":"m","input":[[1,2],[3]]}`,
	`{"model":"m","model":"n"}`, `{"model":"\ud83d\ude00\u2028"}`, "{\"model\":\"\xff\"}", `{"n":1.5}`, `{"stop":[["a"]]}`, `{"messages":[{"content":[{"type":"text"}]}]}`,
}

func FuzzDecodeRequest(f *testing.F) {
	for _, s := range requestSeeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if v, encoded, ok := roundTrip[llmhttp.ChatRequest](t, data); ok {
			keepsMembers(t, data, encoded)
			sameRequest(t, v, encoded)
		}
		if v, encoded, ok := roundTrip[llmhttp.ImageRequest](t, data); ok {
			keepsMembers(t, data, encoded)
			sameRequest(t, v, encoded)
		}
		if v, encoded, ok := roundTrip[llmhttp.EmbeddingRequest](t, data); ok {
			keepsMembers(t, data, encoded)
			sameRequest(t, v, encoded)
		}
	})
}

// sameRequest fails t unless encoded decodes to v.
func sameRequest[T any](t testing.TB, v *T, encoded []byte) {
	t.Helper()
	again := new(T)
	if err := json.Unmarshal(encoded, again); err != nil {
		t.Fatal(err)
	}
	// Some have two forms for one meaning; only the encoded one is compared.
	if r, ok := any(v).(*llmhttp.ChatRequest); ok {
		if r.Messages == nil {
			r.Messages = []llmhttp.Message{}
		}
		for i := range r.Messages {
			for j := range r.Messages[i].ToolCalls {
				if c := &r.Messages[i].ToolCalls[j]; c.Type == "" {
					c.Type = "function"
				}
			}
		}
		compactRaw(reflect.ValueOf(v).Elem())
	} else {
		compactRaw(reflect.ValueOf(v).Elem())
	}
	if !reflect.DeepEqual(v, again) {
		t.Fatalf("decoded\n%+v\nand again\n%+v\nfrom %q", v, again, encoded)
	}
}

var rawType = reflect.TypeFor[json.RawMessage]()

// compactRaw writes each raw value in v as it is encoded.
func compactRaw(v reflect.Value) {
	compact := func(raw json.RawMessage) json.RawMessage {
		b, err := llmhttp.Tool{Extra: llmhttp.Extra{"x": raw}}.MarshalJSON()
		if err != nil {
			return raw
		}
		return json.RawMessage(b[len(`{"type":"","x":`) : len(b)-1])
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			compactRaw(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			compactRaw(v.Field(i))
		}
	case reflect.Slice:
		if v.Type() == rawType {
			if !v.IsNil() {
				v.Set(reflect.ValueOf(compact(v.Bytes())))
			}
			return
		}
		for i := range v.Len() {
			compactRaw(v.Index(i))
		}
	case reflect.Map:
		if v.Type() == reflect.TypeFor[llmhttp.Extra]() {
			for _, name := range v.MapKeys() {
				v.SetMapIndex(name, reflect.ValueOf(compact(v.MapIndex(name).Bytes())))
			}
		}
	}
}

func FuzzContent(f *testing.F) {
	for _, s := range []string{`null`, `"a"`, `""`, `[]`, `[{"type":"text","text":"a"}]`, `[{"type":"text","text":""}]`, `[{"type":"text","text":"a","x":1}]`,
		`[{"type":"text","text":"a"},{"type":"text","text":"b"}]`, `[{"type":"image_url","image_url":{"url":"u"}}]`, `[{"type":"odd","odd":{"a":1}}]`,
		`[{"type":"odd","text":5}]`, `[{"type":"odd","image_url":"u"}]`, `[{}]`, `[null]`, `7`, `{}`, `"\ud83d\ude00"`, `[{"type":"text","text":null}]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, encoded, ok := roundTrip[llmhttp.Content](t, data)
		if !ok {
			return
		}
		keepsMembers(t, data, encoded)
		text := c.Text()
		var again llmhttp.Content
		if err := json.Unmarshal(encoded, &again); err != nil || again.Text() != text || (again == nil) != (*c == nil) || len(again) != len(*c) {
			t.Fatalf("%q: %q of %d parts, then %q of %d, %v", data, text, len(*c), again.Text(), len(again), err)
		}
	})
}

// What a Backend yields and what clients get survives as it is, with all that
// it has beside the named members.
func FuzzExtraRoundTrip(f *testing.F) {
	for _, s := range append(requestSeeds,
		`{"id":"i","object":"chat.completion.chunk","created":1.7e9,"model":"m","choices":[{"index":1,"delta":{"role":"assistant","content":"a","reasoning_content":"r","tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"f","arguments":"{}","x":1},"y":2}],"z":3},"finish_reason":null,"logprobs":null}],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3,"details":{"a":1}},"error":null,"w":[]}`,
		`{"id":"i","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"a","refusal":null,"x":1},"logprobs":{"content":[]},"finish_reason":"stop","y":1}],"z":1}`,
		`{"created":1,"data":[{"url":"u","x":1},{"b64_json":"AAAA","revised_prompt":"r"}],"usage":{"input_tokens":1,"output_tokens":2,"total_tokens":3,"x":1},"y":1}`,
		`{"object":"list","data":[{"object":"embedding","index":0,"embedding":[1,-0.5]},{"index":1,"embedding":"AACAPw=="}],"model":"m","usage":{"prompt_tokens":1,"total_tokens":1}}`,
		`{"id":"m","object":"model","created":1,"owned_by":"o","x":1}`,
	) {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		roundTripReply[llmhttp.ChatChunk](t, data)
		roundTripReply[llmhttp.ChatResponse](t, data)
		roundTrip[llmhttp.Message](t, data)
		roundTrip[llmhttp.ToolCall](t, data)
		roundTripReply[llmhttp.ToolCallDelta](t, data)
		roundTripReply[llmhttp.Usage](t, data)
		roundTripReply[llmhttp.ImageResponse](t, data)
		roundTripReply[llmhttp.EmbeddingResponse](t, data)
		roundTrip[llmhttp.StringList](t, data)
		if _, encoded, ok := roundTrip[llmhttp.Part](t, data); ok {
			keepsMembers(t, data, encoded)
		}
		if _, encoded, ok := roundTrip[llmhttp.Tool](t, data); ok {
			keepsMembers(t, data, encoded)
		}
		if _, encoded, ok := roundTripReply[llmhttp.Model](t, data); ok && jsontext.Value(data).IsValid() {
			keepsMembers(t, without(data, "object", "created"), encoded)
		}
	})
}

// without returns data without members that are not kept as they are.
func without(data []byte, names ...string) []byte {
	var o map[string]json.RawMessage
	if json.Unmarshal(data, &o) != nil {
		return data
	}
	for _, name := range names {
		delete(o, name)
	}
	b, _ := json.Marshal(o)
	return b
}

// FuzzStream makes chunks of data and reads the stream that comes of them.
func FuzzStream(f *testing.F) {
	f.Add([]byte{0})
	f.Add([]byte("\x05 a plain text has all kinds of bytes that make chunks"))
	for seed := range byte(16) {
		data := make([]byte, 200)
		x := uint32(seed) + 1
		for i := range data {
			x = x*1664525 + 1013904223
			data[i] = byte(x >> 24)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 2000 {
			return
		}
		checkScript(t, data)
	})
}
