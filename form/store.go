package form

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"sync"
	"sync/atomic"

	"github.com/llmhttp/llmhttp/internal/bounded"
	"github.com/llmhttp/llmhttp/internal/option"
	"github.com/llmhttp/llmhttp/llm"
)

// A Store keeps the files of requests while these are served: in memory, or in a directory. The zero
// value is ready to use. Its methods may be called concurrently; its fields must not be changed after that,
// and it must not be copied.
type Store struct {
	// MaxFiles is the maximum size of the files of a request, such as a recording or images to edit, in
	// bytes of all of them. The form around them may have 1 MiB more. Larger ones get a 413. Zero means
	// 25 MiB; negative means no limit but MaxTotal.
	MaxFiles int64

	// MaxTotal bounds the files of all requests in progress together, in bytes, of which each file takes a
	// multiple of 64 KiB. What does not fit gets a 503, which clients retry. Zero means 1 GiB; negative
	// means no limit, which is not for clients that are not trusted.
	MaxTotal int64

	// Dir is a directory for temporary files, which have the files of requests. No file remains in it,
	// whatever ends a request; if the process is killed, that is so on systems that can remove a file
	// which is open, as all but Windows can. If empty, the files are in memory.
	Dir string

	held atomic.Int64 // bytes of all files
}

// The defaults of a [Store].
const (
	defaultMaxFiles = 25 << 20
	defaultMaxTotal = 1 << 30
)

// Validate returns an error if Dir is no directory.
func (s *Store) Validate() error {
	if s.Dir == "" {
		return nil
	}
	info, err := os.Stat(s.Dir)
	switch {
	case err != nil:
		return fmt.Errorf("form: Store.Dir: %w", err)
	case !info.IsDir():
		return fmt.Errorf("form: Store.Dir: %s is not a directory", s.Dir)
	}
	return nil
}

// maxFiles returns the maximum size of the files of a request.
func (s *Store) maxFiles() int64 {
	return min(option.Bound(s.MaxFiles, defaultMaxFiles), s.maxTotal())
}

func (s *Store) maxTotal() int64 { return option.Bound(s.MaxTotal, defaultMaxTotal) }

// take takes n bytes of MaxTotal. The error is bounded.ErrTooLarge if the files of the request are more than
// that, and an *llm.Error if those of others leave too little.
func (f *Form) take(n int64) error {
	most := f.store.maxTotal()
	if f.taken+n > most {
		return bounded.ErrTooLarge
	}
	if f.store.held.Add(n) > most {
		f.store.held.Add(-n)
		return llm.Errorf(http.StatusServiceUnavailable, "", "The server has too many files of requests at this time. Please try again later.")
	}
	f.taken += n
	return nil
}

// A storedFile has the bytes of a file of a request: in blocks of memory, which are not copied as
// the file grows, or in a temporary file. One goroutine calls readFrom, before all others, which
// may call ReadAt at the same time as close.
type storedFile struct {
	form *Form
	size int64

	mu     sync.RWMutex // guards the fields below
	blocks [][]byte     // all but the last one are full
	file   *os.File     // nil if the bytes are in memory
	path   string       // of file, if it could not be removed while it is open
	closed bool
}

// fileBlock is the size of a block, and of a write to a temporary file, in bytes.
const fileBlock = 64 << 10

// newFile returns an empty file. In a directory it has no name, so that nothing remains of it if the
// process is killed, where the system permits that.
func (f *Form) newFile() (*storedFile, error) {
	stored := &storedFile{form: f}
	dir := f.store.Dir
	if dir == "" {
		return stored, nil
	}
	file, err := os.CreateTemp(dir, "llmhttp-*")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotKept, err)
	}
	stored.file = file
	if os.Remove(file.Name()) != nil { // as on Windows
		stored.path = file.Name()
	}
	return stored, nil
}

// readFrom appends r, and calls read for each read with the number of bytes. The error is
// bounded.ErrTooLarge if the file would have more than limit bytes, an *llm.Error if there is no
// place, wraps errNotKept, or is that of r.
func (f *storedFile) readFrom(r io.Reader, limit int64, read func(n int)) error {
	var block []byte // of a temporary file: what is not written yet
	for {
		if len(block) == cap(block) {
			if err := f.flush(block); err != nil {
				return err
			}
			var err error
			if block, err = f.newBlock(block); err != nil {
				return err
			}
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
func (f *storedFile) newBlock(old []byte) ([]byte, error) {
	if err := f.form.take(fileBlock); err != nil {
		return nil, err
	}
	if f.file != nil && old != nil {
		return old[:0], nil
	}
	block := make([]byte, 0, fileBlock)
	if f.file == nil {
		f.blocks = append(f.blocks, block)
	}
	return block, nil
}

// flush writes a block to the temporary file, if there is one.
func (f *storedFile) flush(block []byte) error {
	if f.file == nil {
		return nil
	}
	if _, err := f.file.Write(block); err != nil {
		return fmt.Errorf("%w: %w", errNotKept, err)
	}
	return nil
}

var errNotKept = errors.New("form: a file of a request could not be kept in Store.Dir")

var errFileClosed = fmt.Errorf("form: the request of the file has ended: %w", fs.ErrClosed)

// ReadAt implements [io.ReaderAt].
func (f *storedFile) ReadAt(p []byte, off int64) (n int, err error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	switch {
	case f.closed:
		return 0, errFileClosed
	case off < 0:
		return 0, errors.New("form: negative offset")
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
