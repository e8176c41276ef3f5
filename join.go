package llmhttp

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
)

// A Joiner joins the chunks that a [ChatEncoder] gets to a whole reply. Its zero value has no
// chunks. See "Protocols" in the package documentation.
type Joiner struct {
	choices []joinedChoice // in the order in which they opened
	extra   Extra

	// Storage of the reply, and of its choice if there is one (budget: allocations of a
	// whole request).
	reply         ChatResponse
	joinedStorage [1]joinedChoice
	choiceStorage [1]Choice
	partStorage   [1]Part
}

// A joinedChoice is what has been joined of a choice. All of its texts are
// collected first and joined once, so that the time is linear in their length.
type joinedChoice struct {
	index                     int
	texts                     [replyTexts]joinedText
	reasoningAlias            bool
	details                   []joinedDetail
	calls                     []joinedCall
	messageExtra, choiceExtra joinedExtra
	reason                    FinishReason
	stop                      string
}

// A joinedCall is a tool call. Its first delta has everything but the texts.
type joinedCall struct {
	first                    ToolCallDelta
	texts                    [callTexts]joinedText
	callExtra, functionExtra joinedExtra
}

type joinedDetail struct {
	first ReasoningDetail
	text  joinedText
}

// Add adds a chunk, which is only valid during the call. Chunks must be in the order in which
// a ChatEncoder gets them.
func (j *Joiner) Add(c *ChatChunk) {
	j.extra = mergeExtra(j.extra, c.Extra)
	from := &c.Choices[0]
	if from.Delta.Role != "" {
		if j.choices == nil {
			j.choices = j.joinedStorage[:0]
		}
		j.choices = append(j.choices, joinedChoice{index: from.Index})
	}
	to := j.find(from.Index)
	to.choiceExtra.add(from.Extra)
	if from.FinishReason != "" {
		to.reason, to.stop = from.FinishReason, from.StopSequence
		return
	}
	d := &from.Delta
	for i, s := range d.texts() {
		to.texts[i].add(*s)
	}
	to.reasoningAlias = to.reasoningAlias || d.ReasoningAlias
	to.messageExtra.add(d.Extra)
	to.addDetails(d.ReasoningDetails)
	to.addCalls(d.ToolCalls)
}

func (j *Joiner) find(index int) *joinedChoice {
	for i := range j.choices {
		if j.choices[i].index == index {
			return &j.choices[i]
		}
	}
	panic("llmhttp: choice is not open")
}

func (c *joinedChoice) addCalls(deltas []ToolCallDelta) {
	for i := range deltas {
		t := &deltas[i]
		if t.Index == len(c.calls) {
			c.calls = append(c.calls, joinedCall{first: *t})
		}
		call := &c.calls[t.Index]
		for i, s := range t.Function.texts() {
			call.texts[i].add(*s)
		}
		call.callExtra.add(t.Extra)
		call.functionExtra.add(t.Function.Extra)
	}
}

// addDetails adds reasoning details. Pieces of one text have the same index, and
// only the last has a signature.
func (c *joinedChoice) addDetails(details []ReasoningDetail) {
	for i := range details {
		d := &details[i]
		if n := len(c.details); n > 0 && continuesDetail(&c.details[n-1].first, d) {
			last := &c.details[n-1]
			last.text.add(d.Text)
			last.first.Signature = d.Signature
			last.first.Extra = mergeExtra(last.first.Extra, d.Extra)
			continue
		}
		added := joinedDetail{first: *d}
		added.text.add(d.Text)
		c.details = append(c.details, added)
	}
}

// continuesDetail reports whether next is a piece of the same text as d.
func continuesDetail(d, next *ReasoningDetail) bool {
	return next.Type == ReasoningText && d.Type == ReasoningText && d.Signature == "" &&
		bytes.Equal(next.Extra["index"], d.Extra["index"])
}

// Response returns the reply as far as it was joined: its Choices, in the order of their
// indices, and its Extra. The caller sets the other fields. What Response returns is valid
// until its next call.
func (j *Joiner) Response() *ChatResponse {
	r := &j.reply
	*r = ChatResponse{Extra: j.extra, Choices: slices.Grow(j.choiceStorage[:0], len(j.choices))[:len(j.choices)]}
	parts := slices.Grow(j.partStorage[:0], len(j.choices))[:len(j.choices)]
	slices.SortFunc(j.choices, func(a, b joinedChoice) int { return a.index - b.index })
	for i := range j.choices {
		c := &j.choices[i]
		r.Choices[i] = Choice{
			Index:        c.index,
			Message:      c.joinMessage(parts[i : i+1 : i+1]),
			FinishReason: c.reason,
			StopSequence: c.stop,
			Extra:        c.choiceExtra.join(false),
		}
	}
	return r
}

// joinMessage returns the message. content is the storage of its content, one part.
func (c *joinedChoice) joinMessage(content Content) Message {
	m := Message{Role: RoleAssistant, ReasoningAlias: c.reasoningAlias, Extra: c.messageExtra.join(true)}
	var text string // of the content
	for i, s := range m.texts(&text) {
		*s = c.texts[i].String()
	}
	for i := range c.details {
		d := c.details[i].first
		d.Text = c.details[i].text.String()
		m.ReasoningDetails = append(m.ReasoningDetails, d)
	}
	for i := range c.calls {
		call := &c.calls[i]
		f := call.first.Function
		f.Extra = call.functionExtra.join(false)
		for i, s := range f.texts() {
			*s = call.texts[i].String()
		}
		m.ToolCalls = append(m.ToolCalls, ToolCall{ID: call.first.ID, Type: call.first.Type, Function: f, Extra: call.callExtra.join(true)})
	}
	// The content of a message that only calls tools or refuses is null.
	if text != "" || len(m.ToolCalls) == 0 && m.Refusal == "" && !hasValue(m.Extra) {
		content[0] = Part{Type: PartText, Text: text}
		m.Content = content
	}
	return m
}

// A joinedText is a text that arrives in pieces. A single piece is not copied.
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
		t.all = append([]byte(t.first), s...)
	}
}

func (t *joinedText) String() string {
	if t.all != nil {
		return string(t.all)
	}
	return t.first
}

// A joinedExtra holds the values that arrived for each member of an Extra.
type joinedExtra map[string][]json.RawMessage

// add adds the members of e, except for those that are null: they mean the same
// as no member.
func (x *joinedExtra) add(e map[string]json.RawMessage) {
	for name, value := range e {
		if len(value) == 0 || string(value) == "null" {
			continue
		}
		if *x == nil {
			*x = make(joinedExtra, len(e))
		}
		(*x)[name] = append((*x)[name], value)
	}
}

// join returns the members joined. Strings are concatenated if texts is true;
// otherwise the last one is kept.
func (x joinedExtra) join(texts bool) map[string]json.RawMessage {
	if len(x) == 0 {
		return nil
	}
	e := make(map[string]json.RawMessage, len(x))
	for name, values := range x {
		e[name] = joinValues(values, texts, 0)
	}
	return e
}

// joinValues joins JSON values of one kind: strings (if texts is true) and arrays are concatenated,
// objects are merged. Of other values the last one is kept. Null is kept only if there is nothing
// else. depth is the number of objects around the values.
func joinValues(values []json.RawMessage, texts bool, depth int) json.RawMessage {
	last := values[len(values)-1]
	values = slices.DeleteFunc(values, func(v json.RawMessage) bool { return string(v) == "null" })
	if len(values) == 0 {
		return last
	}
	last = values[len(values)-1]
	for _, v := range values {
		if v[0] != last[0] {
			return last
		}
	}
	switch {
	case len(values) == 1:
		return last
	case last[0] == '"' && texts:
		return concatenate(values, "")
	case last[0] == '[':
		return concatenate(values, ",")
	case last[0] == '{' && depth < maxMergeDepth:
		return mergeObjects(values, texts, depth+1)
	}
	return last
}

// concatenate joins what is between the first and the last byte of each value.
func concatenate(values []json.RawMessage, separator string) json.RawMessage {
	first, end := values[0][0], values[0][len(values[0])-1]
	joined := []byte{first}
	for _, v := range values {
		inner := bytes.TrimSpace(v[1 : len(v)-1])
		if first == '"' {
			inner = v[1 : len(v)-1]
		}
		if len(inner) > 0 && len(joined) > 1 {
			joined = append(joined, separator...)
		}
		joined = append(joined, inner...)
	}
	return append(joined, end)
}

// maxMergeDepth is how many levels of nested objects are merged. Each level takes time and
// memory for everything inside it.
const maxMergeDepth = 8

// mergeObjects merges objects member by member, in the order of their names.
func mergeObjects(values []json.RawMessage, texts bool, depth int) json.RawMessage {
	members := make(map[string][]json.RawMessage)
	for _, v := range values {
		var object map[string]json.RawMessage
		if json.Unmarshal(v, &object) != nil {
			return values[len(values)-1]
		}
		for name, value := range object {
			members[name] = append(members[name], value)
		}
	}
	joined := []byte{'{'}
	for i, name := range slices.Sorted(maps.Keys(members)) {
		if i > 0 {
			joined = append(joined, ',')
		}
		joined = append(appendString(joined, name), ':')
		joined = append(joined, joinValues(members[name], texts, depth)...)
	}
	return append(joined, '}')
}
