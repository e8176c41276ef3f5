// The blocks of a reply, of which at most one is open: blocks may not overlap, and only a tool call
// can be incomplete. What does not belong to the open block waits until that is complete, or until the
// end of the reply. In a whole reply every block waits, so that both kinds of reply have the same
// blocks.

package messages

import (
	"cmp"
	"net/http"
	"strconv"

	"github.com/llmhttp/llmhttp/internal/anthropic"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/llm"
)

// maxQueue is how many blocks a queue may have. Each block that ends moves the others, and
// each delta of a call searches them, so very many would take too much time.
const maxQueue = 4096

var errTooManyBlocks = &llm.Error{
	Status: http.StatusBadGateway, NoRetry: true, Message: "The reply of the model has too many content blocks.",
}

// A blockQueue has the blocks of a reply, and writes their events.
//
// The blocks of a stream must not overlap. So only the first block of the queue is open,
// and the others wait until it is complete. Only a tool call can be incomplete. In a
// whole reply no block is open, and all of them stay in the queue.
type blockQueue struct {
	whole        bool          // the reply is not a stream
	index        int           // the index of the open block, or of the next one if none is open
	queue        []outputBlock // the blocks that have not ended
	noSignature  string        // the signature of thinking that has none; "" or aliasSignature
	lastUnsigned bool          // the thinking block that ended last has no signature
	invalidCall  bool          // a call had arguments that are not a JSON object
	err          error         // the first error
}

// openBlock returns the open block, or nil if none is open.
func (q *blockQueue) openBlock() *outputBlock {
	if q.whole || len(q.queue) == 0 {
		return nil
	}
	return &q.queue[0]
}

// last returns the block that was begun last, or nil if the queue is empty.
func (q *blockQueue) last() *outputBlock {
	if len(q.queue) == 0 {
		return nil
	}
	return &q.queue[len(q.queue)-1]
}

// findCall returns the call with the given index, or nil if it is not in the queue.
func (q *blockQueue) findCall(index int) *outputBlock {
	for i := range q.queue {
		if k := &q.queue[i]; k.kind == callBlock && k.call == index {
			return k
		}
	}
	return nil
}

// begin begins a block. It is opened at once unless the open block is incomplete.
func (q *blockQueue) begin(b []byte, k outputBlock) ([]byte, *outputBlock) {
	if open := q.openBlock(); open != nil && open.isComplete() {
		b = q.endOpen(b)
	}
	if len(q.queue) == maxQueue {
		q.fail(errTooManyBlocks)
	}
	q.queue = append(q.queue, k)
	if len(q.queue) == 1 {
		b = q.appendOpen(b)
	}
	return b, q.last()
}

// endComplete ends the open block if it is complete and others wait, and so on with the
// next one.
func (q *blockQueue) endComplete(b []byte) []byte {
	for !q.whole && len(q.queue) > 1 && q.queue[0].isComplete() {
		b = q.endOpen(b)
	}
	return b
}

// signatureOf returns the signature of thinking, or what takes its place.
func (q *blockQueue) signatureOf(k *outputBlock) string {
	return cmp.Or(k.signature, k.substitute, q.noSignature)
}

// endAll opens and ends all blocks.
func (q *blockQueue) endAll(b []byte) []byte {
	for len(q.queue) > 0 {
		b = q.endOpen(b)
	}
	return b
}

// endOpen ends the open block, which must exist, and opens the next one.
func (q *blockQueue) endOpen(b []byte) []byte {
	open := q.openBlock()
	switch open.kind {
	case callBlock:
		b = q.endArguments(b)
	case thinkingBlock:
		if q.lastUnsigned = open.signature == ""; q.lastUnsigned {
			open.signature = q.signatureOf(open)
			b = q.appendSignature(b)
		}
	}
	b = q.beginEvent(b, "content_block_stop")
	b = append(b, "}\n\n"...)
	q.index++
	q.queue = append(q.queue[:0], q.queue[1:]...)
	return q.appendOpen(b)
}

// appendOpen appends the start of the open block, if there is one, and the content that
// it has so far.
func (q *blockQueue) appendOpen(b []byte) []byte {
	open := q.openBlock()
	if open == nil {
		return b
	}
	b = q.beginEvent(b, "content_block_start")
	b = append(b, `,"content_block":`...)
	b = open.appendStart(b)
	b = append(b, "}\n\n"...)
	switch open.kind {
	case callBlock:
		return q.appendArguments(b)
	case rawBlock:
		return q.appendRawInput(b)
	}
	if len(open.text) > 0 {
		b = q.appendTextDelta(b, open.kind, string(open.text))
	}
	for _, c := range open.citations {
		b = q.appendCitationDelta(b, c)
	}
	return q.appendSignature(b)
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
	if k == q.openBlock() {
		return q.appendTextDelta(b, kind, text)
	}
	k.text = append(k.text, text...)
	return b
}

// addRawCitation adds a citation, as JSON, to the last block if that is a text. Otherwise it is dropped, because
// the text that it is for has ended.
func (q *blockQueue) addRawCitation(b, encoded []byte) []byte {
	k := q.last()
	if k == nil || k.kind != textBlock {
		return b
	}
	k.cited = true
	if k == q.openBlock() {
		return q.appendCitationDelta(b, encoded)
	}
	k.citations = append(k.citations, encoded)
	return b
}

// addSignature adds a signature to the last thinking block if that has none. A
// signature without any text before it gets a block of its own. A signature whose
// block has already ended is dropped, because it is not valid for another text.
func (q *blockQueue) addSignature(b []byte, signature string) []byte {
	for i := len(q.queue) - 1; i >= 0; i-- {
		k := &q.queue[i]
		if !k.accepts(thinkingBlock) {
			continue
		}
		k.signature = signature
		if k == q.openBlock() {
			b = q.appendSignature(b)
		}
		return b
	}
	if !q.lastUnsigned {
		b, _ = q.begin(b, outputBlock{kind: thinkingBlock, signature: signature})
	}
	return b
}

// addArguments adds arguments to a call in the queue, which must not have ended.
func (q *blockQueue) addArguments(b []byte, call *outputBlock, arguments string) []byte {
	call.text = append(call.text, arguments...)
	call.scanner.Scan(arguments)
	if call == q.openBlock() {
		b = q.appendArguments(b)
	}
	return q.endComplete(b)
}

// appendTextDelta appends a delta with text of the open block, which is textBlock or
// thinkingBlock.
func (q *blockQueue) appendTextDelta(b []byte, kind blockKind, text string) []byte {
	if kind == thinkingBlock {
		return q.appendDelta(b, "thinking_delta", "thinking", text)
	}
	return q.appendDelta(b, "text_delta", "text", text)
}

// appendCitationDelta appends a delta with a citation of the open block.
func (q *blockQueue) appendCitationDelta(b, c []byte) []byte {
	b = q.beginEvent(b, "content_block_delta")
	b = append(b, `,"delta":{"type":"citations_delta","citation":`...)
	b = append(b, c...)
	return append(b, "}}\n\n"...)
}

// appendSignature appends a delta with the signature of the open block, if it has one.
func (q *blockQueue) appendSignature(b []byte) []byte {
	signature := q.openBlock().signature
	if signature == "" {
		return b
	}
	return q.appendDelta(b, "signature_delta", "signature", signature)
}

// appendArguments appends a delta with the arguments of the open call that were not sent
// yet. It waits if they may turn out to be empty.
func (q *blockQueue) appendArguments(b []byte) []byte {
	if mayBecomeEmpty(q.openBlock().text) {
		return b
	}
	return q.appendAllArguments(b)
}

// appendAllArguments is like appendArguments, for a call that gets no more arguments.
func (q *blockQueue) appendAllArguments(b []byte) []byte {
	k := q.openBlock()
	if k.sent == len(k.text) {
		return b
	}
	b = q.appendDelta(b, "input_json_delta", "partial_json", string(k.text[k.sent:]))
	k.sent = len(k.text)
	return b
}

// endArguments is called before the open call ends. A call whose arguments are empty or
// null has no deltas, which means the input {}.
func (q *blockQueue) endArguments(b []byte) []byte {
	if _, ok := anthropic.Input(q.openBlock().text); ok {
		return b
	}
	q.invalidCall = true
	return q.appendAllArguments(b)
}

// hasEnded reports whether a block in the queue takes no more content: it is complete, and
// another one was begun.
func (q *blockQueue) hasEnded(k *outputBlock) bool { return k.isComplete() && k != q.last() }

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

// fail makes the reply end with an error.
func (q *blockQueue) fail(err error) {
	if q.err == nil {
		q.err = err
	}
}
