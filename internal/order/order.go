// Package order puts the chunks of a reply in valid order: choices open once, characters are whole,
// calls are told apart, and nothing follows an end.
package order

import (
	"cmp"
	"encoding/json"
	"net/http"
	"unicode/utf8"

	"github.com/llmhttp/llmhttp/internal/bounds"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/membername"
	"github.com/llmhttp/llmhttp/internal/randomid"
	"github.com/llmhttp/llmhttp/internal/texts"
	"github.com/llmhttp/llmhttp/internal/tokens"
	"github.com/llmhttp/llmhttp/llm"
)

// moveReasoning moves the reasoning to Extra, as the member membername.ReasoningAlias.
func moveReasoning(d *llm.Delta) {
	d.Extra = jsonwire.MergeExtra(d.Extra, llm.Extra{membername.ReasoningAlias: jsonwire.AppendString(nil, d.Reasoning)})
	d.Reasoning, d.ReasoningAlias = "", false
}

// A Sink takes chunks in valid order: see ChatEncoder of package llmhttp. The chunk is only
// valid during the call.
type Sink interface {
	Add(c *llm.ChatChunk)
}

// An Orderer turns the chunks that a Backend yields into chunks of valid order:
// each choice opens once and choice 0 first, characters are whole, tool calls
// have contiguous indices and tell their ID, type and name once, and nothing
// follows the end of a choice.
type Orderer struct {
	Sink          Sink
	ChoiceLimit   int            // the number of choices that the client asked for
	MaxBytes      int            // of the texts of a choice; zero for no limit
	HasStart      bool           // Start is set
	Choices       []choiceState  // by index, up to the largest index seen; some may not be open
	choiceStorage [1]choiceState // the storage of Choices if there is one (budget: allocations of a whole request)
	scratch       scratchChunk

	Start       Start           // from the first chunk
	ServiceTier json.RawMessage // the last member service_tier; nil if there was none
	Usage       *llm.Usage      // the last one reported
	extra       llm.Extra       // members of chunks that have not been emitted
	usageExtra  llm.Extra       // members of chunks that had nothing but usage
	Output      tokens.Counter
	Misuses     Misuses // of the Backend so far
	Err         error   // the reply cannot be continued
}

// A Start has the identity of a reply, as far as its first chunk tells it.
type Start struct {
	ID      string
	Created int64 // Unix time in seconds
	Model   string
}

// A Misuses is a set of mistakes of the host that no reply reports.
type Misuses uint32

const (
	UnknownChoice Misuses = 1 << iota
	NilChunk
	ContentAfterFinish
	ConflictingUsage
	InvalidExtra
	TooLong
	FewerChoices
	FirstOtherMisuse // is not found by the orderer
)

// A scratchChunk is reused for each chunk that is passed to the sink, which saves an
// allocation per chunk.
type scratchChunk struct {
	chunk  llm.ChatChunk
	choice [1]llm.ChunkChoice
}

// A choiceState has the progress of a choice and the text that is held back.
type choiceState struct {
	opened, ended, truncated bool             // truncated: it has ended because of maxBytes
	bytes                    int              // of texts
	Reason                   llm.FinishReason // if it has ended
	texts                    [texts.PerReply]UTF8Buffer
	hasReasoning             bool
	reasoningAlias           bool         // of the first Delta with Reasoning
	calls                    *callOrderer // nil until the choice has a tool call
}

// Add emits what c adds to the reply. It may change c.
func (o *Orderer) Add(c *llm.ChatChunk) {
	if c == nil {
		o.Misuses |= NilChunk
		return
	}
	if !o.HasStart {
		o.HasStart = true
		o.Start = Start{ID: c.ID, Created: c.Created, Model: c.Model}
	}
	extra := c.Extra
	if c.Usage != nil {
		if o.Usage != nil && !canGrow(o.Usage, c.Usage) {
			o.Misuses |= ConflictingUsage
		}
		o.Usage = c.Usage
		if len(c.Choices) == 0 {
			o.usageExtra, extra = jsonwire.MergeExtra(o.usageExtra, extra), nil
		}
	}
	if tier := c.Extra["service_tier"]; tier != nil {
		o.ServiceTier = tier
	}
	o.extra = jsonwire.MergeExtra(o.extra, extra)
	for i := range c.Choices {
		o.addChoice(c.Choices[i : i+1])
	}
}

// addChoice emits what a choice adds to the reply. The choice is passed as a
// slice of one, so that it can be emitted without an allocation (budget: allocations per text chunk).
func (o *Orderer) addChoice(list []llm.ChunkChoice) {
	c := &list[0]
	if c.Index < 0 || c.Index >= o.ChoiceLimit {
		o.Misuses |= UnknownChoice
		return
	}
	s := o.open(c.Index)
	if s.ended {
		if !s.truncated && texts.Len(&c.Delta) > 0 {
			o.Misuses |= ContentAfterFinish
		}
		return
	}
	reason, stop := c.FinishReason, c.StopSequence
	c.FinishReason, c.StopSequence = "", ""
	d := &c.Delta
	if err := s.normalize(d); err != nil {
		o.Err = err
		return
	}
	if o.MaxBytes > 0 && s.truncate(d, o.MaxBytes) {
		reason, stop = llm.FinishLength, ""
		o.Misuses |= TooLong
	}
	if reason != "" {
		s.appendHeld(d)
	}
	if !d.IsEmpty() || reason == "" && jsonwire.HasValue(c.Extra) {
		o.Output.Add(d)
		o.emit(list)
		c.Extra = nil
	}
	if reason != "" {
		s.ended, s.Reason = true, reason
		o.emitNew(llm.ChunkChoice{Index: c.Index, FinishReason: reason, StopSequence: stop, Extra: c.Extra})
	}
}

// normalize removes the role of d, and holds back the characters and tool calls that are
// not complete.
func (s *choiceState) normalize(d *llm.Delta) (err error) {
	d.Role = ""
	s.nameReasoning(d)
	for i, text := range texts.OfDelta(d) {
		*text = s.texts[i].Add(*text)
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
func (s *choiceState) nameReasoning(d *llm.Delta) {
	if d.Reasoning == "" {
		return
	}
	if !s.hasReasoning {
		s.hasReasoning, s.reasoningAlias = true, d.ReasoningAlias
	}
	if d.ReasoningAlias && !s.reasoningAlias {
		moveReasoning(d)
	}
}

// IsTruncated reports whether nothing can follow, because a choice was cut and the
// others have ended.
func (o *Orderer) IsTruncated() bool {
	truncated := false
	for i := range o.Choices {
		if !o.Choices[i].ended {
			return false
		}
		truncated = truncated || o.Choices[i].truncated
	}
	return truncated && len(o.Choices) == o.ChoiceLimit
}

// truncate shortens d if the choice would have more than limit bytes of text, and
// reports whether it did.
func (s *choiceState) truncate(d *llm.Delta, limit int) bool {
	room := limit - s.bytes
	n := texts.Len(d)
	s.bytes += n
	if n <= room {
		return false
	}
	texts.Truncate(d, max(room, 0))
	s.truncated = true
	return true
}

// open returns the state of a choice. If the choice is not open, it emits its first chunk.
func (o *Orderer) open(index int) *choiceState {
	if o.Choices == nil {
		o.Choices = o.choiceStorage[:0]
	}
	for len(o.Choices) <= index {
		o.Choices = append(o.Choices, choiceState{})
	}
	s := &o.Choices[index]
	if !s.opened {
		if index > 0 {
			// openai-python's stream helper fails if another choice opens first.
			o.open(0)
		}
		s.opened = true
		o.emitNew(llm.ChunkChoice{Index: index, Delta: llm.Delta{Role: llm.RoleAssistant}})
	}
	return s
}

// emitNew is like emit, for a ChunkChoice that is not an element of a slice yet.
func (o *Orderer) emitNew(c llm.ChunkChoice) {
	o.scratch.choice[0] = c
	o.emit(o.scratch.choice[:])
}

// emit passes a chunk of one choice to the sink. The members of chunks in o.extra are sent with the
// first chunk that has no role.
func (o *Orderer) emit(list []llm.ChunkChoice) {
	out := &o.scratch.chunk
	out.Choices = list
	out.Extra = nil
	if list[0].Delta.Role == "" {
		out.Extra, o.extra = o.extra, nil
	}
	o.Sink.Add(out)
	out.Choices = nil // so that the Backend's chunk can be garbage-collected while it is silent
}

// appendHeld adds to d what is held back of a choice that ends.
func (s *choiceState) appendHeld(d *llm.Delta) {
	for i, text := range texts.OfDelta(d) {
		*text += s.texts[i].Flush()
	}
	d.ReasoningAlias = s.reasoningAlias
	if s.calls != nil {
		d.ToolCalls = s.calls.flush(d.ToolCalls)
	}
}

// EmitHeld emits what is held back of choices that have not ended.
func (o *Orderer) EmitHeld() {
	for i := range o.Choices {
		s := &o.Choices[i]
		if !s.opened || s.ended {
			continue
		}
		held := &o.scratch.choice[0]
		*held = llm.ChunkChoice{Index: i}
		s.appendHeld(&held.Delta)
		if !held.Delta.IsEmpty() {
			o.Output.Add(&held.Delta)
			o.emit(o.scratch.choice[:])
		}
	}
}

// Complete ends a reply after the Backend has returned. A choice without a FinishReason
// gets FinishToolCalls if it has tool calls, and otherwise FinishStop. A reply without
// choices gets an empty one.
func (o *Orderer) Complete() {
	o.EmitHeld()
	if len(o.Choices) == 0 {
		o.open(0)
	}
	opened := 0
	for i := range o.Choices {
		s := &o.Choices[i]
		if s.opened {
			opened++
		}
		if !s.opened || s.ended {
			continue
		}
		reason := llm.FinishStop
		if s.calls != nil {
			reason = llm.FinishToolCalls
		}
		s.ended, s.Reason = true, reason
		o.emitNew(llm.ChunkChoice{Index: i, FinishReason: reason})
	}
	if opened < o.ChoiceLimit {
		o.Misuses |= FewerChoices
	}
}

// EndExtra returns the members for the end of the reply: those that have not been emitted.
// Invalid JSON is dropped, because a reply that is complete should not fail for it.
func (o *Orderer) EndExtra() llm.Extra {
	e := jsonwire.MergeExtra(o.extra, o.usageExtra)
	if jsonwire.DropInvalid(e) {
		o.Misuses |= InvalidExtra
	}
	return e
}

// A UTF8Buffer makes text that arrives in pieces valid UTF-8. It holds back a
// character that is not complete, and replaces each invalid byte by U+FFFD.
type UTF8Buffer struct {
	n    uint8
	held [3]byte
}

// Add returns what was held back and s, up to the last complete character.
func (u *UTF8Buffer) Add(s string) string {
	if s == "" {
		return s
	}
	if u.n > 0 {
		s = string(u.held[:u.n]) + s
	}
	u.n = uint8(copy(u.held[:], s[len(s)-texts.IncompleteSuffixLen(s):]))
	s = s[:len(s)-int(u.n)]
	if !utf8.ValidString(s) {
		s = string([]rune(s))
	}
	return s
}

// Flush returns what is held back: nothing, or U+FFFD for a cut character.
func (u *UTF8Buffer) Flush() string {
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
	texts    [texts.PerCall]UTF8Buffer

	// What came before the call was emitted.
	held      llm.ToolCallDelta // without its texts
	heldTexts [texts.PerCall][]byte

	object jsonwire.ObjectScanner // of the arguments, if there is no ID
}

// order returns what deltas add to the calls, in the memory of deltas. It returns an error
// if there are more than bounds.ToolCalls.
func (o *callOrderer) order(deltas []llm.ToolCallDelta) ([]llm.ToolCallDelta, error) {
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
		for i, text := range texts.OfCall(&t.Function) {
			*text = c.texts[i].Add(*text)
		}
		if c.index >= 0 {
			if texts.CallHasText(&t.Function) || jsonwire.HasValue(t.Extra) || jsonwire.HasValue(t.Function.Extra) {
				t.Index, t.ID, t.Type, t.Function.Name = c.index, "", "", "" // they were told
				out = append(out, t)
			}
			continue
		}
		c.hold(&t)
		if c.name != "" || c.held.Type != "" && c.held.Type != llm.ToolFunction {
			out = append(out, o.emit(c))
		}
	}
	return out, nil
}

// flush appends what is held back of the calls to deltas.
func (o *callOrderer) flush(deltas []llm.ToolCallDelta) []llm.ToolCallDelta {
	for i := range o.calls {
		c := &o.calls[i]
		rest := llm.ToolCallDelta{Index: c.index}
		for i, text := range texts.OfCall(&rest.Function) {
			*text = c.texts[i].Flush()
		}
		switch {
		case c.index < 0:
			c.hold(&rest)
			deltas = append(deltas, o.emit(c))
		case texts.CallHasText(&rest.Function):
			deltas = append(deltas, rest)
		}
	}
	return deltas
}

// find returns the call that t adds to, which may be a new one, or nil if there are too many.
func (o *callOrderer) find(t *llm.ToolCallDelta) *callState {
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
func (o *callOrderer) newCall(t *llm.ToolCallDelta) *callState {
	if len(o.calls) >= bounds.ToolCalls {
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
func (c *callState) hold(t *llm.ToolCallDelta) {
	h := &c.held
	h.Type = cmp.Or(h.Type, t.Type)
	h.Function.Name = cmp.Or(h.Function.Name, t.Function.Name)
	for i, text := range texts.OfCall(&t.Function) {
		c.heldTexts[i] = append(c.heldTexts[i], *text...)
	}
	h.Extra = jsonwire.MergeExtra(h.Extra, t.Extra)
	h.Function.Extra = jsonwire.MergeExtra(h.Function.Extra, t.Function.Extra)
}

// emit returns the first delta of c.
func (o *callOrderer) emit(c *callState) llm.ToolCallDelta {
	c.index = o.emitted
	o.emitted++
	t := c.held
	for i, text := range texts.OfCall(&t.Function) {
		*text = string(c.heldTexts[i])
	}
	c.held, c.heldTexts = llm.ToolCallDelta{}, [texts.PerCall][]byte{}
	t.Index, t.ID = c.index, c.id
	if t.ID == "" {
		t.ID = randomid.New("call_")
	}
	t.Type = cmp.Or(t.Type, llm.ToolFunction)
	return t
}

func errTooManyCalls() *llm.Error {
	e := llm.Errorf(http.StatusBadGateway, "", "The reply of the model has too many tool calls. The limit is %d for each choice.", bounds.ToolCalls)
	e.NoRetry = true
	return e
}

// canGrow reports whether next can be the usage of the same request at a later
// time. Servers send a running total in each chunk, such as vLLM with
// continuous_usage_stats, and the prompts of an agent add up.
func canGrow(u *llm.Usage, next *llm.Usage) bool {
	return u.PromptTokens <= next.PromptTokens && u.CompletionTokens <= next.CompletionTokens && u.Total() <= next.Total()
}
