package llmhttp

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
)

// Bounds on the elements of a request. Options.MaxBody bounds its bytes; these
// keep a small body from becoming much memory.
const (
	maxMessages  = 16384
	maxParts     = 4096 // of a message
	maxTools     = 2048
	maxToolCalls = 1024 // of a message
	maxChoices   = 128
	maxStops     = 4
)

// A ChatRequest is the body of POST /v1/chat/completions. A Handler checks requests
// before it passes them to a Backend: there is at least one message, and
// parameters are within their bounds.
//
// A nil pointer means that the client left the choice to the Backend.
type ChatRequest struct {
	Model            string         `json:"model"`
	Messages         []Message      `json:"messages"`
	Stream           bool           `json:"stream,omitzero"` // a Backend may ignore it: the Handler splits and joins
	StreamOptions    *StreamOptions `json:"stream_options,omitzero"`
	Temperature      *float64       `json:"temperature,omitzero"`       // 0 to 2; the format's default is 1
	TopP             *float64       `json:"top_p,omitzero"`             // 0 to 1; the format's default is 1
	PresencePenalty  *float64       `json:"presence_penalty,omitzero"`  // -2 to 2; the format's default is 0
	FrequencyPenalty *float64       `json:"frequency_penalty,omitzero"` // -2 to 2; the format's default is 0

	// MaxTokens bounds the tokens of each choice. MaxCompletionTokens, its
	// successor, also counts reasoning and takes precedence if both are set.
	MaxTokens           *int `json:"max_tokens,omitzero"`
	MaxCompletionTokens *int `json:"max_completion_tokens,omitzero"`

	// ReasoningEffort says how much to reason before the answer: low, medium, high
	// and others, which differ by model and are not checked.
	ReasoningEffort string `json:"reasoning_effort,omitzero"`

	N                 *int            `json:"n,omitzero"`    // number of choices, 1 to 128; the format's default is 1
	Stop              StringList      `json:"stop,omitzero"` // at most 4 sequences that end a choice; an empty string ends none
	ResponseFormat    *ResponseFormat `json:"response_format,omitzero"`
	Tools             []Tool          `json:"tools,omitempty"`
	ToolChoice        json.RawMessage `json:"tool_choice,omitzero"`         // "none", "auto", "required" or an object; nil if not set
	ParallelToolCalls *bool           `json:"parallel_tool_calls,omitzero"` // whether a reply may call several tools; the format's default is true
	Extra             Extra           `json:"-"`
}

var chatRequestJSON = jsonwire.NewObject(
	jsonwire.String("model", func(r *ChatRequest) *string { return &r.Model }).Always(),
	jsonwire.List("messages", func(r *ChatRequest) *[]Message { return &r.Messages }, messageJSON, maxMessages).Always(),
	jsonwire.Bool("stream", func(r *ChatRequest) *bool { return &r.Stream }),
	jsonwire.Pointer("stream_options", func(r *ChatRequest) **StreamOptions { return &r.StreamOptions }, streamOptionsJSON),
	jsonwire.OptionalFloat("temperature", func(r *ChatRequest) **float64 { return &r.Temperature }).Between(0, 2),
	jsonwire.OptionalFloat("top_p", func(r *ChatRequest) **float64 { return &r.TopP }).Between(0, 1),
	jsonwire.OptionalFloat("presence_penalty", func(r *ChatRequest) **float64 { return &r.PresencePenalty }).Between(-2, 2),
	jsonwire.OptionalFloat("frequency_penalty", func(r *ChatRequest) **float64 { return &r.FrequencyPenalty }).Between(-2, 2),
	jsonwire.OptionalInt("max_tokens", func(r *ChatRequest) **int { return &r.MaxTokens }).Between(1, jsonwire.MaxInteger),
	jsonwire.OptionalInt("max_completion_tokens", func(r *ChatRequest) **int { return &r.MaxCompletionTokens }).Between(1, jsonwire.MaxInteger),
	jsonwire.String("reasoning_effort", func(r *ChatRequest) *string { return &r.ReasoningEffort }),
	jsonwire.OptionalInt("n", func(r *ChatRequest) **int { return &r.N }).Between(1, maxChoices),
	jsonwire.Member("stop", func(r *ChatRequest) *StringList { return &r.Stop }, stringListJSON),
	jsonwire.Pointer("response_format", func(r *ChatRequest) **ResponseFormat { return &r.ResponseFormat }, responseFormatJSON),
	jsonwire.List("tools", func(r *ChatRequest) *[]Tool { return &r.Tools }, toolJSON, maxTools),
	jsonwire.Raw("tool_choice", func(r *ChatRequest) *json.RawMessage { return &r.ToolChoice }),
	jsonwire.OptionalBool("parallel_tool_calls", func(r *ChatRequest) **bool { return &r.ParallelToolCalls }),
	jsonwire.Extra(func(r *ChatRequest) *Extra { return &r.Extra }),
)

// Choices returns the number of choices that the client asked for.
func (r *ChatRequest) Choices() int {
	if r.N == nil {
		return 1
	}
	return *r.N
}

// TokenLimit returns the number of tokens that a choice may have, and whether the
// client set a limit.
func (r *ChatRequest) TokenLimit() (n int, ok bool) {
	switch {
	case r.MaxCompletionTokens != nil:
		return *r.MaxCompletionTokens, true
	case r.MaxTokens != nil:
		return *r.MaxTokens, true
	}
	return 0, false
}

// MarshalJSON encodes r. What is nil or empty is left out.
func (r ChatRequest) MarshalJSON() ([]byte, error) { return marshal(chatRequestJSON, &r) }

// UnmarshalJSON decodes a request without checking it.
func (r *ChatRequest) UnmarshalJSON(data []byte) error {
	return unmarshalRequest(data, chatRequestJSON, r)
}

// check returns an *Error for the first parameter that the format does not allow.
func (r *ChatRequest) check() error {
	if r.Model == "" {
		return missing("model")
	}
	if r.Messages == nil {
		return missing("messages")
	}
	if len(r.Messages) == 0 {
		return emptyArray("messages")
	}
	for i := range r.Messages {
		if err := r.Messages[i].check(i); err != nil {
			return err
		}
	}
	if err := chatRequestJSON.Check(r); err != nil {
		return paramError(err)
	}
	if len(r.Stop) > maxStops {
		return longArray("stop", maxStops, len(r.Stop))
	}
	if r.ResponseFormat != nil {
		if err := r.ResponseFormat.check(); err != nil {
			return err
		}
	}
	for i := range r.Tools {
		if err := r.Tools[i].check(i); err != nil {
			return err
		}
	}
	return r.checkToolChoice()
}

func (m *Message) check(i int) error {
	switch m.Role {
	case "":
		return missing(path("messages", i, "role"))
	case RoleAssistant, RoleFunction:
	case RoleSystem, RoleDeveloper, RoleUser, RoleTool:
		if m.Content == nil {
			return invalidType(path("messages", i, "content"), "one of a string or array of objects", "null")
		}
	default:
		return invalidValue(path("messages", i, "role"), string(m.Role), "system", "assistant", "user", "function", "tool", "developer")
	}
	if m.Content != nil && len(m.Content) == 0 {
		return emptyArray(path("messages", i, "content"))
	}
	for j := range m.Content {
		p := &m.Content[j]
		at := func(member string) string { return path(path("messages", i, "content"), j, member) }
		switch {
		case p.Type == "":
			return missing(at("type"))
		case p.Type == PartImage && p.ImageURL == nil:
			return missing(at("image_url"))
		case p.Type == PartImage && p.ImageURL.URL == "":
			return missing(at("image_url.url"))
		case p.Type == PartAudio && p.Extra[PartAudio] == nil:
			return missing(at(PartAudio))
		case p.Type == PartFile && p.Extra[PartFile] == nil:
			return missing(at(PartFile))
		}
	}
	if m.Role == RoleTool && m.ToolCallID == "" {
		return missing(path("messages", i, "tool_call_id"))
	}
	for j := range m.ToolCalls {
		c := &m.ToolCalls[j]
		at := func(member string) string { return path(path("messages", i, "tool_calls"), j, member) }
		switch {
		case c.ID == "":
			return missing(at("id"))
		case isFunction(c.Type) && c.Function.Name == "":
			return missing(at("function.name"))
		}
	}
	return nil
}

func (t *Tool) check(i int) error {
	switch {
	case t.Type == "":
		return missing(path("tools", i, "type"))
	case t.Type != toolFunction:
	case t.Function == nil:
		return missing(path("tools", i, "function"))
	case t.Function.Name == "":
		return missing(path("tools", i, "function.name"))
	case t.Function.Parameters != nil && t.Function.Parameters[0] != '{':
		return badRequest("invalid_type", path("tools", i, "function.parameters"),
			"Invalid type for '%s': expected an object.", path("tools", i, "function.parameters"))
	}
	return nil
}

func (r *ChatRequest) checkToolChoice() error {
	if r.ToolChoice == nil {
		return nil
	}
	if r.ToolChoice[0] == '"' {
		return r.checkToolMode(textOf(r.ToolChoice))
	}
	if r.ToolChoice[0] != '{' {
		return invalidType("tool_choice", "one of a string or object", jsonwire.Describe(string(r.ToolChoice)))
	}
	var choice Tool
	if err := decodeRequest(r.ToolChoice, toolJSON, &choice); err != nil {
		return within("tool_choice", err)
	}
	switch {
	case choice.Type == "":
		return missing("tool_choice.type")
	case choice.Type != toolFunction:
		return nil
	case choice.Function == nil || choice.Function.Name == "":
		return missing("tool_choice.function.name")
	}
	for i := range r.Tools {
		if f := r.Tools[i].Function; f != nil && f.Name == choice.Function.Name {
			return nil
		}
	}
	return badRequest("invalid_value", "tool_choice", "Tool choice 'function' not found in 'tools' parameter: '%s'.", echo(choice.Function.Name))
}

func (r *ChatRequest) checkToolMode(mode string) error {
	switch mode {
	case "none", "auto":
		return nil
	case "required":
		if len(r.Tools) == 0 {
			return badRequest("invalid_value", "tool_choice", "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified.")
		}
		return nil
	}
	return invalidValue("tool_choice", mode, "none", "auto", "required")
}

// StreamOptions are a client's options for a stream.
type StreamOptions struct {
	IncludeUsage bool  `json:"include_usage"` // end with a chunk that has the usage; the Handler adds it
	Extra        Extra `json:"-"`
}

var streamOptionsJSON = jsonwire.NewObject(
	jsonwire.Bool("include_usage", func(o *StreamOptions) *bool { return &o.IncludeUsage }).Always(),
	jsonwire.Extra(func(o *StreamOptions) *Extra { return &o.Extra }),
)

// MarshalJSON encodes o.
func (o StreamOptions) MarshalJSON() ([]byte, error) { return marshal(streamOptionsJSON, &o) }

// UnmarshalJSON decodes stream options.
func (o *StreamOptions) UnmarshalJSON(data []byte) error {
	return unmarshalRequest(data, streamOptionsJSON, o)
}

// A ResponseFormat is the form that a client wants the reply to have. Type is
// text, json_object or json_schema; the schema is in Extra["json_schema"].
type ResponseFormat struct {
	Type  string `json:"type"`
	Extra Extra  `json:"-"`
}

var responseFormatJSON = jsonwire.NewObject(
	jsonwire.String("type", func(f *ResponseFormat) *string { return &f.Type }).Always(),
	jsonwire.Extra(func(f *ResponseFormat) *Extra { return &f.Extra }),
)

// MarshalJSON encodes f.
func (f ResponseFormat) MarshalJSON() ([]byte, error) { return marshal(responseFormatJSON, &f) }

// UnmarshalJSON decodes a response format.
func (f *ResponseFormat) UnmarshalJSON(data []byte) error {
	return unmarshalRequest(data, responseFormatJSON, f)
}

func (f *ResponseFormat) check() error {
	switch f.Type {
	case "":
		return missing("response_format.type")
	case "text", "json_object":
	case "json_schema":
		if schema := f.Extra["json_schema"]; schema == nil || string(schema) == "null" {
			return missing("response_format.json_schema")
		} else if schema[0] != '{' {
			return badRequest("invalid_type", "response_format.json_schema", "Invalid type for 'response_format.json_schema': expected an object.")
		}
	default:
		return invalidValue("response_format.type", f.Type, "json_object", "json_schema", "text")
	}
	return nil
}

// A StringList is one string or several. In JSON it is a string if it has one
// element, and null if it is nil.
type StringList []string

// MarshalJSON encodes l.
func (l StringList) MarshalJSON() ([]byte, error) { return marshal(stringListJSON, &l) }

// UnmarshalJSON decodes a string, an array of strings, or null.
func (l *StringList) UnmarshalJSON(data []byte) error {
	*l = nil
	return unmarshalRequest(data, stringListJSON, l)
}

var stringListJSON jsonwire.Type[StringList] = stringListType{}

type stringListType struct{}

func (stringListType) Decode(d *jsonwire.Decoder, l *StringList) {
	switch d.Kind() {
	case '"':
		*l = StringList{d.String()}
	case '[':
		*l = StringList{}
		d.Array(0, func(int) { *l = append(*l, d.String()) })
	default:
		d.Mismatch("one of a string or array of strings")
	}
}

func (stringListType) Append(b []byte, l *StringList) ([]byte, error) {
	switch {
	case *l == nil:
		return append(b, "null"...), nil
	case len(*l) == 1:
		return appendString(b, (*l)[0]), nil
	}
	return appendStrings(b, *l)
}

func (stringListType) IsZero(l *StringList) bool { return *l == nil }

// A chatCall is the call of Backend.Chat for a request of any protocol, and its
// reply. Its fields are guarded by the response's mu while the Backend runs, so
// that a Backend that calls yield from several goroutines at once does no harm
// to other requests.
type chatCall struct {
	q       *request
	encoder ChatEncoder
	order   orderer
	joiner  joiner       // of a whole reply
	stream  *eventStream // nil unless the reply is a stream
	size    int          // of the chunks, about, in bytes
	err     error        // why the Backend must stop
}

// serve decodes the request and replies.
func (c *chatCall) serve(decode func(context.Context, *http.Request, []byte) (*ChatRequest, ChatEncoder, error)) error {
	q := c.q
	body, err := q.readBody()
	if err != nil {
		return err
	}
	req, encoder, err := decode(q.life.ctx, q.r, body.b)
	putBuffer(body)
	if err != nil {
		return q.life.endedOr(err)
	}
	if err := q.useModel(req.Model); err != nil {
		return err
	}
	limits := &q.key.Limits
	if n := limits.MaxCompletionTokens; n > 0 {
		limitCompletion(req, n)
		c.order.maxBytes = maxCompletionBytes(n)
	}
	q.account.prompt = q.tokens().prompt(req) // before the Backend owns req
	cost := chatCost(q.account.prompt, q.h.opts.ReserveCompletion, req, limits)
	least := cost
	if _, ok := req.TokenLimit(); !ok {
		least = q.account.prompt
	}
	if err := q.account.reserve(estimate{tokens: cost, least: least}); err != nil {
		return err
	}
	c.encoder = encoder
	c.order.limit = req.Choices()
	c.order.output.keepText = q.h.opts.CountTokens != nil
	if req.Stream {
		return c.replyStream(req)
	}
	return c.replyWhole(req)
}

// replyWhole answers with a whole reply.
func (c *chatCall) replyWhole(req *ChatRequest) error {
	c.order.sink = &c.joiner
	var collected *collectedReply
	if collector, ok := c.encoder.(ChunkCollector); ok {
		collected = &collectedReply{call: c, collector: collector}
		c.order.sink = collected
	}
	if err := c.callBackend(req); err != nil {
		return err
	}
	c.order.complete()
	c.q.account.settle()
	if collected != nil && collected.err != nil {
		return collected.err
	}
	r := c.joiner.response(&c.order)
	start := c.replyStart()
	r.Created, r.Model, r.Usage = start.Created, start.Model, &c.q.account.record.Usage
	c.warn(c.order.misuse)
	if err := c.save(r.Extra); err != nil {
		return err
	}
	return c.q.reply(func(b []byte) ([]byte, error) { return c.encoder.AppendWhole(b, r) })
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
		r.collector.CollectStart(r.call.replyStart())
	}
	if r.err == nil {
		r.err = r.collector.CollectChunk(c)
	}
}

// save stores a complete reply if the encoder is a ReplySaver. The response's mu
// must not be held, because a store takes time.
func (c *chatCall) save(extra Extra) error {
	saver, ok := c.encoder.(ReplySaver)
	if !ok {
		return nil
	}
	res := &c.q.res
	res.mu.Lock()
	var save func(context.Context) error
	if res.state != stateDone {
		save = saver.SaveReply(&c.q.account.record.Usage, extra)
	}
	res.mu.Unlock()
	if save == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(c.q.life.ctx, settleGrace)
	defer cancel()
	if err := save(ctx); err != nil {
		return c.q.life.endedOr(err)
	}
	return nil
}

// replyStream answers with a stream. Its usage is recorded before its end is
// sent, so that a client that has all of it finds its usage reported.
func (c *chatCall) replyStream(req *ChatRequest) error {
	c.stream = &eventStream{q: c.q, encoder: c.encoder}
	c.order.sink = c.stream
	if err := c.callBackend(req); err != nil {
		return err
	}
	res := &c.q.res
	res.mu.Lock()
	if res.state != stateDone {
		c.order.complete()
	}
	res.mu.Unlock()
	c.q.account.settle()
	extra := c.order.endExtra()
	c.warn(c.order.misuse)
	if err := c.save(extra); err != nil {
		return err
	}
	res.mu.Lock()
	defer res.mu.Unlock()
	if res.state == stateDone {
		return res.err
	}
	if err := c.stream.end(&c.q.account.record.Usage, extra); err != nil {
		return err
	}
	res.state = stateDone
	return nil
}

var (
	errNilStream     = errors.New("llmhttp: the Backend returned a nil ChatStream")
	errStreamOver    = errors.New("llmhttp: the stream's function has returned")
	errReplyComplete = errors.New("llmhttp: the reply has all the tokens that it may have")
)

// callBackend calls the Backend and passes its chunks on.
func (c *chatCall) callBackend(req *ChatRequest) error {
	q := c.q
	if err := q.beginBackendCall(); err != nil {
		return err
	}
	q.recorder.transcribe(req, &c.order)
	q.recorder.start(req)
	q.account.bill()
	stream := q.h.backend.Chat(q.life.backend, req)
	if stream == nil {
		stream = Fail(errNilStream)
	}
	stream(c.yield)
	err := c.close()
	q.account.noteBackendError(err)
	// A Backend may return without an error when its context is done. That is
	// not the end of a reply.
	return q.life.endedOr(err)
}

// warn logs misuses. The response's mu must not be held.
func (c *chatCall) warn(set misuse) {
	c.q.res.mu.Lock()
	defer c.q.res.mu.Unlock()
	c.q.log.warn(set)
}

// yield is the yield function of the Backend's stream. When it returns, the
// chunk is on its way to the client.
func (c *chatCall) yield(chunk *ChatChunk, err error) bool {
	c.q.res.mu.Lock()
	defer c.q.res.mu.Unlock()
	switch {
	case c.err == errStreamOver:
		c.q.log.warn(misuseAfterReturn)
	case c.err == nil && err == nil:
		err = c.receive(chunk)
	}
	if c.err == nil {
		c.err = err
	}
	return c.err == nil
}

func (c *chatCall) receive(chunk *ChatChunk) error {
	q := c.q
	if q.res.state == stateDone {
		return q.res.err
	}
	now := time.Now()
	q.idle.touch(now)
	q.recorder.addChunk(chunk, now)
	if chunk != nil {
		if c.size += chunk.size(); c.size > q.h.opts.MaxReply {
			return errReplyTooLarge(q.h.opts.MaxReply)
		}
	}
	c.order.add(chunk)
	if c.order.misuse != 0 {
		q.log.warn(c.order.misuse)
	}
	if c.order.err != nil {
		return c.order.err
	}
	if c.stream != nil {
		if err := c.stream.push(now); err != nil {
			return err
		}
	}
	if c.order.isCut() {
		return errReplyComplete
	}
	return nil
}

// close refuses further chunks, and returns the error that ended the stream.
func (c *chatCall) close() error {
	res := &c.q.res
	res.mu.Lock()
	defer res.mu.Unlock()
	res.backendRuns = false
	err := c.err
	if c.err == nil || c.err == errReplyComplete {
		c.err, err = errStreamOver, nil
	}
	return err
}

// replyStart returns the identity of the reply.
func (c *chatCall) replyStart() *ReplyStart {
	s, a := &c.order.start, &c.q.account
	s.PromptTokens = a.prompt
	if s.Created == 0 {
		s.Created = a.record.Time.Unix()
	}
	if s.Model == "" {
		s.Model = a.record.Model
	}
	return s
}
