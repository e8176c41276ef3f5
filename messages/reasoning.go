package messages

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"

	"github.com/llmhttp/llmhttp"
)

// detailPrefix begins a signature, or the data of redacted thinking, that contains a
// whole reasoning detail in base64. Some servers need members of a detail back for
// which this API has no field, such as its ID and its format. Clients return
// signatures and redacted data unchanged.
const detailPrefix = "llmhttp."

// encodeDetail returns the signature or the data to send for d: plain, or the whole
// detail if it has members in Extra.
func encodeDetail(d *llmhttp.ReasoningDetail, plain string) string {
	if len(d.Extra) == 0 {
		return plain
	}
	withoutText := *d
	withoutText.Text = "" // the block has it
	b, err := json.Marshal(&withoutText)
	if err != nil {
		return plain
	}
	return detailPrefix + base64.RawURLEncoding.EncodeToString(b)
}

// decodeDetail returns the detail that encodeDetail put into s, or false if s does
// not contain one.
func decodeDetail(s string) (d llmhttp.ReasoningDetail, ok bool) {
	encoded, ok := strings.CutPrefix(s, detailPrefix)
	if !ok {
		return d, false
	}
	b, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		return d, false
	}
	err = json.Unmarshal(b, &d)
	return d, err == nil
}

// detailFromSignature returns the detail of a block with the given thinking and
// signature.
func detailFromSignature(thinking, signature string) llmhttp.ReasoningDetail {
	d, ok := decodeDetail(signature)
	if !ok {
		d = llmhttp.ReasoningDetail{Type: llmhttp.ReasoningText, Signature: signature}
	}
	if d.Type == llmhttp.ReasoningText {
		d.Text = thinking
	}
	return d
}

// detailFromData returns the detail of a block of redacted thinking.
func detailFromData(data string) llmhttp.ReasoningDetail {
	if d, ok := decodeDetail(data); ok {
		return d
	}
	return llmhttp.ReasoningDetail{Type: llmhttp.ReasoningEncrypted, Data: data}
}

// A reasoningMerger drops the reasoning of a reply that a Backend yields twice.
//
// A Backend may yield the same reasoning as text and in details, together or one after
// the other, split at different places. Text that has come from only one of these two
// sources is kept until the other source repeats it.
type reasoningMerger struct {
	text, details []byte // from this source, and not yet from the other
	index         []byte // the index of the last detail that had text
}

// fromText returns the part of text that is new.
func (m *reasoningMerger) fromText(text string) string {
	return withoutRepetition(text, &m.text, &m.details)
}

// fromDetails returns the part of the text of a detail that is new.
func (m *reasoningMerger) fromDetails(text string) string {
	return withoutRepetition(text, &m.details, &m.text)
}

// withoutRepetition returns text without what it repeats of the other source.
func withoutRepetition(text string, own, other *[]byte) string {
	n := min(len(text), len(*other))
	if text[:n] != string((*other)[:n]) {
		n = 0
	}
	*other = (*other)[n:]
	*own = append(*own, text[n:]...)
	return text[n:]
}

// setIndex sets index. It reports whether that changes the index of an earlier detail,
// so that another text begins: all parts of one text have the same index.
func (m *reasoningMerger) setIndex(index []byte) (changed bool) {
	changed = m.index != nil && !bytes.Equal(m.index, index)
	m.index = append(m.index[:0], index...)
	return changed
}

// appendReasoning adds the reasoning of a delta: thinking, signatures and redacted
// thinking. Details with text are added before the reasoning text, because they divide
// it into blocks. Details without text are added after it: their signatures belong to
// that text.
func (e *encoder) appendReasoning(b []byte, d *llmhttp.Delta) []byte {
	detailsFirst := slices.ContainsFunc(d.ReasoningDetails, func(d llmhttp.ReasoningDetail) bool { return d.Text != "" || d.Summary != "" })
	if !detailsFirst && d.Reasoning != "" {
		b = e.blocks.appendText(b, thinkingBlock, e.reasoning.fromText(d.Reasoning))
	}
	for i := range d.ReasoningDetails {
		b = e.appendDetail(b, &d.ReasoningDetails[i])
	}
	if detailsFirst && d.Reasoning != "" {
		b = e.blocks.appendText(b, thinkingBlock, e.reasoning.fromText(d.Reasoning))
	}
	return b
}

func (e *encoder) appendDetail(b []byte, d *llmhttp.ReasoningDetail) []byte {
	if d.Type == llmhttp.ReasoningEncrypted {
		b, _ = e.blocks.begin(b, outputBlock{kind: redactedBlock, data: encodeDetail(d, d.Data)})
		return b
	}
	text := e.reasoning.fromDetails(d.Text + d.Summary)
	if text != "" {
		changed := e.reasoning.setIndex(d.Extra["index"])
		if changed {
			b, _ = e.blocks.begin(b, outputBlock{kind: thinkingBlock})
		}
		b = e.blocks.appendText(b, thinkingBlock, text)
	}
	if d.Signature != "" {
		b = e.blocks.addSignature(b, encodeDetail(d, d.Signature))
	}
	return b
}
