package responses

import "strconv"

// events appends the events of a stream. A whole reply has none.
type events struct {
	on     bool
	out    []byte
	seq    int
	sealed bool // items have encrypted_content
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
	e := &r.output.events
	if !e.on {
		return
	}
	e.begin(typ)
	e.out = r.appendResponse(append(e.out, `,"response":`...))
	e.end()
}

// itemEvent appends an event with an item.
func (e *events) itemEvent(typ string, it *item) {
	if !e.on {
		return
	}
	e.begin(typ)
	b := appendIndex(e.out, "output_index", it.index)
	e.out = it.append(append(b, `,"item":`...), e.sealed)
	e.end()
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
func (e *events) partEvent(types map[partType]string, it *item) {
	if !e.on {
		return
	}
	p := &it.parts[len(it.parts)-1]
	e.beginPart(types[p.typ], it)
	e.out = p.append(append(e.out, `,"part":`...))
	e.end()
}

// beginPart appends the beginning of an event about the last part of an item.
func (e *events) beginPart(typ string, it *item) {
	e.beginItem(typ, it)
	name, last := "content_index", len(it.parts)-1
	if it.parts[last].typ == partSummary {
		name = "summary_index"
	}
	e.out = appendIndex(e.out, name, last)
}

func (e *events) beginItem(typ string, it *item) {
	e.begin(typ)
	b := append(e.out, `,"item_id":"`...)
	b = append(b, it.id...)
	b = append(b, '"')
	e.out = appendIndex(b, "output_index", it.index)
}

// textDelta appends an event with text that was added to the last part.
func (e *events) textDelta(it *item, text string, logprobs []byte) {
	if !e.on {
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
	b := appendString(append(e.out, `,"delta":`...), text)
	if typ == partText {
		b = append(b, `,"logprobs":[`...)
		b = append(b, logprobs...)
		b = append(b, ']')
	}
	e.out = b
	e.end()
}

// textDone appends an event with the whole text of the last part.
func (e *events) textDone(it *item) {
	if !e.on {
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
	b := appendString(append(e.out, name...), string(p.text))
	if p.typ == partText {
		b = append(b, `,"logprobs":[`...)
		b = append(b, p.logprobs...)
		b = append(b, ']')
	}
	e.out = b
	e.end()
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
func (e *events) argumentsEvent(typ string, it *item, text string) {
	if !e.on {
		return
	}
	e.beginItem(typ, it)
	if typ == "response.function_call_arguments.done" {
		e.out = appendString(append(e.out, `,"name":`...), it.name.name)
	}
	b := append(e.out, `,"`...)
	b = append(b, callMembers[typ]...)
	e.out = appendString(append(b, `":`...), text)
	e.end()
}
