// Which request gets which Reply.

package llmfake

import (
	"fmt"
	"net/http"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

// A Rule gives replies to the requests that its Matchers select. [Server.When] returns one.
type Rule struct {
	server   *Server
	matchers []Matcher
	place    string // where the test has made the rule

	// The mutex of the Server guards the fields below.
	replies []placedReply // each is given once
	given   []string      // descriptions of the replies that were given, with their requests
	always  *Reply        // given when replies is empty; nil if none is
}

// A placedReply is a Reply and the place in the test where it was set.
type placedReply struct {
	Reply
	place string
}

// Reply adds replies for chat requests that no [Rule] serves. They are given in order, each
// once. A reply that no request has got when the test ends fails the test.
func (s *Server) Reply(replies ...Reply) { s.add(&s.queue, replies, caller(1)) }

// Always sets the reply for all chat requests that nothing else serves, any number of times.
// Always(Simulate()) returns to the simulated model.
func (s *Server) Always(r Reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scripted = true
	s.queue.always = &r
}

// When returns a Rule for the requests that all of the matchers select. Its methods Reply and
// Always say how it replies. A Rule without a reply fails the test when it ends.
//
// The Rules of a Server are tried in the order in which they were made. A Rule that has no
// reply left is skipped. Requests that no Rule serves get the replies of [Server.Reply] and
// [Server.Always].
//
//	srv.When(llmfake.UserText("weather"), llmfake.Turn(1)).Reply(llmfake.Call("forecast", args))
//	srv.When(llmfake.HasToolResult("forecast", "")).Always(llmfake.Text("Take an umbrella."))
//
// Requests that are not for chats are served by the simulated model unless a Rule has the Matcher
// of their operation, such as [Embeddings].
func (s *Server) When(matchers ...Matcher) *Rule {
	rule := &Rule{server: s, matchers: matchers, place: caller(1)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = append(s.rules, rule)
	return rule
}

// Reply adds replies, which are given in order, each once. A reply that no request has got when
// the test ends fails the test.
func (r *Rule) Reply(replies ...Reply) *Rule {
	r.server.add(r, replies, caller(1))
	return r
}

// Always sets the reply after those of Reply, any number of times.
func (r *Rule) Always(reply Reply) {
	r.server.mu.Lock()
	defer r.server.mu.Unlock()
	if !r.isForOther() {
		r.server.scripted = true
	}
	r.always = &reply
}

func (s *Server) add(r *Rule, replies []Reply, place string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addLocked(r, replies, place)
}

func (s *Server) addLocked(r *Rule, replies []Reply, place string) {
	if !r.isForOther() {
		s.scripted = true
	}
	for _, reply := range replies {
		r.replies = append(r.replies, placedReply{reply, place})
	}
}

// caller returns the place of the test that called an exported function of this package. skip
// is the number of functions between them and caller.
func caller(skip int) string {
	_, file, line, ok := runtime.Caller(skip + 1)
	if !ok {
		return "an unknown place"
	}
	return fmt.Sprintf("%s:%d", filepath.Base(file), line)
}

// isForOther reports whether the rule is for an operation other than chat.
func (r *Rule) isForOther() bool {
	for _, m := range r.matchers {
		if m.operation != "" {
			return true
		}
	}
	return false
}

// selects reports whether the rule is for a request.
func (r *Rule) selects(req *Request) bool {
	if req.Operation != llmhttp.OperationChat && !r.isForOther() {
		return false
	}
	for _, m := range r.matchers {
		if !m.match(req) {
			return false
		}
	}
	return true
}

// takeLocked returns the next reply of the rule.
func (r *Rule) takeLocked(req *Request) (Reply, bool) {
	if len(r.replies) > 0 {
		reply := r.replies[0]
		r.replies = r.replies[1:]
		r.given = append(r.given, fmt.Sprintf("%s to request %d", reply.String(), req.Number))
		return reply.Reply, true
	}
	if r.always != nil {
		return *r.always, true
	}
	return Reply{}, false
}

// String returns the rule as in Go code.
func (r *Rule) String() string {
	texts := make([]string, len(r.matchers))
	for i, m := range r.matchers {
		texts[i] = m.text
	}
	return "When(" + strings.Join(texts, ", ") + ")"
}

// choose returns the reply to a request. req is a copy that does not change, so that Matchers
// are called without the lock; s.rules only grows.
func (s *Server) choose(req *Request) (Reply, error) {
	s.mu.Lock()
	rules := s.rules
	s.mu.Unlock()
	for _, rule := range rules {
		selected := false
		if !s.try(rule.String(), func() { selected = rule.selects(req) }) {
			return Reply{}, errFunctionPanicked
		}
		if !selected {
			continue
		}
		s.mu.Lock()
		reply, ok := rule.takeLocked(req)
		s.mu.Unlock()
		if ok {
			return reply, nil
		}
	}
	if req.Operation != llmhttp.OperationChat {
		return Simulate(), nil
	}
	s.mu.Lock()
	reply, ok := s.queue.takeLocked(req)
	scripted := s.scripted
	s.mu.Unlock()
	switch {
	case ok:
		return reply, nil
	case !scripted:
		return Simulate(), nil
	}
	s.errorf("%s", s.unexpected(req))
	e := llm.Errorf(
		http.StatusBadRequest,
		"llmfake_unexpected_request",
		"llmfake: the test has no reply for this request. See its log for what it expects.",
	)
	e.NoRetry = true
	return Reply{}, e
}

// unexpected describes a request for which there is no reply, and what was expected.
func (s *Server) unexpected(req *Request) string {
	s.mu.Lock()
	rules, queued := s.rules, s.queue.given
	given := make([][]string, len(rules))
	for i, rule := range rules {
		given[i] = rule.given
	}
	s.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "unexpected %s", req)
	switch {
	case len(queued) > 0:
		fmt.Fprintf(&b, "\n    the replies for any request were given: %s", strings.Join(queued, ", "))
	case len(rules) == 0:
		b.WriteString("\n    no reply is set")
	}
	for i, rule := range rules {
		fmt.Fprintf(&b, "\n    %s at %s: %s", rule, rule.place, rule.refusal(req, given[i]))
	}
	return b.String()
}

// refusal tells why the rule has no reply for a request. given are descriptions of its replies.
func (r *Rule) refusal(req *Request, given []string) string {
	if req.Operation != llmhttp.OperationChat && !r.isForOther() {
		return "is for chats"
	}
	var differences []string
	for _, m := range r.matchers {
		if m.match(req) {
			continue
		}
		if m.got == nil {
			differences = append(differences, m.text+" is false")
		} else {
			differences = append(differences, m.text+" got "+m.got(req))
		}
	}
	switch {
	case differences != nil:
		return strings.Join(differences, "; ")
	case len(given) > 0:
		return "all of its replies were given: " + strings.Join(given, ", ")
	}
	return "it has no reply; call its method Reply or Always"
}

// LeftOver describes the replies that were set and that no request has got. It returns "" if there
// are none.
func (s *Server) LeftOver() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var left []string
	add := func(who string, replies []placedReply) {
		for _, reply := range replies {
			left = append(left, fmt.Sprintf("\n    %s%s, set at %s", who, reply.String(), reply.place))
		}
	}
	for _, rule := range s.rules {
		add(rule.String()+": ", rule.replies)
		if len(rule.replies)+len(rule.given) == 0 && rule.always == nil {
			left = append(left, fmt.Sprintf("\n    %s at %s has no reply; call its method Reply or Always", rule, rule.place))
		}
	}
	add("", s.queue.replies)
	if left == nil {
		return ""
	}
	verb := "were"
	if len(left) == 1 {
		verb = "was"
	}
	arrived := "\n  no request arrived"
	if len(s.journal) > 0 {
		arrived = "\n  requests that arrived:" + listOutcomes(s.journal)
	}
	reply := plural(len(left), "reply")
	if len(left) != 1 {
		reply = fmt.Sprintf("%d replies", len(left))
	}
	return fmt.Sprintf("%s %s not asked for:%s%s", reply, verb, strings.Join(left, ""), arrived)
}
