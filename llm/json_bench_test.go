package llm_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/llm"
)

// plainRequest has the members of a chat request that agents send, as go-openai
// declares them for encoding/json.
type plainRequest struct {
	Model         string         `json:"model"`
	Messages      []plainMessage `json:"messages"`
	Tools         []plainTool    `json:"tools,omitempty"`
	ToolChoice    any            `json:"tool_choice,omitempty"`
	Stream        bool           `json:"stream,omitempty"`
	StreamOptions *plainOptions  `json:"stream_options,omitempty"`
	MaxTokens     *int           `json:"max_tokens,omitempty"`
	Temperature   *float64       `json:"temperature,omitempty"`
	TopP          *float64       `json:"top_p,omitempty"`
}

type plainOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

type plainMessage struct {
	Role       string      `json:"role"`
	Content    string      `json:"content"`
	Parts      []plainPart `json:"-"`
	ToolCalls  []plainCall `json:"tool_calls,omitempty"`
	ToolCallID string      `json:"tool_call_id,omitempty"`
}

// UnmarshalJSON tries whether the content is a string and then whether it is an
// array, as go-openai does.
func (m *plainMessage) UnmarshalJSON(data []byte) error {
	type fields plainMessage
	if err := json.Unmarshal(data, (*fields)(m)); err == nil {
		return nil
	}
	var parts struct {
		Role       string      `json:"role"`
		Content    string      `json:"-"`
		Parts      []plainPart `json:"content"`
		ToolCalls  []plainCall `json:"tool_calls,omitempty"`
		ToolCallID string      `json:"tool_call_id,omitempty"`
	}
	err := json.Unmarshal(data, &parts)
	*m = plainMessage(parts)
	return err
}

type plainPart struct {
	Type     string      `json:"type"`
	Text     string      `json:"text,omitempty"`
	ImageURL *plainImage `json:"image_url,omitempty"`
}

type plainImage struct {
	URL    string `json:"url"`
	Detail string `json:"detail,omitempty"`
}

type plainCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

type plainTool struct {
	Type     string `json:"type"`
	Function struct {
		Name        string `json:"name"`
		Description string `json:"description,omitempty"`
		Parameters  any    `json:"parameters"`
	} `json:"function"`
}

// agentRequest is a request of about 150 KB as coding agents send them: 200
// messages, many of them calls of tools and the escaped code that they return,
// and 40 tools.
func agentRequest(t testing.TB) []byte {
	t.Helper()
	type object = map[string]any
	code := "func (s *Server) handle(w http.ResponseWriter, r *http.Request) {\n\tif r.Method != \"POST\" {\n\t\thttp.Error(w, \"method \\\"\" + r.Method + \"\\\"\", 405)\n\t\treturn\n\t}\n}\n"
	messages := []object{{"role": "system", "content": strings.Repeat("You are an agent that edits code. Think before you act. ", 40)}}
	for i := 0; len(messages) < 200; i++ {
		id := fmt.Sprintf("call_%08d", i)
		arguments, err := json.Marshal(object{"path": fmt.Sprintf("internal/server/file%d.go", i), "old": code, "new": code + "// done\n"})
		require.NoError(t, err)
		messages = append(messages,
			object{"role": "user", "content": fmt.Sprintf("Please change step %d, and then run the tests.", i)},
			object{"role": "assistant", "content": "I will edit the file.", "tool_calls": []object{{"id": id, "type": "function", "function": object{"name": "edit_file", "arguments": string(arguments)}}}},
			object{"role": "tool", "tool_call_id": id, "content": strings.Repeat(code, 5)})
	}
	var tools []object
	for i := range 40 {
		properties := object{}
		for _, name := range []string{"path", "pattern", "limit", "offset", "recursive", "encoding"} {
			properties[name] = object{"type": "string", "description": "The " + name + " that the tool uses. It may be empty."}
		}
		tools = append(tools, object{"type": "function", "function": object{
			"name": fmt.Sprintf("tool_%d", i), "description": strings.Repeat("Does one thing well. ", 8),
			"parameters": object{"type": "object", "properties": properties, "required": []string{"path"}, "additionalProperties": false}}})
	}
	body, err := json.Marshal(object{"model": "demo", "messages": messages[:200], "tools": tools, "stream": true,
		"stream_options": object{"include_usage": true}, "max_tokens": 4096, "temperature": 0.2, "tool_choice": "auto"})
	require.NoError(t, err)
	return body
}

// textRequest is a request of one long text.
func textRequest(size int) []byte {
	const line = "The quick brown fox jumps over the lazy dog, \\\"again\\\".\\n"
	return []byte(`{"model":"demo","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"` +
		strings.Repeat(line, size/len(line)) + `"}],"temperature":0.7}`)
}

// imageRequest is a request with one image.
func imageRequest(size int) []byte {
	return []byte(`{"model":"demo","messages":[{"role":"user","content":[{"type":"text","text":"What is this?"},{"type":"image_url","image_url":{"url":"data:image/png;base64,` +
		strings.Repeat("iVBORw0KGgo+AAAA", size/16) + `"}}]}]}`)
}

// BenchmarkDecodeRequest compares with encoding/json. The budgets are at most 0.35
// of its time for agent, 1/3 for text and 1/10 for image.
func BenchmarkDecodeRequest(b *testing.B) {
	for _, bm := range []struct {
		name string
		body []byte
	}{
		{"small", textRequest(300)},
		{"text-128KB", textRequest(128 << 10)},
		{"agent-150KB", agentRequest(b)},
		{"image-1MB", imageRequest(1 << 20)},
	} {
		b.Run(bm.name+"/llmhttp", func(b *testing.B) {
			b.SetBytes(int64(len(bm.body)))
			b.ReportAllocs()
			for b.Loop() {
				var r llm.ChatRequest
				if err := r.UnmarshalJSON(bm.body); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(bm.name+"/encoding-json", func(b *testing.B) {
			b.SetBytes(int64(len(bm.body)))
			b.ReportAllocs()
			for b.Loop() {
				var r plainRequest
				if err := json.Unmarshal(bm.body, &r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkEncodeRequest(b *testing.B) {
	var r llm.ChatRequest
	require.NoError(b, r.UnmarshalJSON(agentRequest(b)))
	var body []byte
	var err error
	b.ReportAllocs()
	for b.Loop() {
		if body, err = r.AppendJSON(body[:0]); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncodeReply(b *testing.B) {
	r := &llm.ChatResponse{ID: "chatcmpl-0123456789abcdef", Created: 1700000000, Model: "demo-chat",
		Choices: []llm.Choice{{Message: llm.Message{Role: llm.RoleAssistant, Content: llm.TextContent(strings.Repeat("answer ", 10))}, FinishReason: llm.FinishStop}},
		Usage:   &llm.Usage{PromptTokens: 90, CompletionTokens: 10}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.MarshalJSON(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDecodeChunk decodes chunks as upstream servers send them. A gateway
// does so 100 times a stream; its budget is about 1.5 us for text.
func BenchmarkDecodeChunk(b *testing.B) {
	for name, data := range map[string]string{
		"text":  `{"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","created":1700000000,"model":"demo-chat","choices":[{"index":0,"delta":{"content":" token"},"finish_reason":null}]}`,
		"vllm":  `{"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","created":1700000000,"model":"demo-chat","system_fingerprint":"fp_44709d6fcb","choices":[{"index":0,"delta":{"content":" token"},"logprobs":null,"finish_reason":null}],"usage":null}`,
		"usage": `{"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","created":1700000000,"model":"demo-chat","choices":[],"usage":{"prompt_tokens":12,"completion_tokens":34,"total_tokens":46,"prompt_tokens_details":{"cached_tokens":4}}}`,
		"call":  `{"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","created":1700000000,"model":"demo-chat","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\":"}}]},"finish_reason":null}]}`,
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			body := []byte(data)
			for b.Loop() {
				var c llm.ChatChunk
				if err := c.UnmarshalJSON(body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
