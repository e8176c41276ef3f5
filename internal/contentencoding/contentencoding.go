// Package contentencoding reads compressed bodies of requests and replies.
package contentencoding

import (
	"bufio"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/llmhttp/llmhttp/internal/bounded"
)

// decoders are the decoders of compressed bodies by the names in Content-Encoding. Servers, and proxies in front of
// them, use gzip and deflate without being asked.
var decoders = map[string]func(*bufio.Reader) (io.Reader, error){
	"gzip":    func(r *bufio.Reader) (io.Reader, error) { return gzip.NewReader(r) },
	"x-gzip":  func(r *bufio.Reader) (io.Reader, error) { return gzip.NewReader(r) },
	"deflate": newDeflateReader,
}

// newDeflateReader returns a decoder of deflate, with the header of zlib, as the standard has it, or without one, as some
// servers send it.
func newDeflateReader(r *bufio.Reader) (io.Reader, error) {
	if head, _ := r.Peek(2); len(head) == 2 && head[0]&0x0f == 8 && (int(head[0])<<8|int(head[1]))%31 == 0 {
		return zlib.NewReader(r)
	}
	return flate.NewReader(r), nil
}

// maxEncodings bounds how often a body may be encoded.
const maxEncodings = 4

// An Opener returns a decoder of an encoding that this package does not know, whose name is in lower case. The
// error is or wraps [errors.ErrUnsupported] if it does not know it either.
type Opener func(encoding string, r io.Reader) (io.ReadCloser, error)

// names returns the encodings in a header, in the order in which they were applied.
func names(h http.Header) []string {
	values := h.Values("Content-Encoding")
	if len(values) == 0 {
		return nil
	}
	names := strings.FieldsFunc(strings.ToLower(strings.Join(values, ",")), func(r rune) bool { return r == ',' || r == ' ' || r == '\t' })
	return slices.DeleteFunc(names, func(name string) bool { return name == "identity" })
}

// IsEncoded reports whether a body with the given header is encoded.
func IsEncoded(h http.Header) bool { return len(names(h)) > 0 }

// A Content is what is in an encoded body. It is decoded as it is read: a caller that stops reading at a bound decodes
// no more than that, however large the content of a small body is.
type Content struct {
	*bufio.Reader
	body     *bufio.Reader
	encoding string // of the body
	decoders []*decoder
}

// New returns the Content of a body with the given header. The error names an encoding that this package does not
// know, if others is nil.
func New(h http.Header, body *bufio.Reader, others Opener) (*Content, error) {
	list := names(h)
	if len(list) > maxEncodings {
		return nil, fmt.Errorf("the body has %d encodings", len(list))
	}
	c := &Content{Reader: body, body: body, encoding: strings.Join(list, ", ")}
	for _, name := range slices.Backward(list) {
		d := &decoder{source: c.Reader, open: decoders[name]}
		if d.open == nil {
			if others == nil {
				return nil, fmt.Errorf("the encoding %q of the body is not known, and was not asked for", name)
			}
			d.open = func(r *bufio.Reader) (io.Reader, error) { return others(name, r) }
		}
		c.decoders = append(c.decoders, d)
		c.Reader = bufio.NewReader(d)
	}
	return c, nil
}

// Encoding returns the names of the encodings, in lower case.
func (c *Content) Encoding() string { return c.encoding }

// An Error tells that the encoding of a request is not known, or that its body could not be decoded.
type Error struct {
	Encoding string // in lower case
	Unknown  bool
	Err      error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Read calls read with the content of a body with the given header, of which at most limit bytes can be read, as of the
// body itself. It returns the error of read, or an [*Error] if there is one. The error of a body that could not be read
// may be either; the caller knows it.
func Read(h http.Header, body io.Reader, limit int64, others Opener, read func(io.Reader) error) error {
	body = &bounded.Reader{R: body, Left: limit}
	if !IsEncoded(h) {
		return read(body)
	}
	c, err := New(h, bufio.NewReader(body), others)
	if err != nil {
		return &Error{strings.Join(names(h), ", "), true, err}
	}
	defer c.close()
	err = read(&bounded.Reader{R: c, Left: limit})
	if failed := c.failed(); failed != nil {
		err = failed
	} else if err == nil {
		err = c.end()
	} else {
		return err
	}
	if err == nil || errors.Is(err, bounded.ErrTooLarge) {
		return err
	}
	return &Error{c.encoding, errors.Is(err, errors.ErrUnsupported), err}
}

// failed returns why the body could not be decoded so far.
func (c *Content) failed() error {
	for _, d := range c.decoders {
		if d.failed != nil {
			return d.failed
		}
	}
	return nil
}

// end returns an error if anything follows the content in the body.
func (c *Content) end() error {
	switch _, err := c.body.Peek(1); err {
	case io.EOF:
		return nil
	case nil:
		return errors.New("something follows the encoded content")
	default:
		return err
	}
}

func (c *Content) close() {
	for _, d := range c.decoders {
		if closer, ok := d.content.(io.Closer); ok {
			closer.Close()
		}
	}
}

// A decoder reads the content of a compressed body. It begins at the first Read, so that the first byte of
// the body may be late.
type decoder struct {
	source  *bufio.Reader
	open    func(*bufio.Reader) (io.Reader, error)
	content io.Reader // nil before the first Read
	failed  error     // of the decoder, or of the body
}

func (d *decoder) Read(p []byte) (int, error) {
	if d.failed != nil {
		return 0, d.failed
	}
	if d.content == nil {
		if _, err := d.source.Peek(1); err != nil { // a body that is empty is not encoded
			return 0, err
		}
		if d.content, d.failed = d.open(d.source); d.failed != nil {
			d.content = nil
			return 0, d.failed
		}
	}
	n, err := d.content.Read(p)
	if err != nil && err != io.EOF {
		d.failed = err
	}
	return n, err
}
