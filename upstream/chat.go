package upstream

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"sync"

	"github.com/llmhttp/llmhttp"
)

// Chat implements [llmhttp.Backend].
func (b *Backend) Chat(ctx context.Context, req *llmhttp.ChatRequest) llmhttp.ChatStream {
	return func(yield func(*llmhttp.ChatChunk, error) bool) {
		if err := b.converse(ctx, req, yield); err != nil {
			yield(nil, err)
		}
	}
}

// converse yields the chunks of the reply to req. What it returns is to be
// yielded as well.
func (b *Backend) converse(ctx context.Context, req *llmhttp.ChatRequest, yield func(*llmhttp.ChatChunk, error) bool) error {
	model := modelName{req.Model, b.serverModel(req.Model)}
	body, err := b.encodeChat(req, model.theirs)
	if err != nil {
		return err
	}
	c, err := b.send(ctx, b.chat, body, req.Stream, model)
	if err != nil {
		return err
	}
	defer c.close()
	r := replies.Get().(*reply)
	defer r.free()
	r.begin(c, req.Choices(), yield)
	return r.read(req.Stream)
}

// encodeChat returns what the server is asked. The request stays as it is.
func (b *Backend) encodeChat(req *llmhttp.ChatRequest, model string) (net.Buffers, error) {
	r := *req
	r.Model = model
	r.StreamOptions = nil
	if r.Stream && !b.opts.OmitStreamOptions {
		r.StreamOptions = &llmhttp.StreamOptions{IncludeUsage: true}
		if req.StreamOptions != nil {
			r.StreamOptions.Extra = req.StreamOptions.Extra
		}
	}
	body, err := r.MarshalJSON()
	return net.Buffers{body}, err
}

// A reply is that to a chat while it is read.
type reply struct {
	c      *call
	yield  func(*llmhttp.ChatChunk, error) bool
	alias  string // what clients call the model, if it is not what the server does
	limit  int    // how many choices were asked for
	spoke  bool   // there was something of a reply
	choice []progress

	buf     *buffer
	events  eventReader
	decoder decoder
}

// A progress is how far a choice has come.
type progress struct{ begun, ended bool }

var replies = sync.Pool{New: func() any { return new(reply) }}

func (r *reply) begin(c *call, limit int, yield func(*llmhttp.ChatChunk, error) bool) {
	r.c, r.yield, r.limit, r.spoke = c, yield, limit, false
	if r.alias = ""; c.model.ours != c.model.theirs {
		r.alias = c.model.ours
	}
	r.choice = r.choice[:0]
	r.buf = getBuffer()
	r.events.reset(c, r.buf, c.b.opts.MaxEvent)
	r.decoder.reset()
}

func (r *reply) free() {
	putBuffer(r.buf)
	r.c, r.yield, r.buf = nil, nil, nil
	r.events.reset(nil, nil, 0)
	r.decoder.reset()
	r.decoder.Reset(nil)
	replies.Put(r)
}

// read reads the reply as what it is. What was asked for only tells what is
// likely.
func (r *reply) read(stream bool) error {
	if !stream && !isEvents(r.c.resp.Header) {
		if err := r.c.readAll(r.buf, r.c.b.opts.MaxReply); err != nil {
			return r.c.broken(err)
		}
		if !looksLikeEvents(r.buf.b) {
			return r.whole()
		}
		r.events.err = io.EOF // all of it is in buf
		return r.stream()
	}
	switch r.events.peek() {
	case '{', '[', '<':
	case 0:
		if r.events.err != nil && r.events.err != io.EOF {
			return r.c.broken(r.events.err)
		}
	default:
		return r.stream()
	}
	limit := r.c.b.opts.MaxReply
	if r.events.err == nil {
		if err := r.c.readAll(r.buf, limit); err != nil {
			return r.c.broken(err)
		}
	}
	if int64(len(r.buf.b)) > limit {
		return r.c.broken(errTooLarge)
	}
	return r.whole()
}

// isEvents reports whether h is the header of a stream.
func isEvents(h http.Header) bool {
	const events = "text/event-stream"
	t := h.Get("Content-Type")
	return len(t) >= len(events) && t[:len(events)] == events
}

// looksLikeEvents reports whether a body whose header does not say so is a
// stream.
func looksLikeEvents(body []byte) bool {
	body = bytes.TrimLeft(bytes.TrimPrefix(body, byteOrderMark), "\r\n")
	for _, prefix := range []string{"data:", "event:", "id:", "retry:", ":"} {
		if bytes.HasPrefix(body, []byte(prefix)) {
			return true
		}
	}
	return false
}

// whole yields a reply that is no stream.
func (r *reply) whole() error {
	body := bytes.TrimPrefix(r.buf.b, byteOrderMark)
	if err := r.c.errorIn(body); err != nil {
		return err
	}
	chunk, err := r.decode(body)
	if err != nil {
		return err
	}
	if len(chunk.Choices) == 0 {
		return r.c.failure(http.StatusBadGateway, messageFailed, "the reply has no choices", nil)
	}
	number(chunk.Choices)
	r.yield(chunk, nil)
	return nil
}

// number gives the choices of a whole reply their places as indices, unless each
// has one of them.
func number(choices []llmhttp.ChunkChoice) {
	if len(choices) == 1 { // as most have
		choices[0].Index = 0
		return
	}
	seen := make([]bool, len(choices))
	for i := range choices {
		if k := choices[i].Index; k >= 0 && k < len(seen) && !seen[k] {
			seen[k] = true
			continue
		}
		for i := range choices {
			choices[i].Index = i
		}
		return
	}
}

// stream yields the chunks of a stream.
func (r *reply) stream() error {
	var early llmhttp.Extra // of chunks before the reply's own
	room := maxEarly
	for {
		name, data, err := r.events.next()
		switch {
		case err == io.EOF && !r.spoke:
			return r.c.failure(http.StatusBadGateway, messageFailed, "the stream is empty", nil)
		case err != nil && r.ended(r.limit) && (err == io.EOF || r.c.client.Err() == nil):
			return nil // all that matters came
		case err == io.EOF:
			return r.c.failure(http.StatusBadGateway, messageFailed, "the stream ended with neither a finish_reason nor [DONE]", nil)
		case err != nil:
			return r.c.broken(err)
		case name == eventPing:
			continue
		case isDone(data):
			if !r.spoke {
				return r.c.failure(http.StatusBadGateway, messageFailed, "the stream has nothing but its end", nil)
			}
			r.c.complete()
			return nil
		}
		if name == eventError {
			return r.eventError(data)
		}
		chunk, err := r.decode(data)
		if err != nil {
			return err
		}
		if !r.spoke && chunk.ID == "" && len(chunk.Choices) == 0 && chunk.Usage == nil && len(data) <= room {
			// Azure tells of the prompt first, in a chunk without a name. The
			// reply has the name of the next.
			early = merge(early, chunk.Extra)
			room -= len(data)
			continue
		}
		if early != nil {
			chunk.Extra, early = merge(early, chunk.Extra), nil
		}
		r.spoke = r.spoke || len(chunk.Choices) > 0 || chunk.Usage != nil
		r.note(chunk)
		if !r.yield(chunk, nil) {
			return nil
		}
	}
}

// maxEarly bounds the chunks that are kept until a reply has a name, in bytes.
const maxEarly = 64 << 10

// merge returns what either has, or b where both do. It may write to a.
func merge(a, b llmhttp.Extra) llmhttp.Extra {
	if a == nil {
		return b
	}
	maps.Copy(a, b)
	return a
}

// eventError returns the error of an event that is one.
func (r *reply) eventError(data []byte) error {
	told, ok := readTold(data)
	if !ok {
		told.message = string(data)
	}
	return r.c.refusal(told.status(), told, "")
}

// decode decodes a chunk, or the whole of a reply as one.
func (r *reply) decode(data []byte) (*llmhttp.ChatChunk, error) {
	chunk, err := r.decoder.chunk(data)
	if err != nil {
		return nil, r.c.malformed(err)
	}
	if r.decoder.problem != nil {
		return nil, r.c.reported(r.decoder.problem)
	}
	for i := range chunk.Choices {
		if chunk.Choices[i].FinishReason == finishError {
			return nil, r.c.failure(http.StatusBadGateway, messageFailed, "the server ended the reply for an error", nil)
		}
	}
	if r.alias != "" {
		chunk.Model = r.alias
	}
	return chunk, nil
}

// finishError is the finish_reason by which some servers say that a reply is
// none.
const finishError = "error"

// note notes how far the choices of a chunk have come.
func (r *reply) note(chunk *llmhttp.ChatChunk) {
	for i := range chunk.Choices {
		c := &chunk.Choices[i]
		if c.Index < 0 || c.Index >= r.limit {
			continue
		}
		for len(r.choice) <= c.Index {
			r.choice = append(r.choice, progress{})
		}
		p := &r.choice[c.Index]
		p.begun, p.ended = true, p.ended || c.FinishReason != ""
	}
}

// ended reports whether every choice that began has ended, and at least n have.
func (r *reply) ended(n int) bool {
	for _, p := range r.choice {
		if p.begun && !p.ended {
			return false
		}
		if p.ended {
			n--
		}
	}
	return n <= 0
}
