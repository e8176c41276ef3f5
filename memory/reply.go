package memory

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/memory/internal/instance"
)

// A reply is the reply of a Backend to one request. All choices have it.
type reply struct {
	reasoning string
	calls     []call // of functions; the reply is text if this is empty
	text      string
	finish    llmhttp.FinishReason
	stop      string // the stop sequence, if one ended the text
	choices   int
	usage     llmhttp.Usage
}

// A call is a call of a function.
type call struct{ name, arguments string }

// greeting is the reply to a request without a text of the user.
const greeting = "Hello! How can I help you today?"

// maxReply limits the text of all choices together, in bytes.
const maxReply = 32 << 20

// newReply returns the reply to req or an error for the client.
func newReply(req *llmhttp.ChatRequest) (*reply, error) {
	if err := checkReasoning(req.Messages); err != nil {
		return nil, err
	}
	r := &reply{finish: llmhttp.FinishStop, choices: max(req.Choices(), 1), reasoning: reasoningFor(req)}
	tools := toolsOf(req)
	for _, f := range tools.functionsToCall(req) {
		arguments, err := f.arguments(userText(req.Messages))
		if err != nil {
			return nil, err
		}
		r.calls, r.finish = append(r.calls, call{f.name, arguments}), llmhttp.FinishToolCalls
	}
	if r.calls == nil {
		text, err := formatted(req.ResponseFormat, tools.text(req.Messages))
		if err != nil {
			return nil, err
		}
		r.text, r.stop = beforeStop(text, req.Stop)
	}
	reasoning := CountTokens(req.Model, r.reasoning)
	n := reasoning + r.cut(req)
	r.usage = llmhttp.Usage{PromptTokens: promptTokens(req), CompletionTokens: n * r.choices}
	r.usage.CompletionTokensDetails.ReasoningTokens = reasoning * r.choices
	r.usage.TotalTokens = r.usage.PromptTokens + r.usage.CompletionTokens
	return r, nil
}

// cut cuts the text and the arguments of the calls at the token limit, and returns
// the tokens that they have.
func (r *reply) cut(req *llmhttp.ChatRequest) (n int) {
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
			r.finish, r.stop = llmhttp.FinishLength, ""
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
	if !s.sendReasoning(r) || !s.openCalls(r) {
		return
	}
	rest := []string{r.text}
	if r.calls != nil {
		rest = nil
		for _, c := range r.calls {
			rest = append(rest, c.arguments)
		}
	}
	for more := true; more; {
		for i := range rest {
			token := rest[i][:tokenLen(rest[i])]
			rest[i] = rest[i][len(token):]
			more = slices.ContainsFunc(rest, func(s string) bool { return s != "" })
			if token == "" && (more || i < len(rest)-1) {
				continue // this call is complete, but another one is not
			}
			if !s.sendToken(r, i, token, !more) || !more {
				return
			}
		}
	}
}

// sendToken sends a token of the text, or of the arguments of a call, for each
// choice.
func (s *sender) sendToken(r *reply, call int, token string, last bool) bool {
	for i := range r.choices {
		choice := llmhttp.ChunkChoice{Index: i}
		if r.calls == nil {
			choice.Delta.Content = token
		} else {
			choice.Delta.ToolCalls = []llmhttp.ToolCallDelta{{Index: call, Function: llmhttp.FunctionCall{Arguments: token}}}
		}
		if last {
			choice.FinishReason, choice.StopSequence = r.finish, r.stop
		}
		c := newChunk(choice)
		if last && i == r.choices-1 {
			c.Usage = &r.usage
		}
		if !s.send(c) {
			return false
		}
	}
	return true
}

// openCalls sends the names of the calls.
func (s *sender) openCalls(r *reply) bool {
	for i := range r.choices {
		for j, c := range r.calls {
			delta := llmhttp.ToolCallDelta{Index: j, ID: callID(s.ctx, i, j), Type: "function", Function: llmhttp.FunctionCall{Name: c.name}}
			if !s.send(newChunk(llmhttp.ChunkChoice{Index: i, Delta: llmhttp.Delta{ToolCalls: []llmhttp.ToolCallDelta{delta}}})) {
				return false
			}
		}
	}
	return true
}

// callID returns the ID of a tool call of a choice. It is derived from the
// request ID, so that a test can make it predictable. Without a request ID it is
// random.
func callID(ctx context.Context, choice, call int) string {
	id := llmhttp.RequestIDFrom(ctx)
	if id == "" {
		id = rand.Text()
	}
	if call > 0 {
		id = fmt.Sprintf("%d %s", call, id)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s", choice, id))
	return "call_" + hex.EncodeToString(sum[:12])
}

// userText returns the text of the last user message that has a text part, or
// the greeting.
func userText(messages []llmhttp.Message) string {
	isText := func(p llmhttp.Part) bool { return p.Type == llmhttp.PartText }
	for _, m := range slices.Backward(messages) {
		if m.Role == llmhttp.RoleUser && slices.ContainsFunc(m.Content, isText) {
			return m.Content.Text()
		}
	}
	return greeting
}

// toolResults returns the texts of the results of tools since the last message of
// the assistant. Clients may send other messages after the results.
func toolResults(messages []llmhttp.Message) []string {
	var results []string
	for i := range messages {
		switch m := &messages[i]; m.Role {
		case llmhttp.RoleAssistant:
			results = nil
		case llmhttp.RoleTool, llmhttp.RoleFunction:
			results = append(results, m.Content.Text())
		}
	}
	return results
}

// tools are the functions that a request offers and how they may be used.
type tools struct {
	mode      string // none, auto or required
	functions []function
}

// A function is one of the tools of a request.
type function struct {
	name   string
	param  string // path of the schema in the request
	schema json.RawMessage
}

// toolsOf returns the functions that the tool_choice of req allows.
func toolsOf(req *llmhttp.ChatRequest) tools {
	t := tools{mode: "auto"}
	for i, tool := range req.Tools {
		if f := tool.Function; f != nil && f.Name != "" && tool.Type == "function" {
			t.functions = append(t.functions, function{f.Name, fmt.Sprintf("tools[%d].function.parameters", i), f.Parameters})
		}
	}
	if json.Unmarshal(req.ToolChoice, &t.mode) == nil {
		return t
	}
	type named struct{ Function struct{ Name string } }
	var choice struct {
		named
		Type    string
		Allowed struct {
			Mode  string
			Tools []named
		} `json:"allowed_tools"`
	}
	if json.Unmarshal(req.ToolChoice, &choice) != nil {
		return t
	}
	var allowed []named
	switch choice.Type {
	case "function":
		t.mode, allowed = "required", []named{choice.named}
	case "allowed_tools":
		t.mode, allowed = choice.Allowed.Mode, choice.Allowed.Tools
	}
	t.functions = slices.DeleteFunc(t.functions, func(f function) bool {
		return !slices.ContainsFunc(allowed, func(n named) bool { return n.Function.Name == f.name })
	})
	return t
}

// functionsToCall returns the functions to call: the first one, or all if the
// client asks for parallel calls, or none.
func (t *tools) functionsToCall(req *llmhttp.ChatRequest) []function {
	due := t.mode == "required" ||
		t.mode != "none" && len(req.Messages) > 0 && req.Messages[len(req.Messages)-1].Role == llmhttp.RoleUser && toolResults(req.Messages) == nil
	if !due || len(t.functions) == 0 {
		return nil
	}
	if p := req.ParallelToolCalls; p != nil && *p {
		return t.functions
	}
	return t.functions[:1]
}

// text returns the text of a reply to messages: the results of tools, or else
// the text of the user.
func (t *tools) text(messages []llmhttp.Message) string {
	if t.mode != "none" && len(t.functions) > 0 {
		if results := toolResults(messages); results != nil {
			return "The tools say: " + strings.Join(results, "\n")
		}
	}
	return userText(messages)
}

// arguments returns arguments for a call of f that satisfy its schema.
func (f *function) arguments(text string) (string, error) {
	if f.schema == nil {
		return "{}", nil
	}
	object, err := instance.Make(f.schema, text, true)
	if err != nil {
		return "", invalidSchema("invalid_function_parameters", f.param, fmt.Sprintf("function '%.64s'", f.name), err)
	}
	return string(object), nil
}

// formatted returns text in the format f. A nil f means text.
func formatted(f *llmhttp.ResponseFormat, text string) (string, error) {
	if f == nil || f.Type != "json_object" && f.Type != "json_schema" {
		return text, nil
	}
	var format struct {
		Name   string
		Schema json.RawMessage
	}
	param := "response_format.json_schema.schema"
	switch {
	case f.Type == "json_object" && f.Extra["schema"] != nil: // as llama.cpp has it
		format.Schema, param = f.Extra["schema"], "response_format.schema"
	case f.Extra["json_schema"] != nil:
		if err := json.Unmarshal(f.Extra["json_schema"], &format); err != nil {
			return "", invalidSchema("invalid_json_schema", "response_format.json_schema", "response_format", errors.New("it is not an object with a name and a schema"))
		}
	}
	if format.Schema == nil || string(format.Schema) == "null" {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		err := e.Encode(struct {
			Reply string `json:"reply"`
		}{text})
		return strings.TrimSuffix(b.String(), "\n"), err
	}
	value, err := instance.Make(format.Schema, text, false)
	if err != nil {
		return "", invalidSchema("invalid_json_schema", param, fmt.Sprintf("response_format '%.64s'", format.Name), err)
	}
	return string(value), nil
}

// invalidSchema returns an error for the client. place names the part of the
// request that has the schema.
func invalidSchema(code, param, place string, err error) error {
	e := llmhttp.Errorf(http.StatusBadRequest, code, "Invalid schema for %s: %v.", place, err)
	e.Param = param
	return e
}

// beforeStop returns the part of text before the first stop sequence, and that
// sequence.
func beforeStop(text string, sequences []string) (head, stop string) {
	end := len(text)
	for _, s := range sequences {
		if s == "" {
			continue
		}
		if i := strings.Index(text[:end], s); i >= 0 {
			end, stop = i, s
		}
	}
	return text[:end], stop
}

// promptTokens counts the tokens of the messages as [Backend] documents.
func promptTokens(req *llmhttp.ChatRequest) int {
	n := 0
	for _, m := range req.Messages {
		n += CountTokens(req.Model, m.Content.Text()) + CountTokens(req.Model, m.Reasoning)
		for _, call := range m.ToolCalls {
			n += CountTokens(req.Model, call.Function.Arguments)
		}
	}
	return n
}
