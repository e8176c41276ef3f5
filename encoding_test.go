package llmhttp_test

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp"
)

// compress returns data as w compresses it.
func compress(w func(io.Writer) io.WriteCloser, data string) string {
	var b bytes.Buffer
	z := w(&b)
	io.WriteString(z, data)
	z.Close()
	return b.String()
}

func toGzip(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }
func toZlib(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) }

func toFlate(w io.Writer) io.WriteCloser {
	z, _ := flate.NewWriter(w, flate.DefaultCompression)
	return z
}

func encodedAs(encoding string) requestOption {
	return func(r *http.Request) { r.Header.Set("Content-Encoding", encoding) }
}

// A reversed body is that of an encoding which only the host knows.
type reversed struct {
	io.Reader
	read, closed *int
}

func (r *reversed) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	*r.read += n
	return n, err
}

func (r *reversed) Close() error { *r.closed++; return nil }

// Compressed requests are read, in every endpoint, and what is wrong with one is told.
func TestRequest_ContentEncoding(t *testing.T) {
	var read, closed int
	opts := llmhttp.Options{
		Bounds: llmhttp.Bounds{MaxBody: 100_000},
		Accept: llmhttp.AcceptOptions{Decode: func(encoding string, r io.Reader) (io.ReadCloser, error) {
			switch encoding {
			case "plain":
				return &reversed{r, &read, &closed}, nil
			case "endless":
				return &reversed{zeros{}, &read, &closed}, nil
			case "broken":
				return nil, errors.New("no such table")
			}
			return nil, fmt.Errorf("%w: %s", errors.ErrUnsupported, encoding)
		}},
	}
	gzipped := func(body string) string { return compress(toGzip, body) }
	s := startServer(t, config{opts: opts})
	for path, body := range modelBodies {
		if path == transcriptionsPath || path == imageEditsPath {
			continue // forms have a Content-Type of their own
		}
		for encoding, w := range map[string]func(io.Writer) io.WriteCloser{"gzip": toGzip, "X-Gzip": toGzip, "deflate": toZlib, "identity, DEFLATE": toFlate} {
			assert.Equal(t, 200, s.do("POST", path, compress(w, body), encodedAs(encoding)).StatusCode, "%s %s", path, encoding)
		}
	}
	for _, tt := range []struct {
		name, encoding, body string
		status               int
		code                 string
	}{
		{"twice", "deflate, gzip", gzipped(compress(toZlib, chatBody)), 200, ""},
		{"the host's", "plain", chatBody, 200, ""},
		{"the host's in gzip", "plain, gzip", gzipped(chatBody), 200, ""},
		{"two members", "gzip", gzipped(chatBody[:10]) + gzipped(chatBody[10:]), 200, ""},
		{"not compressed", "gzip", chatBody, 400, "invalid_content_encoding"},
		{"cut", "gzip", gzipped(chatBody)[:40], 400, "invalid_content_encoding"},
		{"wrong sum", "gzip", gzipped(chatBody)[:len(gzipped(chatBody))-8] + "12345678", 400, "invalid_content_encoding"},
		{"more behind it", "gzip", gzipped(chatBody) + "x", 400, "invalid_content_encoding"},
		{"more behind a stream of deflate", "deflate", compress(toZlib, chatBody) + "x", 400, "invalid_content_encoding"},
		{"the host cannot read it", "broken", chatBody, 400, "invalid_content_encoding"},
		{"the host does not know it", "br", chatBody, 415, "unsupported_content_encoding"},
		{"empty", "gzip", "", 400, ""},
		{"not JSON", "gzip", gzipped("{"), 400, ""},
		{"too large when decoded", "gzip", gzipped(chatWith(`"metadata":{"x":"` + strings.Repeat("x", 200_000) + `"}`)), 413, "request_too_large"},
		{"a bomb", "gzip", gzipped(strings.Repeat(" ", 50_000_000)), 413, "request_too_large"},
		{"a bomb for the host", "endless", "x", 413, "request_too_large"},
		{"blocks without content", "deflate", strings.Repeat("\x00\x00\x00\xff\xff", 30_000), 413, "request_too_large"},
	} {
		for _, options := range [][]requestOption{nil, {chunked}} {
			read, closed = 0, 0
			r := s.do("POST", chatPath, tt.body, append(options, encodedAs(tt.encoding))...)
			if tt.status == 200 {
				assert.Equal(t, 200, r.StatusCode, "%s: %s", tt.name, r.body)
				continue
			}
			e := r.checkError(t, tt.status)
			if tt.code != "" {
				assert.Equal(t, tt.code, e.Code, tt.name)
			}
			assert.Less(t, read, 150_000, "%s: no more is decoded than the limit", tt.name)
			if tt.encoding == "endless" {
				assert.Equal(t, 1, closed, tt.name)
			}
		}
	}
	s.do("POST", chatPath, gzipped(chatBody), encodedAs("gzip"), withoutKey).checkError(t, 401)
}

// zeros are endless.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
