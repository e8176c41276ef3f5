// Reads server-sent events.

package reply

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"

	"github.com/llmhttp/llmhttp/internal/bounded"
)

// Events reads server-sent events, as the HTML standard defines them:
// lines end with LF, CR or CRLF, and an empty line ends an event. It is lenient
// in two points: an empty line after the last event is not needed, and "[DONE]"
// is returned as soon as its line has ended, as some servers send nothing more
// and leave the connection open.
type Events struct {
	r      *bufio.Reader
	max    int    // the largest size of an event, in bytes
	line   []byte // the line that was read last
	skipLF bool   // a CR ended that line, so a LF that follows is part of its end

	// The event being read.
	kind    string
	hasData bool
	data    []byte // the values of its data lines, joined by LF
	size    int    // size of its lines, from the first data line on
}

// An Event is a server-sent event that has data, which is valid until the next event is
// read.
type Event struct {
	Kind string // its type if that is KindError or KindPing, otherwise empty
	Data []byte
}

// The kinds of events that are told apart.
const (
	KindError = "error"
	KindPing  = "ping"
)

// IsEventType reports whether the member "type" of the data of an event is that of an event, such as
// "image_edit.completed", and not that of an error.
func IsEventType(name string) bool { return strings.Contains(name, ".") }

// errEventTooLarge is the error of an event that is larger than Server.MaxEvent.
var errEventTooLarge = errors.New("an event of the stream is too large")

// maxRetained is the largest buffer that is reused for the next event, in bytes.
const maxRetained = 64 << 10

// Next returns the next event that has data. Comments before it count only
// against the size of a line. The error is io.EOF at the end of the stream, and
// that of the reader if the stream is interrupted, even within an event.
func (e *Events) Next() (Event, error) {
	e.reset()
	for {
		err := e.readLine()
		switch {
		case err == io.EOF && len(e.data) > 0:
			return Event{e.kind, e.data}, nil
		case err != nil:
			return Event{}, err
		case len(e.line) > 0:
			hadData := e.hasData
			if err := e.addLine(); err != nil {
				return Event{}, err
			}
			if !hadData && IsDone(e.data) {
				return Event{e.kind, e.data}, nil
			}
		case len(e.data) > 0:
			return Event{e.kind, e.data}, nil
		default:
			e.reset()
		}
	}
}

// reset discards the event that is being read.
func (e *Events) reset() {
	if cap(e.data) > maxRetained {
		e.data = nil
	}
	e.kind, e.hasData, e.data, e.size = "", false, e.data[:0], 0
}

// IsDone reports whether data marks the end of a complete stream.
func IsDone(data []byte) bool {
	const done = "[DONE]"
	return len(data) >= len(done) && data[0] != '{' && string(bytes.TrimSpace(data)) == done
}

// addLine adds the line to the event being read.
func (e *Events) addLine() error {
	field, value, _ := bytes.Cut(e.line, []byte{':'})
	value = bytes.TrimPrefix(value, []byte{' '})
	switch string(field) {
	case "data":
		e.addData(value)
	case "error": // some servers send it instead of an event of that type
		e.kind = KindError
		e.addData(value)
	case "event":
		e.kind = ""
		if kind := string(value); kind == KindError || kind == KindPing {
			e.kind = kind
		}
	}
	if e.hasData {
		e.size += len(e.line)
	}
	if e.size > e.max {
		return errEventTooLarge
	}
	return nil
}

func (e *Events) addData(value []byte) {
	if e.hasData {
		e.data = append(e.data, '\n')
	}
	e.hasData = true
	e.data = append(e.data, value...)
}

// readLine reads the next line, without its end. The last line of the stream need not have one.
func (e *Events) readLine() error {
	if cap(e.line) > maxRetained {
		e.line = nil
	}
	e.line = e.line[:0]
	for {
		if _, err := e.r.Peek(1); err != nil { // waits until there is a byte
			if err == io.EOF && len(e.line) > 0 {
				return nil
			}
			return err
		}
		b, _ := e.r.Peek(e.r.Buffered())
		if e.skipLF && b[0] == '\n' {
			e.skipLF = false
			e.r.Discard(1)
			continue
		}
		e.skipLF = false
		end := lineEnd(b)
		e.line = append(e.line, b[:end]...)
		e.r.Discard(min(end+1, len(b)))
		if len(e.line) > e.max {
			return errEventTooLarge
		}
		if end < len(b) {
			e.skipLF = b[end] == '\r'
			return nil
		}
	}
}

// lineEnd returns the index of the first CR or LF in b, or len(b) if there is
// none. bytes.IndexAny would take ten times as long: see BenchmarkReadEvents.
func lineEnd(b []byte) int {
	end := bytes.IndexByte(b, '\n')
	if end < 0 {
		end = len(b)
	}
	if cr := bytes.IndexByte(b[:end], '\r'); cr >= 0 {
		end = cr
	}
	return end
}

// skipSpace discards a byte order mark and white space, at most limit bytes, and
// returns the byte that follows. The error is io.EOF if there is none.
func skipSpace(r *bufio.Reader, limit int64) (byte, error) {
	const byteOrderMark = "\xef\xbb\xbf"
	if b, err := r.Peek(1); err == nil && b[0] == byteOrderMark[0] {
		if b, _ := r.Peek(len(byteOrderMark)); string(b) == byteOrderMark {
			r.Discard(len(b))
		}
	}
	for ; limit > 0; limit-- {
		b, err := r.Peek(1)
		if err != nil {
			return 0, err
		}
		switch b[0] {
		case ' ', '\t', '\r', '\n':
			r.Discard(1)
		default:
			return b[0], nil
		}
	}
	return 0, bounded.ErrTooLarge
}
