package llmhttp_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
)

// lines is a Protocol that replies with lines of JSON: {"text":...} for each piece of the
// text, and at the end {"done":true,...} or {"error":...}.
type lines struct{}

func (lines) Name() string { return "lines" }

func (p lines) Routes() []llmhttp.Route {
	return []llmhttp.Route{{Pattern: "POST /lines", Bind: llmhttp.BindChat(p.decode)}}
}

func (lines) Secret(r *http.Request) string { return llmhttp.BearerSecret(r) }

func (lines) SetHeaders(h http.Header, info llmhttp.ReplyInfo) { h.Set("X-Request-Id", info.RequestID) }

func (lines) AppendError(b []byte, e *llm.Error, _ string) ([]byte, int) {
	b, _ = llmhttp.AppendJSON(b, map[string]string{"error": e.Message})
	return b, e.Status
}

func (lines) decode(ctx context.Context, _ *http.Request, body []byte) (*llm.ChatRequest, llmhttp.ChatEncoder, error) {
	var in struct {
		Model  string `json:"model"`
		Prompt string `json:"prompt"`
	}
	if err := llmhttp.DecodeJSON(ctx, body, &in); err != nil {
		return nil, nil, err
	}
	if in.Prompt == "" { // Validate cannot tell a prompt that is missing from an empty message
		return nil, nil, llm.Errorf(http.StatusBadRequest, "", "There is no prompt.")
	}
	prompt := llm.Message{Role: llm.RoleUser, Content: llm.TextContent(in.Prompt)}
	req := &llm.ChatRequest{Model: in.Model, Stream: true, Messages: []llm.Message{prompt}}
	return req, lineEncoder{}, req.Validate()
}

type lineEncoder struct{}

// Framing has no KeepAlive: clients take each line for JSON.
func (lineEncoder) Framing() llmhttp.Framing {
	return llmhttp.Framing{ContentType: "application/x-ndjson"}
}

func (lineEncoder) AppendStart(b []byte, _ *llmhttp.ReplyStart) []byte { return b }

func (lineEncoder) AppendChunk(b []byte, c *llm.ChatChunk) ([]byte, error) {
	if text := c.Choices[0].Delta.Content; text != "" {
		return appendLine(b, map[string]any{"text": text})
	}
	return b, nil
}

func (lineEncoder) AppendEnd(b []byte, u *llm.Usage, _ llm.Extra) ([]byte, error) {
	return appendLine(b, map[string]any{"done": true, "tokens": u.TotalTokens})
}

func (lineEncoder) AppendFailure(b []byte, e *llm.Error) []byte {
	b, _ = appendLine(b, map[string]any{"error": e.Message})
	return b
}

func appendLine(b []byte, v any) ([]byte, error) {
	b, err := llmhttp.AppendJSON(b, v)
	return append(b, '\n'), err
}

// A wire format that streams lines of JSON. TestProtocol_ExampleIsCorrect tests it with llmhttptest.TestProtocol.
func ExampleProtocol() {
	backend := llmhttp.BackendFunc(func(context.Context, *llm.ChatRequest) llm.ChatStream {
		return func(yield func(*llm.ChatChunk, error) bool) {
			_ = yield(llm.TextChunk("Hello, "), nil) && yield(llm.TextChunk("world."), nil) &&
				yield(&llm.ChatChunk{Usage: &llm.Usage{PromptTokens: 2, CompletionTokens: 4}}, nil)
		}
	})
	opts := &llmhttp.Options{Protocols: []llmhttp.Protocol{lines{}}}
	h := llmhttp.NewHandler(backend, memory.NewKeyStore("sk-demo"), opts)

	for _, body := range []string{`{"model":"m","prompt":"Hi"}`, `Hi`} {
		r := httptest.NewRequest("POST", "/lines", strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer sk-demo")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Header().Get("Content-Type"))
		fmt.Println(strings.TrimSpace(w.Body.String()))
	}

	// Output:
	// 200 application/x-ndjson
	// {"text":"Hello, "}
	// {"text":"world."}
	// {"done":true,"tokens":6}
	// 400 application/json
	// {"error":"We could not parse the JSON body of your request. (HINT: It must be one JSON document in UTF-8.)"}
}
