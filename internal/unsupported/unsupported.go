// Package unsupported tells whether an error means that an optional method is not there.
package unsupported

import (
	"errors"
	"syscall"
)

// Is reports whether err, which a method has returned, wraps [errors.ErrUnsupported], by which the
// method says that it is not there. The error of a system call, such as ENOTSUP of a file system,
// also is an ErrUnsupported for [errors.Is]. It says nothing of the method, which has failed.
func Is(err error) bool {
	if !errors.Is(err, errors.ErrUnsupported) {
		return false
	}
	_, failed := errors.AsType[syscall.Errno](err)
	return !failed
}
