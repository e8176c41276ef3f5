// A request in process: what it is made of, and how it ends.

package responsesws

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
)

// requestOf returns the request that an upgrade makes of each message, without a body.
func requestOf(upgrade *http.Request) *http.Request {
	r := upgrade.Clone(upgrade.Context())
	r.Method = http.MethodPost
	for _, name := range []string{
		"Connection", "Upgrade", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Expect",
		"Content-Length", "Content-Encoding",
		"X-Request-Id",    // several requests must not have the same ID, with which usage is recorded once
		"Accept-Encoding", // middleware is not to compress a stream that nobody decompresses
	} {
		r.Header.Del(name)
	}
	for name := range r.Header {
		if strings.HasPrefix(name, "Sec-Websocket-") {
			delete(r.Header, name)
		}
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "text/event-stream")
	r.Body, r.ContentLength, r.TransferEncoding, r.Trailer, r.Pattern = nil, 0, nil, nil, ""
	return r
}

// newRequest returns a request with the given body at path, which is appended to that of the upgrade.
func (c *connection) newRequest(path string, body []byte) *http.Request {
	r := c.upgrade.Clone(c.ctx)
	if path != "" {
		r.URL.Path += path
		if r.URL.RawPath != "" {
			r.URL.RawPath += path
		}
		r.RequestURI = r.URL.RequestURI()
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return r
}

// serveMessage runs the request for m, and returns when its reply has been sent.
func (c *connection) serveMessage(m *message) {
	before := conversation{base: m.previous} // what the Handler behind this one may know
	if m.previous != "" {
		if known, ok := c.h.history.find(&c.history, m.previous); ok {
			before = known
		}
	}
	body, items := m.body(before)
	w := &responseWriter{c: c, message: m, base: before.base, items: items, header: make(http.Header)}
	path := ""
	if m.warmup {
		path = "/input_tokens"
	}
	m.input, m.members = nil, nil // body has them
	if !m.warmup {
		m.params = nil
	}
	defer func() { // also after runtime.Goexit
		p := recover()
		if p != nil && p != http.ErrAbortHandler {
			c.h.opts.Logger.LogAttrs(c.ctx, slog.LevelError, "responsesws: panic of a request in process",
				slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
		}
		w.finish(p != nil)
	}()
	c.h.next.ServeHTTP(w, c.newRequest(path, body))
}
