package upstream

import (
	"context"
	"io"
	"sync"

	"github.com/llmhttp/llmhttp/internal/bounded"
)

// A replyMemory bounds the memory of the replies that are not streams. Its
// methods may be called concurrently.
//
// A reply reserves memory while it is read, and waits if no memory is left. One reply at
// a time may exceed the limit, because replies would otherwise deadlock waiting for
// each other.
type replyMemory struct {
	limit int64

	mu        sync.Mutex // guards the fields below and those of reservations
	used      int64
	overLimit *reservation  // the reply that exceeds the limit; nil if none does
	freed     chan struct{} // closed when memory is released; nil if no reply waits
}

// A reservation is the memory that is reserved for one reply.
type reservation struct {
	m     *replyMemory
	limit int64 // maximum size of this reply
	read  int64 // bytes that were read
	held  int64 // bytes that are reserved
}

// reserveStep is the number of bytes that may be read beyond held. Replies that are not
// larger need no reservation.
const reserveStep = 16 << 10

// reader returns a Reader that reads from r and reserves memory for what it
// reads. Several readers of a reservation may be used concurrently.
func (v *reservation) reader(ctx context.Context, r io.Reader) io.Reader {
	return &reservingReader{ctx, r, v}
}

type reservingReader struct {
	ctx context.Context
	r   io.Reader
	v   *reservation
}

// Read returns bounded.ErrTooLarge if the reply is larger than the limit of its
// reservation.
func (r *reservingReader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if wait := r.v.grow(int64(n)); wait != nil {
		if err := r.v.waitForMemory(r.ctx, wait); err != nil {
			return n, err
		}
	}
	if r.v.isTooLarge() {
		return n, bounded.ErrTooLarge
	}
	return n, err
}

// grow records that n bytes were read, and reserves memory for them if necessary. If no
// memory is left, it returns a channel that is closed when memory is released.
func (v *reservation) grow(n int64) (wait chan struct{}) {
	m := v.m
	m.mu.Lock()
	defer m.mu.Unlock()
	v.read += n
	if v.read <= v.held+reserveStep {
		return nil
	}
	more := max(v.read, min(2*v.held, v.limit)) - v.held // doubles, as the buffer of the reply does
	if m.used+more > m.limit {
		if m.overLimit != nil && m.overLimit != v {
			if m.freed == nil {
				m.freed = make(chan struct{})
			}
			return m.freed
		}
		m.overLimit = v
	}
	m.used += more
	v.held += more
	return nil
}

// waitForMemory waits for wait and calls grow again, until memory is reserved or ctx
// ends.
func (v *reservation) waitForMemory(ctx context.Context, wait chan struct{}) error {
	for wait != nil {
		select {
		case <-wait:
			wait = v.grow(0)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (v *reservation) isTooLarge() bool {
	v.m.mu.Lock()
	defer v.m.mu.Unlock()
	return v.read > v.limit
}

// release releases the memory of the reply.
func (v *reservation) release() {
	m := v.m
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used -= v.held
	v.held, v.read = 0, 0
	if m.overLimit == v {
		m.overLimit = nil
	}
	if m.freed != nil {
		close(m.freed)
		m.freed = nil
	}
}
