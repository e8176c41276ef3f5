// Requests that Codex compresses.

package main

import (
	"errors"
	"io"

	"github.com/klauspost/compress/zstd"
)

// maxWindow is how much memory the decoder of a request may keep of what it has decoded, in bytes.
const maxWindow = 8 << 20

// decode reads zstd, with which Codex compresses requests if it is signed in with ChatGPT.
func decode(encoding string, r io.Reader) (io.ReadCloser, error) {
	if encoding != "zstd" {
		return nil, errors.ErrUnsupported
	}
	d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return nil, err
	}
	return d.IOReadCloser(), nil
}
