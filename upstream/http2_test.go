package upstream

import (
	"crypto/tls"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
)

// A tunnel passes connections on to a server, until it is frozen: then nothing
// comes through those that there are, and nobody is told.
type tunnel struct {
	net.Listener
	to string

	mu     sync.Mutex
	conns  []net.Conn
	frozen chan struct{} // of the connections that there are
}

func (l *tunnel) serve() {
	for {
		in, err := l.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", l.to)
		if err != nil {
			in.Close()
			continue
		}
		l.mu.Lock()
		l.conns = append(l.conns, in, out)
		frozen := l.frozen
		l.mu.Unlock()
		go pass(in, out, frozen)
		go pass(out, in, frozen)
	}
}

// pass copies until it is frozen or one of the connections is closed.
func pass(to, from net.Conn, frozen chan struct{}) {
	buf := make([]byte, 4096)
	for {
		n, err := from.Read(buf)
		if err != nil {
			to.Close()
			return
		}
		select {
		case <-frozen:
		default:
			to.Write(buf[:n])
		}
	}
}

func (l *tunnel) freeze() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.frozen)
	l.frozen = make(chan struct{})
}

func (l *tunnel) close() {
	l.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		c.Close()
	}
}

// A connection of HTTP/2 that leads nowhere any more is noticed, and replaced,
// long before FirstByteTimeout. One on which a model thinks stays.
func TestDeadConnection(t *testing.T) {
	const silence = 2 * time.Second
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, 2, r.ProtoMajor)
		time.Sleep(2 * silence)
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, benchReply)
	}))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	u, err := url.Parse(srv.URL)
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := &tunnel{Listener: listener, to: u.Host, frozen: make(chan struct{})}
	go l.serve()
	defer l.close()

	b, err := New("https://"+l.Addr().String()+"/v1", &Options{SilenceTimeout: silence})
	require.NoError(t, err)
	defer b.CloseIdleConnections()
	b.owned[0].TLSClientConfig = &tls.Config{RootCAs: srv.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}
	ask := func() error {
		_, err := llmhttp.Collect(b.Chat(t.Context(), &llmhttp.ChatRequest{Model: "m"}))
		return err
	}
	require.NoError(t, ask(), "a server that thinks is not given up")
	l.freeze()
	began := time.Now()
	require.Error(t, ask())
	assert.Less(t, time.Since(began), time.Minute)
	require.NoError(t, ask(), "on a new connection")
}

// Timeouts that are meant as forever do not keep others from being heeded.
func TestTimeoutForever(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: "+benchChunk+"\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer srv.Close()
	b, err := New(srv.URL+"/v1", &Options{FirstByteTimeout: math.MaxInt64, SilenceTimeout: 50 * time.Millisecond})
	require.NoError(t, err)
	defer b.CloseIdleConnections()
	ended := make(chan error, 1)
	go func() {
		_, err := llmhttp.Collect(b.Chat(t.Context(), &llmhttp.ChatRequest{Model: "m", Stream: true}))
		ended <- err
	}()
	select {
	case err := <-ended:
		require.Error(t, err)
	case <-time.After(time.Minute):
		require.Fail(t, "the silence was not noticed")
	}
}
