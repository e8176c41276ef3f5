package upstream

import (
	"context"
	"io"
	"net"
)

// A conn is a connection that writes a [body] as it lies in memory. What
// net/http would do is copy it to a smaller buffer, piece by piece.
type conn struct{ *net.TCPConn }

// ReadFrom implements [io.ReaderFrom], by which net/http writes bodies.
func (c conn) ReadFrom(r io.Reader) (int64, error) {
	if l, ok := r.(*io.LimitedReader); ok {
		if b, ok := l.R.(*body); ok {
			n, err := b.writeTo(c.TCPConn, l.N)
			l.N -= n
			return n, err
		}
	}
	return c.TCPConn.ReadFrom(r)
}

// dialer returns a function that dials as d does.
func dialer(d *net.Dialer) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := d.DialContext(ctx, network, addr)
		if tcp, ok := c.(*net.TCPConn); ok && err == nil {
			return conn{tcp}, nil
		}
		return c, err
	}
}
