// The events of a stream.

package responses

import (
	"strconv"

	"github.com/llmhttp/llmhttp/llm"
)

// An eventWriter encodes the events of a stream into buf.
type eventWriter struct {
	enabled   bool // false for a whole reply, which has no events
	buf       []byte
	sequence  int
	encrypted bool // whether items have encrypted_content
}

// takeBuffer returns the encoded events and empties the buffer.
func (e *eventWriter) takeBuffer() []byte {
	out := e.buf
	e.buf = nil
	return out
}

// itemEvent appends an event with an item.
func (e *eventWriter) itemEvent(typ string, it *item) {
	if !e.enabled {
		return
	}
	e.beginEvent(typ)
	b := appendIndex(e.buf, "output_index", it.index)
	e.buf = it.appendJSON(append(b, `,"item":`...), e.encrypted)
	e.endEvent()
}

// partNames has the names of the events about a part, and of the member with its index.
type partNames struct{ added, textDelta, textDone, done, index string }

var namesByType = map[partType]partNames{
	partText: {
		added:     "response.content_part.added",
		textDelta: "response.output_text.delta",
		textDone:  "response.output_text.done",
		done:      "response.content_part.done",
		index:     "content_index",
	},
	partRefusal: {
		added:     "response.content_part.added",
		textDelta: "response.refusal.delta",
		textDone:  "response.refusal.done",
		done:      "response.content_part.done",
		index:     "content_index",
	},
	partSummary: {
		added:     "response.reasoning_summary_part.added",
		textDelta: "response.reasoning_summary_text.delta",
		textDone:  "response.reasoning_summary_text.done",
		done:      "response.reasoning_summary_part.done",
		index:     "summary_index",
	},
}

// partAdded appends the event that begins the last part of an item.
func (e *eventWriter) partAdded(it *item) {
	if e.enabled {
		e.partEvent(namesByType[it.lastPart().typ].added, it)
	}
}

// textDelta appends an event with text that was added to the last part.
func (e *eventWriter) textDelta(it *item, text string, logprobs []byte) {
	if e.enabled {
		e.textEvent(namesByType[it.lastPart().typ].textDelta, it, "delta", text, logprobs)
	}
}

// annotationAdded appends an event with an annotation that was added to the last part.
func (e *eventWriter) annotationAdded(it *item, annotation []byte) {
	if !e.enabled {
		return
	}
	e.beginPart("response.output_text.annotation.added", it)
	b := appendIndex(e.buf, "annotation_index", it.lastPart().annotated-1)
	b = append(b, `,"annotation":`...)
	e.buf = append(b, annotation...)
	e.endEvent()
}

// partDone appends the events with the whole text of the last part and with the part.
func (e *eventWriter) partDone(it *item) {
	if !e.enabled {
		return
	}
	p, member := it.lastPart(), "text"
	if p.typ == partRefusal {
		member = "refusal"
	}
	e.textEvent(namesByType[p.typ].textDone, it, member, string(p.text), p.logprobs)
	e.partEvent(namesByType[p.typ].done, it)
}

// partEvent appends an event with the last part of an item.
func (e *eventWriter) partEvent(typ string, it *item) {
	e.beginPart(typ, it)
	e.buf = it.lastPart().appendJSON(append(e.buf, `,"part":`...))
	e.endEvent()
}

// textEvent appends an event whose member with the given name is text of the last part.
func (e *eventWriter) textEvent(typ string, it *item, member, text string, logprobs []byte) {
	e.beginPart(typ, it)
	e.appendText(member, text)
	if it.lastPart().typ == partText {
		b := append(e.buf, `,"logprobs":[`...)
		b = append(b, logprobs...)
		e.buf = append(b, ']')
	}
	e.endEvent()
}

// argumentsDelta appends an event with arguments, or with input of a custom tool, that
// were added to a call.
func (e *eventWriter) argumentsDelta(it *item, text string) {
	if !e.enabled {
		return
	}
	typ := "response.function_call_arguments.delta"
	if it.typ == itemCustom {
		typ = "response.custom_tool_call_input.delta"
	}
	e.beginItem(typ, it)
	e.appendText("delta", text)
	e.endEvent()
}

// argumentsDone appends an event with all arguments of a call, or with the input of a
// custom tool.
func (e *eventWriter) argumentsDone(it *item) {
	if !e.enabled {
		return
	}
	if it.typ == itemCustom {
		e.beginItem("response.custom_tool_call_input.done", it)
		e.appendText("input", string(it.arguments))
	} else {
		e.beginItem("response.function_call_arguments.done", it)
		e.appendText("name", it.name.name)
		e.appendText("arguments", string(it.arguments))
	}
	e.endEvent()
}

// failure appends the event about a failure of the stream. It has what is wrong twice: openai-go reads the
// member error, and the specification has the others.
func (e *eventWriter) failure(err *llm.Error) {
	e.beginEvent("error")
	e.appendFailure(err)
	e.buf = append(e.buf, `,"error":{"type":`...)
	e.buf = appendString(e.buf, err.Type)
	e.appendFailure(err)
	e.buf = append(e.buf, '}')
	e.endEvent()
}

func (e *eventWriter) appendFailure(err *llm.Error) {
	e.appendText("code", errorCode(err))
	e.appendText("message", err.Message)
	if err.Param == "" {
		e.buf = append(e.buf, `,"param":null`...)
		return
	}
	e.appendText("param", err.Param)
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

// beginItem appends the beginning of an event about an item.
func (e *eventWriter) beginItem(typ string, it *item) {
	e.beginEvent(typ)
	b := append(e.buf, `,"item_id":"`...)
	b = append(b, it.id...)
	b = append(b, '"')
	e.buf = appendIndex(b, "output_index", it.index)
}

// beginPart appends the beginning of an event about the last part of an item.
func (e *eventWriter) beginPart(typ string, it *item) {
	e.beginItem(typ, it)
	e.buf = appendIndex(e.buf, namesByType[it.lastPart().typ].index, len(it.parts)-1)
}

// appendText appends a member that is a string.
func (e *eventWriter) appendText(member, text string) {
	b := append(e.buf, `,"`...)
	b = append(b, member...)
	e.buf = appendString(append(b, `":`...), text)
}

func (e *eventWriter) endEvent() { e.buf = append(e.buf, "}\n\n"...) }
