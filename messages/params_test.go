package messages_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/messages"
)

// A request with max_tokens: 0 gets an empty message, whatever the Backend yields, and pays for the prompt. The
// Backend gets a limit that servers of chat completions accept.
func TestMaxTokens_Zero(t *testing.T) {
	const usage = `{"choices":[],"usage":{"prompt_tokens":1000,"completion_tokens":1,"total_tokens":1001,` +
		`"prompt_tokens_details":{"cache_write_tokens":900}}}`
	for name, choices := range map[string][]string{
		"text":           {`{"index":0,"delta":{"content":"Hi"},"finish_reason":"length"}`},
		"reasoning":      {`{"index":0,"delta":{"reasoning_content":"Hm"}}`, `{"index":0,"delta":{},"finish_reason":"length"}`},
		"a call":         {`{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{"}}]},"finish_reason":"tool_calls"}`},
		"no limit":       {`{"index":0,"delta":{"content":"Hello!"},"finish_reason":"stop"}`},
		"nothing at all": {`{"index":0,"delta":{},"finish_reason":"stop"}`},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(func() llm.ChatStream {
				return func(yield func(*llm.ChatChunk, error) bool) {
					for _, choice := range choices {
						yield(chunk(t, choice), nil)
					}
					last := new(llm.ChatChunk)
					assert.NoError(t, json.Unmarshal([]byte(usage), last))
					yield(last, nil)
				}
			}, nil)
			w := s.do("POST", messagesPath, `{"model":"m","max_tokens":0,"thinking":{"type":"adaptive"},"tool_choice":{"type":"auto"},`+
				`"tools":[{"name":"f","input_schema":{}}]`+hi+`}`)
			require.Equal(t, 200, w.Code, "%s", w.Body)
			m, err := readMessage(w.Body.Bytes())
			require.NoError(t, err)
			assert.Empty(t, m.Content)
			assert.Equal(t, "max_tokens", *m.StopReason)
			assert.Equal(t, []int{100, 900, 1}, []int{*m.Usage.InputTokens, *m.Usage.CacheCreation, *m.Usage.OutputTokens})
			assert.Nil(t, m.Usage.CacheWrites, "the lifetimes are not known")
			require.Len(t, s.usage, 1)
			assert.EqualValues(t, 1000, s.usage[0].Units.PromptTokens)
			n, ok := s.last.TokenLimit()
			assert.True(t, ok)
			assert.Equal(t, 1, n)
		})
	}
}

func TestMaxTokens_ZeroIsRefused(t *testing.T) {
	const tools = `,"tools":[{"name":"f","input_schema":{}}]`
	const schema = `{"type":"json_schema","schema":{}}`
	for member, want := range map[string]string{
		`"stream":true`: "stream: Input should be false if max_tokens is 0",
		`"thinking":{"type":"enabled","budget_tokens":1024}`:        "thinking.type: Input should not be 'enabled' if max_tokens is 0",
		`"output_config":{"format":` + schema + `}`:                 "output_config.format: Input should not be set if max_tokens is 0",
		`"output_format":` + schema:                                 "output_format: Input should not be set if max_tokens is 0",
		`"tool_choice":{"type":"any"}` + tools:                      "tool_choice.type: Input should be 'auto' or 'none' if max_tokens is 0",
		`"tool_choice":{"type":"tool","name":"f"}` + tools:          "tool_choice.type: Input should be 'auto' or 'none' if max_tokens is 0",
		`"stream":false,"output_config":{"effort":"low"}` + tools:   "",
		`"thinking":{"type":"disabled"},"stop_sequences":["a","b"]`: "",
	} {
		assert.Equal(t, want, errorText(t, `{"model":"m","max_tokens":0,`+member+hi+`}`), member)
	}
}

func TestInferenceGeo(t *testing.T) {
	newGeoServer := func(geos ...string) *server {
		return newServer(nil, func(o *llmhttp.Options) {
			o.Protocols = []llmhttp.Protocol{messages.New(&messages.Options{InferenceGeos: geos})}
		})
	}
	const refused = "inference_geo: This server does not promise that models run only in "
	for _, test := range []struct {
		geos        []string
		value, want string // want is the error, or empty
		place       string
	}{
		{nil, `null`, "", ""},
		{nil, `"global"`, "", ""},
		{nil, `""`, "", ""},
		{nil, `"us"`, refused + "'us'", ""},
		{nil, `{"us":1}`, "inference_geo: Input should be a string", ""},
		{[]string{"us", "eu"}, `"eu"`, "", "eu"},
		{[]string{"us"}, `"eu"`, refused + "'eu'", ""},
		{[]string{"us"}, `"US"`, refused + "'US'", ""},
		{[]string{"us"}, `"global"`, "", ""},
	} {
		s := newGeoServer(test.geos...)
		for path, body := range map[string]string{
			messagesPath:                   requestBody(hi + `,"inference_geo":` + test.value),
			messagesPath + "/count_tokens": `{"model":"m"` + hi + `,"inference_geo":` + test.value + `}`,
		} {
			w := s.do("POST", path, body)
			if test.want != "" {
				assert.Equal(t, 400, w.Code, test.value)
				typ, message, err := readError(w.Body.Bytes())
				require.NoError(t, err)
				assert.Equal(t, "invalid_request_error", typ)
				assert.Equal(t, test.want, message)
				continue
			}
			require.Equal(t, 200, w.Code, "%s", w.Body)
			if path != messagesPath {
				continue
			}
			m, err := readMessage(w.Body.Bytes())
			require.NoError(t, err)
			want := "null"
			if test.place != "" {
				want = `"` + test.place + `"`
				assert.JSONEq(t, want, string(s.last.Extra["inference_geo"]))
			} else {
				assert.Nil(t, s.last.Extra["inference_geo"], "a server could take it for a promise")
			}
			assert.Equal(t, want, string(m.Usage.InferenceGeo.RawMessage))
		}
		assert.Equal(t, test.want != "", s.last == nil, "whether the Backend was called")
	}
}

// What a Backend reports in the Extra of its usage, as servers of this API do, reaches the client.
func TestUsage_Reported(t *testing.T) {
	for name, test := range map[string]struct{ extra, tools, geo, speed string }{
		"nothing": {`{}`, "null", "null", "null"},
		"all": {
			`{"server_tool_use":{"web_search_requests":2,"web_fetch_requests":1},"inference_geo":"eu","speed":"fast"}`,
			`{"web_search_requests":2,"web_fetch_requests":1}`, `"eu"`, `"fast"`,
		},
		"OpenRouter's": {`{"server_tool_use":{"web_search_requests":2}}`, `{"web_search_requests":2,"web_fetch_requests":0}`, "null", "null"},
		"other types":  {`{"server_tool_use":[1],"inference_geo":{},"speed":1}`, "null", "null", "null"},
		"not a number": {`{"server_tool_use":{"web_search_requests":"x"}}`, "null", "null", "null"},
		"null from it": {`{"server_tool_use":null,"inference_geo":null,"speed":null}`, "null", "null", "null"},
	} {
		t.Run(name, func(t *testing.T) {
			chunks := func() []*llm.ChatChunk {
				u := &llm.Usage{PromptTokens: 3, CompletionTokens: 1}
				assert.NoError(t, json.Unmarshal([]byte(test.extra), &u.Extra))
				return []*llm.ChatChunk{llm.TextChunk("Hi"), {Usage: u}}
			}
			whole, streamed, failure := sendBoth(t, chunks)
			require.Empty(t, failure)
			assert.Equal(t, test.tools, string(whole.Usage.ServerToolUse.RawMessage))
			assert.Equal(t, test.tools, string(streamed.Usage.ServerToolUse.RawMessage))
			assert.Equal(t, test.geo, string(whole.Usage.InferenceGeo.RawMessage))
			assert.Equal(t, test.speed, string(whole.Usage.Speed.RawMessage))
		})
	}
}

// What Anthropic's servers tell at the end of a reply arrives as they sent it.
func TestEnd_Reported(t *testing.T) {
	const (
		details   = `{"type":"refusal","category":"cyber"}`
		container = `{"id":"c","expires_at":"2026-11-29T07:00:00Z"}`
		edits     = `{"applied_edits":[]}`
	)
	for name, test := range map[string]struct{ details, container, edits, want string }{
		"nothing":     {`null`, `null`, `null`, `"stop_details":null,"container":null`},
		"all":         {details, container, edits, `"stop_details":` + details + `,"container":` + container},
		"with spaces": {`{"type": "refusal",` + "\n" + `"category": "cyber"}`, container, edits, `"stop_details":` + details + `,"container":` + container},
		"other types": {`5`, `"c"`, `[]`, `"stop_details":null,"container":null`},
		"no JSON":     {`{"type"`, `{]`, `{`, `"stop_details":null,"container":null`},
	} {
		t.Run(name, func(t *testing.T) {
			last := func() *llm.ChatChunk {
				return &llm.ChatChunk{
					Choices: []llm.ChunkChoice{{FinishReason: llm.FinishContentFilter, Extra: llm.Extra{"stop_details": json.RawMessage(test.details)}}},
					Extra:   llm.Extra{"container": json.RawMessage(test.container), "context_management": json.RawMessage(test.edits)},
				}
			}
			s := newServer(func() llm.ChatStream {
				return llm.NewStream(func(send func(*llm.ChatChunk) error) error {
					return errors.Join(send(llm.TextChunk("Hi")), send(last()))
				})
			}, nil)
			whole := s.do("POST", messagesPath, requestBody(hi)).Body.String()
			streamed := s.stream(requestBody(hi + `,"stream":true`))
			assert.Contains(t, whole, test.want)
			assert.Contains(t, streamed, `"delta":{"stop_reason":"refusal","stop_sequence":null,`+test.want+`}`)
			const member = `,"context_management":` + edits + `,"usage":`
			assert.Equal(t, test.edits == edits, strings.Contains(whole, member))
			assert.Equal(t, test.edits == edits, strings.Contains(streamed, "}"+member))
		})
	}
}
