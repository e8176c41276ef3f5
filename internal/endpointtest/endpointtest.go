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
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/texttest"
	"github.com/llmhttp/llmhttp/internal/tokens"
	"github.com/llmhttp/llmhttp/llm"
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

// Post sends a request, whose body is JSON or a [Form], and returns the reply.
func (s *Server) Post(path, body string) *httptest.ResponseRecorder {
	s.t.Helper()
	contentType := "application/json"
	if strings.HasPrefix(body, "--"+formBoundary) {
		contentType = FormType
	}
	return s.PostAs(contentType, path, body)
}

// PostAs is Post of a body with another Content-Type.
func (s *Server) PostAs(contentType, path, body string) *httptest.ResponseRecorder {
	s.t.Helper()
	r := httptest.NewRequestWithContext(s.t.Context(), http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", contentType)
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
	return s.Refused(s.Post(path, body), status)
}

// Refused returns the error of a reply that must have a status.
func (s *Server) Refused(w *httptest.ResponseRecorder, status int) Error {
	s.t.Helper()
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

// A Protocol has one route, and a form of errors of its own: {"message":...}.
type Protocol struct {
	llmhttp.Protocol
	Route llmhttp.Route
}

// NewProtocol returns a Protocol with a route for POST requests.
func NewProtocol(path string, e *llmhttp.Endpoint, serve func(c *llmhttp.Call) error) Protocol {
	return Protocol{llmhttp.ChatCompletions(), llmhttp.NewRoute("POST "+path, e, serve)}
}

// Name implements [llmhttp.Protocol].
func (Protocol) Name() string { return "another" }

// Routes implements [llmhttp.Protocol].
func (p Protocol) Routes() []llmhttp.Route { return []llmhttp.Route{p.Route} }

// AppendError implements [llmhttp.Protocol].
func (Protocol) AppendError(b []byte, e *llm.Error, _ string) ([]byte, int) {
	b, _ = llmhttp.AppendJSON(b, map[string]string{"message": e.Message})
	return b, e.Status
}

// A ProtocolTest is a request for the route of a Protocol.
type ProtocolTest = struct {
	Backend llmhttp.Backend
	Key     llmhttp.Key
	Body    string
	Status  int
	Reply   string // a part of it
	Records int    // how many are recorded, of the operation of the endpoint
}

// CheckProtocol checks that a route of a Protocol has its form of requests, replies and errors, and the
// limits and the records of each other route. opts are those of the Handler besides.
func CheckProtocol(t *testing.T, p Protocol, op llmhttp.Operation, opts llmhttp.Options, tests map[string]ProtocolTest) {
	opts.Protocols = []llmhttp.Protocol{p}
	_, path, _ := strings.Cut(p.Route.Pattern, " ")
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := New(t, tt.Backend, tt.Key, opts)
			w := s.Post(path, tt.Body)
			assert.Equal(t, tt.Status, w.Code, w.Body)
			assert.Contains(t, w.Body.String(), tt.Reply)
			assert.NotContains(t, w.Body.String(), assert.AnError.Error())
			require.Len(t, s.Records, tt.Records)
			for _, r := range s.Records {
				assert.Equal(t, p.Name(), r.Protocol)
				assert.Equal(t, op, r.Operation)
			}
			// A path below that of the route has the form of errors, too.
			w = s.Post(path+"/more", "{}")
			assert.Equal(t, http.StatusNotFound, w.Code)
			assert.Contains(t, w.Body.String(), `{"message":"Invalid URL`)
		})
	}
}

// ChatOnly is a Backend without the method of an endpoint.
var ChatOnly = llmhttp.BackendFunc(func(context.Context, *llm.ChatRequest) llm.ChatStream { return llm.Reply("Hi") })

// CheckMounted checks that the routes of an endpoint serve body if b is the Backend, and that clients get
// a 404 without the routes, or with a Backend that only chats. routes returns those of package pkg.
func CheckMounted(t *testing.T, pkg string, routes func() []llmhttp.Route, b llmhttp.Backend, body string) {
	for _, rt := range routes() {
		_, path, _ := strings.Cut(rt.Pattern, " ")
		w := New(t, b, llmhttp.Key{}, llmhttp.Options{Routes: routes()}).Post(path, body)
		assert.Equal(t, 200, w.Code, w.Body)
		for want, s := range map[string]*Server{
			"because package github.com/llmhttp/llmhttp/" + pkg + " is not mounted": New(t, b, llmhttp.Key{}, llmhttp.Options{}),
			"Invalid URL (POST " + path + `)"`:                                      New(t, ChatOnly, llmhttp.Key{}, llmhttp.Options{Routes: routes()}),
		} {
			w := s.Post(path, body)
			assert.Equal(t, 404, w.Code)
			assert.Contains(t, w.Body.String(), want)
			assert.Empty(t, s.Records)
		}
	}
}

// CheckTextsCount checks that every text of req, a pointer to a request that is zero, counts at least as
// least tells, wherever it is: a new field counts nothing until count knows it. kind begins the paths of
// texts. A nil least is a fifth of the text in tokens.
func CheckTextsCount(t *testing.T, kind string, req any, count func(tokens.Estimator) int, least func(path string) int) {
	for name, countText := range map[string]func(model, text string) int{
		"by length":  nil,
		"TextTokens": func(_, text string) int { return len(text) / 4 },
	} {
		counted := 0
		texttest.EachLong(t, reflect.ValueOf(req).Elem(), kind, func(path string) {
			counted++
			want := len(texttest.Long) / 5
			if least != nil {
				want = min(want, least(path))
			}
			assert.GreaterOrEqual(t, count(tokens.Estimator{Count: countText}), want, "%s, %s", path, name)
		})
		assert.Greater(t, counted, 5)
	}
}

// goWords matches terms of Go, which clients should not see.
var goWords = regexp.MustCompile(`json:|Unmarshal|strconv|EOF|invalid character|unexpected end|cannot unmarshal|float64|\bint\b|\bstruct\b|Go |nil|panic|runtime|llmhttp|jsonwire|unexpected|parsing|0x[0-9a-f]{6}|<nil>|%!|RawMessage|\*`)

// CheckWords checks that an error is short and has no terms of Go.
func CheckWords(t testing.TB, message, param string) {
	t.Helper()
	assert.Less(t, len(message), 300, "%s", message)
	assert.NotRegexp(t, goWords, message)
	assert.Less(t, len(param), 300)
}
