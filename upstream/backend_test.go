package upstream_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/all"
	"github.com/llmhttp/llmhttp/audio"
	"github.com/llmhttp/llmhttp/internal/modeltest"
	"github.com/llmhttp/llmhttp/llmhttptest"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/upstream"
)

// A Backend has what a server can ask of it.
var (
	_ llmhttp.Backend        = (*upstream.Backend)(nil)
	_ llmhttp.ModelLister    = (*upstream.Backend)(nil)
	_ llmhttp.ImageGenerator = (*upstream.Backend)(nil)
	_ llmhttp.ImageStreamer  = (*upstream.Backend)(nil)
	_ llmhttp.Embedder       = (*upstream.Backend)(nil)
	_ audio.Speaker          = (*upstream.Backend)(nil)
	_ llmhttp.TokenCounter   = (*upstream.Backend)(nil)
	_ audio.Transcriber      = (*upstream.Backend)(nil)
)

// TestBackend_Conformance tests a Backend whose server is a Handler.
func TestBackend_Conformance(t *testing.T) {
	checkLeaks(t)
	srv := httptest.NewServer(llmhttp.NewHandler(modeltest.New(), memory.NewKeyStore(serverKey), &llmhttp.Options{Routes: all.Routes(nil)}))
	defer srv.Close()
	b := newBackend(t, srv.URL+"/v1", &upstream.Options{Key: serverKey})
	llmhttptest.TestBackend(t, b, llmhttptest.BackendOptions{
		ChatModel: modeltest.Chat, ImageModel: modeltest.Image, EmbeddingModel: modeltest.Embed, RerankModel: modeltest.Rerank, SpeechModel: modeltest.Speak,
		ModerationModel: modeltest.Judge, CompletionModel: modeltest.Finish, TranscriptionModel: modeltest.Hear, ImageEditModel: modeltest.Image,
	})
}

func TestBackend_GatewayRepliesAsTheServer(t *testing.T) {
	checkLeaks(t)
	srv := httptest.NewServer(llmhttp.NewHandler(modeltest.New(), memory.NewKeyStore(serverKey), &llmhttp.Options{Routes: all.Routes(nil)}))
	defer srv.Close()
	g := newGateway(t, srv.URL+"/v1", nil)
	direct := newGateway(t, "http://unused.invalid/v1", nil)
	direct.Config.Handler = llmhttp.NewHandler(modeltest.New(), memory.NewKeyStore(clientKey), &llmhttp.Options{Routes: all.Routes(nil)})
	variable := regexp.MustCompile(`"(id|created|created_at)":("[^"]*"|\d+)`)
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
		{"rerank", "POST", "/v1/rerank", `{"model":"demo-rerank","query":"a b","documents":["c","a b","b"],"return_documents":true}`},
		{"completions", "POST", "/v1/completions", `{"model":"demo-complete","prompt":["a b","Grüße 👋🏽\n\u2028"],"n":2,"logprobs":1}`},
		{"stream of completions", "POST", "/v1/completions", `{"model":"demo-complete","prompt":["a b c","Grüße 👋🏽\n\u2028"],"stream":true,"stream_options":{"include_usage":true}}`},
		{"moderations", "POST", "/v1/moderations", `{"model":"demo-moderation","input":["a","violence"]}`},
		{"moderation of parts", "POST", "/v1/moderations", `{"model":"demo-moderation","input":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}]}`},
		{"embeddings as base64", "POST", "/v1/embeddings", `{"model":"demo-embed","input":["a","b"],"encoding_format":"base64"}`},
		{"images", "POST", "/v1/images/generations", `{"model":"demo-image-small","prompt":"a cat","size":"256x256","n":2}`},
		{"images as base64", "POST", "/v1/images/generations", `{"model":"demo-image-small","prompt":"a cat","size":"256x256","response_format":"b64_json"}`},
		{"images as events", "POST", "/v1/images/generations", `{"model":"demo-image-small","prompt":"a cat","size":"256x256","n":2,"stream":true,"partial_images":2}`},
		{"edits as events", "POST", "/v1/images/edits", `{"model":"demo-image-small","prompt":"a cat","size":"256x256","stream":true,"images":[{"image_url":"data:image/png;base64,` + base64Of(png) + `"}]}`},
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
	assert.Positive(t, g.recordedUsage(22).Units.PromptTokens)
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
		{base, &upstream.Options{Transport: (*http.Transport)(nil)}, "upstream: Options.Transport holds a nil *http.Transport"},
		{base, &upstream.Options{Images: upstream.ImageOptions{Transport: (*http.Transport)(nil)}}, "upstream: Options.Images.Transport holds a nil *http.Transport"},
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

// Clients get their own names of models in replies and errors.
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
