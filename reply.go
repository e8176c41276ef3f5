package llmhttp

import (
	"net/http"
	"time"
)

// reply writes a whole reply.
func (x *exchange) reply(v any) error {
	x.release() // before the client can know
	buf := getBuffer(1 << 10)
	defer putBuffer(buf)
	var err error
	if r, ok := v.(*ChatResponse); ok {
		buf.b, err = appendReply(buf.b, r)
	} else {
		buf.b, err = appendJSON(buf.b, v)
	}
	if err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.dead {
		return nil
	}
	if x.cause() == errGone {
		return errGone
	}
	x.phase, x.status = replied, http.StatusOK
	x.writeHeaders()
	if len(buf.b) < netBuffer {
		writeHead(x.w, http.StatusOK, -1, &x.headers)
		if !x.hasDeadline() {
			if _, err := x.w.Write(buf.b); err != nil {
				return errGone
			}
			return nil
		}
	} else {
		writeHead(x.w, http.StatusOK, len(buf.b), &x.headers)
	}
	if err := x.write(buf.b, time.Since(x.arrived)); err != nil {
		return errGone
	}
	return nil
}

// netBuffer is how much of a reply net/http keeps until the handler has
// returned. Of a shorter one it tells the length itself, and writes it when a
// deadline of ours is lifted already.
const netBuffer = 2 << 10

// hasDeadline reports whether the server may have set a deadline of writes when
// the request came.
func (x *exchange) hasDeadline() bool {
	s := x.server()
	return s == nil || s.WriteTimeout > 0
}

// server returns the server that the request came to, or nil if it is not one
// of net/http's.
func (x *exchange) server() *http.Server {
	s, _ := x.r.Context().Value(http.ServerContextKey).(*http.Server)
	return s
}

// pieceSize is how much is written at once: a large reply is given its time
// piece by piece, so that a client may be slow, but not stand still.
const pieceSize = 32 << 10

// write writes p. It is called with mu held.
func (x *exchange) write(p []byte, now time.Duration) error {
	for {
		x.allowWrite(now)
		piece := p[:min(len(p), pieceSize)]
		if _, err := x.w.Write(piece); err != nil {
			return err
		}
		if p = p[len(piece):]; len(p) == 0 {
			return nil
		}
		now = time.Since(x.arrived)
	}
}

// allowWrite gives a write its time: at least WriteTimeout, and at most half as
// much again, since setting a deadline costs as much as a tenth of a write.
func (x *exchange) allowWrite(now time.Duration) {
	d := x.h.opts.WriteTimeout
	if x.r.ProtoMajor < 2 && x.watch.until >= now+d {
		return
	}
	x.watch.until = time.Since(x.arrived) + d + d/2
	x.setWriteDeadline(x.arrived.Add(x.watch.until))
}

// allowLastWrite sets the deadline of what net/http writes when the Handler has
// returned, if there is one of ours. On HTTP/2 it is the stream's own, and what
// was written may still be on its way.
func (x *exchange) allowLastWrite() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.watch.until == 0 || x.abort || x.r.ProtoMajor >= 2 {
		return
	}
	var last time.Time
	if s := x.server(); s != nil && s.WriteTimeout > 0 {
		// The next request of the connection gets another. Without, ours would
		// be that of other handlers.
		last = time.Now().Add(x.h.opts.WriteTimeout)
	}
	x.setWriteDeadline(last)
}

// setWriteDeadline sets the deadline of writes, best effort: not every wrapper
// of a ResponseWriter can. It is called with mu held.
func (x *exchange) setWriteDeadline(t time.Time) {
	if w, ok := x.w.(interface{ SetWriteDeadline(time.Time) error }); ok {
		w.SetWriteDeadline(t) // net/http's own needs no controller
		return
	}
	x.control().SetWriteDeadline(t)
}

// flush sends what was written. It is called with mu held.
func (x *exchange) flush() error {
	if w, ok := x.w.(interface{ FlushError() error }); ok {
		return w.FlushError() // net/http's own needs no controller
	}
	return x.control().Flush()
}

// control returns what flushes and sets deadlines. It is called with mu held.
func (x *exchange) control() *http.ResponseController {
	if x.rc == nil {
		x.rc = http.NewResponseController(x.w)
	}
	return x.rc
}
