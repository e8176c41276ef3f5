package responses_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCreate_ChatRequest(t *testing.T) {
	tests := []struct{ name, body, want string }{
		{"text", `"input":"Hi"`, `"messages":[{"role":"user","content":"Hi"}]`},
		{"instructions", `"instructions":"Be kind.","input":[{"role":"developer","content":"Be brief."},{"type":"message","role":"user","content":"Hi"}]`,
			`"messages":[{"role":"system","content":"Be kind."},{"role":"developer","content":"Be brief."},{"role":"user","content":"Hi"}]`},
		{"parts", `"input":[{"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_image","image_url":"data:,x","detail":"low"},
			{"type":"input_file","filename":"f.pdf","file_data":"data:,y"},{"type":"input_audio","input_audio":{"data":"z","format":"wav"}}]}]`,
			`"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"data:,x","detail":"low"}},
			{"type":"file","file":{"filename":"f.pdf","file_data":"data:,y"}},{"type":"input_audio","input_audio":{"data":"z","format":"wav"}}]}]`},
		{"assistant", `"input":[{"role":"user","content":"Hi"},{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"A"},
			{"type":"summary_text","text":"B"}]},
			{"type":"message","id":"msg_1","role":"assistant","content":[{"type":"output_text","text":"I look."},{"type":"refusal","refusal":"Not that."}]},
			{"type":"function_call","call_id":"c1","name":"f","arguments":"{}"},{"type":"custom_tool_call","call_id":"c2","name":"patch","input":"a\"b"},
			{"type":"function_call_output","call_id":"c1","output":"1"},
			{"type":"custom_tool_call_output","call_id":"c2","output":[{"type":"input_text","text":"2"},{"type":"input_image","image_url":"data:,x"}]},
			{"role":"assistant","content":"Done."}]`,
			`"messages":[{"role":"user","content":"Hi"},
			{"role":"assistant","content":"I look.","refusal":"Not that.","reasoning_content":"A\n\nB","tool_calls":[
				{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}},
				{"id":"c2","type":"function","function":{"name":"patch","arguments":"{\"input\":\"a\\\"b\"}"}}]},
			{"role":"tool","tool_call_id":"c1","content":"1"},
			{"role":"tool","tool_call_id":"c2","content":[{"type":"text","text":"2"},{"type":"image_url","image_url":{"url":"data:,x"}}]},
			{"role":"assistant","content":"Done."}]`},
		{"reasoning as content", `"input":[{"role":"user","content":"Hi"},{"type":"reasoning","summary":[],` +
			`"content":[{"type":"reasoning_text","text":"R"}],"encrypted_content":"gAAAA"},{"role":"assistant","content":"x"},{"role":"user","content":"y"}]`,
			`"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"x","reasoning_content":"R"},{"role":"user","content":"y"}]`},
		{"reasoning without an answer", `"input":[{"role":"user","content":"Hi"},{"type":"reasoning","summary":[{"type":"summary_text","text":"A"}]},` +
			`{"role":"user","content":"y"}]`,
			`"messages":[{"role":"user","content":"Hi"},{"role":"user","content":"y"}]`},
		{"unknown items", `"input":[{"type":"web_search_call","id":"ws_1","status":"completed"},
			{"type":"agent_message","author":"a","recipient":"b","content":[{"type":"input_text","text":"From a"}]},
			{"type":"new","role":"assistant","content":[{"type":"text","text":"Hm"},{"type":"refusal","refusal":"No."}]},
			{"type":"new","content":[{"type":"refusal","refusal":"No."}]},{"type":"new","content":[]},{"type":"configuration_update","content":3},
			{"type":"tool_search_call","call_id":"c"},{"type":"tool_search_output","call_id":"c","content":[{"type":"output_text"}]},
			{"type":"mcp_list_tools","id":"m","tools":[]},{"type":"ghost_snapshot","ghost_commit":{}},{"role":"user","content":"Hi"},{"role":"user","content":[]}]`,
			`"messages":[{"role":"user","content":"From a"},{"role":"assistant","content":"Hm","refusal":"No."},{"role":"user","content":"No."},{"role":"user","content":"Hi"}]`},
		{"calls of hosted tools", `"input":[{"role":"user","content":"Hi"},
			{"type":"local_shell_call","id":"lsh_1","call_id":"c1","status":"completed","action":{"type":"exec","command":["ls"]}},
			{"type":"function_call_output","call_id":"c1","output":"a b"},
			{"type":"local_shell_call","id":"lsh_2","call_id":"c2","status":"completed","action":{"command":["ls"]}},
			{"type":"local_shell_call_output","id":"lsh_2","output":"c"},
			{"type":"shell_call","call_id":"c3","action":{"commands":["x"]}},{"type":"shell_call_output","call_id":"c3","output":[{"stdout":"d"}]},
			{"type":"apply_patch_call","call_id":"c4","operation":{"type":"delete_file","path":"p"}},{"type":"apply_patch_call_output","call_id":"c4","status":"failed"},
			{"type":"program","id":"p","call_id":"c5","code":"f()"},{"type":"program_output","call_id":"c5","result":"r","status":"completed"},
			{"type":"mcp_call","id":"mcp_1","server_label":"s","name":"n","arguments":"{\"a\":1}","output":"o"},
			{"type":"file_search_call","id":"fs_1","queries":["q"],"results":[{"text":"t"}],"status":"completed"},
			{"type":"code_interpreter_call","id":"ci_1","code":"1+1","outputs":null,"status":"completed"},
			{"type":"image_generation_call","id":"ig_1","revised_prompt":"a cat","result":"iVBOR","status":"completed"},
			{"type":"image_generation_call","result":"iVBOR","status":"completed"}]`,
			`"messages":[{"role":"user","content":"Hi"},` + hostedTurn("c1", "local_shell", `{"type":"exec","command":["ls"]}`, "a b") + `,` +
				hostedTurn("c2", "local_shell", `{"command":["ls"]}`, "c") + `,` + hostedTurn("c3", "shell", `{"commands":["x"]}`, `[{"stdout":"d"}]`) + `,` +
				hostedTurn("c4", "apply_patch", `{"type":"delete_file","path":"p"}`, "failed") + `,` + hostedTurn("c5", "program", `{"code":"f()"}`, "r") + `,` +
				hostedTurn("mcp_1", "n", `{"a":1}`, "o") + `,` + hostedTurn("fs_1", "file_search", `{"queries":["q"]}`, `[{"text":"t"}]`) + `,` +
				hostedTurn("ci_1", "code_interpreter", `{"code":"1+1"}`, "completed") + `,` +
				hostedTurn("ig_1", "image_generation", `{"revised_prompt":"a cat"}`, "completed") + `,` +
				hostedTurn("input[15]", "image_generation", `{}`, "completed") + `]`},
		{"parameters", `"input":"Hi","temperature":0.5,"top_p":0.9,"presence_penalty":1,"frequency_penalty":-1,"max_output_tokens":10,
			"reasoning":{"effort":"low","summary":"auto"},
			"text":{"verbosity":"low"},"user":"u","safety_identifier":"s","prompt_cache_key":"k","prompt_cache_retention":"24h","service_tier":"flex",
			"metadata":{"a":"b"},
			"client_metadata":{"x":"y"},"truncation":"auto","stream_options":{"include_obfuscation":false},
			"max_tool_calls":3,"tools":null,"parallel_tool_calls":false,"background":false`,
			`"messages":[{"role":"user","content":"Hi"}],"temperature":0.5,"top_p":0.9,"presence_penalty":1,"frequency_penalty":-1,"max_completion_tokens":10,
				"reasoning_effort":"low",
			"verbosity":"low","user":"u","safety_identifier":"s","prompt_cache_key":"k","prompt_cache_retention":"24h","service_tier":"flex","metadata":{"a":"b"}`},
		{"schema", `"input":"Hi","text":{"format":{"type":"json_schema","name":"n","schema":{"type":"object"},"strict":true}}`,
			`"messages":[{"role":"user","content":"Hi"}],"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"object"},"strict":true}}`},
		{"JSON", `"input":"Hi","text":{"format":{"type":"json_object"}}`, `"messages":[{"role":"user","content":"Hi"}],"response_format":{"type":"json_object"}`},
		{"plain text", `"input":"Hi","text":{"format":{"type":"text"}}`, `"messages":[{"role":"user","content":"Hi"}]`},
		{"logprobs", `"input":"Hi","top_logprobs":2,"include":["message.output_text.logprobs","web_search_call.results"]`,
			`"messages":[{"role":"user","content":"Hi"}],"logprobs":true,"top_logprobs":2`},
		{
			"hosted tools",
			`"input":"Hi","tools":[{"type":"web_search"},{"type":"image_generation"}],"tool_choice":"auto","parallel_tool_calls":true`,
			`"messages":[{"role":"user","content":"Hi"}]`,
		},
		{"functions", `"input":"Hi","tools":[{"type":"function","name":"f","description":"d","parameters":{"type":"object"},"strict":false},
			{"type":"web_search"},{"type":"function","name":"g","parameters":null}],
			"tool_choice":{"type":"function","name":"g"},"parallel_tool_calls":true`,
			`"messages":[{"role":"user","content":"Hi"}],"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"},
				"strict":false}},{"type":"function","function":{"name":"g"}}],
			"tool_choice":{"type":"function","function":{"name":"g"}},"parallel_tool_calls":true`},
		{"custom tool", `"input":"Hi","tools":[{"type":"custom","name":"patch","description":"d","format":{"type":"grammar","syntax":"lark",` +
			`"definition":"start: x"}}],"tool_choice":{"type":"custom","name":"patch"}`,
			`"messages":[{"role":"user","content":"Hi"}],"tools":[{"type":"function","function":{"name":"patch","description":"d",
				"parameters":{"type":"object","additionalProperties":false,"required":["input"],
			"properties":{"input":{"type":"string","description":"The input of the tool as plain text. It must match this lark grammar:\nstart: x"}}}}}],
			"tool_choice":{"type":"function","function":{"name":"patch"}}`},
		{"namespaces", `"input":[{"role":"user","content":"Hi"},{"type":"function_call","call_id":"c1","name":"f","namespace":"a","arguments":"{}"},
			{"type":"function_call","call_id":"c2","name":"gone","namespace":"b","arguments":"{}"}],
			"tools":[{"type":"function","name":"a__f"},{"type":"namespace","name":"a","tools":[{"type":"function","name":"f"}]},{"type":"namespace","name":"` + strings.Repeat("n", 60) + `","tools":[{"type":"function","name":"long"}]}],
			"tool_choice":{"type":"function","name":"f"}`,
			`"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function",
				"function":{"name":"a__f_078b5e44","arguments":"{}"}},{"id":"c2","type":"function","function":{"name":"b__gone","arguments":"{}"}}]}],
			"tools":[{"type":"function","function":{"name":"a__f"}},{"type":"function","function":{"name":"a__f_078b5e44"}},{"type":"function","function":{"name":"` + strings.Repeat("n", 55) + `_15d69377"}}],
			"tool_choice":{"type":"function","function":{"name":"a__f_078b5e44"}}`},
		{"allowed tools", `"input":"Hi","tools":[{"type":"function","name":"f"},{"type":"function","name":"g"}],` +
			`"tool_choice":{"type":"allowed_tools","mode":"required","tools":[{"type":"function","name":"g"},{"type":"web_search"}]}`,
			`"messages":[{"role":"user","content":"Hi"}],"tools":[{"type":"function","function":{"name":"g"}}],"tool_choice":"required"`},
		{"allowed tools of every namespace", `"input":"Hi","tools":[` +
			`{"type":"namespace","name":"a","tools":[{"type":"function","name":"f"},{"type":"function","name":"g"}]},` +
			`{"type":"namespace","name":"b","tools":[{"type":"function","name":"f"},{"type":"function","name":"h"}]}],` +
			`"tool_choice":{"type":"allowed_tools","tools":[{"type":"function","name":"f"},{"type":"function","name":"b__h"}]}`,
			`"messages":[{"role":"user","content":"Hi"}],"tool_choice":"auto","tools":[{"type":"function","function":{"name":"a__f"}},` +
				`{"type":"function","function":{"name":"b__f"}},{"type":"function","function":{"name":"b__h"}}]`},
		{"additional tools", `"input":[{"type":"additional_tools","role":"developer","tools":[{"type":"function","name":"f"}]},` +
			`{"role":"developer","content":"Be brief."},{"role":"user","content":"Hi"}]`,
			`"messages":[{"role":"developer","content":"Be brief."},{"role":"user","content":"Hi"}],"tools":[{"type":"function","function":{"name":"f"}}]`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := newServer(t, nil, chunkText)
			s.create(`{"model":"m",` + test.body + `}`)
			got, err := json.Marshal(s.request)
			require.NoError(t, err)
			assert.JSONEq(t, `{"model":"m",`+test.want+`}`, string(got))
		})
	}
}

// hostedTurn returns the messages of a call and its output.
func hostedTurn(id, function, arguments, output string) string {
	quote := func(s string) string { b, _ := json.Marshal(s); return string(b) }
	return `{"role":"assistant","content":null,"tool_calls":[{"id":"` + id + `","type":"function","function":{"name":"` + function + `","arguments":` +
		quote(arguments) + `}}]},{"role":"tool","tool_call_id":"` + id + `","content":` + quote(output) + `}`
}

// A request of Codex, with what it sends in each turn, and the shape for models whose
// tools and instructions are items of the input.
func TestCreate_Codex(t *testing.T) {
	const params = `{"model":"gpt-5.6-codex","store":false,"include":["reasoning.encrypted_content"],
		"reasoning":{"effort":"medium","summary":"auto","context":"x"},
		"tool_choice":"auto","parallel_tool_calls":true,"prompt_cache_key":"k","client_metadata":{"a":"b"},"service_tier":"priority","text":{"verbosity":"low"},`
	const tools = `[{"type":"function","name":"shell","strict":false,"parameters":{"type":"object","properties":{}}},
		{"type":"web_search","external_web_access":true},
		{"type":"custom","name":"apply_patch","description":"d","format":{"type":"grammar","syntax":"lark","definition":"start: x"}},{"type":"local_shell"},
		{"type":"tool_search"},{"type":"image_generation"},{"type":"namespace","name":"mcp__git","description":"d","tools":[{"type":"function",
		"name":"log","parameters":{"type":"object"}}]}]`
	const history = `{"type":"message","role":"developer","content":[{"type":"input_text","text":"Rules."}]},
		{"type":"message","role":"user","content":[{"type":"input_text","text":"Go."}]},
		{"type":"reasoning","summary":[],"encrypted_content":"foreign"},{"type":"function_call","call_id":"c1","name":"log","namespace":"mcp__git","arguments":"{}"},
		{"type":"function_call_output","call_id":"c1","output":[{"type":"input_text","text":"done"}]},
		{"type":"custom_tool_call","call_id":"c2","name":"apply_patch","input":"x"},
		{"type":"custom_tool_call_output","call_id":"c2","output":"ok"},{"type":"web_search_call","status":"completed"}`
	for name, body := range map[string]string{
		"full": params + `"instructions":"Be Codex.","tools":` + tools + `,"input":[` + history + `]}`,
		"lite": params + `"tools":null,"input":[{"type":"additional_tools","role":"developer","tools":` + tools + `},` + history + `]}`,
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, nil, `{"choices":[{"delta":{"reasoning_content":"Hm","tool_calls":[{"index":0,"id":"c3","function":{"name":"mcp__git__log",`+
				`"arguments":"{}"}}]}}]}`)
			r, err := accumulate(s.stream(body))
			require.NoError(t, err)
			assert.Equal(t, "completed", r["status"])
			output := r["output"].([]any)
			assert.NotEmpty(t, output[0].(object)["encrypted_content"])
			assert.Equal(t, "mcp__git", output[1].(object)["namespace"])
			assert.Equal(t, "log", output[1].(object)["name"])
			var names []string
			for i := range s.request.Tools {
				names = append(names, s.request.Tools[i].Function.Name)
			}
			assert.Equal(t, []string{"shell", "apply_patch", "mcp__git__log"}, names)
		})
	}
}

func TestCreate_Refused(t *testing.T) {
	s := newServer(t, nil, chunkText)
	tests := []struct{ name, body, param, code, message string }{
		{"no JSON", `{"model":`, "", "", "We could not parse the JSON body"},
		{"no object", `[]`, "", "invalid_type", "expected an object"},
		{"duplicate", `{"model":"m","input":"Hi","model":"n"}`, "model", "duplicate_parameter", "Duplicate parameter: 'model'."},
		{"no model", `{"input":"Hi"}`, "model", "missing_required_parameter", "Missing required parameter: 'model'."},
		{"no input", `{"model":"m"}`, "input", "missing_required_parameter", "Missing required parameter: 'input'."},
		{"number as input", `{"model":"m","input":1}`, "input", "invalid_type", "expected a string or an array of items"},
		{"number as item", `{"model":"m","input":[1]}`, "input[0]", "invalid_type", "expected an object"},
		{"no type", `{"model":"m","input":[{}]}`, "input[0].type", "missing_required_parameter", ""},
		{"unknown item", `{"model":"m","input":[{"role":"user","content":"Hi"},{"type":"new","result":"x"}]}`, "input[1].type", "invalid_value",
			"The item 'input[1]' has the type 'new', which is not supported"},
		{"computer", `{"model":"m","input":[{"type":"computer_call","call_id":"c","action":{}}]}`, "input[0].type", "invalid_value", "'computer_call'"},
		{"unknown part", `{"model":"m","input":[{"role":"user","content":[{"type":"new","blob":"x"}]}]}`, "input[0].content[0].type", "invalid_value",
			"The part 'input[0].content[0]' has the type 'new', which is not supported"},
		{"part of another server", `{"model":"m","input":[{"type":"agent_message","content":[{"type":"encrypted_content","encrypted_content":"x"}]}]}`,
			"input[0].content[0]", "invalid_encrypted_content", "could not be verified"},
		{"output of no call", `{"model":"m","input":[{"type":"shell_call_output","call_id":"c","output":[]}]}`, "input[0].call_id", "", "No tool call found"},
		{"mcp_call without a name", `{"model":"m","input":[{"type":"mcp_call","id":"i"}]}`, "input[0].name", "missing_required_parameter", ""},
		{"role", `{"model":"m","input":[{"role":"robot","content":"Hi"}]}`, "input[0].role", "invalid_value", "'user'"},
		{"no content", `{"model":"m","input":[{"role":"user"}]}`, "input[0].content", "missing_required_parameter", ""},
		{
			"part without a type",
			`{"model":"m","input":[{"role":"user","content":"a"},{"role":"user","content":[{"text":"b"}]}]}`,
			"input[1].content[0].type",
			"missing_required_parameter",
			"",
		},
		{
			"text of a part",
			`{"model":"m","input":[{"role":"user","content":[{"type":"input_text","text":1}]}]}`,
			"input[0].content[0].text",
			"invalid_type",
			"expected a string",
		},
		{
			"image by ID",
			`{"model":"m","input":[{"role":"user","content":[{"type":"input_image","file_id":"f"}]}]}`,
			"input[0].content[0].file_id",
			"unsupported_parameter",
			"image_url",
		},
		{"call without an ID", `{"model":"m","input":[{"type":"function_call","name":"f","arguments":"{}"}]}`, "input[0].call_id", "missing_required_parameter", ""},
		{"output with an empty ID", `{"model":"m","input":[{"type":"function_call_output","call_id":"","output":"x"}]}`, "input[0].call_id", "missing_required_parameter", ""},
		{
			"output without a call",
			`{"model":"m","input":[{"type":"function_call_output","call_id":"c","output":"x"},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}]}`,
			"input[0].call_id",
			"",
			"No tool call found for function call output with call_id c.",
		},
		{
			"output for another call",
			`{"model":"m","input":[{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"custom_tool_call_output","call_id":"d","output":"x"}]}`,
			"input[1].call_id",
			"",
			"call_id d.",
		},
		{"truncation", `{"model":"m","input":"Hi","truncation":"maybe"}`, "truncation", "invalid_value", "Invalid value: 'maybe'. Supported values are: 'auto' and 'disabled'."},
		{"effort", `{"model":"m","input":"Hi","reasoning":{"effort":"extreme"}}`, "reasoning.effort", "invalid_value", "'extreme'"},
		{"unknown include", `{"model":"m","input":"Hi","include":["reasoning.encrypted_content","reasoning.text"]}`, "include[1]", "invalid_value", "'reasoning.text'"},
		{"output", `{"model":"m","input":[{"type":"function_call_output","call_id":"c","output":{}}]}`, "input[0].output", "invalid_type", ""},
		{"reference", `{"model":"m","input":[{"type":"item_reference","id":"msg_1"}]}`, "input[0].id", "item_not_found", "Use 'store': false"},
		{
			"previous response",
			`{"model":"m","input":"Hi","previous_response_id":"resp_1"}`,
			"previous_response_id",
			"previous_response_not_found",
			"Use 'store': false",
		},
		{"background", `{"model":"m","input":"Hi","background":true}`, "background", "unsupported_parameter", ""},
		{"conversation", `{"model":"m","input":"Hi","conversation":"conv_1"}`, "conversation", "unsupported_parameter", ""},
		{"prompt", `{"model":"m","input":"Hi","prompt":{"id":"p"}}`, "prompt", "unsupported_parameter", ""},
		{"temperature", `{"model":"m","input":"Hi","temperature":3}`, "temperature", "decimal_above_max_value", "Expected a value <= 2, but got 3 instead."},
		{"max_output_tokens", `{"model":"m","input":"Hi","max_output_tokens":0}`, "max_output_tokens", "integer_below_min_value", "Invalid 'max_output_tokens': integer below minimum value."},
		{"fraction", `{"model":"m","input":"Hi","max_output_tokens":1.5}`, "max_output_tokens", "invalid_type", "an integer"},
		{"format", `{"model":"m","input":"Hi","text":{"format":{"type":"xml"}}}`, "text.format.type", "invalid_value", ""},
		{"schema", `{"model":"m","input":"Hi","text":{"format":{"type":"json_schema","name":"n"}}}`, "text.format.schema", "missing_required_parameter", ""},
		{"tool without a type", `{"model":"m","input":"Hi","tools":[{"name":"f"}]}`, "tools[0].type", "missing_required_parameter", ""},
		{
			"tool without a name",
			`{"model":"m","input":"Hi","tools":[{"type":"namespace","name":"n","tools":[{"type":"function"}]}]}`,
			"tools[0].tools[0].name",
			"missing_required_parameter",
			"",
		},
		{"parameters", `{"model":"m","input":"Hi","tools":[{"type":"function","name":"f","parameters":[]}]}`, "tools[0].parameters", "invalid_type", "an object"},
		{
			"hosted tool",
			`{"model":"m","input":"Hi","tools":[{"type":"web_search"}],"tool_choice":{"type":"web_search"}}`,
			"tool_choice",
			"invalid_value",
			"'web_search'",
		},
		{"required without tools", `{"model":"m","input":"Hi","tools":[{"type":"web_search"}],"tool_choice":"required"}`, "tool_choice", "invalid_value", ""},
		{
			"unknown tool",
			`{"model":"m","input":"Hi","tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"function","name":"g"}}`,
			"tool_choice",
			"invalid_value",
			"'g'",
		},
		{"metadata", `{"model":"m","input":"Hi","metadata":[]}`, "metadata", "invalid_type", ""},
		{"include", `{"model":"m","input":"Hi","include":[1]}`, "include[0]", "invalid_type", ""},
		{"deep", `{"model":"m","input":"Hi","metadata":` + strings.Repeat(`{"a":`, 600) + "1" + strings.Repeat("}", 601), "", "", "nests deeper than 512 levels"},
		{"many values", `{"model":"m","input":"Hi","x":[` + strings.Repeat(`{"y":[1]},`, 50_000) + `{}]}`, "", "", "too many elements"},
		{"too many items", `{"model":"m","input":[` + strings.Repeat("1,", 20000) + `1]}`, "input", "array_above_max_length", "maximum length 16384, but got an array with length 20001 instead."},
		{"empty input", `{"model":"m","input":[]}`, "input", "empty_array", "Invalid 'input': empty array."},
		{"many parts", `{"model":"m","input":[{"role":"user","content":[` + strings.Repeat(`{"type":"input_text","text":"a"},`, 16384) + `{}]}]}`, "input[0].content", "array_above_max_length", "maximum length 16384, but got an array with length 16385 instead."},
		{"many parts of a message", `{"model":"m","input":[{"role":"user","content":[` + strings.Repeat(`{"type":"input_text","text":"a"},`, 4096) + `{"type":"input_text","text":"a"}]}]}`,
			"input", "array_above_max_length", "Invalid 'input': array too long. Expected an array with maximum length 4096, but got an array with length 4097 instead."},
		{"schema is a string", `{"model":"m","input":"Hi","text":{"format":{"type":"json_schema","name":"n","schema":"x"}}}`, "text.format.schema", "invalid_type", "Invalid type for 'text.format.schema': expected an object."},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			e := s.requireRefused(400, "POST", "/v1/responses", test.body)
			assert.Equal(t, test.param, e.Param)
			assert.Equal(t, test.code, e.Code)
			assert.Contains(t, e.Message, test.message)
			assert.Equal(t, "invalid_request_error", e.Type)
		})
	}
}
