package llmhttp

import "strings"

// The texts of a reply, which a Backend yields in pieces: those of a Delta, in the order in
// which they are sent. A new one is a constant here and an element of what Delta.texts and
// Message.texts return.
const (
	reasoningText = iota
	contentText
	refusalText
	replyTexts // their number
)

// texts returns the texts of a delta that are appended to those of earlier deltas. It
// returns an array, so that a loop over it needs no allocation (budget: allocations per text
// chunk).
func (d *Delta) texts() [replyTexts]*string {
	return [...]*string{reasoningText: &d.Reasoning, contentText: &d.Content, refusalText: &d.Refusal}
}

// texts returns the same texts of a whole message. content takes the place of the content,
// which is not a string.
func (m *Message) texts(content *string) [replyTexts]*string {
	return [...]*string{reasoningText: &m.Reasoning, contentText: content, refusalText: &m.Refusal}
}

// replyTextKinds has the kinds of these texts.
var replyTextKinds = [replyTexts]textKind{reasoningText: textReasoning, contentText: textContent, refusalText: textRefusal}

// callTexts is the number of texts of a call that come in pieces.
const callTexts = 1

// texts returns the texts of a call that are appended to those of earlier deltas.
func (f *FunctionCall) texts() [callTexts]*string { return [...]*string{&f.Arguments} }

// A textKind says how a text, or the members of an Extra, are treated.
type textKind uint8

const (
	textContent     textKind = iota // comes in pieces, which are appended, cut and split: what texts returns
	textRefusal                     // the same
	textArguments                   // the same
	textReasoning                   // the same, for reasoning, which may be in the details too
	textName                        // comes whole
	textDescription                 // comes whole
	textWhole                       // comes whole, and is none of the others
	textLabel                       // a type, an ID or a signature, which usually means nothing to the model
	textRole                        // a label that is one of a few
	textDetail                      // in details of reasoning
	textMedia                       // may contain media
	textKinds                       // their number
)

// The methods named walk call text for each string of a value, at every depth, and extra for
// each Extra. All code that treats texts alike uses them. TestTexts_WalksAreComplete fails if
// one of them leaves out a string.

// ignoreExtra is for walks that need only the strings.
func ignoreExtra(textKind, Extra) {}

// walk leaves out what is empty, as most of a delta is (budget: stream, chunks ready at once).
func (d *Delta) walk(text func(textKind, *string), extra func(textKind, Extra)) {
	if d.Role != "" {
		text(textRole, (*string)(&d.Role))
	}
	for i, s := range d.texts() {
		if *s != "" {
			text(replyTextKinds[i], s)
		}
	}
	for i := range d.ToolCalls {
		d.ToolCalls[i].walk(text, extra)
	}
	for i := range d.ReasoningDetails {
		d.ReasoningDetails[i].walk(text, extra)
	}
	if len(d.Extra) > 0 {
		extra(textMedia, d.Extra)
	}
}

func (m *Message) walk(text func(textKind, *string), extra func(textKind, Extra)) {
	text(textRole, (*string)(&m.Role))
	text(textName, &m.Name)
	text(textLabel, &m.ToolCallID)
	for i, s := range m.texts(nil) {
		if s != nil {
			text(replyTextKinds[i], s)
		}
	}
	for i := range m.Content {
		m.Content[i].walk(text, extra)
	}
	for i := range m.ToolCalls {
		m.ToolCalls[i].walk(text, extra)
	}
	for i := range m.ReasoningDetails {
		m.ReasoningDetails[i].walk(text, extra)
	}
	extra(textMedia, m.Extra)
}

func (p *Part) walk(text func(textKind, *string), extra func(textKind, Extra)) {
	text(textLabel, &p.Type)
	text(textContent, &p.Text)
	if u := p.ImageURL; u != nil {
		text(textMedia, &u.URL)
		text(textLabel, &u.Detail)
		extra(textWhole, u.Extra)
	}
	extra(textMedia, p.Extra)
}

func (t *ToolCallDelta) walk(text func(textKind, *string), extra func(textKind, Extra)) {
	text(textLabel, &t.ID)
	text(textLabel, &t.Type)
	t.Function.walk(text, extra)
	extra(textWhole, t.Extra)
}

func (c *ToolCall) walk(text func(textKind, *string), extra func(textKind, Extra)) {
	text(textLabel, &c.ID)
	text(textLabel, &c.Type)
	c.Function.walk(text, extra)
	extra(textWhole, c.Extra)
}

func (f *FunctionCall) walk(text func(textKind, *string), extra func(textKind, Extra)) {
	text(textName, &f.Name)
	for _, s := range f.texts() {
		text(textArguments, s)
	}
	extra(textWhole, f.Extra)
}

func (r *ReasoningDetail) walk(text func(textKind, *string), extra func(textKind, Extra)) {
	text(textLabel, &r.Type)
	text(textDetail, &r.Text)
	text(textDetail, &r.Summary)
	text(textLabel, &r.Signature)
	text(textWhole, &r.Data)
	extra(textDetail, r.Extra)
}

func (t *Tool) walk(text func(textKind, *string), extra func(textKind, Extra)) {
	text(textLabel, &t.Type)
	if f := t.Function; f != nil {
		text(textName, &f.Name)
		text(textDescription, &f.Description)
		extra(textWhole, f.Extra)
	}
	extra(textWhole, t.Extra)
}

// validText returns s with U+FFFD in place of what is not UTF-8.
func validText(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
