package llmhttp

import (
	"errors"
	"io"
	"mime"
	"net/http"
)

// readJSON reads the body and decodes it into v.
func (x *exchange) readJSON(v any) error {
	if err := checkMediaType(x.r); err != nil {
		return err
	}
	buf, err := x.readBody()
	if err != nil {
		return err
	}
	defer putBuffer(buf)
	return decodeRequest(buf.b, v)
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

func (x *exchange) errTooLarge(limit int64) error {
	if x.r.ProtoMajor == 1 {
		x.w.Header().Set("Connection", "close") // rather than read what is left
	}
	return Errorf(http.StatusRequestEntityTooLarge, "request_too_large",
		"The request body is too large. The limit is %d bytes.", limit)
}

// receive marks that the body is being read.
func (x *exchange) receive(on bool) {
	x.mu.Lock()
	x.receiving = on
	x.mu.Unlock()
}

// trustedLength is up to which size a body's declared length is believed
// before its bytes have come.
const trustedLength = 2 << 20

// readBody reads the body to its end: net/http notices that a client has left
// only after that.
func (x *exchange) readBody() (*buffer, error) {
	limit := x.h.opts.MaxBody
	length := x.r.ContentLength
	if length > limit {
		return nil, x.errTooLarge(limit)
	}
	size := 1 << 10
	if length >= 0 {
		size = int(min(length, trustedLength)) + 1 // a byte more, to see the end
	}
	buf := getBuffer(size)
	if x.r.Body == nil {
		return buf, nil
	}
	x.receive(true)
	defer x.receive(false)
	for {
		n, err := x.r.Body.Read(buf.b[len(buf.b):cap(buf.b)])
		buf.b = buf.b[:len(buf.b)+n]
		switch {
		case int64(len(buf.b)) > limit:
			putBuffer(buf)
			return nil, x.errTooLarge(limit)
		case err == io.EOF:
			return buf, nil
		case err != nil:
			putBuffer(buf)
			if cause := x.cause(); cause != nil {
				return nil, cause
			}
			if bound, ok := errors.AsType[*http.MaxBytesError](err); ok {
				return nil, x.errTooLarge(bound.Limit)
			}
			return nil, &Error{Status: http.StatusBadRequest, Message: "We could not read the body of your request.", Err: err}
		case len(buf.b) == cap(buf.b):
			grown := min(2*cap(buf.b), int(limit)+1)
			if length >= 0 {
				grown = min(grown, int(length)+1)
			}
			if grown <= cap(buf.b) {
				grown = cap(buf.b) + 1
			}
			larger := getBuffer(grown)
			larger.b = append(larger.b, buf.b...)
			putBuffer(buf)
			buf = larger
		}
	}
}
