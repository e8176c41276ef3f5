package upstream

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp/internal/bounded"
	"github.com/llmhttp/llmhttp/internal/callctx"
	"github.com/llmhttp/llmhttp/internal/redact"
)

// An endpoint is a method and a URL of the server.
type endpoint struct {
	method, url string
	required    bool          // every server has this endpoint, so a 404 has another cause
	maxReply    int64         // the largest reply that is not a stream, in bytes
	readOn      time.Duration // how long a reply is read on when the client has left; zero or negative for none
}

// A call is one request to the server and its reply. It is used by one goroutine at a
// time: close may hand it to another that reads the rest of the reply.
type call struct {
	b        *Backend
	endpoint endpoint
	model    modelNames
	redactor *redact.Redactor

	callContext
	reservation *memoryReservation // memory for a reply that is not a stream, and for its images

	resp    *http.Response
	body    *bufio.Reader // reads resp.Body, with the idle timeout
	sawDone bool          // [DONE] was read, so the rest of the body has no meaning
}

// startCall sends a request and waits for the header of the reply. It returns an error
// if the status is not 2xx. The caller must close the call. accept is the Accept header.
func (b *Backend) startCall(ctx context.Context, e endpoint, body []byte, accept string, model modelNames) (*call, error) {
	return b.startCallWith(ctx, e, jsonPayload(body), accept, model)
}

// startCallWith is startCall for any body.
func (b *Backend) startCallWith(ctx context.Context, e endpoint, body payload, accept string, model modelNames) (*call, error) {
	c := &call{b: b, endpoint: e, model: model, redactor: b.redactor}
	c.reservation = &memoryReservation{memory: &b.memory, limit: e.maxReply}
	c.readOn.timeout, c.readOn.unfinished = e.readOn, b.opts.ReadOnUnfinished
	c.begin(ctx)
	if err := c.send(body, accept); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// send sends the request and checks the header of the reply.
func (c *call) send(body payload, accept string) error {
	if cause := c.callerCause(); cause != nil {
		return cause
	}
	r, err := c.newRequest(body, accept)
	if err != nil {
		return err
	}
	return c.roundTrip(r)
}

// A payload is the body of a request.
type payload struct {
	contentType string
	size        int64 // in bytes
	open        func() (io.ReadCloser, error)
}

func jsonPayload(body []byte) payload {
	return payload{mediaJSON, int64(len(body)), func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }}
}

// newRequest returns the HTTP request. The transport may read body after the reply has
// begun, and may send it again, so the caller must not change or reuse it.
func (c *call) newRequest(body payload, accept string) (*http.Request, error) {
	r, err := http.NewRequestWithContext(c.ctx, c.endpoint.method, c.endpoint.url, nil)
	if err != nil {
		return nil, c.newFailure(http.StatusBadGateway, messageUnavailable, "the request is not valid", err)
	}
	r.Header = c.b.header.Clone()
	r.Header.Set("Accept", accept)
	if body.size > 0 {
		r.ContentLength = body.size
		r.GetBody = body.open
		if r.Body, err = body.open(); err != nil {
			return nil, err
		}
		r.Header.Set("Content-Type", body.contentType)
	}
	if name := c.b.opts.RequestIDHeader; name != "-" {
		if id := callctx.RequestID(c.callerCtx); id != "" {
			r.Header.Set(name, id)
		}
	}
	if c.b.opts.KeyFunc != nil {
		if err := c.setKey(r.Header); err != nil {
			return nil, err
		}
	}
	if name := unsafeHeader(r.Header); name != "" {
		return nil, c.newFailure(http.StatusBadGateway, messageUnavailable, "the request is not valid", errors.New("control character in the header "+name))
	}
	return r, nil
}

// unsafeHeader returns the name of a header with a control character, or "". A Transport of the host may write
// headers without the checks of net/http.
func unsafeHeader(h http.Header) string {
	for name, values := range h {
		if slices.ContainsFunc(values, hasHeaderControl) {
			return name
		}
	}
	return ""
}

// hasHeaderControl reports whether s has a character that the value of a header must not have (RFC 9110,
// section 5.5).
func hasHeaderControl(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}

const (
	mediaJSON   = "application/json"
	mediaEvents = "text/event-stream, application/json" // errors are JSON
)

// setKey sets the key that KeyFunc returns.
func (c *call) setKey(h http.Header) error {
	key, err := c.b.opts.KeyFunc(c.callerCtx)
	if cause := c.callerCause(); cause != nil {
		return cause
	}
	if err == nil && !isKey(key) {
		err = errors.New("the key has a character that a header must not have")
	}
	if err != nil {
		return c.newFailure(http.StatusBadGateway, messageUnavailable, "no key", err)
	}
	if key != "" {
		c.redactor = c.redactor.WithSecrets(key)
		h.Set("Authorization", "Bearer "+key)
	}
	return nil
}

// roundTrip sends r and checks the header of the reply.
func (c *call) roundTrip(r *http.Request) (err error) {
	c.idle.Reset(c.b.opts.FirstByteTimeout)
	c.transportCalled = true
	c.resp, err = c.b.transport.RoundTrip(r)
	if c.resp != nil {
		c.sent.Store(true) // also if the transport does not support httptrace
	}
	if err == nil && c.resp == nil {
		err = errors.New("the Transport returned neither a response nor an error")
	}
	if err != nil {
		return c.interruptedError(err)
	}
	c.body = bufio.NewReader(c.idle.Reader(c.resp.Body, c.b.opts.IdleTimeout))
	if c.resp.StatusCode < 200 || c.resp.StatusCode > 299 {
		return c.statusError()
	}
	if enc := c.resp.Header.Get("Content-Encoding"); enc != "" && enc != "identity" {
		return c.invalidReply("the reply is compressed, which was not requested")
	}
	return nil
}

// readAll returns the whole body of the reply. The caller releases c.reservation when
// the body is no longer in use.
func (c *call) readAll() ([]byte, error) {
	body, err := bounded.ReadAll(c.reservation.reader(c.ctx, c.body), nil, c.resp.ContentLength, c.endpoint.maxReply)
	if err != nil {
		return nil, c.interruptedError(err)
	}
	if text := problemOf(body); text != "" {
		return nil, c.invalidReply(text)
	}
	return body, nil
}

// close ends the call. The connection is kept for the next request only if the
// body was read to its end.
func (c *call) close() {
	detached := c.detach() // or drain would end with the caller's context
	if c.sawDone && detached {
		go c.drain() // in the background, so that the client does not wait for it
		return
	}
	c.closeNow()
}

const (
	// drainTimeout and drainSize limit reading after [DONE], where most servers
	// send only the end of the HTTP body.
	drainTimeout = time.Second
	drainSize    = 16 << 10
)

// drain reads the rest of the body and ends the call.
func (c *call) drain() {
	defer c.closeNow()
	defer c.endAfter(drainTimeout).Stop()
	io.CopyN(io.Discard, c.body, drainSize)
}

// closeNow ends the call without reading the rest of the body.
func (c *call) closeNow() {
	c.end()
	c.reservation.release()
	if c.resp != nil {
		c.resp.Body.Close()
	}
}

// fetchReply sends a request and returns what decode makes of the body of the reply.
func fetchReply[T any](ctx context.Context, b *Backend, e endpoint, body []byte, model modelNames,
	decode func(c *call, reply []byte) (T, error)) (T, error) {
	return fetchReplyTo(ctx, b, e, jsonPayload(body), model, decode)
}

// fetchReplyTo is fetchReply for any body.
func fetchReplyTo[T any](ctx context.Context, b *Backend, e endpoint, body payload, model modelNames,
	decode func(c *call, reply []byte) (T, error)) (decoded T, err error) {
	c, err := b.startCallWith(ctx, e, body, mediaJSON, model)
	if err != nil {
		return decoded, err
	}
	defer c.close()
	reply, err := c.readAll()
	if err != nil {
		return decoded, err
	}
	return decode(c, reply)
}
