package upstream_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llmhttptest"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/upstream"
)

// A Backend in front of a Handler passes the tests for Backends.
func TestBackend(t *testing.T) {
	checkLeaks(t)
	srv := httptest.NewServer(llmhttp.NewHandler(memory.Echo(), memory.Keys(serverKey), nil))
	defer srv.Close()
	b := newBackend(t, srv.URL+"/v1", &upstream.Options{Key: serverKey})
	llmhttptest.TestBackend(t, b, llmhttptest.BackendOptions{
		ChatModel: memory.ModelChat, ImageModel: memory.ModelImageSmall, EmbeddingModel: memory.ModelEmbed,
	})
}

func TestBackend_GatewayRepliesAsTheServer(t *testing.T) {
	checkLeaks(t)
	srv := httptest.NewServer(llmhttp.NewHandler(memory.Echo(), memory.Keys(serverKey), nil))
	defer srv.Close()
	g := newGateway(t, srv.URL+"/v1", nil)
	direct := newGateway(t, "http://unused.invalid/v1", nil)
	direct.Config.Handler = llmhttp.NewHandler(memory.Echo(), memory.Keys(clientKey), nil)
	variable := regexp.MustCompile(`"(id|created)":("[^"]*"|\d+)`)
	normalize := func(s string) string { return variable.ReplaceAllString(s, `"$1":0`) }
	chat := func(members string) string {
		return `{"model":"demo-chat","messages":[{"role":"user","content":"Grüße 👋🏽 \"from\"\n\u2028Köln"}]` + members + `}`
	}
	const tools = `,"tools":[{"type":"function","function":{"name":"weather","parameters":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}}}]`
	for _, test := range []struct{ name, method, path, body string }{
		{"whole reply", "POST", chatPath, chat(``)},
		{"stream", "POST", chatPath, chat(`,"stream":true`)},
		{"stream with usage", "POST", chatPath, chat(`,"stream":true,"stream_options":{"include_usage":true}`)},
		{"stream of several choices", "POST", chatPath, chat(`,"n":3,"stream":true`)},
		{"several choices", "POST", chatPath, chat(`,"n":3`)},
		{"tools", "POST", chatPath, chat(tools)},
		{"stream of tool calls", "POST", chatPath, chat(tools + `,"stream":true`)},
		{"token limit", "POST", chatPath, chat(`,"max_tokens":2`)},
		{"JSON object", "POST", chatPath, chat(`,"response_format":{"type":"json_object"}`)},
		{"invalid schema", "POST", chatPath, chat(`,"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"string","pattern":"["}}}`)},
		{"unknown model", "POST", chatPath, strings.Replace(chat(``), "demo-chat", "no-such", 1)},
		{"stream of an unknown model", "POST", chatPath, strings.Replace(chat(`,"stream":true`), "demo-chat", "no-such", 1)},
		{"models", "GET", "/v1/models", ""},
		{"model", "GET", "/v1/models/demo-embed", ""},
		{"embeddings", "POST", "/v1/embeddings", `{"model":"demo-embed","input":["a","b"],"dimensions":8}`},
		{"embeddings as base64", "POST", "/v1/embeddings", `{"model":"demo-embed","input":["a","b"],"encoding_format":"base64"}`},
		{"images", "POST", "/v1/images/generations", `{"model":"demo-image-small","prompt":"a cat","size":"256x256","n":2}`},
		{"images as base64", "POST", "/v1/images/generations", `{"model":"demo-image-small","prompt":"a cat","size":"256x256","response_format":"b64_json"}`},
		{"invalid image size", "POST", "/v1/images/generations", `{"model":"demo-image-small","prompt":"a cat","size":"31x31"}`},
		{"unknown image model", "POST", "/v1/images/generations", `{"model":"no-such","prompt":"a cat"}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			want, got := direct.do(test.method, test.path, test.body), g.do(test.method, test.path, test.body)
			assert.Equal(t, want.StatusCode, got.StatusCode)
			assert.Equal(t, normalize(want.body), normalize(got.body))
			assert.Equal(t, want.Header.Get("Content-Type"), got.Header.Get("Content-Type"))
		})
	}
	assert.Positive(t, g.used(20).PromptTokens)
}

func TestNew_RefusesInvalidOptions(t *testing.T) {
	const base = "https://example.com/v1"
	noKey := func(context.Context) (string, error) { return "", nil }
	hosts := func(pattern string) *upstream.Options {
		return &upstream.Options{Images: upstream.ImageOptions{Hosts: []string{pattern}}}
	}
	for _, test := range []struct {
		base string
		opts *upstream.Options
		want string
	}{
		{"", nil, "must begin with"},
		{"example.com/v1", nil, "must begin with"},
		{"ftp://example.com", nil, "must begin with"},
		{"http:///v1", nil, "has no host"},
		{"http://:80/v1", nil, "has no host"},
		{"https://example.com/%zz", nil, "not valid"},
		{"https://ex%ffample.com/v1", nil, "not valid UTF-8"},
		{"https://example.com/v1?code=secret\xff", nil, "not valid UTF-8"},
		{"https://u:secret@example.com/v1", nil, "must not have a user or password"},
		{"https://example.com/v1#a", nil, "fragment"},
		{base, &upstream.Options{Key: "secret key"}, "Options.Key has a character"},
		{base, &upstream.Options{Key: "secret\n"}, "Options.Key has a character"},
		{base, &upstream.Options{Key: "a", KeyFunc: noKey}, "both set"},
		{base, &upstream.Options{Header: http.Header{"a b": {"c"}}}, "invalid name"},
		{base, &upstream.Options{Header: http.Header{"X": {"secret\r\nY: z"}}}, "a control character in X"},
		{base, &upstream.Options{Header: http.Header{"content-length": {"5"}}}, "must not have Content-Length"},
		{base, &upstream.Options{Header: http.Header{"Authorization": {"secret"}}, Key: "a"}, "there is a key as well"},
		{base, &upstream.Options{RequestIDHeader: "a b"}, "Options.RequestIDHeader"},
		{base, &upstream.Options{RequestIDHeader: "authorization"}, "Options.RequestIDHeader"},
		{base, &upstream.Options{RequestIDHeader: "host"}, "Options.RequestIDHeader"},
		{base, &upstream.Options{Models: map[string]string{"a": ""}}, "Options.Models"},
		{base, &upstream.Options{Models: map[string]string{"": "a"}}, "Options.Models"},
		{base, hosts("*"), "Options.Images.Hosts"},
		{base, hosts("a*.com"), "Options.Images.Hosts"},
		{base, hosts("https://a.com"), "Options.Images.Hosts"},
		{base, hosts(""), "Options.Images.Hosts"},
		{base, hosts("a.com/b"), "Options.Images.Hosts"},
	} {
		b, err := upstream.New(test.base, test.opts)
		assert.Nil(t, b)
		if assert.ErrorContains(t, err, test.want, "%q", test.base) {
			assert.NotContains(t, err.Error(), "secret")
		}
	}
}

func TestNew_CopiesOptions(t *testing.T) {
	checkLeaks(t)
	s := newRawServer(t, func(c net.Conn, r *rawRequest) { writeReply(c, 500, "text/plain", "") })
	opts := &upstream.Options{Models: map[string]string{"m": "x"}, Header: http.Header{"A": {"a"}}}
	g := newGateway(t, s.url(), opts)
	opts.Models["m"], opts.Header["A"][0] = "y", "b"
	g.chat(askWhole)
	assert.Contains(t, s.last().body, `"model":"x"`)
	assert.Equal(t, "a", s.last().Header.Get("A"))
}

func TestNew_BaseURL(t *testing.T) {
	checkLeaks(t)
	s := newRawServer(t, func(c net.Conn, r *rawRequest) { writeReply(c, 500, "text/plain", "") })
	for base, want := range map[string]string{
		s.url():                            "/v1/models",
		s.url() + "/":                      "/v1/models",
		strings.TrimSuffix(s.url(), "/v1"): "/models",
		s.url() + "/a%2Fb?api-version=2":   "/v1/a%2Fb/models?api-version=2",
	} {
		_, err := newBackend(t, base, nil).ListModels(t.Context())
		require.Error(t, err)
		assert.Equal(t, want, s.last().RequestURI)
	}
}

// The server gets all that the client has sent but its key.
func TestRequest(t *testing.T) {
	const imagesPath, embeddingsPath = "/v1/images/generations", "/v1/embeddings"
	for _, test := range []struct {
		name, path, body string
		opts             upstream.Options
		want             string
		header           http.Header
	}{
		{"whole reply", chatPath, askWhole, upstream.Options{}, askWhole,
			http.Header{"Accept": {"application/json"}, "Authorization": {"Bearer " + serverKey}, "Content-Type": {"application/json"}, "User-Agent": {"llmhttp"}}},
		{"stream", chatPath, askStream, upstream.Options{}, with(askStream, `"stream_options":{"include_usage":true}`),
			http.Header{"Accept": {"text/event-stream, application/json"}}},
		{"stream options", chatPath, with(askStream, `"stream_options":{"include_usage":false,"include_obfuscation":false}`), upstream.Options{},
			with(askStream, `"stream_options":{"include_usage":true,"include_obfuscation":false}`), nil},
		{"OmitStreamOptions", chatPath, askUsage, upstream.Options{OmitStreamOptions: true}, askStream, nil},
		{"stream options without a stream", chatPath, with(askWhole, `"stream_options":{"include_usage":true}`), upstream.Options{}, askWhole, nil},
		{"model with another name", chatPath, askWhole, upstream.Options{Models: map[string]string{"m": "vendor/m-2026"}},
			`{"model":"vendor/m-2026","messages":[{"role":"user","content":"Hello?"}]}`, nil},
		{"all members", chatPath, `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"a","x":1},{"type":"image_url","image_url":{"url":"data:,","detail":"low"}},{"type":"input_audio","input_audio":{"data":"","format":"wav"}}],"name":"n","y":null},
			{"role":"assistant","content":null,"reasoning_content":"so","refusal":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"call_1","content":"ok"}],
			"temperature":0,"top_p":0.5,"n":2,"stop":["a","b"],"sampler":7,"logprobs":true,"top_logprobs":2,"reasoning_effort":"low","metadata":{"a":"b"},"logit_bias":{"5":-100},"chat_template_kwargs":{"enable_thinking":false}}`, upstream.Options{},
			`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"a","x":1},{"type":"image_url","image_url":{"url":"data:,","detail":"low"}},{"type":"input_audio","input_audio":{"data":"","format":"wav"}}],"name":"n","y":null},` +
				`{"role":"assistant","content":null,"reasoning_content":"so","tool_calls":[{"id":"call_1","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","content":"ok","tool_call_id":"call_1"}],` +
				`"temperature":0,"top_p":0.5,"n":2,"stop":["a","b"],"chat_template_kwargs":{"enable_thinking":false},"logit_bias":{"5":-100},"logprobs":true,"metadata":{"a":"b"},"reasoning_effort":"low","sampler":7,"top_logprobs":2}`, nil},
		{"embeddings", embeddingsPath, `{"model":"m","input":["a","b"],"encoding_format":"base64","user":"u"}`, upstream.Options{}, `{"model":"m","input":["a","b"],"encoding_format":"base64","user":"u"}`,
			http.Header{"Accept": {"application/json"}}},
		{"images", imagesPath, `{"model":"m","prompt":"a cat","background":"opaque"}`, upstream.Options{Models: map[string]string{"m": "x"}},
			`{"model":"x","prompt":"a cat","size":"1024x1024","response_format":"url","background":"opaque"}`, nil},
		{"OmitFormat", imagesPath, `{"model":"m","prompt":"a cat","response_format":"b64_json"}`, upstream.Options{Images: upstream.ImageOptions{OmitFormat: true}},
			`{"model":"m","prompt":"a cat","size":"1024x1024"}`, nil},
		{"Header", chatPath, askWhole, upstream.Options{Header: http.Header{"api-version": {"5"}, "User-Agent": {"ours/1"}}}, askWhole,
			http.Header{"Api-Version": {"5"}, "User-Agent": {"ours/1"}}},
		{"key in another header", chatPath, askWhole, upstream.Options{Header: http.Header{"Api-Key": {"0123"}}, KeyFunc: func(context.Context) (string, error) { return "", nil }}, askWhole,
			http.Header{"Api-Key": {"0123"}, "Authorization": nil}},
	} {
		t.Run(test.name, func(t *testing.T) {
			checkLeaks(t)
			s := newRawServer(t, func(c net.Conn, r *rawRequest) { writeReply(c, 500, "text/plain", "") })
			got := newGateway(t, s.url(), &test.opts).do("POST", test.path, test.body)
			require.Len(t, s.received(), 1)
			r := s.last()
			assert.JSONEq(t, test.want, r.body)
			assert.Equal(t, test.path, r.URL.RequestURI())
			assert.EqualValues(t, len(r.body), r.ContentLength)
			for name, want := range test.header {
				assert.Equal(t, want, r.Header[name], name)
			}
			assert.Equal(t, got.Header.Get("X-Request-Id"), r.Header.Get("X-Request-Id"))
			for name, values := range r.Header {
				assert.NotContains(t, strings.Join(values, " "), clientKey)
				assert.Contains(t, []string{"Accept", "Authorization", "Content-Type", "Content-Length", "User-Agent", "X-Request-Id", "Api-Version", "Api-Key"}, name)
			}
		})
	}
}

// A request that was not sent successfully can be sent to another server.
func TestRequest_IsNotChanged(t *testing.T) {
	checkLeaks(t)
	s := newRawServer(t, func(c net.Conn, _ *rawRequest) { writeReply(c, 500, "text/plain", "") })
	b := newBackend(t, s.url(), &upstream.Options{Models: map[string]string{"m": "x"}})
	var req llmhttp.ChatRequest
	require.NoError(t, json.Unmarshal([]byte(with(askStream, `"stream_options":{"include_usage":false,"a":1}`)), &req))
	before, err := json.Marshal(req)
	require.NoError(t, err)
	_, err = llmhttp.Collect(b.Chat(t.Context(), &req))
	require.Error(t, err)
	after, err := json.Marshal(req)
	require.NoError(t, err)
	assert.Equal(t, string(before), string(after))
}

func TestRequest_ID(t *testing.T) {
	checkLeaks(t)
	s := newRawServer(t, func(c net.Conn, r *rawRequest) { writeReply(c, 200, mediaJSON, wholeReply) })
	for name, want := range map[string]string{"": "X-Request-Id", "x-trace": "X-Trace"} {
		g := newGateway(t, s.url(), &upstream.Options{RequestIDHeader: name})
		id := g.chat(askWhole).Header.Get("X-Request-Id")
		require.NotEmpty(t, id)
		assert.Equal(t, id, s.last().Header.Get(want))
	}
	g := newGateway(t, s.url(), &upstream.Options{RequestIDHeader: "-"})
	id := g.chat(askWhole).Header.Get("X-Request-Id")
	assert.NotContains(t, fmt.Sprint(s.last().Header), id)

	_, err := llmhttp.Collect(newBackend(t, s.url(), nil).Chat(t.Context(), &llmhttp.ChatRequest{Model: "m"}))
	require.NoError(t, err)
	assert.NotContains(t, s.last().Header, "X-Request-Id", "there is none without a Handler")
}

func TestRequest_KeyFunc(t *testing.T) {
	checkLeaks(t)
	var n atomic.Int64
	s := newRawServer(t, func(c net.Conn, r *rawRequest) {
		writeReply(c, 401, mediaJSON, `{"error":{"message":"Bad key `+strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")+`."}}`)
	})
	g := newGateway(t, s.url(), &upstream.Options{KeyFunc: func(context.Context) (string, error) {
		switch n.Add(1) {
		case 1:
			return "rotating-1", nil
		case 2:
			return "rotating-2", nil
		case 3:
			return "", errors.New("the vault at 10.1.2.3:8200 is sealed")
		default:
			return "two words", nil
		}
	}})
	for _, want := range []string{bodyFailed, bodyFailed, bodyUnavailable, bodyUnavailable} {
		assert.Equal(t, want, g.chat(askWhole).body)
	}
	require.Len(t, s.received(), 2)
	assert.Equal(t, "Bearer rotating-1", s.received()[0].Header.Get("Authorization"))
	assert.Equal(t, "Bearer rotating-2", s.received()[1].Header.Get("Authorization"))
	log := g.log.String()
	assert.Contains(t, log, "Bad key [redacted].")
	assert.Contains(t, log, "no key: the vault at [redacted] is sealed")
	assert.NotContains(t, log, "rotating-")
	assert.NotContains(t, log, "two words")
}

func TestRequest_Transport(t *testing.T) {
	checkLeaks(t)
	s := newRawServer(t, func(c net.Conn, r *rawRequest) { writeReply(c, 200, mediaJSON, wholeReply) })
	inner := new(http.Transport)
	defer inner.CloseIdleConnections()
	type traceKey struct{}
	traced := roundTripper(func(r *http.Request) (*http.Response, error) {
		r = r.Clone(r.Context())
		r.Header.Set("Traceparent", r.Context().Value(traceKey{}).(string))
		return inner.RoundTrip(r)
	})
	g := newGateway(t, s.url(), &upstream.Options{Transport: traced}, func(o *llmhttp.Options) {
		o.Observe = llmhttp.Observers(o.Observe, func(ctx context.Context, _ *http.Request) (context.Context, llmhttp.Observation) {
			return context.WithValue(ctx, traceKey{}, "00-1-2-01"), llmhttp.Observation{}
		})
	})
	require.Equal(t, 200, g.chat(askWhole).StatusCode)
	assert.Equal(t, "00-1-2-01", s.last().Header.Get("Traceparent"), "a Transport sees the values of the client's context")

	broken := roundTripper(func(*http.Request) (*http.Response, error) { return nil, nil })
	assert.Equal(t, bodyUnavailable, newGateway(t, s.url(), &upstream.Options{Transport: broken}).chat(askWhole).body)
}

// A Transport may read a request after the reply has come, or once more: its
// body belongs to no other request.
func TestRequest_BodyIsKept(t *testing.T) {
	var requests []*http.Request
	transport := roundTripper(func(r *http.Request) (*http.Response, error) {
		requests = append(requests, r)
		return response(mediaEvents, strings.NewReader(sse(textChunk("Nice."), done))), nil
	})
	b := newBackend(t, "http://upstream.test/v1", &upstream.Options{Transport: transport})
	h := llmhttp.NewHandler(b, llmhttp.AllowAll("a"), nil)
	ask := func(i int) string {
		image := `{"type":"image_url","image_url":{"url":"data:image/png;base64,` + strings.Repeat(fmt.Sprintf("%08d", i), 25_000) + `"}}`
		return `{"model":"m","messages":[{"role":"user","content":[` + image + `]}]}`
	}
	const n = 10
	for i := range n {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("POST", chatPath, strings.NewReader(ask(i))))
		require.Equal(t, http.StatusOK, w.Code, w.Body)
	}
	for i, r := range requests {
		again, err := r.GetBody()
		require.NoError(t, err)
		for _, body := range []io.Reader{r.Body, again} {
			b, err := io.ReadAll(body)
			require.NoError(t, err)
			assert.True(t, string(b) == ask(i), "request %d is as it was", i)
		}
	}
}

// A brokenConn fails to write once it is broken.
type brokenConn struct {
	net.Conn
	broken *atomic.Bool
}

func (c brokenConn) Write(p []byte) (int, error) {
	if c.broken.Load() {
		return 0, syscall.EPIPE
	}
	return c.Conn.Write(p)
}

// A request is repeated if its connection was lost before any of it was sent.
func TestRequest_StaleConnection(t *testing.T) {
	checkLeaks(t)
	s := newRawServer(t, func(c net.Conn, r *rawRequest) { writeReply(c, 200, mediaJSON, wholeReply) })
	var dialed int
	var last *atomic.Bool
	transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		dialed++
		last = new(atomic.Bool)
		return brokenConn{c, last}, err
	}}
	defer transport.CloseIdleConnections()
	g := newGateway(t, s.url(), &upstream.Options{Transport: transport})
	for n := range 3 {
		require.Equal(t, 200, g.chat(askWhole).StatusCode)
		last.Store(true)
		require.Equal(t, 200, g.chat(askWhole).StatusCode)
		assert.Equal(t, n+2, dialed)
		assert.JSONEq(t, askWhole, s.last().body)
	}
}

func TestRequest_ContextIsDone(t *testing.T) {
	checkLeaks(t)
	s := newRawServer(t, func(c net.Conn, _ *rawRequest) {})
	b := newBackend(t, s.url(), nil)
	reason := errors.New("the reason")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(reason)
	_, err := llmhttp.Collect(b.Chat(ctx, &llmhttp.ChatRequest{Model: "m"}))
	assert.ErrorIs(t, err, reason)
	assert.ErrorIs(t, err, llmhttp.ErrNotSent)
	_, err = b.ListModels(ctx)
	assert.ErrorIs(t, err, reason)
	assert.Empty(t, s.received())
}

// With TLS, and without it where it is needed.
func TestRequest_UnknownCertificate(t *testing.T) {
	checkLeaks(t)
	srv := httptest.NewUnstartedServer(http.NotFoundHandler())
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	defer srv.Close()
	g := newGateway(t, srv.URL+"/v1", nil)
	assert.Equal(t, bodyUnavailable, g.chat(askWhole).body)
	assert.Contains(t, g.log.String(), "the certificate is signed by an unknown authority")
	g = newGateway(t, strings.Replace(srv.URL, "https:", "http:", 1)+"/v1", nil)
	assert.Equal(t, bodyFailed, g.chat(askWhole).body, "the server replies with the status 400")
}

// Clients see their own names of models.
func TestOptions_Models(t *testing.T) {
	checkLeaks(t)
	s := newRawServer(t, func(c net.Conn, r *rawRequest) {
		switch {
		case strings.Contains(r.body, "fail"):
			writeReply(c, 400, mediaJSON, `{"error":{"message":"vendor/m-1 does not support 'seed'.","param":"seed","code":"unsupported_parameter"}}`)
		case strings.Contains(r.body, "missing"):
			writeReply(c, 404, mediaJSON, `{"error":{"message":"The model vendor/m-1 does not exist.","code":"model_not_found"}}`)
		case strings.HasSuffix(r.URL.Path, "embeddings"):
			writeReply(c, 200, mediaJSON, `{"data":[{"embedding":[1,2]}],"model":"vendor/m-1-large","usage":{"prompt_tokens":0,"total_tokens":0}}`)
		case strings.Contains(r.body, `"stream":true`):
			writeEvents(c, strings.ReplaceAll(textChunk("Hi"), `"model":"m"`, `"model":"vendor/m-1-0125"`), stopChunk, done)
		default:
			writeReply(c, 200, mediaJSON, strings.Replace(wholeReply, `"model":"m"`, `"model":"vendor/m-1-0125"`, 1))
		}
	})
	g := newGateway(t, s.url(), &upstream.Options{Models: map[string]string{"ours": "vendor/m-1"}})
	ours := func(body string) string { return strings.Replace(body, `"model":"m"`, `"model":"ours"`, 1) }
	for _, got := range []reply{
		g.chat(ours(askWhole)), g.chat(ours(askStream)), g.do("POST", "/v1/embeddings", `{"model":"ours","input":"a"}`),
	} {
		assert.Equal(t, 200, got.StatusCode)
		assert.Contains(t, got.body, `"model":"ours"`)
		assert.NotContains(t, got.body, "vendor")
	}
	assert.Equal(t, apiError{"ours does not support 'seed'.", "invalid_request_error", "seed", "unsupported_parameter"},
		g.chat(strings.Replace(ours(askWhole), "Hello?", "fail", 1)).requireError(t, 400))
	assert.Equal(t, apiError{"The model `ours` does not exist or you do not have access to it.", "invalid_request_error", "", "model_not_found"},
		g.chat(strings.Replace(ours(askWhole), "Hello?", "missing", 1)).requireError(t, 404))
	assert.Contains(t, g.chat(askWhole).body, `"model":"vendor/m-1-0125"`, "the server may say which version of the model it used")
}
