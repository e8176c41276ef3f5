package llmhttp

import (
	"errors"
	"mime"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/llmhttp/llmhttp/internal/bounded"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
)

// readJSON reads the body and decodes it into v.
func readJSON[T any](q *request, t jsonwire.Type[T], v *T) error {
	body, err := q.readBody()
	if err != nil {
		return err
	}
	defer putBuffer(body)
	return decodeRequest(body.b, t, v)
}

// readBody reads the body. The caller returns the buffer with putBuffer.
func (q *request) readBody() (*buffer, error) {
	if err := checkMediaType(q.r); err != nil {
		return nil, err
	}
	buf := getBuffer(0)
	var err error
	if buf.b, err = q.res.readBody(buf.b, q.h.opts.MaxBody); err != nil {
		putBuffer(buf)
		if isReadTimeout(err) && q.life.ended() == errGone {
			return nil, err // net/http cancels the context when a read fails
		}
		return nil, q.life.endedOr(err)
	}
	return buf, nil
}

func checkMediaType(r *http.Request) error {
	if enc := r.Header.Get("Content-Encoding"); enc != "" && enc != "identity" {
		return Errorf(http.StatusUnsupportedMediaType, "unsupported_content_encoding", "The request body must not be compressed.")
	}
	t := r.Header.Get("Content-Type")
	if t == "" || t == "application/json" {
		return nil
	}
	if media, _, err := mime.ParseMediaType(t); err != nil || media != "application/json" {
		return Errorf(http.StatusUnsupportedMediaType, "unsupported_media_type",
			"Unsupported content type: '%s'. This API only accepts 'application/json'.", echo(t))
	}
	return nil
}

// readBody appends a request's body of at most limit bytes to buf. It reads to
// the end: net/http notices only after that when the client leaves.
func (res *response) readBody(buf []byte, limit int64) ([]byte, error) {
	if res.r.Body == nil {
		return buf, nil
	}
	buf, err := bounded.ReadAll(bodyReader{res}, buf, res.r.ContentLength, limit)
	switch {
	case errors.Is(err, bounded.ErrTooLarge):
		return buf, errTooLarge(limit)
	case err != nil:
		return buf, bodyError(err)
	}
	res.finishReading()
	return buf, nil
}

// A bodyReader reads the body of a request. Each Read has ReadTimeout.
type bodyReader struct{ res *response }

func (r bodyReader) Read(p []byte) (int, error) {
	r.res.continueReading()
	return r.res.r.Body.Read(p)
}

// continueReading gives the client more time to send the body, unless reading was
// stopped.
func (res *response) continueReading() {
	res.mu.Lock()
	defer res.mu.Unlock()
	if !res.readingStopped {
		res.conn.extendRead(time.Now())
	}
}

// finishReading marks the body as read to its end. It lifts the read deadline:
// when one passes later, net/http cancels the request's context.
func (res *response) finishReading() {
	res.mu.Lock()
	defer res.mu.Unlock()
	res.bodyRead = true
	if !res.readingStopped {
		res.conn.setRead(time.Time{})
	}
}

// bodyError returns the error for a body that could not be read.
func bodyError(err error) error {
	if e, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return errTooLarge(e.Limit)
	}
	e := Errorf(http.StatusBadRequest, "", "We could not read the body of your request.")
	if errors.Is(err, os.ErrDeadlineExceeded) {
		e = Errorf(http.StatusRequestTimeout, codeReadTimeout, "The body of your request did not arrive in time.")
	}
	e.Err = err
	return e
}

const codeReadTimeout = "request_timeout"

// isReadTimeout reports whether err is that of a body that did not arrive
// within ReadTimeout.
func isReadTimeout(err error) bool {
	e, ok := err.(*Error)
	return ok && e != nil && e.Code == codeReadTimeout
}

func errTooLarge(limit int64) error {
	return Errorf(http.StatusRequestEntityTooLarge, "request_too_large",
		"The request body is too large. The limit is %d bytes.", limit)
}

// A buffer is memory for a body or for events, which is used again.
type buffer struct{ b []byte }

// maxPooledBuffer is the size of the largest buffer that is kept for reuse.
const maxPooledBuffer = 2 << 20

var buffers = sync.Pool{New: func() any { return new(buffer) }}

// getBuffer returns an empty buffer with room for size bytes.
func getBuffer(size int) *buffer {
	buf := buffers.Get().(*buffer)
	if cap(buf.b) < size {
		buf.b = make([]byte, 0, size)
	}
	buf.b = buf.b[:0]
	return buf
}

// putBuffer takes back a buffer that nothing refers to.
func putBuffer(buf *buffer) {
	if cap(buf.b) <= maxPooledBuffer {
		buffers.Put(buf)
	}
}
