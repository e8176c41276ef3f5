// Reads whole replies and streams of a chat.

package anthropic

import (
	"encoding/json"
	"io"
	"maps"
	"slices"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/upstream/internal/reply"
)

// A chatReply reads the reply to a chat.
type chatReply struct {
	reply.Sender[llm.ChatChunk]
	max int // the size of what is kept of all blocks that are open, in bytes

	id, model string // of the server, until a chunk had them
	named     bool   // a chunk had them
	blocks    map[int]*block
	kept      int // the size of what is kept of them, in bytes
	text      textState
	calls     int // that have begun
	usage     usage
	end       end
	event     event // that is read, in memory that is used again (BenchmarkChat)
	began     bool  // an event, other than a ping, was one of the API
	idlePings int   // since the stop_reason came
}

func newChatReply(yield func(*llm.ChatChunk, error) bool, most int) *chatReply {
	r := &chatReply{Sender: reply.Sender[llm.ChatChunk]{Yield: yield}, max: most, blocks: make(map[int]*block)}
	r.MarksEnd()
	return r
}

// read reads the reply as a stream or as a whole reply, depending on its first byte. The Content-Type may be wrong, and the
// server may ignore the parameter stream.
func (r *chatReply) read() error {
	isStream, err := r.IsStream()
	if err != nil {
		return err
	}
	if !isStream {
		return r.readWhole()
	}
	return r.readStream()
}

// readWhole yields a reply that is not a stream: a chunk for each block, so that their order remains.
func (r *chatReply) readWhole() error {
	body, err := r.ReadAll()
	if err != nil {
		return err
	}
	defer r.Release()
	var m message
	if err := r.Decode(body, &m); err != nil {
		return err
	}
	isMessage := m.Type == "message" || m.Content != nil
	if err := r.Reported(body, m.Error, isMessage); err != nil {
		return err
	}
	if !isMessage {
		return r.Invalid("the reply is not a message")
	}
	r.start(&m)
	for i, raw := range m.Content {
		more, err := r.startBlock(i, raw)
		if more && err == nil {
			more, err = r.stopBlock(i)
		}
		if err != nil || !more {
			return err
		}
	}
	r.end.add(&m.end)
	return r.finish()
}

// start notes what begins a message.
func (r *chatReply) start(m *message) {
	r.began = true
	r.id, r.model = m.ID, m.Model
	if r.Model.Client != r.Model.Server {
		r.model = r.Model.Client
	}
	r.usage.add(m.Usage)
}

func (r *chatReply) readStream() error {
	events := r.Events()
	for {
		e, err := events.Next()
		switch {
		case err != nil:
			return r.streamEnd(err)
		case e.Kind == reply.KindPing:
			if r.isStuck() {
				return r.finish()
			}
			continue
		case e.Kind == reply.KindError:
			return r.Event(e.Data)
		case reply.IsDone(e.Data): // is not of this API, but of servers that have both
			return r.streamEnd(io.EOF)
		}
		more, err := r.readEvent(e.Data)
		if err != nil || !more {
			return err
		}
	}
}

// readEvent yields what an event adds. It returns false if nothing more is to be read.
func (r *chatReply) readEvent(data []byte) (more bool, err error) {
	e := &r.event
	*e = event{}
	if err := r.Decode(data, e); err != nil {
		return false, err
	}
	if e.Type == eventError {
		return false, r.Event(data)
	}
	if err := r.Reported(data, e.Error, e.Type != ""); err != nil {
		return false, err
	}
	if e.Type == eventPing && r.isStuck() {
		return false, r.finish()
	}
	r.began = r.began || e.Type != eventPing
	switch e.Type {
	case eventMessageStart:
		r.start(&e.Message)
		for i, raw := range e.Message.Content { // of servers that send a whole message first
			if more, err := r.startBlock(i, raw); err != nil || !more {
				return more, err
			}
		}
	case eventBlockStart:
		if !r.SetDue(false) {
			return false, nil
		}
		return r.startBlock(e.Index, e.Block)
	case eventBlockDelta:
		return r.addDelta(e.Index, &e.Delta)
	case eventBlockStop:
		if more, err = r.stopBlock(e.Index); more {
			r.SetDue(true) // the usage may be next
		}
		return more, err
	case eventMessageDelta:
		r.end.add(&e.Delta.end)
		r.usage.add(e.Usage)
	case eventMessageStop:
		r.MarkComplete()
		return false, r.finish()
	}
	return true, nil // pings, and what is of a later version of the API
}

// isStuck reports whether a ping is the second one since the stop_reason came. Some streams never end after that
// (tombii/better-ccflare#307).
func (r *chatReply) isStuck() bool {
	if r.end.StopReason != "" {
		r.idlePings++
	}
	return r.idlePings == 2
}

// streamEnd returns the error for a stream in which reading failed with err before message_stop; err is io.EOF at its end. If
// the stop_reason has come, nothing is missing that matters.
func (r *chatReply) streamEnd(err error) error {
	switch {
	case err == io.EOF && !r.began:
		return r.Invalid("the stream is empty")
	case r.end.StopReason != "" && (err == io.EOF || r.Caller().Err() == nil):
		return r.finish()
	case err == io.EOF:
		return r.Invalid("the stream ended with neither a stop_reason nor message_stop")
	}
	return r.Interrupted(err)
}

// finish yields what ends the reply.
func (r *chatReply) finish() error {
	for _, i := range slices.Sorted(maps.Keys(r.blocks)) {
		if more, err := r.stopBlock(i); err != nil || !more {
			return err
		}
	}
	r.noteUsage()
	c := r.chunk(llm.Delta{})
	choice := &c.Choices[0]
	choice.FinishReason, choice.Extra = r.finishReason()
	if choice.FinishReason == llm.FinishStop && r.end.StopReason == stopSequence {
		choice.StopSequence = r.end.StopSequence
	}
	c.Usage = r.usage.result()
	members := llm.Extra{"container": r.end.Container, "context_management": r.end.Context}
	if tier := r.usage.tier(); tier != "" {
		members[memberTier] = jsonwire.AppendString(nil, tier)
	}
	for name, value := range members {
		if hasValue(value) {
			c.Extra = jsonwire.MergeExtra(c.Extra, llm.Extra{name: value})
		}
	}
	r.SetDue(true)
	r.Send(c, c.Usage)
	return nil
}

// The stop reasons that have a meaning of their own here.
const (
	stopSequence = "stop_sequence"
	stopRefusal  = "refusal"
)

// finishReasons are the finish reasons of the stop reasons. Others are llm.FinishStop.
var finishReasons = map[string]llm.FinishReason{
	"end_turn": llm.FinishStop, stopSequence: llm.FinishStop, "max_tokens": llm.FinishLength, "tool_use": llm.FinishToolCalls,
	stopRefusal: llm.FinishContentFilter, "model_context_window_exceeded": llm.FinishLength,
}

// finishReason returns the finish reason, and the members of the choice with what that does not tell: the stop reason under the
// name that OpenRouter has for it, and its details.
func (r *chatReply) finishReason() (reason llm.FinishReason, extra llm.Extra) {
	stop := r.end.StopReason
	reason, known := finishReasons[stop]
	switch {
	case stop == "" && r.calls > 0:
		return llm.FinishToolCalls, nil
	case !known:
		reason = llm.FinishStop
	}
	if stop != "" && (!known || stop == "model_context_window_exceeded") {
		extra = llm.Extra{"native_finish_reason": jsonwire.AppendString(nil, stop)}
	}
	if hasValue(r.end.StopDetails) {
		extra = jsonwire.MergeExtra(extra, llm.Extra{"stop_details": r.end.StopDetails})
	}
	return reason, extra
}

// chunk returns a chunk of the reply.
func (r *chatReply) chunk(d llm.Delta) *llm.ChatChunk {
	c := &llm.ChatChunk{Choices: []llm.ChunkChoice{{Delta: d}}}
	if !r.named {
		r.named = true
		c.ID, c.Model = r.id, r.model
	}
	return c
}

// send yields a delta. It returns false if nothing more is to be read.
func (r *chatReply) send(d llm.Delta) bool { return r.Send(r.chunk(d), nil) }

// rawMessages encodes a list of values.
func rawMessages(list ...json.RawMessage) json.RawMessage {
	b := []byte{'['}
	for i, raw := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, raw...)
	}
	return append(b, ']')
}
