package llmhttp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
)

const messageInternal = "The server had an error while processing your request. Sorry about that!"

// A client that leaves stops its Backend at once, and pays for what was made.
// QuantumNous/new-api#4184, maximhq/bifrost#3164, BerriAI/litellm#30245,
// #36123, #37140, #30630: a disconnect kept generating, only on some routes,
// and was not billed.
func TestClientLeaves(t *testing.T) {
	type work struct {
		name, path, body string
		streamed         bool
	}
	works := []work{
		{"whole", "/v1/chat/completions", fxWhole, false},
		{"stream", "/v1/chat/completions", fxStream, true},
		{"embeddings", "/v1/embeddings", `{"model":"demo-embed","input":"Hello, how are you?"}`, false},
		{"images", "/v1/images/generations", `{"model":"demo-image","prompt":"a cat"}`, false},
	}
	for _, http2 := range []bool{false, true} {
		for _, chunked := range []bool{false, true} {
			for _, w := range works {
				t.Run(fmt.Sprintf("%s/http2=%t/chunked=%t", w.name, http2, chunked), func(t *testing.T) {
					fxNoLeaks(t)
					working := make(chan struct{})
					stopped := make(chan error, 1)
					wait := func(ctx context.Context) error {
						close(working)
						select {
						case <-ctx.Done():
							stopped <- context.Cause(ctx)
							return ctx.Err()
						case <-time.After(fxPatience):
							stopped <- nil
							return nil
						}
					}
					b := &fxBackend{
						chat: func(ctx context.Context, _ *llmhttp.ChatRequest) llmhttp.ChatStream {
							return func(yield func(*llmhttp.ChatChunk, error) bool) {
								if !yield(llmhttp.TextChunk("It was a dark and stormy night"), nil) {
									return
								}
								if err := wait(ctx); err != nil {
									yield(nil, err)
								}
							}
						},
						embed: func(ctx context.Context, _ *llmhttp.EmbeddingRequest) (*llmhttp.EmbeddingResponse, error) {
							return nil, wait(ctx)
						},
						images: func(ctx context.Context, _ *llmhttp.ImageRequest) (*llmhttp.ImageResponse, error) {
							return nil, wait(ctx)
						},
					}
					s := fxStart(t, fxConfig{backend: b, http2: http2})
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					var mods []fxMod
					if chunked {
						mods = append(mods, fxChunked)
					}
					left := make(chan error, 1)
					go func() {
						resp, err := s.open(ctx, "POST", w.path, w.body, mods...)
						if err == nil {
							_, err = io.ReadAll(resp.Body)
							resp.Body.Close()
						}
						left <- err
					}()
					fxReceive(t, "the Backend", working)
					cancel()
					require.ErrorIs(t, fxReceive(t, "the client", left), context.Canceled)
					require.ErrorIs(t, fxReceive(t, "the Backend to be stopped", stopped), context.Canceled)

					e := s.watch.only(t)
					require.Error(t, e.Err)
					assert.Equal(t, w.streamed, e.Streamed)
					if w.streamed {
						assert.Equal(t, 200, e.Status)
						assert.Equal(t, 1, e.Chunks)
					} else {
						assert.Equal(t, 499, e.Status)
					}
					r := s.usage.only(t)
					assert.Equal(t, e.ID, r.ID)
					assert.Equal(t, "acme", r.Account)
					if w.name != "images" {
						assert.True(t, r.Estimated)
						assert.Positive(t, r.Usage.PromptTokens)
					}
					if strings.HasPrefix(w.path, "/v1/chat") {
						assert.Positive(t, r.Usage.CompletionTokens)
					}
					assert.NotContains(t, s.log.String(), "stormy")
				})
			}
		}
	}
}

// The record of a client that left is written although its context is done.
func TestClientLeavesBeforeRecording(t *testing.T) {
	fxNoLeaks(t)
	recording := make(chan struct{})
	var ctxErr atomic.Value
	usage := &fxUsage{before: func(ctx context.Context) error {
		close(recording)
		time.Sleep(20 * time.Millisecond)
		if err := ctx.Err(); err != nil {
			ctxErr.Store(err)
		}
		deadline, ok := ctx.Deadline()
		if !ok || time.Until(deadline) <= 0 {
			ctxErr.Store(errors.New("no deadline of its own"))
		}
		return nil
	}}
	s := fxStart(t, fxConfig{usage: usage, backend: fxChat(func(ctx context.Context, yield func(*llmhttp.ChatChunk, error) bool) {
		yield(llmhttp.TextChunk("one"), nil)
		<-ctx.Done()
	})})
	ctx, cancel := context.WithCancel(t.Context())
	resp, err := s.open(ctx, "POST", "/v1/chat/completions", fxStream)
	require.NoError(t, err)
	cancel()
	resp.Body.Close()
	fxReceive(t, "Record", recording)
	s.usage.only(t)
	assert.Nil(t, ctxErr.Load())
}

// A Backend that ignores its context does not keep the client waiting, and is
// only stopped where it yields.
func TestClientLeavesDeafBackend(t *testing.T) {
	fxNoLeaks(t)
	refused := make(chan int, 1)
	s := fxStart(t, fxConfig{backend: fxChat(func(_ context.Context, yield func(*llmhttp.ChatChunk, error) bool) {
		for n := 0; ; n++ {
			if !yield(llmhttp.TextChunk("more "), nil) {
				refused <- n
				return
			}
			time.Sleep(time.Millisecond)
		}
	})})
	ctx, cancel := context.WithCancel(t.Context())
	resp, err := s.open(ctx, "POST", "/v1/chat/completions", fxStream)
	require.NoError(t, err)
	_, err = bufio.NewReader(resp.Body).ReadString('\n')
	require.NoError(t, err)
	cancel()
	resp.Body.Close()
	fxReceive(t, "yield to return false", refused)
	s.usage.only(t)
}

type panicky struct{}

func (panicky) Error() string { panic("Error panics") }

// Whatever a Backend does wrong is the server's error, and only this request's.
// QuantumNous/new-api#2473: a panic ended the process. Portkey-AI/gateway#1797:
// a stream that was cut ended like a complete one.
func TestBackendFails(t *testing.T) {
	text := llmhttp.TextChunk
	boom := errors.New("marker-of-the-cause")
	type yield = func(*llmhttp.ChatChunk, error) bool
	tests := []struct {
		name    string
		backend llmhttp.Backend
		status  int    // before the first chunk
		message string // "" for the internal one
		before  string // what came before, if it fails in mid-stream
		logged  string
	}{
		{name: "panic/string", status: 500, logged: "marker-of-the-cause",
			backend: fxChat(func(_ context.Context, _ yield) { panic("marker-of-the-cause") })},
		{name: "panic/error", status: 500, logged: "marker-of-the-cause",
			backend: fxChat(func(_ context.Context, _ yield) { panic(boom) })},
		{name: "panic/nil", status: 500, logged: "panic",
			backend: fxChat(func(_ context.Context, _ yield) { panic(nil) })},
		{name: "panic/abort", status: 500, logged: "abort Handler",
			backend: fxChat(func(_ context.Context, _ yield) { panic(http.ErrAbortHandler) })},
		{name: "panic/runtime", status: 500, logged: "index out of range",
			backend: fxChat(func(_ context.Context, _ yield) { var s []int; _ = s[len(s)] })},
		{name: "panic/*Error", status: 500,
			backend: fxChat(func(_ context.Context, _ yield) {
				panic(&llmhttp.Error{Status: 500, Err: boom, Message: messageInternal})
			}), logged: "marker-of-the-cause"},
		{name: "panic in Chat", status: 500, logged: "marker-of-the-cause",
			backend: llmhttp.BackendFunc(func(context.Context, *llmhttp.ChatRequest) llmhttp.ChatStream { panic("marker-of-the-cause") })},
		{name: "nil stream", status: 500, logged: "nil pointer",
			backend: llmhttp.BackendFunc(func(context.Context, *llmhttp.ChatRequest) llmhttp.ChatStream { return nil })},
		{name: "error", status: 500, logged: "marker-of-the-cause",
			backend: llmhttp.BackendFunc(func(context.Context, *llmhttp.ChatRequest) llmhttp.ChatStream { return llmhttp.Fail(boom) })},
		{name: "error/typed nil", status: 500,
			backend: llmhttp.BackendFunc(func(context.Context, *llmhttp.ChatRequest) llmhttp.ChatStream {
				var e *llmhttp.Error
				return llmhttp.Fail(e)
			})},
		{name: "error/whose text panics", status: 500,
			backend: llmhttp.BackendFunc(func(context.Context, *llmhttp.ChatRequest) llmhttp.ChatStream { return llmhttp.Fail(panicky{}) })},
		{name: "error/told", status: 409, message: "Already there.",
			backend: llmhttp.BackendFunc(func(context.Context, *llmhttp.ChatRequest) llmhttp.ChatStream {
				return llmhttp.Fail(fmt.Errorf("wrapped: %w", &llmhttp.Error{Status: 409, Message: "Already there.", Err: boom}))
			})},
		{name: "error/deadline", status: 504, message: "The model did not answer in time.", logged: "marker-of-the-cause",
			backend: llmhttp.BackendFunc(func(context.Context, *llmhttp.ChatRequest) llmhttp.ChatStream {
				return llmhttp.Fail(fmt.Errorf("marker-of-the-cause: %w", context.DeadlineExceeded))
			})},
		{name: "error/after a nil chunk", status: 500, logged: "marker-of-the-cause",
			backend: fxChat(func(_ context.Context, y yield) { y(nil, boom) })},
		{name: "mid/panic", before: "one two", status: 500, logged: "marker-of-the-cause",
			backend: fxChat(func(_ context.Context, y yield) {
				y(text("one "), nil)
				y(text("two"), nil)
				panic("marker-of-the-cause")
			})},
		{name: "mid/error", before: "one two", status: 500, logged: "marker-of-the-cause",
			backend: fxChat(func(_ context.Context, y yield) { _ = y(text("one "), nil) && y(text("two"), nil) && y(nil, boom) })},
		{name: "mid/told", before: "one", status: 503, message: "Overloaded.",
			backend: fxChat(func(_ context.Context, y yield) {
				_ = y(text("one"), nil) && y(nil, &llmhttp.Error{Status: 503, Message: "Overloaded."})
			})},
		{name: "mid/typed nil", before: "one", status: 500,
			backend: fxChat(func(_ context.Context, y yield) { var e *llmhttp.Error; _ = y(text("one"), nil) && y(nil, e) })},
		{name: "mid/whose text panics", before: "one", status: 500,
			backend: fxChat(func(_ context.Context, y yield) { _ = y(text("one"), nil) && y(nil, panicky{}) })},
	}
	for _, tt := range tests {
		message := tt.message
		if message == "" {
			message = messageInternal
		}
		for _, http2 := range []bool{false, true} {
			for _, streamed := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/stream=%t/http2=%t", tt.name, streamed, http2), func(t *testing.T) {
					fxNoLeaks(t)
					s := fxStart(t, fxConfig{backend: tt.backend, http2: http2, keys: fxLimited(llmhttp.Limits{Concurrent: 1})})
					body := fxWhole
					if streamed {
						body = fxStream
					}
					r := s.chat(body)
					if streamed && tt.before != "" {
						assert.Equal(t, 200, r.StatusCode)
						require.Error(t, r.err, "the connection must be cut")
						if !http2 {
							require.ErrorIs(t, r.err, io.ErrUnexpectedEOF)
						}
						frames := fxFrames(t, r.body)
						require.NotEmpty(t, frames)
						last := frames[len(frames)-1]
						e := fxError(t, last)
						assert.Equal(t, message, e.Message)
						assert.Equal(t, "server_error", e.Type)
						assert.NotContains(t, r.body, "[DONE]")
						said, reason := fxText(t, frames)
						assert.Equal(t, tt.before, said)
						assert.Empty(t, reason, "a finish_reason was invented")
					} else {
						e := r.checkError(t, tt.status)
						assert.Equal(t, message, e.Message)
					}
					assert.NotContains(t, r.body, "marker-of-the-cause")
					assert.NotContains(t, fmt.Sprint(r.Header), "marker-of-the-cause")
					e := s.watch.only(t)
					assert.NotNil(t, e.Err)
					assert.Equal(t, r.StatusCode, e.Status)
					if tt.logged != "" {
						assert.Contains(t, s.log.String(), tt.logged)
					}
					s.usage.only(t)
					// Its place among those in progress is free again.
					s.h.Shutdown(t.Context())
				})
			}
		}
	}
}

// A Backend that goes on after it was told to stop is at fault itself, but the
// client still learns what failed first.
func TestBackendGoesOn(t *testing.T) {
	fxNoLeaks(t)
	s := fxStart(t, fxConfig{backend: fxChat(func(_ context.Context, yield func(*llmhttp.ChatChunk, error) bool) {
		yield(nil, llmhttp.Errorf(http.StatusTooManyRequests, "rate_limit_exceeded", "The model is busy."))
		yield(llmhttp.TextChunk("x"), nil)
	})})
	r := s.chat(fxWhole)
	e := r.checkError(t, r.StatusCode)
	assert.GreaterOrEqual(t, r.StatusCode, 400)
	assert.NotEmpty(t, e.Message)
	require.NoError(t, s.h.Shutdown(t.Context()))
}

// Embedders and ImageGenerators that fail, or return what nobody asked for.
func TestOtherBackendsFail(t *testing.T) {
	embed := func(resp *llmhttp.EmbeddingResponse, err error) *fxBackend {
		return &fxBackend{embed: func(context.Context, *llmhttp.EmbeddingRequest) (*llmhttp.EmbeddingResponse, error) { return resp, err }}
	}
	images := func(resp *llmhttp.ImageResponse, err error) *fxBackend {
		return &fxBackend{images: func(context.Context, *llmhttp.ImageRequest) (*llmhttp.ImageResponse, error) { return resp, err }}
	}
	boom := errors.New("marker-of-the-cause")
	const embedding, image = `{"model":"m","input":["a","b"]}`, `{"model":"m","prompt":"a cat"}`
	tests := []struct {
		name, method, path, body string
		backend                  llmhttp.Backend
		status                   int
	}{
		{"embed/error", "POST", "/v1/embeddings", embedding, embed(nil, boom), 500},
		{"embed/nothing", "POST", "/v1/embeddings", embedding, embed(nil, nil), 500},
		{"embed/too few", "POST", "/v1/embeddings", embedding, embed(&llmhttp.EmbeddingResponse{Vectors: [][]float32{{1}}}, nil), 500},
		{"embed/not found", "POST", "/v1/embeddings", embedding, embed(nil, llmhttp.ModelNotFound("m")), 404},
		{"embed/panic", "POST", "/v1/embeddings", embedding, &fxBackend{embed: func(context.Context, *llmhttp.EmbeddingRequest) (*llmhttp.EmbeddingResponse, error) { panic(boom) }}, 500},
		{"embed/cannot", "POST", "/v1/embeddings", embedding, llmhttp.BackendFunc(nil), 404},
		{"images/error", "POST", "/v1/images/generations", image, images(nil, boom), 500},
		{"images/nothing", "POST", "/v1/images/generations", image, images(nil, nil), 500},
		{"images/none", "POST", "/v1/images/generations", image, images(&llmhttp.ImageResponse{}, nil), 500},
		{"images/empty", "POST", "/v1/images/generations", image, images(&llmhttp.ImageResponse{Data: []llmhttp.Image{{}}}, nil), 500},
		{"images/panic", "POST", "/v1/images/generations", image, &fxBackend{sizes: func(context.Context, string) ([]string, error) { panic(boom) }}, 500},
		{"images/sizes not found", "POST", "/v1/images/generations", image, &fxBackend{sizes: func(context.Context, string) ([]string, error) { return nil, llmhttp.ModelNotFound("m") }}, 404},
		{"images/cannot", "POST", "/v1/images/generations", image, llmhttp.BackendFunc(nil), 404},
		{"models/error", "GET", "/v1/models", "", &fxBackend{models: func(context.Context) ([]llmhttp.Model, error) { return nil, boom }}, 500},
		{"models/panic", "GET", "/v1/models/x", "", &fxBackend{models: func(context.Context) ([]llmhttp.Model, error) { panic(boom) }}, 500},
		{"models/cannot", "GET", "/v1/models", "", llmhttp.BackendFunc(nil), 404},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := fxStart(t, fxConfig{backend: tt.backend})
			r := s.do(tt.method, tt.path, tt.body)
			r.checkError(t, tt.status)
			assert.NotContains(t, r.body, "marker-of-the-cause")
			require.NoError(t, s.h.Shutdown(t.Context()))
		})
	}
}

// A Backend that is silent for too long is given up, whether it listens or not.
func TestBackendSilent(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		for _, kind := range []string{"whole", "stream/before", "stream/mid", "embeddings", "images", "sizes", "models"} {
			t.Run(fmt.Sprintf("%s/deaf=%t", kind, deaf), func(t *testing.T) {
				fxNoLeaks(t)
				release := make(chan struct{})
				var cause atomic.Value
				silence := func(ctx context.Context) error {
					if deaf {
						<-release
						return nil
					}
					<-ctx.Done()
					cause.Store(context.Cause(ctx))
					return ctx.Err()
				}
				b := &fxBackend{
					chat: func(ctx context.Context, _ *llmhttp.ChatRequest) llmhttp.ChatStream {
						return func(yield func(*llmhttp.ChatChunk, error) bool) {
							if kind == "stream/mid" && !yield(llmhttp.TextChunk("one"), nil) {
								return
							}
							if silence(ctx) != nil {
								return // as it may
							}
							yield(llmhttp.TextChunk("late"), nil)
						}
					},
					embed: func(ctx context.Context, _ *llmhttp.EmbeddingRequest) (*llmhttp.EmbeddingResponse, error) {
						return &llmhttp.EmbeddingResponse{Vectors: [][]float32{{1}}}, silence(ctx)
					},
					images: func(ctx context.Context, _ *llmhttp.ImageRequest) (*llmhttp.ImageResponse, error) {
						return nil, silence(ctx)
					},
					sizes: func(ctx context.Context, _ string) ([]string, error) {
						if kind != "sizes" {
							return nil, nil
						}
						return nil, silence(ctx)
					},
					models: func(ctx context.Context) ([]llmhttp.Model, error) { return nil, silence(ctx) },
				}
				s := fxStart(t, fxConfig{backend: b, opts: llmhttp.Options{Timeout: 100 * time.Millisecond}})
				free := sync.OnceFunc(func() { close(release) })
				t.Cleanup(free)

				method, path, body := "POST", "/v1/chat/completions", fxStream
				switch kind {
				case "whole":
					body = fxWhole
				case "embeddings":
					path, body = "/v1/embeddings", `{"model":"m","input":"a"}`
				case "images", "sizes":
					path, body = "/v1/images/generations", `{"model":"m","prompt":"a"}`
				case "models":
					method, path, body = "GET", "/v1/models", ""
				}
				resp, err := s.open(t.Context(), method, path, body)
				require.NoError(t, err)
				defer resp.Body.Close()
				const message = "The model did not answer in time."
				if kind == "stream/mid" {
					assert.Equal(t, 200, resp.StatusCode)
					in := bufio.NewReader(resp.Body)
					var got string
					for !strings.Contains(got, `"error"`) {
						line, err := in.ReadString('\n')
						require.NoError(t, err, "%q", got)
						got += line
					}
					free() // only now
					rest, err := io.ReadAll(in)
					require.ErrorIs(t, err, io.ErrUnexpectedEOF)
					frames := fxFrames(t, got+string(rest))
					assert.Equal(t, fxErrorObject{Message: message, Type: "server_error"}, fxError(t, frames[len(frames)-1]))
					assert.NotContains(t, got+string(rest), "late")
				} else {
					b, err := io.ReadAll(resp.Body) // while the Backend is stuck
					e := fxReply{resp, string(b), err}.checkError(t, 504)
					assert.Equal(t, fxErrorObject{Message: message, Type: "server_error"}, e)
					free()
				}
				e := s.watch.only(t)
				require.ErrorIs(t, e.Err, context.DeadlineExceeded)
				if !deaf {
					require.ErrorIs(t, cause.Load().(error), context.DeadlineExceeded)
				}
				require.NoError(t, s.h.Shutdown(t.Context()))
			})
		}
	}
}

// A Backend that keeps talking is not silent, however long it takes.
func TestBackendSlowNotSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, dial, done := fxServePipe(t, fxConfig{backend: fxChat(func(_ context.Context, yield func(*llmhttp.ChatChunk, error) bool) {
			for range 10 {
				time.Sleep(4 * time.Minute)
				if !yield(llmhttp.TextChunk("."), nil) {
					return
				}
			}
		})})
		defer done()
		for _, body := range []string{fxWhole, fxStream} {
			r := fxParse(t, "POST", fxRound(t, dial(), fxPost("HTTP/1.1", "/v1/chat/completions", body, "Connection: close")))
			require.NoError(t, r.err)
			assert.Equal(t, 200, r.StatusCode)
			assert.Equal(t, 10, strings.Count(strings.Join(strings.Fields(r.body), ""), `"content":"."`)+strings.Count(r.body, `"content":".........."`)*10)
		}
		require.NoError(t, s.h.Shutdown(t.Context()))
	})
}

// fxRound sends a request and returns all that comes back.
func fxRound(t testing.TB, c net.Conn, request string) string {
	t.Helper()
	defer c.Close()
	_, err := io.WriteString(c, request)
	require.NoError(t, err)
	b, err := io.ReadAll(c)
	require.NoError(t, err)
	return string(b)
}

// Each thing that a request for images waits for has its own time.
func TestSilencesAreNotAdded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func() { time.Sleep(18 * time.Second) }
		fb := &fxBackend{sizes: func(context.Context, string) ([]string, error) { slow(); return nil, nil }}
		fb.images = func(context.Context, *llmhttp.ImageRequest) (*llmhttp.ImageResponse, error) {
			slow()
			return &llmhttp.ImageResponse{Data: []llmhttp.Image{{Data: []byte("a")}, {Data: []byte("b")}}}, nil
		}
		_, dial, done := fxServePipe(t, fxConfig{backend: fb, opts: llmhttp.Options{Timeout: 30 * time.Second,
			ImageURL: func(context.Context, []byte, string) (string, error) { slow(); return "http://x", nil }}})
		defer done()
		r := fxParse(t, "POST", fxRound(t, dial(), fxPost("HTTP/1.1", "/v1/images/generations", `{"model":"m","prompt":"a","n":2}`, "Connection: close")))
		assert.Equal(t, 200, r.StatusCode)
	})
}

// What is written after the model's answer is not its silence.
func TestSlowStoreIsNoSilence(t *testing.T) {
	for name, body := range map[string]string{"whole": fxWhole, "stream": fxStream} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, dial, done := fxServePipe(t, fxConfig{
					usage: &fxUsage{before: func(context.Context) error { time.Sleep(5 * time.Second); return nil }},
					opts:  llmhttp.Options{Timeout: 2 * time.Second, KeepAlive: -1},
				})
				defer done()
				r := fxParse(t, "POST", fxRound(t, dial(), fxPost("HTTP/1.1", "/v1/chat/completions", body, "Connection: close")))
				require.NoError(t, r.err)
				assert.Equal(t, 200, r.StatusCode, "%s", r.body)
				assert.Contains(t, r.body, "Hello!")
				assert.NotContains(t, r.body, `"error"`)
				s.usage.only(t)
			})
		})
	}
}

func fxLocal(body string) *http.Request {
	r := httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+fxSecret)
	return r
}

// The Observer is told of each request once, whatever became of it.
func TestObserver(t *testing.T) {
	type want struct {
		status   int
		err      bool
		streamed bool
		chunks   int
		endpoint llmhttp.Endpoint
		key      string
		model    string
	}
	boom := errors.New("boom")
	chunks := func(after func()) llmhttp.Backend {
		return fxChat(func(_ context.Context, yield func(*llmhttp.ChatChunk, error) bool) {
			_ = yield(llmhttp.TextChunk("a"), nil) && yield(llmhttp.TextChunk("b"), nil)
			after()
		})
	}
	tests := []struct {
		name         string
		method, path string
		body         string
		mods         []fxMod
		backend      llmhttp.Backend
		want         want
	}{
		{"whole", "POST", "/v1/chat/completions", fxWhole, nil, chunks(func() {}), want{200, false, false, 2, "chat", "key_1", "demo-chat"}},
		{"stream", "POST", "/v1/chat/completions", fxStream, nil, chunks(func() {}), want{200, false, true, 2, "chat", "key_1", "demo-chat"}},
		{"panic in mid-stream", "POST", "/v1/chat/completions", fxStream, nil, chunks(func() { panic(boom) }), want{200, true, true, 2, "chat", "key_1", "demo-chat"}},
		{"panic", "POST", "/v1/chat/completions", fxWhole, nil, chunks(func() { panic(boom) }), want{500, true, false, 2, "chat", "key_1", "demo-chat"}},
		{"error", "POST", "/v1/chat/completions", fxStream, nil, llmhttp.BackendFunc(func(context.Context, *llmhttp.ChatRequest) llmhttp.ChatStream { return llmhttp.Fail(boom) }), want{500, true, true, 0, "chat", "key_1", "demo-chat"}},
		{"bad request", "POST", "/v1/chat/completions", "{", nil, nil, want{400, true, false, 0, "chat", "key_1", ""}},
		{"no key", "POST", "/v1/chat/completions", fxWhole, []fxMod{fxNoKey}, nil, want{401, true, false, 0, "", "", ""}},
		{"unknown URL", "GET", "/v1/x", "", nil, nil, want{404, true, false, 0, "", "", ""}},
		{"models", "GET", "/v1/models", "", nil, nil, want{200, false, false, 0, "models", "key_1", ""}},
		{"usage", "GET", "/v1/dashboard/billing/usage", "", nil, nil, want{200, false, false, 0, "usage", "key_1", ""}},
		{"images", "POST", "/v1/images/generations", `{"model":"m","prompt":"p","n":2}`, nil, nil, want{200, false, false, 0, "images", "key_1", "m"}},
		{"embeddings", "POST", "/v1/embeddings", `{"model":"m","input":"p"}`, nil, nil, want{200, false, false, 0, "embeddings", "key_1", "m"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
			s := fxStart(t, fxConfig{backend: tt.backend, opts: llmhttp.Options{Now: func() time.Time { return now }}})
			r := s.do(tt.method, tt.path, tt.body, tt.mods...)
			e := s.watch.only(t)
			assert.Equal(t, r.Header.Get("X-Request-Id"), e.ID)
			assert.Equal(t, now, e.Time)
			assert.Equal(t, tt.want, want{e.Status, e.Err != nil, e.Streamed, e.Chunks, e.Endpoint, e.KeyID, e.Model})
			assert.Positive(t, e.Duration)
			assert.Equal(t, e.Chunks > 0, e.FirstChunk > 0)
			assert.LessOrEqual(t, e.FirstChunk, e.Duration)
			if e.Endpoint == llmhttp.EndpointImages {
				assert.Equal(t, 2, e.Images)
			}
			if e.Endpoint == llmhttp.EndpointModels || e.Endpoint == llmhttp.EndpointUsage {
				assert.False(t, e.Estimated, "nothing was used, so nothing is estimated")
			}
			if e.Endpoint == llmhttp.EndpointChat && e.Chunks > 0 {
				assert.True(t, e.Estimated)
				assert.Equal(t, s.usage.only(t), e.UsageRecord)
			}
			assert.Equal(t, 1, s.watch.begun)
		})
	}
}

// An Observer that panics spoils at most its own request.
func TestObserverPanics(t *testing.T) {
	t.Run("end", func(t *testing.T) {
		s := fxStart(t, fxConfig{opts: llmhttp.Options{Observe: func(ctx context.Context, _ *http.Request) (context.Context, func(*llmhttp.RequestSummary)) {
			return ctx, func(*llmhttp.RequestSummary) { panic("marker-of-the-cause") }
		}}})
		for _, body := range []string{fxWhole, fxStream} {
			r := s.chat(body)
			require.NoError(t, r.err)
			assert.Equal(t, 200, r.StatusCode)
		}
		fxAwait(t, "the log", func() bool { return strings.Count(s.log.String(), "marker-of-the-cause") >= 2 })
		require.NoError(t, s.h.Shutdown(t.Context()))
	})
	t.Run("begin", func(t *testing.T) {
		s := fxStart(t, fxConfig{opts: llmhttp.Options{Observe: func(context.Context, *http.Request) (context.Context, func(*llmhttp.RequestSummary)) {
			panic("marker-of-the-cause")
		}}})
		s.chat(fxWhole).checkError(t, 500)
		require.NoError(t, s.h.Shutdown(t.Context()))
	})
	t.Run("nil", func(t *testing.T) {
		s := fxHandler(fxConfig{})
		h := llmhttp.NewHandler(new(fxBackend), fxKeys(fxKey()), &llmhttp.Options{Logger: s.log.logger(),
			Observe: func(context.Context, *http.Request) (context.Context, func(*llmhttp.RequestSummary)) { return nil, nil }})
		w := httptest.NewRecorder()
		h.ServeHTTP(w, fxLocal(fxWhole))
		assert.Equal(t, 200, w.Code)
	})
}

// A host's own func that panics costs its request a 500, and nothing else.
func TestHostFuncsPanic(t *testing.T) {
	for name, o := range map[string]llmhttp.Options{
		"RequestID": {RequestID: func(*http.Request) string { panic("marker-of-the-cause") }},
		"Now":       {Now: func() time.Time { panic("marker-of-the-cause") }},
	} {
		t.Run(name, func(t *testing.T) {
			s := fxStart(t, fxConfig{opts: o})
			s.chat(fxWhole).checkError(t, 500)
			require.NoError(t, s.h.Shutdown(t.Context()))
		})
	}
}

// A Backend tells the Exchange to whom it turned, whatever came of it.
func TestSetTarget(t *testing.T) {
	tests := []struct {
		name    string
		backend func(ctx context.Context, yield func(*llmhttp.ChatChunk, error) bool)
		target  string
		tries   int
	}{
		{"never", func(context.Context, func(*llmhttp.ChatChunk, error) bool) {}, "", 0},
		{"once", func(ctx context.Context, yield func(*llmhttp.ChatChunk, error) bool) {
			llmhttp.ReportTry(ctx, "first", 1)
		}, "first", 1},
		{"the last counts", func(ctx context.Context, yield func(*llmhttp.ChatChunk, error) bool) {
			llmhttp.ReportTry(ctx, "first", 1)
			llmhttp.ReportTry(context.WithoutCancel(ctx), "second", 2)
			yield(llmhttp.TextChunk("a"), nil)
		}, "second", 2},
		{"failed", func(ctx context.Context, yield func(*llmhttp.ChatChunk, error) bool) {
			llmhttp.ReportTry(ctx, "third", 3)
			yield(nil, errors.New("boom"))
		}, "third", 3},
		{"panicked", func(ctx context.Context, yield func(*llmhttp.ChatChunk, error) bool) {
			llmhttp.ReportTry(ctx, "fourth", 4)
			panic("boom")
		}, "fourth", 4},
		{"on another goroutine", func(ctx context.Context, yield func(*llmhttp.ChatChunk, error) bool) {
			var wg sync.WaitGroup
			wg.Go(func() { llmhttp.ReportTry(ctx, "fifth", 5) })
			yield(llmhttp.TextChunk("a"), nil)
			wg.Wait()
		}, "fifth", 5},
	}
	for _, tt := range tests {
		for mode, body := range map[string]string{"whole": fxWhole, "stream": fxStream} {
			t.Run(tt.name+", "+mode, func(t *testing.T) {
				s := fxStart(t, fxConfig{backend: fxChat(tt.backend)})
				s.chat(body)
				e := s.watch.only(t)
				assert.Equal(t, tt.target, e.Target)
				assert.Equal(t, tt.tries, e.Tries)
			})
		}
	}
	llmhttp.ReportTry(t.Context(), "nobody's", 1)
}

// What an Observer puts into the context reaches every part.
func TestObserverContext(t *testing.T) {
	type ctxKey struct{}
	var got []any
	see := func(ctx context.Context) { got = append(got, ctx.Value(ctxKey{})) }
	key := fxKey()
	key.Limits.Tokens = llmhttp.PerMinute(100)
	usage := &fxUsage{before: func(ctx context.Context) error { see(ctx); return nil }}
	s := fxStart(t, fxConfig{
		usage: usage,
		keys: llmhttp.KeyFunc(func(ctx context.Context, _ string) (*llmhttp.Key, error) {
			see(ctx)
			assert.Nil(t, llmhttp.KeyFrom(ctx))
			return &key, nil
		}),
		backend: fxChat(func(ctx context.Context, yield func(*llmhttp.ChatChunk, error) bool) {
			see(ctx)
			assert.Equal(t, "key_1", llmhttp.KeyFrom(ctx).ID)
			yield(llmhttp.TextChunk(llmhttp.RequestIDFrom(ctx)), nil)
		}),
		opts: llmhttp.Options{
			Limiter: &scriptedLimiter{see: see},
			Observe: func(ctx context.Context, r *http.Request) (context.Context, func(*llmhttp.RequestSummary)) {
				assert.NotEmpty(t, llmhttp.RequestIDFrom(ctx))
				return context.WithValue(ctx, ctxKey{}, "value"), nil
			}},
	})
	r := s.chat(fxWhole)
	require.Equal(t, 200, r.StatusCode)
	assert.Contains(t, r.body, r.Header.Get("X-Request-Id"))
	assert.Equal(t, []any{"value", "value", "value", "value", "value"}, got, "KeyStore, Take, Backend, Adjust, Record")
}

// A scriptedLimiter admits everything unless it is told otherwise.
type scriptedLimiter struct {
	take   func(ctx context.Context, draws []llmhttp.Draw) ([]llmhttp.Level, error)
	adjust func(context.Context) error
	see    func(context.Context)

	mu       sync.Mutex
	taken    [][]llmhttp.Draw
	adjusted [][]llmhttp.Draw
}

func (l *scriptedLimiter) Take(ctx context.Context, _ string, draws ...llmhttp.Draw) ([]llmhttp.Level, error) {
	if l.see != nil {
		l.see(ctx)
	}
	l.mu.Lock()
	l.taken = append(l.taken, append([]llmhttp.Draw(nil), draws...))
	l.mu.Unlock()
	if l.take != nil {
		return l.take(ctx, draws)
	}
	levels := make([]llmhttp.Level, len(draws))
	for i, d := range draws {
		levels[i].Remaining = d.Rate.WithDefaults().Burst - d.Cost
	}
	return levels, nil
}

func (l *scriptedLimiter) Adjust(ctx context.Context, _ string, draws ...llmhttp.Draw) error {
	if l.see != nil {
		l.see(ctx)
	}
	l.mu.Lock()
	l.adjusted = append(l.adjusted, append([]llmhttp.Draw(nil), draws...))
	l.mu.Unlock()
	if l.adjust != nil {
		return l.adjust(ctx)
	}
	return nil
}

func (l *scriptedLimiter) log() (taken, adjusted [][]llmhttp.Draw) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.taken, l.adjusted
}

func TestShutdown(t *testing.T) {
	t.Run("idle", func(t *testing.T) {
		s := fxStart(t, fxConfig{})
		assert.Equal(t, 200, s.chat(fxWhole).StatusCode)
		require.NoError(t, s.h.Shutdown(t.Context()))
		require.NoError(t, s.h.Shutdown(t.Context()), "it may be called again")
		done, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, s.h.Shutdown(done), "nothing is left to wait for")
		for _, path := range []string{"/v1/models", "/v1/nothing"} {
			r := s.do("GET", path, "")
			e := r.checkError(t, 503)
			assert.Equal(t, "server_error", e.Type)
			assert.Equal(t, "1", r.Header.Get("Retry-After"))
		}
	})
	t.Run("waits", func(t *testing.T) {
		fxNoLeaks(t)
		started, release := make(chan struct{}), make(chan struct{})
		recording, recorded := make(chan struct{}), make(chan struct{})
		s := fxStart(t, fxConfig{
			usage: &fxUsage{before: func(context.Context) error { close(recording); <-recorded; return nil }},
			backend: fxChat(func(ctx context.Context, yield func(*llmhttp.ChatChunk, error) bool) {
				yield(llmhttp.TextChunk("one "), nil)
				close(started)
				<-release
				yield(llmhttp.TextChunk("two"), nil)
			})})
		reply := make(chan fxReply, 1)
		go func() { reply <- s.chat(fxStream) }()
		fxReceive(t, "the stream", started)
		ended := make(chan error, 2)
		for range 2 {
			go func() { ended <- s.h.Shutdown(t.Context()) }()
		}
		fxAwait(t, "refusal", func() bool { return s.do("GET", "/v1/models", "").StatusCode == 503 })
		close(release)
		fxReceive(t, "Record", recording)
		select {
		case err := <-ended:
			t.Fatalf("Shutdown returned %v before usage was recorded", err)
		case <-time.After(30 * time.Millisecond):
		}
		close(recorded)
		require.NoError(t, fxReceive(t, "Shutdown", ended))
		require.NoError(t, fxReceive(t, "Shutdown", ended))
		r := fxReceive(t, "the reply", reply)
		require.NoError(t, r.err)
		said, _ := fxText(t, fxFrames(t, r.body))
		assert.Equal(t, "one two", said)
		assert.Len(t, s.usage.all(), 1)
	})
	t.Run("waits for the Observer", func(t *testing.T) {
		started, release := make(chan struct{}), make(chan struct{})
		var told atomic.Bool
		s := fxStart(t, fxConfig{
			opts: llmhttp.Options{Observe: func(ctx context.Context, _ *http.Request) (context.Context, func(*llmhttp.RequestSummary)) {
				return ctx, func(*llmhttp.RequestSummary) { time.Sleep(100 * time.Millisecond); told.Store(true) }
			}},
			backend: fxChat(func(context.Context, func(*llmhttp.ChatChunk, error) bool) { close(started); <-release })})
		go func() { _ = s.chat(fxWhole) }()
		fxReceive(t, "the Backend", started)
		time.AfterFunc(20*time.Millisecond, func() { close(release) })
		require.NoError(t, s.h.Shutdown(t.Context()))
		assert.True(t, told.Load(), "a host may close what its Observer writes to once Shutdown has returned")
	})
	for _, deaf := range []bool{false, true} {
		t.Run(fmt.Sprintf("context done/deaf=%t", deaf), func(t *testing.T) {
			fxNoLeaks(t)
			var working atomic.Int64
			release := make(chan struct{})
			s := fxStart(t, fxConfig{backend: llmhttp.BackendFunc(func(ctx context.Context, req *llmhttp.ChatRequest) llmhttp.ChatStream {
				return func(yield func(*llmhttp.ChatChunk, error) bool) {
					if req.Model == "talks" && !yield(llmhttp.TextChunk("one"), nil) {
						return
					}
					working.Add(1)
					if deaf {
						<-release
						return
					}
					<-ctx.Done()
					yield(nil, ctx.Err())
				}
			})})
			free := sync.OnceFunc(func() { close(release) })
			t.Cleanup(free)
			ask := func(model string, stream bool) <-chan fxReply {
				c := make(chan fxReply, 1)
				go func() {
					c <- s.chat(fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"x"}],"stream":%t}`, model, stream))
				}()
				return c
			}
			whole, silent, open := ask("quiet", false), ask("quiet", true), ask("talks", true)
			fxAwait(t, "three Backends", func() bool { return working.Load() == 3 })
			// The first chunk is on its way.
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			start := time.Now()
			require.ErrorIs(t, s.h.Shutdown(ctx), context.DeadlineExceeded)
			assert.Less(t, time.Since(start), 10*time.Second)
			if deaf {
				time.AfterFunc(10*time.Millisecond, free) // so that the stream's connection is cut
			}
			const message = "The server is shutting down. Please try again."
			for _, c := range []<-chan fxReply{whole, silent} {
				r := fxReceive(t, "a reply", c)
				e := r.checkError(t, 503)
				assert.Equal(t, message, e.Message)
				assert.Equal(t, "1", r.Header.Get("Retry-After"))
			}
			r := fxReceive(t, "the stream's end", open)
			assert.Equal(t, 200, r.StatusCode)
			require.ErrorIs(t, r.err, io.ErrUnexpectedEOF)
			frames := fxFrames(t, r.body)
			assert.Equal(t, message, fxError(t, frames[len(frames)-1]).Message)
			assert.NotContains(t, r.body, "[DONE]")
			fxAwait(t, "three records", func() bool { return len(s.usage.all()) == 3 })
			fxAwait(t, "three Exchanges", func() bool { return len(s.watch.exchanges()) == 3 })
			for _, e := range s.watch.exchanges() {
				require.Error(t, e.Err)
			}
			require.NoError(t, s.h.Shutdown(t.Context()))
		})
	}
	// Requests that have not come to the Backend yet are answered, too.
	waits := map[string]fxConfig{
		"in the KeyStore": {keys: llmhttp.KeyFunc(func(ctx context.Context, _ string) (*llmhttp.Key, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})},
		"in the Limiter": {keys: fxLimited(llmhttp.Limits{Requests: llmhttp.PerMinute(9)}), opts: llmhttp.Options{
			Limiter: &scriptedLimiter{take: func(ctx context.Context, _ []llmhttp.Draw) ([]llmhttp.Level, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}}}},
	}
	for name, c := range waits {
		for _, method := range []string{"GET", "POST"} {
			t.Run(name+"/"+method, func(t *testing.T) {
				fxNoLeaks(t)
				s := fxStart(t, c)
				reply := make(chan fxReply, 1)
				go func() {
					if method == "GET" {
						reply <- s.do("GET", "/v1/models", "")
					} else {
						reply <- s.chat(fxWhole)
					}
				}()
				fxAwait(t, "the request", func() bool { s.watch.mu.Lock(); defer s.watch.mu.Unlock(); return s.watch.begun == 1 })
				time.Sleep(20 * time.Millisecond) // until it waits
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				require.ErrorIs(t, s.h.Shutdown(ctx), context.Canceled)
				fxReceive(t, "the reply", reply).checkError(t, 503)
			})
		}
	}
	t.Run("while the body comes", func(t *testing.T) {
		fxNoLeaks(t)
		s := fxStart(t, fxConfig{})
		c := s.dial()
		_, err := io.WriteString(c, strings.TrimSuffix(fxPost("HTTP/1.1", "/v1/chat/completions", fxWhole), "}"))
		require.NoError(t, err)
		fxAwait(t, "the request", func() bool { s.watch.mu.Lock(); defer s.watch.mu.Unlock(); return s.watch.begun == 1 })
		time.Sleep(20 * time.Millisecond)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, s.h.Shutdown(ctx), context.Canceled)
		raw, err := io.ReadAll(c)
		require.NoError(t, err)
		fxParse(t, "POST", string(raw)).checkError(t, 503)
	})
}

// A host that gives requests a deadline of its own gets an answer for its
// client, who has not left.
func TestHostDeadline(t *testing.T) {
	for name, body := range map[string]string{"whole": fxWhole, "stream": fxStream} {
		t.Run(name, func(t *testing.T) {
			s := fxStart(t, fxConfig{
				backend: fxChat(func(ctx context.Context, yield func(*llmhttp.ChatChunk, error) bool) {
					<-ctx.Done()
					yield(nil, ctx.Err())
				}),
				wrap: func(h http.Handler) http.Handler {
					return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						ctx, cancel := context.WithTimeout(r.Context(), 50*time.Millisecond)
						defer cancel()
						h.ServeHTTP(w, r.WithContext(ctx))
					})
				}})
			s.chat(body).checkError(t, 504)
		})
	}
}

// A Limiter that ignores its context is waited for, without a race.
func TestDeafLimiter(t *testing.T) {
	s := fxStart(t, fxConfig{keys: fxLimited(llmhttp.Limits{Requests: llmhttp.PerMinute(9)}), opts: llmhttp.Options{
		Timeout: 200 * time.Millisecond,
		Limiter: &scriptedLimiter{take: func(_ context.Context, draws []llmhttp.Draw) ([]llmhttp.Level, error) {
			time.Sleep(500 * time.Millisecond)
			return make([]llmhttp.Level, len(draws)), nil
		}}}})
	// ImageSizes was called before, so that the watch over the Backend runs.
	r := s.do("POST", "/v1/images/generations", `{"model":"m","prompt":"a"}`)
	assert.Contains(t, []int{200, 504}, r.StatusCode)
	r = s.chat(fxWhole)
	assert.Equal(t, 200, r.StatusCode)
	require.NoError(t, s.h.Shutdown(t.Context()))
}

// Nothing gathers from request to request, whatever becomes of them:
// BerriAI/litellm#12685, #27954, #38193, router-for-me/CLIProxyAPI#3048.
func TestHeapIsFlat(t *testing.T) {
	var turn atomic.Int64
	backend := fxChat(func(ctx context.Context, yield func(*llmhttp.ChatChunk, error) bool) {
		n := turn.Add(1)
		if !yield(llmhttp.TextChunk(strings.Repeat("x", 4<<10)), nil) {
			return
		}
		switch n % 4 {
		case 0:
			panic("boom")
		case 1:
			yield(nil, errors.New("boom"))
		}
	})
	keys := llmhttp.KeyFunc(func(_ context.Context, secret string) (*llmhttp.Key, error) {
		return &llmhttp.Key{ID: secret, Limits: llmhttp.Limits{Concurrent: 5}}, nil
	})
	h := llmhttp.NewHandler(backend, keys, &llmhttp.Options{Logger: slog.New(slog.DiscardHandler)})
	body := `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("y", 8<<10) + `"}],"stream":`
	serve := func(from, to int) {
		for i := from; i < to; i++ {
			r := fxLocal(body + []string{"true}", "false}", "5}"}[i%3])
			r.Header.Set("Authorization", "Bearer key-"+itoa(i))
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
	serve(0, 300)
	before := heap()
	serve(300, 1000)
	assert.Less(t, heap()-before, int64(2<<20))
	require.NoError(t, h.Shutdown(t.Context()))
}

// A panic for one leaves the others alone.
func TestPanicHarmsNoOther(t *testing.T) {
	s := fxStart(t, fxConfig{backend: llmhttp.BackendFunc(func(_ context.Context, r *llmhttp.ChatRequest) llmhttp.ChatStream {
		if r.Model == "bad" {
			panic("boom")
		}
		return llmhttp.Reply("fine")
	})})
	s.chat(strings.Replace(fxWhole, "demo-chat", "bad", 1)).checkError(t, 500)
	assert.Equal(t, 200, s.chat(fxWhole).StatusCode)
}
