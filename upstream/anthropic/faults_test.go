package anthropic_test

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
	"github.com/llmhttp/llmhttp/upstream"
	"github.com/llmhttp/llmhttp/upstream/anthropic"
)

// raw returns a reply that is written to the connection as it is, which is then closed.
func raw(t testing.TB, reply string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if assert.NoError(t, err) {
			io.WriteString(c, reply)
			c.Close()
		}
	}
}

const chunkedHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"

func chunked(text string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(text), text) }

// What goes wrong on the way: what the client and a log get.
func TestFaults(t *testing.T) {
	for name, test := range map[string]struct {
		reply http.HandlerFunc
		log   string
	}{
		"closed at once":     {raw(t, ""), "the connection was closed before the reply was complete"},
		"not HTTP":           {raw(t, "hello\r\n\r\n"), "the reply is not valid HTTP"},
		"cut header":         {raw(t, "HTTP/1.1 200 OK\r\nConte"), "the reply is not valid HTTP"},
		"cut body":           {raw(t, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"+okMessage[:20]), "the reply was interrupted"},
		"cut stream":         {raw(t, chunkedHead+chunked(events(messageStart, textStart, textDelta))), "the reply was interrupted"},
		"cut chunk":          {raw(t, chunkedHead+"fff\r\n"+events(messageStart, textStart, textDelta)), "the reply was interrupted"},
		"garbage in chunks":  {raw(t, chunkedHead+chunked(events(messageStart, textStart, textDelta))+"zz\r\n"), "the reply is not valid HTTP"},
		"redirect":           {text(http.StatusFound, "", "Location", "https://elsewhere.test"), "the reply is a redirect"},
		"huge event":         {text(http.StatusOK, "data: {\"type\":\""+strings.Repeat("x", 5000)), "an event of the stream is too large"},
		"huge message":       {text(http.StatusOK, `{"type":"message","content":[{"type":"text","text":"`+strings.Repeat("x", 9000)+`"}]}`), "the reply is too large"},
		"huge thinking":      {text(http.StatusOK, events(messageStart, start("0", `{"type":"thinking"}`), delta("0", `{"type":"thinking_delta","thinking":"`+strings.Repeat("x", 3000)+`"}`), delta("0", `{"type":"thinking_delta","thinking":"`+strings.Repeat("x", 3000)+`"}`))), "a content block is too large"},
		"unknown encoding":   {text(http.StatusOK, "x", "Content-Encoding", "br"), "br"},
		"surprising success": {text(http.StatusOK, `{"ok":true}`), "the reply is not a message"},
	} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%t", name, stream), func(t *testing.T) {
				s := newServer(t, test.reply)
				opts := &anthropic.Options{Server: upstream.Options{Key: serverKey, MaxEvent: 4096, MaxReply: 8192}}
				_, err := join.Collect(newBackend(t, s.URL, opts).Chat(t.Context(), ask(stream)))
				var e *llm.Error
				require.ErrorAs(t, err, &e)
				assert.Equal(t, http.StatusBadGateway, e.Status)
				assert.Contains(t, err.Error(), test.log)
				assert.NotContains(t, err.Error(), s.Listener.Addr().String())
				assert.NotContains(t, err.Error(), serverKey)
				var details *upstream.Error
				require.ErrorAs(t, err, &details)
			})
		}
	}
}

// Nothing listens: the request was certainly not sent.
func TestFaults_NotReachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l.Close()
	_, err = join.Collect(newBackend(t, "http://"+l.Addr().String(), nil).Chat(t.Context(), ask(true)))
	assert.ErrorIs(t, err, llm.ErrNotSent)
	var e *llm.Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, http.StatusBadGateway, e.Status)
}

// A compressed reply is read although the server was asked for none.
func TestFaults_Compressed(t *testing.T) {
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "identity", r.Header.Get("Accept-Encoding"))
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		io.WriteString(z, textStream())
		z.Close()
	})
	resp, err := join.Collect(newBackend(t, s.URL, nil).Chat(t.Context(), ask(true)))
	require.NoError(t, err)
	assert.Equal(t, "Hi", resp.Choices[0].Message.Content.Text())
}

// A silentBody has a text, and then nothing until its request ends.
type silentBody struct {
	io.Reader
	ctx context.Context
}

func (b *silentBody) Read(p []byte) (int, error) {
	if n, err := b.Reader.Read(p); err != io.EOF {
		return n, err
	}
	<-b.ctx.Done()
	return 0, context.Cause(b.ctx)
}

func (*silentBody) Close() error { return nil }

// A server that is silent is given up after the timeouts.
func TestFaults_Silence(t *testing.T) {
	for name, test := range map[string]struct {
		body  string
		after time.Duration
	}{
		"from the start": {"", 7 * time.Minute},
		"in the stream":  {events(messageStart, textStart, textDelta), 90 * time.Second},
		"in the message": {okMessage[:30], 90 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				opts := withTransport(func(r *http.Request) (*http.Response, error) {
					return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, ContentLength: -1, Body: &silentBody{strings.NewReader(test.body), r.Context()}}, nil
				})
				opts.Server.FirstByteTimeout, opts.Server.IdleTimeout = 7*time.Minute, 90*time.Second
				b, err := anthropic.New("http://localhost", opts)
				require.NoError(t, err)
				began := time.Now()
				_, err = join.Collect(b.Chat(t.Context(), ask(true)))
				assert.ErrorIs(t, err, context.DeadlineExceeded)
				assert.Equal(t, test.after, time.Since(began))
				var e *llm.Error
				require.ErrorAs(t, err, &e)
				assert.Equal(t, http.StatusGatewayTimeout, e.Status)
			})
		})
	}
}

// The connection may stay open after message_stop (earendil-works/pi#5592).
func TestFaults_OpenAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, err := anthropic.New("http://localhost", withTransport(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, ContentLength: -1, Body: &silentBody{strings.NewReader(textStream()), r.Context()}}, nil
		}))
		require.NoError(t, err)
		began := time.Now()
		resp, err := join.Collect(b.Chat(t.Context(), ask(true)))
		require.NoError(t, err)
		assert.Equal(t, "Hi", resp.Choices[0].Message.Content.Text())
		assert.Zero(t, time.Since(began))
		time.Sleep(time.Minute) // until the connection is given up
	})
}

// A failure of the caller's context is passed on as it is.
func TestFaults_CallerLeaves(t *testing.T) {
	cause := errors.New("the caller has left")
	ctx, cancel := context.WithCancelCause(t.Context())
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, events(messageStart, textStart, textDelta))
		http.NewResponseController(w).Flush()
		cancel(cause)
		<-r.Context().Done()
	})
	_, err := join.Collect(newBackend(t, s.URL, nil).Chat(ctx, ask(true)))
	assert.ErrorIs(t, err, cause)
}
