package llmhttp_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/usagebuffer"
)

// A drainBackend has models whose streams end in different ways.
type drainBackend struct {
	release chan struct{} // closed to end the streams of the model deaf
}

func (b *drainBackend) Chat(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
	return func(yield func(*llm.ChatChunk, error) bool) {
		if !yield(llm.TextChunk("one "), nil) {
			return
		}
		switch req.Model {
		case "slow": // until it is interrupted
			<-ctx.Done()
			yield(nil, ctx.Err())
		case "deaf": // ignores the interruption
			<-b.release
		case "endless": // more than a client can have unread
			for yield(llm.TextChunk(strings.Repeat("x", 64<<10)), nil) {
			}
		case "brief":
			time.Sleep(3 * time.Second)
			yield(llm.TextChunk("two"), nil)
		}
	}
}

func withModel(body, model string) string { return strings.Replace(body, "demo-chat", model, 1) }

// A serving is a call of Serve in progress.
type serving struct {
	*testServer
	stop  context.CancelFunc
	began time.Time // when stop was called
	ended chan error
}

// startServing calls Serve with a buffer that writes nothing before it is closed.
func startServing(t *testing.T, c config, opts llmhttp.ServeOptions, listeners ...net.Listener) *serving {
	if c.usage == nil {
		c.usage = new(usageLog)
	}
	buffer := usagebuffer.New(c.usage, &usagebuffer.Options{BatchSize: 1000, Delay: time.Hour})
	opts.Usage, c.opts.Usage = buffer, buffer
	s := &serving{testServer: newHandler(t, c), ended: make(chan error, 1)}
	s.client = &http.Client{Transport: &http.Transport{}}
	t.Cleanup(s.client.CloseIdleConnections)
	server := new(http.Server)
	s.setUp(server)
	ctx, stop := context.WithCancel(t.Context())
	s.stop = func() { s.began = time.Now(); stop() }
	t.Cleanup(stop)
	go func() { s.ended <- llmhttp.Serve(ctx, server, s.handler, &opts, listeners...) }()
	return s
}

// startPipeServing is startServing in a synctest bubble. The client uses a listener of its
// own beside others.
func startPipeServing(t *testing.T, c config, opts llmhttp.ServeOptions, others ...net.Listener) *serving {
	l := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	s := startServing(t, c, opts, append(others, l)...)
	s.inBubble, s.url, s.connect = true, "http://pipe", l.dial
	s.client.Transport.(*http.Transport).DialContext = func(context.Context, string, string) (net.Conn, error) { return l.dial() }
	return s
}

// takes waits for the end of Serve and checks how long it took after stop.
func (s *serving) takes(want time.Duration) error {
	s.t.Helper()
	err := <-s.ended
	took := time.Since(s.began)
	assert.GreaterOrEqual(s.t, took, want)
	assert.Less(s.t, took, want+time.Second, "net/http looks for idle connections twice a second")
	return err
}

// With clients that do not read and streams that do not end, Serve closes the listeners at
// once, and the records of all requests reach the store.
func TestServe_LosesNothing(t *testing.T) {
	backend := &drainBackend{release: make(chan struct{})}
	free := sync.OnceFunc(func() { close(backend.release) })
	defer free()
	var listeners []net.Listener
	for range 2 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		listeners = append(listeners, l)
	}
	s := startServing(t, config{backend: backend}, llmhttp.ServeOptions{DrainTimeout: time.Millisecond}, listeners...)
	for i := range 6 {
		s.url = "http://" + listeners[i%2].Addr().String()
		s.chat(streamBody).checkText(t, "one ")
	}
	slow, err := s.open(t.Context(), "POST", chatPath, withModel(streamBody, "slow"))
	require.NoError(t, err)
	deaf, err := s.open(t.Context(), "POST", chatPath, withModel(streamBody, "deaf"))
	require.NoError(t, err)
	defer deaf.Body.Close()
	stuck, err := net.Dial("tcp", listeners[0].Addr().String())
	require.NoError(t, err)
	defer stuck.Close()
	_, err = io.WriteString(stuck, rawPost("HTTP/1.1", chatPath, withModel(streamBody, "endless")))
	require.NoError(t, err)
	_, err = stuck.Read(make([]byte, 1))
	require.NoError(t, err)

	s.stop()
	for _, l := range listeners {
		waitFor(t, "the end of "+l.Addr().String(), func() bool {
			c, err := net.Dial("tcp", l.Addr().String())
			if err == nil {
				c.Close()
			}
			return err != nil
		})
	}
	assert.Empty(t, s.ended, "no new connection is accepted while requests are in progress")
	assert.Equal(t, shutdownMessage, readReply(slow).checkCut(t).Message)
	assert.EqualError(t, receive(t, "Serve", s.ended), "llmhttp: 1 requests have not ended: their Backends ignore the context")
	assert.Len(t, s.buffered(), 8)
	free()
	waitFor(t, "the last record", func() bool { return len(s.buffered()) == 9 })
	assert.Contains(t, s.log.String(), `"level":"WARN","msg":"requests were interrupted","count":3`)
}

// buffered returns the records that the buffer has written.
func (s *serving) buffered() []llmhttp.UsageRecord { return s.usage.records() }

func TestServe_WithoutRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startPipeServing(t, config{}, llmhttp.ServeOptions{DrainTimeout: -1, FlushTimeout: -1})
		s.stop()
		require.NoError(t, s.takes(0))
	})
}

// Before the delay has passed, requests are served. After it, those in progress go on.
func TestServe_Delay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startPipeServing(t, config{backend: new(drainBackend)}, llmhttp.ServeOptions{Delay: 5 * time.Second})
		s.stop()
		time.Sleep(5*time.Second - 1)
		brief := s.begin("POST", chatPath, withModel(streamBody, "brief"))
		synctest.Wait()
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		_, err := s.connect()
		require.ErrorIs(t, err, net.ErrClosed)
		require.NoError(t, s.takes(8*time.Second))
		(<-brief).checkText(t, "one two")
		assert.Len(t, s.buffered(), 1)
	})
}

func TestServe_DrainTimeout(t *testing.T) {
	for name, c := range map[string]struct {
		timeout, want time.Duration
		model         string
		cut           bool
	}{
		"the default":                   {0, 10 * time.Second, "slow", true},
		"a timeout":                     {time.Minute, time.Minute, "slow", true},
		"the longest timeout":           {1<<63 - 1, 3 * time.Second, "brief", false},
		"none":                          {-1, 3 * time.Second, "brief", false},
		"a request that ends before it": {time.Minute, 3 * time.Second, "brief", false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := startPipeServing(t, config{backend: new(drainBackend)}, llmhttp.ServeOptions{DrainTimeout: c.timeout})
				stream := s.begin("POST", chatPath, withModel(streamBody, c.model))
				synctest.Wait()
				s.stop()
				require.NoError(t, s.takes(c.want))
				if c.cut {
					assert.Equal(t, shutdownMessage, (<-stream).checkCut(t).Message)
				} else {
					(<-stream).checkText(t, "one two")
				}
				assert.Equal(t, c.cut, strings.Contains(s.log.String(), "requests were interrupted"))
				assert.Len(t, s.buffered(), 1)
			})
		})
	}
}

// Other parts of the server have the same time as the Handler.
func TestServe_OtherHandlers(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{9 * time.Second: 9 * time.Second, time.Hour: 12 * time.Second} {
		t.Run(took.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := startPipeServing(t, config{wrap: func(h http.Handler) http.Handler {
					mux := http.NewServeMux()
					mux.Handle("/", h)
					mux.HandleFunc("/report", func(w http.ResponseWriter, r *http.Request) {
						select {
						case <-time.After(took):
							fmt.Fprint(w, "done")
						case <-r.Context().Done():
						}
					})
					return mux
				}}, llmhttp.ServeOptions{})
				body := make(chan string, 1)
				go func() {
					res, err := s.open(t.Context(), "GET", "/report", "")
					if err != nil {
						body <- ""
						return
					}
					body <- readReply(res).body
				}()
				synctest.Wait()
				s.stop()
				require.NoError(t, s.takes(want))
				assert.Equal(t, map[bool]string{true: "done"}[took == want], <-body)
			})
		})
	}
}

// The buffer has a context of its own, with a timeout of its own.
func TestServe_FlushTimeout(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{0: 5 * time.Second, time.Second: time.Second, -1: 20 * time.Second} {
		t.Run(timeout.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				usage := &usageLog{before: func(ctx context.Context) error {
					select {
					case <-ctx.Done():
						return ctx.Err()
					case <-time.After(20 * time.Second):
						return nil
					}
				}}
				s := startPipeServing(t, config{usage: usage, backend: new(drainBackend)}, llmhttp.ServeOptions{FlushTimeout: timeout})
				s.chat(chatBody)
				s.stop()
				err := s.takes(want)
				if timeout < 0 {
					require.NoError(t, err)
					return
				}
				require.ErrorIs(t, err, context.DeadlineExceeded)
				assert.ErrorContains(t, err, "usagebuffer: 1 usage records not stored")
			})
		})
	}
}

// If one listener fails, Serve drains the requests on the others, without Delay.
func TestServe_ListenerFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failing := &failingListener{fail: make(chan struct{})}
		s := startPipeServing(t, config{backend: new(drainBackend)}, llmhttp.ServeOptions{Delay: time.Hour}, failing)
		brief := s.begin("POST", chatPath, withModel(streamBody, "brief"))
		synctest.Wait()
		s.began = time.Now()
		close(failing.fail)
		require.ErrorIs(t, s.takes(3*time.Second), errListener)
		(<-brief).checkText(t, "one two")
		assert.Len(t, s.buffered(), 1)
	})
}

// A listener that fails during the delay ends it.
func TestServe_ListenerFailsDuringTheDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failing := &failingListener{fail: make(chan struct{})}
		s := startPipeServing(t, config{}, llmhttp.ServeOptions{Delay: time.Hour}, failing)
		s.stop()
		time.Sleep(time.Minute)
		close(failing.fail)
		require.ErrorIs(t, s.takes(time.Minute), errListener)
	})
}

var errListener = errors.New("the listener failed")

// A failingListener accepts nothing, and fails when told to.
type failingListener struct {
	pipeListener // for Addr
	fail         chan struct{}
}

func (l *failingListener) Accept() (net.Conn, error) {
	<-l.fail
	return nil, errListener
}

func (l *failingListener) Close() error { return nil }

// Without listeners, Serve listens on the address of the server. If it cannot, the buffer
// is closed all the same.
func TestServe_Address(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	s := startServing(t, config{server: func(srv *http.Server) { srv.Addr = taken.Addr().String() }}, llmhttp.ServeOptions{})
	assert.ErrorContains(t, receive(t, "Serve", s.ended), "address already in use")

	addr := freeAddress(t)
	s = startServing(t, config{server: func(srv *http.Server) { srv.Addr = addr }}, llmhttp.ServeOptions{})
	s.url = "http://" + addr
	waitFor(t, "the server", func() bool {
		res, err := s.open(t.Context(), "POST", chatPath, chatBody)
		return err == nil && readReply(res).StatusCode == 200
	})
	s.stop()
	require.NoError(t, receive(t, "Serve", s.ended))
	assert.Len(t, s.buffered(), 1)
}

// A listener with TLS offers HTTP/2.
func TestServe_TLS(t *testing.T) {
	certificates := httptest.NewUnstartedServer(nil)
	certificates.EnableHTTP2 = true
	certificates.StartTLS()
	defer certificates.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := startServing(t, config{}, llmhttp.ServeOptions{}, tls.NewListener(l, certificates.TLS))
	s.client, s.url = certificates.Client(), "https://"+l.Addr().String()
	assert.Equal(t, 2, s.chat(chatBody).ProtoMajor)
	s.stop()
	require.NoError(t, receive(t, "Serve", s.ended))
	assert.Len(t, s.buffered(), 1)
}

// A context that is done before Serve is called ends it.
func TestServe_ContextIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
		h := llmhttp.NewHandler(new(stubBackend), llmhttp.AllowAll("a"), nil)
		require.NoError(t, llmhttp.Serve(done(t), new(http.Server), h, nil, l))
		_, err := l.dial()
		require.ErrorIs(t, err, net.ErrClosed)
	})
}

func TestServe_Panics(t *testing.T) {
	h := llmhttp.NewHandler(new(stubBackend), llmhttp.AllowAll("a"), nil)
	assert.Panics(t, func() { llmhttp.Serve(t.Context(), nil, h, nil) })
	assert.Panics(t, func() { llmhttp.Serve(t.Context(), new(http.Server), nil, nil) })
}

// A closingStore is a store of a host with a method Close.
type closingStore struct {
	*usageLog
	closed *atomic.Int64
}

func (s closingStore) Close(context.Context) error {
	s.closed.Add(1)
	return errCause
}

// Serve closes any store that has a method for it, also behind a wrapper, and none in its place.
func TestServe_ClosesTheStore(t *testing.T) {
	var closed, other atomic.Int64
	store := closingStore{new(usageLog), &closed}
	for name, test := range map[string]struct {
		usage     llmhttp.UsageStore
		opts      *llmhttp.ServeOptions
		closed    int64
		wantOther int64
	}{
		"the store":         {store, nil, 1, 0},
		"a wrapper":         {wrappedStore{store}, &llmhttp.ServeOptions{}, 1, 0},
		"that of the opts":  {store, &llmhttp.ServeOptions{Usage: closingStore{nil, &other}}, 0, 1},
		"a nil one in opts": {store, &llmhttp.ServeOptions{Usage: (*usagebuffer.Buffer)(nil)}, 1, 0},
		"no such method":    {new(usageLog), &llmhttp.ServeOptions{Usage: (*usagebuffer.Buffer)(nil)}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			closed.Store(0)
			other.Store(0)
			h := llmhttp.NewHandler(new(drainBackend), llmhttp.AllowAll("acme"), &llmhttp.Options{Usage: test.usage})
			ctx, stop := context.WithCancel(t.Context())
			stop()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			err = llmhttp.Serve(ctx, &http.Server{Handler: h}, h, test.opts, l)
			assert.Equal(t, test.closed, closed.Load())
			assert.Equal(t, test.wantOther, other.Load())
			assert.Equal(t, test.closed+test.wantOther > 0, errors.Is(err, errCause), "%v", err)
		})
	}
}
