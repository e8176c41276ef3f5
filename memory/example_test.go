package memory_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/memory"
)

// A Handler for development in one line.
func ExampleEcho() {
	h := llmhttp.NewHandler(memory.Echo(), memory.NewKeyStore("sk-demo"), nil)

	r := httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(
		`{"model": "demo-chat", "messages": [{"role": "user", "content": "Hello there, world!"}], "max_tokens": 2}`))
	r.Header.Set("Authorization", "Bearer sk-demo")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)

	var resp llmhttp.ChatResponse
	if err := json.Unmarshal(w.Body.Bytes(), &resp); err != nil {
		panic(err)
	}
	fmt.Println(resp.Choices[0].Message.Content.Text(), "|", resp.Choices[0].FinishReason)
	fmt.Println(resp.Usage.PromptTokens, "+", resp.Usage.CompletionTokens, "tokens")
	// Output:
	// Hello there, | length
	// 3 + 2 tokens
}

// A model that fails after part of the reply.
func ExampleScripted() {
	b := memory.Scripted(
		memory.Say("It was a dark and "),
		memory.Say("stormy "),
		memory.Fail(errors.New("connection reset")),
	)
	resp, err := llmhttp.Collect(b.Chat(context.Background(), &llmhttp.ChatRequest{Model: "any"}))
	fmt.Printf("%q, then: %v\n", resp.Choices[0].Message.Content.Text(), err)
	// Output:
	// "It was a dark and stormy ", then: connection reset
}

func ExampleNewKeyStore() {
	keys := memory.NewKeyStore("sk-admin") // all scopes, no limits
	keys.Add("sk-guest", &llmhttp.Key{
		ID:      "guest",
		Account: "guests",
		Scopes:  []llmhttp.Endpoint{llmhttp.EndpointChat},
		Limits:  llmhttp.Limits{Requests: llmhttp.PerMinute(20)},
	})
	for _, secret := range []string{"sk-admin", "sk-guest", "sk-wrong"} {
		key, err := keys.Lookup(context.Background(), secret)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(key.ID, key.AllowsEndpoint(llmhttp.EndpointImages))
	}
	// Output:
	// key_46db358cf478 true
	// guest false
	// llmhttp: no such key
}

// Clients get the addresses of images and fetch them from the same server.
func ExampleImageStore() {
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	defer server.Close()

	images := memory.NewImageStore(server.URL + "/images/")
	mux.Handle("/images/", images)
	mux.Handle("/v1/", llmhttp.NewHandler(memory.Echo(), memory.NewKeyStore("sk-demo"), &llmhttp.Options{ImageURL: images.Put}))

	r, _ := http.NewRequest("POST", server.URL+"/v1/images/generations", strings.NewReader(
		`{"model": "demo-image-small", "prompt": "a lighthouse", "size": "256x256"}`))
	r.Header.Set("Authorization", "Bearer sk-demo")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	var answer llmhttp.ImageResponse
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		panic(err)
	}
	address := answer.Data[0].URL
	image, err := http.Get(address)
	if err != nil {
		panic(err)
	}
	defer image.Body.Close()
	fmt.Println(strings.HasPrefix(address, server.URL+"/images/"))
	fmt.Println(image.Status, image.Header.Get("Content-Type"))
	// Output:
	// true
	// 200 OK image/png
}

// A Handler can count tokens in the same way as the Backend.
func ExampleCountTokens() {
	fmt.Println(memory.CountTokens("demo-chat", "Words, 日本語 and 👩‍👩‍👧‍👦."))
	// Output: 7
}
