package rerank_test

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/endpointtest"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/rerank"
)

// A coherent Protocol has the errors of Cohere's API, and a shorter reply.
type coherent struct{ llmhttp.Protocol }

func (coherent) Name() string { return "coherent" }

func (p coherent) Routes() []llmhttp.Route {
	return []llmhttp.Route{llmhttp.NewRoute("POST /v3/rerank", rerank.Endpoint, p.serve)}
}

func (coherent) serve(c *llmhttp.Call) error {
	var body struct {
		Model string   `json:"model"`
		Query string   `json:"query"`
		Texts []string `json:"texts"`
	}
	err := c.Body(func(b []byte) error { return llmhttp.DecodeJSON(c.Context(), b, &body) })
	if err != nil {
		return err
	}
	req := &rerank.Request{Model: body.Model, Query: body.Query}
	for _, text := range body.Texts {
		req.Documents = append(req.Documents, rerank.Document{Text: text})
	}
	if err := req.Validate(); err != nil {
		return err
	}
	return rerank.Serve(c, req, func(b []byte, reply *rerank.Response) ([]byte, error) {
		if reply.Model == "unwritable" {
			return nil, assert.AnError
		}
		return fmt.Appendf(b, "%s: %d best of %d, %d tokens", reply.Model, reply.Results[0].Index, len(reply.Results), reply.Usage.Total()), nil
	})
}

func (coherent) AppendError(b []byte, e *llm.Error, _ string) ([]byte, int) {
	b, _ = llmhttp.AppendJSON(b, map[string]string{"message": e.Message})
	return b, e.Status
}

// A route of a Protocol has the Protocol's form of requests, replies and errors, and the limits and
// records of each other route.
func TestServe_Protocol(t *testing.T) {
	const valid = `{"model":"m","query":"q","texts":["a","b"]}`
	chatOnly := llmhttp.BackendFunc(func(context.Context, *llm.ChatRequest) llm.ChatStream { return llm.Reply("Hi") })
	failing := backend(func(context.Context, *rerank.Request) (*rerank.Response, error) { return nil, assert.AnError })
	for name, tt := range map[string]struct {
		backend llmhttp.Backend
		key     llmhttp.Key
		body    string
		status  int
		reply   string
		records int
	}{
		"complete":            {scores(0.25, 0.5), llmhttp.Key{}, valid, 200, "m: 1 best of 2, 4 tokens", 1},
		"unknown member":      {scores(0.25, 0.5), llmhttp.Key{}, `{"model":"m","query":"q","texts":["a"],"api_key":"x"}`, 400, `{"message":"Unknown parameter: 'api_key'."}`, 0},
		"not valid":           {scores(0.25, 0.5), llmhttp.Key{}, `{"model":"m","query":"q"}`, 400, `{"message":"Missing required parameter: 'documents'."}`, 0},
		"scope":               {scores(0.25, 0.5), llmhttp.Key{Scopes: []llmhttp.Scope{llmhttp.ScopeChat}}, valid, 403, `Missing scope: rerank`, 0},
		"tokens":              {scores(0.25, 0.5), llmhttp.Key{Limits: llmhttp.Limits{Tokens: llmhttp.PerMinute(1)}}, valid, 429, `{"message":`, 0},
		"no Reranker":         {chatOnly, llmhttp.Key{}, valid, 404, `{"message":"Invalid URL (POST /v3/rerank)"}`, 0},
		"the Backend fails":   {failing, llmhttp.Key{}, valid, 500, `{"message":`, 1},
		"appendReply fails":   {scores(0.25, 0.5), llmhttp.Key{}, `{"model":"unwritable","query":"q","texts":["a","b"]}`, 500, `{"message":`, 1},
		"a reply too short":   {scores(0.25), llmhttp.Key{}, valid, 500, `{"message":`, 1},
		"a result with a NaN": {scores(0.25, math.NaN()), llmhttp.Key{}, valid, 500, `{"message":`, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := endpointtest.New(t, tt.backend, tt.key, llmhttp.Options{Protocols: []llmhttp.Protocol{coherent{llmhttp.ChatCompletions()}}})
			w := s.Post("/v3/rerank", tt.body)
			assert.Equal(t, tt.status, w.Code, w.Body)
			assert.Contains(t, w.Body.String(), tt.reply)
			assert.NotContains(t, w.Body.String(), assert.AnError.Error())
			require.Len(t, s.Records, tt.records)
			if tt.records > 0 {
				assert.Equal(t, "coherent", s.Records[0].Protocol)
				assert.Equal(t, rerank.Operation, s.Records[0].Operation)
			}
		})
	}
}

// A path that the Protocol does not serve has its form of errors too, if it is below that of a route of
// NewRoute.
func TestServe_ProtocolUnknownPath(t *testing.T) {
	s := endpointtest.New(t, scores(1), llmhttp.Key{}, llmhttp.Options{Protocols: []llmhttp.Protocol{coherent{llmhttp.ChatCompletions()}}})
	w := s.Post("/v3/rerank/more", "{}")
	assert.Equal(t, http.StatusNotFound, w.Code)
	assert.Contains(t, w.Body.String(), `{"message":"Invalid URL`)
}

// A Handler without the routes does not rerank, and neither does a Backend without the method.
func TestRoutes(t *testing.T) {
	chatOnly := llmhttp.BackendFunc(func(context.Context, *llm.ChatRequest) llm.ChatStream { return llm.Reply("Hi") })
	for _, rt := range rerank.Routes() {
		path := rt.Pattern[len("POST "):]
		body := `{"model":"m","query":"q","documents":["a"]}`
		for want, s := range map[string]*endpointtest.Server{
			"because package github.com/llmhttp/llmhttp/rerank is not mounted": endpointtest.New(t, scores(1), llmhttp.Key{}, llmhttp.Options{}),
			"Invalid URL (POST " + path + `)"`:                                 newServer(t, chatOnly, llmhttp.Options{}),
		} {
			w := s.Post(path, body)
			assert.Equal(t, 404, w.Code)
			assert.Contains(t, w.Body.String(), want)
			assert.Empty(t, s.Records)
		}
		w := newServer(t, scores(1), llmhttp.Options{}).Post(path, body)
		assert.Equal(t, 200, w.Code, w.Body)
	}
}

// Members that change the model or the price of a request at other servers are refused, unless the host
// allows them.
func TestRoutes_UnknownMembers(t *testing.T) {
	const body = `{"model":"m","query":"q","documents":["a"],"provider":{},"lora":[],"rank_fields":["x"]}`
	e := newServer(t, scores(1), llmhttp.Options{}).PostRefused(path, body, 400)
	assert.Equal(t, "lora", e.Param)
	assert.Equal(t, "unknown_parameter", e.Code)
	var got llm.Extra
	b := backend(func(ctx context.Context, req *rerank.Request) (*rerank.Response, error) {
		got = req.Extra
		return scores(1)(ctx, req)
	})
	w := newServer(t, b, llmhttp.Options{UnknownMembers: func(string) bool { return true }}).Post(path, body)
	assert.Equal(t, 200, w.Code, w.Body)
	assert.Len(t, got, 3)
}
