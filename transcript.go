package llmhttp

import (
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/option"
	"github.com/llmhttp/llmhttp/internal/redact"
)

// A Transcript has the texts of a chat, for an [Observer] that asks for them. Of prompts to complete,
// each is a message of the user, and the suffix the last one. It
// contains no images, no audio, no files, no encrypted reasoning and no members of
// Extra: of parts of a message other than text it has only the Type. The API key
// of the request is redacted.
type Transcript struct {
	Messages  []Message // of the request, up to the one at which the limit was reached
	Tools     []Tool
	Choices   []Choice // of the reply, as far as the Backend yielded it
	Truncated bool     // texts are missing, because the limit was reached
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

// A transcript collects a Transcript. It is a chunkSink that passes chunks on to next.
type transcript struct {
	out       Transcript
	bytesLeft int // that may still be added
	reply     Joiner
	next      chunkSink
}

// newTranscript returns a transcript with the texts of req. It has room for limit bytes of them,
// and for as many of the reply.
func newTranscript(req *ChatRequest, limit int, next chunkSink) *transcript {
	t := &transcript{bytesLeft: limit, next: next}
	t.addRequest(req)
	t.bytesLeft = limit
	return t
}

func (t *transcript) addRequest(r *ChatRequest) {
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

func (t *transcript) copyMessage(m *Message) Message {
	out := *m
	out.Content, out.ToolCalls, out.ReasoningDetails, out.Extra = nil, nil, nil, nil
	out.ReasoningAlias = false
	out.walk(t.clipInPlace, ignoreExtra)
	for i := range m.Content {
		if !t.takeRoom() {
			return out
		}
		part := m.Content[i]
		part.ImageURL, part.Extra = nil, nil
		part.walk(t.clipInPlace, ignoreExtra)
		out.Content = append(out.Content, part)
	}
	for i := range m.ToolCalls {
		if !t.takeRoom() {
			return out
		}
		call := m.ToolCalls[i]
		call.Extra, call.Function.Extra = nil, nil
		call.walk(t.clipInPlace, ignoreExtra)
		out.ToolCalls = append(out.ToolCalls, call)
	}
	return out
}

// copyTool returns a copy of a tool. The schema of its parameters is kept whole or
// left out.
func (t *transcript) copyTool(from *Tool) Tool {
	out := Tool{Type: from.Type}
	f := from.Function
	if f != nil {
		out.Function = &Function{Name: f.Name, Description: f.Description}
	}
	out.walk(t.clipInPlace, ignoreExtra)
	switch {
	case f == nil || f.Parameters == nil:
	case len(f.Parameters) > t.bytesLeft:
		t.bytesLeft, t.out.Truncated = 0, true
	default:
		out.Function.Parameters = []byte(t.clip(string(f.Parameters)))
	}
	return out
}

// Add implements chunkSink: the orderer calls it.
func (t *transcript) Add(c *ChatChunk) {
	t.addReplyPart(&c.Choices[0])
	t.next.Add(c)
}

// addReplyPart joins a part of the reply. When there is no room left, nothing more is
// joined, because the joiner must get the first part of each choice and call.
func (t *transcript) addReplyPart(c *ChunkChoice) {
	d := &c.Delta
	switch {
	case c.FinishReason != "":
		return
	case t.bytesLeft <= 0, d.Role != "" && !t.takeRoom():
		t.out.Truncated = t.out.Truncated || !d.isEmpty()
		return
	}
	part := *d
	part.ToolCalls, part.ReasoningDetails, part.Extra = nil, nil, nil
	part.ReasoningAlias = false
	part.walk(t.clipInPlace, ignoreExtra)
	for i := range d.ToolCalls {
		call := d.ToolCalls[i]
		if t.bytesLeft <= 0 || call.ID != "" && !t.takeRoom() {
			t.out.Truncated = true
			break
		}
		call.Extra, call.Function.Extra = nil, nil
		call.walk(t.clipInPlace, ignoreExtra)
		part.ToolCalls = append(part.ToolCalls, call)
	}
	t.reply.Add(&ChatChunk{Choices: []ChunkChoice{{Index: c.Index, Delta: part}}})
}

// clipInPlace clips a text, but for a role, which is bounded.
func (t *transcript) clipInPlace(kind textKind, s *string) {
	if kind != textRole {
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
	return s[:room-incompleteSuffixLen(s[:room])] + jsonwire.ClipMark
}

// finish returns what was collected, without the API key of the request. reasons are those of
// the choices of the reply.
func (t *transcript) finish(reasons []FinishReason, r redactor) *Transcript {
	for _, c := range t.reply.Response().Choices {
		r.message(&c.Message)
		t.out.Choices = append(t.out.Choices, Choice{Index: c.Index, Message: c.Message, FinishReason: reasons[c.Index]})
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
func (r redactor) message(m *Message) {
	m.walk(r.inPlace, ignoreExtra)
}

// tool redacts the texts of t in place.
func (r redactor) tool(t *Tool) {
	t.walk(r.inPlace, ignoreExtra)
	if f := t.Function; f != nil && f.Parameters != nil {
		f.Parameters = []byte(r.text(string(f.Parameters)))
	}
}

func (r redactor) inPlace(_ textKind, s *string) { *s = r.text(*s) }
