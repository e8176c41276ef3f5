package route_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/route"
	"github.com/llmhttp/llmhttp/upstream"
)

// Targets that are tried one after the other, some of which never read to the
// end, get what the client sent, whatever became of the memory of others.
func TestTriesGetTheWholeRequest(t *testing.T) {
	server := func(h http.HandlerFunc) llmhttp.Backend {
		s := httptest.NewServer(h)
		t.Cleanup(s.Close)
		b, err := upstream.New(s.URL+"/v1", nil)
		require.NoError(t, err)
		t.Cleanup(b.CloseIdleConnections)
		return b
	}
	var want string
	busy := server(func(w http.ResponseWriter, r *http.Request) {
		io.CopyN(io.Discard, r.Body, 100_000)
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	slow := server(func(_ http.ResponseWriter, r *http.Request) {
		io.CopyN(io.Discard, r.Body, 100_000)
		time.Sleep(200 * time.Millisecond)
		panic(http.ErrAbortHandler)
	})
	works := server(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		answer := "different"
		if err == nil && strings.Contains(string(body), want) {
			answer = "the same"
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"id":"1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"%s"},"finish_reason":"stop"}]}`, answer)
	})
	// Only the slow one is given a time, as a loaded machine needs more than
	// that for a request that works.
	slow = inOrder(t, &route.Options{TryTimeout: 100 * time.Millisecond, Tries: 1, Failures: -1}, slow)
	router := inOrder(t, &route.Options{Failures: -1}, busy, slow, works)
	h := llmhttp.NewHandler(router, llmhttp.AllowAll("a"), nil)
	for i := range 10 {
		image := "data:image/png;base64," + strings.Repeat(string(rune('a'+i)), 3_000_000)
		want = `"` + image + `"`
		w := httptest.NewRecorder()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "POST", "/v1/chat/completions", strings.NewReader(
			`{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":`+want+`}}]}]}`)))
		cancel()
		require.Equal(t, http.StatusOK, w.Code, w.Body)
		require.Contains(t, w.Body.String(), "the same")
	}
}
