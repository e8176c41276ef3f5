package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.TestMode)
	m.Run()
}

// A stepBackend is a Backend whose stream the test controls.
type stepBackend struct {
	steps    chan error    // nil yields the text "step", io.EOF ends the stream, others fail it
	canceled chan struct{} // closed when the context of the stream ends
}

func newStepBackend() *stepBackend {
	return &stepBackend{steps: make(chan error, 1), canceled: make(chan struct{})}
}

func (b *stepBackend) Chat(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
	return func(yield func(*llm.ChatChunk, error) bool) {
		for {
			select {
			case err := <-b.steps:
				switch {
				case err == io.EOF:
					return
				case err != nil:
					yield(nil, err)
					return
				case !yield(llm.TextChunk("step"), nil):
					return
				}
			case <-ctx.Done():
				close(b.canceled)
				return
			}
		}
	}
}

const (
	chatPath = "/v1/chat/completions"
	chat     = `{"model": "demo-chat", "messages": [{"role": "user", "content": "Hello!"}]}`
	stream   = `{"model": "demo-chat", "stream": true, "messages": [{"role": "user", "content": "Hello!"}]}`
)

type routesFunc = func(api http.Handler, prefix string) http.Handler

// serve starts a server and returns its URL.
func serve(t *testing.T, b llmhttp.Backend, routes routesFunc) string {
	t.Helper()
	return serveBelow(t, "", b, routes)
}

// serveBelow starts a server with a prefix and returns its URL.
func serveBelow(t *testing.T, prefix string, b llmhttp.Backend, routes routesFunc) string {
	t.Helper()
	h := llmhttp.NewHandler(b, memory.NewKeyStore("sk-demo"), &llmhttp.Options{Prefix: prefix, Usage: memory.NewUsageStore()})
	s := httptest.NewServer(routes(h, prefix))
	t.Cleanup(s.Close)
	return s.URL
}

func send(ctx context.Context, t *testing.T, method, url, body string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer sk-demo")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func readAll(t *testing.T, resp *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(b)
}

// startStream starts a stream and reads its first step.
func startStream(ctx context.Context, t *testing.T, b *stepBackend, routes routesFunc) (*http.Response, *bufio.Reader) {
	t.Helper()
	url := serve(t, b, routes) + chatPath
	b.steps <- nil // the server replies after the first step
	resp := send(ctx, t, "POST", url, stream)
	events := bufio.NewReader(resp.Body)
	readStep(t, events)
	return resp, events
}

func readStep(t *testing.T, events *bufio.Reader) {
	t.Helper()
	for {
		line, err := events.ReadString('\n')
		require.NoError(t, err)
		if strings.Contains(line, `"step"`) {
			return
		}
	}
}

// readFailedStream returns what a client receives after the first step of a
// stream that fails, and how the stream ends.
func readFailedStream(t *testing.T, routes routesFunc) (string, error) {
	t.Helper()
	b := newStepBackend()
	_, events := startStream(t.Context(), t, b, routes)
	b.steps <- errors.New("secret cause")
	rest, err := io.ReadAll(events)
	return string(rest), err
}

func TestRouters(t *testing.T) {
	for name, routes := range routers {
		t.Run(name, func(t *testing.T) {
			t.Run("reply", func(t *testing.T) {
				url := serve(t, memory.Echo(), routes)
				resp := send(t.Context(), t, "POST", url+chatPath, chat)
				body := readAll(t, resp)
				assert.Equal(t, http.StatusOK, resp.StatusCode, body)
				assert.Equal(t, "application/json", resp.Header.Get("Content-Type"))
				var reply llm.ChatResponse
				require.NoError(t, json.Unmarshal([]byte(body), &reply))
				assert.Equal(t, "Hello!", reply.Choices[0].Message.Content.Text())

				assert.Equal(t, homePage, readAll(t, send(t.Context(), t, "GET", url+"/", "")))
			})

			t.Run("stream", func(t *testing.T) {
				b := newStepBackend()
				resp, events := startStream(t.Context(), t, b, routes)
				assert.Equal(t, http.StatusOK, resp.StatusCode)
				assert.Equal(t, "text/event-stream; charset=utf-8", resp.Header.Get("Content-Type"))
				for range 3 {
					b.steps <- nil // only after the client has received the previous step
					readStep(t, events)
				}
				b.steps <- io.EOF
				rest, err := io.ReadAll(events)
				require.NoError(t, err)
				assert.True(t, strings.HasSuffix(string(rest), "data: [DONE]\n\n"), "%s", rest)
			})

			t.Run("failed stream", func(t *testing.T) {
				rest, err := readFailedStream(t, routes)
				assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
				assert.Contains(t, rest, `data: {"error":{"message":"The server had an error`)
				assert.NotContains(t, rest, "[DONE]")
				assert.NotContains(t, rest, "secret cause")
			})

			t.Run("failure before the stream", func(t *testing.T) {
				busy := llmhttp.BackendFunc(func(context.Context, *llm.ChatRequest) llm.ChatStream {
					return llm.Fail(llm.Errorf(http.StatusServiceUnavailable, "", "The model is busy."))
				})
				resp := send(t.Context(), t, "POST", serve(t, busy, routes)+chatPath, stream)
				assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
				assert.JSONEq(t, `{"error": {"message": "The model is busy.", "type": "server_error", "param": null, "code": null}}`, readAll(t, resp))
			})

			t.Run("client disconnects", func(t *testing.T) {
				b := newStepBackend()
				ctx, disconnect := context.WithCancel(t.Context())
				startStream(ctx, t, b, routes)
				disconnect()
				<-b.canceled
			})

			for _, prefix := range []string{"", "/api/llm"} {
				t.Run("errors "+prefix, func(t *testing.T) {
					url := serveBelow(t, prefix, memory.Echo(), routes) + prefix
					for _, test := range errorReplies {
						resp := send(t.Context(), t, test.method, url+test.path, "")
						body := readAll(t, resp)
						assert.Equal(t, test.status, resp.StatusCode, test.path)
						assert.Equal(t, "application/json", resp.Header.Get("Content-Type"), test.path)
						var reply struct{ Error struct{ Message string } }
						require.NoError(t, json.Unmarshal([]byte(body), &reply), "%s: %s", test.path, body)
						assert.Equal(t, strings.ReplaceAll(test.message, "/v1", prefix+"/v1"), reply.Error.Message)
					}
					assert.Equal(t, http.StatusOK, send(t.Context(), t, "POST", url+chatPath, chat).StatusCode)
				})
			}
		})
	}
}

var errorReplies = []struct {
	method, path string
	status       int
	message      string
}{
	{"GET", "/v1/nothing", 404, "Invalid URL (GET /v1/nothing)"},
	{"POST", "/v1/nothing/at/all", 404, "Invalid URL (POST /v1/nothing/at/all)"},
	{"GET", "/v1/", 404, "Invalid URL (GET /v1/)"},
	{"GET", chatPath, 405, "Not allowed to GET on " + chatPath + ". (HINT: Perhaps you meant to use a different HTTP method?)"},
	{"DELETE", "/v1/models", 405, "Not allowed to DELETE on /v1/models. (HINT: Perhaps you meant to use a different HTTP method?)"},
	{"GET", "/v1/models/some%2Fmodel", 404, "The model `some/model` does not exist or you do not have access to it."},
	{"GET", "/v1/models/some/model", 404, "The model `some/model` does not exist or you do not have access to it."},
}

// TestGinRecovery shows why withGin does not use gin.Recovery for the API: a
// failed stream has an error event and no [DONE], but it ends like a complete one.
func TestGinRecovery(t *testing.T) {
	rest, err := readFailedStream(t, func(api http.Handler, _ string) http.Handler {
		e := gin.New()
		e.Use(gin.RecoveryWithWriter(io.Discard))
		e.Any("/v1/*path", gin.WrapH(api))
		return e
	})
	assert.NoError(t, err)
	assert.Contains(t, rest, `data: {"error":{"message":"The server had an error`)
	assert.NotContains(t, rest, "[DONE]")
}

func TestRun(t *testing.T) {
	for name := range routers {
		t.Run(name, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			r, w := io.Pipe()
			result := make(chan error, 1)
			go func() { result <- run(ctx, "127.0.0.1:0", name, "", w) }()
			line, err := bufio.NewReader(r).ReadString('\n')
			require.NoError(t, err)
			go io.Copy(io.Discard, r)
			url := regexp.MustCompile(`http://\S+`).FindString(line)
			assert.Contains(t, readAll(t, send(t.Context(), t, "POST", url+chatPath, stream)), "data: [DONE]\n\n")
			stop()
			assert.NoError(t, <-result)
		})
	}
	t.Run("unknown router", func(t *testing.T) {
		assert.ErrorContains(t, run(t.Context(), "127.0.0.1:0", "none", "", io.Discard), `unknown router "none"`)
	})
}
