package llmhttp

import (
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"time"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
)

// How many of each a request may have. Bytes are bounded by Options.MaxBody;
// these keep a small body from becoming much memory.
const (
	maxMessages  = 16384
	maxParts     = 4096 // of a message
	maxTools     = 2048
	maxToolCalls = 1024 // of a message
	maxChoices   = 128
	maxStops     = 4
)

// A ChatRequest is the body of POST /v1/chat/completions. Those a Handler
// passes to a Backend are checked: there is a message, and what has bounds is
// within them.
//
// A nil pointer means the client left the choice to the Backend.
type ChatRequest struct {
	Model            string
	Messages         []Message
	Stream           bool // of no concern to a Backend: the Handler splits and joins
	StreamOptions    *StreamOptions
	Temperature      *float64 // 0 to 2; the format's default is 1
	TopP             *float64 // 0 to 1; the format's default is 1
	PresencePenalty  *float64 // -2 to 2; the format's default is 0
	FrequencyPenalty *float64 // -2 to 2; the format's default is 0

	// MaxTokens bounds the tokens of each choice. MaxCompletionTokens is its
	// successor, which also counts reasoning; where both are set, it counts.
	MaxTokens, MaxCompletionTokens *int

	N              *int       // how many choices, 1 to 128; the format's default is 1
	Stop           StringList // at most 4; an empty one stops nothing
	ResponseFormat *ResponseFormat
	Tools          []Tool
	ToolChoice     json.RawMessage // "none", "auto", "required" or an object, as JSON; nil for none
	Extra          Extra
}

// Choices returns how many choices the client asked for.
func (r *ChatRequest) Choices() int {
	if r.N == nil {
		return 1
	}
	return *r.N
}

// TokenLimit returns how many tokens a choice may have, and whether the client
// set a limit.
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
func (r ChatRequest) MarshalJSON() ([]byte, error) { return marshal(&r) }

// UnmarshalJSON decodes a request without checking it.
func (r *ChatRequest) UnmarshalJSON(data []byte) error { return unmarshal(data, r) }

var chatRequestMembers = []string{"model", "messages", "stream", "stream_options", "temperature", "top_p",
	"presence_penalty", "frequency_penalty", "max_tokens", "max_completion_tokens", "n", "stop",
	"response_format", "tools", "tool_choice"}

func (r *ChatRequest) encode(e *jsonwire.Encoder) {
	e.Token('{')
	e.Name("model")
	e.String(r.Model)
	e.Name("messages")
	e.Token('[')
	for i := range r.Messages {
		e.Element()
		r.Messages[i].encode(e)
	}
	e.Token(']')
	if r.Stream {
		e.Name("stream")
		e.Bool(true)
	}
	if r.StreamOptions != nil {
		e.Name("stream_options")
		r.StreamOptions.encode(e)
	}
	e.FloatMember("temperature", r.Temperature)
	e.FloatMember("top_p", r.TopP)
	e.FloatMember("presence_penalty", r.PresencePenalty)
	e.FloatMember("frequency_penalty", r.FrequencyPenalty)
	e.IntMember("max_tokens", r.MaxTokens)
	e.IntMember("max_completion_tokens", r.MaxCompletionTokens)
	e.IntMember("n", r.N)
	if r.Stop != nil {
		e.Name("stop")
		r.Stop.encode(e)
	}
	if r.ResponseFormat != nil {
		e.Name("response_format")
		r.ResponseFormat.encode(e)
	}
	if len(r.Tools) > 0 {
		e.Name("tools")
		e.Token('[')
		for i := range r.Tools {
			e.Element()
			r.Tools[i].encode(e)
		}
		e.Token(']')
	}
	e.RawMember("tool_choice", r.ToolChoice)
	e.Extra(r.Extra, chatRequestMembers...)
	e.Token('}')
}

func (r *ChatRequest) decode(d *jsonwire.Decoder) {
	var numbers *jsonwire.Numbers
	for o := d.Object(); o.Next(); {
		switch string(o.Name) {
		case "model":
			r.Model = d.OptString()
		case "messages":
			if d.Null() {
				continue
			}
			space := new(messageSpace)
			r.Messages = space.messages[:0]
			texts := space.texts[:]
			for a := d.Array(); a.Next() && a.Max(maxMessages); {
				n := len(r.Messages)
				if len(texts) == 0 {
					texts = make([]Part, min(n, 64))
				}
				r.Messages = append(r.Messages, Message{})
				r.Messages[n].decodeWith(d, texts[:1:1])
				texts = texts[1:]
			}
		case "stream":
			r.Stream = d.Bool()
		case "stream_options":
			if !d.Null() {
				r.StreamOptions = new(StreamOptions)
				r.StreamOptions.decode(d)
			}
		case "temperature":
			r.Temperature = d.FloatPtr(&numbers)
		case "top_p":
			r.TopP = d.FloatPtr(&numbers)
		case "presence_penalty":
			r.PresencePenalty = d.FloatPtr(&numbers)
		case "frequency_penalty":
			r.FrequencyPenalty = d.FloatPtr(&numbers)
		case "max_tokens":
			r.MaxTokens = d.IntPtr(&numbers)
		case "max_completion_tokens":
			r.MaxCompletionTokens = d.IntPtr(&numbers)
		case "n":
			r.N = d.IntPtr(&numbers)
		case "stop":
			r.Stop.decode(d)
		case "response_format":
			if !d.Null() {
				r.ResponseFormat = new(ResponseFormat)
				r.ResponseFormat.decode(d)
			}
		case "tools":
			if d.Null() {
				continue
			}
			for a := d.Array(); a.Next() && a.Max(maxTools); {
				r.Tools = append(r.Tools, Tool{})
				r.Tools[len(r.Tools)-1].decode(d)
			}
		case "tool_choice":
			r.ToolChoice = decodeRaw(d)
		default:
			r.Extra.keep(d, o.Name)
		}
	}
}

// A messageSpace is memory for the first messages of a request, whose content
// most often is one text.
type messageSpace struct {
	messages [4]Message
	texts    [4]Part
}

// check returns an *Error that names the first parameter that is not as the
// format has it.
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
	if err := firstError(
		checkFloat("temperature", r.Temperature, 0, 2),
		checkFloat("top_p", r.TopP, 0, 1),
		checkFloat("presence_penalty", r.PresencePenalty, -2, 2),
		checkFloat("frequency_penalty", r.FrequencyPenalty, -2, 2),
		checkInt("max_tokens", r.MaxTokens, 1, math.MaxInt),
		checkInt("max_completion_tokens", r.MaxCompletionTokens, 1, math.MaxInt),
		checkInt("n", r.N, 1, maxChoices),
	); err != nil {
		return err
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
	switch r.ToolChoice[0] {
	case '"':
		var s string
		if json.Unmarshal(r.ToolChoice, &s) != nil || (s != "none" && s != "auto" && s != "required") {
			return invalidValue("tool_choice", s, "none", "auto", "required")
		}
		if s == "required" && len(r.Tools) == 0 {
			return badRequest("invalid_value", "tool_choice", "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified.")
		}
	case '{':
		var choice struct {
			Type     string
			Function struct{ Name string }
		}
		if json.Unmarshal(r.ToolChoice, &choice) != nil || choice.Type == "" {
			return missing("tool_choice.type")
		}
		if choice.Type != toolFunction {
			return nil
		}
		if choice.Function.Name == "" {
			return missing("tool_choice.function.name")
		}
		for i := range r.Tools {
			if f := r.Tools[i].Function; f != nil && f.Name == choice.Function.Name {
				return nil
			}
		}
		return badRequest("invalid_value", "tool_choice", "Tool choice 'function' not found in 'tools' parameter: '%s'.", echo(choice.Function.Name))
	default:
		return badRequest("invalid_type", "tool_choice", "Invalid type for 'tool_choice': expected one of a string or object.")
	}
	return nil
}

// StreamOptions are how a client wants its stream.
type StreamOptions struct {
	IncludeUsage bool // end with a chunk that has the usage; the Handler sees to it
	Extra        Extra
}

// MarshalJSON encodes o.
func (o StreamOptions) MarshalJSON() ([]byte, error) { return marshal(&o) }

// UnmarshalJSON decodes stream options.
func (o *StreamOptions) UnmarshalJSON(data []byte) error { return unmarshal(data, o) }

func (o *StreamOptions) encode(e *jsonwire.Encoder) {
	e.Token('{')
	e.Name("include_usage")
	e.Bool(o.IncludeUsage)
	e.Extra(o.Extra, "include_usage")
	e.Token('}')
}

func (o *StreamOptions) decode(d *jsonwire.Decoder) {
	for m := d.Object(); m.Next(); {
		switch string(m.Name) {
		case "include_usage":
			o.IncludeUsage = d.Bool()
		default:
			o.Extra.keep(d, m.Name)
		}
	}
}

// A ResponseFormat is the form a client wants the reply in: the Type is text,
// json_object or json_schema. A schema is in Extra, as "json_schema".
type ResponseFormat struct {
	Type  string
	Extra Extra
}

// MarshalJSON encodes f.
func (f ResponseFormat) MarshalJSON() ([]byte, error) { return marshal(&f) }

// UnmarshalJSON decodes a response format.
func (f *ResponseFormat) UnmarshalJSON(data []byte) error { return unmarshal(data, f) }

func (f *ResponseFormat) encode(e *jsonwire.Encoder) {
	e.Token('{')
	e.Name("type")
	e.String(f.Type)
	e.Extra(f.Extra, "type")
	e.Token('}')
}

func (f *ResponseFormat) decode(d *jsonwire.Decoder) {
	for o := d.Object(); o.Next(); {
		switch string(o.Name) {
		case "type":
			f.Type = d.OptString()
		default:
			f.Extra.keep(d, o.Name)
		}
	}
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
func (l StringList) MarshalJSON() ([]byte, error) { return marshal(&l) }

// UnmarshalJSON decodes a string, an array of strings, or null.
func (l *StringList) UnmarshalJSON(data []byte) error {
	*l = nil
	return unmarshal(data, l)
}

func (l *StringList) encode(e *jsonwire.Encoder) {
	switch list := *l; {
	case list == nil:
		e.Literal("null")
	case len(list) == 1:
		e.String(list[0])
	default:
		e.Token('[')
		for _, s := range list {
			e.Element()
			e.String(s)
		}
		e.Token(']')
	}
}

func (l *StringList) decode(d *jsonwire.Decoder) {
	switch d.Kind() {
	case 'n':
		d.Null()
	case '"':
		*l = StringList{d.String()}
	case '[':
		*l = StringList{}
		for a := d.Array(); a.Next(); {
			*l = append(*l, d.String())
		}
	default:
		d.Mismatch("one of a string or array of strings")
	}
}

// A ChatResponse is a whole reply.
type ChatResponse struct {
	ID      string
	Created int64 // Unix time in seconds
	Model   string
	Choices []Choice
	Usage   *Usage // nil if it is not known
	Extra   Extra
}

// A Choice is one of the replies the client asked for.
type Choice struct {
	Index        int
	Message      Message
	FinishReason FinishReason
	Extra        Extra // "logprobs" among them
}

// MarshalJSON encodes r.
func (r ChatResponse) MarshalJSON() ([]byte, error) { return marshal(&r) }

// UnmarshalJSON decodes a reply.
func (r *ChatResponse) UnmarshalJSON(data []byte) error { return unmarshal(data, r) }

func (r *ChatResponse) encode(e *jsonwire.Encoder) {
	e.Token('{')
	encodeReplyHead(e, r.ID, objectCompletion, r.Created, r.Model)
	e.Name("choices")
	e.Token('[')
	for i := range r.Choices {
		e.Element()
		r.Choices[i].encode(e)
	}
	e.Token(']')
	if r.Usage != nil {
		e.Name("usage")
		r.Usage.encode(e)
	}
	e.Extra(r.Extra, replyMembers...)
	e.Token('}')
}

func (r *ChatResponse) decode(d *jsonwire.Decoder) {
	for o := d.Object(); o.Next(); {
		switch string(o.Name) {
		case "id":
			r.ID = d.OptString()
		case "object":
			d.Skip()
		case "created":
			r.Created = decodeTime(d)
		case "model":
			r.Model = d.OptString()
		case "choices":
			if d.Null() {
				continue
			}
			for a := d.Array(); a.Next(); {
				r.Choices = append(r.Choices, Choice{})
				r.Choices[len(r.Choices)-1].decode(d)
			}
		case "usage":
			r.Usage = decodeUsage(d)
		default:
			r.Extra.keep(d, o.Name)
		}
	}
}

// MarshalJSON encodes c.
func (c Choice) MarshalJSON() ([]byte, error) { return marshal(&c) }

// UnmarshalJSON decodes a choice.
func (c *Choice) UnmarshalJSON(data []byte) error { return unmarshal(data, c) }

// encode writes refusal and logprobs even where there are none: the schema of
// the format requires them.
func (c *Choice) encode(e *jsonwire.Encoder) {
	e.Token('{')
	e.Name("index")
	e.Int(int64(c.Index))
	e.Name("message")
	e.Token('{')
	c.Message.encodeMembers(e)
	if _, ok := c.Message.Extra["refusal"]; !ok {
		e.Literal(`,"refusal":null`)
	}
	e.Token('}')
	if _, ok := c.Extra["logprobs"]; !ok {
		e.Literal(`,"logprobs":null`)
	}
	encodeFinishReason(e, c.FinishReason)
	e.Extra(c.Extra, "index", "message", "finish_reason")
	e.Token('}')
}

func (c *Choice) decode(d *jsonwire.Decoder) {
	for o := d.Object(); o.Next(); {
		switch string(o.Name) {
		case "index":
			c.Index = optInt(d)
		case "message":
			if !d.Null() {
				c.Message.decode(d)
			}
		case "finish_reason":
			c.FinishReason = decodeFinishReason(d)
		case "logprobs", "refusal":
			if d.Null() {
				continue // what encode writes where there is none
			}
			c.Extra.keep(d, o.Name)
		default:
			c.Extra.keep(d, o.Name)
		}
	}
}

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
	// The default estimate is cheap, and made now so that the request need not
	// be kept. A host's may not be, and is only made where it is needed.
	if x.h.opts.CountTokens == nil || x.limitsTokens() {
		x.prompt = x.countPrompt(req)
	} else {
		x.uncounted = req
	}
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
	x.h.backend.Chat(x.ctx, req)(x.accept)
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
	wrote, err := x.sse.push(now, last)
	if wrote {
		x.watch.spoke = time.Since(x.arrived) // a slow client is no silent Backend
	}
	return err
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
		x.sse.usage(&x.record.Usage)
	}
	b := x.sse.waiting()
	b.b = append(b.b, eventDone...)
	if err := x.sse.flush(time.Since(x.arrived)); err != nil {
		return err
	}
	x.phase = replied
	return nil
}
