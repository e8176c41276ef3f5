package llmhttp_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

// 100 Continue is sent only after the path, the key, its scope, its request limits and
// the headers of the body were checked.
func TestRequest_BodyIsReadAfterTheChecks(t *testing.T) {
	noScope := testKey()
	noScope.Scopes = []llmhttp.Scope{}
	const key, length, media = "Authorization: Bearer " + testSecret, "Content-Length: 99", "Content-Type: application/json"
	head := func(lines ...string) string {
		return "POST " + chatPath + " HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nConnection: close\r\n" + strings.Join(lines, "\r\n") + "\r\n\r\n"
	}
	tests := []struct {
		name   string
		keys   llmhttp.KeyStore
		head   string
		status int
	}{
		{"no key", nil, head(length, media), 401},
		{"wrong key", nil, head("Authorization: Bearer sk-wrong", length, media), 401},
		{"no scope", keysFor(noScope), head(key, length, media), 403},
		{"KeyStore fails", llmhttp.KeyStoreFunc(func(context.Context, string) (*llmhttp.Key, error) { return nil, errCause }), head(key, length, media), 503},
		{"media type", nil, head(key, length, "Content-Type: text/plain"), 415},
		{"compressed", nil, head(key, length, media, "Content-Encoding: br"), 415},
		{"too large", nil, head(key, "Content-Length: 99999999", media), 413},
		{"request limit of zero", limitedKeys(llmhttp.Limits{Requests: llmhttp.Rate{N: -1}}), head(key, length, media), 429},
		{"no request in progress allowed", limitedKeys(llmhttp.Limits{Concurrent: -1}), head(key, length, media), 429},
		{"unknown URL", nil, strings.Replace(head(key, length, media), chatPath, "/v1/x", 1), 404},
		{"wrong method", nil, strings.Replace(head(key, length, media), "POST", "PUT", 1), 405},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := startServer(t, config{keys: tt.keys})
			parseReply(t, "POST", s.raw(tt.head)).checkError(t, tt.status)
		})
	}
	t.Run("good", func(t *testing.T) {
		s := startServer(t, config{})
		c := s.send(head(key, fmt.Sprint("Content-Length: ", len(chatBody)), media))
		in := bufio.NewReader(c)
		assert.Equal(t, "HTTP/1.1 100 Continue\r\n", readUntil(t, in, "\n"))
		_, err := io.WriteString(c, chatBody)
		require.NoError(t, err)
		assert.Equal(t, 200, parseReply(t, "POST", strings.TrimPrefix(readAll(t, in), "\r\n")).StatusCode)
	})
}

// Adapters to other HTTP servers may pass requests whose Body is nil.
func TestRequest_WithoutABodyIsRefused(t *testing.T) {
	s := newHandler(t, config{})
	r, err := http.NewRequest("POST", chatPath, nil)
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+testSecret)
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	readReply(w.Result()).checkError(t, 400)
}

// A body that is too large is refused, whether its length is declared or not.
// Zero sizes are the defaults, and negative ones are no limits.
func TestOptions_MaxBodyAndMaxReply(t *testing.T) {
	mebibyte := strings.Repeat("x", 1<<20)
	body := `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat(mebibyte, 17) + `"}]}`
	for limit, status := range map[int64]int{0: 413, -1: 200} {
		s := startServer(t, config{opts: llmhttp.Options{Bounds: llmhttp.Bounds{MaxBody: limit}}})
		assert.Equal(t, status, s.chat(body).StatusCode, limit)
	}
	const mebibytes = 65
	pieces := slices.Repeat([]string{mebibyte}, mebibytes)
	for limit, status := range map[int64]int{0: 502, -1: 200} {
		s := startServer(t, config{backend: textBackend(pieces...), opts: llmhttp.Options{Bounds: llmhttp.Bounds{MaxReply: limit}}})
		r := s.chat(chatBody)
		assert.Equal(t, status, r.StatusCode, limit)
		assert.Equal(t, limit < 0, len(r.body) > mebibytes<<20, limit)
	}
}

func TestRequest_MaxBody(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		s := startServer(t, config{http2: http2, opts: llmhttp.Options{Bounds: llmhttp.Bounds{MaxBody: int64(len(chatBody))}}})
		for encoding, options := range map[string][]requestOption{"length": nil, "chunked": {chunked}} {
			t.Run(fmt.Sprintf("%s/http2=%t", encoding, http2), func(t *testing.T) {
				assert.Equal(t, 200, s.chat(chatBody, options...).StatusCode)
				for _, n := range []int{1, 1000, 3 << 20} {
					e := s.chat(chatBody+strings.Repeat(" ", n), options...).checkError(t, 413)
					assert.Equal(t, "request_too_large", e.Code)
					checkWords(t, e)
					assert.Equal(t, 200, s.chat(chatBody, options...).StatusCode)
				}
			})
		}
	}
}

func TestRequest_ContentType(t *testing.T) {
	s := startServer(t, config{})
	check := func(name, value string, code string) { // code is "" if value is good
		for path, body := range modelBodies {
			if path == transcriptionsPath || path == imageEditsPath {
				continue // see TestFormBoundary and TestRoutes_Mistakes of package imageedit
			}
			t.Run(fmt.Sprintf("%s: %.40s/%s", name, value, path), func(t *testing.T) {
				r := s.do("POST", path, body, func(r *http.Request) {
					if r.Header.Set(name, value); value == "" {
						r.Header.Del(name)
					}
				})
				if code == "" {
					assert.Equal(t, 200, r.StatusCode, "%s", r.body)
					return
				}
				e := r.checkError(t, 415)
				assert.Equal(t, code, e.Code)
				assert.Less(t, len(e.Message), 300)
			})
		}
	}
	for _, media := range []string{"", "application/json", "application/json; charset=utf-8", "application/json;charset=UTF-8", "Application/JSON", " application/json ", "application/json; odata=verbose"} {
		check("Content-Type", media, "")
	}
	for _, media := range []string{"text/plain", "text/json", "application/jsonp", "application/vnd.api+json", "json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x",
		"application/json, text/plain", "*/*", "application/", "\"application/json\"", "application/json/x", "text/" + strings.Repeat("x", 10000)} {
		check("Content-Type", media, "unsupported_media_type")
	}
	check("Content-Encoding", "identity", "")
	for _, encoding := range []string{"br", "zstd", "identity, br", "gzip, zstd", "gzip, gzip, gzip, gzip, gzip", strings.Repeat("x", 1000)} {
		check("Content-Encoding", encoding, "unsupported_content_encoding")
	}
}

func TestRequest_MiddlewareMayBoundTheBody(t *testing.T) {
	s := startServer(t, config{wrap: func(h http.Handler) http.Handler { return http.MaxBytesHandler(h, 20) }})
	s.chat(chatBody, chunked).checkError(t, 413)
}

func TestRequest_BodyIsCut(t *testing.T) {
	checkNoLeaks(t)
	s := startServer(t, config{})
	c := s.send(strings.TrimSuffix(rawPost("HTTP/1.1", chatPath, chatBody), "}"))
	s.waitForRequest()
	c.Close()
	assert.Error(t, s.summary().Err)
	assert.Empty(t, s.usage.records())
}

// The Handler allocates memory for the bytes that arrive, and not for the declared
// length, which would not fit into memory here.
func TestRequest_DeclaredLengthIsTooLarge(t *testing.T) {
	s := startServer(t, config{opts: llmhttp.Options{Bounds: llmhttp.Bounds{MaxBody: 1 << 40}}})
	c := s.send("POST " + chatPath + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + testSecret + "\r\nContent-Length: 500000000000\r\n\r\n{")
	s.waitForRequest()
	c.Close()
	s.summary()
}

// An endless body is read only up to the limit.
func TestRequest_EndlessBody(t *testing.T) {
	checkNoLeaks(t)
	s := startServer(t, config{opts: llmhttp.Options{Bounds: llmhttp.Bounds{MaxBody: 1 << 20}}})
	c := s.send("POST " + chatPath + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + testSecret + "\r\nTransfer-Encoding: chunked\r\n\r\n")
	go func() {
		var err error
		for err == nil {
			_, err = io.WriteString(c, "400\r\n"+strings.Repeat(" ", 1024)+"\r\n")
		}
	}()
	var raw bytes.Buffer
	_, _ = io.Copy(&raw, c) // may end in a reset
	r := parseReply(t, "POST", raw.String())
	r.checkError(t, 413)
	assert.True(t, r.Close, "the connection ends")
}

// When a client leaves, its Backend is stopped at once, and the usage until then is
// recorded. In QuantumNous/new-api#4184, maximhq/bifrost#3164, BerriAI/litellm#30245,
// #36123, #37140 and #30630, Backends kept running and nothing was recorded.
func TestRequest_ClientLeaves(t *testing.T) {
	const text = "It was a dark and stormy night"
	type testCase struct{ name, path, body string }
	tests := []testCase{{"stream", chatPath, streamBody}}
	for _, op := range testOperations {
		tests = append(tests, testCase{string(op.name), op.path, op.body})
	}
	for _, http2 := range []bool{false, true} {
		for encoding, options := range map[string][]requestOption{"length": nil, "chunked": {chunked}} {
			for _, tt := range tests {
				t.Run(fmt.Sprintf("%s/http2=%t/%s", tt.name, http2, encoding), func(t *testing.T) {
					checkNoLeaks(t)
					reached := make(chan struct{})
					stopped := make(chan error, 1)
					wait := func(ctx context.Context) error {
						close(reached)
						<-ctx.Done()
						stopped <- context.Cause(ctx)
						return ctx.Err()
					}
					s := startServer(t, config{http2: http2, backend: &stubBackend{
						chat: func(ctx context.Context, _ *llm.ChatRequest) llm.ChatStream {
							return func(yield func(*llm.ChatChunk, error) bool) {
								_ = yield(llm.TextChunk(text), nil) && yield(nil, wait(ctx))
							}
						},
						call: wait,
					}})
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					left := make(chan error, 1)
					go func() {
						resp, err := s.open(ctx, "POST", tt.path, tt.body, options...)
						if err == nil {
							err = readReply(resp).err
						}
						left <- err
					}()
					select {
					case <-reached:
					case err := <-left: // the stub does not wait in the method that the path calls
						require.FailNow(t, "the reply ended before the Backend waited", "the client's error is %v", err)
					case <-time.After(testTimeout):
						require.FailNow(t, "waited too long for the Backend to be called")
					}
					cancel()
					require.ErrorIs(t, receive(t, "the client to leave", left), context.Canceled)
					require.ErrorIs(t, receive(t, "the Backend to be stopped", stopped), context.Canceled)

					e := s.summary()
					require.Error(t, e.Err)
					began := tt.name == "stream"
					assert.Equal(t, began || tt.path == speechPath, e.Streamed)
					if began {
						assert.Equal(t, 200, e.Status)
						assert.Equal(t, 1, e.Chunks)
					} else {
						assert.Equal(t, 499, e.Status)
					}
					r := s.record()
					assert.Equal(t, e.Record.ID, r.ID)
					assert.Equal(t, "acme", r.Account)
					assert.True(t, r.Estimated)
					assert.Equal(t, !slices.Contains([]string{imagesPath, imageEditsPath, speechPath}, tt.path), r.Units.PromptTokens > 0)
					assert.NotZero(t, r.Units)
					if tt.path == chatPath {
						assert.Positive(t, r.Units.CompletionTokens)
					}
					assert.NotContains(t, s.log.String(), text)
				})
			}
		}
	}
}

// If a Backend ignores its context, yield returns false once the client has left.
func TestRequest_ClientLeavesABackendThatIgnoresItsContext(t *testing.T) {
	checkNoLeaks(t)
	stopped := make(chan struct{})
	s := startServer(t, config{backend: streamBackend(func(_ context.Context, yield yieldFunc) {
		for yield(llm.TextChunk("more "), nil) {
			time.Sleep(time.Millisecond)
		}
		close(stopped)
	})})
	ctx, cancel := context.WithCancel(t.Context())
	resp, err := s.open(ctx, "POST", chatPath, streamBody)
	require.NoError(t, err)
	readUntil(t, bufio.NewReader(resp.Body), "more")
	cancel()
	resp.Body.Close()
	receive(t, "yield to return false", stopped)
	s.record()
}

// A client that leaves while it sends its body causes no logged error and no call of the
// Limiter.
func TestRequest_ClientLeavesWhileItSends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := new(stubLimiter)
		s := startPipeServer(t, config{keys: limitedKeys(llmhttp.Limits{Tokens: llmhttp.PerMinute(1000)}), opts: llmhttp.Options{Limiter: l}})
		c := s.send(strings.TrimSuffix(rawPost("HTTP/1.1", chatPath, chatBody), "}"))
		synctest.Wait() // the Handler waits for the rest
		c.Close()
		s.summary()
		taken, _ := l.calls()
		assert.Empty(t, taken)
		assert.NotContains(t, s.log.String(), `"ERROR"`)
	})
}

// A second request on a connection is served correctly, whatever the result of the first.
// A request that is refused before its body was read closes the connection, so that the
// reply need not wait for the body.
func TestRequest_ConnectionIsUsedAgain(t *testing.T) {
	s := startServer(t, config{})
	const second = "GET /v1/models/demo-chat HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer " + testSecret + "\r\n\r\n"
	for name, test := range map[string]struct {
		first   string
		replies int
	}{
		"whole":       {rawPost("HTTP/1.1", chatPath, chatBody), 2},
		"stream":      {rawPost("HTTP/1.1", chatPath, streamBody), 2},
		"bad request": {rawPost("HTTP/1.1", chatPath, "{"), 2},
		"no key, GET": {"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n", 2},
		"unknown URL": {rawPost("HTTP/1.1", "/v1/nothing", chatBody), 1},
		"no key":      {"POST " + chatPath + " HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello", 1},
	} {
		t.Run(name, func(t *testing.T) {
			raw := s.raw(test.first + second)
			assert.Equal(t, test.replies, strings.Count(raw, "HTTP/1.1 "), "%s", raw)
			if test.replies == 1 {
				assert.Contains(t, raw, "Connection: close")
				return
			}
			assert.True(t, strings.HasSuffix(raw, `{"id":"demo-chat","object":"model","created":1686935002,"owned_by":"acme"}`), "%s", raw)
		})
	}
}

// Clients of HTTP/1.0 get whole replies with a length, and streams that end with the
// connection.
func TestRequest_HTTP10(t *testing.T) {
	s := startServer(t, config{})
	t.Run("whole", func(t *testing.T) {
		r := parseReply(t, "POST", s.raw(rawPost("HTTP/1.0", chatPath, chatBody)))
		require.NoError(t, r.err)
		assert.Equal(t, 200, r.StatusCode)
		assert.Empty(t, r.TransferEncoding)
		assert.Contains(t, r.body, `"content":"Hello!"`)
	})
	t.Run("stream", func(t *testing.T) {
		raw := s.raw(rawPost("HTTP/1.0", chatPath, streamBody))
		assert.NotContains(t, raw, "Transfer-Encoding")
		parseReply(t, "POST", raw).checkText(t, "Hello!")
	})
	t.Run("error", func(t *testing.T) {
		parseReply(t, "POST", s.raw(rawPost("HTTP/1.0", "/v1/nothing", chatBody))).checkError(t, 404)
		parseReply(t, "GET", s.raw("GET / HTTP/1.0\r\n\r\n")).checkError(t, 404)
	})
	t.Run("stream that fails", func(t *testing.T) {
		s := startServer(t, config{backend: failAfter(errCause, "one")})
		events := parseReply(t, "POST", s.raw(rawPost("HTTP/1.0", chatPath, streamBody))).events(t)
		assert.Equal(t, internalMessage, parseError(t, events[len(events)-1]).Message)
	})
}

// Every Accept header is accepted, because SDKs send application/json for streams too.
func TestRequest_EveryAcceptHeaderIsAccepted(t *testing.T) {
	s := startServer(t, config{})
	for _, accept := range []string{"application/json", "text/event-stream", "*/*", "text/html", "nonsense"} {
		for mode, body := range chatModes {
			assert.Equal(t, 200, s.chat(body, withHeader("Accept", accept)).StatusCode, "%s, %s", accept, mode)
		}
	}
}

// The memory in use does not grow with the number of requests, whatever their results:
// BerriAI/litellm#12685, #27954, #38193, router-for-me/CLIProxyAPI#3048.
func TestRequest_LeaksNoMemory(t *testing.T) {
	backend := llmhttp.BackendFunc(func(_ context.Context, req *llm.ChatRequest) llm.ChatStream {
		return func(yield func(*llm.ChatChunk, error) bool) {
			if !yield(llm.TextChunk(strings.Repeat("x", 4<<10)), nil) {
				return
			}
			switch req.Model {
			case "panic":
				panic("boom")
			case "error":
				yield(nil, errCause)
			}
		}
	})
	keys := llmhttp.KeyStoreFunc(func(_ context.Context, secret string) (*llmhttp.Key, error) {
		return &llmhttp.Key{ID: secret, Limits: llmhttp.Limits{Concurrent: 5}}, nil
	})
	h := llmhttp.NewHandler(backend, keys, &llmhttp.Options{Logger: slog.New(slog.DiscardHandler)})
	text := strings.Repeat("y", 8<<10)
	send := func(from, to int) {
		for i := from; i < to; i++ {
			model := []string{"reply", "reply", "error", "panic"}[i%4]
			stream := []string{"true", "false", `"a bad request"`}[i%3]
			r := newChatRequest(fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":%q}],"stream":%s}`, model, text, stream))
			r.Header.Set("Authorization", fmt.Sprintf("Bearer key-%d", i))
			func() {
				defer func() { _ = recover() }() // of http.ErrAbortHandler
				h.ServeHTTP(httptest.NewRecorder(), r)
			}()
		}
	}
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	send(0, 300)
	before := heap()
	send(300, 1000)
	assert.Less(t, heap()-before, int64(2<<20))
	require.NoError(t, h.Shutdown(t.Context()))
}

func (panickingHandler) Enabled(context.Context, slog.Level) bool { panic("no logs") }

func TestRequest_BodyThatStallsIsRefused(t *testing.T) {
	for _, op := range testOperations {
		t.Run(string(op.name), func(t *testing.T) {
			s := startServer(t, config{opts: llmhttp.Options{Bounds: llmhttp.Bounds{ReadTimeout: 20 * time.Millisecond}}})
			body, contentType := requestBody(t, op.path, op.body)
			conn := s.send(fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s",
				op.path, testSecret, contentType, len(body), body[:len(body)-2]))
			raw := readAll(t, conn)
			r := parseReply(t, "POST", raw)
			assert.Equal(t, "request_timeout", r.checkError(t, 408).Code)
			assert.Contains(t, raw, "Connection: close")
			assert.Empty(t, s.usage.records())
		})
	}
}

// Options near the largest number do not overflow.
func TestRequest_HugeOptions(t *testing.T) {
	const most = math.MaxInt64
	s := startServer(t, config{opts: llmhttp.Options{Bounds: llmhttp.Bounds{MaxBody: most, MaxReply: math.MaxInt, Timeout: most, KeepAlive: most, ReadTimeout: most, WriteTimeout: most}, Estimates: llmhttp.TokenEstimates{ReserveCompletion: math.MaxInt}}})
	for _, options := range [][]requestOption{nil, {chunked}} {
		assert.Equal(t, 200, s.chat(chatBody, options...).StatusCode)
		s.chat(streamBody, options...).checkText(t, "Hello!")
	}
	s = startServer(t, config{backend: failingBackend(&llm.Error{Status: 503, RetryAfter: most})})
	r := s.chat(chatBody)
	r.checkError(t, 503)
	assert.Equal(t, "31622400", r.Header.Get("Retry-After"))
	assert.Equal(t, "31622400000", r.Header.Get("Retry-After-Ms"))
}

// A client that closes only its half of the connection before the body is complete reads
// the reply, which has the ID of the request.
func TestRequest_HalfClosedBody(t *testing.T) {
	s := startServer(t, config{})
	c := s.send("POST " + chatPath + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + testSecret + "\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
	require.NoError(t, c.(*net.TCPConn).CloseWrite())
	r := parseReply(t, "POST", readAll(t, c))
	assert.Equal(t, 499, r.StatusCode)
	assert.Equal(t, s.summary().Record.ID, r.Header.Get("X-Request-Id"))
	assert.NotEmpty(t, r.Header.Get("Openai-Processing-Ms"))
}
