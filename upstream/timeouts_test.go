package upstream

import (
	"context"
	"crypto/tls"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
	"github.com/llmhttp/llmhttp/upstream/internal/client"
	"github.com/llmhttp/llmhttp/upstream/internal/failure"
)

// A scriptedTransport is a RoundTripper whose replies have the body that script writes.
type scriptedTransport struct {
	status int
	script func(w io.Writer)
}

func (s scriptedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	body, w := io.Pipe()
	stop := context.AfterFunc(r.Context(), func() { body.CloseWithError(r.Context().Err()) })
	go func() {
		defer stop()
		s.script(w)
		w.Close()
	}()
	return &http.Response{StatusCode: s.status, Header: http.Header{"Content-Type": {client.MediaJSON}, "Retry-After": {"7"}}, ContentLength: -1, Body: body}, nil
}

const benchEvent = "data: " + benchChunk + "\n\n"

func TestTimeouts_Phases(t *testing.T) {
	const (
		first = 5 * time.Minute // the defaults
		idle  = time.Minute
	)
	pause := func(d time.Duration) func(io.Writer) { return func(io.Writer) { time.Sleep(d) } }
	write := func(s string) func(io.Writer) { return func(w io.Writer) { io.WriteString(w, s) } }
	event, comment, done := write(benchEvent), write(": still there\n"), write("data: [DONE]\n\n")
	for name, test := range map[string]struct {
		opts   Options
		script []func(io.Writer)
		client time.Duration // how long the client takes for each chunk
		chunks int
		ends   time.Duration // after which time the server is found to be silent, if not zero
	}{
		"slow, but in time":          {Options{}, []func(io.Writer){pause(first - 1), event, pause(idle - 1), event, pause(idle - 1), done}, 0, 2, 0},
		"no first byte":              {Options{}, []func(io.Writer){pause(first + 1), event, done}, 0, 0, first},
		"silence":                    {Options{}, []func(io.Writer){event, pause(idle + 1), event, done}, 0, 1, idle},
		"silence within an event":    {Options{}, []func(io.Writer){event, write("data: {"), pause(idle + 1), done}, 0, 1, idle},
		"comments":                   {Options{}, []func(io.Writer){comment, pause(idle - 1), comment, pause(idle - 1), event, done}, 0, 1, 0},
		"slow client":                {Options{}, []func(io.Writer){event, event, done}, 2 * idle, 2, 0},
		"no timeouts":                {Options{FirstByteTimeout: -1, IdleTimeout: -1}, []func(io.Writer){pause(1000 * time.Hour), event, pause(1000 * time.Hour), event, done}, 0, 2, 0},
		"longest first timeout":      {Options{FirstByteTimeout: math.MaxInt64, IdleTimeout: time.Second}, []func(io.Writer){pause(first + 1), event, pause(time.Hour), done}, 0, 1, first + 1 + time.Second},
		"set timeouts":               {Options{FirstByteTimeout: time.Hour, IdleTimeout: 2 * time.Hour}, []func(io.Writer){pause(time.Hour - 1), event, pause(2*time.Hour - 1), event, done}, 0, 2, 0},
		"set timeouts, no reply":     {Options{FirstByteTimeout: time.Second, IdleTimeout: time.Hour}, []func(io.Writer){pause(time.Minute), event, done}, 0, 0, time.Second},
		"set timeouts, no 2nd event": {Options{FirstByteTimeout: time.Hour, IdleTimeout: time.Second}, []func(io.Writer){event, pause(time.Minute), event, done}, 0, 1, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				test.opts.Transport = scriptedTransport{200, func(w io.Writer) {
					for _, f := range test.script {
						f(w)
					}
				}}
				b, err := New("http://upstream.test/v1", &test.opts)
				require.NoError(t, err)
				began, chunks := time.Now(), 0
				for _, err = range b.Chat(t.Context(), &llm.ChatRequest{Model: "m", Stream: true}) {
					if err == nil {
						chunks++
						time.Sleep(test.client)
					}
				}
				assert.Equal(t, test.chunks, chunks)
				if test.ends == 0 {
					assert.NoError(t, err)
				} else {
					var e *llm.Error
					require.ErrorAs(t, err, &e)
					assert.Equal(t, http.StatusGatewayTimeout, e.Status)
					assert.ErrorIs(t, err, context.DeadlineExceeded)
					assert.Equal(t, test.ends, time.Since(began))
				}
				time.Sleep(2000 * time.Hour) // the script ends
			})
		})
	}
}

// If the body of an error is late or too large, the client gets an error with its status.
func TestTimeouts_BodyOfError(t *testing.T) {
	for name, script := range map[string]func(w io.Writer){
		"silence":           func(io.Writer) { time.Sleep(time.Hour) },
		"silence in a body": func(w io.Writer) { io.WriteString(w, `{"error":{"mess`); time.Sleep(time.Hour) },
		"slow body": func(w io.Writer) {
			for range 1000 {
				io.WriteString(w, " ")
				time.Sleep(time.Second)
			}
		},
		"large body": func(w io.Writer) {
			for range 2 * failure.MaxBody / 1024 {
				w.Write(make([]byte, 1024))
			}
		},
	} {
		for _, idle := range []time.Duration{time.Second, time.Minute, -1} {
			for status, message := range map[int]string{
				429: "Rate limit reached. Please try again later.",
				500: "The model's server had an error. Please try again.",
			} {
				t.Run(name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						b, err := New("http://upstream.test/v1", &Options{Transport: scriptedTransport{status, script}, IdleTimeout: idle})
						require.NoError(t, err)
						began := time.Now()
						_, err = join.Collect(b.Chat(t.Context(), &llm.ChatRequest{Model: "m"}))
						var e *llm.Error
						require.ErrorAs(t, err, &e)
						assert.Equal(t, message, e.Message)
						assert.Equal(t, 7*time.Second, e.RetryAfter)
						assert.LessOrEqual(t, time.Since(began), 5*time.Second)
						time.Sleep(2 * time.Hour) // the script ends
					})
				})
			}
		}
	}
}

// After [DONE], the connection is closed if the server does not end the reply.
func TestTimeouts_AfterDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var closed atomic.Int64
		b, err := New("http://upstream.test/v1", &Options{Transport: scriptedTransport{200, func(w io.Writer) {
			_, err := io.WriteString(w, benchEvent+"data: [DONE]\n\n")
			for err == nil {
				time.Sleep(100 * time.Millisecond)
				_, err = io.WriteString(w, ":")
			}
			closed.Store(int64(time.Since(began)))
		}}})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		for _, err := range b.Chat(ctx, &llm.ChatRequest{Model: "m", Stream: true}) {
			require.NoError(t, err)
		}
		cancel() // the reply is complete, so this has no effect
		assert.Zero(t, time.Since(began), "the client does not wait")
		time.Sleep(time.Minute)
		assert.InDelta(t, time.Second, time.Duration(closed.Load()), float64(100*time.Millisecond))
	})
}

// A pipeListener accepts connections of net.Pipe, which work in a synctest bubble.
type pipeListener struct {
	conns chan net.Conn
	ctx   context.Context // canceled when it is closed
	close context.CancelFunc
}

func (l pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.ctx.Done():
		return nil, net.ErrClosed
	}
}

func (l pipeListener) Close() error   { l.close(); return nil }
func (l pipeListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 443} }

// A frozenConn discards all writes after it is frozen.
type frozenConn struct {
	net.Conn
	frozen *atomic.Bool
}

func (c frozenConn) Write(p []byte) (int, error) {
	if c.frozen.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// Pings detect a lost HTTP/2 connection long before FirstByteTimeout, and it is replaced.
// A connection to a server that is silent but answers pings is kept.
func TestTimeouts_LostHTTP2Connection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const idle = 2 * time.Second
		ctx, cancel := context.WithCancel(t.Context())
		l := pipeListener{make(chan net.Conn), ctx, cancel}
		srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			assert.Equal(t, 2, r.ProtoMajor)
			time.Sleep(10 * idle)
			w.Header().Set("Content-Type", client.MediaJSON)
			io.WriteString(w, benchReply)
		}))
		srv.Listener.Close()
		srv.Listener = l
		srv.EnableHTTP2 = true
		srv.StartTLS()
		defer srv.Close()

		b, err := New(srv.URL+"/v1", &Options{IdleTimeout: idle})
		require.NoError(t, err)
		defer b.CloseIdleConnections()
		var dialed int
		frozen := new(atomic.Bool) // of the connection that was dialed last
		b.owned[0].TLSClientConfig = &tls.Config{RootCAs: srv.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs, ServerName: "example.com"}
		b.owned[0].DialContext = func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			l.conns <- server
			dialed++
			frozen = new(atomic.Bool)
			return frozenConn{client, frozen}, nil
		}
		ask := func() error {
			_, err := join.Collect(b.Chat(t.Context(), &llm.ChatRequest{Model: "m"}))
			return err
		}
		require.NoError(t, ask(), "a server that computes is not given up")
		require.NoError(t, ask())
		assert.Equal(t, 1, dialed)
		frozen.Store(true)
		began := time.Now()
		require.Error(t, ask())
		assert.LessOrEqual(t, time.Since(began), 2*idle)
		require.NoError(t, ask(), "on a new connection")
		assert.Equal(t, 2, dialed)
	})
}
