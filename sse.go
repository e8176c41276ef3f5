package llmhttp

import "time"

// keepAliveComment is a comment without the empty line that would end an event.
// Old releases of openai-go and openai-python fail on an empty event.
const keepAliveComment = ": keep-alive\n"

const (
	// burstGap is how long a Backend takes at most for a chunk that counts as ready at the
	// same time as the one before it. Such chunks share writes. A write is most of
	// what a chunk costs (budget: stream, chunks ready at once).
	burstGap = 50 * time.Microsecond

	// maxPending is how many bytes may wait for a shared write. For net/http a few large
	// writes are cheaper than many small ones.
	maxPending = 31 << 10

	// maxDeltaText is how many bytes of text one event may have. Escaped, the
	// text is at most six times as long, and old releases of openai-go read
	// lines of at most 64 KiB.
	maxDeltaText = 8 << 10
)

// An eventStream writes a reply as server-sent events. Its fields are guarded
// by the response's mu.
//
// The events of a chunk are written before the Backend goes on, unless chunks
// come in a burst: then the first of them starts a goroutine that writes all
// pending events as soon as it runs, which is at the latest when the Backend pauses.
type eventStream struct {
	q              *request
	encoder        ChatEncoder
	pending        *buffer // encoded events that wait to be written; nil if none do
	started        bool    // AppendStart was called
	burstScheduled bool    // writeBurst is about to run
	writeErr       error   // a write failed
	encoderErr     error   // the encoder failed
}

// add encodes a chunk that the orderer emits.
func (s *eventStream) add(c *ChatChunk) {
	choice := &c.Choices[0]
	for choice.Delta.textLen() > maxDeltaText {
		rest := choice.Delta.split(maxDeltaText)
		s.encode(c)
		choice.Delta, choice.Extra, c.Extra = rest, nil, nil
	}
	s.encode(c)
}

func (s *eventStream) encode(c *ChatChunk) {
	if s.encoderErr != nil {
		return
	}
	s.appendStart()
	buf := s.pendingBuffer()
	b, err := s.encoder.AppendChunk(buf.b, c)
	if err != nil {
		s.encoderErr = err
		return
	}
	buf.b = b
}

// appendStart appends the start of the stream, once.
func (s *eventStream) appendStart() {
	if s.started {
		return
	}
	s.started = true
	buf := s.pendingBuffer()
	buf.b = s.encoder.AppendStart(buf.b, s.q.chat.completeStart())
}

// pendingBuffer returns the buffer of pending events, and gets one if there is none.
func (s *eventStream) pendingBuffer() *buffer {
	if s.pending == nil {
		s.pending = getBuffer(1 << 10)
	}
	return s.pending
}

// push writes the pending events. In a burst it leaves them to writeBurst, which writes
// them with those of the next chunks. now is when the last chunk arrived, and waited how long
// the Backend took for it.
func (s *eventStream) push(now time.Time, waited time.Duration) error {
	switch {
	case s.encoderErr != nil:
		return s.encoderErr
	case s.writeErr != nil:
		return s.writeErr
	case s.pending == nil || len(s.pending.b) == 0:
		return nil
	case s.q.res.state == stateStreaming && waited < burstGap && len(s.pending.b) < maxPending:
		if !s.burstScheduled {
			s.burstScheduled = true
			go s.writeBurst()
		}
		return nil
	}
	err := s.writePending(now)
	// While it was written the Backend could not go on: a slow client is not a
	// silent Backend.
	s.q.idle.noteProgress(time.Now())
	return err
}

// writeBurst writes the pending events, on a goroutine of its own.
func (s *eventStream) writeBurst() {
	q := s.q
	defer q.log.recoverAndLog("writing a stream failed")
	q.res.mu.Lock()
	defer q.res.mu.Unlock()
	s.burstScheduled = false
	if q.res.state == stateStreaming && s.pending != nil {
		s.writePending(time.Now())
		q.idle.noteProgress(time.Now())
	}
}

// writePending writes the pending events. If that fails, the client has left. now is the
// current time.
func (s *eventStream) writePending(now time.Time) error {
	return s.write(now, func(buf *buffer) error { return s.q.res.writeLocked(buf.b, now) })
}

// writeEnd writes the pending events, which are the last, as writeEndLocked does.
func (s *eventStream) writeEnd(release func()) error {
	now := time.Now()
	return s.write(now, func(buf *buffer) error { return s.q.res.writeEndLocked(buf, now, release) })
}

// write calls a function that writes the pending events. Before the first events, it sets
// the header.
func (s *eventStream) write(now time.Time, write func(*buffer) error) error {
	if s.writeErr != nil {
		return s.writeErr
	}
	q := s.q
	if q.res.state != stateStreaming {
		q.setHeadersLocked(now)
		q.res.startStreamLocked(now)
	}
	buf := s.pendingBuffer()
	s.pending = nil
	err := write(buf)
	putBuffer(buf)
	if q.res.cannotFlush {
		q.log.warnLocked(misuseNoFlush)
	}
	if err != nil {
		s.writeErr = err
		q.life.cancel(err)
	}
	return err
}

// startIsDue reports whether streams of the route start early and this one has not
// started.
func (s *eventStream) startIsDue() bool { return s.q.route.startsEarly && !s.started }

// writeKeepAlive writes the start of the stream if that is due, or a comment.
func (s *eventStream) writeKeepAlive() error {
	if s.startIsDue() {
		s.appendStart()
		return s.writePending(time.Now())
	}
	buf := s.pendingBuffer()
	buf.b = append(buf.b, keepAliveComment...)
	return s.writePending(time.Now())
}

// end writes the end of a complete stream, as writeEndLocked does.
func (s *eventStream) end(u *Usage, extra Extra, release func()) error {
	if s.encoderErr != nil {
		return s.encoderErr
	}
	buf := s.pendingBuffer()
	b, err := s.encoder.AppendEnd(buf.b, u, extra)
	if err != nil {
		s.encoderErr = err
		return err
	}
	buf.b = b
	s.q.chat.dropReply()
	return s.writeEnd(release)
}

// fail writes the end of a stream that failed, as writeEndLocked does.
func (s *eventStream) fail(e *Error, release func()) error {
	buf := s.pendingBuffer()
	buf.b = s.encoder.AppendFailure(buf.b, e)
	return s.writeEnd(release)
}
