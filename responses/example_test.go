package responses_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/responses"
)

func Example() {
	backend := llmhttp.BackendFunc(func(_ context.Context, req *llm.ChatRequest) llm.ChatStream {
		return llm.Reply("You said: " + req.Messages[len(req.Messages)-1].Content.Text())
	})
	h := llmhttp.NewHandler(backend, llmhttp.AllowAll("demo"), &llmhttp.Options{
		Protocols: []llmhttp.Protocol{responses.New(&responses.Options{Store: memory.NewResponseStore()})},
	})
	server := httptest.NewServer(h)
	defer server.Close()

	reply, err := http.Post(server.URL+"/v1/responses", "application/json", strings.NewReader(`{"model": "m", "input": "Hello"}`))
	if err != nil {
		panic(err)
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	if err != nil {
		panic(err)
	}
	fmt.Println(regexp.MustCompile(`"text":"[^"]*"`).FindString(string(body)))
	// Output: "text":"You said: Hello"
}
