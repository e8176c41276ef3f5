package sqlstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/manage"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/sqlstore"
	"github.com/llmhttp/llmhttp/usagebuffer"
)

func Example() {
	ctx := context.Background()
	store, err := sqlstore.Open(ctx, ":memory:", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	_, secret, err := store.CreateKey(ctx, manage.KeyParams{Account: "acme"})
	if err != nil {
		log.Fatal(err)
	}

	usage := usagebuffer.New(store, nil)
	h := llmhttp.NewHandler(memory.Echo(), store, &llmhttp.Options{Usage: usage})
	server := httptest.NewServer(h)
	defer server.Close()

	req, err := http.NewRequest("POST", server.URL+"/v1/chat/completions",
		strings.NewReader(`{"model": "demo-chat", "messages": [{"role": "user", "content": "Hello!"}]}`))
	if err != nil {
		log.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+secret)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		log.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()

	// The Handler stops adding records before the buffer is closed.
	if err := errors.Join(h.Shutdown(ctx), usage.Close(ctx)); err != nil {
		log.Fatal(err)
	}
	now := time.Now()
	sums, err := store.Query(ctx, llmhttp.UsageQuery{Account: "acme", From: now.Add(-time.Hour), To: now})
	if err != nil {
		log.Fatal(err)
	}
	for _, sum := range sums {
		fmt.Println(resp.Status, sum.Model, sum.Requests)
	}
	// Output: 200 OK demo-chat 1
}

func ExampleStore_UpdateKey() {
	ctx := context.Background()
	store, err := sqlstore.Open(ctx, ":memory:", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	key, _, err := store.CreateKey(ctx, manage.KeyParams{
		Account: "acme",
		Limits:  llmhttp.Limits{Requests: llmhttp.PerMinute(60), Concurrent: 4},
	})
	if err != nil {
		log.Fatal(err)
	}

	key, err = store.UpdateKey(ctx, key.ID, func(p *manage.KeyParams) error {
		p.Limits.Requests.N *= 2
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(key.Limits.Requests.N, key.Limits.Concurrent)
	// Output: 120 4
}

func ExampleStore_RotateKey() {
	ctx := context.Background()
	store, err := sqlstore.Open(ctx, ":memory:", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	key, oldSecret, err := store.CreateKey(ctx, manage.KeyParams{Account: "acme"})
	if err != nil {
		log.Fatal(err)
	}

	_, newSecret, err := store.RotateKey(ctx, key.ID, 24*time.Hour)
	if err != nil {
		log.Fatal(err)
	}
	for _, secret := range []string{oldSecret, newSecret} {
		k, err := store.Lookup(ctx, secret)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(k.Account, "expires:", !k.Expires.IsZero())
	}
	// Output:
	// acme expires: true
	// acme expires: false
}
