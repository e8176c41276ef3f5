package anthropic_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/messages"
	"github.com/llmhttp/llmhttp/upstream"
	"github.com/llmhttp/llmhttp/upstream/anthropic"
)

// A gateway serves a server of the Messages API to clients of both APIs.
func ExampleNew() {
	server := httptest.NewServer(llmhttp.NewHandler(memory.Echo(), memory.NewKeyStore("sk-server"), &llmhttp.Options{
		Protocols: []llmhttp.Protocol{messages.New(nil)},
	}))
	defer server.Close()

	b, err := anthropic.New(server.URL, &anthropic.Options{
		Server: upstream.Options{Key: "sk-server", Models: map[string]string{"parrot": memory.ModelChat}},
	})
	if err != nil {
		panic(err)
	}
	gateway := httptest.NewServer(llmhttp.NewHandler(b, memory.NewKeyStore("sk-client"), &llmhttp.Options{
		Protocols: []llmhttp.Protocol{messages.New(&messages.Options{Anthropic: true})},
	}))
	defer gateway.Close()

	for path, body := range map[string]string{
		"/v1/chat/completions": `{"model":"parrot","messages":[{"role":"user","content":"Hello there!"}]}`,
		"/v1/messages":         `{"model":"parrot","max_tokens":9,"messages":[{"role":"user","content":"Hello there!"}]}`,
	} {
		r, _ := http.NewRequest("POST", gateway.URL+path, strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer sk-client")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			panic(err)
		}
		reply, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		fmt.Println(path, resp.Status, strings.Contains(string(reply), "Hello there!"))
	}
	// Unordered output:
	// /v1/chat/completions 200 OK true
	// /v1/messages 200 OK true
}

// A Backend can be used without a Handler.
func ExampleBackend_Chat() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"id":"msg_1","type":"message","role":"assistant","model":"claude","content":[{"type":"text","text":"Hi!"}],
			"stop_reason":"end_turn","usage":{"input_tokens":3,"cache_read_input_tokens":100,"output_tokens":2}}`)
	}))
	defer server.Close()
	b, err := anthropic.New(server.URL, nil)
	if err != nil {
		panic(err)
	}
	resp, err := join.Collect(b.Chat(context.Background(), &llm.ChatRequest{
		Model:    "claude",
		Messages: []llm.Message{{Role: llm.RoleUser, Content: llm.TextContent("Hello")}},
	}))
	if err != nil {
		panic(err)
	}
	fmt.Println(resp.Choices[0].Message.Content.Text())
	fmt.Println(resp.Usage.PromptTokens, "tokens, of which", resp.Usage.PromptTokensDetails.CachedTokens, "were cached")
	// Output:
	// Hi!
	// 103 tokens, of which 100 were cached
}
