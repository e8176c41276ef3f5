package llmhttp

import (
	"math/bits"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// The headers of every reply, in the form in which net/http keeps them.
const (
	headerRequestID  = "X-Request-Id"
	headerProcessing = "Openai-Processing-Ms"
)

// limitHeaders are those of a limit of requests, and of one of tokens.
var limitHeaders = [...]string{
	"X-Ratelimit-Limit-Requests", "X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests",
	"X-Ratelimit-Limit-Tokens", "X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens",
}

var mediaJSON = []string{"application/json"}

// headerValues is memory for the values of headers, which http.Header wants
// one by one.
type headerValues struct {
	n    int
	list [9]string
}

// set sets a header that has one value.
func (v *headerValues) set(h http.Header, name, value string) {
	if v.n == len(v.list) {
		h[name] = []string{value}
		return
	}
	v.list[v.n] = value
	h[name] = v.list[v.n : v.n+1 : v.n+1]
	v.n++
}

// writeHeaders sets the headers of a reply that do not depend on what it is.
func (x *exchange) writeHeaders() {
	h := x.w.Header()
	x.headers.set(h, headerRequestID, x.record.ID)
	x.headers.set(h, headerProcessing, strconv.FormatInt(time.Since(x.arrived).Milliseconds(), 10))
	x.grant.writeHeaders(h, &x.headers)
}

// writeHead writes the head of a reply of JSON whose other headers are set. A
// negative length is not told.
func writeHead(w http.ResponseWriter, status, length int, values *headerValues) {
	h := w.Header()
	h["Content-Type"] = mediaJSON
	if length >= 0 {
		values.set(h, "Content-Length", strconv.Itoa(length))
	}
	w.WriteHeader(status)
}

// A buffer is memory for a body or a frame, to be used again.
type buffer struct{ b []byte }

// A pool keeps buffers of up to smallBuffer, the next ones those of up to twice
// the size of the one before. So no small request holds large memory. Buffers of
// more than largeBuffer go back to the garbage collector at once, and idle ones
// do before long.
const (
	smallBuffer = 16 << 10
	largeBuffer = 4 << 20
)

var pools [9]sync.Pool // 16 KB to 4 MB

// poolFor returns the pool of buffers with room for size bytes, or nil if there
// is none.
func poolFor(size int) *sync.Pool {
	if size > largeBuffer {
		return nil
	}
	return &pools[bits.Len(uint(max(size-1, 0)/smallBuffer))]
}

// getBuffer returns an empty buffer with room for size bytes, and for less than
// twice as many if that is more than smallBuffer.
func getBuffer(size int) *buffer {
	var b *buffer
	if pool := poolFor(size); pool != nil {
		b, _ = pool.Get().(*buffer)
	}
	if b == nil {
		b = new(buffer)
	}
	if cap(b.b) < size {
		b.b = make([]byte, 0, size)
	}
	b.b = b.b[:0]
	return b
}

// putBuffer takes back a buffer that nothing refers to any more.
func putBuffer(b *buffer) {
	if pool := poolFor(cap(b.b)); pool != nil {
		pool.Put(b)
	}
}
