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
	"time"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/memory"
)

// A stepper is a Backend that takes each step when it is told to.
type stepper struct {
	steps chan error    // nil: say "step"; io.EOF: end; others: fail
	gone  chan struct{} // closed when the context was done before the end
}

func newStepper() *stepper {
	return &stepper{steps: make(chan error), gone: make(chan struct{})}
}

func (s *stepper) Chat(ctx context.Context, req *llmhttp.ChatRequest) llmhttp.ChatStream {
	return func(yield func(*llmhttp.ChatChunk, error) bool) {
		for {
			select {
			case err := <-s.steps:
				switch {
				case err == io.EOF:
					return
				case err != nil:
					yield(nil, err)
					return
				case !yield(llmhttp.TextChunk("step"), nil):
					return
				}
			case <-ctx.Done():
				close(s.gone)
				return
			}
		}
	}
}

// step makes s take a step, if it is there to do so.
func (s *stepper) step(t *testing.T, what error) {
	t.Helper()
	select {
	case s.steps <- what:
	case <-time.After(10 * time.Second):
		require.FailNow(t, "the Backend does not go on")
	}
}

func serve(t *testing.T, b llmhttp.Backend, routes func(http.Handler) http.Handler) (base string) {
	h := llmhttp.NewHandler(b, memory.Keys("sk-demo"), &llmhttp.Options{Usage: memory.NewUsageStore()})
	s := httptest.NewServer(routes(h))
	t.Cleanup(s.Close)
	return s.URL
}

func send(t *testing.T, ctx context.Context, method, url, body string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer sk-demo")
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	t.Cleanup(func() { res.Body.Close() })
	return res
}

func text(t *testing.T, res *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return string(b)
}

const (
	chat     = "/v1/chat/completions"
	whole    = `{"model": "demo-chat", "messages": [{"role": "user", "content": "Hello!"}]}`
	streamed = `{"model": "demo-chat", "stream": true, "messages": [{"role": "user", "content": "Hello!"}]}`
)

// readTo reads events up to one that contains want.
func readTo(t *testing.T, events *bufio.Reader, want string) {
	t.Helper()
	for {
		line, err := events.ReadString('\n')
		require.NoError(t, err, "before %s", want)
		if strings.Contains(line, want) {
			return
		}
	}
}

func TestRouters(t *testing.T) {
	gin.SetMode(gin.TestMode)
	for name, routes := range routers {
		t.Run(name, func(t *testing.T) {
			t.Run("whole", func(t *testing.T) {
				base := serve(t, memory.Echo(), routes)
				res := send(t, t.Context(), "POST", base+chat, whole)
				body := text(t, res)
				assert.Equal(t, 200, res.StatusCode, body)
				assert.Equal(t, "application/json", res.Header.Get("Content-Type"))
				var reply llmhttp.ChatResponse
				require.NoError(t, json.Unmarshal([]byte(body), &reply))
				assert.Equal(t, "Hello!", reply.Choices[0].Message.Content.Text())

				res = send(t, t.Context(), "GET", base+"/", "")
				assert.Equal(t, home, text(t, res))
			})

			t.Run("stream", func(t *testing.T) {
				b := newStepper()
				base := serve(t, b, routes)
				answered := make(chan *http.Response, 1)
				go func() { answered <- send(t, t.Context(), "POST", base+chat, streamed) }()
				b.step(t, nil)
				res := <-answered
				assert.Equal(t, 200, res.StatusCode)
				assert.Equal(t, "text/event-stream; charset=utf-8", res.Header.Get("Content-Type"))
				events := bufio.NewReader(res.Body)
				readTo(t, events, `"step"`)
				for range 3 {
					b.step(t, nil) // not before the client has seen the last
					readTo(t, events, `"step"`)
				}
				b.step(t, io.EOF)
				rest, err := io.ReadAll(events)
				require.NoError(t, err)
				assert.True(t, strings.HasSuffix(string(rest), "data: [DONE]\n\n"), "%s", rest)
			})

			t.Run("failure", func(t *testing.T) {
				rest, err := fail(t, routes)
				assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
				assert.Contains(t, rest, `data: {"error":{"message":"The server had an error`)
				assert.NotContains(t, rest, "[DONE]")
				assert.NotContains(t, rest, "secret cause")
			})

			t.Run("early failure", func(t *testing.T) {
				base := serve(t, llmhttp.BackendFunc(func(context.Context, *llmhttp.ChatRequest) llmhttp.ChatStream {
					return llmhttp.Fail(llmhttp.Errorf(503, "", "The model is busy."))
				}), routes)
				res := send(t, t.Context(), "POST", base+chat, streamed)
				assert.Equal(t, 503, res.StatusCode)
				assert.JSONEq(t, `{"error": {"message": "The model is busy.", "type": "server_error", "param": null, "code": null}}`, text(t, res))
			})

			t.Run("abort", func(t *testing.T) {
				b := newStepper()
				base := serve(t, b, routes)
				ctx, abort := context.WithCancel(t.Context())
				defer abort()
				answered := make(chan *http.Response, 1)
				go func() { answered <- send(t, ctx, "POST", base+chat, streamed) }()
				b.step(t, nil)
				readTo(t, bufio.NewReader((<-answered).Body), `"step"`)
				abort()
				select {
				case <-b.gone:
				case <-time.After(10 * time.Second):
					assert.Fail(t, "the Backend goes on without a client")
				}
			})

			t.Run("errors", func(t *testing.T) {
				base := serve(t, memory.Echo(), routes)
				for _, c := range []struct {
					method, path string
					status       int
					message      string
				}{
					{"GET", "/v1/nothing", 404, "Invalid URL (GET /v1/nothing)"},
					{"POST", "/v1/nothing/at/all", 404, "Invalid URL (POST /v1/nothing/at/all)"},
					{"GET", "/v1/", 404, "Invalid URL (GET /v1/)"},
					{"GET", chat, 405, "Not allowed to GET on " + chat + ". (HINT: Perhaps you meant to use a different HTTP method?)"},
					{"DELETE", "/v1/models", 405, "Not allowed to DELETE on /v1/models. (HINT: Perhaps you meant to use a different HTTP method?)"},
					{"GET", "/v1/models/some%2Fmodel", 404, "The model `some/model` does not exist or you do not have access to it."},
					{"GET", "/v1/models/some/model", 404, "The model `some/model` does not exist or you do not have access to it."},
				} {
					res := send(t, t.Context(), c.method, base+c.path, "")
					body := text(t, res)
					assert.Equal(t, c.status, res.StatusCode, c.path)
					assert.Equal(t, "application/json", res.Header.Get("Content-Type"), c.path)
					var reply struct{ Error struct{ Message string } }
					require.NoError(t, json.Unmarshal([]byte(body), &reply), "%s: %s", c.path, body)
					assert.Equal(t, c.message, reply.Error.Message)
				}
			})
		})
	}
}

// fail returns what a client gets of a stream that fails after its first
// chunk, and how it ends.
func fail(t *testing.T, routes func(http.Handler) http.Handler) (rest string, err error) {
	b := newStepper()
	base := serve(t, b, routes)
	answered := make(chan *http.Response, 1)
	go func() { answered <- send(t, t.Context(), "POST", base+chat, streamed) }()
	b.step(t, nil)
	events := bufio.NewReader((<-answered).Body)
	readTo(t, events, `"step"`)
	b.step(t, errors.New("secret cause"))
	all, err := io.ReadAll(events)
	return string(all), err
}

// Behind gin.Recovery a stream that fails has its error event and no [DONE],
// by which every client knows, but a clean end.
func TestBehindGinRecovery(t *testing.T) {
	gin.SetMode(gin.TestMode)
	rest, err := fail(t, func(api http.Handler) http.Handler {
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
	gin.SetMode(gin.TestMode)
	for name := range routers {
		t.Run(name, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			r, w := io.Pipe()
			ended := make(chan error, 1)
			go func() { ended <- run(ctx, "127.0.0.1:0", name, w) }()
			line, err := bufio.NewReader(r).ReadString('\n')
			require.NoError(t, err)
			go io.Copy(io.Discard, r)
			base := regexp.MustCompile(`http://\S+`).FindString(line)
			res := send(t, t.Context(), "POST", base+chat, streamed)
			assert.Contains(t, text(t, res), "data: [DONE]\n\n")
			stop()
			assert.NoError(t, <-ended)
		})
	}
	assert.ErrorContains(t, run(t.Context(), "127.0.0.1:0", "none", io.Discard), `"none"`)
}
