package llmhttp_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/audio"
	"github.com/llmhttp/llmhttp/imageedit"
	"github.com/llmhttp/llmhttp/llm"
)

// A wireFormat describes a protocol, or another format of a reply that comes in chunks, to these
// tests. The Handler treats faults alike for all of them, so each fault is tested with every one.
type wireFormat struct {
	name  string // as in a RequestSummary
	scope llmhttp.Scope
	path  string
	body  string // without its last brace

	start   string // begins a stream that may start before the first chunk
	end     string // is in every complete stream and in no other
	failure string // begins the last event of a stream that failed

	overloaded int // the status of a server that is shutting down

	failsCleanly bool // a stream that failed ends cleanly; else it is cut
	isBase64     bool // of the pieces of the reply
}

var wireFormats = []wireFormat{
	{"chat", llmhttp.ScopeChat, chatPath, strings.TrimSuffix(chatBody, "}"), "", "data: [DONE]", `data: {"error":{"message":`, 503, false, false},
	{"messages", llmhttp.ScopeChat, "/v1/messages", `{"model":"demo-chat","max_tokens":100,"messages":[{"role":"user","content":"Hi"}]`,
		"event: message_start\n", "event: message_stop", "event: error\ndata: {\"type\":\"error\",\"error\":{", 529, true, false},
	{"responses", llmhttp.ScopeChat, "/v1/responses", `{"model":"demo-chat","input":"Hi"`,
		"event: response.created\n", "event: response.completed", "event: response.failed\ndata: {", 503, true, false},
	{"chat", audio.ScopeSpeech, speechPath, speechOf("wav"), "", "", "", 503, false, false},
	{"chat", audio.ScopeSpeech, speechPath, speechOf("wav") + `,"stream_format":"sse"`, "", `data: {"type":"speech.audio.done"`, `data: {"error":{"message":`, 503, false, true},
	{"chat", llmhttp.ScopeImages, imagesPath, `{"model":"demo-chat","prompt":"Hi","stream":true`, "", "event: image_generation.completed", `data: {"error":{"message":`, 503, false, true},
	{"chat", llmhttp.ScopeImages, imageEditsPath, ` {"images":[{"image_url":"data:image/png;base64,eA=="}],"model":"demo-chat","prompt":"Hi","stream":true`, "", "event: image_edit.completed", `data: {"error":{"message":`, 503, false, true},
}

// speechOf returns the body of a request for speech without its last brace.
func speechOf(format string) string {
	return `{"model":"demo-chat","input":"Hi","voice":"alloy","response_format":"` + format + `"`
}

// A speakingBackend speaks what its Backend says, and shows it as images that are not complete.
type speakingBackend struct{ llmhttp.Backend }

func (speakingBackend) GenerateImages(context.Context, *llm.ImageRequest) (*llm.ImageResponse, error) {
	panic("the client has asked for a stream")
}

func (b speakingBackend) EditImages(ctx context.Context, r *imageedit.Request) (*llm.ImageResponse, error) {
	return b.GenerateImages(ctx, &r.ImageRequest)
}

func (b speakingBackend) StreamImageEdits(ctx context.Context, r *imageedit.Request) llm.ImageStream {
	return b.StreamImages(ctx, &r.ImageRequest)
}

func (b speakingBackend) StreamImages(ctx context.Context, r *llm.ImageRequest) llm.ImageStream {
	return func(yield func(*llm.ImageChunk, error) bool) {
		goesOn := true
		b.Chat(ctx, &llm.ChatRequest{Model: r.Model})(func(c *llm.ChatChunk, err error) bool {
			if c == nil {
				goesOn = false
				return yield(nil, err)
			}
			goesOn = yield(&llm.ImageChunk{Image: &llm.Image{Data: []byte(c.Choices[0].Delta.Content)}, Partial: true}, err)
			return goesOn
		})
		if goesOn && ctx.Err() == nil {
			yield(&llm.ImageChunk{Image: &llm.Image{Data: []byte("complete")}}, nil)
		}
	}
}

func (b speakingBackend) Speak(ctx context.Context, r *audio.SpeechRequest) audio.SpeechStream {
	return func(yield func(*audio.SpeechChunk, error) bool) {
		b.Chat(ctx, &llm.ChatRequest{Model: r.Model})(func(c *llm.ChatChunk, err error) bool {
			if c == nil {
				return yield(nil, err)
			}
			return yield(&audio.SpeechChunk{Audio: []byte(c.Choices[0].Delta.Content)}, err)
		})
	}
}

func (f wireFormat) whole() string { return f.body + "}" }
func (f wireFormat) stream() string {
	if f.scope == llmhttp.ScopeImages { // it is always a stream
		return f.whole()
	}
	return f.body + `,"stream":true}`
}

// String returns a name for tests.
func (f wireFormat) String() string { return f.name + " " + f.path[1:] + " " + f.failure }

// piece returns what a piece of the reply is in a stream.
func (f wireFormat) piece(s string) string {
	if f.isBase64 {
		return base64.StdEncoding.EncodeToString([]byte(s))
	}
	return s
}

// eachFormat runs a test with a server of each protocol, on the clock of synctest.
func eachFormat(t *testing.T, c func() config, test func(t *testing.T, f wireFormat, s *testServer)) {
	for _, f := range wireFormats {
		t.Run(f.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, f, startPipeServer(t, withProtocols(c()))) })
		})
	}
}

// checkFailed checks that a stream ends with one error event, and then cleanly or with a cut
// connection.
func (f wireFormat) checkFailed(t *testing.T, r reply, message string) {
	t.Helper()
	assert.Equal(t, 200, r.StatusCode)
	if f.failsCleanly {
		require.NoError(t, r.err, "the stream must end cleanly")
	} else {
		require.Error(t, r.err, "the connection must be cut")
	}
	assert.NotContains(t, r.body, "secret")
	if f.failure == "" {
		assert.NotContains(t, r.body, "error")
		return
	}
	assert.Equal(t, 1, strings.Count(r.body, f.failure), r.body)
	last := r.body[strings.LastIndex(r.body, f.failure):]
	assert.Contains(t, last, message)
	assert.Equal(t, len(last)-2, strings.Index(last, "\n\n"), "the event is complete, and the last: %q", last)
	assert.NotContains(t, r.body, f.end)
}

// checkSummary checks the RequestSummary of the only request, and returns it.
func (f wireFormat) checkSummary(t *testing.T, s *testServer, status int) *llmhttp.RequestSummary {
	t.Helper()
	end := s.summary()
	assert.Equal(t, f.name, end.Record.Protocol)
	assert.Equal(t, status, end.Status)
	assert.Equal(t, f.scope, end.Scope)
	assert.Equal(t, "demo-chat", end.Record.Model)
	assert.Equal(t, "acme", end.Record.Account)
	return end
}

func TestFaults_BeforeTheReply(t *testing.T) {
	for name, test := range map[string]struct {
		backend llmhttp.Backend
		status  int
		message string
	}{
		"an Error":       {failingBackend(llm.Errorf(409, "", "It is taken.")), 409, "It is taken."},
		"another error":  {failingBackend(errors.New("a secret")), 500, internalMessage},
		"a panic":        {streamBackend(func(context.Context, yieldFunc) { panic("a secret") }), 500, internalMessage},
		"silence":        {streamBackend(func(ctx context.Context, _ yieldFunc) { <-ctx.Done() }), 504, timeoutMessage},
		"an unsupported": {failingBackend(fmt.Errorf("a secret: %w", errors.ErrUnsupported)), 404, "Invalid URL"},
	} {
		t.Run(name, func(t *testing.T) {
			newConfig := func() config {
				return config{backend: test.backend, opts: llmhttp.Options{Bounds: llmhttp.Bounds{KeepAlive: -1}}}
			}
			for _, streamed := range []bool{false, true} {
				eachFormat(t, newConfig, func(t *testing.T, f wireFormat, s *testServer) {
					body := f.whole()
					if streamed {
						body = f.stream()
					}
					r := s.do("POST", f.path, body)
					require.NoError(t, r.err)
					assert.Equal(t, test.status, r.StatusCode)
					assert.Equal(t, "application/json", r.Header.Get("Content-Type"))
					assert.Contains(t, r.body, test.message)
					assert.NotContains(t, r.body, "secret")
					end := f.checkSummary(t, s, test.status)
					assert.Error(t, end.Err)
				})
			}
		})
	}
}

func TestFaults_InMidStream(t *testing.T) {
	after := func(fail func(ctx context.Context, yield yieldFunc)) llmhttp.Backend {
		return streamBackend(func(ctx context.Context, yield yieldFunc) {
			if yield(llm.TextChunk("Hel"), nil) {
				fail(ctx, yield)
			}
		})
	}
	for name, test := range map[string]struct {
		backend llmhttp.Backend
		message string
	}{
		"an Error":      {after(func(_ context.Context, yield yieldFunc) { yield(nil, llm.Errorf(409, "", "It is taken.")) }), "It is taken."},
		"another error": {after(func(_ context.Context, yield yieldFunc) { yield(nil, errors.New("a secret")) }), internalMessage},
		"a panic":       {after(func(context.Context, yieldFunc) { panic("a secret") }), internalMessage},
		"silence":       {after(func(ctx context.Context, _ yieldFunc) { <-ctx.Done() }), timeoutMessage},
	} {
		t.Run(name, func(t *testing.T) {
			eachFormat(t, func() config { return config{backend: test.backend} }, func(t *testing.T, f wireFormat, s *testServer) {
				r := s.do("POST", f.path, f.stream())
				assert.Contains(t, r.body, f.piece("Hel"))
				f.checkFailed(t, r, test.message)
				end := f.checkSummary(t, s, 200)
				assert.Error(t, end.Err)
				assert.True(t, end.Streamed)
				assert.Equal(t, 1, end.Chunks)
				assert.Len(t, s.usage.records(), 1)
			})
		})
	}
}

// Protocols whose clients expect a first event start the stream before the Backend's
// first chunk.
func TestFaults_StartOfASilentStream(t *testing.T) {
	backend := streamBackend(func(_ context.Context, yield yieldFunc) {
		time.Sleep(10 * time.Second)
		yield(llm.TextChunk("Hello"), nil)
	})
	for _, test := range []struct{ keepAlive, start time.Duration }{
		{0, time.Second}, {100 * time.Millisecond, 100 * time.Millisecond}, {-1, 10 * time.Second},
	} {
		newConfig := func() config {
			return config{backend: backend, opts: llmhttp.Options{Bounds: llmhttp.Bounds{KeepAlive: test.keepAlive}}}
		}
		eachFormat(t, newConfig, func(t *testing.T, f wireFormat, s *testServer) {
			if f.start == "" {
				return
			}
			begin := time.Now()
			resp, err := s.open(t.Context(), "POST", f.path, f.stream())
			require.NoError(t, err)
			defer resp.Body.Close()
			assert.Equal(t, test.start, time.Since(begin))
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			assert.True(t, strings.HasPrefix(string(body), f.start), "%s", body)
			assert.Equal(t, 1, strings.Count(string(body), f.start))
			assert.Contains(t, string(body), f.end)
		})
	}
}

// An error of the Backend sets the HTTP status only if the stream has not started.
func TestFaults_ErrorOfASlowBackend(t *testing.T) {
	for _, delay := range []time.Duration{900 * time.Millisecond, 1100 * time.Millisecond} {
		backend := streamBackend(func(_ context.Context, yield yieldFunc) {
			time.Sleep(delay)
			yield(nil, llm.Errorf(409, "", "It is taken."))
		})
		eachFormat(t, func() config { return config{backend: backend} }, func(t *testing.T, f wireFormat, s *testServer) {
			r := s.do("POST", f.path, f.stream())
			if f.start == "" || delay < time.Second {
				assert.Equal(t, 409, r.StatusCode)
				assert.NoError(t, r.err)
				assert.Contains(t, r.body, "It is taken.")
				return
			}
			assert.True(t, strings.HasPrefix(r.body, f.start), r.body)
			f.checkFailed(t, r, "It is taken.")
		})
	}
}

func TestFaults_KeepAlive(t *testing.T) {
	backend := streamBackend(func(_ context.Context, yield yieldFunc) {
		time.Sleep(32 * time.Second)
		if yield(llm.TextChunk("Hel"), nil) {
			time.Sleep(32 * time.Second)
			yield(llm.TextChunk("lo"), nil)
		}
	})
	eachFormat(t, func() config { return config{backend: backend} }, func(t *testing.T, f wireFormat, s *testServer) {
		r := s.do("POST", f.path, f.stream())
		require.NoError(t, r.err)
		keepAlives := 4
		if f.failure == "" { // nothing can be written between the bytes of audio
			keepAlives = 0
		}
		assert.Equal(t, keepAlives, strings.Count(r.body, ": keep-alive\n"))
		assert.Contains(t, strings.ReplaceAll(r.body, ": keep-alive\n", ""), f.piece("Hel"))
		assert.Contains(t, r.body, f.end)
		f.checkSummary(t, s, 200)
	})
}

func TestFaults_ClientLeaves(t *testing.T) {
	newConfig := func() config {
		return config{keys: limitedKeys(llmhttp.Limits{Concurrent: 1}), backend: streamBackend(func(ctx context.Context, yield yieldFunc) {
			if yield(llm.TextChunk("Hello"), nil) {
				<-ctx.Done()
			}
		})}
	}
	eachFormat(t, newConfig, func(t *testing.T, f wireFormat, s *testServer) {
		ctx, leave := context.WithCancel(t.Context())
		resp, err := s.open(ctx, "POST", f.path, f.stream())
		require.NoError(t, err)
		assert.Equal(t, 429, s.do("POST", f.path, f.whole()).StatusCode, "one at a time")
		s.waitForSummaries(1)
		leave()
		resp.Body.Close()
		s.waitForSummaries(2)
		gone := s.summaries()[1]
		assert.Equal(t, f.name, gone.Record.Protocol)
		assert.ErrorIs(t, gone.Err, context.Canceled)
		require.Len(t, s.usage.records(), 1, "what was generated is recorded")
		assert.True(t, s.usage.records()[0].Estimated)
		assert.Positive(t, s.usage.records()[0].Units.CompletionTokens)
		assert.Equal(t, f.scope == audio.ScopeSpeech, s.usage.records()[0].Units.Characters == 2)
	})
}

func TestFaults_Shutdown(t *testing.T) {
	backend := streamBackend(func(ctx context.Context, yield yieldFunc) {
		if yield(llm.TextChunk("Hel"), nil) {
			<-ctx.Done()
		}
	})
	eachFormat(t, func() config { return config{backend: backend} }, func(t *testing.T, f wireFormat, s *testServer) {
		stream := s.begin("POST", f.path, f.stream())
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(t, s.handler.Shutdown(ctx), context.DeadlineExceeded)
		f.checkFailed(t, <-stream, shutdownMessage)
		f.checkSummary(t, s, 200)
		r := s.do("POST", f.path, f.whole())
		assert.Equal(t, f.overloaded, r.StatusCode)
		assert.Equal(t, "1", r.Header.Get("Retry-After"))
	})
}

func TestFaults_Limits(t *testing.T) {
	newConfig := func() config {
		return config{backend: textBackend("Hello"), keys: limitedKeys(llmhttp.Limits{Requests: llmhttp.PerMinute(1)})}
	}
	eachFormat(t, newConfig, func(t *testing.T, f wireFormat, s *testServer) {
		assert.Equal(t, 200, s.do("POST", f.path, f.whole()).StatusCode)
		r := s.do("POST", f.path, f.stream())
		assert.Equal(t, 429, r.StatusCode)
		assert.Equal(t, "60", r.Header.Get("Retry-After"))
		assert.Equal(t, "true", r.Header.Get("X-Should-Retry"))
		assert.Len(t, s.usage.records(), 1)
		time.Sleep(time.Minute)
		r = s.do("POST", f.path, f.stream())
		assert.Equal(t, 200, r.StatusCode)
		assert.Contains(t, r.body, f.end)
		assert.Len(t, s.usage.records(), 2)
		assert.Equal(t, f.name, s.usage.records()[0].Protocol)
	})
}

// A body that is too large or not JSON gets an error in the format of the protocol.
func TestFaults_Bodies(t *testing.T) {
	newConfig := func() config { return config{opts: llmhttp.Options{Bounds: llmhttp.Bounds{MaxBody: 1000}}} }
	eachFormat(t, newConfig, func(t *testing.T, f wireFormat, s *testServer) {
		for body, status := range map[string]int{
			`{`: 400, `[]`: 400, `{"model":"m","model":"m"}`: 400, "\xff": 400, f.body + `,"x":"` + strings.Repeat("x", 1000) + `"}`: 413,
		} {
			r := s.do("POST", f.path, body)
			assert.Equal(t, status, r.StatusCode, body)
			assert.Equal(t, "application/json", r.Header.Get("Content-Type"))
		}
		r := s.do("POST", f.path, f.whole(), func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") })
		assert.Equal(t, 415, r.StatusCode)
		r = s.do("POST", f.path, f.whole(), withoutKey)
		assert.Equal(t, 401, r.StatusCode)
		assert.Empty(t, s.usage.records())
	})
}
