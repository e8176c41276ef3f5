package responses_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/membertest"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/responses"
)

// maximalRequests have all members that the package decodes.
var maximalRequests = []string{
	`{"model":"m","instructions":"i","stream":false,"include":[],"temperature":1,"top_p":1,"presence_penalty":0,"frequency_penalty":0,"top_logprobs":1,
		"max_output_tokens":9,"max_tool_calls":3,"parallel_tool_calls":true,"truncation":"auto","metadata":{"a":"b"},"service_tier":"auto",
		"user":"u","safety_identifier":"s","prompt_cache_key":"k","prompt_cache_retention":"24h",
		"prompt_cache_options":{"mode":"implicit","ttl":"30m","comparison_response_id":"resp_1","prewarm":false},"store":false,"previous_response_id":"",
		"background":false,"conversation":null,"prompt":null,"reasoning":{"effort":"low","summary":"auto"},
		"text":{"verbosity":"low","format":{"type":"json_schema","name":"n","description":"d","schema":{"type":"object"},"strict":true}},
		"tools":[{"type":"function","name":"f","description":"d","parameters":{"type":"object"},"strict":true},
			{"type":"custom","name":"g","format":{"type":"grammar","syntax":"lark","definition":"d"}},
			{"type":"namespace","name":"n","tools":[{"type":"function","name":"f"}]}],
		"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"f","namespace":"n"}]},
		"input":[
			{"type":"message","id":"msg_1","role":"user","content":[{"type":"input_text","text":"t"},
				{"type":"input_image","image_url":"data:,","detail":"low"},
				{"type":"input_file","filename":"f","file_data":"data:,"},{"type":"input_file","file_url":"https://files.test/1"},{"type":"input_file","file_id":"f"},
				{"type":"input_audio","input_audio":{"data":"","format":"wav"}}]},
			{"type":"message","role":"assistant","content":[{"type":"refusal","refusal":"r"}]},
			{"type":"reasoning","summary":[{"type":"summary_text","text":"t"}],"content":[],"encrypted_content":""},
			{"type":"reasoning","content":[{"type":"reasoning_text","text":"t"}]},
			{"type":"function_call","call_id":"c","name":"f","namespace":"n","arguments":"{}"},
			{"type":"function_call_output","call_id":"c","output":[{"type":"input_text","text":"t"}]},
			{"type":"custom_tool_call","call_id":"d","name":"g","input":"x"},
			{"type":"custom_tool_call_output","call_id":"d","output":"x"},
			{"type":"additional_tools","role":"developer","tools":[{"type":"function","name":"h"}]},
			{"type":"agent_message","role":"assistant","content":[{"type":"text","text":"t"}]}]}`,
}

// isFree reports whether the object at a path may have any members.
func isFree(path []string) bool {
	last := path[max(len(path)-1, 0):]
	return slices.ContainsFunc([]string{"metadata", "parameters", "schema", "input_audio"}, func(name string) bool { return slices.Contains(last, name) })
}

// isRead reports whether the package reads the member at a path of maximalRequests. Of parts
// of reasoning it reads only the text.
func isRead(path []string, member string) bool {
	inReasoning := len(path) == 5 && (path[1] == "2" || path[1] == "3")
	return !inReasoning || member == "text"
}

// No member that the package decodes may have a name in another case, in a request for a
// reply, for a summary and for a count of tokens.
func TestMembers_OtherCase(t *testing.T) {
	s := newServer(t, nil, chunkText)
	tested := make(map[string]bool)
	for _, body := range maximalRequests {
		s.create(body)
		for _, path := range []string{"/v1/responses", "/v1/responses/compact", "/v1/responses/input_tokens"} {
			s.ask("acme", "POST", path, body)
			s.request = nil
			for _, c := range membertest.Cases(t, body, isFree) {
				if !isRead(c.Path, c.Member) {
					continue
				}
				tested[c.Member] = true
				e := s.requireRefused(400, "POST", path, c.Doc)
				assert.Equal(t, "unknown_parameter", e.Code)
				assert.Equal(t, membertest.Param(c.Path), e.Param, "%s", c.Doc)
				assert.Equal(t, "Unknown parameter: '"+membertest.Param(c.Path)+"'. Did you mean '"+c.Member+"'?", e.Message)
			}
			assert.Nil(t, s.request, "the Backend got a request")
		}
	}
	replies := []string{"tokenCount", "echoedParams", "echoedNumbers", "deletedResponse", "itemPage", "plainReasoning", "convertLogprobs", "echoedCacheOptions", "missingFeatures",
		"codexModel", "codexEffort", "codexTruncation", "convertModeration"}
	for _, name := range membertest.Tags(t, func(decl string) bool { return slices.Contains(replies, decl) }) {
		assert.True(t, tested[name], "maximalRequests lacks %q", name)
	}
}

func TestMembers_Unknown(t *testing.T) {
	s := newServer(t, nil, chunkText)
	body := func(name string) string { return `{"model":"m","input":"Hi","` + name + `":["x"]}` }
	for _, path := range []string{"/v1/responses", "/v1/responses/compact", "/v1/responses/input_tokens"} {
		for _, name := range []string{"models", "Api_Base", "provider", "fallbacks"} {
			e := s.requireRefused(400, "POST", path, body(name))
			assert.Equal(t, "Unknown parameter: '"+name+"'.", e.Message)
			assert.Equal(t, "unknown_parameter", e.Code)
			assert.Equal(t, name, e.Param)
		}
		for _, name := range []string{"client_metadata", "context_management", "X"} {
			s.ask("acme", "POST", path, body(name))
		}
	}
	h := llmhttp.NewHandler(memory.Echo(), llmhttp.AllowAll("acme"), &llmhttp.Options{
		Protocols: []llmhttp.Protocol{responses.New(nil)},
		Accept:    llmhttp.AcceptOptions{UnknownMembers: func(name string) bool { return name == "models" || name == "x" }},
	})
	for name, want := range map[string]int{
		"models": http.StatusOK, "MODELS": http.StatusOK, "X": http.StatusOK, "client_metadata": http.StatusBadRequest, "task\u017f": http.StatusBadRequest,
	} {
		r := httptest.NewRequest("POST", "http://localhost/v1/responses", strings.NewReader(strings.Replace(body(name), `"m"`, `"demo-chat"`, 1)))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		assert.Equal(t, want, w.Code, "%s", w.Body)
	}
}
