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

// openBody returns what reads pieces, whose memory is lent to us, and leaves
// them as they are. It must be closed.
func openBody(pieces net.Buffers, lent *lend.Memory) (io.ReadCloser, error) {
	if len(pieces) == 1 {
		// Nothing of it is the request's. Of a reader that it knows, net/http sends the head together with the
		// body.
		return io.NopCloser(bytes.NewReader(pieces[0])), nil
	}
	if !lent.Hold() {
		return nil, errReturned
	}
	return &body{rest: slices.Clone(pieces), lent: lent}, nil
}

var (
	errReturned = errors.New("upstream: the request's memory was given back")
	errClosed   = errors.New("upstream: read of a closed body")
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

func (b *body) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.over {
		b.over, b.rest = true, nil
		b.lent.Release()
	}
	return nil
}
