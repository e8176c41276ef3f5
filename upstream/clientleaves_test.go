package upstream_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/upstream"
)

// The request to the server ends when the client leaves.
func TestClientLeaves(t *testing.T) {
	for _, test := range []struct {
		name, path, body string
		reply            func(c net.Conn)
	}{
		{"whole reply, before the header", chatPath, askWhole, func(net.Conn) {}},
		{"stream, before the header", chatPath, askStream, func(net.Conn) {}},
		{"after the header", chatPath, askStream, func(c net.Conn) { writeHead(c, mediaEvents) }},
		{"after a chunk", chatPath, askStream, func(c net.Conn) { writeHead(c, mediaEvents); writePiece(c, eventStream(textChunk("Hello"))) }},
		{"within an event", chatPath, askStream, func(c net.Conn) {
			writeHead(c, mediaEvents)
			writePiece(c, eventStream(textChunk("Hello"))+"data: {\"cho")
		}},
		{"within a whole reply", chatPath, askWhole, func(c net.Conn) { writeHead(c, mediaJSON); writePiece(c, wholeReply[:50]) }},
		{"within an error", chatPath, askWhole, func(c net.Conn) { io.WriteString(c, "HTTP/1.1 400 X\r\nContent-Length: 100\r\n\r\n{") }},
		{"images", "/v1/images/generations", `{"model":"m","prompt":"a cat"}`, func(net.Conn) {}},
		{"rerank", "/v1/rerank", `{"model":"m","query":"q","documents":["a"]}`, func(net.Conn) {}},
		{"completion", "/v1/completions", `{"model":"m","prompt":"Hello?"}`, func(net.Conn) {}},
		{"stream of a completion, after a chunk", "/v1/completions", `{"model":"m","prompt":"Hello?","stream":true}`, func(c net.Conn) {
			writeHead(c, mediaEvents)
			writePiece(c, eventStream(`{"choices":[{"text":"Hello","index":0}]}`))
		}},
		{"moderations", "/v1/moderations", `{"model":"m","input":"Hello?"}`, func(net.Conn) {}},
		{"embeddings", "/v1/embeddings", `{"model":"m","input":"Hello?"}`, func(net.Conn) {}},
	} {
		t.Run(test.name, func(t *testing.T) {
			checkLeaks(t)
			replied := make(chan struct{})
			var s *rawServer
			s = newRawServer(t, func(c net.Conn, _ *rawRequest) {
				test.reply(c)
				close(replied)
				s.hang(c)
			})
			g := newGateway(t, s.url(), nil)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			chunk := make(chan struct{}) // closed when the client has got something
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				resp, err := g.Client().Do(g.request(ctx, "POST", test.path, test.body))
				if err != nil {
					return
				}
				defer resp.Body.Close()
				resp.Body.Read(make([]byte, 1))
				close(chunk)
				io.Copy(io.Discard, resp.Body)
			}()
			<-replied
			if test.name == "after a chunk" {
				<-chunk
			}
			cancel()
			<-ended
			eventually(t, func() bool { return s.aborted.Load() == 1 && s.open.Load() == 0 }, "the connection is closed")
			assert.ErrorIs(t, g.summary().Err, context.Canceled)
			sum := g.recordedUsage(1)
			assert.EqualValues(t, 1, sum.Requests)
			if test.path != "/v1/images/generations" && test.name != "within an error" {
				assert.Positive(t, sum.Units.PromptTokens, "the server has seen the prompt")
			}
			assert.NotContains(t, g.log.String(), `"level":"ERROR"`, "a client that leaves is not a failure")
		})
	}
}

// A prompt that was not sent to the server is not charged.
func TestClientLeaves_WhileConnecting(t *testing.T) {
	for path, body := range map[string]string{chatPath: askStream, "/v1/embeddings": `{"model":"m","input":"Hello?"}`} {
		t.Run(path, func(t *testing.T) { testLeavesWhileConnecting(t, path, body) })
	}
}

func testLeavesWhileConnecting(t *testing.T, path, body string) {
	checkLeaks(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	g := newGateway(t, "https://"+l.Addr().String()+"/v1", &upstream.Options{ConnectTimeout: -1, FirstByteTimeout: -1})
	ended := make(chan error, 1)
	go func() {
		resp, err := g.Client().Do(g.request(ctx, "POST", path, body))
		if err == nil {
			resp.Body.Close()
		}
		ended <- err
	}()
	c, err := l.Accept() // there is no TLS handshake
	require.NoError(t, err)
	defer c.Close()
	cancel()
	assert.ErrorIs(t, <-ended, context.Canceled)
	assert.ErrorIs(t, g.summary().Err, context.Canceled)
	sum := g.recordedUsage(1)
	assert.EqualValues(t, 1, sum.Requests)
	assert.Zero(t, sum.Units.PromptTokens)
}

// The Backend does not read much further than the consumer of a stream.
func TestChat_Backpressure(t *testing.T) {
	event := eventStream(textChunk(strings.Repeat("x", 4000)))
	sent := 0
	body := readerFunc(func(p []byte) (int, error) {
		n := copy(p, event[sent%len(event):])
		sent += n
		return n, nil
	})
	transport := roundTripper(func(*http.Request) (*http.Response, error) { return okResponse(mediaEvents, body), nil })
	b := newBackend(t, "http://upstream.test/v1", &upstream.Options{Transport: transport})
	chunks := 0
	for _, err := range b.Chat(t.Context(), &llm.ChatRequest{Model: "m", Stream: true}) {
		require.NoError(t, err)
		chunks++
		assert.LessOrEqual(t, sent, chunks*len(event)+4096)
		if chunks == 100 {
			break
		}
	}
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// Shutdown of the Handler ends streams and their requests to the server.
func TestShutdown_EndsUpstreamRequests(t *testing.T) {
	checkLeaks(t)
	var s *rawServer
	s = newRawServer(t, func(c net.Conn, _ *rawRequest) {
		writeHead(c, mediaEvents)
		writePiece(c, eventStream(textChunk("Hello")))
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
	eventually(t, func() bool { return s.aborted.Load() == 1 }, "the request is closed")
}
