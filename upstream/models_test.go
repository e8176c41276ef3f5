package upstream_test

import (
	"encoding/json"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/upstream"
)

func TestListModels(t *testing.T) {
	for _, test := range []struct {
		name, body string
		models     map[string]string
		want       string
	}{
		{"list", `{"object":"list","data":[{"id":"b","object":"model","created":5,"owned_by":"x","meta":{"n":1}},{"id":"org/a"}]}`, nil,
			`[{"id":"b","object":"model","created":5,"owned_by":"x","meta":{"n":1}},{"id":"org/a","object":"model","created":0,"owned_by":""}]`},
		{"entries of other types", `{"data":["x",{"id":"a","created":"2024-01-01T00:00:00Z","owned_by":{"n":1},"meta":2},5,{"id":7},{"id":"b"}]}`, nil,
			`[{"id":"a","object":"model","created":0,"owned_by":"","meta":2},{"id":"b","object":"model","created":0,"owned_by":""}]`},
		{"members that tell the name of another model", `{"data":[{"id":"vendor/a","root":"/models/a","parent":"vendor/base","about":"vendor/a, large","n":["vendor/a"],"path":"/srv/vendor/a/w"},{"id":"b","root":"b","parent":"vendor/a","like":"vendor/a-2","best":"c"}]}`,
			map[string]string{"a": "vendor/a", "small": "vendor/a", "c": "c"},
			`[{"id":"a","object":"model","created":0,"owned_by":"","about":"a, large"},{"id":"small","object":"model","created":0,"owned_by":"","about":"small, large"},` +
				`{"id":"b","object":"model","created":0,"owned_by":"","best":"c","like":"vendor/a-2","root":"b"},{"id":"c","object":"model","created":0,"owned_by":""}]`},
		{"array without an object", `[{"id":"a","created":1.5}]`, nil, `[{"id":"a","object":"model","created":1,"owned_by":""}]`},
		{"null", `{"data":null}`, nil, `[]`},
		{"empty", `{"object":"list","data":[],"error":null}`, nil, `[]`},
		{"Ollama's own API", `{"models":[{"name":"a:latest","model":"a:latest","size":5},{"name":"b:7b","model":"b:7b"}]}`, nil,
			`[{"id":"a:latest","object":"model","created":0,"owned_by":"","name":"a:latest","model":"a:latest","size":5},{"id":"b:7b","object":"model","created":0,"owned_by":"","name":"b:7b","model":"b:7b"}]`},
		{"Gemini", `{"models":[{"name":"models/a","displayName":"A","version":"1"}]}`, nil, `[{"id":"a","object":"model","created":0,"owned_by":"","displayName":"A","version":"1"}]`},
		{"Cohere", `{"models":[{"name":"a","endpoints":["chat"],"context_length":128000}]}`, nil, `[{"id":"a","object":"model","created":0,"owned_by":"","context_length":128000,"endpoints":["chat"]}]`},
		{"llama.cpp, which has both", `{"models":[{"name":"/models/a.gguf","model":"/models/a.gguf"}],"object":"list","data":[{"id":"a"}]}`, nil, `[{"id":"a","object":"model","created":0,"owned_by":""}]`},
		{"empty models", `{"models":[]}`, nil, `[]`},
		{"duplicate and empty names", `{"data":[{"id":"a"},{"id":""},{"id":"a","owned_by":"x"}]}`, nil, `[{"id":"a","object":"model","created":0,"owned_by":""}]`},
		{"other names", `{"data":[{"id":"vendor/a","created":5},{"id":"c","created":6},{"id":"b"}]}`,
			map[string]string{"a": "vendor/a", "small": "vendor/a", "c": "b", "unlisted": "vendor/x"},
			`[{"id":"a","object":"model","created":5,"owned_by":""},{"id":"small","object":"model","created":5,"owned_by":""},{"id":"c","object":"model","created":0,"owned_by":""},{"id":"unlisted","object":"model","created":0,"owned_by":""}]`},
	} {
		t.Run(test.name, func(t *testing.T) {
			checkLeaks(t)
			s := newRawServer(t, func(c net.Conn, r *rawRequest) { writeReply(c, 200, mediaJSON, test.body) })
			list, err := newBackend(t, s.url(), &upstream.Options{Models: test.models}).ListModels(t.Context())
			require.NoError(t, err)
			got, err := json.Marshal(append([]llm.Model{}, list...))
			require.NoError(t, err)
			assert.Equal(t, test.want, string(got))
			assert.Equal(t, "GET", s.last().Method)
			assert.Empty(t, s.last().body)
			assert.Empty(t, s.last().Header["Content-Type"])
		})
	}
}

// The lists of several servers, as they send them: vLLM (entrypoints/openai/protocol.py:
// ModelCard), llama.cpp (tools/server/server-context.cpp), OpenRouter (docs/models), LiteLLM
// (proxy/utils.py: create_model_info_response), Ollama (openai/openai.go: Model).
func TestListModels_Servers(t *testing.T) {
	for name, test := range map[string]struct {
		body string
		want llm.Model // without Extra
	}{
		"vLLM": {`{"object":"list","data":[{"id":"org/m","object":"model","created":1700000000,"owned_by":"vllm","root":"org/m","parent":null,"max_model_len":32768,` +
			`"permission":[{"id":"modelperm-1","object":"model_permission","created":1700000000,"allow_sampling":true,"organization":"*","group":null,"is_blocking":false}]}]}`,
			llm.Model{ID: "org/m", Created: 1700000000, OwnedBy: "vllm", ContextWindow: 32768}},
		"llama.cpp": {`{"models":[{"name":"m","model":"m","modified_at":"","size":"","digest":"","type":"model","description":"","tags":[""],"capabilities":["completion","multimodal"],"parameters":"","details":{"format":"gguf"}}],` +
			`"object":"list","data":[{"id":"m","aliases":["m"],"tags":[],"object":"model","created":1700000000,"owned_by":"llamacpp","meta":{"vocab_type":2,"n_vocab":151936,"n_ctx":65536,"n_ctx_train":262144,"n_embd":2048,"n_params":34660610688,"size":22127960064,"ftype":"Q4_K"}}]}`,
			llm.Model{ID: "m", Created: 1700000000, OwnedBy: "llamacpp", ContextWindow: 65536}},
		"OpenRouter": {`{"data":[{"id":"org/m","canonical_slug":"org/m-2026","hugging_face_id":"","name":"Org: M","created":1700000000,"description":"A model","context_length":200000,` +
			`"architecture":{"modality":"text+image->text","input_modalities":["text","image"],"output_modalities":["text"],"tokenizer":"GPT","instruct_type":null},"pricing":{"prompt":"0.000003","completion":"0.000015"},` +
			`"top_provider":{"context_length":200000,"max_completion_tokens":64000,"is_moderated":true},"per_request_limits":null,"supported_parameters":["include_reasoning","max_tokens","reasoning","temperature","tool_choice","tools"]}]}`,
			llm.Model{ID: "org/m", Created: 1700000000, DisplayName: "Org: M", ContextWindow: 200000, OutputLimit: 64000,
				Capabilities: []llm.Capability{llm.CapabilityTools, llm.CapabilityVision, llm.CapabilityThinking}}},
		"LiteLLM": {`{"data":[{"id":"m","object":"model","created":1677610602,"owned_by":"openai","max_input_tokens":128000,"max_output_tokens":16384}],"object":"list"}`,
			llm.Model{ID: "m", Created: 1677610602, OwnedBy: "openai", ContextWindow: 128000, OutputLimit: 16384}},
		"Ollama": {`{"object":"list","data":[{"id":"m:latest","object":"model","created":1700000000,"owned_by":"library"}]}`,
			llm.Model{ID: "m:latest", Created: 1700000000, OwnedBy: "library"}},
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			s := newRawServer(t, func(c net.Conn, r *rawRequest) { writeReply(c, 200, mediaJSON, test.body) })
			list, err := newBackend(t, s.url(), nil).ListModels(t.Context())
			require.NoError(t, err)
			require.Len(t, list, 1)
			list[0].Extra = nil
			assert.Equal(t, test.want, list[0])
		})
	}
}

// Names that people see reveal the server's model as well as its ID does.
func TestListModels_DisplayName(t *testing.T) {
	checkLeaks(t)
	const body = `{"data":[{"id":"llama-70b","name":"Llama 70B","display_name":"Llama","max_model_len":8,"capabilities":["tools"]},{"id":"b-1","name":"like llama-70b"},{"id":"c-1","name":"C"}]}`
	s := newRawServer(t, func(c net.Conn, r *rawRequest) { writeReply(c, 200, mediaJSON, body) })
	models := map[string]string{"chat": "llama-70b", "meta/llama-70b": "llama-70b"}
	list, err := newBackend(t, s.url(), &upstream.Options{Models: models}).ListModels(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 4)
	tools := []llm.Capability{llm.CapabilityTools}
	window := llm.Extra{"max_model_len": []byte("8")}
	assert.Equal(t, llm.Model{ID: "chat", ContextWindow: 8, Capabilities: tools, Extra: window}, list[0])
	assert.Equal(t, "Llama 70B", list[1].DisplayName, "the client's name contains the server's")
	assert.Empty(t, list[2].DisplayName, "it contains the name of a model that is hidden")
	assert.Equal(t, "C", list[3].DisplayName)
	list[0].Capabilities[0] = "changed"
	assert.Equal(t, tools, list[1].Capabilities, "models share no memory")
}

func TestListModels_InvalidReply(t *testing.T) {
	for _, body := range []string{``, `{}x`, `"a"`, `{"data":5}`, `{"data":["a"]}`, `{"data":[{"id":1},{"id":2}]}`, `[5]`, `{"error":"no"}`, `{"object":"error","message":"no"}`, `<html>`} {
		t.Run(body, func(t *testing.T) {
			checkLeaks(t)
			s := newRawServer(t, func(c net.Conn, r *rawRequest) { writeReply(c, 200, mediaJSON, body) })
			_, err := newBackend(t, s.url(), nil).ListModels(t.Context())
			var e *llm.Error
			require.ErrorAs(t, err, &e)
			assert.Equal(t, 502, e.Status)
		})
	}
}

// A reply with the status 200 that has no list of models is an error, and not an empty list.
func TestListModels_Refused(t *testing.T) {
	for name, test := range map[string]struct{ body, log string }{
		"error":            {`{"error":{"message":"Wrong key.","code":"invalid_api_key"}}`, "Wrong key."},
		"MiniMax":          {`{"base_resp":{"status_code":1004,"status_msg":"login fail"}}`, "1004: login fail"},
		"message":          {`{"code":401,"message":"Not logged in.","data":null}`, "401: Not logged in."},
		"FastAPI":          {`{"detail":"Not authenticated"}`, "Not authenticated"},
		"array of errors":  {`[{"error":{"code":401,"message":"No."}}]`, "401: No."},
		"text":             {`"Unauthorized"`, "Unauthorized"},
		"success is false": {`{"success":false,"errors":[{"message":"No."}],"result":null}`, "No."},
		"no list":          {`{"object":"list"}`, "the reply has no list of models"},
		"another member":   {`{"result":[{"id":"m"}]}`, "the reply has no list of models"},
		"no array":         {`{"data":{"id":"m"}}`, "the reply is not valid"},
		"no entries":       {`{"models":["a","b"]}`, "the reply is not valid"},
		"no IDs":           {`{"data":[{"object":"model"}]}`, "a model has no ID"},
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			s := newRawServer(t, func(c net.Conn, r *rawRequest) { writeReply(c, 200, mediaJSON, test.body) })
			list, err := newBackend(t, s.url(), nil).ListModels(t.Context())
			assert.ErrorContains(t, err, test.log)
			assert.Nil(t, list)
		})
	}
}
