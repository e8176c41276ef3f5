package moderation_test

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/endpointtest"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/moderation"
)

// serveJudge serves a route of a Protocol with one text in each request, and a line of text in each reply.
func serveJudge(c *llmhttp.Call) error {
	var body struct {
		Model string  `json:"model"`
		Text  *string `json:"text"`
	}
	err := c.Body(func(b []byte) error { return llmhttp.DecodeJSON(c.Context(), b, &body) })
	if err != nil {
		return err
	}
	req := &moderation.Request{Model: body.Model}
	if body.Text != nil {
		req.Input.Texts = []string{*body.Text}
	}
	if err := req.Validate(); err != nil {
		return err
	}
	return moderation.Serve(c, req, func(b []byte, reply *moderation.Response) ([]byte, error) {
		if reply.Model == "unwritable" {
			return nil, assert.AnError
		}
		return fmt.Appendf(b, "%s %s: %t, %d tokens", reply.Model, reply.ID[:5], reply.Results[0].Flagged, reply.Usage.Total()), nil
	})
}

// A route of a Protocol has the Protocol's form of requests, replies and errors, and the limits and
// records of each other route.
func TestServe_Protocol(t *testing.T) {
	const valid = `{"model":"m","text":"a b"}`
	flagged := results(moderation.Result{Flagged: true})
	failing := backend(func(context.Context, *moderation.Request) (*moderation.Response, error) { return nil, assert.AnError })
	p := endpointtest.NewProtocol("/v2/judge", moderation.Endpoint, serveJudge)
	endpointtest.CheckProtocol(t, p, moderation.Operation, llmhttp.Options{Estimates: llmhttp.TokenEstimates{TextTokens: countWords}}, map[string]endpointtest.ProtocolTest{
		"complete":           {flagged, llmhttp.Key{}, valid, 200, "m modr-: true, 2 tokens", 1},
		"default model":      {flagged, llmhttp.Key{}, `{"text":"a"}`, 200, "omni-moderation-latest modr-: true, 1 tokens", 1},
		"unknown member":     {flagged, llmhttp.Key{}, `{"model":"m","text":"a","api_key":"x"}`, 400, `{"message":"Unknown parameter: 'api_key'."}`, 0},
		"not valid":          {flagged, llmhttp.Key{}, `{"model":"m"}`, 400, `{"message":"Missing required parameter: 'input'."}`, 0},
		"scope":              {flagged, llmhttp.Key{Scopes: []llmhttp.Scope{llmhttp.ScopeChat}}, valid, 403, `Missing scope: moderations`, 0},
		"tokens":             {flagged, llmhttp.Key{Limits: llmhttp.Limits{Tokens: llmhttp.PerMinute(1)}}, valid, 429, `{"message":`, 0},
		"no Moderator":       {endpointtest.ChatOnly, llmhttp.Key{}, valid, 404, `{"message":"Invalid URL (POST /v2/judge)"}`, 0},
		"the Backend fails":  {failing, llmhttp.Key{}, valid, 500, `{"message":`, 1},
		"appendReply fails":  {flagged, llmhttp.Key{}, `{"model":"unwritable","text":"a"}`, 500, `{"message":`, 1},
		"no result":          {results(), llmhttp.Key{}, valid, 500, `{"message":`, 1},
		"a score with a NaN": {results(moderation.Result{Scores: map[string]float64{"hate": math.NaN()}}), llmhttp.Key{}, valid, 500, `{"message":`, 1},
	})
}

// A Handler without the routes does not moderate, and neither does a Backend without the method.
func TestRoutes(t *testing.T) {
	endpointtest.CheckMounted(t, "moderation", moderation.Routes, harmless(nil), `{"model":"m","input":"a"}`)
}

// Members that change the model or the price of a request at other servers are refused, unless the host
// allows them.
func TestRoutes_UnknownMembers(t *testing.T) {
	const body = `{"model":"m","input":"a","provider":{},"lora":[],"raw_scores":false}`
	e := newServer(t, harmless(nil), llmhttp.Options{}).PostRefused(path, body, 400)
	assert.Equal(t, "lora", e.Param)
	assert.Equal(t, "unknown_parameter", e.Code)
	var got llm.Extra
	b := backend(func(ctx context.Context, req *moderation.Request) (*moderation.Response, error) {
		got = req.Extra
		return harmless(nil)(ctx, req)
	})
	w := newServer(t, b, llmhttp.Options{Accept: llmhttp.AcceptOptions{UnknownMembers: func(string) bool { return true }}}).Post(path, body)
	assert.Equal(t, 200, w.Code, w.Body)
	assert.Len(t, got, 3)
}
