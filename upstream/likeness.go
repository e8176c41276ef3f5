package upstream

import (
	"bytes"

	"github.com/llmhttp/llmhttp"
)

// A likeness is what the chunks of a stream have in common: all bytes but those
// of one text, more often than not. A chunk that is like the one before need
// not be decoded but for that text.
type likeness struct {
	form      []byte // a chunk, whose text may be any
	from, to  int    // where that is; to is 0 if there is no form
	id, model string
	created   int64
	index     int
}

// maxForm is how long a chunk may be of which a form is made.
const maxForm = 4 << 10

func (l *likeness) forget() { l.to = 0 }

// alike returns the chunk that data is, or nil if it is not like the one before.
func (d *decoder) alike(data []byte) *llmhttp.ChatChunk {
	l := &d.likeness
	if l.to == 0 || len(d.mender.held) > 0 {
		return nil
	}
	rest := l.form[l.to:]
	end := len(data) - len(rest)
	if end < l.from || !bytes.Equal(data[:l.from], l.form[:l.from]) || !bytes.Equal(data[end:], rest) {
		return nil
	}
	d.Restart(data[l.from-1 : end+1]) // with its quotes
	text := d.String()
	if d.Finish() != nil {
		return nil // the quotes are those of several strings, say
	}
	v := new(oneChoice)
	v.choice[0].Index = l.index
	v.choice[0].Delta.Content = text
	v.chunk = llmhttp.ChatChunk{ID: l.id, Created: l.created, Model: l.model, Choices: v.choice[:]}
	return &v.chunk
}

// learn makes data, which is c, the form of the next chunks, if it has nothing
// but a text.
func (d *decoder) learn(data []byte, c *llmhttp.ChatChunk) {
	l := &d.likeness
	l.forget()
	if d.to == 0 || len(data) > maxForm || len(c.Choices) != 1 || c.Usage != nil || c.Extra != nil || d.problem != nil {
		return
	}
	choice := &c.Choices[0]
	delta := &choice.Delta
	if choice.FinishReason != "" || choice.Extra != nil || delta.Extra != nil || delta.Reasoning != "" || len(delta.ToolCalls) > 0 {
		return
	}
	l.form = append(l.form[:0], data...)
	l.from, l.to = d.from, d.to
	l.id, l.model, l.created, l.index = c.ID, c.Model, c.Created, choice.Index
}
