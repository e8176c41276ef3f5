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
	"strings"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/memory/internal/instance"
)

// A reply is what a Backend says, in each of the choices.
type reply struct {
	text    string // or the arguments of the call
	call    string // the function that is called, or ""
	finish  llmhttp.FinishReason
	choices int
	usage   llmhttp.Usage
}

// greeting is the reply to those who say nothing.
const greeting = "Hello! How can I help you today?"

// maxReply bounds the text of all choices together, in bytes.
const maxReply = 32 << 20

// replyTo returns the reply to req, or an error for the client.
func replyTo(req *llmhttp.ChatRequest) (*reply, error) {
	r := &reply{finish: llmhttp.FinishStop, choices: max(req.Choices(), 1)}
	use := toolChoice(req)
	var err error
	if f := use.called(req.Messages); f != nil {
		r.call, r.finish = f.name, llmhttp.FinishToolCalls
		r.text, err = f.arguments(userText(req.Messages))
	} else {
		r.text, err = formatted(req.ResponseFormat, use.text(req.Messages))
		r.text = beforeStop(r.text, req.Stop)
	}
	if err != nil {
		return nil, err
	}
	limit, limited := req.TokenLimit()
	if !limited {
		limit = math.MaxInt
	}
	text, n := cutTokens(r.text, limit, maxReply/r.choices)
	if len(text) < len(r.text) {
		r.text, r.finish = text, llmhttp.FinishLength
	}
	r.usage = llmhttp.Usage{PromptTokens: promptTokens(req), CompletionTokens: n * r.choices}
	r.usage.TotalTokens = r.usage.PromptTokens + r.usage.CompletionTokens
	return r, nil
}

// say yields the reply, a token a chunk, to each choice in turn.
func (s *speaker) say(r *reply) {
	if r.call != "" {
		for i := range r.choices {
			call := llmhttp.ToolCallDelta{ID: callID(s.ctx, i), Type: "function", Function: llmhttp.FunctionCall{Name: r.call}}
			if !s.chunk(choiceChunk(llmhttp.ChunkChoice{Index: i, Delta: llmhttp.Delta{ToolCalls: []llmhttp.ToolCallDelta{call}}})) {
				return
			}
		}
	}
	for rest, more := r.text, true; more; {
		piece := rest[:tokenLen(rest)]
		rest = rest[len(piece):]
		more = rest != ""
		for i := range r.choices {
			choice := llmhttp.ChunkChoice{Index: i}
			if r.call == "" {
				choice.Delta.Content = piece
			} else {
				choice.Delta.ToolCalls = []llmhttp.ToolCallDelta{{Function: llmhttp.FunctionCall{Arguments: piece}}}
			}
			c := choiceChunk(choice)
			if !more {
				c.Choices[0].FinishReason = r.finish
				if i == r.choices-1 {
					c.Usage = &r.usage
				}
			}
			if !s.chunk(c) {
				return
			}
		}
	}
}

// choiceChunk returns a chunk of one choice.
func choiceChunk(choice llmhttp.ChunkChoice) *llmhttp.ChatChunk {
	c := llmhttp.TextChunk("")
	c.Choices[0] = choice
	return c
}

// callID returns the ID of the tool call of a choice. It derives from the
// request's, so that who sets that one knows this one, or is random.
func callID(ctx context.Context, choice int) string {
	id := llmhttp.RequestIDFrom(ctx)
	if id == "" {
		id = rand.Text()
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s", choice, id))
	return "call_" + hex.EncodeToString(sum[:12])
}

// userText returns the text of the last message of a user.
func userText(messages []llmhttp.Message) string {
	for i := len(messages) - 1; i >= 0; i-- {
		if m := &messages[i]; m.Role == llmhttp.RoleUser && hasText(m.Content) {
			return m.Content.Text()
		}
	}
	return greeting
}

func hasText(c llmhttp.Content) bool {
	for i := range c {
		if c[i].Type == llmhttp.PartText {
			return true
		}
	}
	return false
}

// toolResults returns what the tools' messages at the end of messages say.
func toolResults(messages []llmhttp.Message) []string {
	first := len(messages)
	for first > 0 && messages[first-1].Role == llmhttp.RoleTool {
		first--
	}
	var results []string
	for i := range messages[first:] {
		results = append(results, messages[first+i].Content.Text())
	}
	return results
}

// A toolUse is how a request's tools are to be used.
type toolUse struct {
	mode      string // none, auto or required
	functions []function
}

// A function is one of a request's tools.
type function struct {
	name, path string // path is that of its schema in the request
	schema     json.RawMessage
}

// toolChoice returns which tools req lets or makes the model call.
func toolChoice(req *llmhttp.ChatRequest) toolUse {
	use := toolUse{mode: "auto"}
	for i := range req.Tools {
		if f := req.Tools[i].Function; f != nil && f.Name != "" && req.Tools[i].Type == "function" {
			use.functions = append(use.functions, function{f.Name, fmt.Sprintf("tools[%d].function.parameters", i), f.Parameters})
		}
	}
	if json.Unmarshal(req.ToolChoice, &use.mode) == nil {
		return use
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
		return use
	}
	var allowed []named
	switch choice.Type {
	case "function":
		use.mode, allowed = "required", []named{choice.named}
	case "allowed_tools":
		use.mode, allowed = choice.Allowed.Mode, choice.Allowed.Tools
	}
	var functions []function
	for _, f := range use.functions {
		for _, a := range allowed {
			if a.Function.Name == f.name {
				functions = append(functions, f)
				break
			}
		}
	}
	use.functions = functions
	return use
}

// called returns the function to call after messages, or nil.
func (u *toolUse) called(messages []llmhttp.Message) *function {
	due := u.mode == "required" ||
		u.mode != "none" && len(messages) > 0 && messages[len(messages)-1].Role == llmhttp.RoleUser
	if !due || len(u.functions) == 0 {
		return nil
	}
	return &u.functions[0]
}

// text returns what to say after messages.
func (u *toolUse) text(messages []llmhttp.Message) string {
	if u.mode != "none" && len(u.functions) > 0 {
		if results := toolResults(messages); results != nil {
			return "The tools say: " + strings.Join(results, "\n")
		}
	}
	return userText(messages)
}

// arguments returns arguments for a call of f.
func (f *function) arguments(text string) (string, error) {
	if f.schema == nil {
		return "{}", nil
	}
	args, err := instance.Object(f.schema, text)
	if err != nil {
		return "", badSchema("invalid_function_parameters", f.path, fmt.Sprintf("function '%.64s'", f.name), err)
	}
	return string(args), nil
}

// formatted returns text in the form that f asks for.
func formatted(f *llmhttp.ResponseFormat, text string) (string, error) {
	if f == nil || f.Type != "json_object" && f.Type != "json_schema" {
		return text, nil
	}
	var wanted struct {
		Name   string
		Schema json.RawMessage
	}
	if f.Type == "json_schema" {
		if err := json.Unmarshal(f.Extra["json_schema"], &wanted); err != nil {
			return "", badSchema("invalid_json_schema", "response_format.json_schema", "response_format", errors.New("it is not an object with a name and a schema"))
		}
	}
	if wanted.Schema == nil || string(wanted.Schema) == "null" {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		err := e.Encode(struct {
			Reply string `json:"reply"`
		}{text})
		return strings.TrimSuffix(b.String(), "\n"), err
	}
	value, err := instance.Of(wanted.Schema, text)
	if err != nil {
		return "", badSchema("invalid_json_schema", "response_format.json_schema.schema", fmt.Sprintf("response_format '%.64s'", wanted.Name), err)
	}
	return string(value), nil
}

func badSchema(code, param, of string, err error) error {
	e := llmhttp.Errorf(http.StatusBadRequest, code, "Invalid schema for %s: %v.", of, err)
	e.Param = param
	return e
}

// beforeStop returns text up to the first of the sequences.
func beforeStop(text string, sequences []string) string {
	first := len(text)
	for _, s := range sequences {
		if s == "" {
			continue
		}
		if i := strings.Index(text[:first], s); i >= 0 {
			first = i
		}
	}
	return text[:first]
}

// promptTokens counts as [Backend] documents.
func promptTokens(req *llmhttp.ChatRequest) int {
	n := 0
	for i := range req.Messages {
		m := &req.Messages[i]
		n += CountTokens(req.Model, m.Content.Text())
		for j := range m.ToolCalls {
			n += CountTokens(req.Model, m.ToolCalls[j].Function.Arguments)
		}
	}
	return n
}
