// The operation that calls Backend.Chat, and other replies that are a ChatStream. A generation is a
// request whose reply is one.

package llmhttp

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/llmhttp/llmhttp/internal/callctx"
	"github.com/llmhttp/llmhttp/internal/exchange"
	"github.com/llmhttp/llmhttp/internal/texts"
	"github.com/llmhttp/llmhttp/internal/tokens"
	"github.com/llmhttp/llmhttp/llm"
)

// OperationChat is the [Operation] of a chat, in any wire format.
const OperationChat Operation = "chat"

// ScopeChat is the [Scope] of chats, counts of their tokens, and what else belongs to chats, such
// as stored responses.
const ScopeChat Scope = "chat"

var chatOperation = operation{name: OperationChat, scope: ScopeChat, output: OutputText}

// A generation is a request whose reply is a [llm.ChatStream].
type generation struct {
	*llm.ChatRequest
	call *Call // of a request in another form, which Generate serves; nil for a chat
}

// describe sets what Observers see of r.
func (r generation) describe(d *description) {
	if r.call != nil {
		*d = r.call.told
		return
	}
	d.stream = r.Stream
	limit, _ := r.TokenLimit()
	d.params = RequestParams{
		MaxTokens: limit, Choices: r.Choices(), Messages: len(r.Messages), Tools: len(r.Tools),
		Temperature: d.float(r.Temperature), TopP: d.float(r.TopP),
		PresencePenalty: d.float(r.PresencePenalty), FrequencyPenalty: d.float(r.FrequencyPenalty),
		TopK: decodeNumber[float64](r.Extra["top_k"]), Seed: decodeNumber[int](r.Extra["seed"]),
		Stop: slices.Clone(r.Stop), ReasoningEffort: r.ReasoningEffort,
	}
	if r.ResponseFormat != nil {
		d.params.ResponseFormatType = r.ResponseFormat.Type
	}
}

// attempts returns how many choices the model makes.
func (r generation) attempts() int {
	if r.call == nil {
		return r.Choices()
	}
	return max(r.Choices(), r.call.asked.Attempts)
}

// limitTokens lowers the limit on the tokens of a choice to n.
func limitTokens(r *llm.ChatRequest, n int) {
	for _, limit := range []*int{r.MaxTokens, r.MaxCompletionTokens} {
		if limit != nil {
			*limit = min(*limit, n)
		}
	}
	if _, ok := r.TokenLimit(); !ok {
		r.MaxCompletionTokens = &n
	}
}

// serveChat returns a function that serves a chat, which decode decodes.
func serveChat(decode func(context.Context, *http.Request, []byte) (*llm.ChatRequest, ChatEncoder, error)) func(q *request) error {
	return func(q *request) error {
		req, err := q.beginChat(decode)
		if err != nil {
			return err
		}
		if req == nil {
			return q.endReply(nil)
		}
		return q.inCall(ClassBackend, func() error { return q.replyChat(generation{ChatRequest: req}) })
	}
}

// beginChat decodes the request, reserves what it is expected to use, and prepares its reply.
// The request is nil if decode has returned none. It is not a part of serveChat, for the
// reason of begin.
func (q *request) beginChat(decode func(context.Context, *http.Request, []byte) (*llm.ChatRequest, ChatEncoder, error)) (*llm.ChatRequest, error) {
	var req *llm.ChatRequest
	var encoder ChatEncoder
	err := q.withBody(func(ctx context.Context, r *http.Request, body []byte) (err error) {
		req, encoder, err = decode(ctx, r, body)
		return err
	})
	if err == nil && req != nil {
		err = q.reserveChat(generation{ChatRequest: req})
	}
	if err != nil {
		return nil, err
	}
	return req, q.beginReply(generation{ChatRequest: req}, encoder)
}

var (
	errNoEncoder     = errors.New("llmhttp: the decode function of BindChat returned neither an encoder nor an error, or Generate got none")
	errNoContentType = errors.New("llmhttp: the Framing of a ChatEncoder has no ContentType")
)

// reserveChat checks the model, and reserves the estimated tokens of the prompt and of the
// reply. If the client sets no limit, a quota that has only the tokens of the prompt left is
// enough.
func (q *request) reserveChat(req generation) error {
	if err := q.authorizeModel(req.Model); err != nil {
		return err
	}
	if err := q.admitUser(req.EndUser()); err != nil {
		return err
	}
	if n := q.ledger.maxCompletionTokens(); n < 0 {
		return errNoCompletions()
	} else if n > 0 {
		limitTokens(req.ChatRequest, n)
	}
	prompt := q.countPrompt(req)
	e := estimate{prompt: prompt, tokens: q.ledger.chatCost(prompt, q.h.opts.Estimates.ReserveCompletion, req)}
	e.minTokens = e.tokens
	if _, ok := req.TokenLimit(); !ok {
		e.minTokens = prompt
	}
	if tier := req.Extra["service_tier"]; tier != nil {
		e.serviceTier = decodeName(tier)
	}
	return q.reserve(e)
}

// countPrompt estimates the tokens of the prompt of a request.
func (q *request) countPrompt(req generation) int {
	unsent := tokens.Estimate(int(q.unsent))
	if req.call != nil && req.call.asked.Tokens != nil {
		return max(req.call.asked.Tokens(), 0) + unsent
	}
	return q.tokenEstimator().Prompt(req.ChatRequest) + unsent
}

// tokenEstimator returns what estimates the tokens of texts for the request's model.
func (q *request) tokenEstimator() tokens.Estimator {
	return tokens.Estimator{Model: q.record.Model, Count: q.h.opts.Estimates.TextTokens}
}

// beginReply prepares the reply to req. That to a nil ChatRequest is empty.
func (q *request) beginReply(req generation, encoder ChatEncoder) error {
	if encoder == nil {
		return errNoEncoder
	}
	f := encoder.Framing()
	if f.ContentType == "" {
		return errNoContentType
	}
	p, record := &q.chat, q.record
	p.encoder, p.whole, p.order.Sink = encoder, f.Whole, p
	p.cred, p.maxReply = &q.cred, q.h.opts.Bounds.MaxReply
	p.order.Output.KeepText = q.h.opts.Estimates.TextTokens != nil
	p.start = ReplyStart{Created: record.Time.Unix(), Model: record.Model, PromptTokens: q.ledger.expected.prompt}
	if req.ChatRequest != nil {
		p.order.ChoiceLimit = req.Choices()
		if n := q.ledger.maxCompletionTokens(); n > 0 {
			p.order.MaxBytes = tokens.MaxBytes(n)
			if req.call != nil {
				p.order.MaxBytes += max(req.call.asked.EchoBytes, 0)
			}
		}
	}
	q.beginFraming(f, p)
	return nil
}

// chatCost returns the number of tokens to reserve for a request: its prompt, and
// the limit of each choice. A choice without a limit gets reserve, as far as the
// limits of the subjects can ever allow it: what it uses beyond that is taken when the
// request is settled.
func (l *ledger) chatCost(prompt, reserve int, r generation) int {
	limit, ok := r.TokenLimit()
	if !ok {
		limit = reserve
	}
	cost := math.MaxInt32
	if n := max(r.attempts(), 1); limit <= (math.MaxInt32-prompt)/n {
		cost = prompt + limit*n
	}
	if ok {
		return cost
	}
	return max(l.reservable(cost), prompt)
}

// errNoCompletions returns the error for a request whose Limits.MaxCompletionTokens permit none.
func errNoCompletions() *llm.Error {
	return llm.Errorf(http.StatusForbidden, "completions_not_permitted", "Your API key does not permit completions.")
}

// replyChat answers with the reply of the Backend. Its usage is recorded before its end is
// sent, so that a client that has all of it finds its usage reported.
func (q *request) replyChat(req generation) error {
	p := &q.chat
	if err := q.callChat(req); err != nil {
		return err
	}
	err := q.client.Produce(func(_ time.Time, out *exchange.Buffer) error { return p.complete(out) })
	q.settle()
	if err != nil {
		return err
	}
	extra := p.order.EndExtra()
	q.log.warn(p.order.Misuses)
	return q.endReply(extra)
}

// endReply stores the reply, if the encoder is a ReplySaver, and ends it.
func (q *request) endReply(extra llm.Extra) error {
	if err := q.saveReply(extra); err != nil {
		return err
	}
	p, usage := &q.chat, &q.ledger.usage
	if !q.backend.streamed {
		return q.replyAs(http.StatusOK, q.contentType, func(b []byte) ([]byte, error) { return p.appendEnd(b, usage, extra) })
	}
	return q.client.EndStream(func(out *exchange.Buffer) (err error) {
		out.B, err = p.appendEnd(out.B, usage, extra)
		return err
	}, q.ledger.slots.releaser())
}

// callChat calls the Backend, which yields the chunks of the reply.
func (q *request) callChat(req generation) error {
	req.describe(q.description())
	if err := q.beginChunks(); err != nil {
		return err
	}
	defer q.endChunks() // also if the Backend panics
	q.observer.startTranscript(q.backendCtx, req.ChatRequest, &q.chat.order)
	var stream llm.ChatStream
	if c := req.call; c != nil {
		stream = c.generate(q.backendCtx, &c.backend)
	} else {
		stream = q.h.backend.Chat(q.backendCtx, req.ChatRequest)
	}
	if stream == nil {
		stream = llm.Fail(callctx.ErrNilStream)
	}
	stream(q.yield)
	return q.closeChunks()
}

// yield is the yield function of the Backend's stream.
func (q *request) yield(chunk *llm.ChatChunk, err error) bool {
	var usage *llm.Usage
	if chunk != nil {
		usage = chunk.Usage
	}
	return q.admitChunk(usage, err, func() error { return q.receive(chunk) })
}

// receive adds a chunk to the reply. If it returns an error, the Backend must stop.
func (q *request) receive(chunk *llm.ChatChunk) error {
	p, stats, arrived := &q.chat, &q.chunks.stats, q.arrived
	err := q.client.Receive(func(now time.Time, out *exchange.Buffer) error {
		if chunk != nil {
			stats.add(texts.ChunkHasToken(chunk), now.Sub(arrived))
		}
		return p.receive(chunk, out)
	})
	q.log.warn(p.order.Misuses)
	if err == nil && p.order.IsTruncated() {
		err = errReplyComplete
	}
	return err
}

// saveTimeout bounds how long a ReplySaver may take to store a reply.
const saveTimeout = time.Second

// saveReply stores a complete reply if the encoder is a ReplySaver.
func (q *request) saveReply(extra llm.Extra) error {
	save, err := q.saveFunc(extra)
	if save == nil || err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(q.client.Context(), saveTimeout)
	defer cancel()
	err = q.inCall(ClassInternal, func() error { return save(ctx) })
	if err == nil {
		return nil
	}
	if cause := q.client.Cause(); cause != nil {
		return cause
	}
	return classify(ClassInternal, q.saveFailed(unclassified(err)))
}

// saveFunc returns the function that stores the reply, or nil if there is nothing to store.
func (q *request) saveFunc(extra llm.Extra) (save func(context.Context) error, err error) {
	p, usage := &q.chat, &q.ledger.usage
	err = q.client.Produce(func(time.Time, *exchange.Buffer) error {
		save = p.saveFunc(usage, extra)
		return nil
	})
	return save, err
}

// saveFailed is called after the reply was not stored because of err. It returns nil if the
// reply is sent nevertheless.
func (q *request) saveFailed(err error) error {
	p := &q.chat
	failure := q.client.Produce(func(time.Time, *exchange.Buffer) error { return p.encoder.(ReplySaver).SaveFailed(err) })
	if failure != nil {
		return failure
	}
	q.saveErr = err
	q.log.print(slog.LevelWarn, "reply not stored", err)
	return nil
}
