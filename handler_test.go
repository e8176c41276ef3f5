package llmhttp_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp"
)

func TestNewHandler_PanicsWithoutABackendOrAKeyStore(t *testing.T) {
	assert.Panics(t, func() { llmhttp.NewHandler(nil, keysFor(testKey()), nil) })
	assert.Panics(t, func() { llmhttp.NewHandler(new(stubBackend), nil, nil) })
}

func TestNewHandler_NilOptionsAreTheDefaults(t *testing.T) {
	w := httptest.NewRecorder()
	serve(llmhttp.NewHandler(new(stubBackend), llmhttp.AllowAll("a"), nil), w, chatBody)
	assert.Equal(t, 200, w.Code)
}

func TestHandler_MayBeMountedUnderAPrefix(t *testing.T) {
	s := startServer(t, config{wrap: func(h http.Handler) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("/v1/", h)
		mux.Handle("/llm/", http.StripPrefix("/llm", h))
		return mux
	}})
	for _, prefix := range []string{"", "/llm"} {
		assert.Equal(t, 200, s.do("POST", prefix+chatPath, chatBody).StatusCode)
		assert.Equal(t, 200, s.get(prefix+"/v1/models/hf.co/u/Q:Q4").StatusCode)
		assert.Equal(t, 200, s.get(prefix+"/v1/models/hf.co%2Fu%2FQ:Q4").StatusCode)
		s.get(prefix+"/v1/x").checkError(t, 404)
	}
}

func TestHandler_RequestID(t *testing.T) {
	withIDs := func(f func(*http.Request) string) *testServer {
		return startServer(t, config{opts: llmhttp.Options{RequestID: f}})
	}
	t.Run("is random by default", func(t *testing.T) {
		s := startServer(t, config{})
		seen := map[string]bool{}
		for range 50 {
			for _, r := range []reply{s.chat(chatBody), s.chat(streamBody), s.get("/nope"), s.chat(chatBody, withoutKey), s.chat("{")} {
				id := r.Header.Get("X-Request-Id")
				assert.Regexp(t, `^req_[0-9a-f]{32}$`, id)
				assert.False(t, seen[id], "an ID came twice")
				seen[id] = true
			}
		}
	})
	t.Run("is the host's", func(t *testing.T) {
		n := 0
		s := withIDs(func(r *http.Request) string {
			n++
			return fmt.Sprintf("host-%s-%d", r.Method, n)
		})
		assert.Equal(t, "host-POST-1", s.chat(chatBody).Header.Get("X-Request-Id"))
		assert.Equal(t, "host-POST-2", s.chat(streamBody).Header.Get("X-Request-Id"))
		assert.Equal(t, "host-GET-3", s.get("/").Header.Get("X-Request-Id"))
		assert.Equal(t, "host-POST-1", s.usage.records()[0].ID)
		s.waitForSummaries(3)
		var ids []string
		for _, e := range s.summaries() {
			ids = append(ids, e.ID)
		}
		assert.ElementsMatch(t, []string{"host-POST-1", "host-POST-2", "host-GET-3"}, ids)
	})
	t.Run("is random if the host's is empty", func(t *testing.T) {
		s := withIDs(func(*http.Request) string { return "" })
		assert.Regexp(t, `^req_`, s.chat(chatBody).Header.Get("X-Request-Id"))
	})
	t.Run("cannot add headers", func(t *testing.T) {
		s := withIDs(func(*http.Request) string { return "a\r\nX-Evil: 1\r\n\r\nbody" })
		r := s.chat(chatBody)
		assert.Empty(t, r.Header.Get("X-Evil"))
		assert.True(t, strings.HasPrefix(r.body, "{"))
	})
}
