// The ChatEncoder of the format. It is a ReplySaver: a response is stored before response.completed is
// written. What is stored is made while the lock of the reply is held, and written to the store
// without it.

package responses

import (
	"encoding/json"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/randomid"
	"github.com/llmhttp/llmhttp/llm"
)

// The states of a response and of its items.
const (
	statusInProgress = "in_progress"
	statusCompleted  = "completed"
	statusIncomplete = "incomplete"
	statusFailed     = "failed"
)

// An encoder encodes the reply to one request. Streams and whole replies have the same
// items. A whole reply has no events.
type encoder struct {
	p        *protocol
	req      *request
	echo     []byte // see encodeEcho
	id       string
	start    llmhttp.ReplyStart
	output   outputBuilder
	outcome  outcome
	finished bool // the outcome is final

	// of a request that compacts
	summary  []byte    // the text so far
	progress time.Time // of the last event about it
	failure  error     // why the reply is not a summary
}

// An outcome is how a response ended.
type outcome struct {
	status      string
	reason      string // why the response is incomplete; empty if it is complete
	err         *llm.Error
	completedAt int64
	serviceTier json.RawMessage // as the Backend reports it
	moderation  json.RawMessage // the same
	usage       *llm.Usage
}

var _ llmhttp.ReplySaver = (*encoder)(nil)

func newEncoder(p *protocol, req *request) (*encoder, error) {
	e := &encoder{p: p, req: req, id: randomid.New("resp_"), outcome: outcome{status: statusInProgress}}
	e.output = outputBuilder{req: req, events: eventWriter{enabled: req.body.Stream, encrypted: req.wantsEncrypted}}
	if req.wantsEncrypted || p.stores(req) {
		e.output.sealer = p.sealer
	}
	var err error
	e.echo, err = encodeEcho(req, p.stores(req))
	return e, err
}

// conversation returns the ID of the conversation: that of its first response, or "" if the
// response is the first one and is not stored, so that it cannot be continued.
func (e *encoder) conversation() string {
	if e.req.conversation == "" && e.p.stores(e.req) {
		return e.id
	}
	return e.req.conversation
}

func (e *encoder) Framing() llmhttp.Framing {
	if !e.output.events.enabled {
		return llmhttp.Framing{Whole: true, ContentType: "application/json"}
	}
	f := llmhttp.EventStream()
	f.StartsEarly, f.EndsCleanly = true, true
	return f
}

// AppendStart begins a stream. Clients wait for response.created.
func (e *encoder) AppendStart(b []byte, s *llmhttp.ReplyStart) []byte {
	e.start = *s
	if !e.output.events.enabled {
		return b
	}
	e.output.events.buf = b
	e.responseEvent("response.created")
	e.responseEvent("response.in_progress")
	return e.output.events.takeBuffer()
}

// AppendChunk adds a chunk to the items.
func (e *encoder) AppendChunk(b []byte, c *llm.ChatChunk) ([]byte, error) {
	w, sequence, items := &e.output.events, e.output.events.sequence, len(e.output.items)
	w.buf = b
	err := e.addChunk(c)
	if err != nil { // the events about c are not sent
		w.sequence, e.output.items = sequence, e.output.items[:items]
	}
	return w.takeBuffer(), err
}

func (e *encoder) addChunk(c *llm.ChatChunk) error {
	e.readExtra(c.Extra)
	choice := &c.Choices[0]
	if e.req.prewarms() {
		e.outcome.status = statusCompleted
		return nil
	}
	if e.req.compacts {
		return e.addToSummary(choice)
	}
	logprobs, err := e.output.takeLogprobs(choice)
	if err != nil {
		return err
	}
	if choice.FinishReason != "" {
		return e.endChoice(choice.FinishReason)
	}
	return e.output.addDelta(&choice.Delta, logprobs)
}

// endChoice sets the status of the response and closes the items.
func (e *encoder) endChoice(reason llm.FinishReason) error {
	e.outcome.status = statusCompleted
	switch reason {
	case llm.FinishLength:
		e.outcome.status, e.outcome.reason = statusIncomplete, "max_output_tokens"
	case llm.FinishContentFilter:
		e.outcome.status, e.outcome.reason = statusIncomplete, "content_filter"
	}
	return e.output.closeAll(e.outcome.status)
}

// AppendEnd ends a stream with the whole response. A whole reply is only that.
func (e *encoder) AppendEnd(b []byte, u *llm.Usage, extra llm.Extra) ([]byte, error) {
	if e.failure != nil {
		return b, e.failure
	}
	e.finish(u, extra)
	switch {
	case e.req.standalone:
		return e.appendCompacted(b), nil
	case !e.output.events.enabled:
		return e.appendResponse(b), nil
	}
	e.output.events.buf = b
	e.responseEvent("response." + e.outcome.status)
	return e.output.events.takeBuffer(), nil
}

// AppendFailure ends a stream that failed. The response has begun, because the
// stream starts early. The event error comes before response.failed, which LangChain ignores: it and
// the official SDKs raise the former, and Codex reads the latter alone.
func (e *encoder) AppendFailure(b []byte, failure *llm.Error) []byte {
	e.outcome.err = failure
	e.outcome.status, e.outcome.reason, e.outcome.completedAt = statusFailed, "", 0
	e.output.markIncomplete()
	e.output.events.buf = b
	e.output.events.failure(failure)
	e.responseEvent("response.failed")
	return e.output.events.takeBuffer()
}

// finish completes the response. SaveReply calls it before AppendEnd does, so that the
// stored response equals the one that is sent. Later calls do nothing.
func (e *encoder) finish(u *llm.Usage, extra llm.Extra) {
	if e.finished {
		return
	}
	e.finished = true
	e.readExtra(extra)
	e.outcome.usage = u
	if e.outcome.status == statusCompleted {
		e.outcome.completedAt = max(time.Now().Unix(), e.start.Created)
	}
}

// readExtra keeps the members of extra that become members of the response.
func (e *encoder) readExtra(extra llm.Extra) {
	if tier := extra["service_tier"]; len(tier) > 0 && tier[0] == '"' {
		e.outcome.serviceTier = tier
	}
	if moderation := convertModeration(extra["moderation"]); moderation != nil {
		e.outcome.moderation = moderation
	}
}

// responseEvent appends an event that contains the response.
func (e *encoder) responseEvent(typ string) {
	w := &e.output.events
	w.beginEvent(typ)
	w.buf = e.appendResponse(append(w.buf, `,"response":`...))
	w.endEvent()
}
