package responses

import (
	"strconv"

	"github.com/llmhttp/llmhttp"
)

// events appends the events of a stream. A whole reply has none.
type events struct {
	on  bool
	out []byte
	seq int
}

// take returns what was appended.
func (e *events) take() []byte {
	out := e.out
	e.out = nil
	return out
}

// begin appends an event up to its sequence number.
func (e *events) begin(typ string) {
	b := append(e.out, "event: "...)
	b = append(b, typ...)
	b = append(b, "\ndata: {\"type\":\""...)
	b = append(b, typ...)
	b = append(b, `","sequence_number":`...)
	e.out = strconv.AppendInt(b, int64(e.seq), 10)
	e.seq++
}

func (e *events) end() { e.out = append(e.out, "}\n\n"...) }

// lifecycle appends an event with the response.
func (r *reply) lifecycle(typ string) {
	if !r.events.on {
		return
	}
	r.events.begin(typ)
	r.events.out = r.appendResponse(append(r.events.out, `,"response":`...))
	r.events.end()
}

// itemEvent appends an event with an item.
func (r *reply) itemEvent(typ string, it *item) {
	if !r.events.on {
		return
	}
	r.events.begin(typ)
	b := appendIndex(r.events.out, "output_index", it.index)
	r.events.out = it.append(append(b, `,"item":`...), r.req.sealed)
	r.events.end()
}

// The names of events of parts, by the kind of the part.
var (
	partAdded = map[partType]string{
		partText: "response.content_part.added", partRefusal: "response.content_part.added", partSummary: "response.reasoning_summary_part.added",
	}
	partDone = map[partType]string{
		partText: "response.content_part.done", partRefusal: "response.content_part.done", partSummary: "response.reasoning_summary_part.done",
	}
)

// partEvent appends an event with the last part of an item.
func (r *reply) partEvent(types map[partType]string, it *item) {
	if !r.events.on {
		return
	}
	p := &it.parts[len(it.parts)-1]
	r.beginPart(types[p.typ], it)
	r.events.out = p.append(append(r.events.out, `,"part":`...))
	r.events.end()
}

// beginPart appends the beginning of an event about the last part of an item.
func (r *reply) beginPart(typ string, it *item) {
	r.beginItem(typ, it)
	name, last := "content_index", len(it.parts)-1
	if it.parts[last].typ == partSummary {
		name = "summary_index"
	}
	r.events.out = appendIndex(r.events.out, name, last)
}

func (r *reply) beginItem(typ string, it *item) {
	r.events.begin(typ)
	b := append(r.events.out, `,"item_id":"`...)
	b = append(b, it.id...)
	b = append(b, '"')
	r.events.out = appendIndex(b, "output_index", it.index)
}

// textDelta appends an event with text that was added to the last part.
func (r *reply) textDelta(it *item, text string, logprobs []byte) {
	if !r.events.on {
		return
	}
	typ := it.parts[len(it.parts)-1].typ
	switch typ {
	case partText:
		r.beginPart("response.output_text.delta", it)
	case partRefusal:
		r.beginPart("response.refusal.delta", it)
	case partSummary:
		r.beginPart("response.reasoning_summary_text.delta", it)
	}
	b := appendString(append(r.events.out, `,"delta":`...), text)
	if typ == partText {
		b = append(b, `,"logprobs":[`...)
		b = append(b, logprobs...)
		b = append(b, ']')
	}
	r.events.out = b
	r.events.end()
}

// textDone appends an event with the whole text of the last part.
func (r *reply) textDone(it *item) {
	if !r.events.on {
		return
	}
	p := &it.parts[len(it.parts)-1]
	name := `,"text":`
	switch p.typ {
	case partText:
		r.beginPart("response.output_text.done", it)
	case partRefusal:
		r.beginPart("response.refusal.done", it)
		name = `,"refusal":`
	case partSummary:
		r.beginPart("response.reasoning_summary_text.done", it)
	}
	b := appendString(append(r.events.out, name...), string(p.text))
	if p.typ == partText {
		b = append(b, `,"logprobs":[`...)
		b = append(b, p.logprobs...)
		b = append(b, ']')
	}
	r.events.out = b
	r.events.end()
}

// The events of calls, and the member with what they add.
var callMembers = map[string]string{
	"response.function_call_arguments.delta": "delta",
	"response.function_call_arguments.done":  "arguments",
	"response.custom_tool_call_input.delta":  "delta",
	"response.custom_tool_call_input.done":   "input",
}

// argumentsEvent appends an event with arguments or with the input of a custom
// tool.
func (r *reply) argumentsEvent(typ string, it *item, text string) {
	if !r.events.on {
		return
	}
	r.beginItem(typ, it)
	if typ == "response.function_call_arguments.done" {
		r.events.out = appendString(append(r.events.out, `,"name":`...), it.name.name)
	}
	b := append(r.events.out, `,"`...)
	b = append(b, callMembers[typ]...)
	r.events.out = appendString(append(b, `":`...), text)
	r.events.end()
}

// appendErrorEvent appends the event of a stream that fails before it begins. It
// has no member "error", by which SDKs recognise an error of another form.
func appendErrorEvent(b []byte, e *llmhttp.Error) []byte {
	b = append(b, "event: error\ndata: {\"type\":\"error\",\"sequence_number\":0,\"code\":"...)
	b = appendString(b, errorCode(e))
	b = append(b, `,"message":`...)
	b = appendString(b, e.Message)
	b = append(b, `,"param":`...)
	b = appendNullable(b, e.Param)
	return append(b, "}\n\n"...)
}
