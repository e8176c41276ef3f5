package messages_test

import (
	"context"
	"io"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/messages"
)

// A lister is a Backend with models.
type lister struct {
	llmhttp.Backend
	models []llm.Model
}

func (l lister) ListModels(context.Context) ([]llm.Model, error) { return l.models, nil }

func TestModels(t *testing.T) {
	var models []llm.Model
	for _, id := range []string{"a", "b/c", "hidden", "d", "e"} {
		models = append(models, llm.Model{ID: id, Created: 1767225600, OwnedBy: "x"})
	}
	keys := llmhttp.KeyStoreFunc(func(context.Context, string) (*llmhttp.Key, error) {
		return &llmhttp.Key{ID: "k", Models: []string{"?", "a", "b/c", "d", "e"}}, nil
	})
	h := llmhttp.NewHandler(lister{models: models}, keys, &llmhttp.Options{
		Protocols: []llmhttp.Protocol{messages.New(&messages.Options{Names: messages.Names{"claude*": "d"}})},
	})
	s := &server{Handler: h}
	model := func(id string) string {
		return `{"type":"model","id":"` + id + `","display_name":"` + id + `","created_at":"2026-01-01T00:00:00Z",` +
			`"max_input_tokens":null,"max_tokens":null,"capabilities":null,` + lifecycle + `}`
	}
	for query, want := range map[string]string{
		"":                      `{"data":[` + model("a") + `,` + model("b/c") + `,` + model("d") + `,` + model("e") + `],"has_more":false,"first_id":"a","last_id":"e"}`,
		"?limit=2":              `{"data":[` + model("a") + `,` + model("b/c") + `],"has_more":true,"first_id":"a","last_id":"b/c"}`,
		"?limit=2&after_id=b/c": `{"data":[` + model("d") + `,` + model("e") + `],"has_more":false,"first_id":"d","last_id":"e"}`,
		"?limit=2&before_id=e":  `{"data":[` + model("b/c") + `,` + model("d") + `],"has_more":true,"first_id":"b/c","last_id":"d"}`,
		"?after_id=e":           `{"data":[],"has_more":false,"first_id":null,"last_id":null}`,
		"/b/c":                  model("b/c"),
		"/claude":               model("claude"),
	} {
		w := s.do("GET", "/v1/models"+query, "", "X-Api-Key", "sk-x")
		assert.Equal(t, 200, w.Code, query)
		assert.JSONEq(t, want, w.Body.String(), query)
		assert.NotEmpty(t, w.Header().Get("Request-Id"))
	}
	w := s.do("POST", "/v1/models", "{}") // two protocols serve GET
	assert.Equal(t, 405, w.Code)
	assert.Equal(t, "GET, HEAD", w.Header().Get("Allow"))
	for query, status := range map[string]int{"/hidden": 404, "/nothing": 404, "?limit=0": 400, "?limit=x": 400} {
		w := s.do("GET", "/v1/models"+query, "")
		assert.Equal(t, status, w.Code, query)
		_, _, err := readError(w.Body.Bytes())
		assert.NoError(t, err)
	}

	// Clients of OpenAI's API do not send the version.
	r := httptest.NewRequest("GET", "/v1/models", nil)
	w = httptest.NewRecorder()
	h.ServeHTTP(w, r)
	body, err := io.ReadAll(w.Body)
	require.NoError(t, err)
	assert.Contains(t, string(body), `{"object":"list","data":[{"id":"a","object":"model","created":1767225600`)
	assert.Empty(t, w.Header().Get("Request-Id"))
}

const lifecycle = `"lifecycle":"active","deprecated_at":null,"retires_at":null,"line":null`

// An entry has all members of Anthropic's API. What is not known of a model is null.
func TestModels_Details(t *testing.T) {
	support := func(yes string) string { return `{"supported":` + yes + `}` }
	capabilities := func(vision, thinking string) string {
		no := support("false")
		return `{"batch":` + no + `,"citations":` + no + `,"code_execution":` + no +
			`,"context_management":{"clear_thinking_20251015":` + no + `,"clear_tool_uses_20250919":` + no + `,"compact_20260112":` + no + `,"supported":false}` +
			`,"effort":{"high":` + support(thinking) + `,"low":` + support(thinking) + `,"max":` + support(thinking) + `,"medium":` + support(thinking) +
			`,"supported":` + thinking + `,"xhigh":` + support(thinking) + `},"image_input":` + support(vision) + `,"pdf_input":` + no +
			`,"server_tools":{"code_execution":` + no + `,"supported":false,"web_search":` + no + `},"structured_outputs":` + no + `,"thinking":{"supported":` + thinking + `,"types":{"adaptive":` + support(thinking) +
			`,"between_tools":` + support(thinking) + `,"disabled":{"supported":true},"enabled":` + support(thinking) + `}}}`
	}
	for _, test := range []struct {
		model llm.Model
		want  string
	}{
		{llm.Model{ID: "m", ContextWindow: -1, OutputLimit: -1}, `"display_name":"m","created_at":"1970-01-01T00:00:00Z","max_input_tokens":null,"max_tokens":null,"capabilities":null`},
		{llm.Model{ID: "m", DisplayName: "Model M", ContextWindow: 200_000, OutputLimit: 64_000},
			`"display_name":"Model M","created_at":"1970-01-01T00:00:00Z","max_input_tokens":200000,"max_tokens":64000,"capabilities":null`},
		{llm.Model{ID: "m", Capabilities: []llm.Capability{}},
			`"display_name":"m","created_at":"1970-01-01T00:00:00Z","max_input_tokens":null,"max_tokens":null,"capabilities":` + capabilities("false", "false")},
		{llm.Model{ID: "m", Capabilities: []llm.Capability{"tools", "thinking"}},
			`"display_name":"m","created_at":"1970-01-01T00:00:00Z","max_input_tokens":null,"max_tokens":null,"capabilities":` + capabilities("false", "true")},
		{llm.Model{ID: "m", Capabilities: []llm.Capability{"vision"}},
			`"display_name":"m","created_at":"1970-01-01T00:00:00Z","max_input_tokens":null,"max_tokens":null,"capabilities":` + capabilities("true", "false")},
	} {
		h := llmhttp.NewHandler(lister{models: []llm.Model{test.model}}, llmhttp.AllowAll("a"), &llmhttp.Options{
			Protocols: []llmhttp.Protocol{messages.New(nil)},
		})
		w := (&server{Handler: h}).do("GET", "/v1/models/m", "")
		assert.Equal(t, `{"type":"model","id":"m",`+test.want+`,`+lifecycle+`}`, w.Body.String())
	}
}
