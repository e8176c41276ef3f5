package upstream

import (
	"context"
	"io"
	"maps"

	"github.com/llmhttp/llmhttp"
)

// Chat implements [llmhttp.Backend].
func (b *Backend) Chat(ctx context.Context, req *llmhttp.ChatRequest) llmhttp.ChatStream {
	return func(yield func(*llmhttp.ChatChunk, error) bool) {
		if err := b.chatOnce(ctx, req, yield); err != nil {
			yield(nil, err)
		}
	}
}

// chatOnce sends req and yields the chunks of the reply. It returns an error
// that has not been yielded.
func (b *Backend) chatOnce(ctx context.Context, req *llmhttp.ChatRequest, yield func(*llmhttp.ChatChunk, error) bool) error {
	model := b.modelNames(req.Model)
	body, err := b.encodeChat(req, model.server)
	if err != nil {
		return err
	}
	accept := mediaJSON
	if req.Stream {
		accept = mediaEvents
	}
	c, err := b.do(ctx, b.chat, body, accept, model)
	if err != nil {
		return err
	}
	defer c.close()
	r := chatReply{c: c, yield: yield, requested: req.Choices(), finished: make(map[int]bool)}
	return r.read()
}

// encodeChat returns the body of the request to the server. It does not change
// req.
func (b *Backend) encodeChat(req *llmhttp.ChatRequest, model string) ([]byte, error) {
	r := *req
	r.Model = model
	r.StreamOptions = nil
	if r.Stream && !b.opts.OmitStreamOptions {
		r.StreamOptions = &llmhttp.StreamOptions{IncludeUsage: true}
		if req.StreamOptions != nil {
			r.StreamOptions.Extra = req.StreamOptions.Extra
		}
	}
	return r.MarshalJSON()
}

// A chatReply reads the reply to a chat request.
type chatReply struct {
	c          *call
	yield      func(*llmhttp.ChatChunk, error) bool
	requested  int           // how many choices the client asked for
	finished   map[int]bool  // which of them have a finish_reason, by index
	begun      bool          // a chunk had a choice or the usage
	early      llmhttp.Extra // members of chunks before that, which were held back
	earlySize  int           // of those chunks, in bytes
	surrogates surrogateJoiner
}

// read reads the reply as a stream or as a whole, depending on its first byte:
// the Content-Type may be wrong, and the server may ignore what was requested.
func (r *chatReply) read() error {
	first, err := skipSpace(r.c.body, r.c.b.opts.MaxReply)
	switch {
	case err == io.EOF:
		return r.c.invalid("the reply is empty")
	case err != nil:
		return r.c.interrupted(err)
	case first == '{', first == '[', first == '<':
		return r.readWhole()
	}
	return r.readStream()
}

// readWhole yields a reply that is not a stream.
func (r *chatReply) readWhole() error {
	body, err := r.c.readAll()
	if err != nil {
		return err
	}
	if err := r.c.checkBody(body); err != nil {
		return err
	}
	chunk, err := r.decode(body)
	if err != nil {
		return err
	}
	if len(chunk.Choices) == 0 {
		return r.c.invalid("the reply has no choices")
	}
	setIndices(chunk.Choices)
	r.yield(chunk, nil)
	return nil
}

// setIndices numbers the choices of a whole reply in their order, unless their
// indices are those of all choices, in any order.
func setIndices(choices []llmhttp.ChunkChoice) {
	seen := make([]bool, len(choices))
	for i := range choices {
		k := choices[i].Index
		if k < 0 || k >= len(seen) || seen[k] {
			for i := range choices {
				choices[i].Index = i
			}
			return
		}
		seen[k] = true
	}
}

// readStream yields the chunks of a stream.
func (r *chatReply) readStream() error {
	events := eventReader{r: r.c.body, max: int(r.c.b.opts.MaxEvent)}
	for {
		e, err := events.next()
		switch {
		case err != nil:
			return r.streamEnd(err)
		case e.kind == eventPing:
			continue
		case isDone(e.data) && !r.begun:
			return r.c.invalid("the stream has no chunks before [DONE]")
		case isDone(e.data):
			r.c.done = true
			return nil
		case e.kind == eventError:
			return r.errorEvent(e.data)
		}
		chunk, err := r.decode(e.data)
		if err != nil {
			return err
		}
		if r.holdBack(chunk, len(e.data)) {
			continue
		}
		r.surrogates.join(chunk, e.data)
		r.noteFinished(chunk)
		if !r.yield(chunk, nil) {
			return nil
		}
	}
}

// streamEnd returns the error of a stream that ended, with io.EOF or another
// error, before [DONE]. It is nil if all choices were finished, unless the
// client has gone.
func (r *chatReply) streamEnd(err error) error {
	switch {
	case err == io.EOF && !r.begun:
		return r.c.invalid("the stream is empty")
	case len(r.finished) == r.requested && (err == io.EOF || r.c.client.Err() == nil):
		return nil
	case err == io.EOF:
		return r.c.invalid("the stream ended with neither a finish_reason nor [DONE]")
	}
	return r.c.interrupted(err)
}

// errorEvent returns the error of an event of type error.
func (r *chatReply) errorEvent(data []byte) error {
	e, ok := parseServerError(data)
	if !ok {
		e.message = string(data)
	}
	return r.c.serverFailure(e.status(), e, "")
}

// decode decodes a chunk, or a whole reply as a chunk.
func (r *chatReply) decode(data []byte) (*llmhttp.ChatChunk, error) {
	chunk := new(llmhttp.ChatChunk)
	if err := chunk.UnmarshalJSON(data); err != nil {
		return nil, r.c.malformed(err)
	}
	hasResult := len(chunk.Choices) > 0 || chunk.Usage != nil
	if err := r.c.errorIn(data, chunk.Extra["error"], hasResult); err != nil {
		return nil, err
	}
	delete(chunk.Extra, "error")
	for i := range chunk.Choices {
		if chunk.Choices[i].FinishReason == finishError {
			return nil, r.c.invalid(`a choice ended with the finish_reason "error"`)
		}
	}
	if r.c.model.client != r.c.model.server {
		chunk.Model = r.c.model.client
	}
	return chunk, nil
}

// finishError is the finish_reason with which some servers report an error.
const finishError = "error"

// maxEarly bounds the chunks that are held back, in bytes.
const maxEarly = 64 << 10

// holdBack reports whether chunk is not to be yielded, because the reply has not
// begun. Azure sends the results of its filters first, in a chunk without an ID,
// but the ID of the first chunk that is yielded is that of the reply. Members of
// chunks that were held back are added to the next chunk. size is the size of
// the chunk in bytes.
func (r *chatReply) holdBack(chunk *llmhttp.ChatChunk, size int) bool {
	if r.begun {
		return false
	}
	if r.early != nil {
		maps.Copy(r.early, chunk.Extra)
		chunk.Extra, r.early = r.early, nil
	}
	r.begun = len(chunk.Choices) > 0 || chunk.Usage != nil
	r.earlySize += size
	if r.begun || chunk.ID != "" || r.earlySize > maxEarly {
		return false
	}
	r.early = chunk.Extra
	return true
}

// noteFinished records which choices chunk finishes.
func (r *chatReply) noteFinished(chunk *llmhttp.ChatChunk) {
	for i := range chunk.Choices {
		c := &chunk.Choices[i]
		if c.FinishReason != "" && c.Index >= 0 && c.Index < r.requested {
			r.finished[c.Index] = true
		}
	}
}
