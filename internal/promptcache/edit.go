// Removing and changing the marks of a request.

package promptcache

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/llmhttp/llmhttp/llm"
)

// An Edit returns the mark to send in place of mark, or nil to send none.
type Edit func(mark json.RawMessage) json.RawMessage

// Remove is the Edit that removes all marks.
func Remove(json.RawMessage) json.RawMessage { return nil }

// Keep returns the Edit that keeps the given members of a mark: a server may refuse others. It removes
// a mark that is null, and leaves one that is not an object to the server.
func Keep(names ...string) Edit {
	return func(mark json.RawMessage) json.RawMessage {
		if string(mark) == "null" {
			return nil
		}
		var members map[string]json.RawMessage
		if json.Unmarshal(mark, &members) != nil {
			return mark
		}
		before := len(members)
		maps.DeleteFunc(members, func(name string, _ json.RawMessage) bool { return !slices.Contains(names, name) })
		if len(members) == before {
			return mark // as the client wrote it
		}
		kept, err := json.Marshal(members)
		if err != nil {
			return mark // members that were decoded have no error
		}
		return kept
	}
}

// Apply applies edit to all marks of r, which is a copy of a request. It does not change what r refers to.
// A content that was in parts only for the sake of its marks becomes a text.
func (edit Edit) Apply(r *llm.ChatRequest) {
	edit.extra(&r.Extra)
	r.Messages = each(r.Messages, messageHas, edit.message)
	r.Tools = each(r.Tools, toolHas, edit.tool)
}

func messageHas(m *llm.Message) bool {
	return has(m.Extra) || some(m.Content, partHas) || some(m.ToolCalls, callHas)
}

func partHas(p *llm.Part) bool { return has(p.Extra) }

func callHas(c *llm.ToolCall) bool { return has(c.Extra) || has(c.Function.Extra) }

func toolHas(t *llm.Tool) bool { return has(t.Extra) || t.Function != nil && has(t.Function.Extra) }

func has(extra llm.Extra) bool { return extra[Member] != nil }

func (edit Edit) message(m *llm.Message) {
	edit.extra(&m.Extra)
	if some(m.Content, partHas) {
		m.Content = each(m.Content, partHas, edit.part)
		if m.Role == llm.RoleSystem || m.Role == llm.RoleDeveloper {
			m.Content = rejoin(m.Content)
		}
	}
	m.ToolCalls = each(m.ToolCalls, callHas, func(c *llm.ToolCall) {
		edit.extra(&c.Extra)
		edit.extra(&c.Function.Extra)
	})
}

// part edits the mark of a part. An empty text must not have one: Anthropic's API refuses it.
func (edit Edit) part(p *llm.Part) {
	if p.Type == llm.PartText && p.Text == "" {
		edit = Remove
	}
	edit.extra(&p.Extra)
}

func (edit Edit) tool(t *llm.Tool) {
	edit.extra(&t.Extra)
	if t.Function != nil && has(t.Function.Extra) {
		f := *t.Function
		edit.extra(&f.Extra)
		t.Function = &f
	}
}

// extra replaces *extra by a copy with the edited mark.
func (edit Edit) extra(extra *llm.Extra) {
	mark := (*extra)[Member]
	if mark == nil {
		return
	}
	edited := edit(mark)
	if len(*extra) == 1 && edited == nil {
		*extra = nil
		return
	}
	*extra = maps.Clone(*extra)
	if edited == nil {
		delete(*extra, Member)
	} else {
		(*extra)[Member] = edited
	}
}

func some[T any](list []T, has func(*T) bool) bool {
	for i := range list {
		if has(&list[i]) {
			return true
		}
	}
	return false
}

// each returns list with the elements of which has is true edited in a copy.
func each[T any](list []T, has func(*T) bool, edit func(*T)) []T {
	copied := false
	for i := range list {
		if !has(&list[i]) {
			continue
		}
		if !copied {
			list, copied = slices.Clone(list), true
		}
		edit(&list[i])
	}
	return list
}
