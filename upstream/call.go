package upstream

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/lend"
)

// A call is a request to the server and its reply. All but the watch over the
// server's silence is done on the goroutine of whoever makes it.
//
// Its context has the values of the client's, and ends with it until the reply
// is complete: after that the connection may still be made ready for the next
// request, when the client's is long over.
type call struct {
	b     *Backend
	key   string // that was sent
	model modelName

	optional bool // the endpoint need not be there

	client context.Context
	ctx    context.Context
	cancel context.CancelCauseFunc
	detach func() bool // takes ctx out of the client's hands

	resp   *http.Response
	heard  bool // a byte of the body came
	eof    bool // the last one did
	handed bool // what is left of the body is somebody else's to read

	began time.Time
	mu    sync.Mutex
	timer *time.Timer
	due   time.Duration // since began: when the server is to be heard; 0 while nobody listens
	fires time.Duration // since began: when the timer does; 0 if it does not
	over  bool
}

// A modelName is what clients call a model, and what the server does.
type modelName struct{ ours, theirs string }

// errSilent ends the context of a call whose server did not send.
var errSilent = errors.New("the server sent nothing for too long")

var (
	acceptJSON   = []string{"application/json"}
	acceptEvents = []string{"text/event-stream, application/json"} // the latter is what errors are
)

// send sends a request with the given body, nil for none, and waits for the
// reply to begin. stream tells that a stream is asked for. The reply's status is
// 2xx; it must be closed.
func (b *Backend) send(ctx context.Context, template *http.Request, body net.Buffers, stream bool, model modelName) (*call, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	c := &call{b: b, key: b.opts.Key, model: model, client: ctx, began: time.Now(), optional: template != b.chat}
	header := maps.Clone(b.header)
	header["Accept"] = acceptJSON
	if stream {
		header["Accept"] = acceptEvents
	}
	if f := b.opts.KeyFunc; f != nil {
		key, err := f(ctx)
		if err == nil && !isToken(key) {
			err = errors.New("the key has a character that no header may have")
		}
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err != nil:
			return nil, c.failure(http.StatusBadGateway, messageUnavailable, "no key", err)
		}
		if c.key = key; key != "" {
			header["Authorization"] = []string{"Bearer " + key}
		}
	}
	if name := b.opts.RequestIDHeader; name != "" {
		if id := llmhttp.RequestIDFrom(ctx); id != "" {
			header[name] = []string{id}
		}
	}
	c.ctx, c.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	c.detach = context.AfterFunc(ctx, func() { c.cancel(context.Cause(ctx)) })
	r := template.WithContext(c.ctx)
	r.Header = header
	if body != nil {
		header["Content-Type"] = acceptJSON
		p := &payload{pieces: body, lent: lend.From(ctx)}
		defer p.drop() // the response keeps r, perhaps for long
		r.ContentLength, r.GetBody = p.size(), p.open
		var err error
		if r.Body, err = p.open(); err != nil {
			c.close()
			return nil, err
		}
	}
	c.listen(b.opts.FirstByteTimeout)
	resp, err := b.transport.RoundTrip(r)
	if err == nil && resp == nil {
		err = errors.New("the Transport returned neither a response nor an error")
	}
	if err != nil {
		err = c.broken(err)
		c.close()
		return nil, err
	}
	c.resp = resp
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		err := c.refused()
		c.close()
		return nil, err
	}
	if enc := resp.Header.Get("Content-Encoding"); enc != "" && enc != "identity" {
		c.close()
		return nil, c.failure(http.StatusBadGateway, messageFailed, "the reply is compressed, which was not asked for", nil)
	}
	return c, nil
}

// listen gives the server d, if it is not negative, to be heard.
func (c *call) listen(d time.Duration) {
	if d < 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.due = time.Since(c.began) + d
	switch {
	case c.over:
	case c.timer == nil:
		c.timer, c.fires = time.AfterFunc(d, c.look), c.due
	case c.fires == 0 || c.due < c.fires:
		c.timer.Reset(d)
		c.fires = c.due
	}
}

// rest ends a listen: a slow client makes no silent server.
func (c *call) rest() {
	c.mu.Lock()
	c.due = 0
	c.mu.Unlock()
}

// look is called when the timer fires. That it is set anew only then makes a
// listen cheap.
func (c *call) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fires = 0
	if c.over || c.due == 0 {
		return
	}
	left := c.due - time.Since(c.began)
	if left <= 0 {
		c.cancel(errSilent)
		return
	}
	c.timer.Reset(left)
	c.fires = c.due
}

// Read reads from the reply's body.
func (c *call) Read(p []byte) (int, error) {
	if c.eof {
		return 0, io.EOF
	}
	if c.heard {
		c.listen(c.b.opts.SilenceTimeout)
	}
	n, err := c.resp.Body.Read(p)
	if n > 0 {
		c.heard = true
		c.rest()
	}
	if err == io.EOF {
		c.eof = true
	}
	return n, err
}

// close ends the call, unless that is left to somebody else. If its reply was
// not read to the end, that closes the connection, or with HTTP/2 the stream.
// It may be called again.
func (c *call) close() {
	if !c.handed {
		c.end()
	}
}

func (c *call) end() {
	c.detach()
	c.mu.Lock()
	c.over = true
	if c.timer != nil {
		c.timer.Stop()
	}
	c.mu.Unlock()
	c.cancel(nil)
	if c.resp != nil {
		c.resp.Body.Close()
	}
}

const (
	// drainTimeout and drainSize bound what is read after a reply, so that its
	// connection can be used again, or with HTTP/2 is not told of a client that
	// left: most often it is an empty chunk, or frame.
	drainTimeout = time.Second
	drainSize    = 16 << 10
)

// complete ends the call when all that matters of its reply was read. What is
// left is read without the client having to wait for it.
func (c *call) complete() {
	if c.eof || !c.detach() {
		c.close()
		return
	}
	c.handed = true
	c.listen(drainTimeout)
	go func() {
		defer c.end()
		io.CopyN(io.Discard, c.resp.Body, drainSize)
	}()
}

// A buffer is memory for a reply or its events, to be used again.
type buffer struct{ b []byte }

const (
	smallBuffer = 4 << 10   // what a buffer begins with
	largeBuffer = 256 << 10 // up to which size one is kept
)

var buffers = sync.Pool{New: func() any { return &buffer{make([]byte, 0, smallBuffer)} }}

func getBuffer() *buffer { return buffers.Get().(*buffer) }

// putBuffer takes back a buffer that nothing refers to any more.
func putBuffer(b *buffer) {
	if cap(b.b) <= largeBuffer {
		b.b = b.b[:0]
		buffers.Put(b)
	}
}

// trustedLength is up to which size the declared length of a reply is believed
// before its bytes have come.
const trustedLength = 2 << 20

// errTooLarge is what readAll returns for a reply that is.
var errTooLarge = errors.New("the reply is too large")

// readAll reads the reply to its end, behind what b holds of it.
func (c *call) readAll(b *buffer, limit int64) error {
	length := c.resp.ContentLength
	if length > limit {
		return errTooLarge
	}
	if length > 0 {
		if n := int(min(length, trustedLength)) + 1; n > cap(b.b) { // a byte more, to see the end
			b.b = append(make([]byte, 0, n), b.b...)
		}
	}
	for {
		if len(b.b) == cap(b.b) {
			b.b = append(make([]byte, 0, 2*cap(b.b)), b.b...)
		}
		n, err := c.Read(b.b[len(b.b):cap(b.b)])
		b.b = b.b[:len(b.b)+n]
		switch {
		case int64(len(b.b)) > limit:
			return errTooLarge
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}

// fetch sends a request, and calls decode with the whole of its reply, which
// is only valid until decode returns.
func (b *Backend) fetch(ctx context.Context, template *http.Request, body []byte, model modelName, decode func(*call, []byte) error) error {
	var pieces net.Buffers
	if body != nil {
		pieces = net.Buffers{body}
	}
	c, err := b.send(ctx, template, pieces, false, model)
	if err != nil {
		return err
	}
	defer c.close()
	buf := getBuffer()
	defer putBuffer(buf)
	if err := c.readAll(buf, b.opts.MaxReply); err != nil {
		return c.broken(err)
	}
	if err := c.errorIn(buf.b); err != nil {
		return err
	}
	if err := decode(c, buf.b); err != nil {
		return c.malformed(err)
	}
	return nil
}
