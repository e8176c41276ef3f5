package upstream

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/bounded"
	"github.com/llmhttp/llmhttp/internal/redact"
)

// An endpoint is a method and a URL of the server.
type endpoint struct {
	method, url string
	required    bool  // every server has it, so a 404 is not about the endpoint
	maxReply    int64 // the largest reply that is not a stream, in bytes
}

// A call is one request to the server and its reply. It is used by one
// goroutine; only the idle timer runs in another.
type call struct {
	b        *Backend
	endpoint endpoint
	model    modelNames
	redactor *redact.Redactor

	client context.Context // the context of the caller
	ctx    context.Context // the context of the HTTP request
	cancel context.CancelCauseFunc
	detach func() bool // keeps the end of client from canceling ctx
	idle   *bounded.IdleTimer
	memory *reservation // of a reply that is not a stream

	begun      bool        // the transport was called
	connecting atomic.Bool // the transport reports what it does, and has begun to get a connection
	sent       atomic.Bool // a part of the request was sent

	resp *http.Response
	body *bufio.Reader // reads resp.Body, with the idle timeout
	done bool          // [DONE] was read, so the rest of the body has no meaning
}

// left returns an error if the client has left, and nil if not.
func (c *call) left() error {
	if c.client.Err() == nil {
		return nil
	}
	cause := context.Cause(c.client)
	if c.notSent() {
		return fmt.Errorf("%w: %w", llmhttp.ErrNotSent, cause)
	}
	return cause
}

// notSent reports whether the server has certainly not seen the request.
func (c *call) notSent() bool {
	return c.resp == nil && !c.sent.Load() && (!c.begun || c.connecting.Load())
}

// errIdle is the cause of a call's context if the server was silent for too long.
var errIdle = errors.New("the server sent nothing for too long")

// do sends a request and waits for the header of the reply, whose status is
// 2xx. The caller must close the call. accept is the Accept header.
func (b *Backend) do(ctx context.Context, e endpoint, body []byte, accept string, model modelNames) (*call, error) {
	c := b.newCall(ctx, e, model)
	var r *http.Request
	err := c.left()
	if err == nil {
		r, err = c.newRequest(body, accept)
	}
	if err == nil {
		err = c.roundTrip(r)
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// newCall returns a call whose context has the values of ctx and ends with it.
// It is not a child of ctx, because the rest of the body may still be read when
// the reply is complete and ctx has ended.
func (b *Backend) newCall(ctx context.Context, e endpoint, model modelNames) *call {
	c := &call{b: b, endpoint: e, model: model, redactor: b.redactor, client: ctx}
	c.memory = &reservation{m: &b.memory, limit: e.maxReply}
	c.ctx, c.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	c.ctx = httptrace.WithClientTrace(c.ctx, &httptrace.ClientTrace{
		GetConn:      func(string) { c.connecting.Store(true) },
		WroteHeaders: func() { c.sent.Store(true) },
	})
	c.detach = context.AfterFunc(ctx, func() { c.cancel(context.Cause(ctx)) })
	c.idle = bounded.NewIdleTimer(func() { c.cancel(errIdle) })
	return c
}

// newRequest returns the HTTP request. Its body is not changed or used again,
// so the transport may read it also after the reply has begun, and repeat it.
func (c *call) newRequest(body []byte, accept string) (*http.Request, error) {
	r, err := http.NewRequestWithContext(c.ctx, c.endpoint.method, c.endpoint.url, bytes.NewReader(body))
	if err != nil {
		return nil, c.failure(http.StatusBadGateway, messageUnavailable, "the request is not valid", err)
	}
	r.Header = c.b.header.Clone()
	r.Header.Set("Accept", accept)
	if len(body) > 0 {
		r.Header.Set("Content-Type", mediaJSON)
	}
	if name := c.b.opts.RequestIDHeader; name != "-" {
		if id := llmhttp.RequestIDFrom(c.client); id != "" {
			r.Header.Set(name, id)
		}
	}
	if c.b.opts.KeyFunc != nil {
		if err := c.setKey(r.Header); err != nil {
			return nil, err
		}
	}
	return r, nil
}

const (
	mediaJSON   = "application/json"
	mediaEvents = "text/event-stream, application/json" // errors are JSON
)

// setKey sets the key that KeyFunc returns.
func (c *call) setKey(h http.Header) error {
	key, err := c.b.opts.KeyFunc(c.client)
	if err := c.left(); err != nil {
		return err
	}
	if err == nil && !isToken(key) {
		err = errors.New("the key has a character that a header must not have")
	}
	if err != nil {
		return c.failure(http.StatusBadGateway, messageUnavailable, "no key", err)
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
	c.begun = true
	c.resp, err = c.b.transport.RoundTrip(r)
	if err == nil && c.resp == nil {
		err = errors.New("the Transport returned neither a response nor an error")
	}
	if err != nil {
		return c.interrupted(err)
	}
	c.body = bufio.NewReader(c.idle.Reader(c.resp.Body, c.b.opts.IdleTimeout))
	if c.resp.StatusCode < 200 || c.resp.StatusCode > 299 {
		return c.statusError()
	}
	if enc := c.resp.Header.Get("Content-Encoding"); enc != "" && enc != "identity" {
		return c.invalid("the reply is compressed, which was not requested")
	}
	return nil
}

// readAll returns the whole body of the reply. The caller releases c.memory when
// the body is no longer in use.
func (c *call) readAll() ([]byte, error) {
	body, err := bounded.ReadAll(c.memory.reader(c.ctx, c.body), nil, c.resp.ContentLength, c.endpoint.maxReply)
	if err != nil {
		return nil, c.interrupted(err)
	}
	return body, c.checkBody(body)
}

// close ends the call. The connection is kept for the next request only if the
// body was read to its end.
func (c *call) close() {
	if c.done && c.detach() {
		go c.drain() // the client need not wait
		return
	}
	c.end()
}

const (
	// drainTimeout and drainSize bound what is read after [DONE]. Most servers
	// send only the end of the HTTP body.
	drainTimeout = time.Second
	drainSize    = 16 << 10
)

// drain reads the rest of the body and ends the call.
func (c *call) drain() {
	defer c.end()
	timer := time.AfterFunc(drainTimeout, func() { c.cancel(errIdle) })
	defer timer.Stop()
	io.CopyN(io.Discard, c.body, drainSize)
}

// end ends the call at once.
func (c *call) end() {
	c.detach()
	c.idle.Stop()
	c.memory.release()
	c.cancel(nil)
	if c.resp != nil {
		c.resp.Body.Close()
	}
}

// fetch sends a request and calls decode with the body of the reply.
func (b *Backend) fetch(ctx context.Context, e endpoint, body []byte, model modelNames, decode func(c *call, reply []byte) error) error {
	c, err := b.do(ctx, e, body, mediaJSON, model)
	if err != nil {
		return err
	}
	defer c.close()
	reply, err := c.readAll()
	if err != nil {
		return err
	}
	return decode(c, reply)
}
