package llmhttp

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// A joiner is the sink that joins chunks to a whole reply. It collects what
// comes in pieces and joins it once, in time linear in its size.
type joiner struct {
	choices []joinedChoice // in the order in which they opened
	extra   Extra
}

type joinedChoice struct {
	index              int
	content, reasoning joinedText
	refusal            joinedText
	details            []joinedDetail
	calls              []joinedCall
	message, choice    pieces // of Extra
	reason             FinishReason
	stop               string
}

type joinedCall struct {
	id, typ, name string
	args          joinedText
	function      Extra
	extra         pieces
}

type joinedDetail struct {
	ReasoningDetail
	text joinedText
}

func (j *joiner) open(index int) {
	j.choices = append(j.choices, joinedChoice{index: index})
}

// find returns a choice that is open.
func (j *joiner) find(index int) *joinedChoice {
	for i := range j.choices {
		if j.choices[i].index == index {
			return &j.choices[i]
		}
	}
	panic("llmhttp: choice is not open")
}

func (j *joiner) delta(c *ChunkChoice, extra Extra) {
	addMembers(&j.extra, extra)
	to := j.find(c.Index)
	to.content.add(c.Delta.Content)
	to.reasoning.add(c.Delta.Reasoning)
	to.refusal.add(c.Delta.Refusal)
	to.message.add(c.Delta.Extra)
	to.choice.add(c.Extra)
	for i := range c.Delta.ReasoningDetails {
		to.addDetail(&c.Delta.ReasoningDetails[i])
	}
	for i := range c.Delta.ToolCalls {
		to.addCall(&c.Delta.ToolCalls[i])
	}
}

// addCall adds to a call. Calls come in the order of their indices.
func (c *joinedChoice) addCall(t *ToolCallDelta) {
	if t.Index == len(c.calls) {
		c.calls = append(c.calls, joinedCall{id: t.ID, typ: t.Type, name: t.Function.Name})
	}
	call := &c.calls[t.Index]
	call.args.add(t.Function.Arguments)
	call.extra.add(t.Extra)
	addMembers(&call.function, t.Function.Extra)
}

// addDetail appends a detail, or adds it to the one before if that is a text
// with the same index that has no signature yet.
func (c *joinedChoice) addDetail(d *ReasoningDetail) {
	if n := len(c.details); n > 0 {
		last := &c.details[n-1]
		if last.Type == ReasoningText && d.Type == ReasoningText && last.Signature == "" && bytes.Equal(last.Extra["index"], d.Extra["index"]) {
			last.text.add(d.Text)
			last.Signature = d.Signature
			addMembers(&last.Extra, d.Extra)
			return
		}
	}
	joined := joinedDetail{ReasoningDetail: *d}
	joined.Extra = maps.Clone(d.Extra)
	joined.text.add(d.Text)
	c.details = append(c.details, joined)
}

// end takes the FinishReason of c, and what belongs to the choice as a whole.
func (j *joiner) end(c *ChunkChoice, extra Extra) {
	addMembers(&j.extra, extra)
	to := j.find(c.Index)
	to.reason, to.stop = c.FinishReason, c.StopSequence
	to.choice.add(c.Extra)
}

func (j *joiner) nulls(index int, e Extra) { j.find(index).message.add(e) }

// addMembers adds the members of e to those of to, which it replaces if they
// have the same names.
func addMembers(to *Extra, e Extra) {
	if len(e) == 0 {
		return
	}
	if *to == nil {
		*to = make(Extra, len(e))
	}
	maps.Copy(*to, e)
}

// response returns the reply as far as it came.
func (j *joiner) response(s *shaper) *ChatResponse {
	addMembers(&j.extra, s.extra)
	addMembers(&j.extra, s.beside)
	r := &ChatResponse{ID: s.id, Created: s.created, Model: s.model, Usage: s.usage, Extra: j.extra}
	slices.SortFunc(j.choices, func(a, b joinedChoice) int { return a.index - b.index })
	r.Choices = make([]Choice, len(j.choices))
	for i := range j.choices {
		c := &j.choices[i]
		r.Choices[i] = Choice{Index: c.index, Message: c.join(), FinishReason: c.reason, StopSequence: c.stop, Extra: c.choice.join(false)}
	}
	return r
}

// join returns the message of a choice.
func (c *joinedChoice) join() Message {
	m := Message{Role: RoleAssistant, Reasoning: c.reasoning.String(), Refusal: c.refusal.String(), Extra: c.message.join(true)}
	for _, d := range c.details {
		d.Text = d.text.String()
		m.ReasoningDetails = append(m.ReasoningDetails, d.ReasoningDetail)
	}
	if len(c.calls) > 0 {
		m.ToolCalls = make([]ToolCall, len(c.calls))
	}
	for i := range c.calls {
		call := &c.calls[i]
		m.ToolCalls[i] = ToolCall{ID: call.id, Type: call.typ, Extra: call.extra.join(true),
			Function: FunctionCall{Name: call.name, Arguments: call.args.String(), Extra: call.function}}
	}
	// A message that says nothing but calls tools, or refuses, has no content.
	if text := c.content.String(); text != "" || len(m.ToolCalls) == 0 && m.Refusal == "" && !isSignificant(m.Extra) {
		m.Content = Text(text)
	}
	return m
}

// A joinedText is a text that comes in pieces. A single piece is not copied.
type joinedText struct {
	first string
	all   []byte // if there is more than one piece
}

func (t *joinedText) add(s string) {
	switch {
	case s == "":
	case t.all != nil:
		t.all = append(t.all, s...)
	case t.first == "":
		t.first = s
	default:
		t.all = append([]byte(t.first), s...)
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

// join returns the members joined. Strings are concatenated if texts is true;
// otherwise the last counts.
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

// joinRaw joins values if all are strings, all arrays or all objects. Otherwise
// the last counts. Null counts only where there is nothing else.
func joinRaw(list []json.RawMessage, texts bool) json.RawMessage {
	var values []json.RawMessage
	for _, raw := range list {
		if k := kindOf(raw); k != 'n' && k != 0 {
			values = append(values, raw)
		}
	}
	switch len(values) {
	case 0:
		return list[0]
	case 1:
		return values[0]
	}
	last := values[len(values)-1]
	kind := kindOf(last)
	if slices.ContainsFunc(values, func(raw json.RawMessage) bool { return kindOf(raw) != kind }) {
		return last
	}
	var joined []byte
	var err error
	switch {
	case kind == '"' && texts:
		joined = joinStrings(values)
	case kind == '[':
		joined, err = joinArrays(values)
	case kind == '{':
		joined, err = joinObjects(values, texts)
	default:
		return last
	}
	if err != nil {
		return last
	}
	return joined
}

// kindOf returns the kind of a value, or 0 if there is none.
func kindOf(raw json.RawMessage) jsontext.Kind {
	return jsontext.Value(bytes.TrimLeft(raw, " \t\r\n")).Kind()
}

func joinStrings(values []json.RawMessage) []byte {
	var b strings.Builder
	for _, raw := range values {
		b.WriteString(textOf(raw))
	}
	return appendString(nil, b.String())
}

func joinArrays(values []json.RawMessage) ([]byte, error) {
	var all []jsontext.Value
	for _, raw := range values {
		var elements []jsontext.Value
		if err := jsonv2.Unmarshal(raw, &elements); err != nil {
			return nil, err
		}
		all = append(all, elements...)
	}
	return jsonv2.Marshal(all, jsontext.PreserveRawStrings(true))
}

// joinObjects joins the members of objects, in the order in which they came.
func joinObjects(values []json.RawMessage, texts bool) ([]byte, error) {
	var names []string
	members := pieces{}
	for _, raw := range values {
		dec := jsontext.NewDecoder(bytes.NewBuffer(raw))
		if _, err := dec.ReadToken(); err != nil {
			return nil, err
		}
		for dec.PeekKind() == '"' {
			token, err := dec.ReadToken()
			if err != nil {
				return nil, err
			}
			name := token.String()
			value, err := dec.ReadValue()
			if err != nil {
				return nil, err
			}
			if members[name] == nil {
				names = append(names, name)
			}
			members[name] = append(members[name], bytes.Clone(value))
		}
		if _, err := dec.ReadToken(); err != nil {
			return nil, err
		}
	}
	b := []byte{'{'}
	for i, name := range names {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendString(b, name), ':')
		b = append(b, joinRaw(members[name], texts)...)
	}
	return append(b, '}'), nil
}
