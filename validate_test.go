package llmhttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/messages"
	"github.com/llmhttp/llmhttp/responses"
)

// formatRequests has a request of each format without its last brace, by path.
var formatRequests = map[string]string{
	chatPath:        `{"model":"m","messages":[{"role":"user","content":"Hi"}]`,
	"/v1/messages":  `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"Hi"}]`,
	"/v1/responses": `{"model":"m","input":"Hi"`,
}

// A mistake is made in each format that has the parameter. Members that the request has
// already are replaced.
type mistake struct {
	code, text string            // the text is in the message of each format
	members    map[string]string // by path
	params     map[string]string // by path
}

// A mistake has the same answer in every format, with the name that the parameter has there.
func TestValidate_SameInAllFormats(t *testing.T) {
	everywhere := func(name, value, code, text string) mistake {
		m := mistake{code: code, text: text, members: make(map[string]string), params: make(map[string]string)}
		for path := range formatRequests {
			m.members[path], m.params[path] = `"`+name+`":`+value, name
		}
		return m
	}
	// inFormats has a JSON member for chat completions, messages and responses; "" for none.
	inFormats := func(code, text string, lists ...[2]string) mistake {
		m := mistake{code: code, text: text, members: make(map[string]string), params: make(map[string]string)}
		for i, path := range []string{chatPath, "/v1/messages", "/v1/responses"} {
			if lists[i][0] != "" {
				m.params[path], m.members[path] = lists[i][0], lists[i][1]
			}
		}
		return m
	}
	limit := func(value, code, text string) mistake {
		return inFormats(code, text, [2]string{"max_completion_tokens", `"max_completion_tokens":` + value},
			[2]string{"max_tokens", `"max_tokens":` + value}, [2]string{"max_output_tokens", `"max_output_tokens":` + value})
	}
	none := [2]string{}
	schema := `{"type":"json_schema","name":"n","schema":"x"}`
	for name, m := range map[string]mistake{
		"temperature below":     everywhere("temperature", "-1", decimalLow, "Expected a value >= 0, but got -1"),
		"temperature above":     everywhere("temperature", "3", decimalHigh, ""),
		"temperature far above": everywhere("temperature", "1e999", decimalHigh, ""),
		"temperature of text":   everywhere("temperature", `"1"`, invalidType, ""),
		"top_p above":           everywhere("top_p", "1.5", decimalHigh, "Expected a value <= 1, but got 1.5"),
		"top_p below":           everywhere("top_p", "-1", decimalLow, "Expected a value >= 0, but got -1"),
		"no tokens": inFormats(integerLow, "Expected a value >= 1, but got 0", [2]string{"max_completion_tokens", `"max_completion_tokens":0`},
			none, [2]string{"max_output_tokens", `"max_output_tokens":0`}), // in Messages it fills the cache
		"negative tokens":          limit("-5", integerLow, "Expected a value >= 1, but got -5"),
		"too many tokens":          limit("9007199254740992", integerHigh, ""),
		"very many tokens":         limit("1e30", integerHigh, ""),
		"a fraction of tokens":     limit("1.5", invalidType, ""),
		"no model":                 everywhere("model", "null", missing, ""),
		"an empty model":           everywhere("model", `""`, missing, ""),
		"a number as model":        everywhere("model", "5", invalidType, ""),
		"another case":             everywhere("Model", `"m"`, "unknown_parameter", "Did you mean 'model'?"),
		"a refused member":         everywhere("api_base", `"x"`, "unknown_parameter", ""),
		"a text as stream":         everywhere("stream", `"yes"`, invalidType, ""),
		"tools are no list":        everywhere("tools", `{}`, invalidType, ""),
		"presence_penalty":         inFormats(decimalHigh, "Expected a value <= 2, but got 3", [2]string{"presence_penalty", `"presence_penalty":3`}, none, [2]string{"presence_penalty", `"presence_penalty":3`}),
		"frequency_penalty":        inFormats(decimalLow, "Expected a value >= -2, but got -3", [2]string{"frequency_penalty", `"frequency_penalty":-3`}, none, [2]string{"frequency_penalty", `"frequency_penalty":-3`}),
		"no messages":              inFormats(missing, "", [2]string{"messages", `"messages":null`}, [2]string{"messages", `"messages":null`}, [2]string{"input", `"input":null`}),
		"an empty conversation":    inFormats(emptyArray, "", [2]string{"messages", `"messages":[]`}, [2]string{"messages", `"messages":[]`}, [2]string{"input", `"input":[]`}),
		"an unknown format":        inFormats(invalidValue, "", [2]string{"response_format.type", `"response_format":{"type":"xml"}`}, none, [2]string{"text.format.type", `"text":{"format":{"type":"xml"}}`}),
		"a schema that is a text":  inFormats(invalidType, "expected an object.", [2]string{"response_format.json_schema.schema", `"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":"x"}}`}, none, [2]string{"text.format.schema", `"text":{"format":` + schema + `}`}),
		"an unknown tool choice":   inFormats(invalidValue, "", [2]string{"tool_choice", `"tool_choice":"some"`}, none, [2]string{"tool_choice", `"tool_choice":"some"`}),
		"a choice without tools":   inFormats(invalidValue, "", [2]string{"tool_choice", `"tool_choice":"required"`}, none, [2]string{"tool_choice", `"tool_choice":"required"`}),
		"a tool that is not there": inFormats(invalidValue, "", [2]string{"tool_choice", `"tool_choice":{"type":"function","function":{"name":"f"}}`}, none, [2]string{"tool_choice", `"tool_choice":{"type":"function","name":"f"}`}),
		"too many parts": inFormats(arrayTooLong, "maximum length 4096, but got an array with length 4097",
			[2]string{"messages[0].content", `"messages":[{"role":"user","content":` + repeatJSON(4097, `{"type":"text","text":"a"}`) + `}]`},
			[2]string{"messages", `"messages":[{"role":"user","content":` + repeatJSON(4097, `{"type":"text","text":"a"}`) + `}]`},
			[2]string{"input", `"input":[{"role":"user","content":` + repeatJSON(4097, `{"type":"input_text","text":"a"}`) + `}]`}),
		"too many calls": inFormats(arrayTooLong, "maximum length 1024, but got an array with length 1025",
			[2]string{"messages[0].tool_calls", `"messages":[{"role":"assistant","tool_calls":` + repeatJSON(1025, `{"id":"c","function":{"name":"f","arguments":"{}"}}`) + `}]`},
			[2]string{"messages", `"messages":[{"role":"assistant","content":` + repeatJSON(1025, `{"type":"tool_use","id":"c","name":"f","input":{}}`) + `}]`},
			[2]string{"input", `"input":` + repeatJSON(1025, `{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}`)}),
	} {
		t.Run(name, func(t *testing.T) {
			for path, member := range m.members {
				var summary *llmhttp.RequestSummary
				h := llmhttp.NewHandler(llmhttp.BackendFunc(func(context.Context, *llm.ChatRequest) llm.ChatStream { return llm.Reply("Hello!") }),
					keysFor(testKey()), &llmhttp.Options{
						Protocols: []llmhttp.Protocol{messages.New(nil), responses.New(nil)},
						Observe: func(ctx context.Context, _ *http.Request) (context.Context, llmhttp.Observation) {
							return ctx, llmhttp.Observation{Ended: func(s *llmhttp.RequestSummary) { summary = s }}
						},
					})
				r := httptest.NewRequest("POST", path, strings.NewReader(withMember(t, formatRequests[path]+"}", member)))
				r.Header.Set("Authorization", "Bearer "+testSecret)
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)

				require.Equal(t, http.StatusBadRequest, w.Code, "%s: %s", path, w.Body)
				var reply struct{ Error apiError }
				require.NoError(t, json.Unmarshal(w.Body.Bytes(), &reply))
				assert.Equal(t, "invalid_request_error", reply.Error.Type, path)
				assert.Contains(t, reply.Error.Message, m.text, path)
				e, ok := errors.AsType[*llm.Error](summary.Err)
				require.True(t, ok)
				assert.Equal(t, m.code, e.Code, "%s: %s", path, e.Message)
				assert.Equal(t, m.params[path], e.Param, path)
				if path != "/v1/messages" { // the errors of that API have neither
					assert.Equal(t, m.code, reply.Error.Code, path)
					assert.Equal(t, m.params[path], reply.Error.Param, path)
				}
			}
		})
	}
}

// withMember returns the object doc with a member, in the place of one with the same name.
func withMember(t *testing.T, doc, member string) string {
	var members, added map[string]json.RawMessage
	require.NoError(t, json.Unmarshal([]byte(doc), &members))
	require.NoError(t, json.Unmarshal([]byte("{"+member+"}"), &added))
	for name, v := range added {
		members[name] = v
	}
	b, err := json.Marshal(members)
	require.NoError(t, err)
	return string(b)
}

// Validate accepts what the Handler accepts.
func TestValidate_AcceptsMaximalChat(t *testing.T) {
	var full llm.ChatRequest
	require.NoError(t, json.Unmarshal([]byte(maximalChat), &full))
	require.NoError(t, full.Validate())
}
