package messages_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/llm"
)

func TestRequest_Conversion(t *testing.T) {
	const user = `{"role":"user","content":"Hi"}`
	for name, test := range map[string]struct{ members, want string }{
		"text": {hi, `"messages":[` + user + `]`},
		"parameters": {
			hi + `,"temperature":0.5,"top_p":0.25,"top_k":7,"stop_sequences":["a","b"]`,
			`"messages":[` + user + `],"temperature":0.5,"top_p":0.25,"stop":["a","b"],"top_k":7`,
		},
		"five stop sequences": {hi + `,"stop_sequences":["a","b","c","d","e"]`,
			`"messages":[` + user + `],"stop":["a","b","c","d","e"]`},
		"no stop sequences": {hi + `,"stop_sequences":[]`, `"messages":[` + user + `]`},
		"metadata":          {hi + `,"metadata":{"user_id":"u"},"service_tier":"standard_only"`, `"messages":[` + user + `],"user":"u","service_tier":"default"`},
		"service tier":      {hi + `,"service_tier":"auto"`, `"messages":[` + user + `],"service_tier":"auto"`},
		"null parameters": {
			hi + `,"system":null,"tools":null,"tool_choice":null,"thinking":null,"output_config":null,"metadata":null,"temperature":null`,
			`"messages":[` + user + `]`,
		},
		"unknown parameters": {hi + `,"context_management":{"edits":[]},"mcp_servers":[],"future":{"x":[1]}`, `"messages":[` + user + `]`},
		"speed":              {hi + `,"speed":"fast"`, `"messages":[` + user + `],"speed":"fast"`},
		"no speed":           {hi + `,"speed":null`, `"messages":[` + user + `]`},
		"system":             {hi + `,"system":"Be brief."`, `"messages":[{"role":"system","content":"Be brief."},` + user + `]`},
		"empty system":       {hi + `,"system":""`, `"messages":[` + user + `]`},
		"system blocks": {
			hi + `,"system":[{"type":"text","text":"x-anthropic-billing-header: cc_version=1"},` +
				`{"type":"text","text":"One."},{"type":"text","text":""},{"type":"text","text":"Two."}]`,
			`"messages":[{"role":"system","content":"One.\n\nTwo."},` + user + `]`,
		},
		"system in the middle": {
			`,"messages":[{"role":"user","content":"Hi"},{"role":"system","content":"Now French."},{"role":"user","content":"Hi"}]`,
			`"messages":[` + user + `,{"role":"system","content":"Now French."},` + user + `]`,
		},
		"turns of one role": {`,"messages":[{"role":"user","content":"a"},{"role":"user","content":[{"type":"text","text":"b"}]},` +
			`{"role":"assistant","content":"c"},{"role":"assistant","content":"d"}]`,
			`"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},` +
				`{"role":"assistant","content":[{"type":"text","text":"c"},{"type":"text","text":"d"}]}]`},
		"prefill": {
			`,"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"{"}]`,
			`"messages":[` + user + `,{"role":"assistant","content":"{"}]`,
		},
		"empty texts": {
			`,"messages":[{"role":"user","content":[{"type":"text","text":""},{"type":"text","text":"Hi"}]},{"role":"assistant","content":[]}]`,
			`"messages":[` + user + `,{"role":"assistant","content":""}]`,
		},
		"only an empty text": {`,"messages":[{"role":"user","content":[{"type":"text","text":""}]}]`, `"messages":[{"role":"user","content":""}]`},
		"images": {`,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}},` +
			`{"type":"image","source":{"type":"url","url":"https://example.com/a.png"}}]}]`,
			`"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}},` +
				`{"type":"image_url","image_url":{"url":"https://example.com/a.png"}}]}]`},
		"documents": {`,"messages":[{"role":"user","content":[{"type":"document","title":"a.pdf","source":{"type":"base64",` +
			`"media_type":"application/pdf","data":"AAAA"}},{"type":"document","source":{"type":"url","url":"https://example.com/b.pdf"}},` +
			`{"type":"document","title":"T","citations":{"enabled":true},"source":{"type":"text","media_type":"text/plain","data":"D"}},` +
			`{"type":"document","source":{"type":"content","content":[{"type":"text","text":"C"}]}},{"type":"document","source":{"type":"content","content":"S"}}]}]`,
			`"messages":[{"role":"user","content":[{"type":"file","file":{"file_data":"data:application/pdf;base64,AAAA","filename":"a.pdf"}},` +
				`{"type":"file","file":{"file_data":"https://example.com/b.pdf","filename":"document.pdf"}},` +
				`{"type":"text","text":"T\n\nD"},{"type":"text","text":"C"},{"type":"text","text":"S"}]}]`},
		"search results": {`,"messages":[{"role":"user","content":[{"type":"search_result","source":"https://example.com","title":"T",` +
			`"content":[{"type":"text","text":"x"}]}]}]`,
			`"messages":[{"role":"user","content":"T https://example.com\n\nx"}]`},
		"tool use": {`,"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":[{"type":"text","text":"Well."},` +
			`{"type":"tool_use","id":"t1","name":"f","input":{"b": 1, "a":"<&>"}},{"type":"tool_use","id":"t2","name":"g","input":{}}]},` +
			`{"role":"user","content":[{"type":"text","text":"Go on."},{"type":"tool_result","tool_use_id":"t1","content":"one"},` +
			`{"type":"tool_result","tool_use_id":"t2","is_error":true,"content":[{"type":"text","text":"two"},` +
			`{"type":"image","source":{"type":"url","url":"u"}},{"type":"tool_reference","tool_name":"h"}]}]}]`,
			`"messages":[` + user + `,{"role":"assistant","content":"Well.","tool_calls":[{"id":"t1","type":"function","function":{"name":"f",` +
				`"arguments":"{\"b\":1,\"a\":\"<&>\"}"}},{"id":"t2","type":"function","function":{"name":"g","arguments":"{}"}}]},` +
				`{"role":"tool","content":"one","tool_call_id":"t1"},{"role":"tool","content":[{"type":"text","text":"two"},` +
				`{"type":"image_url","image_url":{"url":"u"}},{"type":"text","text":"Tool: h"}],"tool_call_id":"t2","is_error":true},{"role":"user","content":"Go on."}]`},
		"empty tool result": {
			`,"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1"}]}]`,
			`"messages":[{"role":"tool","content":"","tool_call_id":"t1"}]`,
		},
		"only a call": {
			`,"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"f","input":{}}]}]`,
			`"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"t1","type":"function","function":{"name":"f","arguments":"{}"}}]}]`,
		},
		"thinking": {`,"messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"Hm.","signature":"sig"},` +
			`{"type":"redacted_thinking","data":"xyz"},{"type":"text","text":"Hi"}]}]`,
			`"messages":[{"role":"assistant","content":"Hi","reasoning_content":"Hm.","reasoning_details":[{"type":"reasoning.text","text":"Hm.",` +
				`"signature":"sig"},{"type":"reasoning.encrypted","data":"xyz"}]}]`},
		"thinking without signature": {`,"messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"Hm.","signature":""},` +
			`{"type":"text","text":"Hi"}]}]`,
			`"messages":[{"role":"assistant","content":"Hi","reasoning_content":"Hm."}]`},
		"blocks of the server": {`,"messages":[{"role":"assistant","content":[{"type":"server_tool_use","id":"s","name":"web_search","input":{}},` +
			`{"type":"web_search_tool_result","tool_use_id":"s","content":{"type":"web_search_tool_result_error"}},` +
			`{"type":"container_upload","file_id":"f"},{"type":"text","text":"Hi","citations":[{"type":"x"}]},{"type":"compaction","content":"Sum."}]}]`,
			`"messages":[{"role":"assistant","content":[{"type":"text","text":"Hi"},{"type":"text","text":"Sum."}]}]`},
		"tools": {hi + `,"tools":[{"name":"f","description":"F","input_schema":{"type":"object"},"strict":true,` +
			`"eager_input_streaming":true},{"type":"custom","name":"g","input_schema":{}},{"type":"web_search_20260318","name":"web_search","max_uses":2},` +
			`{"type":"bash_20250124","name":"bash"}]`,
			`"messages":[` + user + `],"tools":[{"type":"function","function":{"name":"f","description":"F","parameters":{"type":"object"},` +
				`"strict":true}},{"type":"function","function":{"name":"g","parameters":{}}}]`},
		"tool choice": {
			withToolChoice(`{"type":"tool","name":"f","disable_parallel_tool_use":true}`),
			wantWithTools + `,"tool_choice":{"function":{"name":"f"},"type":"function"},"parallel_tool_calls":false`,
		},
		"tool choice auto": {withToolChoice(`{"type":"auto"}`), wantWithTools + `,"tool_choice":"auto"`},
		"tool choice any":  {withToolChoice(`{"type":"any"}`), wantWithTools + `,"tool_choice":"required"`},
		"tool choice none": {withToolChoice(`{"type":"none"}`), wantWithTools + `,"tool_choice":"none"`},
		"tool choice, parallel": {
			withToolChoice(`{"type":"any","disable_parallel_tool_use":false}`),
			wantWithTools + `,"tool_choice":"required","parallel_tool_calls":true`,
		},
		"choice of a server tool": {
			hi + `,"tools":[{"type":"web_search_20260318","name":"web_search"},{"name":"f","input_schema":{}}],"tool_choice":{"type":"tool","name":"web_search"}`,
			wantWithTools,
		},
		"a server tool that is not used": {
			hi + `,"tools":[{"type":"web_search_20260318","name":"web_search"}],"tool_choice":{"type":"none"}`,
			`"messages":[` + user + `]`,
		},
		"no tools":           {hi + `,"tools":[]`, `"messages":[` + user + `]`},
		"auto without tools": {hi + `,"tool_choice":{"type":"auto"}`, `"messages":[` + user + `]`},
		"thinking budget": {
			hi + `,"thinking":{"type":"enabled","budget_tokens":1024}`,
			`"messages":[` + user + `],"reasoning_effort":"low","thinking":{"budget_tokens":1024,"type":"enabled"}`,
		},
		"thinking budget, middle": {
			hi + `,"thinking":{"type":"enabled","budget_tokens":8000}`,
			`"messages":[` + user + `],"reasoning_effort":"medium","thinking":{"budget_tokens":8000,"type":"enabled"}`,
		},
		"thinking budget, large": {
			hi + `,"thinking":{"type":"enabled","budget_tokens":31999}`,
			`"messages":[` + user + `],"reasoning_effort":"high","thinking":{"budget_tokens":31999,"type":"enabled"}`,
		},
		"adaptive thinking": {
			hi + `,"thinking":{"type":"adaptive","display":"omitted"},"output_config":{"effort":"max"}`,
			`"messages":[` + user + `],"reasoning_effort":"max"`,
		},
		"no thinking with an effort": {
			hi + `,"thinking":{"type":"disabled"},"output_config":{"effort":"high"}`,
			`"messages":[` + user + `],"reasoning_effort":"none"`,
		},
		"effort":                 {hi + `,"output_config":{"effort":"high"}`, `"messages":[` + user + `],"reasoning_effort":"high"`},
		"thinking between tools": {hi + `,"thinking":{"type":"between_tools"}`, `"messages":[` + user + `]`},
		"no thinking":            {hi + `,"thinking":{"type":"disabled"}`, `"messages":[` + user + `],"reasoning_effort":"none"`},
		"format": {hi + `,"output_config":{"format":{"type":"json_schema","schema":{"type":"object"}}}`,
			`"messages":[` + user + `],"response_format":{"type":"json_schema","json_schema":{"name":"output","schema":{"type":"object"},"strict":true}}`},
		"format of the beta": {hi + `,"output_format":{"type":"json_schema","schema":{"type":"object"}}`,
			`"messages":[` + user + `],"response_format":{"type":"json_schema","json_schema":{"name":"output","schema":{"type":"object"},"strict":true}}`},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(nil, nil)
			w := s.do("POST", messagesPath, requestBody(test.members), "Anthropic-Beta", "context-management-2025-06-27,x")
			require.Equal(t, 200, w.Code, w.Body)
			got, err := json.Marshal(s.last)
			require.NoError(t, err)
			assert.JSONEq(t, `{"model":"m","max_tokens":9,`+test.want+`}`, string(got))
		})
	}
}

const wantWithTools = `"messages":[{"role":"user","content":"Hi"}],"tools":[{"type":"function","function":{"name":"f","parameters":{}}}]`

// withToolChoice returns members with one tool and a tool_choice.
func withToolChoice(choice string) string {
	return hi + `,"tools":[{"name":"f","input_schema":{}}],"tool_choice":` + choice
}

func TestRequest_ArgumentsKeepOrderOfMembers(t *testing.T) {
	s := newServer(nil, nil)
	s.do("POST", messagesPath, requestBody(`,"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f",`+
		`"input":{ "z" : 1.50, "a": [ 1 , 2 ]}}]}]`))
	assert.Equal(t, `{"z":1.50,"a":[1,2]}`, s.last.Messages[0].ToolCalls[0].Function.Arguments)
}

// The input that a whole reply has for arguments that are not JSON comes back in the next
// request, and is passed on as JSON.
func TestRequest_InvalidArgumentsStayJSON(t *testing.T) {
	whole, _, _ := sendBoth(t, func() []*llm.ChatChunk {
		return []*llm.ChatChunk{chunk(t, `{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{\"a\":\"b"}}]},"finish_reason":"length"}`)}
	})
	content, err := json.Marshal(whole.Content)
	require.NoError(t, err)
	s := newServer(nil, nil)
	w := s.do("POST", messagesPath, requestBody(`,"messages":[{"role":"assistant","content":`+string(content)+`},`+
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":"not run","is_error":true}]}]`))
	require.Equal(t, 200, w.Code, w.Body)
	assert.Equal(t, `{"INVALID_JSON":"{\"a\":\"b"}`, s.last.Messages[0].ToolCalls[0].Function.Arguments)
}

func TestRequest_Refused(t *testing.T) {
	turn := func(content string) string {
		return requestBody(`,"messages":[{"role":"user","content":"a"},{"role":"user","content":` + content + `}]`)
	}
	assistant := func(content string) string {
		return requestBody(`,"messages":[{"role":"assistant","content":` + content + `}]`)
	}
	for name, test := range map[string]struct{ body, want string }{
		"no JSON":       {`{"model"`, "The request body is not valid JSON: it must be one document in UTF-8"},
		"two documents": {requestBody(hi) + `{}`, "The request body is not valid JSON: it must be one document in UTF-8"},
		"invalid UTF-8": {
			requestBody(`,"messages":[{"role":"user","content":"` + "\xff" + `"}]`),
			"The request body is not valid JSON: it must be one document in UTF-8",
		},
		"an array":   {`[]`, "Input should be an object"},
		"no model":   {`{"max_tokens":1` + hi + `}`, "model: Field required"},
		"null model": {`{"model":null,"max_tokens":1` + hi + `}`, "model: Field required"},
		"model":      {`{"model":1}`, "model: Input should be a string"},
		"duplicate":  {`{"model":"m","model":"m"}`, "model: Duplicate field"},
		"nested duplicate": {
			requestBody(`,"messages":[{"role":"user","content":[{"type":"text","type":"text"}]}]`),
			"messages.0.content.0.type: Duplicate field",
		},
		"no max_tokens":   {`{"model":"m"` + hi + `}`, "max_tokens: Field required"},
		"max_tokens":      {`{"model":"m","max_tokens":-1` + hi + `}`, "max_tokens: integer below minimum value. Expected a value >= 1, but got -1 instead."},
		"max_tokens text": {`{"model":"m","max_tokens":"9"` + hi + `}`, "max_tokens: Input should be an integer"},
		"no messages":     {requestBody(``), "messages: Field required"},
		"empty messages":  {requestBody(`,"messages":[]`), "messages: at least one message is required"},
		"messages":        {requestBody(`,"messages":"Hi"`), "messages: Input should be an array"},
		"a message":       {requestBody(`,"messages":["Hi"]`), "messages.0: Input should be an object"},
		"no role":         {requestBody(`,"messages":[{"content":"Hi"}]`), "messages.0.role: Field required"},
		"role": {
			requestBody(`,"messages":[{"role":"tool","content":"Hi"}]`),
			"messages.0.role: Input should be 'user', 'assistant' or 'system'",
		},
		"no content":         {requestBody(`,"messages":[{"role":"user"}]`), "messages.0.content: Field required"},
		"content":            {turn(`1`), "messages.1.content: Input should be a string or an array"},
		"a block":            {turn(`[1]`), "messages.1.content.0: Input should be an object"},
		"block type":         {turn(`[{"type":"text","text":"a"},{"type":1}]`), "messages.1.content.1.type: Input should be a string"},
		"no block type":      {turn(`[{"text":"a"}]`), "messages.1.content.0.type: Field required"},
		"unknown block":      {turn(`[{"type":"hologram"}]`), "messages.1.content.0.type: Input tag 'hologram' does not match any of the expected tags"},
		"no source":          {turn(`[{"type":"image"}]`), "messages.1.content.0.source: Field required"},
		"source":             {turn(`[{"type":"image","source":"x"}]`), "messages.1.content.0.source: Input should be an object"},
		"source is an array": {turn(`[{"type":"image","source":[]}]`), "messages.1.content.0.source: Input should be an object"},
		"member of a source": {turn(`[{"type":"image","source":{"data":1}}]`), "messages.1.content.0.source.data: Input should be a string"},
		"source type": {
			turn(`[{"type":"image","source":{"type":"text","data":"x"}}]`),
			"messages.1.content.0.source.type: Input should be 'base64', 'url' or 'file'",
		},
		"no source type": {turn(`[{"type":"image","source":{}}]`), "messages.1.content.0.source.type: Field required"},
		"file": {
			turn(`[{"type":"document","source":{"type":"file","file_id":"f"}}]`),
			"messages.1.content.0.source.type: Uploaded files are not supported",
		},
		"no data": {
			turn(`[{"type":"image","source":{"type":"base64","media_type":"image/png"}}]`),
			"messages.1.content.0.source.data: Field required",
		},
		"no media type": {turn(`[{"type":"image","source":{"type":"base64","data":"AA"}}]`), "messages.1.content.0.source.media_type: Field required"},
		"media type": {
			turn(`[{"type":"image","source":{"type":"base64","media_type":"image/png\r\nX-Y: z","data":"AA"}}]`),
			"messages.1.content.0.source.media_type: Input should be a media type, such as 'image/png'",
		},
		"media type of a document": {
			turn(`[{"type":"document","source":{"type":"base64","media_type":";base64,AAAA","data":"AA"}}]`),
			"messages.1.content.0.source.media_type: Input should be a media type, such as 'image/png'",
		},
		"no URL": {turn(`[{"type":"image","source":{"type":"url"}}]`), "messages.1.content.0.source.url: Field required"},
		"document type": {
			turn(`[{"type":"document","source":{"type":"disk"}}]`),
			"messages.1.content.0.source.type: Input should be 'base64', 'text', 'content', 'url' or 'file'",
		},
		"document content": {
			turn(`[{"type":"document","source":{"type":"content","content":[{"type":"text","text":"a"},{"type":"x"}]}}]`),
			"messages.1.content.0.source.content.1.type: Input tag 'x' does not match any of the expected tags",
		},
		"nested document": {
			turn(`[{"type":"document","source":{"type":"content","content":[{"type":"document","source":{}}]}}]`),
			"messages.1.content.0.source.content.0.type: Input tag 'document' does not match any of the expected tags",
		},
		"nested search result": {
			turn(`[{"type":"search_result","content":[{"type":"search_result","content":"x"}]}]`),
			"messages.1.content.0.content.0.type: Input tag 'search_result' does not match any of the expected tags",
		},
		"no tool_use_id": {turn(`[{"type":"tool_result"}]`), "messages.1.content.0.tool_use_id: Field required"},
		"in a tool result": {
			turn(`[{"type":"tool_result","tool_use_id":"t","content":[{"type":"image"}]}]`),
			"messages.1.content.0.content.0.source: Field required",
		},
		"text without text":         {turn(`[{"type":"text"}]`), "messages.1.content.0.text: Field required"},
		"null text":                 {turn(`[{"type":"text","text":null}]`), "messages.1.content.0.text: Field required"},
		"text of a tool result":     {turn(`[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text"}]}]`), "messages.1.content.0.content.0.text: Field required"},
		"system without text":       {requestBody(hi + `,"system":[{"type":"text"}]`), "system.0.text: Field required"},
		"no input":                  {assistant(`[{"type":"tool_use","id":"t","name":"f"}]`), "messages.0.content.0.input: Field required"},
		"thinking without thinking": {assistant(`[{"type":"thinking","signature":"s"}]`), "messages.0.content.0.thinking: Field required"},
		"only server tools": {
			requestBody(hi + `,"tools":[{"type":"web_search_20260318","name":"web_search"}],"tool_choice":{"type":"tool","name":"web_search"}`),
			"tools: This server supports only tools with an input_schema, and not those of the type 'web_search_20260318'",
		},
		"no call ID":   {assistant(`[{"type":"tool_use","name":"f","input":{}}]`), "messages.0.content.0.id: Field required"},
		"no call name": {assistant(`[{"type":"tool_use","id":"t","input":{}}]`), "messages.0.content.0.name: Field required"},
		"input":        {assistant(`[{"type":"tool_use","id":"t","name":"f","input":"{}"}]`), "messages.0.content.0.input: Input should be an object"},
		"system":       {requestBody(hi + `,"system":1`), "system: Input should be a string or an array"},
		"system block": {requestBody(hi + `,"system":[{"type":"image"}]`), "system.0.type: Input should be 'text'"},
		"system role": {
			requestBody(`,"messages":[{"role":"system","content":[{"type":"image"}]}]`),
			"messages.0.content.0.type: Input should be 'text'",
		},
		"temperature":               {requestBody(hi + `,"temperature":1.5`), "temperature: Input should be from 0 to 1"},
		"top_p":                     {requestBody(hi + `,"top_p":-1`), "top_p: decimal below minimum value. Expected a value >= 0, but got -1 instead."},
		"low temperature":           {requestBody(hi + `,"temperature":-1`), "temperature: decimal below minimum value. Expected a value >= 0, but got -1 instead."},
		"many tools":                {requestBody(hi + `,"tools":[` + strings.Repeat(`{"name":"f","input_schema":{}},`, 2048) + `{"name":"f","input_schema":{}}]`), "tools: array too long. Expected an array with maximum length 2048, but got an array with length 2049 instead."},
		"many blocks":               {turn(`[` + strings.Repeat(`{"type":"text","text":"a"},`, 4096) + `{"type":"text","text":"a"}]`), "messages: array too long. Expected an array with maximum length 4096, but got an array with length 4098 instead."},
		"top_k":                     {requestBody(hi + `,"top_k":-1`), "top_k: Input should be greater than or equal to 0"},
		"stop_sequences":            {requestBody(hi + `,"stop_sequences":[1]`), "stop_sequences.0: Input should be a string"},
		"stream":                    {requestBody(hi + `,"stream":"yes"`), "stream: Input should be a boolean"},
		"tool name":                 {requestBody(hi + `,"tools":[{"input_schema":{}}]`), "tools.0.name: Field required"},
		"tool schema":               {requestBody(hi + `,"tools":[{"name":"f"}]`), "tools.0.input_schema: Field required"},
		"tool schema type":          {requestBody(hi + `,"tools":[{"name":"f","input_schema":[]}]`), "tools.0.input_schema: Input should be an object"},
		"choice type":               {requestBody(withToolChoice(`{"type":"some"}`)), "tool_choice.type: Input should be 'auto', 'any', 'tool' or 'none'"},
		"no choice type":            {requestBody(withToolChoice(`{}`)), "tool_choice.type: Field required"},
		"choice of an unknown tool": {requestBody(withToolChoice(`{"type":"tool","name":"g"}`)), "tool_choice.name: Tool 'g' not found in provided tools"},
		"choice, no tools":          {requestBody(hi + `,"tool_choice":{"type":"any"}`), "tool_choice: may only be specified while providing tools"},
		"thinking":                  {requestBody(hi + `,"thinking":true`), "thinking: Input should be an object"},
		"thinking type": {
			requestBody(hi + `,"thinking":{"type":"deep"}`),
			"thinking.type: Input should be 'enabled', 'adaptive', 'between_tools' or 'disabled'",
		},
		"no thinking type": {requestBody(hi + `,"thinking":{}`), "thinking.type: Field required"},
		"no budget":        {requestBody(hi + `,"thinking":{"type":"enabled"}`), "thinking.budget_tokens: Field required"},
		"budget": {
			requestBody(hi + `,"thinking":{"type":"enabled","budget_tokens":0}`),
			"thinking.budget_tokens: Input should be greater than or equal to 1",
		},
		"format type":    {requestBody(hi + `,"output_config":{"format":{"type":"xml"}}`), "output_config.format.type: Input should be 'json_schema'"},
		"no format type": {requestBody(hi + `,"output_format":{}`), "output_format.type: Field required"},
		"no schema":      {requestBody(hi + `,"output_config":{"format":{"type":"json_schema"}}`), "output_config.format.schema: Field required"},
		"schema": {
			requestBody(hi + `,"output_config":{"format":{"type":"json_schema","schema":"x"}}`),
			"output_config.format.schema: Input should be an object",
		},
		"thread": {
			requestBody(hi + `,"thread":{"type":"create"}`),
			"thread: Message threads are not supported; send the full conversation without `thread`",
		},
		"a large number": {`{"model":"m","max_tokens":1e300` + hi + `}`, "max_tokens: Input should be a number that is not as large"},
		"deep": {
			requestBody(hi + `,"x":` + strings.Repeat("[", 600) + strings.Repeat("]", 600)),
			"The request body nests deeper than 512 levels",
		},
		"many values": {turn(`[` + strings.Repeat(`{"type":"text"},`, 70000) + `{}]`), "The request body has too many values"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(nil, nil)
			w := s.do("POST", messagesPath, test.body)
			assert.Equal(t, 400, w.Code)
			typ, message, err := readError(w.Body.Bytes())
			require.NoError(t, err)
			assert.Equal(t, "invalid_request_error", typ)
			assert.Equal(t, test.want, message)
			assert.Nil(t, s.last)
			assert.Empty(t, s.usage)
		})
	}
}

// The tool runners of the SDKs recognise the refusal of a thread by its code.
func TestRequest_ThreadRefusedWithCode(t *testing.T) {
	w := newServer(nil, nil).do("POST", messagesPath, requestBody(hi+`,"thread":{"type":"continue","previous_message_id":"msg_1"}`))
	assert.Contains(t, w.Body.String(), `"details":{"error_code":"thread_unsupported_request"}`)
	assert.Equal(t, 200, newServer(nil, nil).do("POST", messagesPath, requestBody(hi+`,"thread":null`)).Code)
}
