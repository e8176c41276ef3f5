package route_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/route"
)

// The hosted model answers when our own is overloaded.
func Example() {
	ours := memory.Scripted(memory.Fail(llmhttp.Errorf(http.StatusServiceUnavailable, "overloaded", "Too much to do.")))
	hosted := memory.Echo()

	router, err := route.New([]route.Route{
		{Model: "large", Strategy: route.InOrder, Targets: []route.Target{
			{Name: "ours", Backend: ours, Model: "llama-70b"},
			{Name: "hosted", Backend: hosted, Model: memory.ModelChat},
		}},
		{Model: "hosted/*", Targets: []route.Target{{Name: "hosted", Backend: hosted, Model: "*"}}},
	}, &route.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}

	reply, err := llmhttp.Collect(router.Chat(context.Background(), &llmhttp.ChatRequest{
		Model:    "large",
		Messages: []llmhttp.Message{{Role: llmhttp.RoleUser, Content: llmhttp.Text("Hello!")}},
	}))
	if err != nil {
		panic(err)
	}
	fmt.Println(reply.Model, "says", reply.Choices[0].Message.Content.Text())

	for _, s := range router.Status() {
		fmt.Printf("%s %s %s %d %d %q\n", s.Route, s.Target, s.State, s.Tries, s.Failures, s.LastError)
	}

	models, err := router.ListModels(context.Background())
	if err != nil {
		panic(err)
	}
	for _, m := range models {
		fmt.Println(m.ID)
	}
	// Output:
	// large says Hello!
	// large ours closed 1 1 "503 overloaded"
	// large hosted closed 1 0 ""
	// hosted/* hosted closed 0 0 ""
	// large
	// hosted/demo-chat
}

// An Observer of the Handler sees which target answered each request.
func ExampleRouter() {
	router, err := route.New([]route.Route{{Model: "*", Targets: []route.Target{
		{Name: "a", Backend: memory.Echo(), Weight: 2},
		{Name: "b", Backend: memory.Echo()},
	}}}, nil)
	if err != nil {
		panic(err)
	}
	h := llmhttp.NewHandler(router, llmhttp.AllowAll("acme"), &llmhttp.Options{
		Observe: func(ctx context.Context, _ *http.Request) (context.Context, llmhttp.Observation) {
			return ctx, llmhttp.Observation{Ended: func(e *llmhttp.RequestSummary) {
				fmt.Println(e.Record.Model, e.Status, "from", e.Record.Target, "at try", len(e.Tries))
			}}
		},
	})
	for range 3 {
		post(h, memory.ModelChat)
	}
	// Output:
	// demo-chat 200 from a at try 1
	// demo-chat 200 from b at try 1
	// demo-chat 200 from a at try 1
}
