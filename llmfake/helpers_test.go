package llmfake_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/llmfake"
)

// A fakeTB is a test whose failures are kept. end runs its cleanup functions.
type fakeTB struct {
	t testing.TB

	mu       sync.Mutex // guards the fields below
	errors   []string
	logs     []string
	fatal    bool
	cleanups []func()
	env      map[string]string
}

func newFakeTB(t testing.TB) *fakeTB { return &fakeTB{t: t, env: map[string]string{}} }

func (f *fakeTB) Helper()           {}
func (f *fakeTB) Name() string      { return f.t.Name() }
func (f *fakeTB) Output() io.Writer { return f.t.Output() }

func (f *fakeTB) Logf(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.logs = append(f.logs, fmt.Sprintf(format, args...))
}

func (f *fakeTB) Errorf(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.errors = append(f.errors, fmt.Sprintf(format, args...))
}

func (f *fakeTB) Fatalf(format string, args ...any) {
	f.Errorf(format, args...)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fatal = true
}

func (f *fakeTB) Failed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.errors) > 0
}

func (f *fakeTB) Cleanup(fn func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cleanups = append(f.cleanups, fn)
}

func (f *fakeTB) Setenv(key, value string) { f.env[key] = value }

// end ends the test and returns its errors.
func (f *fakeTB) end() []string {
	for len(f.cleanups) > 0 {
		last := f.cleanups[len(f.cleanups)-1]
		f.cleanups = f.cleanups[:len(f.cleanups)-1]
		last()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.errors
}

// The formats of chat, with a path and a body that has %s for its text and %t for stream.
var formats = []struct{ protocol, path, body, end string }{
	{llmfake.ChatCompletions, "/v1/chat/completions", `{"model":"gpt-x","stream":%t,"messages":[{"role":"user","content":%q}]}`, "data: [DONE]"},
	{llmfake.Messages, "/v1/messages", `{"model":"claude-x","stream":%t,"max_tokens":1000,"messages":[{"role":"user","content":%q}]}`, "event: message_stop"},
	{llmfake.Responses, "/v1/responses", `{"model":"gpt-x","stream":%t,"input":%q}`, "event: response.completed"},
}

// post sends a request to a format.
func post(t testing.TB, c *http.Client, path, body string) *http.Response {
	t.Helper()
	res, err := tryPost(c, path, body)
	require.NoError(t, err)
	t.Cleanup(func() { res.Body.Close() })
	return res
}

func tryPost(c *http.Client, path, body string) (*http.Response, error) {
	r, err := http.NewRequest("POST", "https://api.example.com"+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer sk-test")
	r.Header.Set("Content-Type", "application/json")
	if strings.HasSuffix(path, "messages") {
		r.Header.Set("Anthropic-Version", "2023-06-01")
	}
	return c.Do(r)
}

// ask sends a user's text in chat completions and returns the status and the text of the reply.
func ask(t testing.TB, srv *llmfake.Server, text string) (int, string) {
	t.Helper()
	res := post(t, srv.Client(), "/v1/chat/completions", fmt.Sprintf(formats[0].body, false, text))
	body := read(t, res)
	var reply struct {
		Choices []struct{ Message struct{ Content string } }
		Error   struct{ Message string }
	}
	require.NoError(t, json.Unmarshal([]byte(body), &reply), "%s", body)
	if len(reply.Choices) == 0 {
		return res.StatusCode, reply.Error.Message
	}
	return res.StatusCode, reply.Choices[0].Message.Content
}

func read(t testing.TB, res *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(res.Body)
	require.NoError(t, err, "%s", b)
	return string(b)
}

// readBroken reads a body that breaks off.
func readBroken(t testing.TB, res *http.Response) string {
	t.Helper()
	var b bytes.Buffer
	_, err := b.ReadFrom(res.Body)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF, "%s", b.String())
	return b.String()
}
