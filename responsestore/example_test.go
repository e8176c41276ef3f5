package responsestore_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/responsestore"
)

// A retention makes the responses of a Store expire.
type retention struct {
	responsestore.Store
	keep time.Duration
}

func (s retention) SaveResponse(ctx context.Context, r *responsestore.Response) error {
	c := *r // the caller's must not be modified
	c.Expires = c.Created.Add(s.keep)
	return s.Store.SaveResponse(ctx, &c)
}

func Example() {
	var store responsestore.Store = retention{memory.NewResponseStore(), 24 * time.Hour} // for responses.Options
	ctx := context.Background()
	err := store.SaveResponse(ctx, &responsestore.Response{
		ID:      "resp_1",
		Account: "acme",
		Created: time.Now(),
		Body:    []byte(`{"id": "resp_1"}`),
	})
	if err != nil {
		log.Fatal(err)
	}
	r, err := store.LoadResponse(ctx, "acme", "resp_1")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s expires after %v\n", r.Body, r.Expires.Sub(r.Created))
	_, err = store.LoadResponse(ctx, "another", "resp_1")
	fmt.Println(errors.Is(err, responsestore.ErrNotFound))
	// Output:
	// {"id": "resp_1"} expires after 24h0m0s
	// true
}
