package responses_test

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/responses"
)

// A lister is a Backend with models.
type lister struct {
	llmhttp.Backend
	models []llm.Model
}

func (l lister) ListModels(context.Context) ([]llm.Model, error) { return l.models, nil }

// requiredByCodex are the members of codex-rs/protocol/src/openai_models.rs, ModelInfo, that have no default in
// some version from 0.100 to 0.171.
var requiredByCodex = []string{
	"slug", "display_name", "description", "supported_reasoning_levels", "shell_type", "visibility", "supported_in_api", "priority", "upgrade",
	"base_instructions", "supports_reasoning_summaries", "support_verbosity", "default_verbosity", "apply_patch_tool_type",
	"truncation_policy", "supports_parallel_tool_calls", "experimental_supported_tools",
}

// Codex gets the list of OpenAI's API and its own in one object; other clients get the former only.
func TestModels_Codex(t *testing.T) {
	window := 128_000
	b := lister{models: []llm.Model{
		{ID: "thinks", DisplayName: "Thinks", ContextWindow: window, Capabilities: []llm.Capability{"tools", "vision", "thinking"}},
		{ID: "embeds", Capabilities: []llm.Capability{llm.CapabilityEmbedding}},
		{ID: "plain", Capabilities: []llm.Capability{"tools"}},
		{ID: "unknown"},
		{ID: "hidden"},
	}}
	keys := llmhttp.KeyStoreFunc(func(context.Context, string) (*llmhttp.Key, error) {
		return &llmhttp.Key{ID: "k", Models: []string{"thinks", "embeds", "plain", "unknown"}}, nil
	})
	list := func(instructions, query string) string {
		h := llmhttp.NewHandler(b, keys, &llmhttp.Options{
			Protocols: []llmhttp.Protocol{responses.New(&responses.Options{CodexInstructions: instructions})},
		})
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/v1/models"+query, nil))
		require.Equal(t, 200, w.Code)
		return w.Body.String()
	}
	plain := list("Be good.", "")
	assert.NotContains(t, plain, `"models"`)
	assert.Equal(t, plain, list("", "?client_version=0.171.0"), "without instructions Codex would have none")

	both := list("Be good.", "?client_version=0.171.0")
	var got struct {
		Data   json.RawMessage
		Models []map[string]json.RawMessage
	}
	require.NoError(t, json.Unmarshal([]byte(both), &got))
	assert.JSONEq(t, plain, `{"object":"list","data":`+string(got.Data)+`}`)

	common := `"shell_type":"default","visibility":"list","supported_in_api":true,"upgrade":null,"base_instructions":"Be good.",
		"description":null,"support_verbosity":false,"default_verbosity":null,"apply_patch_tool_type":null,
		"truncation_policy":{"mode":"bytes","limit":10000},"supports_parallel_tool_calls":true,"experimental_supported_tools":[]`
	require.Len(t, got.Models, 3)
	for i, want := range []string{
		`"slug":"thinks","display_name":"Thinks","priority":0,"context_window":128000,"max_context_window":128000,"input_modalities":["text","image"],
			"default_reasoning_level":"medium","supports_reasoning_summaries":true,"supported_reasoning_levels":[
				{"effort":"low","description":"Fast replies with little reasoning"},{"effort":"medium","description":"Some reasoning"},
				{"effort":"high","description":"Much reasoning for difficult tasks"}]`,
		`"slug":"plain","display_name":"plain","priority":2,"context_window":null,"max_context_window":null,"input_modalities":["text"],
			"supports_reasoning_summaries":false,"supported_reasoning_levels":[]`,
		`"slug":"unknown","display_name":"unknown","priority":3,"context_window":null,"max_context_window":null,
			"supports_reasoning_summaries":false,"supported_reasoning_levels":[]`,
	} {
		data, err := json.Marshal(got.Models[i])
		require.NoError(t, err)
		assert.JSONEq(t, "{"+want+","+common+"}", string(data))
		for _, name := range requiredByCodex {
			assert.Contains(t, got.Models[i], name)
		}
	}
}
