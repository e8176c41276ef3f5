package llmhttp

import (
	"encoding/json"
	"slices"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
)

// A joiner is the sink that makes a whole reply.
type joiner struct {
	choices []joinedChoice // in the order in which they opened
	extra   Extra

	// Where the reply is made, and what it is made of if it is one choice that
	// is one text, as most are.
	reply  ChatResponse
	one    [1]joinedChoice
	choice [1]Choice
	part   [1]Part
}

type joinedChoice struct {
	index              int
	content, reasoning joinedText
	calls              []joinedCall
	message, choice    pieces
	reason             FinishReason
}

type joinedCall struct {
	id, typ, name string
	args          joinedText
	function      Extra
	extra         pieces
}

func (j *joiner) open(index int) {
	if j.choices == nil {
		j.choices = j.one[:0]
	}
	j.choices = append(j.choices, joinedChoice{index: index})
}

func (j *joiner) find(index int) *joinedChoice {
	for i := range j.choices {
		if j.choices[i].index == index {
			return &j.choices[i]
		}
	}
	panic("llmhttp: choice is not open")
}

func (j *joiner) delta(c *ChunkChoice, extra Extra) {
	j.merge(extra)
	to := j.find(c.Index)
	to.content.add(c.Delta.Content)
	to.reasoning.add(c.Delta.Reasoning)
	to.message.add(c.Delta.Extra)
	to.choice.add(c.Extra)
	for i := range c.Delta.ToolCalls {
		t := &c.Delta.ToolCalls[i]
		if t.Index == len(to.calls) {
			to.calls = append(to.calls, joinedCall{id: t.ID, typ: t.Type, name: t.Function.Name})
		}
		call := &to.calls[t.Index]
		call.args.add(t.Function.Arguments)
		call.extra.add(t.Extra)
		if len(t.Function.Extra) > 0 {
			call.function = mergeExtra(call.function, t.Function.Extra)
		}
	}
}

func (j *joiner) end(index int, reason FinishReason, choiceExtra, extra Extra) {
	j.merge(extra)
	c := j.find(index)
	c.reason = reason
	c.choice.add(choiceExtra)
}

func (j *joiner) nulls(index int, e Extra) { j.find(index).message.add(e) }

func (j *joiner) merge(extra Extra) {
	j.extra = mergeExtra(j.extra, extra)
}

// response returns the reply as far as it came. It is part of j.
func (j *joiner) response(s *shaper) *ChatResponse {
	j.merge(s.extra)
	j.merge(s.beside)
	r := &j.reply
	*r = ChatResponse{ID: s.id, Created: s.created, Model: s.model, Usage: s.usage, Extra: j.extra}
	if r.Choices = j.choice[:]; len(j.choices) != 1 {
		r.Choices = make([]Choice, len(j.choices))
	}
	slices.SortFunc(j.choices, func(a, b joinedChoice) int { return a.index - b.index })
	for i := range j.choices {
		from, to := &j.choices[i], &r.Choices[i]
		to.Index, to.FinishReason = from.index, from.reason
		to.Extra = from.choice.join(false)
		m := &to.Message
		m.Role = RoleAssistant
		m.Reasoning = from.reasoning.String()
		m.Extra = from.message.join(true)
		if len(from.calls) > 0 {
			m.ToolCalls = make([]ToolCall, len(from.calls))
		}
		for k := range from.calls {
			c := &from.calls[k]
			m.ToolCalls[k] = ToolCall{ID: c.id, Type: c.typ, Extra: c.extra.join(true),
				Function: FunctionCall{Name: c.name, Arguments: c.args.String(), Extra: c.function}}
		}
		// A message that says nothing but calls tools, or refuses, has no content.
		if text := from.content.String(); text != "" || (len(m.ToolCalls) == 0 && !isSignificant(m.Extra)) {
			m.Content = j.part[:]
			if i > 0 {
				m.Content = make(Content, 1)
			}
			m.Content[0] = Part{Type: PartText, Text: text}
		}
	}
	return r
}

// A joinedText is a text that comes in pieces. A single piece is not copied.
type joinedText struct {
	first string
	all   []byte
}

func (t *joinedText) add(s string) {
	switch {
	case s == "":
	case t.all != nil:
		t.all = append(t.all, s...)
	case t.first == "":
		t.first = s
	default:
		t.all = append(append(make([]byte, 0, 2*(len(t.first)+len(s))), t.first...), s...)
	}
}

func (t *joinedText) String() string {
	if t.all != nil {
		return string(t.all)
	}
	return t.first
}

// pieces are the values that chunks brought for the members of an Extra.
type pieces map[string][]json.RawMessage

func (p *pieces) add(e Extra) {
	if len(e) == 0 {
		return
	}
	if *p == nil {
		*p = make(pieces, len(e))
	}
	for name, raw := range e {
		(*p)[name] = append((*p)[name], raw)
	}
}

// join returns the members joined. Strings follow one another if texts is
// true; if not, the last counts.
func (p pieces) join(texts bool) Extra {
	if len(p) == 0 {
		return nil
	}
	e := make(Extra, len(p))
	for name, list := range p {
		e[name] = joinRaw(list, texts)
	}
	return e
}

// joinRaw joins values that are of one kind; of others the last counts, and
// null counts only where there is nothing else.
func joinRaw(list []json.RawMessage, texts bool) json.RawMessage {
	whole := list[0]
	rest := list[:0:0]
	for _, raw := range list {
		if k := kindOf(raw); k != 'n' && k != 0 {
			rest = append(rest, raw)
			whole = raw
		}
	}
	if len(rest) < 2 {
		return whole
	}
	kind := kindOf(rest[0])
	for _, raw := range rest {
		if kindOf(raw) != kind {
			return whole
		}
	}
	var e jsonwire.Encoder
	switch {
	case kind == '"' && texts:
		var s string
		for _, raw := range rest {
			s += jsonwire.NewDecoder(raw).String()
		}
		e.String(s)
	case kind == '[':
		e.Token('[')
		for _, raw := range rest {
			d := jsonwire.NewDecoder(raw)
			for a := d.Sequence(); a.Next(); {
				e.Element()
				e.Raw(d.RawView())
			}
		}
		e.Token(']')
	case kind == '{':
		var names []string
		members := pieces{}
		for _, raw := range rest {
			d := jsonwire.NewDecoder(raw)
			for o := d.Object(); o.Next(); {
				name := string(o.Name)
				if members[name] == nil {
					names = append(names, name)
				}
				members[name] = append(members[name], d.Raw())
			}
		}
		e.Token('{')
		for i, name := range names {
			if i > 0 {
				e.Token(',')
			}
			e.String(name)
			e.Token(':')
			e.Raw(joinRaw(members[name], texts))
		}
		e.Token('}')
	default:
		return whole
	}
	if e.Err != nil {
		return whole
	}
	return e.Buf
}

func kindOf(raw json.RawMessage) byte { return jsonwire.NewDecoder(raw).Kind() }
