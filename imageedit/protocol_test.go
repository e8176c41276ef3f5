package imageedit_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/form"
	"github.com/llmhttp/llmhttp/imageedit"
	"github.com/llmhttp/llmhttp/internal/endpointtest"
	"github.com/llmhttp/llmhttp/llm"
)

// servePaint serves a route of a Protocol whose requests have one image as text, and whose replies are a
// line of text, or several in a stream.
func servePaint(c *llmhttp.Call) error {
	var body struct {
		Model   string `json:"model"`
		Text    string `json:"text"`
		Picture string `json:"picture"`
		Stream  bool   `json:"stream"`
	}
	err := c.Body(func(b []byte) error { return llmhttp.DecodeJSON(c.Context(), b, &body) })
	if err != nil {
		return err
	}
	req := &imageedit.Request{ImageRequest: llm.ImageRequest{Model: body.Model, Prompt: body.Text, Stream: body.Stream}}
	if body.Picture != "" {
		req.Images = []*llm.File{{Size: int64(len(body.Picture)), Content: strings.NewReader(body.Picture)}}
	}
	if err := req.Validate(); err != nil {
		return err
	}
	if req.Stream {
		return imageedit.ServeStream(c, req, lines{})
	}
	return imageedit.Serve(c, req, func(b []byte, reply *llm.ImageResponse) ([]byte, error) {
		if body.Model == "unwritable" {
			return nil, assert.AnError
		}
		usage := c.Usage()
		return fmt.Appendf(b, "%d bytes, %d tokens", len(reply.Data[0].Data), usage.Total()), nil
	})
}

// lines encodes a stream as lines.
type lines struct{}

func (lines) Framing() llmhttp.Framing { return llmhttp.Framing{ContentType: "text/plain"} }

func (lines) AppendChunk(b []byte, c *llm.ImageChunk) ([]byte, error) {
	return fmt.Appendf(b, "%d bytes\n", len(c.Image.Data)), nil
}

func (lines) AppendEnd(b []byte, u *llm.Usage) ([]byte, error) {
	return fmt.Appendf(b, "%d tokens\n", u.Total()), nil
}

func (lines) AppendFailure(b []byte, e *llm.Error) []byte { return append(b, e.Message...) }

// A route of a Protocol has the Protocol's form of requests, replies and errors, and the limits and
// records of each other route.
func TestServe_Protocol(t *testing.T) {
	const valid, stream = `{"model":"m","text":"a b","picture":"x"}`, `{"model":"m","text":"a b","picture":"x","stream":true}`
	paints := drawing(&llm.Usage{PromptTokens: 1, CompletionTokens: 2})
	failing := backend(func(context.Context, *imageedit.Request) (*llm.ImageResponse, error) { return nil, assert.AnError })
	nothing := backend(func(context.Context, *imageedit.Request) (*llm.ImageResponse, error) { return nil, nil })
	p := endpointtest.NewProtocol("/v2/paint", imageedit.Endpoint, servePaint)
	endpointtest.CheckProtocol(t, p, imageedit.Operation, llmhttp.Options{}, map[string]endpointtest.ProtocolTest{
		"complete":          {paints, llmhttp.Key{}, valid, 200, "12 bytes, 3 tokens", 1},
		"stream":            {paints, llmhttp.Key{}, stream, 200, "12 bytes\n3 tokens\n", 1},
		"unknown member":    {paints, llmhttp.Key{}, `{"model":"m","api_key":"x"}`, 400, `{"message":"Unknown parameter: 'api_key'."}`, 0},
		"not valid":         {paints, llmhttp.Key{}, `{"model":"m","text":"a"}`, 400, `{"message":"Missing required parameter: 'image'."}`, 0},
		"scope":             {paints, llmhttp.Key{Scopes: []llmhttp.Scope{llmhttp.ScopeChat}}, valid, 403, `Missing scope: images`, 0},
		"tokens":            {paints, llmhttp.Key{Limits: llmhttp.Limits{Tokens: llmhttp.PerMinute(1)}}, valid, 429, `{"message":`, 0},
		"no Editor":         {endpointtest.ChatOnly, llmhttp.Key{}, valid, 404, `{"message":"Invalid URL (POST /v2/paint)"}`, 0},
		"the Backend fails": {failing, llmhttp.Key{}, valid, 500, `{"message":`, 1},
		"the stream fails":  {failing, llmhttp.Key{}, stream, 500, `{"message":`, 1},
		"no image":          {nothing, llmhttp.Key{}, valid, 500, `{"message":`, 1},
		"appendReply fails": {paints, llmhttp.Key{}, `{"model":"unwritable","text":"a","picture":"x"}`, 500, `{"message":`, 1},
	})
}

func TestRoutes_InvalidStore(t *testing.T) {
	assert.PanicsWithValue(t, "imageedit: Options.Files: form: Store.Dir: stat /none: no such file or directory", func() {
		imageedit.Routes(&imageedit.Options{Files: &form.Store{Dir: "/none"}})
	})
}
