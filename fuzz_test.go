package llmhttp_test

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/llmhttp/llmhttp/internal/jsontest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

// A codec is a type of the API that encodes and decodes itself.
type codec[T any] interface {
	*T
	json.Marshaler
	json.Unmarshaler
}

// roundTrip decodes and encodes a type that clients send. What is accepted must be
// strictly JSON.
func roundTrip[T any, P codec[T]](t testing.TB, data []byte) (v P, encoded []byte, ok bool) {
	t.Helper()
	v, encoded, ok = roundTripReply[T, P](t, data)
	require.True(t, !ok || jsontest.IsStrict(data), "accepted, but not strictly JSON: %q", data)
	return v, encoded, ok
}

// roundTripReply decodes and encodes a type that upstreams send, which is decoded
// leniently. It must be encoded as strict JSON, and decoding and encoding it once more
// must not change it.
func roundTripReply[T any, P codec[T]](t testing.TB, data []byte) (v P, encoded []byte, ok bool) {
	t.Helper()
	v = new(T)
	if v.UnmarshalJSON(data) != nil {
		return nil, nil, false
	}
	encoded, err := v.MarshalJSON()
	require.NoError(t, err, "%q", data)
	require.True(t, jsontest.IsStrict(encoded), "%q is encoded as %q", data, encoded)
	again := P(new(T))
	require.NoError(t, again.UnmarshalJSON(encoded), "%q is encoded as %q", data, encoded)
	twice, err := again.MarshalJSON()
	require.NoError(t, err)
	require.Equal(t, string(encoded), string(twice), "%q", data)
	return v, encoded, true
}

// keepsMembers fails t if a member of in is missing in out, or has another value there.
func keepsMembers(t testing.TB, in, out []byte) {
	t.Helper()
	var a, b any
	if json.Unmarshal(in, &a) == nil && json.Unmarshal(out, &b) == nil {
		keepsValue(t, a, b, "")
	}
}

func keepsValue(t testing.TB, a, b any, path string) {
	t.Helper()
	switch a := a.(type) {
	case map[string]any:
		object, ok := b.(map[string]any)
		require.True(t, ok || len(a) == 0, "%s has become %v", path, b)
		for name, v := range a {
			w, ok := object[name]
			require.True(t, ok || isEmpty(v), "%s.%s is lost", path, name)
			if ok {
				keepsValue(t, v, w, path+"."+name)
			}
		}
	case []any:
		list, ok := b.([]any)
		if !ok {
			return // a list of one string, or content of one text, becomes a string
		}
		require.Len(t, list, len(a), path)
		for i := range a {
			keepsValue(t, a[i], list[i], path+"[]")
		}
	case string:
		if s, ok := b.(string); ok && a != "" { // an empty type may stand for the default
			require.Equal(t, a, s, path)
		}
	case float64:
		if f, ok := b.(float64); ok {
			require.Equal(t, a, f, path)
		}
	}
}

// isEmpty reports whether a member with the value v may be left out.
func isEmpty(v any) bool {
	list, isList := v.([]any)
	return v == nil || (isList && len(list) == 0) || reflect.DeepEqual(v, "") || reflect.DeepEqual(v, false)
}

var requestSeeds = []string{
	`{}`, `null`, `[]`, `{"model":null,"messages":null}`,
	`{"messages":[{"role":"assistant","tool_calls":[]}],"tools":[],"stop":[]}`,
	`{"model":"m","messages":[{"role":"user","content":"hi"}]}`,
	`{"model":"m","messages":[{"role":"system","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"u","detail":"low","x":1}},{"type":"input_audio","input_audio":{"data":"","format":"wav"}},{"type":"odd","text":"t"}],"name":"n","x":{"y":[1]}}],"n":2.0,"stop":["a"],"temperature":1e0,"top_p":0,"max_tokens":1,"max_completion_tokens":2,"presence_penalty":-2,"frequency_penalty":2,"stream":true,"stream_options":{"include_usage":true,"include_obfuscation":false},"response_format":{"type":"json_schema","json_schema":{"name":"a"}},"tools":[{"type":"function","strict":true,"function":{"name":"f","description":"d","parameters":{"type":"object"},"strict":null}},{"type":"custom","custom":{}}],"tool_choice":{"type":"function","function":{"name":"f"}},"seed":7,"Model":"x"}`,
	`{"messages":[{"role":"assistant","content":null,"reasoning_content":"r","refusal":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}","x":1},"y":2},{"id":"d","type":"custom","custom":{"name":"g"}}]},{"role":"tool","tool_call_id":"c","content":[]}],"stop":"x","tool_choice":"auto"}`,
	`{"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"f","x":1}},{"type":"custom","custom":{"name":"g"}},{"type":"mcp","function":1}]},"x":2},"response_format":{"type":"json_schema","json_schema":{"name":"n","description":"d","schema":{},"strict":true,"x":1}}}`,
	`{"model":"m","prompt":"p","n":1,"size":"256x256","quality":"hd","response_format":"url","style":"vivid","user":null}`,
	`{"model":"m","input":["a","b"],"dimensions":3,"encoding_format":"base64","user":"u"}`,
	`{"model":"m","input":[[1,2],[3]]}`,
	`{"model":"m","query":"q","documents":["a",{"text":"b","x":[1]},{"image":"data:,"}],"top_n":2,"return_documents":true,"rank_fields":["x"]}`,
	`{"model":"m","model":"n"}`, `{"model":"\ud83d\ude00\u2028"}`, "{\"model\":\"\xff\"}", `{"n":1.5}`, `{"stop":[["a"]]}`, `{"messages":[{"content":[{"type":"text"}]}]}`,
}

func FuzzDecodeRequest(f *testing.F) {
	for _, s := range requestSeeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if r, encoded, ok := roundTrip[llm.ChatRequest](t, data); ok {
			keepsMembers(t, data, encoded)
			for _, m := range r.Messages {
				for i := range m.ToolCalls {
					if c := &m.ToolCalls[i]; c.Type == "" {
						c.Type = "function"
					}
				}
			}
			sameValue(t, r, encoded)
		}
		if r, encoded, ok := roundTrip[llm.ImageRequest](t, data); ok {
			keepsMembers(t, data, encoded)
			sameValue(t, r, encoded)
		}
		if r, encoded, ok := roundTrip[llm.EmbeddingRequest](t, data); ok {
			keepsMembers(t, data, encoded)
			sameValue(t, r, encoded)
		}
		if r, encoded, ok := roundTrip[llmhttp.SpeechRequest](t, data); ok {
			keepsMembers(t, data, encoded)
			sameValue(t, r, encoded)
		}
		if r, encoded, ok := roundTrip[llmhttp.RerankRequest](t, data); ok {
			keepsMembers(t, data, encoded)
			sameValue(t, r, encoded)
		}
		if r, encoded, ok := roundTrip[llmhttp.CompletionRequest](t, data); ok {
			keepsMembers(t, data, encoded)
			sameValue(t, r, encoded)
		}
		if r, encoded, ok := roundTrip[llmhttp.ModerationRequest](t, data); ok {
			keepsMembers(t, data, encoded)
			sameValue(t, r, encoded)
		}
	})
}

// sameValue fails t unless encoded decodes to v. Empty lists are as good as none. It changes v.
func sameValue[T any](t testing.TB, v *T, encoded []byte) {
	t.Helper()
	again := new(T)
	require.NoError(t, json.Unmarshal(encoded, again))
	normalize(reflect.ValueOf(v).Elem())
	normalize(reflect.ValueOf(again).Elem())
	require.Equal(t, again, v, "%q", encoded)
}

var rawType = reflect.TypeFor[json.RawMessage]()

// normalize replaces each raw JSON value in v by the form in which it is encoded, and each empty
// list by nil.
func normalize(v reflect.Value) {
	compact := func(raw json.RawMessage) json.RawMessage {
		b, err := llm.Tool{Extra: llm.Extra{"x": raw}}.MarshalJSON()
		if err != nil {
			return raw
		}
		return json.RawMessage(b[len(`{"type":"","x":`) : len(b)-1])
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			normalize(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			normalize(v.Field(i))
		}
	case reflect.Slice:
		if v.Type() == rawType {
			if !v.IsNil() {
				v.Set(reflect.ValueOf(compact(v.Bytes())))
			}
			return
		}
		if v.Len() == 0 {
			v.SetZero()
		}
		for i := range v.Len() {
			normalize(v.Index(i))
		}
	case reflect.Map:
		if v.Type() == reflect.TypeFor[llm.Extra]() {
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
		c, encoded, ok := roundTrip[llm.Content](t, data)
		if !ok {
			return
		}
		keepsMembers(t, data, encoded)
		var again llm.Content
		require.NoError(t, json.Unmarshal(encoded, &again))
		assert.Equal(t, c.Text(), again.Text())
		assert.Len(t, again, len(*c))
		assert.Equal(t, *c == nil, again == nil)
	})
}

// FuzzExtraRoundTrip decodes and encodes what Backends yield and clients get. Members
// that the types do not declare must be kept.
func FuzzExtraRoundTrip(f *testing.F) {
	for _, s := range append(slices.Clone(requestSeeds),
		`{"id":"i","object":"chat.completion.chunk","created":1.7e9,"model":"m","choices":[{"index":1,"delta":{"role":"assistant","content":"a","reasoning_content":"r","tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"f","arguments":"{}","x":1},"y":2}],"z":3},"finish_reason":null,"logprobs":null}],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3,"details":{"a":1}},"error":null,"w":[]}`,
		`{"id":"i","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"a","refusal":null,"x":1},"logprobs":{"content":[]},"finish_reason":"stop","y":1}],"z":1}`,
		`{"created":1,"data":[{"url":"u","x":1},{"b64_json":"AAAA","revised_prompt":"r"}],"usage":{"input_tokens":1,"output_tokens":2,"total_tokens":3,"x":1},"y":1}`,
		`{"object":"list","data":[{"object":"embedding","index":0,"embedding":[1,-0.5]},{"index":1,"embedding":"AACAPw=="}],"model":"m","usage":{"prompt_tokens":1,"total_tokens":1}}`,
		`{"id":"r","object":"list","model":"m","results":[{"index":1,"relevance_score":0.5,"document":{"text":"b"}},{"index":0,"relevance_score":1e-9,"document":"a","x":1}],"usage":{"total_tokens":3},"meta":{"billed_units":{"search_units":1.0},"tokens":{"input_tokens":3}},"y":1}`,
		`{"id":"i","model":"m","results":[{"index":0,"relevance_score":1,"flagged":true,"categories":{"hate":true,"x":null},"category_scores":{"hate":1e-9},"category_applied_input_types":{"hate":["text"]},"x":1}],"y":1}`,
		`{"id":"m","object":"model","created":1,"owned_by":"o","x":1}`,
		`{"id":"m","name":"M","display_name":"N","context_length":9,"max_model_len":8,"meta":{"n_ctx":7,"n_ctx_train":9},"architecture":{"input_modalities":["image"]},"top_provider":{"context_length":6,"max_completion_tokens":5},"supported_parameters":["tools","reasoning"]}`,
		`{"id":"m","max_input_tokens":4,"max_output_tokens":3,"supports_function_calling":true,"supports_vision":false,"supports_reasoning":null,"mode":"chat","capabilities":{"x":1}}`,
	) {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		roundTripReply[llm.ChatChunk](t, data)
		roundTripReply[llm.ChatResponse](t, data)
		roundTrip[llm.Message](t, data)
		roundTrip[llm.ToolCall](t, data)
		roundTripReply[llm.ToolCallDelta](t, data)
		roundTripReply[llm.Usage](t, data)
		roundTripReply[llm.ImageResponse](t, data)
		roundTripReply[llm.EmbeddingResponse](t, data)
		roundTripReply[llmhttp.RerankResponse](t, data)
		roundTripReply[llmhttp.ModerationResponse](t, data)
		roundTrip[llm.StringList](t, data)
		if _, encoded, ok := roundTrip[llm.Part](t, data); ok {
			keepsMembers(t, data, encoded)
		}
		if _, encoded, ok := roundTrip[llm.Tool](t, data); ok {
			keepsMembers(t, data, encoded)
		}
		if _, encoded, ok := roundTripReply[llm.Model](t, data); ok && jsontest.IsStrict(data) {
			// object is a constant, and numbers may lose a fraction. What other members tell takes
			// the place of values that a field cannot hold.
			keepsMembers(t, withoutMembers(data, "object", "created", "name", "context_length", "max_output_tokens", "capabilities"), encoded)
		}
	})
}

// withoutMembers returns an object without some of its members.
func withoutMembers(data []byte, names ...string) []byte {
	var o object
	if json.Unmarshal(data, &o) != nil {
		return data
	}
	for _, name := range names {
		delete(o, name)
	}
	b, _ := json.Marshal(o)
	return b
}

// FuzzBearer sends arbitrary Authorization headers. Each must cause one lookup of a
// secret that it contains, or an error that does not quote it.
func FuzzBearer(f *testing.F) {
	const maxSecret = 4096
	for _, s := range []string{"", "Bearer", "Bearer ", "Bearer sk-1", "bearer sk-1", "BEARER  sk-1 ", "Basic dXNlcjpw", "sk-1",
		"Bearer a b", "Bearer \t", "Bearer\tsk-1", " Bearer sk-1", "Bearer ü", "Bearer \xff", "Bearer sk\x00", "Bearer \x7f",
		"Bearer " + strings.Repeat("x", maxSecret), "Bearer " + strings.Repeat("x", maxSecret+1), "bEaReR \u212a", "Bearer, Bearer x", "Bearer " + llmhttp.Anonymous} {
		f.Add(s, "", false)
		f.Add(s, s, true)
	}
	var lookups []string
	h := llmhttp.NewHandler(new(stubBackend), llmhttp.KeyStoreFunc(func(_ context.Context, secret string) (*llmhttp.Key, error) {
		if secret != llmhttp.Anonymous {
			lookups = append(lookups, secret)
		}
		return nil, llmhttp.ErrKeyNotFound
	}), nil)
	lookup := func(t *testing.T, headers ...string) []string {
		lookups = nil
		r := newChatRequest(chatBody)
		r.Header["Authorization"] = headers
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		e := readReply(w.Result()).checkError(t, 401)
		if e.Code == "" {
			assert.True(t, strings.HasPrefix(e.Message, "You didn't provide an API key."), e.Message)
			assert.Empty(t, lookups)
		} else {
			assert.Equal(t, "Incorrect API key provided.", e.Message)
		}
		return lookups
	}
	f.Fuzz(func(t *testing.T, header, other string, two bool) {
		headers := []string{header}
		if two {
			headers = append(headers, other)
		}
		secrets := lookup(t, headers...)
		if len(secrets) == 0 {
			return
		}
		require.Len(t, secrets, 1)
		secret := secrets[0]
		require.False(t, two, "one of two headers was chosen")
		require.LessOrEqual(t, len(secret), maxSecret)
		require.False(t, strings.ContainsFunc(secret, func(r rune) bool { return r <= ' ' || r > '~' }), "%q", secret)
		scheme, rest, _ := strings.Cut(header, " ")
		require.Len(t, scheme, len("bearer")) // EqualFold alone would accept other letters
		require.True(t, strings.EqualFold(scheme, "bearer"))
		require.Equal(t, strings.Trim(rest, " "), secret)
		require.Equal(t, []string{secret}, lookup(t, "Bearer "+secret))
	})
}
