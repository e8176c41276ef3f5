package messages_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llmhttptest"
	"github.com/llmhttp/llmhttp/messages"
)

// A server serves the protocol and keeps what the Handler reports.
type server struct {
	http.Handler
	usage []llmhttp.UsageRecord
	ends  []*llmhttp.RequestSummary
	last  *llm.ChatRequest // the last request that the Backend got
}

// newServer returns a server whose Backend replies with the result of reply, or with
// "Hello" if that is nil.
func newServer(reply func() llm.ChatStream, change func(*llmhttp.Options)) *server {
	s := new(server)
	backend := llmhttp.BackendFunc(func(_ context.Context, req *llm.ChatRequest) llm.ChatStream {
		s.last = req
		if reply == nil {
			return llm.Reply("Hello")
		}
		return reply()
	})
	opts := &llmhttp.Options{
		Protocols: []llmhttp.Protocol{messages.New(nil)},
		Logger:    slog.New(slog.DiscardHandler),
		Usage:     s,
		Observe: func(ctx context.Context, _ *http.Request) (context.Context, llmhttp.Observation) {
			return ctx, llmhttp.Observation{Ended: func(end *llmhttp.RequestSummary) { s.ends = append(s.ends, end) }}
		},
	}
	if change != nil {
		change(opts)
	}
	s.Handler = llmhttp.NewHandler(backend, llmhttp.AllowAll("demo"), opts)
	return s
}

func (s *server) Record(_ context.Context, records ...llmhttp.UsageRecord) error {
	s.usage = append(s.usage, records...)
	return nil
}

func (s *server) Query(context.Context, llmhttp.UsageQuery) ([]llmhttp.UsageSum, error) {
	return nil, nil
}

// do serves a request without a connection. header has names and values in turn.
func (s *server) do(method, path, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Anthropic-Version", "2023-06-01")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

const messagesPath = "/v1/messages"

// requestBody returns a request with more members, which begin with a comma.
func requestBody(members string) string { return `{"model":"m","max_tokens":9` + members + `}` }

const hi = `,"messages":[{"role":"user","content":"Hi"}]`

// stream serves a request for a stream. It panics if the Handler aborts the connection.
func (s *server) stream(body string) (reply string) {
	r := httptest.NewRequest("POST", messagesPath, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Body.String()
}

// chunk decodes a choice of a chunk.
func chunk(t testing.TB, choice string) *llm.ChatChunk {
	t.Helper()
	c := new(llm.ChatChunk)
	require.NoError(t, json.Unmarshal([]byte(`{"choices":[`+choice+`]}`), c), choice)
	return c
}

// parseEvents parses a stream. Comments are skipped.
func parseEvents(body string) (events []llmhttptest.Event, err error) {
	var e llmhttptest.Event
	for line := range strings.SplitSeq(strings.TrimSuffix(body, "\n"), "\n") {
		name, value, _ := strings.Cut(line, ": ")
		switch name {
		case "event":
			e.Name = value
		case "data":
			e.Data = value
		case "":
			if value == "" {
				events, e = append(events, e), llmhttptest.Event{}
			}
		default:
			return nil, fmt.Errorf("line %q", line)
		}
	}
	if e.Data != "" {
		return nil, errors.New("the last event is not terminated")
	}
	return events, nil
}

// sendBoth sends a request for a whole reply and one for a stream, to a Backend that
// yields chunks. It returns both replies, or the message of the error if both fail.
func sendBoth(t testing.TB, chunks func() []*llm.ChatChunk) (whole, streamed *message, failure string) {
	t.Helper()
	s := newServer(func() llm.ChatStream {
		return func(yield func(*llm.ChatChunk, error) bool) {
			for _, c := range chunks() {
				if !yield(c, nil) {
					return
				}
			}
		}
	}, nil)
	w := s.do("POST", messagesPath, requestBody(hi))
	if w.Code != 200 {
		_, message, err := readError(w.Body.Bytes())
		require.NoError(t, err)
		failure = message
	} else {
		var err error
		whole, err = readMessage(w.Body.Bytes())
		require.NoError(t, err, "%s", w.Body)
	}
	body := s.stream(requestBody(hi + `,"stream":true`))
	if strings.HasPrefix(body, "{") { // it failed before the stream began
		_, message, err := readError([]byte(body))
		require.NoError(t, err)
		require.Equal(t, failure, message)
		return nil, nil, failure
	}
	events, err := parseEvents(body)
	require.NoError(t, err, body)
	last := events[len(events)-1]
	if last.Name != "error" {
		require.Empty(t, failure, "only the whole reply failed")
		streamed, err = readStream(events)
		require.NoError(t, err, body)
		return whole, streamed, ""
	}
	require.NotEmpty(t, failure, "only the stream failed: %s", body)
	_, message, err := readError([]byte(last.Data))
	require.NoError(t, err)
	require.Equal(t, failure, message)
	_, err = readStream(events)
	require.Error(t, err)
	return nil, nil, failure
}
