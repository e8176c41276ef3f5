// The network connection below a WebSocket.

package responsesws

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// A hijacker is a ResponseWriter whose hijacked connection is a socket.
type hijacker struct {
	http.ResponseWriter
	socket *socket
	err    error // why there is none
}

// Hijack implements [http.Hijacker].
func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffers, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		h.err = err
		return nil, nil, err
	}
	h.socket = &socket{Conn: conn, wrote: time.Now()}
	buffers.Writer.Reset(h.socket)
	return h.socket, buffers, nil
}

// A socket collects messages that are sent at the same time, so that they cost one write, and has deadlines of
// its own: a context of package websocket is done by closing the connection, and costs more for each message.
//
// While a write lasts long, what package websocket sends on its own, such as a pong, is put behind it: it would
// close the connection after five seconds, although the client has more time to read a message.
type socket struct {
	net.Conn

	readMu      sync.Mutex // guards the fields below
	readTimeout time.Duration
	closing     bool      // the deadline for reads is that of the closing handshake
	read        time.Time // when the last bytes came

	mu      sync.Mutex // guards the fields below
	state   socketState
	pending []byte
	spare   []byte    // an empty buffer that is used again
	wrote   time.Time // when the last write ended
}

// A socketState is what Write does.
type socketState int

const (
	passing    socketState = iota // writes
	collecting                    // appends to pending
	flushing                      // appends to pending what is short, because flush is writing
)

const (
	maxSpare   = 64 << 10 // the size of the largest buffer that is used again
	maxControl = 16 << 10 // how many bytes of control frames may wait for a write in progress
)

var errBacklog = errors.New("responsesws: the client sends and does not read")

// Write implements [net.Conn].
func (s *socket) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.state == passing:
		n, err := s.Conn.Write(p)
		s.wrote = time.Now()
		return n, err
	case s.state == flushing && len(s.pending)+len(p) > maxControl:
		return 0, errBacklog
	}
	s.pending = append(s.pending, p...)
	return len(p), nil
}

// collect makes Write keep what it gets until flush is called. Only one goroutine collects at a time.
func (s *socket) collect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state, s.pending, s.spare = collecting, s.spare, nil
}

// flush writes what was collected, and what has come meanwhile.
func (s *socket) flush() error {
	for {
		b := s.takePending()
		if b == nil {
			return nil
		}
		if _, err := s.Conn.Write(b); err != nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.state, s.pending = passing, nil
			return err
		}
		s.giveBack(b)
	}
}

// takePending returns the pending bytes, and ends collecting. If there are none, it returns nil and Write
// writes again.
func (s *socket) takePending() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.pending
	if len(b) == 0 {
		s.state, s.pending, s.wrote = passing, nil, time.Now()
		if b != nil && s.spare == nil {
			s.spare = b
		}
		return nil
	}
	s.state, s.pending = flushing, nil
	return b
}

func (s *socket) giveBack(b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cap(b) <= maxSpare {
		s.spare = b[:0]
	}
}

// silence returns for how long nothing was written. It is zero while a write is in progress.
func (s *socket) silence() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != passing {
		return 0
	}
	return time.Since(s.wrote)
}

// Read implements [net.Conn].
func (s *socket) Read(p []byte) (int, error) {
	s.readMu.Lock()
	if s.readTimeout > 0 && !s.closing {
		s.Conn.SetReadDeadline(time.Now().Add(s.readTimeout))
	}
	s.readMu.Unlock()
	n, err := s.Conn.Read(p)
	if n > 0 {
		s.readMu.Lock()
		s.read = time.Now()
		s.readMu.Unlock()
	}
	return n, err
}

// hasRead reports whether the client has sent something after t.
func (s *socket) hasRead(t time.Time) bool {
	s.readMu.Lock()
	defer s.readMu.Unlock()
	return s.read.After(t)
}

// setReadTimeout gives the client that time for each part of a message; zero for any time.
func (s *socket) setReadTimeout(d time.Duration) {
	s.readMu.Lock()
	defer s.readMu.Unlock()
	if d == 0 && s.readTimeout > 0 && !s.closing {
		s.Conn.SetReadDeadline(time.Time{})
	}
	s.readTimeout = d
}

// beginClosing bounds the time of all further reads together.
func (s *socket) beginClosing(d time.Duration) {
	s.readMu.Lock()
	defer s.readMu.Unlock()
	s.closing = true
	s.Conn.SetReadDeadline(time.Now().Add(d))
}

// A writeDeadline is the deadline of the writes of one request. Those of several requests share a socket.
type writeDeadline struct {
	mu   sync.Mutex // guards the fields below
	at   time.Time  // zero for none
	conn net.Conn   // of the write in progress; nil if there is none
	set  bool       // conn has a deadline
}

// change sets the deadline, also of a write in progress.
func (d *writeDeadline) change(at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at = at
	d.apply()
}

// begin applies the deadline to conn until end is called.
func (d *writeDeadline) begin(conn net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.conn = conn
	d.apply()
}

// end removes the deadline from the connection.
func (d *writeDeadline) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.set {
		d.conn.SetWriteDeadline(time.Time{})
	}
	d.conn, d.set = nil, false
}

func (d *writeDeadline) apply() {
	if d.conn != nil && (d.set || !d.at.IsZero()) {
		d.set = true
		d.conn.SetWriteDeadline(d.at)
	}
}
