// Package bounded reads the bodies of requests and replies within bounds of size and time.
package bounded

import (
	"errors"
	"io"
)

// ErrTooLarge is the error of a body that is larger than its limit.
var ErrTooLarge = errors.New("the body is too large")

const (
	// firstSize is the size of the buffer before any of the body has arrived, in
	// bytes. It does not depend on the declared length.
	firstSize = 16 << 10

	// trustedLength is the longest declared length, in bytes, for which the whole
	// buffer is allocated as soon as firstSize bytes have arrived.
	trustedLength = 2 << 20
)

// ReadAll reads r until [io.EOF], appends what it reads to buf, and returns the
// extended buffer, also with an error. length is the length that the sender of the
// body declares, negative if unknown. It need not be true.
//
// If buf would become longer than limit, the error is [ErrTooLarge]; if length is larger than
// limit, nothing is read.
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
// than length, so that the last Read can return io.EOF.
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
