package upstream

import (
	"bytes"
	"errors"
	"io"
	"sync"

	"github.com/llmhttp/llmhttp/internal/exchange"
)

// A sharedBody is the JSON body of a request in memory that is used again (budgets: gateway 1 MB,
// and an agent's request of 150 KB). A transport may read a body after the reply has begun, and
// must close it, so the memory is in use until each reader is closed. Its methods may be called
// concurrently.
type sharedBody struct {
	mu     sync.Mutex       // guards the fields below and those of the readers
	buffer *exchange.Buffer // nil if it was given back
	users  int              // the owner of the body, until it calls release, and readers that are not closed
}

// minShared is the size in bytes of the smallest body that is not copied: net/http makes a system
// call more for a body of a type that it does not know.
const minShared = 64 << 10

var errBodyReleased = errors.New("the body of the request was closed")

// newSharedBody returns a body with what encode appends.
func newSharedBody(encode func(b []byte) ([]byte, error)) (*sharedBody, error) {
	buffer := exchange.GetBuffer(0)
	b, err := encode(buffer.B)
	if err != nil {
		exchange.PutBuffer(buffer)
		return nil, err
	}
	buffer.B = b
	return &sharedBody{buffer: buffer, users: 1}, nil
}

// payload returns the body of a call, which must begin before release is called.
func (s *sharedBody) payload() payload {
	if len(s.buffer.B) < minShared {
		return jsonPayload(bytes.Clone(s.buffer.B))
	}
	return payload{mediaJSON, int64(len(s.buffer.B)), s.open}
}

func (s *sharedBody) open() (io.ReadCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.buffer == nil {
		return nil, errBodyReleased
	}
	s.users++
	return &sharedBodyReader{body: s}, nil
}

// release ends the use of the owner.
func (s *sharedBody) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endUse()
}

// endUse gives the memory back after the last use. s.mu is locked.
func (s *sharedBody) endUse() {
	if s.users--; s.users == 0 {
		exchange.PutBuffer(s.buffer)
		s.buffer = nil
	}
}

// A sharedBodyReader reads a sharedBody. Close may be called during Read.
type sharedBodyReader struct {
	body   *sharedBody
	read   int // bytes
	closed bool
}

func (r *sharedBodyReader) Read(p []byte) (int, error) {
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

func (r *sharedBodyReader) Close() error {
	r.body.mu.Lock()
	defer r.body.mu.Unlock()
	if !r.closed {
		r.closed = true
		r.body.endUse()
	}
	return nil
}
