package responses

import "strconv"

// An eventWriter encodes the events of a stream into buf.
type eventWriter struct {
	enabled  bool // false for a whole reply, which has no events
	buf      []byte
	sequence int
	sealed   bool // whether items have encrypted_content
}

// takeBuffer returns the encoded events and empties the buffer.
func (e *eventWriter) takeBuffer() []byte {
	out := e.buf
	e.buf = nil
	return out
}

// beginEvent appends an event up to its sequence number.
func (e *eventWriter) beginEvent(typ string) {
	b := append(e.buf, "event: "...)
	b = append(b, typ...)
	b = append(b, "\ndata: {\"type\":\""...)
	b = append(b, typ...)
	b = append(b, `","sequence_number":`...)
	e.buf = strconv.AppendInt(b, int64(e.sequence), 10)
	e.sequence++
}

func (e *eventWriter) endEvent() { e.buf = append(e.buf, "}\n\n"...) }

// itemEvent appends an event with an item.
func (e *eventWriter) itemEvent(typ string, it *item) {
	if !e.enabled {
		return
	}
	e.beginEvent(typ)
	b := appendIndex(e.buf, "output_index", it.index)
	e.buf = it.append(append(b, `,"item":`...), e.sealed)
	e.endEvent()
}

// The names of the events about a part, by its type.
var (
	partAdded = map[partType]string{
		partText: "response.content_part.added", partRefusal: "response.content_part.added", partSummary: "response.reasoning_summary_part.added",
	}
	partDone = map[partType]string{
		partText: "response.content_part.done", partRefusal: "response.content_part.done", partSummary: "response.reasoning_summary_part.done",
	}
)

// partEvent appends an event with the last part of an item.
func (e *eventWriter) partEvent(types map[partType]string, it *item) {
	if !e.enabled {
		return
	}
	p := &it.parts[len(it.parts)-1]
	e.beginPart(types[p.typ], it)
	e.buf = p.append(append(e.buf, `,"part":`...))
	e.endEvent()
}

// beginPart appends the beginning of an event about the last part of an item.
func (e *eventWriter) beginPart(typ string, it *item) {
	e.beginItem(typ, it)
	name, last := "content_index", len(it.parts)-1
	if it.parts[last].typ == partSummary {
		name = "summary_index"
	}
	e.buf = appendIndex(e.buf, name, last)
}

func (e *eventWriter) beginItem(typ string, it *item) {
	e.beginEvent(typ)
	b := append(e.buf, `,"item_id":"`...)
	b = append(b, it.id...)
	b = append(b, '"')
	e.buf = appendIndex(b, "output_index", it.index)
}

// textDelta appends an event with text that was added to the last part.
func (e *eventWriter) textDelta(it *item, text string, logprobs []byte) {
	if !e.enabled {
		return
	}
	typ := it.parts[len(it.parts)-1].typ
	switch typ {
	case partText:
		e.beginPart("response.output_text.delta", it)
	case partRefusal:
		e.beginPart("response.refusal.delta", it)
	case partSummary:
		e.beginPart("response.reasoning_summary_text.delta", it)
	}
	b := appendString(append(e.buf, `,"delta":`...), text)
	if typ == partText {
		b = append(b, `,"logprobs":[`...)
		b = append(b, logprobs...)
		b = append(b, ']')
	}
	e.buf = b
	e.endEvent()
}

// textDone appends an event with the whole text of the last part.
func (e *eventWriter) textDone(it *item) {
	if !e.enabled {
		return
	}
	p := &it.parts[len(it.parts)-1]
	name := `,"text":`
	switch p.typ {
	case partText:
		e.beginPart("response.output_text.done", it)
	case partRefusal:
		e.beginPart("response.refusal.done", it)
		name = `,"refusal":`
	case partSummary:
		e.beginPart("response.reasoning_summary_text.done", it)
	}
	b := appendString(append(e.buf, name...), string(p.text))
	if p.typ == partText {
		b = append(b, `,"logprobs":[`...)
		b = append(b, p.logprobs...)
		b = append(b, ']')
	}
	e.buf = b
	e.endEvent()
}

// callMembers has the names of the events about calls, and of their members with the
// arguments or the input.
var callMembers = map[string]string{
	"response.function_call_arguments.delta": "delta",
	"response.function_call_arguments.done":  "arguments",
	"response.custom_tool_call_input.delta":  "delta",
	"response.custom_tool_call_input.done":   "input",
}

// argumentsEvent appends an event with arguments or with the input of a custom
// tool.
func (e *eventWriter) argumentsEvent(typ string, it *item, text string) {
	if !e.enabled {
		return
	}
	e.beginItem(typ, it)
	if typ == "response.function_call_arguments.done" {
		e.buf = appendString(append(e.buf, `,"name":`...), it.name.name)
	}
	b := append(e.buf, `,"`...)
	b = append(b, callMembers[typ]...)
	e.buf = appendString(append(b, `":`...), text)
	e.endEvent()
}
