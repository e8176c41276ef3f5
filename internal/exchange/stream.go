package exchange

import (
	"net/http"
	"time"
)

const (
	// burstGap is how long the caller of Receive takes at most for bytes that count as ready at
	// the same time as those before. Such bytes share writes. A write is most of what a chunk
	// costs (budget: stream, chunks ready at once).
	burstGap = 50 * time.Microsecond

	// maxPending is how many bytes may wait for a shared write. For net/http a few large
	// writes are cheaper than many small ones.
	maxPending = 31 << 10
)

// StreamFormat tells how the format of a stream begins, lives and ends.
type StreamFormat struct {
	ContentType string
	KeepAlive   string // written to a stream that is silent; empty if nothing may be
	StartsEarly bool   // clients wait for the start of the stream: it is sent after a second of silence
	EndsCleanly bool   // a stream that fails has an end of its own; if false, the connection is cut
}

// A Source makes the bytes of a stream. Its methods may be called by several goroutines, but
// not concurrently, and neither while a function that Receive, Produce or EndStream has got
// runs.
type Source interface {
	// AppendStart appends the start of the stream, unless that was appended before. It is only
	// called for a stream that starts early.
	AppendStart(b []byte) []byte

	// HasStarted reports whether the start was appended.
	HasStarted() bool

	// AppendFailure appends the end of a stream that failed with err.
	AppendFailure(b []byte, err error) []byte
}

// A stream is a reply that is written while it is made.
//
// The bytes that Receive gets are written before it returns, unless they come in a burst: then
// the first of them starts a goroutine that writes all pending bytes as soon as it runs, which
// is at the latest when the caller of Receive pauses.
type stream struct {
	framing        StreamFormat
	source         Source
	pending        *Buffer // bytes that wait to be written; nil if none do
	burstScheduled bool    // writeBurst is about to run
	writeErr       error   // a write failed
	buffered       bool    // CannotFlush was logged
}

// startIsDue reports whether the stream starts early and has not started.
func (s *stream) startIsDue() bool { return s.framing.StartsEarly && !s.source.HasStarted() }

// buffer returns the buffer of pending bytes, and gets one if there is none.
func (s *stream) buffer() *Buffer {
	if s.pending == nil {
		s.pending = GetBuffer(1 << 10)
	}
	return s.pending
}

// takePending returns the pending bytes, which are no longer pending.
func (s *stream) takePending() *Buffer {
	buf := s.buffer()
	s.pending = nil
	return buf
}

// dropEmpty gives an empty buffer back: an idle stream has none (budget: idle stream).
func (s *stream) dropEmpty() {
	if s.pending != nil && len(s.pending.B) == 0 {
		PutBuffer(s.takePending())
	}
}

// BeginStream makes the reply a stream. The goroutine of ServeHTTP calls it before the
// first BeginCall.
func (x *Exchange) BeginStream(f StreamFormat, source Source) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.stream = &stream{framing: f, source: source}
}

// SetContentType changes the Content-Type of a stream. It has no effect if the header was written.
func (x *Exchange) SetContentType(s string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.stream != nil {
		x.stream.framing.ContentType = s
	}
}

// Receive notes that the call makes progress, and calls f with the pending bytes of the
// stream, or with nil if the reply is none. Then it writes the bytes, or leaves them to a
// write with those of the next call, if calls come in a burst. It returns the error of f, or
// why the request has ended. f gets the current time and must not call methods of x.
func (x *Exchange) Receive(f func(now time.Time, out *Buffer) error) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.state == stateDone {
		return x.err
	}
	now := time.Now()
	waited := x.noteProgress(now)
	if x.stream == nil {
		return f(now, nil)
	}
	if err := x.produce(now, f); err != nil {
		return err
	}
	return x.push(now, waited)
}

// Produce calls f as Receive does. What f appends is not written yet, and no progress.
func (x *Exchange) Produce(f func(now time.Time, out *Buffer) error) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.state == stateDone {
		return x.err
	}
	if x.stream == nil {
		return f(time.Now(), nil)
	}
	return x.produce(time.Now(), f)
}

// produce calls f with the pending bytes.
func (x *Exchange) produce(now time.Time, f func(now time.Time, out *Buffer) error) error {
	defer x.stream.dropEmpty() // what f has appended before an error or a panic remains
	return f(now, x.stream.buffer())
}

// push writes the pending bytes. In a burst it leaves them to writeBurst. now is when the last
// of them arrived, and waited how long Receive was not called before.
func (x *Exchange) push(now time.Time, waited time.Duration) error {
	s := x.stream
	switch {
	case s.writeErr != nil:
		return s.writeErr
	case s.pending == nil:
		return nil
	case x.state == stateStreaming && waited < burstGap && len(s.pending.B) < maxPending:
		if !s.burstScheduled {
			s.burstScheduled = true
			go x.writeBurst()
		}
		return nil
	}
	err := x.writePending(now)
	// Meanwhile the caller of Receive could not go on: a slow client is no silence.
	x.noteProgress(time.Now())
	return err
}

// writeBurst writes the pending bytes, on a goroutine of its own.
func (x *Exchange) writeBurst() {
	defer func() {
		if p := recover(); p != nil {
			x.responder.Recovered(WriterPanicked, p)
		}
	}()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.stream.burstScheduled = false
	if x.state == stateStreaming && x.stream.pending != nil {
		x.writePending(time.Now())
		x.noteProgress(time.Now())
	}
}

// writePending writes the pending bytes. If that fails, the client has left. now is the
// current time.
func (x *Exchange) writePending(now time.Time) error {
	if err := x.startStream(now); err != nil {
		return err
	}
	buf := x.stream.takePending()
	err := x.write(buf.B, now)
	PutBuffer(buf)
	return x.wrote(err)
}

// writeStreamEnd writes the pending bytes, which are the last, as writeEnd does.
func (x *Exchange) writeStreamEnd(release func()) error {
	now := time.Now()
	if err := x.startStream(now); err != nil {
		return err
	}
	buf := x.stream.takePending()
	err := x.writeEnd(buf, now, release)
	PutBuffer(buf)
	return x.wrote(err)
}

// startStream sets the header before the first bytes are written, which send it. It returns
// an error if the stream is broken.
func (x *Exchange) startStream(now time.Time) error {
	s := x.stream
	if s.writeErr != nil || x.state == stateStreaming {
		return s.writeErr
	}
	h := x.w.Header()
	x.responder.SetHeaders(h, now)
	x.setState(stateStreaming)
	x.status, x.firstWrite = http.StatusOK, now
	x.contentType[0] = s.framing.ContentType
	h["Content-Type"] = x.contentType[:]
	// nginx heeds X-Accel-Buffering, other proxies Cache-Control.
	h["Cache-Control"] = noCache
	h["X-Accel-Buffering"] = noBuffering
	return nil
}

// wrote notes the result of a write to the stream.
func (x *Exchange) wrote(err error) error {
	s := x.stream
	if x.cannotFlush && !s.buffered {
		s.buffered = true
		x.responder.Log(CannotFlush, nil)
	}
	if err != nil {
		s.writeErr = err
		x.life.stop(err)
	}
	return err
}

// writeKeepAlive writes the start of the stream if that is due, or what keeps it alive.
func (x *Exchange) writeKeepAlive() error {
	s := x.stream
	buf := s.buffer()
	if s.startIsDue() {
		buf.B = s.source.AppendStart(buf.B)
	} else {
		buf.B = append(buf.B, s.framing.KeepAlive...)
	}
	return x.writePending(time.Now())
}

// EndStream writes the end of a complete stream, which f appends to out, as Reply does. f gets
// the bytes that are pending and must not call methods of x. If the request has ended, f is
// not called and EndStream returns why. The goroutine of ServeHTTP calls it.
func (x *Exchange) EndStream(f func(out *Buffer) error, release func()) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.state == stateDone {
		return x.err
	}
	if err := f(x.stream.buffer()); err != nil {
		return err
	}
	return x.writeStreamEnd(release)
}

// failStream writes the end of a stream that failed, as writeEnd does.
func (x *Exchange) failStream(err error, release func()) error {
	buf := x.stream.buffer()
	buf.B = x.stream.source.AppendFailure(buf.B, err)
	return x.writeStreamEnd(release)
}
