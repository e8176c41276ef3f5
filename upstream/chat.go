package upstream

import (
	"context"
	"io"
	"maps"

	"github.com/llmhttp/llmhttp/llm"
)

// Chat implements [github.com/llmhttp/llmhttp.Backend].
func (b *Backend) Chat(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
	return func(yield func(*llm.ChatChunk, error) bool) {
		r := newChatReply(yield, req.Choices())
		r.end(b.forwardChat(ctx, req, r))
	}
}

// forwardChat sends req to the server and yields the chunks of the reply. It does not
// yield the error that it returns.
func (b *Backend) forwardChat(ctx context.Context, req *llm.ChatRequest, r *chatReply) error {
	model := b.modelNames(req.Model)
	body, err := b.encodeChat(req, model.server)
	if err != nil {
		return err
	}
	r.c, err = b.startCallWith(ctx, b.chat, body.payload(), acceptedMedia(req.Stream), model)
	body.release()
	if err != nil {
		return err
	}
	defer r.c.close()
	return r.read()
}

// acceptedMedia returns the media type of a chat or a completion that the server is asked for.
func acceptedMedia(stream bool) string {
	if stream {
		return mediaEvents
	}
	return mediaJSON
}

// encodeChat returns the body of the request to the server. It does not change
// req.
func (b *Backend) encodeChat(req *llm.ChatRequest, model string) (*sharedBody, error) {
	r := *req
	r.Model = model
	r.StreamOptions = b.streamOptions(req.Stream, req.StreamOptions)
	r.Messages = b.nameReasoning(r.Messages, model)
	return newSharedBody(r.AppendJSON)
}

// streamOptions returns the options for the server of a request that has the options asked: the
// Handler wants the usage of a stream, whether or not the client does.
func (b *Backend) streamOptions(stream bool, asked *llm.StreamOptions) *llm.StreamOptions {
	if !stream || b.opts.OmitStreamOptions {
		return nil
	}
	opts := &llm.StreamOptions{IncludeUsage: true}
	if asked != nil {
		opts.Extra = asked.Extra
	}
	return opts
}

// A chatReply reads the reply to a chat request, or to a request to complete prompts.
type chatReply struct {
	replySender[llm.ChatChunk]
	started    bool // a chunk had a choice or the usage
	preamble   preamble
	choices    choices
	surrogates surrogateJoiner

	hasReasoning bool // a chunk had reasoning
	completes    bool // the reply is that to a request to complete prompts
}

func newChatReply(yield func(*llm.ChatChunk, error) bool, choices int) *chatReply {
	return &chatReply{
		replySender: replySender[llm.ChatChunk]{yield: yield, endIsMarked: true}, choices: newChoices(choices),
	}
}

// read reads the reply as a stream or as a whole reply, depending on its first byte.
// The Content-Type may be wrong, and the server may ignore the parameter stream.
func (r *chatReply) read() error {
	isStream, err := r.c.isStream()
	if err != nil {
		return err
	}
	if !isStream {
		return r.readWhole()
	}
	return r.readStream()
}

// readWhole yields a reply that is not a stream.
func (r *chatReply) readWhole() error {
	chunk, err := r.decodeWhole()
	if err != nil {
		return err
	}
	if len(chunk.Choices) == 0 {
		return r.c.invalidReply("the reply has no choices")
	}
	r.choices.assignWholeIndices(chunk.Choices)
	r.send(chunk, chunk.Usage)
	return nil
}

// decodeWhole reads and decodes a reply that is not a stream. It releases the memory of
// the body.
func (r *chatReply) decodeWhole() (*llm.ChatChunk, error) {
	body, err := r.c.readAll()
	if err != nil {
		return nil, err
	}
	defer r.c.reservation.release()
	return r.decode(body)
}

func (r *chatReply) readStream() error {
	events := eventReader{r: r.c.body, max: int(r.c.b.opts.MaxEvent)}
	for {
		e, err := events.next()
		switch {
		case err != nil:
			return r.streamEnd(err)
		case e.kind == eventPing:
			continue
		case isDone(e.data) && !r.started:
			return r.c.invalidReply("the stream has no chunks before [DONE]")
		case isDone(e.data):
			r.c.sawDone = true
			return nil
		case e.kind == eventError:
			return r.c.errorEvent(e.data)
		}
		more, err := r.forwardEvent(e.data)
		if err != nil || !more {
			return err
		}
	}
}

// forwardEvent yields the chunk of an event. It returns false if nothing more is to be read.
func (r *chatReply) forwardEvent(data []byte) (more bool, err error) {
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
		r.c.readOn.due.Store(true) // before the client sees it and can leave
	}
	return r.send(chunk, chunk.Usage), nil
}

// streamEnd returns the error for a stream in which reading failed with err before
// [DONE]; err is io.EOF at its end. It returns nil if all choices were finished: what is
// missing does not matter then, unless the client has left.
func (r *chatReply) streamEnd(err error) error {
	switch {
	case err == io.EOF && !r.started:
		return r.c.invalidReply("the stream is empty")
	case r.choices.allFinished() && (err == io.EOF || r.c.callerCtx.Err() == nil):
		return nil
	case err == io.EOF:
		return r.c.invalidReply("the stream ended with neither a finish_reason nor [DONE]")
	}
	return r.c.interruptedError(err)
}

// decode decodes a chunk, or a whole reply as a chunk.
func (r *chatReply) decode(data []byte) (*llm.ChatChunk, error) {
	chunk := new(llm.ChatChunk)
	if err := chunk.UnmarshalJSON(data); err != nil {
		return nil, r.c.malformedReply(err)
	}
	if err := r.c.reportedError(data, chunk.Extra["error"], hasResult(chunk)); err != nil {
		return nil, err
	}
	delete(chunk.Extra, "error")
	if r.completes {
		takeTexts(chunk)
	}
	for i := range chunk.Choices {
		if chunk.Choices[i].FinishReason == finishError {
			return nil, r.c.invalidReply(`a choice ended with the finish_reason "error"`)
		}
	}
	r.noteReasoning(chunk)
	if r.c.model.client != r.c.model.server {
		chunk.Model = r.c.model.client
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
