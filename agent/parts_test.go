package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/agent"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
	"github.com/llmhttp/llmhttp/memory"
)

// An agent of a host's own that lets a model call one tool.
func ExampleForwardReply() {
	var model llmhttp.Backend = &memory.Backend{Script: func(req *llm.ChatRequest) []memory.Step {
		if last := req.Messages[len(req.Messages)-1]; last.Role == llm.RoleTool {
			return []memory.Step{memory.Say("It is " + last.Content.Text() + ".")}
		}
		return []memory.Step{memory.Say("Let me look. "), memory.Call("call_1", "clock", "{}")}
	}}
	var own llmhttp.BackendFunc = func(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
		return llm.NewStream(func(send func(*llm.ChatChunk) error) error {
			for range 5 {
				callCtx, end := llm.StartCall(ctx, req.Model)
				reply, err := agent.ForwardReply(model.Chat(callCtx, req.Clone()), send)
				end(llm.CallResult{Model: reply.Model, Usage: reply.Usage, Err: err})
				if err != nil {
					return err
				}
				m := reply.Choices[0].Message
				if len(m.ToolCalls) == 0 {
					return nil
				}
				results, err := agent.CallTools(ctx, m.ToolCalls, func(context.Context, llm.ToolCall) (llm.Message, error) {
					return llm.Message{Content: llm.TextContent("noon")}, nil
				})
				if err != nil {
					return err
				}
				req.Messages = append(append(req.Messages, m), results...)
			}
			return errors.New("the model has no answer")
		})
	}
	reply, err := join.Collect(own.Chat(context.Background(), &llm.ChatRequest{
		Model: "m", Messages: []llm.Message{{Role: llm.RoleUser, Content: llm.TextContent("What time is it?")}},
	}))
	fmt.Println(reply.Choices[0].Message.Content.Text(), err)
	// Output: Let me look. It is noon. <nil>
}

func ExampleCallTools() {
	calls := []llm.ToolCall{
		{ID: "call_1", Function: llm.FunctionCall{Name: "capital", Arguments: `{"country": "Norway"}`}},
		{ID: "call_2", Function: llm.FunctionCall{Name: "capital", Arguments: `{"country": 1}`}},
	}
	results, err := agent.CallTools(context.Background(), calls, func(ctx context.Context, call llm.ToolCall) (llm.Message, error) {
		var arguments struct{ Country string }
		if json.Unmarshal([]byte(call.Function.Arguments), &arguments) != nil {
			return llm.Message{Content: llm.TextContent("country must be a string"), IsError: true}, nil
		}
		return llm.Message{Content: llm.TextContent("Oslo")}, nil
	})
	if err != nil {
		fmt.Println(err)
	}
	for _, m := range results {
		fmt.Println(m.Role, m.ToolCallID, m.Content.Text(), m.IsError)
	}
	// Output:
	// tool call_1 Oslo false
	// tool call_2 country must be a string true
}

var errCause = errors.New("cause")

func streamOf(chunks ...*llm.ChatChunk) llm.ChatStream {
	return func(yield func(*llm.ChatChunk, error) bool) {
		for _, c := range chunks {
			if !yield(c, nil) {
				return
			}
		}
	}
}

// parseChunks returns chunks that are given as JSON.
func parseChunks(t *testing.T, lines ...string) (chunks []*llm.ChatChunk) {
	t.Helper()
	for _, line := range lines {
		c := new(llm.ChatChunk)
		require.NoError(t, json.Unmarshal([]byte(line), c), "%s", line)
		chunks = append(chunks, c)
	}
	return chunks
}

// Relay sends what the model says, as it comes, and keeps what is for the agent.
func TestForwardReply(t *testing.T) {
	chunks := parseChunks(t,
		`{"id":"r1","model":"inner","choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}`,
		`{"choices":[{"index":0,"delta":{"reasoning_content":"Hm. "}}]}`,
		`{"choices":[{"index":0,"delta":{"reasoning_details":[{"type":"reasoning.text","text":"Hm. ","signature":"s"}]}}]}`,
		`{"choices":[{"index":0,"delta":{"content":"Hi"},"logprobs":{"content":[]}},{"index":1,"delta":{"refusal":"No."}}]}`,
		`{"choices":[{"index":0,"delta":{"content":"!","tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]}}]}`,
		`{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}`,
		`{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}}`)
	var sent []string
	r, err := agent.ForwardReply(streamOf(chunks...), func(c *llm.ChatChunk) error {
		b, err := json.Marshal(c)
		sent = append(sent, string(b))
		for i := range c.Choices { // the receiver may change it
			c.Choices[i].Delta.Content = "changed"
			if len(c.Choices[i].Delta.ReasoningDetails) > 0 {
				c.Choices[i].Delta.ReasoningDetails[0].Text = "changed"
			}
		}
		return err
	})
	require.NoError(t, err)
	const prefix = `{"id":"","object":"chat.completion.chunk","created":0,"model":"","choices":[`
	assert.Equal(t, []string{
		prefix + `{"index":0,"delta":{"reasoning_content":"Hm. "},"finish_reason":null}]}`,
		prefix + `{"index":0,"delta":{"reasoning_details":[{"type":"reasoning.text","text":"Hm. ","signature":"s"}]},"finish_reason":null}]}`,
		prefix + `{"index":0,"delta":{"content":"Hi"},"finish_reason":null,"logprobs":{"content":[]}},{"index":1,"delta":{"refusal":"No."},"finish_reason":null}]}`,
		prefix + `{"index":0,"delta":{"content":"!"},"finish_reason":null}]}`,
	}, sent)
	m := r.Choices[0].Message
	assert.Equal(t, "Hi!", m.Content.Text())
	assert.Equal(t, "Hm. ", m.ReasoningDetails[0].Text)
	assert.Equal(t, "f", m.ToolCalls[0].Function.Name)
	assert.Equal(t, "r1", r.ID)
	assert.Equal(t, 7, r.Usage.TotalTokens)
}

func TestForwardReply_Errors(t *testing.T) {
	discard := func(*llm.ChatChunk) error { return nil }
	failing := func(yield func(*llm.ChatChunk, error) bool) {
		if yield(llm.TextChunk("a"), nil) {
			yield(nil, errCause)
		}
	}
	r, err := agent.ForwardReply(failing, discard)
	assert.Equal(t, errCause, err)
	assert.Equal(t, "a", r.Choices[0].Message.Content.Text())

	for name, s := range map[string]llm.ChatStream{"nil": nil, "empty": streamOf(), "usage only": streamOf(&llm.ChatChunk{Usage: &llm.Usage{PromptTokens: 1, CompletionTokens: 2}})} {
		r, err := agent.ForwardReply(s, discard)
		assert.Error(t, err, name)
		require.NotNil(t, r, name)
		assert.Empty(t, r.Choices, name)
	}

	// When send fails, the model stops, and the chunk counts.
	chunks := []*llm.ChatChunk{llm.TextChunk("a"), llm.TextChunk("b")}
	chunks[0].Usage = &llm.Usage{TotalTokens: 7}
	read := 0
	counted := llm.Tee(streamOf(chunks...), func(*llm.ChatChunk, error) { read++ })
	r, err = agent.ForwardReply(counted, func(*llm.ChatChunk) error { return errCause })
	assert.Equal(t, errCause, err)
	assert.Equal(t, 1, read)
	assert.Equal(t, 7, r.Usage.TotalTokens)
}

func manyCalls(n int) (calls []llm.ToolCall) {
	for i := range n {
		calls = append(calls, llm.ToolCall{ID: fmt.Sprint("c", i)})
	}
	return calls
}

func TestCallTools_RunsSomeAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		results, err := agent.CallTools(t.Context(), manyCalls(40), func(_ context.Context, call llm.ToolCall) (llm.Message, error) {
			time.Sleep(time.Second)
			return llm.Message{Content: llm.TextContent("result of " + call.ID)}, nil
		})
		require.NoError(t, err)
		assert.Equal(t, 3*time.Second, time.Since(start), "16 at a time")
		require.Len(t, results, 40)
		for i, m := range results {
			id := fmt.Sprint("c", i)
			assert.Equal(t, llm.Message{Role: llm.RoleTool, ToolCallID: id, Content: llm.TextContent("result of " + id)}, m)
		}
	})
	results, err := agent.CallTools(t.Context(), nil, nil)
	assert.NoError(t, err)
	assert.Empty(t, results)
}

// An error, the end of the context and a panic end the other calls.
func TestCallTools_Ends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := 0
		waitUnlessFirst := func(first func() error) func(context.Context, llm.ToolCall) (llm.Message, error) {
			ended = 0
			slots := make(chan struct{}, 1)
			return func(ctx context.Context, call llm.ToolCall) (llm.Message, error) {
				if call.ID == "c0" {
					time.Sleep(time.Second)
					return llm.Message{}, first()
				}
				<-ctx.Done()
				slots <- struct{}{}
				ended++
				<-slots
				return llm.Message{}, ctx.Err()
			}
		}
		results, err := agent.CallTools(t.Context(), manyCalls(40), waitUnlessFirst(func() error { return errCause }))
		assert.Equal(t, errCause, err)
		assert.Nil(t, results)
		assert.Equal(t, 15, ended, "the others do not begin")

		ctx, cancel := context.WithCancelCause(t.Context())
		_, err = agent.CallTools(ctx, manyCalls(2), waitUnlessFirst(func() error { cancel(errCause); return nil }))
		assert.Equal(t, errCause, err)
		assert.Equal(t, 1, ended)

		for _, v := range []any{"oops", http.ErrAbortHandler} {
			func() {
				defer func() {
					got := recover()
					if v == http.ErrAbortHandler {
						assert.Equal(t, v, got)
						return
					}
					assert.Contains(t, got, "oops")
					assert.Contains(t, got, "parts_test.go", "the stack of the tool")
				}()
				agent.CallTools(t.Context(), manyCalls(2), waitUnlessFirst(func() error { panic(v) }))
			}()
			assert.Equal(t, 1, ended)
		}
	})
}
