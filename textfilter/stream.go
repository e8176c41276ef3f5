// Stream: the texts of a chat, which an orderer puts in order before.

package textfilter

import (
	"errors"

	"github.com/llmhttp/llmhttp/internal/callctx"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/order"
	"github.com/llmhttp/llmhttp/llm"
)

// A ReplyText is a text of a reply, as far as it has arrived, for a filter: see [Stream].
type ReplyText struct {
	Kind   Kind
	Choice int    // the index of the choice
	Call   int    // the index of the tool call among those of the choice; -1 if the text is not one of a call
	Tool   string // the name of the tool that is called; empty if Call is -1

	Sent string // what the filter has released of the text so far
	Text string // what has arrived and was not released; may be empty if Paused or End is set

	// Paused tells that another text of the choice begins, or goes on, such as the content after
	// the reasoning. What is held back is sent after the beginning of the other text, or at the end
	// of the choice, so a filter should release what it can. The text may nevertheless go on.
	Paused bool

	// End tells that the text is complete. It is the last call for it.
	End bool
}

// Stream returns a stream with the texts of s as f rewrites them. choices is the number of
// choices of the request: [llm.ChatRequest.Choices].
//
// f is called for each text of each choice: content, reasoning, refusal, the arguments of each tool
// call, and each string in an Extra. Whenever something has been added to a text, f gets all of it
// that was not released yet. It returns what to release, which may differ from the text, and what
// to hold back until it knows more: usually an end of the text that may be the beginning of what it
// looks for. When the text is complete, f is called with End; what it holds back even then is
// released after the rest. In [Arguments], which are JSON, any character may be escaped, and an
// escape may be divided; the example redaction removes the escapes. A filter that must see a text as a whole, such as the arguments of a
// call, holds back all of it until End. A call begins for the client when some of its arguments
// were released.
//
// An error that wraps [ErrContentFiltered] ends the choice. Any other error ends the stream with
// it. When all choices have ended, one of them by f, s is not read any further; its Backend can
// still report usage.
//
// f runs on the goroutine of the stream, for one text after the other. It must not keep the
// ReplyText. The order of texts, finish reasons and usage stay as they are. Not filtered are roles,
// types, IDs, signatures, encrypted reasoning and audio. Log probabilities and token numbers, which
// repeat the text before the filter, are removed.
//
// The chunks of the stream that Stream returns are in valid order, with at most one choice
// each. There is an empty one where all of a chunk of s is held back, so that the reader sees that
// the stream goes on. At most 64 MiB are held back; more is an error.
func Stream(s llm.ChatStream, choices int, f func(t *ReplyText) (release, hold string, err error)) llm.ChatStream {
	return func(yield func(*llm.ChatChunk, error) bool) { newStreamFilter(choices, f, yield).run(s) }
}

// A streamFilter is the state of Stream. The orderer puts the chunks in valid order, so that
// each text has one place, and passes them to Add.
type streamFilter struct {
	f       func(t *ReplyText) (release, hold string, err error)
	order   order.Orderer
	yield   func(*llm.ChatChunk, error) bool
	choices []*choiceFilter // by index; nil before the choice has opened
	held    int             // bytes of all texts
	sent    int             // chunks
	stopped bool            // the reader has stopped, or the stream has failed
}

func newStreamFilter(
	choices int,
	f func(t *ReplyText) (release, hold string, err error),
	yield func(*llm.ChatChunk, error) bool,
) *streamFilter {
	s := &streamFilter{f: f, yield: yield, choices: make([]*choiceFilter, max(choices, 1))}
	s.order = order.Orderer{Sink: s, ChoiceLimit: len(s.choices)}
	return s
}

// run yields what is to be yielded of stream.
func (s *streamFilter) run(stream llm.ChatStream) {
	if stream == nil {
		stream = llm.Fail(callctx.ErrNilStream)
	}
	var failure error
	for chunk, err := range stream {
		if failure = err; err != nil {
			break
		}
		if s.add(chunk); s.stopped || s.isComplete() {
			break
		}
	}
	s.finish()
	if failure != nil {
		s.fail(failure)
	}
}

// add filters a chunk of the stream.
func (s *streamFilter) add(c *llm.ChatChunk) {
	if c == nil { // the Handler logs that
		s.stopped = s.stopped || !s.yield(nil, nil)
		return
	}
	usage, sent := c.Usage, s.sent
	var empty []llm.ChunkChoice
	if len(c.Choices) > 0 && c.Choices[0].Index >= 0 && c.Choices[0].Index < len(s.choices) {
		empty = []llm.ChunkChoice{{Index: c.Choices[0].Index}}
	}
	if s.order.Add(c); s.order.Err != nil {
		s.fail(s.order.Err)
	}
	switch {
	case usage != nil:
		s.send(&llm.ChatChunk{Usage: usage})
	case s.sent == sent: // without anything, the reader would take s for silent
		s.send(&llm.ChatChunk{Choices: empty})
	}
}

// finish ends the texts of choices without a FinishReason, when no more chunks come.
func (s *streamFilter) finish() {
	if s.stopped {
		return
	}
	s.order.EmitHeld()
	for _, c := range s.choices {
		if c != nil && !c.ended {
			s.addChoice(c, llm.ChunkChoice{Index: c.index}, true)
		}
	}
	if extra := s.order.EndExtra(); len(extra) > 0 && s.order.HasStart {
		s.send(&llm.ChatChunk{Extra: s.chunkExtra(extra)})
	}
}

// Add implements order.Sink: the orderer calls it, with one choice.
func (s *streamFilter) Add(chunk *llm.ChatChunk) {
	choice := chunk.Choices[0]
	c := s.choices[choice.Index]
	if c == nil {
		c = newChoiceFilter(choice.Index, s)
		s.choices[choice.Index] = c
	}
	if extra := chunk.Extra; len(extra) > 0 {
		s.send(&llm.ChatChunk{Extra: s.chunkExtra(extra)})
	}
	if c.ended || s.stopped {
		return
	}
	s.addChoice(c, choice, choice.FinishReason != "")
}

// addChoice filters what choice adds to c, and yields the result. If it ends the choice, it yields
// what was held back before that.
func (s *streamFilter) addChoice(c *choiceFilter, choice llm.ChunkChoice, ends bool) {
	if before := c.pauseOthers(&choice.Delta); !before.IsEmpty() {
		s.send(&llm.ChatChunk{Choices: []llm.ChunkChoice{{Index: c.index, Delta: before}}})
	}
	c.add(&choice, ends)
	reason, stop := choice.FinishReason, choice.StopSequence
	choice.FinishReason, choice.StopSequence = "", ""
	c.ended = ends || c.err != nil
	switch {
	case errors.Is(c.err, ErrContentFiltered):
		s.send(&llm.ChatChunk{Choices: []llm.ChunkChoice{{Index: c.index, FinishReason: llm.FinishContentFilter}}})
		return
	case c.err != nil:
		s.fail(c.err)
		return
	}
	if choice.Delta.Role != "" || !choice.Delta.IsEmpty() || jsonwire.HasValue(choice.Extra) && reason == "" {
		s.send(&llm.ChatChunk{Choices: []llm.ChunkChoice{choice}})
		choice.Extra = nil
	}
	if reason != "" {
		s.send(&llm.ChatChunk{Choices: []llm.ChunkChoice{{Index: c.index, FinishReason: reason, StopSequence: stop, Extra: choice.Extra}}})
	}
}

// chunkExtra filters the members of chunks.
func (s *streamFilter) chunkExtra(e llm.Extra) llm.Extra {
	c := &choiceFilter{filter: s}
	dropRepeated(e)
	c.wholeExtra(nil, e)
	switch {
	case errors.Is(c.err, ErrContentFiltered): // it belongs to no choice that could end
		return nil
	case c.err != nil:
		s.fail(c.err)
	}
	return e
}

// send yields a chunk with the identity of the reply.
func (s *streamFilter) send(c *llm.ChatChunk) {
	if s.stopped {
		return
	}
	start := &s.order.Start
	c.ID, c.Created, c.Model = start.ID, start.Created, start.Model
	s.sent++
	s.stopped = !s.yield(c, nil)
}

// fail yields an error, unless the stream has ended.
func (s *streamFilter) fail(err error) {
	if !s.stopped {
		s.stopped = true
		s.yield(nil, err)
	}
}

// isComplete reports whether nothing that the reader may have can follow: all choices have ended,
// one of them by the filter.
func (s *streamFilter) isComplete() bool {
	filtered := false
	for _, c := range s.choices {
		if c == nil || !c.ended {
			return false
		}
		filtered = filtered || c.err != nil
	}
	return filtered
}
