package responses_test

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/responses"
)

// A member that the package does not know reaches the Backend under its name, as that of a request for chat
// completions does.
func TestPassed_Members(t *testing.T) {
	for name, test := range map[string]struct{ members, want string }{
		"of both formats": {
			`"prompt_cache_options":{"mode":"explicit","ttl":"12h"},"moderation":{"model":"omni-moderation-latest"}`,
			`{"prompt_cache_options":{"mode":"explicit","ttl":"12h"},"moderation":{"model":"omni-moderation-latest"}}`,
		},
		"of Responses alone": {`"context_management":[{"type":"compaction","compact_threshold":1000}]`, `{"context_management":[{"type":"compaction","compact_threshold":1000}]}`},
		"new":                {`"future":{"x":[1, 2]},"seed":7,"top_k":3`, `{"future":{"x":[1, 2]},"seed":7,"top_k":3}`},
		"null":               {`"future":null,"moderation":null`, `{}`},
		"own":                {`"client_metadata":{"a":"b"},"stream_options":{"include_obfuscation":false}`, `{}`},
		"of chat, with fields": {
			`"messages":[],"max_tokens":5,"n":3,"stop":["x"],"response_format":{"type":"text"},"reasoning_effort":"high","max_completion_tokens":7`, `{}`,
		},
		"of chat, in another case": {
			`"Messages":[],"MAX_TOKENS":5,"N":3,"\u017ftop":["x"],"Client_Metadata":{}`, `{}`,
		},
		"known":          {`"user":"u","verbosity":"high","text":{"verbosity":"low"}`, `{"user":"u","verbosity":"low"}`},
		"only own cache": {`"prompt_cache_options":{"comparison_response_id":"resp_1","prewarm":false}`, `{}`},
		"new for caches": {`"prompt_cache_options":{"mode":"implicit","future":1}`, `{"prompt_cache_options":{"mode":"implicit","future":1}}`},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, nil, chunkText)
			s.create(`{"model":"m","input":"Hi",` + test.members + `}`)
			got, err := json.Marshal(s.request.Extra)
			require.NoError(t, err)
			assert.JSONEq(t, test.want, string(got))
			assert.Nil(t, s.request.MaxCompletionTokens)
			assert.Equal(t, 1, s.request.Choices())
			assert.Len(t, s.request.Messages, 1)
		})
	}
}

func TestPassed_PartMembers(t *testing.T) {
	const breakpoint = `"prompt_cache_breakpoint":{"mode":"explicit"}`
	const parts = `[{"type":"input_text","text":"a",` + breakpoint + `},
		{"type":"input_image","image_url":"data:,x","detail":"low",` + breakpoint + `,"future":null},
		{"type":"input_file","filename":"f","file_data":"data:,y",` + breakpoint + `,"file":1,"File":{"file_data":"data:,z"}},
		{"type":"input_audio","input_audio":{"data":"z","format":"wav"},` + breakpoint + `}]`
	const want = `[{"type":"text","text":"a",` + breakpoint + `},
		{"type":"image_url","image_url":{"url":"data:,x","detail":"low"},` + breakpoint + `},
		{"type":"file","file":{"filename":"f","file_data":"data:,y"},` + breakpoint + `},
		{"type":"input_audio","input_audio":{"data":"z","format":"wav"},` + breakpoint + `}]`
	s := newServer(t, nil, chunkText)
	s.create(`{"model":"m","input":[{"role":"user","content":` + parts + `},
		{"role":"assistant","content":[{"type":"output_text","text":"b","annotations":[],"logprobs":[],` + breakpoint + `},{"type":"text","text":"c","id":"x"}]},
		{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":` + parts + `}]}`)
	got, err := json.Marshal(s.request.Messages)
	require.NoError(t, err)
	assert.JSONEq(t, `[{"role":"user","content":`+want+`},
		{"role":"assistant","content":[{"type":"text","text":"b"},{"type":"text","text":"c"}],"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},
		{"role":"tool","tool_call_id":"c","content":`+want+`}]`, string(got))
}

// A conversation that is continued has the members of its parts too.
func TestPassed_Continued(t *testing.T) {
	s := newServer(t, &responses.Options{Store: memory.NewResponseStore()}, chunkText)
	first := s.create(`{"model":"m","input":[{"role":"user","content":[{"type":"input_text","text":"a","prompt_cache_breakpoint":{}}]}]}`)
	s.create(`{"model":"m","input":"b","previous_response_id":"` + first["id"].(string) + `"}`)
	assert.JSONEq(t, `{}`, string(s.request.Messages[0].Content[0].Extra["prompt_cache_breakpoint"]))
}

func TestPassed_CacheOptionsInResponse(t *testing.T) {
	for options, want := range map[string]object{
		`{}`:                                {"mode": "implicit", "ttl": "30m"},
		`{"mode":"explicit","ttl":"12h"}`:   {"mode": "explicit", "ttl": "12h"},
		`{"comparison_response_id":"resp"}`: {"mode": "implicit", "ttl": "30m", "comparison_response_id": "resp"},
	} {
		s := newServer(t, nil, chunkText)
		assert.Equal(t, want, s.create(`{"model":"m","input":"Hi","prompt_cache_options":` + options + `}`)["prompt_cache_options"])
	}
	s := newServer(t, nil, chunkText)
	assert.NotContains(t, s.create(`{"model":"m","input":"Hi","prompt_cache_options":null}`), "prompt_cache_options")
	for options, param := range map[string]string{
		`[]`: "prompt_cache_options", `{"mode":1}`: "prompt_cache_options.mode", `{"prewarm":"yes"}`: "prompt_cache_options.prewarm",
	} {
		assert.Equal(t, param, s.requireRefused(400, "POST", "/v1/responses", `{"model":"m","input":"Hi","prompt_cache_options":`+options+`}`).Param)
	}
}

// A response that only fills the cache is complete and has no output, whatever the Backend yields.
func TestPassed_Prewarm(t *testing.T) {
	const body = `{"model":"m","max_output_tokens":500,"prompt_cache_options":{"prewarm":true,"mode":"explicit"},"input":"Hi"}`
	for name, chunks := range map[string][]string{
		"text":      {chunkText, chunkUsage},
		"a limit":   {`{"choices":[{"delta":{"content":"H"},"finish_reason":"length"}]}`, chunkUsage},
		"reasoning": {`{"choices":[{"delta":{"reasoning_content":"H"}}]}`, chunkUsage},
		"a call":    {`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{}"}}]}}]}`, chunkUsage},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, &responses.Options{Store: memory.NewResponseStore()}, chunks...)
			whole := s.create(body)
			streamed, err := accumulate(s.stream(body))
			require.NoError(t, err)
			for _, r := range []object{whole, streamed} {
				assert.Equal(t, "completed", r["status"])
				assert.Empty(t, r["output"])
				assert.InDelta(t, 500, r["max_output_tokens"], 0, "the parameter")
				assert.NotZero(t, r["usage"].(object)["input_tokens"])
			}
			assert.Equal(t, 1, *s.request.MaxCompletionTokens)
			assert.JSONEq(t, `{"mode":"explicit"}`, string(s.request.Extra["prompt_cache_options"]))
			s.create(`{"model":"m","input":"Go on.","previous_response_id":"` + whole["id"].(string) + `"}`)
			assert.Len(t, s.request.Messages, 2, "the input of both")
		})
	}
}

// The reply to POST /v1/responses/compact is a summary, also of a request that would only fill the cache.
func TestPassed_PrewarmCompact(t *testing.T) {
	s := newServer(t, nil, chunkSummary, chunkUsage)
	r := s.ask("acme", "POST", "/v1/responses/compact", `{"model":"m","input":"Hi","prompt_cache_options":{"prewarm":true}}`)
	assert.Len(t, r["output"], 2)
	assert.Nil(t, s.request.MaxCompletionTokens)
}

// The results of a moderation that the Backend yields are in the response.
func TestPassed_Moderation(t *testing.T) {
	for moderation, want := range map[string]any{
		`{"input":{"type":"moderation_results","model":"m","results":[{"type":"moderation_result","flagged":true}]},"output":{"type":"error","code":"c"}}`: object{
			"input": object{"type": "moderation_result", "flagged": true}, "output": object{"type": "error", "code": "c"},
		},
		`{"input":{"type":"moderation_results","results":[]},"output":{"type":"error"}}`: nil,
		`{"input":{"type":"error"}}`:              nil,
		`{"input":{"type":"error"},"output":[1]}`: nil,
		`"x"`:  nil,
		`null`: nil,
	} {
		s := newServer(t, nil, `{"choices":[{"delta":{"content":"Hi"}}],"moderation":`+moderation+`}`)
		r := s.create(`{"model":"m","input":"Hi","moderation":{"model":"omni-moderation-latest"}}`)
		assert.Equal(t, want, r["moderation"])
		assert.Equal(t, []string{"moderation"}, slices.Sorted(maps.Keys(s.request.Extra)))
	}
}
