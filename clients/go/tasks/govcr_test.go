package tasks

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"testing"

	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/openai/openai-go/v3/option"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"gopkg.in/dnaeon/go-vcr.v4/pkg/cassette"
	"gopkg.in/dnaeon/go-vcr.v4/pkg/recorder"
)

// The helpers of the tests with go-vcr. It replays what was recorded, so for replies that a test
// makes up the helpers write a cassette by hand. A cassette has neither pauses nor bodies that
// break off.

const (
	openAIURL    = "https://api.openai.com/v1/chat/completions"
	anthropicURL = "https://api.anthropic.com/v1/messages"
)

// reply returns an exchange of a cassette.
func reply(url string, status int, header http.Header, body string) *cassette.Interaction {
	if header == nil {
		header = http.Header{}
	}
	header.Set("Content-Type", "application/json")
	return &cassette.Interaction{
		Request:  cassette.Request{Method: "POST", URL: url},
		Response: cassette.Response{Code: status, Status: http.StatusText(status), Headers: header, Body: body},
	}
}

// replayer returns a client that replays exchanges in order. Bodies are not compared.
func replayer(t *testing.T, exchanges ...*cassette.Interaction) *http.Client {
	c := cassette.New(filepath.Join(t.TempDir(), "cassette"))
	c.MarshalFunc = yaml.Marshal
	for _, e := range exchanges {
		c.AddInteraction(e)
	}
	require.NoError(t, c.Save())
	r, err := recorder.New(c.Name, recorder.WithMode(recorder.ModeReplayOnly), recorder.WithSkipRequestLatency(true),
		recorder.WithMatcher(func(r *http.Request, i cassette.Request) bool { return r.Method == i.Method && r.URL.String() == i.URL }))
	require.NoError(t, err)
	t.Cleanup(func() { r.Stop() })
	return r.GetDefaultClient()
}

func TestGovcr_1(t *testing.T) {
	client := replayer(t, reply(openAIURL, 200, nil, `{"choices":[{"message":{"role":"assistant","content":"It rains."},"finish_reason":"stop"}]}`))
	got, err := ask(t.Context(), newClient(option.WithHTTPClient(client)), "Rain?")
	require.NoError(t, err)
	assert.Equal(t, "It rains.", got)
}

func TestGovcr_3(t *testing.T) {
	client := replayer(t,
		reply(openAIURL, 200, nil, `{"choices":[{"message":{"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function",
			"function":{"name":"forecast","arguments":"{\"city\":\"Bergen\"}"}}]},"finish_reason":"tool_calls"}]}`),
		reply(openAIURL, 200, nil, `{"choices":[{"message":{"role":"assistant","content":"It rains."},"finish_reason":"stop"}]}`),
	)
	var bodies []string
	client.Transport = keepBodies(client.Transport, &bodies)
	got, err := runAgent(t.Context(), newClient(option.WithHTTPClient(client)), "Rain?")
	require.NoError(t, err)
	assert.Equal(t, "It rains.", got)
	assert.Contains(t, bodies[1], `"content":"rain: `)
}

// roundTripper is a function that is a transport.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// keepBodies returns a transport that keeps the bodies of requests.
func keepBodies(base http.RoundTripper, bodies *[]string) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		*bodies = append(*bodies, string(body))
		return base.RoundTrip(r)
	})
}

func TestGovcr_4(t *testing.T) {
	client := replayer(t, reply(openAIURL, 200, nil, `{"choices":[{"message":{"role":"assistant","content":"{\"city\":\"Bergen\",\"rain\":true}"},"finish_reason":"stop"}]}`))
	got, err := extract(t.Context(), newClient(option.WithHTTPClient(client)), "Rain?")
	require.NoError(t, err)
	assert.Equal(t, forecast{"Bergen", true}, got)
}

func TestGovcr_5(t *testing.T) { // does not check the wait
	client := replayer(t,
		reply(openAIURL, 429, http.Header{"Retry-After-Ms": {"1"}}, `{"error":{"message":"Rate limit reached.","type":"requests","code":"rate_limit_exceeded"}}`),
		reply(openAIURL, 200, nil, `{"choices":[{"message":{"role":"assistant","content":"It rains."},"finish_reason":"stop"}]}`),
	)
	got, err := ask(t.Context(), newClient(option.WithHTTPClient(client)), "Rain?")
	require.NoError(t, err)
	assert.Equal(t, "It rains.", got)
}

func TestGovcr_7(t *testing.T) {
	client := replayer(t, reply(openAIURL, 200, nil, `{"choices":[{"message":{"role":"assistant","content":"It rains."},"finish_reason":"stop"}]}`))
	var bodies []string
	var key string
	base := keepBodies(client.Transport, &bodies)
	client.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
		key = r.Header.Get("Authorization")
		return base.RoundTrip(r)
	})
	_, err := ask(t.Context(), newClient(option.WithHTTPClient(client)), "Rain?")
	require.NoError(t, err)
	var body struct {
		Model    string
		Messages []struct{ Role, Content string }
	}
	require.NoError(t, json.Unmarshal([]byte(bodies[0]), &body))
	assert.Equal(t, "gpt-4o", body.Model)
	assert.Equal(t, "Be brief.", body.Messages[0].Content)
	assert.Equal(t, "Rain?", body.Messages[1].Content)
	assert.Equal(t, "Bearer test", key)
}

func TestGovcr_8(t *testing.T) { // the program gets the error, and not the test
	tb := &fakeTB{TB: t}
	c := reply("https://api.openai.com/v1/other", 200, nil, "{}")
	client := replayer(t, c)
	_, err := ask(t.Context(), newClient(option.WithHTTPClient(client), option.WithMaxRetries(0)), "Rain?")
	if err != nil {
		tb.Errorf("%v", err)
	}
	if !c.WasReplayed() {
		tb.Errorf("the reply to %s was not asked for", c.Request.URL)
	}
	assert.Contains(t, tb.errors, "requested interaction not found")
	assert.Contains(t, tb.errors, "was not asked for")
}

func TestGovcr_9(t *testing.T) {
	r, err := recorder.New("testdata/govcr/TestGovcr_9", recorder.WithMode(recorder.ModeReplayOnly),
		recorder.WithHook(func(i *cassette.Interaction) error {
			i.Request.Headers = nil // the key, and names of machines
			i.Response.Headers = http.Header{"Content-Type": i.Response.Headers["Content-Type"]}
			return nil
		}, recorder.AfterCaptureHook),
		recorder.WithMatcher(func(r *http.Request, i cassette.Request) bool {
			return r.Method == i.Method && r.URL.String() == i.URL
		}))
	require.NoError(t, err)
	defer r.Stop()
	got, err := ask(t.Context(), newClient(option.WithHTTPClient(r.GetDefaultClient())), "Rain?")
	require.NoError(t, err)
	assert.Equal(t, "It rains.", got)
}

func TestGovcr_10(t *testing.T) {
	client := replayer(t, reply(anthropicURL, 200, nil, `{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"text","text":"It rains."}],"stop_reason":"end_turn"}`))
	got, err := askClaude(t.Context(), newClaude(anthropicoption.WithHTTPClient(client)), "Rain?")
	require.NoError(t, err)
	assert.Equal(t, "It rains.", got)
}
