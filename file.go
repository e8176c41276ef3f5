package llmhttp

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"

	"github.com/llmhttp/llmhttp/internal/bounded"
)

// A storedFile has the bytes of a file of a request: in blocks of memory, which are not copied as
// the file grows, or in a temporary file. One goroutine calls readFrom, before all others, which
// may call ReadAt at the same time as close.
type storedFile struct {
	size int64

	mu     sync.RWMutex // guards the fields below
	blocks [][]byte     // all but the last one are full
	file   *os.File     // nil if the bytes are in memory
	path   string       // of file, if it could not be removed while it is open
	closed bool
}

// fileBlock is the size of a block, and of a write to a temporary file, in bytes.
const fileBlock = 64 << 10

// newStoredFile returns an empty file: in memory, or in a directory if dir is not empty. There it has
// no name, so that nothing remains of it if the process is killed, where the system permits that.
func newStoredFile(dir string) (*storedFile, error) {
	f := new(storedFile)
	if dir == "" {
		return f, nil
	}
	file, err := os.CreateTemp(dir, "llmhttp-*")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errFileNotStored, err)
	}
	f.file = file
	if os.Remove(file.Name()) != nil { // as on Windows
		f.path = file.Name()
	}
	return f, nil
}

// isDirectory reports whether dir is a directory, or empty.
func isDirectory(dir string) bool {
	if dir == "" {
		return true
	}
	info, err := os.Stat(dir)
	return err == nil && info.IsDir()
}

// readFrom appends r, and calls read for each read with the number of bytes. The error is
// bounded.ErrTooLarge if the file would have more than limit bytes, wraps errFileNotStored, or is
// that of r.
func (f *storedFile) readFrom(r io.Reader, limit int64, read func(n int)) error {
	var block []byte // of a temporary file: what is not written yet
	for {
		if len(block) == cap(block) {
			if err := f.flush(block); err != nil {
				return err
			}
			block = f.newBlock(block)
		}
		n, err := r.Read(block[len(block):cap(block)])
		block = block[:len(block)+n]
		f.size += int64(n)
		read(n)
		if f.file == nil {
			f.blocks[len(f.blocks)-1] = block
		}
		switch {
		case f.size > limit:
			return bounded.ErrTooLarge
		case err == io.EOF:
			return f.flush(block)
		case err != nil:
			return err
		}
	}
}

// newBlock returns an empty block to follow old, which a temporary file uses again.
func (f *storedFile) newBlock(old []byte) []byte {
	if f.file != nil && old != nil {
		return old[:0]
	}
	block := make([]byte, 0, fileBlock)
	if f.file == nil {
		f.blocks = append(f.blocks, block)
	}
	return block
}

// flush writes a block to the temporary file, if there is one.
func (f *storedFile) flush(block []byte) error {
	if f.file == nil {
		return nil
	}
	if _, err := f.file.Write(block); err != nil {
		return fmt.Errorf("%w: %w", errFileNotStored, err)
	}
	return nil
}

var errFileNotStored = errors.New("llmhttp: a file of a request could not be stored in Options.FileDir")

var errFileClosed = fmt.Errorf("llmhttp: the request of the file has ended: %w", fs.ErrClosed)

// ReadAt implements [io.ReaderAt].
func (f *storedFile) ReadAt(p []byte, off int64) (n int, err error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	switch {
	case f.closed:
		return 0, errFileClosed
	case off < 0:
		return 0, errors.New("llmhttp: negative offset")
	case f.file != nil:
		return f.file.ReadAt(p, off)
	}
	for n < len(p) && off < f.size {
		copied := copy(p[n:], f.blocks[off/fileBlock][off%fileBlock:])
		n += copied
		off += int64(copied)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// close gives up the memory, or removes the temporary file. It may be called several times.
func (f *storedFile) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed, f.blocks = true, nil
	if f.file == nil {
		return
	}
	f.file.Close()
	if f.path != "" {
		os.Remove(f.path)
		f.path = ""
	}
}
