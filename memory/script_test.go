package memory_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
	"github.com/llmhttp/llmhttp/memory"
)

func TestScripted(t *testing.T) {
	boom := errors.New("boom")
	for name, test := range map[string]struct {
		steps  []memory.Step
		text   string
		finish llm.FinishReason
		chunks int
		err    error
	}{
		"no steps": {},
		"text":     {[]memory.Step{memory.Say("Hel"), memory.Say("lo")}, "Hello", "", 2, nil},
		"finish":   {[]memory.Step{memory.Say("Hel"), memory.Finish(llm.FinishContentFilter)}, "Hel", llm.FinishContentFilter, 2, nil},
		"fail":     {[]memory.Step{memory.Fail(boom), memory.Say("x")}, "", "", 0, boom},
		"fail after text": {
			[]memory.Step{memory.Say("a"), memory.Fail(boom), memory.Say("b")}, "a", "", 1, boom},
		"custom step": {
			[]memory.Step{func(ctx context.Context, yield func(*llm.ChatChunk, error) bool) bool {
				return yield(llm.TextChunk("a"), nil) && yield(nil, boom)
			}, memory.Say("b")}, "a", "", 1, boom},
	} {
		t.Run(name, func(t *testing.T) {
			b := memory.Scripted(test.steps...)
			for range 2 {
				req := newRequest(t, `"messages":[{"role":"user","content":"echo"}]`)
				req.Model = "any"
				text, chunks := "", 0
				var finish llm.FinishReason
				var failed error
				for c, err := range b.Chat(t.Context(), req) {
					if failed = err; err != nil {
						continue
					}
					chunks++
					text += c.Choices[0].Delta.Content
					finish = c.Choices[0].FinishReason
					assert.Nil(t, c.Usage)
				}
				assert.Equal(t, test.text, text)
				assert.Equal(t, test.finish, finish)
				assert.Equal(t, test.chunks, chunks)
				assert.Equal(t, test.err, failed)
			}
		})
	}
}

func TestScripted_ReasonAndCall(t *testing.T) {
	b := memory.Scripted(
		memory.Reason("Let me "),
		memory.Reason("see."),
		memory.Say("One moment."),
		memory.Call("1", "time", `{"zone":"UTC"}`),
		memory.Call("2", "date", `{}`),
		memory.Finish(llm.FinishToolCalls),
	)
	for range 2 {
		resp, err := join.Collect(b.Chat(t.Context(), newRequest(t, `"messages":[]`)))
		require.NoError(t, err)
		m := resp.Choices[0].Message
		assert.Equal(t, "Let me see.", m.Reasoning)
		assert.Equal(t, "One moment.", m.Content.Text())
		require.Len(t, m.ToolCalls, 2)
		assert.Equal(t, llm.ToolCall{ID: "1", Type: "function", Function: llm.FunctionCall{Name: "time", Arguments: `{"zone":"UTC"}`}}, m.ToolCalls[0])
		assert.Equal(t, llm.ToolCall{ID: "2", Type: "function", Function: llm.FunctionCall{Name: "date", Arguments: `{}`}}, m.ToolCalls[1])
		assert.Equal(t, llm.FinishToolCalls, resp.Choices[0].FinishReason)
	}
}

func TestScripted_Panic(t *testing.T) {
	b := memory.Scripted(memory.Say("a"), memory.Panic("boom"))
	chunks := 0
	assert.PanicsWithValue(t, "boom", func() {
		for range b.Chat(t.Context(), newRequest(t, `"messages":[]`)) {
			chunks++
		}
	})
	assert.Equal(t, 1, chunks)
}

func TestScripted_WaitAndHang(t *testing.T) {
	gone := errors.New("gone")
	synctest.Test(t, func(t *testing.T) {
		b := memory.Scripted(memory.Say("a"), memory.Wait(time.Minute), memory.Say("b"), memory.Hang(), memory.Say("c"))
		b.Delay = time.Second
		for _, limit := range []time.Duration{10 * time.Second, time.Hour} {
			ctx, cancel := context.WithTimeoutCause(t.Context(), limit, gone)
			defer cancel()
			begin, text, failed := time.Now(), "", error(nil)
			for c, err := range b.Chat(ctx, newRequest(t, `"messages":[]`)) {
				if failed = err; err == nil {
					text += c.Choices[0].Delta.Content
				}
			}
			assert.Equal(t, gone, failed)
			assert.Equal(t, limit, time.Since(begin))
			want := "a"
			if limit > time.Minute {
				want = "ab"
			}
			assert.Equal(t, want, text)
		}
	})
}

// Chunk copies its argument, and yields a new copy each time.
func TestChunk_Copies(t *testing.T) {
	var c llm.ChatChunk
	const wire = `{"id":"1","object":"chat.completion.chunk","created":2,"model":"m","choices":[{"index":1,"delta":{"content":"x",` +
		`"tool_calls":[{"index":0,"id":"i","type":"function","function":{"name":"f","arguments":"{}","x":1},"x":1}],"x":1},"finish_reason":"stop","x":1}],` +
		`"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3,"x":1},"x":1}`
	require.NoError(t, json.Unmarshal([]byte(wire), &c))
	b := memory.Scripted(memory.Chunk(&c))
	modify := func(c *llm.ChatChunk) {
		choice := &c.Choices[0]
		call := &choice.Delta.ToolCalls[0]
		for _, extra := range []llm.Extra{c.Extra, c.Usage.Extra, choice.Extra, choice.Delta.Extra, call.Extra, call.Function.Extra} {
			require.Len(t, extra, 1)
			extra["modified"] = json.RawMessage(`true`)
		}
		c.Usage.PromptTokens, choice.Index, call.ID = 99, 99, "modified"
	}
	modify(&c)
	for range 3 {
		for got, err := range b.Chat(t.Context(), newRequest(t, `"messages":[]`)) {
			require.NoError(t, err)
			encoded, err := json.Marshal(got)
			require.NoError(t, err)
			assert.JSONEq(t, wire, string(encoded))
			modify(got)
		}
	}
}

func TestBackend_Script(t *testing.T) {
	b := &memory.Backend{Script: func(req *llm.ChatRequest) []memory.Step {
		if req.Messages[0].Content.Text() == "ping" {
			return []memory.Step{memory.Say("pong")}
		}
		return nil
	}}
	for text, want := range map[string]string{"ping": "pong", "echo": "echo"} {
		req := newRequest(t, `"messages":[{"role":"user","content":"`+text+`"}]`)
		resp, err := join.Collect(b.Chat(t.Context(), req))
		require.NoError(t, err)
		assert.Equal(t, want, resp.Choices[0].Message.Content.Text())
	}
}

func TestScripted_Reasoning(t *testing.T) {
	b := memory.Scripted(memory.Reason("Hm."), memory.Sign("sig"), memory.ReasonEncrypted("xyz"), memory.Say("Hi"))
	for range 2 {
		resp, err := join.Collect(b.Chat(t.Context(), new(llm.ChatRequest)))
		require.NoError(t, err)
		m := resp.Choices[0].Message
		assert.Equal(t, "Hm.", m.Reasoning)
		assert.Equal(t, []llm.ReasoningDetail{
			{Type: llm.ReasoningText, Signature: "sig"}, {Type: llm.ReasoningEncrypted, Data: "xyz"},
		}, m.ReasoningDetails)
		assert.Equal(t, "Hi", m.Content.Text())
	}
}
