package main

import (
	"flag"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/llmfake"
)

// With -update, TestReplay asks the real servers, with the keys of the environment.
var _ = flag.Bool("update", false, "record the cassettes again")

const question = "Where is order 7?"

// newDesk returns a desk whose clients send everything to c.
func newDesk(c *http.Client) *desk {
	return &desk{
		openai.NewClient(option.WithHTTPClient(c), option.WithAPIKey("sk-test-openai")),
		anthropic.NewClient(anthropicoption.WithHTTPClient(c), anthropicoption.WithAPIKey("sk-test-anthropic")),
		map[int]string{7: "on its way"},
	}
}

// answer returns what a desk with the replies of srv writes.
func answer(t *testing.T, srv *llmfake.Server) (string, error) {
	var b strings.Builder
	err := newDesk(srv.Client()).answer(t.Context(), &b, question)
	return b.String(), err
}

// Replies of a script, and what the program has sent.
func TestAnswer(t *testing.T) {
	srv := llmfake.NewServer(t)
	srv.Reply(llmfake.Call("order_status", map[string]int{"id": 7}), llmfake.Text("It is on its way."))
	text, err := answer(t, srv)
	require.NoError(t, err)
	assert.Equal(t, "It is on its way.\n", text)
	srv.WantRequests(2)
	srv.Request(0).WantModel("gpt-4o").WantSystem(instructions).WantUserText(question).WantTools("order_status").
		WantHeader("Authorization", "Bearer sk-test-openai")
	srv.Request(1).WantToolResult("order_status", "on its way")
}

// Replies that depend on the request, and a model that does not obey.
func TestAnswer_Tools(t *testing.T) {
	for name, tc := range map[string]struct{ arguments, result string }{
		"unknown order":     {`{"id": 8}`, "unknown order"},
		"invalid arguments": {`{"id": "seven"}`, "invalid arguments"},
		"not JSON":          {`{"id": `, "invalid arguments"},
	} {
		t.Run(name, func(t *testing.T) {
			srv := llmfake.NewServer(t)
			srv.When(llmfake.Turn(1)).Reply(llmfake.Call("order_status", tc.arguments))
			srv.When(llmfake.HasToolResult("order_status", tc.result)).Reply(llmfake.Text("I do not know."))
			text, err := answer(t, srv)
			require.NoError(t, err)
			assert.Equal(t, "I do not know.\n", text)
		})
	}
	t.Run("for ever", func(t *testing.T) {
		srv := llmfake.NewServer(t)
		srv.When(llmfake.Protocol(llmfake.ChatCompletions)).Always(llmfake.Call("order_status", map[string]int{"id": 7}))
		srv.When(llmfake.Protocol(llmfake.Messages)).Reply(llmfake.Text("Ask again."))
		text, err := answer(t, srv)
		require.NoError(t, err)
		assert.Equal(t, "Ask again.\n", text)
		srv.WantRequests(6)
	})
}

// Faults of the first vendor. The waits of both SDKs take no time in a bubble.
func TestAnswer_Faults(t *testing.T) {
	for name, tc := range map[string]struct {
		replies  []llmfake.Reply
		waits    time.Duration // at least
		text     string
		requests int
	}{
		"a limit, then an answer": {[]llmfake.Reply{llmfake.RateLimited(20 * time.Second), llmfake.Text("On its way.")}, 20 * time.Second, "On its way.\n", 2},
		"overloaded":              {[]llmfake.Reply{llmfake.Overloaded(), llmfake.Overloaded(), llmfake.Overloaded()}, 0, "Claude.\n", 4},
		"no JSON":                 {[]llmfake.Reply{llmfake.Text("On its way.").Malformed()}, 0, "Claude.\n", 2},
		"a page of a proxy":       {[]llmfake.Reply{llmfake.HTML(http.StatusForbidden)}, 0, "Claude.\n", 2},
		"broken connections":      {[]llmfake.Reply{llmfake.Cut(), llmfake.Cut(), llmfake.Cut()}, 0, "Claude.\n", 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := llmfake.NewServer(t)
				srv.When(llmfake.Protocol(llmfake.ChatCompletions)).Reply(tc.replies...)
				srv.When(llmfake.Protocol(llmfake.Messages)).Always(llmfake.Text("Claude."))
				began := time.Now()
				text, err := answer(t, srv)
				require.NoError(t, err)
				assert.Equal(t, tc.text, text)
				assert.GreaterOrEqual(t, time.Since(began), tc.waits)
				srv.WantRequests(tc.requests)
			})
		})
	}
}

// A stream of the second vendor that breaks off is an error after the text before it.
func TestAnswer_BrokenStream(t *testing.T) {
	srv := llmfake.NewServer(t)
	srv.When(llmfake.Protocol(llmfake.ChatCompletions)).Reply(llmfake.ContextLengthExceeded(8192, 9000))
	srv.When(llmfake.Protocol(llmfake.Messages)).Reply(llmfake.Text("It is").Cut())
	text, err := answer(t, srv)
	assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
	assert.Equal(t, "It is\n", text)
	srv.Request(1).WantModel("claude-sonnet-4-5").WantSystem(instructions).WantHeader("X-Api-Key", "sk-test-anthropic")
}

// What a server has replied once, from testdata.
func TestReplay(t *testing.T) {
	text, err := answer(t, llmfake.NewReplay(t, nil))
	require.NoError(t, err)
	assert.Equal(t, "Your order 7 is on its way.\n", text)
}

// A recording replays without the server, and has no key.
func TestRecord(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cassette.txtar")
	t.Run("record", func(t *testing.T) {
		vendor := llmfake.NewServer(t)
		vendor.Reply(llmfake.Call("order_status", map[string]int{"id": 7}), llmfake.Text("Your order 7 is on its way."))
		opts := &llmfake.ReplayOptions{File: file, Record: true, OpenAI: vendor.OpenAIURL(), Anthropic: vendor.URL()}
		text, err := answer(t, llmfake.NewReplay(t, opts))
		require.NoError(t, err)
		assert.Equal(t, "Your order 7 is on its way.\n", text)
	})
	t.Run("replay", func(t *testing.T) {
		text, err := answer(t, llmfake.NewReplay(t, &llmfake.ReplayOptions{File: file}))
		require.NoError(t, err)
		assert.Equal(t, "Your order 7 is on its way.\n", text)
	})
	cassette, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.NotContains(t, string(cassette), "sk-test")
}

// The program as it is, which reads the addresses and keys of the environment.
func TestProgram(t *testing.T) {
	srv := llmfake.NewServer(t)
	srv.Reply(llmfake.Text("On its way."))
	srv.Setenv()
	args := os.Args
	t.Cleanup(func() { os.Args = args })
	os.Args = []string{"fake", "Where", "is", "order", "7?"}
	main()
	srv.Request(0).WantUserText(question)
}
