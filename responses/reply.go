package responses

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/llmhttp/llmhttp"
)

// The states of a response and of its items.
const (
	statusInProgress = "in_progress"
	statusCompleted  = "completed"
	statusIncomplete = "incomplete"
	statusFailed     = "failed"
)

// A reply encodes the reply to one request. Streams and whole replies have the same
// items. A whole reply has no events.
type reply struct {
	p        *protocol
	req      *request
	echo     []byte // see encodeEcho
	id       string
	start    llmhttp.ReplyStart
	output   output
	outcome  outcome
	finished bool // the outcome is final
}

// An outcome is how a response ended.
type outcome struct {
	status      string
	reason      string // why the response is incomplete; empty if it is complete
	err         *llmhttp.Error
	completedAt int64
	serviceTier json.RawMessage // as the Backend reports it
	usage       *llmhttp.Usage
}

var (
	_ llmhttp.ChunkCollector = (*reply)(nil)
	_ llmhttp.ReplySaver     = (*reply)(nil)
)

func newReply(p *protocol, req *request) (*reply, error) {
	r := &reply{p: p, req: req, id: newID("resp_"), outcome: outcome{status: statusInProgress}}
	r.output = output{req: req, events: eventWriter{sealed: req.sealed}}
	if req.sealed || p.stores(req) {
		r.output.sealer = p.sealer
	}
	var err error
	r.echo, err = encodeEcho(req, p.stores(req))
	return r, err
}

// AppendStart begins a stream. Clients wait for response.created.
func (r *reply) AppendStart(b []byte, s *llmhttp.ReplyStart) []byte {
	r.start = *s
	r.output.events.buf, r.output.events.enabled = b, true
	r.responseEvent("response.created")
	r.responseEvent("response.in_progress")
	return r.output.events.takeBuffer()
}

func (r *reply) AppendChunk(b []byte, c *llmhttp.ChatChunk) ([]byte, error) {
	r.output.events.buf = b
	err := r.CollectChunk(c)
	return r.output.events.takeBuffer(), err
}

// AppendEnd ends a stream with the whole response.
func (r *reply) AppendEnd(b []byte, u *llmhttp.Usage, extra llmhttp.Extra) ([]byte, error) {
	r.finish(u, extra)
	r.output.events.buf = b
	r.responseEvent("response." + r.outcome.status)
	return r.output.events.takeBuffer(), nil
}

// AppendFailure ends a stream that failed. The response has begun, because the
// route starts early.
func (r *reply) AppendFailure(b []byte, e *llmhttp.Error) []byte {
	r.outcome.err = e
	r.outcome.status, r.outcome.reason, r.outcome.completedAt = statusFailed, "", 0
	r.output.markIncomplete()
	r.output.events.buf = b
	r.responseEvent("response.failed")
	return r.output.events.takeBuffer()
}

func (r *reply) CollectStart(s *llmhttp.ReplyStart) { r.start = *s }

// AppendWhole appends the response.
func (r *reply) AppendWhole(b []byte, c *llmhttp.ChatResponse) ([]byte, error) {
	r.finish(c.Usage, c.Extra)
	return r.appendResponse(b), nil
}

// finish completes the response. SaveReply calls it before AppendEnd or AppendWhole
// do, so that the stored response equals the one that is sent. Later calls do nothing.
func (r *reply) finish(u *llmhttp.Usage, extra llmhttp.Extra) {
	if r.finished {
		return
	}
	r.finished = true
	r.readExtra(extra)
	r.outcome.usage = u
	if r.outcome.status == statusCompleted {
		r.outcome.completedAt = max(time.Now().Unix(), r.start.Created)
	}
}

// SaveReply returns a function that stores the response.
func (r *reply) SaveReply(u *llmhttp.Usage, extra llmhttp.Extra) func(context.Context) error {
	if !r.p.stores(r.req) {
		return nil
	}
	r.finish(u, extra)
	stored := &llmhttp.StoredResponse{
		ID: r.id, Account: r.req.account, Created: time.Now(),
		Body: append(r.appendHead(nil), '}'), Input: r.req.items,
	}
	if previous := r.req.body.PreviousResponseID; previous != nil {
		stored.Previous = *previous
	}
	if r.p.opts.KeepFor > 0 {
		stored.Expires = stored.Created.Add(r.p.opts.KeepFor)
	}
	for _, it := range r.output.items {
		stored.Output = append(stored.Output, llmhttp.StoredItem{ID: it.id, Body: it.append(nil, true)})
	}
	store := r.p.opts.Store
	return func(ctx context.Context) error {
		if err := store.SaveResponse(ctx, stored); err != nil {
			return &llmhttp.Error{Status: http.StatusServiceUnavailable, RetryAfter: time.Second,
				Message: "We could not store the response. Please try again.", Err: err}
		}
		return nil
	}
}

// readExtra keeps the members of e that become members of the response.
func (r *reply) readExtra(e llmhttp.Extra) {
	if tier := e["service_tier"]; len(tier) > 0 && tier[0] == '"' {
		r.outcome.serviceTier = tier
	}
}

// CollectChunk adds a chunk to the items.
func (r *reply) CollectChunk(c *llmhttp.ChatChunk) error {
	r.readExtra(c.Extra)
	choice := &c.Choices[0]
	logprobs, err := r.output.takeLogprobs(choice)
	if err != nil {
		return err
	}
	if choice.FinishReason != "" {
		return r.endChoice(choice.FinishReason)
	}
	return r.output.addDelta(&choice.Delta, logprobs)
}

// endChoice sets the status of the response and closes the items.
func (r *reply) endChoice(reason llmhttp.FinishReason) error {
	r.outcome.status = statusCompleted
	switch reason {
	case llmhttp.FinishLength:
		r.outcome.status, r.outcome.reason = statusIncomplete, "max_output_tokens"
	case llmhttp.FinishContentFilter:
		r.outcome.status, r.outcome.reason = statusIncomplete, "content_filter"
	}
	return r.output.closeAll(r.outcome.status)
}

// errorCode returns the code of the error in a response that failed. SDKs list
// the codes of the original service; Codex also acts on some that a Backend may
// set, such as context_length_exceeded.
func errorCode(e *llmhttp.Error) string {
	switch {
	case e.Code != "":
		return e.Code
	case e.Status == http.StatusTooManyRequests:
		return "rate_limit_exceeded"
	case e.Status >= 500:
		return "server_error"
	}
	return "invalid_prompt"
}

// responseEvent appends an event that contains the response.
func (r *reply) responseEvent(typ string) {
	e := &r.output.events
	if !e.enabled {
		return
	}
	e.beginEvent(typ)
	e.buf = r.appendResponse(append(e.buf, `,"response":`...))
	e.endEvent()
}
