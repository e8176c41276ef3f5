package llmhttp_test

import (
	"context"
	"fmt"
	"net/http"
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

// checkShuttingDown checks that a reply refuses a request because of Shutdown.
func checkShuttingDown(t *testing.T, r reply) {
	t.Helper()
	assert.Equal(t, apiError{Message: shutdownMessage, Type: "server_error"}, r.checkError(t, 503))
	assert.Equal(t, "1", r.Header.Get("Retry-After"))
}

// done returns a context that is done.
func done(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

func TestShutdown_RefusesNewRequests(t *testing.T) {
	s := startServer(t, config{})
	assert.Equal(t, 200, s.chat(chatBody).StatusCode)
	s.shutdown()
	s.shutdown() // may be called again
	require.NoError(t, s.handler.Shutdown(done(t)), "nothing is left to wait for")
	checkShuttingDown(t, s.get(modelsPath))
	checkShuttingDown(t, s.get("/v1/nothing"))
}

func TestShutdown_WaitsForRequestsAndTheirRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		finish, record := make(chan struct{}), make(chan struct{})
		s := startPipeServer(t, config{
			usage: &usageLog{before: func(context.Context) error { <-record; return nil }},
			backend: streamBackend(func(_ context.Context, yield yieldFunc) {
				yield(llm.TextChunk("one "), nil)
				<-finish
				yield(llm.TextChunk("two"), nil)
			}),
		})
		stream := s.begin("POST", chatPath, streamBody)
		synctest.Wait()
		ended := make(chan error, 2)
		for range 2 {
			go func() { ended <- s.handler.Shutdown(t.Context()) }()
		}
		synctest.Wait()
		checkShuttingDown(t, s.get(modelsPath))
		close(finish)
		synctest.Wait()
		assert.Empty(t, ended, "the usage is not recorded yet")
		close(record)
		require.NoError(t, <-ended)
		require.NoError(t, <-ended)
		(<-stream).checkText(t, "one two")
		assert.Len(t, s.usage.records(), 1)
	})
}

// When Shutdown has returned, the Observer is no longer called, so that a host may close
// what it writes to.
func TestShutdown_WaitsForTheObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := false
		s := startPipeServer(t, config{
			opts: llmhttp.Options{Observe: func(ctx context.Context, _ *http.Request) (context.Context, llmhttp.Observation) {
				return ctx, llmhttp.Observation{Ended: func(*llmhttp.RequestSummary) { time.Sleep(time.Second); told = true }}
			}},
			backend: streamBackend(func(context.Context, yieldFunc) { time.Sleep(time.Second) }),
		})
		chat := s.begin("POST", chatPath, chatBody)
		synctest.Wait()
		s.shutdown()
		assert.True(t, told)
		<-chat
	})
}

// When its context is done, Shutdown ends the requests in progress.
func TestShutdown_ContextIsDone(t *testing.T) {
	for _, ignoresContext := range []bool{false, true} {
		t.Run(fmt.Sprintf("Backend ignores its context=%t", ignoresContext), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				free := sync.OnceFunc(func() { close(release) })
				t.Cleanup(free)
				s := startPipeServer(t, config{
					opts: llmhttp.Options{Bounds: llmhttp.Bounds{KeepAlive: -1}},
					backend: llmhttp.BackendFunc(func(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
						return func(yield func(*llm.ChatChunk, error) bool) {
							if req.Model == "speaks" && !yield(llm.TextChunk("one"), nil) {
								return
							}
							if ignoresContext {
								<-release
								return
							}
							<-ctx.Done()
							yield(nil, ctx.Err())
						}
					}),
				})
				whole := s.begin("POST", chatPath, chatBody)
				silent := s.begin("POST", chatPath, streamBody)
				stream := s.begin("POST", chatPath, strings.Replace(streamBody, "demo-chat", "speaks", 1))
				synctest.Wait()

				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				start := time.Now()
				require.ErrorIs(t, s.handler.Shutdown(ctx), context.DeadlineExceeded)
				assert.LessOrEqual(t, time.Since(start), time.Minute+time.Second, "Backends are given a second")
				checkShuttingDown(t, <-whole)
				checkShuttingDown(t, <-silent)
				free() // the stream's connection is cut when its Backend returns
				assert.Equal(t, shutdownMessage, (<-stream).checkCut(t).Message)

				s.waitForSummaries(3)
				for _, e := range s.summaries() {
					require.Error(t, e.Err)
				}
				assert.Len(t, s.usage.records(), 3)
				s.shutdown()
			})
		})
	}
}

// Shutdown ends a call of every operation, and what it used is recorded.
func TestShutdown_EveryOperation(t *testing.T) {
	for _, op := range testOperations {
		t.Run(string(op.name), func(t *testing.T) {
			called := make(chan struct{})
			s := startServer(t, config{backend: &stubBackend{call: func(ctx context.Context) error {
				close(called)
				<-ctx.Done()
				return ctx.Err()
			}}})
			ended := make(chan reply, 1)
			go func() { ended <- s.do("POST", op.path, op.body) }()
			<-called
			require.ErrorIs(t, s.handler.Shutdown(done(t)), context.Canceled)
			checkShuttingDown(t, <-ended)
			s.waitForSummaries(1)
			assert.Len(t, s.usage.records(), 1)
		})
	}
}

// Requests that have not reached the Backend get an error reply too.
func TestShutdown_BeforeTheBackend(t *testing.T) {
	for name, c := range map[string]config{
		"in the KeyStore": {keys: llmhttp.KeyStoreFunc(func(ctx context.Context, _ string) (*llmhttp.Key, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})},
		"in the Limiter": {keys: limitedKeys(llmhttp.Limits{Requests: llmhttp.PerMinute(9)}), opts: llmhttp.Options{
			Limiter: &stubLimiter{take: func(ctx context.Context, _ []llmhttp.BucketAmount) ([]llmhttp.BucketLevel, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}},
		}},
	} {
		for _, request := range [][3]string{{"GET", modelsPath, ""}, {"POST", chatPath, chatBody}} {
			t.Run(name+"/"+request[0], func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := startPipeServer(t, c)
					r := s.begin(request[0], request[1], request[2])
					synctest.Wait()
					require.ErrorIs(t, s.handler.Shutdown(done(t)), context.Canceled)
					checkShuttingDown(t, <-r)
				})
			})
		}
	}
	t.Run("while the body is read", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := startPipeServer(t, config{})
			c := s.send(strings.TrimSuffix(rawPost("HTTP/1.1", chatPath, chatBody), "}"))
			synctest.Wait()
			require.ErrorIs(t, s.handler.Shutdown(done(t)), context.Canceled)
			checkShuttingDown(t, parseReply(t, "POST", readAll(t, c)))
		})
	})
}

// When the context of Shutdown is done, a request whose key is being looked up is
// refused, even if the KeyStore ignores its context and the body never arrives.
func TestShutdown_InterruptsALookupAndASlowBody(t *testing.T) {
	for _, respects := range []bool{true, false} {
		t.Run(fmt.Sprintf("KeyStore respects its context=%t", respects), func(t *testing.T) {
			looking, found := make(chan struct{}), make(chan struct{})
			key := testKey()
			s := startServer(t, config{keys: llmhttp.KeyStoreFunc(func(ctx context.Context, _ string) (*llmhttp.Key, error) {
				close(looking)
				if respects {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				<-found
				return &key, nil
			})})
			c := s.send("POST " + chatPath + " HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + testSecret + "\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
			receive(t, "Lookup", looking)
			ended := make(chan error, 1)
			go func() { ended <- s.handler.Shutdown(done(t)) }()
			if !respects {
				require.ErrorIs(t, receive(t, "Shutdown", ended), context.Canceled)
				close(found)
			}
			checkShuttingDown(t, parseReply(t, "POST", readAll(t, c)))
			if respects {
				require.ErrorIs(t, receive(t, "Shutdown", ended), context.Canceled)
			}
			s.summary()
			require.NoError(t, s.handler.Shutdown(t.Context()))
		})
	}
}
