// Request, as a test sees it.

package llmfake

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

// The names of the formats of chat in [Request.Protocol].
const (
	ChatCompletions = "chat"      // OpenAI's chat completions
	Messages        = "messages"  // Anthropic's Messages API
	Responses       = "responses" // OpenAI's Responses API
)

// A Request is a request that a [Server] has got. The methods whose names begin with Want
// fail the test, as t.Errorf does, if the request is not as they say; they return the request,
// so that calls can be chained. A Request that [Server.Requests] returns does not change. The
// caller must not modify what it points to.
type Request struct {
	Number int // 1 for the first request of the Server
	Time   time.Time
	Method string
	Path   string // with the query, as the client sent it
	Header http.Header
	Body   []byte

	// Protocol is the format of the request: ChatCompletions, Messages, Responses, or "" if
	// the path has none of them. Endpoints of OpenAI's API other than the Responses API have
	// ChatCompletions.
	Protocol string

	// Operation is what the request asks a model to do, such as chat, embeddings or speech. It is ""
	// for other requests, and for those that were refused before a model was asked.
	Operation llmhttp.Operation

	// Model is the name of the model that the client asked for, if Operation is not "".
	Model string

	// Stream reports whether the client asked for a stream.
	Stream bool

	// Chat is the decoded request, in the terms of chat completions whatever the format was.
	// It is nil if the request was not for a chat or was refused.
	Chat *llm.ChatRequest

	// Asked is the decoded request for another operation than a chat: a pointer to its type, such as an
	// [*llm.EmbeddingRequest]. It is nil if the request was refused. When a request with files has ended,
	// their content is gone; Body has it.
	Asked any

	// Status is the status of the reply. It is 0 while there is none, and if the connection
	// was cut before.
	Status int

	// Reply describes the reply of the test that the request got, such as `Text("Hello")`, or
	// the error with which it was refused.
	Reply string

	// Ended reports whether the reply has ended.
	Ended bool

	server   *Server
	userText string // unless Chat is set
}

// Turn returns the number of the turn of the conversation: 1 plus the number of replies of the
// assistant that the request has. It is 0 if the request is not for a chat. A reply that calls
// tools counts.
func (r *Request) Turn() int {
	if r.Chat == nil {
		return 0
	}
	n := 1
	for i := range r.Chat.Messages {
		if r.Chat.Messages[i].Role == llm.RoleAssistant {
			n++
		}
	}
	return n
}

// UserText returns the text of the last message of the user, the first prompt to complete, the
// prompt of an image, the first text of an input for embeddings or moderations, the query for which
// documents are ranked, or the text to speak.
func (r *Request) UserText() string {
	if r.Chat == nil {
		return r.userText
	}
	for _, m := range slices.Backward(r.Chat.Messages) {
		if m.Role == llm.RoleUser {
			return m.Content.Text()
		}
	}
	return ""
}

// first returns the first of texts, if there is one.
func first(texts []string) string { return strings.Join(texts[:min(len(texts), 1)], "") }

// System returns the texts of the messages of the system and of the developer, one a line.
func (r *Request) System() string {
	var texts []string
	if r.Chat != nil {
		for i := range r.Chat.Messages {
			if m := &r.Chat.Messages[i]; m.Role == llm.RoleSystem || m.Role == llm.RoleDeveloper {
				texts = append(texts, m.Content.Text())
			}
		}
	}
	return strings.Join(texts, "\n")
}

// A ToolResult is the result of a tool call that a client has sent.
type ToolResult struct {
	CallID string
	Tool   string // the name of the tool; "" if the request has no such call
	Text   string
}

// ToolResults returns the results of tools that came since the last reply of the assistant.
func (r *Request) ToolResults() []ToolResult {
	if r.Chat == nil {
		return nil
	}
	var results []ToolResult
	names := map[string]string{}
	for i := range r.Chat.Messages {
		switch m := &r.Chat.Messages[i]; m.Role {
		case llm.RoleAssistant:
			results = nil
			for _, call := range m.ToolCalls {
				names[call.ID] = call.Function.Name
			}
		case llm.RoleTool:
			results = append(results, ToolResult{m.ToolCallID, names[m.ToolCallID], m.Content.Text()})
		}
	}
	return results
}

// Tools returns the names of the functions that the client offers.
func (r *Request) Tools() []string {
	var names []string
	if r.Chat != nil {
		for _, t := range r.Chat.Tools {
			if t.Function != nil {
				names = append(names, t.Function.Name)
			}
		}
	}
	return names
}

// Transcript returns the conversation of the request, a line for each message, in the form
// that [Request.WantMessages] compares:
//
//	system: Be brief.
//	user: How is the weather?
//	assistant: call forecast({"city":"Bergen"})
//	tool: It rains.
//
// Line breaks in texts are written as \n. The text of an assistant and its calls are separated
// by a space.
func (r *Request) Transcript() []string {
	if r.Chat == nil {
		return nil
	}
	lines := make([]string, len(r.Chat.Messages))
	for i := range r.Chat.Messages {
		m := &r.Chat.Messages[i]
		var parts []string
		for _, p := range m.Content {
			if p.Type == llm.PartText {
				parts = append(parts, p.Text)
			} else {
				parts = append(parts, "["+p.Type+"]")
			}
		}
		for _, c := range m.ToolCalls {
			parts = append(parts, "call "+c.Function.Name+"("+compactJSON(c.Function.Arguments)+")")
		}
		lines[i] = string(m.Role) + ": " + strings.ReplaceAll(strings.Join(parts, " "), "\n", `\n`)
	}
	return lines
}

// Decode decodes the body, which must be JSON, into v. It ends the test if it cannot.
func (r *Request) Decode(v any) {
	r.server.t.Helper()
	if err := json.Unmarshal(r.Body, v); err != nil {
		r.server.t.Fatalf("llmfake: the body of request %d: %v", r.Number, err)
	}
}

// String describes the request in one line.
func (r *Request) String() string {
	s := fmt.Sprintf("request %d: %s %s", r.Number, r.Method, r.Path)
	if r.Model != "" {
		s += fmt.Sprintf(", model %q", r.Model)
	}
	if n := r.Turn(); n > 1 {
		s += fmt.Sprintf(", turn %d", n)
	}
	if results := r.ToolResults(); len(results) > 0 {
		last := results[len(results)-1]
		s += fmt.Sprintf(", result of tool %s %s", cmp.Or(last.Tool, last.CallID), quote(last.Text))
	} else if text := r.UserText(); text != "" {
		s += ", user " + quote(text)
	}
	return s
}

// outcome describes in one line what became of the request.
func (r *Request) outcome() string {
	s := r.String()
	switch {
	case r.Reply != "" && r.Status != 0:
		return fmt.Sprintf("%s: got %d, %s", s, r.Status, r.Reply)
	case r.Status != 0:
		return fmt.Sprintf("%s: got %d", s, r.Status)
	case r.Reply != "":
		return fmt.Sprintf("%s: got %s", s, r.Reply)
	}
	return s + ": got no reply"
}
