package llmhttp_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

// hostContexts are the ways in which a host cancels the base context of its server.
// signal.NotifyContext sets a cause since Go 1.26.
var hostContexts = map[string]func(context.Context) (context.Context, func()){
	"without cause": func(ctx context.Context) (context.Context, func()) {
		ctx, cancel := context.WithCancel(ctx)
		return ctx, cancel
	},
	"with cause": func(ctx context.Context) (context.Context, func()) {
		ctx, cancel := context.WithCancelCause(ctx)
		return ctx, func() { cancel(errors.New("interrupt")) }
	},
}

// When the host cancels the server's base context, connected clients get the error of a
// shutdown. A client that left before counts as departed.
func TestRequest_HostCancelsTheBaseContext(t *testing.T) {
	for name, newContext := range hostContexts {
		for _, http2 := range []bool{false, true} {
			start := func(t *testing.T, b llmhttp.Backend) (*testServer, func()) {
				base, cancel := newContext(context.WithoutCancel(t.Context()))
				t.Cleanup(cancel)
				return startServer(t, config{http2: http2, backend: b, server: func(srv *http.Server) {
					srv.BaseContext = func(net.Listener) context.Context { return base }
				}, wrap: func(h http.Handler) http.Handler {
					return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(unwrapWriter{w}, r) })
				}}), cancel
			}
			for end, err := range map[string]error{"error": context.Canceled, "silent": nil} {
				wait := func(ctx context.Context, yield yieldFunc) {
					<-ctx.Done()
					if err != nil {
						yield(nil, err)
					}
				}
				t.Run(fmt.Sprintf("%s/http2=%t/whole, %s", name, http2, end), func(t *testing.T) {
					called := make(chan struct{})
					s, cancel := start(t, streamBackend(func(ctx context.Context, yield yieldFunc) { close(called); wait(ctx, yield) }))
					got := s.begin("POST", chatPath, chatBody)
					receive(t, "the Backend to be called", called)
					cancel()
					checkShuttingDown(t, receive(t, "the reply", got))
					assert.Equal(t, 503, s.summary().Status)
					assert.Contains(t, s.log.String(), "shutting down")
				})
				t.Run(fmt.Sprintf("%s/http2=%t/stream, %s", name, http2, end), func(t *testing.T) {
					called := make(chan struct{})
					s, cancel := start(t, streamBackend(func(ctx context.Context, yield yieldFunc) {
						yield(llm.TextChunk("one"), nil)
						close(called)
						wait(ctx, yield)
					}))
					got := s.begin("POST", chatPath, streamBody)
					receive(t, "the first chunk", called)
					cancel()
					e := receive(t, "the reply", got).checkCut(t)
					assert.Equal(t, shutdownMessage, e.Message)
				})
			}
			t.Run(fmt.Sprintf("%s/http2=%t/departed", name, http2), func(t *testing.T) {
				called := make(chan struct{})
				s, _ := start(t, streamBackend(func(ctx context.Context, _ yieldFunc) { close(called); <-ctx.Done() }))
				ctx, leave := context.WithCancel(t.Context())
				go func() {
					<-called
					leave()
				}()
				_, err := s.open(ctx, "POST", chatPath, chatBody)
				assert.Error(t, err)
				assert.Equal(t, 499, s.summary().Status)
			})
		}
	}
}

// Keep-alives are comments of a single line: openai/openai-python#2722,
// openai-go#556, coder/coder#28185, mckinsey/agents-at-scale-ark#2567.
func TestKeepAlive(t *testing.T) {
	tests := []struct {
		name          string
		keepAlive     time.Duration
		before, after time.Duration // the silence before and after the only chunk
		want          string        // "#" for a comment, "." for an event
	}{
		{"silence is too short", 0, 14 * time.Second, 14 * time.Second, "...."},
		{"before the first chunk", 0, 46 * time.Second, 0, "#\n#\n#\n...."},
		{"between chunks", 0, 0, 31 * time.Second, "..#\n#\n.."},
		{"before and between chunks", time.Second, 2500 * time.Millisecond, 1500 * time.Millisecond, "#\n#\n..#\n.."},
		{"negative means never", -1, time.Minute, time.Minute, "...."},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := startPipeServer(t, config{
					opts: llmhttp.Options{Bounds: llmhttp.Bounds{KeepAlive: tt.keepAlive}},
					backend: streamBackend(func(_ context.Context, yield yieldFunc) {
						time.Sleep(tt.before)
						if yield(llm.TextChunk("hi"), nil) {
							time.Sleep(tt.after)
						}
					}),
				})
				r := s.chat(streamBody)
				r.checkText(t, "hi")
				r.checkHeaders(t)
				assert.Equal(t, "text/event-stream; charset=utf-8", r.Header.Get("Content-Type"))
				got := strings.ReplaceAll(r.body, ": keep-alive\n", "#\n")
				for _, event := range r.events(t) {
					got = strings.Replace(got, "data: "+event+"\n\n", ".", 1)
				}
				assert.Equal(t, tt.want, got)
				s.shutdown()
			})
		})
	}
}

func TestKeepAlive_NotInAWholeReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startPipeServer(t, config{backend: streamBackend(func(_ context.Context, yield yieldFunc) {
			time.Sleep(4 * time.Minute)
			yield(llm.TextChunk("hi"), nil)
		})})
		r := s.chat(chatBody)
		assert.Equal(t, 200, r.StatusCode)
		assert.True(t, strings.HasPrefix(r.body, `{"id":"`), r.body)
	})
}

// A keep-alive sends the status, so that a later error can only be an event.
func TestKeepAlive_ErrorAfterItIsAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startPipeServer(t, config{
			opts: llmhttp.Options{Bounds: llmhttp.Bounds{KeepAlive: time.Second}},
			backend: streamBackend(func(_ context.Context, yield yieldFunc) {
				time.Sleep(1500 * time.Millisecond)
				yield(nil, llm.ModelNotFound("demo-chat"))
			}),
		})
		r := s.chat(streamBody)
		r.checkCut(t)
		want := errorBody("The model `demo-chat` does not exist or you do not have access to it.", "invalid_request_error", "", "model_not_found")
		assert.Equal(t, ": keep-alive\ndata: "+want+"\n\n", r.body)
	})
}

func TestKeepAlive_EndsWithTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startPipeServer(t, config{backend: streamBackend(func(ctx context.Context, _ yieldFunc) { <-ctx.Done() })})
		start := time.Now()
		r := s.chat(streamBody)
		assert.Equal(t, timeoutMessage, r.checkCut(t).Message)
		assert.Len(t, r.events(t), 1)
		assert.Equal(t, 5*time.Minute, time.Since(start).Round(time.Second))
		assert.Equal(t, 19, strings.Count(r.body, ": keep-alive\n"))
	})
}
