// The events of a block of a reply.

package messages

import (
	"bytes"
	"cmp"

	"github.com/llmhttp/llmhttp/internal/anthropic"
	"github.com/llmhttp/llmhttp/internal/citation"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
)

// A blockKind is the type of a content block of a reply.
type blockKind uint8

const (
	textBlock blockKind = iota
	thinkingBlock
	redactedBlock
	callBlock
	rawBlock // as another server has sent it
)

// An outputBlock is a content block of a reply.
type outputBlock struct {
	kind       blockKind
	text       []byte                 // the text that was added before the block was opened; for a call, all of its arguments
	sent       int                    // how many bytes of the arguments were sent
	signature  string                 // the signature of thinking
	substitute string                 // for a signature, if thinking has none; it contains a detail
	data       string                 // the data of redacted thinking, the caller of a call if it is code, or a rawBlock
	citations  [][]byte               // of a text, as JSON; in a stream, those that were added before it was opened
	cited      bool                   // the text has citations
	call       int                    // the index of the call
	id, name   string                 // the ID and the function of the call
	scanner    jsonwire.ObjectScanner // finds the end of the arguments
}

// isComplete reports whether the block may end before the reply does. Arguments that do not
// begin as an object may have any end.
func (k *outputBlock) isComplete() bool {
	return k.kind != callBlock || k.scanner.Complete() && startsObject(k.text)
}

// accepts reports whether the block takes text of this kind. Citations are for all of the text of a
// block, so what follows them begins another one.
func (k *outputBlock) accepts(kind blockKind) bool {
	return k.kind == kind && k.signature == "" && !k.cited
}

// A blockContent has the content of a block that a stream sends in deltas. The kind of
// the block determines which fields are used.
type blockContent struct {
	text      string   // of a text or thinking
	citations [][]byte // of a text
	signature string   // of thinking
	input     string   // of a call, as JSON
}

// appendStart appends the block as a stream begins it, without the content that comes in
// deltas.
func (k *outputBlock) appendStart(b []byte) []byte {
	if k.kind == rawBlock {
		return k.appendRawStart(b)
	}
	return k.appendJSON(b, blockContent{input: "{}"})
}

// appendWhole appends the block with all of its content. ok is false for a call whose
// arguments are not a JSON object.
func (k *outputBlock) appendWhole(b []byte) (_ []byte, ok bool) {
	if k.kind == rawBlock {
		return append(b, k.data...), true
	}
	if k.kind != callBlock {
		return k.appendJSON(b, blockContent{text: string(k.text), citations: k.citations, signature: k.signature}), true
	}
	input, ok := anthropic.Input(k.text)
	return k.appendJSON(b, blockContent{input: string(input)}), ok
}

// appendJSON appends the block with the given content.
func (k *outputBlock) appendJSON(b []byte, c blockContent) []byte {
	switch k.kind {
	case textBlock:
		b = append(b, `{"type":"text","text":`...)
		b = jsonwire.AppendString(b, c.text)
		if len(c.citations) > 0 {
			b = append(b, `,"citations":[`...)
			b = append(b, bytes.Join(c.citations, []byte(","))...)
			b = append(b, ']')
		}
	case thinkingBlock:
		b = append(b, `{"type":"thinking","thinking":`...)
		b = jsonwire.AppendString(b, c.text)
		b = append(b, `,"signature":`...)
		b = jsonwire.AppendString(b, c.signature)
	case redactedBlock:
		b = append(b, `{"type":"redacted_thinking","data":`...)
		b = jsonwire.AppendString(b, k.data)
	case callBlock:
		b = append(b, `{"type":"tool_use","id":`...)
		b = jsonwire.AppendString(b, k.id)
		b = append(b, `,"name":`...)
		b = jsonwire.AppendString(b, k.name)
		b = append(b, `,"input":`...)
		b = append(b, c.input...)
		b = append(b, `,"caller":`...)
		b = append(b, cmp.Or(k.data, `{"type":"direct"}`)...) // and not code that the server runs
	}
	return append(b, '}')
}

// appendCitation appends a citation of a text. The API has citations of web pages only for its own
// search, whose encrypted_index is a reference into results that a Backend does not have.
func appendCitation(b []byte, c *citation.Citation) []byte {
	b = append(b, `{"type":"web_search_result_location","cited_text":`...)
	b = jsonwire.AppendString(b, c.Content)
	b = append(b, `,"encrypted_index":"","title":`...)
	b = jsonwire.AppendString(b, c.Title)
	b = append(b, `,"url":`...)
	b = jsonwire.AppendString(b, c.URL)
	return append(b, '}')
}
