package llm_test

import (
	"cmp"
	"encoding/json"
	"slices"
	"testing"

	"github.com/llmhttp/llmhttp/internal/codectest"
	"github.com/llmhttp/llmhttp/internal/jsontest"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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
	`{"model":"m","model":"n"}`, `{"model":"\ud83d\ude00\u2028"}`, "{\"model\":\"\xff\"}", `{"n":1.5}`, `{"stop":[["a"]]}`, `{"messages":[{"content":[{"type":"text"}]}]}`,
}

func FuzzDecodeRequest(f *testing.F) {
	for _, s := range requestSeeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if r, encoded, ok := codectest.RoundTrip[llm.ChatRequest](t, data); ok {
			codectest.KeepsMembers(t, data, encoded)
			for _, m := range r.Messages {
				for i := range m.ToolCalls {
					c := &m.ToolCalls[i]
					c.Type = cmp.Or(c.Type, "function")
					if c.Type == "function" || c.Function.Name != "" || len(c.Function.Extra) > 0 {
						c.Function.Arguments = cmp.Or(c.Function.Arguments, "{}")
					}
				}
			}
			codectest.SameValue(t, r, encoded)
		}
		if r, encoded, ok := codectest.RoundTrip[llm.ImageRequest](t, data); ok {
			codectest.KeepsMembers(t, data, encoded)
			codectest.SameValue(t, r, encoded)
		}
		if r, encoded, ok := codectest.RoundTrip[llm.EmbeddingRequest](t, data); ok {
			codectest.KeepsMembers(t, data, encoded)
			codectest.SameValue(t, r, encoded)
		}
	})
}

func FuzzContent(f *testing.F) {
	for _, s := range []string{`null`, `"a"`, `""`, `[]`, `[{"type":"text","text":"a"}]`, `[{"type":"text","text":""}]`, `[{"type":"text","text":"a","x":1}]`,
		`[{"type":"text","text":"a"},{"type":"text","text":"b"}]`, `[{"type":"image_url","image_url":{"url":"u"}}]`, `[{"type":"odd","odd":{"a":1}}]`,
		`[{"type":"odd","text":5}]`, `[{"type":"odd","image_url":"u"}]`, `[{}]`, `[null]`, `7`, `{}`, `"\ud83d\ude00"`, `[{"type":"text","text":null}]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, encoded, ok := codectest.RoundTrip[llm.Content](t, data)
		if !ok {
			return
		}
		codectest.KeepsMembers(t, data, encoded)
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
		`{"id":"m","object":"model","created":1,"owned_by":"o","x":1}`,
		`{"id":"m","name":"M","display_name":"N","context_length":9,"max_model_len":8,"meta":{"n_ctx":7,"n_ctx_train":9},"architecture":{"input_modalities":["image"]},"top_provider":{"context_length":6,"max_completion_tokens":5},"supported_parameters":["tools","reasoning"]}`,
		`{"id":"m","max_input_tokens":4,"max_output_tokens":3,"supports_function_calling":true,"supports_vision":false,"supports_reasoning":null,"mode":"chat","capabilities":{"x":1}}`,
	) {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		codectest.RoundTripReply[llm.ChatChunk](t, data)
		codectest.RoundTripReply[llm.ChatResponse](t, data)
		codectest.RoundTrip[llm.Message](t, data)
		codectest.RoundTrip[llm.ToolCall](t, data)
		codectest.RoundTripReply[llm.ToolCallDelta](t, data)
		codectest.RoundTripReply[llm.Usage](t, data)
		codectest.RoundTripReply[llm.ImageResponse](t, data)
		codectest.RoundTripReply[llm.EmbeddingResponse](t, data)
		codectest.RoundTrip[llm.StringList](t, data)
		if _, encoded, ok := codectest.RoundTrip[llm.Part](t, data); ok {
			codectest.KeepsMembers(t, data, encoded)
		}
		if _, encoded, ok := codectest.RoundTrip[llm.Tool](t, data); ok {
			codectest.KeepsMembers(t, data, encoded)
		}
		if _, encoded, ok := codectest.RoundTripReply[llm.Model](t, data); ok && jsontest.IsStrict(data) {
			// object is a constant, and numbers may lose a fraction. What other members tell takes
			// the place of values that a field cannot hold.
			codectest.KeepsMembers(t, withoutMembers(data, "object", "created", "name", "context_length", "max_output_tokens", "capabilities"), encoded)
		}
	})
}

// withoutMembers returns an object without some of its members.
func withoutMembers(data []byte, names ...string) []byte {
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
