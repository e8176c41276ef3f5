package upstream_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A rawServer accepts TCP connections and replies to HTTP requests with bytes
// that the test writes, valid or not.
type rawServer struct {
	listener net.Listener
	reply    func(c net.Conn, r *rawRequest)
	accepted atomic.Int64 // connections
	open     atomic.Int64 // connections that are not closed
	aborted  atomic.Int64 // connections that the client closed before the reply was complete

	mu       sync.Mutex // guards requests
	requests []*rawRequest
}

// A rawRequest is a request with its whole body.
type rawRequest struct {
	*http.Request
	n    int // the number of earlier requests to the server
	body string
}

// newRawServer starts a server that calls reply for each request. If reply does
// not close the connection, the server then reads the next request from it. At
// the end of the test, all connections must have been closed.
func newRawServer(t testing.TB, reply func(c net.Conn, r *rawRequest)) *rawServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &rawServer{listener: l, reply: reply}
	go s.serve()
	t.Cleanup(func() {
		l.Close()
		assert.Eventually(t, func() bool { return s.open.Load() == 0 }, testTimeout, 2*time.Millisecond, "connections left open")
	})
	return s
}

func (s *rawServer) url() string { return "http://" + s.listener.Addr().String() + "/v1" }

func (s *rawServer) serve() {
	for {
		c, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.accepted.Add(1)
		s.open.Add(1)
		go func() {
			defer s.open.Add(-1)
			defer c.Close()
			for in := bufio.NewReader(c); ; {
				r, err := s.readRequest(in)
				if err != nil {
					return
				}
				s.reply(c, r)
			}
		}()
	}
}

func (s *rawServer) readRequest(in *bufio.Reader) (*rawRequest, error) {
	r, err := http.ReadRequest(in)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	raw := &rawRequest{r, len(s.requests), string(body)}
	s.requests = append(s.requests, raw)
	return raw, nil
}

// received returns the requests that the server has received.
func (s *rawServer) received() []*rawRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// last returns the last request that the server has received.
func (s *rawServer) last() *rawRequest {
	list := s.received()
	return list[len(list)-1]
}

// hang waits until the client closes the connection.
func (s *rawServer) hang(c net.Conn) {
	io.Copy(io.Discard, c)
	s.aborted.Add(1)
	c.Close()
}

// writeReply writes a reply with a Content-Length. Each of headers is a line.
func writeReply(c net.Conn, status int, contentType, body string, headers ...string) {
	lines := append([]string{"Content-Type: " + contentType, fmt.Sprintf("Content-Length: %d", len(body))}, headers...)
	fmt.Fprintf(c, "HTTP/1.1 %d X\r\n%s\r\n\r\n%s", status, strings.Join(lines, "\r\n"), body)
}

// writeHead writes the header of a chunked reply, to be followed by calls of
// writePiece and one of writeEnd.
func writeHead(c net.Conn, contentType string) {
	fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: %s\r\nTransfer-Encoding: chunked\r\n\r\n", contentType)
}

func writePiece(c net.Conn, text string) error {
	_, err := fmt.Fprintf(c, "%x\r\n%s\r\n", len(text), text)
	return err
}

func writeEnd(c net.Conn) { io.WriteString(c, "0\r\n\r\n") }

// writeEvents writes a complete stream of events with the given data.
func writeEvents(c net.Conn, data ...string) {
	writeHead(c, mediaEvents)
	for _, d := range data {
		writePiece(c, eventStream(d))
	}
	writeEnd(c)
}
