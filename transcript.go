// The texts of a chat for an Observer that asks for them, collected between the orderer and the
// encoder.

package llmhttp

import (
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/option"
	"github.com/llmhttp/llmhttp/internal/order"
	"github.com/llmhttp/llmhttp/internal/redact"
	"github.com/llmhttp/llmhttp/internal/texts"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
)

// A Transcript has the texts of a chat, for an [Observer] that asks for them. Of prompts to complete,
// each is a message of the user, and the suffix the last one. It
// contains no images, no audio, no files, no encrypted reasoning and no members of
// Extra: of parts of a message other than text it has only the Type. The API key
// of the request is redacted.
type Transcript struct {
	Messages  []llm.Message // of the request, up to the one at which the limit was reached
	Tools     []llm.Tool
	Choices   []llm.Choice // of the reply, as far as the Backend yielded it
	Truncated bool         // texts are missing, because the limit was reached
}

const (
	defaultTranscriptLimit = 16 << 10

	// transcriptOverhead is how many bytes a message, a part, a tool or a call
	// counts besides its texts, so that their number is bounded too.
	transcriptOverhead = 16
)

func (o *Observation) transcriptLimit() int64 {
	return option.Bound(o.TranscriptLimit, defaultTranscriptLimit)
}

// A transcript collects a Transcript. It is a order.Sink that passes chunks on to next.
type transcript struct {
	out       Transcript
	bytesLeft int // that may still be added
	reply     join.Accumulator
	next      order.Sink
}

// newTranscript returns a transcript with the texts of req. It has room for limit bytes of them,
// and for as many of the reply.
func newTranscript(req *llm.ChatRequest, limit int, next order.Sink) *transcript {
	t := &transcript{bytesLeft: limit, next: next}
	t.addRequest(req)
	t.bytesLeft = limit
	return t
}

func (t *transcript) addRequest(r *llm.ChatRequest) {
	for i := range r.Messages {
		if !t.takeRoom() {
			return
		}
		t.out.Messages = append(t.out.Messages, t.copyMessage(&r.Messages[i]))
	}
	for i := range r.Tools {
		if !t.takeRoom() {
			return
		}
		t.out.Tools = append(t.out.Tools, t.copyTool(&r.Tools[i]))
	}
}

func (t *transcript) copyMessage(m *llm.Message) llm.Message {
	out := *m
	out.Content, out.ToolCalls, out.ReasoningDetails, out.Extra = nil, nil, nil, nil
	out.ReasoningAlias = false
	texts.WalkMessage(&out, t.clipInPlace, texts.IgnoreExtra)
	for i := range m.Content {
		if !t.takeRoom() {
			return out
		}
		part := m.Content[i]
		part.ImageURL, part.Extra = nil, nil
		texts.WalkPart(&part, t.clipInPlace, texts.IgnoreExtra)
		out.Content = append(out.Content, part)
	}
	for i := range m.ToolCalls {
		if !t.takeRoom() {
			return out
		}
		call := m.ToolCalls[i]
		call.Extra, call.Function.Extra = nil, nil
		texts.WalkCall(&call, t.clipInPlace, texts.IgnoreExtra)
		out.ToolCalls = append(out.ToolCalls, call)
	}
	return out
}

// copyTool returns a copy of a tool. The schema of its parameters is kept whole or
// left out.
func (t *transcript) copyTool(from *llm.Tool) llm.Tool {
	out := llm.Tool{Type: from.Type}
	f := from.Function
	if f != nil {
		out.Function = &llm.Function{Name: f.Name, Description: f.Description}
	}
	texts.WalkTool(&out, t.clipInPlace, texts.IgnoreExtra)
	switch {
	case f == nil || f.Parameters == nil:
	case len(f.Parameters) > t.bytesLeft:
		t.bytesLeft, t.out.Truncated = 0, true
	default:
		out.Function.Parameters = []byte(t.clip(string(f.Parameters)))
	}
	return out
}

// Add implements order.Sink: the orderer calls it.
func (t *transcript) Add(c *llm.ChatChunk) {
	t.addReplyPart(&c.Choices[0])
	t.next.Add(c)
}

// addReplyPart joins a part of the reply. When there is no room left, nothing more is
// joined, because the joiner must get the first part of each choice and call.
func (t *transcript) addReplyPart(c *llm.ChunkChoice) {
	d := &c.Delta
	switch {
	case c.FinishReason != "":
		return
	case t.bytesLeft <= 0, d.Role != "" && !t.takeRoom():
		t.out.Truncated = t.out.Truncated || !d.IsEmpty()
		return
	}
	part := *d
	part.ToolCalls, part.ReasoningDetails, part.Extra = nil, nil, nil
	part.ReasoningAlias = false
	texts.WalkDelta(&part, t.clipInPlace, texts.IgnoreExtra)
	for i := range d.ToolCalls {
		call := d.ToolCalls[i]
		if t.bytesLeft <= 0 || call.ID != "" && !t.takeRoom() {
			t.out.Truncated = true
			break
		}
		call.Extra, call.Function.Extra = nil, nil
		texts.WalkCallDelta(&call, t.clipInPlace, texts.IgnoreExtra)
		part.ToolCalls = append(part.ToolCalls, call)
	}
	t.reply.Add(&llm.ChatChunk{Choices: []llm.ChunkChoice{{Index: c.Index, Delta: part}}})
}

// clipInPlace clips a text, but for a role, which is bounded.
func (t *transcript) clipInPlace(kind texts.Kind, s *string) {
	if kind != texts.KindRole {
		*s = t.clip(*s)
	}
}

// takeRoom counts a message, a part, a tool or a call toward the limit. It reports false
// if the limit was reached.
func (t *transcript) takeRoom() bool {
	if t.bytesLeft <= 0 {
		t.out.Truncated = true
		return false
	}
	t.bytesLeft -= transcriptOverhead
	return true
}

// clip counts s toward the limit. It returns s, or the part of it for which there is room.
func (t *transcript) clip(s string) string {
	room := min(max(t.bytesLeft, 0), redact.MaxText)
	if len(s) <= room {
		t.bytesLeft -= len(s)
		return s
	}
	t.out.Truncated = true
	t.bytesLeft -= room
	return s[:room-texts.IncompleteSuffixLen(s[:room])] + jsonwire.ClipMark
}

// finish returns what was collected, without the API key of the request. reasons are those of
// the choices of the reply.
func (t *transcript) finish(reasons []llm.FinishReason, r redactor) *Transcript {
	for _, c := range t.reply.Response().Choices {
		r.message(&c.Message)
		t.out.Choices = append(t.out.Choices, llm.Choice{Index: c.Index, Message: c.Message, FinishReason: reasons[c.Index]})
	}
	for i := range t.out.Messages {
		r.message(&t.out.Messages[i])
	}
	for i := range t.out.Tools {
		r.tool(&t.out.Tools[i])
	}
	return &t.out
}

// message redacts the texts of m in place.
func (r redactor) message(m *llm.Message) {
	texts.WalkMessage(m, r.inPlace, texts.IgnoreExtra)
}

// tool redacts the texts of t in place.
func (r redactor) tool(t *llm.Tool) {
	texts.WalkTool(t, r.inPlace, texts.IgnoreExtra)
	if f := t.Function; f != nil && f.Parameters != nil {
		f.Parameters = []byte(r.text(string(f.Parameters)))
	}
}

func (r redactor) inPlace(_ texts.Kind, s *string) { *s = r.text(*s) }
