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
// A reply grows while it is read, and waits if there is no memory left. So that
// replies do not wait for each other for ever, one at a time may exceed the limit.
type replyMemory struct {
	limit int64

	mu      sync.Mutex // guards the fields below and those of reservations
	used    int64
	exceeds *reservation  // the reply that may exceed the limit; nil if none needs to
	freed   chan struct{} // closed when memory is released; nil if nobody waits
}

// A reservation is the memory of one reply.
type reservation struct {
	m     *replyMemory
	limit int64 // of this reply; a larger one fails
	read  int64
	held  int64
}

// reserveStep is how much memory a reply may take beyond its reservation, in
// bytes. So small replies need none.
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
	if wait := r.v.add(int64(n)); wait != nil {
		if err := r.v.await(r.ctx, wait); err != nil {
			return n, err
		}
	}
	if r.v.isTooLarge() {
		return n, bounded.ErrTooLarge
	}
	return n, err
}

// add notes that n bytes were read, and reserves memory if they need it. If
// there is none, it returns a channel that is closed when some is released.
func (v *reservation) add(n int64) (wait chan struct{}) {
	m := v.m
	m.mu.Lock()
	defer m.mu.Unlock()
	v.read += n
	if v.read <= v.held+reserveStep {
		return nil
	}
	more := max(v.read, min(2*v.held, v.limit)) - v.held // as a buffer grows
	if m.used+more > m.limit {
		if m.exceeds != nil && m.exceeds != v {
			if m.freed == nil {
				m.freed = make(chan struct{})
			}
			return m.freed
		}
		m.exceeds = v
	}
	m.used += more
	v.held += more
	return nil
}

// await repeats add until there is memory or ctx ends.
func (v *reservation) await(ctx context.Context, wait chan struct{}) error {
	for wait != nil {
		select {
		case <-wait:
			wait = v.add(0)
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

// release returns the memory.
func (v *reservation) release() {
	m := v.m
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used -= v.held
	v.held, v.read = 0, 0
	if m.exceeds == v {
		m.exceeds = nil
	}
	if m.freed != nil {
		close(m.freed)
		m.freed = nil
	}
}
