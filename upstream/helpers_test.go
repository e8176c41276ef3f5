package upstream_test

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/upstream"
)

// testTimeout limits how long a test waits for something that should happen at once.
const testTimeout = 20 * time.Second

const (
	clientKey = "sk-client-0123456789"
	serverKey = "sk-server-abcdefghij9"
)

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		serveAsChild()
		return
	}
	os.Exit(m.Run())
}

// eventually waits until condition returns true.
func eventually(t testing.TB, condition func() bool, what string) {
	t.Helper()
	require.Eventually(t, condition, testTimeout, 2*time.Millisecond, what)
}

// checkLeaks fails the test if it leaves goroutines behind. It must be called
// before other cleanups are registered.
func checkLeaks(t testing.TB) {
	t.Helper()
	t.Cleanup(func() {
		var left []string
		for deadline := time.Now().Add(testTimeout); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
			left = leakedGoroutines()
			if len(left) == 0 {
				return
			}
		}
		assert.Fail(t, "goroutines left behind", "%s", strings.Join(left, "\n\n"))
	})
}

// leakedGoroutines returns the stacks of goroutines of the packages under test.
func leakedGoroutines() (left []string) {
	buf := make([]byte, 4<<20)
	buf = buf[:runtime.Stack(buf, true)]
	for _, stack := range strings.Split(string(buf), "\n\n")[1:] {
		if strings.Contains(stack, "testing.(*T).Run(") || strings.Contains(stack, "testing.(*F).Fuzz") {
			continue
		}
		for _, part := range []string{"llmhttp/upstream", "llmhttp/llmhttp.", "net/http.(*conn).serve", "net/http.(*persistConn)"} {
			if strings.Contains(stack, part) {
				left = append(left, stack)
				break
			}
		}
	}
	return left
}

const (
	mediaJSON   = "application/json"
	mediaEvents = "text/event-stream"
)

// eventStream returns a stream of events with the given data.
func eventStream(data ...string) string {
	return "data: " + strings.Join(data, "\n\ndata: ") + "\n\n"
}

// textChunk returns a chunk with content.
func textChunk(content string) string {
	b, _ := json.Marshal(content)
	return `{"id":"up-1","object":"chat.completion.chunk","created":1755137933,"model":"m","choices":[{"index":0,"delta":{"content":` + string(b) + `},"finish_reason":null}]}`
}

const (
	stopChunk  = `{"id":"up-1","object":"chat.completion.chunk","created":1755137933,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	usageChunk = `{"id":"up-1","object":"chat.completion.chunk","created":1755137933,"model":"m","choices":[],"usage":{"prompt_tokens":7,"completion_tokens":5,"total_tokens":12}}`
	wholeReply = `{"id":"up-1","object":"chat.completion","created":1755137933,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Hello there"},"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":5,"total_tokens":12}}`
	done       = "[DONE]"
)

// newBackend returns a Backend whose connections are closed after the test.
func newBackend(t testing.TB, base string, opts *upstream.Options) *upstream.Backend {
	t.Helper()
	b, err := upstream.New(base, opts)
	require.NoError(t, err)
	t.Cleanup(b.CloseIdleConnections)
	return b
}

// A roundTripper is an http.RoundTripper that is a function.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// okResponse returns a response with the status 200, as from a Transport.
func okResponse(contentType string, body io.Reader) *http.Response {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {contentType}}, ContentLength: -1, Body: io.NopCloser(body)}
}

const (
	chatPath  = "/v1/chat/completions"
	askWhole  = `{"model":"m","messages":[{"role":"user","content":"Hello?"}]}`
	askStream = `{"model":"m","messages":[{"role":"user","content":"Hello?"}],"stream":true}`
	askUsage  = `{"model":"m","messages":[{"role":"user","content":"Hello?"}],"stream":true,"stream_options":{"include_usage":true}}`
)

// withMembers adds members to the body of a request.
func withMembers(body, members string) string {
	return strings.TrimSuffix(body, "}") + "," + members + "}"
}

// noLog is a logger that discards everything.
var noLog = slog.New(slog.DiscardHandler)

// eventData returns the data of the events of a stream.
func eventData(t testing.TB, body string) (list []string) {
	t.Helper()
	for _, event := range strings.Split(strings.TrimSuffix(body, "\n\n"), "\n\n") {
		data, ok := strings.CutPrefix(event, "data: ")
		require.True(t, ok, "%q", event)
		list = append(list, data)
	}
	return list
}

// streamText returns the content and the finish_reason of a stream.
func streamText(t testing.TB, body string) (content, reason string) {
	t.Helper()
	for _, data := range eventData(t, body) {
		if data == done || strings.HasPrefix(data, `{"error":`) {
			continue
		}
		var c llm.ChatChunk
		require.NoError(t, json.Unmarshal([]byte(data), &c), "%s", data)
		for _, choice := range c.Choices {
			content += choice.Delta.Content
			reason += string(choice.FinishReason)
		}
	}
	return content, reason
}
