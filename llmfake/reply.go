// Replies and their steps.

package llmfake

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llmfake/internal/modelreply"
)

// A Reply is what a request gets. The functions of this package that return a Reply begin one,
// and its methods add to it, in the order of the stream:
//
//	llmfake.Reason("Rain?").Text("I will look.").Call("forecast", map[string]any{"city": "Bergen"})
//
// A Reply is a value: the methods return a longer one, and leave theirs as it is. One Reply may
// be given to any number of requests, in any format, whole and streamed. The zero Reply is
// empty, as of a model that says nothing.
//
// In a stream, texts and the arguments of calls arrive in several pieces, as those of models
// do. The usage is counted as by the simulated model unless Usage sets it.
//
// A Reply ends where that of a model would end: the token limit of the request, such as max_tokens,
// cuts texts, refusals and the arguments of calls, and a stop sequence cuts texts. Tokens are those of
// [simulator.CountTokens]. What follows in the Reply is left out, except for waits and faults. The
// reason for the end is length or stop unless Finish sets another one. Reasoning and what
// [Reply.Chunk] adds are neither cut nor counted.
type Reply struct {
	steps   []step
	texts   []string // descriptions of the steps
	usage   *llm.Usage
	finish  llm.FinishReason
	rewrite func(protocol string, event []byte) []byte // nil if there is none
}

// A step does a part of a reply. It reports whether the reply goes on.
type step func(p *player) bool

// with returns r with another step.
func (r Reply) with(text string, s step) Reply {
	r.steps = append(slices.Clip(r.steps), s)
	return r.describe(text)
}

func (r Reply) describe(text string) Reply {
	r.texts = append(slices.Clip(r.texts), text)
	return r
}

// String describes r as in Go code.
func (r Reply) String() string {
	if len(r.texts) == 0 {
		return "Reply{}"
	}
	return strings.Join(r.texts, ".")
}

// Text returns a Reply with a text.
func Text(s string) Reply { return Reply{}.Text(s) }

// Text adds a text.
func (r Reply) Text(s string) Reply {
	return r.with(fmt.Sprintf("Text(%s)", quote(s)), func(p *player) bool {
		return p.sendText(s, 0, true, func(piece string) llm.Delta { return llm.Delta{Content: piece} })
	})
}

// Words returns a Reply with a text whose words arrive with a delay before each.
func Words(s string, delay time.Duration) Reply { return Reply{}.Words(s, delay) }

// Words adds a text whose words arrive with a delay before each. A whole reply takes as long.
func (r Reply) Words(s string, delay time.Duration) Reply {
	return r.with(fmt.Sprintf("Words(%s, %v)", quote(s), delay), func(p *player) bool {
		return p.sendText(s, delay, true, func(piece string) llm.Delta { return llm.Delta{Content: piece} })
	})
}

// JSON returns a Reply whose text is the JSON of v, for structured output.
func JSON(v any) Reply { return Reply{}.JSON(v) }

// JSON adds the JSON of v as a text. It panics if v cannot be encoded.
func (r Reply) JSON(v any) Reply {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("llmfake: JSON: %v", err))
	}
	longer := r.Text(string(b))
	longer.texts[len(longer.texts)-1] = "JSON(" + quote(string(b)) + ")"
	return longer
}

// Reason returns a Reply that begins with reasoning.
func Reason(s string) Reply { return Reply{}.Reason(s) }

// Reason adds reasoning, which formats call thinking, a summary of reasoning, or
// reasoning_content. It ends with a signature, which clients return in the next turn.
func (r Reply) Reason(s string) Reply {
	return r.with(fmt.Sprintf("Reason(%s)", quote(s)), func(p *player) bool {
		if p.length.over {
			return true
		}
		for _, piece := range modelreply.Words(s, maxWord) {
			if !p.send(llm.Delta{Reasoning: piece}) {
				return false
			}
		}
		d := llm.ReasoningDetail{Type: llm.ReasoningText, Signature: signature(s)}
		return p.send(llm.Delta{ReasoningDetails: []llm.ReasoningDetail{d}})
	})
}

// Call returns a Reply that calls a tool.
func Call(tool string, arguments any) Reply { return Reply{}.Call(tool, arguments) }

// Call adds a call of a tool. The arguments are encoded as JSON; a string or a
// [json.RawMessage] is taken as it is, so that it can be malformed, and nil means {}. Several
// calls are parallel. Their IDs are unique. Call panics if the arguments cannot be encoded.
func (r Reply) Call(tool string, arguments any) Reply {
	var text string
	switch a := arguments.(type) {
	case nil:
		text = "{}"
	case string:
		text = a
	case json.RawMessage:
		text = string(a)
	default:
		b, err := json.Marshal(a)
		if err != nil {
			panic(fmt.Sprintf("llmfake: Call: %v", err))
		}
		text = string(b)
	}
	return r.with(fmt.Sprintf("Call(%q, %s)", tool, quote(text)), func(p *player) bool {
		return p.sendCall(tool, text)
	})
}

// Refuse returns a Reply with a refusal.
func Refuse(s string) Reply { return Reply{}.Refuse(s) }

// Refuse adds a refusal: the text with which a model says that it will not do what it is asked.
func (r Reply) Refuse(s string) Reply {
	return r.with(fmt.Sprintf("Refuse(%s)", quote(s)), func(p *player) bool {
		return p.sendText(s, 0, false, func(piece string) llm.Delta { return llm.Delta{Refusal: piece} })
	})
}

// Cite adds an annotation: a citation of a web page for the characters from start to end, which is
// excluded, of the text so far. The Messages API has citations of whole blocks of text, so there the
// citation is for all of the text since the citations before it, and start and end do not matter.
func (r Reply) Cite(url, title string, start, end int) Reply {
	annotation := map[string]any{"type": "url_citation", "url_citation": map[string]any{
		"url": url, "title": title, "start_index": start, "end_index": end,
	}}
	b, _ := json.Marshal([]any{annotation}) // strings and numbers can be encoded
	return r.with(fmt.Sprintf("Cite(%q)", url), func(p *player) bool {
		return p.length.over || p.send(llm.Delta{Extra: llm.Extra{"annotations": b}})
	})
}

// Chunk adds a chunk, for what the other methods do not express, such as log probabilities or
// members of vendors. The reply has a copy. The index of the choice is as in the chunk.
func (r Reply) Chunk(c *llm.ChatChunk) Reply {
	mustNotBeNil("Chunk", c == nil)
	c = c.Clone()
	return r.with("Chunk(...)", func(p *player) bool { return p.sendChunk(c.Clone()) })
}

// Choices returns a Reply with several choices, which requests with n get. Usage, waits and
// faults may follow it.
func Choices(choices ...Reply) Reply {
	choices = slices.Clone(choices)
	texts := make([]string, len(choices))
	for i, c := range choices {
		texts[i] = c.String()
	}
	return Reply{}.with("Choices("+strings.Join(texts, ", ")+")", func(p *player) bool { return p.playChoices(choices) })
}

// otherReply returns a Reply to a request that is not for a chat, with what [player.other] says.
func otherReply(text string, other any) Reply {
	return Reply{}.with(text, func(p *player) bool {
		p.other = other
		return true
	})
}

// Simulate returns a Reply by the simulated model.
func Simulate() Reply {
	return Reply{}.with("Simulate()", func(p *player) bool { return p.simulate() })
}

// Func returns a Reply that f computes from the request. f must not modify the request and may
// be called concurrently, on goroutines of the server: it may call t.Errorf, but not t.FailNow,
// and so no function of package require. If f panics, the test fails and the client gets a 500.
func Func(f func(r *Request) Reply) Reply {
	mustNotBeNil("Func", f == nil)
	return Reply{}.with("Func(...)", func(p *player) bool {
		var r Reply
		if !p.server.try("the function of Func", func() { r = f(p.request) }) {
			return p.fail(errFunctionPanicked)
		}
		return p.play(r)
	})
}

// errFunctionPanicked is what a client gets if a function of the test panicked.
var errFunctionPanicked = llm.Errorf(
	http.StatusInternalServerError,
	"llmfake_panic",
	"llmfake: a function of the test panicked. See its log.",
)

// mustNotBeNil panics if a test has passed nil to a function.
func mustNotBeNil(function string, isNil bool) {
	if isNil {
		panic(fmt.Sprintf("llmfake: %s: the argument is nil", function))
	}
}

// try calls a function of the test. It fails the test and returns false if that panics.
func (s *Server) try(name string, f func()) (ok bool) {
	defer func() {
		if p := recover(); p != nil {
			ok = false
			s.errorf("%s panicked at %s: %v", name, panicPlace(), p)
		}
	}()
	f()
	return true
}

// panicPlace returns the place that panicked. A deferred function calls it.
func panicPlace() string {
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs[:])])
	panics := false
	for {
		f, more := frames.Next()
		inRuntime := strings.HasPrefix(f.Function, "runtime.")
		if panics && !inRuntime {
			return fmt.Sprintf("%s:%d", filepath.Base(f.File), f.Line)
		}
		if panics = panics || inRuntime; !more {
			return "an unknown place"
		}
	}
}

// Usage sets the number of tokens that the reply reports.
func (r Reply) Usage(prompt, completion int) Reply {
	return r.UsageDetails(llm.Usage{PromptTokens: prompt, CompletionTokens: completion, TotalTokens: prompt + completion})
}

// UsageDetails is like [Reply.Usage], with cached, reasoning and other tokens.
func (r Reply) UsageDetails(u llm.Usage) Reply {
	r.usage = &u
	return r.describe(fmt.Sprintf("Usage(%d, %d)", u.PromptTokens, u.CompletionTokens))
}

// Finish sets the reason for the end of the reply. Without it the reason is tool_calls if the
// reply calls tools, and otherwise stop.
func (r Reply) Finish(reason llm.FinishReason) Reply {
	r.finish = reason
	return r.describe(fmt.Sprintf("Finish(%q)", reason))
}

// Wait returns a Reply that begins with a wait: a slow first token.
func Wait(d time.Duration) Reply { return Reply{}.Wait(d) }

// Wait adds a pause. At the beginning of a reply the client gets nothing during it, not even
// the status. The pause ends early if the client leaves.
func (r Reply) Wait(d time.Duration) Reply {
	return r.with(fmt.Sprintf("Wait(%v)", d), func(p *player) bool { return p.wait(d) })
}

// Block returns a Reply that begins with a wait for a channel.
func Block(until <-chan struct{}) Reply { return Reply{}.Block(until) }

// Block adds a wait until the channel is closed, so that a test can decide when a stream goes
// on. The wait ends early if the client leaves.
func (r Reply) Block(until <-chan struct{}) Reply {
	return r.with("Block(...)", func(p *player) bool {
		select {
		case <-until:
			return true
		case <-p.ctx.Done():
			return p.fail(context.Cause(p.ctx))
		}
	})
}

// splitArguments splits the arguments of a call into pieces that are shorter than words.
func splitArguments(s string) []string {
	const maxPiece = 12
	var pieces []string
	start := 0
	for i := range s { // the indices are those of whole characters
		if i-start >= maxPiece {
			pieces = append(pieces, s[start:i])
			start = i
		}
	}
	return append(pieces, s[start:])
}

// errUnexpectedReply is what a client gets if the reply does not fit its request.
func errUnexpectedReply() *llm.Error {
	e := llm.Errorf(
		http.StatusBadRequest,
		"llmfake_wrong_reply",
		"llmfake: the reply of the test does not fit the request. See its log.",
	)
	e.NoRetry = true
	return e
}
