package memory_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/png"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
	"github.com/llmhttp/llmhttp/manage"
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

	var resp llm.ChatResponse
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
	resp, err := join.Collect(b.Chat(context.Background(), &llm.ChatRequest{Model: "any"}))
	fmt.Printf("%q, then: %v\n", resp.Choices[0].Message.Content.Text(), err)
	// Output:
	// "It was a dark and stormy ", then: connection reset
}

func ExampleNewKeyStore() {
	keys := memory.NewKeyStore("sk-admin") // all scopes, no limits
	keys.Add("sk-guest", &llmhttp.Key{
		ID:      "guest",
		Account: "guests",
		Scopes:  []llmhttp.Scope{llmhttp.ScopeChat},
		Limits:  llmhttp.Limits{Requests: llmhttp.PerMinute(20)},
	})
	for _, secret := range []string{"sk-admin", "sk-guest", "sk-wrong"} {
		key, err := keys.Lookup(context.Background(), secret)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(key.ID, key.AllowsScope(llmhttp.ScopeImages))
	}
	// Output:
	// key_46db358cf478 true
	// guest false
	// llmhttp: no such key
}

// The keys of a prepaid account share its credit.
func ExampleKeyStore_AddCredit() {
	ctx := context.Background()
	keys := memory.NewKeyStore()
	if _, err := keys.CreateAccount(ctx, "acme", manage.AccountParams{Prepaid: true}); err != nil {
		panic(err)
	}
	payment := manage.CreditEntry{ID: "payment-4711", Account: "acme", Amount: llm.USD(2)}
	for range 2 { // the second call does nothing
		if _, err := keys.AddCredit(ctx, payment); err != nil {
			panic(err)
		}
	}
	_, secret, err := keys.CreateKey(ctx, manage.KeyParams{Account: "acme"})
	if err != nil {
		panic(err)
	}
	price := func(*llmhttp.UsageRecord) (llmhttp.Cost, error) { return llmhttp.Cost{Other: llm.MoneyUnit}, nil }
	h := llmhttp.NewHandler(memory.Echo(), keys, &llmhttp.Options{Usage: memory.NewUsageStore(), Price: price})
	for range 3 {
		r := httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(`{"model": "demo-chat", "messages": [{"role": "user", "content": "Hello!"}]}`))
		r.Header.Set("Authorization", "Bearer "+secret)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Println(w.Code)
	}
	// Output:
	// 200
	// 200
	// 429
}

// painter is a Backend that generates images of one pixel.
type painter struct{ *memory.Backend }

func (painter) GenerateImages(ctx context.Context, req *llm.ImageRequest) (*llm.ImageResponse, error) {
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, 1, 1))); err != nil {
		return nil, err
	}
	return &llm.ImageResponse{Data: []llm.Image{{Data: b.Bytes()}}}, nil
}

// Clients get the addresses of images and fetch them from the same server.
func ExampleImageStore() {
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	defer server.Close()

	images := memory.NewImageStore(server.URL + "/images/")
	mux.Handle("/images/", images)
	mux.Handle("/v1/", llmhttp.NewHandler(painter{memory.Echo()}, memory.NewKeyStore("sk-demo"), &llmhttp.Options{ImageURL: images.Put}))

	r, _ := http.NewRequest("POST", server.URL+"/v1/images/generations", strings.NewReader(
		`{"model": "painter", "prompt": "a lighthouse", "size": "256x256", "response_format": "url"}`))
	r.Header.Set("Authorization", "Bearer sk-demo")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	var answer llm.ImageResponse
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		panic(err)
	}
	address := answer.Data[0].URL
	picture, err := http.Get(address)
	if err != nil {
		panic(err)
	}
	defer picture.Body.Close()
	fmt.Println(strings.HasPrefix(address, server.URL+"/images/"))
	fmt.Println(picture.Status, picture.Header.Get("Content-Type"))
	// Output:
	// true
	// 200 OK image/png
}
