package reply

import (
	"encoding/json"
	"maps"
	"slices"
	"sync"

	"github.com/llmhttp/llmhttp/llm"
)

// The names of reasoning: see the values of upstream.Options.ReasoningName.
const (
	ReasoningContent = "reasoning_content"
	Reasoning        = "reasoning"
	ReasoningBoth    = "both"
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

// noteReasoning notes the name of the first reasoning of a reply.
func (r *Chat) noteReasoning(chunk *llm.ChatChunk) {
	for i := range chunk.Choices {
		d := &chunk.Choices[i].Delta
		if r.hasReasoning || d.Reasoning == "" {
			continue
		}
		r.hasReasoning = true
		name := ReasoningContent
		switch {
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
		if m.Reasoning == "" && (name != ReasoningNone || m.ReasoningDetails == nil) {
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
		if other == m.Reasoning || name == ReasoningNone {
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
	}
}
