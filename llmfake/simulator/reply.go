// The reply to a chat, and where it ends.

package simulator

import (
	"math"
	"slices"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llmfake/internal/modelreply"
)

// A reply is the reply of a Backend to one request. All choices have the same reply.
type reply struct {
	reasoning string
	calls     []call // if empty, the reply is text
	text      string
	finish    llm.FinishReason
	stop      string // the stop sequence, if one ended the text
	choices   int
	usage     llm.Usage
}

// A call is a tool call of a reply. arguments is a JSON object, perhaps cut at the token
// limit.
type call struct{ name, arguments string }

// greeting is the reply to a request whose user messages have no text.
const greeting = "Hello! How can I help you today?"

// maxReply limits the text of all choices together, in bytes.
const maxReply = 32 << 20

// newReply returns the reply to req or an error for the client.
func newReply(req *llm.ChatRequest) (*reply, error) {
	if err := checkReasoning(req.Messages); err != nil {
		return nil, err
	}
	r := &reply{finish: llm.FinishStop, choices: max(req.Choices(), 1), reasoning: reasoningFor(req)}
	tools := toolsOf(req)
	for _, f := range tools.functionsToCall(req) {
		arguments, err := f.arguments(userText(req.Messages))
		if err != nil {
			return nil, err
		}
		r.calls, r.finish = append(r.calls, call{f.name, arguments}), llm.FinishToolCalls
	}
	if r.calls == nil {
		text, err := formatReply(req.ResponseFormat, tools.replyText(req.Messages))
		if err != nil {
			return nil, err
		}
		r.text, r.stop = modelreply.CutAtStop(text, req.Stop)
	}
	reasoning := CountTokens(req.Model, r.reasoning)
	n := reasoning + r.cutAtLimit(req)
	r.usage = llm.Usage{PromptTokens: promptTokens(req), CompletionTokens: n * r.choices}
	r.usage.CompletionTokensDetails.ReasoningTokens = reasoning * r.choices
	r.usage.TotalTokens = r.usage.PromptTokens + r.usage.CompletionTokens
	return r, nil
}

// cutAtLimit cuts the text and the arguments of the calls at the token limit. It
// returns the number of tokens that are left.
func (r *reply) cutAtLimit(req *llm.ChatRequest) (n int) {
	limit, limited := req.TokenLimit()
	if !limited {
		limit = math.MaxInt
	}
	size := maxReply / r.choices
	texts := []*string{&r.text}
	for i := range r.calls {
		texts = append(texts, &r.calls[i].arguments)
	}
	for _, text := range texts {
		head, tokens := cutTokens(*text, limit-n, size)
		if len(head) < len(*text) {
			r.finish, r.stop = llm.FinishLength, ""
		}
		*text = head
		n, size = n+tokens, size-len(head)
	}
	return n
}

// sendReply sends one chunk for each token and choice: the reasoning, then the text
// or the arguments of the calls. The tokens of several calls alternate. The usage is in
// the last chunk.
func (s *sender) sendReply(r *reply) {
	if !s.sendReasoning(r) || !s.sendCallNames(r) {
		return
	}
	rest := []string{r.text}
	if r.calls != nil {
		rest = nil
		for _, c := range r.calls {
			rest = append(rest, c.arguments)
		}
	}
	for {
		for i := range rest {
			token := rest[i][:tokenLen(rest[i])]
			rest[i] = rest[i][len(token):]
			last := !slices.ContainsFunc(rest, func(s string) bool { return s != "" })
			if token == "" && (!last || i < len(rest)-1) {
				continue // this call is complete; without any token, the last one sends the end
			}
			if !s.sendToken(r, i, token, last) || last {
				return
			}
		}
	}
}

// sendToken sends a token of the text, or of the arguments of a call, for each
// choice.
func (s *sender) sendToken(r *reply, call int, token string, last bool) bool {
	for i := range r.choices {
		choice := llm.ChunkChoice{Index: i}
		if r.calls == nil {
			choice.Delta.Content = token
		} else {
			choice.Delta.ToolCalls = []llm.ToolCallDelta{{Index: call, Function: llm.FunctionCall{Arguments: token}}}
		}
		if last {
			choice.FinishReason, choice.StopSequence = r.finish, r.stop
		}
		c := newChunk(choice)
		if last && i == r.choices-1 {
			c.Usage = &r.usage
		}
		if !s.Send(c) {
			return false
		}
	}
	return true
}

// sendCallNames sends the ID and name of each call for each choice.
func (s *sender) sendCallNames(r *reply) bool {
	for j, c := range r.calls {
		ok := s.sendToAll(r.choices, func(i int) llm.Delta {
			call := llm.ToolCallDelta{Index: j, ID: callID(s.Ctx, i, j), Type: "function", Function: llm.FunctionCall{Name: c.name}}
			return llm.Delta{ToolCalls: []llm.ToolCallDelta{call}}
		})
		if !ok {
			return false
		}
	}
	return true
}

// sendToAll sends a chunk for each choice. delta returns the delta of a choice.
func (s *sender) sendToAll(choices int, delta func(choice int) llm.Delta) bool {
	for i := range choices {
		if !s.Send(newChunk(llm.ChunkChoice{Index: i, Delta: delta(i)})) {
			return false
		}
	}
	return true
}

// userText returns the text of the last user message that has a text part, or the greeting.
func userText(messages []llm.Message) string {
	isText := func(p llm.Part) bool { return p.Type == llm.PartText }
	for _, m := range slices.Backward(messages) {
		if m.Role == llm.RoleUser && slices.ContainsFunc(m.Content, isText) {
			return m.Content.Text()
		}
	}
	return greeting
}

// promptTokens counts the tokens of the messages and the tools as [Backend] documents.
func promptTokens(req *llm.ChatRequest) int {
	n := 0
	for _, t := range req.Tools {
		if t.Function != nil {
			n += CountTokens(req.Model, t.Function.Name) + CountTokens(req.Model, t.Function.Description) + CountTokens(req.Model, string(t.Function.Parameters))
		}
	}
	for _, m := range req.Messages {
		n += CountTokens(req.Model, m.Content.Text()) + CountTokens(req.Model, m.Reasoning)
		for _, call := range m.ToolCalls {
			n += CountTokens(req.Model, call.Function.Arguments)
		}
	}
	return n
}
