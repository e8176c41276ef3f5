package llmhttp

import (
	"net/http"
	"strconv"
	"sync"
	"time"
)

// The headers of every reply, and those of limits, in the form in which
// net/http keeps them.
const (
	headerRequestID  = "X-Request-Id"
	headerProcessing = "Openai-Processing-Ms"

	headerLimitRequests     = "X-Ratelimit-Limit-Requests"
	headerRemainingRequests = "X-Ratelimit-Remaining-Requests"
	headerResetRequests     = "X-Ratelimit-Reset-Requests"
	headerLimitTokens       = "X-Ratelimit-Limit-Tokens"
	headerRemainingTokens   = "X-Ratelimit-Remaining-Tokens"
	headerResetTokens       = "X-Ratelimit-Reset-Tokens"
)

var mediaJSON = []string{"application/json"}

// writeHeaders sets the headers of a reply that do not depend on what it is.
func (x *exchange) writeHeaders() {
	h := x.w.Header()
	x.values[0] = x.record.ID
	h[headerRequestID] = x.values[0:1:1]
	x.values[1] = strconv.FormatInt(time.Since(x.arrived).Milliseconds(), 10)
	h[headerProcessing] = x.values[1:2:2]
	x.grant.writeHeaders(h)
}

// writeJSON writes a reply whose other headers are set.
func writeJSON(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h["Content-Type"] = mediaJSON
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	w.WriteHeader(status)
	w.Write(body) // a client that has left needs no reply
}

// A buffer is memory for a body or a frame, to be used again.
type buffer struct{ b []byte }

// The pools keep buffers of up to these sizes. Larger ones go back to the
// garbage collector at once, and idle ones do before long.
const (
	smallBuffer = 16 << 10
	largeBuffer = 4 << 20
)

var smallBuffers, largeBuffers sync.Pool

// getBuffer returns an empty buffer with room for size bytes.
func getBuffer(size int) *buffer {
	pool := &smallBuffers
	if size > smallBuffer {
		pool = &largeBuffers
	}
	b, _ := pool.Get().(*buffer)
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
	switch n := cap(b.b); {
	case n <= smallBuffer:
		smallBuffers.Put(b)
	case n <= largeBuffer:
		largeBuffers.Put(b)
	}
}
