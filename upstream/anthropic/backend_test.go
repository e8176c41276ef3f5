package anthropic_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/modeltest"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
	"github.com/llmhttp/llmhttp/llmhttptest"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/messages"
	"github.com/llmhttp/llmhttp/upstream"
	"github.com/llmhttp/llmhttp/upstream/anthropic"
)

var (
	_ llmhttp.Backend      = (*anthropic.Backend)(nil)
	_ llmhttp.ModelLister  = (*anthropic.Backend)(nil)
	_ llmhttp.TokenCounter = (*anthropic.Backend)(nil)
)

// TestBackend_Conformance tests a Backend whose server is a Handler.
func TestBackend_Conformance(t *testing.T) {
	srv := httptest.NewServer(llmhttp.NewHandler(modeltest.New(), memory.NewKeyStore(serverKey), &llmhttp.Options{
		Protocols: []llmhttp.Protocol{messages.New(nil)},
	}))
	defer srv.Close()
	b := newBackend(t, srv.URL, &anthropic.Options{Server: upstream.Options{Key: serverKey}})
	llmhttptest.TestBackend(t, b, llmhttptest.BackendOptions{ChatModel: modeltest.Chat})
}

func TestNew_RefusesInvalidOptions(t *testing.T) {
	const base = "https://example.com"
	header := func(name string) upstream.Options {
		return upstream.Options{Key: "k", Header: http.Header{name: {"x"}}}
	}
	for _, test := range []struct {
		base string
		opts *anthropic.Options
		want string
	}{
		{"", nil, "anthropic: the base URL must begin with"},
		{"https://example.com/v1/messages", nil, `anthropic: the base URL must not end in "/messages"`},
		{base, &anthropic.Options{Server: upstream.Options{TokenizePath: "/tokenize"}}, "must not have CacheControl, Images, TokenizePath"},
		{base, &anthropic.Options{Server: upstream.Options{OmitStreamOptions: true}}, "OmitStreamOptions"},
		{base, &anthropic.Options{Server: upstream.Options{ReasoningName: upstream.Reasoning}}, "ReasoningName"},
		{base, &anthropic.Options{Server: upstream.Options{Images: upstream.ImageOptions{Timeout: 1}}}, "Images"},
		{base, &anthropic.Options{Server: upstream.Options{CacheControl: upstream.CacheControlTTL}}, "CacheControl"},
		{base, &anthropic.Options{Server: upstream.Options{Key: "a b"}}, "anthropic: Options.Server.Key has a character"},
		{base, &anthropic.Options{Server: upstream.Options{Key: "a", KeyFunc: keyFunc("b")}}, "are both set"},
		{base, &anthropic.Options{Version: "2023\n"}, `Options.Version must not be "2023\n"`},
		{base, &anthropic.Options{Betas: []string{"a,b"}}, `Options.Betas must not have "a,b"`},
		{base, &anthropic.Options{Server: header("anthropic-beta")}, "must not have Anthropic-Beta"},
		{base, &anthropic.Options{Server: header("Anthropic-Version")}, "must not have Anthropic-Version"},
		{base, &anthropic.Options{Server: header("X-Api-Key")}, "has X-Api-Key, and there is a key as well"},
		{base, &anthropic.Options{Server: header("Authorization")}, "has Authorization, and there is a key as well"},
		{base, &anthropic.Options{Server: upstream.Options{Transport: (*http.Transport)(nil)}}, "Transport"},
	} {
		_, err := anthropic.New(test.base, test.opts)
		assert.ErrorContains(t, err, test.want)
	}
}

func TestCountTokens(t *testing.T) {
	s := newServer(t, text(http.StatusOK, `{"input_tokens":42}`))
	req := ask(true)
	req.Messages = append([]llm.Message{{Role: llm.RoleSystem, Content: llm.TextContent("S")}}, req.Messages...)
	req.MaxTokens, req.Temperature, req.ReasoningEffort = new(5), new(0.5), "low"
	req.Tools = []llm.Tool{{Type: llm.ToolFunction, Function: &llm.Function{Name: "f"}}}
	n, err := newBackend(t, s.URL, nil).CountTokens(t.Context(), req)
	require.NoError(t, err)
	assert.Equal(t, 42, n)
	assert.Equal(t, []string{"/v1/messages/count_tokens"}, s.paths)
	body, _ := s.last()
	assert.Equal(t, `{"model":"m","system":"S","messages":[{"role":"user","content":[{"type":"text","text":"Hello?"}]}],`+
		`"tools":[{"name":"f","input_schema":{"type":"object","properties":{}}}],"output_config":{"effort":"low"},"thinking":{"type":"adaptive"}}`, body)

	for name, test := range map[string]struct {
		reply       http.HandlerFunc
		unsupported bool
	}{
		"no endpoint": {text(http.StatusNotFound, `{"type":"error","error":{"type":"not_found_error","message":"Not found"}}`), true},
		"error":       {text(http.StatusOK, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`), false},
		"no number":   {text(http.StatusOK, `{}`), false},
		"negative":    {text(http.StatusOK, `{"input_tokens":-1}`), false},
		"a text":      {text(http.StatusOK, `{"input_tokens":"x"}`), false},
		"not JSON":    {text(http.StatusOK, `{`), false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, test.reply)
			_, err := newBackend(t, s.URL, nil).CountTokens(t.Context(), ask(false))
			require.Error(t, err)
			assert.Equal(t, test.unsupported, errors.Is(err, errors.ErrUnsupported), "%v", err)
		})
	}
}

func TestListModels(t *testing.T) {
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		page := `{"data":[{"type":"model","id":"claude-a","display_name":"Claude A","created_at":"2026-02-04T00:00:00Z","max_input_tokens":200000,"max_tokens":64000,` +
			`"capabilities":{"image_input":{"supported":true},"thinking":{"supported":true}}},{"id":"claude-b","capabilities":{"image_input":{"supported":false}}}],"has_more":true,"first_id":"claude-a","last_id":"claude-b"}`
		if r.URL.Query().Get("after_id") == "claude-b" {
			page = `{"data":[{"id":"glm-5","object":"model","created":1700000000}],"has_more":false,"last_id":"glm-5"}`
		}
		text(http.StatusOK, page)(w, r)
	})
	b := newBackend(t, s.URL+"?tenant=1", &anthropic.Options{Server: upstream.Options{Models: map[string]string{"mine": "claude-b", "other": "unlisted"}}})
	list, err := b.ListModels(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []llm.Model{
		{ID: "claude-a", DisplayName: "Claude A", Created: time.Date(2026, 2, 4, 0, 0, 0, 0, time.UTC).Unix(), ContextWindow: 200000, OutputLimit: 64000,
			Capabilities: []llm.Capability{llm.CapabilityTools, llm.CapabilityVision, llm.CapabilityThinking}},
		{ID: "mine", Capabilities: []llm.Capability{llm.CapabilityTools}},
		{ID: "glm-5", Created: 1700000000},
		{ID: "other"},
	}, list)
	assert.Equal(t, []string{"/v1/models?limit=1000&tenant=1", "/v1/models?after_id=claude-b&limit=1000&tenant=1"}, s.paths)

	for name, reply := range map[string]http.HandlerFunc{
		"no list":       text(http.StatusOK, `{}`),
		"not JSON":      text(http.StatusOK, `[`),
		"error":         text(http.StatusOK, `{"type":"error","error":{"type":"api_error","message":"x"}}`),
		"no endpoint":   text(http.StatusNotFound, ``),
		"endless pages": text(http.StatusOK, `{"data":[{"id":"a"}],"has_more":true,"last_id":"a"}`),
		"too many":      text(http.StatusOK, `{"data":[`+strings.Repeat(`{"id":"a"},`, 10_000)+`{"id":"a"}]}`),
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, reply)
			list, err := newBackend(t, s.URL, nil).ListModels(t.Context())
			if name == "endless pages" {
				require.NoError(t, err)
				assert.Len(t, list, 1)
				return
			}
			assert.Error(t, err)
		})
	}
}

// A context that has ended before the request is that of a request that was not sent.
func TestChat_NotSent(t *testing.T) {
	s := newServer(t, text(http.StatusOK, okMessage))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := join.Collect(newBackend(t, s.URL, nil).Chat(ctx, ask(false)))
	assert.ErrorIs(t, err, llm.ErrNotSent)
	assert.ErrorIs(t, err, context.Canceled)
}
