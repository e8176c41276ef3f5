package messages_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/membertest"
	"github.com/llmhttp/llmhttp/messages"
)

// maximalRequests have all members that the package decodes.
var maximalRequests = []string{
	`{"model":"m","max_tokens":9,"stream":false,"system":[{"type":"text","text":"s"}],"stop_sequences":["a"],"temperature":1,"top_p":1,"top_k":5,
		"thinking":{"type":"enabled","budget_tokens":1024},"metadata":{"user_id":"u"},"service_tier":"auto","thread":null,"inference_geo":"global",
		"cache_control":{"type":"ephemeral","ttl":"5m"},
		"output_config":{"effort":"low","format":{"type":"json_schema","schema":{"type":"object"}}},
		"tools":[{"type":"custom","name":"f","description":"d","input_schema":{"type":"object"},"strict":true}],
		"tool_choice":{"type":"tool","name":"f","disable_parallel_tool_use":true},
		"messages":[
			{"role":"user","content":[{"type":"text","text":"t"},
				{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="}},
				{"type":"image","source":{"type":"url","url":"https://images.test/1"}},
				{"type":"document","title":"t","source":{"type":"content","content":[{"type":"text","text":"t"}]}},
				{"type":"search_result","title":"t","source":"s","content":[{"type":"text","text":"t"}]}]},
			{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"},{"type":"redacted_thinking","data":"d"},
				{"type":"tool_use","id":"c","name":"f","input":{"type":1}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","is_error":true,
				"content":[{"type":"text","text":"t"},{"type":"tool_reference","tool_name":"f"},{"type":"image","source":{"type":"url","url":"https://images.test/1"}}]}]}]}`,
	`{"model":"m","max_tokens":9,"context_management":{},"container":"c","mcp_servers":[],"speed":"fast","diagnostics":{},"compaction":{},
		"tools":[{"name":"f","input_schema":{"type":"object"},"eager_input_streaming":true,"defer_loading":true,"allowed_callers":[],"input_examples":[]}],
		"messages":[{"role":"user","content":[{"type":"document","context":"c","citations":{},"source":{"type":"text","data":"d","media_type":"text/plain"}}]},
			{"role":"assistant","content":[{"type":"text","text":"t","citations":[]},{"type":"tool_use","id":"c","name":"f","input":{},"caller":{}}]}]}`,
	`{"model":"m","max_tokens":9,"output_format":{"type":"json_schema","schema":{"type":"object"}},"messages":[{"role":"user","content":"Hi"}]}`,
}

// isFree reports whether the object at a path may have any members.
func isFree(path []string) bool {
	return slices.Contains(path, "input_schema") || slices.Contains(path, "schema") || slices.Contains(path, "input")
}

// No member that the package decodes may have a name in another case, in a request for a
// reply and for a count of tokens.
func TestMembers_OtherCase(t *testing.T) {
	s := newServer(nil, func(o *llmhttp.Options) {
		o.Protocols = []llmhttp.Protocol{messages.New(&messages.Options{Anthropic: true})}
	})
	tested := make(map[string]bool)
	for _, body := range maximalRequests {
		for _, path := range []string{messagesPath, messagesPath + "/count_tokens"} {
			w := s.do("POST", path, body)
			require.Equal(t, http.StatusOK, w.Code, "%s", w.Body)
			s.last = nil
			for _, c := range membertest.Cases(t, body, isFree) {
				tested[c.Member] = true
				w := s.do("POST", path, c.Doc)
				assert.Equal(t, http.StatusBadRequest, w.Code, "%s", c.Doc)
				var reply struct {
					Error struct{ Type, Message string }
				}
				require.NoError(t, json.Unmarshal(w.Body.Bytes(), &reply))
				assert.Equal(t, "invalid_request_error", reply.Error.Type)
				assert.Equal(t, strings.Join(c.Path, ".")+": Extra inputs are not permitted. Did you mean '"+c.Member+"'?", reply.Error.Message)
			}
			assert.Nil(t, s.last, "the Backend got a request")
		}
	}
	replies := []string{"model", "modelPage", "modelCapabilities", "support", "thinkingSupport", "thinkingTypes", "contextManagementSupport", "serverToolsSupport", "effortSupport", "modelLifecycle", "appendServerTools"}
	for _, name := range membertest.Tags(t, func(decl string) bool { return slices.Contains(replies, decl) }) {
		assert.True(t, tested[name], "maximalRequests lacks %q", name)
	}
}

func TestMembers_Unknown(t *testing.T) {
	body := func(name string) string { return requestBody(hi + `,"` + name + `":["x"]`) }
	s := newServer(nil, nil)
	for _, path := range []string{messagesPath, messagesPath + "/count_tokens"} {
		for _, name := range []string{"models", "Api_Base", "provider", "fallbacks"} {
			w := s.do("POST", path, body(name))
			assert.Equal(t, http.StatusBadRequest, w.Code)
			assert.Contains(t, w.Body.String(), `"message":"`+name+`: Extra inputs are not permitted"`)
		}
		for _, name := range []string{"container", "context_management", "mcp_servers", "X"} {
			assert.Equal(t, http.StatusOK, s.do("POST", path, body(name)).Code, name)
		}
	}
	s = newServer(nil, func(o *llmhttp.Options) { o.Accept.UnknownMembers = func(name string) bool { return name == "models" } })
	assert.Equal(t, http.StatusOK, s.do("POST", messagesPath, body("models")).Code)
	assert.Equal(t, http.StatusBadRequest, s.do("POST", messagesPath, body("container")).Code)
	assert.Equal(t, http.StatusOK, s.do("POST", messagesPath, requestBody(hi+`,"metadata":{"x":1}`)).Code, "a member of another object")
	s = newServer(nil, func(o *llmhttp.Options) { o.Accept.UnknownMembers = func(name string) bool { return name != "tasks" } })
	for _, name := range []string{"tasks", "Tasks", "TASKS", "ta\u017f\u212as"} {
		assert.Contains(t, s.do("POST", messagesPath, body(name)).Body.String(), `"message":"`+name+`: Extra inputs are not permitted"`)
	}
}
