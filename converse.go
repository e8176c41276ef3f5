package llmhttp

import (
	"errors"
	"log/slog"
	"time"
)

// chat serves POST /v1/chat/completions.
func (x *exchange) chat() error {
	req := new(ChatRequest)
	if err := x.readJSON(req); err != nil {
		return err
	}
	if err := req.check(); err != nil {
		return err
	}
	if err := x.useModel(req.Model); err != nil {
		return err
	}
	x.prompt = x.countPrompt(req) // as long as it is ours
	if err := x.admit(chatCost(x.prompt, req)); err != nil {
		return err
	}
	x.shape.counting = x.h.opts.CountTokens != nil
	if !req.Stream {
		var j joiner
		x.shape.init(&j, req.Choices())
		if err := x.converse(req); err != nil {
			return err
		}
		return x.replyWhole(&j)
	}
	x.streamed = true
	x.sse = &sseWriter{x: x}
	x.shape.init(x.sse, req.Choices())
	showUsage := req.StreamOptions != nil && req.StreamOptions.IncludeUsage
	if err := x.converse(req); err != nil {
		return err
	}
	return x.endStream(showUsage)
}

// converse calls the Backend and passes its chunks to the shaper.
func (x *exchange) converse(req *ChatRequest) error {
	if err := x.work(); err != nil {
		return err
	}
	x.h.backend.Chat(&x.ctx, req)(x.accept)
	x.mu.Lock()
	err := x.stopped
	if err == nil {
		x.stopped = errOver
	}
	x.mu.Unlock()
	if x.shape.dropped {
		x.log(slog.LevelWarn, "backend misbehaved", errDropped)
	}
	if err != nil {
		return x.backendError(err)
	}
	// A Backend may just stop when its context is done: that is no end.
	return x.cause()
}

var errDropped = errors.New("llmhttp: choices that were not asked for are dropped")

// errOver is what stops a Backend that yields when its Chat has returned.
var errOver = errors.New("llmhttp: the stream is over")

// accept is the yield of the Backend's stream. In a stream a chunk is on its
// way to the client when accept returns. It is the body of a range loop made by
// hand, which costs less; a Backend that goes on when it was told to stop is
// told again.
func (x *exchange) accept(chunk *ChatChunk, err error) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.stopped == nil && err == nil {
		err = x.take(chunk)
	}
	if x.stopped == nil {
		x.stopped = err
	}
	return x.stopped == nil
}

func (x *exchange) take(chunk *ChatChunk) error {
	if x.dead {
		return x.err
	}
	now := time.Since(x.arrived)
	last := x.watch.spoke
	x.watch.spoke = now
	if x.chunks++; x.chunks == 1 {
		x.first = now
	}
	x.shape.add(chunk)
	if x.sse == nil {
		return nil
	}
	return x.sse.push(now, last)
}

// replyIdentity returns the id, created and model of a chat's reply.
func (x *exchange) replyIdentity() (id string, created int64, model string) {
	id, created, model = x.shape.id, x.shape.created, x.shape.model
	if id == "" {
		id = newID("chatcmpl-")
	}
	if created == 0 {
		created = x.record.Time.Unix()
	}
	if model == "" {
		model = x.record.Model
	}
	return id, created, model
}

// replyWhole ends a chat whose reply is not streamed.
func (x *exchange) replyWhole(j *joiner) error {
	x.shape.complete()
	x.settle()
	r := j.response(&x.shape)
	r.ID, r.Created, r.Model = x.replyIdentity()
	r.Usage = &x.record.Usage
	return x.reply(r)
}

// endStream ends a stream that is complete. Its usage is recorded before
// [DONE], so that a client that has it all is sure to find it reported.
func (x *exchange) endStream(showUsage bool) error {
	x.mu.Lock()
	if !x.dead {
		x.watch.waived = true
		x.shape.complete()
	}
	x.mu.Unlock()
	x.settle()
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.dead:
		return x.err
	case x.sse.faulty != nil:
		return x.sse.faulty
	case showUsage:
		x.sse.usage(&x.record.Usage, mergeExtra(x.shape.extra, x.shape.beside))
	}
	b := x.sse.waiting()
	b.b = append(b.b, eventDone...)
	if err := x.sse.flush(time.Since(x.arrived)); err != nil {
		return err
	}
	x.phase = replied
	return nil
}
