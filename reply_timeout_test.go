package llmhttp_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
)

// A WriteTimeout of the server does not cut replies that take longer:
// infiniflow/ragflow#15840, inference-gateway#427, stacklok/toolhive#3691.
func TestReply_OutlastsTheServersWriteTimeout(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%t", http2), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := startPipeServer(t, config{
					http2:  http2,
					server: func(srv *http.Server) { srv.WriteTimeout = 25 * time.Second },
					backend: streamBackend(func(_ context.Context, yield yieldFunc) {
						for range 6 {
							time.Sleep(10 * time.Second)
							if !yield(llm.TextChunk("."), nil) {
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

// The server's ReadTimeout bounds the time to read a request, and not that of the
// Backend.
func TestReply_OutlastsTheServersReadTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startPipeServer(t, config{
			server: func(srv *http.Server) { srv.ReadTimeout = 5 * time.Second },
			backend: streamBackend(func(_ context.Context, yield yieldFunc) {
				time.Sleep(time.Minute)
				yield(llm.TextChunk("late"), nil)
			}),
		})
		s.chat(streamBody).checkText(t, "late")
	})
}

// The largest durations mean forever, and do not overflow.
func TestReply_TimeoutsMayBeTheLargestDuration(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%t", http2), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := startPipeServer(t, config{
					http2:  http2,
					opts:   llmhttp.Options{Bounds: llmhttp.Bounds{Timeout: math.MaxInt64, KeepAlive: math.MaxInt64, WriteTimeout: math.MaxInt64}},
					server: func(srv *http.Server) { srv.WriteTimeout = time.Minute },
					backend: streamBackend(func(_ context.Context, yield yieldFunc) {
						if yield(llm.TextChunk("one "), nil) {
							time.Sleep(24 * time.Hour)
							yield(llm.TextChunk("two"), nil)
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

// On HTTP/2 a write deadline that expires ends the stream, even while nothing is written.
// So the Handler must clear the deadline after each write.
func TestReply_HTTP2StreamOutlastsItsWriteDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startPipeServer(t, config{
			http2: true,
			opts:  llmhttp.Options{Bounds: llmhttp.Bounds{WriteTimeout: time.Second, KeepAlive: -1}},
			backend: streamBackend(func(_ context.Context, yield yieldFunc) {
				if yield(llm.TextChunk("one "), nil) {
					time.Sleep(time.Minute)
					yield(llm.TextChunk("two"), nil)
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

// The connection of a client that keeps sending requests without reading replies is
// closed.
func TestReply_PipelinedRequestsWithoutReading(t *testing.T) {
	for _, replies := range []int{0, 3} {
		t.Run(fmt.Sprintf("after %d replies", replies), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := startPipeServer(t, config{
					opts:    llmhttp.Options{Bounds: llmhttp.Bounds{WriteTimeout: 10 * time.Second}},
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
func TestReply_ShortRepliesWithoutReading(t *testing.T) {
	for name, request := range map[string]string{
		"whole":  rawPost("HTTP/1.1", chatPath, chatBody),
		"stream": rawPost("HTTP/1.1", chatPath, streamBody),
		"400":    rawPost("HTTP/1.1", chatPath, "{}"),
		"401":    "GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := startPipeServer(t, config{
					opts:   llmhttp.Options{Bounds: llmhttp.Bounds{WriteTimeout: 10 * time.Second}},
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

// http2Preface returns the first bytes of a client whose initial windows have a size.
func http2Preface(window uint32) string {
	const settings = 4
	return "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + http2Frame(settings, 0, 0, string(binary.BigEndian.AppendUint32([]byte("\x00\x04"), window)))
}

// http2Request returns the frames of a chat request, on stream 1.
func http2Request(body string) string {
	const headers, data = 1, 0
	const endStream, endHeaders = 1, 4
	var block strings.Builder
	for _, h := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":authority", "x"}, {":path", chatPath}, {"authorization", "Bearer " + testSecret}} {
		fmt.Fprintf(&block, "\x00%c%s%c%s", len(h[0]), h[0], len(h[1]), h[1])
	}
	return http2Frame(headers, endHeaders, 1, block.String()) + http2Frame(data, endStream, 1, body)
}

// readHTTP2Frame reads a frame and discards its payload, of which it returns the size.
func readHTTP2Frame(t *testing.T, in io.Reader) (kind, flags byte, size int) {
	var head [9]byte
	_, err := io.ReadFull(in, head[:])
	require.NoError(t, err)
	size = int(head[0])<<16 | int(head[1])<<8 | int(head[2])
	_, err = io.CopyN(io.Discard, in, int64(size))
	require.NoError(t, err)
	return head[3], head[4], size
}

// An HTTP/2 client whose flow-control window is zero receives no data. Its stream is
// reset even if the reply is short.
func TestReply_HTTP2ClientWithoutAWindow(t *testing.T) {
	const resetStream = 3
	for _, size := range []int{10, 20 << 10, 200 << 10} {
		for name, body := range map[string]string{"whole": chatBody, "stream": streamBody, "error": "{"} {
			t.Run(fmt.Sprintf("%s/%d", name, size), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := startPipeServer(t, config{
						opts:    llmhttp.Options{Bounds: llmhttp.Bounds{WriteTimeout: 10 * time.Second}},
						backend: textBackend(strings.Repeat("x", size)),
						server:  func(srv *http.Server) { srv.WriteTimeout = 20 * time.Second },
					})
					c := s.dial()
					go io.WriteString(c, http2Preface(0)+http2Request(body))
					start := time.Now()
					in := bufio.NewReader(c)
					for kind := byte(0); kind != resetStream; {
						kind, _, _ = readHTTP2Frame(t, in)
					}
					assert.LessOrEqual(t, time.Since(start), 20*time.Second)
					s.summary()
					s.shutdown()
				})
			})
		}
	}
}

// If a client does not read, its Backend is stopped after WriteTimeout. The memory in use
// is bounded until then: MAXeaglet/commandcode-proxy#20.
func TestReply_ClientThatDoesNotRead(t *testing.T) {
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
				opts: llmhttp.Options{Bounds: llmhttp.Bounds{WriteTimeout: 200 * time.Millisecond, KeepAlive: 50 * time.Millisecond}},
				backend: streamBackend(func(_ context.Context, yield yieldFunc) {
					n := 0
					for ; n < test.chunks && yield(llm.TextChunk(piece), nil); n++ {
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

// WriteTimeout bounds each write, so that a client that reads slowly gets all of a large
// reply.
func TestReply_ClientThatReadsSlowly(t *testing.T) {
	const size = 2 << 20
	for mode, body := range chatModes {
		t.Run(mode, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := startPipeServer(t, config{
					opts:    llmhttp.Options{Bounds: llmhttp.Bounds{WriteTimeout: time.Second, KeepAlive: -1}},
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

// A stallingWriter is a ResponseWriter whose third Write calls stall first.
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

// Timeout bounds the silence of the Backend, and does not include the time of a slow
// write. The write in this test lasts until another request has timed out.
func TestReply_TimeoutExcludesSlowWrites(t *testing.T) {
	s := newHandler(t, config{
		opts: llmhttp.Options{Bounds: llmhttp.Bounds{Timeout: time.Second}},
		backend: llmhttp.BackendFunc(func(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
			if req.Model == "silent" {
				<-ctx.Done()
			}
			return func(yield func(*llm.ChatChunk, error) bool) {
				for range 20 {
					time.Sleep(2 * time.Millisecond) // so that chunks do not share a write
					if !yield(llm.TextChunk("."), nil) {
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

// Options.Bounds.Timeout also ends calls of stores, but then the reply does not blame the model.
func TestReply_TimeoutOfWhatIsNoModel(t *testing.T) {
	hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	const storeMessage = "The server could not get what it needs in time. Please try again."
	for name, c := range map[string]struct {
		config             config
		method, path, body string
		status             int
		message            string
		class              llmhttp.ErrorClass
	}{
		"the usage store": {
			config{opts: llmhttp.Options{Usage: hangingQuery{}}}, "GET", usagePath, "", 503, storeMessage, llmhttp.ClassUsageStore,
		},
		"a store of a Protocol": {
			config{opts: llmhttp.Options{Protocols: []llmhttp.Protocol{storeProtocol{llmhttp.ChatCompletions(), hang}}}}, "GET", "/stored", "",
			503, storeMessage, llmhttp.ClassInternal,
		},
		"the image store": {
			config{opts: llmhttp.Options{ImageURL: func(ctx context.Context, _ []byte, _ string) (string, error) { return "", hang(ctx) }}},
			"POST", imagesPath, imageBody, 503, storeMessage, llmhttp.ClassInternal,
		},
		"the model list of a Protocol": {
			config{
				backend: &stubBackend{models: func(ctx context.Context) ([]llm.Model, error) { return nil, hang(ctx) }},
				opts:    llmhttp.Options{Protocols: []llmhttp.Protocol{storeProtocol{llmhttp.ChatCompletions(), nil}}},
			}, "GET", "/list", "", 504, timeoutMessage, llmhttp.ClassTimeout,
		},
		"the model": {
			config{backend: streamBackend(func(ctx context.Context, _ yieldFunc) { hang(ctx) })}, "POST", chatPath, chatBody,
			504, timeoutMessage, llmhttp.ClassTimeout,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.config.opts.Bounds.Timeout = 3 * time.Second
				s := startPipeServer(t, c.config)
				began := time.Now()
				r := s.do(c.method, c.path, c.body)
				assert.Equal(t, 3*time.Second, time.Since(began))
				assert.Equal(t, apiError{Message: c.message, Type: "server_error"}, r.checkError(t, c.status))
				assert.Equal(t, c.class, s.summary().ErrorClass)
			})
		})
	}
}

// A storeProtocol serves GET /stored by a call of ask, and GET /list.
type storeProtocol struct {
	llmhttp.Protocol
	ask func(context.Context) error
}

func (p storeProtocol) Name() string { return "stored" }

func (p storeProtocol) Routes() []llmhttp.Route {
	stored := func(ctx context.Context, _ *http.Request, _ []byte) (*llmhttp.QueryReply, error) {
		return nil, p.ask(ctx)
	}
	list := func(context.Context, *http.Request, []byte) (func([]byte, []llm.Model) ([]byte, error), error) {
		return func(b []byte, _ []llm.Model) ([]byte, error) { return b, nil }, nil
	}
	return []llmhttp.Route{
		{Pattern: "GET /stored", Bind: llmhttp.BindQuery(llmhttp.ScopeChat, stored)},
		{Pattern: "GET /list", Bind: llmhttp.BindModels(list)},
	}
}
