package llmhttp

import "sync"

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
