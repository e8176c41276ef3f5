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
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
	"github.com/llmhttp/llmhttp/upstream"
)

// The server gets all parameters and members of a request, but not the client's key.
func TestRequest_Contents(t *testing.T) {
	const imagesPath, embeddingsPath = "/v1/images/generations", "/v1/embeddings"
	for _, test := range []struct {
		name, path, body string
		opts             upstream.Options
		want             string
		header           http.Header
	}{
		{"whole reply", chatPath, askWhole, upstream.Options{}, askWhole,
			http.Header{"Accept": {"application/json"}, "Authorization": {"Bearer " + serverKey}, "Content-Type": {"application/json"}, "User-Agent": {"llmhttp"}}},
		{"stream", chatPath, askStream, upstream.Options{}, withMembers(askStream, `"stream_options":{"include_usage":true}`),
			http.Header{"Accept": {"text/event-stream, application/json"}}},
		{"stream options", chatPath, withMembers(askStream, `"stream_options":{"include_usage":false,"include_obfuscation":false}`), upstream.Options{},
			withMembers(askStream, `"stream_options":{"include_usage":true,"include_obfuscation":false}`), nil},
		{"OmitStreamOptions", chatPath, askUsage, upstream.Options{OmitStreamOptions: true}, askStream, nil},
		{"stream options without a stream", chatPath, withMembers(askWhole, `"stream_options":{"include_usage":true}`), upstream.Options{}, askWhole, nil},
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
			`{"model":"x","prompt":"a cat","size":"1024x1024","background":"opaque"}`, nil},
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
				assert.Contains(t, []string{"Accept", "Accept-Encoding", "Authorization", "Content-Type", "Content-Length", "User-Agent", "X-Request-Id", "Api-Version", "Api-Key"}, name)
			}
		})
	}
}

// Chat does not change the request, so that it can be sent to another server.
func TestRequest_IsNotChanged(t *testing.T) {
	checkLeaks(t)
	s := newRawServer(t, func(c net.Conn, _ *rawRequest) { writeReply(c, 500, "text/plain", "") })
	b := newBackend(t, s.url(), &upstream.Options{Models: map[string]string{"m": "x"}})
	var req llm.ChatRequest
	require.NoError(t, json.Unmarshal([]byte(withMembers(askStream, `"stream_options":{"include_usage":false,"a":1}`)), &req))
	before, err := json.Marshal(req)
	require.NoError(t, err)
	_, err = join.Collect(b.Chat(t.Context(), &req))
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

	_, err := join.Collect(newBackend(t, s.url(), nil).Chat(t.Context(), &llm.ChatRequest{Model: "m"}))
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

// A Transport may read the body of a request after the reply has arrived, or a second
// time, so the body is not reused for another request.
func TestRequest_BodyIsKept(t *testing.T) {
	var requests []*http.Request
	transport := roundTripper(func(r *http.Request) (*http.Response, error) {
		requests = append(requests, r)
		return okResponse(mediaEvents, strings.NewReader(eventStream(textChunk("Nice."), done))), nil
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
		r := httptest.NewRequest("POST", chatPath, strings.NewReader(ask(i)))
		r.Header.Set("Content-Type", "application/json")
		h.ServeHTTP(w, r)
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

// A brokenConn is a connection whose Write fails after it is broken.
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
	_, err := join.Collect(b.Chat(ctx, &llm.ChatRequest{Model: "m"}))
	assert.ErrorIs(t, err, reason)
	assert.ErrorIs(t, err, llm.ErrNotSent)
	_, err = b.ListModels(ctx)
	assert.ErrorIs(t, err, reason)
	assert.Empty(t, s.received())
}

// A request fails if the certificate is unknown, or if only the server uses TLS.
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
