package upstream

import (
	"bytes"
	"errors"
	"io"
	"math"
)

// An eventReader reads server-sent events as they arrive, in the form that the
// HTML standard gives them: lines end with LF, CR or CRLF, and an empty one
// ends an event. It is more patient in that the last event of a stream need
// not end, and "[DONE]" is an event as soon as its line has ended.
type eventReader struct {
	r   io.Reader
	max int // bytes of a line, and of an event's data

	buf     *buffer // what was read
	start   int     // where in it the next line begins
	scanned int     // how far behind start there is no end of a line
	skipLF  bool    // a LF that comes next belongs to the CR before it
	begun   bool    // the first line is behind
	err     error   // what r returned

	// Of the event being read.
	name     string
	found    bool // it has data
	from, to int  // where in buf the data is, if it is one line
	lines    []byte
	joined   bool // there were several, which are in lines
}

// errEventTooLarge is the error of an event that is larger than it may be.
var errEventTooLarge = errors.New("an event of the stream is too large")

// reset makes e read from r.
func (e *eventReader) reset(r io.Reader, buf *buffer, limit int64) {
	*e = eventReader{r: r, buf: buf, max: int(min(limit, math.MaxInt32)), lines: e.lines[:0]}
	if cap(e.lines) > largeBuffer {
		e.lines = nil
	}
}

// next returns the next event that has data: its type, and its data, which is
// valid until the next call. At the end of the stream it returns io.EOF, and if
// that breaks off the reader's error.
func (e *eventReader) next() (name string, data []byte, err error) {
	e.clear()
	for {
		line, err := e.line()
		if err == io.EOF && e.size() > 0 {
			return e.name, e.data(), nil
		}
		if err != nil {
			return "", nil, err
		}
		if len(line) == 0 {
			if e.size() > 0 {
				return e.name, e.data(), nil
			}
			e.clear()
			continue
		}
		e.field(line)
		if e.size() > e.max {
			return "", nil, errEventTooLarge
		}
		if isDone(e.data()) {
			return e.name, e.data(), nil
		}
	}
}

func (e *eventReader) clear() { e.name, e.found, e.joined, e.from, e.to = "", false, false, 0, 0 }

func (e *eventReader) size() int { return len(e.data()) }

func (e *eventReader) data() []byte {
	if e.joined {
		return e.lines
	}
	return e.buf.b[e.from:e.to]
}

// isDone reports whether data is what ends a stream that is complete.
func isDone(data []byte) bool {
	const done = "[DONE]"
	return len(data) >= len(done) && data[0] != '{' && string(bytes.TrimSpace(data)) == done
}

// The types of events that matter.
const (
	eventError = "error"
	eventPing  = "ping"
)

// field takes the line of an event that was read last.
func (e *eventReader) field(line []byte) {
	name, value, _ := bytes.Cut(line, []byte{':'})
	if len(value) > 0 && value[0] == ' ' {
		value = value[1:]
	}
	switch string(name) {
	case "data":
	case "error": // for what should be an event of that type
		e.name = eventError
	case "event":
		switch string(value) {
		case eventError:
			e.name = eventError
		case eventPing:
			e.name = eventPing
		default:
			e.name = ""
		}
		return
	default: // a comment, or a field without a meaning here
		return
	}
	if !e.found {
		end := cap(e.buf.b) - cap(line) + len(line)
		e.found, e.from, e.to = true, end-len(value), end
		return
	}
	if !e.joined {
		e.lines, e.joined = append(e.lines[:0], e.data()...), true
	}
	e.lines = append(append(e.lines, '\n'), value...)
}

// line returns the next line, without its end and as part of buf. The last one
// need not have an end, if the stream does.
func (e *eventReader) line() (line []byte, err error) {
	for {
		b := e.buf.b[e.start:]
		if e.skipLF && len(b) > 0 {
			e.skipLF = false
			if b[0] == '\n' {
				e.start++
				continue
			}
		}
		end := bytes.IndexByte(b[e.scanned:], '\n')
		upTo := b[e.scanned:]
		if end >= 0 {
			upTo = upTo[:end]
		}
		if cr := bytes.IndexByte(upTo, '\r'); cr >= 0 {
			end = cr
		}
		switch {
		case end >= 0:
			line = b[:e.scanned+end]
			next := len(line) + 1
			if b[len(line)] == '\r' {
				if next == len(b) {
					e.skipLF = true
				} else if b[next] == '\n' {
					next++
				}
			}
			e.start += next
		case len(b) > e.max:
			return nil, errEventTooLarge
		case e.err == io.EOF && len(b) > 0:
			line = b
			e.start += len(b)
		case e.err != nil:
			return nil, e.err
		default:
			e.scanned = len(b)
			e.fill()
			continue
		}
		e.scanned = 0
		if !e.begun {
			e.begun = true
			line = bytes.TrimPrefix(line, byteOrderMark)
		}
		return line, nil
	}
}

var byteOrderMark = []byte("\xef\xbb\xbf")

// fill reads more. What is behind is dropped from buf, except the data of the
// event being read.
func (e *eventReader) fill() {
	keep := e.start
	if e.found && !e.joined {
		keep = e.from
	}
	b := e.buf.b[keep:]
	e.start -= keep
	e.from, e.to = max(e.from-keep, 0), max(e.to-keep, 0)
	switch {
	case len(b) == cap(e.buf.b):
		e.buf.b = append(make([]byte, 0, 2*len(b)), b...)
	case cap(e.buf.b) > largeBuffer && len(b) < smallBuffer:
		e.buf.b = append(make([]byte, 0, 2*smallBuffer), b...)
	default:
		e.buf.b = e.buf.b[:copy(e.buf.b, b)]
	}
	for range 100 {
		n, err := e.r.Read(e.buf.b[len(e.buf.b):cap(e.buf.b)])
		e.buf.b = e.buf.b[:len(e.buf.b)+n]
		if e.err = err; n > 0 || err != nil {
			return
		}
	}
	e.err = io.ErrNoProgress
}

// peek returns the first byte of the stream that is no space, or 0 if there is
// none. Nothing may have been read of it.
func (e *eventReader) peek() byte {
	for {
		b := bytes.TrimLeft(bytes.TrimPrefix(e.buf.b, byteOrderMark), " \t\r\n")
		if len(b) > 0 {
			return b[0]
		}
		if e.err != nil || len(e.buf.b) > e.max {
			return 0
		}
		e.fill()
	}
}
