// The server.

package cachetest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// A Server is an http.Handler for the model. Its zero value has nothing in its cache.
type Server struct {
	// Tool is called in the first Calls turns of a conversation that offers it. Input returns the JSON of the input of the
	// call of a turn, the first of which is 0. The other turns, and other conversations, get a text.
	Tool  string
	Calls int
	Input func(turn int) string

	// Automatic makes the server cache every prompt, as OpenAI's and vLLM do, and refuse marks, as some do.
	Automatic bool

	cache   cache
	replies atomic.Int64

	mu    sync.Mutex // guards the fields below
	turns []Tokens
	marks int
}

// Turns returns the tokens of the turns that offered the tool so far.
func (s *Server) Turns() []Tokens {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.turns)
}

// Total returns the sum of Turns.
func (s *Server) Total() (sum Tokens) {
	for _, t := range s.Turns() {
		sum.add(&t)
	}
	return sum
}

// Marks returns how many marks the requests of these turns had.
func (s *Server) Marks() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.marks
}

// A request has what the model gets of one.
type request struct {
	model   string
	stream  bool
	tools   []string
	results int // of tools
	prompt  []block
	marks   int
}

// add adds a block with a label and texts, and a mark if that is not nil.
func (r *request) add(mark json.RawMessage, label string, texts ...string) {
	content := strings.Join(texts, "")
	b := block{text: label + "\x00" + content, isEmpty: content == ""}
	if mark != nil {
		known := struct{ TTL string }{"5m"}
		if err := json.Unmarshal(mark, &known); err != nil {
			known.TTL = string(mark)
		}
		b.mark = known.TTL
		r.marks++
	}
	r.prompt = append(r.prompt, b)
}

// A call is one of a tool.
type call struct{ id, name, input string }

// ServeHTTP serves chat completions at paths that end in /chat/completions, and Messages at those that end in /messages.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	decode, reply := ofMessages, messagesReply
	switch {
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/messages"):
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/chat/completions"):
		decode, reply = ofChat, chatReply
	default:
		http.NotFound(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	req, err := decode(body)
	var t Tokens
	if err == nil {
		t, err = s.cache.read(req.prompt, s.Automatic)
	}
	if err != nil {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"type":"error","error":{"type":"invalid_request_error","message":%s}}`, quote(err.Error()))
		return
	}
	id, text := fmt.Sprintf("%d", s.replies.Add(1)), "Done."
	var c *call
	t.Completion = tokens(text)
	if slices.Contains(req.tools, s.Tool) {
		if req.results < s.Calls {
			c = &call{"call_" + id, s.Tool, s.Input(req.results)}
			t.Completion = tokens(c.input)
		}
		s.record(&req, t)
	}
	w.Header().Set("Content-Type", "application/json")
	if req.stream {
		w.Header().Set("Content-Type", "text/event-stream")
	}
	io.WriteString(w, reply(&req, id, c, text, &t))
}

func (s *Server) record(r *request, t Tokens) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turns = append(s.turns, t)
	s.marks += r.marks
}
