package all_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/all"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/moderation"
)

// A backend chats and moderates, and does nothing else.
type backend struct{ llmhttp.Backend }

func (backend) Moderate(ctx context.Context, req *moderation.Request) (*moderation.Response, error) {
	return &moderation.Response{Results: make([]moderation.Result, req.Input.Results())}, nil
}

// A request for which the Backend has no method gets a 404.
func Example() {
	b := backend{llmhttp.ChatOnly(memory.Echo())}
	h := llmhttp.NewHandler(b, memory.NewKeyStore("sk-demo"), &llmhttp.Options{Routes: all.Routes(nil)})
	for _, request := range [][2]string{
		{"/v1/moderations", `{"input": "Hello"}`},
		{"/v1/rerank", `{"model": "demo", "query": "Hello", "documents": ["Hello there!"]}`},
	} {
		r := httptest.NewRequest("POST", request[0], strings.NewReader(request[1]))
		r.Header.Set("Authorization", "Bearer sk-demo")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Println(request[0], w.Code)
	}
	// Output:
	// /v1/moderations 200
	// /v1/rerank 404
}
