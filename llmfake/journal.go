// The list of requests. What a test asserts is in it before the client can know it: the status is
// noted before it is written.

package llmfake

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

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
		s.t.Fatalf(
			"llmfake: there is no request with index %d, because %s arrived%s",
			i,
			plural(len(requests), "request"),
			listOutcomes(requests),
		)
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

// listOutcomes lists requests for an error message, each on a line of its own.
func listOutcomes(requests []*Request) string {
	var b strings.Builder
	for _, r := range requests {
		b.WriteString("\n    " + r.outcome())
	}
	return b.String()
}

// addRequest adds a request to the journal.
func (s *Server) addRequest(r *http.Request, body []byte) *Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	req := &Request{
		Number: len(s.journal) + 1, Time: time.Now(), Method: r.Method, Path: r.URL.RequestURI(),
		Header: r.Header.Clone(), Body: body, Protocol: protocolOf(r.URL.Path), server: s,
	}
	s.journal = append(s.journal, req)
	s.signalLocked()
	return req
}

// noteError describes the error that a request got from the Handler, if it got no reply of the
// test.
func (s *Server) noteError(r *Request, body []byte) {
	var reply struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	json.Unmarshal(body, &reply) // a body that is not JSON has no message
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Reply == "" {
		r.Reply = "an error: " + quote(reply.Error.Message)
	}
}

func (s *Server) endRequest(r *Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.Ended = true
	s.signalLocked()
}
