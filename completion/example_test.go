package completion_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/completion"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
)

// A completer completes one prompt that is a text.
type completer struct{ llmhttp.Backend }

func (completer) Complete(ctx context.Context, req *completion.Request) llm.ChatStream {
	if len(req.Prompt.Texts) != 1 || req.Choices() != 1 {
		return llm.Fail(llm.Errorf(400, "unsupported_value", "This model completes one text."))
	}
	return llm.Reply(" and " + strings.ToLower(req.Prompt.Texts[0]))
}

func Example() {
	h := llmhttp.NewHandler(completer{memory.Echo()}, memory.NewKeyStore("sk-demo"), &llmhttp.Options{Routes: completion.Routes()})
	r := httptest.NewRequest("POST", "/v1/completions", strings.NewReader(`{"model": "base", "prompt": "Again"}`))
	r.Header.Set("Authorization", "Bearer sk-demo")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	var reply struct {
		Choices []struct{ Text string }
	}
	err := json.Unmarshal(w.Body.Bytes(), &reply)
	fmt.Println(w.Code, reply.Choices, err)
	// Output: 200 [{ and again}] <nil>
}
