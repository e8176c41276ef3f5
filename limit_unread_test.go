package llmhttp_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/responses"
)

// A largeReply is a request and the Backend that makes its large reply.
type largeReply struct {
	path, body string
	backend    llmhttp.Backend
	until      string // the client reads up to this line; empty if it reads nothing
}

// largeReplies returns replies with texts of n bytes. Those of the Responses API end with
// events that repeat the text.
func largeReplies(n int) map[string]largeReply {
	const responsesPath, responsesBody = "/v1/responses", `{"model":"demo-chat","input":"Hello","stream":true}`
	text := strings.Repeat("x", n)
	return map[string]largeReply{
		"whole":             {chatPath, chatBody, textBackend(text), ""},
		"stream":            {chatPath, streamBody, textBackend(text), ""},
		"end of a stream":   {responsesPath, responsesBody, textBackend(text), "event: response.output_text.done"},
		"stream that fails": {responsesPath, responsesBody, failAfter(errCause, text), "event: response.failed"},
	}
}

// withResponses are the Options of a Handler that also serves the Responses API.
func withResponses(o llmhttp.Options) llmhttp.Options {
	o.Protocols = []llmhttp.Protocol{responses.New(nil)}
	return o
}

// A request is in progress until its reply is written, also if its client does not read it.
func TestConcurrent_UnreadReplies(t *testing.T) {
	for name, tt := range largeReplies(8 << 20) { // more than net/http's HTTP/2 client buffers
		for _, http2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/http2=%t", name, http2), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := startPipeServer(t, config{http2: http2, backend: tt.backend, keys: limitedKeys(llmhttp.Limits{Concurrent: 1}),
						opts: withResponses(llmhttp.Options{Bounds: llmhttp.Bounds{WriteTimeout: 10 * time.Second, KeepAlive: -1}})})
					resp, err := s.open(t.Context(), "POST", tt.path, tt.body)
					require.NoError(t, err)
					defer resp.Body.Close()
					if tt.until != "" {
						require.NoError(t, readUntilLine(resp.Body, tt.until))
					}
					synctest.Wait()
					assert.Contains(t, s.chat(chatBody).checkError(t, 429).Message, "in progress: Limit 1")
					time.Sleep(9 * time.Second)
					s.chat(chatBody).checkError(t, 429)
					time.Sleep(7 * time.Second) // one and a half times WriteTimeout have passed
					s.chat("{").checkError(t, 400)
					_, err = io.Copy(io.Discard, resp.Body)
					assert.Error(t, err)
				})
			})
		}
	}
}

// A client that reads a whole reply must do it in WriteTimeout and a second for each 64 KiB
// of it, and gets all of it if it does. A slot is in use for that time.
func TestReply_TimeOfAWholeReply(t *testing.T) {
	const size = 1 << 20
	for _, tt := range []struct {
		pause    time.Duration // for each 32 KiB
		complete bool
	}{{700 * time.Millisecond, true}, {9 * time.Second, false}} {
		for _, http2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/http2=%t", tt.pause, http2), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := startPipeServer(t, config{backend: textBackend(strings.Repeat("x", size)),
						keys: limitedKeys(llmhttp.Limits{Concurrent: 1}), opts: llmhttp.Options{Bounds: llmhttp.Bounds{WriteTimeout: 10 * time.Second, KeepAlive: -1}}})
					start := time.Now()
					received := make(chan int)
					go func() {
						if http2 {
							received <- readHTTP2Slowly(t, s, tt.pause)
						} else {
							received <- readHTTP1Slowly(s, tt.pause)
						}
					}()
					n := <-received
					s.waitForSummaries(1)
					assert.LessOrEqual(t, time.Since(start), 10*time.Second+size*time.Second/(64<<10)+time.Second)
					assert.Equal(t, tt.complete, n > size)
					s.chat("{").checkError(t, 400)
				})
			})
		}
	}
}

// readHTTP1Slowly posts a chat and reads the reply in pieces of 32 KiB, each after a
// pause. It returns how many bytes came.
func readHTTP1Slowly(s *testServer, pause time.Duration) (n int) {
	c := s.send(rawPost("HTTP/1.1", chatPath, chatBody, "Connection: close"))
	for buf := make([]byte, 32<<10); ; time.Sleep(pause) {
		k, err := io.ReadFull(c, buf)
		if n += k; err != nil {
			return n
		}
	}
}

// readHTTP2Slowly is like readHTTP1Slowly. The client enlarges its flow-control window after
// each pause.
func readHTTP2Slowly(t *testing.T, s *testServer, pause time.Duration) (n int) {
	const data, resetStream, windowUpdate = 0, 3, 8
	const endStream = 1
	c := s.dial()
	done := make(chan struct{})
	defer close(done)
	go func() {
		io.WriteString(c, http2Preface(0)+http2Request(chatBody))
		for {
			select {
			case <-done:
				return
			case <-time.After(pause):
				const increment = "\x00\x00\x80\x00" // 32 KiB
				io.WriteString(c, http2Frame(windowUpdate, 0, 0, increment)+http2Frame(windowUpdate, 0, 1, increment))
			}
		}
	}()
	in := bufio.NewReader(c)
	for {
		kind, flags, size := readHTTP2Frame(t, in)
		switch {
		case kind == data && flags&endStream != 0:
			return n + size
		case kind == data:
			n += size
		case kind == resetStream:
			return n
		}
	}
}

// Without a limit on the time for a byte, net/http does not end a stream of an HTTP/2
// client whose windows are large and who does not read from its connection. Serve sets one.
func TestConcurrent_UnreadHTTP2Connection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startPipeServing(t, config{backend: textBackend(strings.Repeat("x", 8<<20)), keys: limitedKeys(llmhttp.Limits{Concurrent: 1}),
			opts: llmhttp.Options{Bounds: llmhttp.Bounds{WriteTimeout: 10 * time.Second}},
			server: func(srv *http.Server) {
				srv.Protocols = new(http.Protocols)
				srv.Protocols.SetHTTP1(true)
				srv.Protocols.SetUnencryptedHTTP2(true)
			}}, llmhttp.ServeOptions{})
		c := s.dial()
		go io.WriteString(c, http2Preface(1<<30)+http2Frame(8, 0, 0, "\x3f\xff\xff\xff")+http2Request(chatBody))
		in := bufio.NewReader(c)
		for kind := byte(1); kind != 0; { // until the first data
			kind, _, _ = readHTTP2Frame(t, in)
		}
		synctest.Wait()
		s.chat(chatBody).checkError(t, 429)
		time.Sleep(11 * time.Second)
		s.chat("{").checkError(t, 400)
		s.stop()
		require.NoError(t, <-s.ended)
	})
}

// A client that has read all but the last piece of a large reply may keep that piece
// waiting, but not the memory of the reply.
func TestConcurrent_LastPieceKeepsNoMemory(t *testing.T) {
	const size, clients = 16 << 20, 4
	synctest.Test(t, func(t *testing.T) {
		s := startPipeServer(t, config{keys: limitedKeys(llmhttp.Limits{Concurrent: 1}),
			backend: streamBackend(func(_ context.Context, yield yieldFunc) { yield(llm.TextChunk(strings.Repeat("x", size)), nil) })})
		before := heapInUse()
		for range clients {
			c := s.send(rawPost("HTTP/1.1", chatPath, chatBody))
			resp, err := http.ReadResponse(bufio.NewReaderSize(c, 16), nil)
			require.NoError(t, err)
			require.Equal(t, 200, resp.StatusCode)
			_, err = io.CopyN(io.Discard, resp.Body, resp.ContentLength-30<<10)
			require.NoError(t, err)
			synctest.Wait()
		}
		assert.Less(t, heapInUse()-before, int64(size))
	})
}

func heapInUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // which empties the pools
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A client that has all of a reply may send its next request at once, with any protocol,
// reply and Limiter.
func TestConcurrent_FastClients(t *testing.T) {
	exchanges := largeReplies(200 << 10)
	maps.Copy(exchanges, map[string]largeReply{
		"short whole":    {chatPath, chatBody, textBackend("x"), ""},
		"short stream":   {chatPath, streamBody, textBackend("x"), ""},
		"invalid":        {chatPath, "{", nil, ""},
		"unknown model":  {chatPath, chatBody, failingBackend(llm.ModelNotFound("demo-chat")), ""},
		"failed at once": {chatPath, streamBody, failingBackend(errCause), ""},
		"failed later":   {chatPath, streamBody, failAfter(errCause, "x"), ""},
	})
	for limiter, newLimiter := range map[string]func() llmhttp.Limiter{"default": func() llmhttp.Limiter { return nil }, "slow": slowRelease} {
		for _, http2 := range []bool{false, true} {
			for name, e := range exchanges {
				t.Run(fmt.Sprintf("%s/http2=%t/Limiter=%s", name, http2, limiter), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						s := startPipeServer(t, config{http2: http2, backend: e.backend, keys: limitedKeys(llmhttp.Limits{Concurrent: 1}),
							// A release that takes longer than WriteTimeout does not cost the client its reply.
							opts: withResponses(llmhttp.Options{Limiter: newLimiter(), Bounds: llmhttp.Bounds{WriteTimeout: 500 * time.Millisecond, KeepAlive: -1}})})
						for range 10 {
							resp, err := s.open(t.Context(), "POST", e.path, e.body)
							require.NoError(t, err)
							require.NotEqual(t, http.StatusTooManyRequests, resp.StatusCode)
							require.NoError(t, readUntilKnown(resp))
							defer resp.Body.Close() // later: closing reads the rest
						}
					})
				})
			}
		}
	}
}

// readUntilKnown reads until a client can know that the request has ended: the JSON value
// of a whole reply, [DONE], or an error event.
func readUntilKnown(resp *http.Response) error {
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
		return json.NewDecoder(resp.Body).Decode(new(json.RawMessage))
	}
	return readUntilLine(resp.Body, "data: [DONE]", `data: {"error"`, `data: {"type":"response.completed"`, `data: {"type":"response.failed"`)
}

// readUntilLine reads up to a line that begins with one of the given texts.
func readUntilLine(r io.Reader, beginnings ...string) error {
	lines := bufio.NewScanner(r)
	for lines.Buffer(nil, 1<<20); lines.Scan(); {
		if slices.ContainsFunc(beginnings, func(b string) bool { return strings.HasPrefix(lines.Text(), b) }) {
			return nil
		}
	}
	return errors.Join(lines.Err(), io.ErrUnexpectedEOF)
}
