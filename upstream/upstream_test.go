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
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llmhttptest"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/upstream"
)

// What every Backend promises, over a Handler with another Backend behind it.
func TestBackend(t *testing.T) {
	noLeaks(t)
	srv := httptest.NewServer(llmhttp.NewHandler(memory.Echo(), memory.Keys(serverKey), nil))
	defer srv.Close()
	b, err := upstream.New(srv.URL+"/v1", &upstream.Options{Key: serverKey})
	require.NoError(t, err)
	defer b.CloseIdleConnections()
	llmhttptest.TestBackend(t, b, llmhttptest.BackendOptions{
		ChatModel: memory.ModelChat, ImageModel: memory.ModelImageSmall, EmbeddingModel: memory.ModelEmbed,
	})
}

// A gateway answers like the server behind it, byte for byte.
func TestTransparent(t *testing.T) {
	noLeaks(t)
	srv := httptest.NewServer(llmhttp.NewHandler(memory.Echo(), memory.Keys(serverKey), nil))
	defer srv.Close()
	g := newGateway(t, srv.URL+"/v1", nil)
	direct := newGateway(t, "http://unused.invalid/v1", nil)
	direct.Config.Handler = llmhttp.NewHandler(memory.Echo(), memory.Keys(clientKey), nil)
	names := regexp.MustCompile(`"(id|created)":("[^"]*"|\d+)`)
	same := func(s string) string { return names.ReplaceAllString(s, `"$1":0`) }
	chat := func(members string) string {
		return `{"model":"demo-chat","messages":[{"role":"user","content":"Grüße 👋🏽 \"from\"\n\u2028Köln"}]` + members + `}`
	}
	const tools = `,"tools":[{"type":"function","function":{"name":"weather","parameters":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}}}]`
	for _, c := range []struct{ name, method, path, body string }{
		{"whole", "POST", chatPath, chat(``)},
		{"stream", "POST", chatPath, chat(`,"stream":true`)},
		{"stream with usage", "POST", chatPath, chat(`,"stream":true,"stream_options":{"include_usage":true}`)},
		{"choices", "POST", chatPath, chat(`,"n":3,"stream":true`)},
		{"whole choices", "POST", chatPath, chat(`,"n":3`)},
		{"tools", "POST", chatPath, chat(tools)},
		{"streamed tools", "POST", chatPath, chat(tools + `,"stream":true`)},
		{"length", "POST", chatPath, chat(`,"max_tokens":2`)},
		{"JSON", "POST", chatPath, chat(`,"response_format":{"type":"json_object"}`)},
		{"a bad schema", "POST", chatPath, chat(`,"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"string","pattern":"["}}}`)},
		{"unknown model", "POST", chatPath, strings.Replace(chat(``), "demo-chat", "no-such", 1)},
		{"unknown model, stream", "POST", chatPath, strings.Replace(chat(`,"stream":true`), "demo-chat", "no-such", 1)},
		{"models", "GET", "/v1/models", ""},
		{"model", "GET", "/v1/models/demo-embed", ""},
		{"embeddings", "POST", "/v1/embeddings", `{"model":"demo-embed","input":["a","b"],"dimensions":8}`},
		{"embeddings, base64", "POST", "/v1/embeddings", `{"model":"demo-embed","input":["a","b"],"encoding_format":"base64"}`},
		{"images", "POST", "/v1/images/generations", `{"model":"demo-image-small","prompt":"a cat","size":"256x256","n":2}`},
		{"images, base64", "POST", "/v1/images/generations", `{"model":"demo-image-small","prompt":"a cat","size":"256x256","response_format":"b64_json"}`},
		{"images of a bad size", "POST", "/v1/images/generations", `{"model":"demo-image-small","prompt":"a cat","size":"31x31"}`},
		{"no such model for images", "POST", "/v1/images/generations", `{"model":"no-such","prompt":"a cat"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			want, got := direct.do(c.method, c.path, c.body), g.do(c.method, c.path, c.body)
			assert.Equal(t, want.StatusCode, got.StatusCode)
			assert.Equal(t, same(want.body), same(got.body))
			assert.Equal(t, want.Header.Get("Content-Type"), got.Header.Get("Content-Type"))
		})
	}
	assert.Positive(t, g.used(20).PromptTokens)
}

// What goes to the server: all of what the client asked, and nothing else.
func TestRequest(t *testing.T) {
	for _, c := range []struct {
		name, path, body string
		opts             upstream.Options
		want             string
		header           http.Header
	}{
		{"whole", chatPath, askWhole, upstream.Options{}, `{"model":"m","messages":[{"role":"user","content":"Hello?"}]}`,
			http.Header{"Accept": {"application/json"}, "Authorization": {"Bearer " + serverKey}, "Content-Type": {"application/json"}, "User-Agent": {"llmhttp"}}},
		{"stream", chatPath, askStream, upstream.Options{}, `{"model":"m","messages":[{"role":"user","content":"Hello?"}],"stream":true,"stream_options":{"include_usage":true}}`,
			http.Header{"Accept": {"text/event-stream, application/json"}}},
		{"stream options", chatPath, strings.TrimSuffix(askStream, "}") + `,"stream_options":{"include_usage":false,"include_obfuscation":false}}`, upstream.Options{},
			`{"model":"m","messages":[{"role":"user","content":"Hello?"}],"stream":true,"stream_options":{"include_usage":true,"include_obfuscation":false}}`, nil},
		{"no stream options", chatPath, askUsage, upstream.Options{OmitStreamOptions: true}, `{"model":"m","messages":[{"role":"user","content":"Hello?"}],"stream":true}`, nil},
		{"stream options without a stream", chatPath, strings.TrimSuffix(askWhole, "}") + `,"stream_options":{"include_usage":true}}`, upstream.Options{}, askWhole, nil},
		{"a model by another name", chatPath, askWhole, upstream.Options{Models: map[string]string{"m": "vendor/m-2026"}},
			`{"model":"vendor/m-2026","messages":[{"role":"user","content":"Hello?"}]}`, nil},
		{"everything", chatPath, `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"a","x":1},{"type":"image_url","image_url":{"url":"data:,","detail":"low"}},{"type":"input_audio","input_audio":{"data":"","format":"wav"}}],"name":"n","y":null},
			{"role":"assistant","content":null,"reasoning_content":"so","refusal":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"call_1","content":"ok"}],
			"temperature":0,"top_p":0.5,"n":2,"stop":["a","b"],"seed":7,"logprobs":true,"top_logprobs":2,"reasoning_effort":"low","metadata":{"a":"b"},"logit_bias":{"5":-100},"chat_template_kwargs":{"enable_thinking":false}}`, upstream.Options{},
			`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"a","x":1},{"type":"image_url","image_url":{"url":"data:,","detail":"low"}},{"type":"input_audio","input_audio":{"data":"","format":"wav"}}],"name":"n","y":null},` +
				`{"role":"assistant","content":null,"reasoning_content":"so","tool_calls":[{"id":"call_1","type":"function","function":{"name":"f","arguments":"{}"}}],"refusal":null},{"role":"tool","content":"ok","tool_call_id":"call_1"}],` +
				`"temperature":0,"top_p":0.5,"n":2,"stop":["a","b"],"chat_template_kwargs":{"enable_thinking":false},"logit_bias":{"5":-100},"logprobs":true,"metadata":{"a":"b"},"reasoning_effort":"low","seed":7,"top_logprobs":2}`, nil},
		{"embeddings", "/v1/embeddings", `{"model":"m","input":["a",""],"encoding_format":"base64","user":"u"}`, upstream.Options{}, ``, nil},
		{"embeddings, all right", "/v1/embeddings", `{"model":"m","input":["a","b"],"encoding_format":"base64","user":"u"}`, upstream.Options{}, `{"model":"m","input":["a","b"],"encoding_format":"base64","user":"u"}`,
			http.Header{"Accept": {"application/json"}}},
		{"images", "/v1/images/generations", `{"model":"m","prompt":"a cat","background":"opaque"}`, upstream.Options{Models: map[string]string{"m": "x"}},
			`{"model":"x","prompt":"a cat","size":"1024x1024","response_format":"url","background":"opaque"}`, nil},
		{"images without a format", "/v1/images/generations", `{"model":"m","prompt":"a cat","response_format":"b64_json"}`, upstream.Options{OmitImageFormat: true},
			`{"model":"m","prompt":"a cat","size":"1024x1024"}`, nil},
		{"headers", chatPath, askWhole, upstream.Options{Header: http.Header{"api-version": {"5"}, "User-Agent": {"ours/1"}}}, askWhole,
			http.Header{"Api-Version": {"5"}, "User-Agent": {"ours/1"}}},
		{"a key that is no Bearer's", chatPath, askWhole, upstream.Options{Header: http.Header{"Api-Key": {"0123"}}, KeyFunc: func(context.Context) (string, error) { return "", nil }}, askWhole,
			http.Header{"Api-Key": {"0123"}, "Authorization": nil}},
	} {
		t.Run(c.name, func(t *testing.T) {
			noLeaks(t)
			s := newRawServer(t, func(c net.Conn, r *rawRequest) { whole(c, 500, "text/plain", "") })
			g := newGateway(t, s.url(), &c.opts)
			a := g.do("POST", c.path, c.body)
			if c.want == "" {
				a.wantError(t, 400)
				assert.Empty(t, s.all(), "the Handler has refused it")
				return
			}
			require.Len(t, s.all(), 1)
			r := s.all()[0]
			assert.Equal(t, c.want, r.body)
			assert.Equal(t, c.path, r.URL.RequestURI())
			assert.EqualValues(t, len(c.want), r.ContentLength)
			for name, want := range c.header {
				assert.Equal(t, want, r.Header[name], name)
			}
			assert.Equal(t, a.Header.Get("X-Request-Id"), r.Header.Get("X-Request-Id"))
			for name, values := range r.Header {
				assert.NotContains(t, strings.Join(values, " "), clientKey)
				assert.Contains(t, []string{"Accept", "Authorization", "Content-Type", "Content-Length", "User-Agent", "X-Request-Id", "Api-Version", "Api-Key"}, name)
			}
		})
	}
}

func TestBaseURL(t *testing.T) {
	noLeaks(t)
	s := newRawServer(t, func(c net.Conn, r *rawRequest) { whole(c, 500, "text/plain", "") })
	for base, want := range map[string]string{
		s.url():                            "/v1/models",
		s.url() + "/":                      "/v1/models",
		strings.TrimSuffix(s.url(), "/v1"): "/models",
		s.url() + "/a%2Fb?api-version=2":   "/v1/a%2Fb/models?api-version=2",
	} {
		b, err := upstream.New(base, nil)
		require.NoError(t, err)
		_, err = b.ListModels(t.Context())
		require.Error(t, err)
		all := s.all()
		assert.Equal(t, want, all[len(all)-1].RequestURI)
		b.CloseIdleConnections()
	}
}

func TestNewRefuses(t *testing.T) {
	const good = "https://example.com/v1"
	for _, c := range []struct {
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
		{good, &upstream.Options{Key: "secret key"}, "Options.Key has a character"},
		{good, &upstream.Options{Key: "secret\n"}, "Options.Key has a character"},
		{good, &upstream.Options{Key: "a", KeyFunc: func(context.Context) (string, error) { return "", nil }}, "both set"},
		{good, &upstream.Options{Header: http.Header{"a b": {"c"}}}, "which no header may have"},
		{good, &upstream.Options{Header: http.Header{"X": {"secret\r\nY: z"}}}, "a control character in X"},
		{good, &upstream.Options{Header: http.Header{"content-length": {"5"}}}, "must not have Content-Length"},
		{good, &upstream.Options{Header: http.Header{"Authorization": {"secret"}}, Key: "a"}, "there is a key as well"},
		{good, &upstream.Options{RequestIDHeader: "a b"}, "Options.RequestIDHeader"},
		{good, &upstream.Options{RequestIDHeader: "authorization"}, "Options.RequestIDHeader"},
		{good, &upstream.Options{Models: map[string]string{"a": ""}}, "Options.Models"},
		{good, &upstream.Options{Models: map[string]string{"": "a"}}, "Options.Models"},
		{good, &upstream.Options{ImageHosts: []string{"*"}}, "Options.ImageHosts"},
		{good, &upstream.Options{ImageHosts: []string{"a*.com"}}, "Options.ImageHosts"},
		{good, &upstream.Options{ImageHosts: []string{"https://a.com"}}, "Options.ImageHosts"},
		{good, &upstream.Options{ImageHosts: []string{""}}, "Options.ImageHosts"},
		{good, &upstream.Options{ImageHosts: []string{"a.com/b"}}, "Options.ImageHosts"},
	} {
		b, err := upstream.New(c.base, c.opts)
		assert.Nil(t, b)
		if assert.ErrorContains(t, err, c.want, "%q", c.base) {
			assert.NotContains(t, err.Error(), "secret")
		}
	}
}

// Options may be changed after New.
func TestOptionsAreCopied(t *testing.T) {
	noLeaks(t)
	s := newRawServer(t, func(c net.Conn, r *rawRequest) { whole(c, 500, "text/plain", "") })
	opts := &upstream.Options{Models: map[string]string{"m": "x"}, Header: http.Header{"A": {"a"}}}
	g := newGateway(t, s.url(), opts)
	opts.Models["m"], opts.Header["A"][0] = "y", "b"
	g.chat(askWhole)
	assert.Contains(t, s.all()[0].body, `"model":"x"`)
	assert.Equal(t, "a", s.all()[0].Header.Get("A"))
}

func TestRequestID(t *testing.T) {
	noLeaks(t)
	s := newRawServer(t, func(c net.Conn, r *rawRequest) { whole(c, 200, "application/json", wholeReply) })
	for name, want := range map[string]string{"": "X-Request-Id", "x-trace": "X-Trace", "-": ""} {
		g := newGateway(t, s.url(), &upstream.Options{RequestIDHeader: name})
		id := g.chat(askWhole).Header.Get("X-Request-Id")
		all := s.all()
		if r := all[len(all)-1]; want == "" {
			for header, values := range r.Header {
				assert.NotContains(t, values, id, header)
			}
		} else {
			assert.Equal(t, id, r.Header.Get(want))
		}
	}
	// Outside of a Handler there is none.
	b, err := upstream.New(s.url(), nil)
	require.NoError(t, err)
	defer b.CloseIdleConnections()
	_, err = llmhttp.Collect(b.Chat(t.Context(), &llmhttp.ChatRequest{Model: "m"}))
	require.NoError(t, err)
	all := s.all()
	assert.NotContains(t, all[len(all)-1].Header, "X-Request-Id")
}

func TestKeyFunc(t *testing.T) {
	noLeaks(t)
	var n atomic.Int64
	s := newRawServer(t, func(c net.Conn, r *rawRequest) {
		whole(c, 401, "application/json", `{"error":{"message":"Bad key `+strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")+`."}}`)
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
	for range 4 {
		assert.Equal(t, bodyFailedOr(g.chat(askWhole)), true)
	}
	require.Len(t, s.all(), 2)
	assert.Equal(t, "Bearer rotating-1", s.all()[0].Header.Get("Authorization"))
	assert.Equal(t, "Bearer rotating-2", s.all()[1].Header.Get("Authorization"))
	log := g.log.String()
	assert.Contains(t, log, "Bad key [redacted].")
	assert.Contains(t, log, "no key: the vault at [redacted] is sealed")
	assert.NotContains(t, log, "rotating-")
	assert.NotContains(t, log, "two words")
}

// bodyFailedOr reports whether a is one of the errors that are the operator's.
func bodyFailedOr(a answer) bool {
	return a.StatusCode == 502 && (a.body == bodyFailed || a.body == bodyUnavailable)
}

// A host's transport may add to requests, by their context.
func TestTransport(t *testing.T) {
	noLeaks(t)
	s := newRawServer(t, func(c net.Conn, r *rawRequest) { whole(c, 200, "application/json", wholeReply) })
	inner := new(http.Transport)
	defer inner.CloseIdleConnections()
	type traceKey struct{}
	g := newGateway(t, s.url(), &upstream.Options{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		r = r.Clone(r.Context())
		r.Header.Set("Traceparent", r.Context().Value(traceKey{}).(string))
		return inner.RoundTrip(r)
	})}, func(o *llmhttp.Options) {
		o.Observe = llmhttp.Observers(o.Observe, func(ctx context.Context, _ *http.Request) (context.Context, func(*llmhttp.RequestSummary)) {
			return context.WithValue(ctx, traceKey{}, "00-1-2-01"), nil
		})
	})
	require.Equal(t, 200, g.chat(askWhole).StatusCode)
	assert.Equal(t, "00-1-2-01", s.all()[0].Header.Get("Traceparent"))

	g = newGateway(t, s.url(), &upstream.Options{Transport: roundTripper(func(*http.Request) (*http.Response, error) { return nil, nil })})
	assert.Equal(t, bodyUnavailable, g.chat(askWhole).body)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Replies in all the forms in which they come.
func TestReplies(t *testing.T) {
	stream := []string{chunk("Hello"), chunk(" there"), chunkEnd, chunkUsage}
	sse := func(ends, lineEnd string) string {
		text := "data: " + strings.Join(stream, lineEnd+lineEnd+"data: ") + lineEnd + lineEnd
		return strings.ReplaceAll(text+ends, "\n", lineEnd)
	}
	const doneEvent = "data: [DONE]\n\n"
	for _, c := range []struct {
		name, contentType, body string
	}{
		{"whole", "application/json", wholeReply},
		{"whole, with a charset", "application/json; charset=utf-8", wholeReply},
		{"whole, with space", "application/json", "\r\n " + wholeReply + "\n"},
		{"whole, with a mark", "application/json", "\ufeff" + wholeReply},
		{"whole, as text", "text/plain", wholeReply},
		{"whole, without a type", "", wholeReply},
		{"whole, as a stream", "text/event-stream", wholeReply},
		{"whole, in an event", "text/event-stream", "data: " + wholeReply + "\n\n" + doneEvent},
		{"stream", "text/event-stream", sse(doneEvent, "\n")},
		{"stream, with a charset", "text/event-stream; charset=utf-8", sse(doneEvent, "\n")},
		{"stream, CRLF", "text/event-stream", sse(doneEvent, "\r\n")},
		{"stream, CR", "text/event-stream", sse(doneEvent, "\r")},
		{"stream, with comments", "text/event-stream", ": hello\n\n: OPENROUTER PROCESSING\n\n" + sse(": bye\n"+doneEvent, "\n")},
		{"stream, with pings", "text/event-stream", "event: ping\ndata: {\"type\":\"ping\"}\n\nevent: x\n\n" + sse(doneEvent, "\n")},
		{"stream, with types", "text/event-stream", strings.ReplaceAll(sse(doneEvent, "\n"), "data: {", "event: chunk\nid: 1\ndata: {")},
		{"stream, in lines", "text/event-stream", strings.ReplaceAll(sse(doneEvent, "\n"), `"choices":`, "\ndata: \"choices\":")},
		{"stream, without [DONE]", "text/event-stream", sse("", "\n")},
		{"stream, without an end", "text/event-stream", strings.TrimRight(sse("", "\n"), "\n")},
		{"stream, [DONE] without an end", "text/event-stream", sse("data: [DONE]", "\n")},
		{"stream, with more behind", "text/event-stream", sse(doneEvent+"data: more\n\n", "\n")},
		{"stream, as JSON", "application/json", sse(doneEvent, "\n")},
		{"stream, as text", "text/plain; charset=utf-8", ":\n\n" + sse(doneEvent, "\n")},
		{"stream, without a type", "", sse(doneEvent, "\n")},
		{"stream, with a mark", "text/event-stream", "\ufeff" + sse(doneEvent, "\n")},
	} {
		for _, how := range []string{"length", "chunked", "bytes", "closed"} {
			t.Run(c.name+"/"+how, func(t *testing.T) {
				noLeaks(t)
				s := newRawServer(t, func(conn net.Conn, _ *rawRequest) {
					switch how {
					case "length":
						whole(conn, 200, c.contentType, c.body)
					case "chunked":
						begin(conn, c.contentType)
						piece(conn, c.body)
						end(conn)
					case "bytes":
						begin(conn, c.contentType)
						for i := range len(c.body) {
							piece(conn, c.body[i:i+1])
						}
						end(conn)
					case "closed":
						io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: "+c.contentType+"\r\n\r\n"+c.body)
						conn.Close()
					}
				})
				g := newGateway(t, s.url(), nil)
				a := g.chat(askWhole)
				require.NoError(t, a.err)
				assert.Equal(t, `{"id":"up-1","object":"chat.completion","created":1755137933,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Hello there","refusal":null},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":5,"total_tokens":12}}`, a.body)
				a = g.chat(askUsage)
				require.NoError(t, a.err)
				text, reason := textOf(t, a.body)
				assert.Equal(t, "Hello there", text)
				assert.Equal(t, "stop", reason)
				list := frames(t, a.body)
				assert.Equal(t, chunkUsage, list[len(list)-2])
				assert.Equal(t, done, list[len(list)-1])
				sum := g.used(2)
				assert.EqualValues(t, 2*7, sum.PromptTokens)
				assert.EqualValues(t, 2*5, sum.CompletionTokens)
			})
		}
	}
}

// Usage is shown to those who asked, and recorded in any case.
func TestUsage(t *testing.T) {
	noLeaks(t)
	s := newRawServer(t, func(c net.Conn, r *rawRequest) {
		if strings.Contains(r.body, "include_usage") {
			events(c, chunk("Hello"), chunkEnd, chunkUsage, done)
		} else {
			events(c, chunk("Hello"), chunkEnd, done)
		}
	})
	g := newGateway(t, s.url(), nil)
	assert.NotContains(t, g.chat(askStream).body, "usage")
	assert.Contains(t, g.chat(askUsage).body, `"usage":{"prompt_tokens":7,"completion_tokens":5,"total_tokens":12}`)
	assert.EqualValues(t, 2*7, g.used(2).PromptTokens)

	g = newGateway(t, s.url(), &upstream.Options{OmitStreamOptions: true})
	g.chat(askStream)
	assert.True(t, g.only().Estimated)
}

// What has come is complete when its choices have said why they ended, even if
// the connection does not live to see [DONE].
func TestEndedButBroken(t *testing.T) {
	noLeaks(t)
	s := newRawServer(t, func(c net.Conn, r *rawRequest) {
		begin(c, "text/event-stream")
		piece(c, "data: "+chunk("Hello")+"\n\ndata: "+chunkEnd+"\n\n")
		c.Close()
	})
	g := newGateway(t, s.url(), nil)
	a := g.chat(askStream)
	require.NoError(t, a.err)
	assert.True(t, strings.HasSuffix(a.body, "data: [DONE]\n\n"))
	assert.Equal(t, 200, g.chat(askWhole).StatusCode)
	// One of two choices is not complete.
	a = g.chat(strings.TrimSuffix(askWhole, "}") + `,"n":2}`)
	assert.Equal(t, 502, a.StatusCode)
}

// Vendors' members come through, at every level and in both modes.
func TestVendorMembers(t *testing.T) {
	noLeaks(t)
	const choice = `"index":0,"%":{"role":"assistant","content":"Hi","reasoning_content":"so","reasoning":"thus","annotations":[{"a":1}],` +
		`"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"f","arguments":"{}","z":1},"extra_content":{"google":{"thought_signature":"s"}}}]},` +
		`"logprobs":{"content":[{"token":"Hi","logprob":-0.5}]},"content_filter_results":{"hate":{"filtered":false}},"stop_reason":"tool"`
	const top = `"service_tier":"default","system_fingerprint":"fp_1","prompt_filter_results":[{"index":0}],` +
		`"usage":{"prompt_tokens":7,"completion_tokens":5,"total_tokens":12,"prompt_tokens_details":{"cached_tokens":3},"cost":0.5}`
	s := newRawServer(t, func(c net.Conn, r *rawRequest) {
		if strings.Contains(r.body, `"stream":true`) {
			events(c, `{"id":"a","choices":[{`+strings.Replace(choice, "%", "delta", 1)+`,"finish_reason":"tool_calls"}],`+top+`}`, done)
		} else {
			whole(c, 200, "application/json", `{"id":"a","choices":[{`+strings.Replace(choice, "%", "message", 1)+`,"finish_reason":"tool_calls"}],`+top+`}`)
		}
	})
	g := newGateway(t, s.url(), nil)
	for _, ask := range []string{askWhole, askUsage} {
		body := g.chat(ask).body
		for _, member := range []string{`"content":"Hi"`, `"reasoning_content":"so"`, `"reasoning":"thus"`, `"annotations":[{"a":1}]`, `"arguments":"{}","z":1`,
			`"extra_content":{"google":{"thought_signature":"s"}}`, `"logprobs":{"content":[{"token":"Hi","logprob":-0.5}]}`,
			`"content_filter_results":{"hate":{"filtered":false}}`, `"stop_reason":"tool"`, `"service_tier":"default"`, `"system_fingerprint":"fp_1"`,
			`"prompt_filter_results":[{"index":0}]`, `"prompt_tokens_details":{"cached_tokens":3}`, `"cost":0.5`, `"finish_reason":"tool_calls"`} {
			assert.Contains(t, body, member)
		}
	}
}

// A reply has the name of its first chunk that has one, and what chunks told
// before that: Azure's first has filters' results and no name.
func TestNamelessBeginning(t *testing.T) {
	noLeaks(t)
	var first []string
	s := newRawServer(t, func(c net.Conn, _ *rawRequest) {
		events(c, append(first, `{"id":"chatcmpl-theirs","created":1755137933,"model":"m-0125","choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":"stop"}],"x_own":1}`, done)...)
	})
	g := newGateway(t, s.url(), nil)
	for _, first = range [][]string{
		{`{"id":"","created":0,"model":"","object":"","choices":[],"prompt_filter_results":[{"prompt_index":0}]}`},
		{`{"choices":[],"x_own":0,"prompt_filter_results":[]}`, `{"prompt_filter_results":[{"prompt_index":0}]}`},
	} {
		for _, ask := range []string{askWhole, askStream} {
			body := g.chat(ask).body
			for _, want := range []string{`{"id":"chatcmpl-theirs",`, `"created":1755137933,"model":"m-0125",`, `"prompt_filter_results":[{"prompt_index":0}]`, `"x_own":1`} {
				assert.Contains(t, body, want)
			}
			assert.NotContains(t, body, `"created":0`)
		}
	}
	first = []string{`{"choices":[],"prompt_filter_results":[]}`, done}
	g.chat(askStream).wantError(t, 502)

	// What has no name for too long passes as it is.
	first = nil
	for i := range 10 {
		first = append(first, fmt.Sprintf(`{"choices":[],"x_%d":"%s"}`, i, strings.Repeat("x", 10_000)))
	}
	body := g.chat(askStream).body
	assert.NotContains(t, body, `{"id":"chatcmpl-theirs",`)
	for i := range 10 {
		assert.Contains(t, body, fmt.Sprintf(`"x_%d":"`, i))
	}
}

// An error that says there is none is no error, wherever it is.
func TestNoErrors(t *testing.T) {
	noLeaks(t)
	var body string
	s := newRawServer(t, func(c net.Conn, r *rawRequest) {
		if strings.Contains(r.body, `"stream":true`) {
			events(c, strings.Replace(body, `"message"`, `"delta"`, 1), done)
		} else {
			whole(c, 200, "application/json", body)
		}
	})
	g := newGateway(t, s.url(), nil)
	const reply = `"id":"a","choices":[{"index":0,"message":{"content":"Hi"},"finish_reason":"stop"}]`
	for _, none := range []string{`"error": null, "code": 0`, `"error":"","code":200`, `"error":false,"type":"chat"`, `"error" : 0,"detail":"fine"`} {
		for _, body = range []string{"{" + none + "," + reply + "}", "{" + reply + "," + none + "}"} {
			for _, ask := range []string{askWhole, askStream} {
				assert.Contains(t, g.chat(ask).body, `"content":"Hi"`, "%s", body)
			}
		}
	}
	body = `{"error":nullify,` + reply + `}`
	g.chat(askWhole).wantError(t, 502)
	body = `{"error":null,"code":429,"message":"boom"}`
	g.chat(askWhole).wantError(t, 429)
}

// Choices of a whole reply whose indices are not those of places are in their
// places.
func TestChoicesInPlaces(t *testing.T) {
	noLeaks(t)
	var indices [2]string
	s := newRawServer(t, func(c net.Conn, r *rawRequest) {
		whole(c, 200, "application/json", fmt.Sprintf(`{"id":"a","choices":[{"index":%s,"message":{"content":"A"},"finish_reason":"stop"},{"index":%s,"message":{"content":"B"},"finish_reason":"stop"}]}`, indices[0], indices[1]))
	})
	g := newGateway(t, s.url(), nil)
	for _, indices = range [][2]string{{"0", "0"}, {"1", "2"}, {"-1", "0"}, {"0", "1"}, {"null", "null"}, {"99999", "1"}} {
		for _, ask := range []string{askWhole, askStream} {
			body := g.chat(strings.TrimSuffix(ask, "}") + `,"n":2}`).body
			assert.Regexp(t, `"index":0,"(message|delta)":\{("role":"assistant",)?"content":"A"`, body)
			assert.Regexp(t, `"index":1,"(message|delta)":\{("role":"assistant",)?"content":"B"`, body)
		}
	}
}

// What a server tells after the last choice comes with the usage, or in a whole
// reply; other clients get no chunk without choices.
func TestVendorMembersAtTheEnd(t *testing.T) {
	noLeaks(t)
	s := newRawServer(t, func(c net.Conn, _ *rawRequest) {
		events(c, chunk("Hi"), chunkEnd, `{"id":"a","choices":[],"x_late":[1]}`,
			`{"id":"a","choices":[],"usage":{"prompt_tokens":7,"completion_tokens":5,"total_tokens":12},"timings":{"ms":2},"system_fingerprint":"fp"}`, done)
	})
	g := newGateway(t, s.url(), nil)
	const late = `"system_fingerprint":"fp","timings":{"ms":2},"x_late":[1]`
	assert.Contains(t, g.chat(askUsage).body, `"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":5,"total_tokens":12},`+late+"}")
	assert.Contains(t, g.chat(askWhole).body, late)
	assert.NotContains(t, g.chat(askStream).body, `"choices":[]`)
}

// A server's words are told as they are where they are no secret: what it calls
// a parameter is not where it is, nor is a model's name any text.
func TestWordsThatAreNoSecrets(t *testing.T) {
	noLeaks(t)
	s := newRawServer(t, func(c net.Conn, _ *rawRequest) {
		whole(c, 400, "application/json", `{"error":{"message":"too many tokens: none or auto, at /v1?code=se%2Bcret%2Fvalue","type":"max_tokens","param":"messages[0].none","code":"localhost"}}`)
	})
	for _, opts := range []*upstream.Options{{Key: "token"}, {Key: "none"}, {Models: map[string]string{"m": "t"}}} {
		g := newGateway(t, s.url()+"?code=se%2Bcret%2Fvalue", opts)
		assert.Equal(t, apiError{"too many tokens: none or auto, at /v1?code=[redacted]", "max_tokens", "messages[0].none", "localhost"},
			g.chat(askWhole).wantError(t, 400))
	}
}

// A stream that is cut before all choices have begun is not complete.
func TestChoicesThatNeverCame(t *testing.T) {
	noLeaks(t)
	s := newRawServer(t, func(c net.Conn, r *rawRequest) {
		if strings.Contains(r.body, `"n":2`) {
			events(c, chunk("Hi"), chunkEnd)
		} else {
			events(c, chunk("Hi"), chunkEnd, done)
		}
	})
	g := newGateway(t, s.url(), nil)
	assert.Contains(t, g.chat(strings.TrimSuffix(askStream, "}")+`,"n":2}`).body, `{"error":`)
	assert.NotContains(t, g.chat(askStream).body, `{"error":`)
}

// Clients see their own names of models, wherever the server tells its.
func TestModelNames(t *testing.T) {
	noLeaks(t)
	s := newRawServer(t, func(c net.Conn, r *rawRequest) {
		switch {
		case strings.Contains(r.body, "fail"):
			whole(c, 400, "application/json", `{"error":{"message":"vendor/m-1 does not support 'seed'.","param":"seed","code":"unsupported_parameter"}}`)
		case strings.Contains(r.body, "missing"):
			whole(c, 404, "application/json", `{"error":{"message":"The model vendor/m-1 does not exist.","code":"model_not_found"}}`)
		case strings.HasSuffix(r.URL.Path, "embeddings"):
			whole(c, 200, "application/json", `{"data":[{"embedding":[1,2]}],"model":"vendor/m-1-large","usage":{"prompt_tokens":0,"total_tokens":0}}`)
		case strings.Contains(r.body, `"stream":true`):
			events(c, strings.ReplaceAll(chunk("Hi"), `"model":"m"`, `"model":"vendor/m-1-0125"`), chunkEnd, done)
		default:
			whole(c, 200, "application/json", strings.Replace(wholeReply, `"model":"m"`, `"model":"vendor/m-1-0125"`, 1))
		}
	})
	g := newGateway(t, s.url(), &upstream.Options{Models: map[string]string{"ours": "vendor/m-1"}})
	ours := func(body string) string { return strings.Replace(body, `"model":"m"`, `"model":"ours"`, 1) }
	for _, a := range []answer{
		g.chat(ours(askWhole)), g.chat(ours(askStream)), g.do("POST", "/v1/embeddings", `{"model":"ours","input":"a"}`),
	} {
		assert.Equal(t, 200, a.StatusCode)
		assert.Contains(t, a.body, `"model":"ours"`)
		assert.NotContains(t, a.body, "vendor")
	}
	assert.Equal(t, apiError{"ours does not support 'seed'.", "invalid_request_error", "seed", "unsupported_parameter"},
		g.chat(strings.Replace(ours(askWhole), "Hello?", "fail", 1)).wantError(t, 400))
	assert.Equal(t, apiError{"The model `ours` does not exist or you do not have access to it.", "invalid_request_error", "", "model_not_found"},
		g.chat(strings.Replace(ours(askWhole), "Hello?", "missing", 1)).wantError(t, 404))
	// Without another name the server's word counts: it may tell the version.
	assert.Contains(t, g.chat(askWhole).body, `"model":"vendor/m-1-0125"`)
}

// Connections are used again, after whatever was read.
func TestConnectionsAreReused(t *testing.T) {
	noLeaks(t)
	s := newRawServer(t, func(c net.Conn, r *rawRequest) {
		switch r.n % 4 {
		case 0:
			whole(c, 200, "application/json", wholeReply)
		case 1:
			whole(c, 429, "application/json", `{"error":{"message":"slow"}}`)
		case 2:
			begin(c, "text/event-stream")
			piece(c, "data: "+chunk("Hello")+"\n\n")
			piece(c, "data: "+chunkEnd+"\n\n")
			piece(c, "data: [DONE]\n\n")
			time.Sleep(time.Millisecond)
			end(c)
		case 3:
			whole(c, 500, "text/html", "<p>"+strings.Repeat("x", 10_000))
		}
	})
	g := newGateway(t, s.url(), nil)
	for i := range 40 {
		ask := askWhole
		if i%4 == 2 {
			ask = askStream
		}
		g.chat(ask)
		time.Sleep(5 * time.Millisecond) // in which the end of a stream is read
	}
	assert.Less(t, s.conns.Load(), int64(10))
}

// A Chat may be told that its context is done before, and yields why.
func TestCause(t *testing.T) {
	noLeaks(t)
	s := newRawServer(t, func(c net.Conn, _ *rawRequest) {})
	b, err := upstream.New(s.url(), nil)
	require.NoError(t, err)
	reason := errors.New("the reason")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(reason)
	_, err = llmhttp.Collect(b.Chat(ctx, &llmhttp.ChatRequest{Model: "m"}))
	assert.Equal(t, reason, err)
	_, err = b.ListModels(ctx)
	assert.Equal(t, reason, err)
	assert.Empty(t, s.all())
}

// The request stays as it is, so that it can be sent elsewhere.
func TestRequestIsNotChanged(t *testing.T) {
	noLeaks(t)
	s := newRawServer(t, func(c net.Conn, _ *rawRequest) { whole(c, 500, "text/plain", "") })
	b, err := upstream.New(s.url(), &upstream.Options{Models: map[string]string{"m": "x"}})
	require.NoError(t, err)
	defer b.CloseIdleConnections()
	var req llmhttp.ChatRequest
	require.NoError(t, json.Unmarshal([]byte(strings.TrimSuffix(askStream, "}")+`,"stream_options":{"include_usage":false,"a":1}}`), &req))
	before, err := json.Marshal(req)
	require.NoError(t, err)
	_, err = llmhttp.Collect(b.Chat(t.Context(), &req))
	require.Error(t, err)
	after, err := json.Marshal(req)
	require.NoError(t, err)
	assert.Equal(t, string(before), string(after))
}

// A server that is slow, but never silent for long, is heard to its end.
func TestSlowIsNotSilent(t *testing.T) {
	noLeaks(t)
	s := newRawServer(t, func(c net.Conn, _ *rawRequest) {
		begin(c, "text/event-stream")
		for range 10 {
			time.Sleep(40 * time.Millisecond)
			piece(c, ": still there\n")
		}
		piece(c, "data: "+chunk("Hello")+"\n\n")
		piece(c, "data: "+chunkEnd+"\n\ndata: [DONE]\n\n")
		end(c)
	})
	g := newGateway(t, s.url(), &upstream.Options{SilenceTimeout: 2 * time.Second, FirstByteTimeout: -1})
	a := g.chat(askStream)
	require.NoError(t, a.err)
	assert.True(t, strings.HasSuffix(a.body, "data: [DONE]\n\n"))
}

// A client that takes its time makes no silent server.
func TestSlowClient(t *testing.T) {
	noLeaks(t)
	proceed := make(chan struct{})
	s := newRawServer(t, func(c net.Conn, _ *rawRequest) {
		begin(c, "text/event-stream")
		piece(c, "data: "+chunk("Hello")+"\n\n")
		<-proceed
		piece(c, "data: "+chunk(" there")+"\n\n")
		<-proceed
		piece(c, "data: "+chunkEnd+"\n\ndata: [DONE]\n\n")
		end(c)
	})
	const silence = time.Second
	b, err := upstream.New(s.url(), &upstream.Options{SilenceTimeout: silence})
	require.NoError(t, err)
	defer b.CloseIdleConnections()
	chunks := 0
	for _, err := range b.Chat(t.Context(), &llmhttp.ChatRequest{Model: "m", Stream: true}) {
		require.NoError(t, err)
		switch chunks++; chunks {
		case 1:
			proceed <- struct{}{}
		case 2:
			time.Sleep(2 * silence)
			proceed <- struct{}{}
		}
	}
	assert.Equal(t, 3, chunks)
}

// Servers that speak HTTP/2.
func TestHTTP2(t *testing.T) {
	noLeaks(t)
	var hanging atomic.Int64
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, 2, r.ProtoMajor)
		body, _ := io.ReadAll(r.Body)
		if !strings.Contains(string(body), `"stream":true`) {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, wholeReply)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: "+chunk("Hello")+"\n\n")
		if strings.Contains(string(body), "hang") {
			hanging.Add(1)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			hanging.Add(-1)
			return
		}
		io.WriteString(w, "data: "+chunkEnd+"\n\ndata: [DONE]\n\n")
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
			assert.Fail(t, "the stream was reset before its end")
		case <-time.After(20 * time.Millisecond):
		}
	}))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	transport := srv.Client().Transport.(*http.Transport)
	defer transport.CloseIdleConnections()
	g := newGateway(t, srv.URL+"/v1", &upstream.Options{Transport: transport})
	for range 5 {
		assert.Equal(t, 200, g.chat(askWhole).StatusCode)
		a := g.chat(askStream)
		require.NoError(t, a.err)
		assert.True(t, strings.HasSuffix(a.body, "data: [DONE]\n\n"))
	}
	ctx, cancel := context.WithCancel(context.Background())
	resp, err := g.Client().Do(g.request(ctx, "POST", chatPath, strings.Replace(askStream, "Hello?", "hang", 1)))
	require.NoError(t, err)
	assert.EqualValues(t, 1, hanging.Load())
	cancel()
	resp.Body.Close()
	await(t, "the stream to be closed", func() bool { return hanging.Load() == 0 })
}

// A server whose certificate nobody knows.
func TestCertificate(t *testing.T) {
	noLeaks(t)
	srv := httptest.NewUnstartedServer(http.NotFoundHandler())
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	defer srv.Close()
	g := newGateway(t, srv.URL+"/v1", nil)
	assert.Equal(t, bodyUnavailable, g.chat(askWhole).body)
	assert.Contains(t, g.log.String(), "the certificate is signed by an unknown authority")
	g = newGateway(t, strings.Replace(srv.URL, "https:", "http:", 1)+"/v1", nil)
	assert.Equal(t, bodyFailed, g.chat(askWhole).body) // 400: an HTTP request to an HTTPS server
}
