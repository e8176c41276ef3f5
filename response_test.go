package llmhttp_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
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

// The headers keep proxies from buffering or changing a stream, and leave to net/http
// what it must set itself: ggml-org/llama.cpp#20872, LostRuins/koboldcpp#1168.
func TestResponse_HeadersOfAStream(t *testing.T) {
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

// A countingWriter is a ResponseWriter that counts calls. The race detector notices
// concurrent ones.
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

func TestResponse_ErrorEventIsFlushedBeforeTheCut(t *testing.T) {
	w := newCountingWriter()
	h := llmhttp.NewHandler(failAfter(errCause, "a", "b", "c"), keysFor(testKey()), &llmhttp.Options{Logger: noLog})
	assert.True(t, serve(h, w, streamBody), "the connection is cut")
	assert.Zero(t, w.unflushed, "%s", w.Body)
	assert.Contains(t, w.Body.String(), `data: {"error":`)
	for _, piece := range []string{`"a"`, `"b"`, `"c"`} {
		assert.Contains(t, w.Body.String(), piece)
	}
}

// The clock of a bubble stands still while the Backend works, so that all chunks come
// at once, however slow the machine is.
func TestResponse_ChunksThatComeAtOnceShareWrites(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // else another goroutine may write between two chunks
	const chunks = 2000
	synctest.Test(t, func(t *testing.T) {
		w := newCountingWriter()
		var writesAfterFirst int
		b := streamBackend(func(_ context.Context, yield yieldFunc) {
			for i := range chunks {
				require.True(t, yield(llmhttp.TextChunk("word "), nil))
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

func TestResponse_ChunksThatComeOneByOneHaveAWriteEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCountingWriter()
		b := streamBackend(func(_ context.Context, yield yieldFunc) {
			for i := range 50 {
				time.Sleep(time.Millisecond)
				yield(llmhttp.TextChunk("x"), nil)
				assert.Equal(t, i+1, w.writes)
				assert.Zero(t, w.unflushed)
			}
		})
		serve(llmhttp.NewHandler(b, keysFor(testKey()), nil), w, streamBody)
		assert.Equal(t, 51, w.writes, "50 chunks and the end")
	})
}

// Each chunk reaches the client before the Backend goes on. In a bubble, where no time
// passes, chunks always count as coming at once: a Handler that waited for more of
// them would be found out. On a network they may count so or not.
func TestResponse_EachChunkReachesTheClient(t *testing.T) {
	const chunks = 100
	check := func(t *testing.T, start func(testing.TB, config) *testServer, http2 bool) {
		received := make(chan int, chunks)
		s := start(t, config{http2: http2, backend: streamBackend(func(ctx context.Context, yield yieldFunc) {
			for i := range chunks {
				if !yield(llmhttp.TextChunk(fmt.Sprintf("<%d>", i)), nil) {
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

func TestResponse_ChunksAreNotDelayed(t *testing.T) {
	const pairs = 40
	pause := func(i int) time.Duration { return time.Duration(i) * time.Second / 2 }
	synctest.Test(t, func(t *testing.T) {
		s := startPipeServer(t, config{backend: streamBackend(func(_ context.Context, yield yieldFunc) {
			for i := range pairs {
				time.Sleep(pause(i))
				if !yield(llmhttp.TextChunk("first"), nil) || !yield(llmhttp.TextChunk(fmt.Sprintf("<%d>", i)), nil) {
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

// A WriteTimeout of the server does not cut replies that take longer:
// infiniflow/ragflow#15840, inference-gateway#427, stacklok/toolhive#3691.
func TestResponse_OutlastsTheServersWriteTimeout(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%t", http2), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := startPipeServer(t, config{
					http2:  http2,
					server: func(srv *http.Server) { srv.WriteTimeout = 25 * time.Second },
					backend: streamBackend(func(_ context.Context, yield yieldFunc) {
						for range 6 {
							time.Sleep(10 * time.Second)
							if !yield(llmhttp.TextChunk("."), nil) {
								return
							}
						}
					}),
				})
				s.chat(streamBody).checkText(t, "......")
				r := s.chat(chatBody)
				require.NoError(t, r.err)
				assert.Contains(t, r.body, "......")
				assert.Equal(t, 200, s.get(usagePath).StatusCode, "the connection goes on")
			})
		})
	}
	t.Run("error", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := startPipeServer(t, config{
				server: func(srv *http.Server) { srv.WriteTimeout = 25 * time.Second },
				backend: streamBackend(func(_ context.Context, yield yieldFunc) {
					time.Sleep(time.Minute)
					yield(nil, errCause)
				}),
			})
			s.chat(chatBody).checkError(t, 500)
		})
	})
}

// The server's ReadTimeout is for the request. A Backend may take longer.
func TestResponse_OutlastsTheServersReadTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startPipeServer(t, config{
			server: func(srv *http.Server) { srv.ReadTimeout = 5 * time.Second },
			backend: streamBackend(func(_ context.Context, yield yieldFunc) {
				time.Sleep(time.Minute)
				yield(llmhttp.TextChunk("late"), nil)
			}),
		})
		s.chat(streamBody).checkText(t, "late")
	})
}

// The largest durations mean forever, and do not overflow.
func TestResponse_TimeoutsMayBeTheLargestDuration(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%t", http2), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := startPipeServer(t, config{
					http2:  http2,
					opts:   llmhttp.Options{Timeout: math.MaxInt64, KeepAlive: math.MaxInt64, WriteTimeout: math.MaxInt64},
					server: func(srv *http.Server) { srv.WriteTimeout = time.Minute },
					backend: streamBackend(func(_ context.Context, yield yieldFunc) {
						if yield(llmhttp.TextChunk("one "), nil) {
							time.Sleep(24 * time.Hour)
							yield(llmhttp.TextChunk("two"), nil)
						}
					}),
				})
				r := s.chat(streamBody)
				r.checkText(t, "one two")
				assert.NotContains(t, r.body, "keep-alive")
				r = s.chat(chatBody)
				require.NoError(t, r.err)
				assert.Contains(t, r.body, "one two")
			})
		})
	}
}

// On HTTP/2 a write deadline that passes ends the stream, even while nothing is being
// written. So none may be left behind after a write.
func TestResponse_HTTP2StreamOutlastsItsWriteDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startPipeServer(t, config{
			http2: true,
			opts:  llmhttp.Options{WriteTimeout: time.Second, KeepAlive: -1},
			backend: streamBackend(func(_ context.Context, yield yieldFunc) {
				if yield(llmhttp.TextChunk("one "), nil) {
					time.Sleep(time.Minute)
					yield(llmhttp.TextChunk("two"), nil)
				}
			}),
		})
		s.chat(streamBody).checkText(t, "one two")
	})
}

// sendUntilClosed sends a request again and again, without reading, until the server
// closes the connection.
func sendUntilClosed(t *testing.T, c net.Conn, request string) {
	t.Helper()
	require.NoError(t, c.SetDeadline(time.Now().Add(time.Hour)))
	var err error
	for err == nil {
		_, err = io.WriteString(c, request)
	}
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the server did not close the connection")
}

// A client that sends request after request and reads no more replies is given up.
func TestResponse_PipelinedRequestsWithoutReading(t *testing.T) {
	for _, replies := range []int{0, 3} {
		t.Run(fmt.Sprintf("after %d replies", replies), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := startPipeServer(t, config{
					opts:    llmhttp.Options{WriteTimeout: 10 * time.Second},
					backend: textBackend(strings.Repeat("x", 24<<10)), // more than net/http buffers
				})
				c := s.dial()
				in := bufio.NewReader(c)
				request := rawPost("HTTP/1.1", chatPath, chatBody)
				for range replies {
					_, err := io.WriteString(c, request)
					require.NoError(t, err)
					resp, err := http.ReadResponse(in, nil)
					require.NoError(t, err)
					require.NoError(t, readReply(resp).err)
				}
				start := time.Now()
				sendUntilClosed(t, c, request)
				assert.LessOrEqual(t, time.Since(start), 15*time.Second)
				s.shutdown()
			})
		})
	}
}

// net/http buffers short replies and errors, and writes them after ServeHTTP has
// returned. The server's WriteTimeout bounds these writes.
func TestResponse_ShortRepliesWithoutReading(t *testing.T) {
	for name, request := range map[string]string{
		"whole":  rawPost("HTTP/1.1", chatPath, chatBody),
		"stream": rawPost("HTTP/1.1", chatPath, streamBody),
		"400":    rawPost("HTTP/1.1", chatPath, "{}"),
		"401":    "GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := startPipeServer(t, config{
					opts:   llmhttp.Options{WriteTimeout: 10 * time.Second},
					server: func(srv *http.Server) { srv.WriteTimeout = 20 * time.Second },
				})
				start := time.Now()
				sendUntilClosed(t, s.dial(), request)
				assert.LessOrEqual(t, time.Since(start), 20*time.Second)
			})
		})
	}
}

// http2Frame returns the bytes of a frame.
func http2Frame(kind, flags byte, stream uint32, payload string) string {
	head := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags}
	return string(binary.BigEndian.AppendUint32(head, stream)) + payload
}

// A client of HTTP/2 whose flow-control window is zero takes nothing. It is given up
// however short the reply is.
func TestResponse_HTTP2ClientWithoutAWindow(t *testing.T) {
	const headers, settings, resetStream = 1, 4, 3
	const endStream, endHeaders = 1, 4
	for _, size := range []int{10, 20 << 10, 200 << 10} {
		for name, body := range map[string]string{"whole": chatBody, "stream": streamBody, "error": "{"} {
			t.Run(fmt.Sprintf("%s/%d", name, size), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := startPipeServer(t, config{
						opts:    llmhttp.Options{WriteTimeout: 10 * time.Second},
						backend: textBackend(strings.Repeat("x", size)),
						server:  func(srv *http.Server) { srv.WriteTimeout = 20 * time.Second },
					})
					var block strings.Builder
					for _, h := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":authority", "x"}, {":path", chatPath}, {"authorization", "Bearer " + testSecret}} {
						fmt.Fprintf(&block, "\x00%c%s%c%s", len(h[0]), h[0], len(h[1]), h[1])
					}
					c := s.dial()
					go io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+
						http2Frame(settings, 0, 0, "\x00\x04\x00\x00\x00\x00")+ // the initial window is 0
						http2Frame(headers, endHeaders, 1, block.String())+
						http2Frame(0, endStream, 1, body))
					start := time.Now()
					in := bufio.NewReader(c)
					for kind := byte(0); kind != resetStream; {
						var head [9]byte
						_, err := io.ReadFull(in, head[:])
						require.NoError(t, err, "the stream was not reset")
						kind = head[3]
						size := int64(head[0])<<16 | int64(head[1])<<8 | int64(head[2])
						_, err = io.CopyN(io.Discard, in, size)
						require.NoError(t, err)
					}
					assert.LessOrEqual(t, time.Since(start), 20*time.Second)
					s.summary()
					s.shutdown()
				})
			})
		}
	}
}

// A client that does not read stops its Backend after WriteTimeout. Meanwhile nothing
// piles up: MAXeaglet/commandcode-proxy#20.
func TestResponse_ClientThatDoesNotRead(t *testing.T) {
	for _, test := range []struct {
		name, body string
		pause      time.Duration // before each chunk
		chunks     int
	}{
		{"stream at once", streamBody, 0, math.MaxInt},
		{"steady stream", streamBody, time.Millisecond, math.MaxInt},
		{"whole", chatBody, 0, 512},
	} {
		t.Run(test.name, func(t *testing.T) {
			checkNoLeaks(t)
			piece := strings.Repeat("x", 64<<10)
			stopped := make(chan int, 1)
			s := startServer(t, config{
				opts: llmhttp.Options{WriteTimeout: 200 * time.Millisecond, KeepAlive: 50 * time.Millisecond},
				backend: streamBackend(func(_ context.Context, yield yieldFunc) {
					n := 0
					for ; n < test.chunks && yield(llmhttp.TextChunk(piece), nil); n++ {
						time.Sleep(test.pause)
					}
					stopped <- n
				}),
				server: func(srv *http.Server) {
					srv.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
						assert.NoError(t, c.(*net.TCPConn).SetWriteBuffer(16<<10))
						return ctx
					}
				},
			})
			c := s.dial()
			require.NoError(t, c.(*net.TCPConn).SetReadBuffer(16<<10))
			_, err := io.WriteString(c, rawPost("HTTP/1.1", chatPath, test.body))
			require.NoError(t, err)
			yielded := receive(t, "the Backend to be stopped", stopped)
			e := s.summary()
			assert.Error(t, e.Err)
			assert.Equal(t, 200, e.Status)
			if test.body == streamBody {
				assert.Less(t, yielded, 2048)
			}
			s.record()
			s.shutdown()
		})
	}
}

// WriteTimeout is for each write: a client that reads slowly gets all of a large reply.
func TestResponse_ClientThatReadsSlowly(t *testing.T) {
	const size = 2 << 20
	for mode, body := range chatModes {
		t.Run(mode, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := startPipeServer(t, config{
					opts:    llmhttp.Options{WriteTimeout: time.Second, KeepAlive: -1},
					backend: textBackend(strings.Repeat("x", size)),
				})
				c := s.send(rawPost("HTTP/1.1", chatPath, body, "Connection: close"))
				n := 0
				for buf := make([]byte, 64<<10); ; {
					k, err := c.Read(buf)
					n += k
					if err != nil {
						break
					}
					time.Sleep(5 * time.Second * time.Duration(k) / size) // 5 s in all
				}
				assert.Greater(t, n, size, "the reply was cut")
			})
		})
	}
}

// A stallingWriter is a ResponseWriter whose third write takes as long as stall.
type stallingWriter struct {
	*httptest.ResponseRecorder
	writes int
	stall  func()
}

func (w *stallingWriter) Write(p []byte) (int, error) {
	if w.writes++; w.writes == 3 {
		w.stall()
	}
	return w.ResponseRecorder.Write(p)
}

// A write to a slow client takes longer than Timeout, which is for the Backend: it lasts
// until another request of the Handler has timed out.
func TestResponse_SlowWriteIsNotSilenceOfTheBackend(t *testing.T) {
	s := newHandler(t, config{
		opts: llmhttp.Options{Timeout: time.Second},
		backend: llmhttp.BackendFunc(func(ctx context.Context, req *llmhttp.ChatRequest) llmhttp.ChatStream {
			if req.Model == "silent" {
				<-ctx.Done()
			}
			return func(yield func(*llmhttp.ChatChunk, error) bool) {
				for range 20 {
					time.Sleep(2 * time.Millisecond) // so that chunks do not share a write
					if !yield(llmhttp.TextChunk("."), nil) {
						return
					}
				}
			}
		}),
	})
	stalled := false
	w := &stallingWriter{ResponseRecorder: httptest.NewRecorder(), stall: func() {
		silent := httptest.NewRecorder()
		serve(s.handler, silent, strings.Replace(chatBody, "demo-chat", "silent", 1))
		assert.Equal(t, 504, silent.Code)
		stalled = true
	}}
	assert.False(t, serve(s.handler, w, streamBody))
	readReply(w.Result()).checkText(t, strings.Repeat(".", 20))
	assert.True(t, stalled)
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
func TestResponse_WrappedWriters(t *testing.T) {
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
					if !yield(llmhttp.TextChunk("one "), nil) {
						return
					}
					if tt.canFlush {
						receive(t, "the client to see the first chunk", seen)
					}
					yield(llmhttp.TextChunk("two"), nil)
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

// A brokenFlusher is a ResponseWriter that cannot flush any more.
type brokenFlusher struct{ *httptest.ResponseRecorder }

func (w *brokenFlusher) FlushError() error { return errors.New("i/o timeout") }

func TestResponse_FailedFlushMeansThatTheClientHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		yielded := 0
		s := newHandler(t, config{backend: streamBackend(func(_ context.Context, yield yieldFunc) {
			for ok := true; ok; yielded++ {
				time.Sleep(time.Millisecond)
				ok = yield(llmhttp.TextChunk("."), nil)
			}
		})})
		assert.True(t, serve(s.handler, &brokenFlusher{httptest.NewRecorder()}, streamBody), "the connection is cut")
		assert.Less(t, yielded, 10)
		assert.ErrorIs(t, s.summary().Err, context.Canceled)
		s.record()
	})
}

// Streams that end in different ways leave nothing behind:
// BerriAI/litellm#12685, maximhq/bifrost#828, #6802.
func TestResponse_ManyStreamsLeaveNothingBehind(t *testing.T) {
	checkNoLeaks(t)
	s := startServer(t, config{
		keys: limitedKeys(llmhttp.Limits{Concurrent: 1000}),
		backend: llmhttp.BackendFunc(func(ctx context.Context, req *llmhttp.ChatRequest) llmhttp.ChatStream {
			return func(yield func(*llmhttp.ChatChunk, error) bool) {
				for range 5 {
					if !yield(llmhttp.TextChunk("x"), nil) {
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
func TestResponse_ConnectionIsClosedWhileTheBackendRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		backend := streamBackend(func(context.Context, yieldFunc) { <-release })
		s := startPipeServer(t, config{backend: backend, opts: llmhttp.Options{Timeout: time.Minute}})
		conn := s.send(rawPost("HTTP/1.1", chatPath, chatBody))
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		assert.Equal(t, 504, resp.StatusCode)
		assert.True(t, resp.Close, "the reply lets the client use the connection again")
		assert.Contains(t, readAll(t, resp.Body), "did not answer in time")
		close(release)
	})
}
