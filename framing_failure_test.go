package llmhttp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/messages"
	"github.com/llmhttp/llmhttp/responses"
)

func withProtocols(c config) config {
	c.opts.Protocols = []llmhttp.Protocol{messages.New(nil), responses.New(nil)}
	if b, ok := c.backend.(llmhttp.BackendFunc); ok {
		c.backend = speakingBackend{b}
	}
	return c
}

// A failed stream of Messages or Responses ends cleanly after its error event, whatever
// the failure is, and its connection serves the next request. Observers still see a
// failure. That of chat completions is cut.
func TestFraming_Failure(t *testing.T) {
	tests := []struct {
		name    string
		backend func(ctx context.Context, yield yieldFunc)
		message string
		class   llmhttp.ErrorClass
	}{
		{"error", func(_ context.Context, yield yieldFunc) { yield(nil, llm.Errorf(503, "", "Too busy.")) }, "Too busy.", llmhttp.ClassBackend},
		{"panic", func(context.Context, yieldFunc) { panic("oops") }, internalMessage, llmhttp.ClassBackend},
		{"timeout", func(ctx context.Context, _ yieldFunc) { <-ctx.Done() }, timeoutMessage, llmhttp.ClassTimeout},
		{"timeout of a Backend that ignores its context", func(context.Context, yieldFunc) { time.Sleep(time.Hour) }, timeoutMessage, llmhttp.ClassTimeout},
		{"too large", func(_ context.Context, yield yieldFunc) { yield(llm.TextChunk(strings.Repeat("a", 2000)), nil) },
			"The reply of the model is too large. The limit is 1000 bytes.", llmhttp.ClassBackend},
	}
	for _, test := range tests {
		for _, f := range wireFormats {
			for _, http2 := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/http2=%t", test.name, f, http2), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						s := startPipeServer(t, withProtocols(config{
							http2: http2, opts: llmhttp.Options{Bounds: llmhttp.Bounds{Timeout: time.Minute, KeepAlive: -1, WriteTimeout: time.Second, MaxReply: 1000}},
							server: func(srv *http.Server) { srv.WriteTimeout = 10 * time.Second },
							backend: streamBackend(func(ctx context.Context, yield yieldFunc) {
								if yield(llm.TextChunk("one"), nil) {
									test.backend(ctx, yield)
								}
							}),
						}))
						r := s.do("POST", f.path, f.stream())
						f.checkFailed(t, r, test.message)
						got := s.summary()
						assert.Equal(t, 200, got.Status)
						assert.Equal(t, test.class, got.ErrorClass)
						assert.True(t, got.Aborted())
						if f.failsCleanly {
							checkSameConnection(t, s)
						}
					})
				})
			}
		}
	}
}

// checkSameConnection checks that the next request uses the connection of the first.
func checkSameConnection(t *testing.T, s *testServer) {
	t.Helper()
	dials := 0
	transport := s.client.Transport.(*http.Transport)
	dial := transport.DialContext
	transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		dials++
		return dial(ctx, network, addr)
	}
	synctest.Wait() // until the transport has the connection back
	assert.Equal(t, 404, s.get("/v1/nothing").StatusCode)
	assert.Zero(t, dials, "the connection was closed")
}

// When Shutdown interrupts a stream, its client gets the error at once, and the clean end when
// the Backend has returned, however late that is.
func TestFraming_Failure_Shutdown(t *testing.T) {
	for _, f := range wireFormats {
		if !f.failsCleanly {
			continue
		}
		for _, http2 := range []bool{false, true} {
			for _, ignores := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/http2=%t/Backend ignores its context=%t", f.name, http2, ignores), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						release := make(chan struct{})
						s := startPipeServer(t, withProtocols(config{
							http2: http2, opts: llmhttp.Options{Bounds: llmhttp.Bounds{WriteTimeout: time.Second}},
							backend: streamBackend(func(ctx context.Context, yield yieldFunc) {
								yield(llm.TextChunk("one"), nil)
								if ignores {
									<-release
									yield(llm.TextChunk("two"), nil)
								}
								<-ctx.Done()
							}),
						}))
						resp, err := s.open(t.Context(), "POST", f.path, f.stream())
						require.NoError(t, err)
						in := bufio.NewReader(resp.Body)
						head := readUntil(t, in, "one")
						shutdown := make(chan error, 1)
						go func() { shutdown <- s.handler.Shutdown(done(t)) }()
						head += readUntil(t, in, strings.Split(f.failure, "\n")[0]) // before the Backend returns
						require.ErrorIs(t, <-shutdown, context.Canceled)
						time.AfterFunc(time.Hour, func() { close(release) })
						r := readRest(resp, head, in)
						f.checkFailed(t, r, shutdownMessage)
						assert.NotContains(t, r.body, "two")
						assert.Equal(t, llmhttp.ClassShutdown, s.summary().ErrorClass)
					})
				})
			}
		}
	}
}

// A stream whose error event cannot be written is cut, and so is one whose Backend calls
// runtime.Goexit: net/http closes its connection.
func TestFraming_Failure_NotIfTheConnectionIsLost(t *testing.T) {
	for _, f := range wireFormats {
		if !f.failsCleanly {
			continue
		}
		send := func(w http.ResponseWriter, end func()) (p any) {
			s := newHandler(t, withProtocols(config{backend: streamBackend(func(_ context.Context, yield yieldFunc) {
				yield(llm.TextChunk("one"), nil)
				end()
				yield(nil, errCause)
			})}))
			r := newChatRequest(f.stream())
			r.URL.Path = f.path
			ended := make(chan any)
			go func() {
				defer func() { ended <- recover() }()
				s.handler.ServeHTTP(w, r)
			}()
			return <-ended
		}
		t.Run(f.path, func(t *testing.T) {
			w := &failingWriter{ResponseRecorder: httptest.NewRecorder()}
			assert.Equal(t, http.ErrAbortHandler, send(w, func() { w.broken = true }))
			assert.Equal(t, http.ErrAbortHandler, send(httptest.NewRecorder(), runtime.Goexit))
			assert.Nil(t, send(httptest.NewRecorder(), func() {}))
		})
	}
}

// A failingWriter is a ResponseWriter whose writes fail if broken is set.
type failingWriter struct {
	*httptest.ResponseRecorder
	broken bool
}

func (w *failingWriter) Write(p []byte) (int, error) {
	if w.broken {
		return 0, errors.New("i/o timeout")
	}
	return w.ResponseRecorder.Write(p)
}
