package llmhttp_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/llmhttp/llmhttp"
)

// A proxy that only this server trusts, such as Open WebUI, names its users in a header.
func ExampleOptions_user() {
	keys := llmhttp.KeyStoreFunc(func(context.Context, string) (*llmhttp.Key, error) {
		return &llmhttp.Key{ID: "webui", Account: "acme", PerUser: llmhttp.Limits{Requests: llmhttp.PerMinute(1)}}, nil
	})
	h := llmhttp.NewHandler(shout, keys, &llmhttp.Options{
		Accept: llmhttp.AcceptOptions{TrustedOrigins: []string{"*"}},
		User: func(r *http.Request, named string) (string, error) {
			return r.Header.Get("X-OpenWebUI-User-Id"), nil
		},
	})
	for _, user := range []string{"ann", "ann", "bob"} {
		r := httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(hello))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-OpenWebUI-User-Id", user)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Println(user, w.Code)
	}
	// Output:
	// ann 200
	// ann 429
	// bob 200
}
