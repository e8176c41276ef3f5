package exchange

import "sync"

// A Buffer is memory for a body or for events, which is used again.
type Buffer struct{ B []byte }

// maxPooledBuffer is the size of the largest buffer that is kept for reuse.
const maxPooledBuffer = 2 << 20

var buffers = sync.Pool{New: func() any { return new(Buffer) }}

// GetBuffer returns an empty buffer with room for size bytes.
func GetBuffer(size int) *Buffer {
	buf := buffers.Get().(*Buffer)
	if cap(buf.B) < size {
		buf.B = make([]byte, 0, size)
	}
	buf.B = buf.B[:0]
	return buf
}

// PutBuffer takes back a buffer that nothing refers to.
func PutBuffer(buf *Buffer) {
	if cap(buf.B) <= maxPooledBuffer {
		buffers.Put(buf)
	}
}
