package route_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/route"
	"github.com/llmhttp/llmhttp/upstream"
)

// The hosted model answers when our own is overloaded.
func Example() {
	ours := memory.Scripted(memory.Fail(llm.Errorf(http.StatusServiceUnavailable, "overloaded", "Too much to do.")))
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

	reply, err := join.Collect(router.Chat(context.Background(), &llm.ChatRequest{
		Model:    "large",
		Messages: []llm.Message{{Role: llm.RoleUser, Content: llm.TextContent("Hello!")}},
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

// The wrong key of one tenant does not keep a target from the others, and the tenant is told.
func ExampleIsKeyRefused() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer sk-provider" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"choices":[{"index":0,"message":{"role":"assistant","content":"Hello!"},"finish_reason":"stop"}]}`)
	}))
	defer server.Close()
	type tenant struct{ providerKey string }
	provider, err := upstream.New(server.URL, &upstream.Options{
		KeyFunc: func(ctx context.Context) (string, error) { return llmhttp.KeyFrom(ctx).Data.(tenant).providerKey, nil },
	})
	if err != nil {
		panic(err)
	}
	router, err := route.New([]route.Route{{Model: "large", Targets: []route.Target{{Name: "provider", Backend: provider}}}}, &route.Options{
		Fallback: func(_ context.Context, err error) route.Decision {
			if !route.IsKeyRefused(err) {
				return route.Decision{}
			}
			told := llm.Errorf(http.StatusForbidden, "provider_key_refused", "The provider has refused your key.")
			told.Err = err // for the log
			return route.Decision{TryNext: route.No, Failed: route.No, Err: told}
		},
	})
	if err != nil {
		panic(err)
	}
	keys := llmhttp.KeyStoreFunc(func(_ context.Context, secret string) (*llmhttp.Key, error) {
		return &llmhttp.Key{ID: secret, Account: secret, Data: tenant{"sk-" + secret}}, nil
	})
	h := llmhttp.NewHandler(router, keys, nil)
	for _, secret := range []string{"stolen", "provider"} {
		r := httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(`{"model":"large","messages":[{"role":"user","content":"Hi!"}]}`))
		r.Header.Set("Authorization", "Bearer "+secret)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Println(w.Code, router.Status()[0].Failures)
	}
	// Output:
	// 403 0
	// 200 0
}

// A target is for the accounts that have a key of their own for it.
func ExampleTarget_allow() {
	type account struct{ providerKey string }
	hasKey := func(ctx context.Context, _ route.Request) bool {
		key := llmhttp.KeyFrom(ctx)
		if key == nil {
			return false
		}
		data, _ := key.Data.(account)
		return data.providerKey != ""
	}
	router, err := route.New([]route.Route{{Model: "large", Strategy: route.InOrder, Targets: []route.Target{
		{Name: "their own", Backend: memory.Scripted(memory.Say("From their own.")), Allow: hasKey},
		{Name: "ours", Backend: memory.Scripted(memory.Say("From ours."))},
	}}}, nil)
	if err != nil {
		panic(err)
	}
	keys := llmhttp.KeyStoreFunc(func(_ context.Context, secret string) (*llmhttp.Key, error) {
		data := map[string]account{"sk-acme": {"sk-provider"}}
		return &llmhttp.Key{ID: secret, Data: data[secret]}, nil
	})
	h := llmhttp.NewHandler(router, keys, nil)
	for _, secret := range []string{"sk-acme", "sk-other"} {
		r := httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(`{"model":"large","messages":[{"role":"user","content":"Hi!"}]}`))
		r.Header.Set("Authorization", "Bearer "+secret)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		_, text, _ := strings.Cut(w.Body.String(), `"content":"`)
		text, _, _ = strings.Cut(text, `"`)
		fmt.Println(secret, text)
	}
	// Output:
	// sk-acme From their own.
	// sk-other From ours.
}

// A target leaves while requests run, and another one comes.
func ExampleRouter_Update() {
	ours := route.Target{Name: "ours", Backend: memory.Scripted(memory.Fail(llm.Errorf(http.StatusServiceUnavailable, "overloaded", "Too much to do.")))}
	old := route.Target{Name: "old", Backend: memory.Echo(), Model: memory.ModelChat}
	router, err := route.New([]route.Route{{Model: "large", Strategy: route.InOrder, Targets: []route.Target{ours, old}}},
		&route.Options{Failures: 1, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	ask := func() {
		_, err := join.Collect(router.Chat(context.Background(), &llm.ChatRequest{
			Model: "large", Messages: []llm.Message{{Role: llm.RoleUser, Content: llm.TextContent("Hello!")}},
		}))
		if err != nil {
			panic(err)
		}
	}
	ask()
	spare := route.Target{Name: "spare", Backend: memory.Echo(), Model: memory.ModelChat}
	if err := router.Update([]route.Route{{Model: "large", Strategy: route.InOrder, Targets: []route.Target{ours, spare}}}); err != nil {
		panic(err)
	}
	ask()
	for _, s := range router.Status() {
		fmt.Println(s.Target, s.State, s.Tries)
	}
	// Output:
	// ours open 1
	// spare closed 1
}

// The model of a target has another name for the limit of tokens, and no seed.
func ExampleParamRules() {
	model := llmhttp.BackendFunc(func(_ context.Context, req *llm.ChatRequest) llm.ChatStream {
		limit, _ := req.TokenLimit()
		return llm.Reply(fmt.Sprint(limit, " tokens, seed: ", string(req.Extra["seed"])))
	})
	router, err := route.New([]route.Route{{Model: "large", Targets: []route.Target{{
		Name: "ours", Backend: model,
		Params: route.ParamRules{
			Rename: map[string]string{"max_tokens": "max_completion_tokens"},
			Drop:   []string{"seed"},
			Refuse: []string{"logit_bias"},
		},
	}}}}, nil)
	if err != nil {
		panic(err)
	}
	h := llmhttp.NewHandler(router, llmhttp.AllowAll("acme"), nil)
	const messages = `"model": "large", "messages": [{"role": "user", "content": "Hi!"}]`
	w := postJSON(h, "/v1/chat/completions", `{`+messages+`, "max_tokens": 9, "seed": 5}`)
	fmt.Println(w.Code, "dropped:", w.Header().Get("X-Dropped-Params"), "renamed:", w.Header().Get("X-Renamed-Params"))
	w = postJSON(h, "/v1/chat/completions", `{`+messages+`, "logit_bias": {"50256": -100}}`)
	fmt.Println(w.Code)
	// Output:
	// 200 dropped: seed renamed: max_tokens=max_completion_tokens
	// 400
}

// post sends a chat request to a Handler.
func post(h http.Handler, model string) *httptest.ResponseRecorder {
	return postJSON(h, "/v1/chat/completions", `{"model":"`+model+`","messages":[{"role":"user","content":"Hello!"}]}`)
}

func postJSON(h http.Handler, path, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}
