package llmhttp

import "math"

// A tokenCounter counts tokens of text.
type tokenCounter struct {
	model string
	count func(model, text string) int // nil for an estimate by length
}

// tokens returns the tokenCounter for the request's model.
func (q *request) tokens() *tokenCounter {
	return &tokenCounter{q.account.record.Model, q.h.opts.CountTokens}
}

func (c *tokenCounter) text(s string) int {
	if c.count != nil {
		return max(c.count(c.model, s), 0)
	}
	return estimateTokens(len(s))
}

// estimateTokens estimates the tokens of a text of so many bytes.
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
	return n
}

// output counts the tokens of a reply.
func (c *tokenCounter) output(out *outputCounter) int {
	if c.count != nil {
		return c.text(string(out.text))
	}
	return estimateTokens(out.bytes)
}

// chatCost is the number of tokens that a chat may use: its prompt, and the
// limit that the client set for each choice. Without a limit only the prompt is
// known; what the reply uses is taken when the request is settled.
func chatCost(prompt int, r *ChatRequest) int {
	limit, ok := r.TokenLimit()
	if !ok {
		return prompt
	}
	n := r.Choices()
	if limit > (math.MaxInt32-prompt)/n {
		return math.MaxInt32
	}
	return prompt + limit*n
}
