// Bounds the memory of the replies that are not streams.

package reply

import (
	"context"
	"io"
	"sync"

	"github.com/llmhttp/llmhttp/internal/bounded"
)

// A Memory bounds the memory of the replies that are not streams. It must not be copied. Its
// methods may be called concurrently.
//
// A reply reserves memory while it is read, and waits if no memory is left. One reply at
// a time may exceed the limit, because replies would otherwise deadlock waiting for
// each other.
//
// OpenAI's images are base64 of some megabytes each, up to ten in a reply, so that a few dozen
// requests at a time would take gigabytes. The semaphore of golang.org/x/sync, which the root
// module does not require, knows weights, but no reservation that grows while it is held, as
// that of a reply of unknown length does.
type Memory struct {
	Limit int64 // in bytes; set before the first use

	mu        sync.Mutex         // guards the fields below and those of memoryReservations
	reserved  int64              // by all replies, in bytes
	overLimit *memoryReservation // the reply that exceeds the limit; nil if none does
	freed     chan struct{}      // closed when memory is released; nil if no reply waits
}

// A memoryReservation is the memory that is reserved for one reply.
type memoryReservation struct {
	memory   *Memory
	limit    int64 // maximum size of this reply
	read     int64 // bytes that were read
	reserved int64 // bytes that are reserved
}

// reserveStep is the number of bytes that may be read beyond those that are reserved.
// Replies that are not larger need no reservation.
const reserveStep = 16 << 10

// reader returns a Reader that reads from source and reserves memory for what it
// reads. Several readers of a reservation may be used concurrently.
func (r *memoryReservation) reader(ctx context.Context, source io.Reader) io.Reader {
	return &reservingReader{ctx, source, r}
}

type reservingReader struct {
	ctx         context.Context
	source      io.Reader
	reservation *memoryReservation
}

// Read returns bounded.ErrTooLarge if the reply is larger than the limit of its
// reservation.
func (r *reservingReader) Read(p []byte) (int, error) {
	n, err := r.source.Read(p)
	if err := r.reservation.grow(r.ctx, int64(n)); err != nil {
		return n, err
	}
	if r.reservation.isTooLarge() {
		return n, bounded.ErrTooLarge
	}
	return n, err
}

// grow records that n bytes were read, and reserves memory for them if necessary. If no
// memory is left, it waits for some until ctx ends.
func (r *memoryReservation) grow(ctx context.Context, n int64) error {
	ok, freed := r.tryGrow(n)
	for !ok {
		select {
		case <-freed:
			ok, freed = r.tryGrow(0)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// tryGrow is like grow, but returns false if no memory is left, with a channel that is
// closed when memory is released.
func (r *memoryReservation) tryGrow(n int64) (ok bool, freed <-chan struct{}) {
	m := r.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	r.read += n
	if r.read <= r.reserved+reserveStep {
		return true, nil
	}
	more := max(r.read, min(2*r.reserved, r.limit)) - r.reserved // doubles, as the buffer of the reply does
	if m.reserved+more > m.Limit {
		if m.overLimit != nil && m.overLimit != r {
			if m.freed == nil {
				m.freed = make(chan struct{})
			}
			return false, m.freed
		}
		m.overLimit = r
	}
	m.reserved += more
	r.reserved += more
	return true, nil
}

func (r *memoryReservation) isTooLarge() bool {
	r.memory.mu.Lock()
	defer r.memory.mu.Unlock()
	return r.read > r.limit
}

// release releases the memory. The reservation can be used again.
func (r *memoryReservation) release() {
	m := r.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reserved -= r.reserved
	r.reserved, r.read = 0, 0
	if m.overLimit == r {
		m.overLimit = nil
	}
	if m.freed != nil {
		close(m.freed)
		m.freed = nil
	}
}
