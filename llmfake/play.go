// Plays the steps of a Reply.

package llmfake

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llmfake/internal/modelreply"
	"github.com/llmhttp/llmhttp/llmfake/simulator"
)

// A player gives a Reply to one request.
type player struct {
	server   *Server
	ctx      context.Context
	exchange *exchange
	request  *Request
	chat     *llm.ChatRequest                     // nil if the reply is not a stream of chunks
	yield    func(*llm.ChatChunk, error) bool     // nil if the reply is not a stream of chunks
	model    func(context.Context) llm.ChatStream // the reply of the simulated model
	pace     *replyPace

	choices  []int // those that deltas are for; nil before the first delta
	inChoice bool  // playChoices is running
	calls    int   // of each of the choices
	ends     map[int]*choiceEnd
	length   length // of each of the choices
	finish   llm.FinishReason
	usage    *llm.Usage
	texts    map[textOf]*strings.Builder // what counts as the completion
	sent     bool                        // a chunk was sent
	finished bool                        // sendFinish was called
	err      error                       // why the reply failed

	simulated bool // of a request that is not for a chat
	other     any  // of a request that is not for a chat: a slice, such as the scores of documents
}

// A textOf names a text of a reply, whose tokens are counted for themselves.
type textOf struct {
	choice int
	kind   string
}

// A choiceEnd is how a choice ends.
type choiceEnd struct {
	reason llm.FinishReason
	stop   string
}

// play plays r. It reports whether more may follow.
func (p *player) play(r Reply) bool {
	if r.rewrite != nil {
		p.exchange.out.setRewrite(func(protocol string, event []byte) (result []byte, ok bool) {
			ok = p.server.try("the function of Rewrite", func() { result = r.rewrite(protocol, event) })
			return result, ok
		}, p.request.Protocol)
	}
	if r.usage != nil {
		p.usage = new(*r.usage)
	}
	if r.finish != "" {
		p.finish = r.finish
	}
	for _, s := range r.steps {
		if !s(p) {
			return false
		}
	}
	return true
}

// fail ends the reply with err.
func (p *player) fail(err error) bool {
	p.err = err
	if p.yield != nil {
		p.yield(nil, err)
	}
	return false
}

// wait waits for d.
func (p *player) wait(d time.Duration) bool {
	if d <= 0 || modelreply.Sleep(p.ctx, d) {
		return true
	}
	return p.fail(context.Cause(p.ctx))
}

// indices returns the choices that deltas are for: all that the client asked for, or that of
// playChoices.
func (p *player) indices() []int {
	if p.choices == nil {
		for i := range max(p.chat.Choices(), 1) {
			p.choices = append(p.choices, i)
		}
	}
	return p.choices
}

// end returns how a choice ends.
func (p *player) endOf(choice int) *choiceEnd {
	if p.ends == nil {
		p.ends = make(map[int]*choiceEnd)
	}
	if p.ends[choice] == nil {
		p.ends[choice] = &choiceEnd{reason: llm.FinishStop}
	}
	return p.ends[choice]
}

// send sends a delta for each of the choices.
func (p *player) send(d llm.Delta) bool {
	if p.chat == nil {
		p.server.errorf("%s got %s, which is a reply to a chat", p.request, p.request.Reply)
		return p.fail(errUnexpectedReply())
	}
	for _, i := range p.indices() {
		p.endOf(i)
		c := &llm.ChatChunk{Choices: []llm.ChunkChoice{{Index: i, Delta: d}}}
		if !p.sendChunk(c.Clone()) {
			return false
		}
	}
	return true
}

// sendChunk sends a chunk at the pace of the Server.
func (p *player) sendChunk(c *llm.ChatChunk) bool {
	if p.chat == nil {
		return p.send(llm.Delta{})
	}
	if !p.wait(p.pace.next()) {
		return false
	}
	for i := range c.Choices {
		choice := &c.Choices[i]
		d := &choice.Delta
		p.note(textOf{choice.Index, "reasoning"}, d.Reasoning)
		p.note(textOf{choice.Index, "content"}, d.Content)
		p.note(textOf{choice.Index, "refusal"}, d.Refusal)
		for _, call := range d.ToolCalls {
			p.note(textOf{choice.Index, "call " + strconv.Itoa(call.Index)}, call.Function.Arguments)
			if end := p.endOf(choice.Index); end.reason == llm.FinishStop {
				end.reason = llm.FinishToolCalls
			}
		}
		if choice.FinishReason != "" {
			*p.endOf(choice.Index) = choiceEnd{choice.FinishReason, choice.StopSequence}
			choice.FinishReason, choice.StopSequence = "", ""
		}
	}
	if c.Usage != nil {
		if p.usage == nil {
			p.usage = c.Usage
		}
		c.Usage = nil
	}
	p.sent = true
	return p.yield(c, nil)
}

// note adds a piece of a text to those that count as the completion.
func (p *player) note(of textOf, piece string) {
	if piece == "" {
		return
	}
	if p.texts == nil {
		p.texts = make(map[textOf]*strings.Builder)
	}
	if p.texts[of] == nil {
		p.texts[of] = &strings.Builder{}
	}
	p.texts[of].WriteString(piece)
}

// sendCall sends a call of a tool, in pieces.
func (p *player) sendCall(tool, arguments string) bool {
	if p.chat == nil {
		return p.send(llm.Delta{})
	}
	if p.length.over {
		return true
	}
	arguments = p.cut(arguments, false)
	index := p.calls
	p.calls++
	for _, i := range p.indices() {
		call := llm.ToolCallDelta{Index: index, ID: p.server.newCallID(), Type: "function", Function: llm.FunctionCall{Name: tool}}
		for _, piece := range splitArguments(arguments) {
			call.Function.Arguments = piece
			c := &llm.ChatChunk{
				Choices: []llm.ChunkChoice{{Index: i, Delta: llm.Delta{ToolCalls: []llm.ToolCallDelta{call}}}},
			}
			if !p.sendChunk(c) {
				return false
			}
			call = llm.ToolCallDelta{Index: index}
		}
	}
	return true
}

// newCallID returns the ID of the next tool call.
func (s *Server) newCallID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	return fmt.Sprintf("call_llmfake_%d", s.calls)
}

// playChoices plays a reply for each choice that the client asked for.
func (p *player) playChoices(choices []Reply) bool {
	if p.chat == nil {
		return p.send(llm.Delta{})
	}
	finish := p.finish
	for i, r := range choices[:min(len(choices), max(p.chat.Choices(), 1))] {
		p.choices, p.inChoice, p.calls, p.finish, p.length = []int{i}, true, 0, "", length{}
		p.endOf(i)
		if !p.play(r) {
			return false
		}
		if p.finish != "" {
			p.endOf(i).reason = p.finish
		}
	}
	p.inChoice, p.finish = false, finish
	return true
}

// simulate plays the reply of the simulated model, without its end.
func (p *player) simulate() bool {
	if p.chat == nil {
		p.simulated = true
		return true
	}
	for c, err := range p.model(p.ctx) {
		if err != nil {
			return p.fail(err)
		}
		if p.inChoice && len(c.Choices) > 0 {
			if c.Choices[0].Index != 0 {
				continue
			}
			c.Choices[0].Index = p.choices[0]
		}
		if !p.sendChunk(c) {
			return false
		}
	}
	return true
}

// sendFinish sends the end of the reply, once.
func (p *player) sendFinish() {
	if p.chat == nil || p.finished {
		return
	}
	p.finished = true
	if len(p.ends) == 0 {
		for _, i := range p.indices() {
			p.endOf(i)
		}
	}
	c := &llm.ChatChunk{Usage: p.finalUsage()}
	for _, i := range slices.Sorted(maps.Keys(p.ends)) {
		end := p.ends[i]
		if p.finish != "" {
			end.reason = p.finish
		}
		c.Choices = append(c.Choices, llm.ChunkChoice{Index: i, FinishReason: end.reason, StopSequence: end.stop})
	}
	p.yield(c, nil)
}

// finalUsage returns the usage that the reply reports.
func (p *player) finalUsage() *llm.Usage {
	if p.usage != nil {
		return p.usage
	}
	u := &llm.Usage{}
	for of, text := range p.texts {
		n := simulator.CountTokens(p.chat.Model, text.String())
		u.CompletionTokens += n
		if of.kind == "reasoning" {
			u.CompletionTokensDetails.ReasoningTokens += n
		}
	}
	if n, err := (backend{p.server}).CountTokens(p.ctx, p.chat); err == nil {
		u.PromptTokens = n
	}
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
	return u
}

// end ends the reply as kind says.
func (p *player) end(kind endKind) bool {
	p.exchange.out.setEnd(kind)
	isCutAtOnce := kind == endCut && !p.sent
	if p.chat == nil && kind != endCut {
		p.simulated = true // and the output damages the reply
		return false
	}
	if p.chat == nil || p.request.Stream || isCutAtOnce {
		return p.fail(errMarker)
	}
	p.sendFinish()
	return false
}

// signature returns a signature for reasoning that a Server has sent.
func signature(reasoning string) string {
	sum := sha256.Sum256([]byte(reasoning))
	return "llmfake." + base64.RawURLEncoding.EncodeToString(sum[:])
}

var errClosed = errors.New("llmfake: the server is closed")
