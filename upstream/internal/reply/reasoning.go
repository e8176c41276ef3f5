// The name under which a server sends and takes reasoning.

package reply

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/llmhttp/llmhttp/internal/membername"
	"github.com/llmhttp/llmhttp/llm"
)

// The names of reasoning: see the values of upstream.Options.ReasoningName.
const (
	ReasoningContent = "reasoning_content"
	Reasoning        = "reasoning"
	ReasoningBoth    = "both"
	ReasoningParts   = "thinking"
	ReasoningNone    = "-"
)

// ReasoningNames have the name under which the server sends the reasoning of each model.
// Its methods may be called concurrently.
type ReasoningNames struct {
	mu    sync.RWMutex
	names map[string]string // by the server's name of the model
}

// maxReasoningNames bounds the models of ReasoningNames, because clients choose the
// names of models.
const maxReasoningNames = 1 << 10

// of returns the name for a model, or "" if it is not known.
func (m *ReasoningNames) of(model string) string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.names[model]
}

func (m *ReasoningNames) set(model, name string) {
	if m.of(model) == name {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.names == nil || len(m.names) >= maxReasoningNames {
		m.names = make(map[string]string)
	}
	m.names[model] = name
}

// reasoningParts are the types of parts of content that are reasoning, and the member that has it: a text, or a list of
// objects with a "text". Mistral has the first, Databricks the second.
var reasoningParts = map[string]string{"thinking": "thinking", "reasoning": "summary"}

// takeParts makes parts of content that are reasoning the reasoning of d. It reports whether there were some.
func takeParts(d *llm.Delta) bool {
	raw := d.Extra[membername.ContentParts]
	var parts, others []json.RawMessage
	if raw == nil || json.Unmarshal(raw, &parts) != nil {
		return false
	}
	var text strings.Builder
	for _, part := range parts {
		var p struct{ Type string }
		var members llm.Extra
		_ = json.Unmarshal(part, &p) // what is no object has no type
		if name := reasoningParts[p.Type]; name == "" || json.Unmarshal(part, &members) != nil || !addText(&text, members[name]) {
			others = append(others, part)
		}
	}
	if len(others) == len(parts) {
		return false
	}
	if d.Reasoning == "" { // a server may have the same in both places
		d.Reasoning = text.String()
	}
	delete(d.Extra, membername.ContentParts)
	if rest, err := json.Marshal(others); err == nil && others != nil {
		d.Extra[membername.ContentParts] = rest
	}
	if len(d.Extra) == 0 {
		d.Extra = nil
	}
	return true
}

// addText adds the text of a part that is reasoning. It reports false if raw is neither a text nor a list of objects.
func addText(b *strings.Builder, raw json.RawMessage) bool {
	var text string
	var pieces []struct{ Text string }
	switch {
	case len(raw) == 0:
		return false
	case json.Unmarshal(raw, &text) == nil:
		b.WriteString(text)
	case json.Unmarshal(raw, &pieces) == nil:
		for _, p := range pieces {
			b.WriteString(p.Text)
		}
	default:
		return false
	}
	return true
}

// noteReasoning takes reasoning from parts of content, and notes the name of the first reasoning of a reply.
func (r *Chat) noteReasoning(chunk *llm.ChatChunk) {
	for i := range chunk.Choices {
		d := &chunk.Choices[i].Delta
		inParts := takeParts(d)
		if r.hasReasoning || d.Reasoning == "" {
			continue
		}
		r.hasReasoning = true
		name := ReasoningContent
		switch {
		case inParts:
			name = ReasoningParts
		case d.ReasoningAlias:
			name = Reasoning
		case isText(d.Extra[Reasoning]):
			name = ReasoningBoth
		}
		r.names.set(r.Model.Server, name)
	}
}

// isText reports whether raw is a string in JSON.
func isText(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '"' }

// Apply returns messages with their reasoning under the given name or, if that is empty, the one that the server
// uses for the model. It does not change messages.
func (m *ReasoningNames) Apply(messages []llm.Message, name, model string) []llm.Message {
	if name == "" {
		name = m.of(model)
	}
	copied := false
	for i := range messages {
		m := &messages[i]
		if m.Reasoning == "" && (name != ReasoningNone && name != ReasoningParts || m.ReasoningDetails == nil) {
			continue
		}
		if !copied {
			messages, copied = slices.Clone(messages), true
			m = &messages[i]
		}
		renameReasoning(m, name)
	}
	return messages
}

// renameReasoning changes the name of the reasoning of m. If name is empty, the server has
// not sent any yet: what it or another server has sent under the alias, perhaps to another
// process, gets both names. A member "reasoning" with another text than m.Reasoning is the
// client's choice.
func renameReasoning(m *llm.Message, name string) {
	if name == "" {
		if !m.ReasoningAlias {
			return
		}
		name = ReasoningBoth
	}
	m.ReasoningAlias = false
	var other string
	if raw := m.Extra[Reasoning]; isText(raw) && json.Unmarshal(raw, &other) == nil {
		if name == ReasoningBoth {
			return // the message has both
		}
		if other == m.Reasoning || name == ReasoningNone || name == ReasoningParts {
			m.Extra = maps.Clone(m.Extra)
			delete(m.Extra, Reasoning)
		} else if name == Reasoning {
			m.Reasoning = ""
			return
		}
	}
	switch name {
	case Reasoning:
		m.ReasoningAlias = true
	case ReasoningBoth:
		text, err := json.Marshal(m.Reasoning)
		if err != nil {
			return // a string has no error
		}
		m.Extra = maps.Clone(m.Extra)
		if m.Extra == nil {
			m.Extra = make(llm.Extra, 1)
		}
		m.Extra[Reasoning] = text
	case ReasoningNone:
		m.Reasoning, m.ReasoningDetails = "", nil
	case ReasoningParts:
		moveToParts(m)
	}
}

// moveToParts makes the reasoning of m a part of its content, as Mistral has it, which refuses other members.
func moveToParts(m *llm.Message) {
	text := m.Reasoning
	for i := range m.ReasoningDetails {
		if d := &m.ReasoningDetails[i]; m.Reasoning == "" {
			text += d.Text + d.Summary
		}
	}
	m.Reasoning, m.ReasoningDetails = "", nil
	if text == "" {
		return
	}
	thinking, err := json.Marshal([]llm.Part{{Type: llm.PartText, Text: text}})
	if err != nil {
		return // a string has no error
	}
	if m.Content.IsText() && m.Content.Text() == "" {
		m.Content = nil
	}
	m.Content = append(llm.Content{{Type: ReasoningParts, Extra: llm.Extra{ReasoningParts: thinking}}}, m.Content...)
}
