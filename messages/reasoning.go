package messages

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/llmhttp/llmhttp"
)

// Some servers need more of a reasoning detail back than this API has room for,
// such as its ID and its format. Clients return signatures and redacted data
// unchanged, so such a detail travels in one of them: sealedPrefix and the detail
// in base64.
const sealedPrefix = "llmhttp."

// seal returns what a client is to return for d, in place of plain.
func seal(d *llmhttp.ReasoningDetail, plain string) string {
	if len(d.Extra) == 0 {
		return plain
	}
	sealed := *d
	sealed.Text = "" // is in the block
	b, err := json.Marshal(&sealed)
	if err != nil {
		return plain
	}
	return sealedPrefix + base64.RawURLEncoding.EncodeToString(b)
}

// unseal returns the detail that seal has sealed, or false if there is none.
func unseal(s string) (d llmhttp.ReasoningDetail, ok bool) {
	encoded, ok := strings.CutPrefix(s, sealedPrefix)
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

// openSignature returns the detail for a block of thinking.
func openSignature(thinking, signature string) llmhttp.ReasoningDetail {
	d, ok := unseal(signature)
	if !ok {
		d = llmhttp.ReasoningDetail{Type: llmhttp.ReasoningText, Signature: signature}
	}
	if d.Type == llmhttp.ReasoningText {
		d.Text = thinking
	}
	return d
}

// openData returns the detail for a block of redacted thinking.
func openData(data string) llmhttp.ReasoningDetail {
	if d, ok := unseal(data); ok {
		return d
	}
	return llmhttp.ReasoningDetail{Type: llmhttp.ReasoningEncrypted, Data: data}
}

// thoughts is what an encoder knows of the reasoning of a reply.
//
// A Backend may yield the same reasoning twice: as text, and in details. They may come
// together or one after the other, split anywhere. What has come from one
// source only is kept, so that its repetition by the other can be left out.
type thoughts struct {
	text, details []byte // came from this source and not yet from the other
	index         []byte // of the last detail that had text
	unsigned      bool   // the thinking block that ended last has no signature
}

// fromText returns what text adds to the reasoning.
func (t *thoughts) fromText(text string) string { return addThought(text, &t.text, &t.details) }

// fromDetails returns what the text of a detail adds to the reasoning.
func (t *thoughts) fromDetails(text string) string { return addThought(text, &t.details, &t.text) }

// addThought returns text without what the other source has had already.
func addThought(text string, own, other *[]byte) string {
	n := min(len(text), len(*other))
	if text[:n] != string((*other)[:n]) {
		n = 0
	}
	*other = (*other)[n:]
	*own = append(*own, text[n:]...)
	return text[n:]
}

// continues reports whether d may have a piece of the same text as the detail
// before it: pieces of one text have the same index.
func (t *thoughts) continues(d *llmhttp.ReasoningDetail) bool {
	same := t.index == nil || bytes.Equal(t.index, d.Extra["index"])
	t.index = append(t.index[:0], d.Extra["index"]...)
	return same
}
