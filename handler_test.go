package llmhttp_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/llmhttp/llmhttp"
	"github.com/stretchr/testify/assert"
)

func TestNewHandler_PanicsWithoutABackendOrAKeyStore(t *testing.T) {
	assert.Panics(t, func() { llmhttp.NewHandler(nil, keysFor(testKey()), nil) })
	assert.Panics(t, func() { llmhttp.NewHandler(new(stubBackend), nil, nil) })
	var backend *stubBackend // variables that were never set
	var keys llmhttp.KeyStoreFunc
	assert.PanicsWithValue(t, "llmhttp: nil Backend", func() { llmhttp.NewHandler(backend, llmhttp.AllowAll("a"), nil) })
	assert.PanicsWithValue(t, "llmhttp: nil KeyStore", func() { llmhttp.NewHandler(new(stubBackend), keys, nil) })
}

func TestNewHandler_NilOptionsAreTheDefaults(t *testing.T) {
	w := httptest.NewRecorder()
	serve(llmhttp.NewHandler(new(stubBackend), llmhttp.AllowAll("a"), nil), w, chatBody)
	assert.Equal(t, 200, w.Code)
}

func TestHandler_MayBeMountedBehindStripPrefix(t *testing.T) {
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
			ids = append(ids, e.Record.ID)
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

// Paths are matched as they are sent, without cleaning or redirects. ollama#10139,
// #13715, litellm#37271: models with slashes in their IDs were not found.
func TestHandler_Paths(t *testing.T) {
	s := startServer(t, config{})
	const model = "model_not_found"
	tests := []struct {
		target string
		status int
		code   string
	}{
		{"/v1/models", 200, ""},
		{"/v1/models?limit=3", 200, ""},
		{"/v1/m%6Fdels", 200, ""},
		{"http://elsewhere.example/v1/models", 200, ""},
		{"/v1/models/demo-chat", 200, ""},
		{"/v1/models/demo%2Dchat", 200, ""},
		{"/v1/models/hf.co/u/Q:Q4", 200, ""},
		{"/v1/models/hf.co%2Fu%2FQ%3AQ4", 200, ""},
		{"/v1/models/hf.co%2fu/Q:Q4?x=1", 200, ""},
		{"/dashboard/billing/usage", 200, ""},
		{"/v1/dashboard/billing/usage", 200, ""},
		{"/v1/models/", 404, ""},
		{"/v1/models//demo-chat", 404, model},
		{"/v1/models/demo-chat/", 404, model},
		{"/v1/models/../models/demo-chat", 404, model},
		{"/v1/models/hf.co/./u/Q:Q4", 404, model},
		{"/v1/models/HF.co/u/Q:Q4", 404, model},
		{"//v1/models", 404, ""},
		{"/v1//models", 404, ""},
		{"/v1/./models", 404, ""},
		{"/v1/x/../models", 404, ""},
		{"/../v1/models", 404, ""},
		{"/V1/models", 404, ""},
		{"/v1/Models", 404, ""},
		{"/v1/models;a=b", 404, ""},
		{"/v1%2Fmodels", 404, ""},
		{"/v1/chat%2Fcompletions", 404, ""},
		{"/v1/dashboard%2Fbilling/usage", 404, ""},
		{"/v1/chat/completions/", 404, ""},
		{"/v1/chat/completions/x", 404, ""},
		{"/v1/chat//completions", 404, ""},
		{"/chat/completions", 404, ""},
		{"/models", 404, ""},
		{"/v1", 404, ""},
		{"/v1/", 404, ""},
		{"/", 404, ""},
		{"/favicon.ico", 404, ""},
		{"/v1/%00", 404, ""},
		{"/v1/%F0%9F%98%80", 404, ""},
		{"/v1/\"quoted\"", 404, ""},
	}
	for _, tt := range tests {
		t.Run(tt.target, func(t *testing.T) {
			r := parseReply(t, "GET", s.raw("GET "+tt.target+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer "+testSecret+"\r\n\r\n"))
			assert.Equal(t, "application/json", r.Header.Get("Content-Type"))
			if tt.status == 200 {
				assert.Equal(t, 200, r.StatusCode, "%s", r.body)
				r.checkHeaders(t)
				return
			}
			e := r.checkError(t, tt.status)
			assert.Equal(t, tt.code, e.Code)
			assert.Less(t, len(e.Message), 300)
		})
	}
	for _, n := range []int{1 << 10, 8 << 10, 256 << 10} {
		for _, prefix := range []string{"/v1/", "/v1/models/"} {
			t.Run(fmt.Sprintf("%s and %d bytes", prefix, n), func(t *testing.T) {
				e := s.get(prefix+strings.Repeat("a", n)).checkError(t, 404)
				assert.Less(t, len(e.Message), 300)
			})
		}
	}
}

func TestHandler_Methods(t *testing.T) {
	s := startServer(t, config{})
	for _, path := range []string{modelsPath, modelsPath + "/demo-chat", usagePath} {
		for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"} {
			t.Run(method+" "+path, func(t *testing.T) {
				r := s.do(method, path, "")
				e := r.checkError(t, 405)
				assert.Equal(t, fmt.Sprintf("Not allowed to %s on %s. (HINT: Perhaps you meant to use a different HTTP method?)", method, path), e.Message)
				assert.Equal(t, "GET, HEAD", r.Header.Get("Allow"))
			})
		}
		t.Run("HEAD "+path, func(t *testing.T) {
			want := s.get(path)
			r := s.do("HEAD", path, "")
			assert.Equal(t, 200, r.StatusCode)
			assert.Empty(t, r.body)
			assert.Equal(t, strconv.Itoa(len(want.body)), r.Header.Get("Content-Length"))
			assert.Equal(t, "application/json", r.Header.Get("Content-Type"))
			r.checkHeaders(t)
		})
	}
	for path := range modelBodies {
		for _, method := range []string{"GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "post"} {
			t.Run(method+" "+path, func(t *testing.T) {
				r := s.do(method, path, "")
				assert.Equal(t, 405, r.StatusCode)
				assert.Equal(t, "POST", r.Header.Get("Allow"))
				assert.Equal(t, "application/json", r.Header.Get("Content-Type"))
				r.checkHeaders(t)
				if method == "HEAD" {
					assert.Empty(t, r.body)
				} else {
					r.checkError(t, 405)
				}
			})
		}
	}
	for _, path := range []string{"/v1/x", modelsPath + "/nope"} {
		t.Run("HEAD "+path, func(t *testing.T) {
			r := s.do("HEAD", path, "")
			assert.Equal(t, 404, r.StatusCode)
			assert.Empty(t, r.body)
			assert.Equal(t, "application/json", r.Header.Get("Content-Type"))
		})
	}
	t.Run("long method", func(t *testing.T) {
		e := s.do(strings.Repeat("X", 5000), modelsPath, "").checkError(t, 405)
		assert.Less(t, len(e.Message), 300)
	})
}

// The Handler sets Request.Pattern, as a ServeMux does, so that middleware around it can
// read the route.
func TestHandler_SetsThePatternOfTheRequest(t *testing.T) {
	h := llmhttp.NewHandler(textBackend("a"), keysFor(testKey()), &llmhttp.Options{Logger: slog.New(slog.DiscardHandler)})
	for path, want := range map[string]string{modelsPath + "/a": "GET " + modelsPath + "/{id...}", "/v1/none": ""} {
		r := httptest.NewRequest("GET", path, nil)
		h.ServeHTTP(httptest.NewRecorder(), r)
		assert.Equal(t, want, r.Pattern, path)
	}
}

// An interface in Options that holds a nil pointer is a variable that was never set.
func TestNewHandler_TypedNils(t *testing.T) {
	var usage *usageLog
	var limiter *stubLimiter
	for want, opts := range map[string]llmhttp.Options{
		"llmhttp: Options.Usage holds a nil *llmhttp_test.usageLog":      {Usage: usage},
		"llmhttp: Options.Limiter holds a nil *llmhttp_test.stubLimiter": {Limiter: limiter},
	} {
		assert.PanicsWithValue(t, want, func() { llmhttp.NewHandler(new(stubBackend), llmhttp.AllowAll("a"), &opts) })
	}
	for field := range reflect.TypeFor[llmhttp.Options]().Fields() { // each interface is checked, also those of tomorrow
		if field.Type.Kind() == reflect.Interface {
			assert.Contains(t, []string{"Usage", "Limiter"}, field.Name, "add it to this test")
		}
	}
}

// The 404 for an unserved path of a known API lists the served routes. The routes of a
// Protocol in Options are served.
func TestHandler_UnservedPaths(t *testing.T) {
	s := startServer(t, config{backend: textBackend("x")})
	const inResponses, inMessages = ", because package github.com/llmhttp/llmhttp/responses is not mounted", ", because package github.com/llmhttp/llmhttp/messages is not mounted"
	for path, because := range map[string]string{
		"responses": inResponses, "responses/resp_1/cancel": inResponses, "messages": inMessages, "messages/count_tokens": inMessages,
		"messages/batches": "", "responses/resp_1/other": "", "audio/voices": "", "files": "", "images/variations": "",
	} {
		e := s.do("POST", "/v1/"+path, "{}").checkError(t, 404)
		assert.Equal(t, "Invalid URL (POST /v1/"+path+"). This server does not serve it"+because+". It serves GET /dashboard/billing/subscription, GET /dashboard/billing/usage, "+
			"GET /v1/dashboard/billing/subscription, GET /v1/dashboard/billing/usage, POST /v1/chat/completions.", e.Message)
	}
	assert.Contains(t, s.do("GET", "/v1/responses/resp_1", "").checkError(t, 404).Message, inResponses)
	assert.NotContains(t, s.do("GET", "/v1/messages", "").checkError(t, 404).Message, inMessages, "the package has no such method")
	for _, path := range []string{"/v1/x", "/v1/", "/responses", "/v1/responses2"} {
		e := s.do("POST", path, "{}").checkError(t, 404)
		assert.Equal(t, "Invalid URL (POST "+path+")", e.Message)
	}
	s = startServer(t, config{backend: &stubBackend{}})
	served := []string{"GET /v1/models"}
	for path := range modelBodies {
		served = append(served, "POST "+path)
	}
	for _, hint := range served {
		assert.Contains(t, s.do("POST", "/v1/messages", "{}").checkError(t, 404).Message, hint)
	}
}
