package moderation_test

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
	"github.com/llmhttp/llmhttp/moderation"
)

// A judge Protocol has one text in each request, and a line of text in each reply.
type judge struct{ llmhttp.Protocol }

func (judge) Name() string { return "judge" }

func (p judge) Routes() []llmhttp.Route {
	return []llmhttp.Route{llmhttp.NewRoute("POST /v2/judge", moderation.Endpoint, p.serve)}
}

func (judge) serve(c *llmhttp.Call) error {
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

func (judge) AppendError(b []byte, e *llm.Error, _ string) ([]byte, int) {
	b, _ = llmhttp.AppendJSON(b, map[string]string{"message": e.Message})
	return b, e.Status
}

// A route of a Protocol has the Protocol's form of requests, replies and errors, and the limits and
// records of each other route.
func TestServe_Protocol(t *testing.T) {
	const valid = `{"model":"m","text":"a b"}`
	flagged := results(moderation.Result{Flagged: true})
	chatOnly := llmhttp.BackendFunc(func(context.Context, *llm.ChatRequest) llm.ChatStream { return llm.Reply("Hi") })
	failing := backend(func(context.Context, *moderation.Request) (*moderation.Response, error) { return nil, assert.AnError })
	for name, tt := range map[string]struct {
		backend llmhttp.Backend
		key     llmhttp.Key
		body    string
		status  int
		reply   string
		records int
	}{
		"complete":           {flagged, llmhttp.Key{}, valid, 200, "m modr-: true, 2 tokens", 1},
		"default model":      {flagged, llmhttp.Key{}, `{"text":"a"}`, 200, "omni-moderation-latest modr-: true, 1 tokens", 1},
		"unknown member":     {flagged, llmhttp.Key{}, `{"model":"m","text":"a","api_key":"x"}`, 400, `{"message":"Unknown parameter: 'api_key'."}`, 0},
		"not valid":          {flagged, llmhttp.Key{}, `{"model":"m"}`, 400, `{"message":"Missing required parameter: 'input'."}`, 0},
		"scope":              {flagged, llmhttp.Key{Scopes: []llmhttp.Scope{llmhttp.ScopeChat}}, valid, 403, `Missing scope: moderations`, 0},
		"tokens":             {flagged, llmhttp.Key{Limits: llmhttp.Limits{Tokens: llmhttp.PerMinute(1)}}, valid, 429, `{"message":`, 0},
		"no Moderator":       {chatOnly, llmhttp.Key{}, valid, 404, `{"message":"Invalid URL (POST /v2/judge)"}`, 0},
		"the Backend fails":  {failing, llmhttp.Key{}, valid, 500, `{"message":`, 1},
		"appendReply fails":  {flagged, llmhttp.Key{}, `{"model":"unwritable","text":"a"}`, 500, `{"message":`, 1},
		"no result":          {results(), llmhttp.Key{}, valid, 500, `{"message":`, 1},
		"a score with a NaN": {results(moderation.Result{Scores: map[string]float64{"hate": math.NaN()}}), llmhttp.Key{}, valid, 500, `{"message":`, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := endpointtest.New(t, tt.backend, tt.key, llmhttp.Options{
				Protocols: []llmhttp.Protocol{judge{llmhttp.ChatCompletions()}}, TextTokens: countWords,
			})
			w := s.Post("/v2/judge", tt.body)
			assert.Equal(t, tt.status, w.Code, w.Body)
			assert.Contains(t, w.Body.String(), tt.reply)
			assert.NotContains(t, w.Body.String(), assert.AnError.Error())
			require.Len(t, s.Records, tt.records)
			if tt.records > 0 {
				assert.Equal(t, "judge", s.Records[0].Protocol)
				assert.Equal(t, moderation.Operation, s.Records[0].Operation)
			}
		})
	}
}

// A path that the Protocol does not serve has its form of errors too, if it is below that of a route of
// NewRoute.
func TestServe_ProtocolUnknownPath(t *testing.T) {
	s := endpointtest.New(t, harmless(nil), llmhttp.Key{}, llmhttp.Options{Protocols: []llmhttp.Protocol{judge{llmhttp.ChatCompletions()}}})
	w := s.Post("/v2/judge/more", "{}")
	assert.Equal(t, http.StatusNotFound, w.Code)
	assert.Contains(t, w.Body.String(), `{"message":"Invalid URL`)
}

// A Handler without the routes does not moderate, and neither does a Backend without the method.
func TestRoutes(t *testing.T) {
	chatOnly := llmhttp.BackendFunc(func(context.Context, *llm.ChatRequest) llm.ChatStream { return llm.Reply("Hi") })
	const body = `{"model":"m","input":"a"}`
	for want, s := range map[string]*endpointtest.Server{
		"because package github.com/llmhttp/llmhttp/moderation is not mounted": endpointtest.New(t, harmless(nil), llmhttp.Key{}, llmhttp.Options{}),
		"Invalid URL (POST " + path + `)"`:                                     newServer(t, chatOnly, llmhttp.Options{}),
	} {
		w := s.Post(path, body)
		assert.Equal(t, 404, w.Code)
		assert.Contains(t, w.Body.String(), want)
		assert.Empty(t, s.Records)
	}
	w := newServer(t, harmless(nil), llmhttp.Options{}).Post(path, body)
	assert.Equal(t, 200, w.Code, w.Body)
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
	w := newServer(t, b, llmhttp.Options{UnknownMembers: func(string) bool { return true }}).Post(path, body)
	assert.Equal(t, 200, w.Code, w.Body)
	assert.Len(t, got, 3)
}
