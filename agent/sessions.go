package agent

import (
	"container/list"
	"context"
	"sync"

	"github.com/llmhttp/llmhttp/internal/callctx"
	"github.com/llmhttp/llmhttp/internal/option"
)

const defaultMaxSessions = 10_000

// Sessions have a state for each conversation, in memory. The zero value is ready to use, and its
// methods may be called concurrently. It must not be copied after the first use. A host with several
// processes keeps states in a database.
//
// The conversation of a request is the Conversation of its [github.com/llmhttp/llmhttp.RequestInfo]. In
// the Responses API it is that of previous_response_id, from the first response on, if responses are
// stored. For the other formats see [github.com/llmhttp/llmhttp.ConversationHeader].
type Sessions[T any] struct {
	// Max is how many conversations have a state. The one that was not used for the longest time
	// then loses its state to a new one. Zero means 10,000; negative means no limit. It must not be
	// changed after the first use.
	Max int

	mu     sync.Mutex // guards the fields below
	states map[sessionID]*list.Element
	used   list.List // of *session[T], the latest first
}

// A sessionID has the account, because clients choose the names of their conversations.
type sessionID struct{ account, conversation string }

type session[T any] struct {
	id    sessionID
	state T
}

// Get returns the state of the conversation of a request, which begins as the zero T. Conversations
// of different accounts are different ones, whatever their IDs are. A request without a
// conversation, and a ctx that is not that of a request, gets a state that is not kept. T must be
// safe for concurrent use, if only because tools run in parallel.
func (s *Sessions[T]) Get(ctx context.Context) *T {
	account, conversation := callctx.Conversation(ctx)
	if conversation == "" {
		return new(T)
	}
	id := sessionID{account, conversation}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.states[id]; e != nil {
		s.used.MoveToFront(e)
		return &e.Value.(*session[T]).state
	}
	if s.used.Len() >= option.Bound(s.Max, defaultMaxSessions) {
		delete(s.states, s.used.Remove(s.used.Back()).(*session[T]).id)
	}
	if s.states == nil {
		s.states = make(map[sessionID]*list.Element)
	}
	state := &session[T]{id: id}
	s.states[id] = s.used.PushFront(state)
	return &state.state
}
