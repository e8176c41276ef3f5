package bounded

import (
	"io"
	"time"
)

// An IdleTimer calls a function when something takes too long. Its methods may be called
// concurrently. The zero IdleTimer is not usable.
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

// Stop keeps t from expiring until the next Reset. It does not wait for a call of the function that
// has begun.
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
