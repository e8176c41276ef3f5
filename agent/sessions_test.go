package agent_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/agent"
	"github.com/llmhttp/llmhttp/llm"
)

// newCounter returns a Handler whose replies are the number of the request in its conversation.
// A key is the name of its account.
func newCounter(sessions *agent.Sessions[counter]) *llmhttp.Handler {
	b := llmhttp.BackendFunc(func(ctx context.Context, _ *llm.ChatRequest) llm.ChatStream {
		return llm.Reply(fmt.Sprint(sessions.Get(ctx).next()))
	})
	keys := llmhttp.KeyStoreFunc(func(_ context.Context, secret string) (*llmhttp.Key, error) {
		return &llmhttp.Key{ID: "key", Account: secret}, nil
	})
	return llmhttp.NewHandler(b, keys, &llmhttp.Options{Observe: llmhttp.ConversationHeader("X-Conversation-Id")})
}

func TestSessions(t *testing.T) {
	sessions := &agent.Sessions[counter]{Max: 2}
	h := newCounter(sessions)
	for i, step := range []struct{ account, conversation, want string }{
		{"ada", "trip", "1"},
		{"ada", "trip", "2"},
		{"bob", "trip", "1"}, // the conversation of another account
		{"ada", "", "1"},     // no conversation, so nothing is kept
		{"ada", "", "1"},
		{"ada", strings.Repeat("x", 129), "1"}, // too long for one
		{"ada", "trip", "3"},
		{"ada", "work", "1"}, // replaces that of bob, which was not used for the longest time
		{"ada", "trip", "4"},
		{"bob", "trip", "1"},
		{"ada", "work", "1"},
	} {
		assert.Equal(t, step.want, post(h, step.account, step.conversation), i)
	}
	assert.Equal(t, int32(1), sessions.Get(t.Context()).next(), "not the context of a request")
}

// By default many conversations are kept, and a negative Max keeps all of them.
func TestSessions_Max(t *testing.T) {
	for _, most := range []int{0, -1} {
		h := newCounter(&agent.Sessions[counter]{Max: most})
		for i := range 100 {
			assert.Equal(t, "1", post(h, "ada", fmt.Sprint("c", i)))
		}
		assert.Equal(t, "2", post(h, "ada", "c0"))
	}
}

func TestSessions_Concurrent(t *testing.T) {
	h := newCounter(&agent.Sessions[counter]{Max: 1})
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { post(h, "ada", "trip") })
		wg.Go(func() { post(h, "bob", "trip") })
	}
	wg.Wait()
}
