package simulator_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
	"github.com/llmhttp/llmhttp/llmfake/simulator"
)

func TestBackend_ToolCalls(t *testing.T) {
	const tools = `"tools":[{"type":"custom","custom":{"name":"x"}},` +
		`{"type":"function","function":{"name":"first","parameters":{"type":"object","properties":{"city":{"type":"string"},` +
		`"days":{"type":"integer","minimum":2}},"required":["city"]}}},` +
		`{"type":"function","function":{"name":"second"}},` +
		`{"type":"function","function":{"name":"third","parameters":{"foo":"bar"}}}]`
	const user = `"messages":[{"role":"user","content":"in Paris"}],` + tools
	const tool = `"messages":[{"role":"user","content":"in Paris"},{"role":"tool","tool_call_id":"1","content":"rain"}],` + tools
	for name, test := range map[string]struct {
		members, call, arguments string
		finish                   llm.FinishReason
	}{
		"no tool_choice":        {user, "first", `{"city":"in Paris","days":2}`, llm.FinishToolCalls},
		"auto":                  {user + `,"tool_choice":"auto"`, "first", `{"city":"in Paris","days":2}`, llm.FinishToolCalls},
		"required":              {user + `,"tool_choice":"required"`, "first", `{"city":"in Paris","days":2}`, llm.FinishToolCalls},
		"required after result": {tool + `,"tool_choice":"required"`, "first", `{"city":"in Paris","days":2}`, llm.FinishToolCalls},
		"named":                 {user + `,"tool_choice":{"type":"function","function":{"name":"second"}}`, "second", `{}`, llm.FinishToolCalls},
		"named after result":    {tool + `,"tool_choice":{"type":"function","function":{"name":"third"}}`, "third", `{}`, llm.FinishToolCalls},
		"allowed_tools": {
			user + `,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"third"}}]}}`,
			"third",
			`{}`,
			llm.FinishToolCalls,
		},
		"allowed_tools, required": {
			tool + `,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[{"type":"function","function":{"name":"third"}}]}}`,
			"third",
			`{}`,
			llm.FinishToolCalls,
		},
		"response format is ignored":  {user + `,"response_format":{"type":"json_object"}`, "first", `{"city":"in Paris","days":2}`, llm.FinishToolCalls},
		"stop is ignored":             {user + `,"stop":"Paris"`, "first", `{"city":"in Paris","days":2}`, llm.FinishToolCalls},
		"max_tokens cuts arguments":   {user + `,"max_tokens":1`, "first", `{"city":"in`, llm.FinishLength},
		"max_tokens equals arguments": {user + `,"max_tokens":3`, "first", `{"city":"in Paris","days":2}`, llm.FinishToolCalls},
	} {
		t.Run(name, func(t *testing.T) {
			ids := map[string]bool{}
			for _, n := range []int{1, 3} {
				req := newRequest(t, test.members)
				req.N = &n
				resp := collectChecked(t, simulator.New(), req)
				for _, c := range resp.Choices {
					assert.Nil(t, c.Message.Content)
					assert.Equal(t, test.finish, c.FinishReason)
					require.Len(t, c.Message.ToolCalls, 1)
					call := c.Message.ToolCalls[0]
					assert.Equal(t, "function", call.Type)
					assert.Equal(t, test.call, call.Function.Name)
					assert.Equal(t, test.arguments, call.Function.Arguments)
					assert.Regexp(t, "^call_[0-9a-f]{24}$", call.ID)
					assert.NotContains(t, ids, call.ID)
					ids[call.ID] = true
				}
			}
		})
	}
}

func TestBackend_ParallelCalls(t *testing.T) {
	const tools = `"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}}},` +
		`{"type":"function","function":{"name":"g"}},` +
		`{"type":"function","function":{"name":"h","parameters":{"type":"object","properties":{"b":{"type":"string"}},"required":["b"]}}}]`
	const parallel = `"messages":[{"role":"user","content":"one two three"}],"parallel_tool_calls":true,` + tools
	for limit, want := range map[string][]string{
		"":                 {`f({"a":"one two three"})`, `g({})`, `h({"b":"one two three"})`},
		`,"max_tokens":6`:  {`f({"a":"one two three"})`, `g({})`, `h({"b":"one two)`},
		`,"max_tokens":1`:  {`f({"a":"one)`, `g()`, `h()`},
		`,"max_tokens":99`: {`f({"a":"one two three"})`, `g({})`, `h({"b":"one two three"})`},
	} {
		resp, err := join.Collect(simulator.New().Chat(t.Context(), newRequest(t, parallel+limit)))
		require.NoError(t, err)
		var got []string
		for _, c := range resp.Choices[0].Message.ToolCalls {
			got = append(got, c.Function.Name+"("+c.Function.Arguments+")")
		}
		assert.Equal(t, want, got, limit)
	}
}
