package texts

import (
	"bytes"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/llm"
)

// ElementSize is what an element of a reply counts toward Options.Bounds.MaxReply besides its
// text, so that many empty elements cannot use unbounded memory.
const ElementSize = 64

// Size returns about how much memory a chunk adds to a reply, in bytes.
func Size(c *llm.ChatChunk) int {
	n := jsonwire.ExtraSize(c.Extra)
	for i := range c.Choices {
		choice := &c.Choices[i]
		d := &choice.Delta
		n += jsonwire.ExtraSize(choice.Extra) + ElementSize*(len(d.ToolCalls)+len(d.ReasoningDetails))
		WalkDelta(d, func(_ Kind, s *string) { n += len(*s) }, func(_ Kind, e llm.Extra) { n += jsonwire.ExtraSize(e) })
	}
	return n
}

// ChunkHasToken reports whether c has anything that a model generated.
func ChunkHasToken(c *llm.ChatChunk) bool {
	for i := range c.Choices {
		if HasToken(&c.Choices[i].Delta) {
			return true
		}
	}
	return false
}

// HasToken reports whether d has anything that a model generated.
func HasToken(d *llm.Delta) bool {
	for _, s := range OfDelta(d) {
		if *s != "" {
			return true
		}
	}
	return len(d.ToolCalls) > 0 || len(d.ReasoningDetails) > 0
}

// Len returns the number of bytes of text in d.
func Len(d *llm.Delta) int {
	n := 0
	for _, s := range OfDelta(d) {
		n += len(*s)
	}
	for i := range d.ToolCalls {
		for _, s := range OfCall(&d.ToolCalls[i].Function) {
			n += len(*s)
		}
	}
	return n
}

// CallHasText reports whether f has any of its texts that come in pieces.
func CallHasText(f *llm.FunctionCall) bool {
	for _, s := range OfCall(f) {
		if *s != "" {
			return true
		}
	}
	return false
}

// Continues reports whether next is a piece of the same text as d.
func Continues(d, next *llm.ReasoningDetail) bool {
	return next.Type == llm.ReasoningText && d.Type == llm.ReasoningText && d.Signature == "" &&
		bytes.Equal(next.Extra["index"], d.Extra["index"])
}
