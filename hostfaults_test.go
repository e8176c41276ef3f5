package llmhttp_test

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
)

// An unwrapPanics is an error whose cause cannot be had.
type unwrapPanics struct{}

func (unwrapPanics) Error() string { return secretCause }
func (unwrapPanics) Unwrap() error { panic("Unwrap panics") }

// hostFaults are the ways in which a function of the host can fail.
var hostFaults = map[string]func() error{
	"error":          func() error { return errCause },
	"nil *Error":     func() error { return (*llmhttp.Error)(nil) },
	"Error panics":   func() error { return panickyError{} },
	"Unwrap panics":  func() error { return unwrapPanics{} },
	"panic":          func() error { panic(secretCause) },
	"runtime.Goexit": func() error { runtime.Goexit(); return nil },
}

// However a function of the host fails, at whichever step of a request: the client gets
// a reply, the failure is logged, the Observer sees the end, the request is no longer in
// progress, and Shutdown returns.
func TestRequest_EveryStepSurvivesFaultsOfTheHost(t *testing.T) {
	limits := limitedKeys(llmhttp.Limits{Requests: noRefill(100), Tokens: noRefill(1 << 20), Concurrent: 1})
	acquire := func(context.Context, string, int) (func(), error) { return func() {}, nil }
	steps := map[string]func(fault func() error) config{
		"Lookup": func(fault func() error) config {
			return config{keys: llmhttp.KeyFunc(func(context.Context, string) (*llmhttp.Key, error) { return nil, fault() })}
		},
		"Take": func(fault func() error) config {
			return config{keys: limits, opts: llmhttp.Options{Limiter: &stubLimiter{take: func(context.Context, []llmhttp.Draw) ([]llmhttp.Level, error) { return nil, fault() }}}}
		},
		"Adjust": func(fault func() error) config {
			return config{keys: limits, opts: llmhttp.Options{Limiter: &stubLimiter{adjust: func(context.Context) error { return fault() }}}}
		},
		"Acquire": func(fault func() error) config {
			return config{keys: limits, opts: llmhttp.Options{Limiter: &stubConcurrencyLimiter{
				acquire: func(context.Context, string, int) (func(), error) { return nil, fault() }}}}
		},
		"release": func(fault func() error) config {
			return config{keys: limits, opts: llmhttp.Options{Limiter: &stubConcurrencyLimiter{
				acquire: func(context.Context, string, int) (func(), error) {
					return func() {
						if err := fault(); err != nil {
							panic(err) // release has no result
						}
					}, nil
				}}}}
		},
		"Record": func(fault func() error) config {
			return config{keys: limits, usage: &usageLog{before: func(context.Context) error { return fault() }}, opts: llmhttp.Options{Limiter: &stubConcurrencyLimiter{acquire: acquire}}}
		},
		"Backend": func(fault func() error) config {
			return config{keys: limits, backend: streamBackend(func(_ context.Context, yield yieldFunc) { yield(nil, fault()) })}
		},
		"CountTokens": func(fault func() error) config {
			return config{keys: limits, opts: llmhttp.Options{CountTokens: func(string, string) int {
				if err := fault(); err != nil {
					panic(err)
				}
				return 1
			}}}
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

// Whatever a step of settling does, the others run: what the Limiter has taken is what
// is recorded, and the request is no longer in progress.
func TestAccount_EveryStepOfSettlingRuns(t *testing.T) {
	const reply = "one two three"
	for _, step := range []string{"CountTokens", "Adjust", "Record", "Cost", "release"} {
		for name, fault := range hostFaults {
			t.Run(step+"/"+name, func(t *testing.T) {
				at := func(current string) error {
					if current == step {
						return fault()
					}
					return nil
				}
				mustNotFail := func(current string) {
					if err := at(current); err != nil {
						panic(err)
					}
				}
				released := make(chan struct{})
				l := &stubConcurrencyLimiter{acquire: func(context.Context, string, int) (func(), error) {
					return func() { close(released); mustNotFail("release") }, nil
				}}
				l.adjust = func(context.Context) error { return at("Adjust") }
				var recorded []llmhttp.UsageRecord
				store := recordFunc(func(r llmhttp.UsageRecord) error { recorded = append(recorded, r); return at("Record") })
				s := startServer(t, config{
					backend: textBackend(reply),
					keys:    limitedKeys(llmhttp.Limits{Tokens: noRefill(10_000), Concurrent: 1, Quota: llmhttp.Quota{Cost: 1000}}),
					opts: llmhttp.Options{
						Limiter: l, Usage: store,
						CountTokens: func(model, text string) int {
							if text == reply {
								mustNotFail("CountTokens")
							}
							return countWords(model, text)
						},
						Cost: func(u llmhttp.UsageSum) float64 {
							if u.Start != (time.Time{}) { // of a record, not of a reservation
								mustNotFail("Cost")
							}
							return 1
						},
					},
				})
				s.chat(chatBody)
				s.shutdown()
				<-released
				require.Len(t, recorded, 1)
				taken, adjusted := l.calls()
				books := 0
				for _, call := range append(taken, adjusted...) {
					for _, draw := range call {
						books += draw.Cost
					}
				}
				assert.Equal(t, recorded[0].Usage.TotalTokens, books)
				assert.Contains(t, s.log.String(), `"level":"ERROR"`)
			})
		}
	}
}

// A recordFunc is a KeyUsageStore without sums.
type recordFunc func(llmhttp.UsageRecord) error

func (f recordFunc) Record(_ context.Context, records ...llmhttp.UsageRecord) error {
	return f(records[0])
}

func (recordFunc) Query(context.Context, llmhttp.UsageQuery) ([]llmhttp.UsageSum, error) {
	return nil, nil
}

func (recordFunc) QueryKey(context.Context, string, llmhttp.UsageQuery) ([]llmhttp.UsageSum, error) {
	return nil, nil
}

// A request for a model that does not exist uses nothing, even if its client leaves
// before it gets the reply.
func TestAccount_ClientLeavesBeforeA404(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	var l stubConcurrencyLimiter
	l.acquire = func(requestCtx context.Context, _ string, _ int) (func(), error) {
		return func() { leave(); <-requestCtx.Done() }, nil
	}
	s := startServer(t, config{
		backend: failingBackend(llmhttp.ModelNotFound("demo-chat")),
		keys:    limitedKeys(llmhttp.Limits{Tokens: noRefill(10_000), Concurrent: 1}),
		opts:    llmhttp.Options{Limiter: &l},
	})
	_, err := s.open(ctx, "POST", chatPath, chatBody)
	require.Error(t, err)
	assert.Equal(t, 499, s.summary().Status)
	assert.Empty(t, s.usage.records())
	taken, adjusted := l.calls()
	require.Len(t, adjusted, 1)
	assert.Equal(t, -taken[0][0].Cost, adjusted[0][0].Cost)
}

// A panickyWriter is a ResponseWriter of the host whose Write panics when it is broken.
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

// A ResponseWriter that panics on a goroutine of the Handler, that of keep-alives or of
// Shutdown, does not end the process. The request ends.
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
						yield(llmhttp.TextChunk("Hello"), nil)
						<-ctx.Done()
					}),
					opts: llmhttp.Options{KeepAlive: keepAlive},
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

// An error does not wait for its record.
func TestAccount_ErrorDoesNotWaitForTheUsageStore(t *testing.T) {
	for name, tt := range map[string]struct {
		backend llmhttp.Backend
		status  int
		waits   time.Duration
	}{
		"error":   {failingBackend(llmhttp.Errorf(422, "", "no")), 422, 0},
		"success": {textBackend("Hello!"), 200, 9 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := startPipeServer(t, config{
					backend: tt.backend,
					usage:   &usageLog{before: func(context.Context) error { time.Sleep(9 * time.Second); return nil }},
				})
				begin := time.Now()
				assert.Equal(t, tt.status, s.chat(chatBody).StatusCode)
				assert.Equal(t, tt.waits, time.Since(begin))
				s.record()
			})
		})
	}
}

// A prompt that no model has seen is not charged when its client leaves.
func TestAccount_NotSent(t *testing.T) {
	for name, tt := range map[string]struct {
		err    error
		prompt int
	}{
		"sent":     {errCause, 4},
		"not sent": {fmt.Errorf("no connection: %w", llmhttp.ErrNotSent), 0},
	} {
		t.Run(name, func(t *testing.T) {
			started := make(chan struct{})
			s := startServer(t, config{
				opts: llmhttp.Options{CountTokens: countWords},
				backend: streamBackend(func(ctx context.Context, yield yieldFunc) {
					close(started)
					<-ctx.Done()
					yield(nil, tt.err)
				}),
			})
			ctx, leave := context.WithCancel(t.Context())
			go func() { <-started; leave() }()
			_, err := s.open(ctx, "POST", chatPath, chatBody)
			require.Error(t, err)
			assert.Equal(t, tt.prompt, s.summary().Usage.PromptTokens)
			assert.Equal(t, tt.prompt, s.record().Usage.PromptTokens)
		})
	}
}
