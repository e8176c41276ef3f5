package usagebuffer_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/usagebuffer"
)

// A printStore is a UsageStore that prints the number of records it gets. Its Query
// method is nil.
type printStore struct{ llmhttp.UsageStore }

func (printStore) Record(ctx context.Context, records ...llmhttp.UsageRecord) error {
	fmt.Println("storing", len(records), "records")
	return nil
}

// A Buffer stores many records at a time. Close it after Handler.Shutdown, unless Serve does.
func Example() {
	usage := usagebuffer.New(printStore{}, &usagebuffer.Options{Delay: time.Minute})
	h := llmhttp.NewHandler(memory.Echo(), llmhttp.AllowAll("acme"), &llmhttp.Options{Usage: usage})
	for range 3 {
		r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(`{"model": "demo-chat", "messages": [{"role": "user", "content": "Hi"}]}`))
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	fmt.Println(usage.Close(context.Background()))
	// Output:
	// storing 3 records
	// <nil>
}
