// Package bounded reads the bodies of requests and replies within bounds of
// size and time.
package bounded

import (
	"errors"
	"io"
	"time"
)

// ErrTooLarge is the error of a body that is larger than its limit.
var ErrTooLarge = errors.New("the body is too large")

const (
	// firstSize is how much memory is allocated for a body before any of it has
	// arrived, in bytes, whatever length it declares.
	firstSize = 16 << 10

	// trustedLength is the longest declared length that is allocated at once
	// when the first bytes have arrived.
	trustedLength = 2 << 20
)

// ReadAll reads r until [io.EOF], appends what it reads to buf, and returns the
// extended buffer, also with an error. length is the declared length of what r
// has, negative if unknown; only the memory that is allocated depends on it.
//
// If buf would become longer than limit, the error is [ErrTooLarge]; if length
// is larger than limit, nothing is read.
func ReadAll(r io.Reader, buf []byte, length, limit int64) ([]byte, error) {
	if length > limit {
		return buf, ErrTooLarge
	}
	length += int64(len(buf))
	for {
		if len(buf) == cap(buf) {
			buf = grow(buf, length)
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case int64(len(buf)) > limit:
			return buf, ErrTooLarge
		case err == io.EOF:
			return buf, nil
		case err != nil:
			return buf, err
		}
	}
}

// grow returns a copy of buf with a larger capacity: for length bytes if that is
// trusted, and otherwise at most twice as large. It has room for one byte more
// than length, which a Read needs to see the end.
func grow(buf []byte, length int64) []byte {
	size := int64(max(2*cap(buf), firstSize))
	switch {
	case int64(len(buf)) > length:
	case cap(buf) >= firstSize && length <= trustedLength:
		size = length + 1
	default:
		size = min(size, length+1)
	}
	return append(make([]byte, 0, size), buf...)
}

// An IdleTimer calls a function when something takes too long. Its methods may
// be called concurrently. The zero IdleTimer is not usable.
type IdleTimer struct{ timer *time.Timer }

// NewIdleTimer returns a stopped IdleTimer that calls onIdle, in its own
// goroutine, when it expires.
func NewIdleTimer(onIdle func()) *IdleTimer {
	t := time.AfterFunc(time.Hour, onIdle)
	t.Stop()
	return &IdleTimer{t}
}

// Reset makes t expire after d, unless it is reset or stopped before. If d is
// negative, t does not expire.
func (t *IdleTimer) Reset(d time.Duration) {
	if d < 0 {
		t.timer.Stop()
		return
	}
	t.timer.Reset(d)
}

// Stop keeps t from expiring until the next Reset. It does not wait for a call
// of the function that has begun.
func (t *IdleTimer) Stop() { t.timer.Stop() }

// Reader returns a Reader that reads from r. Until the first byte it leaves t as
// it is. After that, t expires if a Read takes longer than d; it is stopped
// between the calls of Read, so the time that the caller takes does not count.
func (t *IdleTimer) Reader(r io.Reader, d time.Duration) io.Reader {
	return &idleReader{r: r, timer: t, timeout: d}
}

type idleReader struct {
	r       io.Reader
	timer   *IdleTimer
	timeout time.Duration
	begun   bool // a byte was read
}

func (r *idleReader) Read(p []byte) (int, error) {
	if r.begun {
		r.timer.Reset(r.timeout)
	}
	n, err := r.r.Read(p)
	if n > 0 || err != nil {
		r.timer.Stop()
		r.begun = true
	}
	return n, err
}
