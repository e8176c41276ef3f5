// What is loaded or stored without being in the ChatRequest, for the limits.

package responses

import "github.com/llmhttp/llmhttp/llm"

// What an item of chat completions may have less than the item from which it was made,
// without a loss: the names of members, IDs and statuses, and the escapes of JSON.
const (
	maxItemOverhead = 1024
	maxEscape       = 6 // bytes of \u0061, for a byte
)

// unsentBytes returns about how many bytes of the items that are stored or were loaded are
// not in the chat request: those of unknown types, members and parts, and reasoning that was
// encrypted elsewhere. Such bytes are stored with the response, although no model gets
// them.
func (r *request) unsentBytes(storesInput bool) int {
	unsent := 0
	for _, item := range r.history {
		unsent += max(len(item.raw)-maxItemOverhead, 0)
	}
	for _, item := range r.items {
		if storesInput || item.loaded {
			unsent += max(len(item.raw)-maxItemOverhead, 0)
		}
	}
	if unsent == 0 {
		return 0
	}
	for i := range r.chat.Messages {
		unsent -= maxEscape * messageBytes(&r.chat.Messages[i])
	}
	for i := range r.chat.Tools {
		if f := r.chat.Tools[i].Function; f != nil {
			unsent -= maxEscape * (len(f.Name) + len(f.Description) + len(f.Parameters))
		}
	}
	return max(unsent, 0)
}

// messageBytes returns the length of what a message was made of.
func messageBytes(m *llm.Message) int {
	n := len(m.Reasoning) + len(m.Refusal)
	for i := range m.Content {
		p := &m.Content[i]
		n += len(p.Text) + extraBytes(p.Extra)
		if p.ImageURL != nil {
			n += len(p.ImageURL.URL)
		}
	}
	for i := range m.ToolCalls {
		n += len(m.ToolCalls[i].Function.Name) + len(m.ToolCalls[i].Function.Arguments)
	}
	for i := range m.ReasoningDetails {
		d := &m.ReasoningDetails[i]
		n += len(d.Text) + len(d.Summary) + len(d.Data) + len(d.Signature) + extraBytes(d.Extra)
	}
	return n
}

func extraBytes(e llm.Extra) int {
	n := 0
	for name, value := range e {
		n += len(name) + len(value)
	}
	return n
}
