// The texts of a tool call in a stream.

package textfilter

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/llmhttp/llmhttp/internal/jsonjoin"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/texts"
	"github.com/llmhttp/llmhttp/internal/tokens"
	"github.com/llmhttp/llmhttp/llm"
)

// A callFilter is the state of a tool call whose texts are filtered.
type callFilter struct {
	index     int
	tool      string              // the name of the tool
	first     llm.ToolCallDelta   // the identity, until the call has begun for the reader
	begun     bool                // for the reader
	released  bool                // some of what the tool gets was released
	ready     []llm.ToolCallDelta // what the reader gets next
	arguments filteredText
	extra     extraFilter
}

// filterCalls filters the texts of calls, and adds what was held back if the choice ends. Calls
// begin for the reader in their order.
func (c *choiceFilter) filterCalls(deltas []llm.ToolCallDelta, ends bool) (out []llm.ToolCallDelta) {
	for i := range deltas {
		t := &deltas[i]
		if t.Index == len(c.calls) { // the orderer makes them contiguous
			c.calls = append(c.calls, c.newCall(t))
		}
		call := c.calls[t.Index]
		call.add(c, t, false)
	}
	for _, call := range c.calls {
		if ends {
			call.add(c, new(llm.ToolCallDelta), true)
		}
		if !call.begun && !call.released && !ends {
			return out // those after it wait
		}
		out = call.appendReady(out)
	}
	return out
}

// newCall returns the state of the call that t begins.
func (c *choiceFilter) newCall(t *llm.ToolCallDelta) *callFilter {
	call := &callFilter{index: t.Index, tool: t.Function.Name, arguments: filteredText{kind: Arguments}}
	if call.tool == "" {
		var custom llm.NamedTool
		if json.Unmarshal(t.Extra[llm.ToolCustom], &custom) == nil {
			call.tool = custom.Name
		}
	}
	call.first = llm.ToolCallDelta{Index: t.Index, ID: t.ID, Type: t.Type}
	call.first.Function.Name = c.whole(Name, call, t.Function.Name)
	return call
}

// add filters what t adds to the call.
func (call *callFilter) add(c *choiceFilter, t *llm.ToolCallDelta, ends bool) {
	part := llm.ToolCallDelta{Index: call.index}
	part.Function.Arguments = c.pass(&call.arguments, call, t.Function.Arguments, ends)
	part.Function.Extra = t.Function.Extra
	c.wholeExtra(call, part.Function.Extra)
	part.Extra = call.extra.filter(c, call, t.Extra, ends)
	call.released = call.released || part.Function.Arguments != "" || call.extra.releasedInput
	if texts.CallHasText(&part.Function) || len(part.Extra) > 0 || len(part.Function.Extra) > 0 {
		call.ready = append(call.ready, part)
	}
}

// appendReady appends what the reader gets next, with the identity of a call that begins.
func (call *callFilter) appendReady(out []llm.ToolCallDelta) []llm.ToolCallDelta {
	if !call.begun {
		call.begun = true
		if len(call.ready) == 0 {
			call.ready = append(call.ready, llm.ToolCallDelta{})
		}
		t := &call.ready[0]
		t.Index, t.ID, t.Type, t.Function.Name = call.index, call.first.ID, call.first.Type, call.first.Function.Name
	}
	out = append(out, call.ready...)
	call.ready = nil
	return out
}

// An extraFilter is the state of the strings in an Extra of a Delta or a tool call. Those of several
// chunks at the same place, which no array contains, are one text: see [join.Collect].
type extraFilter struct {
	texts         []*extraText // in the order in which they began
	byPath        map[string]*extraText
	releasedInput bool // some of the input of a custom tool was released
}

type extraText struct {
	path []string // names of members
	text filteredText
}

// memberInput is the member with the input of a call of a custom tool.
const memberInput = "input"

// filter filters the strings of e, and adds what was held back if the choice ends.
func (x *extraFilter) filter(c *choiceFilter, call *callFilter, e llm.Extra, ends bool) llm.Extra {
	out := x.members(c, call, e, nil)
	if !ends {
		return out
	}
	var rest textTree
	for _, t := range x.texts {
		if text := c.pass(&t.text, call, "", true); text != "" {
			path := make([]string, len(t.path))
			for i, name := range t.path {
				path[i] = c.whole(Other, call, name)
			}
			rest.add(path, text)
		}
	}
	for name, tree := range rest.members {
		raw := tree.append(nil)
		if before := out[name]; before != nil {
			raw = jsonjoin.Values([]json.RawMessage{before, raw}, true, 0)
		}
		out = jsonwire.MergeExtra(out, llm.Extra{name: raw})
	}
	return out
}

// members filters the members of an object at a path. Those of whose text nothing is released are
// left out.
func (x *extraFilter) members(c *choiceFilter, call *callFilter, e llm.Extra, path []string) llm.Extra {
	if len(e) == 0 {
		return nil
	}
	out := make(llm.Extra, len(e))
	for _, name := range slices.Sorted(maps.Keys(e)) {
		if raw := x.value(c, call, e[name], append(path[:len(path):len(path)], name)); len(raw) > 0 {
			out[c.whole(Other, call, name)] = raw
		}
	}
	return out
}

// value filters a value at a path. It returns nothing if all of it is held back.
func (x *extraFilter) value(c *choiceFilter, call *callFilter, raw json.RawMessage, path []string) json.RawMessage {
	switch {
	case len(raw) == 0, path[0] == tokens.MemberAudio && path[len(path)-1] == "data":
		return raw
	case raw[0] == '"':
		return x.text(c, call, raw, path)
	case raw[0] == '{' && len(path) <= jsonjoin.MaxDepth:
		var object llm.Extra
		if json.Unmarshal(raw, (*map[string]json.RawMessage)(&object)) != nil || len(object) == 0 {
			return raw
		}
		filtered := x.members(c, call, object, path)
		if len(filtered) == 0 {
			return nil
		}
		return appendObject(nil, filtered)
	}
	c.rewriter(call).json(&raw)
	return raw
}

// text filters a piece of the text at a path.
func (x *extraFilter) text(c *choiceFilter, call *callFilter, raw json.RawMessage, path []string) json.RawMessage {
	added := jsonwire.Text(raw)
	if added == "" {
		return raw
	}
	key := fmt.Sprintf("%q", path)
	t := x.byPath[key]
	if t == nil {
		t = &extraText{path: path, text: filteredText{kind: Other}}
		if x.byPath == nil {
			x.byPath = make(map[string]*extraText)
		}
		x.byPath[key] = t
		x.texts = append(x.texts, t)
	}
	released := c.pass(&t.text, call, added, false)
	if released == "" {
		return nil
	}
	x.releasedInput = x.releasedInput || path[len(path)-1] == memberInput
	return jsonwire.AppendString(nil, released)
}

// appendObject appends e as a JSON object.
func appendObject(b []byte, e llm.Extra) []byte {
	b = append(b, '{')
	for i, name := range slices.Sorted(maps.Keys(e)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(jsonwire.AppendString(b, name), ':')
		b = append(b, e[name]...)
	}
	return append(b, '}')
}

// A textTree has texts by their paths. If one is at the path of an object, it is left out.
type textTree struct {
	text    string
	members map[string]*textTree // nil for a text
}

// add adds the text at a path.
func (t *textTree) add(path []string, text string) {
	for _, name := range path {
		if t.members == nil {
			t.members = make(map[string]*textTree)
		}
		if t.members[name] == nil {
			t.members[name] = new(textTree)
		}
		t = t.members[name]
	}
	t.text = text
}

// append appends t as JSON.
func (t *textTree) append(b []byte) json.RawMessage {
	if t.members == nil {
		return jsonwire.AppendString(b, t.text)
	}
	b = append(b, '{')
	for i, name := range slices.Sorted(maps.Keys(t.members)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = t.members[name].append(append(jsonwire.AppendString(b, name), ':'))
	}
	return append(b, '}')
}

// wholeExtra filters the strings of an Extra that comes whole, in place.
func (c *choiceFilter) wholeExtra(call *callFilter, e llm.Extra) {
	c.rewriter(call).extra(e)
}

// rewriter returns a rewriter that passes texts to the filter.
func (c *choiceFilter) rewriter(call *callFilter) *rewriter {
	return &rewriter{f: func(kind Kind, s string) (string, error) { return c.whole(kind, call, s), c.err }}
}
