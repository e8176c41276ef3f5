package llmhttp

import "net/http"

func errReplyTooLarge(limit int) *Error {
	e := Errorf(http.StatusBadGateway, "", "The reply of the model is too large. The limit is %d bytes.", limit)
	e.NoRetry = true
	return e
}

func errTooManyCalls() *Error {
	e := Errorf(http.StatusBadGateway, "", "The reply of the model has too many tool calls. The limit is %d for each choice.", maxCalls)
	e.NoRetry = true
	return e
}

// elementSize is what an element of a reply counts besides its text, so that
// many empty ones do not use memory without limit.
const elementSize = 64

// size returns about how much memory a chunk adds to a reply, in bytes.
func (c *ChatChunk) size() int {
	n := c.Extra.size()
	for i := range c.Choices {
		choice := &c.Choices[i]
		d := &choice.Delta
		n += deltaLen(d) + d.Extra.size() + choice.Extra.size()
		for j := range d.ToolCalls {
			t := &d.ToolCalls[j]
			n += elementSize + len(t.ID) + len(t.Function.Name) + t.Extra.size() + t.Function.Extra.size()
		}
		for j := range d.ReasoningDetails {
			r := &d.ReasoningDetails[j]
			n += elementSize + len(r.Text) + len(r.Summary) + len(r.Signature) + len(r.Data) + r.Extra.size()
		}
	}
	return n
}

func (r *ImageResponse) size() int {
	n := r.Extra.size()
	for i := range r.Data {
		m := &r.Data[i]
		n += elementSize + len(m.URL) + len(m.Data) + len(m.RevisedPrompt) + m.Extra.size()
	}
	return n
}

func (r *EmbeddingResponse) size() int {
	n := r.Extra.size()
	for _, v := range r.Vectors {
		n += elementSize + 4*len(v)
	}
	return n
}
