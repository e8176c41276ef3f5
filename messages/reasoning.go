// Thinking and its signatures, in requests and replies. Reasoning details with members that the API
// has no room for travel in the signature or in the redacted data, which clients return unchanged.

package messages

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"

	"github.com/llmhttp/llmhttp/llm"
)

// detailPrefix begins a signature, or the data of redacted thinking, that contains a
// whole reasoning detail in base64. Some servers need members of a detail back for
// which this API has no field, such as its ID and its format. Clients return
// signatures and redacted data unchanged.
const detailPrefix = "llmhttp."

// aliasSignature is the signature of thinking without one that has the name "reasoning":
// see llm.Message.ReasoningAlias. It is not sent to the Backend.
const aliasSignature = detailPrefix + "reasoning"

// encodeDetail returns the signature or the data to send for d: plain, or the whole
// detail if it has members in Extra.
func encodeDetail(d *llm.ReasoningDetail, plain string) string {
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
func decodeDetail(s string) (d llm.ReasoningDetail, ok bool) {
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
func detailFromSignature(thinking, signature string) llm.ReasoningDetail {
	d, ok := decodeDetail(signature)
	if !ok {
		d = llm.ReasoningDetail{Type: llm.ReasoningText, Signature: signature}
	}
	switch {
	case d.Type == llm.ReasoningText:
		d.Text = thinking
	case d.Type == llm.ReasoningSummary && d.Summary == "":
		d.Summary = thinking
	}
	return d
}

// detailFromData returns the detail of a block of redacted thinking.
func detailFromData(data string) llm.ReasoningDetail {
	if d, ok := decodeDetail(data); ok {
		return d
	}
	return llm.ReasoningDetail{Type: llm.ReasoningEncrypted, Data: data}
}

// appendReasoning adds the reasoning of a delta: thinking, signatures and redacted
// thinking. Details with text are added before the reasoning text, because they divide
// it into blocks. Details without text are added after it: their signatures belong to
// that text.
func (e *encoder) appendReasoning(b []byte, d *llm.Delta) []byte {
	if d.ReasoningAlias {
		e.blocks.noSignature = aliasSignature
	}
	detailsFirst := slices.ContainsFunc(d.ReasoningDetails, func(d llm.ReasoningDetail) bool { return d.Text != "" || d.Summary != "" })
	if !detailsFirst {
		b = e.appendReasoningText(b, d)
	}
	for i := range d.ReasoningDetails {
		b = e.appendDetail(b, &d.ReasoningDetails[i])
	}
	if detailsFirst {
		b = e.appendReasoningText(b, d)
	}
	return b
}

func (e *encoder) appendReasoningText(b []byte, d *llm.Delta) []byte {
	switch {
	case d.Reasoning == "":
		return b
	case d.Progress:
		return e.appendThinking(b, d.Reasoning, true)
	}
	return e.appendThinking(b, e.reasoning.FromText(d.Reasoning), false)
}

// appendThinking adds a text to the block of thinking, or to another one if it is progress and the block is not, or the
// other way round: a signature is that of the model's text alone.
func (e *encoder) appendThinking(b []byte, text string, progress bool) []byte {
	if text != "" && progress != e.inProgress {
		b, _ = e.blocks.begin(b, outputBlock{kind: thinkingBlock})
		e.inProgress = progress
	}
	return e.blocks.appendText(b, thinkingBlock, text)
}

// hasIdentity reports whether d has a member, such as an ID or a format, without which the
// server may not accept its text.
func hasIdentity(d *llm.ReasoningDetail) bool {
	for name := range d.Extra {
		if name != "index" {
			return true
		}
	}
	return false
}

func (e *encoder) appendDetail(b []byte, d *llm.ReasoningDetail) []byte {
	if d.Type == llm.ReasoningEncrypted {
		b, _ = e.blocks.begin(b, outputBlock{kind: redactedBlock, data: encodeDetail(d, d.Data)})
		return b
	}
	text := e.reasoning.FromDetails(d.Text + d.Summary)
	if text != "" {
		if e.reasoning.SetIndex(d.Extra["index"]) {
			b, _ = e.blocks.begin(b, outputBlock{kind: thinkingBlock})
			e.inProgress = false
		}
		b = e.appendThinking(b, text, false)
	}
	switch {
	case d.Signature != "":
		if e.inProgress { // of thinking whose text is not shown
			b, _ = e.blocks.begin(b, outputBlock{kind: thinkingBlock})
			e.inProgress = false
		}
		b = e.blocks.addSignature(b, encodeDetail(d, d.Signature))
	case text != "" && hasIdentity(d):
		unsigned := *d
		unsigned.Summary = "" // of which this is a piece
		e.blocks.last().substitute = encodeDetail(&unsigned, "")
	}
	return b
}
