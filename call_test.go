package llmhttp_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/messages"
)

// Orders in which a request would not be paid or would not be answered fail it, also if the function
// of the route ignores the errors of the methods. The log tells why.
func TestCall_WrongOrders(t *testing.T) {
	reserve := func(c *llmhttp.Call) error {
		return c.Reserve(llmhttp.Estimate{Model: "m", Tokens: func() int { return 10 }})
	}
	ask := func(c *llmhttp.Call) error {
		return c.Ask(func(context.Context, llmhttp.Backend) (llmhttp.Used, error) {
			return llmhttp.Used{Usage: &llm.Usage{PromptTokens: 10}}, nil
		})
	}
	check := func(c *llmhttp.Call) error {
		return c.Check(func(context.Context, llmhttp.Backend) error { return nil })
	}
	reply := func(c *llmhttp.Call) error {
		return c.Reply("application/json", func(b []byte) ([]byte, error) { return append(b, "{}"...), nil })
	}
	checkWith := func(step func(*llmhttp.Call) error) func(*llmhttp.Call) error {
		return func(c *llmhttp.Call) error {
			return c.Check(func(context.Context, llmhttp.Backend) error { return step(c) })
		}
	}
	body := func(c *llmhttp.Call) error { return c.Body(func([]byte) error { return nil }) }
	within := func(step func(*llmhttp.Call) error) func(*llmhttp.Call) error {
		return func(c *llmhttp.Call) error {
			return c.Ask(func(context.Context, llmhttp.Backend) (llmhttp.Used, error) { return llmhttp.Used{}, step(c) })
		}
	}
	// Of streams, a step gets the ReplyStream of the one before.
	var s *llmhttp.ReplyStream
	stream := func(c *llmhttp.Call) error {
		s = c.Stream(llmhttp.EventStream(), func(b []byte, _ *llm.Error) []byte { return append(b, "failed"...) })
		return nil
	}
	piece := func(*llmhttp.Call) error {
		return s.Append(llmhttp.Progress{HasOutput: true}, func(b []byte) ([]byte, error) { return append(b, "piece "...), nil })
	}
	end := func(*llmhttp.Call) error {
		return s.End(func(b []byte) ([]byte, error) { return append(b, "end"...), nil })
	}
	// Of a Backend, a step keeps what the next one uses.
	var kept llmhttp.Backend
	keep := func(call func(*llmhttp.Call, func(llmhttp.Backend)) error) func(*llmhttp.Call) error {
		return func(c *llmhttp.Call) error { return call(c, func(b llmhttp.Backend) { kept = b }) }
	}
	keepInAsk := keep(func(c *llmhttp.Call, keep func(llmhttp.Backend)) error {
		return c.Ask(func(_ context.Context, b llmhttp.Backend) (llmhttp.Used, error) { keep(b); return llmhttp.Used{}, nil })
	})
	keepInCheck := keep(func(c *llmhttp.Call, keep func(llmhttp.Backend)) error {
		return c.Check(func(_ context.Context, b llmhttp.Backend) error { keep(b); return nil })
	})
	chat := func(c *llmhttp.Call) error {
		for range kept.Chat(c.Context(), &llm.ChatRequest{}) {
		}
		return nil
	}
	find := func(c *llmhttp.Call) error {
		if _, ok := llmhttp.As[llmhttp.ModelLister](c.Context(), kept); ok {
			return errors.New("found")
		}
		return nil
	}
	imageURL := func(c *llmhttp.Call) error { _, err := c.ImageURL([]byte("x")); return err }
	type step = func(*llmhttp.Call) error
	for name, tt := range map[string]struct {
		steps   []step
		log     string // empty if the order is right
		records int
	}{
		"right":                 {[]step{reserve, ask, reply}, "", 1},
		"right with checks":     {[]step{body, check, reserve, check, ask, reply}, "", 1},
		"Ask before Reserve":    {[]step{ask, reserve, reply}, "Ask of a Call was called before Reserve", 0},
		"Ask twice":             {[]step{reserve, ask, ask, reply}, "Ask of a Call was called before Reserve, twice", 1},
		"Ask in Ask":            {[]step{reserve, within(ask), reply}, "Ask of a Call was called before Reserve, twice", 1},
		"Ask in Check":          {[]step{reserve, checkWith(ask), reply}, "Ask of a Call was called before Reserve, twice, or within Check", 0},
		"Reserve twice":         {[]step{reserve, reserve, ask, reply}, "Reserve of a Call was called twice", 0},
		"Reserve in Ask":        {[]step{reserve, within(reserve), reply}, "Reserve of a Call was called twice", 1},
		"Reserve in Check":      {[]step{checkWith(reserve), ask, reply}, "Reserve of a Call was called twice, or within Check", 0},
		"Check in Ask":          {[]step{reserve, within(check), reply}, "Check of a Call was called within another, or in or after Ask", 1},
		"Check in Check":        {[]step{checkWith(check), reserve, ask, reply}, "Check of a Call was called within another", 0},
		"Check after Ask":       {[]step{reserve, ask, check, reply}, "Check of a Call was called within another, or in or after Ask", 1},
		"Reply at once":         {[]step{reply}, "Reply of a Call, or End of its ReplyStream, was called before Ask", 0},
		"Reply before Ask":      {[]step{reserve, reply, ask}, "Reply of a Call, or End of its ReplyStream, was called before Ask", 0},
		"Reply in Ask":          {[]step{reserve, within(reply), reply}, "Reply of a Call, or End of its ReplyStream, was called before Ask", 1},
		"Reply in Check":        {[]step{checkWith(reply), reserve, ask, reply}, "Reply of a Call, or End of its ReplyStream, was called before Ask", 0},
		"Reply twice":           {[]step{reserve, ask, reply, reply}, "Reply of a Call, or End of its ReplyStream, was called twice", 1},
		"ImageURL":              {[]step{reserve, ask, imageURL, imageURL, reply}, "", 1},
		"ImageURL before Ask":   {[]step{reserve, imageURL, ask, reply}, "ImageURL of a Call was called before Ask", 0},
		"ImageURL in Ask":       {[]step{reserve, within(imageURL), reply}, "ImageURL of a Call was called before Ask", 1},
		"ImageURL in Check":     {[]step{reserve, checkWith(imageURL), ask, reply}, "ImageURL of a Call was called before Ask", 0},
		"ImageURL after Reply":  {[]step{reserve, ask, reply, imageURL}, "ImageURL of a Call was called before Ask has returned without an error, or after Reply", 1},
		"Body twice":            {[]step{body, body, reserve, ask, reply}, "Body of a Call, or ReadBody, was called twice", 0},
		"Backend after Ask":     {[]step{reserve, keepInAsk, chat, reply}, "the Backend of a Call was used outside of Check and Ask", 1},
		"As after Ask":          {[]step{reserve, keepInAsk, find, reply}, "the Backend of a Call was used outside of Check and Ask", 1},
		"Backend after Check":   {[]step{reserve, keepInCheck, chat, ask, reply}, "the Backend of a Call was used outside of Check and Ask", 0},
		"As after Check":        {[]step{keepInCheck, find, reserve, ask, reply}, "the Backend of a Call was used outside of Check and Ask", 0},
		"Backend before End":    {[]step{reserve, keepInCheck, stream, within(piece), chat, end}, "the Backend of a Call was used outside of Check and Ask", 1},
		"Backend after Reply":   {[]step{reserve, keepInAsk, reply, chat}, "the Backend of a Call was used outside of Check and Ask", 1},
		"Backend in Ask":        {[]step{reserve, keepInCheck, within(chat), reply}, "", 1},
		"no Reply":              {[]step{reserve, ask}, "has neither replied nor returned an error", 1},
		"nothing":               {nil, "has neither replied nor returned an error", 0},
		"stream":                {[]step{reserve, stream, within(piece), end}, "", 1},
		"stream before Reserve": {[]step{stream, reserve, within(piece), end}, "Stream of a Call was called before Reserve", 0},
		"stream in Ask":         {[]step{reserve, within(stream), end}, "Stream of a Call was called before Reserve, in or after Ask", 1},
		"stream after Ask":      {[]step{reserve, ask, stream, end}, "Stream of a Call was called before Reserve, in or after Ask", 1},
		"stream twice":          {[]step{reserve, stream, stream, within(piece), end}, "Stream of a Call was called before Reserve, in or after Ask, or twice", 0},
		"Append before Ask":     {[]step{reserve, stream, piece, within(piece), end}, "Append of a ReplyStream was called outside of Ask", 0},
		"Append in Check":       {[]step{reserve, stream, checkWith(piece), within(piece), end}, "Append of a ReplyStream was called outside of Ask", 0},
		"Append after Ask":      {[]step{reserve, stream, within(piece), piece, end}, "Append of a ReplyStream was called outside of Ask", 1},
		"Append after End":      {[]step{reserve, stream, within(piece), end, piece}, "Append of a ReplyStream was called outside of Ask", 1},
		"no Append":             {[]step{reserve, stream, ask, end}, "the stream ended without a chunk", 1},
		"no End":                {[]step{reserve, stream, within(piece)}, "neither called End of its ReplyStream nor returned an error", 1},
		"no End without Ask":    {[]step{reserve, stream}, "neither called End of its ReplyStream nor returned an error", 0},
		"End before Ask":        {[]step{reserve, stream, end, within(piece)}, "Reply of a Call, or End of its ReplyStream, was called before Ask", 0},
		"End in Ask":            {[]step{reserve, stream, within(func(c *llmhttp.Call) error { return errors.Join(piece(c), end(c)) })}, "Reply of a Call, or End of its ReplyStream, was called before Ask", 1},
		"End twice":             {[]step{reserve, stream, within(piece), end, end}, "End of its ReplyStream, was called twice", 1},
		"Reply in place of End": {[]step{reserve, stream, within(piece), reply}, "Reply of a Call was called although it has a ReplyStream", 1},
		"an error of appendPiece": {[]step{reserve, stream, within(func(*llmhttp.Call) error {
			return s.Append(llmhttp.Progress{}, func([]byte) ([]byte, error) { return nil, assert.AnError })
		}), end}, assert.AnError.Error(), 1},
		"an ignored error of Append": {[]step{reserve, stream, within(func(c *llmhttp.Call) error {
			_ = s.Append(llmhttp.Progress{}, func([]byte) ([]byte, error) { return nil, assert.AnError })
			_ = piece(c)
			return nil
		}), end}, assert.AnError.Error(), 1},
		"an error of appendEnd": {[]step{reserve, stream, within(piece), func(*llmhttp.Call) error {
			return s.End(func([]byte) ([]byte, error) { return nil, assert.AnError })
		}}, assert.AnError.Error(), 1},
		"an error of ask": {[]step{reserve, within(func(*llmhttp.Call) error { return assert.AnError }), reply}, assert.AnError.Error(), 1},
		"an error of appendBody": {[]step{reserve, ask, func(c *llmhttp.Call) error {
			return c.Reply("", func([]byte) ([]byte, error) { return nil, assert.AnError })
		}}, assert.AnError.Error(), 1},
	} {
		for _, ignore := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				var log bytes.Buffer
				var records []llmhttp.UsageRecord
				serve := func(c *llmhttp.Call) error {
					for _, step := range tt.steps {
						if err := step(c); err != nil && !ignore {
							return err
						}
					}
					return nil
				}
				h := llmhttp.NewHandler(memory.Echo(), llmhttp.AllowAll("a"), &llmhttp.Options{
					Logger: slog.New(slog.NewTextHandler(&log, nil)),
					Usage:  recordingStore{memory.NewUsageStore(), &records},
					Routes: []llmhttp.Route{llmhttp.NewRoute("POST /v1/own", &llmhttp.Endpoint{Operation: "own", Scope: "own"}, serve)},
				})
				w := httptest.NewRecorder()
				aborted := serveOnce(h, w, "{}")
				assert.Len(t, records, tt.records)
				if tt.log == "" {
					assert.Equal(t, 200, w.Code, log.String())
					assert.False(t, aborted)
					return
				}
				switch {
				case name == "Reply twice", name == "ImageURL after Reply", name == "End twice", name == "Append after End", name == "Backend after Reply": // a complete reply was sent
					assert.Contains(t, []string{"{}", "piece end"}, w.Body.String())
				case strings.HasPrefix(w.Body.String(), "piece "):
					assert.Equal(t, "piece failed", w.Body.String())
					assert.True(t, aborted)
				default:
					assert.Equal(t, 500, w.Code, w.Body)
				}
				assert.Contains(t, log.String(), tt.log)
			})
		}
	}
}

// The endpoint of a host reads a body that is not JSON, within its bound, and Cleanup's functions are called
// when the request has ended, the last one first.
func TestCall_ReadBody(t *testing.T) {
	var ended []string
	s := startServer(t, config{opts: llmhttp.Options{Routes: []llmhttp.Route{
		llmhttp.NewRoute("POST /v1/own", &llmhttp.Endpoint{Scope: "own"}, func(c *llmhttp.Call) error {
			c.Cleanup(func() { ended = append(ended, "first") })
			c.Cleanup(func() { ended = append(ended, "second") })
			var read []byte
			err := c.ReadBody(10, func(body io.Reader) (err error) {
				read, err = io.ReadAll(body)
				if string(read) == "refuse" {
					err = llm.Errorf(400, "", "No.")
				}
				return err
			})
			if err != nil {
				return err
			}
			if string(read) == "panic" {
				panic("x")
			}
			return c.Reply(c.Request().Header.Get("Content-Type"), func(b []byte) ([]byte, error) { return append(b, read...), nil })
		})}}})
	n := 0
	for _, tt := range []struct {
		body     string
		encoding string
		chunked  bool
		status   int
	}{
		{"", "", false, 200}, {"0123456789", "", false, 200}, {"0123456789", "", true, 200},
		{"0123456789a", "", false, 413}, {"0123456789a", "", true, 413}, {strings.Repeat("x", 1<<20), "", true, 413},
		{"x", "br", false, 415}, {"x", "gzip", false, 400}, {"refuse", "", false, 400}, {"panic", "", false, 500},
	} {
		var body io.Reader = strings.NewReader(tt.body)
		if tt.chunked {
			body = io.MultiReader(body)
		}
		req, err := http.NewRequest(http.MethodPost, s.url+"/v1/own", body)
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+testSecret)
		req.Header.Set("Content-Type", "application/x-own")
		req.Header.Set("Content-Encoding", tt.encoding)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		require.NoError(t, err)
		assert.Equal(t, tt.status, resp.StatusCode, "%+.50v %s", tt, got)
		if tt.status == 200 {
			assert.Equal(t, tt.body, string(got))
			assert.Equal(t, "application/x-own", resp.Header.Get("Content-Type"))
		}
		n++
		s.waitForSummaries(n)
		assert.Equal(t, []string{"second", "first"}, ended, "%+.50v", tt)
		ended = nil
	}
}

// serveOnce serves a request for /v1/own, and reports whether the connection was cut.
func serveOnce(h http.Handler, w http.ResponseWriter, body string) (aborted bool) {
	defer func() {
		if p := recover(); p != nil {
			if p != http.ErrAbortHandler {
				panic(p)
			}
			aborted = true
		}
	}()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/own", strings.NewReader(body)))
	return false
}

// A request that Reserve has refused is refused, whatever the function does then. What was not sent
// has used nothing, and no number is negative.
func TestCall_Outcomes(t *testing.T) {
	for name, tt := range map[string]struct {
		key    llmhttp.Key
		user   error
		units  int64
		err    error
		status int
		class  llmhttp.ErrorClass
		want   *llmhttp.Units // of the record; nil if there is none
	}{
		"used":     {units: 3, status: 200, want: &llmhttp.Units{PromptTokens: 7, SearchUnits: 3}},
		"negative": {units: -3, status: 200, want: &llmhttp.Units{PromptTokens: 7}},
		"failed":   {units: 3, err: llm.Errorf(418, "", "tea"), status: 418, class: llmhttp.ClassInvalidRequest, want: &llmhttp.Units{PromptTokens: 7, SearchUnits: 3}},
		"not sent": {units: 3, err: errors.Join(llm.Errorf(418, "", "tea"), llm.ErrNotSent), status: 418, class: llmhttp.ClassInvalidRequest, want: &llmhttp.Units{}},
		"refused":  {key: llmhttp.Key{Models: []string{}}, status: 404, class: llmhttp.ClassNotFound},
		"user":     {user: llm.Errorf(403, "", "no"), status: 403, class: llmhttp.ClassPermission},
		"no user":  {user: assert.AnError, status: 500, class: llmhttp.ClassInternal},
		"no reply": {err: assert.AnError, status: 500, class: llmhttp.ClassBackend, want: &llmhttp.Units{PromptTokens: 7}},
	} {
		t.Run(name, func(t *testing.T) {
			var records []llmhttp.UsageRecord
			var summary llmhttp.RequestSummary
			counted := false
			serve := func(c *llmhttp.Call) error {
				for range 2 {
					_ = c.Reserve(llmhttp.Estimate{Model: "m", Units: &llmhttp.Units{SearchUnits: -1}, Tokens: func() int { counted = true; return c.CountText("a text") }})
					if tt.want != nil {
						break
					}
				}
				_ = c.Ask(func(context.Context, llmhttp.Backend) (llmhttp.Used, error) {
					return llmhttp.Used{Usage: &llm.Usage{PromptTokens: 7}, Units: &llmhttp.Units{SearchUnits: tt.units}}, tt.err
				})
				return c.Reply("", func([]byte) ([]byte, error) { return []byte("{}"), nil })
			}
			h := llmhttp.NewHandler(memory.Echo(), llmhttp.KeyStoreFunc(func(context.Context, string) (*llmhttp.Key, error) { return &tt.key, nil }), &llmhttp.Options{
				Logger: slog.New(slog.DiscardHandler),
				Observe: func(ctx context.Context, _ *http.Request) (context.Context, llmhttp.Observation) {
					return ctx, llmhttp.Observation{Ended: func(s *llmhttp.RequestSummary) { summary = *s }}
				},
				Usage:  recordingStore{memory.NewUsageStore(), &records},
				User:   func(_ *http.Request, named string) (string, error) { return named, tt.user },
				Routes: []llmhttp.Route{llmhttp.NewRoute("POST /v1/own", &llmhttp.Endpoint{Operation: "own", Scope: "own"}, serve)},
			})
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/own", strings.NewReader("{}")))
			assert.Equal(t, tt.status, w.Code, w.Body)
			assert.Equal(t, tt.class, summary.ErrorClass)
			assert.Equal(t, tt.want != nil, counted, "tokens are counted when the model and the end user are allowed")
			if tt.want == nil {
				assert.Empty(t, records)
				return
			}
			require.Len(t, records, 1)
			assert.Equal(t, *tt.want, records[0].Units)
		})
	}
}

// What a function of the host returns as the body of a reply stays the host's.
func TestCall_BodyOfHost(t *testing.T) {
	constant := []byte(`{"a":"constant"}`)
	h := llmhttp.NewHandler(memory.Echo(), llmhttp.AllowAll("a"), &llmhttp.Options{
		Routes: []llmhttp.Route{llmhttp.NewRoute("POST /v1/own", &llmhttp.Endpoint{Scope: "own"}, func(c *llmhttp.Call) error {
			if err := c.Body(func([]byte) error { return nil }); err != nil {
				return err
			}
			return c.Reply("", func([]byte) ([]byte, error) { return constant, nil })
		})},
	})
	for range 20 {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/own", strings.NewReader(`["the body of a request"]`)))
		assert.Equal(t, `{"a":"constant"}`, w.Body.String())
		assert.Equal(t, "application/json", w.Header().Get("Content-Type"))
	}
}

// An operation without a model asks no Backend, and is not recorded.
func TestCall_NoModel(t *testing.T) {
	var records []llmhttp.UsageRecord
	h := llmhttp.NewHandler(memory.Echo(), llmhttp.AllowAll("a"), &llmhttp.Options{
		Usage: recordingStore{memory.NewUsageStore(), &records},
		Routes: []llmhttp.Route{llmhttp.NewRoute("GET /v1/hello/{name}", &llmhttp.Endpoint{Scope: llmhttp.ScopeModels}, func(c *llmhttp.Call) error {
			return c.Reply("text/plain", func(b []byte) ([]byte, error) { return append(b, c.Request().PathValue("name")...), nil })
		})},
	})
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/hello/ada", nil))
	assert.Equal(t, 200, w.Code)
	assert.Equal(t, "text/plain", w.Header().Get("Content-Type"))
	assert.Equal(t, "ada", w.Body.String())
	assert.Empty(t, records)
}

func TestNewRoute_Panics(t *testing.T) {
	serve := func(*llmhttp.Call) error { return nil }
	for name, e := range map[string]*llmhttp.Endpoint{
		"no scope":            {},
		"scope with a space":  {Scope: "a b"},
		"upper-case scope":    {Scope: "Own"},
		"scope that is long":  {Scope: llmhttp.Scope(strings.Repeat("a", 64))},
		"malformed operation": {Scope: "own", Operation: "1own"},
		"operation of ours":   {Scope: "own", Operation: llmhttp.OperationChat},
		"nil":                 nil,
	} {
		assert.Panics(t, func() { llmhttp.NewRoute("POST /v1/own", e, serve) }, name)
	}
	own := &llmhttp.Endpoint{Scope: "own"}
	assert.Panics(t, func() { llmhttp.NewRoute("POST /v1/own", own, nil) })
	route := llmhttp.NewRoute("POST /v1/own", own, serve)
	for name, routes := range map[string][]llmhttp.Route{
		"the same route twice":    {route, route},
		"a route of this package": {llmhttp.NewRoute("POST /v1/embeddings", own, serve)},
		"a malformed pattern":     {llmhttp.NewRoute("/v1/own", own, serve)},
	} {
		assert.Panics(t, func() { llmhttp.NewHandler(memory.Echo(), llmhttp.AllowAll(""), &llmhttp.Options{Routes: routes}) }, name)
	}
}

// A recordingStore keeps what is recorded.
type recordingStore struct {
	llmhttp.UsageStore
	records *[]llmhttp.UsageRecord
}

func (s recordingStore) Record(ctx context.Context, records ...llmhttp.UsageRecord) error {
	*s.records = append(*s.records, records...)
	return s.UsageStore.Record(ctx, records...)
}

// A Route of Options may have the form of a Protocol that it names: for keys, headers and errors, those
// of unknown paths below it included. Otherwise it has that of OpenAI's API.
func TestRoute_Protocol(t *testing.T) {
	newRoute := func(p llmhttp.Protocol) llmhttp.Route {
		rt := llmhttp.NewRoute("POST /v1/own", &llmhttp.Endpoint{Operation: "own", Scope: "own"}, func(*llmhttp.Call) error {
			return llm.Errorf(400, "", "no")
		})
		rt.Protocol = p
		return rt
	}
	for name, tt := range map[string]struct {
		protocol                 llmhttp.Protocol
		idHeader, failure, below string
	}{
		"OpenAI's": {nil, "X-Request-Id", `{"error":{"message":"no","type":"invalid_request_error","param":null,"code":null}}`, `{"error":{"message":"Invalid URL (POST /v1/own/x)`},
		"messages": {messages.New(nil), "Request-Id", `{"type":"error","error":{"type":"invalid_request_error","message":"no"}`, `{"type":"error","error":{"type":"not_found_error","message":"Invalid URL (POST /v1/own/x)`},
	} {
		t.Run(name, func(t *testing.T) {
			var records []llmhttp.UsageRecord
			var summary llmhttp.RequestSummary
			h := llmhttp.NewHandler(memory.Echo(), keysFor(testKey()), &llmhttp.Options{
				Usage: recordingStore{memory.NewUsageStore(), &records}, Routes: []llmhttp.Route{newRoute(tt.protocol)},
				Observe: func(ctx context.Context, _ *http.Request) (context.Context, llmhttp.Observation) {
					return ctx, llmhttp.Observation{Ended: func(s *llmhttp.RequestSummary) { summary = *s }}
				},
			})
			post := func(path, keyHeader, key string) *httptest.ResponseRecorder {
				r := httptest.NewRequest(http.MethodPost, path, strings.NewReader("{}"))
				r.Header.Set(keyHeader, key)
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				return w
			}
			w := post("/v1/own", "Authorization", "Bearer "+testSecret)
			assert.Equal(t, 400, w.Code)
			assert.Contains(t, w.Body.String(), tt.failure)
			assert.NotEmpty(t, w.Header().Get(tt.idHeader))
			want, status := "chat", 401
			if tt.protocol != nil {
				want, status = "messages", 400
			}
			assert.Equal(t, want, summary.Record.Protocol)
			assert.Equal(t, status, post("/v1/own", "X-Api-Key", testSecret).Code)
			assert.Contains(t, post("/v1/own/x", "X-Api-Key", testSecret).Body.String(), tt.below)
			assert.Equal(t, 404, post("/v1/messages", "X-Api-Key", testSecret).Code, "its own routes are not served")
		})
	}
	var none *nilProtocol
	for name, p := range map[string]llmhttp.Protocol{"a nil pointer": none, "without a name": unnamedProtocol{}} {
		assert.Panics(t, func() {
			llmhttp.NewHandler(memory.Echo(), llmhttp.AllowAll(""), &llmhttp.Options{Routes: []llmhttp.Route{newRoute(p)}})
		}, name)
	}
}

// A nilProtocol is for nil pointers.
type nilProtocol struct{ llmhttp.Protocol }

// An unnamedProtocol has no name.
type unnamedProtocol struct{ plainProtocol }

func (unnamedProtocol) Name() string { return "" }

// The panic for two routes of the same requests names who has each of them.
func TestNewHandler_DuplicateRoutesNameTheirPackages(t *testing.T) {
	own := llmhttp.NewRoute("POST /v1/own", &llmhttp.Endpoint{Scope: "own"}, func(*llmhttp.Call) error { return nil })
	other := llmhttp.RouteOfRoot("POST /v1/own")
	plain := llmhttp.Route{Pattern: "POST /v1/own", Bind: llmhttp.BindQuery("own", func(context.Context, *http.Request, []byte) (*llmhttp.QueryReply, error) {
		return nil, nil
	})}
	const here, there = "package github.com/llmhttp/llmhttp_test", "package github.com/llmhttp/llmhttp"
	for _, tt := range []struct {
		routes        []llmhttp.Route
		first, second string
	}{
		{[]llmhttp.Route{own, own}, here, here},
		{[]llmhttp.Route{own, other}, here, there},
		{[]llmhttp.Route{other, own}, there, here},
		{[]llmhttp.Route{plain, own}, "Options.Routes[0]", here},
		{[]llmhttp.Route{other, plain}, there, "Options.Routes[1]"},
	} {
		assert.PanicsWithValue(t, "llmhttp: two routes serve one path: POST /v1/own of "+tt.first+", and POST /v1/own of "+tt.second, func() {
			llmhttp.NewHandler(memory.Echo(), llmhttp.AllowAll(""), &llmhttp.Options{Routes: tt.routes})
		})
	}
	assert.PanicsWithValue(t, "llmhttp: two routes serve one path: POST /v1/embeddings of the Protocol chat of package github.com/llmhttp/llmhttp, "+
		"and POST /v1/embeddings of "+there, func() {
		llmhttp.NewHandler(memory.Echo(), llmhttp.AllowAll(""), &llmhttp.Options{Routes: []llmhttp.Route{llmhttp.RouteOfRoot("POST /v1/embeddings")}})
	})
}
