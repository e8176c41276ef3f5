// Package texts walks over the texts of requests and replies, and splits and measures them.
//
// To add a text that a model generates in pieces, such as the refusal, add a string to llm.Delta and
// llm.Message with a line in each of their tables of JSON, and here a constant and an element of what
// [OfDelta] and [OfMessage] return, or of what OfCall returns for a text of a tool call. Then it is
// counted, split, cut, joined, made valid UTF-8 and shown to Observers as the others are. A string that
// comes whole is visited by the method walk of its type, with its kind, and needs a line in
// choiceFilter.add of package textfilter. TestTexts, TestTokens_EveryTextCounts,
// TestStream_EveryTextOfADelta and TestRewrite_EveryTextOfEveryRequest fail until that is done.
package texts

import "github.com/llmhttp/llmhttp/llm"

// The texts of a reply, which a Backend yields in pieces: those of a Delta, in the order in
// which they are sent. A new one is a constant here and an element of what OfDelta and
// OfMessage return.
const (
	Reasoning = iota
	Content
	Refusal
	PerReply // their number
)

// OfDelta returns the texts of a delta that are appended to those of earlier deltas. It
// returns an array, so that a loop over it needs no allocation (budget: allocations per text
// chunk).
func OfDelta(d *llm.Delta) [PerReply]*string {
	return [...]*string{Reasoning: &d.Reasoning, Content: &d.Content, Refusal: &d.Refusal}
}

// OfMessage returns the same texts of a whole message. content takes the place of the content,
// which is not a string.
func OfMessage(m *llm.Message, content *string) [PerReply]*string {
	return [...]*string{Reasoning: &m.Reasoning, Content: content, Refusal: &m.Refusal}
}

// Kinds has the kinds of these texts.
var Kinds = [PerReply]Kind{Reasoning: KindReasoning, Content: KindContent, Refusal: KindRefusal}

// PerCall is the number of texts of a call that come in pieces.
const PerCall = 1

// OfCall returns the texts of a call that are appended to those of earlier deltas.
func OfCall(f *llm.FunctionCall) [PerCall]*string { return [...]*string{&f.Arguments} }

// A Kind says how a text, or the members of an Extra, are treated.
type Kind uint8

const (
	KindContent     Kind = iota // comes in pieces, which are appended, cut and split: what texts returns
	KindRefusal                 // the same
	KindArguments               // the same
	KindReasoning               // the same, for reasoning, which may be in the details too
	KindName                    // comes whole
	KindDescription             // comes whole
	KindWhole                   // comes whole, and is none of the others
	KindLabel                   // a type, an ID or a signature, which usually means nothing to the model
	KindRole                    // a label that is one of a few
	KindDetail                  // in details of reasoning
	KindMedia                   // may contain media
	NumKinds                    // their number
)

// The methods named walk call text for each string of a value, at every depth, and extra for
// each Extra. All code that treats texts alike uses them. TestTexts_WalksAreComplete fails if
// one of them leaves out a string.

// IgnoreExtra is for walks that need only the strings.
func IgnoreExtra(Kind, llm.Extra) {}

// WalkDelta leaves out what is empty, as most of a delta is (budget: stream, chunks ready at once).
func WalkDelta(d *llm.Delta, text func(Kind, *string), extra func(Kind, llm.Extra)) {
	if d.Role != "" {
		text(KindRole, (*string)(&d.Role))
	}
	for i, s := range OfDelta(d) {
		if *s != "" {
			text(Kinds[i], s)
		}
	}
	for i := range d.ToolCalls {
		WalkCallDelta(&d.ToolCalls[i], text, extra)
	}
	for i := range d.ReasoningDetails {
		WalkDetail(&d.ReasoningDetails[i], text, extra)
	}
	if len(d.Extra) > 0 {
		extra(KindMedia, d.Extra)
	}
}

func WalkMessage(m *llm.Message, text func(Kind, *string), extra func(Kind, llm.Extra)) {
	text(KindRole, (*string)(&m.Role))
	text(KindName, &m.Name)
	text(KindLabel, &m.ToolCallID)
	for i, s := range OfMessage(m, nil) {
		if s != nil {
			text(Kinds[i], s)
		}
	}
	for i := range m.Content {
		WalkPart(&m.Content[i], text, extra)
	}
	for i := range m.ToolCalls {
		WalkCall(&m.ToolCalls[i], text, extra)
	}
	for i := range m.ReasoningDetails {
		WalkDetail(&m.ReasoningDetails[i], text, extra)
	}
	extra(KindMedia, m.Extra)
}

func WalkPart(p *llm.Part, text func(Kind, *string), extra func(Kind, llm.Extra)) {
	text(KindLabel, &p.Type)
	text(KindContent, &p.Text)
	if u := p.ImageURL; u != nil {
		text(KindMedia, &u.URL)
		text(KindLabel, &u.Detail)
		extra(KindWhole, u.Extra)
	}
	extra(KindMedia, p.Extra)
}

func WalkCallDelta(t *llm.ToolCallDelta, text func(Kind, *string), extra func(Kind, llm.Extra)) {
	text(KindLabel, &t.ID)
	text(KindLabel, &t.Type)
	WalkFunction(&t.Function, text, extra)
	extra(KindWhole, t.Extra)
}

func WalkCall(c *llm.ToolCall, text func(Kind, *string), extra func(Kind, llm.Extra)) {
	text(KindLabel, &c.ID)
	text(KindLabel, &c.Type)
	WalkFunction(&c.Function, text, extra)
	extra(KindWhole, c.Extra)
}

func WalkFunction(f *llm.FunctionCall, text func(Kind, *string), extra func(Kind, llm.Extra)) {
	text(KindName, &f.Name)
	for _, s := range OfCall(f) {
		text(KindArguments, s)
	}
	extra(KindWhole, f.Extra)
}

func WalkDetail(r *llm.ReasoningDetail, text func(Kind, *string), extra func(Kind, llm.Extra)) {
	text(KindLabel, &r.Type)
	text(KindDetail, &r.Text)
	text(KindDetail, &r.Summary)
	text(KindLabel, &r.Signature)
	text(KindWhole, &r.Data)
	extra(KindDetail, r.Extra)
}

func WalkTool(t *llm.Tool, text func(Kind, *string), extra func(Kind, llm.Extra)) {
	text(KindLabel, &t.Type)
	if f := t.Function; f != nil {
		text(KindName, &f.Name)
		text(KindDescription, &f.Description)
		extra(KindWhole, f.Extra)
	}
	extra(KindWhole, t.Extra)
}
