package llmhttp_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/audio"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
)

func (panickyError) Error() string { panic("Error panics") }

// A Backend that fails or panics causes a server error for its request only.
// QuantumNous/new-api#2473: a panic ended the process. Portkey-AI/gateway#1797: a stream
// that was cut ended like a complete one.
func TestBackend_Fails(t *testing.T) {
	var nilError *llm.Error
	chat := func(f func() llm.ChatStream) llmhttp.Backend {
		return llmhttp.BackendFunc(func(context.Context, *llm.ChatRequest) llm.ChatStream { return f() })
	}
	panics := func(value func() any, pieces ...string) llmhttp.Backend {
		return streamBackend(func(_ context.Context, yield yieldFunc) {
			for _, p := range pieces {
				yield(llm.TextChunk(p), nil)
			}
			panic(value())
		})
	}
	value := func(v any) func() any { return func() any { return v } }
	indexOutOfRange := func() any { var s []int; return s[len(s)] }

	tests := []struct {
		name    string
		backend llmhttp.Backend
		status  int    // of a failure before the first chunk
		message string // "" means internalMessage
		before  string // the text that comes before the failure
		logged  string
	}{
		{name: "panic with a string", status: 500, logged: secretCause, backend: panics(value(secretCause))},
		{name: "panic with an error", status: 500, logged: secretCause, backend: panics(value(errCause))},
		{name: "panic with nil", status: 500, logged: "panic", backend: panics(value(nil))},
		{name: "panic with ErrAbortHandler", status: 500, logged: "abort Handler", backend: panics(value(http.ErrAbortHandler))},
		{name: "panic of the runtime", status: 500, logged: "index out of range", backend: panics(indexOutOfRange)},
		{name: "panic with an *Error", status: 500, logged: secretCause,
			backend: panics(value(&llm.Error{Status: 500, Err: errCause, Message: internalMessage}))},
		{name: "panic in Chat", status: 500, logged: secretCause, backend: chat(func() llm.ChatStream { panic(secretCause) })},
		{name: "nil stream", status: 500, logged: "the Backend returned a nil ChatStream", backend: chat(func() llm.ChatStream { return nil })},
		{name: "error", status: 500, logged: secretCause, backend: failingBackend(errCause)},
		{name: "error that is a nil *Error", status: 500, backend: failingBackend(nilError)},
		{name: "error whose text panics", status: 500, backend: failingBackend(panickyError{})},
		{name: "*Error is shown", status: 409, message: "Already there.",
			backend: failingBackend(fmt.Errorf("wrapped: %w", &llm.Error{Status: 409, Message: "Already there.", Err: errCause}))},
		{name: "deadline exceeded", status: 504, message: timeoutMessage, logged: secretCause,
			backend: failingBackend(fmt.Errorf("%w: %w", errCause, context.DeadlineExceeded))},
		{name: "error after a nil chunk", status: 500, logged: secretCause,
			backend: streamBackend(func(_ context.Context, yield yieldFunc) { _ = yield(nil, nil) && yield(nil, errCause) })},
		{name: "panic after text", before: "one two", status: 500, logged: secretCause, backend: panics(value(secretCause), "one ", "two")},
		{name: "error after text", before: "one two", status: 500, logged: secretCause, backend: failAfter(errCause, "one ", "two")},
		{name: "*Error after text is shown", before: "one", status: 503, message: "Overloaded.",
			backend: failAfter(&llm.Error{Status: 503, Message: "Overloaded."}, "one")},
		{name: "nil *Error after text", before: "one", status: 500,
			backend: streamBackend(func(_ context.Context, yield yieldFunc) {
				_ = yield(llm.TextChunk("one"), nil) && yield(nil, nilError)
			})},
		{name: "error whose text panics, after text", before: "one", status: 500, backend: failAfter(panickyError{}, "one")},
	}
	for _, tt := range tests {
		if tt.message == "" {
			tt.message = internalMessage
		}
		for _, http2 := range []bool{false, true} {
			for mode, body := range chatModes {
				t.Run(fmt.Sprintf("%s/%s/http2=%t", tt.name, mode, http2), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						s := startPipeServer(t, config{backend: tt.backend, http2: http2, keys: limitedKeys(llmhttp.Limits{Concurrent: 1})})
						r := s.chat(body)
						if mode == "stream" && tt.before != "" {
							assert.Equal(t, apiError{Message: tt.message, Type: "server_error"}, r.checkCut(t))
							text, _ := r.text(t)
							assert.Equal(t, tt.before, text)
						} else {
							assert.Equal(t, tt.message, r.checkError(t, tt.status).Message)
						}
						assert.NotContains(t, r.body+fmt.Sprint(r.Header), secretCause)
						assert.Contains(t, s.log.String(), tt.logged)
						e := s.summary()
						assert.NotNil(t, e.Err)
						assert.Equal(t, r.StatusCode, e.Status)
						s.record()
						s.shutdown()
					})
				})
			}
		}
	}
}

// If a Backend yields again after an error, the client still gets the first error.
// A stream that ends without a chunk is a mistake of the Backend, and not an empty reply.
func TestBackend_YieldsNoChunk(t *testing.T) {
	for name, b := range map[string]llmhttp.Backend{
		"nothing":     streamBackend(func(context.Context, yieldFunc) {}),
		"a nil chunk": streamBackend(func(_ context.Context, yield yieldFunc) { yield(nil, nil) }),
		"Fail(nil)":   failingBackend(nil),
	} {
		for _, members := range []string{`"stream":false`, `"stream":true`} {
			t.Run(name+members, func(t *testing.T) {
				s := startServer(t, config{backend: b})
				s.chat(chatWith(members)).checkError(t, 500)
				sum := s.summary()
				assert.Equal(t, llmhttp.ClassBackend, sum.ErrorClass)
				assert.ErrorContains(t, sum.Err, map[bool]string{true: "Fail was called with a nil error", false: "without a chunk"}[name == "Fail(nil)"])
			})
		}
	}
	_, err := join.Collect(streamOf())
	assert.Error(t, err)
	_, err = join.Collect(streamOf(nil))
	assert.Error(t, err)
	_, err = join.Collect(llm.Fail(nil))
	assert.ErrorContains(t, err, "nil error")
}

func TestBackend_YieldsAfterItsError(t *testing.T) {
	checkNoLeaks(t)
	s := startServer(t, config{backend: streamBackend(func(_ context.Context, yield yieldFunc) {
		yield(nil, llm.Errorf(http.StatusTooManyRequests, "rate_limit_exceeded", "The model is busy."))
		yield(llm.TextChunk("x"), nil)
	})})
	r := s.chat(chatBody)
	assert.GreaterOrEqual(t, r.StatusCode, 400)
	r.checkError(t, r.StatusCode)
	s.shutdown()
}

func TestBackend_PanicHarmsNoOtherRequest(t *testing.T) {
	s := startServer(t, config{backend: llmhttp.BackendFunc(func(_ context.Context, r *llm.ChatRequest) llm.ChatStream {
		if r.Model == "bad" {
			panic("boom")
		}
		return llm.Reply("fine")
	})})
	s.chat(strings.Replace(chatBody, "demo-chat", "bad", 1)).checkError(t, 500)
	assert.Equal(t, 200, s.chat(chatBody).StatusCode)
}

// Embedders, ImageGenerators and ModelListers that fail or return an invalid result cause
// an error reply.
func TestBackend_OptionalInterfacesFail(t *testing.T) {
	embed := func(resp *llm.EmbeddingResponse, err error) *stubBackend {
		return &stubBackend{embed: func(context.Context, *llm.EmbeddingRequest) (*llm.EmbeddingResponse, error) { return resp, err }}
	}
	images := func(resp *llm.ImageResponse, err error) *stubBackend {
		return &stubBackend{images: func(context.Context, *llm.ImageRequest) (*llm.ImageResponse, error) { return resp, err }}
	}
	sizes := func(f func() error) *stubBackend {
		return &stubBackend{sizes: func(context.Context, string) ([]string, error) { return nil, f() }}
	}
	models := func(f func() error) *stubBackend {
		return &stubBackend{models: func(context.Context) ([]llm.Model, error) { return nil, f() }}
	}
	fail := func() error { return errCause }
	panics := func() error { panic(errCause) }
	speak := func(s audio.SpeechStream) *stubBackend {
		return &stubBackend{speak: func(context.Context, *audio.SpeechRequest) audio.SpeechStream { return s }}
	}
	const twoTexts = `{"model":"m","input":["a","b"]}`
	type testCase struct {
		name, method, path, body string
		backend                  llmhttp.Backend
		status                   int
	}
	tests := []testCase{
		{"Embed returns nil", "POST", embeddingsPath, twoTexts, embed(nil, nil), 500},
		{"Embed returns too few vectors", "POST", embeddingsPath, twoTexts, embed(&llm.EmbeddingResponse{Vectors: [][]float32{{1}}}, nil), 500},
		{"Speak fails", "POST", speechPath, speechBody, speak(failingSpeech(errCause)), 500},
		{"Speak returns nil", "POST", speechPath, speechBody, speak(nil), 500},
		{"Speak yields nothing", "POST", speechPath, speechBody, speak(speech()), 500},
		{"Speak yields no audio", "POST", speechPath, speechBody, speak(speech("", "")), 500},
		{"Speak fails after it has yielded no audio", "POST", speechPath, speechBody, speak(func(yield func(*audio.SpeechChunk, error) bool) {
			_ = yield(nil, nil) && yield(&audio.SpeechChunk{}, nil) && yield(nil, llm.Errorf(409, "", "busy"))
		}), 409},
		{"Speak does not know the model", "POST", speechPath, speechBody, speak(failingSpeech(llm.ModelNotFound("m"))), 404},
		{"Speak panics", "POST", speechPath, speechBody, &stubBackend{speak: func(context.Context, *audio.SpeechRequest) audio.SpeechStream { panic(errCause) }}, 500},
		{"Speak panics in the stream", "POST", speechPath, speechBody, speak(func(func(*audio.SpeechChunk, error) bool) { panic(errCause) }), 500},
		{"GenerateImages returns nil", "POST", imagesPath, imageBody, images(nil, nil), 500},
		{"GenerateImages returns no image", "POST", imagesPath, imageBody, images(&llm.ImageResponse{}, nil), 500},
		{"GenerateImages returns an empty image", "POST", imagesPath, imageBody, images(&llm.ImageResponse{Data: []llm.Image{{}}}, nil), 500},
		{"ImageSizes panics", "POST", imagesPath, imageBody, sizes(panics), 500},
		{"ImageSizes does not know the model", "POST", imagesPath, imageBody, sizes(func() error { return llm.ModelNotFound("m") }), 404},
		{"ListModels fails", "GET", modelsPath, "", models(fail), 500},
		{"ListModels panics", "GET", modelsPath + "/x", "", models(panics), 500},
		{"no ModelLister", "GET", modelsPath, "", chatOnly, 404},
	}
	for _, op := range testOperations {
		tests = append(tests,
			testCase{string(op.name) + " fails", "POST", op.path, op.body, failingBackend(errCause), 500},
			testCase{string(op.name) + " does not know the model", "POST", op.path, op.body, failingBackend(llm.ModelNotFound("m")), 404},
			testCase{string(op.name) + " panics", "POST", op.path, op.body, &stubBackend{call: func(context.Context) error { panic(errCause) }}, 500})
		if op.name != llmhttp.OperationChat {
			tests = append(tests, testCase{"no " + string(op.name), "POST", op.path, op.body, chatOnly, 404})
		}
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := startServer(t, config{backend: tt.backend})
			r := s.do(tt.method, tt.path, tt.body)
			r.checkError(t, tt.status)
			assert.NotContains(t, r.body, secretCause)
			s.shutdown()
		})
	}
}

// A Backend that yields nothing for as long as Timeout is stopped, and its request fails,
// even if it ignores its context.
func TestBackend_IsSilentForTooLong(t *testing.T) {
	type testCase struct {
		name, method, path, body string
		http2                    bool
	}
	tests := []testCase{
		{"stream before the first chunk", "POST", chatPath, streamBody, false},
		{"stream between chunks", "POST", chatPath, streamBody, false},
		{"stream between chunks", "POST", chatPath, streamBody, true},
		{"stream between chunks", "POST", speechPath, speechEventsBody, false},
		{"ImageSizes", "POST", imagesPath, imageBody, false},
		{"ListModels", "GET", modelsPath, "", false},
	}
	for _, op := range testOperations {
		tests = append(tests, testCase{string(op.name), "POST", op.path, op.body, false})
	}
	for _, ignoresContext := range []bool{false, true} {
		for _, tt := range tests {
			t.Run(fmt.Sprintf("%s/http2=%t/ignores its context=%t", tt.name, tt.http2, ignoresContext), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					release := make(chan struct{})
					free := sync.OnceFunc(func() { close(release) })
					t.Cleanup(free)
					var cause error // of the end of the Backend's context
					silence := func(ctx context.Context) error {
						if ignoresContext {
							<-release
							return nil
						}
						<-ctx.Done()
						cause = context.Cause(ctx)
						return ctx.Err()
					}
					s := startPipeServer(t, config{http2: tt.http2, opts: llmhttp.Options{Bounds: llmhttp.Bounds{Timeout: 10 * time.Second}}, backend: &stubBackend{
						chat: func(ctx context.Context, _ *llm.ChatRequest) llm.ChatStream {
							return func(yield func(*llm.ChatChunk, error) bool) {
								if tt.name == "stream between chunks" && !yield(llm.TextChunk("one"), nil) {
									return
								}
								if silence(ctx) == nil { // else a stream may just end
									yield(llm.TextChunk("late"), nil)
								}
							}
						},
						call: silence,
						speak: func(ctx context.Context, _ *audio.SpeechRequest) audio.SpeechStream {
							return func(yield func(*audio.SpeechChunk, error) bool) {
								if tt.name == "stream between chunks" && !yield(&audio.SpeechChunk{Audio: []byte("one")}, nil) {
									return
								}
								if silence(ctx) == nil {
									yield(&audio.SpeechChunk{Audio: []byte("late")}, nil)
								}
							}
						},
						sizes: func(ctx context.Context, _ string) ([]string, error) {
							if tt.name != "ImageSizes" {
								return nil, nil
							}
							return nil, silence(ctx)
						},
						models: func(ctx context.Context) ([]llm.Model, error) { return nil, silence(ctx) },
					}})
					want := apiError{Message: timeoutMessage, Type: "server_error"}
					resp, err := s.open(t.Context(), tt.method, tt.path, tt.body)
					require.NoError(t, err)
					if tt.name == "stream between chunks" {
						// The error event comes while the Backend hangs, the cut when it returns.
						in := bufio.NewReader(resp.Body)
						events := readUntil(t, in, `"error"`)
						free()
						r := readRest(resp, events, in)
						assert.Equal(t, want, r.checkCut(t))
						assert.NotContains(t, r.body, "late")
					} else {
						assert.Equal(t, want, readReply(resp).checkError(t, 504))
						free()
					}
					require.ErrorIs(t, s.summary().Err, context.DeadlineExceeded)
					if !ignoresContext {
						require.ErrorIs(t, cause, context.DeadlineExceeded)
					}
					s.shutdown()
				})
			})
		}
	}
}

// Timeout bounds the time between chunks, and not that of the whole stream.
func TestBackend_MayTakeLongerThanTimeoutInAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startPipeServer(t, config{backend: streamBackend(func(_ context.Context, yield yieldFunc) {
			for range 10 {
				time.Sleep(4 * time.Minute)
				if !yield(llm.TextChunk("."), nil) {
					return
				}
			}
		})})
		r := s.chat(chatBody)
		assert.Equal(t, 200, r.StatusCode)
		assert.Contains(t, r.body, `"content":".........."`)
		s.chat(streamBody).checkText(t, "..........")
		s.shutdown()
	})
}

// Each call that an image request waits for has its own Timeout.
func TestBackend_TimeoutIsForEachCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wait := func() { time.Sleep(18 * time.Second) }
		s := startPipeServer(t, config{
			backend: &stubBackend{
				sizes: func(context.Context, string) ([]string, error) { wait(); return nil, nil },
				images: func(context.Context, *llm.ImageRequest) (*llm.ImageResponse, error) {
					wait()
					return &llm.ImageResponse{Data: []llm.Image{{Data: []byte("a")}, {Data: []byte("b")}}}, nil
				},
			},
			opts: llmhttp.Options{
				Bounds:   llmhttp.Bounds{Timeout: 30 * time.Second},
				ImageURL: func(context.Context, []byte, string) (string, error) { wait(); return "http://x", nil },
			},
		})
		assert.Equal(t, 200, s.do("POST", imagesPath, `{"model":"m","prompt":"a","n":2}`).StatusCode)
	})
}

// The time that a UsageStore takes does not count toward Timeout.
func TestBackend_TimeoutExcludesTheUsageStore(t *testing.T) {
	for mode, body := range chatModes {
		t.Run(mode, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := startPipeServer(t, config{
					usage: &usageLog{before: func(context.Context) error { time.Sleep(5 * time.Second); return nil }},
					opts:  llmhttp.Options{Bounds: llmhttp.Bounds{Timeout: 2 * time.Second, KeepAlive: -1}},
				})
				r := s.chat(body)
				require.NoError(t, r.err)
				assert.Equal(t, 200, r.StatusCode, "%s", r.body)
				assert.Contains(t, r.body, "Hello!")
				assert.NotContains(t, r.body, `"error"`)
				s.record()
			})
		})
	}
}

// If middleware of the host sets a deadline for a request, the client gets an error reply
// when it expires.
func TestBackend_DeadlineOfTheHost(t *testing.T) {
	for mode, body := range chatModes {
		t.Run(mode, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := startPipeServer(t, config{
					backend: streamBackend(func(ctx context.Context, yield yieldFunc) {
						<-ctx.Done()
						yield(nil, ctx.Err())
					}),
					wrap: func(h http.Handler) http.Handler {
						return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
							ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
							defer cancel()
							h.ServeHTTP(w, r.WithContext(ctx))
						})
					},
				})
				s.chat(body).checkError(t, 504)
			})
		})
	}
}

// A Backend may modify the request that it gets.
func TestBackend_OwnsItsRequest(t *testing.T) {
	var counted []llmhttp.Units
	for _, change := range []bool{false, true} {
		s := startServer(t, config{
			opts: llmhttp.Options{Estimates: llmhttp.TokenEstimates{TextTokens: func(_, text string) int { return len(text) }}},
			backend: llmhttp.BackendFunc(func(_ context.Context, req *llm.ChatRequest) llm.ChatStream {
				if change {
					req.Messages = nil
				}
				return llm.Reply("hi")
			}),
		})
		s.chat(chatBody)
		counted = append(counted, s.record().Units)
	}
	assert.Equal(t, counted[0], counted[1])
	assert.Positive(t, counted[0].PromptTokens)
}

// A mistake of a Backend that causes no error reply is logged once per request.
func TestBackend_MisuseIsLogged(t *testing.T) {
	chunk := func(text string, reason llm.FinishReason, u *llm.Usage) *llm.ChatChunk {
		c := llm.TextChunk(text)
		c.Choices[0].FinishReason, c.Usage = reason, u
		return c
	}
	usage := func(prompt, completion int) *llm.Usage {
		return &llm.Usage{PromptTokens: prompt, CompletionTokens: completion}
	}
	invalid := llm.Extra{"a": json.RawMessage("NaN")}
	tests := map[string]struct {
		chunks []*llm.ChatChunk
		logged string // empty for nothing
	}{
		"nil chunks":             {[]*llm.ChatChunk{nil, chunk("a", "", nil), nil}, "nil chunk"},
		"choice":                 {[]*llm.ChatChunk{chunk("a", "", nil), {Choices: []llm.ChunkChoice{{Index: 1}}}, {Choices: []llm.ChunkChoice{{Index: -1}}}}, "not asked for"},
		"content after the end":  {[]*llm.ChatChunk{chunk("a", "stop", nil), chunk("b", "", nil), chunk("c", "", nil)}, "after its FinishReason"},
		"two finish reasons":     {[]*llm.ChatChunk{chunk("a", "stop", nil), chunk("", "stop", nil)}, ""},
		"usage of another total": {[]*llm.ChatChunk{chunk("a", "", usage(10, 5)), chunk("b", "", usage(20, 7)), chunk("c", "", usage(1, 7))}, "contradict each other"},
		"usage of chunks":        {[]*llm.ChatChunk{chunk("a", "", usage(10, 5)), chunk("b", "", usage(10, 4))}, "contradict each other"},
		"snapshots of usage":     {[]*llm.ChatChunk{chunk("a", "", usage(0, 1)), chunk("b", "", usage(10, 1)), chunk("c", "", usage(10, 2))}, ""},
		"Extra beside the usage": {[]*llm.ChatChunk{chunk("a", "", nil), {Usage: usage(1, 1), Extra: maps.Clone(invalid)}}, "not JSON"},
		"Extra of the usage":     {[]*llm.ChatChunk{chunk("a", "", nil), {Usage: &llm.Usage{PromptTokens: 1, Extra: maps.Clone(invalid)}}}, "not JSON"},
	}
	for name, tt := range tests {
		for mode, members := range map[string]string{"whole": `"n":1`, "stream": `"stream":true,"stream_options":{"include_usage":true}`} {
			t.Run(name+"/"+mode, func(t *testing.T) {
				s := startServer(t, config{backend: chunkBackend(func() (chunks []*llm.ChatChunk) {
					for _, c := range tt.chunks {
						if c != nil {
							c = &llm.ChatChunk{Choices: slices.Clone(c.Choices), Usage: c.Usage, Extra: maps.Clone(c.Extra)}
							if c.Usage != nil {
								u := *c.Usage
								u.Extra = maps.Clone(u.Extra)
								c.Usage = &u
							}
						}
						chunks = append(chunks, c)
					}
					return chunks
				})})
				r := s.chat(chatWith(members))
				require.NoError(t, r.err)
				assert.Equal(t, 200, r.StatusCode)
				assert.NoError(t, s.summary().Err)
				assert.NotContains(t, r.body, "NaN")
				if tt.logged == "" {
					assert.Empty(t, s.log.String())
					return
				}
				assert.Equal(t, 1, strings.Count(s.log.String(), `"level":"WARN"`), "%s", s.log)
				assert.Contains(t, s.log.String(), tt.logged)
			})
		}
	}
}

// A call of yield after the stream has returned is refused and logged.
func TestBackend_YieldAfterTheStream(t *testing.T) {
	var late yieldFunc
	s := startServer(t, config{backend: streamBackend(func(_ context.Context, yield yieldFunc) {
		late = yield
		yield(llm.TextChunk("a"), nil)
	})})
	s.chat(streamBody).checkText(t, "a")
	for range 3 {
		assert.False(t, late(llm.TextChunk("b"), nil))
	}
	assert.Equal(t, 1, strings.Count(s.log.String(), "after its stream had returned"))
}
