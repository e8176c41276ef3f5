package exchange

import (
	"errors"
	"io"
	"os"
	"time"

	"github.com/llmhttp/llmhttp/internal/bounded"
)

// A BodyError is the error of a body that could not be read.
type BodyError struct {
	Err      error // bounded.ErrTooLarge, or what Read of the body returned
	TimedOut bool  // the client paused for longer than Options.Bounds.ReadTimeout
}

func (e *BodyError) Error() string { return e.Err.Error() }
func (e *BodyError) Unwrap() error { return e.Err }

// ReadBody appends the body of the request, at most limit bytes, to buf. It reads to the end:
// net/http notices only after that when the client leaves. The error is why the request has
// ended, if it has, and otherwise a [*BodyError]. The goroutine of ServeHTTP calls ReadBody.
func (x *Exchange) ReadBody(buf []byte, limit int64) ([]byte, error) {
	if x.r.Body == nil {
		return buf, nil
	}
	buf, err := bounded.ReadAll(bodyReader{x}, buf, x.r.ContentLength, limit)
	if err != nil {
		return buf, x.readFailed(err)
	}
	x.finishReading()
	return buf, nil
}

// A Body is the body of a request, for bodies that are not kept as they are.
type Body struct {
	r   bodyReader
	err error // of the last Read
}

// Body returns the body of the request, for the goroutine of ServeHTTP. It must be read to the end, for the
// reason of ReadBody, unless the request fails.
func (x *Exchange) Body() *Body { return &Body{r: bodyReader{x}} }

// Read implements [io.Reader].
func (b *Body) Read(p []byte) (n int, err error) {
	if b.r.x.r.Body == nil {
		return 0, io.EOF
	}
	n, err = b.r.Read(p)
	b.err = err
	return n, err
}

// End ends reading. If the body could not be read, it returns the error of ReadBody, and otherwise err.
func (b *Body) End(err error) error {
	switch b.err {
	case nil:
	case io.EOF:
		b.r.x.finishReading()
	default:
		return b.r.x.readFailed(b.err)
	}
	return err
}

// readFailed returns the error of ReadBody.
func (x *Exchange) readFailed(err error) error {
	e := &BodyError{Err: err, TimedOut: errors.Is(err, os.ErrDeadlineExceeded)}
	cause := x.Cause()
	if cause == nil || e.TimedOut && cause == ErrClientLeft { // net/http cancels the context when a read fails
		x.mu.Lock()
		defer x.mu.Unlock()
		x.readTimedOut = e.TimedOut
		return e
	}
	return cause
}

// A bodyReader reads the body of a request. Options.Bounds.ReadTimeout applies to each Read.
type bodyReader struct{ x *Exchange }

func (r bodyReader) Read(p []byte) (int, error) {
	r.x.continueReading()
	return r.x.r.Body.Read(p)
}

// continueReading gives the client more time to send the body, unless reading was
// stopped.
func (x *Exchange) continueReading() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.readingStopped {
		x.conn.beginRead(time.Now())
	}
}

// finishReading marks the body as read to its end.
func (x *Exchange) finishReading() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.bodyRead = true
	if !x.readingStopped {
		x.conn.endReads()
	}
}

// stopReading makes a Read of the body return, now or at its next call.
func (x *Exchange) stopReading() {
	x.readingStopped = true
	x.conn.setDeadline(&x.conn.read, time.Now())
}
