package llmhttp_test

import (
	"context"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/all"
	"github.com/llmhttp/llmhttp/audio"
	"github.com/llmhttp/llmhttp/completion"
	"github.com/llmhttp/llmhttp/imageedit"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/moderation"
	"github.com/llmhttp/llmhttp/rerank"
)

// A pausingBackend yields the first piece of each stream, calls pause, and yields the rest unless
// that returns an error. Methods that return whole replies call pause before they return.
type pausingBackend struct {
	*stubBackend
	pause func(ctx context.Context) error
}

// pauseAfterFirst returns s with a pause after its first chunk.
func pauseAfterFirst[C any](ctx context.Context, pause func(context.Context) error, s func(func(*C, error) bool)) func(func(*C, error) bool) {
	return func(yield func(*C, error) bool) {
		first := true
		s(func(c *C, err error) bool {
			if !yield(c, err) {
				return false
			}
			if !first {
				return true
			}
			first = false
			if err := pause(ctx); err != nil {
				yield(nil, err)
				return false
			}
			return true
		})
	}
}

func (b pausingBackend) Chat(ctx context.Context, r *llm.ChatRequest) llm.ChatStream {
	return pauseAfterFirst(ctx, b.pause, streamOf(llm.TextChunk("Hello"), endOf("!")))
}

func (b pausingBackend) Complete(ctx context.Context, r *completion.Request) llm.ChatStream {
	return b.Chat(ctx, nil)
}

func endOf(text string) *llm.ChatChunk {
	c := llm.TextChunk(text)
	c.Choices[0].FinishReason = llm.FinishStop
	return c
}

func (b pausingBackend) StreamImages(ctx context.Context, r *llm.ImageRequest) llm.ImageStream {
	image := &llm.Image{Data: []byte(pngData)}
	return pauseAfterFirst(ctx, b.pause, drawing(&llm.ImageChunk{Image: image, Partial: true}, &llm.ImageChunk{Image: image}))
}

func (b pausingBackend) StreamImageEdits(ctx context.Context, r *imageedit.Request) llm.ImageStream {
	return b.StreamImages(ctx, &r.ImageRequest)
}

func (b pausingBackend) Speak(ctx context.Context, r *audio.SpeechRequest) audio.SpeechStream {
	return pauseAfterFirst(ctx, b.pause, speech("One, ", "two."))
}

func (b pausingBackend) Transcribe(ctx context.Context, r *audio.TranscriptionRequest) audio.TranscriptionStream {
	return pauseAfterFirst(ctx, b.pause, transcript(&audio.TranscriptionChunk{Text: "Hello"}, &audio.TranscriptionChunk{Text: "!"}))
}

// Own implements an endpoint of a host.
func (b pausingBackend) Own(ctx context.Context) func(func(*string, error) bool) {
	return pauseAfterFirst(ctx, b.pause, func(yield func(*string, error) bool) { _ = yield(new("One, "), nil) && yield(new("two."), nil) })
}

func (b *stubBackend) Own(ctx context.Context) func(func(*string, error) bool) {
	return func(yield func(*string, error) bool) {
		if err := b.called(ctx); err != nil {
			yield(nil, err)
			return
		}
		_ = yield(new("One, "), nil) && yield(new("two."), nil)
	}
}

type ownBackend interface {
	Own(ctx context.Context) func(func(*string, error) bool)
}

// ownRoute is an endpoint of a host whose reply is a stream, or whole if the body tells.
func ownRoute() llmhttp.Route {
	e := &llmhttp.Endpoint{Operation: "own", Scope: "own", Supported: llmhttp.Has[ownBackend], Output: llmhttp.OutputText}
	return llmhttp.NewRoute("POST /v1/own", e, func(c *llmhttp.Call) error {
		var req struct {
			Model string `json:"model"`
			Whole bool   `json:"whole"`
		}
		if err := c.Body(func(body []byte) error { return llmhttp.DecodeJSON(c.Context(), body, &req) }); err != nil {
			return err
		}
		if err := c.Reserve(llmhttp.Estimate{Model: req.Model, Tokens: func() int { return 8 }, Stream: !req.Whole}); err != nil {
			return err
		}
		if req.Whole {
			var text strings.Builder
			err := c.Ask(func(ctx context.Context, b llmhttp.Backend) (llmhttp.Used, error) {
				own, _ := llmhttp.As[ownBackend](ctx, b)
				for piece, err := range own.Own(ctx) {
					if err != nil {
						return llmhttp.Used{}, err
					}
					text.WriteString(*piece)
				}
				return llmhttp.Used{Usage: &llm.Usage{PromptTokens: 8, CompletionTokens: 2}, Size: text.Len()}, nil
			})
			if err != nil {
				return err
			}
			return c.Reply("text/plain", func(b []byte) ([]byte, error) { return append(b, text.String()...), nil })
		}
		s := c.Stream(llmhttp.Framing{ContentType: "text/plain"}, nil)
		err := c.Ask(func(ctx context.Context, b llmhttp.Backend) (llmhttp.Used, error) {
			own, _ := llmhttp.As[ownBackend](ctx, b)
			for piece, err := range own.Own(ctx) {
				if err != nil {
					return llmhttp.Used{}, err
				}
				p := llmhttp.Progress{Text: *piece, HasOutput: true, Size: len(*piece)}
				if err := s.Append(p, func(b []byte) ([]byte, error) { return append(b, *piece...), nil }); err != nil {
					return llmhttp.Used{}, err
				}
			}
			return llmhttp.Used{}, nil
		})
		if err != nil {
			return err
		}
		return s.End(func(b []byte) ([]byte, error) { return b, nil })
	})
}

// An outcomeOperation is an operation in one of the forms of its reply.
type outcomeOperation struct {
	name, path, body string
	streams          bool // the reply is sent in pieces
}

// outcomeOperations has each operation that calls a model, whole and as a stream.
func outcomeOperations() []outcomeOperation {
	ops := []outcomeOperation{{"own", "/v1/own", `{"model":"m","whole":true}`, false}, {"own stream", "/v1/own", `{"model":"m"}`, true}}
	for _, op := range testOperations {
		switch op.name {
		case audio.OperationSpeech:
			ops = append(ops, outcomeOperation{string(op.name), op.path, op.body, true})
		case llmhttp.OperationEmbeddings, rerank.Operation, moderation.Operation:
			ops = append(ops, outcomeOperation{string(op.name), op.path, op.body, false})
		default:
			ops = append(ops, outcomeOperation{string(op.name), op.path, op.body, false}, outcomeOperation{string(op.name) + " stream", op.path, op.with(`"stream":true`), true})
		}
	}
	return ops
}

// Whatever happens to a request of whatever operation, it is recorded once if the Backend was called,
// its limits are settled to what the record says, and its place is free for the next one.
func TestOutcomes(t *testing.T) {
	blocks := func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }
	const free, charged = 0, 1
	for _, tt := range []struct {
		name    string
		call    func(context.Context) error // of the Backend
		pause   func(context.Context) error // of a Backend that has yielded the first piece, of streams alone
		key     func(*llmhttp.Key)
		store   func(context.Context) error
		leave   bool // the client leaves when the Backend is called
		unread  bool // the client reads nothing
		stop    bool // Shutdown when the Backend is called
		status  int  // of the reply; zero for one that nobody gets
		class   llmhttp.ErrorClass
		records int
		used    int // free or charged
	}{
		{name: "success", status: 200, records: 1, used: charged},
		{name: "leaves after the last byte", leave: true, status: 200, records: 1, used: charged},
		{name: "refused", key: func(k *llmhttp.Key) { k.Models = []string{} }, status: 404, class: llmhttp.ClassNotFound},
		{name: "fails", call: func(context.Context) error { return errCause }, status: 500, class: llmhttp.ClassBackend, records: 1, used: free},
		{name: "panics", call: func(context.Context) error { panic(secretCause) }, status: 500, class: llmhttp.ClassBackend, records: 1, used: free},
		{name: "Goexit", call: func(context.Context) error { runtime.Goexit(); return nil }, status: 500, class: llmhttp.ClassBackend, records: 1, used: free},
		{name: "silent", call: blocks, status: 504, class: llmhttp.ClassTimeout, records: 1, used: free},
		{name: "client leaves before the first byte", call: blocks, leave: true, class: llmhttp.ClassCanceled, records: 1, used: charged},
		{name: "shutdown", call: blocks, stop: true, status: 503, class: llmhttp.ClassShutdown, records: 1, used: free},
		{name: "store fails", store: func(context.Context) error { return errCause }, status: 200, used: charged},
		{name: "fails within", pause: func(context.Context) error { return errCause }, status: 200, class: llmhttp.ClassBackend, records: 1, used: charged},
		{name: "panics within", pause: func(context.Context) error { panic(secretCause) }, status: 200, class: llmhttp.ClassBackend, records: 1, used: charged},
		{name: "Goexit within", pause: func(context.Context) error { runtime.Goexit(); return nil }, status: 200, class: llmhttp.ClassBackend, records: 1, used: charged},
		{name: "silent within", pause: blocks, status: 200, class: llmhttp.ClassTimeout, records: 1, used: charged},
		{name: "client leaves within", pause: blocks, leave: true, class: llmhttp.ClassCanceled, records: 1, used: charged},
		{name: "shutdown within", pause: blocks, stop: true, status: 200, class: llmhttp.ClassShutdown, records: 1, used: charged},
		{name: "slow reader", unread: true, class: llmhttp.ClassCanceled, records: 1, used: charged},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, op := range outcomeOperations() {
				if tt.pause != nil && !op.streams {
					continue
				}
				t.Run(op.name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						limiter := new(stubLimiter)
						called := make(chan struct{}, 9)
						stub := &stubBackend{call: func(ctx context.Context) error {
							called <- struct{}{}
							if tt.call == nil {
								return nil
							}
							return tt.call(ctx)
						}}
						var backend llmhttp.Backend = stub
						if tt.pause != nil {
							backend = pausingBackend{stub, func(ctx context.Context) error {
								called <- struct{}{}
								return tt.pause(ctx)
							}}
						}
						key := testKey()
						key.Limits = llmhttp.Limits{Tokens: llmhttp.PerMinute(1000), Concurrent: 1}
						if tt.key != nil {
							tt.key(&key)
						}
						s := startPipeServer(t, config{backend: backend, keys: keysFor(key), usage: &usageLog{before: tt.store}, opts: llmhttp.Options{
							Limiter: limiter, Bounds: llmhttp.Bounds{Timeout: time.Minute, KeepAlive: -1, WriteTimeout: 10 * time.Second}, Routes: append(all.Routes(nil), ownRoute()),
						}})
						ctx, leave := context.WithCancel(t.Context())
						defer leave()
						status := make(chan int, 1)
						go func() {
							if tt.unread {
								body, contentType := requestBody(t, op.path, op.body)
								s.send(strings.Replace(rawPost("HTTP/1.1", op.path, body), "application/json", contentType, 1))
								status <- 0
								return
							}
							resp, err := s.open(ctx, http.MethodPost, op.path, op.body)
							if err != nil {
								status <- 0
								return
							}
							_, _ = io.Copy(io.Discard, resp.Body)
							resp.Body.Close()
							status <- resp.StatusCode
						}()
						switch {
						case tt.leave && tt.call == nil && tt.pause == nil:
							synctest.Wait()
							leave()
						case tt.leave:
							<-called
							synctest.Wait()
							leave()
						case tt.stop:
							<-called
							synctest.Wait()
							require.ErrorIs(t, s.handler.Shutdown(done(t)), context.Canceled)
						}
						got := <-status
						if tt.status != 0 {
							assert.Equal(t, tt.status, got)
						}
						s.waitForSummaries(1)
						summary := s.summary()
						assert.Equal(t, tt.class, summary.ErrorClass, summary.Err)
						assert.Len(t, s.usage.records(), tt.records)
						for _, r := range s.usage.records() {
							want := tt.class
							if tt.unread && r.ErrorClass == "" {
								want = "" // the record was stored before the end of the reply
							}
							assert.Equal(t, want, r.ErrorClass, "of the record")
						}
						used := summary.Record.Units
						switch tt.used {
						case charged:
							assert.False(t, used.IsZero(), "nothing is charged")
						case free:
							assert.True(t, used.IsZero(), "%+v is charged", used)
						}
						assert.Equal(t, tt.store != nil, summary.RecordErr != nil)
						taken, adjusted := limiter.calls()
						var tokens int64
						for _, calls := range [][][]llmhttp.BucketAmount{taken, adjusted} {
							for _, draws := range calls {
								for _, d := range draws {
									if d.Bucket == llmhttp.BucketTokens {
										tokens += d.Amount
									}
								}
							}
						}
						assert.Equal(t, used.PromptTokens+used.CompletionTokens, tokens, "what the limits have is what the record says")
						if !tt.stop {
							stub.call = nil
							assert.NotEqual(t, http.StatusTooManyRequests, s.do(http.MethodPost, op.path, op.body).StatusCode, "the place is free")
						}
					})
				})
			}
		})
	}
}
