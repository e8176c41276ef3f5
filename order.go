package llmhttp

import "unicode/utf8"

// A chunkSink takes chunks in valid order: see [ChatEncoder]. The chunk is only
// valid during the call.
type chunkSink interface {
	add(c *ChatChunk)
}

// An orderer turns the chunks that a Backend yields into chunks of valid order:
// each choice opens once and choice 0 first, characters are whole, tool calls
// have contiguous indices and tell their ID, type and name once, and nothing
// follows the end of a choice.
type orderer struct {
	sink        chunkSink
	choiceLimit int            // the number of choices that the client asked for
	maxBytes    int            // of the texts of a choice; zero for no limit
	ended       int            // number of choices that have ended
	truncated   bool           // a choice has ended because of maxBytes
	hasStart    bool           // start is set
	choices     []choiceState  // by index; as long as the largest index seen
	first       [1]choiceState // backs choices, if there is one (budget: allocations of a whole request)
	emitted     emittedChunk

	start      ReplyStart // from the first chunk
	model      string     // as the Backend set it
	usage      *Usage     // the last one reported
	extra      Extra      // members of chunks that have not been emitted
	usageExtra Extra      // members of chunks that had nothing but usage
	output     outputCounter
	misuse     misuse
	err        error // the reply cannot be continued
}

// emittedChunk is reused for each chunk that is passed to the sink, which saves an
// allocation per chunk.
type emittedChunk struct {
	chunk  ChatChunk
	choice [1]ChunkChoice
}

// A choiceState is what has been emitted of a choice, and what is held back.
type choiceState struct {
	opened, ended, truncated    bool         // truncated: it has ended because of maxBytes
	bytes                       int          // of texts
	reason                      FinishReason // if it has ended
	content, reasoning, refusal utf8Joiner
	calls                       *callOrder // nil if there are none
}

// add emits what c adds to the reply. It may change c.
func (o *orderer) add(c *ChatChunk) {
	if c == nil {
		o.misuse |= misuseNilChunk
		return
	}
	if !o.hasStart {
		o.hasStart = true
		o.start, o.model = ReplyStart{ID: c.ID, Created: c.Created, Model: c.Model}, c.Model
	}
	extra := c.Extra
	if c.Usage != nil {
		if o.usage != nil && !o.usage.isContinuedBy(c.Usage) {
			o.misuse |= misuseUsage
		}
		o.usage = c.Usage
		if len(c.Choices) == 0 {
			o.usageExtra, extra = mergeExtra(o.usageExtra, extra), nil
		}
	}
	o.extra = mergeExtra(o.extra, extra)
	for i := range c.Choices {
		o.addChoice(c.Choices[i : i+1])
	}
}

// addChoice emits what a choice adds to the reply. The choice is passed as a
// slice of one, so that it can be emitted without an allocation.
func (o *orderer) addChoice(list []ChunkChoice) {
	c := &list[0]
	if c.Index < 0 || c.Index >= o.choiceLimit {
		o.misuse |= misuseChoice
		return
	}
	s := o.open(c.Index)
	if s.ended {
		if !s.truncated && deltaLen(&c.Delta) > 0 {
			o.misuse |= misuseAfterFinish
		}
		return
	}
	reason, stop := c.FinishReason, c.StopSequence
	c.FinishReason, c.StopSequence = "", ""
	d := &c.Delta
	d.Role = ""
	d.Content = s.content.next(d.Content)
	d.Reasoning = s.reasoning.next(d.Reasoning)
	d.Refusal = s.refusal.next(d.Refusal)
	if len(d.ToolCalls) > 0 {
		if s.calls == nil {
			s.calls = new(callOrder)
		}
		d.ToolCalls = s.calls.next(d.ToolCalls)
		if s.calls.tooMany {
			o.err = errTooManyCalls()
			return
		}
	}
	if o.maxBytes > 0 && s.truncate(d, o.maxBytes) {
		reason, stop, s.truncated, o.truncated = FinishLength, "", true, true
		o.misuse |= misuseCompletion
	}
	if reason != "" {
		s.appendHeld(d)
	}
	if !isEmptyDelta(d) || reason == "" && hasValue(c.Extra) {
		o.output.add(d)
		o.emit(list)
		c.Extra = nil
	}
	if reason != "" {
		s.ended, s.reason = true, reason
		o.ended++
		o.emitOne(ChunkChoice{Index: c.Index, FinishReason: reason, StopSequence: stop, Extra: c.Extra})
	}
}

// isTruncated reports whether nothing can follow, because a choice was cut and the
// others have ended.
func (o *orderer) isTruncated() bool { return o.truncated && o.ended == o.choiceLimit }

// truncate shortens d if the choice would have more than limit bytes of text, and
// reports whether it did.
func (s *choiceState) truncate(d *Delta, limit int) bool {
	room := limit - s.bytes
	n := deltaLen(d)
	s.bytes += n
	if n <= room {
		return false
	}
	splitDelta(d, max(room, 0))
	return true
}

// open returns the state of a choice, and opens the choice if it is not open.
func (o *orderer) open(index int) *choiceState {
	if o.choices == nil {
		o.choices = o.first[:0]
	}
	for len(o.choices) <= index {
		o.choices = append(o.choices, choiceState{})
	}
	s := &o.choices[index]
	if !s.opened {
		if index > 0 {
			// openai-python's stream helper fails if another choice opens first.
			o.open(0)
		}
		s.opened = true
		o.emitOne(ChunkChoice{Index: index, Delta: Delta{Role: RoleAssistant}})
	}
	return s
}

// emitOne passes a chunk of a new choice to the sink.
func (o *orderer) emitOne(c ChunkChoice) {
	o.emitted.choice[0] = c
	o.emit(o.emitted.choice[:])
}

// emit passes a chunk of one choice to the sink. The members of chunks in
// o.extra are sent with the first chunk that has no role.
func (o *orderer) emit(list []ChunkChoice) {
	out := &o.emitted.chunk
	out.Choices = list
	out.Extra = nil
	if list[0].Delta.Role == "" {
		out.Extra, o.extra = o.extra, nil
	}
	o.sink.add(out)
}

// appendHeld adds to d what is held back of a choice that ends.
func (s *choiceState) appendHeld(d *Delta) {
	d.Content += s.content.rest()
	d.Reasoning += s.reasoning.rest()
	d.Refusal += s.refusal.rest()
	if s.calls != nil {
		d.ToolCalls = s.calls.rest(d.ToolCalls)
	}
}

// emitHeld emits what is held back of choices that have not ended.
func (o *orderer) emitHeld() {
	for i := range o.choices {
		s := &o.choices[i]
		if !s.opened || s.ended {
			continue
		}
		var d Delta
		s.appendHeld(&d)
		if !isEmptyDelta(&d) {
			o.output.add(&d)
			o.emitOne(ChunkChoice{Index: i, Delta: d})
		}
	}
}

// complete ends a reply whose Backend is done. Choices without a FinishReason
// get the one that is due; a reply without choices has an empty one.
func (o *orderer) complete() {
	o.emitHeld()
	if len(o.choices) == 0 {
		o.open(0)
	}
	for i := range o.choices {
		s := &o.choices[i]
		if !s.opened || s.ended {
			continue
		}
		reason := FinishStop
		if s.calls != nil && s.calls.count() > 0 {
			reason = FinishToolCalls
		}
		s.ended, s.reason = true, reason
		o.emitOne(ChunkChoice{Index: i, FinishReason: reason})
	}
}

// endExtra returns the members that have not been emitted. Those that are not JSON
// are dropped: a reply that is complete does not fail because of them.
func (o *orderer) endExtra() Extra {
	e := mergeExtra(o.extra, o.usageExtra)
	if dropInvalid(e) {
		o.misuse |= misuseExtra
	}
	return e
}

// isContinuedBy reports whether next can be the usage of the same request at a later
// time: it has the same prompt, and no fewer tokens of the completion.
func (u *Usage) isContinuedBy(next *Usage) bool {
	return (u.PromptTokens == 0 || u.PromptTokens == next.PromptTokens) && u.CompletionTokens <= next.CompletionTokens
}

// A utf8Joiner makes text that arrives in pieces valid UTF-8. It holds back a
// character that is not complete, and replaces each invalid byte by U+FFFD.
type utf8Joiner struct {
	n    uint8
	held [3]byte
}

// next returns what was held back and s, up to the last complete character.
func (u *utf8Joiner) next(s string) string {
	if s == "" {
		return s
	}
	if u.n > 0 {
		s = string(u.held[:u.n]) + s
	}
	u.n = uint8(copy(u.held[:], s[len(s)-incompleteSuffix(s):]))
	s = s[:len(s)-int(u.n)]
	if !utf8.ValidString(s) {
		s = string([]rune(s))
	}
	return s
}

// rest returns what is held back: nothing, or U+FFFD for a cut character.
func (u *utf8Joiner) rest() string {
	if u.n == 0 {
		return ""
	}
	u.n = 0
	return "\uFFFD"
}
