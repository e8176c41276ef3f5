package upstream

import "github.com/llmhttp/llmhttp/llm"

// A replySender yields the chunks of a reply of any operation. When the client has left, the rest is
// read on for the usage, which comes last: see Options.ReadOn. That is due from the first chunk on,
// unless the operation knows better.
type replySender[Chunk any] struct {
	c       *call
	yield   func(*Chunk, error) bool
	stopped bool // yield has returned false

	endIsMarked bool // the reply marks the end of its content, so that the usage is due when the caller has set readOn.due
}

// send yields a chunk that has a usage, which may be nil. If yield has returned false before, send
// reports the usage instead. It returns false if nothing more is to be read.
func (s *replySender[Chunk]) send(chunk *Chunk, usage *llm.Usage) (more bool) {
	if s.stopped {
		if usage != nil {
			llm.ReportUsage(s.c.callerCtx, *usage)
		}
		return true
	}
	if !s.endIsMarked {
		s.c.readOn.due.Store(true) // before the client sees it and can leave
	}
	return s.sendWithoutUsage(chunk) || s.c.startReadOn()
}

// sendWithoutUsage yields a chunk of a reply that tells no usage at its end, so that nothing is read on
// for it.
func (s *replySender[Chunk]) sendWithoutUsage(chunk *Chunk) (more bool) {
	s.stopped = !s.yield(chunk, nil)
	return !s.stopped
}

// end yields err, unless that is nil or nobody reads the reply any more.
func (s *replySender[Chunk]) end(err error) {
	if err != nil && !s.stopped {
		s.yield(nil, err)
	}
}
