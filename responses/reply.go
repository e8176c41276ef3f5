package responses

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
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

// A reply encodes the reply to one request. Streams and whole replies are made of
// the same items: a whole reply only has no events.
//
// At most one item that takes text is open at a time: reasoning or a message. A
// delta of another kind closes it, so that the order of the items is that in
// which the Backend yielded them. Calls stay open until the end, because their
// arguments may arrive in turns.
type reply struct {
	p        *protocol
	req      *request
	echo     []byte // members of the response that repeat the request
	id       string
	start    llmhttp.ReplyStart
	items    []*item
	text     *item   // the open item that takes text, or nil
	calls    []*item // by the index of the call
	events   events
	outcome  outcome
	finished bool // completedAt is set
}

// An outcome is how a response ended.
type outcome struct {
	status      string
	reason      string // why it is incomplete
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
	var err error
	r.echo, err = newEcho(req, p.stores(req))
	return r, err
}

// AppendStart begins a stream. Clients wait for response.created.
func (r *reply) AppendStart(b []byte, s *llmhttp.ReplyStart) []byte {
	r.start = *s
	r.events.out, r.events.on = b, true
	r.lifecycle("response.created")
	r.lifecycle("response.in_progress")
	return r.events.take()
}

func (r *reply) AppendChunk(b []byte, c *llmhttp.ChatChunk) ([]byte, error) {
	r.events.out = b
	err := r.CollectChunk(c)
	return r.events.take(), err
}

// AppendEnd ends a stream with the whole response.
func (r *reply) AppendEnd(b []byte, u *llmhttp.Usage, extra llmhttp.Extra) ([]byte, error) {
	r.finish(u, extra)
	r.events.out = b
	r.lifecycle("response." + r.outcome.status)
	return r.events.take(), nil
}

// AppendFailure ends a stream that failed. A flat error event is for streams that
// failed before the response began.
func (r *reply) AppendFailure(b []byte, e *llmhttp.Error) []byte {
	r.outcome.err = e
	if !r.events.on {
		return appendErrorEvent(b, e)
	}
	r.outcome.status = statusFailed
	for _, it := range r.items {
		if it.status != statusInProgress {
			continue
		}
		if it.status = statusIncomplete; it.typ == itemCustom {
			it.arguments = nil // they are JSON until the call is complete
		}
	}
	r.events.out = b
	r.lifecycle("response.failed")
	return r.events.take()
}

func (r *reply) CollectStart(s *llmhttp.ReplyStart) { r.start = *s }

// AppendWhole appends the response.
func (r *reply) AppendWhole(b []byte, c *llmhttp.ChatResponse) ([]byte, error) {
	r.finish(c.Usage, c.Extra)
	return r.appendResponse(b), nil
}

// finish completes the response. It is called by SaveReply if that is called, so
// that the response is stored as it is sent.
func (r *reply) finish(u *llmhttp.Usage, extra llmhttp.Extra) {
	if r.finished {
		return
	}
	r.finished = true
	r.noteExtra(extra)
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
	for _, it := range r.items {
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

// noteExtra notes members of chunks that are members of the response.
func (r *reply) noteExtra(e llmhttp.Extra) {
	if tier := e["service_tier"]; len(tier) > 0 && tier[0] == '"' {
		r.outcome.serviceTier = tier
	}
}

// CollectChunk adds a chunk to the items.
func (r *reply) CollectChunk(c *llmhttp.ChatChunk) error {
	r.noteExtra(c.Extra)
	choice := &c.Choices[0]
	d := &choice.Delta
	logprobs, err := r.logprobsOf(choice)
	if err != nil {
		return err
	}
	if choice.FinishReason != "" {
		return r.end(choice.FinishReason)
	}
	if d.Reasoning != "" || len(d.ReasoningDetails) > 0 {
		if err := r.addReasoning(d); err != nil {
			return err
		}
	}
	if d.Content != "" {
		if err := r.addText(partText, d.Content, logprobs); err != nil {
			return err
		}
	}
	if d.Refusal != "" {
		if err := r.addText(partRefusal, d.Refusal, nil); err != nil {
			return err
		}
	}
	for i := range d.ToolCalls {
		if err := r.addCall(&d.ToolCalls[i]); err != nil {
			return err
		}
	}
	return nil
}

// open adds an item to the output.
func (r *reply) open(it *item) *item {
	it.id, it.index, it.status = newID(idPrefixes[it.typ]), len(r.items), statusInProgress
	r.items = append(r.items, it)
	r.itemEvent("response.output_item.added", it)
	return it
}

// openText returns the open item that takes text of a type. It closes the one of
// another type.
func (r *reply) openText(typ string) (*item, error) {
	if r.text != nil && r.text.typ == typ {
		return r.text, nil
	}
	if err := r.closeText(statusCompleted); err != nil {
		return nil, err
	}
	r.text = r.open(&item{typ: typ})
	return r.text, nil
}

func (r *reply) closeText(status string) error {
	if r.text == nil {
		return nil
	}
	it := r.text
	r.text = nil
	return r.close(it, status)
}

func (r *reply) addReasoning(d *llmhttp.Delta) error {
	it, err := r.openText(itemReasoning)
	if err != nil {
		return err
	}
	it.details = append(it.details, d.ReasoningDetails...)
	if d.Reasoning == "" {
		return nil
	}
	if len(it.parts) == 0 {
		r.openPart(it, partSummary)
	}
	r.addDelta(it, d.Reasoning, nil)
	return nil
}

// logprobsOf returns the logprobs of a choice if the client wants them. Those of
// tokens that are only a part of a character arrive without a text: they are
// added to the open part.
func (r *reply) logprobsOf(c *llmhttp.ChunkChoice) ([]byte, error) {
	raw := c.Extra["logprobs"]
	if !r.req.logprobs || len(raw) == 0 {
		return nil, nil
	}
	logprobs, err := convertLogprobs(raw)
	if err != nil || c.Delta.Content != "" || len(logprobs) == 0 {
		return logprobs, err
	}
	if it := r.text; it != nil && it.typ == itemMessage && it.parts[len(it.parts)-1].typ == partText {
		r.addDelta(it, "", logprobs)
	}
	return nil, nil
}

func (r *reply) addText(typ partType, text string, logprobs []byte) error {
	it, err := r.openText(itemMessage)
	if err != nil {
		return err
	}
	if n := len(it.parts); n == 0 || it.parts[n-1].typ != typ {
		if n > 0 {
			r.closePart(it)
		}
		r.openPart(it, typ)
	}
	r.addDelta(it, text, logprobs)
	return nil
}

func (r *reply) openPart(it *item, typ partType) {
	it.parts = append(it.parts, part{typ: typ})
	r.partEvent(partAdded, it)
}

func (r *reply) closePart(it *item) {
	r.textDone(it)
	r.partEvent(partDone, it)
}

// addDelta adds text to the last part of an item.
func (r *reply) addDelta(it *item, text string, logprobs []byte) {
	p := &it.parts[len(it.parts)-1]
	p.text = append(p.text, text...)
	if len(logprobs) > 0 {
		if len(p.logprobs) > 0 {
			p.logprobs = append(p.logprobs, ',')
		}
		p.logprobs = append(p.logprobs, logprobs...)
	}
	r.textDelta(it, text, logprobs)
}

func (r *reply) addCall(t *llmhttp.ToolCallDelta) error {
	if t.Index == len(r.calls) {
		if err := r.closeText(statusCompleted); err != nil {
			return err
		}
		r.calls = append(r.calls, r.open(r.newCall(t)))
	}
	it := r.calls[t.Index]
	it.arguments = append(it.arguments, t.Function.Arguments...)
	if it.typ == itemCall && t.Function.Arguments != "" {
		r.argumentsEvent("response.function_call_arguments.delta", it, t.Function.Arguments)
	}
	return nil
}

// newCall returns the item of a call, whose first delta is t. A Backend may also
// call a custom tool by its own type.
func (r *reply) newCall(t *llmhttp.ToolCallDelta) *item {
	it := &item{typ: itemCall, callID: t.ID}
	if t.Type == toolCustom {
		var custom struct{ Name, Input string }
		if json.Unmarshal(t.Extra[toolCustom], &custom) == nil {
			it.typ, it.name.name = itemCustom, custom.Name
			it.arguments = append(it.arguments, wrapInput(custom.Input)...)
			return it
		}
	}
	var custom bool
	if it.name, custom = r.req.tools.tool(t.Function.Name); custom {
		it.typ = itemCustom
	}
	return it
}

// end closes the items. In a response that is incomplete, so is the last item.
func (r *reply) end(reason llmhttp.FinishReason) error {
	r.outcome.status = statusCompleted
	switch reason {
	case llmhttp.FinishLength:
		r.outcome.status, r.outcome.reason = statusIncomplete, "max_output_tokens"
	case llmhttp.FinishContentFilter:
		r.outcome.status, r.outcome.reason = statusIncomplete, "content_filter"
	}
	if len(r.items) == 0 {
		// Agents ask the model again if there is no message.
		it, err := r.openText(itemMessage)
		if err != nil {
			return err
		}
		r.openPart(it, partText)
	}
	for i, it := range r.items {
		if it.status != statusInProgress {
			continue
		}
		status := statusCompleted
		if i == len(r.items)-1 {
			status = r.outcome.status
		}
		if err := r.close(it, status); err != nil {
			return err
		}
	}
	r.text = nil
	return nil
}

// close completes an item.
func (r *reply) close(it *item, status string) error {
	it.status = status
	switch it.typ {
	case itemCall:
		if len(it.arguments) == 0 && status == statusCompleted {
			// Clients parse the arguments.
			it.arguments = []byte("{}")
			r.argumentsEvent("response.function_call_arguments.delta", it, "{}")
		}
		r.argumentsEvent("response.function_call_arguments.done", it, string(it.arguments))
	case itemCustom:
		input := unwrapInput(string(it.arguments))
		it.arguments = []byte(input)
		r.argumentsEvent("response.custom_tool_call_input.delta", it, input)
		r.argumentsEvent("response.custom_tool_call_input.done", it, input)
	default:
		if len(it.parts) > 0 {
			r.closePart(it)
		}
	}
	if it.typ == itemReasoning {
		if err := r.seal(it); err != nil {
			return err
		}
	}
	r.itemEvent("response.output_item.done", it)
	return nil
}

// seal sets the encrypted_content of an item if a client or the store gets it.
func (r *reply) seal(it *item) error {
	if !r.req.sealed && !r.p.stores(r.req) {
		return nil
	}
	sealed := &sealedReasoning{Details: joinDetails(it.details)}
	if len(it.parts) > 0 {
		sealed.Text = string(it.parts[0].text)
	}
	var err error
	it.encrypted, err = r.p.sealer.seal(r.req.account, sealed)
	return err
}

// joinDetails joins details that arrived in pieces.
func joinDetails(details []llmhttp.ReasoningDetail) []llmhttp.ReasoningDetail {
	if len(details) == 0 {
		return nil
	}
	chunk := &llmhttp.ChatChunk{Choices: []llmhttp.ChunkChoice{{Delta: llmhttp.Delta{ReasoningDetails: details}}}}
	joined, err := llmhttp.Collect(func(yield func(*llmhttp.ChatChunk, error) bool) { yield(chunk, nil) })
	if err != nil || len(joined.Choices) == 0 {
		return details
	}
	return joined.Choices[0].Message.ReasoningDetails
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

// convertLogprobs returns the logprobs of the content in those of a choice of chat
// completions, joined by commas.
func convertLogprobs(raw json.RawMessage) ([]byte, error) {
	type token struct {
		Token       string          `json:"token"`
		Bytes       json.RawMessage `json:"bytes,omitempty"`
		Logprob     float64         `json:"logprob"`
		TopLogprobs []token         `json:"top_logprobs,omitempty"`
	}
	var all struct{ Content []token }
	if json.Unmarshal(raw, &all) != nil || len(all.Content) == 0 {
		return nil, nil // of another server, in another form
	}
	var b strings.Builder
	for i := range all.Content {
		t := &all.Content[i]
		encoded, err := marshal(&struct {
			Token       string          `json:"token"`
			Bytes       json.RawMessage `json:"bytes,omitzero"`
			Logprob     float64         `json:"logprob"`
			TopLogprobs []token         `json:"top_logprobs"`
		}{t.Token, t.Bytes, t.Logprob, append([]token{}, t.TopLogprobs...)})
		if err != nil {
			return nil, err
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(encoded)
	}
	return []byte(b.String()), nil
}
