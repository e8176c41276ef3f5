package messages_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/messages"
)

// keepsAnthropic makes a server keep what chat completions have no form for.
func keepsAnthropic(o *llmhttp.Options) {
	o.Protocols = []llmhttp.Protocol{messages.New(&messages.Options{Anthropic: true})}
}

// What Options.Anthropic keeps of a request, and that nothing is kept without it.
func TestAnthropic_Requests(t *testing.T) {
	const call = `{"type":"tool_use","id":"c","name":"f","input":{}}`
	for name, test := range map[string]struct {
		members string
		want    string // of the request that the Backend gets
	}{
		"nothing to keep": {
			`"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":[{"type":"thinking","thinking":"T","signature":"s"},{"type":"text","text":"A"},` + call + `]}]`,
			`"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"A","reasoning_content":"T","reasoning_details":[{"type":"reasoning.text","text":"T","signature":"s"}],` +
				`"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}]`,
		},
		"order of blocks": {
			`"messages":[{"role":"assistant","content":[{"type":"text","text":"A"},{"type":"thinking","thinking":"T","signature":"s"},{"type":"text","text":""},` + call + `]}]`,
			`"messages":[{"role":"assistant","content":"A","reasoning_content":"T","reasoning_details":[{"type":"reasoning.text","text":"T","signature":"s"}],` +
				`"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}],"anthropic":[{"type":"text"},{"type":"thinking"},{"type":"tool_use"}]}]`,
		},
		"blocks of the server": {
			`"messages":[{"role":"assistant","content":[{"type":"server_tool_use","id":"s","name":"web_search","input":{"query":"q"}},{"type":"web_search_tool_result","tool_use_id":"s","content":[]},` +
				`{"type":"text","text":"A","citations":[{"type":"x"}]},{"type":"thinking","thinking":"U"}]}]`,
			`"messages":[{"role":"assistant","content":"A","reasoning_content":"U","reasoning_details":[{"type":"reasoning.text","text":"U"}],` +
				`"anthropic":[{"type":"server_tool_use","id":"s","name":"web_search","input":{"query":"q"}},{"type":"web_search_tool_result","tool_use_id":"s","content":[]},` +
				`{"type":"text","citations":[{"type":"x"}]},{"type":"thinking"}]}]`,
		},
		"documents": {
			`"messages":[{"role":"user","content":[{"type":"document","title":"N","context":"C","citations":{"enabled":true},"source":{"type":"text","media_type":"text/plain","data":"D"}},` +
				`{"type":"document","source":{"type":"content","content":[{"type":"text","text":"1"},{"type":"text","text":"2"}]}},` +
				`{"type":"document","title":"P","source":{"type":"base64","media_type":"application/pdf","data":"QUE="}},` +
				`{"type":"search_result","source":"https://a.test","title":"S","content":[{"type":"text","text":"3"}],"citations":{"enabled":true}},{"type":"text","text":"?"}]}]`,
			`"messages":[{"role":"user","content":[{"type":"text","text":"N","anthropic":{"block":{"type":"document","title":"N","context":"C","citations":{"enabled":true}},"parts":2,"title":true,"text":true}},` +
				`{"type":"text","text":"D"},{"type":"text","text":"1","anthropic":{"block":{"type":"document"},"parts":2}},{"type":"text","text":"2"},` +
				`{"type":"file","file":{"file_data":"data:application/pdf;base64,QUE=","filename":"P"},"anthropic":{"block":{"type":"document","title":"P"},"parts":1}},` +
				`{"type":"text","text":"S","anthropic":{"block":{"type":"search_result","source":"https://a.test","title":"S","citations":{"enabled":true}},"parts":2,"title":true}},` +
				`{"type":"text","text":"3"},{"type":"text","text":"?"}]}]`,
		},
		"search results without content": {
			`"messages":[{"role":"user","content":[{"type":"search_result","source":"https://a.test","title":"S","content":[]},` +
				`{"type":"search_result","source":"https://b.test","title":"","content":[{"type":"text","text":""}]}]}]`,
			`"messages":[{"role":"user","content":[{"type":"text","text":"S https://a.test\n\n"},{"type":"text","text":"https://b.test\n\n"}]}]`,
		},
		"parameters": {
			`"messages":[{"role":"user","content":"Hi"}],"thinking":{"type":"adaptive","display":"omitted"},"output_config":{"effort":"low"},"context_management":{"edits":[]},` +
				`"container":"c","mcp_servers":[],"diagnostics":{"previous_message_id":null},"compaction":{},"fallbacks_x":1`,
			`"messages":[{"role":"user","content":"Hi"}],"reasoning_effort":"low","anthropic":{"effort":true,"betas":["a-1","b-2","c-3"],"members":{"compaction":{},"container":"c","context_management":{"edits":[]},` +
				`"diagnostics":{"previous_message_id":null},"mcp_servers":[],"thinking":{"type":"adaptive","display":"omitted"}}}`,
		},
		"effort without thinking": {
			`"messages":[{"role":"user","content":"Hi"}],"output_config":{"effort":"low"}`,
			`"messages":[{"role":"user","content":"Hi"}],"reasoning_effort":"low","anthropic":{"effort":true,"betas":["a-1","b-2","c-3"],"members":{"thinking":null}}`,
		},
		"tools": {
			`"messages":[{"role":"user","content":"Hi"}],"tools":[{"type":"web_search_20250305","name":"web_search","max_uses":2},{"name":"f","input_schema":{"type":"object"},"defer_loading":true}],` +
				`"tool_choice":{"type":"tool","name":"web_search"}`,
			`"messages":[{"role":"user","content":"Hi"}],"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}],` +
				`"anthropic":{"tools":[{"type":"web_search_20250305","name":"web_search","max_uses":2},{"name":"f","defer_loading":true}],"betas":["a-1","b-2","c-3"],` +
				`"members":{"tool_choice":{"type":"tool","name":"web_search"}}}`,
		},
		"mark of a tool of the server": {
			`"messages":[{"role":"user","content":"Hi"}],"tools":[{"name":"f","input_schema":{}},{"type":"bash_20250124","name":"bash","cache_control":{"type":"ephemeral"}}]`,
			`"messages":[{"role":"user","content":"Hi"}],"tools":[{"type":"function","function":{"name":"f","parameters":{}},"cache_control":{"type":"ephemeral"}}],` +
				`"anthropic":{"tools":[{"name":"f"},{"type":"bash_20250124","name":"bash"}]}`,
		},
		"tools of the server alone": {
			`"messages":[{"role":"user","content":"Hi"}],"tools":[{"type":"web_search_20250305","name":"web_search"}],"tool_choice":{"type":"any"}`,
			`"messages":[{"role":"user","content":"Hi"}],"anthropic":{"tools":[{"type":"web_search_20250305","name":"web_search"}],"betas":["a-1","b-2","c-3"],"members":{"tool_choice":{"type":"any"}}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			body := `{"model":"m","max_tokens":9,` + test.members + `}`
			s := newServer(nil, keepsAnthropic)
			var header []string
			if strings.Contains(test.want, "betas") {
				header = []string{"Anthropic-Beta", "a-1,b-2, c-3,"}
			}
			w := s.do("POST", messagesPath, body, header...)
			require.Equal(t, http.StatusOK, w.Code, "%s", w.Body)
			got, err := json.Marshal(s.last)
			require.NoError(t, err)
			assert.JSONEq(t, `{"model":"m","max_tokens":9,`+test.want+`}`, string(got))

			s = newServer(nil, nil)
			w = s.do("POST", messagesPath, body, header...)
			if name == "tools of the server alone" {
				assert.Equal(t, http.StatusBadRequest, w.Code)
				return
			}
			require.Equal(t, http.StatusOK, w.Code, "%s", w.Body)
			got, err = json.Marshal(s.last)
			require.NoError(t, err)
			assert.NotContains(t, string(got), `"anthropic"`)
		})
	}
}

// The blocks of a Backend of package upstream/anthropic, whole and streamed.
func TestAnthropic_Replies(t *testing.T) {
	chunk := func(d llm.Delta) *llm.ChatChunk { return &llm.ChatChunk{Choices: []llm.ChunkChoice{{Delta: d}}} }
	own := func(raw string) *llm.ChatChunk {
		return chunk(llm.Delta{Extra: llm.Extra{"anthropic": json.RawMessage(raw)}})
	}
	reply := func() llm.ChatStream {
		return llm.NewStream(func(send func(*llm.ChatChunk) error) error {
			last := &llm.ChatChunk{Choices: []llm.ChunkChoice{{FinishReason: llm.FinishStop, Extra: llm.Extra{"native_finish_reason": json.RawMessage(`"pause_turn"`)}}}}
			cited := chunk(llm.Delta{Extra: llm.Extra{
				"anthropic":   json.RawMessage(`[{"type":"citations_delta","citation":{"type":"char_location","cited_text":"c"}}]`),
				"annotations": json.RawMessage(`[{"type":"url_citation","url_citation":{"url":"https://a.test"}}]`),
			}})
			for _, c := range []*llm.ChatChunk{
				chunk(llm.Delta{Reasoning: "T"}), chunk(llm.Delta{ReasoningDetails: []llm.ReasoningDetail{{Type: llm.ReasoningText, Text: "T", Signature: "s=="}}}),
				own(`[{"type":"server_tool_use","id":"s","name":"web_search","input":{"query":"q"}},{"type":"web_search_tool_result","tool_use_id":"s","content":[]}]`),
				chunk(llm.Delta{Content: "A"}), own(`[{"type":"text"}]`), chunk(llm.Delta{Content: "B"}), cited, own(`[{"type":"of_another_api"},5,{}]`), last,
			} {
				if err := send(c); err != nil {
					return err
				}
			}
			return nil
		})
	}
	s := newServer(reply, nil)
	w := s.do("POST", messagesPath, requestBody(hi))
	require.Equal(t, http.StatusOK, w.Code)
	var m struct {
		Content    json.RawMessage
		StopReason string `json:"stop_reason"`
	}
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &m))
	const blocks = `[{"type":"thinking","thinking":"T","signature":"s=="},{"type":"server_tool_use","id":"s","name":"web_search","input":{"query":"q"}},` +
		`{"type":"web_search_tool_result","tool_use_id":"s","content":[]},{"type":"text","text":"A"},` +
		`{"type":"text","text":"B","citations":[{"type":"char_location","cited_text":"c"}]}]`
	assert.JSONEq(t, blocks, string(m.Content))
	assert.Equal(t, "pause_turn", m.StopReason)

	w = s.do("POST", messagesPath, requestBody(hi+`,"stream":true`))
	body := w.Body.String()
	for _, event := range []string{
		`"index":1,"content_block":{"type":"server_tool_use","id":"s","name":"web_search","input":{}}}`,
		`"index":1,"delta":{"type":"input_json_delta","partial_json":"{\"query\":\"q\"}"}}`,
		`"index":2,"content_block":{"type":"web_search_tool_result","tool_use_id":"s","content":[]}}`,
		`"index":3,"delta":{"type":"text_delta","text":"A"}}`,
		`"index":4,"delta":{"type":"text_delta","text":"B"}}`,
		`"index":4,"delta":{"type":"citations_delta","citation":{"type":"char_location","cited_text":"c"}}}`,
		`"stop_reason":"pause_turn"`,
	} {
		assert.Equal(t, 1, strings.Count(body, event), "%s in %s", event, body)
	}
	assert.NotContains(t, body, "https://a.test")
}

// A server may send a whole reply with line breaks, which would end the data of an event.
func TestAnthropic_LineBreaks(t *testing.T) {
	const blocks = "[\n{\"type\":\"web_search_tool_result\",\r\n\"tool_use_id\":\"s\",\n\"content\":[\n]\n},\n{\"type\":\"text\"}]"
	reply := func() llm.ChatStream {
		return llm.NewStream(func(send func(*llm.ChatChunk) error) error {
			call := llm.ToolCallDelta{ID: "c", Type: llm.ToolFunction, Function: llm.FunctionCall{Name: "f", Arguments: "{}"}}
			call.Extra = llm.Extra{"anthropic": json.RawMessage("{\"caller\":{\"type\":\n\"code_execution_20250825\"}}")}
			for _, d := range []llm.Delta{
				{Extra: llm.Extra{"anthropic": json.RawMessage(blocks)}},
				{Content: "A", Extra: llm.Extra{"anthropic": json.RawMessage("[{\"type\":\"citations_delta\",\"citation\":{\n\"type\":\n\"x\"}}]")}},
				{ToolCalls: []llm.ToolCallDelta{call}},
			} {
				if err := send(&llm.ChatChunk{Choices: []llm.ChunkChoice{{Delta: d}}}); err != nil {
					return err
				}
			}
			return send(&llm.ChatChunk{Choices: []llm.ChunkChoice{{FinishReason: llm.FinishToolCalls}}})
		})
	}
	body := newServer(reply, nil).do("POST", messagesPath, requestBody(hi+`,"stream":true`)).Body.String()
	for event := range strings.SplitSeq(strings.TrimSpace(body), "\n\n") {
		if lines := strings.Split(event, "\n"); assert.Len(t, lines, 2, event) {
			assert.True(t, json.Valid([]byte(strings.TrimPrefix(lines[1], "data: "))), event)
		}
	}
	for _, want := range []string{`"tool_use_id":"s","content":[]}`, `"citation":{"type":"x"}`, `"caller":{"type":"code_execution_20250825"}`} {
		assert.Contains(t, body, want)
	}
}
