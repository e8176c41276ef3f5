// Replies that a server compresses although it was not asked to.

package reply

import (
	"bufio"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
)

// AskIdentity asks in the header of a request for a body that is not compressed. Compression would delay the events of
// streams, and a server without it needs less time.
func AskIdentity(h http.Header) { h.Set("Accept-Encoding", "identity") }

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

// Decode returns a Reader of the content of a body with the given header, and whether that is encoded at all. The content
// is decoded as it is read: a caller that stops reading at a bound decodes no more than that, however large the content of a
// small body is. The error names an encoding that is not known.
func Decode(h http.Header, body *bufio.Reader) (content *bufio.Reader, encoded bool, err error) {
	names := strings.FieldsFunc(strings.ToLower(strings.Join(h.Values("Content-Encoding"), ",")), func(r rune) bool { return r == ',' || r == ' ' || r == '\t' })
	names = slices.DeleteFunc(names, func(name string) bool { return name == "identity" })
	if len(names) > maxEncodings {
		return nil, true, fmt.Errorf("the body has %d encodings", len(names))
	}
	for _, name := range slices.Backward(names) {
		open := decoders[name]
		if open == nil {
			return nil, true, fmt.Errorf("the encoding %q of the body is not known, and was not asked for", name)
		}
		body = bufio.NewReader(&decoder{source: body, open: open})
	}
	return body, len(names) > 0, nil
}

// A decoder reads the content of a compressed body. It begins at the first Read, so that the first byte of
// the body may be late.
type decoder struct {
	source  *bufio.Reader
	open    func(*bufio.Reader) (io.Reader, error)
	content io.Reader // nil before the first Read
	err     error     // of the beginning of the body
}

func (d *decoder) Read(p []byte) (int, error) {
	if d.content == nil && d.err == nil {
		if _, d.err = d.source.Peek(1); d.err == nil { // a body that is empty is not encoded
			d.content, d.err = d.open(d.source)
		}
	}
	if d.err != nil {
		return 0, d.err
	}
	return d.content.Read(p)
}
