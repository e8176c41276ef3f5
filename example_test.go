package llmhttp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
)

// post sends a chat request to h, as a client would, and returns the reply.
func post(h http.Handler, body string) *http.Response {
	r := httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer sk-demo")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

const hello = `{"model": "demo", "messages": [{"role": "user", "content": "Hello!"}]}`

// shout is a Backend in a few lines. It serves streamed and whole replies alike.
var shout llmhttp.BackendFunc = func(ctx context.Context, req *llmhttp.ChatRequest) llmhttp.ChatStream {
	last := req.Messages[len(req.Messages)-1] // never empty: the Handler has checked
	return llmhttp.Reply(strings.ToUpper(last.Content.Text()))
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
	body, _ := io.ReadAll(resp.Body)
	fmt.Println(resp.Status, strings.Contains(string(body), `"content":"HELLO!"`))
	// Output: 200 OK true
}

func ExampleBackendFunc() {
	b := llmhttp.BackendFunc(func(ctx context.Context, req *llmhttp.ChatRequest) llmhttp.ChatStream {
		if req.Model != "demo" {
			return llmhttp.Fail(llmhttp.ModelNotFound(req.Model))
		}
		return llmhttp.Reply("Hi there.")
	})
	h := llmhttp.NewHandler(b, llmhttp.AllowAll("demo"), nil)

	fmt.Println(post(h, hello).Status)
	fmt.Println(post(h, strings.Replace(hello, "demo", "other", 1)).Status)
	// Output:
	// 200 OK
	// 404 Not Found
}

// A counter is a Backend that streams as it thinks.
type counter struct{}

func (counter) Chat(ctx context.Context, req *llmhttp.ChatRequest) llmhttp.ChatStream {
	return func(yield func(*llmhttp.ChatChunk, error) bool) {
		for i := range 3 {
			if !yield(llmhttp.TextChunk(fmt.Sprint(i+1, " ")), nil) {
				return // the client has left
			}
		}
		yield(&llmhttp.ChatChunk{Usage: &llmhttp.Usage{PromptTokens: 2, CompletionTokens: 3}}, nil)
	}
}

func ExampleBackend_streaming() {
	h := llmhttp.NewHandler(counter{}, llmhttp.AllowAll("demo"), &llmhttp.Options{
		Now: func() time.Time { return time.Unix(1700000000, 0) },
	})
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

// polite wraps a Backend: it changes what is asked, and forwards the rest, be
// it images, embeddings or models.
type polite struct{ llmhttp.Forwarder }

func (p polite) Chat(ctx context.Context, req *llmhttp.ChatRequest) llmhttp.ChatStream {
	last := &req.Messages[len(req.Messages)-1]
	last.Content = llmhttp.Text(last.Content.Text() + " Please.")
	return p.Forwarder.Chat(ctx, req)
}

func ExampleForwarder() {
	b := polite{llmhttp.Forwarder{Backend: shout}}
	req := &llmhttp.ChatRequest{Messages: []llmhttp.Message{{Role: llmhttp.RoleUser, Content: llmhttp.Text("Sing.")}}}
	reply, err := llmhttp.Collect(b.Chat(context.Background(), req))
	fmt.Println(reply.Choices[0].Message.Content.Text(), err)
	// Output: SING. PLEASE. <nil>
}

func ExampleKeyFunc() {
	// What is stored is the hash of a key, never the key.
	stored := map[string]*llmhttp.Key{
		llmhttp.HashSecret("sk-demo"): {ID: "key_1", Account: "acme", Models: []string{"demo*"}},
	}
	keys := llmhttp.KeyFunc(func(ctx context.Context, secret string) (*llmhttp.Key, error) {
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

func ExampleWriteError() {
	h := llmhttp.NewHandler(shout, llmhttp.AllowAll("demo"), nil)
	closed := true
	front := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if closed {
			e := llmhttp.Errorf(http.StatusServiceUnavailable, "closed", "We are closed until %s.", "Monday")
			e.NoRetry = true
			llmhttp.WriteError(w, r, e)
			return
		}
		h.ServeHTTP(w, r)
	})
	resp := post(front, hello)
	body, _ := io.ReadAll(resp.Body)
	fmt.Println(resp.Status)
	fmt.Println(string(body))
	// Output:
	// 503 Service Unavailable
	// {"error":{"message":"We are closed until Monday.","type":"server_error","param":null,"code":"closed"}}
}

func ExampleHandler_Shutdown() {
	h := llmhttp.NewHandler(shout, llmhttp.AllowAll("demo"), nil)
	srv := &http.Server{Handler: h}

	// Upon SIGTERM: first the Handler, which ends streams that do not end by
	// themselves, then the server.
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	fmt.Println(h.Shutdown(ctx))
	fmt.Println(srv.Shutdown(ctx))
	fmt.Println(post(h, hello).Status)
	// Output:
	// <nil>
	// <nil>
	// 503 Service Unavailable
}

func ExampleObserver() {
	var log llmhttp.Observer = func(ctx context.Context, r *http.Request) (context.Context, func(*llmhttp.RequestSummary)) {
		return ctx, func(e *llmhttp.RequestSummary) {
			fmt.Println(r.Method, r.URL.Path, e.Status, e.Account, e.Model, e.Usage.CompletionTokens, e.Err)
		}
	}
	h := llmhttp.NewHandler(counter{}, llmhttp.AllowAll("acme"), &llmhttp.Options{Observe: log})
	post(h, hello)
	// Output: POST /v1/chat/completions 200 acme demo 3 <nil>
}

func ExampleCollect() {
	reply, err := llmhttp.Collect(counter{}.Chat(context.Background(), nil))
	if err != nil {
		panic(err)
	}
	fmt.Printf("%q\n", reply.Choices[0].Message.Content.Text())
	fmt.Println(reply.Usage.CompletionTokens, "tokens")

	_, err = llmhttp.Collect(llmhttp.Fail(errors.New("no model")))
	fmt.Println(err)
	// Output:
	// "1 2 3 "
	// 3 tokens
	// no model
}

// A printStore is a UsageStore that prints.
type printStore struct{ llmhttp.UsageStore }

func (printStore) Record(ctx context.Context, records ...llmhttp.UsageRecord) error {
	fmt.Println("storing", len(records), "records")
	return nil
}

func ExampleUsageBuffer() {
	usage := llmhttp.NewUsageBuffer(printStore{}, 100, time.Minute)
	h := llmhttp.NewHandler(counter{}, llmhttp.AllowAll("acme"), &llmhttp.Options{Usage: usage})
	for range 3 {
		post(h, hello)
	}
	// At the end, after the Handler's own Shutdown:
	fmt.Println(usage.Close(context.Background()))
	// Output:
	// storing 3 records
	// <nil>
}

func ExampleLimits() {
	key := &llmhttp.Key{ID: "key_1", Limits: llmhttp.Limits{
		Requests: llmhttp.PerMinute(2),
		Tokens:   llmhttp.Rate{N: 100_000, Per: time.Minute, Burst: 200_000},
		Quota:    llmhttp.Rate{N: 10_000_000, Per: 30 * 24 * time.Hour},
	}}
	keys := llmhttp.KeyFunc(func(context.Context, string) (*llmhttp.Key, error) { return key, nil })
	h := llmhttp.NewHandler(shout, keys, nil)
	for range 3 {
		resp := post(h, hello)
		fmt.Println(resp.StatusCode, "remaining:", resp.Header.Get("x-ratelimit-remaining-requests"))
	}
	// Output:
	// 200 remaining: 1
	// 200 remaining: 0
	// 429 remaining: 0
}

func ExampleHandler_mount() {
	h := llmhttp.NewHandler(shout, llmhttp.AllowAll("demo"), nil)

	mux := http.NewServeMux()
	mux.Handle("/v1/", h)                          // beside other routes
	mux.Handle("api.example.com/v1/", h)           // at a host of its own
	mux.Handle("/ai/", http.StripPrefix("/ai", h)) // under a prefix
	mux.HandleFunc("/healthz", func(http.ResponseWriter, *http.Request) {})

	for _, path := range []string{"/v1/chat/completions", "/ai/v1/chat/completions"} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest("POST", path, strings.NewReader(hello)))
		fmt.Println(path, w.Code)
	}
	// Output:
	// /v1/chat/completions 200
	// /ai/v1/chat/completions 200
}
