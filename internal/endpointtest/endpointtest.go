// Package endpointtest has what the tests of those endpoints share that are packages of their own.
package endpointtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/memory"
)

// A Server is a Handler that is called without a network. It keeps what it logs, records and tells
// Observers. It is for one goroutine.
type Server struct {
	Records   []llmhttp.UsageRecord
	Summaries []llmhttp.RequestSummary
	Log       bytes.Buffer

	t       testing.TB
	handler http.Handler
}

// New returns a Server whose only key is k, which gets an ID and an Account if it has none. The Observe
// and the Usage of opts are the Server's.
func New(t testing.TB, b llmhttp.Backend, k llmhttp.Key, opts llmhttp.Options) *Server {
	s := &Server{t: t}
	if k.ID == "" {
		k.ID, k.Account = "key_1", "acme"
	}
	keys := llmhttp.KeyStoreFunc(func(context.Context, string) (*llmhttp.Key, error) { return &k, nil })
	opts.Logger = slog.New(slog.NewJSONHandler(&s.Log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	opts.Observe = func(ctx context.Context, _ *http.Request) (context.Context, llmhttp.Observation) {
		return ctx, llmhttp.Observation{Ended: func(summary *llmhttp.RequestSummary) {
			s.Summaries = append(s.Summaries, *summary)
		}}
	}
	opts.Usage = &recorder{memory.NewUsageStore(), s}
	s.handler = llmhttp.NewHandler(b, keys, &opts)
	return s
}

// A recorder keeps what is recorded.
type recorder struct {
	llmhttp.UsageStore
	server *Server
}

func (r *recorder) Record(ctx context.Context, records ...llmhttp.UsageRecord) error {
	r.server.Records = append(r.server.Records, records...)
	return r.UsageStore.Record(ctx, records...)
}

// Post sends a request and returns the reply.
func (s *Server) Post(path, body string) *httptest.ResponseRecorder {
	s.t.Helper()
	r := httptest.NewRequestWithContext(s.t.Context(), http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer sk-fixture")
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	return w
}

// An Error is what a client sees of an error.
type Error struct{ Message, Type, Param, Code string }

// PostRefused is Post of a request that must be refused with a status.
func (s *Server) PostRefused(path, body string, status int) Error {
	s.t.Helper()
	w := s.Post(path, body)
	require.Equal(s.t, status, w.Code, w.Body)
	var reply struct{ Error Error }
	require.NoError(s.t, json.Unmarshal(w.Body.Bytes(), &reply), w.Body)
	CheckWords(s.t, reply.Error.Message, reply.Error.Param)
	return reply.Error
}

// Accepted is the Code of a Param whose Bodies are no errors.
const Accepted = "accepted"

// A Param is a list of bodies that all have the same result.
type Param = struct {
	Param, Code string // of the error
	Bodies      []string
}

// CheckParams posts the bodies of tests to path and checks the results.
func (s *Server) CheckParams(t *testing.T, path string, tests []Param) {
	for _, tt := range tests {
		for _, body := range tt.Bodies {
			t.Run(fmt.Sprintf("%.70q", body), func(t *testing.T) {
				if tt.Code == Accepted {
					w := s.Post(path, body)
					assert.Equal(t, 200, w.Code, w.Body)
					return
				}
				e := s.PostRefused(path, body, 400)
				assert.Equal(t, "invalid_request_error", e.Type)
				assert.Equal(t, tt.Param, e.Param, e.Message)
				assert.Equal(t, tt.Code, e.Code, e.Message)
			})
		}
	}
}

// goWords matches terms of Go, which clients should not see.
var goWords = regexp.MustCompile(`json:|Unmarshal|strconv|EOF|invalid character|unexpected end|cannot|float64|\bint\b|\bstruct\b|Go |nil|panic|runtime|llmhttp|jsonwire|unexpected|parsing|0x[0-9a-f]{6}|<nil>|%!|RawMessage|\*`)

// CheckWords checks that an error is short and has no terms of Go.
func CheckWords(t testing.TB, message, param string) {
	t.Helper()
	assert.Less(t, len(message), 300, "%s", message)
	assert.NotRegexp(t, goWords, message)
	assert.Less(t, len(param), 300)
}
