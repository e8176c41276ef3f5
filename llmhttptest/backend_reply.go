// Finds faults in the chunks of a Backend.

package llmhttptest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/llmhttp/llmhttp/llm"
)

// A backendReply has what a Backend yielded.
type backendReply struct {
	chunks []*llm.ChatChunk
	err    error
}

// chat iterates over the whole reply to req, and reports faults of the stream and its chunks.
func (b *backendTest) chat(ctx context.Context, t testing.TB, req *llm.ChatRequest) backendReply {
	t.Helper()
	n := req.Choices() // before the Backend may change req
	r, ok := b.iterate(ctx, t, req, func(backendReply) bool { return true })
	switch {
	case !ok:
	case r.err != nil:
		wantClientError(t, r.err)
	default:
		r.check(t, n)
	}
	return r
}

// iterate iterates over the reply to req until more, which is called after each
// chunk, returns false. It reports faults of the stream, but not of its chunks.
// It returns what was yielded, and whether the stream had no fault.
func (b *backendTest) iterate(
	ctx context.Context,
	t testing.TB,
	req *llm.ChatRequest,
	more func(backendReply) bool,
) (backendReply, bool) {
	t.Helper()
	return b.iterateStream(ctx, t, "Chat", func(ctx context.Context) llm.ChatStream { return b.Chat(ctx, req) }, more)
}

// iterateStream is iterate for the stream that a method returns.
func (b *backendTest) iterateStream(
	ctx context.Context,
	t testing.TB,
	method string,
	newStream func(ctx context.Context) llm.ChatStream,
	more func(backendReply) bool,
) (backendReply, bool) {
	t.Helper()
	l := &chatLoop{more: more}
	err := b.call(ctx, func(ctx context.Context) {
		stream := newStream(ctx)
		if stream == nil {
			panic(method + " returned a nil stream, want one that yields an error")
		}
		l.goroutine = goroutineID()
		stream(l.yield)
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	for _, f := range l.faults {
		t.Error(f)
	}
	if err != nil {
		t.Errorf("iterating over the stream of %s: %v", method, err)
	}
	return l.reply, err == nil && len(l.faults) == 0
}

// A chatLoop is a loop over a stream. It collects the reply, and the faults of the
// stream.
type chatLoop struct {
	more      func(backendReply) bool // see iterate
	goroutine string                  // that of the loop

	mu     sync.Mutex // guards the fields below; a faulty Backend may yield on several goroutines
	reply  backendReply
	over   bool // the stream must not yield again
	faults []string
}

// yield is the body of the loop.
func (l *chatLoop) yield(c *llm.ChatChunk, err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		l.addFault("the stream yielded after an error, or after yield had returned false; want it to return")
		return false
	}
	if goroutineID() != l.goroutine {
		l.addFault("the stream yielded on another goroutine than that of the loop, want the same")
	}
	switch {
	case err != nil:
		l.reply.err, l.over = err, true
		return true // the stream must end by itself
	case c == nil:
		l.addFault("the stream yielded neither a chunk nor an error, want one of them")
		return true
	}
	l.reply.chunks = append(l.reply.chunks, c)
	l.over = !l.more(l.reply)
	return !l.over
}

// addFault adds a fault once. The caller holds l.mu.
func (l *chatLoop) addFault(text string) {
	if !slices.Contains(l.faults, text) {
		l.faults = append(l.faults, text)
	}
}

// goroutineID returns the start of a stack trace, such as "goroutine 18 ".
func goroutineID() string {
	var buf [64]byte
	id, _, _ := bytes.Cut(buf[:runtime.Stack(buf[:], false)], []byte("["))
	return string(id)
}

// A replyChecker reports faults in the chunks of a reply.
type replyChecker struct {
	t       testing.TB
	chunk   string // describes the chunk that is checked
	choices []choiceState
	usage   *llm.Usage // the latest
}

// A choiceState has what the chunks so far contain of a choice.
type choiceState struct {
	begun, ended bool
	text         string
	calls        map[int]bool // by index
}

// check reports faults in the chunks of a reply to a request for n choices.
func (r *backendReply) check(t testing.TB, n int) {
	t.Helper()
	rc := &replyChecker{t: t, choices: make([]choiceState, n)}
	for i, c := range r.chunks {
		rc.chunk = fmt.Sprintf("chunk %d", i)
		rc.checkChunk(c)
		if t.Failed() {
			return // later chunks often have the same fault
		}
	}
	rc.checkEnd()
}

func (rc *replyChecker) checkChunk(c *llm.ChatChunk) {
	rc.t.Helper()
	wantJSON(rc.t, rc.chunk, c, c.Extra)
	wantConsistentUsage(rc.t, rc.chunk, c.Usage)
	if u := c.Usage; u != nil {
		if last := rc.usage; last != nil && (u.PromptTokens < last.PromptTokens || u.CompletionTokens < last.CompletionTokens) {
			rc.t.Errorf("%s: the usage fell from %+v to %+v, want each Usage to count the whole request so far", rc.chunk, *last, *u)
		}
		rc.usage = u
	}
	for i := range c.Choices {
		rc.checkChoice(&c.Choices[i])
	}
}

func (rc *replyChecker) checkChoice(c *llm.ChunkChoice) {
	t := rc.t
	t.Helper()
	wantJSON(t, rc.chunk, c, c.Extra, c.Delta.Extra)
	if c.Index < 0 || c.Index >= len(rc.choices) {
		t.Errorf("%s: the index of a choice is %d, want 0 to %d", rc.chunk, c.Index, len(rc.choices)-1)
		return
	}
	s := &rc.choices[c.Index]
	if s.ended {
		t.Errorf("%s: choice %d continues after its FinishReason, want no more of it", rc.chunk, c.Index)
	}
	s.begun = true
	if role := c.Delta.Role; role != "" && role != llm.RoleAssistant {
		t.Errorf("%s: the role is %q, want %q or none", rc.chunk, role, llm.RoleAssistant)
	}
	switch c.FinishReason {
	case "":
	case llm.FinishStop, llm.FinishLength, llm.FinishContentFilter, llm.FinishToolCalls:
		s.ended = true
	default:
		t.Errorf("%s: the FinishReason is %q, want one of the constants of llmhttp", rc.chunk, c.FinishReason)
	}
	s.text += c.Delta.Content
	for _, call := range c.Delta.ToolCalls {
		wantJSON(t, rc.chunk, call, call.Extra, call.Function.Extra)
		isFunction := call.Type == "" || call.Type == "function"
		if !s.calls[call.Index] && (call.ID == "" || isFunction && call.Function.Name == "") {
			t.Errorf(
				"%s: the first delta of tool call %d has the ID %q and the name %q, want both",
				rc.chunk,
				call.Index,
				call.ID,
				call.Function.Name,
			)
		}
		if s.calls == nil {
			s.calls = make(map[int]bool)
		}
		s.calls[call.Index] = true
	}
}

// maxTokenBytes is more than the bytes of text that any known tokenizer puts in a token.
const maxTokenBytes = 256

func (rc *replyChecker) checkEnd() {
	rc.t.Helper()
	size := 0
	for k, s := range rc.choices {
		if !s.begun {
			rc.t.Errorf("the stream ended without choice %d of %d, want all of them or an error", k, len(rc.choices))
		}
		if !utf8.ValidString(s.text) {
			rc.t.Errorf("the text of choice %d is %q, want valid UTF-8", k, s.text)
		}
		size += len(s.text)
	}
	if u := rc.usage; u != nil && u.CompletionTokens < size/maxTokenBytes {
		rc.t.Errorf(
			"the last Usage has %d completion tokens for %d bytes of text, want it to count the whole reply and not a chunk",
			u.CompletionTokens,
			size,
		)
	}
}

// wantConsistentUsage reports an error if u, which may be nil, contradicts itself. what describes
// where u is.
func wantConsistentUsage(t testing.TB, what string, u *llm.Usage) {
	t.Helper()
	if u == nil {
		return
	}
	if u.PromptTokens < 0 || u.CompletionTokens < 0 || u.TotalTokens < 0 {
		t.Errorf("%s: the usage is %+v, want no negative number", what, *u)
	}
	if u.TotalTokens != 0 && u.TotalTokens != u.PromptTokens+u.CompletionTokens {
		t.Errorf("%s: the usage is %+v, want TotalTokens to be the sum of the others or 0", what, *u)
	}
	wantJSON(t, what, u, u.Extra)
}

// wantJSON reports an error unless v, which contains extras, can be encoded.
func wantJSON(t testing.TB, what string, v any, extras ...llm.Extra) {
	t.Helper()
	for _, extra := range extras {
		for name, raw := range extra {
			if !json.Valid(raw) {
				t.Errorf("%s: the member %q of Extra is %q, want valid JSON", what, name, raw)
				return
			}
		}
	}
	if _, err := json.Marshal(v); err != nil {
		t.Errorf("encoding %s as JSON: %v, want none", what, err)
	}
}
