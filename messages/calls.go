package messages

import (
	"slices"

	"github.com/llmhttp/llmhttp"
)

// appendCall begins a tool call or adds arguments to it. Calls of tools that are not
// functions are dropped, because this API has no form for them.
func (e *encoder) appendCall(b []byte, t *llmhttp.ToolCallDelta) []byte {
	if t.ID != "" && t.Type != "" && t.Type != "function" {
		e.dropped = append(e.dropped, t.Index)
	}
	if slices.Contains(e.dropped, t.Index) {
		return b
	}
	k := e.blocks.findCall(t.Index)
	if k == nil && t.ID != "" {
		if t.Function.Name == "" {
			e.blocks.fail(errInvalidCall)
		}
		e.stop.hasCalls = true
		b, k = e.blocks.begin(b, outputBlock{kind: callBlock, call: t.Index, id: t.ID, name: t.Function.Name})
	}
	if k == nil { // the call has ended
		if !isSpace(t.Function.Arguments) {
			e.blocks.fail(errInvalidCall)
		}
		return b
	}
	k.text = append(k.text, t.Function.Arguments...)
	k.scanner.Scan(t.Function.Arguments)
	if k == &e.blocks.open {
		b = e.blocks.appendArguments(b)
	}
	return e.blocks.openWaiting(b)
}

// findCall returns a call that is open or waits, or nil.
func (q *blockQueue) findCall(index int) *outputBlock {
	if q.isOpen && q.open.kind == callBlock && q.open.call == index {
		return &q.open
	}
	for i := range q.waiting {
		if k := &q.waiting[i]; k.kind == callBlock && k.call == index {
			return k
		}
	}
	return nil
}

// appendArguments appends a delta with the arguments of the open call that were not sent
// yet.
func (q *blockQueue) appendArguments(b []byte) []byte {
	k := &q.open
	if k.sent == len(k.text) || !startsObject(k.text) {
		return b
	}
	b = q.appendDelta(b, "input_json_delta", "partial_json", string(k.text[k.sent:]))
	k.sent = len(k.text)
	return b
}

// completeArguments appends what the arguments of the open call lack to be an object.
// It appends nothing if they are empty: a call without deltas has the input {}.
func (q *blockQueue) completeArguments(b []byte) []byte {
	k := &q.open
	rest, err := argumentsCompletion(k.text, q.cut)
	if err != nil {
		q.fail(err)
		return b
	}
	k.text = append(k.text, rest...)
	return q.appendArguments(b)
}
