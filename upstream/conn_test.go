package upstream

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/internal/lend"
)

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func openPieces(t *testing.T, m *lend.Memory, pieces ...string) *body {
	t.Helper()
	p := &payload{lent: m}
	for _, s := range pieces {
		p.pieces = append(p.pieces, []byte(s))
	}
	b, err := p.open()
	require.NoError(t, err)
	return b.(*body)
}

// What is being written is not given back, even if the body is closed.
func TestWriteHoldsMemory(t *testing.T) {
	back := false
	m := lend.New(func() { back = true })
	b := openPieces(t, m, "ab", "cdef")
	m.Release() // the Handler
	n, err := b.writeTo(writerFunc(func(p []byte) (int, error) {
		require.NoError(t, b.Close())
		assert.False(t, back, "%q is being written", p)
		return len(p), nil
	}), 100)
	assert.EqualValues(t, 2, n)
	assert.ErrorIs(t, err, errClosed)
	assert.True(t, back)
}

// A body is written as far as the limit, and not what was read before.
func TestWriteLimit(t *testing.T) {
	b := openPieces(t, nil, "ab", "cdef", "gh")
	_, err := io.ReadFull(b, make([]byte, 1))
	require.NoError(t, err)
	var out bytes.Buffer
	n, err := b.writeTo(&out, 3)
	require.NoError(t, err)
	assert.EqualValues(t, 3, n)
	assert.Equal(t, "bcd", out.String())
	rest, err := io.ReadAll(b)
	require.NoError(t, err)
	assert.Equal(t, "efgh", string(rest))
	n, err = b.writeTo(&out, 3)
	require.NoError(t, err)
	assert.Zero(t, n)
	_, err = openPieces(t, nil, "ab", "c").writeTo(writerFunc(func([]byte) (int, error) { return 1, io.ErrClosedPipe }), 3)
	assert.ErrorIs(t, err, io.ErrClosedPipe)
}

// A connection writes bodies in one go, and other readers as any does.
func TestConn(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	c, err := dialer(new(net.Dialer))(t.Context(), "tcp", l.Addr().String())
	require.NoError(t, err)
	peer, err := l.Accept()
	require.NoError(t, err)
	defer peer.Close()
	large := strings.Repeat("x", 100_000)
	go func() {
		defer c.Close()
		io.Copy(c, io.LimitReader(openPieces(t, nil, "ab", large, "cd"), 100_003))
		io.Copy(c, strings.NewReader("!"))
	}()
	got, err := io.ReadAll(peer)
	require.NoError(t, err)
	assert.True(t, string(got) == "ab"+large+"c!", "%d bytes", len(got))
	_, err = dialer(new(net.Dialer))(t.Context(), "tcp", "127.0.0.1:0")
	assert.Error(t, err)
}
