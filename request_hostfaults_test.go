package llmhttp_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

// An unwrapPanics is an error whose Unwrap method panics.
type unwrapPanics struct{}

func (unwrapPanics) Error() string { return secretCause }
func (unwrapPanics) Unwrap() error { panic("Unwrap panics") }

// hostFaults are the ways in which a function of the host can fail.
var hostFaults = map[string]func() error{
	"error":          func() error { return errCause },
	"nil *Error":     func() error { return (*llm.Error)(nil) },
	"Error panics":   func() error { return panickyError{} },
	"Unwrap panics":  func() error { return unwrapPanics{} },
	"panic":          func() error { panic(secretCause) },
	"runtime.Goexit": func() error { runtime.Goexit(); return nil },
}

// TestRequest_HostFunctionFails lets each function of the host fail in each of the ways
// of hostFaults. The client gets a reply, the failure is logged, the Observer gets the
// end of the request, the request is no longer in progress, and Shutdown returns.
func TestRequest_HostFunctionFails(t *testing.T) {
	limits := limitedKeys(llmhttp.Limits{Requests: noRefill(100), Tokens: noRefill(1 << 20), Concurrent: 1})
	acquire := func(context.Context, ...llmhttp.SlotAmount) (func(), int, error) { return func() {}, 0, nil }
	steps := map[string]func(fault func() error) config{
		"Lookup": func(fault func() error) config {
			return config{keys: llmhttp.KeyStoreFunc(func(context.Context, string) (*llmhttp.Key, error) { return nil, fault() })}
		},
		"Take": func(fault func() error) config {
			return config{keys: limits, opts: llmhttp.Options{Limiter: &stubLimiter{take: func(context.Context, []llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) { return nil, fault() }}}}
		},
		"Adjust": func(fault func() error) config {
			return config{keys: limits, opts: llmhttp.Options{Limiter: &stubLimiter{adjust: func(context.Context) error { return fault() }}}}
		},
		"Acquire": func(fault func() error) config {
			return config{keys: limits, opts: llmhttp.Options{Limiter: &stubConcurrencyLimiter{
				acquire: func(context.Context, ...llmhttp.SlotAmount) (func(), int, error) { return nil, 0, fault() }}}}
		},
		"release": func(fault func() error) config {
			return config{keys: limits, opts: llmhttp.Options{Limiter: &stubConcurrencyLimiter{
				acquire: func(context.Context, ...llmhttp.SlotAmount) (func(), int, error) {
					return func() {
						if err := fault(); err != nil {
							panic(err) // release has no result
						}
					}, 0, nil
				}}}}
		},
		"Record": func(fault func() error) config {
			return config{keys: limits, usage: &usageLog{before: func(context.Context) error { return fault() }}, opts: llmhttp.Options{Limiter: &stubConcurrencyLimiter{acquire: acquire}}}
		},
		"Backend": func(fault func() error) config {
			return config{keys: limits, backend: streamBackend(func(_ context.Context, yield yieldFunc) { yield(nil, fault()) })}
		},
		"CountTokens": func(fault func() error) config {
			return config{keys: limits, opts: llmhttp.Options{Estimates: llmhttp.TokenEstimates{TextTokens: func(string, string) int {
				if err := fault(); err != nil {
					panic(err)
				}
				return 1
			}}}}
		},
		"RequestID": func(fault func() error) config {
			return config{keys: limits, opts: llmhttp.Options{RequestID: func(*http.Request) string {
				if err := fault(); err != nil {
					panic(err)
				}
				return ""
			}}}
		},
	}
	for step, newConfig := range steps {
		for name, fault := range hostFaults {
			t.Run(step+"/"+name, func(t *testing.T) {
				checkNoLeaks(t)
				c := newConfig(fault)
				s := startServer(t, c)
				for _, body := range []string{chatBody, chatBody, streamBody, "{"} {
					r := s.chat(body)
					assert.NotContains(t, r.body, secretCause)
					assert.NotEqual(t, 429, r.StatusCode, "the request before is still in progress")
					if r.StatusCode != 200 {
						r.checkError(t, r.StatusCode)
					}
				}
				if step != "RequestID" { // which is called before the Observer
					s.waitForSummaries(4)
				}
				assert.Contains(t, s.log.String(), `"level":"ERROR"`)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				require.NoError(t, s.handler.Shutdown(ctx))
			})
		}
	}
}

func (recordFunc) Query(context.Context, llmhttp.UsageQuery) ([]llmhttp.UsageSum, error) {
	return nil, nil
}

// A panickyWriter is a ResponseWriter whose Write panics while broken is true.
type panickyWriter struct {
	http.ResponseWriter
	broken *atomic.Bool
}

func (w panickyWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w panickyWriter) Write(p []byte) (int, error) {
	if w.broken.Load() {
		panic(secretCause)
	}
	return w.ResponseWriter.Write(p)
}

// A ResponseWriter that panics outside of ServeHTTP, in a keep-alive, a timeout or
// Shutdown, ends its request but not the process.
func TestRequest_WriterPanics(t *testing.T) {
	for name, write := range map[string]func(t *testing.T, s *testServer){
		"keep-alive": func(*testing.T, *testServer) { time.Sleep(15 * time.Second) },
		"timeout":    func(*testing.T, *testServer) { time.Sleep(5 * time.Minute) },
		"Shutdown": func(t *testing.T, s *testServer) {
			require.ErrorIs(t, s.handler.Shutdown(done(t)), context.Canceled)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				keepAlive := time.Duration(-1)
				if name == "keep-alive" {
					keepAlive = 15 * time.Second
				}
				var broken atomic.Bool
				s := startPipeServer(t, config{
					wrap: func(h http.Handler) http.Handler {
						return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(panickyWriter{w, &broken}, r) })
					},
					backend: streamBackend(func(ctx context.Context, yield yieldFunc) {
						yield(llm.TextChunk("Hello"), nil)
						<-ctx.Done()
					}),
					opts: llmhttp.Options{Bounds: llmhttp.Bounds{KeepAlive: keepAlive}},
				})
				stream := s.begin("POST", chatPath, streamBody)
				synctest.Wait()
				broken.Store(true)
				write(t, s)
				assert.Error(t, (<-stream).err, "the connection is cut")
				assert.Contains(t, s.log.String(), secretCause)
				assert.Equal(t, 1, s.summary().Chunks)
				s.record()
			})
		})
	}
}

// A panickyError is an error whose Error method panics.
type panickyError struct{}

// A func in Options that panics fails its own request with status 500, and no other
// request.
func TestRequest_OptionPanics(t *testing.T) {
	for name, opts := range map[string]llmhttp.Options{
		"RequestID": {RequestID: func(*http.Request) string { panic(secretCause) }},
		"Now":       {Now: func() time.Time { panic(secretCause) }},
		"Observe": {Observe: func(context.Context, *http.Request) (context.Context, llmhttp.Observation) {
			panic(secretCause)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t, config{opts: opts})
			s.chat(chatBody).checkError(t, 500)
			s.shutdown()
		})
	}
}

// If a function of the host calls runtime.Goexit, the client still gets a reply, and
// Shutdown returns.
func TestRequest_HostCallsGoexit(t *testing.T) {
	goexit := func() { runtime.Goexit() }
	for name, c := range map[string]config{
		"KeyStore": {keys: llmhttp.KeyStoreFunc(func(context.Context, string) (*llmhttp.Key, error) { goexit(); return nil, nil })},
		"Backend":  {backend: streamBackend(func(context.Context, yieldFunc) { goexit() })},
		"Limiter": {keys: limitedKeys(llmhttp.Limits{Requests: noRefill(9), Concurrent: 1}), opts: llmhttp.Options{
			Limiter: &stubLimiter{take: func(context.Context, []llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) {
				goexit()
				return nil, nil
			}}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t, c)
			for range 2 {
				s.chat(chatBody).checkError(t, 500)
			}
			s.waitForSummaries(2)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			require.NoError(t, s.handler.Shutdown(ctx))
		})
	}
}

// A slog.Handler that panics neither ends the process nor prevents the reply, on any
// goroutine.
func TestRequest_LogHandlerPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := streamBackend(func(ctx context.Context, _ yieldFunc) { <-ctx.Done() })
		s := startPipeServer(t, config{backend: backend, opts: llmhttp.Options{Bounds: llmhttp.Bounds{Timeout: time.Minute}, Logger: slog.New(panickingHandler{})}})
		s.chat(chatBody).checkError(t, 504) // from the goroutine of the idle timer
		s.chat("{").checkError(t, 400)
	})
}

type panickingHandler struct{ slog.Handler }

// A panickyEncoder panics in one of its methods.
type panickyEncoder struct {
	*plainEncoder
	in string
}

func (e panickyEncoder) panicIn(method string) {
	if e.in == method {
		panic(secretCause)
	}
}

func (e panickyEncoder) Framing() llmhttp.Framing {
	e.panicIn("Framing")
	return e.plainEncoder.Framing()
}

func (e panickyEncoder) AppendStart(b []byte, s *llmhttp.ReplyStart) []byte {
	e.panicIn("AppendStart")
	return e.plainEncoder.AppendStart(b, s)
}

func (e panickyEncoder) AppendChunk(b []byte, c *llm.ChatChunk) ([]byte, error) {
	e.panicIn("AppendChunk")
	if c.Choices[0].FinishReason != "" {
		e.panicIn("AppendChunk at the end")
	}
	return e.plainEncoder.AppendChunk(b, c)
}

func (e panickyEncoder) AppendEnd(b []byte, u *llm.Usage, extra llm.Extra) ([]byte, error) {
	e.panicIn("AppendEnd")
	return e.plainEncoder.AppendEnd(b, u, extra)
}

func (e panickyEncoder) SaveReply(*llm.Usage, llm.Extra) func(context.Context) error {
	e.panicIn("SaveReply")
	if e.in == "SaveFailed" {
		return func(context.Context) error { return errCause }
	}
	return nil
}

func (e panickyEncoder) SaveFailed(error) error {
	e.panicIn("SaveFailed")
	return nil
}

type panickyProtocol struct {
	plainProtocol
	in string
}

func (p panickyProtocol) Routes() []llmhttp.Route {
	return []llmhttp.Route{{Pattern: "POST /plain", Bind: llmhttp.BindChat(p.decode)}}
}

func (p panickyProtocol) decode(ctx context.Context, r *http.Request, body []byte) (*llm.ChatRequest, llmhttp.ChatEncoder, error) {
	req, encoder, err := p.plainProtocol.decode(ctx, r, body)
	if err != nil {
		return nil, nil, err
	}
	return req, panickyEncoder{encoder.(*plainEncoder), p.in}, nil
}

// An encoder that panics fails its request, and does not keep its locks.
func TestRequest_EncoderPanics(t *testing.T) {
	for method, streams := range map[string][]bool{
		"Framing": {false, true}, "AppendStart": {false, true}, "AppendChunk": {false, true}, "AppendChunk at the end": {false, true},
		"AppendEnd": {false, true}, "SaveReply": {false, true}, "SaveFailed": {false, true},
	} {
		for _, stream := range streams {
			t.Run(fmt.Sprintf("%s, stream %t", method, stream), func(t *testing.T) {
				s := startServer(t, config{backend: textBackend("Hello"), opts: llmhttp.Options{Protocols: []llmhttp.Protocol{panickyProtocol{in: method}}}})
				r := s.do("POST", "/plain", fmt.Sprintf(`{"model":"m","text":"Hi","stream":%t}`, stream), withoutKey, withPlainKey)
				assert.NotContains(t, r.body, secretCause)
				assert.Contains(t, r.body, "failed")
				assert.Contains(t, s.log.String(), secretCause)
			})
		}
	}
}
