package llm_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/internal/largebody"
	"github.com/llmhttp/llmhttp/llm"
)

// Replies of other servers are decoded leniently, as the documentation of
// ChatChunk says.
func TestJSON_LenientChunk(t *testing.T) {
	const head, choice = `{"id":"","object":"chat.completion.chunk","created":0,"model":"",`, `"choices":[{"index":0,"delta":`
	for name, test := range map[string]struct{ doc, want string }{
		"plain": {`{"id":"x","object":"chat.completion.chunk","created":5,"model":"m","choices":[{"index":1,"delta":{"content":"Hi"},"finish_reason":null}]}`,
			`{"id":"x","object":"chat.completion.chunk","created":5,"model":"m","choices":[{"index":1,"delta":{"content":"Hi"},"finish_reason":null}]}`},
		"members of a vendor": {`{"choices":[{"delta":{"reasoning":"r","x":{"a":[1,null]}},"logprobs":{"content":[]},"y":1}],"service_tier":"default","system_fingerprint":null}`,
			head + choice + `{"reasoning":"r","x":{"a":[1,null]}},"finish_reason":null,"logprobs":{"content":[]},"y":1}],"service_tier":"default","system_fingerprint":null}`},
		"null everywhere": {`{"id":null,"object":null,"created":null,"model":null,"choices":[{"index":null,"delta":{"role":null,"content":null,"reasoning_content":null,"reasoning_details":null,"tool_calls":null,"refusal":null},"logprobs":null,"finish_reason":null,"stop_reason":null}],"usage":null}`,
			head + choice + `{},"finish_reason":null}]}`},
		"null choices": {`{"choices":null}`, head + `"choices":[]}`},
		"null delta":   {`{"choices":[{"delta":null},null,5]}`, head + choice + `{},"finish_reason":null}]}`},
		"no index": {`{"choices":[null,{"index":null,"delta":{"content":"a"}},{"index":[],"delta":{"tool_calls":[null,{"id":"b"}]}}]}`,
			head + choice + `{"content":"a"},"finish_reason":null},{"index":1,"delta":{"tool_calls":[{"index":0,"id":"b"}]},"finish_reason":null}]}`},
		"empty": {`{}`, head + `"choices":[]}`},
		"wrong scalars": {`{"id":17,"object":7,"created":"1755137933","model":3.5,"choices":[{"index":"2","delta":{"content":7},"finish_reason":""}]}`,
			`{"id":"17","object":"chat.completion.chunk","created":1755137933,"model":"3.5","choices":[{"index":2,"delta":{"content":"7"},"finish_reason":null}]}`},
		"wrong containers": {`{"id":["a"],"choices":{},"usage":7}`, strings.Replace(head, `"id":""`, `"id":"[\"a\"]"`, 1) + `"choices":[]}`},
		"wrong containers within": {`{"choices":[{"delta":[],"finish_reason":{}},{"delta":{"tool_calls":{},"reasoning_details":"x"}},{"delta":{"tool_calls":[{"function":5}]}}]}`,
			head + choice + `{},"finish_reason":"{}"},{"index":1,"delta":{},"finish_reason":null},{"index":2,"delta":{"tool_calls":[{"index":0}]},"finish_reason":null}]}`},
		"fraction of a second": {`{"created":1755137933.75}`, strings.Replace(head, `"created":0`, `"created":1755137933`, 1) + `"choices":[]}`},
		"time out of range":    {`{"created":1e300}`, head + `"choices":[]}`},
		"usage": {`{"choices":[],"usage":{"prompt_tokens":12.0,"completion_tokens":"3","total_tokens":null,"prompt_tokens_details":{"cached_tokens":"4"},"completion_tokens_details":null}}`,
			head + `"choices":[],"usage":{"prompt_tokens":12,"completion_tokens":3,"total_tokens":15,"prompt_tokens_details":{"cached_tokens":4}}}`},
		"usage of zeros":   {`{"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}}`, head + `"choices":[]}`},
		"usage below zero": {`{"usage":{"prompt_tokens":-1,"completion_tokens":-1,"total_tokens":-1}}`, head + `"choices":[]}`},
		"tool calls": {`{"choices":[{"delta":{"tool_calls":[{"index":2,"id":"call_1","type":"function","function":{"name":"f","arguments":"{","z":1},"w":true},{"function":{"arguments":null}},null]}}]}`,
			head + choice + `{"tool_calls":[{"index":2,"id":"call_1","type":"function","function":{"name":"f","arguments":"{","z":1},"w":true},{"index":1}]},"finish_reason":null}]}`},
		"arguments that are an object": {`{"choices":[{"delta":{"tool_calls":[{"id":"a","type":null,"function":{"name":"f","arguments":{"a": 1}}}]}}]}`,
			head + choice + `{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"a\": 1}"}}]},"finish_reason":null}]}`},
		"content in parts": {`{"choices":[{"delta":{"content":[{"type":"thinking","thinking":[]},{"type":"text","text":"a"},null,{"type":"text","text":"b"},5]}}]}`,
			head + choice + `{"content":"ab","content_parts":[{"type":"thinking","thinking":[]},5]},"finish_reason":null}]}`},
		"whole reply": {`{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"Hi","reasoning_content":"so","refusal":null,"annotations":[],"tool_calls":[{"index":9,"id":"a","type":"function","function":{"name":"f","arguments":{}}},{"id":"b","type":"x","x":1}]},"logprobs":null,"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":1}}`,
			head + choice + `{"role":"assistant","reasoning_content":"so","content":"Hi","tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":"{}"}},{"index":1,"id":"b","type":"x","x":1}],"annotations":[]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":1,"completion_tokens":0,"total_tokens":1}}`},
		"whole reply in parts": {`{"choices":[{"message":{"content":[{"type":"text","text":"a"}]}},{"message":"x"}]}`,
			head + choice + `{"content":"a"},"finish_reason":null},{"index":1,"delta":{},"finish_reason":null}]}`},
		"stop token": {`{"choices":[{"delta":{},"finish_reason":"stop","stop_reason":128001}]}`, head + choice + `{},"finish_reason":"stop"}]}`},
		"duplicate names": {`{"id":"a","id":"b","x":{"y":1,"y":2},"choices":[{"delta":{"content":"a","content":"b"}}]}`,
			`{"id":"b","object":"chat.completion.chunk","created":0,"model":"",` + choice + `{"content":"b"},"finish_reason":null}],"x":{"y":1}}`},
		"bytes that are not UTF-8": {"{\"choices\":[{\"delta\":{\"content\":\"a\xffb\",\"x\xff\":[\"\xff\"]}}]}",
			head + choice + "{\"content\":\"a\ufffdb\",\"x\ufffd\":[\"\ufffd\"]},\"finish_reason\":null}]}"},
		"halves of surrogate pairs": {`{"x":"\ud83d","choices":[{"delta":{"content":"a\ud83db","x":{"a":"\ude42"}},"y":["\ud83d"]}]}`,
			head + choice + "{\"content\":\"a\ufffdb\",\"x\":{\"a\":\"\ufffd\"}},\"finish_reason\":null,\"y\":[\"\ufffd\"]}],\"x\":\"\ufffd\"}"},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, reencode[llm.ChatChunk](t, test.doc))
		})
	}
	for _, doc := range []string{``, `{`, `[]`, `"a"`, `5`, `{"choices":[{"delta":{"content":"a`, `{"id":"a"}{"id":"b"}`, `data: {}`, "\x00", strings.Repeat(`{"a":`, 10_000), `{"a":` + strings.Repeat("[", 600) + strings.Repeat("]", 600) + `}`} {
		t.Run(fmt.Sprintf("refused/%.20q", doc), func(t *testing.T) {
			assert.Error(t, new(llm.ChatChunk).UnmarshalJSON([]byte(doc)))
		})
	}
}

func TestJSON_LenientReplies(t *testing.T) {
	response := reencode[llm.ChatResponse](t, `{"id":5,"created":"7","choices":[{"message":{"role":"assistant","content":{"a":1},"tool_calls":[{"id":"c","function":{"name":"f","arguments":{"b":2}}},null]},"finish_reason":null,"stop_reason":7,"logprobs":null},null,{"message":{"content":[{"type":"text","text":"a"},5,{"type":"text"}]}}],"usage":{"prompt_tokens":"1"},"x":"\ud83d"}`)
	assert.Equal(t, `{"id":"5","object":"chat.completion","created":7,"model":"","choices":[`+
		`{"index":0,"message":{"role":"assistant","content":"{\"a\":1}","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{\"b\":2}"}}],"refusal":null},"logprobs":null,"finish_reason":null},`+
		`{"index":1,"message":{"role":"","content":[{"type":"text","text":"a"},{"type":"text","text":""}],"refusal":null},"logprobs":null,"finish_reason":null}],`+
		`"usage":{"prompt_tokens":1,"completion_tokens":0,"total_tokens":1},"x":"`+"\ufffd"+`"}`, response)

	images := reencode[llm.ImageResponse](t, `{"created":1.5,"data":[null,{"url":5,"b64_json":"AAE="}],"usage":{"input_tokens":1.0,"output_tokens":"2"}}`)
	assert.Equal(t, `{"created":1,"data":[{"url":"5","b64_json":"AAE="}],"usage":{"input_tokens":1,"output_tokens":2,"total_tokens":3}}`, images)
	assert.Error(t, new(llm.ImageResponse).UnmarshalJSON([]byte(`{"data":[{"b64_json":"no base64!"}]}`)))

	embeddings := reencode[llm.EmbeddingResponse](t, `{"model":null,"data":[{"index":1,"embedding":[1,0.5]},{"index":0,"embedding":"AACAPw=="},{"embedding":[]}],"usage":{"prompt_tokens":2,"completion_tokens":0,"total_tokens":2}}`)
	assert.Equal(t, `{"object":"list","data":[{"object":"embedding","index":0,"embedding":[1]},{"object":"embedding","index":1,"embedding":[1,0.5]},{"object":"embedding","index":2,"embedding":[]}],"model":"","usage":{"prompt_tokens":2,"total_tokens":2}}`, embeddings)
	for _, doc := range []string{`{"data":[{"index":-1,"embedding":[]}]}`, `{"data":[{"index":2048,"embedding":[]}]}`, `{"data":[{"embedding":"AAA="}]}`, `{"data":[{"embedding":"?"}]}`, `{"data":[{"embedding":["a"]}]}`} {
		assert.Error(t, new(llm.EmbeddingResponse).UnmarshalJSON([]byte(doc)), doc)
	}

	model := reencode[llm.Model](t, `{"id":"m","created":"5","owned_by":{"n":1},"meta":2}`)
	assert.Equal(t, `{"id":"m","object":"model","created":5,"owned_by":"","meta":2}`, model)
}

// An error that a server sends in place of a reply is kept in Extra, and is not encoded.
func TestJSON_ErrorInPlaceOfAReply(t *testing.T) {
	for doc, want := range map[string]string{
		`{"error":{"message":"m"}}`:                         `{"message":"m"}`,
		`{"id":"a","choices":[],"error":"text"}`:            `"text"`,
		`{"object":"error","message":"m","code":400}`:       `{"code":400,"message":"m"}`,
		`{"message":"m","code":"\ud83d","object":"error"}`:  `{"code":"` + "\ufffd" + `","message":"m"}`,
		`{"error":null,"object":"chat.completion.chunk"}`:   `null`,
		`{"object":"chat.completion.chunk","message":"ok"}`: ``,
	} {
		var c llm.ChatChunk
		require.NoError(t, c.UnmarshalJSON([]byte(doc)))
		assert.Equal(t, want, string(c.Extra["error"]), doc)
		b, err := json.Marshal(c)
		require.NoError(t, err)
		assert.NotContains(t, string(b), "error")
	}
}

// The memory for content in parts is linear in its length.
func TestJSON_ContentInManyParts(t *testing.T) {
	const parts = 2000
	text := strings.Repeat("a", 1<<10)
	body := []byte(`{"choices":[{"delta":{"content":[` + strings.Repeat(`{"type":"text","text":"`+text+`"},`, parts-1) + `{"type":"text","text":"` + text + `"}]}}]}`)
	var c llm.ChatChunk
	megabytes := largebody.Allocated(func() { require.NoError(t, c.UnmarshalJSON(body)) })
	assert.True(t, c.Choices[0].Delta.Content == strings.Repeat(text, parts))
	assert.Less(t, megabytes, uint64(50))
}
