package upstream

import (
	"bytes"
	"cmp"
	"maps"
	"unicode/utf8"

	"github.com/llmhttp/llmhttp"
)

// A textPattern decodes the events of a stream that differ from the one before only in
// their text, as most do. docs/performance.md has the budget that needs it, "gateway
// stream, paced"; BenchmarkChat measures it.
type textPattern struct {
	member        string // the name of the member that has the text, in quotes; "content" if empty
	before, after []byte // of an event, around its text; before is empty if there is no pattern
	chunk         textChunk
}

// A textChunk is a chunk and its only choice, in one piece of memory.
type textChunk struct {
	llmhttp.ChatChunk
	choice [1]llmhttp.ChunkChoice
}

// learn takes the pattern of an event that was decoded to chunk. An event has a pattern
// if it has one choice, with a text that is its only member of the name of texts. It
// must have no escapes, so that names and texts are what they look like.
func (p *textPattern) learn(event []byte, chunk *llmhttp.ChatChunk) {
	member := cmp.Or(p.member, `"content"`)
	p.before = p.before[:0]
	if len(chunk.Choices) != 1 || chunk.Usage != nil || bytes.IndexByte(event, '\\') >= 0 || bytes.Count(event, []byte(member)) != 1 {
		return
	}
	choice := &chunk.Choices[0]
	d := &choice.Delta
	if d.Content == "" || len(d.ToolCalls) > 0 || len(d.ReasoningDetails) > 0 {
		return
	}
	before, rest, _ := bytes.Cut(event, []byte(member))
	text := bytes.TrimLeft(rest, " :")
	if !bytes.HasPrefix(text, []byte(`"`+d.Content+`"`)) || !isPlain([]byte(d.Content)) {
		return
	}
	start := len(before) + len(member) + len(rest) - len(text) + 1
	p.before = append(p.before, event[:start]...)
	p.after = append(p.after[:0], event[start+len(d.Content):]...)
	p.chunk.ChatChunk, p.chunk.choice[0] = *chunk, *choice
	p.chunk.cloneExtra() // the caller may change chunk
}

// decode returns the chunk of an event, or nil if the event does not have the pattern.
func (p *textPattern) decode(event []byte) *llmhttp.ChatChunk {
	if len(p.before) == 0 || len(event) < len(p.before)+len(p.after) ||
		!bytes.HasPrefix(event, p.before) || !bytes.HasSuffix(event, p.after) {
		return nil
	}
	text := event[len(p.before) : len(event)-len(p.after)]
	if !isPlain(text) {
		return nil
	}
	c := new(textChunk)
	*c = p.chunk
	c.Choices = c.choice[:]
	c.choice[0].Delta.Content = string(text)
	c.cloneExtra()
	return &c.ChatChunk
}

// cloneExtra replaces the maps of c by copies.
func (c *textChunk) cloneExtra() {
	choice := &c.choice[0]
	for _, extra := range []*llmhttp.Extra{&c.Extra, &choice.Extra, &choice.Delta.Extra} {
		*extra = maps.Clone(*extra)
	}
}

// isPlain reports whether text is the same between the quotes of a JSON string.
func isPlain(text []byte) bool {
	for _, c := range text {
		if c < ' ' || c == '"' || c == '\\' {
			return false
		}
	}
	return utf8.Valid(text)
}
