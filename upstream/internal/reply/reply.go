// Package reply sends requests to a server, and reads their replies within bounds of time and memory: whole,
// as a stream of events, or as what they are.
package reply

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/llmhttp/llmhttp/internal/bounded"
	"github.com/llmhttp/llmhttp/internal/contentencoding"
	"github.com/llmhttp/llmhttp/upstream/internal/failure"
)

// A Server sends requests and has the bounds of its replies. It must not be copied. Its methods may be called
// concurrently.
type Server struct {
	Transport        http.RoundTripper
	FirstByteTimeout time.Duration // for the first byte of a body, from the request on; negative for none
	IdleTimeout      time.Duration // for each byte after that; negative for none
	MaxEvent         int           // the largest event of a stream, in bytes
	ReadOnUnfinished bool          // see Limits.ReadOn: also before the usage is due
	Memory           Memory        // of all replies that are not streams
}

// Limits are those of the replies of an endpoint.
type Limits struct {
	MaxReply int64         // the largest reply that is not a stream, in bytes
	ReadOn   time.Duration // how long a reply is read on when the client has left; zero or negative for none
}

// A Reply is one request to a server and its reply, and makes the errors of both. It is used by one
// goroutine at a time: Close may hand it to another that reads the rest of the reply.
type Reply struct {
	failure.Call
	callContext

	server      *Server
	limits      Limits
	reservation memoryReservation // for a reply that is not a stream, and for what is fetched for it

	body       *bufio.Reader // reads the content of Response.Body, with the idle timeout
	length     int64         // of body; -1 if it is not known
	isComplete bool          // the rest of the body has no meaning
}

// Begin begins a request, whose context is ctx, and whose errors are those of call. The caller must call
// Close.
func (s *Server) Begin(ctx context.Context, limits Limits, call failure.Call) *Reply {
	r := &Reply{Call: call, server: s, limits: limits, reservation: memoryReservation{memory: &s.Memory, limit: limits.MaxReply}}
	r.NotSent = r.notSent
	r.readOn.timeout, r.readOn.unfinished = limits.ReadOn, s.ReadOnUnfinished
	r.begin(ctx)
	return r
}

// Context returns the context for the request of Send.
func (r *Reply) Context() context.Context { return r.ctx }

// Caller returns the context of Begin.
func (r *Reply) Caller() context.Context { return r.callerCtx }

// Send sends the request, which has the context of r, and waits for the header of the reply. It returns an error
// if the status is not 2xx. The Transport may read the body of the request after the reply has begun, and may
// send it again, so the caller must not change or reuse it.
func (r *Reply) Send(req *http.Request) (err error) {
	r.idle.Reset(r.server.FirstByteTimeout)
	r.transportCalled = true
	r.Response, err = r.server.Transport.RoundTrip(req)
	if r.Response != nil {
		r.sent.Store(true) // also if the transport does not support httptrace
	}
	if err == nil && r.Response == nil {
		err = errors.New("the Transport returned neither a response nor an error")
	}
	if err != nil {
		return r.Interrupted(err)
	}
	isError := r.Response.StatusCode < 200 || r.Response.StatusCode > 299
	body := bufio.NewReader(r.idle.Reader(r.Response.Body, r.server.IdleTimeout))
	content, err := contentencoding.New(r.Response.Header, body, nil)
	if err == nil {
		r.body = content.Reader
	}
	switch {
	case err != nil && isError:
		return r.UnreadableStatus(err)
	case err != nil:
		return r.Invalid(err.Error())
	case isError:
		return r.statusError()
	}
	r.length = r.Response.ContentLength
	if content.Encoding() != "" {
		r.length = -1
	}
	return nil
}

// errorTimeout limits reading the body of an error, unless IdleTimeout is shorter. If
// it runs out, the error has only the status.
const errorTimeout = 5 * time.Second

// statusError returns the error for a reply whose status is not 2xx.
func (r *Reply) statusError() error {
	if r.Response.StatusCode < 400 {
		return r.Status(nil)
	}
	timeout := errorTimeout
	if d := r.server.IdleTimeout; d >= 0 {
		timeout = min(timeout, d)
	}
	defer r.endAfter(timeout).Stop()
	body, err := bounded.ReadAll(r.body, nil, -1, failure.MaxBody)
	if cause := r.CallerCause(); err != nil && cause != nil {
		return cause
	}
	return r.Status(body)
}

// Interrupted returns the error for a request or reply that failed with err before
// it was complete.
func (r *Reply) Interrupted(err error) error {
	if cause := r.CallerCause(); cause != nil {
		return cause
	}
	switch {
	case context.Cause(r.ctx) == errIdle:
		return r.Timeout(errIdle.Error())
	case errors.Is(err, bounded.ErrTooLarge):
		return r.Invalid("the reply is too large")
	case errors.Is(err, errEventTooLarge):
		return r.Invalid(err.Error())
	case r.Response == nil:
		return r.Unavailable("no reply", err)
	}
	return r.Broken("the reply was interrupted", err)
}

// IsStream reports whether the reply is a stream, and not JSON or an HTML page, by its first byte. The
// Content-Type may be wrong, and the server may ignore that a stream is asked for.
func (r *Reply) IsStream() (bool, error) {
	first, err := skipSpace(r.body, r.limits.MaxReply)
	switch {
	case err == io.EOF:
		return false, r.Invalid("the reply is empty")
	case err != nil:
		return false, r.Interrupted(err)
	}
	return first != '{' && first != '[' && first != '<', nil
}

// ReadAll returns the whole body of the reply, which is neither empty nor HTML. The caller calls Release when
// the body is no longer in use.
func (r *Reply) ReadAll() ([]byte, error) {
	body, err := bounded.ReadAll(r.Reserve(r.ctx, r.body), nil, r.length, r.limits.MaxReply)
	if err != nil {
		return nil, r.Interrupted(err)
	}
	if err := r.Whole(body); err != nil {
		return nil, err
	}
	return body, nil
}

// Read reads the body of the reply as it arrives. Its errors are for Interrupted, except io.EOF.
func (r *Reply) Read(p []byte) (int, error) { return r.body.Read(p) }

// Events returns the events of a stream.
func (r *Reply) Events() Events { return Events{r: r.body, max: r.server.MaxEvent} }

// Reserve returns a Reader that reads from source what counts as a part of the reply. It waits for memory until ctx
// ends. Several of them may be used concurrently.
func (r *Reply) Reserve(ctx context.Context, source io.Reader) io.Reader {
	return r.reservation.reader(ctx, source)
}

// Release tells that what ReadAll and the Readers of Reserve have read is no longer in use.
func (r *Reply) Release() { r.reservation.release() }

// MarkComplete tells that the reply is complete: what follows in the body has no meaning.
func (r *Reply) MarkComplete() { r.isComplete = true }

// Close ends the request. The connection is kept for the next one only if the
// body was read to its end.
func (r *Reply) Close() {
	detached := r.detach() // or drain would end with the caller's context
	if r.isComplete && detached {
		go r.drain() // in the background, so that the client does not wait for it
		return
	}
	r.closeNow()
}

const (
	// drainTimeout and drainSize limit reading after the end of a stream, where most servers
	// send only the end of the HTTP body.
	drainTimeout = time.Second
	drainSize    = 16 << 10
)

// drain reads the rest of the body and ends the request.
func (r *Reply) drain() {
	defer r.closeNow()
	defer r.endAfter(drainTimeout).Stop()
	io.CopyN(io.Discard, r.body, drainSize)
}

// closeNow ends the request without reading the rest of the body.
func (r *Reply) closeNow() {
	r.end()
	r.Release()
	if r.Response != nil {
		r.Response.Body.Close()
	}
}
