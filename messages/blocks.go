package messages

import (
	"strconv"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
)

// A blockKind is the type of a content block of a reply.
type blockKind uint8

const (
	textBlock blockKind = iota
	thinkingBlock
	redactedBlock
	callBlock
)

// An outputBlock is a content block of a reply.
type outputBlock struct {
	kind      blockKind
	text      []byte                 // the text while the block waits; for a call, all of its arguments
	sent      int                    // how many bytes of the arguments were sent
	signature string                 // the signature of thinking
	data      string                 // the data of redacted thinking
	call      int                    // the index of the call
	id, name  string                 // the ID and the function of the call
	scanner   jsonwire.ObjectScanner // finds the end of the arguments
}

// isComplete reports whether the block may end.
func (k *outputBlock) isComplete() bool { return k.kind != callBlock || k.scanner.Complete() }

// accepts reports whether the block takes text of this kind.
func (k *outputBlock) accepts(kind blockKind) bool { return k.kind == kind && k.signature == "" }

// appendEmpty appends the block without its content, as a stream begins it.
func (k *outputBlock) appendEmpty(b []byte) []byte {
	switch k.kind {
	case thinkingBlock:
		return append(b, `{"type":"thinking","thinking":"","signature":""}`...)
	case redactedBlock:
		b = append(b, `{"type":"redacted_thinking","data":`...)
		b = jsonwire.AppendString(b, k.data)
		return append(b, '}')
	case callBlock:
		b = append(b, `{"type":"tool_use","id":`...)
		b = jsonwire.AppendString(b, k.id)
		b = append(b, `,"name":`...)
		b = jsonwire.AppendString(b, k.name)
		return append(b, `,"input":{}}`...)
	}
	return append(b, `{"type":"text","text":""}`...)
}

// A blockQueue has the blocks of a reply, and writes their events.
//
// The blocks of a stream must not overlap. So at most one block is open, and the
// others are queued in waiting until it is complete. Only a tool call can be
// incomplete. In a whole reply all blocks are queued until the end.
type blockQueue struct {
	whole     bool          // the reply is not a stream
	cut       bool          // the reply ended early, so the arguments of a call may be incomplete
	index     int           // the index of the open block, or of the next one if none is open
	isOpen    bool          // whether there is an open block
	open      outputBlock   // the open block
	waiting   []outputBlock // the blocks after the open one
	deltaHead []byte        // the bytes before the text in a delta of the open block
	unsigned  bool          // the thinking block that ended last has no signature
	err       error         // the first error
}

// appendText adds text to the last block if that accepts it, and otherwise begins a
// block.
func (q *blockQueue) appendText(b []byte, kind blockKind, text string) []byte {
	if text == "" {
		return b
	}
	k := q.last()
	if k == nil || !k.accepts(kind) {
		b, k = q.begin(b, outputBlock{kind: kind})
	}
	if k == &q.open {
		return q.appendDelta(b, text)
	}
	k.text = append(k.text, text...)
	return b
}

// last returns the block that was begun last, or nil if none is open or waits.
func (q *blockQueue) last() *outputBlock {
	switch {
	case len(q.waiting) > 0:
		return &q.waiting[len(q.waiting)-1]
	case q.isOpen:
		return &q.open
	}
	return nil
}

// begin begins a block. It is opened at once unless the open block is incomplete.
func (q *blockQueue) begin(b []byte, k outputBlock) ([]byte, *outputBlock) {
	q.waiting = append(q.waiting, k)
	b = q.openWaiting(b)
	return b, q.last()
}

// openWaiting opens the blocks that wait, one after the other, until the open block is
// incomplete.
func (q *blockQueue) openWaiting(b []byte) []byte {
	for !q.whole && len(q.waiting) > 0 && (!q.isOpen || q.open.isComplete()) {
		b = q.endOpen(b)
		b = q.openNext(b)
	}
	return b
}

// openNext opens the first block that waits, and sends the content that it has
// so far.
func (q *blockQueue) openNext(b []byte) []byte {
	q.open, q.isOpen = q.waiting[0], true
	q.waiting = append(q.waiting[:0], q.waiting[1:]...)
	b = append(b, "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":"...)
	b = strconv.AppendInt(b, int64(q.index), 10)
	b = append(b, `,"content_block":`...)
	b = q.open.appendEmpty(b)
	b = append(b, "}\n\n"...)
	q.setDeltaHead()
	if q.open.kind == callBlock {
		return q.appendArguments(b)
	}
	if len(q.open.text) > 0 {
		b = q.appendDelta(b, string(q.open.text))
	}
	return q.appendSignature(b)
}

// setDeltaHead sets deltaHead for the open block.
func (q *blockQueue) setDeltaHead() {
	b := append(q.deltaHead[:0], "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":"...)
	b = strconv.AppendInt(b, int64(q.index), 10)
	switch q.open.kind {
	case thinkingBlock:
		b = append(b, `,"delta":{"type":"thinking_delta","thinking":`...)
	case callBlock:
		b = append(b, `,"delta":{"type":"input_json_delta","partial_json":`...)
	default:
		b = append(b, `,"delta":{"type":"text_delta","text":`...)
	}
	q.deltaHead = b
}

// appendDelta sends text of the open block.
func (q *blockQueue) appendDelta(b []byte, text string) []byte {
	b = append(b, q.deltaHead...)
	b = jsonwire.AppendString(b, text)
	return append(b, "}}\n\n"...)
}

// endOpen ends the open block.
func (q *blockQueue) endOpen(b []byte) []byte {
	if !q.isOpen {
		return b
	}
	switch q.open.kind {
	case callBlock:
		b = q.completeArguments(b)
	case thinkingBlock:
		q.unsigned = q.open.signature == ""
	}
	q.isOpen = false
	b = append(b, "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":"...)
	b = strconv.AppendInt(b, int64(q.index), 10)
	q.index++
	return append(b, "}\n\n"...)
}

// endAll ends the open block and sends those that wait.
func (q *blockQueue) endAll(b []byte) []byte {
	b = q.endOpen(b)
	for len(q.waiting) > 0 {
		b = q.openNext(b)
		b = q.endOpen(b)
	}
	return b
}

// fail makes the reply end with an error.
func (q *blockQueue) fail(err error) {
	if q.err == nil {
		q.err = err
	}
}
