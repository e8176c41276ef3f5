package llmhttp_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp"
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
func TestLifetime_HostCancelsTheBaseContext(t *testing.T) {
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
						yield(llmhttp.TextChunk("one"), nil)
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
