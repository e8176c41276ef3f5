package upstream

import (
	"bytes"
	"errors"
	"io"
	"net"
	"slices"
	"sync"

	"github.com/llmhttp/llmhttp/internal/lend"
)

// A payload is what a request sends: pieces, some of which are in memory that
// is lent to us.
type payload struct {
	lent *lend.Memory

	mu     sync.Mutex
	pieces net.Buffers // nil when it was dropped
}

func (p *payload) size() (n int64) {
	for _, piece := range p.pieces {
		n += int64(len(piece))
	}
	return n
}

// headRoom is up to which size a body fits beside the head in net/http's buffer.
const headRoom = 4 << 10

// open returns what reads the payload from its beginning. It must be closed.
func (p *payload) open() (io.ReadCloser, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.pieces == nil:
		return nil, errReplied
	case len(p.pieces) == 1 && len(p.pieces[0]) < headRoom:
		// Nothing of it is lent. Of a reader that it knows, net/http sends the
		// head together with the body.
		return io.NopCloser(bytes.NewReader(p.pieces[0])), nil
	case !p.lent.Hold():
		return nil, errReplied
	}
	return &body{rest: slices.Clone(p.pieces), lent: p.lent}, nil
}

// drop forgets the payload, but for those who read it.
func (p *payload) drop() {
	p.mu.Lock()
	p.pieces = nil
	p.mu.Unlock()
}

var (
	errReplied = errors.New("upstream: the request's body is gone when the reply has begun")
	errClosed  = errors.New("upstream: read of a closed body")
)

// A body is the body of a request on its way to the server. A transport may
// close it, while it reads it or after the reply has come: only then has
// nobody its memory.
type body struct {
	mu   sync.Mutex
	rest net.Buffers
	lent *lend.Memory
	over bool
}

func (b *body) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return 0, errClosed
	}
	return b.rest.Read(p)
}

// writeTo writes what is left of the body to w, but no more than limit bytes.
// It may be closed meanwhile: what is being written is held.
func (b *body) writeTo(w io.Writer, limit int64) (written int64, _ error) {
	for written < limit {
		piece, err := b.next(limit - written)
		if err == io.EOF {
			break
		}
		if err != nil {
			return written, err
		}
		n, err := w.Write(piece)
		b.lent.Release()
		written += int64(n)
		if err != nil {
			return written, err
		}
	}
	return written, nil
}

// next takes a piece of at most limit bytes off the body, and holds its memory.
func (b *body) next(limit int64) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.over:
		return nil, errClosed
	case len(b.rest) == 0:
		return nil, io.EOF
	case !b.lent.Hold():
		return nil, errClosed
	}
	piece := b.rest[0]
	if int64(len(piece)) > limit {
		piece = piece[:limit]
	}
	if b.rest[0] = b.rest[0][len(piece):]; len(b.rest[0]) == 0 {
		b.rest = b.rest[1:]
	}
	return piece, nil
}

func (b *body) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.over {
		b.over, b.rest = true, nil
		b.lent.Release()
	}
	return nil
}
