// Calls that a person must consent to: by the next message of a conversation, or by a tool of the client.

package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/agent"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/responses"
)

// An agent asks before it deletes a file, and goes on when the user has answered.
func ExampleConsent() {
	deletes := agent.Tool{Function: llm.Function{Name: "delete"}, Run: func(context.Context, string) (llm.Message, error) {
		return agent.Result("a.txt is gone"), nil
	}}
	m := &memory.Backend{Script: func(req *llm.ChatRequest) []memory.Step {
		if last := req.Messages[len(req.Messages)-1]; last.Role == llm.RoleTool {
			return []memory.Step{memory.Say("Done: " + last.Content.Text() + ".")}
		}
		return []memory.Step{memory.Call("c1", "delete", `{"file":"a.txt"}`)}
	}}
	b := agent.New(m, func(context.Context) ([]agent.Tool, error) { return []agent.Tool{deletes}, nil }, &agent.Options{
		Consent: &agent.Consent{Question: func(call llm.ToolCall) string {
			return "May I call " + call.Function.Name + " with " + call.Function.Arguments + "?"
		}},
	})
	h := llmhttp.NewHandler(b, llmhttp.AllowAll(""), &llmhttp.Options{Observe: llmhttp.ConversationHeader("X-Conversation-Id")})
	question := postChat(h, "", "trip", `{"role":"user","content":"Clean up."}`)
	fmt.Println(question)
	fmt.Println(postChat(h, "", "trip", `{"role":"user","content":"Clean up."},{"role":"assistant","content":"May I ...?"},{"role":"user","content":"Yes!"}`))
	// Output:
	// May I call delete with {"file":"a.txt"}?
	// Done: a.txt is gone.
}

// postChat sends messages in a conversation, and returns the text of the reply.
func postChat(h http.Handler, key, conversation, messages string) string {
	reply := postBody(h, key, conversation, `{"model":"m","messages":[`+messages+`]}`)
	if reply == nil {
		return ""
	}
	return reply.Choices[0].Message.Content.Text()
}

func postBody(h http.Handler, key, conversation, body string) *llm.ChatResponse {
	r := httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+key)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Conversation-Id", conversation)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	reply := new(llm.ChatResponse)
	if json.Unmarshal(w.Body.Bytes(), reply) != nil || len(reply.Choices) == 0 {
		return nil
	}
	return reply
}

// A consentHost has an agent with the tools delete, which needs consent, and look, which does not.
type consentHost struct {
	*llmhttp.Handler
	model   *script
	deleted atomic.Int32
}

func newConsentHost(consent agent.Consent, replies ...[]memory.Step) *consentHost {
	h := &consentHost{model: model(replies...)}
	deletes := agent.Tool{Function: llm.Function{Name: "delete"}, Run: func(_ context.Context, arguments string) (llm.Message, error) {
		h.deleted.Add(1)
		return agent.Result("deleted " + arguments), nil
	}}
	consent.Question = func(call llm.ToolCall) string {
		if call.Function.Name == "look" {
			return ""
		}
		return "May I " + call.Function.Name + " " + call.Function.Arguments + "?"
	}
	b := agent.New(h.model, tools(deletes, look), &agent.Options{Consent: &consent, Progress: func(call llm.ToolCall) string { return call.Function.Name + "\n" }})
	keys := llmhttp.KeyStoreFunc(func(_ context.Context, secret string) (*llmhttp.Key, error) {
		return &llmhttp.Key{ID: secret, Account: secret}, nil
	})
	h.Handler = llmhttp.NewHandler(b, keys, &llmhttp.Options{
		Observe:   llmhttp.ConversationHeader("X-Conversation-Id"),
		Protocols: []llmhttp.Protocol{responses.New(&responses.Options{Store: memory.NewResponseStore()})},
	})
	return h
}

// results returns what the model was told in its nth request.
func (h *consentHost) results(n int) (texts []string) {
	for _, m := range h.model.requests[n].Messages {
		if m.Role == llm.RoleTool {
			texts = append(texts, fmt.Sprint(m.ToolCallID, " ", m.Content.Text(), " ", m.IsError))
		}
	}
	return texts
}

var (
	callDelete = []memory.Step{memory.Say("I clean up."), memory.Call("c1", "look", "{}"), memory.Call("c2", "delete", `"a"`), memory.Finish(llm.FinishToolCalls)}
	cleanUp    = `{"role":"user","content":"Clean up."}`
	asked      = cleanUp + `,{"role":"assistant","content":"May I delete?"},`
)

func TestConsent(t *testing.T) {
	for name, test := range map[string]struct {
		consent agent.Consent
		answer  string
		want    []string
		deleted int32
	}{
		"yes":            {answer: "Yes.", want: []string{"c1 found {} false", `c2 deleted "a" false`}, deleted: 1},
		"ok":             {answer: " OK ", want: []string{"c1 found {} false", `c2 deleted "a" false`}, deleted: 1},
		"no":             {answer: "no", want: []string{"c1 found {} false", "c2 The user was asked and has not consented. The answer was: no true"}},
		"something else": {answer: "Yesterday?", want: []string{"c1 found {} false", "c2 The user was asked and has not consented. The answer was: Yesterday? true"}},
		"of the host": {
			consent: agent.Consent{Granted: func(answer string) bool { return answer == "ja" }},
			answer:  "ja", want: []string{"c1 found {} false", `c2 deleted "a" false`}, deleted: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newConsentHost(test.consent, callLook, callDelete, answer)
			reply := postBody(h, "ada", "trip", `{"model":"m","messages":[`+cleanUp+`]}`)
			choice := reply.Choices[0]
			assert.Equal(t, "I clean up.\n\nMay I delete \"a\"?", choice.Message.Content.Text())
			assert.Equal(t, llm.FinishStop, choice.FinishReason)
			assert.Empty(t, choice.Message.ToolCalls)
			assert.Equal(t, 30, reply.Usage.TotalTokens, "what was used is told")
			assert.Zero(t, h.deleted.Load())

			assert.Equal(t, "Done.", postChat(h, "ada", "trip", asked+`{"role":"user","content":"`+test.answer+`"}`))
			assert.Equal(t, test.deleted, h.deleted.Load())
			require.Len(t, h.model.requests, 3)
			messages := h.model.requests[2].Messages
			assert.Equal(t, []llm.Role{"user", "assistant", "user", "assistant", "tool", "assistant", "tool", "tool"}, roles(messages), "the turn before is there too")
			assert.Equal(t, append([]string{`c1 found {"a":1} false`}, test.want...), h.results(2))
		})
	}
}

func roles(messages []llm.Message) (roles []llm.Role) {
	for _, m := range messages {
		roles = append(roles, m.Role)
	}
	return roles
}

// Only what goes on after the question answers it, once, and only in its conversation.
func TestConsent_Answers(t *testing.T) {
	h := newConsentHost(agent.Consent{}, callDelete, answer)
	yes := asked + `{"role":"user","content":"yes"}`
	ask := func() {
		h.model.requests = nil
		require.Contains(t, postChat(h, "ada", "trip", cleanUp), "May I")
	}
	ask()
	for name, chat := range map[string][3]string{
		"another account":         {"bob", "trip", yes},
		"another conversation":    {"ada", "work", yes},
		"no conversation":         {"ada", "", yes},
		"a request of its length": {"ada", "trip", `{"role":"user","content":"yes"}`},
		"no user":                 {"ada", "trip", asked + `{"role":"assistant","content":"yes"}`},
	} {
		assert.Equal(t, "Done.", postChat(h, chat[0], chat[1], chat[2]), name)
		assert.Zero(t, h.deleted.Load(), name)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { postChat(h, "ada", "trip", yes) })
	}
	all.Wait()
	assert.Equal(t, int32(1), h.deleted.Load(), "once")

	// The same question again asks again.
	ask()
	ask()
	postChat(h, "ada", "trip", yes)
	assert.Equal(t, int32(2), h.deleted.Load())
}

// Without a conversation nobody can be asked: the model is told.
func TestConsent_NoConversation(t *testing.T) {
	h := newConsentHost(agent.Consent{}, callDelete, answer)
	assert.Equal(t, "I clean up.Done.", postChat(h, "ada", "", cleanUp))
	assert.Equal(t, []string{"c1 found {} false", "c2 This needs the consent of the user, who cannot be asked here. true"}, h.results(1))
	assert.Zero(t, h.deleted.Load())
}

// A client that has a tool for questions gets a call of it.
func TestConsent_Tool(t *testing.T) {
	const withTool = `],"tools":[{"type":"function","function":{"name":"ask_user"}}]}`
	h := newConsentHost(agent.Consent{Tool: "ask_user"}, callDelete, answer)
	choice := postBody(h, "ada", "trip", `{"model":"m","messages":[`+cleanUp+withTool).Choices[0]
	assert.Equal(t, llm.FinishToolCalls, choice.FinishReason)
	require.Len(t, choice.Message.ToolCalls, 1)
	call := choice.Message.ToolCalls[0]
	assert.Equal(t, "ask_user", call.Function.Name)
	assert.JSONEq(t, `{"question":"May I delete \"a\"?"}`, call.Function.Arguments)

	m, err := json.Marshal(choice.Message)
	require.NoError(t, err)
	for i, id := range []string{"other", call.ID} {
		messages := fmt.Sprintf(`%s,%s,{"role":"tool","tool_call_id":%q,"content":"yes"}`, cleanUp, m, id)
		reply := postBody(h, "ada", "trip", `{"model":"m","messages":[`+messages+withTool)
		require.NotNil(t, reply)
		assert.Equal(t, "Done.", reply.Choices[0].Message.Content.Text())
		assert.Equal(t, int32(i), h.deleted.Load())
	}
	assert.Contains(t, postChat(newConsentHost(agent.Consent{Tool: "ask_user"}, callDelete, answer), "ada", "trip", cleanUp), "May I", "a client without the tool")
}

// In the Responses API the conversation is that of the previous response.
func TestConsent_Responses(t *testing.T) {
	h := newConsentHost(agent.Consent{}, callDelete, answer)
	send := func(body string) string {
		r := httptest.NewRequest("POST", "/v1/responses", strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer ada")
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Body.String()
	}
	first := send(`{"model":"m","input":"Clean up."}`)
	assert.Contains(t, first, "May I delete")
	id := regexp.MustCompile(`"id":"(resp_[^"]+)"`).FindStringSubmatch(first)
	require.NotNil(t, id, first)
	assert.Contains(t, send(fmt.Sprintf(`{"model":"m","input":"yes","previous_response_id":%q}`, id[1])), "Done.")
	assert.Equal(t, int32(1), h.deleted.Load())
}

func TestConsent_NeedsAQuestion(t *testing.T) {
	assert.Panics(t, func() { agent.New(model(), tools(), &agent.Options{Consent: new(agent.Consent)}) })
}
