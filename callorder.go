package llmhttp

import (
	"net/http"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
)

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
