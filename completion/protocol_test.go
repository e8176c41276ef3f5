package completion_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/completion"
	"github.com/llmhttp/llmhttp/internal/endpointtest"
	"github.com/llmhttp/llmhttp/llm"
)

// A plainEncoder encodes replies that are plain text.
type plainEncoder struct {
	start llmhttp.ReplyStart
	texts []byte
}

func (*plainEncoder) Framing() llmhttp.Framing {
	return llmhttp.Framing{Whole: true, ContentType: "text/plain"}
}

func (e *plainEncoder) AppendStart(b []byte, s *llmhttp.ReplyStart) []byte {
	e.start = *s
	return b
}

func (e *plainEncoder) AppendChunk(b []byte, c *llm.ChatChunk) ([]byte, error) {
	e.texts = append(e.texts, c.Choices[0].Delta.Content...)
	return b, nil
}

func (e *plainEncoder) AppendEnd(b []byte, u *llm.Usage, _ llm.Extra) ([]byte, error) {
	if e.start.Model == "unwritable" {
		return nil, assert.AnError
	}
	return fmt.Appendf(b, "%s: %s, %d tokens", e.start.Model, e.texts, u.Total()), nil
}

func (*plainEncoder) AppendFailure(b []byte, _ *llm.Error) []byte { return b }

// servePlain serves a route of a Protocol whose replies are plain text.
func servePlain(c *llmhttp.Call) error {
	var body struct {
		Model string `json:"model"`
		Text  string `json:"text"`
	}
	err := c.Body(func(b []byte) error { return llmhttp.DecodeJSON(c.Context(), b, &body) })
	if err != nil {
		return err
	}
	req := &completion.Request{Model: body.Model}
	if body.Text != "" {
		req.Prompt.Texts = []string{body.Text}
	}
	if err := req.Validate(); err != nil {
		return err
	}
	if body.Text == "no encoder" {
		return completion.Serve(c, req, nil)
	}
	return completion.Serve(c, req, new(plainEncoder))
}

// A route of a Protocol has the Protocol's form of requests, replies and errors, and the limits and
// records of each other route.
func TestServe_Protocol(t *testing.T) {
	const valid = `{"model":"m","text":"12345678"}`
	ok := stream(nil, chunkOf(0, "reply", "", ""))
	p := endpointtest.NewProtocol("/v3/complete", completion.Endpoint, servePlain)
	endpointtest.CheckProtocol(t, p, completion.Operation, llmhttp.Options{}, map[string]endpointtest.ProtocolTest{
		"complete":          {ok, llmhttp.Key{}, valid, 200, "m: reply, 4 tokens", 1},
		"unknown member":    {ok, llmhttp.Key{}, `{"model":"m","text":"a","api_key":"x"}`, 400, `{"message":"Unknown parameter: 'api_key'."}`, 0},
		"not valid":         {ok, llmhttp.Key{}, `{"model":"m"}`, 400, `{"message":"Missing required parameter: 'prompt'."}`, 0},
		"scope":             {ok, llmhttp.Key{Scopes: []llmhttp.Scope{llmhttp.ScopeChat}}, valid, 403, `Missing scope: completions`, 0},
		"model":             {ok, llmhttp.Key{Models: []string{}}, valid, 404, `{"message":`, 0},
		"tokens":            {ok, llmhttp.Key{Limits: llmhttp.Limits{Tokens: llmhttp.PerMinute(1)}}, valid, 429, `{"message":`, 0},
		"no Completer":      {endpointtest.ChatOnly, llmhttp.Key{}, valid, 404, `{"message":"Invalid URL (POST /v3/complete)"}`, 0},
		"the Backend fails": {stream(assert.AnError), llmhttp.Key{}, valid, 500, `{"message":`, 1},
		"the encoder fails": {ok, llmhttp.Key{}, `{"model":"unwritable","text":"a"}`, 500, `{"message":`, 1},
		"no encoder":        {ok, llmhttp.Key{}, `{"model":"m","text":"no encoder"}`, 500, `{"message":`, 0},
	})
}

// A Handler without the routes does not complete prompts, and neither does a Backend without the method:
// a chat is not made of them.
func TestRoutes(t *testing.T) {
	endpointtest.CheckMounted(t, "completion", completion.Routes, stream(nil, chunkOf(0, "x", "", "")), `{"model":"m","prompt":"a"}`)
}
