// A connection: messages are read, and requests run one after the other or at once.

package responsesws

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/coder/websocket"
)

const (
	// pongTimeout is how long a client may take to answer a ping, or to send something else.
	pongTimeout = time.Minute

	// closeTimeout is how long a closing handshake may take.
	closeTimeout = 5 * time.Second

	// ownWriteTimeout is how long a client may take to read a message that is not of a request.
	ownWriteTimeout = 30 * time.Second

	// maxStreams is how many streams a connection may use: 32 with names, as OpenAI has it, and the one without.
	maxStreams = 32 + 1
)

// A connection is a WebSocket. The goroutine of ServeHTTP reads, and each request has a goroutine.
type connection struct {
	h       *Handler
	ws      *websocket.Conn
	socket  *socket
	upgrade *http.Request   // with the header that requests have
	ctx     context.Context // of requests; ends when the client has left, and when the host ends it
	cancel  context.CancelFunc
	left    context.Context // ends when the client has left
	leave   context.CancelFunc
	started sync.WaitGroup // goroutines besides that of ServeHTTP
	history history

	writeMu sync.Mutex // held while messages are written

	mu           sync.Mutex      // guards the fields below
	streams      map[string]bool // those that were used; the value is whether a request is in progress
	waiting      []*message      // in the order of their arrival
	waitingBytes int64
	active       int // requests in progress
	responses    int // of all time
	ending       *ending
	closed       bool // close was called
}

// An ending is why a connection gets no more requests, and how it is closed when none is in progress.
type ending struct {
	err    *apiError // for further requests
	tell   bool      // the client is told the error before the connection is closed
	code   websocket.StatusCode
	reason string
}

var (
	endDraining = &ending{errDraining, false, websocket.StatusGoingAway, "the server is shutting down"}
	endTooOld   = &ending{errTooOld, true, websocket.StatusNormalClosure, "maximum age of a connection"}
	endTooMany  = &ending{errTooMany, true, websocket.StatusNormalClosure, "maximum number of responses of a connection"}
)

func newConnection(h *Handler, ws *websocket.Conn, s *socket, r *http.Request) *connection {
	c := &connection{h: h, ws: ws, socket: s, upgrade: requestOf(r), streams: map[string]bool{"": false}}
	c.ctx, c.cancel = context.WithCancel(r.Context())
	c.left, c.leave = context.WithCancel(context.Background())
	return c
}

// serve returns when the connection is closed and its requests have ended.
func (c *connection) serve() {
	defer c.h.history.clear(&c.history) // after the requests, which may still add to it
	defer c.started.Wait()
	defer c.dismiss()
	c.h.add(c)
	defer c.h.remove(c)
	age := time.AfterFunc(c.h.opts.MaxAge, func() { c.end(endTooOld) })
	defer age.Stop()
	stop := context.AfterFunc(c.ctx, func() { c.end(endDraining) }) // the host ends it
	defer stop()
	if every := c.h.opts.KeepAlive; every != unbounded[time.Duration]() {
		c.started.Go(func() { c.keepAlive(every) })
	}
	for {
		data, err := c.read()
		if err != nil {
			return
		}
		if err := c.receive(data); err != nil {
			return
		}
	}
}

// dismiss ends everything after the client has left.
func (c *connection) dismiss() {
	c.mu.Lock()
	c.waiting, c.ending = nil, endDraining
	c.leave() // from here on, closeIfDone starts nothing
	c.mu.Unlock()
	c.cancel()
	c.socket.Close()
	_ = c.ws.CloseNow() // whatever its error, the socket is closed
}

var errRefused = errors.New("responsesws: the message was refused")

// read returns the next message.
func (c *connection) read() ([]byte, error) {
	c.socket.setReadTimeout(0)
	typ, r, err := c.ws.Reader(context.Background())
	if err != nil {
		return nil, err
	}
	if typ != websocket.MessageText {
		c.close(websocket.StatusUnsupportedData, "messages must be text")
		return nil, errRefused
	}
	c.socket.setReadTimeout(c.h.opts.ReadTimeout)
	limit := c.h.opts.MaxMessage
	if limit == unbounded[int64]() {
		return io.ReadAll(r)
	}
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(data)) > limit {
		_ = c.sendError(&apiError{
			status: http.StatusRequestEntityTooLarge, code: "message_too_large",
			message: fmt.Sprintf("The message is larger than the limit of %d bytes.", limit),
		}, "")
		c.close(websocket.StatusMessageTooBig, "message too large")
		return nil, errRefused
	}
	return data, err
}

// receive handles a message. It returns an error if the connection is broken.
func (c *connection) receive(data []byte) error {
	m, e := parseMessage(data)
	if e == nil {
		switch m.typ {
		case typeCreate:
			e = c.admit(m)
		case typeProcessed:
		default:
			e = badRequest("unknown_event_type", "type", "Messages of the type '%s' are not supported. Use '%s'.", shorten(m.typ), typeCreate)
		}
	}
	if e != nil {
		return c.sendError(e, m.streamID)
	}
	return nil
}

// shorten bounds a text of a client that an error repeats.
func shorten(s string) string { return s[:min(len(s), 100)] }

// admit starts a request for m, or makes it wait.
func (c *connection) admit(m *message) *apiError {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ending != nil {
		return c.ending.err
	}
	_, used := c.streams[m.streamID]
	if !used && len(c.streams) >= maxStreams {
		return badRequest("websocket_stream_limit_reached", "stream_id", "This WebSocket connection has reached its maximum number "+
			"of distinct stream IDs (%d). Reuse an existing stream_id or open a new WebSocket connection.", maxStreams-1)
	}
	if !c.canStart(m) && (len(c.waiting) >= c.h.opts.MaxWaiting || c.waitingBytes+int64(m.size) > c.h.opts.MaxMessage) {
		return &apiError{
			status: http.StatusTooManyRequests, code: "websocket_queue_full",
			message: "Too many requests wait on this WebSocket. Send more when a response has ended.",
		}
	}
	if c.responses++; c.responses >= c.h.opts.MaxResponses {
		c.ending = endTooMany
	}
	if !used {
		c.streams[m.streamID] = false
	}
	c.waiting = append(c.waiting, m)
	c.waitingBytes += int64(m.size)
	c.start()
	return nil
}

// canStart reports whether m does not have to wait.
func (c *connection) canStart(m *message) bool {
	return c.active < c.h.opts.MaxActive && !c.streams[m.streamID]
}

// start starts the requests that do not have to wait any more.
func (c *connection) start() {
	c.waiting = slices.DeleteFunc(c.waiting, func(m *message) bool {
		if !c.canStart(m) {
			return false
		}
		c.active++
		c.streams[m.streamID] = true
		c.waitingBytes -= int64(m.size)
		c.started.Go(func() {
			defer c.ended(m) // also after runtime.Goexit
			c.serveMessage(m)
		})
		return true
	})
}

// ended starts what has waited for the request for m, or closes the connection.
func (c *connection) ended(m *message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active--
	c.streams[m.streamID] = false
	c.start()
	c.closeIfDone()
}

// end makes the connection take no more requests, and closes it when none is in progress.
func (c *connection) end(e *ending) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ending == nil {
		c.ending = e
	}
	c.closeIfDone()
}

// closeIfDone closes the connection if it takes no more requests and none is in progress.
func (c *connection) closeIfDone() {
	e := c.ending
	if e == nil || c.active > 0 || len(c.waiting) > 0 || c.closed || c.left.Err() != nil {
		return
	}
	c.closed = true
	c.started.Go(func() {
		if e.tell {
			_ = c.sendError(e.err, "") // the connection is closed anyway
		}
		c.close(e.code, e.reason)
	})
}

// close closes the connection by a handshake.
func (c *connection) close(code websocket.StatusCode, reason string) {
	c.socket.beginClosing(closeTimeout)
	_ = c.ws.Close(code, reason) // whatever its error, the connection is closed
}

// keepAlive sends a ping whenever the connection is silent for that long.
func (c *connection) keepAlive(every time.Duration) {
	timer := time.NewTimer(every)
	defer timer.Stop()
	for {
		select {
		case <-c.left.Done():
			return
		case <-timer.C:
		}
		if silence := c.socket.silence(); silence < every {
			timer.Reset(every - silence)
			continue
		}
		pinged := time.Now()
		ctx, cancel := context.WithTimeout(c.left, pongTimeout)
		err := c.ws.Ping(ctx)
		cancel()
		// In the middle of a message a client cannot answer. ReadTimeout bounds its pauses.
		if err != nil && !c.socket.hasRead(pinged) {
			c.socket.Close() // the read fails
			return
		}
		timer.Reset(every)
	}
}

// sendError sends an error that is none of a request.
func (c *connection) sendError(e *apiError, streamID string) error {
	return c.send(errorMessage(e.status, mustMarshal(e), nil, streamID))
}

// send sends messages that are none of a request.
func (c *connection) send(messages ...[]byte) error {
	deadline := &writeDeadline{at: time.Now().Add(ownWriteTimeout)}
	return c.write(deadline, func() error {
		for _, m := range messages {
			if err := c.writeMessage(m); err != nil {
				return err
			}
		}
		return nil
	})
}

// write sends the messages for which f calls writeMessage, at once. If that fails, the connection is broken.
func (c *connection) write(deadline *writeDeadline, f func() error) error {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	c.socket.collect()
	err := f()
	deadline.begin(c.socket.Conn)
	defer deadline.end()
	if flushed := c.socket.flush(); err == nil {
		err = flushed
	}
	if err != nil {
		c.socket.Close() // the read fails
	}
	return err
}

// writeMessage writes a message for write. It does not wait: the socket collects.
func (c *connection) writeMessage(m []byte) error {
	return c.ws.Write(context.Background(), websocket.MessageText, m)
}
