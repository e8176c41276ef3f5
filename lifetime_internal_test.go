package llmhttp

import (
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// A connectedWriter is the ResponseWriter of a client that does not leave.
type connectedWriter struct{ *httptest.ResponseRecorder }

func (connectedWriter) CloseNotify() <-chan bool { return make(chan bool) }

// While the Handler finds out whether a client has left or the host has cancelled the
// request, it holds no lock that a Backend or another goroutine may wait for.
func TestLifetime_NoLockIsHeldWhileTheDepartureOfAClientIsAwaited(t *testing.T) {
	const canceled, waiting = time.Second, 100 * time.Millisecond // less than departureGrace
	for name, test := range map[string]struct {
		timeout   time.Duration
		interrupt bool
		backend   func() error
		want      int
	}{
		"the Backend fails":          {time.Hour, false, func() error { return errors.New("failed") }, 503},
		"the Backend is silent":      {canceled, false, func() error { time.Sleep(time.Second); return nil }, 504},
		"the request is interrupted": {time.Hour, true, func() error { time.Sleep(time.Second); return nil }, 503},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				probed := false
				h := NewHandler(BackendFunc(func(ctx context.Context, _ *ChatRequest) ChatStream {
					return func(yield func(*ChatChunk, error) bool) {
						q := requestFrom(ctx)
						time.AfterFunc(canceled+waiting, func() {
							probed = true
							if assert.True(t, q.res.mu.TryLock(), "response.mu") {
								q.res.mu.Unlock()
							}
							if assert.True(t, q.life.mu.TryLock(), "lifetime.mu") {
								q.life.mu.Unlock()
							}
						})
						time.Sleep(canceled)
						if test.interrupt {
							go q.failures.interrupt(errShutdown)
						}
						if err := test.backend(); err != nil {
							yield(nil, err)
						}
					}
				}), AllowAll("a"), &Options{Timeout: test.timeout, Logger: slog.New(slog.DiscardHandler)})
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(canceled-1, cancel)
				r := httptest.NewRequestWithContext(ctx, "POST", "/v1/chat/completions", strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"hi"}]}`))
				r.Header.Set("Content-Type", "application/json")
				w := connectedWriter{httptest.NewRecorder()}
				h.ServeHTTP(w, r)
				assert.Equal(t, test.want, w.Code)
				assert.True(t, probed)
			})
		})
	}
}

// A request that ends while another goroutine finds that out does not wait for it.
func TestLifetime_EndsWhileTheDepartureOfAClientIsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		l := new(lifetime)
		l.start(connectedWriter{}, ctx, nil)
		byHost := make(chan bool)
		go func() { byHost <- l.canceledByHost() }()
		synctest.Wait()
		start := time.Now()
		l.finish()
		assert.False(t, <-byHost, "it is not known")
		assert.False(t, l.canceledByHost())
		assert.Zero(t, time.Since(start))
	})
}
