package moderation_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/moderation"
)

// A moderator flags the texts that have a certain word.
type moderator struct{ llmhttp.Backend }

func (moderator) Moderate(ctx context.Context, req *moderation.Request) (*moderation.Response, error) {
	results := make([]moderation.Result, req.Input.Results())
	for i, text := range req.Input.Texts {
		if strings.Contains(text, "fight") {
			results[i].Flagged = true
			results[i].Categories = map[string]bool{"violence": true}
			results[i].Scores = map[string]float64{"violence": 0.9}
		}
	}
	return &moderation.Response{Results: results}, nil
}

func Example() {
	h := llmhttp.NewHandler(moderator{memory.Echo()}, memory.NewKeyStore("sk-demo"), &llmhttp.Options{Routes: moderation.Routes()})
	r := httptest.NewRequest("POST", "/v1/moderations", strings.NewReader(`{"input": ["Let us talk.", "Let us fight."]}`))
	r.Header.Set("Authorization", "Bearer sk-demo")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	var reply moderation.Response
	err := json.Unmarshal(w.Body.Bytes(), &reply)
	fmt.Println(w.Code, err)
	for _, result := range reply.Results {
		fmt.Println(result.Flagged, result.Scores)
	}
	// Output:
	// 200 <nil>
	// false map[]
	// true map[violence:0.9]
}
