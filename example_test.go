package llmhttp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/usagebuffer"
)

// hello is the body of a chat request.
const hello = `{"model": "demo", "messages": [{"role": "user", "content": "Hello!"}]}`

// post sends a chat request to h and returns the reply.
func post(h http.Handler, body string) *http.Response {
	r := httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer sk-demo")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

// shout is a Backend that repeats the last message in upper case.
var shout llmhttp.BackendFunc = func(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
	last := req.Messages[len(req.Messages)-1] // the Handler refuses requests without messages
	return llm.Reply(strings.ToUpper(last.Content.Text()))
}

// A counter is a Backend that yields a chunk for each number, and then its usage.
type counter struct{}

func (counter) Chat(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
	return func(yield func(*llm.ChatChunk, error) bool) {
		for i := range 3 {
			if !yield(llm.TextChunk(fmt.Sprint(i+1, " ")), nil) {
				return // the client has left
			}
		}
		yield(&llm.ChatChunk{Usage: &llm.Usage{PromptTokens: 2, CompletionTokens: 3}}, nil)
	}
}

func ExampleNewHandler() {
	h := llmhttp.NewHandler(shout, llmhttp.AllowAll("demo"), nil)
	srv := httptest.NewServer(h)
	defer srv.Close()

	resp, err := http.Post(srv.URL+"/v1/chat/completions", "application/json", strings.NewReader(hello))
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		panic(err)
	}
	fmt.Println(resp.Status)
	fmt.Println(strings.Contains(string(body), `"content":"HELLO!"`))
	// Output:
	// 200 OK
	// true
}

// A Handler serves paths below /v1. It can be mounted beside other handlers, on its own
// host, or under a prefix.
func ExampleHandler_mount() {
	h := llmhttp.NewHandler(shout, llmhttp.AllowAll("demo"), nil)
	below := llmhttp.NewHandler(shout, llmhttp.AllowAll("demo"), &llmhttp.Options{Prefix: "/ai"})

	mux := http.NewServeMux()
	mux.Handle("/v1/", h)
	mux.Handle("api.example.com/v1/", h)
	mux.Handle("/ai/", below)
	mux.HandleFunc("/healthz", func(http.ResponseWriter, *http.Request) {})

	for _, path := range []string{"/v1/chat/completions", "/ai/v1/chat/completions", "/ai/v1/nothing"} {
		r := httptest.NewRequest("POST", path, strings.NewReader(hello))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Println(path, w.Code, r.Pattern)
	}
	// Output:
	// /v1/chat/completions 200 POST /v1/chat/completions
	// /ai/v1/chat/completions 200 POST /ai/v1/chat/completions
	// /ai/v1/nothing 404 /ai/
}

// A program that serves until it gets a signal. Here the context ends by itself.
func ExampleServe() {
	ctx, stop := context.WithTimeout(context.Background(), time.Millisecond) // instead of signal.NotifyContext
	defer stop()
	usage := usagebuffer.New(memory.NewUsageStore(), nil)
	h := llmhttp.NewHandler(shout, llmhttp.AllowAll("demo"), &llmhttp.Options{Usage: usage})

	server := &http.Server{Addr: "127.0.0.1:0", Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute}
	fmt.Println(llmhttp.Serve(ctx, server, h, nil))

	fmt.Println(post(h, hello).Status)
	// Output:
	// <nil>
	// 503 Service Unavailable
}

// A Handler can be shut down without the server that it is mounted on.
func ExampleHandler_Shutdown() {
	h := llmhttp.NewHandler(shout, llmhttp.AllowAll("demo"), nil)

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	fmt.Println(h.Shutdown(ctx))

	fmt.Println(post(h, hello).Status)
	// Output:
	// <nil>
	// 503 Service Unavailable
}

func ExampleBackendFunc() {
	b := llmhttp.BackendFunc(func(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
		if req.Model != "demo" {
			return llm.Fail(llm.ModelNotFound(req.Model))
		}
		return llm.Reply("Hi there.")
	})
	h := llmhttp.NewHandler(b, llmhttp.AllowAll("demo"), nil)

	fmt.Println(post(h, hello).Status)
	fmt.Println(post(h, strings.Replace(hello, "demo", "other", 1)).Status)
	// Output:
	// 200 OK
	// 404 Not Found
}

// A Backend that yields several chunks. The Handler writes each of them at once if the
// client asks for a stream, and joins them if it does not.
func ExampleBackend_streaming() {
	h := llmhttp.NewHandler(counter{}, llmhttp.AllowAll("demo"), nil)
	resp := post(h, `{"model": "demo", "messages": [{"role": "user", "content": "Count!"}], "stream": true}`)
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if _, delta, ok := strings.Cut(lines.Text(), `"delta":`); ok {
			fmt.Println(strings.TrimSuffix(delta, "}]}"))
		}
	}
	// Output:
	// {"role":"assistant","content":""},"finish_reason":null
	// {"content":"1 "},"finish_reason":null
	// {"content":"2 "},"finish_reason":null
	// {"content":"3 "},"finish_reason":null
	// {"content":null},"finish_reason":"stop"
}

// A fallback is a Backend that asks its second Backend if the first one fails before it has
// said anything. The first one may change its request, so it gets a clone.
type fallback struct{ first, second llmhttp.Backend }

func (f fallback) Chat(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
	return func(yield func(*llm.ChatChunk, error) bool) {
		begun := false
		for chunk, err := range f.first.Chat(ctx, req.Clone()) {
			if err != nil && !begun {
				f.second.Chat(ctx, req)(yield)
				return
			}
			begun = true
			if !yield(chunk, err) {
				return
			}
		}
	}
}

func ExampleBackend_clone() {
	broken := llmhttp.BackendFunc(func(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
		req.Messages[0].Content = nil
		return llm.Fail(errors.New("out of memory"))
	})
	req := &llm.ChatRequest{Model: "demo", Messages: []llm.Message{{Role: llm.RoleUser, Content: llm.TextContent("Hello!")}}}
	reply, err := join.Collect(fallback{broken, shout}.Chat(context.Background(), req))
	if err != nil {
		panic(err)
	}
	fmt.Println(reply.Choices[0].Message.Content.Text())
	// Output: HELLO!
}

// An agent is a Backend that calls a model twice. Each call is priced by itself, and its usage is
// that of both, also if the client leaves.
type agent struct{ model llmhttp.Backend }

func (a agent) Chat(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
	return func(yield func(*llm.ChatChunk, error) bool) {
		callCtx, end := llm.StartCall(ctx, req.Model)
		draft, err := join.Collect(a.model.Chat(callCtx, req.Clone()))
		end(llm.CallResult{Model: draft.Model, Usage: draft.Usage, Err: err})
		if err != nil {
			yield(nil, err)
			return
		}
		req.Messages = append(req.Messages, draft.Choices[0].Message,
			llm.Message{Role: llm.RoleUser, Content: llm.TextContent("Check that.")})
		callCtx, end = llm.StartCall(ctx, req.Model)
		var used *llm.Usage // the last one counts: a chunk has the usage of its call so far
		defer func() { end(llm.CallResult{Usage: used}) }()
		for chunk, err := range a.model.Chat(callCtx, req) {
			if err == nil && chunk.Usage != nil {
				used = chunk.Usage
			}
			if !yield(chunk, err) {
				return
			}
		}
	}
}

func ExampleStartCall() {
	var log llmhttp.Observer = func(ctx context.Context, r *http.Request) (context.Context, llmhttp.Observation) {
		return ctx, llmhttp.Observation{Ended: func(s *llmhttp.RequestSummary) {
			fmt.Println(s.Record.Units.PromptTokens, "and", s.Record.Units.CompletionTokens, "tokens")
		}}
	}
	h := llmhttp.NewHandler(agent{counter{}}, llmhttp.AllowAll("acme"), &llmhttp.Options{Observe: log})
	post(h, hello)
	// Output: 4 and 6 tokens
}

// A polite Backend changes each chat request. Requests for images, embeddings and models
// pass unchanged.
type polite struct{ llmhttp.Backend }

// Unwrap is for [llmhttp.As]: without it, the wrapper has Chat alone.
func (p polite) Unwrap(context.Context) llmhttp.Backend { return p.Backend }

func (p polite) Chat(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
	last := &req.Messages[len(req.Messages)-1]
	last.Content = llm.TextContent(last.Content.Text() + " Please.")
	return p.Backend.Chat(ctx, req)
}

// A wrapper lets pass what it does not have by a method Unwrap.
func ExampleAs() {
	h := llmhttp.NewHandler(polite{shout}, llmhttp.AllowAll("demo"), nil)

	body, err := io.ReadAll(post(h, hello).Body)
	if err != nil {
		panic(err)
	}
	fmt.Println(strings.Contains(string(body), `"content":"HELLO! PLEASE."`))
	// Output: true
}

// A KeyStore that is backed by a map of hashes, so that it does not store secrets.
func ExampleKeyStoreFunc() {
	stored := map[string]*llmhttp.Key{
		llmhttp.HashSecret("sk-demo"): {ID: "key_1", Account: "acme", Models: []string{"demo*"}},
	}
	keys := llmhttp.KeyStoreFunc(func(ctx context.Context, secret string) (*llmhttp.Key, error) {
		if key := stored[llmhttp.HashSecret(secret)]; key != nil {
			return key, nil
		}
		return nil, llmhttp.ErrKeyNotFound
	})
	h := llmhttp.NewHandler(shout, keys, nil)

	fmt.Println(post(h, hello).Status)
	delete(stored, llmhttp.HashSecret("sk-demo"))
	fmt.Println(post(h, hello).Status)
	// Output:
	// 200 OK
	// 401 Unauthorized
}

func ExampleLimits() {
	key := &llmhttp.Key{ID: "key_1", Limits: llmhttp.Limits{
		Requests: llmhttp.PerMinute(2),
		Tokens:   llmhttp.Rate{N: 100_000, Per: time.Minute, Burst: 200_000},
		Quota:    llmhttp.Quota{Tokens: 10_000_000},
	}}
	keys := llmhttp.KeyStoreFunc(func(context.Context, string) (*llmhttp.Key, error) { return key, nil })
	h := llmhttp.NewHandler(shout, keys, &llmhttp.Options{Usage: memory.NewUsageStore()}) // a Quota needs a UsageStore

	for range 3 {
		resp := post(h, hello)
		fmt.Println(resp.StatusCode, "remaining:", resp.Header.Get("x-ratelimit-remaining-requests"))
	}
	// Output:
	// 200 remaining: 1
	// 200 remaining: 0
	// 429 remaining: 0
}

// A tenant is the host's own data about a customer.
type tenant struct{ greeting string }

// A KeyStore gives the host's own data to the Backend.
func ExampleKeyFrom() {
	tenants := map[string]*tenant{"sk-demo": {greeting: "Bonjour!"}}
	keys := llmhttp.KeyStoreFunc(func(_ context.Context, secret string) (*llmhttp.Key, error) {
		t := tenants[secret]
		if t == nil {
			return nil, llmhttp.ErrKeyNotFound
		}
		return &llmhttp.Key{ID: "acme", Data: t}, nil
	})
	greet := llmhttp.BackendFunc(func(ctx context.Context, _ *llm.ChatRequest) llm.ChatStream {
		t := llmhttp.KeyFrom(ctx).Data.(*tenant)
		fmt.Println(t.greeting)
		return llm.Reply(t.greeting)
	})
	post(llmhttp.NewHandler(greet, keys, nil), hello)
	// Output: Bonjour!
}

// A Backend that passes the ID of the request and the name of the account on.
func ExampleRequestInfoFrom() {
	b := llmhttp.BackendFunc(func(ctx context.Context, _ *llm.ChatRequest) llm.ChatStream {
		info := llmhttp.RequestInfoFrom(ctx)
		fmt.Println(info.ID, info.Account, info.Operation, info.Model, info.Params.Messages)
		return llm.Reply("Hello!")
	})
	h := llmhttp.NewHandler(b, llmhttp.AllowAll("acme"), &llmhttp.Options{RequestID: func(*http.Request) string { return "req_1" }})
	post(h, hello)
	// Output: req_1 acme chat demo 1
}

// An Observer that prints a line for each request.
func ExampleObserver() {
	var log llmhttp.Observer = func(ctx context.Context, r *http.Request) (context.Context, llmhttp.Observation) {
		return ctx, llmhttp.Observation{Ended: func(s *llmhttp.RequestSummary) {
			fmt.Println(r.Method, r.URL.Path, s.Status, s.Record.Account, s.Record.Model, s.Record.Units.CompletionTokens, s.Err)
		}}
	}
	h := llmhttp.NewHandler(counter{}, llmhttp.AllowAll("acme"), &llmhttp.Options{Observe: log})
	post(h, hello)
	// Output: POST /v1/chat/completions 200 acme demo 3 <nil>
}

// WriteError lets middleware in front of a Handler send errors in the format of the API that
// the client uses.
func ExampleHandler_WriteError() {
	h := llmhttp.NewHandler(shout, llmhttp.AllowAll("demo"), &llmhttp.Options{Logger: slog.New(slog.DiscardHandler)})
	closed := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e := llm.Errorf(http.StatusServiceUnavailable, "closed", "We are closed until %s.", "Monday")
		e.NoRetry = true
		h.WriteError(w, r, e)
	})

	resp := post(closed, hello)
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		panic(err)
	}
	fmt.Println(resp.Status)
	fmt.Println(string(body))
	// Output:
	// 503 Service Unavailable
	// {"error":{"message":"We are closed until Monday.","type":"server_error","param":null,"code":"closed"}}
}

// printText prints the text of a whole reply.
func printText(resp *http.Response) {
	body, _ := io.ReadAll(resp.Body)
	var r llm.ChatResponse
	if err := r.UnmarshalJSON(body); err != nil || len(r.Choices) == 0 {
		fmt.Println(string(body))
		return
	}
	fmt.Println(r.Choices[0].Message.Content.Text())
}
