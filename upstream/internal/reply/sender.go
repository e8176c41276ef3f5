// Yields the chunks of a reply, and reads on for the usage when the client has left.

package reply

import "github.com/llmhttp/llmhttp/llm"

// A Sender yields the chunks of a reply of any operation. When the client has left, the rest is
// read on for the usage, which comes last: see Limits.ReadOn. That is due from the first chunk on,
// unless the operation knows better.
type Sender[Chunk any] struct {
	*Reply
	Yield   func(*Chunk, error) bool
	stopped bool // Yield has returned false

	endIsMarked bool // the reply marks the end of its content, so that the usage is due when readOn.due was set
}

// Send yields a chunk that has a usage, which may be nil. If Yield has returned false before, Send
// reports the usage instead. It returns false if nothing more is to be read.
func (s *Sender[Chunk]) Send(chunk *Chunk, usage *llm.Usage) (more bool) {
	if s.stopped {
		if usage != nil {
			llm.ReportUsage(s.callerCtx, *usage)
		}
		return true
	}
	if !s.endIsMarked {
		s.readOn.due.Store(true) // before the client sees it and can leave
	}
	return s.SendWithoutUsage(chunk) || s.startReadOn()
}

// SendWithoutUsage yields a chunk of a reply that tells no usage at its end, so that nothing is read on
// for it.
func (s *Sender[Chunk]) SendWithoutUsage(chunk *Chunk) (more bool) {
	s.stopped = !s.Yield(chunk, nil)
	return !s.stopped
}

// MarksEnd tells that SetDue is called, so that the usage is not due from the first chunk on.
func (s *Sender[Chunk]) MarksEnd() { s.endIsMarked = true }

// SetDue tells whether the usage may be next. It returns false if nothing more is to be read, because the client has left
// and the usage is not due any more.
func (s *Sender[Chunk]) SetDue(due bool) (more bool) {
	s.readOn.due.Store(due)
	return due || !s.stopped || s.readOn.unfinished
}

// Finish yields err, unless that is nil or nobody reads the reply any more.
func (s *Sender[Chunk]) Finish(err error) {
	if err != nil && !s.stopped {
		s.Yield(nil, err)
	}
}
