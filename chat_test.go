package llmhttp_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/llm"
)

// TestChat_Params sends valid values, wrong types, and values at, below and above the
// bounds of each parameter.
func TestChat_Params(t *testing.T) {
	const user = `{"role":"user","content":"x"}`
	const tool = `{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}`
	bodies := func(list ...string) []string { return list }
	// members are added to chatBody.
	members := func(list ...string) []string { return each(chatWith, list...) }
	// messages are the whole list of messages, and message is the second one.
	messages := func(list ...string) []string {
		return each(func(s string) string { return `{"model":"m","messages":` + s + `}` }, list...)
	}
	message := func(list ...string) []string {
		return each(func(s string) string { return `{"model":"m","messages":[` + user + `,` + s + `]}` }, list...)
	}
	// parts are the content of the second message.
	parts := func(list ...string) []string {
		return message(each(func(s string) string { return `{"role":"user","content":[` + s + `]}` }, list...)...)
	}
	// calls are the tool calls of the second message.
	calls := func(list ...string) []string {
		return message(each(func(s string) string { return `{"role":"assistant","tool_calls":` + s + `}` }, list...)...)
	}
	tests := map[string][]paramTest{
		"body": {
			{"", notJSON, bodies(``, ` `, `{`, `{"model"}`, `{"model":}`, `{model:"m"}`, `{'model':'m'}`,
				chatBody+"x", chatBody+chatBody, chatBody+",", chatBody+"null", "\ufeff"+chatBody, chatBody+"\x00")},
			{"", notJSON, members(`"a":1,`, `"a" 1`, `"a":01`, `"a":+1`, `"a":.5`, `"a":1.`, `"a":0x1`, `"a":NaN`, `"a":Infinity`, `"a":tru`, `"a":nul`, `"a":[1,]`,
				`"a":1 /* comment */`, `// comment`, `"a":undefined`, `"a":"`+"\x01"+`"`, `"a":"`+"\n"+`"`, `"a":"\x"`, `"a":"\u12"`)},
			{"", invalidType, bodies(`null`, `[]`, `"x"`, `5`, `true`)},
			{"model", missing, bodies(`{}`)},
			{"", accepted, bodies(chatBody+"\n\n \t", "\n "+chatBody)},
			{"", accepted, members(`"x":1e999,"y":-0,"z":[1e-999,123456789012345678901234567890]`)},
		},
		"Unicode": {
			{"", notJSON, members("\"a\":\"\xff\"", "\"a\xff\":1", "\"a\":\"\xed\xa0\x80\"", "\"a\":\"\xc0\x80\"",
				`"a":"\ud800"`, `"a":"\udc00"`, `"a":"\udc00\ud800"`, `"a":"\ud800x"`, `"\ud83d":1`)},
			{"", notJSON, messages("[{\"role\":\"user\",\"content\":\"\xff\"}]", `[{"role":"user","content":"\ud800"}]`)},
			{"", accepted, members(`"a":"\ud83d\ude00"`)},
		},
		"duplicate names": {
			{"model", duplicate, bodies(`{"model":"m","model":"m","messages":[` + user + `]}`)},
			{"x", duplicate, members(`"x":1,"x":1`, `"x":1,"\u0078":1`)},
			{"x.y[0].z", duplicate, members(`"x":{"y":[{"z":1,"z":2}]}`)},
			{"messages[1].content", duplicate, message(`{"role":"user","content":"a","content":"b"}`)},
		},
		"unknown members": {
			{"", accepted, members(`"temperatures":99`, `"min_tokens":-1`, `"sampler":1.5`, `"logit_bias":{"foo":0}`, `"metadata":null`, `"":1`,
				`"functions":[{"name":"f"}],"function_call":"none"`, `"audio":{"voice":"x","format":"wav"},"modalities":["text"]`,
				`"logprobs":true,"top_logprobs":5`, `"prediction":{"type":"content","content":"x"},"web_search_options":{}`)},
		},
		"model": {
			{"model", missing, bodies(`{"messages":[`+user+`]}`, `{"model":null,"messages":[`+user+`]}`, `{"model":"","messages":[`+user+`]}`)},
			{"model", invalidType, bodies(`{"model":5,"messages":[`+user+`]}`, `{"model":["m"],"messages":[`+user+`]}`, `{"model":{},"messages":[`+user+`]}`)},
		},
		"messages": {
			{"messages", missing, append(messages(`null`), `{"model":"m"}`)},
			{"messages", emptyArray, messages(`[]`)},
			{"messages", invalidType, messages(`{}`, `"x"`)},
			{"messages[0]", invalidType, messages(`[null]`, `["x"]`, `[[]]`)},
			{"messages[1]", invalidType, messages(`[` + user + `,5]`)},
		},
		"role": {
			{"messages[0].role", missing, messages(`[{}]`)},
			{"messages[1].role", missing, message(`{"content":"x"}`, `{"role":null,"content":"x"}`, `{"role":"","content":"x"}`)},
			{"messages[1].role", invalidType, message(`{"role":5,"content":"x"}`)},
			{"messages[1].role", invalidValue, message(`{"role":"robot","content":"x"}`, `{"role":"User","content":"x"}`, `{"role":"user ","content":"x"}`)},
			{"", accepted, message(`{"role":"system","content":"x"}`, `{"role":"developer","content":"x"}`, `{"role":"user","content":"x"}`,
				`{"role":"assistant","content":"x"}`, `{"role":"function","name":"f","content":"x"}`)},
			{"", accepted, messages(`[{"role":"developer","content":"x"}]`)},
		},
		"tool_call_id": {
			{"messages[1].tool_call_id", missing, message(`{"role":"tool","content":"x"}`, `{"role":"tool","content":"x","tool_call_id":""}`, `{"role":"tool","content":"x","tool_call_id":null}`)},
			{"messages[1].tool_call_id", invalidType, message(`{"role":"tool","content":"x","tool_call_id":7}`)},
			{"", accepted, message(`{"role":"tool","content":"x","tool_call_id":"c"}`, `{"role":"tool","name":"f","content":[{"type":"text","text":"x"}],"tool_call_id":"c"}`)},
		},
		"content": {
			{"messages[1].content", invalidType, message(`{"role":"user"}`, `{"role":"user","content":null}`, `{"role":"user","content":5}`, `{"role":"user","content":{}}`, `{"role":"user","content":true}`)},
			{"", accepted, message(`{"role":"user","content":""}`, `{"role":"assistant","content":null}`, `{"role":"assistant"}`, `{"role":"assistant","content":null,"refusal":"no"}`)},
		},
		"name and reasoning": {
			{"messages[1].name", invalidType, message(`{"role":"user","content":"x","name":5}`)},
			{"messages[1].reasoning_content", invalidType, message(`{"role":"assistant","reasoning_content":5}`)},
			{"", accepted, message(`{"role":"user","content":"x","name":null}`)},
		},
		"parts": {
			{"messages[1].content", emptyArray, parts(``)},
			{"messages[1].content[0]", invalidType, parts(`"x"`, `null`)},
			{"messages[1].content[0].type", missing, parts(`{}`)},
			{"messages[1].content[0].type", invalidType, parts(`{"type":5}`)},
			{"messages[1].content[1].text", missing, parts(`{"type":"text","text":"a"},{"type":"text"}`)},
			{"messages[1].content[0].text", invalidType, parts(`{"type":"text","text":null}`, `{"type":"text","text":7}`)},
			{"messages[1].content[0].image_url", missing, parts(`{"type":"image_url"}`, `{"type":"image_url","image_url":null}`)},
			{"messages[1].content[0].image_url", invalidType, parts(`{"type":"image_url","image_url":"http://x"}`)},
			{"messages[1].content[0].image_url.url", missing, parts(`{"type":"image_url","image_url":{}}`)},
			{"messages[1].content[0].image_url.url", invalidType, parts(`{"type":"image_url","image_url":{"url":5}}`)},
			{"messages[1].content[0].input_audio", missing, parts(`{"type":"input_audio"}`)},
			{"messages[1].content[0].file", missing, parts(`{"type":"file"}`)},
			{"", accepted, parts(`{"type":"text","text":""}`, `{"type":"image_url","image_url":{"url":"http://x","detail":"low"}}`,
				`{"type":"input_audio","input_audio":{"data":"x","format":"wav"}}`, `{"type":"file","file":{"file_id":"x"}}`, `{"type":"hologram","depth":3}`)},
		},
		"tool_calls": {
			{"messages[1].tool_calls", invalidType, calls(`{}`)},
			{"messages[1].tool_calls[0]", invalidType, calls(`[5]`)},
			{"messages[1].tool_calls[0].id", missing, calls(`[{"type":"function","function":{"name":"f"}}]`)},
			{"messages[1].tool_calls[0].function.name", missing, calls(`[{"id":"c","type":"function"}]`)},
			{"messages[1].tool_calls[0].function.name", invalidType, calls(`[{"id":"c","type":"function","function":{"name":5}}]`)},
			{"messages[1].tool_calls[0].function.arguments", invalidType, calls(`[{"id":"c","type":"function","function":{"name":"f","arguments":{}}}]`)},
			{"", accepted, calls(`null`, `[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]`, `[{"id":"c","type":"custom","custom":{"name":"f","input":"x"}}]`)},
			{"", accepted, message(`{"role":"assistant","content":"x","tool_calls":[]}`)},
		},
		"stream": {
			{"stream", invalidType, members(`"stream":"true"`, `"stream":1`, `"stream":{}`)},
			{"stream_options", invalidType, members(`"stream_options":true`)},
			{"stream_options.include_usage", invalidType, members(`"stream_options":{"include_usage":"yes"}`)},
			{"", accepted, members(`"stream":false`, `"stream":null`, `"stream_options":null`, `"stream_options":{}`, `"stream_options":{"include_usage":true}`,
				`"stream_options":{"include_usage":null,"include_obfuscation":false}`)},
		},
		"stop": {
			{"stop", arrayTooLong, members(`"stop":["a","b","c","d","e"]`)},
			{"stop", invalidType, members(`"stop":5`, `"stop":{}`)},
			{"stop[0]", invalidType, members(`"stop":[null]`, `"stop":[["a"]]`)},
			{"stop[1]", invalidType, members(`"stop":["a",5]`)},
			{"", accepted, members(`"stop":null`, `"stop":"x"`, `"stop":""`, `"stop":[]`, `"stop":[""]`, `"stop":["a","b","c","d"]`)},
		},
		"response_format": {
			{"response_format", invalidType, members(`"response_format":"json_object"`)},
			{"response_format.type", missing, members(`"response_format":{}`, `"response_format":{"type":null}`)},
			{"response_format.type", invalidValue, members(`"response_format":{"type":"xml"}`)},
			{"response_format.type", invalidType, members(`"response_format":{"type":5}`)},
			{"response_format.json_schema", missing, members(`"response_format":{"type":"json_schema"}`, `"response_format":{"type":"json_schema","json_schema":null}`)},
			{"response_format.json_schema", invalidType, members(`"response_format":{"type":"json_schema","json_schema":"x"}`)},
			{"response_format.json_schema.name", invalidType, members(`"response_format":{"type":"json_schema","json_schema":{"name":7}}`)},
			{"response_format.json_schema.description", invalidType, members(`"response_format":{"type":"json_schema","json_schema":{"description":{}}}`)},
			{"response_format.json_schema.strict", invalidType, members(`"response_format":{"type":"json_schema","json_schema":{"strict":"yes"}}`)},
			{"", accepted, members(`"response_format":null`, `"response_format":{"type":"text"}`, `"response_format":{"type":"json_object"}`,
				`"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{}}}`, `"response_format":{"type":"json_schema","json_schema":{"strict":null,"x":1}}`)},
		},
		"tools": {
			{"tools", invalidType, members(`"tools":{}`)},
			{"tools[0]", invalidType, members(`"tools":[5]`)},
			{"tools[0].type", missing, members(`"tools":[{}]`)},
			{"tools[0].type", invalidType, members(`"tools":[{"type":5}]`)},
			{"tools[0].function", missing, members(`"tools":[{"type":"function","function":null}]`)},
			{"tools[1].function", missing, members(`"tools":[` + tool + `,{"type":"function"}]`)},
			{"tools[0].function.name", missing, members(`"tools":[{"type":"function","function":{}}]`)},
			{"tools[0].function.description", invalidType, members(`"tools":[{"type":"function","function":{"name":"f","description":5}}]`)},
			{"tools[0].function.parameters", invalidType, members(`"tools":[{"type":"function","function":{"name":"f","parameters":[]}}]`)},
			{"", accepted, members(`"tools":null`, `"tools":[]`, `"tools":[`+tool+`]`, `"tools":[{"type":"function","function":{"name":"f","parameters":null}}]`,
				`"tools":[{"type":"function","function":{"name":"f","parameters":{"foo":"bar"},"strict":true}}]`, `"tools":[{"type":"custom","custom":{"name":"x"}}]`)},
		},
		"tool_choice": {
			{"tool_choice", invalidType, members(`"tool_choice":5`, `"tool_choice":[]`, `"tool_choice":true`)},
			{"tool_choice", invalidValue, members(`"tool_choice":"required"`, `"tool_choice":"any"`, `"tool_choice":""`,
				`"tools":[`+tool+`],"tool_choice":{"type":"function","function":{"name":"g"}}`)},
			{"tool_choice.type", missing, members(`"tool_choice":{}`, `"tool_choice":{"type":null}`)},
			{"tool_choice.type", invalidType, members(`"tool_choice":{"type":5}`)},
			{"tool_choice.function", invalidType, members(`"tool_choice":{"type":"function","function":"f"}`)},
			{"tool_choice.function.name", missing, members(`"tool_choice":{"type":"function"}`, `"tool_choice":{"type":"function","function":{}}`)},
			{"tool_choice.custom.name", missing, members(`"tool_choice":{"type":"custom"}`, `"tool_choice":{"custom":{"name":""},"type":"custom"}`)},
			{"tool_choice.allowed_tools", missing, members(`"tool_choice":{"type":"allowed_tools"}`)},
			{"tool_choice.allowed_tools", invalidType, members(`"tool_choice":{"type":"allowed_tools","allowed_tools":[]}`)},
			{"tool_choice.allowed_tools.mode", invalidValue, members(`"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"any"}}`,
				`"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"required"}}`)},
			{"tool_choice.allowed_tools.tools[0].type", missing, members(`"tool_choice":{"type":"allowed_tools","allowed_tools":{"tools":[{}]}}`)},
			{"tool_choice.allowed_tools.tools[1].function.name", missing,
				members(`"tool_choice":{"type":"allowed_tools","allowed_tools":{"tools":[{"type":"x"},{"type":"function"}]}}`)},
			{"tool_choice.allowed_tools.tools[0].custom.name", missing, members(`"tool_choice":{"type":"allowed_tools","allowed_tools":{"tools":[{"type":"custom"}]}}`)},
			{"", accepted, members(`"tool_choice":{"type":"x","function":"f","custom":1,"allowed_tools":[]}`, `"tool_choice":{"type":"custom","custom":{"name":"x","y":1}}`,
				`"tools":[`+tool+`],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[{"type":"function","function":{"name":"f"}},{"type":"x","y":1}]}}`)},
			{"", accepted, members(`"tool_choice":null`, `"tool_choice":"none"`, `"tool_choice":"auto"`, `"tools":[`+tool+`],"tool_choice":"required"`,
				`"tools":[`+tool+`],"tool_choice":{"type":"function","function":{"name":"f"}}`, `"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[]}}`)},
		},
	}
	tenTo400 := "1" + strings.Repeat("0", 400)
	for name, bounds := range map[string][2]float64{"temperature": {0, 2}, "top_p": {0, 1}, "presence_penalty": {-2, 2}, "frequency_penalty": {-2, 2}} {
		values := func(list ...string) []string {
			return members(each(func(v string) string { return fmt.Sprintf("%q:%s", name, v) }, list...)...)
		}
		low, high := bounds[0], bounds[1]
		tests[name] = []paramTest{
			{"", accepted, values(fmt.Sprint(low), fmt.Sprint(high), "null", "0.5", "1e0", "-0.0", "1e-400")},
			{name, decimalLow, values(fmt.Sprint(low-0.0001), "-1e30", "-1e999")},
			{name, decimalHigh, values(fmt.Sprint(high+0.0001), "1e30", "1e999", "99999999999999999999", tenTo400)},
			{name, invalidType, values(`"1"`, "true", "[1]", "{}", `""`)},
		}
	}
	for name, high := range map[string]int{"max_tokens": min(1<<53-1, math.MaxInt), "max_completion_tokens": min(1<<53-1, math.MaxInt), "n": 128} {
		values := func(list ...string) []string {
			return members(each(func(v string) string { return fmt.Sprintf("%q:%s", name, v) }, list...)...)
		}
		tests[name] = []paramTest{
			{"", accepted, values("1", fmt.Sprint(high), "null", "1.0", "1e2", "1.0e0", "120e-1")},
			{name, integerLow, values("0", "-0", "-1", "-1e30", "-1e999", "-9223372036854775808")},
			{name, integerHigh, values(fmt.Sprint(high+1), "1e30", "1e999", "99999999999999999999", "9223372036854775807", tenTo400)},
			{name, invalidType, values("1.5", "0.5", `"1"`, "true", "[1]", "{}", "1e-1")},
		}
	}
	s := startServer(t, config{})
	for name, group := range tests {
		t.Run(name, func(t *testing.T) { checkParams(t, s, chatPath, group) })
	}
}

// A Backend gets the parameters that the client has sent. An explicit null means the
// default.
func TestChat_ParamsReachTheBackend(t *testing.T) {
	b := new(lastRequestBackend)
	s := startServer(t, config{backend: b})
	send := func(body string) *llm.ChatRequest {
		t.Helper()
		r := s.chat(body)
		require.Equal(t, 200, r.StatusCode, "%s", r.body)
		return b.chat.Load()
	}
	plain := llm.ChatRequest{Model: "demo-chat", Messages: []llm.Message{{Role: llm.RoleUser, Content: llm.TextContent("Hello, how are you?")}}}
	t.Run("default", func(t *testing.T) { assert.Equal(t, &plain, send(chatWith(`"stream":false`))) })
	t.Run("null", func(t *testing.T) {
		assert.Equal(t, &plain, send(chatWith(`"temperature":null,"top_p":null,"max_tokens":null,"max_completion_tokens":null,"stream":null,"stop":null,"presence_penalty":null,"frequency_penalty":null,"n":null,"response_format":null,"tools":null,"tool_choice":null,"stream_options":null`)))
	})
	t.Run("all", func(t *testing.T) {
		want := plain
		want.Temperature, want.TopP, want.PresencePenalty, want.FrequencyPenalty = new(0.0), new(1.0), new(-2.0), new(2.0)
		want.MaxTokens, want.MaxCompletionTokens, want.N = new(5), new(7), new(1)
		want.Stop = llm.StringList{"a", ""}
		want.ResponseFormat = &llm.ResponseFormat{Type: "json_object", Extra: llm.Extra{"x": json.RawMessage("1")}}
		want.ToolChoice = &llm.ToolChoice{Mode: llm.ToolChoiceNone}
		want.Extra = llm.Extra{"temperature_last": json.RawMessage("3"), "sampler": json.RawMessage("18446744073709551615"), "x": json.RawMessage(`{"b":1, "a":[1.50]}`)}
		assert.Equal(t, &want, send(chatWith(`"temperature":0,"top_p":1,"max_tokens":5.0,"max_completion_tokens":7,"stop":["a",""],"presence_penalty":-2,"frequency_penalty":2.0,"n":1e0,"response_format":{"type":"json_object","x":1},"tool_choice":"none","temperature_last":3,"sampler":18446744073709551615,"x":{"b":1, "a":[1.50]}`)))
	})
	t.Run("tool choice and schema", func(t *testing.T) {
		req := send(chatWith(`"tool_choice":{"y":[1.50],"allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"f","z":1}},{"type":"mcp","server_label":"s"}],"x":2},"type":"allowed_tools"},` +
			`"response_format":{"type":"json_schema","json_schema":{"name":"n","description":"d","schema":{"a": 1},"strict":false,"x":1}}`))
		assert.Equal(t, &llm.ToolChoice{Type: "allowed_tools", Extra: llm.Extra{"y": json.RawMessage("[1.50]")}, AllowedTools: &llm.AllowedTools{
			Mode: llm.ToolChoiceAuto, Extra: llm.Extra{"x": json.RawMessage("2")},
			Tools: []llm.AllowedTool{{Type: "function", Function: &llm.NamedTool{Name: "f", Extra: llm.Extra{"z": json.RawMessage("1")}}},
				{Type: "mcp", Extra: llm.Extra{"server_label": json.RawMessage(`"s"`)}}},
		}}, req.ToolChoice)
		assert.Equal(t, &llm.JSONSchema{Name: "n", Description: "d", Schema: json.RawMessage(`{"a": 1}`), Strict: new(false), Extra: llm.Extra{"x": json.RawMessage("1")}},
			req.ResponseFormat.JSONSchema)
	})
	t.Run("stop is a string", func(t *testing.T) {
		assert.Equal(t, llm.StringList{"x"}, send(chatWith(`"stop":"x"`)).Stop)
		assert.Equal(t, llm.StringList{""}, send(chatWith(`"stop":""`)).Stop)
	})
	t.Run("parts and tools", func(t *testing.T) {
		text := "a\u0000b \u2028 \U0001F600 \"\\/ data: [DONE]\n\n</script>"
		quoted, err := json.Marshal(text)
		require.NoError(t, err)
		req := send(`{"messages":[{"content":[{"cache":true,"text":` + string(quoted) + `,"type":"text"},{"type":"video","url":"x"}],"role":"user","mood":"good"}],"model":"m","tools":[{"type":"function","function":{"name":"f","strict":true,"parameters":{"a":1}}}]}`)
		m := req.Messages[0]
		assert.Equal(t, text, m.Content.Text())
		assert.Equal(t, llm.Extra{"cache": json.RawMessage("true")}, m.Content[0].Extra)
		assert.Equal(t, llm.Part{Type: "video", Extra: llm.Extra{"url": json.RawMessage(`"x"`)}}, m.Content[1])
		assert.Equal(t, llm.Extra{"mood": json.RawMessage(`"good"`)}, m.Extra)
		assert.Equal(t, &llm.Function{Name: "f", Strict: new(true), Parameters: json.RawMessage(`{"a":1}`)}, req.Tools[0].Function)
	})
}

// The number of elements and the depth of a body are bounded, as is its size.
func TestChat_ParamsAreBounded(t *testing.T) {
	const user = `{"role":"user","content":"x"}`
	messages := func(n int) string { return `{"model":"m","messages":` + repeatJSON(n, user) + `}` }
	parts := func(n int) string {
		return `{"model":"m","messages":[{"role":"user","content":` + repeatJSON(n, `{"type":"text","text":""}`) + `}]}`
	}
	tools := func(n int) string { return chatWith(`"tools":` + repeatJSON(n, `{"type":"x"}`)) }
	calls := func(n int) string {
		return `{"model":"m","messages":[` + user + `,{"role":"assistant","tool_calls":` + repeatJSON(n, `{"id":"c","function":{"name":"f"}}`) + `}]}`
	}
	list := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"m%d":0,`, i)
		}
		return strings.TrimSuffix(b.String(), ",")
	}
	members := func(n int) string { return chatWith(`"x":{` + list(n) + "}") }
	arrays := func(n int) string { return chatWith(`"x":` + strings.Repeat("[", n) + strings.Repeat("]", n)) }
	objects := func(n int) string {
		return chatWith(`"x":` + strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n))
	}
	const anyCode = "*"
	tests := []struct{ name, body, param, code string }{
		{"most messages", messages(16384), "", accepted},
		{"too many messages", messages(16385), "messages", arrayTooLong},
		{"most parts", parts(4096), "", accepted},
		{"too many parts", parts(4097), "messages[0].content", arrayTooLong},
		{"most tools", tools(2048), "", accepted},
		{"too many tools", tools(2049), "tools", arrayTooLong},
		{"most tool calls", calls(1024), "", accepted},
		{"too many tool calls", calls(1025), "messages[1].tool_calls", arrayTooLong},
		{"too many stop sequences", chatWith(`"stop":` + repeatJSON(60000, `""`)), "stop", arrayTooLong},
		{"too many parts of all messages", `{"model":"m","messages":` + repeatJSON(3000, `{"role":"user","content":`+repeatJSON(30, `{"type":"text","text":""}`)+`}`) + `}`, "", ""},
		{"most members", members(16384), "", accepted},
		{"too many members", members(16385), "x", objectTooBig},
		{"too many members of the body", chatWith(list(16385)), "", objectTooBig},
		{"very many members", members(200_000), "x", objectTooBig},
		{"many elements of an unknown member", chatWith(`"x":` + repeatJSON(300_000, "{}")), "", accepted},
		{"100 arrays deep", arrays(100), "", accepted},
		{"100 objects deep", objects(100), "", accepted},
		{"100000 arrays deep", arrays(100_000), "", ""},
		{"100000 objects deep", objects(100_000), "", ""},
		{"deep without end", strings.Repeat("[", 1_000_000), "", anyCode},
		{"deep member without end", `{"x":` + strings.Repeat("[", 1_000_000), "", ""},
		{"most allowed tools", chatWith(`"tool_choice":{"type":"allowed_tools","allowed_tools":{"tools":` + repeatJSON(2048, `{"type":"x"}`) + `}}`), "", accepted},
		{"too many allowed tools", chatWith(`"tool_choice":{"type":"allowed_tools","allowed_tools":{"tools":` + repeatJSON(2049, `{"type":"x"}`) + `}}`), "tool_choice.allowed_tools.tools", arrayTooLong},
		{"deep tool_choice", chatWith(`"tool_choice":` + strings.Repeat(`{"a":`, 100_000)), "", ""},
		{"deep part", `{"model":"m","messages":[{"role":"user","content":[{"type":"x","y":` + strings.Repeat("[", 100_000), "", ""},
		{"deep schema", chatWith(`"tools":[{"type":"function","function":{"name":"f","parameters":` + strings.Repeat(`{"a":`, 100_000)), "", ""},
	}
	s := startServer(t, config{})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := s.chat(tt.body)
			if tt.code == accepted {
				assert.Equal(t, 200, r.StatusCode, "%s", r.body)
				return
			}
			e := r.checkError(t, 400)
			assert.Equal(t, tt.param, e.Param, "%s", r.body)
			if tt.code != anyCode {
				assert.Equal(t, tt.code, e.Code, "%s", r.body)
			}
			assert.NotContains(t, e.Message, "''")
			checkWords(t, e)
		})
	}
}
