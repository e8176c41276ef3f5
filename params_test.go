package llmhttp_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
)

// goWords are those that the standard library, or this package, would say of a
// fault, and that tell a client nothing.
var goWords = regexp.MustCompile(`json:|Unmarshal|strconv|EOF|invalid character|unexpected end|cannot|float64|\bint\b|struct|Go |nil|panic|runtime|llmhttp|jsonwire|unexpected|parsing|0x[0-9a-f]{6}|<nil>|%!|RawMessage|\*`)

// checkWords checks that a message is fit for a client.
func checkWords(t testing.TB, e fxErrorObject) {
	t.Helper()
	assert.Less(t, len(e.Message), 300, "%s", e.Message)
	assert.NotRegexp(t, goWords, e.Message)
	assert.Less(t, len(e.Param), 300)
}

// A seenBackend keeps the last request of each kind.
type seenBackend struct {
	fxBackend
	chats   atomic.Pointer[llmhttp.ChatRequest]
	drawn   atomic.Pointer[llmhttp.ImageRequest]
	vectors atomic.Pointer[llmhttp.EmbeddingRequest]
}

func (b *seenBackend) Chat(_ context.Context, r *llmhttp.ChatRequest) llmhttp.ChatStream {
	b.chats.Store(r)
	return llmhttp.Reply("Hello!")
}

func (b *seenBackend) GenerateImages(ctx context.Context, r *llmhttp.ImageRequest) (*llmhttp.ImageResponse, error) {
	b.drawn.Store(r)
	return b.fxBackend.GenerateImages(ctx, r)
}

func (b *seenBackend) Embed(ctx context.Context, r *llmhttp.EmbeddingRequest) (*llmhttp.EmbeddingResponse, error) {
	b.vectors.Store(r)
	return b.fxBackend.Embed(ctx, r)
}

const ok = "ok"

// The parameters of a chat, at, below and above their bounds.
func TestChatParams(t *testing.T) {
	const user = `{"role":"user","content":"x"}`
	messages := func(list string) string { return `{"model":"m","messages":` + list + `}` }
	message := func(m string) string { return messages("[" + user + "," + m + "]") }
	const tool = `{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}`
	const (
		missing   = "missing_required_parameter"
		typ       = "invalid_type"
		value     = "invalid_value"
		decHigh   = "decimal_above_max_value"
		decLow    = "decimal_below_min_value"
		intHigh   = "integer_above_max_value"
		intLow    = "integer_below_min_value"
		emptyList = "empty_array"
	)
	type row struct{ body, param, code string } // a code of ok is 200; "" is null
	tests := map[string][]row{
		"body": {
			{``, "", ""}, {` `, "", ""}, {`null`, "", typ}, {`[]`, "", typ}, {`"x"`, "", typ}, {`5`, "", typ}, {`true`, "", typ},
			{`{`, "", ""}, {`{}`, "model", missing}, {`{"model"}`, "", ""}, {`{"model":}`, "", ""}, {`{model:"m"}`, "", ""}, {`{'model':'m'}`, "", ""},
			{fxWhole + "x", "", ""}, {fxWhole + fxWhole, "", ""}, {fxWhole + ",", "", ""}, {fxWhole + "\n\n \t", "", ok}, {"\n " + fxWhole, "", ok},
			{fxWhole + "null", "", ""}, {"\ufeff" + fxWhole, "", ""}, {fxWhole + "\x00", "", ""}, {fxMember(`"a":1,`), "", ""}, {fxMember(`"a" 1`), "", ""},
			{fxMember(`"a":01`), "", ""}, {fxMember(`"a":+1`), "", ""}, {fxMember(`"a":.5`), "", ""}, {fxMember(`"a":1.`), "", ""}, {fxMember(`"a":0x1`), "", ""},
			{fxMember(`"a":NaN`), "", ""}, {fxMember(`"a":Infinity`), "", ""}, {fxMember(`"a":tru`), "", ""}, {fxMember(`"a":nul`), "", ""}, {fxMember(`"a":[1,]`), "", ""},
			{fxMember(`"a":1 /* comment */`), "", ""}, {fxMember(`// comment`), "", ""}, {fxMember(`"a":undefined`), "", ""},
			{fxMember(`"a":"` + "\x01" + `"`), "", ""}, {fxMember(`"a":"` + "\n" + `"`), "", ""}, {fxMember(`"a":"\x"`), "", ""}, {fxMember(`"a":"\u12"`), "", ""},
			{fxMember("\"a\":\"\xff\""), "", ""}, {fxMember("\"a\xff\":1"), "", ""}, {fxMember("\"a\":\"\xed\xa0\x80\""), "", ""}, {fxMember("\"a\":\"\xc0\x80\""), "", ""},
			{fxMember(`"a":"\ud800"`), "", ""}, {fxMember(`"a":"\udc00"`), "", ""}, {fxMember(`"a":"\udc00\ud800"`), "", ""}, {fxMember(`"a":"\ud800x"`), "", ""},
			{fxMember(`"a":"\ud83d\ude00"`), "", ok}, {fxMember(`"\ud83d":1`), "", ""},
			{messages("[{\"role\":\"user\",\"content\":\"\xff\"}]"), "", ""}, {messages(`[{"role":"user","content":"\ud800"}]`), "", ""},
			{`{"model":"m","model":"m","messages":[` + user + `]}`, "model", "duplicate_parameter"},
			{fxMember(`"x":1,"x":1`), "x", "duplicate_parameter"},
			{fxMember(`"x":{"y":[{"z":1,"z":2}]}`), "x.y[0].z", "duplicate_parameter"},
			{fxMember(`"x":1,"\u0078":1`), "x", "duplicate_parameter"},
			{message(`{"role":"user","content":"a","content":"b"}`), "messages[1].content", "duplicate_parameter"},
			{fxMember(`"x":1e999,"y":-0,"z":[1e-999,123456789012345678901234567890]`), "", ok},
		},
		"model": {
			{`{"messages":[` + user + `]}`, "model", missing}, {`{"model":null,"messages":[` + user + `]}`, "model", missing}, {`{"model":"","messages":[` + user + `]}`, "model", missing},
			{`{"model":5,"messages":[` + user + `]}`, "model", typ}, {`{"model":["m"],"messages":[` + user + `]}`, "model", typ}, {`{"model":{},"messages":[` + user + `]}`, "model", typ},
			{`{"Model":"m","messages":[` + user + `]}`, "model", missing},
		},
		"messages": {
			{`{"model":"m"}`, "messages", missing}, {messages(`null`), "messages", missing}, {messages(`[]`), "messages", emptyList}, {messages(`{}`), "messages", typ}, {messages(`"x"`), "messages", typ},
			{messages(`[null]`), "messages[0]", typ}, {messages(`["x"]`), "messages[0]", typ}, {messages(`[[]]`), "messages[0]", typ}, {messages(`[` + user + `,5]`), "messages[1]", typ},
			{messages(`[{}]`), "messages[0].role", missing}, {message(`{"content":"x"}`), "messages[1].role", missing}, {message(`{"role":null,"content":"x"}`), "messages[1].role", missing},
			{message(`{"role":5,"content":"x"}`), "messages[1].role", typ}, {message(`{"role":"","content":"x"}`), "messages[1].role", missing},
			{message(`{"role":"robot","content":"x"}`), "messages[1].role", value}, {message(`{"role":"User","content":"x"}`), "messages[1].role", value}, {message(`{"role":"user ","content":"x"}`), "messages[1].role", value},
			{message(`{"role":"system","content":"x"}`), "", ok}, {message(`{"role":"developer","content":"x"}`), "", ok}, {message(`{"role":"user","content":"x"}`), "", ok},
			{message(`{"role":"assistant","content":"x"}`), "", ok}, {message(`{"role":"function","name":"f","content":"x"}`), "", ok}, {messages(`[{"role":"developer","content":"x"}]`), "", ok},
			{message(`{"role":"tool","content":"x","tool_call_id":"c"}`), "", ok}, {message(`{"role":"tool","content":"x"}`), "messages[1].tool_call_id", missing},
			{message(`{"role":"tool","content":"x","tool_call_id":""}`), "messages[1].tool_call_id", missing}, {message(`{"role":"tool","content":"x","tool_call_id":null}`), "messages[1].tool_call_id", missing},
			{message(`{"role":"tool","content":"x","tool_call_id":7}`), "messages[1].tool_call_id", typ}, {message(`{"role":"tool","name":"f","content":[{"type":"text","text":"x"}],"tool_call_id":"c"}`), "", ok},
			{message(`{"role":"user"}`), "messages[1].content", typ}, {message(`{"role":"user","content":null}`), "messages[1].content", typ}, {message(`{"role":"user","content":""}`), "", ok},
			{message(`{"role":"assistant","content":null}`), "", ok}, {message(`{"role":"assistant"}`), "", ok}, {message(`{"role":"assistant","content":null,"refusal":"no"}`), "", ok},
			{message(`{"role":"user","content":5}`), "messages[1].content", typ}, {message(`{"role":"user","content":{}}`), "messages[1].content", typ}, {message(`{"role":"user","content":true}`), "messages[1].content", typ},
			{message(`{"role":"user","content":"x","name":5}`), "messages[1].name", typ}, {message(`{"role":"user","content":"x","name":null}`), "", ok}, {message(`{"role":"assistant","reasoning_content":5}`), "messages[1].reasoning_content", typ},
		},
		"parts": {
			{message(`{"role":"user","content":[]}`), "messages[1].content", emptyList}, {message(`{"role":"user","content":["x"]}`), "messages[1].content[0]", typ},
			{message(`{"role":"user","content":[null]}`), "messages[1].content[0]", typ}, {message(`{"role":"user","content":[{}]}`), "messages[1].content[0].type", missing},
			{message(`{"role":"user","content":[{"type":5}]}`), "messages[1].content[0].type", typ},
			{message(`{"role":"user","content":[{"type":"text","text":"a"},{"type":"text"}]}`), "messages[1].content[1].text", missing},
			{message(`{"role":"user","content":[{"type":"text","text":null}]}`), "messages[1].content[0].text", typ},
			{message(`{"role":"user","content":[{"type":"text","text":7}]}`), "messages[1].content[0].text", typ},
			{message(`{"role":"user","content":[{"type":"text","text":""}]}`), "", ok},
			{message(`{"role":"user","content":[{"type":"image_url"}]}`), "messages[1].content[0].image_url", missing},
			{message(`{"role":"user","content":[{"type":"image_url","image_url":null}]}`), "messages[1].content[0].image_url", missing},
			{message(`{"role":"user","content":[{"type":"image_url","image_url":"http://x"}]}`), "messages[1].content[0].image_url", typ},
			{message(`{"role":"user","content":[{"type":"image_url","image_url":{}}]}`), "messages[1].content[0].image_url.url", missing},
			{message(`{"role":"user","content":[{"type":"image_url","image_url":{"url":5}}]}`), "messages[1].content[0].image_url.url", typ},
			{message(`{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://x","detail":"low"}}]}`), "", ok},
			{message(`{"role":"user","content":[{"type":"input_audio"}]}`), "messages[1].content[0].input_audio", missing},
			{message(`{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"x","format":"wav"}}]}`), "", ok},
			{message(`{"role":"user","content":[{"type":"file"}]}`), "messages[1].content[0].file", missing},
			{message(`{"role":"user","content":[{"type":"file","file":{"file_id":"x"}}]}`), "", ok},
			{message(`{"role":"user","content":[{"type":"hologram","depth":3}]}`), "", ok},
		},
		"tool calls": {
			{message(`{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}`), "", ok},
			{message(`{"role":"assistant","tool_calls":null}`), "", ok}, {message(`{"role":"assistant","content":"x","tool_calls":[]}`), "", ok},
			{message(`{"role":"assistant","tool_calls":{}}`), "messages[1].tool_calls", typ}, {message(`{"role":"assistant","tool_calls":[5]}`), "messages[1].tool_calls[0]", typ},
			{message(`{"role":"assistant","tool_calls":[{"type":"function","function":{"name":"f"}}]}`), "messages[1].tool_calls[0].id", missing},
			{message(`{"role":"assistant","tool_calls":[{"id":"c","type":"function"}]}`), "messages[1].tool_calls[0].function.name", missing},
			{message(`{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":5}}]}`), "messages[1].tool_calls[0].function.name", typ},
			{message(`{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":{}}}]}`), "messages[1].tool_calls[0].function.arguments", typ},
			{message(`{"role":"assistant","tool_calls":[{"id":"c","type":"custom","custom":{"name":"f","input":"x"}}]}`), "", ok},
		},
		"stream": {
			{fxMember(`"stream":false`), "", ok}, {fxMember(`"stream":null`), "", ok}, {fxMember(`"stream":"true"`), "stream", typ}, {fxMember(`"stream":1`), "stream", typ}, {fxMember(`"stream":{}`), "stream", typ},
			{fxMember(`"stream_options":null`), "", ok}, {fxMember(`"stream_options":{}`), "", ok}, {fxMember(`"stream_options":{"include_usage":null,"include_obfuscation":false}`), "", ok},
			{fxMember(`"stream_options":{"include_usage":true}`), "", ok}, {fxMember(`"stream_options":{"include_usage":"yes"}`), "stream_options.include_usage", typ}, {fxMember(`"stream_options":true`), "stream_options", typ},
		},
		"stop": {
			{fxMember(`"stop":null`), "", ok}, {fxMember(`"stop":"x"`), "", ok}, {fxMember(`"stop":""`), "", ok}, {fxMember(`"stop":[]`), "", ok}, {fxMember(`"stop":[""]`), "", ok},
			{fxMember(`"stop":["a","b","c","d"]`), "", ok}, {fxMember(`"stop":["a","b","c","d","e"]`), "stop", "array_above_max_length"},
			{fxMember(`"stop":5`), "stop", typ}, {fxMember(`"stop":{}`), "stop", typ}, {fxMember(`"stop":["a",5]`), "stop[1]", typ}, {fxMember(`"stop":[null]`), "stop[0]", typ}, {fxMember(`"stop":[["a"]]`), "stop[0]", typ},
		},
		"response_format": {
			{fxMember(`"response_format":null`), "", ok}, {fxMember(`"response_format":{"type":"text"}`), "", ok}, {fxMember(`"response_format":{"type":"json_object"}`), "", ok},
			{fxMember(`"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{}}}`), "", ok},
			{fxMember(`"response_format":{"type":"json_schema"}`), "response_format.json_schema", missing}, {fxMember(`"response_format":{"type":"json_schema","json_schema":null}`), "response_format.json_schema", missing},
			{fxMember(`"response_format":{"type":"json_schema","json_schema":"x"}`), "response_format.json_schema", typ},
			{fxMember(`"response_format":{}`), "response_format.type", missing}, {fxMember(`"response_format":{"type":null}`), "response_format.type", missing}, {fxMember(`"response_format":{"type":"xml"}`), "response_format.type", value},
			{fxMember(`"response_format":{"type":5}`), "response_format.type", typ}, {fxMember(`"response_format":"json_object"`), "response_format", typ}, {fxMember(`"response_format":{"Type":"text"}`), "response_format.type", missing},
		},
		"tools": {
			{fxMember(`"tools":null`), "", ok}, {fxMember(`"tools":[]`), "", ok}, {fxMember(`"tools":[` + tool + `]`), "", ok}, {fxMember(`"tools":{}`), "tools", typ}, {fxMember(`"tools":[5]`), "tools[0]", typ},
			{fxMember(`"tools":[{}]`), "tools[0].type", missing}, {fxMember(`"tools":[{"type":5}]`), "tools[0].type", typ}, {fxMember(`"tools":[` + tool + `,{"type":"function"}]`), "tools[1].function", missing},
			{fxMember(`"tools":[{"type":"function","function":null}]`), "tools[0].function", missing}, {fxMember(`"tools":[{"type":"function","function":{}}]`), "tools[0].function.name", missing},
			{fxMember(`"tools":[{"type":"function","function":{"name":"f","parameters":[]}}]`), "tools[0].function.parameters", typ}, {fxMember(`"tools":[{"type":"function","function":{"name":"f","parameters":null}}]`), "", ok},
			{fxMember(`"tools":[{"type":"function","function":{"name":"f","parameters":{"foo":"bar"},"strict":true}}]`), "", ok}, {fxMember(`"tools":[{"type":"custom","custom":{"name":"x"}}]`), "", ok},
			{fxMember(`"tools":[{"type":"function","function":{"name":"f","description":5}}]`), "tools[0].function.description", typ},
		},
		"tool_choice": {
			{fxMember(`"tool_choice":null`), "", ok}, {fxMember(`"tool_choice":"none"`), "", ok}, {fxMember(`"tool_choice":"auto"`), "", ok}, {fxMember(`"tools":[` + tool + `],"tool_choice":"required"`), "", ok},
			{fxMember(`"tool_choice":"required"`), "tool_choice", value}, {fxMember(`"tool_choice":"any"`), "tool_choice", value}, {fxMember(`"tool_choice":""`), "tool_choice", value},
			{fxMember(`"tool_choice":5`), "tool_choice", typ}, {fxMember(`"tool_choice":[]`), "tool_choice", typ}, {fxMember(`"tool_choice":true`), "tool_choice", typ},
			{fxMember(`"tool_choice":{}`), "tool_choice.type", missing}, {fxMember(`"tool_choice":{"type":null}`), "tool_choice.type", missing},
			{fxMember(`"tool_choice":{"type":"function"}`), "tool_choice.function.name", missing},
			{fxMember(`"tools":[` + tool + `],"tool_choice":{"type":"function","function":{"name":"f"}}`), "", ok},
			{fxMember(`"tools":[` + tool + `],"tool_choice":{"type":"function","function":{"name":"g"}}`), "tool_choice", value},
			{fxMember(`"tools":[` + tool + `],"tool_choice":{"TYPE":"function","Function":{"NAME":"f"}}`), "tool_choice.type", missing},
			{fxMember(`"tools":[` + tool + `],"tool_choice":{"type":"function","function":{"NAME":"f"}}`), "tool_choice.function.name", missing},
			{fxMember(`"tool_choice":{"type":5}`), "tool_choice.type", typ},
			{fxMember(`"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[]}}`), "", ok},
		},
		"unknown": {
			{fxMember(`"Temperature":99`), "", ok}, {fxMember(`"MAX_TOKENS":-1`), "", ok}, {fxMember(`"seed":1.5`), "", ok}, {fxMember(`"logit_bias":{"foo":0}`), "", ok}, {fxMember(`"metadata":null`), "", ok},
			{fxMember(`"functions":[{"name":"f"}],"function_call":"none"`), "", ok}, {fxMember(`"audio":{"voice":"x","format":"wav"},"modalities":["text"]`), "", ok}, {fxMember(`"":1`), "", ok},
			{fxMember(`"logprobs":true,"top_logprobs":5`), "", ok}, {fxMember(`"prediction":{"type":"content","content":"x"},"web_search_options":{}`), "", ok},
		},
	}
	decimals := map[string][2]float64{"temperature": {0, 2}, "top_p": {0, 1}, "presence_penalty": {-2, 2}, "frequency_penalty": {-2, 2}}
	for name, b := range decimals {
		m := func(v string) string { return fxMember(`"` + name + `":` + v) }
		num := func(f float64) string { return fmt.Sprint(f) }
		tests[name] = []row{
			{m(num(b[0])), "", ok}, {m(num(b[1])), "", ok}, {m("null"), "", ok}, {m("0.5"), "", ok}, {m("1e0"), "", ok}, {m("-0.0"), "", ok}, {m("1e-400"), "", ok},
			{m(num(b[0] - 0.0001)), name, decLow}, {m(num(b[1] + 0.0001)), name, decHigh}, {m("1e30"), name, decHigh}, {m("-1e30"), name, decLow}, {m("1e999"), name, decHigh}, {m("-1e999"), name, decLow},
			{m("99999999999999999999"), name, decHigh}, {m("1" + strings.Repeat("0", 400)), name, decHigh}, {m(`"1"`), name, typ}, {m("true"), name, typ}, {m("[1]"), name, typ}, {m("{}"), name, typ}, {m(`""`), name, typ},
		}
	}
	for _, name := range []string{"max_tokens", "max_completion_tokens", "n"} {
		m := func(v string) string { return fxMember(`"` + name + `":` + v) }
		most := "9007199254740991"
		if name == "n" {
			most = "128"
		}
		tests[name] = []row{
			{m("1"), "", ok}, {m(most), "", ok}, {m("null"), "", ok}, {m("1.0"), "", ok}, {m("1e2"), "", ok}, {m("1.0e0"), "", ok}, {m("120e-1"), "", ok},
			{m("0"), name, intLow}, {m("-0"), name, intLow}, {m("-1"), name, intLow}, {m("-1e30"), name, intLow}, {m("1.5"), name, typ}, {m("0.5"), name, typ}, {m("1e30"), name, intHigh}, {m("1e999"), name, intHigh},
			{m("-1e999"), name, intLow}, {m("99999999999999999999"), name, intHigh}, {m("9223372036854775807"), name, intHigh}, {m("-9223372036854775808"), name, intLow}, {m("1" + strings.Repeat("0", 400)), name, intHigh},
			{m(`"1"`), name, typ}, {m("true"), name, typ}, {m("[1]"), name, typ}, {m("{}"), name, typ}, {m("1e-1"), name, typ},
		}
	}
	tests["n"] = append(tests["n"], row{fxMember(`"n":129`), "n", intHigh})

	s := fxStart(t, fxConfig{})
	for group, rows := range tests {
		t.Run(group, func(t *testing.T) {
			for _, tt := range rows {
				name := tt.body
				if strings.HasPrefix(name, strings.TrimSuffix(fxWhole, "}")) {
					name = name[len(fxWhole)-1:]
				}
				t.Run(fmt.Sprintf("%.60q", name), func(t *testing.T) {
					r := s.chat(tt.body, fxHeader("Content-Type", "application/json"))
					if tt.code == ok {
						assert.Equal(t, 200, r.StatusCode, "%s", r.body)
						return
					}
					e := r.checkError(t, 400)
					assert.Equal(t, "invalid_request_error", e.Type)
					assert.Equal(t, tt.param, e.Param, "%s", r.body)
					assert.Equal(t, tt.code, e.Code, "%s", r.body)
					checkWords(t, e)
				})
			}
		})
	}
}

// An explicit null is the default, and what was said reaches the Backend.
func TestChatReachesTheBackend(t *testing.T) {
	b := new(seenBackend)
	s := fxStart(t, fxConfig{backend: b})
	num := func(f float64) *float64 { return &f }
	integer := func(n int) *int { return &n }
	chat := func(members string) *llmhttp.ChatRequest {
		t.Helper()
		r := s.chat(fxMember(members))
		require.Equal(t, 200, r.StatusCode, "%s", r.body)
		return b.chats.Load()
	}
	plain := chat(`"stream":false`)
	assert.Equal(t, &llmhttp.ChatRequest{Model: "demo-chat", Messages: []llmhttp.Message{{Role: llmhttp.RoleUser, Content: llmhttp.Text("Hello, how are you?")}}}, plain)
	assert.Equal(t, plain, chat(`"temperature":null,"top_p":null,"max_tokens":null,"max_completion_tokens":null,"stream":null,"stop":null,"presence_penalty":null,"frequency_penalty":null,"n":null,"response_format":null,"tools":null,"tool_choice":null,"stream_options":null`))
	full := chat(`"temperature":0,"top_p":1,"max_tokens":5.0,"max_completion_tokens":7,"stop":["a",""],"presence_penalty":-2,"frequency_penalty":2.0,"n":1e0,"response_format":{"type":"json_object","x":1},"tool_choice":"none","Temperature":3,"seed":18446744073709551615,"x":{"b":1, "a":[1.50]}`)
	want := *plain
	want.Temperature, want.TopP, want.PresencePenalty, want.FrequencyPenalty = num(0), num(1), num(-2), num(2)
	want.MaxTokens, want.MaxCompletionTokens, want.N = integer(5), integer(7), integer(1)
	want.Stop = llmhttp.StringList{"a", ""}
	want.ResponseFormat = &llmhttp.ResponseFormat{Type: "json_object", Extra: llmhttp.Extra{"x": json.RawMessage("1")}}
	want.ToolChoice = json.RawMessage(`"none"`)
	want.Extra = llmhttp.Extra{"Temperature": json.RawMessage("3"), "seed": json.RawMessage("18446744073709551615"), "x": json.RawMessage(`{"b":1, "a":[1.50]}`)}
	assert.Equal(t, &want, full)
	assert.Equal(t, llmhttp.StringList{"x"}, chat(`"stop":"x"`).Stop)
	assert.Equal(t, llmhttp.StringList{""}, chat(`"stop":""`).Stop)

	text := "a\u0000b \u2028 \U0001F600 \"\\/ data: [DONE]\n\n</script>"
	quoted, err := json.Marshal(text)
	require.NoError(t, err)
	r := s.chat(`{"messages":[{"content":[{"cache":true,"text":` + string(quoted) + `,"type":"text"},{"type":"video","url":"x"}],"role":"user","mood":"good"}],"model":"m","tools":[{"type":"function","function":{"name":"f","strict":true,"parameters":{"a":1}}}]}`)
	require.Equal(t, 200, r.StatusCode, "%s", r.body)
	req := b.chats.Load()
	assert.Equal(t, text, req.Messages[0].Content.Text())
	assert.Equal(t, llmhttp.Extra{"cache": json.RawMessage("true")}, req.Messages[0].Content[0].Extra)
	assert.Equal(t, llmhttp.Part{Type: "video", Extra: llmhttp.Extra{"url": json.RawMessage(`"x"`)}}, req.Messages[0].Content[1])
	assert.Equal(t, llmhttp.Extra{"mood": json.RawMessage(`"good"`)}, req.Messages[0].Extra)
	strict := true
	assert.Equal(t, &llmhttp.Function{Name: "f", Strict: &strict, Parameters: json.RawMessage(`{"a":1}`)}, req.Tools[0].Function)
}

// Counts are bounded as well as bytes, and depth.
func TestChatCounts(t *testing.T) {
	s := fxStart(t, fxConfig{})
	list := func(n int, item string) string {
		return "[" + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + "]"
	}
	const user = `{"role":"user","content":"x"}`
	messages := func(n int) string { return `{"model":"m","messages":` + list(n, user) + `}` }
	parts := func(n int) string {
		return `{"model":"m","messages":[{"role":"user","content":` + list(n, `{"type":"text","text":""}`) + `}]}`
	}
	tools := func(n int) string { return fxMember(`"tools":` + list(n, `{"type":"x"}`)) }
	calls := func(n int) string {
		return `{"model":"m","messages":[` + user + `,{"role":"assistant","tool_calls":` + list(n, `{"id":"c","function":{"name":"f"}}`) + `}]}`
	}
	members := func(n int) string {
		var b strings.Builder
		b.WriteString(`"x":{`)
		for i := range n {
			fmt.Fprintf(&b, `"m%d":0,`, i)
		}
		return fxMember(strings.TrimSuffix(b.String(), ",") + "}")
	}
	deep := func(n int) string {
		return fxMember(`"x":` + strings.Repeat("[", n) + strings.Repeat("]", n))
	}
	deepObjects := func(n int) string {
		return fxMember(`"x":` + strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n))
	}
	tests := []struct{ name, body, param, code string }{
		{"messages/most", messages(16384), "", ok},
		{"messages/more", messages(16385), "messages", "array_above_max_length"},
		{"parts/most", parts(4096), "", ok},
		{"parts/more", parts(4097), "messages[0].content", "array_above_max_length"},
		{"tools/most", tools(2048), "", ok},
		{"tools/more", tools(2049), "tools", "array_above_max_length"},
		{"calls/most", calls(1024), "", ok},
		{"calls/more", calls(1025), "messages[1].tool_calls", "array_above_max_length"},
		{"stop/many", fxMember(`"stop":` + list(60000, `""`)), "stop", "array_above_max_length"},
		{"all together", `{"model":"m","messages":` + list(3000, `{"role":"user","content":`+list(30, `{"type":"text","text":""}`)+`}`) + `}`, "", ""},
		{"members/many", members(16384), "", ok},
		{"members/too many", members(16385), "x", "object_above_max_properties"},
		{"members/very many", members(200_000), "x", "object_above_max_properties"},
		{"a small body of many values", fxMember(`"x":` + list(300_000, "{}")), "", ok},
		{"deep/100", deep(100), "", ok},
		{"deep/100 objects", deepObjects(100), "", ok},
		{"deep/100000", deep(100_000), "", ""},
		{"deep/100000 objects", deepObjects(100_000), "", ""},
		{"deep/open", strings.Repeat("[", 1_000_000), "", "invalid_type"},
		{"deep/open in a member", `{"x":` + strings.Repeat("[", 1_000_000), "", ""},
		{"deep/tool_choice", fxMember(`"tool_choice":` + strings.Repeat(`{"a":`, 100_000)), "", ""},
		{"deep/content", `{"model":"m","messages":[{"role":"user","content":[{"type":"x","y":` + strings.Repeat("[", 100_000), "", ""},
		{"deep/schema", fxMember(`"tools":[{"type":"function","function":{"name":"f","parameters":` + strings.Repeat(`{"a":`, 100_000)), "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			start := time.Now()
			r := s.chat(tt.body)
			assert.Less(t, time.Since(start), 15*time.Second)
			if tt.code == ok {
				assert.Equal(t, 200, r.StatusCode, "%s", r.body)
				return
			}
			e := r.checkError(t, 400)
			assert.Equal(t, tt.param, e.Param, "%s", r.body)
			if tt.name != "deep/open" {
				assert.Equal(t, tt.code, e.Code, "%s", r.body)
			}
			checkWords(t, e)
		})
	}
}

// A body that is too large is refused, declared or not, before it is all there.
func TestMaxBody(t *testing.T) {
	s := fxStart(t, fxConfig{opts: llmhttp.Options{MaxBody: int64(len(fxWhole))}})
	for name, mods := range map[string][]fxMod{"declared": nil, "chunked": {fxChunked}} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, 200, s.chat(fxWhole, mods...).StatusCode, "exactly as large as may be")
			for _, n := range []int{1, 1000, 3 << 20} {
				r := s.chat(fxWhole+strings.Repeat(" ", n), mods...)
				e := r.checkError(t, 413)
				assert.Equal(t, "request_too_large", e.Code)
				checkWords(t, e)
				assert.Equal(t, 200, s.chat(fxWhole, mods...).StatusCode)
			}
		})
	}
	t.Run("HTTP/2", func(t *testing.T) {
		s := fxStart(t, fxConfig{http2: true, opts: llmhttp.Options{MaxBody: int64(len(fxWhole))}})
		s.chat(fxWhole+strings.Repeat(" ", 100000), fxChunked).checkError(t, 413)
		assert.Equal(t, 200, s.chat(fxWhole, fxChunked).StatusCode)
	})
	t.Run("a lie", func(t *testing.T) {
		// A length that was declared is not believed before it came.
		s := fxStart(t, fxConfig{opts: llmhttp.Options{MaxBody: 1 << 40}})
		c := s.dial()
		_, err := io.WriteString(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+fxSecret+"\r\nContent-Length: 500000000000\r\n\r\n{")
		require.NoError(t, err)
		fxAwait(t, "the request", func() bool { s.watch.mu.Lock(); defer s.watch.mu.Unlock(); return s.watch.begun == 1 })
		c.Close()
		s.watch.only(t)
	})
}

// A body without end is not read to its end.
func TestEndlessBody(t *testing.T) {
	fxNoLeaks(t)
	s := fxStart(t, fxConfig{opts: llmhttp.Options{MaxBody: 1 << 20}})
	c := s.dial()
	_, err := io.WriteString(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+fxSecret+"\r\nTransfer-Encoding: chunked\r\n\r\n")
	require.NoError(t, err)
	go func() {
		for {
			if _, err := io.WriteString(c, "400\r\n"+strings.Repeat(" ", 1024)+"\r\n"); err != nil {
				return
			}
		}
	}()
	var got bytes.Buffer
	_, _ = io.Copy(&got, c) // may end in a reset
	r := fxParse(t, "POST", got.String())
	r.checkError(t, 413)
	assert.True(t, r.Close, "the connection ends")
}

func TestMediaTypes(t *testing.T) {
	s := fxStart(t, fxConfig{})
	tests := map[string]bool{
		"": true, "application/json": true, "application/json; charset=utf-8": true, "application/json;charset=UTF-8": true, "Application/JSON": true, " application/json ": true,
		"application/json; odata=verbose": true,
		"text/plain":                      false, "text/json": false, "application/jsonp": false, "application/vnd.api+json": false, "json": false, "application/x-www-form-urlencoded": false,
		"multipart/form-data; boundary=x": false, "application/json, text/plain": false, "*/*": false, "application/": false, "\"application/json\"": false, "application/json/x": false,
	}
	for media, good := range tests {
		for path, body := range map[string]string{"/v1/chat/completions": fxWhole, "/v1/images/generations": `{"model":"m","prompt":"p"}`, "/v1/embeddings": `{"model":"m","input":"x"}`} {
			t.Run(media+path, func(t *testing.T) {
				mod := fxHeader("Content-Type", media)
				if media == "" {
					mod = func(r *http.Request) { r.Header.Del("Content-Type") }
				}
				r := s.do("POST", path, body, mod)
				if good {
					assert.Equal(t, 200, r.StatusCode, "%s", r.body)
					return
				}
				e := r.checkError(t, 415)
				assert.Equal(t, "unsupported_media_type", e.Code)
				assert.Less(t, len(e.Message), 300)
			})
		}
	}
	for encoding, good := range map[string]bool{"identity": true, "gzip": false, "GZIP": false, "deflate": false, "br": false, "zstd": false, "identity, gzip": false} {
		t.Run("encoding "+encoding, func(t *testing.T) {
			r := s.chat(fxWhole, fxHeader("Content-Encoding", encoding))
			if good {
				assert.Equal(t, 200, r.StatusCode)
			} else {
				assert.Equal(t, "unsupported_content_encoding", r.checkError(t, 415).Code)
			}
		})
	}
	t.Run("long", func(t *testing.T) {
		e := s.chat(fxWhole, fxHeader("Content-Type", "text/"+strings.Repeat("x", 10000))).checkError(t, 415)
		checkWords(t, e)
	})
}

func TestImageParams(t *testing.T) {
	const (
		missing = "missing_required_parameter"
		typ     = "invalid_type"
		value   = "invalid_value"
	)
	m := func(member string) string { return `{"model":"m","prompt":"p",` + member + `}` }
	prompt := func(p string) string { return `{"model":"m","prompt":"` + p + `"}` }
	tests := []struct{ body, param, code string }{
		{`{}`, "model", missing}, {`{"prompt":"p"}`, "model", missing}, {`{"model":"","prompt":"p"}`, "model", missing}, {`{"model":5,"prompt":"p"}`, "model", typ},
		{`{"model":"m"}`, "prompt", missing}, {prompt(""), "prompt", missing}, {`{"model":"m","prompt":null}`, "prompt", missing}, {`{"model":"m","prompt":["p"]}`, "prompt", typ},
		{prompt("p"), "", ok}, {prompt(strings.Repeat("é", 32000)), "", ok}, {prompt(strings.Repeat("é", 32001)), "prompt", "string_above_max_length"}, {prompt(strings.Repeat("x", 32001)), "prompt", "string_above_max_length"},
		{m(`"n":1`), "", ok}, {m(`"n":10`), "", ok}, {m(`"n":2.0`), "", ok}, {m(`"n":null`), "", ok}, {m(`"n":0`), "n", "integer_below_min_value"}, {m(`"n":-1`), "n", "integer_below_min_value"},
		{m(`"n":11`), "n", "integer_above_max_value"}, {m(`"n":1.5`), "n", typ}, {m(`"n":"1"`), "n", typ}, {m(`"n":1e30`), "n", "integer_above_max_value"}, {m(`"n":1e999`), "n", "integer_above_max_value"},
		{m(`"size":null`), "", ok}, {m(`"size":"1024x1024"`), "", ok}, {m(`"size":"1792x1024"`), "", ok}, {m(`"size":"1x1"`), "", ok}, {m(`"size":"99999x99999"`), "", ok},
		{m(`"size":"auto"`), "size", value}, {m(`"size":"1024"`), "size", value}, {m(`"size":"1024X1024"`), "size", value}, {m(`"size":"1024x1024x3"`), "size", value}, {m(`"size":"x"`), "size", value}, {m(`"size":"0x0"`), "size", value},
		{m(`"size":"-5x5"`), "size", value}, {m(`"size":" 5x5"`), "size", value}, {m(`"size":"100000x1"`), "size", value}, {m(`"size":"٣x٣"`), "size", value}, {m(`"size":1024`), "size", typ}, {m(`"size":"` + strings.Repeat("9", 5000) + `"`), "size", value},
		{m(`"quality":"standard"`), "", ok}, {m(`"quality":"hd"`), "", ok}, {m(`"quality":null`), "", ok}, {m(`"quality":"ultra"`), "quality", value}, {m(`"quality":"HD"`), "quality", value}, {m(`"quality":5`), "quality", typ},
		{m(`"response_format":"url"`), "", ok}, {m(`"response_format":"b64_json"`), "", ok}, {m(`"response_format":null`), "", ok}, {m(`"response_format":"png"`), "response_format", value}, {m(`"response_format":{"type":"url"}`), "response_format", typ},
		{m(`"style":"vivid","user":"u","N":99`), "", ok}, {m(`"n":1,"n":1`), "n", "duplicate_parameter"}, {`[]`, "", typ}, {`{`, "", ""},
	}
	b := new(seenBackend)
	s := fxStart(t, fxConfig{backend: b})
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%.70q", tt.body), func(t *testing.T) {
			b.drawn.Store(nil)
			r := s.do("POST", "/v1/images/generations", tt.body)
			if tt.code == ok {
				require.Equal(t, 200, r.StatusCode, "%s", r.body)
				req := b.drawn.Load()
				assert.NotEmpty(t, req.Size)
				assert.NotEmpty(t, req.ResponseFormat)
				return
			}
			e := r.checkError(t, 400)
			assert.Equal(t, tt.param, e.Param, "%s", r.body)
			assert.Equal(t, tt.code, e.Code, "%s", r.body)
			checkWords(t, e)
			assert.Nil(t, b.drawn.Load())
		})
	}
	s.do("POST", "/v1/images/generations", `{"model":"m","prompt":"p","style":"vivid"}`)
	assert.Equal(t, &llmhttp.ImageRequest{Model: "m", Prompt: "p", Size: "1024x1024", ResponseFormat: "url", Extra: llmhttp.Extra{"style": json.RawMessage(`"vivid"`)}}, b.drawn.Load())
	assert.Equal(t, 1, b.drawn.Load().Count())
}

// Which sizes there are is the Backend's to say.
func TestImageSizes(t *testing.T) {
	small, large := []string{"256x256", "512x512", "1024x1024"}, []string{"1024x1024", "1024x1792", "1792x1024"}
	s := fxStart(t, fxConfig{backend: &fxBackend{sizes: func(_ context.Context, model string) ([]string, error) {
		switch model {
		case "small":
			return small, nil
		case "large":
			return large, nil
		case "free":
			return nil, nil
		case "untold":
			return nil, fmt.Errorf("who knows: %w", errors.ErrUnsupported)
		case "broken":
			return nil, errors.New("boom")
		}
		return nil, llmhttp.ModelNotFound(model)
	}}})
	ask := func(model, size string) fxReply {
		return s.do("POST", "/v1/images/generations", fmt.Sprintf(`{"model":%q,"prompt":"p","size":%q}`, model, size))
	}
	for _, size := range append(append([]string{"640x480"}, small...), large...) {
		for model, sizes := range map[string][]string{"small": small, "large": large} {
			allowed := strings.Contains(" "+strings.Join(sizes, " ")+" ", " "+size+" ")
			r := ask(model, size)
			if allowed {
				assert.Equal(t, 200, r.StatusCode)
				continue
			}
			e := r.checkError(t, 400)
			assert.Equal(t, "size", e.Param)
			assert.Equal(t, "invalid_value", e.Code)
			assert.Equal(t, fmt.Sprintf("Invalid value: '%s'. Supported values are: '%s', '%s', and '%s'.", size, sizes[0], sizes[1], sizes[2]), e.Message)
		}
		assert.Equal(t, 200, ask("free", size).StatusCode)
		assert.Equal(t, 200, ask("untold", size).StatusCode)
	}
	assert.Equal(t, "model_not_found", ask("other", "5x5").checkError(t, 404).Code)
	ask("broken", "5x5").checkError(t, 500)
	// The default size is no exception.
	r := fxStart(t, fxConfig{backend: &fxBackend{sizes: func(context.Context, string) ([]string, error) { return []string{"256x256"}, nil }}}).
		do("POST", "/v1/images/generations", `{"model":"m","prompt":"p"}`)
	assert.Equal(t, "size", r.checkError(t, 400).Param)
}

// What a Backend draws comes in the form the client asked for.
func TestImageForms(t *testing.T) {
	png := []byte("\x89PNG\r\n\x1a\nrest")
	text := base64.StdEncoding.EncodeToString(png)
	data := llmhttp.Image{Data: png, RevisedPrompt: "a better p"}
	address := llmhttp.Image{URL: "https://images.example/1.png", RevisedPrompt: "a better p"}
	inline := llmhttp.Image{URL: "data:image/png;base64," + text}
	put := func(_ context.Context, b []byte, media string) (string, error) {
		assert.Equal(t, png, b)
		assert.Equal(t, "image/png", media)
		return "https://put.example/x", nil
	}
	tests := []struct {
		name   string
		image  llmhttp.Image
		format string
		put    bool
		want   string // of data[0]; "" is an error
	}{
		{"bytes as url", data, "url", false, `{"url":"data:image/png;base64,` + text + `","revised_prompt":"a better p"}`},
		{"bytes as url, put", data, "url", true, `{"url":"https://put.example/x","revised_prompt":"a better p"}`},
		{"bytes as b64_json", data, "b64_json", true, `{"b64_json":"` + text + `"}`},
		{"address as url", address, "url", true, `{"url":"https://images.example/1.png","revised_prompt":"a better p"}`},
		{"address as b64_json", address, "b64_json", false, ""},
		{"data URL as url", inline, "url", true, `{"url":"data:image/png;base64,` + text + `"}`},
		{"data URL as b64_json", inline, "b64_json", false, `{"b64_json":"` + text + `"}`},
		{"a bad data URL as b64_json", llmhttp.Image{URL: "data:image/png;base64,***"}, "b64_json", false, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := fxConfig{backend: &fxBackend{images: func(context.Context, *llmhttp.ImageRequest) (*llmhttp.ImageResponse, error) {
				return &llmhttp.ImageResponse{Created: 1760092079, Data: []llmhttp.Image{tt.image}}, nil
			}}}
			if tt.put {
				c.opts.ImageURL = put
			}
			s := fxStart(t, c)
			r := s.do("POST", "/v1/images/generations", `{"model":"m","prompt":"p","response_format":"`+tt.format+`"}`)
			if tt.want == "" {
				r.checkError(t, 500)
				return
			}
			assert.Equal(t, `{"created":1760092079,"data":[`+tt.want+`]}`, r.body)
			assert.Equal(t, 1, s.usage.only(t).Images)
		})
	}
}

func TestEmbeddingParams(t *testing.T) {
	const (
		missing = "missing_required_parameter"
		typ     = "invalid_type"
	)
	input := func(in string) string { return `{"model":"m","input":` + in + `}` }
	list := func(n int, item string) string {
		return "[" + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + "]"
	}
	m := func(member string) string { return `{"model":"m","input":"x",` + member + `}` }
	tests := []struct {
		body, param, code string
		vectors           int
	}{
		{`{}`, "model", missing, 0}, {`{"input":"x"}`, "model", missing, 0}, {`{"model":5,"input":"x"}`, "model", typ, 0},
		{`{"model":"m"}`, "input", missing, 0}, {input("null"), "input", missing, 0}, {input("5"), "input", typ, 0}, {input("true"), "input", typ, 0}, {input("{}"), "input", typ, 0},
		{input(`"x"`), "", ok, 1}, {input(`""`), "input", "empty_string", 0}, {input(`[]`), "input", "empty_array", 0}, {input(`["a","b"]`), "", ok, 2}, {input(`["a",""]`), "input[1]", "empty_string", 0},
		{input(`[1,2,3]`), "", ok, 1}, {input(`[1.0,2e0]`), "", ok, 1}, {input(`[0]`), "", ok, 1}, {input(`[-1]`), "input[0]", typ, 0}, {input(`[1,2.5]`), "input[1]", typ, 0}, {input(`[1e30]`), "input[0]", "integer_above_max_value", 0}, {input(`[1e999]`), "input[0]", "integer_above_max_value", 0},
		{input(`[[1,2],[3]]`), "", ok, 2}, {input(`[[1],[]]`), "input[1]", "empty_array", 0}, {input(`[[]]`), "input[0]", "empty_array", 0}, {input(`[[1,"x"]]`), "input[0][1]", typ, 0}, {input(`[[1,-2]]`), "input[0][1]", typ, 0}, {input(`[[[1]]]`), "input[0][0]", typ, 0},
		{input(`["a",1]`), "input", typ, 0}, {input(`[1,"a"]`), "input", typ, 0}, {input(`["a",[1]]`), "input", typ, 0}, {input(`[[1],"a"]`), "input", typ, 0}, {input(`[1,[1]]`), "input", typ, 0}, {input(`[null]`), "input[0]", typ, 0}, {input(`["a",null]`), "input[1]", typ, 0}, {input(`[{}]`), "input[0]", typ, 0},
		{input(list(2048, `"x"`)), "", ok, 2048}, {input(list(2049, `"x"`)), "input", "array_above_max_length", 0}, {input(list(2048, `[1]`)), "", ok, 2048}, {input(list(2049, `[1]`)), "input", "array_above_max_length", 0},
		{input(list(100000, `"x"`)), "input", "array_above_max_length", 0}, {input(list(8192, `1`)), "", ok, 1}, {input(list(10, list(8192, `100000`))), "", ok, 10},
		{m(`"dimensions":1`), "", ok, 1}, {m(`"dimensions":null`), "", ok, 1}, {m(`"dimensions":256.0`), "", ok, 1}, {m(`"dimensions":0`), "dimensions", "integer_below_min_value", 0}, {m(`"dimensions":1.5`), "dimensions", typ, 0}, {m(`"dimensions":"5"`), "dimensions", typ, 0}, {m(`"dimensions":1e30`), "dimensions", "integer_above_max_value", 0},
		{m(`"encoding_format":"float"`), "", ok, 1}, {m(`"encoding_format":"base64"`), "", ok, 1}, {m(`"encoding_format":null`), "", ok, 1}, {m(`"encoding_format":"hex"`), "encoding_format", "invalid_value", 0}, {m(`"encoding_format":5`), "encoding_format", typ, 0},
		{m(`"user":"u","Dimensions":-1`), "", ok, 1}, {m(`"input":"x"`), "input", "duplicate_parameter", 0},
		{input("[\"\xff\"]"), "", "", 0}, {input(`["\ud800"]`), "", "", 0},
	}
	b := new(seenBackend)
	s := fxStart(t, fxConfig{backend: b})
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%.60q", tt.body), func(t *testing.T) {
			r := s.do("POST", "/v1/embeddings", tt.body)
			if tt.code == ok {
				require.Equal(t, 200, r.StatusCode, "%s", r.body)
				assert.Equal(t, tt.vectors, strings.Count(r.body, `"object":"embedding"`))
				return
			}
			e := r.checkError(t, 400)
			assert.Equal(t, tt.param, e.Param, "%s", r.body)
			assert.Equal(t, tt.code, e.Code, "%s", r.body)
			checkWords(t, e)
		})
	}
	// Inputs reach the Backend as they are.
	get := func(in string) *llmhttp.EmbeddingRequest {
		s.do("POST", "/v1/embeddings", input(in))
		return b.vectors.Load()
	}
	assert.Equal(t, llmhttp.EmbeddingInput{Texts: []string{"a", "bé"}}, get(`["a","b\u00e9"]`).Input)
	assert.Equal(t, llmhttp.EmbeddingInput{Texts: []string{"a"}}, get(`"a"`).Input)
	assert.Equal(t, llmhttp.EmbeddingInput{Tokens: [][]int{{1, 2}, {3}}}, get(`[[1,2],[3]]`).Input)
	assert.Equal(t, llmhttp.EmbeddingInput{Tokens: [][]int{{1, 2}}}, get(`[1,2]`).Input)
}

// A client gets its vectors encoded as it asked: mem0ai/mem0#5170,
// anything-llm#5794, arabold/docs-mcp-server#471.
func TestEmbeddingForms(t *testing.T) {
	vectors := [][]float32{
		{0, 1, -1, 0.1, 1e-10, 3.4028235e38, 1e-45, float32(math.Copysign(0, -1)), 1.0 / 3},
		{}, {16777217, 123456.789},
	}
	s := fxStart(t, fxConfig{backend: &fxBackend{embed: func(context.Context, *llmhttp.EmbeddingRequest) (*llmhttp.EmbeddingResponse, error) {
		return &llmhttp.EmbeddingResponse{Vectors: vectors, Usage: &llmhttp.Usage{PromptTokens: 8}}, nil
	}}})
	const ask = `{"model":"m","input":["a","b","c"]`
	type reply struct {
		Object string
		Data   []struct {
			Object    string
			Index     int
			Embedding json.RawMessage
		}
		Model string
		Usage map[string]int
	}
	decode := func(body string) reply {
		var v reply
		require.NoError(t, json.Unmarshal([]byte(body), &v), "%s", body)
		assert.Equal(t, "list", v.Object)
		assert.Equal(t, "m", v.Model)
		assert.Equal(t, map[string]int{"prompt_tokens": 8, "total_tokens": 8}, v.Usage)
		require.Len(t, v.Data, 3)
		for i, d := range v.Data {
			assert.Equal(t, "embedding", d.Object)
			assert.Equal(t, i, d.Index)
		}
		return v
	}
	v := decode(s.do("POST", "/v1/embeddings", ask+`,"encoding_format":"base64"}`).body)
	for i, d := range v.Data {
		var want bytes.Buffer
		require.NoError(t, binary.Write(&want, binary.LittleEndian, vectors[i]))
		assert.Equal(t, `"`+base64.StdEncoding.EncodeToString(want.Bytes())+`"`, string(d.Embedding))
	}
	for _, member := range []string{`}`, `,"encoding_format":"float"}`, `,"encoding_format":null}`} {
		v = decode(s.do("POST", "/v1/embeddings", ask+member).body)
		for i, d := range v.Data {
			got := []float32{}
			require.NoError(t, json.Unmarshal(d.Embedding, &got))
			assert.Equal(t, vectors[i], got)
		}
	}
	for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1))} {
		s := fxStart(t, fxConfig{backend: &fxBackend{embed: func(context.Context, *llmhttp.EmbeddingRequest) (*llmhttp.EmbeddingResponse, error) {
			return &llmhttp.EmbeddingResponse{Vectors: [][]float32{{bad}}}, nil
		}}})
		for _, format := range []string{"float", "base64"} {
			s.do("POST", "/v1/embeddings", `{"model":"m","input":"x","encoding_format":"`+format+`"}`).checkError(t, 500)
		}
	}
}

// The range of the usage endpoint.
func TestUsageParams(t *testing.T) {
	now := time.Date(2026, 3, 10, 23, 30, 0, 0, time.FixedZone("behind", -5*3600)) // the 11th in UTC
	s := fxStart(t, fxConfig{opts: llmhttp.Options{Now: func() time.Time { return now }}})
	day := func(y, m, d int) time.Time { return time.Date(y, time.Month(m), d, 0, 0, 0, 0, time.UTC) }
	today, tomorrow := day(2026, 3, 11), day(2026, 3, 12)
	tests := []struct {
		query    string
		from, to time.Time
		param    string
	}{
		{"", tomorrow.AddDate(0, 0, -100), tomorrow, ""},
		{"?start_date=2026-03-01&end_date=2026-03-08", day(2026, 3, 1), day(2026, 3, 8), ""},
		{"?start_date=2026-03-11", today, tomorrow, ""},
		{"?end_date=2026-01-01", day(2026, 1, 1).AddDate(0, 0, -100), day(2026, 1, 1), ""},
		{"?start_date=2026-03-11&end_date=2026-03-12&x=y", today, tomorrow, ""},
		{"?start_date=2024-02-29&end_date=2024-03-01", day(2024, 2, 29), day(2024, 3, 1), ""},
		{"?start_date=2026-03-12&end_date=2026-03-12", time.Time{}, time.Time{}, "end_date"},
		{"?start_date=2026-03-12&end_date=2026-03-01", time.Time{}, time.Time{}, "end_date"},
		{"?start_date=2027-01-01", time.Time{}, time.Time{}, "start_date"},
		{"?start_date=0001-01-01", time.Time{}, time.Time{}, "start_date"},
		{"?start_date=2026-03-01&end_date=9999-12-31", time.Time{}, time.Time{}, "start_date"},
		{"?start_date=", time.Time{}, time.Time{}, "start_date"},
		{"?start_date=yesterday", time.Time{}, time.Time{}, "start_date"},
		{"?start_date=2026-02-30", time.Time{}, time.Time{}, "start_date"},
		{"?start_date=2026-3-1", time.Time{}, time.Time{}, "start_date"},
		{"?start_date=2026-03-01T00:00:00Z", time.Time{}, time.Time{}, "start_date"},
		{"?start_date=1772323200", time.Time{}, time.Time{}, "start_date"},
		{"?end_date=%00", time.Time{}, time.Time{}, "end_date"},
		{"?end_date=-2026-01-01", time.Time{}, time.Time{}, "end_date"},
		{"?start_date=" + strings.Repeat("9", 5000), time.Time{}, time.Time{}, "start_date"},
	}
	for _, tt := range tests {
		for _, path := range []string{"/v1/dashboard/billing/usage", "/dashboard/billing/usage"} {
			t.Run(path+fmt.Sprintf("%.60s", tt.query), func(t *testing.T) {
				r := s.do("GET", path+tt.query, "")
				if tt.param != "" {
					e := r.checkError(t, 400)
					assert.Equal(t, tt.param, e.Param)
					assert.Equal(t, "invalid_value", e.Code)
					checkWords(t, e)
					return
				}
				require.Equal(t, 200, r.StatusCode, "%s", r.body)
				assert.Equal(t, `{"object":"list","daily_costs":[],"total_usage":0,"prompt_tokens":0,"completion_tokens":0,"total_tokens":0,"requests":0,"images":0}`, r.body)
				q := s.usage.queries[len(s.usage.queries)-1]
				assert.Equal(t, llmhttp.UsageQuery{Account: "acme", From: tt.from, To: tt.to, Step: 24 * time.Hour}, q)
			})
		}
	}
	t.Run("sums", func(t *testing.T) {
		usage := &fxUsage{sums: []llmhttp.UsageSum{
			{Start: today, Model: "a", Requests: 2, PromptTokens: 10, CompletionTokens: 5},
			{Start: today, Model: "b\"", Requests: 1, Images: 3},
			{Start: tomorrow, Model: "a", Requests: 1, PromptTokens: 1, CompletionTokens: 1},
		}}
		s := fxStart(t, fxConfig{usage: usage, opts: llmhttp.Options{Cost: func(u llmhttp.UsageSum) float64 {
			return 0.1*float64(u.PromptTokens) + 0.02*float64(u.Images)
		}}})
		want := `{"object":"list","daily_costs":[` +
			`{"timestamp":1773187200.0,"line_items":[{"name":"a","cost":100,"prompt_tokens":10,"completion_tokens":5,"total_tokens":15,"requests":2,"images":0},` +
			`{"name":"b\"","cost":6,"prompt_tokens":0,"completion_tokens":0,"total_tokens":0,"requests":1,"images":3}]},` +
			`{"timestamp":1773273600.0,"line_items":[{"name":"a","cost":10,"prompt_tokens":1,"completion_tokens":1,"total_tokens":2,"requests":1,"images":0}]}],` +
			`"total_usage":116,"prompt_tokens":11,"completion_tokens":6,"total_tokens":17,"requests":4,"images":3}`
		assert.Equal(t, want, s.do("GET", "/v1/dashboard/billing/usage", "").body)
	})
	t.Run("a Cost that panics, or is no number", func(t *testing.T) {
		for _, cost := range []func(llmhttp.UsageSum) float64{
			func(llmhttp.UsageSum) float64 { panic("boom") },
			func(llmhttp.UsageSum) float64 { return math.NaN() },
			func(llmhttp.UsageSum) float64 { return math.Inf(1) },
		} {
			s := fxStart(t, fxConfig{usage: &fxUsage{sums: []llmhttp.UsageSum{{Start: today, Model: "a"}}}, opts: llmhttp.Options{Cost: cost}})
			s.do("GET", "/v1/dashboard/billing/usage", "").checkError(t, 500)
		}
	})
	t.Run("no store", func(t *testing.T) {
		h := llmhttp.NewHandler(new(fxBackend), fxKeys(fxKey()), nil)
		n := fxStart(t, fxConfig{wrap: func(http.Handler) http.Handler { return h }})
		n.do("GET", "/v1/dashboard/billing/usage", "").checkError(t, 404)
	})
}

// What a Backend reports is recorded as it is; what it does not is counted.
// BerriAI/litellm#15740, helixml/helix#3005, envoyproxy/ai-gateway#942.
func TestUsageOfChats(t *testing.T) {
	type yield = func(*llmhttp.ChatChunk, error) bool
	usage := func(p, c, total int) *llmhttp.ChatChunk {
		return &llmhttp.ChatChunk{Usage: &llmhttp.Usage{PromptTokens: p, CompletionTokens: c, TotalTokens: total}}
	}
	text := func(s string, u *llmhttp.Usage) *llmhttp.ChatChunk {
		c := llmhttp.TextChunk(s)
		c.Usage = u
		return c
	}
	tests := []struct {
		name      string
		backend   llmhttp.Backend
		want      llmhttp.Usage
		estimated bool
	}{
		{"reported last", fxChat(func(_ context.Context, y yield) { _ = y(text("hi", nil), nil) && y(usage(7, 3, 10), nil) }), llmhttp.Usage{PromptTokens: 7, CompletionTokens: 3, TotalTokens: 10}, false},
		{"reported with the text", fxChat(func(_ context.Context, y yield) {
			y(text("hi", &llmhttp.Usage{PromptTokens: 7, CompletionTokens: 3}), nil)
		}), llmhttp.Usage{PromptTokens: 7, CompletionTokens: 3, TotalTokens: 10}, false},
		{"snapshots are not summed", fxChat(func(_ context.Context, y yield) {
			for i := range 5 {
				if !y(text("x", &llmhttp.Usage{PromptTokens: 7, CompletionTokens: i}), nil) {
					return
				}
			}
		}), llmhttp.Usage{PromptTokens: 7, CompletionTokens: 4, TotalTokens: 11}, false},
		{"negative", fxChat(func(_ context.Context, y yield) { y(usage(-5, -3, -8), nil) }), llmhttp.Usage{}, false},
		{"none", fxChat(func(_ context.Context, y yield) { _ = y(text("one two ", nil), nil) && y(text("three", nil), nil) }), llmhttp.Usage{PromptTokens: 4, CompletionTokens: 3, TotalTokens: 7}, true},
		{"nothing said", fxChat(func(context.Context, yield) {}), llmhttp.Usage{PromptTokens: 4, TotalTokens: 4}, true},
	}
	for _, tt := range tests {
		for _, mode := range []string{"whole", "stream", "stream with usage"} {
			t.Run(tt.name+"/"+mode, func(t *testing.T) {
				s := fxStart(t, fxConfig{backend: tt.backend, opts: llmhttp.Options{CountTokens: counted}})
				body := map[string]string{"whole": fxWhole, "stream": fxStream, "stream with usage": fxMember(`"stream":true,"stream_options":{"include_usage":true}`)}[mode]
				r := s.chat(body)
				require.NoError(t, r.err)
				got := s.usage.only(t)
				assert.Equal(t, tt.want, got.Usage)
				assert.Equal(t, tt.estimated, got.Estimated)
				shown := fmt.Sprintf(`"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}`, tt.want.PromptTokens, tt.want.CompletionTokens, tt.want.TotalTokens)
				n := 1
				if mode == "stream" {
					n = 0
				}
				assert.Equal(t, n, strings.Count(r.body, shown), "%s", r.body)
				assert.Equal(t, n, strings.Count(r.body, `"usage"`), "%s", r.body)
				if mode == "stream with usage" {
					frames := fxFrames(t, r.body)
					require.Equal(t, "[DONE]", frames[len(frames)-1])
					assert.Contains(t, frames[len(frames)-2], `"choices":[],"usage":{`, "BerriAI/litellm#28735, #36168, #8450")
				}
			})
		}
	}
}
