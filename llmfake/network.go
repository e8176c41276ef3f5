// The networks of a Server: loopback, and pipes with net/http on both sides, so that HTTP is the same
// in a bubble of synctest.

package llmfake

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// A network serves a Server on one listener.
type network struct {
	listener  net.Listener
	server    *http.Server
	transport *anyHost // nil on the loopback interface
	done      chan struct{}
}

func startNetwork(s *Server, l net.Listener) *network {
	n := &network{
		listener: l,
		server: &http.Server{
			Handler:           s,
			ReadHeaderTimeout: time.Minute,
			ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
			BaseContext:       func(net.Listener) context.Context { return s.ctx },
		},
		done: make(chan struct{}),
	}
	if l, ok := l.(*pipeListener); ok {
		n.transport = &anyHost{&http.Transport{
			DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return l.dial(ctx) },
			DialTLSContext:     func(ctx context.Context, _, _ string) (net.Conn, error) { return l.dial(ctx) },
			DisableCompression: true,
		}}
	}
	go func() {
		defer close(n.done)
		if err := n.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("the server failed", "error", err)
		}
	}()
	return n
}

func (n *network) close() {
	n.server.Close()
	<-n.done
	if n.transport != nil {
		n.transport.base.CloseIdleConnections()
	}
}

// anyHost is a transport that ignores the part of a URL before /v1/.
type anyHost struct{ base *http.Transport }

func (t *anyHost) RoundTrip(r *http.Request) (*http.Response, error) {
	if i := strings.Index(r.URL.Path, "/v1/"); i > 0 && r.URL.RawPath == "" {
		r = r.Clone(r.Context())
		r.URL.Path = r.URL.Path[i:]
	}
	return t.base.RoundTrip(r)
}

func (t *anyHost) CloseIdleConnections() { t.base.CloseIdleConnections() }

// closedTransport is the transport of a Server that was closed.
type closedTransport struct{}

func (closedTransport) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errClosed
}

// A pipeListener accepts the connections that dial makes, which are in memory.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *pipeListener) dial(ctx context.Context) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.closed:
		return nil, errClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "llmfake", Net: "pipe"} }
