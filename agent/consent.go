// Calls of tools that need the consent of a person. A run that needs it ends with the question, and the
// next request of the conversation goes on with the answer.

package agent

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"github.com/llmhttp/llmhttp/internal/callctx"
	"github.com/llmhttp/llmhttp/internal/randomid"
	"github.com/llmhttp/llmhttp/llm"
)

// Consent tells a [Backend] which calls of its tools need the consent of a person.
//
// Before such a call the request ends: its reply is the question, as a text or as a call of a tool of
// the client. The next request of the conversation has the answer. If that consents, the calls run with
// the arguments that the person was asked about, each once, whatever the model or the client says
// by then; if not, the model is told so and what the person has said. Other calls of the same reply wait
// too. The conversation is that of [Sessions], which keep the calls until then, in memory. In a request
// without a conversation nobody can be asked: the model is told that the call was not carried out.
//
// Every client that can send requests of the conversation can consent. A front end's requests beside the chat do not
// answer, because they do not continue it; see also [Aside].
type Consent struct {
	// Question returns what a person is asked before a call runs, such as "May I delete the file a.txt?", or
	// "" if the call needs no consent. It must be safe for concurrent use, and not nil.
	Question func(call llm.ToolCall) string

	// Granted reports whether an answer consents. It must be safe for concurrent use. Nil means [IsYes].
	Granted func(answer string) bool

	// Tool is the name of a tool of the client that asks a person. If a request has it, the question is a
	// call of it, with the arguments {"question": "..."}, and its result is the answer. Empty, and
	// for requests without the tool, the question is a text and the answer the next message of the user.
	Tool string
}

// IsYes reports whether an answer to a question is "yes", "y", "ok" or "okay", in any case and with spaces
// and punctuation around it.
func IsYes(answer string) bool {
	switch strings.ToLower(strings.Trim(answer, " \t\r\n.,!\"'`*")) {
	case "yes", "y", "ok", "okay":
		return true
	}
	return false
}

// askedConsent is what a person of a conversation was asked last.
type askedConsent struct {
	mu      sync.Mutex // guards pending
	pending *pendingCalls
}

// pendingCalls are calls that wait for the answer to a question.
type pendingCalls struct {
	asked    int           // messages of the request that ended with the question
	callID   string        // of the client's tool that asks; empty if the question is a text
	earlier  []llm.Message // turns of the run before the message with the calls
	message  llm.Message   // with the calls
	calls    []llm.ToolCall
	question map[string]string // of those that need consent, by their IDs
}

// answer returns the answer in the messages of a request, if they go on after the question.
func (p *pendingCalls) answer(messages []llm.Message) (string, bool) {
	if len(messages) <= p.asked {
		return "", false
	}
	last := &messages[len(messages)-1]
	switch {
	case p.callID != "":
		return last.Content.Text(), last.Role == llm.RoleTool && last.ToolCallID == p.callID
	default:
		return last.Content.Text(), last.Role == llm.RoleUser
	}
}

// take removes the pending calls that the messages of a request answer, so that one request runs them, and
// returns them with the answer; or nil.
func (a *askedConsent) take(messages []llm.Message) (*pendingCalls, string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.pending == nil {
		return nil, ""
	}
	answer, ok := a.pending.answer(messages)
	if !ok {
		return nil, ""
	}
	p := a.pending
	a.pending = nil
	return p, answer
}

func (a *askedConsent) set(p *pendingCalls) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pending = p
}

// resume carries out the calls that the request answers a question about.
func (r *run) resume(ctx context.Context) error {
	r.asked = len(r.req.Messages)
	if r.opts.Consent == nil {
		return nil
	}
	p, answer := r.Backend.asked.Get(ctx).take(r.req.Messages)
	if p == nil {
		return nil
	}
	granted := r.opts.Consent.Granted
	if granted == nil {
		granted = IsYes
	}
	var refused map[string]string
	if !granted(answer) {
		refused = make(map[string]string)
		for id := range p.question {
			refused[id] = "The user was asked and has not consented. The answer was: " + answer
		}
	}
	r.req.Messages = append(r.req.Messages, p.earlier...)
	return r.carryOut(ctx, p.message, p.calls, refused)
}

// askConsent returns the chunk that ends the request with a question, if one of the calls of a reply
// needs consent, or else nil and which of the calls are refused.
func (r *run) askConsent(ctx context.Context, choice *llm.Choice, calls []llm.ToolCall) (refused map[string]string, asks *llm.ChatChunk) {
	c := r.opts.Consent
	if c == nil {
		return nil, nil
	}
	questions := make(map[string]string)
	var text []string
	for _, call := range calls {
		if r.tools[call.Function.Name] == nil {
			continue
		}
		if q := c.Question(call); q != "" {
			questions[call.ID] = q
			text = append(text, q)
		}
	}
	if len(text) == 0 {
		return nil, nil
	}
	if _, conversation := callctx.Conversation(ctx); conversation == "" {
		for id := range questions {
			questions[id] = "This needs the consent of the user, who cannot be asked here."
		}
		return questions, nil
	}
	p := &pendingCalls{
		asked: r.asked, earlier: slices.Clone(r.req.Messages[r.asked:]), message: choice.Message, calls: calls, question: questions,
	}
	question := strings.Join(text, "\n")
	if c.Tool != "" && slices.ContainsFunc(r.client, func(t llm.Tool) bool { return t.Function != nil && t.Function.Name == c.Tool }) {
		arguments, _ := json.Marshal(map[string]string{"question": question}) // strings only
		p.callID = randomid.New("call_")
		asks = r.end(&llm.Choice{FinishReason: llm.FinishToolCalls}, []llm.ToolCall{{
			ID: p.callID, Type: llm.ToolFunction, Function: llm.FunctionCall{Name: c.Tool, Arguments: string(arguments)},
		}})
	} else {
		if choice.Message.Content.Text() != "" {
			question = "\n\n" + question
		}
		asks = r.end(&llm.Choice{FinishReason: llm.FinishStop}, nil)
		asks.Choices[0].Delta.Content = question
	}
	r.Backend.asked.Get(ctx).set(p)
	return nil, asks
}
