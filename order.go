package llmhttp

import (
	"cmp"
	"encoding/json"
	"net/http"
	"unicode/utf8"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
)

// A chunkSink takes chunks in valid order: see [ChatEncoder]. The chunk is only
// valid during the call.
type chunkSink interface {
	Add(c *ChatChunk)
}

// An orderer turns the chunks that a Backend yields into chunks of valid order:
// each choice opens once and choice 0 first, characters are whole, tool calls
// have contiguous indices and tell their ID, type and name once, and nothing
// follows the end of a choice.
type orderer struct {
	sink          chunkSink
	choiceLimit   int            // the number of choices that the client asked for
	maxBytes      int            // of the texts of a choice; zero for no limit
	hasStart      bool           // start is set
	choices       []choiceState  // by index, up to the largest index seen; some may not be open
	choiceStorage [1]choiceState // the storage of choices if there is one (budget: allocations of a whole request)
	scratch       scratchChunk

	start       chunkStart      // from the first chunk
	serviceTier json.RawMessage // the last member service_tier; nil if there was none
	usage       *Usage          // the last one reported
	extra       Extra           // members of chunks that have not been emitted
	usageExtra  Extra           // members of chunks that had nothing but usage
	output      outputCounter
	misuses     misuseSet // of the Backend so far
	err         error     // the reply cannot be continued
}

// A chunkStart has the identity of a reply, as far as its first chunk tells it.
type chunkStart struct {
	id      string
	created int64 // Unix time in seconds
	model   string
}

// A misuseSet is a set of mistakes of the host that no reply reports.
type misuseSet uint32

const (
	misuseUnknownChoice misuseSet = 1 << iota
	misuseNilChunk
	misuseContentAfterFinish
	misuseConflictingUsage
	misuseInvalidExtra
	misuseTooLong
	misuseFewerChoices
	firstOtherMisuse // is not found by the orderer
)

// A scratchChunk is reused for each chunk that is passed to the sink, which saves an
// allocation per chunk.
type scratchChunk struct {
	chunk  ChatChunk
	choice [1]ChunkChoice
}

// A choiceState has the progress of a choice and the text that is held back.
type choiceState struct {
	opened, ended, truncated bool         // truncated: it has ended because of maxBytes
	bytes                    int          // of texts
	reason                   FinishReason // if it has ended
	texts                    [replyTexts]utf8Buffer
	hasReasoning             bool
	reasoningAlias           bool         // of the first Delta with Reasoning
	calls                    *callOrderer // nil until the choice has a tool call
}

// add emits what c adds to the reply. It may change c.
func (o *orderer) add(c *ChatChunk) {
	if c == nil {
		o.misuses |= misuseNilChunk
		return
	}
	if !o.hasStart {
		o.hasStart = true
		o.start = chunkStart{id: c.ID, created: c.Created, model: c.Model}
	}
	extra := c.Extra
	if c.Usage != nil {
		if o.usage != nil && !o.usage.canGrowTo(c.Usage) {
			o.misuses |= misuseConflictingUsage
		}
		o.usage = c.Usage
		if len(c.Choices) == 0 {
			o.usageExtra, extra = mergeExtra(o.usageExtra, extra), nil
		}
	}
	if tier := c.Extra["service_tier"]; tier != nil {
		o.serviceTier = tier
	}
	o.extra = mergeExtra(o.extra, extra)
	for i := range c.Choices {
		o.addChoice(c.Choices[i : i+1])
	}
}

// addChoice emits what a choice adds to the reply. The choice is passed as a
// slice of one, so that it can be emitted without an allocation (budget: allocations per text chunk).
func (o *orderer) addChoice(list []ChunkChoice) {
	c := &list[0]
	if c.Index < 0 || c.Index >= o.choiceLimit {
		o.misuses |= misuseUnknownChoice
		return
	}
	s := o.open(c.Index)
	if s.ended {
		if !s.truncated && c.Delta.textLen() > 0 {
			o.misuses |= misuseContentAfterFinish
		}
		return
	}
	reason, stop := c.FinishReason, c.StopSequence
	c.FinishReason, c.StopSequence = "", ""
	d := &c.Delta
	if err := s.normalize(d); err != nil {
		o.err = err
		return
	}
	if o.maxBytes > 0 && s.truncate(d, o.maxBytes) {
		reason, stop = FinishLength, ""
		o.misuses |= misuseTooLong
	}
	if reason != "" {
		s.appendHeld(d)
	}
	if !d.isEmpty() || reason == "" && hasValue(c.Extra) {
		o.output.add(d)
		o.emit(list)
		c.Extra = nil
	}
	if reason != "" {
		s.ended, s.reason = true, reason
		o.emitNew(ChunkChoice{Index: c.Index, FinishReason: reason, StopSequence: stop, Extra: c.Extra})
	}
}

// normalize removes the role of d, and holds back the characters and tool calls that are
// not complete.
func (s *choiceState) normalize(d *Delta) (err error) {
	d.Role = ""
	s.nameReasoning(d)
	for i, text := range d.texts() {
		*text = s.texts[i].add(*text)
	}
	if len(d.ToolCalls) > 0 {
		if s.calls == nil {
			s.calls = new(callOrderer)
		}
		d.ToolCalls, err = s.calls.order(d.ToolCalls)
	}
	return err
}

// nameReasoning separates the reasoning of d from that of the deltas before it if it has
// another name: it may be the same text once more.
func (s *choiceState) nameReasoning(d *Delta) {
	if d.Reasoning == "" {
		return
	}
	if !s.hasReasoning {
		s.hasReasoning, s.reasoningAlias = true, d.ReasoningAlias
	}
	if d.ReasoningAlias && !s.reasoningAlias {
		d.moveReasoning()
	}
}

// isTruncated reports whether nothing can follow, because a choice was cut and the
// others have ended.
func (o *orderer) isTruncated() bool {
	truncated := false
	for i := range o.choices {
		if !o.choices[i].ended {
			return false
		}
		truncated = truncated || o.choices[i].truncated
	}
	return truncated && len(o.choices) == o.choiceLimit
}

// truncate shortens d if the choice would have more than limit bytes of text, and
// reports whether it did.
func (s *choiceState) truncate(d *Delta, limit int) bool {
	room := limit - s.bytes
	n := d.textLen()
	s.bytes += n
	if n <= room {
		return false
	}
	d.truncate(max(room, 0))
	s.truncated = true
	return true
}

// open returns the state of a choice. If the choice is not open, it emits its first chunk.
func (o *orderer) open(index int) *choiceState {
	if o.choices == nil {
		o.choices = o.choiceStorage[:0]
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
		o.emitNew(ChunkChoice{Index: index, Delta: Delta{Role: RoleAssistant}})
	}
	return s
}

// emitNew is like emit, for a ChunkChoice that is not an element of a slice yet.
func (o *orderer) emitNew(c ChunkChoice) {
	o.scratch.choice[0] = c
	o.emit(o.scratch.choice[:])
}

// emit passes a chunk of one choice to the sink. The members of chunks in o.extra are sent with the
// first chunk that has no role.
func (o *orderer) emit(list []ChunkChoice) {
	out := &o.scratch.chunk
	out.Choices = list
	out.Extra = nil
	if list[0].Delta.Role == "" {
		out.Extra, o.extra = o.extra, nil
	}
	o.sink.Add(out)
	out.Choices = nil // so that the Backend's chunk can be garbage-collected while it is silent
}

// appendHeld adds to d what is held back of a choice that ends.
func (s *choiceState) appendHeld(d *Delta) {
	for i, text := range d.texts() {
		*text += s.texts[i].flush()
	}
	d.ReasoningAlias = s.reasoningAlias
	if s.calls != nil {
		d.ToolCalls = s.calls.flush(d.ToolCalls)
	}
}

// emitHeld emits what is held back of choices that have not ended.
func (o *orderer) emitHeld() {
	for i := range o.choices {
		s := &o.choices[i]
		if !s.opened || s.ended {
			continue
		}
		held := &o.scratch.choice[0]
		*held = ChunkChoice{Index: i}
		s.appendHeld(&held.Delta)
		if !held.Delta.isEmpty() {
			o.output.add(&held.Delta)
			o.emit(o.scratch.choice[:])
		}
	}
}

// complete ends a reply after the Backend has returned. A choice without a FinishReason
// gets FinishToolCalls if it has tool calls, and otherwise FinishStop. A reply without
// choices gets an empty one.
func (o *orderer) complete() {
	o.emitHeld()
	if len(o.choices) == 0 {
		o.open(0)
	}
	opened := 0
	for i := range o.choices {
		s := &o.choices[i]
		if s.opened {
			opened++
		}
		if !s.opened || s.ended {
			continue
		}
		reason := FinishStop
		if s.calls != nil {
			reason = FinishToolCalls
		}
		s.ended, s.reason = true, reason
		o.emitNew(ChunkChoice{Index: i, FinishReason: reason})
	}
	if opened < o.choiceLimit {
		o.misuses |= misuseFewerChoices
	}
}

// endExtra returns the members for the end of the reply: those that have not been emitted.
// Invalid JSON is dropped, because a reply that is complete should not fail for it.
func (o *orderer) endExtra() Extra {
	e := mergeExtra(o.extra, o.usageExtra)
	if dropInvalid(e) {
		o.misuses |= misuseInvalidExtra
	}
	return e
}

// A utf8Buffer makes text that arrives in pieces valid UTF-8. It holds back a
// character that is not complete, and replaces each invalid byte by U+FFFD.
type utf8Buffer struct {
	n    uint8
	held [3]byte
}

// add returns what was held back and s, up to the last complete character.
func (u *utf8Buffer) add(s string) string {
	if s == "" {
		return s
	}
	if u.n > 0 {
		s = string(u.held[:u.n]) + s
	}
	u.n = uint8(copy(u.held[:], s[len(s)-incompleteSuffixLen(s):]))
	s = s[:len(s)-int(u.n)]
	if !utf8.ValidString(s) {
		s = string([]rune(s))
	}
	return s
}

// flush returns what is held back: nothing, or U+FFFD for a cut character.
func (u *utf8Buffer) flush() string {
	if u.n == 0 {
		return ""
	}
	u.n = 0
	return "\uFFFD"
}

// A callOrderer gives the tool calls of a choice contiguous indices, and tells the ID, type and
// name of each once. Backends tell calls apart in several ways: the format's own is by index, with
// the ID in the first delta; some repeat the ID in each delta; some leave all indices 0, or send no
// IDs.
type callOrderer struct {
	calls   []callState
	emitted int            // how many of calls were emitted
	byID    map[string]int // index in calls
	byIndex map[int]int    // the last of calls with an index of the Backend
}

// A callState has the identity of a tool call and what is held back of it.
type callState struct {
	id, name string
	index    int // for the client; -1 until it was emitted
	texts    [callTexts]utf8Buffer

	// What came before the call was emitted.
	held      ToolCallDelta // without its texts
	heldTexts [callTexts][]byte

	object jsonwire.ObjectScanner // of the arguments, if there is no ID
}

// order returns what deltas add to the calls, in the memory of deltas. It returns an error
// if there are more than maxToolCalls.
func (o *callOrderer) order(deltas []ToolCallDelta) ([]ToolCallDelta, error) {
	out := deltas[:0]
	for i := range deltas {
		t := deltas[i]
		c := o.find(&t)
		if c == nil {
			return nil, errTooManyCalls()
		}
		c.name = cmp.Or(c.name, t.Function.Name)
		if c.id == "" {
			c.object.Scan(t.Function.Arguments)
		}
		for i, text := range t.Function.texts() {
			*text = c.texts[i].add(*text)
		}
		if c.index >= 0 {
			if t.Function.hasText() || hasValue(t.Extra) || hasValue(t.Function.Extra) {
				t.Index, t.ID, t.Type, t.Function.Name = c.index, "", "", "" // they were told
				out = append(out, t)
			}
			continue
		}
		c.hold(&t)
		if c.name != "" || c.held.Type != "" && c.held.Type != toolFunction {
			out = append(out, o.emit(c))
		}
	}
	return out, nil
}

// flush appends what is held back of the calls to deltas.
func (o *callOrderer) flush(deltas []ToolCallDelta) []ToolCallDelta {
	for i := range o.calls {
		c := &o.calls[i]
		rest := ToolCallDelta{Index: c.index}
		for i, text := range rest.Function.texts() {
			*text = c.texts[i].flush()
		}
		switch {
		case c.index < 0:
			c.hold(&rest)
			deltas = append(deltas, o.emit(c))
		case rest.Function.hasText():
			deltas = append(deltas, rest)
		}
	}
	return deltas
}

// find returns the call that t adds to, which may be a new one, or nil if there are too many.
func (o *callOrderer) find(t *ToolCallDelta) *callState {
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
		case t.ID != "" && c.id == "" && (c.index < 0 || t.Function.Name == ""):
			c.id = t.ID // the ID came late
			o.byID[t.ID] = i
			return c
		}
	}
	return o.newCall(t)
}

// newCall adds the call that t begins, unless there are too many.
func (o *callOrderer) newCall(t *ToolCallDelta) *callState {
	if len(o.calls) >= maxToolCalls {
		return nil
	}
	if o.byIndex == nil {
		o.byID, o.byIndex = make(map[string]int), make(map[int]int)
	}
	if t.ID != "" {
		o.byID[t.ID] = len(o.calls)
	}
	o.byIndex[t.Index] = len(o.calls)
	o.calls = append(o.calls, callState{id: t.ID, index: -1})
	return &o.calls[len(o.calls)-1]
}

// isFollowedBy reports whether a delta without an ID, but with a name, begins another call. A delta
// that repeats c's name does so only if the arguments of c are complete.
func (c *callState) isFollowedBy(name string) bool {
	if name == "" || c.name == "" || c.id != "" || !c.object.HasContent() {
		return false
	}
	return name != c.name || c.object.Complete()
}

// hold adds t to what is held back of c.
func (c *callState) hold(t *ToolCallDelta) {
	h := &c.held
	h.Type = cmp.Or(h.Type, t.Type)
	h.Function.Name = cmp.Or(h.Function.Name, t.Function.Name)
	for i, text := range t.Function.texts() {
		c.heldTexts[i] = append(c.heldTexts[i], *text...)
	}
	h.Extra = mergeExtra(h.Extra, t.Extra)
	h.Function.Extra = mergeExtra(h.Function.Extra, t.Function.Extra)
}

// emit returns the first delta of c.
func (o *callOrderer) emit(c *callState) ToolCallDelta {
	c.index = o.emitted
	o.emitted++
	t := c.held
	for i, text := range t.Function.texts() {
		*text = string(c.heldTexts[i])
	}
	c.held, c.heldTexts = ToolCallDelta{}, [callTexts][]byte{}
	t.Index, t.ID = c.index, c.id
	if t.ID == "" {
		t.ID = newID("call_")
	}
	t.Type = cmp.Or(t.Type, toolFunction)
	return t
}

func errTooManyCalls() *Error {
	e := Errorf(http.StatusBadGateway, "", "The reply of the model has too many tool calls. The limit is %d for each choice.", maxToolCalls)
	e.NoRetry = true
	return e
}
