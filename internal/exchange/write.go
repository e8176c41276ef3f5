package exchange

import (
	"bytes"
	"errors"
	"net/http"
	"strconv"
	"time"
)

// maxWrite is how many bytes are written at once. Each piece of a large reply has the whole
// WriteTimeout, so a client must not stall.
const maxWrite = 32 << 10

// Values of headers, which replies share.
var (
	noCache     = []string{"no-cache, no-transform"}
	noBuffering = []string{"no"}
)

// Reply writes body as the whole reply. Before its last piece, without which the client cannot know
// that the request has ended, it calls release, unless that is nil. It does nothing if the request
// has ended. The goroutine of ServeHTTP calls Reply.
func (x *Exchange) Reply(status int, contentType string, body *Buffer, release func()) error {
	if release != nil && len(body.B) <= maxWrite { // there is nothing to write before it
		release()
		release = nil
	}
	if err := x.Cause(); err == ErrClientLeft {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.state == stateDone {
		return nil
	}
	now := time.Now()
	x.responder.SetHeaders(x.w.Header(), now)
	return x.writeReply(status, contentType, body, now, release)
}

// writeReply writes a whole reply whose other headers are set, as writeEnd does. now is the
// current time.
func (x *Exchange) writeReply(status int, contentType string, body *Buffer, now time.Time, release func()) error {
	x.setState(stateDone)
	x.status, x.firstWrite = status, now
	h := x.w.Header()
	x.contentType[0] = contentType
	h["Content-Type"] = x.contentType[:]
	x.contentLength[0] = strconv.Itoa(len(body.B))
	h["Content-Length"] = x.contentLength[:]
	if x.isHTTP1() && (!x.bodyRead || x.callRuns || x.exiting) {
		// Otherwise net/http would read the rest of the body before it sends the reply, or the
		// client's next request on this connection would wait until the call returns.
		h.Set("Connection", "close")
	}
	x.w.WriteHeader(status)
	return x.writeEnd(body, now, release)
}

// writeEnd writes and flushes the end of the reply, which is in buf. now is the current time.
//
// Before the last piece it calls release without mu, unless release is nil. By then buf has
// only that piece, so that a client that does not read it does not keep a large reply in
// memory. The time that release takes does not count toward the deadline.
func (x *Exchange) writeEnd(buf *Buffer, now time.Time, release func()) (err error) {
	state, complete := x.state, false
	x.setState(stateDone) // no other goroutine writes while mu is unlocked
	defer func() {
		if !complete { // also if a write panics
			x.setState(state)
		}
	}()
	x.conn.boundWrites(now, len(buf.B))
	if n := len(buf.B) - maxWrite; n > 0 {
		whole := &Buffer{buf.B}
		buf.B = bytes.Clone(whole.B[n:])
		err := x.writePieces(whole.B[:n], now)
		x.conn.endWrite()
		PutBuffer(whole)
		if err != nil {
			return err
		}
		now = time.Now()
	}
	defer func() { // also if release calls runtime.Goexit
		err = x.write(buf.B, now)
		complete = err == nil
	}()
	if release != nil {
		now = x.callUnlocked(release, now)
	}
	return nil
}

// callUnlocked calls f without mu. It returns the current time; now is the time of the call.
func (x *Exchange) callUnlocked(f func(), now time.Time) time.Time {
	x.mu.Unlock()
	defer x.mu.Lock()
	f()
	end := time.Now()
	x.conn.postponeBound(end.Sub(now))
	return end
}

// write writes and flushes p. It returns ErrClientLeft if that fails. now is the current time.
func (x *Exchange) write(p []byte, now time.Time) error {
	defer x.conn.endWrite()
	if err := x.writePieces(p, now); err != nil {
		return err
	}
	// net/http reports a write that missed its deadline only when it flushes.
	err := x.conn.ctl.Flush()
	if errors.Is(err, http.ErrNotSupported) {
		x.cannotFlush, err = true, nil
	}
	if err != nil {
		return x.failWrite()
	}
	return nil
}

// failWrite returns the error of a write that has failed.
func (x *Exchange) failWrite() error {
	x.life.writeFailed.Store(true)
	return ErrClientLeft
}

// writePieces writes p in pieces. It returns ErrClientLeft if that fails. now is the current
// time. The caller calls endWrite.
func (x *Exchange) writePieces(p []byte, now time.Time) error {
	for len(p) > 0 {
		x.conn.beginWrite(now)
		n := min(len(p), maxWrite)
		if _, err := x.w.Write(p[:n]); err != nil {
			return x.failWrite()
		}
		if p = p[n:]; len(p) > 0 {
			now = time.Now()
		}
	}
	return nil
}
