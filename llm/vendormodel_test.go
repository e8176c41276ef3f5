package llm_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/llm"
)

// Entries of the lists of several servers fill the fields, and keep their own members when
// they are encoded again.
func TestModel_Vendors(t *testing.T) {
	type capabilities = []llm.Capability
	for name, test := range map[string]struct {
		doc  string
		want llm.Model // without ID and Extra
		json string    // the members after owned_by
	}{
		"OpenAI": {`{"id":"m","shutdown_date":null}`, llm.Model{}, `"shutdown_date":null`},
		"vLLM": {`{"id":"m","object":"model","created":1,"owned_by":"vllm","root":"org/m","parent":null,"max_model_len":32768,"permission":[{"id":"modelperm-1"}]}`,
			llm.Model{Created: 1, OwnedBy: "vllm", ContextWindow: 32768},
			`"context_length":32768,"max_model_len":32768,"parent":null,"permission":[{"id":"modelperm-1"}],"root":"org/m"`},
		"llama.cpp": {`{"id":"m","aliases":["m"],"tags":[],"meta":{"vocab_type":2,"n_vocab":151936,"n_ctx":65536,"n_ctx_train":262144,"n_embd":2048}}`,
			llm.Model{ContextWindow: 65536},
			`"context_length":65536,"aliases":["m"],"meta":{"vocab_type":2,"n_vocab":151936,"n_ctx":65536,"n_ctx_train":262144,"n_embd":2048},"tags":[]`},
		"llama.cpp without n_ctx": {`{"id":"m","meta":{"n_ctx_train":4096}}`, llm.Model{ContextWindow: 4096}, `"context_length":4096,"meta":{"n_ctx_train":4096}`},
		"OpenRouter": {`{"id":"m","name":"Vendor: M","context_length":200000,"architecture":{"modality":"text+image->text","input_modalities":["text","image"],"output_modalities":["text"]},` +
			`"top_provider":{"context_length":131072,"max_completion_tokens":64000,"is_moderated":false},"per_request_limits":null,"supported_parameters":["max_tokens","reasoning","tools"]}`,
			llm.Model{DisplayName: "Vendor: M", ContextWindow: 131072, OutputLimit: 64000, Capabilities: capabilities{"tools", "vision", "thinking"}},
			`"name":"Vendor: M","context_length":131072,"max_output_tokens":64000,"capabilities":["tools","vision","thinking"],` +
				`"architecture":{"modality":"text+image->text","input_modalities":["text","image"],"output_modalities":["text"]},"per_request_limits":null,` +
				`"supported_parameters":["max_tokens","reasoning","tools"],"top_provider":{"context_length":131072,"max_completion_tokens":64000,"is_moderated":false}`},
		"OpenRouter without limits": {`{"id":"m","name":"M","context_length":8192,"architecture":{"input_modalities":["text"]},"top_provider":{"context_length":null,"max_completion_tokens":null},"supported_parameters":[]}`,
			llm.Model{DisplayName: "M", ContextWindow: 8192, Capabilities: capabilities{}},
			`"name":"M","context_length":8192,"capabilities":[],"architecture":{"input_modalities":["text"]},"supported_parameters":[],"top_provider":{"context_length":null,"max_completion_tokens":null}`},
		"modalities alone tell nothing of tools": {`{"id":"m","architecture":{"input_modalities":["image"]}}`, llm.Model{}, `"architecture":{"input_modalities":["image"]}`},
		"LiteLLM": {`{"id":"m","owned_by":"openai","max_input_tokens":128000,"max_output_tokens":16384}`,
			llm.Model{OwnedBy: "openai", ContextWindow: 128000, OutputLimit: 16384}, `"context_length":128000,"max_output_tokens":16384,"max_input_tokens":128000`},
		"LiteLLM's model info": {`{"id":"m","mode":"chat","supports_function_calling":true,"supports_vision":false,"supports_reasoning":null}`,
			llm.Model{Capabilities: capabilities{"tools"}},
			`"capabilities":["tools"],"mode":"chat","supports_function_calling":true,"supports_reasoning":null,"supports_vision":false`},
		"LiteLLM without capabilities": {`{"id":"m","supports_function_calling":true,"supports_vision":null}`, llm.Model{}, `"supports_function_calling":true,"supports_vision":null`},
		"LiteLLM, embeddings":          {`{"id":"m","mode":"embedding"}`, llm.Model{Capabilities: capabilities{"embedding"}}, `"capabilities":["embedding"],"mode":"embedding"`},
		"Ollama":                       {`{"id":"llama3:latest","object":"model","created":5,"owned_by":"library"}`, llm.Model{Created: 5, OwnedBy: "library"}, ``},
		"Together":                     {`{"id":"m","display_name":"M","context_length":4096}`, llm.Model{DisplayName: "M", ContextWindow: 4096}, `"name":"M","context_length":4096,"display_name":"M"`},
		"this package": {`{"id":"m","name":"M","context_length":9,"max_output_tokens":8,"capabilities":["tools","completion"]}`,
			llm.Model{DisplayName: "M", ContextWindow: 9, OutputLimit: 8, Capabilities: capabilities{"tools", "completion"}},
			`"name":"M","context_length":9,"max_output_tokens":8,"capabilities":["tools","completion"]`},
		"other types": {`{"id":"m","name":7,"context_length":"large","max_output_tokens":-1,"capabilities":{"vision":true},"meta":[],"architecture":"x","top_provider":5,"supported_parameters":"tools"}`,
			llm.Model{},
			`"architecture":"x","capabilities":{"vision":true},"context_length":"large","max_output_tokens":-1,"meta":[],"name":7,"supported_parameters":"tools","top_provider":5`},
		"numbers in other forms":                 {`{"id":"m","context_length":8192.0,"max_output_tokens":"100"}`, llm.Model{ContextWindow: 8192, OutputLimit: 100}, `"context_length":8192,"max_output_tokens":100`},
		"capabilities that are not only strings": {`{"id":"m","capabilities":["tools",null]}`, llm.Model{}, `"capabilities":["tools",null]`},
	} {
		t.Run(name, func(t *testing.T) {
			var m llm.Model
			require.NoError(t, m.UnmarshalJSON([]byte(test.doc)))
			b, err := m.MarshalJSON()
			require.NoError(t, err)
			var again llm.Model
			require.NoError(t, again.UnmarshalJSON(b))
			assert.Equal(t, m, again)

			prefix, err := json.Marshal(llm.Model{ID: m.ID, Created: m.Created, OwnedBy: m.OwnedBy})
			require.NoError(t, err)
			if test.json != "" {
				test.json = "," + test.json
			}
			assert.Equal(t, string(prefix[:len(prefix)-1])+test.json+"}", string(b))
			m.ID, m.Extra = "", nil
			assert.Equal(t, test.want, m)
		})
	}
}

func TestModel_Null(t *testing.T) {
	want := llm.Model{ID: "m", DisplayName: "M", ContextWindow: 1, OutputLimit: 1, Capabilities: []llm.Capability{}}
	m := want
	require.NoError(t, m.UnmarshalJSON([]byte("null")))
	assert.Equal(t, want, m)
}

// Unknown numbers are not written, and a list of capabilities that is known to be empty is.
func TestModel_Unknown(t *testing.T) {
	for want, m := range map[string]llm.Model{
		`{"id":"m","object":"model","created":0,"owned_by":""}`:                   {ID: "m", ContextWindow: -1, OutputLimit: -1},
		`{"id":"m","object":"model","created":0,"owned_by":"","capabilities":[]}`: {ID: "m", Capabilities: []llm.Capability{}},
	} {
		b, err := json.Marshal(m)
		require.NoError(t, err)
		assert.Equal(t, want, string(b))
	}
}
