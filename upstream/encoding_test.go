package upstream_test

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llm/join"
	"github.com/llmhttp/llmhttp/upstream"
)

// A compressor is a writer of a format of compression.
type compressor interface {
	io.WriteCloser
	Flush() error
}

// encodings are the values of Content-Encoding that a Backend knows, with their compressors.
var encodings = map[string]func(w io.Writer) compressor{
	"gzip":    func(w io.Writer) compressor { return gzip.NewWriter(w) },
	"x-gzip":  func(w io.Writer) compressor { return gzip.NewWriter(w) },
	"GZIP":    func(w io.Writer) compressor { return gzip.NewWriter(w) },
	"deflate": func(w io.Writer) compressor { return zlib.NewWriter(w) },
	"identity, deflate": func(w io.Writer) compressor { // without the header of zlib
		z, _ := flate.NewWriter(w, flate.DefaultCompression)
		return z
	},
}

// compressed returns content with an encoding.
func compressed(encoding, content string) string {
	var b bytes.Buffer
	z := encodings[encoding](&b)
	io.WriteString(z, content)
	z.Close()
	return b.String()
}

// A server is asked not to compress. What it compresses nevertheless is read: whole replies, streams and errors.
func TestEncoding(t *testing.T) {
	for encoding := range encodings {
		t.Run(encoding, func(t *testing.T) {
			checkLeaks(t)
			var status int
			var media, body string
			s := newRawServer(t, func(c net.Conn, r *rawRequest) {
				assert.Equal(t, []string{"identity"}, r.Header["Accept-Encoding"])
				writeReply(c, status, media, compressed(encoding, body), "Content-Encoding: "+encoding)
			})
			g := newGateway(t, s.url(), nil)
			serve := func(newStatus int, newMedia, newBody string) { status, media, body = newStatus, newMedia, newBody }

			serve(200, mediaJSON, wholeReply)
			assert.Contains(t, g.chat(askWhole).body, "Hello there")
			serve(200, mediaEvents, eventStream(textChunk("Hello"), stopChunk, usageChunk, done))
			got := g.chat(askStream)
			got.requireComplete(t)
			content, _ := streamText(t, got.body)
			assert.Equal(t, "Hello", content)
			serve(400, mediaJSON, `{"error":{"message":"No.","param":"seed"}}`)
			assert.Equal(t, apiError{"No.", "invalid_request_error", "seed", ""}, g.chat(askWhole).requireError(t, 400))
			serve(200, mediaEvents, eventStream(`{"error":{"message":"Slow.","code":429}}`))
			assert.Equal(t, "Slow.", g.chat(askStream).requireError(t, 429).Message)
			serve(200, "audio/mpeg", "ID3\x00\xff")
			assert.Equal(t, "ID3\x00\xff", g.do("POST", "/v1/audio/speech", `{"model":"m","input":"Hi","voice":"alloy"}`).body)
			serve(200, mediaJSON, `{"data":[{"id":"a"}]}`)
			assert.Contains(t, g.do("GET", "/v1/models", "").body, `"id":"a"`)
			assert.EqualValues(t, 1, s.accepted.Load(), "the connection is used again")
		})
	}
}

// Events of a compressed stream are passed on as they come.
func TestEncoding_Events(t *testing.T) {
	for encoding := range encodings {
		t.Run(encoding, func(t *testing.T) {
			body, w := io.Pipe()
			got := make(chan struct{})
			transport := roundTripper(func(*http.Request) (*http.Response, error) {
				go func() {
					z := encodings[encoding](w)
					for range 3 {
						io.WriteString(z, eventStream(textChunk("Hello")))
						z.Flush()
						<-got
					}
					io.WriteString(z, eventStream(stopChunk, done))
					z.Close()
					w.Close()
				}()
				resp := okResponse(mediaEvents, body)
				resp.Header.Set("Content-Encoding", encoding)
				return resp, nil
			})
			b := newBackend(t, "http://upstream.test/v1", &upstream.Options{Transport: transport})
			n := 0
			for chunk, err := range b.Chat(t.Context(), &llm.ChatRequest{Model: "m", Stream: true}) {
				require.NoError(t, err)
				if chunk.Choices[0].Delta.Content != "" {
					n++
					got <- struct{}{}
				}
			}
			assert.Equal(t, 3, n)
		})
	}
}

// A body costs no more than its bound, however large its content is.
func TestEncoding_Bomb(t *testing.T) {
	const size = 256 << 20
	var bomb bytes.Buffer
	z, err := gzip.NewWriterLevel(&bomb, gzip.BestSpeed)
	require.NoError(t, err)
	io.WriteString(z, `{"error":{"message":"`)
	zeros := []byte(strings.Repeat("0", 1<<20))
	for range size / len(zeros) {
		z.Write(zeros)
	}
	z.Close()
	for name, test := range map[string]struct {
		status int
		prefix string
	}{"whole": {200, ""}, "error": {500, ""}, "event": {200, "data: "}} {
		t.Run(name, func(t *testing.T) {
			content := bomb.Bytes()
			if test.prefix != "" {
				content = append([]byte(compressed("gzip", test.prefix)), content...)
			}
			transport := roundTripper(func(*http.Request) (*http.Response, error) {
				resp := okResponse(mediaJSON, bytes.NewReader(content))
				resp.StatusCode = test.status
				resp.ContentLength = int64(len(content))
				resp.Header.Set("Content-Encoding", "gzip")
				return resp, nil
			})
			b := newBackend(t, "http://upstream.test/v1", &upstream.Options{Transport: transport, MaxReply: 1 << 20, MaxEvent: 1 << 20})
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := join.Collect(b.Chat(t.Context(), &llm.ChatRequest{Model: "m"}))
			runtime.ReadMemStats(&after)
			require.Error(t, err)
			assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16<<20))
		})
	}
}

// An encoding that is not known is an error whose log line says so.
func TestEncoding_Unknown(t *testing.T) {
	for _, encoding := range []string{"br", "zstd", "gzip, br", "compress", "x y", "gzip,gzip,gzip,gzip,gzip"} {
		for status, want := range map[int]int{200: 502, 400: 502, 429: 429, 500: 502, 302: 502} {
			s := newRawServer(t, func(c net.Conn, _ *rawRequest) { writeReply(c, status, mediaJSON, "?", "Content-Encoding: "+encoding) })
			g := newGateway(t, s.url(), nil)
			assert.Equal(t, want, g.chat(askWhole).StatusCode, encoding)
			eventually(t, func() bool { return len(g.ended()) == 1 }, "the request ends")
			var e *upstream.Error
			require.True(t, errors.As(g.ended()[0].Err, &e))
			if status != 302 {
				assert.Regexp(t, `the encoding ".*" of the body is not known|the body has 5 encodings`, e.Message)
			}
		}
	}
}

// An image that is fetched may be compressed too.
func TestEncoding_Images(t *testing.T) {
	for _, encoding := range append(slices.Collect(maps.Keys(encodings)), "br") {
		s := newRawServer(t, func(c net.Conn, r *rawRequest) {
			if r.Method == "POST" {
				writeReply(c, 200, mediaJSON, `{"data":[{"url":"/image.png"}]}`)
				return
			}
			assert.Equal(t, []string{"identity"}, r.Header["Accept-Encoding"])
			image := "image"
			if encoding != "br" {
				image = compressed(encoding, image)
			}
			writeReply(c, 200, "image/png", image, "Content-Encoding: "+encoding)
		})
		b := newBackend(t, s.url(), &upstream.Options{Images: upstream.ImageOptions{Hosts: []string{s.listener.Addr().String()}}})
		resp, err := b.GenerateImages(t.Context(), &llm.ImageRequest{Model: "m", Prompt: "x", ResponseFormat: llm.ImageFormatBase64})
		if encoding == "br" {
			assert.ErrorContains(t, err, `fetching an image: the encoding "br" of the body is not known`)
			continue
		}
		require.NoError(t, err, encoding)
		assert.Equal(t, "image", string(resp.Data[0].Data))
	}
}
