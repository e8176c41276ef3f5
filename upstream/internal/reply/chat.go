// Reads whole replies and streams of a chat.

package reply

import (
	"encoding/json"
	"io"
	"maps"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/upstream/internal/failure"
)

// A Chat reads the reply to a chat request, or to a request to complete prompts.
type Chat struct {
	Sender[llm.ChatChunk]
	started    bool // a chunk had a choice or the usage
	preamble   preamble
	choices    choices
	surrogates surrogateJoiner
	usages     map[int]*llm.Usage // of choices by index; nil if none has one of its own

	names        *ReasoningNames
	hasReasoning bool // a chunk had reasoning
	completes    bool // the reply is that to a request to complete prompts
}

// NewChat returns a Chat that yields the chunks of a reply with a number of choices. names are told the name of its
// reasoning. The Reply is set before Read is called.
func NewChat(yield func(*llm.ChatChunk, error) bool, choices int, names *ReasoningNames) *Chat {
	return &Chat{
		Sender: Sender[llm.ChatChunk]{Yield: yield, endIsMarked: true}, choices: newChoices(choices), names: names,
	}
}

// Completes makes r read the reply to a request to complete prompts.
func (r *Chat) Completes() { r.completes, r.surrogates.completes = true, true }

// Read reads the reply as a stream or as a whole reply, depending on its first byte.
// The Content-Type may be wrong, and the server may ignore the parameter stream.
func (r *Chat) Read() error {
	isStream, err := r.IsStream()
	if err != nil {
		return err
	}
	if !isStream {
		return r.readWhole()
	}
	return r.readStream()
}

// readWhole yields a reply that is not a stream.
func (r *Chat) readWhole() error {
	chunk, err := r.decodeWhole()
	if err != nil {
		return err
	}
	if len(chunk.Choices) == 0 {
		return r.Invalid("the reply has no choices")
	}
	r.choices.assignWholeIndices(chunk.Choices)
	r.Send(chunk, chunk.Usage)
	return nil
}

// decodeWhole reads and decodes a reply that is not a stream. It releases the memory of
// the body.
func (r *Chat) decodeWhole() (*llm.ChatChunk, error) {
	body, err := r.ReadAll()
	if err != nil {
		return nil, err
	}
	defer r.Release()
	return r.decode(body)
}

func (r *Chat) readStream() error {
	events := r.Events()
	for {
		e, err := events.Next()
		switch {
		case err != nil:
			return r.streamEnd(err)
		case e.Kind == KindPing:
			continue
		case IsDone(e.Data) && !r.started:
			return r.Invalid("the stream has no chunks before [DONE]")
		case IsDone(e.Data):
			r.MarkComplete()
			return nil
		case e.Kind == KindError:
			return r.Event(e.Data)
		}
		more, err := r.forwardEvent(e.Data)
		if err != nil || !more {
			return err
		}
	}
}

// forwardEvent yields the chunk of an event. It returns false if nothing more is to be read.
func (r *Chat) forwardEvent(data []byte) (more bool, err error) {
	chunk, err := r.decode(data)
	if err != nil {
		return false, err
	}
	r.started = r.started || hasResult(chunk)
	if r.preamble.includes(chunk, len(data)) {
		r.preamble.absorb(chunk, len(data))
		return true, nil
	}
	r.preamble.addTo(chunk)
	r.choices.assignIndices(chunk.Choices)
	r.surrogates.join(chunk, data)
	if len(r.choices.finished) > 0 {
		r.readOn.due.Store(true) // before the client sees it and can leave
	}
	return r.Send(chunk, chunk.Usage), nil
}

// streamEnd returns the error for a stream in which reading failed with err before
// [DONE]; err is io.EOF at its end. It returns nil if all choices were finished: what is
// missing does not matter then, unless the client has left.
func (r *Chat) streamEnd(err error) error {
	switch {
	case err == io.EOF && !r.started:
		return r.Invalid("the stream is empty")
	case r.choices.allFinished() && (err == io.EOF || r.callerCtx.Err() == nil):
		return nil
	case err == io.EOF:
		return r.Invalid("the stream ended with neither a finish_reason nor [DONE]")
	}
	return r.Interrupted(err)
}

// decode decodes a chunk, or a whole reply as a chunk.
func (r *Chat) decode(data []byte) (*llm.ChatChunk, error) {
	chunk := new(llm.ChatChunk)
	if err := r.Decode(data, chunk); err != nil {
		return nil, err
	}
	hasResult := len(chunk.Choices) > 0 || chunk.Usage != nil && !failure.MayReport(chunk.Extra)
	if err := r.Reported(data, chunk.Extra["error"], hasResult); err != nil {
		return nil, err
	}
	delete(chunk.Extra, "error")
	r.takeUsage(data, chunk)
	if r.completes {
		takeTexts(chunk)
	}
	for i := range chunk.Choices {
		if chunk.Choices[i].FinishReason == finishError {
			return nil, r.Invalid(`a choice ended with the finish_reason "error"`)
		}
	}
	r.noteReasoning(chunk)
	if r.Model.Client != r.Model.Server {
		chunk.Model = r.Model.Client
	}
	return chunk, nil
}

// finishError is the finish_reason with which some servers report an error.
const finishError = "error"

func hasResult(chunk *llm.ChatChunk) bool { return len(chunk.Choices) > 0 || chunk.Usage != nil }

// A preamble collects the chunks of a stream before the first one with an ID, a choice
// or the usage. Azure, for example, first sends the results of its filters in a chunk
// without an ID. These chunks are not yielded, because the first chunk that is yielded
// must have the ID of the reply. Their extra members are added to that chunk.
type preamble struct {
	over    bool
	members llm.Extra
	size    int // of the events, in bytes
}

// maxPreamble bounds the size of a preamble, in bytes.
const maxPreamble = 64 << 10

// includes reports whether chunk, whose event has size bytes, belongs to the preamble.
func (p *preamble) includes(chunk *llm.ChatChunk, size int) bool {
	return !p.over && chunk.ID == "" && !hasResult(chunk) && p.size+size <= maxPreamble
}

// absorb keeps the members of a chunk that belongs to the preamble.
func (p *preamble) absorb(chunk *llm.ChatChunk, size int) {
	p.size += size
	if p.members == nil {
		p.members = chunk.Extra
	} else {
		maps.Copy(p.members, chunk.Extra)
	}
}

// addTo ends the preamble. It adds the members that were kept to chunk, the first one
// after the preamble. For later chunks it does nothing.
func (p *preamble) addTo(chunk *llm.ChatChunk) {
	if p.members != nil {
		maps.Copy(p.members, chunk.Extra)
		chunk.Extra = p.members
	}
	p.over, p.members = true, nil
}

// takeTexts makes the texts of choices, which a ChatChunk decodes as unknown members, their content.
func takeTexts(chunk *llm.ChatChunk) {
	for i := range chunk.Choices {
		choice := &chunk.Choices[i]
		raw := choice.Extra["text"]
		if raw == nil {
			continue
		}
		_ = json.Unmarshal(raw, &choice.Delta.Content) // other values than strings are no text
		if delete(choice.Extra, "text"); len(choice.Extra) == 0 {
			choice.Extra = nil
		}
	}
}
