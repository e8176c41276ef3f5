package upstream_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/upstream"
)

// A gateway has its own keys and its own names of models.
func ExampleNew() {
	server := httptest.NewServer(llmhttp.NewHandler(memory.Echo(), memory.NewKeyStore("sk-server"), nil))
	defer server.Close()

	b, err := upstream.New(server.URL+"/v1", &upstream.Options{
		Key:    "sk-server",
		Models: map[string]string{"parrot": memory.ModelChat},
	})
	if err != nil {
		panic(err)
	}
	gateway := httptest.NewServer(llmhttp.NewHandler(b, memory.NewKeyStore("sk-client"), nil))
	defer gateway.Close()

	r, _ := http.NewRequest("POST", gateway.URL+"/v1/chat/completions", strings.NewReader(
		`{"model": "parrot", "messages": [{"role": "user", "content": "Hello there!"}]}`))
	r.Header.Set("Authorization", "Bearer sk-client")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	fmt.Println(resp.Status)
	fmt.Println(strings.Contains(string(body), `"model":"parrot"`), strings.Contains(string(body), `"content":"Hello there!"`))
	// Output:
	// 200 OK
	// true true
}

// A Backend can be used without a Handler.
func ExampleBackend_Chat() {
	server := httptest.NewServer(llmhttp.NewHandler(memory.Echo(), memory.NewKeyStore("sk-server"), nil))
	defer server.Close()
	b, err := upstream.New(server.URL+"/v1", &upstream.Options{Key: "sk-server"})
	if err != nil {
		panic(err)
	}
	req := &llm.ChatRequest{
		Model:    memory.ModelChat,
		Messages: []llm.Message{{Role: llm.RoleUser, Content: llm.TextContent("One two three")}},
		Stream:   true,
	}
	for chunk, err := range b.Chat(context.Background(), req) {
		if err != nil {
			panic(err)
		}
		for _, choice := range chunk.Choices {
			fmt.Printf("%q ", choice.Delta.Content)
		}
	}
	// Output: "" "One" " two" " three" ""
}

// An Error has the details that clients do not get.
func ExampleError() {
	server := httptest.NewServer(llmhttp.NewHandler(memory.Echo(), memory.NewKeyStore("sk-server"), nil))
	defer server.Close()
	b, err := upstream.New(server.URL+"/v1", &upstream.Options{Name: "parrots", Key: "sk-outdated"})
	if err != nil {
		panic(err)
	}
	_, err = join.Collect(b.Chat(context.Background(), &llm.ChatRequest{Model: memory.ModelChat}))

	var clientError *llm.Error
	if errors.As(err, &clientError) {
		fmt.Println(clientError.Status, clientError.Message)
	}
	var e *upstream.Error
	if errors.As(err, &e) {
		fmt.Println(e.Upstream, e.Status, e.Message)
	}
	// Output:
	// 502 The model's server had an error. Please try again.
	// parrots 401 Incorrect API key provided.
}
