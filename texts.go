package llmhttp

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

// replyTextKinds has the kinds that are not textPlain.
var replyTextKinds = [replyTexts]textKind{reasoningText: textReasoning}

// callTexts is the number of texts of a call that come in pieces.
const callTexts = 1

// texts returns the texts of a call that are appended to those of earlier deltas.
func (f *FunctionCall) texts() [callTexts]*string { return [...]*string{&f.Arguments} }

// A textKind says what a text, or the members of an Extra, are to a model.
type textKind uint8

const (
	textPlain     textKind = iota
	textLabel              // a type, an ID or a signature, which usually means nothing to the model
	textRole               // a label that is one of a few
	textReasoning          // reasoning, which may be in the details too
	textDetail             // the same in the details
	textMedia              // may contain media
)

// The methods named walk call text for each string of a value, at every depth, and extra for
// each Extra. All code that treats texts alike uses them. TestTexts_WalksAreComplete fails if
// one of them leaves out a string.

// ignoreExtra is for walks that need only the strings.
func ignoreExtra(textKind, Extra) {}

func (d *Delta) walk(text func(textKind, *string), extra func(textKind, Extra)) {
	text(textRole, (*string)(&d.Role))
	for i, s := range d.texts() {
		text(replyTextKinds[i], s)
	}
	for i := range d.ToolCalls {
		d.ToolCalls[i].walk(text, extra)
	}
	for i := range d.ReasoningDetails {
		d.ReasoningDetails[i].walk(text, extra)
	}
	extra(textMedia, d.Extra)
}

func (m *Message) walk(text func(textKind, *string), extra func(textKind, Extra)) {
	text(textRole, (*string)(&m.Role))
	text(textPlain, &m.Name)
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
	text(textPlain, &p.Text)
	if u := p.ImageURL; u != nil {
		text(textMedia, &u.URL)
		text(textLabel, &u.Detail)
		extra(textPlain, u.Extra)
	}
	extra(textMedia, p.Extra)
}

func (t *ToolCallDelta) walk(text func(textKind, *string), extra func(textKind, Extra)) {
	text(textLabel, &t.ID)
	text(textLabel, &t.Type)
	t.Function.walk(text, extra)
	extra(textPlain, t.Extra)
}

func (c *ToolCall) walk(text func(textKind, *string), extra func(textKind, Extra)) {
	text(textLabel, &c.ID)
	text(textLabel, &c.Type)
	c.Function.walk(text, extra)
	extra(textPlain, c.Extra)
}

func (f *FunctionCall) walk(text func(textKind, *string), extra func(textKind, Extra)) {
	text(textPlain, &f.Name)
	for _, s := range f.texts() {
		text(textPlain, s)
	}
	extra(textPlain, f.Extra)
}

func (r *ReasoningDetail) walk(text func(textKind, *string), extra func(textKind, Extra)) {
	text(textLabel, &r.Type)
	text(textDetail, &r.Text)
	text(textDetail, &r.Summary)
	text(textLabel, &r.Signature)
	text(textPlain, &r.Data)
	extra(textDetail, r.Extra)
}

func (t *Tool) walk(text func(textKind, *string), extra func(textKind, Extra)) {
	text(textLabel, &t.Type)
	if f := t.Function; f != nil {
		text(textPlain, &f.Name)
		text(textPlain, &f.Description)
		extra(textPlain, f.Extra)
	}
	extra(textPlain, t.Extra)
}
