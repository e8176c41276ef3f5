package unsupported

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestIs(t *testing.T) {
	full := &fs.PathError{Op: "fallocate", Path: "/cache", Err: syscall.ENOTSUP}
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"nil":                {nil, false},
		"another error":      {fs.ErrNotExist, false},
		"itself":             {errors.ErrUnsupported, true},
		"wrapped":            {fmt.Errorf("no embeddings: %w", errors.ErrUnsupported), true},
		"joined":             {errors.Join(fs.ErrNotExist, errors.ErrUnsupported), true},
		"a system call":      {full, false},
		"around that":        {fmt.Errorf("cache: %w", full), false},
		"both":               {errors.Join(errors.ErrUnsupported, full), false},
		"another call fails": {errors.Join(errors.ErrUnsupported, syscall.ENOSPC), false},
	} {
		assert.Equal(t, test.want, Is(test.err), name)
	}
	assert.ErrorIs(t, full, errors.ErrUnsupported)
}
