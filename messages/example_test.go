package messages_test

import (
	"fmt"
	"net/http/httptest"
	"strings"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/messages"
)

func ExampleNew() {
	h := llmhttp.NewHandler(memory.Echo(), memory.NewKeyStore("sk-demo"), &llmhttp.Options{
		Protocols: []llmhttp.Protocol{messages.New(&messages.Options{
			Model: func(name string) string {
				if strings.HasPrefix(name, "claude-") {
					return memory.ModelChat
				}
				return name
			},
		})},
	})
	r := httptest.NewRequest("POST", "/v1/messages", strings.NewReader(
		`{"model": "claude-sonnet-4-5", "max_tokens": 100, "messages": [{"role": "user", "content": "Hello there!"}]}`))
	r.Header.Set("X-Api-Key", "sk-demo")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	_, content, _ := strings.Cut(w.Body.String(), `"content":`)
	content, _, _ = strings.Cut(content, `,"stop_reason"`)
	fmt.Println(content)
	// Output: [{"type":"text","text":"Hello there!"}]
}
