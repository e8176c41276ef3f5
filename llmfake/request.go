package llmfake

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
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

	// Operation is what the request asks a model to do: chat, embeddings or images. It is ""
	// for other requests, and for those that were refused before a model was asked.
	Operation llmhttp.Operation

	// Model is the name of the model that the client asked for, if Operation is not "".
	Model string

	// Stream reports whether the client asked for a stream.
	Stream bool

	// Chat is the decoded request, in the terms of chat completions whatever the format was.
	// It is nil if the request was not for a chat or was refused.
	Chat      *llmhttp.ChatRequest
	Embedding *llmhttp.EmbeddingRequest
	Image     *llmhttp.ImageRequest

	// Status is the status of the reply. It is 0 while there is none, and if the connection
	// was cut before.
	Status int

	// Reply describes the reply of the test that the request got, such as `Text("Hello")`, or
	// the error with which it was refused.
	Reply string

	// Ended reports whether the reply has ended.
	Ended bool

	server *Server
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
		if r.Chat.Messages[i].Role == llmhttp.RoleAssistant {
			n++
		}
	}
	return n
}

// UserText returns the text of the last message of the user, the prompt of an image, or the
// first text of an input for embeddings.
func (r *Request) UserText() string {
	switch {
	case r.Chat != nil:
		for _, m := range slices.Backward(r.Chat.Messages) {
			if m.Role == llmhttp.RoleUser {
				return m.Content.Text()
			}
		}
	case r.Image != nil:
		return r.Image.Prompt
	case r.Embedding != nil && len(r.Embedding.Input.Texts) > 0:
		return r.Embedding.Input.Texts[0]
	}
	return ""
}

// System returns the texts of the messages of the system and of the developer, one a line.
func (r *Request) System() string {
	var texts []string
	if r.Chat != nil {
		for i := range r.Chat.Messages {
			if m := &r.Chat.Messages[i]; m.Role == llmhttp.RoleSystem || m.Role == llmhttp.RoleDeveloper {
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
		case llmhttp.RoleAssistant:
			results = nil
			for _, call := range m.ToolCalls {
				names[call.ID] = call.Function.Name
			}
		case llmhttp.RoleTool:
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
			if p.Type == llmhttp.PartText {
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

func compactJSON(s string) string {
	var b bytes.Buffer
	if json.Compact(&b, []byte(s)) != nil {
		return s
	}
	return b.String()
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

// quote quotes the beginning of a text.
func quote(s string) string {
	const limit = 100
	if len(s) <= limit {
		return strconv.Quote(s)
	}
	return strconv.Quote(strings.ToValidUTF8(s[:limit], "")) + "..."
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

// Requests returns the requests that have arrived so far, in order, as they are now.
func (s *Server) Requests() []*Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	requests := make([]*Request, len(s.journal))
	for i, r := range s.journal {
		requests[i] = new(*r)
	}
	return requests
}

// WantRequests returns the requests that have arrived so far. It ends the test, as t.Fatalf
// does, if their number is not n.
func (s *Server) WantRequests(n int) []*Request {
	s.t.Helper()
	requests := s.Requests()
	if len(requests) != n {
		s.t.Fatalf("llmfake: got %s, want %d%s", plural(len(requests), "request"), n, listOutcomes(requests))
	}
	return requests
}

// Request returns a request by its index, 0 for the first. A negative index counts from the
// end, so that -1 is the last. It ends the test if there is no such request.
func (s *Server) Request(i int) *Request {
	s.t.Helper()
	requests := s.Requests()
	at := i
	if at < 0 {
		at += len(requests)
	}
	if at < 0 || at >= len(requests) {
		s.t.Fatalf("llmfake: there is no request with index %d, because %s arrived%s", i, plural(len(requests), "request"), listOutcomes(requests))
		return &Request{server: s}
	}
	return requests[at]
}

// AwaitRequests waits until at least n requests have ended, for a program that sends them in
// the background. It ends the test if they have not after 10 seconds.
func (s *Server) AwaitRequests(n int) []*Request {
	s.t.Helper()
	timeout := time.NewTimer(10 * time.Second)
	defer timeout.Stop()
	for {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		requests := s.Requests()
		ended := 0
		for _, r := range requests {
			if r.Ended {
				ended++
			}
		}
		if ended >= n {
			return requests
		}
		select {
		case <-changed:
		case <-timeout.C:
			s.t.Fatalf("llmfake: %s ended within 10 seconds, want %d%s", plural(ended, "request"), n, listOutcomes(requests))
			return requests
		}
	}
}

// signalLocked wakes AwaitRequests.
func (s *Server) signalLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

// listOutcomes lists requests for an error message, each on a line of its own.
func listOutcomes(requests []*Request) string {
	var b strings.Builder
	for _, r := range requests {
		b.WriteString("\n    " + r.outcome())
	}
	return b.String()
}

// wantf fails the test because of r.
func (r *Request) wantf(format string, args ...any) {
	r.server.t.Helper()
	r.server.t.Errorf("llmfake: request %d: %s", r.Number, fmt.Sprintf(format, args...))
}

// WantModel checks the name of the model.
func (r *Request) WantModel(name string) *Request {
	r.server.t.Helper()
	if r.Model != name {
		r.wantf("got model %q, want %q", r.Model, name)
	}
	return r
}

// WantProtocol checks the format: [ChatCompletions], [Messages] or [Responses].
func (r *Request) WantProtocol(name string) *Request {
	r.server.t.Helper()
	if r.Protocol != name {
		r.wantf("got protocol %q, want %q", r.Protocol, name)
	}
	return r
}

// WantUserText checks that the last message of the user contains text.
func (r *Request) WantUserText(text string) *Request {
	r.server.t.Helper()
	if got := r.UserText(); !strings.Contains(got, text) {
		r.wantf("the last user text does not contain what it should\n    got:  %q\n    want: %q", got, text)
	}
	return r
}

// WantSystem checks that the messages of the system and of the developer contain text.
func (r *Request) WantSystem(text string) *Request {
	r.server.t.Helper()
	if got := r.System(); !strings.Contains(got, text) {
		r.wantf("the system text does not contain what it should\n    got:  %q\n    want: %q", got, text)
	}
	return r
}

// WantMessages checks the whole conversation: see [Request.Transcript].
func (r *Request) WantMessages(lines ...string) *Request {
	r.server.t.Helper()
	if got := r.Transcript(); !slices.Equal(got, lines) {
		r.wantf("the messages differ (- got, + want):\n%s", diffLines(got, lines))
	}
	return r
}

// WantTools checks the names of the functions that the client offers, in any order.
func (r *Request) WantTools(names ...string) *Request {
	r.server.t.Helper()
	got := r.Tools()
	if !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(names))) {
		r.wantf("got tools %q, want %q", got, names)
	}
	return r
}

// WantToolResult checks that the newest results of tools have one of the given tool that
// contains text.
func (r *Request) WantToolResult(tool, text string) *Request {
	r.server.t.Helper()
	results := r.ToolResults()
	isWanted := func(t ToolResult) bool { return t.Tool == tool && strings.Contains(t.Text, text) }
	if !slices.ContainsFunc(results, isWanted) {
		var b strings.Builder
		for _, t := range results {
			fmt.Fprintf(&b, "\n    got:  %s: %q", cmp.Or(t.Tool, t.CallID), t.Text)
		}
		r.wantf("no result of a tool is as it should be%s\n    want: %s: %q", b.String(), tool, text)
	}
	return r
}

// WantHeader checks the value of a header.
func (r *Request) WantHeader(name, value string) *Request {
	r.server.t.Helper()
	if got := r.Header.Get(name); got != value {
		r.wantf("got header %s: %q, want %q", name, got, value)
	}
	return r
}

// WantJSON checks a member of the body as the client sent it. path names it, such as
// "messages[0].content" or "temperature". want is compared as JSON; the untyped nil means that
// there must be no such member.
func (r *Request) WantJSON(path string, want any) *Request {
	r.server.t.Helper()
	got, err := lookupJSON(r.Body, path)
	switch {
	case err != nil && want == nil:
	case err != nil:
		r.wantf("%v\n    body: %s", err, quote(string(r.Body)))
	case want == nil:
		r.wantf("got %s: %s, want none", path, got)
	default:
		b, err := json.Marshal(want)
		if err != nil {
			r.wantf("what is wanted of %s is not JSON: %v", path, err)
		} else if canonicalJSON(got) != canonicalJSON(b) {
			r.wantf("%s differs\n    got:  %s\n    want: %s", path, compactJSON(string(got)), b)
		}
	}
	return r
}

// lookupJSON returns the member of a document that path names.
func lookupJSON(doc []byte, path string) (json.RawMessage, error) {
	at := json.RawMessage(doc)
	for _, name := range strings.FieldsFunc(path, func(c rune) bool { return c == '.' || c == '[' || c == ']' }) {
		if i, err := strconv.Atoi(name); err == nil {
			var list []json.RawMessage
			if json.Unmarshal(at, &list) == nil {
				if i >= len(list) {
					return nil, fmt.Errorf("%s is not there: the list has %s", path, plural(len(list), "element"))
				}
				at = list[i]
				continue
			}
		}
		var object map[string]json.RawMessage
		if err := json.Unmarshal(at, &object); err != nil {
			return nil, fmt.Errorf("%s is not there: nothing can have a member %q but an object", path, name)
		}
		value, ok := object[name]
		if !ok {
			return nil, fmt.Errorf("%s is not there: no member %q", path, name)
		}
		at = value
	}
	return at, nil
}

// canonicalJSON returns doc without white space and with sorted members. It returns doc itself
// if that is not JSON.
func canonicalJSON(doc []byte) string {
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return string(doc)
	}
	b, err := json.Marshal(v)
	if err != nil {
		return string(doc)
	}
	return string(b)
}

// diffLines returns the lines of got and of want, with a sign before those that only one of
// them has. It is a longest common subsequence.
func diffLines(got, want []string) string {
	common := make([][]int, len(got)+1) // common[i][j] is the length for got[i:] and want[j:]
	for i := range common {
		common[i] = make([]int, len(want)+1)
	}
	for i := len(got) - 1; i >= 0; i-- {
		for j := len(want) - 1; j >= 0; j-- {
			if got[i] == want[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	var b strings.Builder
	i, j := 0, 0
	for i < len(got) || j < len(want) {
		switch {
		case i < len(got) && j < len(want) && got[i] == want[j]:
			b.WriteString("      " + got[i] + "\n")
			i, j = i+1, j+1
		case j == len(want) || i < len(got) && common[i+1][j] >= common[i][j+1]:
			b.WriteString("    - " + got[i] + "\n")
			i++
		default:
			b.WriteString("    + " + want[j] + "\n")
			j++
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}
