package rerank_test

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/endpointtest"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/rerank"
)

// serveCoherent serves a route of a Protocol whose reply is shorter than that of Cohere.
func serveCoherent(c *llmhttp.Call) error {
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

// A route of a Protocol has the Protocol's form of requests, replies and errors, and the limits and
// records of each other route.
func TestServe_Protocol(t *testing.T) {
	const valid = `{"model":"m","query":"q","texts":["a","b"]}`
	failing := backend(func(context.Context, *rerank.Request) (*rerank.Response, error) { return nil, assert.AnError })
	p := endpointtest.NewProtocol("/v3/rerank", rerank.Endpoint, serveCoherent)
	endpointtest.CheckProtocol(t, p, rerank.Operation, llmhttp.Options{}, map[string]endpointtest.ProtocolTest{
		"complete":            {scores(0.25, 0.5), llmhttp.Key{}, valid, 200, "m: 1 best of 2, 4 tokens", 1},
		"unknown member":      {scores(0.25, 0.5), llmhttp.Key{}, `{"model":"m","query":"q","texts":["a"],"api_key":"x"}`, 400, `{"message":"Unknown parameter: 'api_key'."}`, 0},
		"not valid":           {scores(0.25, 0.5), llmhttp.Key{}, `{"model":"m","query":"q"}`, 400, `{"message":"Missing required parameter: 'documents'."}`, 0},
		"scope":               {scores(0.25, 0.5), llmhttp.Key{Scopes: []llmhttp.Scope{llmhttp.ScopeChat}}, valid, 403, `Missing scope: rerank`, 0},
		"tokens":              {scores(0.25, 0.5), llmhttp.Key{Limits: llmhttp.Limits{Tokens: llmhttp.PerMinute(1)}}, valid, 429, `{"message":`, 0},
		"no Reranker":         {endpointtest.ChatOnly, llmhttp.Key{}, valid, 404, `{"message":"Invalid URL (POST /v3/rerank)"}`, 0},
		"the Backend fails":   {failing, llmhttp.Key{}, valid, 500, `{"message":`, 1},
		"appendReply fails":   {scores(0.25, 0.5), llmhttp.Key{}, `{"model":"unwritable","query":"q","texts":["a","b"]}`, 500, `{"message":`, 1},
		"a reply too short":   {scores(0.25), llmhttp.Key{}, valid, 500, `{"message":`, 1},
		"a result with a NaN": {scores(0.25, math.NaN()), llmhttp.Key{}, valid, 500, `{"message":`, 1},
	})
}

// A Handler without the routes does not rerank, and neither does a Backend without the method.
func TestRoutes(t *testing.T) {
	endpointtest.CheckMounted(t, "rerank", rerank.Routes, scores(1), `{"model":"m","query":"q","documents":["a"]}`)
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
	w := newServer(t, b, llmhttp.Options{Accept: llmhttp.AcceptOptions{UnknownMembers: func(string) bool { return true }}}).Post(path, body)
	assert.Equal(t, 200, w.Code, w.Body)
	assert.Len(t, got, 3)
}
