package bounded

import "io"

// A Reader reads R, of which Left bytes may be read. If R has more, the error is [ErrTooLarge].
type Reader struct {
	R    io.Reader
	Left int64
}

// Read implements [io.Reader].
func (b *Reader) Read(p []byte) (int, error) {
	if b.Left <= 0 && len(p) > 0 {
		var more [1]byte
		n, err := b.R.Read(more[:])
		if n > 0 {
			err = ErrTooLarge
		}
		return 0, err
	}
	n, err := b.R.Read(p[:min(int64(len(p)), b.Left)])
	b.Left -= int64(n)
	return n, err
}
