package anthropic_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
	"github.com/llmhttp/llmhttp/upstream"
	"github.com/llmhttp/llmhttp/upstream/anthropic"
)

// A block event of a stream.
func start(index, block string) string {
	return `{"type":"content_block_start","index":` + index + `,"content_block":` + block + `}`
}

func delta(index, delta string) string {
	return `{"type":"content_block_delta","index":` + index + `,"delta":` + delta + `}`
}

func stop(index string) string { return `{"type":"content_block_stop","index":` + index + `}` }

// allBlocks is a message with each kind of block, and allEvents is its stream.
const allBlocks = `{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[` +
	`{"type":"thinking","thinking":"Let me see","signature":"sig+1/=="},{"type":"redacted_thinking","data":"enc=="},` +
	`{"type":"text","text":"I search."},` +
	`{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"query":"weather"}},` +
	`{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[{"type":"web_search_result","url":"https://a.test","title":"A","encrypted_content":"e"}]},` +
	`{"type":"thinking","thinking":"","signature":"sig2"},` +
	`{"type":"text","text":"It is "},{"type":"text","text":"sunny","citations":[{"type":"web_search_result_location","cited_text":"sun","url":"https://a.test","title":"A","encrypted_index":"i"}]},` +
	`{"type":"tool_use","id":"toolu_1","name":"f","input":{"b":1,"a":"x"},"caller":{"type":"code_execution_20260120","tool_id":"srvtoolu_1"}},{"type":"tool_use","id":"toolu_2","name":"g","input":{}}],` +
	`"stop_reason":"tool_use","stop_sequence":null,"usage":{"input_tokens":10,"cache_read_input_tokens":100,"cache_creation_input_tokens":20,` +
	`"cache_creation":{"ephemeral_5m_input_tokens":5,"ephemeral_1h_input_tokens":15},"output_tokens":30,"output_tokens_details":{"thinking_tokens":7},` +
	`"server_tool_use":{"web_search_requests":1},"service_tier":"standard"}}`

func allEvents() string {
	return events(
		`{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":10,`+
			`"cache_read_input_tokens":100,"cache_creation_input_tokens":20,"cache_creation":{"ephemeral_5m_input_tokens":5,"ephemeral_1h_input_tokens":15},"output_tokens":1,"service_tier":"standard"}}}`,
		start("0", `{"type":"thinking","thinking":"","signature":""}`), delta("0", `{"type":"thinking_delta","thinking":"Let "}`), delta("0", `{"type":"thinking_delta","thinking":"me see"}`),
		delta("0", `{"type":"signature_delta","signature":"sig+1/=="}`), stop("0"),
		start("1", `{"type":"redacted_thinking","data":"enc=="}`), stop("1"),
		start("2", `{"type":"text","text":""}`), delta("2", `{"type":"text_delta","text":"I "}`), delta("2", `{"type":"text_delta","text":"search."}`), stop("2"),
		start("3", `{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{}}`), delta("3", `{"type":"input_json_delta","partial_json":"{\"query\":"}`),
		delta("3", `{"type":"input_json_delta","partial_json":"\"weather\"}"}`), stop("3"),
		start("4", `{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[{"type":"web_search_result","url":"https://a.test","title":"A","encrypted_content":"e"}]}`), stop("4"),
		start("5", `{"type":"thinking","thinking":"","signature":""}`), delta("5", `{"type":"signature_delta","signature":"sig2"}`), stop("5"),
		start("6", `{"type":"text","text":""}`), delta("6", `{"type":"text_delta","text":"It is "}`), stop("6"),
		start("7", `{"type":"text","text":"","citations":[]}`),
		delta("7", `{"type":"citations_delta","citation":{"type":"web_search_result_location","cited_text":"sun","url":"https://a.test","title":"A","encrypted_index":"i"}}`),
		delta("7", `{"type":"text_delta","text":"sunny"}`), stop("7"),
		start("8", `{"type":"tool_use","id":"toolu_1","name":"f","input":{},"caller":{"type":"code_execution_20260120","tool_id":"srvtoolu_1"}}`), delta("8", `{"type":"input_json_delta","partial_json":""}`),
		delta("8", `{"type":"input_json_delta","partial_json":"{\"b\":1,"}`), delta("8", `{"type":"input_json_delta","partial_json":"\"a\":\"x\"}"}`), stop("8"),
		start("9", `{"type":"tool_use","id":"toolu_2","name":"g","input":{},"caller":{"type":"direct"}}`), stop("9"),
		`{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":30,"output_tokens_details":{"thinking_tokens":7},"server_tool_use":{"web_search_requests":1}}}`,
		messageStop,
	)
}

// What clients of chat completions get of all blocks, whole and streamed.
func TestReply_AllBlocks(t *testing.T) {
	for name, body := range map[string]string{"whole": allBlocks, "stream": allEvents()} {
		t.Run(name, func(t *testing.T) {
			resp, err := replyTo(t, nil, name == "stream", body)
			require.NoError(t, err)
			resp.Created = 0
			assert.JSONEq(t, `{"id":"msg_1","object":"chat.completion","created":0,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"I search.It is sunny",`+
				`"reasoning_content":"Let me see","reasoning_details":[{"type":"reasoning.text","text":"Let me see","signature":"sig+1/=="},{"type":"reasoning.encrypted","data":"enc=="},`+
				`{"type":"reasoning.text","signature":"sig2"}],`+
				`"tool_calls":[{"id":"toolu_1","type":"function","function":{"name":"f","arguments":"{\"b\":1,\"a\":\"x\"}"},"anthropic":{"caller":{"type":"code_execution_20260120","tool_id":"srvtoolu_1"}}},{"id":"toolu_2","type":"function","function":{"name":"g","arguments":"{}"}}],`+
				`"anthropic":[{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"query":"weather"}},`+
				`{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[{"type":"web_search_result","url":"https://a.test","title":"A","encrypted_content":"e"}]},`+
				`{"type":"text"},{"type":"citations_delta","citation":{"type":"web_search_result_location","cited_text":"sun","url":"https://a.test","title":"A","encrypted_index":"i"}}],`+
				`"annotations":[{"type":"url_citation","url_citation":{"url":"https://a.test","title":"A","content":"sun","start_index":15,"end_index":20}}],"refusal":null},`+
				`"logprobs":null,"finish_reason":"tool_calls"}],"service_tier":"default","usage":{"prompt_tokens":130,"completion_tokens":30,"total_tokens":160,`+
				`"prompt_tokens_details":{"cached_tokens":100,"cache_write_tokens":20,"cache_creation_token_details":{"ephemeral_5m_input_tokens":5,"ephemeral_1h_input_tokens":15},"cache_write_1h_tokens":15},`+
				`"completion_tokens_details":{"reasoning_tokens":7},"server_tool_use":{"web_search_requests":1}}}`, asJSON(t, resp))
		})
	}
}

func TestReply_StopReasons(t *testing.T) {
	for reason, want := range map[string]struct {
		finish      llm.FinishReason
		stop, extra string
	}{
		`"end_turn"`:                      {llm.FinishStop, "", "null"},
		`"max_tokens"`:                    {llm.FinishLength, "", "null"},
		`"stop_sequence"`:                 {llm.FinishStop, "END", "null"},
		`"tool_use"`:                      {llm.FinishToolCalls, "", "null"},
		`"refusal"`:                       {llm.FinishContentFilter, "", `{"stop_details":{"type":"refusal","category":"cyber"}}`},
		`"pause_turn"`:                    {llm.FinishStop, "", `{"native_finish_reason":"pause_turn"}`},
		`"model_context_window_exceeded"`: {llm.FinishLength, "", `{"native_finish_reason":"model_context_window_exceeded"}`},
		`"of_a_later_version"`:            {llm.FinishStop, "", `{"native_finish_reason":"of_a_later_version"}`},
		`null`:                            {llm.FinishStop, "", "null"},
	} {
		t.Run(reason, func(t *testing.T) {
			members := `"stop_reason":` + reason + `,"stop_sequence":"END"`
			if reason == `"refusal"` {
				members += `,"stop_details":{"type":"refusal","category":"cyber"}`
			}
			for name, body := range map[string]string{
				"whole":  strings.Replace(okMessage, `"stop_reason":"end_turn","stop_sequence":null`, members, 1),
				"stream": strings.Replace(textStream(), `"stop_reason":"end_turn","stop_sequence":null`, members, 1),
			} {
				resp, err := replyTo(t, nil, name == "stream", body)
				require.NoError(t, err, name)
				c := resp.Choices[0]
				assert.Equal(t, want.finish, c.FinishReason, name)
				assert.Equal(t, want.stop, c.StopSequence, name)
				assert.JSONEq(t, want.extra, asJSON(t, c.Extra), name)
				assert.Equal(t, "Hi", c.Message.Content.Text(), name)
			}
		})
	}
}

// What servers of other vendors, and programs between, do otherwise, by the reports of those who met it.
func TestReply_OtherServers(t *testing.T) {
	withoutNames := func(s string) string {
		var lines []string
		for line := range strings.Lines(s) {
			if !strings.HasPrefix(line, "event:") {
				lines = append(lines, line)
			}
		}
		return strings.Join(lines, "")
	}
	thinking := []string{
		messageStart, start("0", `{"type":"thinking","thinking":""}`), delta("0", `{"type":"thinking_delta","thinking":"Hm"}`), stop("0"),
		start("1", `{"type":"text","text":""}`), delta("1", `{"type":"text_delta","text":"Hi"}`), stop("1"), messageEnd, messageStop,
	}
	zeroStart := strings.Replace(messageStart, `"input_tokens":3`, `"input_tokens":0`, 1)
	for name, test := range map[string]struct {
		body           string
		prompt, cached int
		completion     int
		reasoning      string
	}{
		"Z.ai: zeros at the start (zai-org/GLM-5#139)": {
			events(zeroStart, textStart, textDelta, blockStop, `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":4,"cache_read_input_tokens":10,"output_tokens":2}}`, messageStop),
			14, 10, 2, "",
		},
		"zeros at the end (envoyproxy/ai-gateway#1631)": {
			events(messageStart, textStart, textDelta, blockStop, `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":0,"cache_read_input_tokens":0,"output_tokens":2}}`, messageStop),
			3, 0, 2, "",
		},
		"an estimate at the start, as this module's own": {
			events(messageStart, textStart, textDelta, blockStop, `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":1,"cache_read_input_tokens":8,"output_tokens":2}}`, messageStop),
			9, 8, 2, "",
		},
		"MiniMax: usage null at the end (NousResearch/hermes-agent#60683)": {
			events(messageStart, textStart, textDelta, blockStop, `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":null}`, messageStop), 3, 0, 1, "",
		},
		"MiniMax: the whole message once more (songquanpeng/one-api#2406)": {
			events(messageStart, textStart, textDelta, blockStop, `{"type":"message","role":"assistant","content":[{"type":"text","text":"Hi"}]}`, messageEnd, messageStop), 3, 0, 2, "",
		},
		"DeepSeek: thinking without a signature (QuantumNous/new-api#4763)": {events(thinking...), 3, 0, 2, "Hm"},
		"no lines with the type (earendil-works/pi#1983)":                   {withoutNames(textStream()), 3, 0, 2, ""},
		"message_start without content (SaladDay/cc-switch-cli#320)": {
			strings.Replace(textStream(), `"content":[],"stop_reason":null,"stop_sequence":null,`, "", 1), 3, 0, 2, "",
		},
		"message_stop never comes, pings do (tombii/better-ccflare#307)": {
			events(messageStart, textStart, textDelta, blockStop, messageEnd, `{"type":"ping"}`, `{"type":"ping"}`), 3, 0, 2, "",
		},
		"no message_stop":        {events(messageStart, textStart, textDelta, blockStop, messageEnd), 3, 0, 2, ""},
		"no content_block_start": {events(messageStart, textDelta, messageEnd, messageStop), 3, 0, 2, ""},
		"no content_block_stop":  {events(messageStart, textStart, textDelta, messageEnd, messageStop), 3, 0, 2, ""},
		"no message_start":       {events(textStart, textDelta, blockStop, messageEnd, messageStop), 0, 0, 2, ""},
		"no index": {
			strings.ReplaceAll(textStream(), `"index":0,`, ""), 3, 0, 2, "",
		},
		"[DONE] at the end":            {textStream() + "data: [DONE]\n\n", 3, 0, 2, ""},
		"[DONE] for the end":           {events(messageStart, textStart, textDelta, blockStop, messageEnd) + "data: [DONE]\n\n", 3, 0, 2, ""},
		"text in content_block_start":  {events(messageStart, strings.Replace(textStart, `"text":""`, `"text":"Hi"`, 1), blockStop, messageEnd, messageStop), 3, 0, 2, ""},
		"events and deltas of later":   {events(messageStart, `{"type":"news","x":1}`, textStart, delta("0", `{"type":"x_delta","x":1}`), textDelta, blockStop, messageEnd, messageStop), 3, 0, 2, ""},
		"members of other types":       {strings.ReplaceAll(textStream(), `"stop_sequence":null`, `"stop_sequence":7,"container":5,"context_management":"x"`), 3, 0, 2, ""},
		"numbers in strings":           {strings.ReplaceAll(textStream(), `"output_tokens":2`, `"output_tokens":"2"`), 3, 0, 2, ""},
		"a whole message for a stream": {okMessage, 3, 0, 2, ""},
		"several ends": {
			events(messageStart, textStart, textDelta, blockStop, `{"type":"message_delta","delta":{"stop_reason":null},"usage":{"output_tokens":1}}`, messageEnd, messageStop), 3, 0, 2, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			resp, err := replyTo(t, nil, true, test.body)
			require.NoError(t, err)
			assert.Equal(t, "Hi", resp.Choices[0].Message.Content.Text())
			assert.Equal(t, llm.FinishStop, resp.Choices[0].FinishReason)
			assert.Equal(t, test.reasoning, resp.Choices[0].Message.Reasoning)
			require.NotNil(t, resp.Usage)
			assert.Equal(t, test.prompt, resp.Usage.PromptTokens)
			assert.Equal(t, test.cached, resp.Usage.PromptTokensDetails.CachedTokens)
			assert.Equal(t, test.completion, resp.Usage.CompletionTokens)
		})
	}
}

// Calls that arrive in other forms than Anthropic's.
func TestReply_Calls(t *testing.T) {
	end := strings.Replace(messageEnd, "end_turn", "tool_use", 1)
	for name, test := range map[string]struct {
		events []string
		want   []string
	}{
		"input where it begins": {[]string{start("0", `{"type":"tool_use","id":"t1","name":"f","input":{"a":1}}`), stop("0")}, []string{`{"a":1}`}},
		"no input at all":       {[]string{start("0", `{"type":"tool_use","id":"t1","name":"f"}`), stop("0")}, []string{`{}`}},
		"input null":            {[]string{start("0", `{"type":"tool_use","id":"t1","name":"f","input":null}`), stop("0")}, []string{`{}`}},
		"cut":                   {[]string{start("0", `{"type":"tool_use","id":"t1","name":"f","input":{}}`), delta("0", `{"type":"input_json_delta","partial_json":"{\"a"}`)}, []string{`{"a`}},
		"in turns": {[]string{
			start("0", `{"type":"tool_use","id":"t1","name":"f","input":{}}`), start("1", `{"type":"tool_use","id":"t2","name":"f","input":{}}`),
			delta("0", `{"type":"input_json_delta","partial_json":"{\"a\":"}`), delta("1", `{"type":"input_json_delta","partial_json":"{\"b\":"}`),
			delta("0", `{"type":"input_json_delta","partial_json":"1}"}`), delta("1", `{"type":"input_json_delta","partial_json":"2}"}`), stop("0"), stop("1"),
		}, []string{`{"a":1}`, `{"b":2}`}},
	} {
		t.Run(name, func(t *testing.T) {
			resp, err := replyTo(t, nil, true, events(append(append([]string{messageStart}, test.events...), end, messageStop)...))
			require.NoError(t, err)
			var got []string
			for _, c := range resp.Choices[0].Message.ToolCalls {
				got = append(got, c.Function.Arguments)
			}
			assert.Equal(t, test.want, got)
			assert.Equal(t, llm.FinishToolCalls, resp.Choices[0].FinishReason)
		})
	}
}

// Errors of the server: what the client and a log get.
func TestReply_Errors(t *testing.T) {
	body := func(typ, message string) string {
		return `{"type":"error","error":{"type":"` + typ + `","message":"` + message + `"},"request_id":"req_1"}`
	}
	for name, test := range map[string]struct {
		status        int
		body          string
		wantStatus    int
		code, message string
	}{
		"invalid request":     {400, body("invalid_request_error", "messages: text content blocks must be non-empty"), 400, "", "messages: text content blocks must be non-empty"},
		"too long":            {400, body("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"), 400, "context_length_exceeded", "prompt is too long: 210000 tokens > 200000 maximum"},
		"too long with limit": {400, body("invalid_request_error", "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length or `max_tokens` and try again"), 400, "context_length_exceeded", "exceed context limit"},
		"no credit":           {400, body("invalid_request_error", "Your credit balance is too low to access the Anthropic API."), 502, "", "The model's server had an error"},
		"Z.ai without credit": {429, `{"error":{"code":"1113","message":"Insufficient balance or no resource package. Please recharge."}}`, 502, "", "The model's server had an error"},
		"billing":             {402, body("billing_error", "x"), 502, "", "The model's server had an error"},
		"key":                 {401, body("authentication_error", "invalid x-api-key"), 502, "", "The model's server had an error"},
		"permission":          {403, body("permission_error", "x"), 502, "", "The model's server had an error"},
		"model":               {404, body("not_found_error", "model: claude-9"), 404, "model_not_found", "The model `m` does not exist"},
		"no such endpoint":    {404, "<html>", 502, "", "The model's server had an error"},
		"too large":           {413, body("request_too_large", "Request exceeds the maximum size"), 413, "", "Request exceeds the maximum size"},
		"rate limit":          {429, body("rate_limit_error", "This request would exceed your rate limit"), 429, "", "This request would exceed your rate limit"},
		"server":              {500, body("api_error", "Internal server error"), 502, "", "The model's server had an error"},
		"timeout":             {504, body("timeout_error", "x"), 504, "", "did not answer in time"},
		"overloaded":          {529, body("overloaded_error", "Overloaded"), 503, "", "The model is overloaded"},
		"DeepSeek":            {400, `{"error":{"message":"The content[].thinking in the thinking mode must be passed back to the API.","type":"invalid_request_error","param":null,"code":"invalid_request_error"}}`, 400, "invalid_request_error", "must be passed back"},
		"MiniMax with 200":    {200, `{"base_resp":{"status_code":2013,"status_msg":"invalid params, invalid chat setting"}}`, 400, "", "invalid chat setting"},
		"error with 200":      {200, body("overloaded_error", "Overloaded"), 503, "", "The model is overloaded"},
		"event":               {200, events(messageStart, textStart, body("overloaded_error", "Overloaded")), 503, "", "The model is overloaded"},
		"event without name":  {200, "data: " + body("rate_limit_error", "Slow down") + "\n\n", 429, "", "Slow down"},
		"error in an event":   {200, "data: {\"error\":{\"message\":\"x\",\"code\":500}}\n\n", 502, "", "The model's server had an error"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, text(test.status, test.body, "Request-Id", "req_1", "Retry-After", "7"))
			_, err := join.Collect(newBackend(t, s.URL, &anthropic.Options{Server: upstream.Options{Key: serverKey}}).Chat(t.Context(), ask(true)))
			var e *llm.Error
			require.ErrorAs(t, err, &e)
			assert.Equal(t, test.wantStatus, e.Status, "%v", err)
			assert.Equal(t, test.code, e.Code)
			assert.Contains(t, e.Message, test.message)
			assert.NotContains(t, e.Message, serverKey)
			if test.wantStatus != http.StatusNotFound {
				assert.Equal(t, 7*time.Second, e.RetryAfter)
			}
			var details *upstream.Error
			require.ErrorAs(t, err, &details)
			assert.Equal(t, "anthropic", details.Upstream)
			assert.Equal(t, test.status, details.UpstreamStatus())
			assert.Equal(t, "req_1", details.RequestID)
		})
	}
}

// Replies that are not complete are errors.
func TestReply_Incomplete(t *testing.T) {
	for name, body := range map[string]string{
		"empty":              "",
		"empty stream":       ": hello\n\n",
		"no end":             events(messageStart, textStart, textDelta, blockStop),
		"[DONE] alone":       events(messageStart, textStart, textDelta, blockStop) + "data: [DONE]\n\n",
		"pings alone":        events(`{"type":"ping"}`, `{"type":"ping"}`),
		"cut event":          events(messageStart, textStart) + `data: {"type":"content_block_delta","index":0,"del`,
		"HTML":               "<html>",
		"another object":     `{"object":"chat.completion","choices":[{"message":{"content":"Hi"}}]}`,
		"chat completions":   "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
		"cut message":        okMessage[:50],
		"a block that is no": strings.Replace(textStream(), `{"type":"text","text":""}`, `[1`, 1),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := replyTo(t, nil, true, body)
			var e *llm.Error
			require.ErrorAs(t, err, &e)
			assert.Equal(t, http.StatusBadGateway, e.Status)
		})
	}
}

// Several choices are as many requests.
func TestChat_Choices(t *testing.T) {
	s := newServer(t, text(http.StatusOK, okMessage))
	req := ask(false)
	req.N = new(3)
	resp, err := join.Collect(newBackend(t, s.URL, nil).Chat(t.Context(), req))
	require.NoError(t, err)
	assert.Len(t, resp.Choices, 3)
	assert.Len(t, s.bodies, 3)
	assert.Equal(t, 9, resp.Usage.PromptTokens)
}

// A name of a model is that of the client.
func TestChat_ModelNames(t *testing.T) {
	for _, stream := range []bool{false, true} {
		reply := map[bool]string{false: okMessage, true: textStream()}[stream]
		s := newServer(t, text(http.StatusOK, reply))
		req := ask(stream)
		req.Model = "mine"
		resp, err := join.Collect(newBackend(t, s.URL, &anthropic.Options{Server: upstream.Options{Models: map[string]string{"mine": "claude-x"}}}).Chat(t.Context(), req))
		require.NoError(t, err)
		assert.Equal(t, "mine", resp.Model)
		body, _ := s.last()
		assert.Contains(t, body, `"model":"claude-x"`)
	}
}

// Compactions are charged for, and are not in the numbers beside them.
func TestReply_UsageOfCompactions(t *testing.T) {
	const usage = `{"input_tokens":10,"cache_read_input_tokens":20,"cache_creation_input_tokens":0,"output_tokens":5,"iterations":[` +
		`{"type":"compaction","input_tokens":100,"cache_read_input_tokens":200,"cache_creation_input_tokens":40,"cache_creation":{"ephemeral_1h_input_tokens":40},"output_tokens":50},` +
		`{"type":"message","input_tokens":10,"cache_read_input_tokens":20,"output_tokens":5},7]}`
	resp, err := replyTo(t, nil, false, `{"type":"message","content":[{"type":"text","text":"A"}],"stop_reason":"end_turn","usage":`+usage+`}`)
	if assert.NoError(t, err) && assert.NotNil(t, resp.Usage) {
		assert.Equal(t, 370, resp.Usage.PromptTokens)
		assert.Equal(t, 220, resp.Usage.PromptTokensDetails.CachedTokens)
		assert.Equal(t, 40, resp.Usage.PromptTokensDetails.CacheWriteTokens)
		assert.Equal(t, llm.CacheWrites{time.Hour: 40}, resp.Usage.PromptTokensDetails.CacheWrites)
		assert.Equal(t, 55, resp.Usage.CompletionTokens)
	}
}
