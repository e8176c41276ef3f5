package llmhttp

import (
	"encoding/json"
	"unicode/utf8"
)

// A shaper brings what a Backend yields into the order that the format
// requires, so that what follows it cannot get it wrong: each choice opens
// once, the first one first; characters are whole; tool calls have contiguous
// indices, and say their ID, type and name once; after its end a choice is
// silent.
type shaper struct {
	sink    sink
	choices []choiceState // as many as the client asked for, made as they open
	limit   int
	one     [1]choiceState // where choices begins, as most requests want one

	id      string // of the first chunk, like created and model
	created int64
	model   string
	begun   bool   // a chunk came
	usage   *Usage // the last that came
	extra   Extra  // of chunks whose choices have not been passed on
	beside  Extra  // of chunks that have nothing else but usage
	dropped bool   // there was a choice that nobody asked for

	counting bool // whether to keep text
	bytes    int  // of text that was passed on, of whatever kind
	text     []byte
}

// A sink takes what a shaper has put in order.
type sink interface {
	open(index int)
	delta(c *ChunkChoice, extra Extra) // c has no FinishReason
	end(c *ChunkChoice, extra Extra)   // c has no Delta

	// nulls is told of members that say nothing, where there is nothing else.
	nulls(index int, e Extra)
}

type choiceState struct {
	opened, ended      bool
	content, reasoning cutter
	calls              []callState
	emitted            int // how many of calls were passed on
}

// A callState is what is known of a tool call.
type callState struct {
	id    string // as the Backend has it
	name  string
	whole string        // the arguments so far, where there is no id to tell calls apart by
	from  int           // its index as the Backend counts
	to    int           // its index as the client sees it; -1 until it was passed on
	cut   cutter        // of its arguments
	first ToolCallDelta // what has come of it until it is passed on
}

func (s *shaper) init(to sink, limit int) {
	s.sink, s.limit = to, limit
	s.choices = s.one[:0]
}

// add passes a chunk on. It may change the chunk.
func (s *shaper) add(c *ChatChunk) {
	if c == nil {
		return
	}
	if !s.begun {
		s.begun, s.id, s.created, s.model = true, c.ID, c.Created, c.Model
	}
	if c.Usage != nil {
		s.usage = c.Usage
	}
	extra := c.Extra
	if c.Usage != nil && len(c.Choices) == 0 {
		s.beside, extra = mergeExtra(s.beside, extra), nil
	}
	if s.extra != nil {
		extra, s.extra = mergeExtra(s.extra, extra), nil
	}
	passed := len(extra) == 0
	for i := range c.Choices {
		passed = s.choice(&c.Choices[i], extra) || passed
	}
	if !passed {
		s.extra = extra
	}
}

// mergeExtra returns the members of both, those of b counting.
func mergeExtra(a, b Extra) Extra {
	switch {
	case len(a) == 0:
		return b
	case len(b) == 0:
		return a
	}
	m := make(Extra, len(a)+len(b))
	for k, v := range a {
		m[k] = v
	}
	for k, v := range b {
		m[k] = v
	}
	return m
}

func (s *shaper) choice(c *ChunkChoice, extra Extra) (passed bool) {
	if c.Index < 0 || c.Index >= s.limit {
		s.dropped = true
		return false
	}
	st := s.state(c.Index)
	if st.ended {
		return false
	}
	if !st.opened {
		if c.Index > 0 && !s.state(0).opened {
			// openai-python's stream helper fails if another choice opens first.
			s.choices[0].opened = true
			s.sink.open(0)
		}
		st = s.state(c.Index)
		st.opened = true
		s.sink.open(c.Index)
	}
	reason := c.FinishReason
	c.FinishReason = ""
	c.Delta.Content = st.content.feed(c.Delta.Content)
	c.Delta.Reasoning = st.reasoning.feed(c.Delta.Reasoning)
	if len(c.Delta.ToolCalls) > 0 {
		c.Delta.ToolCalls = st.feedCalls(c.Delta.ToolCalls)
	}
	if reason != "" {
		s.finish(st, &c.Delta)
	}
	if !isEmptyDelta(&c.Delta) || (reason == "" && isSignificant(c.Extra)) {
		s.count(&c.Delta)
		s.sink.delta(c, extra)
		passed = true
		c.Extra, extra = nil, nil
	} else if len(c.Delta.Extra) > 0 {
		s.sink.nulls(c.Index, c.Delta.Extra)
	}
	if reason != "" {
		st.ended = true
		s.sink.end(&ChunkChoice{Index: c.Index, FinishReason: reason, StopSequence: c.StopSequence, Extra: c.Extra}, extra)
		passed = true
	}
	return passed
}

func (s *shaper) state(index int) *choiceState {
	for len(s.choices) <= index {
		s.choices = append(s.choices, choiceState{})
	}
	return &s.choices[index]
}

// finish adds to d what was held back of a choice that ends.
func (s *shaper) finish(st *choiceState, d *Delta) {
	d.Content += st.content.rest()
	d.Reasoning += st.reasoning.rest()
	for i := range st.calls {
		c := &st.calls[i]
		switch rest := c.cut.rest(); {
		case c.to < 0:
			c.first.Function.Arguments += rest
			d.ToolCalls = append(d.ToolCalls, st.emit(c))
		case rest != "":
			d.ToolCalls = append(d.ToolCalls, ToolCallDelta{Index: c.to, Function: FunctionCall{Arguments: rest}})
		}
	}
}

// flush passes on what was held back of choices that have not ended.
func (s *shaper) flush() {
	for i := range s.choices {
		st := &s.choices[i]
		if !st.opened || st.ended {
			continue
		}
		var d Delta
		s.finish(st, &d)
		if !isEmptyDelta(&d) {
			s.count(&d)
			s.sink.delta(&ChunkChoice{Index: i, Delta: d}, nil)
		}
	}
}

// complete ends a reply that came to its end: choices that have not said so
// get the FinishReason that is due, and a reply without any choice is empty.
func (s *shaper) complete() {
	s.flush()
	if len(s.choices) == 0 {
		s.state(0).opened = true
		s.sink.open(0)
	}
	for i := range s.choices {
		st := &s.choices[i]
		if !st.opened || st.ended {
			continue
		}
		st.ended = true
		reason := FinishStop
		if len(st.calls) > 0 {
			reason = FinishToolCalls
		}
		extra := s.extra
		s.extra = nil
		s.sink.end(&ChunkChoice{Index: i, FinishReason: reason}, extra)
	}
}

func (s *shaper) count(d *Delta) {
	s.tally(d.Reasoning)
	s.tally(d.Content)
	for i := range d.ToolCalls {
		s.tally(d.ToolCalls[i].Function.Name)
		s.tally(d.ToolCalls[i].Function.Arguments)
	}
}

func (s *shaper) tally(text string) {
	s.bytes += len(text)
	if s.counting {
		s.text = append(s.text, text...)
	}
}

func isEmptyDelta(d *Delta) bool {
	return d.Content == "" && d.Reasoning == "" && d.Refusal == "" && len(d.ReasoningDetails) == 0 && len(d.ToolCalls) == 0 && !isSignificant(d.Extra)
}

// isSignificant reports whether e has a member that is not null.
func isSignificant(e Extra) bool {
	for _, v := range e {
		if string(v) != "null" {
			return true
		}
	}
	return false
}

// feedCalls returns what deltas add to the choice's tool calls, in their memory.
func (st *choiceState) feedCalls(deltas []ToolCallDelta) []ToolCallDelta {
	out := deltas[:0]
	for i := range deltas {
		t := deltas[i]
		c := st.call(&t)
		if c.id == "" {
			c.whole += t.Function.Arguments
		}
		if c.name == "" {
			c.name = t.Function.Name
		}
		t.Function.Arguments = c.cut.feed(t.Function.Arguments)
		if c.to >= 0 {
			if t.Function.Arguments != "" || isSignificant(t.Extra) || isSignificant(t.Function.Extra) {
				out = append(out, ToolCallDelta{Index: c.to, Extra: t.Extra,
					Function: FunctionCall{Arguments: t.Function.Arguments, Extra: t.Function.Extra}})
			}
			continue
		}
		c.first.add(&t)
		if c.name != "" || !isFunction(c.first.Type) {
			out = append(out, st.emit(c))
		}
	}
	return out
}

// add adds to t what more has come of the same call.
func (t *ToolCallDelta) add(more *ToolCallDelta) {
	if t.Type == "" {
		t.Type = more.Type
	}
	if t.Function.Name == "" {
		t.Function.Name = more.Function.Name
	}
	t.Function.Arguments += more.Function.Arguments
	t.Extra = addExtra(t.Extra, more.Extra)
	t.Function.Extra = addExtra(t.Function.Extra, more.Function.Extra)
}

func addExtra(a, b Extra) Extra {
	switch {
	case len(a) == 0:
		return b
	case len(b) == 0:
		return a
	}
	return mergeExtra(a, b)
}

// call returns the call that t adds to, which may be a new one. Backends say
// so in several ways: the format's own is by index, with the ID in the first
// delta; some repeat the ID; some leave all indices 0, or have no IDs.
func (st *choiceState) call(t *ToolCallDelta) *callState {
	if t.ID != "" {
		for i := range st.calls {
			if st.calls[i].id == t.ID {
				return &st.calls[i]
			}
		}
	}
	last := len(st.calls) - 1
	for last >= 0 && st.calls[last].from != t.Index {
		last--
	}
	if last >= 0 {
		c := &st.calls[last]
		switch {
		case t.ID == "" && c.followedBy(t.Function.Name):
		case t.ID == "":
			return c
		case c.id == "" && (c.to < 0 || t.Function.Name == ""):
			c.id = t.ID // which comes late
			return c
		}
	}
	st.calls = append(st.calls, callState{id: t.ID, from: t.Index, to: -1})
	return &st.calls[len(st.calls)-1]
}

// followedBy reports whether a delta without an ID that has a name begins
// another call, rather than repeat c's name: it does where c is whole.
func (c *callState) followedBy(name string) bool {
	switch {
	case name == "" || c.name == "" || c.id != "" || c.whole == "":
		return false
	case name != c.name:
		return true
	}
	return json.Valid([]byte(c.whole))
}

// emit returns the first delta of c.
func (st *choiceState) emit(c *callState) ToolCallDelta {
	c.to = st.emitted
	st.emitted++
	t := c.first
	c.first = ToolCallDelta{}
	t.Index, t.ID = c.to, c.id
	if t.ID == "" {
		t.ID = newID("call_")
	}
	if t.Type == "" {
		t.Type = toolFunction
	}
	return t
}

// A cutter holds back a character that has not come whole.
type cutter struct {
	n    uint8
	held [utf8.UTFMax - 1]byte
}

// feed returns what was held back and s, up to where a character is not whole.
func (c *cutter) feed(s string) string {
	if s == "" || (c.n == 0 && s[len(s)-1] < utf8.RuneSelf) {
		return s
	}
	if c.n > 0 {
		s = string(c.held[:c.n]) + s
	}
	c.n = uint8(copy(c.held[:], s[len(s)-partial(s):]))
	return s[:len(s)-int(c.n)]
}

// rest returns what is still held back: no character, or one cut off.
func (c *cutter) rest() string {
	if c.n == 0 {
		return ""
	}
	c.n = 0
	return string(utf8.RuneError)
}

// partial returns how many bytes at the end of s begin a character that is not
// whole.
func partial(s string) int {
	for i := 1; i < utf8.UTFMax && i <= len(s); i++ {
		c := s[len(s)-i]
		if !utf8.RuneStart(c) {
			continue
		}
		if c >= utf8.RuneSelf && !utf8.FullRuneInString(s[len(s)-i:]) {
			return i
		}
		return 0
	}
	return 0
}
