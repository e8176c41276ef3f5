package llmhttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

// A boundProtocol is a plainProtocol with a route for each operation besides chat. Its
// requests are made of the members of OpenAI's, and its replies are shorter.
type boundProtocol struct{ plainProtocol }

func (p boundProtocol) Routes() []llmhttp.Route {
	return []llmhttp.Route{
		{Pattern: "POST /vectors", Bind: llmhttp.BindEmbeddings(p.decodeVectors)},
		{Pattern: "POST /pictures", Bind: llmhttp.BindImages(p.decodePictures, nil)},
		{Pattern: "POST /show", Bind: llmhttp.BindModels(p.decodeShow)},
		{Pattern: "POST /count", Bind: llmhttp.BindCountTokens(p.decodeCount)},
		{Pattern: "GET /banner", Bind: llmhttp.BindQuery(llmhttp.ScopeModels, p.banner)},
		{Pattern: "POST /echo", Bind: llmhttp.BindQuery(llmhttp.ScopeUsage, p.echo)},
		{Pattern: "GET /nothing", Bind: llmhttp.BindQuery(llmhttp.ScopeModels, p.nothing)},
	}
}

// decodeInto decodes the body of a request.
func decodeInto(body []byte, v any) error {
	if err := json.Unmarshal(body, v); err != nil {
		return llm.Errorf(http.StatusBadRequest, "", "Not a request.")
	}
	return nil
}

func (boundProtocol) decodeVectors(_ context.Context, _ *http.Request, body []byte) (
	*llm.EmbeddingRequest, func([]byte, *llm.EmbeddingResponse) ([]byte, error), error) {
	req := new(llm.EmbeddingRequest)
	if err := decodeInto(body, req); err != nil {
		return nil, nil, err
	}
	return req, func(b []byte, r *llm.EmbeddingResponse) ([]byte, error) {
		return fmt.Appendf(b, `{"vectors":%d,"model":%q,"tokens":%d}`, len(r.Vectors), r.Model, r.Usage.TotalTokens), nil
	}, req.Validate()
}

func (boundProtocol) decodePictures(_ context.Context, _ *http.Request, body []byte) (
	*llm.ImageRequest, func([]byte, *llm.ImageResponse) ([]byte, error), error) {
	req := new(llm.ImageRequest)
	if err := decodeInto(body, req); err != nil {
		return nil, nil, err
	}
	req.ResponseFormat = llm.ImageFormatBase64
	return req, func(b []byte, r *llm.ImageResponse) ([]byte, error) {
		return fmt.Appendf(b, `{"pictures":%d,"first":%q}`, len(r.Data), r.Data[0].Data), nil
	}, req.Validate()
}

// decodeShow decodes a request for a model, which is in the body, as in Ollama's API.
func (boundProtocol) decodeShow(_ context.Context, _ *http.Request, body []byte) (func([]byte, []llm.Model) ([]byte, error), error) {
	var req struct{ Model string }
	if err := decodeInto(body, &req); err != nil {
		return nil, err
	}
	return func(b []byte, models []llm.Model) ([]byte, error) {
		for _, m := range models {
			if m.ID == req.Model {
				return fmt.Appendf(b, `{"owner":%q}`, m.OwnedBy), nil
			}
		}
		return nil, llm.ModelNotFound(req.Model)
	}, nil
}

func (boundProtocol) banner(context.Context, *http.Request, []byte) (*llmhttp.QueryReply, error) {
	return &llmhttp.QueryReply{Status: http.StatusNonAuthoritativeInfo, ContentType: "text/plain; charset=utf-8", Body: []byte("is running")}, nil
}

func (boundProtocol) echo(_ context.Context, _ *http.Request, body []byte) (*llmhttp.QueryReply, error) {
	return &llmhttp.QueryReply{Body: body}, nil
}

func (boundProtocol) nothing(context.Context, *http.Request, []byte) (*llmhttp.QueryReply, error) {
	return nil, nil
}

func boundServer(t testing.TB, c config) *testServer {
	c.opts.Protocols = []llmhttp.Protocol{boundProtocol{}}
	return startServer(t, c)
}

// Operations have the same accounting in every format as on OpenAI's paths.
func TestBind_ModelsAreAccountedFor(t *testing.T) {
	for _, test := range []struct {
		path, body, want string
		operation        llmhttp.Operation
		scope            llmhttp.Scope
		usage            llm.Usage
		images           int
	}{
		{"/vectors", `{"model":"m","input":["a","b"]}`, `{"vectors":2,"model":"m","tokens":8}`,
			llmhttp.OperationEmbeddings, llmhttp.ScopeEmbeddings, llm.Usage{PromptTokens: 8, TotalTokens: 8}, 0},
		{"/pictures", `{"model":"m","prompt":"p","n":2}`, fmt.Sprintf(`{"pictures":2,"first":%q}`, pngData),
			llmhttp.OperationImages, llmhttp.ScopeImages, llm.Usage{}, 2},
	} {
		t.Run(test.path, func(t *testing.T) {
			s := boundServer(t, config{keys: limitedKeys(llmhttp.Limits{Requests: noRefill(3), Tokens: noRefill(1000)})})
			r := s.do("POST", test.path, test.body, withoutKey, withPlainKey)
			require.Equal(t, 200, r.StatusCode, r.body)
			assert.Equal(t, test.want, r.body)
			assert.Equal(t, "application/json", r.Header.Get("Content-Type"))
			assert.Equal(t, "2", r.Header.Get("Requests-Left"))
			record := s.record()
			assert.Equal(t, "plain", record.Protocol)
			assert.Equal(t, "m", record.Model)
			assert.Equal(t, test.scope, s.summary().Scope)
			want := llmhttp.UnitsOf(test.usage)
			want.Images = int64(test.images)
			assert.Equal(t, want, record.Units)
			assert.Equal(t, test.operation, s.summary().Record.Operation)
			assert.Equal(t, test.operation, s.summary().Request.Operation)
		})
	}
}

func TestBind_Lookups(t *testing.T) {
	for _, test := range []struct {
		method, path, body, want string
		status                   int
		contentType              string
	}{
		{"POST", "/show", `{"model":"demo-chat"}`, `{"owner":"acme"}`, 200, "application/json"},
		{"POST", "/count", `{"model":"m","text":"Hi you"}`, `{"tokens":6}`, 200, "application/json"},
		{"GET", "/banner", "", "is running", 203, "text/plain; charset=utf-8"},
		{"HEAD", "/banner", "", "", 203, "text/plain; charset=utf-8"},
		{"POST", "/echo", `{"a":1}`, `{"a":1}`, 200, "application/json"},
	} {
		t.Run(test.method+test.path, func(t *testing.T) {
			s := boundServer(t, config{keys: limitedKeys(llmhttp.Limits{Requests: noRefill(100)})})
			r := s.do(test.method, test.path, test.body, withoutKey, withPlainKey)
			assert.Equal(t, test.status, r.StatusCode)
			assert.Equal(t, test.want, r.body)
			assert.Equal(t, test.contentType, r.Header.Get("Content-Type"))
			assert.NotEmpty(t, r.Header.Get("Requests-Left"))
			assert.Empty(t, s.summary().Record.Operation)
			assert.Empty(t, s.usage.records())
		})
	}
}

func TestBind_Failures(t *testing.T) {
	chatOnly := llmhttp.BackendFunc(func(context.Context, *llm.ChatRequest) llm.ChatStream { return llm.Reply("Hi") })
	const notSupported, notARequest = 404, 400
	for _, test := range []struct {
		name, method, path, body string
		backend                  llmhttp.Backend
		status                   int
		class                    llmhttp.ErrorClass
	}{
		{"vectors of a Backend without", "POST", "/vectors", `{"model":"m","input":"a"}`, chatOnly, notSupported, llmhttp.ClassNotFound},
		{"pictures of a Backend without", "POST", "/pictures", `{"model":"m","prompt":"p"}`, chatOnly, notSupported, llmhttp.ClassNotFound},
		{"models of a Backend without", "POST", "/show", `{"model":"m"}`, chatOnly, notSupported, llmhttp.ClassNotFound},
		{"vectors, not a request", "POST", "/vectors", `[`, nil, notARequest, llmhttp.ClassInvalidRequest},
		{"vectors, not valid", "POST", "/vectors", `{"model":"m"}`, nil, notARequest, llmhttp.ClassInvalidRequest},
		{"pictures, not valid", "POST", "/pictures", `{"model":"m","prompt":"p","size":"x"}`, nil, notARequest, llmhttp.ClassInvalidRequest},
		{"models, not a request", "POST", "/show", `[`, nil, notARequest, llmhttp.ClassInvalidRequest},
		{"an error of an encoder", "POST", "/show", `{"model":"other"}`, nil, 404, llmhttp.ClassNotFound},
		{"no reply", "GET", "/nothing", "", nil, 500, llmhttp.ClassInternal},
		{"a counter that fails", "POST", "/count", `{"model":"m","text":"Hi"}`, failingCounter{chatOnly}, 500, llmhttp.ClassBackend},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.backend == nil {
				test.backend = new(stubBackend)
			}
			s := boundServer(t, config{backend: test.backend, usage: new(usageLog)})
			r := s.do(test.method, test.path, test.body, withoutKey, withPlainKey)
			assert.Equal(t, test.status, r.StatusCode)
			assert.Contains(t, r.body, `{"failed":`)
			assert.Equal(t, test.class, s.summary().ErrorClass)
			assert.Empty(t, s.usage.records())
		})
	}
}

type failingCounter struct{ llmhttp.Backend }

func (failingCounter) CountTokens(context.Context, *llm.ChatRequest) (int, error) {
	return 0, errors.New("broken")
}

// The scope follows from the operation; only a query has one of its own.
func TestBind_Scopes(t *testing.T) {
	for path, scope := range map[string]llmhttp.Scope{
		"/vectors": llmhttp.ScopeEmbeddings, "/pictures": llmhttp.ScopeImages, "/show": llmhttp.ScopeModels, "/count": llmhttp.ScopeChat, "/echo": llmhttp.ScopeUsage,
	} {
		for _, allowed := range llmhttp.Scopes() {
			key := testKey()
			key.Scopes = []llmhttp.Scope{allowed}
			r := boundServer(t, config{keys: keysFor(key)}).do("POST", path, "[", withoutKey, withPlainKey)
			assert.Equal(t, allowed != scope, r.StatusCode == 403, "%s with a key for %s", path, allowed)
		}
	}
}

// A request that a decode function refuses takes nothing from the limits, as on OpenAI's
// paths.
func TestBind_RefusedRequestsAreRefunded(t *testing.T) {
	for _, path := range []string{"/vectors", "/pictures", "/show", "/count"} {
		s := boundServer(t, config{keys: limitedKeys(llmhttp.Limits{Requests: noRefill(200)})})
		r := s.do("POST", path, "[", withoutKey, withPlainKey)
		assert.Equal(t, 400, r.StatusCode, path)
		assert.Equal(t, "200", r.Header.Get("Requests-Left"), path)
	}
}

// A loadingProtocol refuses each count of tokens after it has reserved it.
type loadingProtocol struct{ plainProtocol }

func (p loadingProtocol) Routes() []llmhttp.Route {
	decode := func(ctx context.Context, _ *http.Request, _ []byte) (*llm.ChatRequest, func([]byte, int) ([]byte, error), error) {
		if err := llmhttp.ReserveChat(ctx, &llm.ChatRequest{Model: "m"}); err != nil {
			return nil, nil, err
		}
		return nil, nil, llm.Errorf(http.StatusBadRequest, "", "Refused.")
	}
	return []llmhttp.Route{{Pattern: "POST /count", Bind: llmhttp.BindCountTokens(decode)}}
}

// Counts that load something before they are refused take from both buckets of requests.
func TestReserveChat_OfACountIsNotRefunded(t *testing.T) {
	s := startServer(t, config{
		keys: limitedKeys(llmhttp.Limits{Requests: noRefill(2)}),
		opts: llmhttp.Options{Protocols: []llmhttp.Protocol{loadingProtocol{}}},
	})
	var statuses []int
	for range 3 {
		statuses = append(statuses, s.do("POST", "/count", "{}", withoutKey, withPlainKey).StatusCode)
	}
	assert.Equal(t, []int{400, 400, 429}, statuses)
}
