package llmhttp

import (
	"encoding/json"
	"strings"
)

// A tokenCounter counts tokens of text.
type tokenCounter struct {
	model string
	count func(model, text string) int // nil for an estimate by length
}

// tokenCounter returns the tokenCounter for the request's model.
func (q *request) tokenCounter() *tokenCounter {
	return &tokenCounter{q.accounting.record.Model, q.h.opts.CountTokens}
}

func (c *tokenCounter) text(s string) int {
	if c.count != nil {
		return max(c.count(c.model, s), 0)
	}
	return estimateTokens(len(s))
}

// estimateTokens estimates the number of tokens of a text of that many bytes.
func estimateTokens(bytes int) int { return (bytes + 3) / 4 }

// The tokens of a chat besides its texts. OpenAI counts an image in low detail
// as 85 tokens, and a few for each message.
const (
	tokensPerMessage = 4
	tokensPerMedia   = 85
)

// prompt counts the tokens of a chat's messages and tools.
func (c *tokenCounter) prompt(r *ChatRequest) int {
	n := 0
	for i := range r.Messages {
		m := &r.Messages[i]
		n += tokensPerMessage + c.text(m.Name) + c.text(m.Reasoning)
		for j := range m.Content {
			if p := &m.Content[j]; p.Type == PartText {
				n += c.text(p.Text)
			} else {
				n += tokensPerMedia
			}
		}
		if len(m.Extra) > 0 {
			n += c.text(m.Extra.texts())
		}
		for j := range m.ToolCalls {
			f := &m.ToolCalls[j].Function
			n += c.text(f.Name) + c.text(f.Arguments)
		}
	}
	for i := range r.Tools {
		if f := r.Tools[i].Function; f != nil {
			n += c.text(f.Name) + c.text(f.Description) + c.text(string(f.Parameters))
		}
	}
	for _, v := range r.Extra {
		n += c.structured(v)
	}
	if r.ResponseFormat != nil {
		for _, v := range r.ResponseFormat.Extra {
			n += c.structured(v)
		}
	}
	return n
}

// structured counts the tokens of JSON that may contain text for the model.
func (c *tokenCounter) structured(v json.RawMessage) int {
	if len(v) > 0 && strings.IndexByte(`"[{`, v[0]) >= 0 {
		return c.text(string(v))
	}
	return 0
}

// input counts the tokens of the inputs of an embedding request.
func (c *tokenCounter) input(in *EmbeddingInput) int {
	n := 0
	for _, text := range in.Texts {
		n += c.text(text)
	}
	for _, tokens := range in.Tokens {
		n += len(tokens)
	}
	return n
}

// output counts the tokens of a reply.
func (c *tokenCounter) output(out *outputCounter) int {
	if c.count != nil {
		return c.text(string(out.text))
	}
	return estimateTokens(out.bytes)
}

// An outputCounter counts the text of a reply, from which tokenCounter.output estimates the
// tokens.
type outputCounter struct {
	keepText bool // whether text is kept, for Options.CountTokens
	bytes    int
	text     []byte
}

func (n *outputCounter) add(d *Delta) {
	n.addText(d.Reasoning)
	n.addText(d.Content)
	n.addText(d.Refusal)
	for i := range d.ToolCalls {
		n.addText(d.ToolCalls[i].Function.Name)
		n.addText(d.ToolCalls[i].Function.Arguments)
	}
	if d.Reasoning == "" {
		for i := range d.ReasoningDetails {
			n.addText(d.ReasoningDetails[i].Text)
		}
	}
	if len(d.Extra) > 0 {
		n.addText(d.Extra.texts())
	}
}

func (n *outputCounter) addText(s string) {
	n.bytes += len(s)
	if n.keepText {
		n.text = append(n.text, s...)
	}
}
