package llmhttp_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/llmhttp/llmhttp/internal/jsontest"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
)

// This file reads replies as strictly as the strictest client. It shares no code with
// the Handler.

// chatParams are the parameters of a chat that decide the form of its reply.
type chatParams struct {
	stream, usage bool // usage asks for the usage of a stream
	n             int  // the number of choices; zero means one
}

func (p chatParams) body() string {
	return fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":"hi"}],"n":%d,"stream":%t,"stream_options":{"include_usage":%t}}`,
		max(p.n, 1), p.stream, p.usage)
}

// A chatReply is what a client assembles from a stream, or reads from a whole reply.
type chatReply struct {
	ID, Model string
	Created   int64
	Choices   map[int]*chatMessage
	Usage     string // as JSON

	raw      string // the bytes of the reply
	comments int    // of a stream
	chunks   int    // of a stream, without that of the usage
}

type chatMessage struct {
	Content, Reasoning, Finish string
	Calls                      []toolCall
}

type toolCall struct{ ID, Type, Name, Arguments string }

// streamChat asks b for a stream, requires that it is valid and complete, and returns
// the reply it makes.
func streamChat(t testing.TB, b llmhttp.Backend, p chatParams) *chatReply {
	t.Helper()
	return streamFrom(t, llmhttp.NewHandler(b, keysFor(testKey()), nil), p)
}

// streamFrom is streamChat with a Handler.
func streamFrom(t testing.TB, h http.Handler, p chatParams) *chatReply {
	t.Helper()
	p.stream = true
	w := httptest.NewRecorder()
	cut := serve(h, w, p.body())
	require.Equal(t, http.StatusOK, w.Code, "%s", w.Body)
	require.False(t, cut, "the connection was cut: %s", w.Body)
	return checkStream(t, w.Body.String(), p)
}

// wholeChat asks b for a whole reply.
func wholeChat(t testing.TB, b llmhttp.Backend, p chatParams) *chatReply {
	t.Helper()
	return wholeFrom(t, llmhttp.NewHandler(b, keysFor(testKey()), nil), p)
}

// wholeFrom is wholeChat with a Handler.
func wholeFrom(t testing.TB, h http.Handler, p chatParams) *chatReply {
	t.Helper()
	w := httptest.NewRecorder()
	cut := serve(h, w, p.body())
	require.Equal(t, http.StatusOK, w.Code, "%s", w.Body)
	require.False(t, cut, "the connection was cut")
	return parseWhole(t, w.Body.String())
}

// checkStream requires that a stream is a valid and complete reply to a request with
// parameters p, and returns the reply.
func checkStream(t testing.TB, stream string, p chatParams) *chatReply {
	t.Helper()
	r, err := readStream(stream, p)
	require.NoError(t, err, "%s", shorten(stream))
	return r
}

// shorten cuts the middle out of a long text.
func shorten(s string) string {
	if len(s) > 4000 {
		return s[:2000] + "\n...\n" + s[len(s)-2000:]
	}
	return s
}

// splitEvents returns the data of each event of a stream, and the number of its
// comments. A stream may have only two kinds of lines: data, followed by an empty
// line, and the comment of a keep-alive, which is followed by none.
func splitEvents(stream string) (events []string, comments int, err error) {
	if strings.ContainsAny(stream, "\r\u0085\u2028\u2029") {
		return nil, 0, errors.New("a character that some readers take for the end of a line")
	}
	if !utf8.ValidString(stream) {
		return nil, 0, errors.New("invalid UTF-8")
	}
	for rest := stream; rest != ""; {
		line, after, ok := strings.Cut(rest, "\n")
		if !ok {
			return events, comments, fmt.Errorf("the last line %q has no end", line)
		}
		rest = after
		if line == ": keep-alive" {
			comments++
			continue
		}
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok || data == "" {
			return events, comments, fmt.Errorf("line %q", line)
		}
		if rest, ok = strings.CutPrefix(rest, "\n"); !ok {
			return events, comments, fmt.Errorf("no empty line after %q", line)
		}
		events = append(events, data)
	}
	return events, comments, nil
}

// readStream reads a stream and checks every rule of the format.
func readStream(stream string, p chatParams) (*chatReply, error) {
	events, comments, err := splitEvents(stream)
	if err != nil {
		return nil, err
	}
	if len(events) == 0 || events[len(events)-1] != "[DONE]" {
		return nil, errors.New("no [DONE] at the end")
	}
	r := streamReader{
		params: p,
		reply:  &chatReply{Choices: map[int]*chatMessage{}, raw: stream, comments: comments},
		ended:  map[int]bool{},
	}
	for i, data := range events[:len(events)-1] {
		if err := r.event(data, i == 0); err != nil {
			return nil, fmt.Errorf("event %d, %s: %w", i, shorten(data), err)
		}
	}
	switch {
	case len(r.ended) != len(r.reply.Choices):
		return nil, fmt.Errorf("%d of %d choices have ended", len(r.ended), len(r.reply.Choices))
	case r.reply.Choices[0] == nil:
		return nil, errors.New("no choice 0")
	case p.usage != (r.reply.Usage != ""):
		return nil, fmt.Errorf("usage %q", r.reply.Usage)
	}
	return r.reply, nil
}

// A streamReader reads the events of a stream.
type streamReader struct {
	params chatParams
	reply  *chatReply
	ended  map[int]bool // the choices that have ended
}

// An object is a JSON object.
type object map[string]json.RawMessage

func (r *streamReader) event(data string, first bool) error {
	if !jsontest.IsStrict(data) {
		return errors.New("not strictly JSON")
	}
	if !strings.HasPrefix(data, `{"id":"`) {
		return errors.New("does not begin with id")
	}
	var members object
	var chunk struct {
		ID, Object, Model string
		Created           int64
	}
	if err := errors.Join(json.Unmarshal([]byte(data), &members), json.Unmarshal([]byte(data), &chunk)); err != nil {
		return err
	}
	switch {
	case members["error"] != nil:
		return errors.New("an error member")
	case chunk.Object != "chat.completion.chunk":
		return fmt.Errorf("object %q", chunk.Object)
	case chunk.ID == "" || chunk.Created == 0 || chunk.Model == "":
		return errors.New("no id, created or model")
	case first:
		r.reply.ID, r.reply.Model, r.reply.Created = chunk.ID, chunk.Model, chunk.Created
	case r.reply.ID != chunk.ID || r.reply.Model != chunk.Model || r.reply.Created != chunk.Created:
		return errors.New("another id, model or created")
	}
	if r.reply.Usage != "" {
		return errors.New("follows the usage")
	}
	var choices []object
	if err := json.Unmarshal(members["choices"], &choices); err != nil || choices == nil {
		return fmt.Errorf("choices %s: %v", members["choices"], err)
	}
	if u := string(members["usage"]); u != "" && u != "null" {
		return r.usage(u, len(choices))
	}
	if len(choices) == 0 {
		return errors.New("no choices")
	}
	r.reply.chunks++
	for _, c := range choices {
		if err := r.choice(c, first); err != nil {
			return err
		}
	}
	return nil
}

// usage reads the chunk of the usage, which has no choices and follows all others.
func (r *streamReader) usage(u string, choices int) error {
	switch {
	case !r.params.usage:
		return errors.New("usage that was not asked for")
	case choices > 0:
		return errors.New("usage beside choices")
	case len(r.ended) == 0 || len(r.ended) != len(r.reply.Choices):
		return errors.New("usage before the end")
	}
	r.reply.Usage = u
	return nil
}

func (r *streamReader) choice(c object, first bool) error {
	var index *int
	var reason *string
	var delta object
	if err := json.Unmarshal(c["index"], &index); err != nil || index == nil || *index < 0 || *index >= max(r.params.n, 1) {
		return fmt.Errorf("index %s: %v", c["index"], err)
	}
	if first && *index != 0 {
		return fmt.Errorf("the first choice is %d", *index)
	}
	if c["finish_reason"] == nil {
		return errors.New("no finish_reason")
	}
	if err := json.Unmarshal(c["finish_reason"], &reason); err != nil || (reason != nil && *reason == "") {
		return fmt.Errorf("finish_reason %s: %v", c["finish_reason"], err)
	}
	if err := json.Unmarshal(c["delta"], &delta); err != nil || delta == nil {
		return fmt.Errorf("delta %s: %v", c["delta"], err)
	}
	m := r.reply.Choices[*index]
	switch {
	case r.ended[*index]:
		return errors.New("follows the end of its choice")
	case m == nil:
		r.reply.Choices[*index] = new(chatMessage)
		names := slices.Sorted(maps.Keys(c))
		if reason != nil || string(c["delta"]) != `{"role":"assistant","content":""}` || !slices.Equal(names, []string{"delta", "finish_reason", "index"}) {
			return errors.New("a choice must begin with its role alone")
		}
	case reason != nil:
		r.ended[*index] = true
		m.Finish = *reason
		if string(c["delta"]) != `{"content":null}` {
			return errors.New("the end of a choice must have no other content")
		}
	default:
		return m.add(delta)
	}
	return nil
}

// add adds a delta to m.
func (m *chatMessage) add(delta object) error {
	if delta["role"] != nil {
		return errors.New("the role is repeated")
	}
	for name, to := range map[string]*string{"content": &m.Content, "reasoning_content": &m.Reasoning} {
		raw, ok := delta[name]
		if !ok {
			continue
		}
		var s *string
		if err := json.Unmarshal(raw, &s); err != nil || s == nil || *s == "" {
			return fmt.Errorf("%s is %s: %v", name, raw, err)
		}
		*to += *s
	}
	raw, ok := delta["tool_calls"]
	if !ok {
		return nil
	}
	var calls []toolCallDelta
	if err := json.Unmarshal(raw, &calls); err != nil || len(calls) == 0 {
		return fmt.Errorf("tool_calls %s: %v", raw, err)
	}
	for _, c := range calls {
		if err := m.addCall(c); err != nil {
			return err
		}
	}
	return nil
}

type toolCallDelta struct {
	Index    *int
	ID, Type *string
	Function *struct{ Name, Arguments *string }
}

// addCall adds a part of a tool call. The first part of a call has its ID, type and
// name, which no later part repeats.
func (m *chatMessage) addCall(c toolCallDelta) error {
	if c.Index == nil || *c.Index < 0 || *c.Index > len(m.Calls) {
		return errors.New("the index of a tool call is not the next")
	}
	var name, arguments *string
	if c.Function != nil {
		name, arguments = c.Function.Name, c.Function.Arguments
	}
	if *c.Index == len(m.Calls) {
		switch {
		case c.ID == nil || *c.ID == "" || c.Type == nil || *c.Type == "":
			return errors.New("a tool call without id or type")
		case slices.ContainsFunc(m.Calls, func(other toolCall) bool { return other.ID == *c.ID }):
			return errors.New("two tool calls with one id")
		case *c.Type == "function" && c.Function == nil:
			return errors.New("a tool call without function")
		}
		call := toolCall{ID: *c.ID, Type: *c.Type}
		if name != nil {
			call.Name = *name
		}
		m.Calls = append(m.Calls, call)
	} else {
		switch {
		case c.ID != nil:
			return errors.New("the id of a tool call is repeated")
		case c.Type != nil && (*c.Type == "function" || *c.Type != m.Calls[*c.Index].Type):
			return errors.New("the type of a tool call is repeated")
		case name != nil:
			return errors.New("the name of a tool call is repeated")
		}
	}
	if arguments != nil {
		m.Calls[*c.Index].Arguments += *arguments
	}
	return nil
}

// parseWhole reads a whole reply.
func parseWhole(t testing.TB, body string) *chatReply {
	t.Helper()
	require.True(t, jsontest.IsStrict(body), "not strictly JSON: %s", shorten(body))
	var doc struct {
		ID, Object, Model string
		Created           int64
		Usage             json.RawMessage
		Choices           []struct {
			Index        int
			FinishReason string `json:"finish_reason"`
			Message      struct {
				Role, Content string
				Reasoning     string `json:"reasoning_content"`
				ToolCalls     []struct {
					ID, Type string
					Function struct{ Name, Arguments string }
				} `json:"tool_calls"`
			}
		}
	}
	require.NoError(t, json.Unmarshal([]byte(body), &doc), "%s", shorten(body))
	r := &chatReply{ID: doc.ID, Model: doc.Model, Created: doc.Created, Usage: string(doc.Usage), Choices: map[int]*chatMessage{}, raw: body}
	for _, c := range doc.Choices {
		m := &chatMessage{Content: c.Message.Content, Reasoning: c.Message.Reasoning, Finish: c.FinishReason}
		for _, call := range c.Message.ToolCalls {
			m.Calls = append(m.Calls, toolCall{call.ID, call.Type, call.Function.Name, call.Function.Arguments})
		}
		require.Equal(t, "assistant", c.Message.Role)
		require.Nil(t, r.Choices[c.Index], "choice %d comes twice", c.Index)
		r.Choices[c.Index] = m
	}
	return r
}

// randomID matches the IDs that the Handler makes.
var randomID = regexp.MustCompile(`(call_|chatcmpl-|resp_|msg_|rs_|fc_|ctc_)[0-9a-f]{32}`)

// hideIDs replaces the random part of IDs.
func hideIDs(s string) string {
	return randomID.ReplaceAllString(s, "${1}00000000000000000000000000000000")
}

// withoutIDs returns r without its bytes, and with the random part of IDs replaced, so
// that two replies can be compared.
func (r *chatReply) withoutIDs() *chatReply {
	c := *r
	c.ID, c.raw, c.comments, c.chunks = hideIDs(r.ID), "", 0, 0
	c.Choices = map[int]*chatMessage{}
	for i, m := range r.Choices {
		n := *m
		n.Calls = slices.Clone(m.Calls)
		for j := range n.Calls {
			n.Calls[j].ID = hideIDs(n.Calls[j].ID)
		}
		c.Choices[i] = &n
	}
	return &c
}
