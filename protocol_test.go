package llmhttp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/textfilter"
)

// A plainProtocol is a minimal Protocol: a request has one text, and a reply a list of
// texts.
type plainProtocol struct{}

func (plainProtocol) Name() string { return "plain" }

func (p plainProtocol) Routes() []llmhttp.Route {
	return []llmhttp.Route{
		{Pattern: "POST /plain", Bind: llmhttp.BindChat(p.decode)},
		{Pattern: "GET /plain/{id}", Bind: llmhttp.BindQuery(llmhttp.ScopeModels, p.get)},
		{Pattern: "DELETE /plain/{id}/{rest...}", Bind: llmhttp.BindQuery(llmhttp.ScopeModels, p.get)},
		{Pattern: "POST /plain/count", Bind: llmhttp.BindCountTokens(p.decodeCount)},
	}
}

func (plainProtocol) Secret(r *http.Request) string { return r.Header.Get("X-Key") }

func (plainProtocol) SetHeaders(h http.Header, info llmhttp.ReplyInfo) {
	h.Set("Request-Id", info.RequestID)
	if info.Requests != nil {
		h.Set("Requests-Left", strconv.FormatInt(info.Requests.Remaining, 10))
	}
}

func (plainProtocol) AppendError(b []byte, e *llm.Error, requestID string) ([]byte, int) {
	status := e.Status
	if status == http.StatusServiceUnavailable {
		status = 529
	}
	return fmt.Appendf(b, `{"failed":%q,"request":%q}`, e.Message, requestID), status
}

func (plainProtocol) decode(_ context.Context, _ *http.Request, body []byte) (*llm.ChatRequest, llmhttp.ChatEncoder, error) {
	var req struct {
		Model, Text string
		Stream      bool
	}
	if err := json.Unmarshal(body, &req); err != nil || req.Model == "" {
		return nil, nil, llm.Errorf(http.StatusBadRequest, "", "Not a request.")
	}
	message := llm.Message{Role: llm.RoleUser, Content: llm.TextContent(req.Text)}
	return &llm.ChatRequest{Model: req.Model, Messages: []llm.Message{message}, Stream: req.Stream}, &plainEncoder{whole: !req.Stream}, nil
}

func (plainProtocol) get(_ context.Context, r *http.Request, _ []byte) (*llmhttp.QueryReply, error) {
	if r.PathValue("id") == "missing" {
		return nil, llm.Errorf(http.StatusNotFound, "", "Nothing there.")
	}
	return jsonReply(map[string]string{"id": r.PathValue("id"), "rest": r.PathValue("rest")})
}

// jsonReply returns a reply with the JSON of v.
func jsonReply(v any) (*llmhttp.QueryReply, error) {
	body, err := llmhttp.AppendJSON(nil, v)
	return &llmhttp.QueryReply{Body: body}, err
}

func (p plainProtocol) decodeCount(ctx context.Context, r *http.Request, body []byte) (*llm.ChatRequest, func([]byte, int) ([]byte, error), error) {
	req, _, err := p.decode(ctx, r, body)
	return req, appendCount, err
}

func appendCount(b []byte, tokens int) ([]byte, error) {
	return fmt.Appendf(b, `{"tokens":%d}`, tokens), nil
}

type plainEncoder struct {
	whole bool
	text  string // of a whole reply
}

func (e *plainEncoder) Framing() llmhttp.Framing {
	if e.whole {
		return llmhttp.Framing{Whole: true, ContentType: "application/json"}
	}
	return llmhttp.EventStream()
}

func (e *plainEncoder) AppendStart(b []byte, s *llmhttp.ReplyStart) []byte {
	if e.whole {
		return b
	}
	return fmt.Appendf(b, "event: start\ndata: {\"model\":%q}\n\n", s.Model)
}

func (e *plainEncoder) AppendChunk(b []byte, c *llm.ChatChunk) ([]byte, error) {
	text := c.Choices[0].Delta.Content
	switch {
	case e.whole:
		e.text += text
	case text != "":
		b = fmt.Appendf(b, "event: text\ndata: %q\n\n", text)
	}
	return b, nil
}

func (e *plainEncoder) AppendEnd(b []byte, u *llm.Usage, _ llm.Extra) ([]byte, error) {
	if e.whole {
		return fmt.Appendf(b, `{"text":%q,"tokens":%d}`, e.text, u.TotalTokens), nil
	}
	return fmt.Appendf(b, "event: end\ndata: %d\n\n", u.TotalTokens), nil
}

func (*plainEncoder) AppendFailure(b []byte, e *llm.Error) []byte {
	return fmt.Appendf(b, "event: failed\ndata: %q\n\n", e.Message)
}

func plainServer(t testing.TB, c config) *testServer {
	c.opts.Protocols = []llmhttp.Protocol{plainProtocol{}}
	return startServer(t, c)
}

var withPlainKey = withHeader("X-Key", testSecret)

func TestProtocol_Chat(t *testing.T) {
	s := plainServer(t, config{backend: textBackend("Hel", "lo")})
	t.Run("whole", func(t *testing.T) {
		r := s.do("POST", "/plain", `{"model":"demo-chat","text":"Hi"}`, withoutKey, withPlainKey)
		assert.Equal(t, 200, r.StatusCode)
		assert.JSONEq(t, `{"text":"Hello","tokens":7}`, r.body)
		assert.Equal(t, r.Header.Get("Request-Id"), s.record().ID)
		assert.Empty(t, r.Header.Get("X-Request-Id"), "headers of another protocol")
		assert.Equal(t, "plain", s.summary().Record.Protocol)
	})
	t.Run("stream", func(t *testing.T) {
		r := s.do("POST", "/plain", `{"model":"demo-chat","text":"Hi","stream":true}`, withoutKey, withPlainKey)
		assert.Equal(t, "event: start\ndata: {\"model\":\"demo-chat\"}\n\nevent: text\ndata: \"Hel\"\n\nevent: text\ndata: \"lo\"\n\nevent: end\ndata: 7\n\n", r.body)
	})
	t.Run("failure in mid-stream", func(t *testing.T) {
		s := plainServer(t, config{backend: failAfter(llm.Errorf(500, "", "It broke."), "Hel")})
		r := s.do("POST", "/plain", `{"model":"demo-chat","text":"Hi","stream":true}`, withoutKey, withPlainKey)
		assert.True(t, strings.HasSuffix(r.body, "event: failed\ndata: \"It broke.\"\n\n"), r.body)
		assert.Error(t, r.err, "the connection was not cut")
	})
}

func TestProtocol_Errors(t *testing.T) {
	s := plainServer(t, config{backend: failingBackend(llm.Errorf(503, "", "Too busy."))})
	for name, test := range map[string]struct {
		method, path, body string
		options            []requestOption
		status             int
		message            string
	}{
		"no key":            {"POST", "/plain", `{}`, nil, 401, "You didn't provide an API key."},
		"a key for chat":    {"POST", "/plain", `{}`, []requestOption{withSecret(testSecret)}, 401, "You didn't provide an API key."},
		"unknown key":       {"POST", "/plain", `{}`, []requestOption{withHeader("X-Key", "sk-unknown")}, 401, "Incorrect API key provided."},
		"not a request":     {"POST", "/plain", `[]`, []requestOption{withPlainKey}, 400, "Not a request."},
		"translated status": {"POST", "/plain", `{"model":"m","text":"Hi"}`, []requestOption{withPlainKey}, 529, "Too busy."},
		"from Serve":        {"GET", "/plain/missing", "", []requestOption{withPlainKey}, 404, "Nothing there."},
	} {
		t.Run(name, func(t *testing.T) {
			r := s.do(test.method, test.path, test.body, append([]requestOption{withoutKey}, test.options...)...)
			assert.Equal(t, test.status, r.StatusCode, r.body)
			var e struct{ Failed, Request string }
			require.NoError(t, json.Unmarshal([]byte(r.body), &e), r.body)
			assert.True(t, strings.HasPrefix(e.Failed, test.message), e.Failed)
			assert.Equal(t, r.Header.Get("Request-Id"), e.Request)
		})
	}
	r := s.do("POST", chatPath, chatBody, withoutKey, withPlainKey)
	r.checkError(t, 401) // the key of one protocol does not work on the paths of another
}

func TestProtocol_Serve(t *testing.T) {
	s := plainServer(t, config{keys: limitedKeys(llmhttp.Limits{Requests: noRefill(100)})})
	for _, test := range []struct{ method, path, body, want string }{
		{"GET", "/plain/a%2Fb", "", `{"id":"a/b","rest":""}`},
		{"DELETE", "/plain/a/b/c", "", `{"id":"a","rest":"b/c"}`},
		{"POST", "/plain/count", `{"model":"m","text":"Hi you"}`, `{"tokens":6}`},
	} {
		r := s.do(test.method, test.path, test.body, withoutKey, withPlainKey)
		assert.Equal(t, 200, r.StatusCode, r.body)
		assert.JSONEq(t, test.want, r.body, test.path)
		assert.NotEmpty(t, r.Header.Get("Requests-Left"))
	}
	assert.Empty(t, s.usage.records(), "requests other than chat are not recorded")
	r := s.do("PUT", "/plain/a", "", withPlainKey)
	assert.Equal(t, 405, r.StatusCode)
	assert.Equal(t, "GET, HEAD", r.Header.Get("Allow"))
	assert.Equal(t, 404, s.do("GET", "/plain/", "", withPlainKey).StatusCode)
}

// A sharedProtocol serves paths of chat completions for requests with the header
// X-Shared.
type sharedProtocol struct{ plainProtocol }

func (sharedProtocol) Routes() []llmhttp.Route {
	match := func(r *http.Request) bool { return r.Header.Get("X-Shared") != "" }
	list := llmhttp.BindModels(func(context.Context, *http.Request, []byte) (func([]byte, []llm.Model) ([]byte, error), error) {
		return func(b []byte, models []llm.Model) ([]byte, error) { return llmhttp.AppendJSON(b, models) }, nil
	})
	return []llmhttp.Route{
		{Pattern: "GET /v1/models", Match: match, Bind: list},
		{Pattern: "POST /v1/models", Match: match, Bind: list},
		{Pattern: "GET /v1/models/{id...}", Match: match, Bind: llmhttp.BindQuery(llmhttp.ScopeModels, plainProtocol{}.get)},
	}
}

func TestProtocol_SharedPaths(t *testing.T) {
	models := func(context.Context) ([]llm.Model, error) { return []llm.Model{{ID: "a"}, {ID: "hidden"}}, nil }
	key := testKey()
	key.Models = []string{"a"}
	s := startServer(t, config{backend: &stubBackend{models: models}, keys: keysFor(key), opts: llmhttp.Options{Protocols: []llmhttp.Protocol{sharedProtocol{}}}})
	shared := withHeader("X-Shared", "yes")
	assert.Contains(t, s.do("GET", "/v1/models", "").body, `{"object":"list","data":[{"id":"a"`)
	assert.Contains(t, s.do("GET", "/v1/models/a", "").body, `{"id":"a","object":"model"`)
	assert.JSONEq(t, `[{"id":"a","object":"model","created":0,"owned_by":""}]`, s.do("GET", "/v1/models", "", withPlainKey, shared).body)
	assert.JSONEq(t, `{"id":"a/b","rest":""}`, s.do("GET", "/v1/models/a/b", "", withPlainKey, shared).body)
	r := s.do("POST", "/v1/models", "{}")
	assert.Equal(t, 405, r.StatusCode)
	assert.Equal(t, "GET, HEAD", r.Header.Get("Allow"))
}

func TestProtocol_DuplicateRoutesPanic(t *testing.T) {
	protocols := []llmhttp.Protocol{plainProtocol{}, plainProtocol{}}
	assert.PanicsWithValue(t, "llmhttp: two routes serve one path: POST /plain of the Protocol plain of package github.com/llmhttp/llmhttp_test, "+
		"and POST /plain of the Protocol plain of package github.com/llmhttp/llmhttp_test", func() {
		llmhttp.NewHandler(new(stubBackend), llmhttp.AllowAll("a"), &llmhttp.Options{Protocols: protocols})
	})
}

// A routedProtocol is a plainProtocol with other routes.
type routedProtocol struct {
	plainProtocol
	routes []llmhttp.Route
}

func (p routedProtocol) Routes() []llmhttp.Route { return p.routes }

func TestProtocol_ConflictingRoutesPanic(t *testing.T) {
	newHandler := func(routes ...llmhttp.Route) func() {
		var protocols []llmhttp.Protocol
		for _, rt := range routes {
			protocols = append(protocols, routedProtocol{routes: []llmhttp.Route{rt}})
		}
		return func() {
			llmhttp.NewHandler(new(stubBackend), llmhttp.AllowAll("a"), &llmhttp.Options{Protocols: protocols})
		}
	}
	serve := func(context.Context, *http.Request, []byte) (*llmhttp.QueryReply, error) { return nil, nil }
	route := func(pattern string) llmhttp.Route {
		return llmhttp.Route{Pattern: pattern, Bind: llmhttp.BindQuery(llmhttp.ScopeChat, serve)}
	}
	matched := route("GET /x/{id}")
	matched.Match = func(*http.Request) bool { return true }
	for _, tt := range []struct {
		a, b     string
		conflict bool
	}{
		{"GET /x/{id}", "GET /x/{id}", true},
		{"GET /x/{id}", "GET /x/{name}", true},
		{"GET /x/{id}", "GET /x/{rest...}", true},
		{"GET /x/{rest...}", "GET /x/{id}/items", true},
		{"GET /{a}/items", "GET /x/{id}", true},
		{"GET /{rest...}", "GET /x/{id}", true},
		{"GET /v1/models/{name}", "GET /x", true}, // the Handler has /v1/models/{id...}
		{"GET /x/{id}", "POST /x/{id}", false},
		{"GET /x/{id}", "GET /y/{id}", false},
		{"GET /x/{id}", "GET /x/{id}/items", false},
		{"GET /x/{id}/a", "GET /x/{id}/b", false},
		{"GET /x/{id}/", "GET /x/{id}/{item}", false}, // a wildcard is never empty
		{"GET /x/{id}", "GET /x/items", false},        // the path without a wildcard is preferred
		{"GET /x", "HEAD /x", true},                   // a pattern for GET matches HEAD
		{"GET /x/{id}", "HEAD /x/{name}", true},
		{"POST /x", "HEAD /x", false},
		{"GET /x/{id}", "HEAD /x/items", false},
	} {
		check := assert.NotPanics
		if tt.conflict {
			check = assert.Panics
		}
		check(t, newHandler(route(tt.a), route(tt.b)), "%s, %s", tt.a, tt.b)
		check(t, newHandler(route(tt.b), route(tt.a)), "%s, %s", tt.b, tt.a)
	}
	assert.PanicsWithValue(t, "llmhttp: two routes serve one path: GET /x/{a} of the Protocol plain of package github.com/llmhttp/llmhttp_test, "+
		"and GET /x/{b} of the Protocol plain of package github.com/llmhttp/llmhttp_test", newHandler(route("GET /x/{a}"), route("GET /x/{b}")))
	assert.NotPanics(t, newHandler(matched, route("GET /x/{name}")))
	assert.NotPanics(t, newHandler(matched, matched))

	assert.PanicsWithValue(t, "llmhttp: a route must have a Binding: POST /x", newHandler(llmhttp.Route{Pattern: "POST /x"}))
	assert.PanicsWithValue(t, "llmhttp: Options.Protocols[0] is nil", func() {
		llmhttp.NewHandler(new(stubBackend), llmhttp.AllowAll("a"), &llmhttp.Options{Protocols: []llmhttp.Protocol{nil}})
	})
	assert.PanicsWithValue(t, "llmhttp: a Protocol has no name: llmhttp_test.namelessProtocol", func() {
		llmhttp.NewHandler(new(stubBackend), llmhttp.AllowAll("a"), &llmhttp.Options{Protocols: []llmhttp.Protocol{namelessProtocol{}}})
	})
}

type namelessProtocol struct{ plainProtocol }

func (namelessProtocol) Name() string { return "" }

func TestProtocol_MalformedPatternsPanic(t *testing.T) {
	serve := func(context.Context, *http.Request, []byte) (*llmhttp.QueryReply, error) { return nil, nil }
	newHandler := func(pattern string) func() {
		routes := []llmhttp.Route{{Pattern: pattern, Bind: llmhttp.BindQuery(llmhttp.ScopeChat, serve)}}
		return func() {
			llmhttp.NewHandler(new(stubBackend), llmhttp.AllowAll("a"), &llmhttp.Options{Protocols: []llmhttp.Protocol{routedProtocol{routes: routes}}})
		}
	}
	for message, patterns := range map[string][]string{
		"llmhttp: the pattern of a route must be a method in capital letters and a path: ": {
			"", "/x", "GET", "GET x", " /x", "post /x", "GET  /x", "P T /x",
		},
		"llmhttp: the wildcards of a pattern must be whole segments with different names, and only the last may end in three dots: ": {
			"GET /x/{id", "GET /x/id}", "GET /x/{}", "GET /x/{...}", "GET /x/{$}", "GET /x/{a b}", "GET /x/{id}:count", "GET /x/a{id}",
			"GET /x/{{id}}", "GET /{a}/{a}", "GET /{a}/{a...}", "GET /x/{rest...}/y", "GET /x/{rest...}/",
		},
		"llmhttp: the path of a pattern must need no escaping: ": {"GET /x y", "GET /x?y", "GET /x%2Fy", "GET /\u00fc", "GET /{a}/x#y"},
	} {
		for _, pattern := range patterns {
			assert.PanicsWithValue(t, message+pattern, newHandler(pattern), pattern)
		}
	}
	for _, pattern := range []string{"GET /", "GET /x/", "M-SEARCH /x", "GET /x/{a}/{b_1}/{rest...}", "POST /x:count", "GET /a.b/c,d=e&f+g@h"} {
		assert.NotPanics(t, newHandler(pattern), pattern)
	}
}

// A savingProtocol is a plainProtocol whose encoder collects the texts and tool calls of
// a reply in their order, and saves them.
type savingProtocol struct {
	plainProtocol
	save    func(ctx context.Context, reply string) error
	unsaved bool // replies are sent although they were not saved
}

func (p savingProtocol) Routes() []llmhttp.Route {
	return []llmhttp.Route{{Pattern: "POST /plain", Bind: llmhttp.BindChat(p.decode)}}
}

func (p savingProtocol) decode(ctx context.Context, r *http.Request, body []byte) (*llm.ChatRequest, llmhttp.ChatEncoder, error) {
	req, _, err := p.plainProtocol.decode(ctx, r, body)
	if err != nil {
		return nil, nil, err
	}
	return req, &savingEncoder{plainEncoder: plainEncoder{whole: !req.Stream}, account: llmhttp.KeyFrom(ctx).Account, save: p.save, unsaved: p.unsaved}, nil
}

type savingEncoder struct {
	plainEncoder
	account string
	save    func(ctx context.Context, reply string) error
	unsaved bool
	reply   strings.Builder
}

func (e *savingEncoder) AppendStart(b []byte, s *llmhttp.ReplyStart) []byte {
	if e.whole {
		fmt.Fprintf(&e.reply, "%s:", s.Model)
	}
	return e.plainEncoder.AppendStart(b, s)
}

func (e *savingEncoder) AppendChunk(b []byte, c *llm.ChatChunk) ([]byte, error) {
	d := &c.Choices[0].Delta
	e.reply.WriteString(d.Content)
	for _, call := range d.ToolCalls {
		e.reply.WriteString("<" + call.Function.Name + ">")
	}
	if d.Refusal != "" {
		return b, llm.Errorf(http.StatusBadGateway, "", "Refusals are not supported.")
	}
	return b, nil
}

func (e *savingEncoder) SaveReply(u *llm.Usage, _ llm.Extra) func(context.Context) error {
	reply := fmt.Sprintf("%s %s %d", e.account, e.reply.String(), u.TotalTokens)
	return func(ctx context.Context) error { return e.save(ctx, reply) }
}

func (e *savingEncoder) SaveFailed(err error) error {
	if !e.unsaved {
		return err
	}
	e.reply.WriteString(" (not saved)")
	return nil
}

func (e *savingEncoder) AppendEnd(b []byte, u *llm.Usage, extra llm.Extra) ([]byte, error) {
	if e.whole {
		return fmt.Appendf(b, `{"text":%q}`, e.reply.String()), nil
	}
	return e.plainEncoder.AppendEnd(fmt.Appendf(b, "event: reply\ndata: %q\n\n", e.reply.String()), u, extra)
}

func TestProtocol_ReplySaver(t *testing.T) {
	call := &llm.ChatChunk{Choices: []llm.ChunkChoice{{Delta: llm.Delta{
		ToolCalls: []llm.ToolCallDelta{{ID: "call_1", Function: llm.FunctionCall{Name: "f"}}}}}}}
	usage := &llm.ChatChunk{Usage: &llm.Usage{PromptTokens: 3, CompletionTokens: 4}}
	refusal := &llm.ChatChunk{Choices: []llm.ChunkChoice{{Delta: llm.Delta{Refusal: "No."}}}}
	whole, stream := `{"model":"m","text":"Hi"}`, `{"model":"m","text":"Hi","stream":true}`
	ask := func(t *testing.T, body string, save func(context.Context, string) error, chunks ...*llm.ChatChunk) reply {
		s := startServer(t, config{
			backend: chunkBackend(func() []*llm.ChatChunk { return chunks }),
			opts:    llmhttp.Options{Protocols: []llmhttp.Protocol{savingProtocol{save: save}}},
		})
		return s.do("POST", "/plain", body, withoutKey, withPlainKey)
	}
	var saved string
	keep := func(_ context.Context, reply string) error { saved = reply; return nil }
	t.Run("whole", func(t *testing.T) {
		r := ask(t, whole, keep, llm.TextChunk("a"), call, llm.TextChunk("b"), usage)
		assert.JSONEq(t, `{"text":"m:a<f>b"}`, r.body)
		assert.Equal(t, "acme m:a<f>b 7", saved)
	})
	t.Run("stream", func(t *testing.T) {
		saved = ""
		r := ask(t, stream, keep, llm.TextChunk("a"), call, usage)
		assert.Contains(t, r.body, "event: end")
		assert.Equal(t, "acme a<f> 7", saved)
	})
	fail := func(context.Context, string) error { return llm.Errorf(503, "", "Not stored.") }
	t.Run("a reply that cannot be saved", func(t *testing.T) {
		r := ask(t, whole, fail, llm.TextChunk("a"))
		assert.Equal(t, 529, r.StatusCode, "as AppendError returns it")
		assert.Contains(t, r.body, "Not stored.")
	})
	t.Run("a stream that cannot be saved", func(t *testing.T) {
		r := ask(t, stream, fail, llm.TextChunk("a"))
		assert.NotContains(t, r.body, "event: end")
		assert.Contains(t, r.body, "event: failed\ndata: \"Not stored.\"")
		assert.Error(t, r.err, "the connection was not cut")
	})
	t.Run("a chunk that cannot be encoded", func(t *testing.T) {
		r := ask(t, whole, keep, refusal)
		assert.Equal(t, 502, r.StatusCode)
		assert.Contains(t, r.body, "Refusals are not supported.")
	})
}

// A reservingProtocol is a plainProtocol that reserves the tokens of the model "m" before it
// knows the text, which it refuses if it is "refused".
type reservingProtocol struct{ plainProtocol }

func (p reservingProtocol) Routes() []llmhttp.Route {
	count := func(ctx context.Context, _ *http.Request, _ []byte) (*llm.ChatRequest, func([]byte, int) ([]byte, error), error) {
		req := &llm.ChatRequest{Model: "m"}
		return req, appendCount, llmhttp.ReserveChat(ctx, req)
	}
	return []llmhttp.Route{
		{Pattern: "POST /plain", Bind: llmhttp.BindChat(p.decode)},
		{Pattern: "POST /plain/count", Bind: llmhttp.BindCountTokens(count)},
	}
}

func (p reservingProtocol) decode(ctx context.Context, r *http.Request, body []byte) (*llm.ChatRequest, llmhttp.ChatEncoder, error) {
	req, encoder, err := p.plainProtocol.decode(ctx, r, body)
	if err != nil {
		return nil, nil, err
	}
	if err := llmhttp.ReserveChat(ctx, &llm.ChatRequest{Model: "m", MaxTokens: new(50)}); err != nil {
		return nil, nil, err
	}
	req.MaxTokens = new(50)
	if req.Messages[0].Content.Text() == "refused" {
		return nil, nil, llm.Errorf(http.StatusBadRequest, "", "Refused.")
	}
	return req, encoder, nil
}

// What a Protocol has reserved stays taken if the request is refused afterwards, and is
// corrected to what was used if it is served.
func TestReserveChat(t *testing.T) {
	const served, refused, long = `{"model":"m","text":"Hi"}`, `{"model":"m","text":"refused"}`, `{"model":"m","text":"a b c d e f g h i j"}`
	for _, test := range []struct {
		name     string
		limits   llmhttp.Limits
		bodies   []string
		statuses []int
		usage    llmhttp.UsageStore
	}{
		{"served", llmhttp.Limits{Tokens: noRefill(100)}, []string{served, served, served}, []int{200, 200, 200}, nil},
		{"tokens", llmhttp.Limits{Tokens: noRefill(100)}, []string{refused, refused, refused, served}, []int{400, 400, 429, 429}, nil},
		{"requests", llmhttp.Limits{Requests: noRefill(2)}, []string{refused, refused, refused}, []int{400, 400, 429}, nil},
		{"too large afterwards", llmhttp.Limits{Tokens: noRefill(60)}, []string{long, served}, []int{429, 429}, nil},
		{"too large at once", llmhttp.Limits{Requests: noRefill(1), Tokens: noRefill(40)}, []string{served, served}, []int{429, 429}, nil},
		{"quota", llmhttp.Limits{Quota: llmhttp.Quota{Tokens: 65}}, []string{refused, refused, served, served, served}, []int{400, 400, 200, 200, 429}, nil},
		{"recorded quota", llmhttp.Limits{Quota: llmhttp.Quota{Tokens: 65}}, []string{refused, refused, served, served, served}, []int{400, 400, 200, 200, 429}, memory.NewUsageStore()},
		{"count", llmhttp.Limits{Tokens: noRefill(60)}, []string{"count", "count", served}, []int{200, 200, 200}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := startServer(t, config{
				keys: limitedKeys(test.limits), backend: usageBackend(4, 3),
				opts: llmhttp.Options{Protocols: []llmhttp.Protocol{reservingProtocol{}}, Estimates: llmhttp.TokenEstimates{TextTokens: countWords}, Usage: test.usage},
			})
			var statuses []int
			for _, body := range test.bodies {
				path := "/plain"
				if body == "count" {
					path, body = "/plain/count", `{}`
				}
				statuses = append(statuses, s.do("POST", path, body, withoutKey, withPlainKey).StatusCode)
			}
			assert.Equal(t, test.statuses, statuses)
		})
	}
	assert.NoError(t, llmhttp.ReserveChat(t.Context(), &llm.ChatRequest{}), "without a request")
}

// The model has replied and the client waits, so a reply waits a second for its store. It
// may then be sent although it is not stored.
func TestProtocol_ReplyIsNotSaved(t *testing.T) {
	hang := func(ctx context.Context, _ string) error {
		<-ctx.Done()
		return &llm.Error{Status: 503, Message: "Not stored.", Err: fmt.Errorf("%w: %s: %w", llmhttp.ErrResponseStore, testSecret, ctx.Err())}
	}
	for _, test := range []struct {
		body    string
		unsaved bool
		want    string
	}{
		{`{"model":"m","text":"Hi"}`, true, `{"text":"m:Hello (not saved)"}`},
		{`{"model":"m","text":"Hi","stream":true}`, true, "event: reply\ndata: \"Hello (not saved)\""},
		{`{"model":"m","text":"Hi"}`, false, `{"failed":"Not stored."`},
		{`{"model":"m","text":"Hi","stream":true}`, false, "event: failed\ndata: \"Not stored.\""},
	} {
		t.Run(fmt.Sprintf("%s %t", test.body, test.unsaved), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				var summary *llmhttp.RequestSummary
				h := llmhttp.NewHandler(textBackend("Hello"), keysFor(testKey()), &llmhttp.Options{
					Protocols: []llmhttp.Protocol{savingProtocol{save: hang, unsaved: test.unsaved}},
					Logger:    slog.New(slog.NewTextHandler(&log, nil)),
					Observe: func(ctx context.Context, _ *http.Request) (context.Context, llmhttp.Observation) {
						return ctx, llmhttp.Observation{Ended: func(s *llmhttp.RequestSummary) { summary = s }}
					},
				})
				start := time.Now()
				r := httptest.NewRequest("POST", "/plain", strings.NewReader(test.body))
				withPlainKey(r)
				w := httptest.NewRecorder()
				func() {
					defer func() { _ = recover() }() // of a stream that is cut
					h.ServeHTTP(w, r)
				}()
				assert.Equal(t, time.Second, time.Since(start))
				assert.Contains(t, w.Body.String(), test.want)
				if !test.unsaved {
					assert.ErrorIs(t, summary.Err, llmhttp.ErrResponseStore)
					assert.Equal(t, llmhttp.ClassResponseStore, summary.ErrorClass)
					assert.NoError(t, summary.SaveErr)
					return
				}
				assert.NoError(t, summary.Err)
				assert.Equal(t, 200, summary.Status)
				assert.ErrorIs(t, summary.SaveErr, llmhttp.ErrResponseStore)
				assert.NotContains(t, summary.SaveErr.Error(), testSecret)
				assert.Contains(t, log.String(), `level=WARN msg="reply not stored"`)
				assert.NotContains(t, log.String(), testSecret)
			})
		})
	}
}

// A wrapper may implement TokenCounter although the wrapped Backend does not. Tokens are
// then estimated, as without a wrapper.
func TestCountTokens_OfAWrapper(t *testing.T) {
	wrapped := textfilter.New(textBackend("x"), redacting)
	for name, b := range map[string]llmhttp.Backend{"plain": textBackend("x"), "wrapped": wrapped} {
		s := plainServer(t, config{backend: b})
		r := s.do("POST", "/plain/count", `{"model":"m","text":"Hi you"}`, withPlainKey)
		assert.Equal(t, 200, r.StatusCode, name)
		assert.JSONEq(t, `{"tokens":6}`, r.body, name)
	}
}
