package anthropic_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
	"github.com/llmhttp/llmhttp/upstream"
	"github.com/llmhttp/llmhttp/upstream/anthropic"
)

// What a request of chat completions becomes. The request is without the model and what the test is not about.
func TestRequest(t *testing.T) {
	const user = `{"role":"user","content":"Hi"}`
	const hi = `"messages":[{"role":"user","content":[{"type":"text","text":"Hi"}]}]`
	const tool = `{"type":"function","function":{"name":"f","description":"F","parameters":{"type":"object","properties":{"a":{"type":"string"}}}}}`
	const sent = `{"name":"f","description":"F","input_schema":{"type":"object","properties":{"a":{"type":"string"}}}}`
	const limit = `"max_tokens":8192,`
	for name, test := range map[string]struct {
		request string // members
		want    string // members
		opts    anthropic.Options
	}{
		"text":              {`"messages":[` + user + `]`, limit + hi, anthropic.Options{}},
		"stream":            {`"stream":true,"stream_options":{"include_usage":true},"messages":[` + user + `]`, limit + `"stream":true,` + hi, anthropic.Options{}},
		"limit":             {`"max_tokens":5,"messages":[` + user + `]`, `"max_tokens":5,` + hi, anthropic.Options{}},
		"completion limit":  {`"max_tokens":5,"max_completion_tokens":6,"messages":[` + user + `]`, `"max_tokens":6,` + hi, anthropic.Options{}},
		"default limit":     {`"messages":[` + user + `]`, `"max_tokens":7,` + hi, anthropic.Options{MaxTokens: 7}},
		"no default limit":  {`"messages":[` + user + `]`, hi, anthropic.Options{MaxTokens: -1}},
		"system":            {`"messages":[{"role":"system","content":"S"},{"role":"developer","content":"D"},` + user + `]`, limit + `"system":[{"type":"text","text":"S"},{"type":"text","text":"D"}],` + hi, anthropic.Options{}},
		"one system":        {`"messages":[{"role":"system","content":"S"},` + user + `]`, limit + `"system":"S",` + hi, anthropic.Options{}},
		"system only":       {`"messages":[{"role":"system","content":"S"}]`, limit + `"messages":[{"role":"user","content":[{"type":"text","text":"S"}]}]`, anthropic.Options{}},
		"system later":      {`"messages":[` + user + `,{"role":"system","content":"S"}]`, limit + `"system":"S",` + hi, anthropic.Options{}},
		"system in place":   {`"messages":[` + user + `,{"role":"system","content":"S"}]`, limit + `"messages":[{"role":"user","content":[{"type":"text","text":"Hi"}]},{"role":"system","content":[{"type":"text","text":"S"}]}]`, anthropic.Options{Version: "2026-10-21"}},
		"successive turns":  {`"messages":[` + user + `,{"role":"user","content":[{"type":"text","text":"A"},{"type":"text","text":""}]}]`, limit + `"messages":[{"role":"user","content":[{"type":"text","text":"Hi"},{"type":"text","text":"A"}]}]`, anthropic.Options{}},
		"prefill":           {`"messages":[` + user + `,{"role":"assistant","content":"It is \n"}]`, limit + `"messages":[{"role":"user","content":[{"type":"text","text":"Hi"}]},{"role":"assistant","content":[{"type":"text","text":"It is"}]}]`, anthropic.Options{}},
		"image as data":     {`"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,QUE="}}]}]`, limit + `"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"QUE="}}]}]`, anthropic.Options{}},
		"image as address":  {`"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://images.test/1","detail":"low"}}]}]`, limit + `"messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"https://images.test/1"}}]}]`, anthropic.Options{}},
		"PDF":               {`"messages":[{"role":"user","content":[{"type":"file","file":{"filename":"a.pdf","file_data":"data:application/pdf;base64,QUE="}}]}]`, limit + `"messages":[{"role":"user","content":[{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"QUE="},"title":"a.pdf"}]}]`, anthropic.Options{}},
		"file of text":      {`"messages":[{"role":"user","content":[{"type":"file","file":{"file_data":"data:text/csv;base64,YSxi"}}]}]`, limit + `"messages":[{"role":"user","content":[{"type":"document","source":{"type":"text","media_type":"text/plain","data":"a,b"}}]}]`, anthropic.Options{}},
		"tools":             {`"tools":[` + tool + `],"messages":[` + user + `]`, limit + hi + `,"tools":[` + sent + `]`, anthropic.Options{}},
		"tool without more": {`"tools":[{"type":"function","function":{"name":"g"}}],"messages":[` + user + `]`, limit + hi + `,"tools":[{"name":"g","input_schema":{"type":"object","properties":{}}}]`, anthropic.Options{}},
		"schema no type":    {`"tools":[{"type":"function","function":{"name":"g","parameters":{"properties":{}},"strict":true}}],"messages":[` + user + `]`, limit + hi + `,"tools":[{"name":"g","input_schema":{"properties":{},"type":"object"},"strict":true}]`, anthropic.Options{}},
		"typed tool":        {`"tools":[{"type":"web_search_20250305","name":"web_search","max_uses":5},` + tool + `,{"type":"web_search_preview"}],"messages":[` + user + `]`, limit + hi + `,"tools":[{"type":"web_search_20250305","max_uses":5,"name":"web_search"},` + sent + `]`, anthropic.Options{}},
		"choice required":   {`"tools":[` + tool + `],"tool_choice":"required","messages":[` + user + `]`, limit + hi + `,"tools":[` + sent + `],"tool_choice":{"type":"any"}`, anthropic.Options{}},
		"choice none":       {`"tools":[` + tool + `],"tool_choice":"none","messages":[` + user + `]`, limit + hi + `,"tools":[` + sent + `],"tool_choice":{"type":"none"}`, anthropic.Options{}},
		"choice of one":     {`"tools":[` + tool + `],"tool_choice":{"type":"function","function":{"name":"f"}},"parallel_tool_calls":false,"messages":[` + user + `]`, limit + hi + `,"tools":[` + sent + `],"tool_choice":{"type":"tool","name":"f","disable_parallel_tool_use":true}`, anthropic.Options{}},
		"one at a time":     {`"tools":[` + tool + `],"parallel_tool_calls":false,"messages":[` + user + `]`, limit + hi + `,"tools":[` + sent + `],"tool_choice":{"type":"auto","disable_parallel_tool_use":true}`, anthropic.Options{}},
		"allowed tools":     {`"tools":[` + tool + `,{"type":"function","function":{"name":"g"}}],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[{"type":"function","function":{"name":"f"}}]}},"messages":[` + user + `]`, limit + hi + `,"tools":[` + sent + `],"tool_choice":{"type":"any"}`, anthropic.Options{}},
		"calls and results": {
			`"messages":[` + user + `,{"role":"assistant","content":"T","tool_calls":[{"id":"functions.f:0","type":"function","function":{"name":"f","arguments":"{\"b\": 1,\"a\":2}"}},` +
				`{"id":"c2","type":"function","function":{"name":"f","arguments":""}},{"id":"c3","type":"function","function":{"name":"f","arguments":"{\"cut"}}]},` +
				`{"role":"tool","tool_call_id":"functions.f:0","content":"R"},{"role":"tool","tool_call_id":"c2","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"https://images.test/1"}}],"is_error":true},` +
				`{"role":"tool","tool_call_id":"c3","content":""},{"role":"user","content":"Now?"}]`,
			limit + `"messages":[{"role":"user","content":[{"type":"text","text":"Hi"}]},{"role":"assistant","content":[{"type":"text","text":"T"},` +
				`{"type":"tool_use","id":"functions_f_0","name":"f","input":{"b": 1,"a":2}},{"type":"tool_use","id":"c2","name":"f","input":{}},{"type":"tool_use","id":"c3","name":"f","input":{"INVALID_JSON":"{\"cut"}}]},` +
				`{"role":"user","content":[{"type":"tool_result","tool_use_id":"functions_f_0","content":"R"},` +
				`{"type":"tool_result","tool_use_id":"c2","is_error":true,"content":[{"type":"text","text":"a"},{"type":"image","source":{"type":"url","url":"https://images.test/1"}}]},` +
				`{"type":"tool_result","tool_use_id":"c3"},{"type":"text","text":"Now?"}]}]`,
			anthropic.Options{},
		},
		"reasoning": {
			`"messages":[` + user + `,{"role":"assistant","content":"T","reasoning_content":"AB","reasoning_details":[{"type":"reasoning.text","text":"A","signature":"s1"},` +
				`{"type":"reasoning.encrypted","data":"d"},{"type":"reasoning.text","text":"B"},{"type":"reasoning.encrypted","data":"x","format":"openai-responses-v1"},` +
				`{"type":"reasoning.text","text":"","signature":"s2","format":"anthropic-claude-v1","index":0}]},` + user + `]`,
			limit + `"messages":[{"role":"user","content":[{"type":"text","text":"Hi"}]},{"role":"assistant","content":[{"type":"thinking","thinking":"A","signature":"s1"},` +
				`{"type":"redacted_thinking","data":"d"},{"type":"thinking","thinking":"","signature":"s2"},{"type":"text","text":"T"}]},{"role":"user","content":[{"type":"text","text":"Hi"}]}]`,
			anthropic.Options{},
		},
		"unsigned reasoning": {
			`"messages":[` + user + `,{"role":"assistant","content":"T","reasoning_content":"A"},` + user + `]`,
			limit + `"messages":[{"role":"user","content":[{"type":"text","text":"Hi"}]},{"role":"assistant","content":[{"type":"thinking","thinking":"A"},{"type":"text","text":"T"}]},{"role":"user","content":[{"type":"text","text":"Hi"}]}]`,
			anthropic.Options{UnsignedThinking: true},
		},
		"effort":                  {`"reasoning_effort":"high","messages":[` + user + `]`, limit + hi + `,"output_config":{"effort":"high"},"thinking":{"type":"adaptive"}`, anthropic.Options{}},
		"minimal effort":          {`"reasoning_effort":"minimal","messages":[` + user + `]`, limit + hi + `,"output_config":{"effort":"low"},"thinking":{"type":"adaptive"}`, anthropic.Options{}},
		"no effort":               {`"reasoning_effort":"none","messages":[` + user + `]`, limit + hi + `,"thinking":{"type":"disabled"}`, anthropic.Options{}},
		"budget":                  {`"reasoning_effort":"medium","max_tokens":20000,"messages":[` + user + `]`, `"max_tokens":20000,` + hi + `,"thinking":{"type":"enabled","budget_tokens":8192}`, anthropic.Options{ThinkingBudgets: true}},
		"bounded budget":          {`"reasoning_effort":"high","max_tokens":4000,"messages":[` + user + `]`, `"max_tokens":4000,` + hi + `,"thinking":{"type":"enabled","budget_tokens":3999}`, anthropic.Options{ThinkingBudgets: true}},
		"no room":                 {`"reasoning_effort":"high","max_tokens":1024,"messages":[` + user + `]`, `"max_tokens":1024,` + hi, anthropic.Options{ThinkingBudgets: true}},
		"effort without thinking": {`"reasoning_effort":"low","anthropic":{"effort":true,"members":{"thinking":null}},"messages":[` + user + `]`, limit + hi + `,"output_config":{"effort":"low"}`, anthropic.Options{}},
		"effort and budget":       {`"reasoning_effort":"low","anthropic":{"effort":true,"members":{"thinking":{"type":"enabled","budget_tokens":2000}}},"messages":[` + user + `]`, limit + hi + `,"output_config":{"effort":"low"},"thinking":{"type":"enabled","budget_tokens":2000}`, anthropic.Options{}},
		"adaptive as a budget":    {`"anthropic":{"members":{"thinking":{"type":"adaptive"}}},"messages":[` + user + `]`, limit + hi + `,"thinking":{"type":"enabled","budget_tokens":8191}`, anthropic.Options{ThinkingBudgets: true}},
		"none with budgets":       {`"reasoning_effort":"none","messages":[` + user + `]`, limit + hi + `,"thinking":{"type":"disabled"}`, anthropic.Options{ThinkingBudgets: true}},
		"thinking wins":           {`"reasoning_effort":"low","thinking":{"type":"enabled","budget_tokens":2000},"messages":[` + user + `]`, limit + hi + `,"thinking":{"type":"enabled","budget_tokens":2000}`, anthropic.Options{}},
		"schema":                  {`"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"object"},"strict":true}},"messages":[` + user + `]`, limit + hi + `,"output_config":{"format":{"type":"json_schema","schema":{"type":"object"}}}`, anthropic.Options{}},
		"schema and effort":       {`"reasoning_effort":"low","output_config":{"effort":"max"},"response_format":{"type":"json_schema","json_schema":{"schema":{}}},"messages":[` + user + `]`, limit + hi + `,"output_config":{"effort":"max","format":{"type":"json_schema","schema":{}}},"thinking":{"type":"adaptive"}`, anthropic.Options{}},
		"sampling":                {`"stop":["a",""],"temperature":1.5,"top_p":0.5,"top_k":3,"user":"u","service_tier":"default","messages":[` + user + `]`, limit + hi + `,"stop_sequences":["a"],"temperature":1,"top_p":0.5,"metadata":{"user_id":"u"},"service_tier":"standard_only","top_k":3`, anthropic.Options{}},
		"chat only":               {`"seed":1,"logprobs":true,"top_logprobs":2,"logit_bias":{},"presence_penalty":1,"frequency_penalty":1,"verbosity":"low","metadata":{"a":"b"},"store":true,"service_tier":"flex","response_format":{"type":"json_object"},"messages":[` + user + `]`, limit + hi, anthropic.Options{}},
		"own parameters":          {`"context_management":{"edits":[]},"container":"c","speed":"fast","inference_geo":"eu","messages":[` + user + `]`, limit + hi + `,"container":"c","context_management":{"edits":[]},"inference_geo":"eu","speed":"fast"`, anthropic.Options{}},
		"cache": {
			`"cache_control":{"type":"ephemeral"},"tools":[{"type":"function","function":{"name":"g"},"cache_control":{"type":"ephemeral","ttl":"1h"}}],` +
				`"messages":[{"role":"system","content":[{"type":"text","text":"S","cache_control":{"type":"ephemeral"}}]},{"role":"user","content":[{"type":"text","text":"A"},{"type":"text","text":"B","cache_control":{"type":"ephemeral"}}]},` +
				`{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"g","arguments":"{}"},"cache_control":{"type":"ephemeral"}}]},` +
				`{"role":"tool","tool_call_id":"c","content":[{"type":"text","text":"R","cache_control":{"type":"ephemeral"}}]}]`,
			limit + `"system":[{"type":"text","text":"S","cache_control":{"type":"ephemeral"}}],"messages":[{"role":"user","content":[{"type":"text","text":"A"},{"type":"text","text":"B","cache_control":{"type":"ephemeral"}}]},` +
				`{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"g","input":{},"cache_control":{"type":"ephemeral"}}]},` +
				`{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":"R","cache_control":{"type":"ephemeral"}}]}],` +
				`"tools":[{"name":"g","input_schema":{"type":"object","properties":{}},"cache_control":{"type":"ephemeral","ttl":"1h"}}],"cache_control":{"type":"ephemeral"}`,
			anthropic.Options{},
		},
		"cache omitted": {
			`"cache_control":{"type":"ephemeral"},"messages":[{"role":"user","content":[{"type":"text","text":"Hi","cache_control":{"type":"ephemeral"}}]}]`,
			limit + hi, anthropic.Options{OmitCacheControl: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, text(http.StatusOK, okMessage))
			var req llm.ChatRequest
			require.NoError(t, json.Unmarshal([]byte(`{"model":"m",`+test.request+`}`), &req))
			before := asJSON(t, &req)
			_, err := join.Collect(newBackend(t, s.URL, &test.opts).Chat(t.Context(), &req))
			require.NoError(t, err)
			body, _ := s.last()
			assert.Equal(t, `{"model":"m",`+test.want+`}`, body)
			assert.Equal(t, before, asJSON(t, &req), "the request was changed")
		})
	}
}

// What the API has no form for is refused, and not left out, where the model would answer something else.
func TestRequest_Refused(t *testing.T) {
	for name, test := range map[string]struct{ request, param string }{
		"audio":               {`"messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"","format":"wav"}}]}]`, "messages[0].content"},
		"file by its ID":      {`"messages":[{"role":"user","content":[{"type":"file","file":{"file_id":"f"}}]}]`, "messages[0].content"},
		"data without base64": {`"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png,x"}}]}]`, "messages[0].content"},
		"video in a result":   {`"messages":[{"role":"tool","tool_call_id":"c","content":[{"type":"video_url"},{"type":"text","text":"a"}]}]`, "messages[0].content"},
		"function message":    {`"messages":[{"role":"function","name":"f","content":"x"}]`, "messages[0].role"},
		"custom tools only":   {`"tools":[{"type":"custom","custom":{"name":"f"}}],"messages":[{"role":"user","content":"a"}]`, "tools"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, text(http.StatusOK, okMessage))
			var req llm.ChatRequest
			require.NoError(t, json.Unmarshal([]byte(`{"model":"m",`+test.request+`}`), &req))
			_, err := join.Collect(newBackend(t, s.URL, nil).Chat(t.Context(), &req))
			var e *llm.Error
			require.ErrorAs(t, err, &e)
			assert.Equal(t, http.StatusBadRequest, e.Status)
			assert.Equal(t, test.param, e.Param)
			assert.Empty(t, s.bodies)
		})
	}
}

func TestRequest_Header(t *testing.T) {
	ctx := t.Context()
	for name, test := range map[string]struct {
		opts anthropic.Options
		path string
		want map[string]string
	}{
		"key":       {anthropic.Options{Server: upstream.Options{Key: serverKey}}, "", map[string]string{"X-Api-Key": serverKey, "Authorization": "", "Anthropic-Version": "2023-06-01", "Anthropic-Beta": ""}},
		"bearer":    {anthropic.Options{Server: upstream.Options{Key: serverKey}, BearerKey: true}, "/v1", map[string]string{"X-Api-Key": "", "Authorization": "Bearer " + serverKey}},
		"version":   {anthropic.Options{Version: "2026-10-21", Betas: []string{"a-1", "b-2"}}, "/api/anthropic", map[string]string{"Anthropic-Version": "2026-10-21", "Anthropic-Beta": "a-1,b-2,c-3"}},
		"own value": {anthropic.Options{Server: upstream.Options{Header: http.Header{"X-Api-Key": {"other"}}}}, "/", map[string]string{"X-Api-Key": "other"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, text(http.StatusOK, okMessage))
			req := ask(false)
			if name == "version" { // of package messages
				req.Extra = llm.Extra{"anthropic": json.RawMessage(`{"betas":["b-2","c-3","d\n4","e,5"]}`)}
			}
			_, err := join.Collect(newBackend(t, s.URL+test.path, &test.opts).Chat(ctx, req))
			require.NoError(t, err)
			_, header := s.last()
			for name, value := range test.want {
				assert.Equal(t, value, header.Get(name), name)
			}
			wantPath := test.path
			if test.path == "/v1" || test.path == "/" {
				wantPath = ""
			}
			assert.Equal(t, wantPath+"/v1/messages", s.paths[0])
		})
	}
}

func TestRequest_KeyFunc(t *testing.T) {
	s := newServer(t, text(http.StatusOK, okMessage))
	opts := &anthropic.Options{Server: upstream.Options{KeyFunc: keyFunc("sk-of-the-request")}}
	_, err := join.Collect(newBackend(t, s.URL, opts).Chat(t.Context(), ask(false)))
	require.NoError(t, err)
	_, header := s.last()
	assert.Equal(t, "sk-of-the-request", header.Get("X-Api-Key"))
	assert.Empty(t, header.Get("Authorization"))
}
