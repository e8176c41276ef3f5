// Package protocol shows what a wire format of another module can do, with public names alone: chats,
// the other operations, queries, and endpoints that are packages.
package protocol

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/rerank"
)

// plain is a format whose replies are lines of text.
type plain struct{}

func (plain) Name() string { return "plain" }

func (plain) Secret(r *http.Request) string { return r.Header.Get("X-Secret") }

func (plain) SetHeaders(h http.Header, info llmhttp.ReplyInfo) { h.Set("Request", info.RequestID) }

func (plain) AppendError(b []byte, e *llm.Error, _ string) ([]byte, int) {
	return fmt.Appendf(b, "error: %s\n", e.Message), e.Status
}

func (p plain) Routes() []llmhttp.Route {
	return []llmhttp.Route{
		{Pattern: "POST /say", Bind: llmhttp.BindChat(func(_ context.Context, r *http.Request, body []byte) (*llm.ChatRequest, llmhttp.ChatEncoder, error) {
			if len(body) == 0 {
				return nil, nil, llm.Errorf(http.StatusBadRequest, "", "There is nothing to say.")
			}
			req := &llm.ChatRequest{Model: r.Header.Get("Model"), Stream: true, Messages: []llm.Message{{Role: llm.RoleUser, Content: llm.TextContent(string(body))}}}
			return req, encoder{}, req.Validate()
		})},
		{Pattern: "POST /count", Bind: llmhttp.BindCountTokens(func(_ context.Context, r *http.Request, body []byte) (*llm.ChatRequest, func([]byte, int) ([]byte, error), error) {
			req := &llm.ChatRequest{Model: r.Header.Get("Model"), Messages: []llm.Message{{Role: llm.RoleUser, Content: llm.TextContent(string(body))}}}
			return req, func(b []byte, n int) ([]byte, error) { return fmt.Appendln(b, n), nil }, nil
		})},
		{Pattern: "POST /vectors", Bind: llmhttp.BindEmbeddings(func(_ context.Context, r *http.Request, body []byte) (
			*llm.EmbeddingRequest, func([]byte, *llm.EmbeddingResponse) ([]byte, error), error) {
			req := &llm.EmbeddingRequest{Model: r.Header.Get("Model"), Input: llm.EmbeddingInput{Texts: []string{string(body)}}}
			return req, func(b []byte, r *llm.EmbeddingResponse) ([]byte, error) { return fmt.Appendln(b, r.Vectors), nil }, req.Validate()
		})},
		{Pattern: "POST /pictures", Bind: llmhttp.BindImages(func(_ context.Context, r *http.Request, body []byte) (
			*llm.ImageRequest, func([]byte, *llm.ImageResponse) ([]byte, error), error) {
			req := &llm.ImageRequest{Model: r.Header.Get("Model"), Prompt: string(body), ResponseFormat: llm.ImageFormatBase64}
			return req, func(b []byte, r *llm.ImageResponse) ([]byte, error) { return append(b, r.Data[0].Data...), nil }, req.Validate()
		}, nil)},
		{Pattern: "GET /models", Bind: llmhttp.BindModels(func(context.Context, *http.Request, []byte) (func([]byte, []llm.Model) ([]byte, error), error) {
			return func(b []byte, models []llm.Model) ([]byte, error) { return fmt.Appendln(b, models[0].ID), nil }, nil
		})},
		{Pattern: "GET /banner", Bind: llmhttp.BindQuery(llmhttp.ScopeModels, func(context.Context, *http.Request, []byte) (*llmhttp.QueryReply, error) {
			return &llmhttp.QueryReply{Status: 203, ContentType: "text/plain", Body: []byte("is running\n")}, nil
		})},
		llmhttp.NewRoute("POST /best/{query}", rerank.Endpoint, p.best),
	}
}

// best tells which line of the body is the best for the query.
func (plain) best(c *llmhttp.Call) error {
	req := &rerank.Request{Model: c.Request().Header.Get("Model"), Query: c.Request().PathValue("query"), TopN: 1, ReturnDocuments: true}
	err := c.Body(func(body []byte) error {
		for line := range strings.SplitSeq(string(body), "\n") {
			req.Documents = append(req.Documents, rerank.Document{Text: line})
		}
		return req.Validate()
	})
	if err != nil {
		return err
	}
	return rerank.Serve(c, req, func(b []byte, r *rerank.Response) ([]byte, error) {
		return fmt.Appendln(b, r.Results[0].Document.Text), nil
	})
}

// An encoder writes a line for each piece of a text.
type encoder struct{}

func (encoder) Framing() llmhttp.Framing { return llmhttp.Framing{ContentType: "text/plain"} }

func (encoder) AppendStart(b []byte, _ *llmhttp.ReplyStart) []byte { return b }

func (encoder) AppendChunk(b []byte, c *llm.ChatChunk) ([]byte, error) {
	return fmt.Appendln(b, c.Choices[0].Delta.Content), nil
}

func (encoder) AppendEnd(b []byte, u *llm.Usage, _ llm.Extra) ([]byte, error) {
	return fmt.Appendf(b, "%d tokens\n", u.TotalTokens), nil
}

func (encoder) AppendFailure(b []byte, e *llm.Error) []byte {
	return fmt.Appendf(b, "error: %s\n", e.Message)
}

// A backend has what the format offers.
type backend struct{ llmhttp.Backend }

func (backend) ListModels(context.Context) ([]llm.Model, error) {
	return []llm.Model{{ID: "demo-chat"}}, nil
}

func (backend) Embed(context.Context, *llm.EmbeddingRequest) (*llm.EmbeddingResponse, error) {
	return &llm.EmbeddingResponse{Vectors: [][]float32{{1, 2}}}, nil
}

func (backend) GenerateImages(context.Context, *llm.ImageRequest) (*llm.ImageResponse, error) {
	return &llm.ImageResponse{Data: []llm.Image{{Data: []byte("a picture\n")}}}, nil
}

func (backend) Rerank(_ context.Context, req *rerank.Request) (*rerank.Response, error) {
	resp := new(rerank.Response)
	for i, d := range req.Documents {
		resp.Results = append(resp.Results, rerank.Result{Index: i, Score: float64(strings.Count(d.Text, req.Query))})
	}
	return resp, nil
}

func TestProtocol(t *testing.T) {
	store := &counter{UsageStore: memory.NewUsageStore()}
	chat := llmhttp.BackendFunc(func(_ context.Context, req *llm.ChatRequest) llm.ChatStream {
		return llm.Reply("You said: " + req.Messages[0].Content.Text())
	})
	h := llmhttp.NewHandler(backend{chat}, memory.NewKeyStore("sk-demo"), &llmhttp.Options{Usage: store, Protocols: []llmhttp.Protocol{plain{}}})
	recorded := 0
	for _, tt := range []struct {
		request, body, reply string
		status, records      int
	}{
		{"POST /say", "Hello", "You said: Hello\n\n", 200, 1},
		{"POST /say", "", "error: There is nothing to say.\n", 400, 0},
		{"POST /count", "Hello", "\n", 200, 0},
		{"POST /vectors", "Hello", "[[1 2]]\n", 200, 1},
		{"POST /pictures", "a cat", "a picture\n", 200, 1},
		{"GET /models", "", "demo-chat\n", 200, 0},
		{"GET /banner", "", "is running\n", 203, 0},
		{"POST /best/rain", "sun\nrain, rain\nsnow", "rain, rain\n", 200, 1},
	} {
		method, path, _ := strings.Cut(tt.request, " ")
		r := httptest.NewRequest(method, path, strings.NewReader(tt.body))
		r.Header.Set("X-Secret", "sk-demo")
		r.Header.Set("Model", "m")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		assert.Equal(t, tt.status, w.Code, tt.request)
		assert.Contains(t, w.Body.String(), tt.reply, tt.request)
		assert.NotEmpty(t, w.Header().Get("Request"), tt.request)
		recorded += tt.records
		assert.Equal(t, recorded, store.records, tt.request)
	}
}

// A counter counts records.
type counter struct {
	llmhttp.UsageStore
	records int
}

func (c *counter) Record(ctx context.Context, records ...llmhttp.UsageRecord) error {
	c.records += len(records)
	return c.UsageStore.Record(ctx, records...)
}
