package messages_test

import (
	"encoding/json"
	"fmt"
	"log"
	"net/http/httptest"
	"strings"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/messages"
)

func ExampleNew() {
	h := llmhttp.NewHandler(memory.Echo(), memory.NewKeyStore("sk-demo"), &llmhttp.Options{
		Protocols: []llmhttp.Protocol{messages.New(&messages.Options{
			Names: messages.Names{"claude-*": memory.ModelChat},
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

func ExampleNames() {
	h := llmhttp.NewHandler(memory.Echo(), memory.NewKeyStore("sk-demo"), &llmhttp.Options{
		Protocols: []llmhttp.Protocol{messages.New(&messages.Options{Names: messages.Names{
			"claude-local-*": "demo-*",         // offered by the picker of Claude Code
			"claude-*":       memory.ModelChat, // for its requests in the background, such as titles
		}})},
	})
	r := httptest.NewRequest("GET", "/v1/models", nil)
	r.Header.Set("X-Api-Key", "sk-demo")
	r.Header.Set("Anthropic-Version", "2023-06-01")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	var list struct {
		Data []struct{ ID string }
	}
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil {
		log.Fatal(err)
	}
	for _, m := range list.Data {
		fmt.Println(m.ID)
	}
	// Output:
	// claude-local-chat
	// demo-chat
}
