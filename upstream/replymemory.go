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
	memory *replyMemory
	limit  int64 // maximum size of this reply
	read   int64 // bytes that were read
	held   int64 // bytes that are reserved
}

// reserveStep is the number of bytes that may be read beyond held. Replies that are not
// larger need no reservation.
const reserveStep = 16 << 10

// reader returns a Reader that reads from source and reserves memory for what it
// reads. Several readers of a reservation may be used concurrently.
func (r *reservation) reader(ctx context.Context, source io.Reader) io.Reader {
	return &reservingReader{ctx, source, r}
}

type reservingReader struct {
	ctx         context.Context
	source      io.Reader
	reservation *reservation
}

// Read returns bounded.ErrTooLarge if the reply is larger than the limit of its
// reservation.
func (r *reservingReader) Read(p []byte) (int, error) {
	n, err := r.source.Read(p)
	if wait := r.reservation.grow(int64(n)); wait != nil {
		if err := r.reservation.waitForMemory(r.ctx, wait); err != nil {
			return n, err
		}
	}
	if r.reservation.isTooLarge() {
		return n, bounded.ErrTooLarge
	}
	return n, err
}

// grow records that n bytes were read, and reserves memory for them if necessary. If no
// memory is left, it returns a channel that is closed when memory is released.
func (r *reservation) grow(n int64) (wait chan struct{}) {
	m := r.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	r.read += n
	if r.read <= r.held+reserveStep {
		return nil
	}
	more := max(r.read, min(2*r.held, r.limit)) - r.held // doubles, as the buffer of the reply does
	if m.used+more > m.limit {
		if m.overLimit != nil && m.overLimit != r {
			if m.freed == nil {
				m.freed = make(chan struct{})
			}
			return m.freed
		}
		m.overLimit = r
	}
	m.used += more
	r.held += more
	return nil
}

// waitForMemory waits for wait and calls grow again, until memory is reserved or ctx
// ends.
func (r *reservation) waitForMemory(ctx context.Context, wait chan struct{}) error {
	for wait != nil {
		select {
		case <-wait:
			wait = r.grow(0)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (r *reservation) isTooLarge() bool {
	r.memory.mu.Lock()
	defer r.memory.mu.Unlock()
	return r.read > r.limit
}

func (r *reservation) release() {
	m := r.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used -= r.held
	r.held, r.read = 0, 0
	if m.overLimit == r {
		m.overLimit = nil
	}
	if m.freed != nil {
		close(m.freed)
		m.freed = nil
	}
}
