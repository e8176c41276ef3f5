package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
)

// A server is one of those behind the proxy.
type server struct {
	url   string
	calls atomic.Int64
	reply atomic.Pointer[[]memory.Step] // nil echoes
}

func newServer(t *testing.T, secret string) *server {
	s := new(server)
	b := &memory.Backend{Script: func(*llm.ChatRequest) []memory.Step {
		s.calls.Add(1)
		if steps := s.reply.Load(); steps != nil {
			return *steps
		}
		return nil
	}}
	srv := httptest.NewServer(llmhttp.NewHandler(b, memory.NewKeyStore(secret), nil))
	t.Cleanup(srv.Close)
	s.url = srv.URL + "/v1"
	return s
}

func (s *server) set(steps ...memory.Step) { s.reply.Store(&steps) }

// A site is a proxy under test, in front of two servers and a vendor.
type site struct {
	large, small, vendor *server
	url, file            string
	reload               chan os.Signal
}

func newSite(t *testing.T) *site {
	for name, value := range map[string]string{
		"MODEL_KEY": "sk-model", "ACME_SECRET": "sk-acme", "BOLT_SECRET": "sk-bolt", "ACME_OWN_KEY": "sk-vendor", "WRONG_KEY": "sk-wrong",
	} {
		t.Setenv(name, value)
	}
	s := &site{
		large: newServer(t, "sk-model"), small: newServer(t, "sk-model"), vendor: newServer(t, "sk-vendor"),
		file: filepath.Join(t.TempDir(), "proxy.json"), reload: make(chan os.Signal),
	}
	s.write(t, `{"name": "acme", "secretEnv": "ACME_SECRET", "ownKeyEnv": "ACME_OWN_KEY"}, {"name": "bolt", "secretEnv": "BOLT_SECRET"}`)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s.url = "http://" + l.Addr().String() + "/v1"
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, l, s.file, s.reload) }()
	t.Cleanup(func() {
		stop()
		assert.NoError(t, <-ended)
	})
	s.send(t, "sk-bolt", "GET", "/models", "") // the file has been read
	return s
}

func (s *site) write(t *testing.T, tenants string) {
	t.Helper()
	text := fmt.Sprintf(`{"vendor": %q, "servers": [{"name": "large", "url": %q, "keyEnv": "MODEL_KEY", "weight": 3},
		{"name": "small", "url": %q, "keyEnv": "MODEL_KEY", "weight": 1}], "tenants": [%s]}`, s.vendor.url, s.large.url, s.small.url, tenants)
	require.NoError(t, os.WriteFile(s.file, []byte(text), 0o600))
}

// ask sends a request for a stream and returns the status and the body.
func (s *site) ask(t *testing.T, key, text string) (int, string) {
	t.Helper()
	body, err := json.Marshal(text)
	require.NoError(t, err)
	return s.send(t, key, "POST", "/chat/completions", fmt.Sprintf(`{"model":"demo-chat","stream":true,"messages":[{"role":"user","content":%s}]}`, body))
}

func (s *site) send(t *testing.T, key, method, path, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res.StatusCode, string(text)
}

func TestProxy_WeightsAndCache(t *testing.T) {
	s := newSite(t)
	for i := range 100 {
		status, body := s.ask(t, "sk-bolt", fmt.Sprint("Question ", i))
		require.Equal(t, 200, status, body)
	}
	assert.Greater(t, s.large.calls.Load(), s.small.calls.Load())
	assert.Positive(t, s.small.calls.Load())
	assert.Zero(t, s.vendor.calls.Load())
	_, first := s.ask(t, "sk-bolt", "Question 7")
	assert.Contains(t, first, "Question")
	assert.Equal(t, int64(100), s.large.calls.Load()+s.small.calls.Load())
	s.ask(t, "sk-acme", "Question 7")
	assert.Equal(t, int64(1), s.vendor.calls.Load(), "tenants do not share replies")

	status, body := s.send(t, "sk-bolt", "GET", "/models", "")
	assert.Equal(t, 200, status)
	assert.Contains(t, body, `"demo-chat"`, "of the servers' lists")
}

func TestProxy_OwnKey(t *testing.T) {
	s := newSite(t)
	status, body := s.ask(t, "sk-acme", "Hello")
	require.Equal(t, 200, status, body)
	assert.Equal(t, int64(1), s.vendor.calls.Load())

	s.write(t, `{"name": "acme", "secretEnv": "ACME_SECRET", "ownKeyEnv": "WRONG_KEY"}`)
	s.reloaded()
	for i := range 10 { // more than open a circuit breaker
		status, body = s.ask(t, "sk-acme", fmt.Sprint("Question ", i))
		assert.Equal(t, 403, status)
		assert.Contains(t, body, `"code":"own_key_refused"`)
	}
	s.write(t, `{"name": "acme", "secretEnv": "ACME_SECRET", "ownKeyEnv": "ACME_OWN_KEY"}`)
	s.reloaded()
	status, body = s.ask(t, "sk-acme", "Hello again")
	assert.Equal(t, 200, status, body)
}

// reloaded returns when the proxy has read its file again.
func (s *site) reloaded() {
	s.reload <- syscall.SIGHUP
	s.reload <- syscall.Signal(0) // is received after the first has been handled
}

func TestProxy_Fallback(t *testing.T) {
	s := newSite(t)
	tooLong := llm.Errorf(http.StatusBadRequest, "context_length_exceeded", "This model's maximum context length is 8 tokens.")
	s.large.set(memory.Fail(tooLong))
	for i := range 20 {
		status, body := s.ask(t, "sk-bolt", fmt.Sprint("Question ", i))
		assert.Equal(t, 200, status, body)
	}
	assert.Equal(t, int64(20), s.small.calls.Load())
}

func TestProxy_Guardrail(t *testing.T) {
	s := newSite(t)
	status, body := s.ask(t, "sk-bolt", "The password is swordfish.")
	assert.Equal(t, 400, status)
	assert.Contains(t, body, `"code":"content_filter"`)
	for _, srv := range []*server{s.large, s.small} {
		srv.set(memory.Say("I know. "), memory.Say("It is sword"), memory.Say("fish."), memory.Say(" Bye."))
	}
	status, body = s.ask(t, "sk-bolt", "What is the password?")
	assert.Equal(t, 200, status)
	assert.Contains(t, body, "I know.")
	assert.Contains(t, body, `"finish_reason":"content_filter"`)
	assert.NotContains(t, body, "sword")
}

func TestProxy_Reload(t *testing.T) {
	s := newSite(t)
	s.write(t, `{"name": "acme", "secretEnv": "NOBODYS_SECRET"}`)
	s.reloaded()
	status, _ := s.ask(t, "sk-bolt", "Hello")
	assert.Equal(t, 200, status, "after a mistake nothing changes")
	s.write(t, `{"name": "acme", "secretEnv": "ACME_SECRET"}`)
	s.reloaded()
	status, _ = s.ask(t, "sk-bolt", "Hello")
	assert.Equal(t, 401, status)
	status, _ = s.ask(t, "sk-acme", "Hello")
	assert.Equal(t, 200, status)
}

func TestConfig_OfTheExample(t *testing.T) {
	t.Setenv("ACME_SECRET", "sk-acme")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	assert.NoError(t, run(ctx, l, "proxy.json", nil))
}
