package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/agent"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
	"github.com/llmhttp/llmhttp/memory"
)

// A model that can ask for the weather. The script takes the place of the model.
func Example() {
	model := &memory.Backend{Script: func(req *llm.ChatRequest) []memory.Step {
		if last := req.Messages[len(req.Messages)-1]; last.Role == llm.RoleTool {
			return []memory.Step{memory.Say(last.Content.Text() + " Take an umbrella.")}
		}
		return []memory.Step{memory.Say("Let me look. "), memory.Call("call_1", "forecast", `{"city": "Bergen"}`)}
	}}
	forecast := agent.NewTool(llm.Function{
		Name: "forecast", Description: "The weather in a city",
		Parameters: json.RawMessage(`{"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}`),
	}, func(ctx context.Context, in struct{ City string }) (llm.Message, error) {
		if in.City != "Bergen" {
			return agent.Failure("I know only Bergen."), nil
		}
		return agent.Result("It rains."), nil
	})
	b := agent.New(model, func(context.Context) ([]agent.Tool, error) { return []agent.Tool{forecast}, nil }, nil)

	// A Handler calls it, as any other Backend.
	reply, err := join.Collect(b.Chat(context.Background(), &llm.ChatRequest{
		Model: "m", Messages: []llm.Message{{Role: llm.RoleUser, Content: llm.TextContent("How is the weather in Bergen?")}},
	}))
	fmt.Println(reply.Choices[0].Message.Content.Text(), err)
	// Output: Let me look. It rains. Take an umbrella. <nil>
}

// A counter of the requests of a conversation. Its account is part of the conversation, so that nobody
// continues that of another one.
func ExampleSessions() {
	var sessions agent.Sessions[counter]
	b := llmhttp.BackendFunc(func(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
		return llm.Reply(fmt.Sprint("Question ", sessions.Get(ctx).next()))
	})
	h := llmhttp.NewHandler(b, llmhttp.AllowAll(""), &llmhttp.Options{Observe: llmhttp.ConversationHeader("X-Conversation-Id")})
	for _, conversation := range []string{"trip", "trip", "other", ""} {
		fmt.Println(post(h, "", conversation))
	}
	// Output:
	// Question 1
	// Question 2
	// Question 1
	// Question 1
}

// A counter is the state of a conversation.
type counter struct{ n atomic.Int32 }

func (c *counter) next() int32 { return c.n.Add(1) }

// post sends a chat to h and returns the text of the reply.
func post(h http.Handler, key, conversation string) string {
	r := httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"Hi"}]}`))
	r.Header.Set("Authorization", "Bearer "+key)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Conversation-Id", conversation)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	var reply llm.ChatResponse
	if json.Unmarshal(w.Body.Bytes(), &reply) != nil || len(reply.Choices) == 0 {
		return w.Body.String()
	}
	return reply.Choices[0].Message.Content.Text()
}
