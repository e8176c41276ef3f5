package llmhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
)

const messageInternal = "The server had an error while processing your request. Sorry about that!"

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

func (l *scriptedLimiter) Take(ctx context.Context, draws ...llmhttp.Draw) ([]llmhttp.Level, error) {
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

func (l *scriptedLimiter) Adjust(ctx context.Context, draws ...llmhttp.Draw) error {
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
