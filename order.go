package llmhttp

import (
	"net/http"
	"unicode/utf8"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
)

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
	first       [1]choiceState // the storage of choices if there is one (budget: allocations of a whole request)
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
	out.Choices = nil // of a chunk that can be garbage-collected while the Backend is silent
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

// maxCalls is how many tool calls a choice may have.
const maxCalls = 1024

// A callOrder gives the tool calls of a choice contiguous indices, and tells
// the ID, type and name of each once. Backends tell calls apart in several
// ways: the format's own is by index, with the ID in the first delta; some
// repeat the ID in each delta; some leave all indices 0, or send no IDs.
type callOrder struct {
	calls   []callState
	emitted int            // how many of calls were emitted
	tooMany bool           // there was one beyond maxCalls
	byID    map[string]int // index in calls
	byIndex map[int]int    // the last of calls with an index of the Backend
}

// A callState is what is known of a tool call.
type callState struct {
	id, name string
	out      int           // its index for the client; -1 until it was emitted
	first    ToolCallDelta // what came before it was emitted, except for args
	args     []byte        // arguments that came before it was emitted
	splitter utf8Joiner
	object   jsonwire.ObjectScanner // of the arguments, if there is no ID
}

func (o *callOrder) count() int { return len(o.calls) }

// next returns what deltas add to the calls, in the memory of deltas.
func (o *callOrder) next(deltas []ToolCallDelta) []ToolCallDelta {
	out := deltas[:0]
	for i := range deltas {
		t := deltas[i]
		c := o.find(&t)
		if c == nil {
			o.tooMany = true
			return nil
		}
		if c.name == "" {
			c.name = t.Function.Name
		}
		if c.id == "" {
			c.object.Scan(t.Function.Arguments)
		}
		t.Function.Arguments = c.splitter.next(t.Function.Arguments)
		if c.out >= 0 {
			if t.Function.Arguments != "" || hasValue(t.Extra) || hasValue(t.Function.Extra) {
				out = append(out, ToolCallDelta{Index: c.out, Extra: t.Extra,
					Function: FunctionCall{Arguments: t.Function.Arguments, Extra: t.Function.Extra}})
			}
			continue
		}
		c.hold(&t)
		if c.name != "" || !isFunction(c.first.Type) {
			out = append(out, o.emit(c))
		}
	}
	return out
}

// rest appends what is held back of the calls to deltas.
func (o *callOrder) rest(deltas []ToolCallDelta) []ToolCallDelta {
	for i := range o.calls {
		c := &o.calls[i]
		rest := c.splitter.rest()
		switch {
		case c.out < 0:
			c.args = append(c.args, rest...)
			deltas = append(deltas, o.emit(c))
		case rest != "":
			deltas = append(deltas, ToolCallDelta{Index: c.out, Function: FunctionCall{Arguments: rest}})
		}
	}
	return deltas
}

// find returns the call that t adds to, which may be a new one, or nil if
// there are too many.
func (o *callOrder) find(t *ToolCallDelta) *callState {
	if t.ID != "" {
		if i, ok := o.byID[t.ID]; ok {
			return &o.calls[i]
		}
	}
	if i, ok := o.byIndex[t.Index]; ok {
		c := &o.calls[i]
		switch {
		case t.ID == "" && !c.isFollowedBy(t.Function.Name):
			return c
		case t.ID != "" && c.id == "" && (c.out < 0 || t.Function.Name == ""):
			c.id = t.ID // the ID came late
			o.byID[t.ID] = i
			return c
		}
	}
	return o.append(t)
}

func (o *callOrder) append(t *ToolCallDelta) *callState {
	if len(o.calls) >= maxCalls {
		return nil
	}
	if o.byIndex == nil {
		o.byID, o.byIndex = make(map[string]int), make(map[int]int)
	}
	if t.ID != "" {
		o.byID[t.ID] = len(o.calls)
	}
	o.byIndex[t.Index] = len(o.calls)
	o.calls = append(o.calls, callState{id: t.ID, out: -1})
	return &o.calls[len(o.calls)-1]
}

// isFollowedBy reports whether a delta without an ID, but with a name, begins
// another call. A delta that repeats c's name does so only if the arguments of
// c are complete.
func (c *callState) isFollowedBy(name string) bool {
	if name == "" || c.name == "" || c.id != "" || !c.object.HasContent() {
		return false
	}
	return name != c.name || c.object.Complete()
}

// hold adds t to what is held back of c.
func (c *callState) hold(t *ToolCallDelta) {
	f := &c.first
	if f.Type == "" {
		f.Type = t.Type
	}
	if f.Function.Name == "" {
		f.Function.Name = t.Function.Name
	}
	c.args = append(c.args, t.Function.Arguments...)
	f.Extra = mergeExtra(f.Extra, t.Extra)
	f.Function.Extra = mergeExtra(f.Function.Extra, t.Function.Extra)
}

// emit returns the first delta of c.
func (o *callOrder) emit(c *callState) ToolCallDelta {
	c.out = o.emitted
	o.emitted++
	t := c.first
	t.Function.Arguments = string(c.args)
	c.first, c.args = ToolCallDelta{}, nil
	t.Index, t.ID = c.out, c.id
	if t.ID == "" {
		t.ID = newID("call_")
	}
	if t.Type == "" {
		t.Type = toolFunction
	}
	return t
}

func errTooManyCalls() *Error {
	e := Errorf(http.StatusBadGateway, "", "The reply of the model has too many tool calls. The limit is %d for each choice.", maxCalls)
	e.NoRetry = true
	return e
}
