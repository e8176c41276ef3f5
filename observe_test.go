package llmhttp_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

func TestObserver_SeesEachRequestOnce(t *testing.T) {
	type summary struct {
		status   int
		failed   bool
		streamed bool
		chunks   int
		endpoint llmhttp.Scope
		key      string
		model    string
	}
	panics := streamBackend(func(_ context.Context, yield yieldFunc) {
		_ = yield(llm.TextChunk("a"), nil) && yield(llm.TextChunk("b"), nil)
		panic("boom")
	})
	tests := []struct {
		name               string
		method, path, body string
		options            []requestOption
		backend            llmhttp.Backend
		want               summary
	}{
		{"whole", "POST", chatPath, chatBody, nil, textBackend("a", "b"), summary{200, false, false, 2, "chat", "key_1", "demo-chat"}},
		{"stream", "POST", chatPath, streamBody, nil, textBackend("a", "b"), summary{200, false, true, 2, "chat", "key_1", "demo-chat"}},
		{"panic in a stream", "POST", chatPath, streamBody, nil, panics, summary{200, true, true, 2, "chat", "key_1", "demo-chat"}},
		{"panic", "POST", chatPath, chatBody, nil, panics, summary{500, true, false, 2, "chat", "key_1", "demo-chat"}},
		{"error", "POST", chatPath, streamBody, nil, failingBackend(errCause), summary{500, true, true, 0, "chat", "key_1", "demo-chat"}},
		{"bad request", "POST", chatPath, "{", nil, nil, summary{400, true, false, 0, "chat", "key_1", ""}},
		{"no key", "POST", chatPath, chatBody, []requestOption{withoutKey}, nil, summary{401, true, false, 0, "", "", ""}},
		{"unknown URL", "GET", "/v1/x", "", nil, nil, summary{404, true, false, 0, "", "", ""}},
		{"models", "GET", modelsPath, "", nil, nil, summary{200, false, false, 0, "models", "key_1", ""}},
		{"usage", "GET", usagePath, "", nil, nil, summary{200, false, false, 0, "usage", "key_1", ""}},
		{"images", "POST", imagesPath, `{"model":"m","prompt":"p","n":2}`, nil, nil, summary{200, false, false, 0, "images", "key_1", "m"}},
		{"embeddings", "POST", embeddingsPath, `{"model":"m","input":"p"}`, nil, nil, summary{200, false, false, 0, "embeddings", "key_1", "m"}},
		{"speech", "POST", speechPath, `{"model":"m","input":"p","voice":"v"}`, nil, nil, summary{200, false, true, 2, "speech", "key_1", "m"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
			s := startServer(t, config{backend: tt.backend, opts: llmhttp.Options{Now: func() time.Time { return now }}})
			r := s.do(tt.method, tt.path, tt.body, tt.options...)
			e := s.summary()
			assert.Equal(t, tt.want, summary{e.Status, e.Err != nil, e.Streamed, e.Chunks, e.Scope, e.Record.KeyID, e.Record.Model})
			assert.Equal(t, r.Header.Get("X-Request-Id"), e.Record.ID)
			assert.Equal(t, now, e.Record.Time)
			assert.Positive(t, e.Duration)
			assert.Equal(t, e.Chunks > 0, e.FirstChunk > 0)
			assert.LessOrEqual(t, e.FirstChunk, e.Duration)
			switch e.Scope {
			case llmhttp.ScopeImages:
				assert.EqualValues(t, 2, e.Record.Units.Images)
			case llmhttp.ScopeModels, llmhttp.ScopeUsage:
				assert.False(t, e.Record.Estimated, "nothing was used, so nothing is estimated")
			case llmhttp.ScopeChat:
				if e.Chunks > 0 {
					assert.True(t, e.Record.Estimated)
					assert.Equal(t, s.record(), e.Record)
				}
			}
			assert.Equal(t, 1, s.observer.begun)
		})
	}
}

func TestObserver_EndPanics(t *testing.T) {
	s := startServer(t, config{opts: llmhttp.Options{Observe: func(ctx context.Context, _ *http.Request) (context.Context, llmhttp.Observation) {
		return ctx, llmhttp.Observation{Ended: func(*llmhttp.RequestSummary) { panic(secretCause) }}
	}}})
	for _, body := range chatModes {
		r := s.chat(body)
		require.NoError(t, r.err)
		assert.Equal(t, 200, r.StatusCode)
	}
	s.shutdown()
	assert.GreaterOrEqual(t, strings.Count(s.log.String(), secretCause), 2)
}

func TestObserver_MayReturnNil(t *testing.T) {
	h := llmhttp.NewHandler(new(stubBackend), keysFor(testKey()), &llmhttp.Options{
		Logger: noLog,
		Observe: func(context.Context, *http.Request) (context.Context, llmhttp.Observation) {
			return nil, llmhttp.Observation{}
		},
	})
	w := httptest.NewRecorder()
	serve(h, w, chatBody)
	assert.Equal(t, 200, w.Code)
}

// A contextLimiter is a Limiter that calls see with the context of each call.
type contextLimiter struct {
	stubLimiter
	see func(context.Context)
}

func (l *contextLimiter) Take(ctx context.Context, draws ...llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) {
	l.see(ctx)
	return l.stubLimiter.Take(ctx, draws...)
}

func (l *contextLimiter) Adjust(ctx context.Context, draws ...llmhttp.BucketAmount) error {
	l.see(ctx)
	return l.stubLimiter.Adjust(ctx, draws...)
}

// What an Observer puts into the context reaches the KeyStore, the Limiter, the Backend
// and the UsageStore.
func TestObserver_ContextReachesAllParts(t *testing.T) {
	type contextKey struct{}
	var got []any
	see := func(ctx context.Context) { got = append(got, ctx.Value(contextKey{})) }
	key := testKey()
	key.Limits.Tokens = llmhttp.PerMinute(100)
	s := startServer(t, config{
		usage: &usageLog{before: func(ctx context.Context) error { see(ctx); return nil }},
		keys: llmhttp.KeyStoreFunc(func(ctx context.Context, _ string) (*llmhttp.Key, error) {
			see(ctx)
			assert.Nil(t, llmhttp.KeyFrom(ctx))
			return &key, nil
		}),
		backend: streamBackend(func(ctx context.Context, yield yieldFunc) {
			see(ctx)
			assert.Equal(t, "key_1", llmhttp.KeyFrom(ctx).ID)
			yield(llm.TextChunk(llmhttp.RequestIDFrom(ctx)), nil)
		}),
		opts: llmhttp.Options{
			Limiter: &contextLimiter{see: see},
			Observe: func(ctx context.Context, _ *http.Request) (context.Context, llmhttp.Observation) {
				assert.NotEmpty(t, llmhttp.RequestIDFrom(ctx))
				return context.WithValue(ctx, contextKey{}, "value"), llmhttp.Observation{}
			},
		},
	})
	r := s.chat(chatBody)
	require.Equal(t, 200, r.StatusCode)
	assert.Contains(t, r.body, r.Header.Get("X-Request-Id"))
	assert.Equal(t, []any{"value", "value", "value", "value", "value"}, got, "Lookup, Take, Chat, Adjust, Record")
}

// Observers calls the functions of all Observers: those for a beginning in order, those
// for an end in reverse, and each even if another panics.
func TestObservers_CallsAllFunctions(t *testing.T) {
	var calls []string
	observer := func(name string) llmhttp.Observer {
		type contextKey string
		see := func(ctx context.Context, call string) context.Context {
			calls = append(calls, call+" "+name)
			return context.WithValue(ctx, contextKey(call), name)
		}
		return func(ctx context.Context, _ *http.Request) (context.Context, llmhttp.Observation) {
			return see(ctx, "begin"), llmhttp.Observation{
				Started: func(ctx context.Context, _ *llmhttp.RequestInfo) context.Context { return see(ctx, "started") },
				Try: func(ctx context.Context, _ string) (context.Context, func(llmhttp.TargetTry)) {
					return see(ctx, "try"), func(llmhttp.TargetTry) { see(ctx, "tried") }
				},
				Transcript: func(*llmhttp.Transcript) { see(t.Context(), "transcript") },
				Ended: func(*llmhttp.RequestSummary) {
					see(t.Context(), "ended")
					panic(secretCause)
				},
			}
		}
	}
	silent := func(context.Context, *http.Request) (context.Context, llmhttp.Observation) {
		return nil, llmhttp.Observation{
			Started: func(context.Context, *llmhttp.RequestInfo) context.Context { return nil },
			Try:     func(context.Context, string) (context.Context, func(llmhttp.TargetTry)) { return nil, nil },
		}
	}
	s := startServer(t, config{
		opts: llmhttp.Options{Observe: llmhttp.Observers(observer("a"), nil, silent, observer("b"))},
		backend: streamBackend(func(ctx context.Context, yield yieldFunc) {
			_, end := llmhttp.StartTry(ctx, "target")
			yield(llm.TextChunk("a"), nil)
			end(nil)
			end(errCause) // has no effect
		}),
	})
	s.chat(chatBody)
	s.shutdown()
	assert.Equal(t, []string{"begin a", "begin b", "started a", "started b", "try a", "try b", "tried b", "tried a",
		"transcript b", "transcript a", "ended b", "ended a"}, calls)
	assert.Nil(t, s.summary().Tries[0].Err)
}

// If an Observer panics as a request begins, those before it learn of its end, and those
// after it never of the request.
func TestObservers_OnePanics(t *testing.T) {
	for name, compose := range map[string]func(obs ...llmhttp.Observer) llmhttp.Observer{
		"flat": llmhttp.Observers,
		"nested": func(obs ...llmhttp.Observer) llmhttp.Observer {
			return llmhttp.Observers(obs[0], llmhttp.Observers(llmhttp.Observers(obs[1:3]...), obs[3]), nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var calls []string
			observer := func(name string) llmhttp.Observer {
				return func(context.Context, *http.Request) (context.Context, llmhttp.Observation) {
					calls = append(calls, "begin "+name)
					return nil, llmhttp.Observation{Ended: func(s *llmhttp.RequestSummary) {
						calls = append(calls, fmt.Sprint("ended ", name, " ", s.Status, " ", s.ErrorClass))
					}}
				}
			}
			broken := func(context.Context, *http.Request) (context.Context, llmhttp.Observation) { panic(secretCause) }
			s := startServer(t, config{opts: llmhttp.Options{Observe: compose(observer("a"), observer("b"), broken, observer("c"))}})
			s.chat(chatBody).checkError(t, 500)
			s.summary() // goes to the server's own Observer, which is the first
			assert.Equal(t, []string{"begin a", "begin b", "ended b 500 internal", "ended a 500 internal"}, calls)
		})
	}
}

// If a Backend fails with a nil *Error, RequestSummary.Err has no *Error that errors.As
// can find.
func TestObserver_NilErrorOfTheBackend(t *testing.T) {
	var nilError *llm.Error
	for _, err := range []error{nilError, fmt.Errorf("wrapped: %w", nilError)} {
		var summary *llmhttp.RequestSummary
		h := llmhttp.NewHandler(failingBackend(err), llmhttp.AllowAll("a"), &llmhttp.Options{
			Logger: slog.New(slog.DiscardHandler),
			Observe: func(context.Context, *http.Request) (context.Context, llmhttp.Observation) {
				return nil, llmhttp.Observation{Ended: func(s *llmhttp.RequestSummary) { summary = s }}
			},
		})
		r := httptest.NewRequest("POST", chatPath, strings.NewReader(chatBody))
		r.Header.Set("Content-Type", "application/json")
		h.ServeHTTP(httptest.NewRecorder(), r)
		require.Error(t, summary.Err)
		_, ok := errors.AsType[*llm.Error](summary.Err)
		assert.False(t, ok)
	}
}

// Tries are reported with their time and error, in the order in which they began.
func TestStartTry(t *testing.T) {
	ownError := &llm.Error{Status: 502, Message: "no " + testSecret}
	for mode, body := range chatModes {
		t.Run(mode, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := startPipeServer(t, config{backend: streamBackend(func(ctx context.Context, yield yieldFunc) {
					for i, err := range []error{ownError, llm.Errorf(400, "", "x"), context.DeadlineExceeded, nil} {
						time.Sleep(time.Second)
						tryCtx, end := llmhttp.StartTry(ctx, string(rune('a'+i)))
						assert.Equal(t, ctx, tryCtx)
						time.Sleep(2 * time.Second)
						end(err)
					}
					var wg sync.WaitGroup
					wg.Go(func() { llmhttp.StartTry(context.WithoutCancel(ctx), "does not end") })
					wg.Wait()
					time.Sleep(3 * time.Second)
					yield(llm.TextChunk("a"), nil)
				})})
				s.chat(body)
				e := s.summary()
				require.Len(t, e.Tries, 5)
				for i, want := range []struct {
					class    llmhttp.ErrorClass
					duration time.Duration
				}{{llmhttp.ClassBackend, 2}, {llmhttp.ClassInvalidRequest, 2}, {llmhttp.ClassTimeout, 2}, {"", 2}, {"", 3}} {
					got := e.Tries[i]
					assert.Equal(t, want.class, got.ErrorClass)
					assert.Equal(t, want.class != "", got.Err != nil)
					assert.Equal(t, want.duration*time.Second, got.Duration)
					assert.NotContains(t, fmt.Sprint(got.Err), testSecret)
					if i < 4 {
						assert.Equal(t, time.Duration(i*3+1)*time.Second, got.Start)
					}
				}
				assert.Equal(t, "does not end", e.Record.Target)
			})
		})
	}
	t.Run("many", func(t *testing.T) {
		s := startServer(t, config{backend: streamBackend(func(ctx context.Context, yield yieldFunc) {
			for range 200 {
				_, end := llmhttp.StartTry(ctx, "a")
				end(nil)
			}
		})})
		s.chat(chatBody)
		assert.Len(t, s.summary().Tries, 100)
	})
	t.Run("an error whose Unwrap panics", func(t *testing.T) {
		s := startServer(t, config{backend: streamBackend(func(ctx context.Context, yield yieldFunc) {
			var wg sync.WaitGroup
			wg.Go(func() { // on which a panic would end the process
				_, end := llmhttp.StartTry(ctx, "a")
				end(unwrapPanics{})
			})
			wg.Wait()
			yield(llm.TextChunk("a"), nil)
		})})
		assert.Equal(t, 200, s.chat(chatBody).StatusCode)
		try := s.summary().Tries[0]
		assert.Equal(t, llmhttp.ClassBackend, try.ErrorClass)
		assert.Error(t, try.Err)
	})
	t.Run("no Observer", func(t *testing.T) {
		h := llmhttp.NewHandler(streamBackend(func(ctx context.Context, yield yieldFunc) {
			got, end := llmhttp.StartTry(ctx, "a")
			assert.Equal(t, ctx, got)
			end(nil)
		}), keysFor(testKey()), &llmhttp.Options{Logger: noLog})
		llmhttp.StartTry(t.Context(), "outside of a request")
		assert.False(t, serve(h, httptest.NewRecorder(), chatBody))
	})
}

// An Observer may use the context that it got on other goroutines, while the Handler replaces it
// by the one that the Observer returns (run with the race detector).
func TestObserve_ContextIsUsedOnOtherGoroutines(t *testing.T) {
	type key struct{}
	var using sync.WaitGroup
	s := startServer(t, config{opts: llmhttp.Options{Observe: func(ctx context.Context, _ *http.Request) (context.Context, llmhttp.Observation) {
		using.Go(func() {
			for range 100 {
				llmhttp.LogBackendMistake(ctx, "used", errors.New("by an Observer"))
				llm.ClientLeft(ctx)
				runtime.Gosched()
			}
		})
		return context.WithValue(ctx, key{}, "v"), llmhttp.Observation{}
	}}})
	for range 5 {
		assert.Equal(t, 200, s.do("GET", "/v1/models", "").StatusCode)
	}
	using.Wait()
}
