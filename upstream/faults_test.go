package upstream_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/upstream"
)

const (
	bodyFailed      = `{"error":{"message":"The model's server had an error. Please try again.","type":"server_error","param":null,"code":null}}`
	bodyUnavailable = `{"error":{"message":"The model's server could not be reached. Please try again.","type":"server_error","param":null,"code":null}}`
	bodyTimeout     = `{"error":{"message":"The model did not answer in time.","type":"server_error","param":null,"code":null}}`
)

// reset closes a connection such that the other end is told so rudely.
func reset(c net.Conn) {
	c.(*net.TCPConn).SetLinger(0)
	c.Close()
}

func garbage(n int) string {
	rng := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	b[0] = 0xee
	return string(b)
}

// What becomes of a reply that does not come as it should: before anything of
// it came, the client is told a status; after that its stream ends with an
// error event and without [DONE], and the connection breaks. Usage is recorded
// for each, and nothing is left.
func TestFaults(t *testing.T) {
	quick := &upstream.Options{FirstByteTimeout: 100 * time.Millisecond, SilenceTimeout: 100 * time.Millisecond}
	silent := &upstream.Options{SilenceTimeout: time.Second}
	small := &upstream.Options{MaxEvent: 1 << 16, MaxReply: 1 << 16}
	type fault struct {
		name   string
		reply  func(s *rawServer, c net.Conn)
		opts   *upstream.Options
		status int    // that the client is told; 200 for a stream that breaks off
		body   string // of the error, or of the event
		log    string
	}
	said := func(c net.Conn) {
		begin(c, "text/event-stream")
		piece(c, "data: "+chunk("Hello")+"\n\n")
		piece(c, "data: "+chunk(" there")+"\n\n")
	}
	early := func(name string, reply func(c net.Conn), log string) fault {
		return fault{name, func(_ *rawServer, c net.Conn) { reply(c) }, nil, 502, bodyFailed, log}
	}
	late := func(name string, reply func(c net.Conn), log string) fault {
		return fault{name, func(_ *rawServer, c net.Conn) { said(c); reply(c) }, nil, 200, bodyFailed, log}
	}
	head := "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
	both := []fault{
		{"no reply", func(_ *rawServer, c net.Conn) { c.Close() }, nil, 502, bodyUnavailable, "the connection was closed"},
		{"reset at once", func(_ *rawServer, c net.Conn) { reset(c) }, nil, 502, bodyUnavailable, "connection reset by peer"},
		{"garbage", func(_ *rawServer, c net.Conn) { io.WriteString(c, garbage(1000)); c.Close() }, nil, 502, bodyUnavailable, "not HTTP as it should be"},
		{"half a head", func(_ *rawServer, c net.Conn) { io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-"); c.Close() }, nil, 502, bodyUnavailable, "not HTTP as it should be"},
		{"an endless head", func(_ *rawServer, c net.Conn) {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nX: ")
			for range 10_000 {
				if _, err := io.WriteString(c, strings.Repeat("x", 1000)); err != nil {
					break
				}
			}
			c.Close()
		}, nil, 502, bodyUnavailable, ""},
		{"hanging", func(s *rawServer, c net.Conn) { s.hang(c) }, quick, 504, bodyTimeout, "the server sent nothing for too long"},
		{"hanging after its head", func(s *rawServer, c net.Conn) { io.WriteString(c, head+"\r\n"); s.hang(c) }, quick, 504, bodyTimeout, "the server sent nothing for too long"},
		early("an empty body", func(c net.Conn) { whole(c, 200, "application/json", "") }, "empty"),
		early("no content", func(c net.Conn) { io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n") }, "empty"),
		early("a page", func(c net.Conn) { whole(c, 200, "text/html", "<!doctype html><p>Welcome!") }, "a page of HTML: is the base URL right?"),
		early("a page that says it is JSON", func(c net.Conn) { whole(c, 200, "application/json", "\n <html>") }, "a page of HTML"),
		early("a text", func(c net.Conn) { whole(c, 200, "text/plain", "It works!") }, ""),
		early("bytes", func(c net.Conn) { whole(c, 200, "application/json", garbage(1000)) }, ""),
		early("truncated JSON", func(c net.Conn) { whole(c, 200, "application/json", wholeReply[:len(wholeReply)/2]) }, "not valid JSON"),
		early("two JSONs", func(c net.Conn) { whole(c, 200, "application/json", wholeReply+wholeReply) }, "not valid JSON"),
		early("another JSON", func(c net.Conn) { whole(c, 200, "application/json", `{"status":"ok"}`) }, "no choices"),
		early("a list", func(c net.Conn) { whole(c, 200, "application/json", `[1,2]`) }, "want an object"),
		early("a body that is cut", func(c net.Conn) {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"+wholeReply[:100])
			c.Close()
		}, "the connection was closed"),
		early("a compressed body", func(c net.Conn) { whole(c, 200, "application/json", "\x1f\x8b...", "Content-Encoding: gzip") }, "compressed"),
		early("a redirect", func(c net.Conn) {
			whole(c, 307, "text/plain", "", "Location: http://elsewhere.example.com/v1/chat/completions")
		}, "a redirect, which is not followed"),
		early("status 500", func(c net.Conn) { whole(c, 500, "application/json", `{"error":{"message":"CUDA out of memory"}}`) }, "status 500: CUDA out of memory"),
		early("status 500, a page", func(c net.Conn) { whole(c, 500, "text/html", "<h1>500</h1>") }, "12 bytes of text/html"),
		early("status 500, cut", func(c net.Conn) {
			io.WriteString(c, "HTTP/1.1 500 X\r\nContent-Length: 1000\r\n\r\nabc")
			c.Close()
		}, "status 500"),
		early("status 101", func(c net.Conn) { io.WriteString(c, "HTTP/1.1 101 X\r\n\r\n"); c.Close() }, ""),
		early("a 200 with an error", func(c net.Conn) { whole(c, 200, "application/json", `{"error":{"message":"boom","code":500}}`) }, "boom"),
		early("a 200 with another error", func(c net.Conn) {
			whole(c, 200, "application/json", `{ "object": "error", "message": "boom" }`)
		}, "boom"),
		early("a 200 with an error behind", func(c net.Conn) { whole(c, 200, "application/json", `{"choices":[],"error":"boom"}`) }, "boom"),
		early("a stream of nothing", func(c net.Conn) { events(c) }, "empty"),
		early("a stream of its end", func(c net.Conn) { events(c, done) }, "nothing but its end"),
		early("a stream of comments", func(c net.Conn) { begin(c, "text/event-stream"); piece(c, ": hello\n\n"); end(c) }, "empty"),
		early("a stream of an error", func(c net.Conn) { events(c, `{"error":{"message":"boom"}}`, done) }, "boom"),
		early("a stream of bytes", func(c net.Conn) { whole(c, 200, "text/event-stream", garbage(1000)) }, ""),
		early("a stream of garbage", func(c net.Conn) { events(c, garbage(1000), done) }, "not valid JSON"),
		{"a large reply", func(_ *rawServer, c net.Conn) {
			whole(c, 200, "application/json", strings.Repeat(" ", 1<<17))
			c.Close()
		}, small, 502, bodyFailed, "too large"},
		{"a large reply of unknown length", func(_ *rawServer, c net.Conn) {
			begin(c, "application/json")
			for piece(c, strings.Repeat(" ", 1<<12)) == nil {
			}
			c.Close()
		}, small, 502, bodyFailed, "too large"},
		{"100 MB in one line", func(_ *rawServer, c net.Conn) {
			begin(c, "text/event-stream")
			piece(c, "data: ")
			for range 100 {
				if piece(c, strings.Repeat("x", 1<<20)) != nil {
					break
				}
			}
			c.Close()
		}, nil, 502, bodyFailed, "an event of the stream is too large"},
	}
	streams := []fault{
		late("ends early", func(c net.Conn) { end(c) }, "neither a finish_reason nor [DONE]"),
		late("closed", func(c net.Conn) { c.Close() }, "the connection was closed"),
		late("reset", func(c net.Conn) { time.Sleep(20 * time.Millisecond); reset(c) }, "connection reset by peer"),
		late("garbage", func(c net.Conn) { piece(c, garbage(100)+"\n\ndata: \x00\n\n"); end(c) }, "not valid JSON"),
		late("garbage between pieces", func(c net.Conn) { io.WriteString(c, "zz\r\n"+garbage(100)); c.Close() }, "not HTTP as it should be"),
		late("truncated JSON", func(c net.Conn) { piece(c, `data: {"choices":[{"del`); end(c) }, "not valid JSON"),
		late("an error", func(c net.Conn) { piece(c, "data: {\"error\":{\"message\":\"boom\"}}\n\n"); end(c) }, "boom"),
		late("an error and an end", func(c net.Conn) { piece(c, "data: {\"error\":{\"message\":\"boom\"}}\n\ndata: [DONE]\n\n"); end(c) }, "boom"),
		late("an error that is a text", func(c net.Conn) { piece(c, "data: {\"error\":\"boom\"}\n\n"); end(c) }, "boom"),
		late("an event of an error", func(c net.Conn) { piece(c, "event: error\ndata: {\"message\":\"boom\"}\n\n"); end(c) }, "boom"),
		late("an event of an error's text", func(c net.Conn) { piece(c, "event: error\ndata: boom\n\n"); end(c) }, "boom"),
		late("an error field", func(c net.Conn) { piece(c, "error: {\"code\":500,\"message\":\"boom\"}\n\n"); end(c) }, "boom"),
		late("an error that says nothing", func(c net.Conn) { piece(c, "data: {\"error\":{}}\n\n"); end(c) }, "does not say"),
		late("an error for a reason", func(c net.Conn) {
			piece(c, "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"error\"}]}\n\ndata: [DONE]\n\n")
			end(c)
		}, "ended the reply for an error"),
		{"silent", func(s *rawServer, c net.Conn) { said(c); s.hang(c) }, silent, 200, bodyTimeout, "the server sent nothing for too long"},
		{"100 MB in one line, later", func(_ *rawServer, c net.Conn) {
			said(c)
			piece(c, "data: ")
			for range 100 {
				if piece(c, strings.Repeat("x", 1<<20)) != nil {
					break
				}
			}
			c.Close()
		}, nil, 200, bodyFailed, "an event of the stream is too large"},
	}
	run := func(f fault, ask string) func(t *testing.T) {
		return func(t *testing.T) {
			noLeaks(t)
			var s *rawServer
			s = newRawServer(t, func(c net.Conn, _ *rawRequest) { f.reply(s, c) })
			var opts upstream.Options
			if f.opts != nil {
				opts = *f.opts
			}
			g := newGateway(t, s.url(), &opts)
			a := g.chat(ask)
			require.Equal(t, f.status, a.StatusCode, "%s", a.body)
			if f.status == 200 {
				list := frames(t, a.body)
				assert.Equal(t, f.body, list[len(list)-1])
				assert.NotContains(t, list, done)
				assert.ErrorIs(t, a.err, io.ErrUnexpectedEOF, "the client must not take it for complete")
				text, reason := textOf(t, a.body)
				assert.Equal(t, "Hello there", text)
				assert.Empty(t, reason)
			} else {
				require.NoError(t, a.err)
				assert.Equal(t, f.body, a.body)
			}
			assert.Contains(t, g.log.String(), f.log)
			e := g.only()
			assert.Equal(t, f.status, e.Status)
			require.Error(t, e.Err)
			sum := g.used(1)
			assert.EqualValues(t, 1, sum.Requests, "the request is recorded")
			if f.status == 200 {
				assert.True(t, e.Estimated)
				assert.EqualValues(t, 3, sum.CompletionTokens, "what came is paid for, by estimate")
				assert.Positive(t, sum.PromptTokens)
			} else {
				assert.Zero(t, sum.PromptTokens+sum.CompletionTokens, "what brought nothing costs nothing")
			}
			await(t, "the connection to be closed or idle", func() bool {
				g.backend.CloseIdleConnections()
				return s.open.Load() == 0
			})
		}
	}
	for _, f := range both {
		t.Run("whole/"+f.name, run(f, askWhole))
		t.Run("stream/"+f.name, run(f, askStream))
	}
	for _, f := range streams {
		t.Run("stream/"+f.name, run(f, askStream))
	}
	// What breaks off a stream breaks a reply that is to be whole.
	for _, f := range streams {
		whole := f
		t.Run("whole of a stream/"+f.name, func(t *testing.T) {
			noLeaks(t)
			var s *rawServer
			s = newRawServer(t, func(c net.Conn, _ *rawRequest) { whole.reply(s, c) })
			var opts upstream.Options
			if f.opts != nil {
				opts = *f.opts
			}
			g := newGateway(t, s.url(), &opts)
			a := g.chat(askWhole)
			assert.Contains(t, []int{502, 504}, a.StatusCode)
			assert.Equal(t, f.body, a.body)
			assert.EqualValues(t, 1, g.used(1).Requests)
		})
	}
}

func TestNobodyListens(t *testing.T) {
	noLeaks(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l.Close()
	g := newGateway(t, "http://"+l.Addr().String()+"/v1", nil)
	for _, ask := range []string{askWhole, askStream} {
		a := g.chat(ask)
		assert.Equal(t, 502, a.StatusCode)
		assert.Equal(t, bodyUnavailable, a.body)
	}
	assert.Contains(t, g.log.String(), "upstream: no reply: dial: connection refused")
	sum := g.used(2)
	assert.EqualValues(t, 2, sum.Requests)
	assert.Zero(t, sum.PromptTokens)
}

func TestNoSuchHost(t *testing.T) {
	noLeaks(t)
	g := newGateway(t, "http://upstream.invalid/v1", nil)
	assert.Equal(t, bodyUnavailable, g.chat(askWhole).body)
	assert.NotContains(t, g.log.String(), "upstream.invalid")
}

// A server that accepts connections and never says anything, not even to greet
// in TLS.
func TestConnectTimeout(t *testing.T) {
	noLeaks(t)
	l, err := net.Listen("tcp", "127.0.0.1:0") // the system accepts
	require.NoError(t, err)
	defer l.Close()
	g := newGateway(t, "https://"+l.Addr().String()+"/v1", &upstream.Options{ConnectTimeout: 50 * time.Millisecond})
	assert.Equal(t, bodyUnavailable, g.chat(askStream).body)
	assert.Contains(t, g.log.String(), "it took too long")
}

// The environment variable that makes of the test binary a server to be killed.
const childVariable = "LLMHTTP_UPSTREAM_TEST_SERVER"

func serveChild() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(l.Addr())
	b := memory.Scripted(memory.Say("Hello"), memory.Say(" there"), memory.Hang())
	http.Serve(l, llmhttp.NewHandler(b, llmhttp.AllowAll("parent"), nil))
}

// startChild starts a server in a process of its own.
func startChild(t *testing.T) (base string, process *os.Process) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"=1")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	return "http://" + strings.TrimSpace(line) + "/v1", cmd.Process
}

// A server that is killed in mid-stream.
func TestKilled(t *testing.T) {
	noLeaks(t)
	base, process := startChild(t)
	g := newGateway(t, base, nil)
	const n = 5
	var wg sync.WaitGroup
	var ready sync.WaitGroup
	ready.Add(n)
	for range n {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			resp, err := g.Client().Do(g.request(ctx, "POST", chatPath, askStream))
			if !assert.NoError(t, err) {
				ready.Done()
				return
			}
			defer resp.Body.Close()
			var body []byte
			buf := make([]byte, 4096)
			for !strings.Contains(string(body), "there") && err == nil {
				var k int
				k, err = resp.Body.Read(buf)
				body = append(body, buf[:k]...)
			}
			ready.Done()
			rest, err := io.ReadAll(resp.Body)
			assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
			assert.True(t, strings.HasSuffix(string(body)+string(rest), "data: "+bodyFailed+"\n\n"), "%s", rest)
			assert.NotContains(t, string(rest), done)
		})
	}
	ready.Wait()
	require.NoError(t, process.Kill())
	wg.Wait()
	assert.Equal(t, bodyUnavailable, g.chat(askStream).body, "now nobody listens")
	sum := g.used(n + 1)
	assert.EqualValues(t, n+1, sum.Requests)
	assert.EqualValues(t, 3*n, sum.CompletionTokens)
}

// A server that is now there and now not.
func TestFlapping(t *testing.T) {
	noLeaks(t)
	var up atomic.Bool
	s := newRawServer(t, func(c net.Conn, _ *rawRequest) {
		if !up.Load() {
			reset(c)
			return
		}
		events(c, chunk("Hello"), chunkEnd, chunkUsage, done)
	})
	g := newGateway(t, s.url(), nil)
	const n = 20
	for i := range n {
		up.Store(i%2 == 1)
		a := g.chat(askStream)
		if !up.Load() {
			assert.Equal(t, 502, a.StatusCode)
			continue
		}
		require.Equal(t, 200, a.StatusCode, "it is there again")
		assert.True(t, strings.HasSuffix(a.body, "data: [DONE]\n\n"))
	}
	sum := g.used(n)
	assert.EqualValues(t, n, sum.Requests)
	assert.EqualValues(t, n/2*5, sum.CompletionTokens)
}

// A server half of whose replies are 500.
func TestHalf500(t *testing.T) {
	noLeaks(t)
	s := newRawServer(t, func(c net.Conn, r *rawRequest) {
		if r.n%2 == 0 {
			whole(c, 500, "application/json", `{"error":{"message":"boom"}}`)
			return
		}
		whole(c, 200, "application/json", wholeReply)
	})
	g := newGateway(t, s.url(), nil)
	const n = 40
	var good, bad atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range n / 8 {
				switch a := g.chat(askWhole); a.StatusCode {
				case 200:
					good.Add(1)
				case 502:
					bad.Add(1)
				default:
					assert.Fail(t, "status", "%d", a.StatusCode)
				}
			}
		})
	}
	wg.Wait()
	assert.EqualValues(t, n/2, good.Load())
	assert.EqualValues(t, n/2, bad.Load())
	sum := g.used(n)
	assert.EqualValues(t, n, sum.Requests)
	assert.EqualValues(t, n/2*7, sum.PromptTokens)
	assert.EqualValues(t, n/2*5, sum.CompletionTokens)
	assert.LessOrEqual(t, s.conns.Load(), int64(8+1), "replies that are errors leave their connections usable")
}

// A client that leaves closes the request to the server at once, whatever that
// is doing.
func TestClientLeaves(t *testing.T) {
	for _, c := range []struct {
		name, path, body string
		reply            func(c net.Conn)
	}{
		{"before the head, whole", chatPath, askWhole, func(net.Conn) {}},
		{"before the head, stream", chatPath, askStream, func(net.Conn) {}},
		{"after the head", chatPath, askStream, func(c net.Conn) { begin(c, "text/event-stream") }},
		{"in the stream", chatPath, askStream, func(c net.Conn) {
			begin(c, "text/event-stream")
			piece(c, "data: "+chunk("Hello")+"\n\n")
		}},
		{"in an event", chatPath, askStream, func(c net.Conn) {
			begin(c, "text/event-stream")
			piece(c, "data: "+chunk("Hello")+"\n\ndata: {\"cho")
		}},
		{"in a whole reply", chatPath, askWhole, func(c net.Conn) { begin(c, "application/json"); piece(c, wholeReply[:50]) }},
		{"in an error", chatPath, askWhole, func(c net.Conn) { io.WriteString(c, "HTTP/1.1 400 X\r\nContent-Length: 100\r\n\r\n{") }},
		{"images", "/v1/images/generations", `{"model":"m","prompt":"a cat"}`, func(net.Conn) {}},
		{"embeddings", "/v1/embeddings", `{"model":"m","input":"Hello?"}`, func(net.Conn) {}},
	} {
		t.Run(c.name, func(t *testing.T) {
			noLeaks(t)
			working := make(chan struct{})
			var s *rawServer
			s = newRawServer(t, func(conn net.Conn, _ *rawRequest) {
				c.reply(conn)
				close(working)
				s.hang(conn)
			})
			g := newGateway(t, s.url(), nil)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				resp, err := g.Client().Do(g.request(ctx, "POST", c.path, c.body))
				if err == nil {
					io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			}()
			<-working
			if strings.HasPrefix(c.name, "in the stream") {
				time.Sleep(20 * time.Millisecond) // most likely the client has it by then
			}
			cancel()
			<-ended
			await(t, "the request to be closed", func() bool { return s.aborted.Load() == 1 && s.open.Load() == 0 })
			e := g.only()
			assert.ErrorIs(t, e.Err, context.Canceled)
			assert.EqualValues(t, 1, g.used(1).Requests)
			assert.NotContains(t, g.log.String(), `"level":"ERROR"`, "a client that leaves is no failure")
		})
	}
}

// A client that leaves while the server is being connected to is not waited
// with.
func TestClientLeavesConnecting(t *testing.T) {
	noLeaks(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	g := newGateway(t, "https://"+l.Addr().String()+"/v1", &upstream.Options{ConnectTimeout: -1, FirstByteTimeout: -1})
	ended := make(chan error, 1)
	go func() {
		resp, err := g.Client().Do(g.request(ctx, "POST", chatPath, askStream))
		if err == nil {
			resp.Body.Close()
		}
		ended <- err
	}()
	c, err := l.Accept() // it is to be greeted in TLS
	require.NoError(t, err)
	defer c.Close()
	cancel()
	assert.ErrorIs(t, <-ended, context.Canceled)
	assert.ErrorIs(t, g.only().Err, context.Canceled)
	assert.EqualValues(t, 1, g.used(1).Requests)
}

// A client that does not read keeps the server from sending, and nothing grows.
func TestBackpressure(t *testing.T) {
	noLeaks(t)
	var sent atomic.Int64
	text := "data: " + chunk(strings.Repeat("x", 4000)) + "\n\n"
	var s *rawServer
	s = newRawServer(t, func(c net.Conn, _ *rawRequest) {
		begin(c, "text/event-stream")
		for piece(c, text) == nil {
			sent.Add(int64(len(text)))
		}
		s.aborted.Add(1)
		c.Close()
	})
	g := newGateway(t, s.url(), nil)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	resp, err := g.Client().Do(g.request(ctx, "POST", chatPath, askStream))
	require.NoError(t, err)
	defer resp.Body.Close()
	// The buffers of sockets take a few megabytes, and then no more goes.
	var last int64
	still := 0
	await(t, "the server to stand still", func() bool {
		time.Sleep(20 * time.Millisecond)
		if now := sent.Load(); now != last {
			last, still = now, 0
		} else if last > 0 {
			still++
		}
		return still >= 25
	})
	assert.Less(t, last, int64(64<<20))
	cancel()
	await(t, "the request to be closed", func() bool { return s.aborted.Load() == 1 })
}

// The client of a stream has its [DONE] when the server has sent its own, even
// if the server does not end its reply.
func TestDoneIsTheEnd(t *testing.T) {
	noLeaks(t)
	var s *rawServer
	s = newRawServer(t, func(c net.Conn, _ *rawRequest) {
		begin(c, "text/event-stream")
		piece(c, "data: "+chunk("Hello")+"\n\ndata: [DONE]\n")
		s.hang(c)
	})
	g := newGateway(t, s.url(), nil)
	a := g.chat(askStream)
	require.NoError(t, a.err)
	assert.True(t, strings.HasSuffix(a.body, "data: [DONE]\n\n"))
	await(t, "the connection to be given up", func() bool { return s.aborted.Load() == 1 })
}

// Shutting down ends streams, and the requests to the server with them.
func TestShutdown(t *testing.T) {
	noLeaks(t)
	var s *rawServer
	s = newRawServer(t, func(c net.Conn, _ *rawRequest) {
		begin(c, "text/event-stream")
		piece(c, "data: "+chunk("Hello")+"\n\n")
		s.hang(c)
	})
	g := newGateway(t, s.url(), nil)
	resp, err := g.Client().Do(g.request(context.Background(), "POST", chatPath, askStream))
	require.NoError(t, err)
	defer resp.Body.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, g.Config.Handler.(*llmhttp.Handler).Shutdown(ctx), context.Canceled)
	body, _ := io.ReadAll(resp.Body)
	assert.Contains(t, string(body), "The server is shutting down.")
	await(t, "the request to be closed", func() bool { return s.aborted.Load() == 1 })
}
