package main

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/llmhttp/llmhttp"
)

// conversationHeader is how clients of chat completions and of the Messages API, which have no
// member for it, name the conversation of a request. In the Responses API the conversation is that
// of previous_response_id, which package responses sets after the Observer.
const conversationHeader = "X-Conversation-Id"

// observeConversation is an Observer that sets the conversation of a request.
func observeConversation(ctx context.Context, r *http.Request) (context.Context, llmhttp.Observation) {
	if id := r.Header.Get(conversationHeader); len(id) <= 128 {
		llmhttp.SetConversation(ctx, id)
	}
	return ctx, llmhttp.Observation{}
}

// maxSessions bounds the sessions in memory. A host with several processes keeps them in a database.
const maxSessions = 10_000

// sessions are the states of conversations.
type sessions struct {
	mu    sync.Mutex // guards the fields below
	byID  map[sessionID]*session
	order []sessionID // the oldest first
}

// A sessionID has the account, because clients choose the names of their conversations.
type sessionID struct{ account, conversation string }

func newSessions() *sessions { return &sessions{byID: make(map[sessionID]*session)} }

// get returns the session of a request. One without a conversation has a session of its own.
func (s *sessions) get(ctx context.Context) *session {
	info := llmhttp.RequestInfoFrom(ctx)
	if info == nil || info.Conversation == "" {
		return new(session)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	id := sessionID{info.Account, info.Conversation}
	if s.byID[id] == nil {
		if len(s.order) == maxSessions {
			delete(s.byID, s.order[0])
			s.order = s.order[1:]
		}
		s.byID[id], s.order = new(session), append(s.order, id)
	}
	return s.byID[id]
}

// A session is the state of a conversation: what the model has noted.
type session struct {
	mu    sync.Mutex // guards notes: tools run in parallel, and so do requests
	notes []string   // at most maxNotes
}

const maxNotes = 20

func (s *session) note(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notes = append(s.notes[max(0, len(s.notes)-maxNotes+1):], text)
}

// addNotes shows the notes to the model. It changes and returns req.
func (s *session) addNotes(req *llmhttp.ChatRequest) *llmhttp.ChatRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.notes) > 0 {
		text := "Your notes of this conversation:\n- " + strings.Join(s.notes, "\n- ")
		req.Messages = slices.Insert(req.Messages, 0, llmhttp.Message{Role: llmhttp.RoleSystem, Content: llmhttp.Text(text)})
	}
	return req
}
