package anthropic_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
	"github.com/llmhttp/llmhttp/upstream"
	"github.com/llmhttp/llmhttp/upstream/anthropic"
)

const serverKey = "sk-ant-server-abcdefghij9"

// A server is a scripted server of the API.
type server struct {
	*httptest.Server
	reply http.HandlerFunc

	mu     sync.Mutex // guards the fields below
	bodies []string
	header http.Header
	paths  []string
}

// newServer returns a server whose replies are those of reply.
func newServer(t testing.TB, reply http.HandlerFunc) *server {
	t.Helper()
	s := &server{reply: reply}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		s.mu.Lock()
		s.bodies, s.header, s.paths = append(s.bodies, string(body)), r.Header, append(s.paths, r.URL.RequestURI())
		s.mu.Unlock()
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		s.reply(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// last returns the body and the header of the last request.
func (s *server) last() (string, http.Header) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bodies[len(s.bodies)-1], s.header
}

// text returns a reply with a status and a body.
func text(status int, body string, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

// events returns a stream of events with the given data. The line with the type of an event is that of its data.
func events(data ...string) string {
	var b strings.Builder
	for _, d := range data {
		var e struct{ Type string }
		if json.Unmarshal([]byte(d), &e) == nil && e.Type != "" {
			b.WriteString("event: " + e.Type + "\n")
		}
		b.WriteString("data: " + d + "\n\n")
	}
	return b.String()
}

const (
	okMessage = `{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"Hi"}],"stop_reason":"end_turn",` +
		`"stop_sequence":null,"usage":{"input_tokens":3,"output_tokens":2}}`
	messageStart = `{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,` +
		`"stop_sequence":null,"usage":{"input_tokens":3,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":1}}}`
	textStart   = `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`
	textDelta   = `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi"}}`
	blockStop   = `{"type":"content_block_stop","index":0}`
	messageEnd  = `{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":2}}`
	messageStop = `{"type":"message_stop"}`
)

// textStream is a complete stream with the text "Hi".
func textStream() string {
	return events(messageStart, textStart, `{"type":"ping"}`, textDelta, blockStop, messageEnd, messageStop)
}

// newBackend returns a Backend whose connections are closed after the test.
func newBackend(t testing.TB, base string, opts *anthropic.Options) *anthropic.Backend {
	t.Helper()
	b, err := anthropic.New(base, opts)
	require.NoError(t, err)
	t.Cleanup(b.CloseIdleConnections)
	return b
}

// withTransport returns options for a server whose replies are those of f.
func withTransport(f func(*http.Request) (*http.Response, error)) *anthropic.Options {
	return &anthropic.Options{Server: upstream.Options{Transport: roundTripper(f)}}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// ask returns a request with a message of the user.
func ask(stream bool) *llm.ChatRequest {
	return &llm.ChatRequest{Model: "m", Stream: stream, Messages: []llm.Message{{Role: llm.RoleUser, Content: llm.TextContent("Hello?")}}}
}

// replyTo returns what the Backend makes of a reply with the status 200.
func replyTo(t testing.TB, opts *anthropic.Options, stream bool, body string) (*llm.ChatResponse, error) {
	t.Helper()
	s := newServer(t, text(http.StatusOK, body))
	return join.Collect(newBackend(t, s.URL, opts).Chat(t.Context(), ask(stream)))
}

func asJSON(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	return string(b)
}

// keyFunc returns a KeyFunc with the same key for all requests.
func keyFunc(key string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return key, nil }
}
