package llmhttp_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
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
	"github.com/llmhttp/llmhttp/llm"
)

// The headers keep proxies from buffering or changing a stream. Those that net/http sets
// itself are absent: ggml-org/llama.cpp#20872, LostRuins/koboldcpp#1168.
func TestReply_HeadersOfAStream(t *testing.T) {
	s := startServer(t, config{})
	r := s.chat(streamBody)
	assert.Equal(t, "text/event-stream; charset=utf-8", r.Header.Get("Content-Type"))
	assert.Equal(t, "no-cache, no-transform", r.Header.Get("Cache-Control"))
	assert.Equal(t, "no", r.Header.Get("X-Accel-Buffering"))
	assert.Equal(t, []string{"chunked"}, r.TransferEncoding)
	assert.Empty(t, r.Header.Get("Connection"))
	assert.Empty(t, r.Header.Get("Content-Length"))
	r.checkHeaders(t)
	raw := s.raw(rawPost("HTTP/1.1", chatPath, streamBody, "Connection: close"))
	assert.Equal(t, 1, strings.Count(raw, "Transfer-Encoding: chunked\r\n"))
}

// A countingWriter is a ResponseWriter that counts calls. It has no lock, so that the
// race detector reports concurrent calls.
type countingWriter struct {
	httptest.ResponseRecorder
	writes, flushes, unflushed int // unflushed is a number of bytes
}

func newCountingWriter() *countingWriter {
	return &countingWriter{ResponseRecorder: *httptest.NewRecorder()}
}

func (w *countingWriter) Write(p []byte) (int, error) {
	w.writes++
	w.unflushed += len(p)
	return w.ResponseRecorder.Write(p)
}

func (w *countingWriter) FlushError() error {
	w.flushes++
	w.unflushed = 0
	return nil
}

func TestReply_ErrorEventIsFlushedBeforeTheCut(t *testing.T) {
	w := newCountingWriter()
	h := llmhttp.NewHandler(failAfter(errCause, "a", "b", "c"), keysFor(testKey()), &llmhttp.Options{Logger: noLog})
	assert.True(t, serve(h, w, streamBody), "the connection is cut")
	assert.Zero(t, w.unflushed, "%s", w.Body)
	assert.Contains(t, w.Body.String(), `data: {"error":`)
	for _, piece := range []string{`"a"`, `"b"`, `"c"`} {
		assert.Contains(t, w.Body.String(), piece)
	}
}

// In a synctest bubble no time passes while the Backend runs, so that all chunks come at
// once even on a slow machine.
func TestReply_ChunksThatComeAtOnceShareWrites(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // else another goroutine may write between two chunks
	const chunks = 2000
	synctest.Test(t, func(t *testing.T) {
		w := newCountingWriter()
		var writesAfterFirst int
		b := streamBackend(func(_ context.Context, yield yieldFunc) {
			for i := range chunks {
				require.True(t, yield(llm.TextChunk("word "), nil))
				if i == 0 {
					writesAfterFirst = w.writes
				}
			}
		})
		serve(llmhttp.NewHandler(b, keysFor(testKey()), nil), w, chatParams{stream: true, usage: true}.body())
		r := checkStream(t, w.Body.String(), chatParams{usage: true})
		assert.Equal(t, strings.Repeat("word ", chunks), r.Choices[0].Content)
		assert.Equal(t, 1, writesAfterFirst, "the first chunk is written at once")
		assert.LessOrEqual(t, w.writes, chunks/10)
		assert.Equal(t, w.writes, w.flushes)
		assert.Zero(t, w.unflushed)
	})
}

func TestReply_ChunksThatComeOneByOneHaveAWriteEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCountingWriter()
		b := streamBackend(func(_ context.Context, yield yieldFunc) {
			for i := range 50 {
				time.Sleep(time.Millisecond)
				yield(llm.TextChunk("x"), nil)
				assert.Equal(t, i+1, w.writes)
				assert.Zero(t, w.unflushed)
			}
		})
		serve(llmhttp.NewHandler(b, keysFor(testKey()), nil), w, streamBody)
		assert.Equal(t, 51, w.writes, "50 chunks and the end")
	})
}

// Each chunk reaches the client before the Backend continues. In a bubble no time passes,
// so all chunks count as one burst, and a Handler that delayed a burst would fail. On a
// network they may count as one or not.
func TestReply_EachChunkReachesTheClient(t *testing.T) {
	const chunks = 100
	check := func(t *testing.T, start func(testing.TB, config) *testServer, http2 bool) {
		received := make(chan int, chunks)
		s := start(t, config{http2: http2, backend: streamBackend(func(ctx context.Context, yield yieldFunc) {
			for i := range chunks {
				if !yield(llm.TextChunk(fmt.Sprintf("<%d>", i)), nil) {
					return
				}
				select {
				case n := <-received:
					assert.Equal(t, i, n)
				case <-ctx.Done():
					return
				}
			}
		})})
		resp, err := s.open(t.Context(), "POST", chatPath, streamBody)
		require.NoError(t, err)
		in := bufio.NewReader(resp.Body)
		var read strings.Builder
		for i := range chunks {
			read.WriteString(readUntil(t, in, fmt.Sprintf("<%d>", i)))
			received <- i
		}
		r := readRest(resp, read.String(), in)
		require.NoError(t, r.err)
		checkStream(t, r.body, chatParams{})
	}
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("bubble/http2=%t", http2), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				check(t, startPipeServer, http2)
				assert.Zero(t, time.Since(start), "the Handler waited")
			})
		})
		t.Run(fmt.Sprintf("network/http2=%t", http2), func(t *testing.T) { check(t, startServer, http2) })
	}
}

func TestReply_ChunksAreNotDelayed(t *testing.T) {
	const pairs = 40
	pause := func(i int) time.Duration { return time.Duration(i) * time.Second / 2 }
	synctest.Test(t, func(t *testing.T) {
		s := startPipeServer(t, config{backend: streamBackend(func(_ context.Context, yield yieldFunc) {
			for i := range pairs {
				time.Sleep(pause(i))
				if !yield(llm.TextChunk("first"), nil) || !yield(llm.TextChunk(fmt.Sprintf("<%d>", i)), nil) {
					return
				}
			}
		})})
		start := time.Now()
		resp, err := s.open(t.Context(), "POST", chatPath, streamBody)
		require.NoError(t, err)
		defer resp.Body.Close()
		in := bufio.NewReader(resp.Body)
		var due time.Duration
		for i := range pairs {
			due += pause(i)
			readUntil(t, in, fmt.Sprintf("<%d>", i))
			require.Equal(t, due, time.Since(start), "chunk %d", i)
		}
	})
}

// Wrappers of a ResponseWriter.
type (
	plainWriter     struct{ w http.ResponseWriter } // has no other method
	unwrapWriter    struct{ http.ResponseWriter }   // has Unwrap, as current middleware
	nilUnwrapWriter struct{ plainWriter }           // has an Unwrap that returns nil
	flushWriter     struct {                        // has Flush, as old middleware
		http.ResponseWriter
		flushes *atomic.Int64
	}
)

func (w plainWriter) Header() http.Header             { return w.w.Header() }
func (w plainWriter) WriteHeader(status int)          { w.w.WriteHeader(status) }
func (w plainWriter) Write(p []byte) (int, error)     { return w.w.Write(p) }
func (w unwrapWriter) Unwrap() http.ResponseWriter    { return w.ResponseWriter }
func (w nilUnwrapWriter) Unwrap() http.ResponseWriter { return nil }
func (w flushWriter) Flush()                          { w.flushes.Add(1); w.ResponseWriter.(http.Flusher).Flush() }

// Streams work behind every wrapper, and without delay behind all that can flush:
// gastownhall/gascity#5700, durable-streams#252, foomo/keel#286.
func TestReply_WrappedWriters(t *testing.T) {
	var flushes atomic.Int64
	tests := []struct {
		name     string
		wrap     func(http.ResponseWriter) http.ResponseWriter
		canFlush bool
	}{
		{"Unwrap", func(w http.ResponseWriter) http.ResponseWriter { return unwrapWriter{unwrapWriter{w}} }, true},
		{"Flush", func(w http.ResponseWriter) http.ResponseWriter { return flushWriter{w, &flushes} }, true},
		{"nothing", func(w http.ResponseWriter) http.ResponseWriter { return plainWriter{w} }, false},
		{"Unwrap returns nil", func(w http.ResponseWriter) http.ResponseWriter { return nilUnwrapWriter{plainWriter{w}} }, false},
	}
	for _, tt := range tests {
		wrap := func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(tt.wrap(w), r) })
		}
		for _, http2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/http2=%t", tt.name, http2), func(t *testing.T) {
				checkNoLeaks(t)
				seen := make(chan struct{})
				s := startServer(t, config{http2: http2, wrap: wrap, backend: streamBackend(func(_ context.Context, yield yieldFunc) {
					if !yield(llm.TextChunk("one "), nil) {
						return
					}
					if tt.canFlush {
						receive(t, "the client to see the first chunk", seen)
					}
					yield(llm.TextChunk("two"), nil)
				})})
				resp, err := s.open(t.Context(), "POST", chatPath, streamBody)
				require.NoError(t, err)
				in := bufio.NewReader(resp.Body)
				var read string
				if tt.canFlush {
					read = readUntil(t, in, "one ")
					close(seen)
				}
				readRest(resp, read, in).checkText(t, "one two")
				s.chat("{").checkError(t, 400)
			})
		}
		t.Run(tt.name+"/failure", func(t *testing.T) {
			checkNoLeaks(t)
			s := startServer(t, config{wrap: wrap, backend: failAfter(errCause, "one")})
			resp, err := s.open(t.Context(), "POST", chatPath, streamBody)
			if err != nil {
				require.False(t, tt.canFlush, "without a flush the head was never sent")
				return
			}
			require.ErrorIs(t, readReply(resp).err, io.ErrUnexpectedEOF)
		})
	}
	assert.Positive(t, flushes.Load())
}

// A brokenFlusher is a ResponseWriter whose FlushError fails.
type brokenFlusher struct{ *httptest.ResponseRecorder }

func (w *brokenFlusher) FlushError() error { return errors.New("i/o timeout") }

func TestReply_FailedFlushMeansThatTheClientHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		yielded := 0
		s := newHandler(t, config{backend: streamBackend(func(_ context.Context, yield yieldFunc) {
			for ok := true; ok; yielded++ {
				time.Sleep(time.Millisecond)
				ok = yield(llm.TextChunk("."), nil)
			}
		})})
		assert.True(t, serve(s.handler, &brokenFlusher{httptest.NewRecorder()}, streamBody), "the connection is cut")
		assert.Less(t, yielded, 10)
		assert.ErrorIs(t, s.summary().Err, context.Canceled)
		s.record()
	})
}

// Streams that end in different ways leak nothing: BerriAI/litellm#12685,
// maximhq/bifrost#828, #6802.
func TestReply_ManyStreamsLeakNothing(t *testing.T) {
	checkNoLeaks(t)
	s := startServer(t, config{
		keys: limitedKeys(llmhttp.Limits{Concurrent: 1000}),
		backend: llmhttp.BackendFunc(func(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
			return func(yield func(*llm.ChatChunk, error) bool) {
				for range 5 {
					if !yield(llm.TextChunk("x"), nil) {
						return
					}
				}
				switch req.Model {
				case "panic":
					panic("boom")
				case "error":
					yield(nil, errCause)
				case "hang":
					<-ctx.Done()
				}
			}
		}),
	})
	const rounds = 50
	var wg sync.WaitGroup
	for range rounds {
		for _, model := range []string{"reply", "panic", "error", "hang"} {
			wg.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				resp, err := s.open(ctx, "POST", chatPath, strings.Replace(streamBody, "demo-chat", model, 1))
				if !assert.NoError(t, err) {
					return
				}
				defer resp.Body.Close()
				text := 0
				for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
					text += bytes.Count(lines.Bytes(), []byte("x"))
					if model == "hang" && text == 5 {
						cancel() // the client leaves
					}
				}
			})
		}
	}
	wg.Wait()
	const requests = 4 * rounds
	s.waitForSummaries(requests)
	s.shutdown()
	ids := map[string]bool{}
	for _, r := range s.usage.records() {
		ids[r.ID] = true
	}
	assert.Len(t, ids, requests)
	assert.Len(t, s.usage.records(), requests, "one record for each request: BerriAI/litellm#15740")
}

// When the Handler replies although the Backend has not returned, the client
// must not send its next request on the same connection: it would wait for the
// Backend.
func TestReply_ConnectionIsClosedWhileTheBackendRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		backend := streamBackend(func(context.Context, yieldFunc) { <-release })
		s := startPipeServer(t, config{backend: backend, opts: llmhttp.Options{Bounds: llmhttp.Bounds{Timeout: time.Minute}}})
		conn := s.send(rawPost("HTTP/1.1", chatPath, chatBody))
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		assert.Equal(t, 504, resp.StatusCode)
		assert.True(t, resp.Close, "the reply lets the client use the connection again")
		assert.Contains(t, readAll(t, resp.Body), "did not answer in time")
		close(release)
	})
}

// A stream through a ResponseWriter that cannot be flushed is logged as a warning, once.
func TestReply_WriterCannotFlush(t *testing.T) {
	s := startServer(t, config{backend: textBackend("a", "b", "c"), wrap: func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(plainWriter{w}, r) })
	}})
	s.chat(streamBody).checkText(t, "abc")
	s.summary()
	assert.Equal(t, 1, strings.Count(s.log.String(), "a stream is buffered"), "%s", s.log)
	s.chat(chatBody)
	assert.Equal(t, 1, strings.Count(s.log.String(), "WARN"), "a whole reply needs no flush")
}
