package upstream_test

import (
	"bufio"
	"context"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/upstream"
)

const (
	bodyFailed      = `{"error":{"message":"The model's server had an error. Please try again.","type":"server_error","param":null,"code":null}}`
	bodyUnavailable = `{"error":{"message":"The model's server could not be reached. Please try again.","type":"server_error","param":null,"code":null}}`
	bodyTimeout     = `{"error":{"message":"The model did not answer in time.","type":"server_error","param":null,"code":null}}`
)

// resetConn closes a connection with a TCP reset.
func resetConn(c net.Conn) {
	c.(*net.TCPConn).SetLinger(0)
	c.Close()
}

func randomBytes(n int) string {
	rng := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	b[0] = 0xee
	return string(b)
}

// A fault is a way in which a reply fails.
type fault struct {
	name   string
	reply  func(s *rawServer, c net.Conn)
	opts   upstream.Options
	status int    // that the client gets; 200 for a stream that breaks off
	body   string // of the error, or the data of the error event
	log    string // that the log contains
}

// If a request fails before the first chunk, the client gets an error status. If it fails
// later, the stream ends with an error event, without [DONE], and the connection is
// closed. In both cases the request is recorded.
func TestFaults(t *testing.T) {
	early, late := earlyFaults(), lateFaults()
	for _, f := range early {
		for name, ask := range map[string]string{"whole/": askWhole, "stream/": askStream} {
			t.Run(name+f.name, func(t *testing.T) {
				sum := testFault(t, f, ask)
				assert.Zero(t, sum.Units.PromptTokens+sum.Units.CompletionTokens, "no chunk came, so it costs nothing")
			})
		}
	}
	for _, f := range late {
		t.Run("stream/"+f.name, func(t *testing.T) { testFault(t, f, askStream) })
		t.Run("stream for a whole reply/"+f.name, func(t *testing.T) {
			f.status = 502
			if f.body == bodyTimeout {
				f.status = 504
			}
			testFault(t, f, askWhole)
		})
	}
}

// testFault checks the reply to a client, and returns the usage.
func testFault(t *testing.T, f fault, ask string) llmhttp.UsageSum {
	checkLeaks(t)
	var s *rawServer
	s = newRawServer(t, func(c net.Conn, _ *rawRequest) { f.reply(s, c) })
	g := newGateway(t, s.url(), &f.opts)
	got := g.chat(ask)
	require.Equal(t, f.status, got.StatusCode, "%s", got.body)
	summary := g.summary()
	assert.Equal(t, f.status, summary.Status)
	require.Error(t, summary.Err)
	assert.Contains(t, g.log.String(), f.log)
	sum := g.recordedUsage(1)
	assert.EqualValues(t, 1, sum.Requests, "the request is recorded")
	if f.status != 200 {
		require.NoError(t, got.err)
		assert.Equal(t, f.body, got.body)
		return sum
	}
	list := eventData(t, got.body)
	assert.Equal(t, f.body, list[len(list)-1])
	assert.NotContains(t, list, done)
	assert.ErrorIs(t, got.err, io.ErrUnexpectedEOF, "the client must not take the stream for complete")
	text, reason := streamText(t, got.body)
	assert.Equal(t, "Hello there", text)
	assert.Empty(t, reason)
	assert.True(t, summary.Record.Estimated)
	assert.EqualValues(t, 3, sum.Units.CompletionTokens, "the chunks that came are paid for, by estimate")
	assert.Positive(t, sum.Units.PromptTokens)
	return sum
}

// earlyFaults returns faults that occur before the first chunk.
func earlyFaults() []fault {
	quick := upstream.Options{FirstByteTimeout: 100 * time.Millisecond}
	small := upstream.Options{MaxEvent: 1 << 16, MaxReply: 1 << 16}
	unavailable := func(name string, reply func(c net.Conn), log string) fault {
		return fault{name, func(_ *rawServer, c net.Conn) { reply(c) }, upstream.Options{}, 502, bodyUnavailable, log}
	}
	failed := func(name string, reply func(c net.Conn), log string) fault {
		return fault{name, func(_ *rawServer, c net.Conn) { reply(c) }, upstream.Options{}, 502, bodyFailed, log}
	}
	body := func(name, contentType, body, log string) fault {
		return failed(name, func(c net.Conn) { writeReply(c, 200, contentType, body) }, log)
	}
	stream := func(name, stream, log string) fault {
		return body(name, mediaEvents, stream, log)
	}
	return []fault{
		unavailable("connection closed", func(c net.Conn) { c.Close() }, "the connection was closed"),
		unavailable("connection reset", resetConn, "connection reset by peer"),
		unavailable("random bytes", func(c net.Conn) { io.WriteString(c, randomBytes(1000)); c.Close() }, "not valid HTTP"),
		unavailable("incomplete header", func(c net.Conn) { io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-"); c.Close() }, "not valid HTTP"),
		unavailable("endless header", func(c net.Conn) {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nX: ")
			for range 10_000 {
				if _, err := io.WriteString(c, strings.Repeat("x", 1000)); err != nil {
					break
				}
			}
			c.Close()
		}, ""),
		{"no header", func(s *rawServer, c net.Conn) { s.hang(c) }, quick, 504, bodyTimeout, "the server sent nothing for too long"},
		{"no body", func(s *rawServer, c net.Conn) { writeHead(c, mediaEvents); s.hang(c) }, quick, 504, bodyTimeout, "the server sent nothing for too long"},
		body("empty body", mediaJSON, "", "empty"),
		failed("status 204", func(c net.Conn) { io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n") }, "empty"),
		body("HTML", "text/html", "<!doctype html><p>Welcome!", "an HTML page: is the base URL right?"),
		body("HTML as JSON", mediaJSON, "\n <html>", "an HTML page"),
		body("text", "text/plain", "It works!", "empty"),
		body("random body", mediaJSON, randomBytes(1000), ""),
		body("truncated JSON", mediaJSON, wholeReply[:len(wholeReply)/2], "the reply is not valid"),
		body("two JSON values", mediaJSON, wholeReply+wholeReply, "the reply is not valid"),
		body("another JSON object", mediaJSON, `{"status":"ok"}`, "no choices"),
		body("JSON array", mediaJSON, `[1,2]`, "the reply is not valid"),
		failed("truncated body", func(c net.Conn) {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"+wholeReply[:100])
			c.Close()
		}, "the connection was closed"),
		failed("compressed body that is not", func(c net.Conn) { writeReply(c, 200, mediaJSON, wholeReply, "Content-Encoding: gzip") }, "gzip: invalid header"),
		failed("compressed body that is truncated", func(c net.Conn) { writeReply(c, 200, mediaJSON, "\x1f\x8b...", "Content-Encoding: gzip") }, "the connection was closed"),
		failed("unknown encoding", func(c net.Conn) { writeReply(c, 200, mediaJSON, wholeReply, "Content-Encoding: br") }, `the encoding \"br\" of the body is not known`),
		failed("redirect", func(c net.Conn) {
			writeReply(c, 307, "text/plain", "", "Location: http://elsewhere.example.com/v1/chat/completions")
		}, "a redirect, which is not followed"),
		failed("status 500", func(c net.Conn) { writeReply(c, 500, mediaJSON, `{"error":{"message":"CUDA out of memory"}}`) }, "status 500: CUDA out of memory"),
		failed("status 500 with HTML", func(c net.Conn) { writeReply(c, 500, "text/html", "<h1>500</h1>") }, "12 bytes of text/html"),
		failed("status 500, truncated", func(c net.Conn) {
			io.WriteString(c, "HTTP/1.1 500 X\r\nContent-Length: 1000\r\n\r\nabc")
			c.Close()
		}, "status 500"),
		failed("status 101", func(c net.Conn) { io.WriteString(c, "HTTP/1.1 101 X\r\n\r\n"); c.Close() }, ""),
		body("error with status 200", mediaJSON, `{"error":{"message":"boom","code":500}}`, "boom"),
		body("flat error with status 200", mediaJSON, `{ "object": "error", "message": "boom" }`, "boom"),
		body("error after other members", mediaJSON, `{"choices":[],"error":"boom"}`, "boom"),
		body("error beside choices", mediaJSON, wholeReply[:len(wholeReply)-1]+`,"error":{"message":"boom"}}`, "boom"),
		body("error without a message", mediaJSON, `{"error":{}}`, "without a message"),
		stream("empty stream", "", "empty"),
		stream("stream of [DONE]", eventStream(done), "no chunks before [DONE]"),
		stream("stream of comments", ": hello\n\n", "empty"),
		stream("stream of an error", eventStream(`{"error":{"message":"boom"}}`, done), "boom"),
		stream("stream of a flat error", eventStream(`{"object":"error","message":"boom"}`, done), "boom"),
		body("stream of random bytes", mediaEvents, randomBytes(1000), ""),
		stream("event of random bytes", eventStream(randomBytes(1000), done), "the reply is not valid"),
		{"large reply", func(_ *rawServer, c net.Conn) {
			writeReply(c, 200, mediaJSON, strings.Repeat(" ", 1<<17))
			c.Close()
		}, small, 502, bodyFailed, "too large"},
		{"large reply of unknown length", func(_ *rawServer, c net.Conn) {
			writeHead(c, mediaJSON)
			for text := `{"id":"`; writePiece(c, text) == nil; text = strings.Repeat("x", 1<<12) {
			}
			c.Close()
		}, small, 502, bodyFailed, "too large"},
		{"large line", func(_ *rawServer, c net.Conn) { writeHead(c, mediaEvents); writeLargeLine(c) }, upstream.Options{}, 502, bodyFailed, "an event of the stream is too large"},
	}
}

// lateFaults returns faults that occur after the first chunks of a stream.
func lateFaults() []fault {
	after := func(name string, reply func(s *rawServer, c net.Conn), body, log string) fault {
		return fault{name, func(s *rawServer, c net.Conn) {
			writeHead(c, mediaEvents)
			writePiece(c, eventStream(textChunk("Hello"), textChunk(" there")))
			reply(s, c)
		}, upstream.Options{}, 200, body, log}
	}
	failed := func(name string, reply func(c net.Conn), log string) fault {
		return after(name, func(_ *rawServer, c net.Conn) { reply(c) }, bodyFailed, log)
	}
	stream := func(name, stream, log string) fault {
		return failed(name, func(c net.Conn) { writePiece(c, stream); writeEnd(c) }, log)
	}
	silent := after("silence", func(s *rawServer, c net.Conn) { s.hang(c) }, bodyTimeout, "the server sent nothing for too long")
	silent.opts.IdleTimeout = 100 * time.Millisecond
	comments := failed("endless comments after data", func(c net.Conn) {
		writePiece(c, `data: {}`+"\n")
		for writePiece(c, ": "+strings.Repeat("x", 1000)+"\n") == nil {
		}
		c.Close()
	}, "an event of the stream is too large")
	comments.opts.MaxEvent = 1 << 16
	return []fault{
		silent, comments,
		failed("end without finish_reason", writeEnd, "neither a finish_reason nor [DONE]"),
		failed("connection closed", func(c net.Conn) { c.Close() }, "the connection was closed"),
		failed("random bytes between pieces", func(c net.Conn) { io.WriteString(c, "zz\r\n"+randomBytes(100)); c.Close() }, "not valid HTTP"),
		failed("large line", writeLargeLine, "an event of the stream is too large"),
		stream("random bytes", randomBytes(100)+"\n\ndata: \x00\n\n", "the reply is not valid"),
		stream("truncated JSON", `data: {"choices":[{"del`, "the reply is not valid"),
		stream("error", eventStream(`{"error":{"message":"boom"}}`), "boom"),
		stream("error before [DONE]", eventStream(`{"error":{"message":"boom"}}`, done), "boom"),
		stream("error that is a string", eventStream(`{"error":"boom"}`), "boom"),
		stream("event of type error", "event: error\ndata: {\"message\":\"boom\"}\n\n", "boom"),
		stream("event of type error with text", "event: error\ndata: boom\n\n", "boom"),
		stream("field error", "error: {\"code\":500,\"message\":\"boom\"}\n\n", "boom"),
		stream("error without a message", eventStream(`{"error":{}}`), "without a message"),
		stream("error in a chunk", eventStream(`{"choices":[{"index":0,"delta":{}}],"error":{"message":"boom"}}`), "boom"),
		stream("finish_reason error", eventStream(`{"choices":[{"index":0,"delta":{},"finish_reason":"error"}]}`, done), `finish_reason \"error\"`),
	}
}

// writeLargeLine writes an event with a line of 100 MB.
func writeLargeLine(c net.Conn) {
	for text := "data: "; writePiece(c, text) == nil; text = strings.Repeat("x", 1<<20) {
	}
	c.Close()
}

func TestFaults_NoServer(t *testing.T) {
	checkLeaks(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l.Close()
	g := newGateway(t, "http://"+l.Addr().String()+"/v1", nil)
	for _, ask := range []string{askWhole, askStream} {
		got := g.chat(ask)
		assert.Equal(t, 502, got.StatusCode)
		assert.Equal(t, bodyUnavailable, got.body)
	}
	assert.Contains(t, g.log.String(), "upstream: no reply: dial: connection refused")
	sum := g.recordedUsage(2)
	assert.EqualValues(t, 2, sum.Requests)
	assert.Zero(t, sum.Units.PromptTokens)
}

func TestFaults_UnknownHost(t *testing.T) {
	checkLeaks(t)
	g := newGateway(t, "http://upstream.invalid/v1", nil)
	assert.Equal(t, bodyUnavailable, g.chat(askWhole).body)
	assert.NotContains(t, g.log.String(), "upstream.invalid")
}

func TestFaults_NoTLSHandshake(t *testing.T) {
	checkLeaks(t)
	l, err := net.Listen("tcp", "127.0.0.1:0") // the system accepts connections
	require.NoError(t, err)
	defer l.Close()
	g := newGateway(t, "https://"+l.Addr().String()+"/v1", &upstream.Options{ConnectTimeout: 50 * time.Millisecond})
	assert.Equal(t, bodyUnavailable, g.chat(askStream).body)
	assert.Contains(t, g.log.String(), "no reply: timeout")
}

func TestFaults_ServerIsKilled(t *testing.T) {
	checkLeaks(t)
	base, process := startChild(t)
	g := newGateway(t, base, nil)
	const n = 5
	var clients, streaming sync.WaitGroup
	streaming.Add(n)
	for range n {
		clients.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
			defer cancel()
			resp, err := g.Client().Do(g.request(ctx, "POST", chatPath, askStream))
			if !assert.NoError(t, err) {
				streaming.Done()
				return
			}
			defer resp.Body.Close()
			in := bufio.NewReader(resp.Body)
			var body string
			for !strings.Contains(body, "there") && err == nil {
				var line string
				line, err = in.ReadString('\n')
				body += line
			}
			streaming.Done()
			rest, err := io.ReadAll(in)
			assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
			assert.True(t, strings.HasSuffix(body+string(rest), eventStream(bodyFailed)), "%s", rest)
			assert.NotContains(t, string(rest), done)
		})
	}
	streaming.Wait()
	require.NoError(t, process.Kill())
	clients.Wait()
	assert.Equal(t, bodyUnavailable, g.chat(askStream).body, "the server is gone")
	sum := g.recordedUsage(n + 1)
	assert.EqualValues(t, n+1, sum.Requests)
	assert.EqualValues(t, 3*n, sum.Units.CompletionTokens)
}

func TestFaults_ServerRestarts(t *testing.T) {
	checkLeaks(t)
	s := newRawServer(t, func(c net.Conn, r *rawRequest) {
		if r.n%2 == 0 {
			resetConn(c)
			return
		}
		writeEvents(c, textChunk("Hello"), stopChunk, usageChunk, done)
	})
	g := newGateway(t, s.url(), nil)
	const n = 20
	for range n / 2 {
		assert.Equal(t, 502, g.chat(askStream).StatusCode)
		g.chat(askStream).requireComplete(t)
	}
	sum := g.recordedUsage(n)
	assert.EqualValues(t, n, sum.Requests)
	assert.EqualValues(t, n/2*5, sum.Units.CompletionTokens)
}

// Failures do not affect requests that succeed at the same time.
func TestFaults_ConcurrentFailuresAndSuccesses(t *testing.T) {
	checkLeaks(t)
	s := newRawServer(t, func(c net.Conn, r *rawRequest) {
		if r.n%2 == 0 {
			writeReply(c, 500, mediaJSON, `{"error":{"message":"boom"}}`)
			return
		}
		writeReply(c, 200, mediaJSON, wholeReply)
	})
	g := newGateway(t, s.url(), nil)
	const n, clients = 40, 8
	var succeeded, failed atomic.Int64
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for range n / clients {
				switch got := g.chat(askWhole); got.StatusCode {
				case 200:
					succeeded.Add(1)
				case 502:
					failed.Add(1)
				default:
					assert.Fail(t, "unexpected status", "%d", got.StatusCode)
				}
			}
		})
	}
	wg.Wait()
	assert.EqualValues(t, n/2, succeeded.Load())
	assert.EqualValues(t, n/2, failed.Load())
	sum := g.recordedUsage(n)
	assert.EqualValues(t, n, sum.Requests)
	assert.EqualValues(t, n/2*7, sum.Units.PromptTokens)
	assert.EqualValues(t, n/2*5, sum.Units.CompletionTokens)

	// Not while requests are concurrent: http.Transport may dial for a request
	// that then gets a connection which has become idle.
	before := s.accepted.Load()
	for range n {
		g.chat(askWhole)
	}
	assert.Less(t, s.accepted.Load()-before, int64(n/2), "connections are reused after errors")
}
