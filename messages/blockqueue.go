package messages

import (
	"strconv"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
)

// A blockQueue has the blocks of a reply, and writes their events.
//
// The blocks of a stream must not overlap. So at most one block is open, and the
// others are queued in waiting until it is complete. Only a tool call can be
// incomplete. In a whole reply all blocks are queued until the end.
type blockQueue struct {
	whole        bool          // the reply is not a stream
	cut          bool          // the reply ended early, so the arguments of a call may be incomplete
	index        int           // the index of the open block, or of the next one if none is open
	isOpen       bool          // whether there is an open block
	open         outputBlock   // the open block
	waiting      []outputBlock // the blocks after the open one
	lastUnsigned bool          // the thinking block that ended last has no signature
	err          error         // the first error
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
		return q.appendTextDelta(b, text)
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

// openNext opens the first block that waits, and appends the content that it has
// so far.
func (q *blockQueue) openNext(b []byte) []byte {
	q.open, q.isOpen = q.waiting[0], true
	q.waiting = append(q.waiting[:0], q.waiting[1:]...)
	b = q.beginEvent(b, "content_block_start")
	b = append(b, `,"content_block":`...)
	b = q.open.appendStart(b)
	b = append(b, "}\n\n"...)
	if q.open.kind == callBlock {
		return q.appendArguments(b)
	}
	if len(q.open.text) > 0 {
		b = q.appendTextDelta(b, string(q.open.text))
	}
	return q.appendSignature(b)
}

// appendTextDelta appends a delta with text of the open block, which is a text or thinking.
func (q *blockQueue) appendTextDelta(b []byte, text string) []byte {
	if q.open.kind == thinkingBlock {
		return q.appendDelta(b, "thinking_delta", "thinking", text)
	}
	return q.appendDelta(b, "text_delta", "text", text)
}

// appendDelta appends a delta of the open block. The member with the given name has text.
func (q *blockQueue) appendDelta(b []byte, typ, member, text string) []byte {
	b = q.beginEvent(b, "content_block_delta")
	b = append(b, `,"delta":{"type":"`...)
	b = append(b, typ...)
	b = append(b, `","`...)
	b = append(b, member...)
	b = append(b, `":`...)
	b = jsonwire.AppendString(b, text)
	return append(b, "}}\n\n"...)
}

// beginEvent appends the beginning of an event about the open block.
func (q *blockQueue) beginEvent(b []byte, typ string) []byte {
	b = beginEvent(b, typ)
	b = append(b, `,"index":`...)
	return strconv.AppendInt(b, int64(q.index), 10)
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
		q.lastUnsigned = q.open.signature == ""
	}
	q.isOpen = false
	b = q.beginEvent(b, "content_block_stop")
	q.index++
	return append(b, "}\n\n"...)
}

// endAll ends the open block, and then begins and ends those that wait.
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
