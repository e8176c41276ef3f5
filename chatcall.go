package llmhttp

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"time"
)

// A chatCall is the call of Backend.Chat for a request of any protocol, and its
// reply. Its fields are guarded by the response's mu while the Backend runs: a Backend
// that wrongly calls yield from several goroutines at once must not corrupt buffers
// that other requests get later.
type chatCall struct {
	q       *request
	encoder ChatEncoder
	order   orderer
	stream  *eventStream // nil unless the reply is a stream
	size    int          // approximate size of the chunks so far, in bytes
	began   bool         // the Backend has yielded a chunk
	err     error        // why the Backend must stop; errStreamOver if it has returned
}

// serve decodes the request and replies.
func (c *chatCall) serve(decode func(context.Context, *http.Request, []byte) (*ChatRequest, ChatEncoder, error)) error {
	q := c.q
	body, err := q.readBody()
	if err != nil {
		return err
	}
	req, encoder, err := decode(q.life.ctx, q.routed, body.b)
	putBuffer(body)
	if err != nil {
		return q.life.endCauseOr(err)
	}
	if err := c.reserve(req); err != nil {
		return err
	}
	c.encoder = encoder
	c.order.choiceLimit = req.Choices()
	c.order.output.keepText = q.h.opts.CountTokens != nil
	if req.Stream {
		return c.replyStream(req)
	}
	return c.replyWhole(req)
}

// reserve checks the model, and reserves the estimated tokens of the prompt and of the
// reply. If the client sets no limit, a quota that has only the tokens of the prompt left is
// enough.
func (c *chatCall) reserve(req *ChatRequest) error {
	if err := c.q.authorizeModel(req.Model); err != nil {
		return err
	}
	if n := c.q.key.Limits.MaxCompletionTokens; n > 0 {
		limitCompletion(req, n)
		c.order.maxBytes = maxCompletionBytes(n)
	}
	a := &c.q.accounting
	a.promptTokens = a.countPrompt(req)
	tokens := chatCost(a.promptTokens, c.q.h.opts.ReserveCompletion, req, &c.q.key.Limits)
	minTokens := tokens
	if _, ok := req.TokenLimit(); !ok {
		minTokens = a.promptTokens
	}
	return a.reserve(estimate{tokens: tokens, minTokens: minTokens})
}

// chatCost returns the number of tokens to reserve for a chat: its prompt, and
// the limit of each choice. A choice without a limit gets reserve, as far as the
// limits of the key can ever allow it: what it uses beyond that is taken when the
// request is settled.
func chatCost(prompt, reserve int, r *ChatRequest, l *Limits) int {
	limit, ok := r.TokenLimit()
	if !ok {
		limit = reserve
	}
	cost := math.MaxInt32
	if n := r.Choices(); limit <= (math.MaxInt32-prompt)/n {
		cost = prompt + limit*n
	}
	if ok {
		return cost
	}
	if l.Tokens.N != 0 {
		cost = min(cost, l.Tokens.WithDefaults().Burst)
	}
	if l.Quota.Tokens != 0 {
		cost = min(cost, l.Quota.Tokens)
	}
	return max(cost, prompt)
}

// limitCompletion sets the limits on the tokens of a choice to at most limit, which is
// Limits.MaxCompletionTokens.
func limitCompletion(r *ChatRequest, limit int) {
	for _, n := range []*int{r.MaxTokens, r.MaxCompletionTokens} {
		if n != nil {
			*n = min(*n, limit)
		}
	}
	if _, ok := r.TokenLimit(); !ok {
		r.MaxCompletionTokens = &limit
	}
}

// maxCompletionBytes returns the maximum length of the texts of a choice that may have that
// many tokens. Only a Backend that ignores the limit on tokens exceeds it.
func maxCompletionBytes(tokens int) int {
	const perToken, slack = 8, 64
	return min(tokens, math.MaxInt32)*perToken + slack
}

// replyWhole answers with a whole reply.
func (c *chatCall) replyWhole(req *ChatRequest) error {
	joined := new(joiner)
	c.order.sink = joined
	var collected *collectedReply
	if collector, ok := c.encoder.(ChunkCollector); ok {
		collected = &collectedReply{call: c, collector: collector}
		c.order.sink = collected
	}
	if err := c.callBackend(req); err != nil {
		return err
	}
	c.order.complete()
	c.q.accounting.settle()
	if collected != nil && collected.err != nil {
		return collected.err
	}
	c.completeStart()
	r := joined.response(&c.order)
	r.Usage = &c.q.accounting.record.Usage
	c.q.log.warn(c.order.misuses)
	if err := c.saveReply(r.Extra); err != nil {
		return err
	}
	return c.q.reply(func(b []byte) ([]byte, error) {
		defer c.dropReply()
		return c.encoder.AppendWhole(b, r)
	})
}

// A collectedReply is a chunkSink that passes the chunks of a whole reply to a
// ChunkCollector.
type collectedReply struct {
	call      *chatCall
	collector ChunkCollector
	started   bool
	err       error
}

func (r *collectedReply) add(c *ChatChunk) {
	if !r.started {
		r.started = true
		r.collector.CollectStart(r.call.completeStart())
	}
	if r.err == nil {
		r.err = r.collector.CollectChunk(c)
	}
}

// saveTimeout bounds how long a ReplySaver may take to store a reply.
const saveTimeout = time.Second

// saveReply stores a complete reply if the encoder is a ReplySaver. The response's mu
// must not be held, because a store takes time.
func (c *chatCall) saveReply(extra Extra) error {
	save := c.saveFunc(extra)
	if save == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(c.q.life.ctx, saveTimeout)
	defer cancel()
	c.q.observer.stepClass = ClassInternal
	err := save(ctx)
	if err == nil {
		return nil
	}
	if cause := c.q.life.endCause(); cause != nil {
		return cause
	}
	return c.saveFailed(err)
}

// saveFailed is called after the reply was not stored because of err. It returns nil if the
// reply is sent nevertheless.
func (c *chatCall) saveFailed(err error) error {
	c.q.res.mu.Lock()
	defer c.q.res.mu.Unlock()
	if c.q.res.state == stateDone {
		return c.q.res.err
	}
	if failure := c.encoder.(ReplySaver).SaveFailed(err); failure != nil {
		return failure
	}
	c.q.observer.saveErr = err
	c.q.log.print(slog.LevelWarn, "reply not stored", err)
	return nil
}

// saveFunc returns the function that stores the reply, or nil if there is nothing to store.
func (c *chatCall) saveFunc(extra Extra) func(context.Context) error {
	c.q.res.mu.Lock()
	defer c.q.res.mu.Unlock()
	saver, ok := c.encoder.(ReplySaver)
	if !ok || c.q.res.state == stateDone {
		return nil
	}
	return saver.SaveReply(&c.q.accounting.record.Usage, extra)
}

// replyStream answers with a stream. Its usage is recorded before its end is
// sent, so that a client that has all of it finds its usage reported.
func (c *chatCall) replyStream(req *ChatRequest) error {
	c.stream = &eventStream{q: c.q, encoder: c.encoder}
	c.order.sink = c.stream
	if err := c.callBackend(req); err != nil {
		return err
	}
	c.endChoices()
	c.q.accounting.settle()
	extra := c.order.endExtra()
	c.q.log.warn(c.order.misuses)
	if err := c.saveReply(extra); err != nil {
		return err
	}
	res := &c.q.res
	res.mu.Lock()
	defer res.mu.Unlock()
	if res.state == stateDone {
		return res.err
	}
	return c.stream.end(&c.q.accounting.record.Usage, extra, c.q.accounting.slotRelease())
}

// dropReply lets the reply be garbage-collected. It is called when the end of the reply is
// encoded.
func (c *chatCall) dropReply() {
	c.order.sink, c.encoder = nil, nil
	if c.stream != nil {
		c.stream.encoder = nil
	}
}

// endChoices ends the choices of a stream, unless it has failed.
func (c *chatCall) endChoices() {
	c.q.res.mu.Lock()
	defer c.q.res.mu.Unlock()
	if c.q.res.state != stateDone {
		c.order.complete()
	}
}

var (
	errNilStream     = errors.New("llmhttp: the Backend returned a nil ChatStream")
	errNoChunk       = errors.New("llmhttp: the stream ended without a chunk or an error")
	errFailNil       = errors.New("llmhttp: Fail was called with a nil error")
	errStreamOver    = errors.New("llmhttp: the stream's function has returned")
	errReplyComplete = errors.New("llmhttp: the reply has all the tokens that it may have")
)

// callBackend calls the Backend and passes its chunks on.
func (c *chatCall) callBackend(req *ChatRequest) error {
	q := c.q
	if err := q.beginBackendCall(); err != nil {
		return err
	}
	q.observer.startTranscript(req, &c.order)
	q.notifyStarted(req)
	q.accounting.recordable = true
	stream := q.h.backend.Chat(q.life.backendCtx, req)
	if stream == nil {
		stream = Fail(errNilStream)
	}
	stream(c.yield)
	err := c.closeStream()
	q.accounting.notSent = errors.Is(err, ErrNotSent)
	// A Backend may return without an error when its context is done. That is
	// not the end of a reply.
	return q.life.endCauseOr(err)
}

// yield is the yield function of the Backend's stream. When it returns, the chunk was
// written, or is queued for a write with the next chunks or for the whole reply.
func (c *chatCall) yield(chunk *ChatChunk, err error) bool {
	c.q.res.mu.Lock()
	defer c.q.res.mu.Unlock()
	if chunk != nil && chunk.Usage != nil && err == nil && c.err != errStreamOver {
		c.q.accounting.reported = chunk.Usage // also if nobody reads the reply any more
	}
	switch {
	case c.err == errStreamOver:
		c.q.log.warnLocked(misuseYieldAfterReturn)
	case c.err == nil && err == nil:
		err = c.receive(chunk)
	}
	if c.err == nil {
		c.err = err
	}
	return c.err == nil
}

// receive passes a chunk of the Backend on. If it returns an error, the Backend must stop.
func (c *chatCall) receive(chunk *ChatChunk) error {
	q := c.q
	if q.res.state == stateDone {
		return q.res.err
	}
	now := time.Now()
	waited := now.Sub(q.idle.lastProgress)
	q.idle.noteProgress(now)
	q.observer.addChunk(chunk, now)
	if chunk != nil {
		c.began = true
		if c.size += chunk.size(); c.size > q.h.opts.MaxReply {
			return errReplyTooLarge(q.h.opts.MaxReply)
		}
	}
	c.order.add(chunk)
	if c.order.misuses != 0 {
		q.log.warnLocked(c.order.misuses)
	}
	if c.order.err != nil {
		return c.order.err
	}
	if c.stream != nil {
		if err := c.stream.push(now, waited); err != nil {
			return err
		}
	}
	if c.order.isTruncated() {
		return errReplyComplete
	}
	return nil
}

// closeStream refuses further chunks, and returns the error that ended the stream.
func (c *chatCall) closeStream() error {
	res := &c.q.res
	res.mu.Lock()
	defer res.mu.Unlock()
	res.backendRuns = false
	err := c.err
	if c.err == nil || c.err == errReplyComplete {
		c.err, err = errStreamOver, nil
	}
	if err == nil && !c.began {
		return errNoChunk
	}
	return err
}

// completeStart sets what the Backend has left out of the identity of the reply, and
// returns it.
func (c *chatCall) completeStart() *ReplyStart {
	s, a := &c.order.start, &c.q.accounting
	s.PromptTokens = a.promptTokens
	s.Created = cmp.Or(s.Created, a.record.Time.Unix())
	s.Model = cmp.Or(s.Model, a.record.Model)
	return s
}
