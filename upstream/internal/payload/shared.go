// Bodies in JSON, in memory that is used again.

package payload

import (
	"bytes"
	"errors"
	"io"
	"sync"

	"github.com/llmhttp/llmhttp/internal/exchange"
)

// A Shared is the JSON body of a request in memory that is used again (budgets: gateway 1 MB,
// and an agent's request of 150 KB). A transport may read a body after the reply has begun, and
// must close it, so the memory is in use until each reader is closed. Its methods may be called
// concurrently.
type Shared struct {
	mu     sync.Mutex       // guards the fields below and those of the readers
	buffer *exchange.Buffer // nil if it was given back
	users  int              // the owner of the body, until it calls Release, and readers that are not closed
}

// minShared is the size in bytes of the smallest body that is not copied: net/http makes a system
// call more for a body of a type that it does not know.
const minShared = 64 << 10

var errBodyReleased = errors.New("the body of the request was closed")

// NewShared returns a body with what encode appends.
func NewShared(encode func(b []byte) ([]byte, error)) (*Shared, error) {
	buffer := exchange.GetBuffer(0)
	b, err := encode(buffer.B)
	if err != nil {
		exchange.PutBuffer(buffer)
		return nil, err
	}
	buffer.B = b
	return &Shared{buffer: buffer, users: 1}, nil
}

// Payload returns the body of a call, which must begin before Release is called.
func (s *Shared) Payload() Payload {
	if len(s.buffer.B) < minShared {
		return JSON(bytes.Clone(s.buffer.B))
	}
	return Payload{mediaJSON, int64(len(s.buffer.B)), s.open}
}

func (s *Shared) open() (io.ReadCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.buffer == nil {
		return nil, errBodyReleased
	}
	s.users++
	return &sharedReader{body: s}, nil
}

// Release ends the use of the owner.
func (s *Shared) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endUse()
}

// endUse gives the memory back after the last use. s.mu is locked.
func (s *Shared) endUse() {
	if s.users--; s.users == 0 {
		exchange.PutBuffer(s.buffer)
		s.buffer = nil
	}
}

// A sharedReader reads a Shared. Close may be called during Read.
type sharedReader struct {
	body   *Shared
	read   int // bytes
	closed bool
}

func (r *sharedReader) Read(p []byte) (int, error) {
	r.body.mu.Lock()
	defer r.body.mu.Unlock()
	if r.closed {
		return 0, errBodyReleased
	}
	rest := r.body.buffer.B[r.read:]
	if len(rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, rest)
	r.read += n
	return n, nil
}

func (r *sharedReader) Close() error {
	r.body.mu.Lock()
	defer r.body.mu.Unlock()
	if !r.closed {
		r.closed = true
		r.body.endUse()
	}
	return nil
}
