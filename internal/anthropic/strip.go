// What a Backend that does not speak Anthropic's API makes of a request.

package anthropic

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/llm"
)

// Strip removes what is only for servers that speak Anthropic's API from r, which is a copy: what its fields refer to is
// not changed. It returns an error if a chat loses all of its tools, because the model would answer without what the
// client relies on.
func Strip(r *llm.ChatRequest) (err error) {
	if raw := r.Extra[Member]; raw != nil {
		var own Request
		if json.Unmarshal(raw, &own) == nil && len(own.Tools) > 0 && len(r.Tools) == 0 && !forbidsTools(r, &own) {
			err = errNoTools(TypeOf(own.Tools[0]))
		}
		r.Extra = without(r.Extra)
	}
	copied := false
	for i := range r.Messages {
		m := &r.Messages[i]
		inParts := slices.ContainsFunc(m.Content, func(p llm.Part) bool { return p.Extra[Member] != nil })
		inCalls := slices.ContainsFunc(m.ToolCalls, func(c llm.ToolCall) bool { return c.Extra[Member] != nil })
		if m.Extra[Member] == nil && !inParts && !inCalls {
			continue
		}
		if !copied {
			r.Messages, copied = slices.Clone(r.Messages), true
			m = &r.Messages[i]
		}
		m.Extra = without(m.Extra)
		if inParts {
			m.Content = slices.Clone(m.Content)
			for k := range m.Content {
				m.Content[k].Extra = without(m.Content[k].Extra)
			}
		}
		if inCalls {
			m.ToolCalls = slices.Clone(m.ToolCalls)
			for k := range m.ToolCalls {
				m.ToolCalls[k].Extra = without(m.ToolCalls[k].Extra)
			}
		}
	}
	return err
}

// without returns e without the member.
func without(e llm.Extra) llm.Extra {
	if e[Member] == nil {
		return e
	}
	e = maps.Clone(e)
	if delete(e, Member); len(e) == 0 {
		return nil
	}
	return e
}

// forbidsTools reports whether a request says that the model calls none of its tools.
func forbidsTools(r *llm.ChatRequest, own *Request) bool {
	return r.ToolChoice != nil && r.ToolChoice.Mode == llm.ToolChoiceNone || TypeOf(own.Members["tool_choice"]) == llm.ToolChoiceNone
}

func errNoTools(typ string) *llm.Error {
	e := llm.Errorf(http.StatusBadRequest, "", "This model supports only tools with a schema, and not those of the type '%s'.", jsonwire.Clip(typ, 64))
	e.Param = "tools"
	return e
}
