package texts

import (
	"slices"
	"unicode/utf8"

	"github.com/llmhttp/llmhttp/llm"
)

// Split shortens d to room bytes of text and returns the rest.
func Split(d *llm.Delta, room int) (rest llm.Delta) {
	rest = splitTexts(d, &room)
	d.ToolCalls, rest.ToolCalls = splitCalls(d.ToolCalls, room)
	return rest
}

// Truncate shortens d to room bytes of text. All tool calls remain, some without arguments.
func Truncate(d *llm.Delta, room int) {
	splitTexts(d, &room)
	for i := range d.ToolCalls {
		for _, s := range OfCall(&d.ToolCalls[i].Function) {
			*s, _ = SplitText(*s, &room)
		}
	}
}

// splitTexts is like split for the texts that are not those of calls. It takes what they use
// from room.
func splitTexts(d *llm.Delta, room *int) (rest llm.Delta) {
	to := OfDelta(&rest)
	for i, s := range OfDelta(d) {
		*s, *to[i] = SplitText(*s, room)
	}
	rest.ReasoningAlias = d.ReasoningAlias
	return rest
}

// splitCalls splits calls where their texts have room bytes. It may change calls.
func splitCalls(calls []llm.ToolCallDelta, room int) (head, rest []llm.ToolCallDelta) {
	for i := range calls {
		first := calls[i]
		more := splitCall(&first.Function, &room)
		switch {
		case !CallHasText(&more):
			continue
		case !CallHasText(&first.Function):
			return calls[:i], calls[i:]
		}
		head = slices.Clone(calls[:i+1])
		head[i] = first
		calls[i] = llm.ToolCallDelta{Index: first.Index, Function: more}
		return head, calls[i:]
	}
	return calls, nil
}

// splitCall is like split for the texts of a call. It takes what they use from room.
func splitCall(f *llm.FunctionCall, room *int) (rest llm.FunctionCall) {
	to := OfCall(&rest)
	for i, s := range OfCall(f) {
		*s, *to[i] = SplitText(*s, room)
	}
	return rest
}

// SplitText splits s after the last character that fits in room bytes, and takes what it used from
// room.
func SplitText(s string, room *int) (head, rest string) {
	if len(s) <= *room {
		*room -= len(s)
		return s, ""
	}
	n := *room
	*room = 0
	n -= IncompleteSuffixLen(s[:n])
	return s[:n], s[n:]
}

// IncompleteSuffixLen returns how many bytes at the end of s begin a character
// that is not complete.
func IncompleteSuffixLen(s string) int {
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
