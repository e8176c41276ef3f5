package keycache_test

import (
	"context"
	"fmt"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/keycache"
)

func Example() {
	lookups := 0
	database := llmhttp.KeyStoreFunc(func(ctx context.Context, secret string) (*llmhttp.Key, error) {
		lookups++ // as in a query of a database
		return &llmhttp.Key{ID: "key_1", Account: "acme"}, nil
	})
	keys := keycache.New(database, &keycache.Options{TTL: time.Minute, Grace: time.Hour})
	for range 3 {
		key, err := keys.Lookup(context.Background(), "sk-demo")
		fmt.Println(key.Account, err)
	}
	fmt.Println(lookups, "lookup")
	// Output:
	// acme <nil>
	// acme <nil>
	// acme <nil>
	// 1 lookup
}
