// The ResponseWriter of the Handler, which makes the faults.

package llmfake

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// An endKind says how a reply ends.
type endKind int

const (
	endComplete  endKind = iota
	endCut               // the connection is lost
	endSilent            // a stream ends without the event that ends it
	endMalformed         // with JSON that is incomplete
)

// A rawResponse is sent in place of what the Handler writes.
type rawResponse struct {
	status int
	header http.Header
	body   []byte
}

// An output is the ResponseWriter of a Handler. It makes of valid replies those that no Handler
// sends. It passes on the events of a stream one by one, so that it can leave out and change
// some of them. The event that contains markerText, and what follows it, it replaces.
type output struct {
	w        http.ResponseWriter
	onStatus func(status int)  // called once, before the client gets the status
	onError  func(body []byte) // called with the body of an error

	mu        sync.Mutex // guards the fields below, and calls of w
	end       endKind
	stopAfter int // after how many events end applies, if a Handler does not say it; 0 if it does
	stop      func()
	rewrite   func(protocol string, event []byte) (_ []byte, ok bool) // false cuts the connection
	protocol  string
	raw       *rawResponse

	status   int  // that the Handler has set; 0 before
	isStream bool // the reply has events
	passed   bool // w has got the status
	stopped  bool // nothing more is passed on
	events   int  // that were passed on
	partial  []byte
	last     []byte // the event that was passed on last
	body     []byte // of a whole reply that is to be changed
}

func (o *output) setEnd(kind endKind) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.end = kind
}

func (o *output) setRaw(r *rawResponse) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.raw = r
}

func (o *output) setRewrite(f func(protocol string, event []byte) (_ []byte, ok bool), protocol string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.rewrite, o.protocol = f, protocol
}

// fault reports whether o cuts, damages or replaces the reply, and returns the status that the client gets: 0
// if the connection is cut before it.
func (o *output) fault() (status int, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	isMarker := bytes.Contains(o.body, []byte(markerText))
	switch {
	case o.raw == nil && o.end == endComplete:
		return 0, false
	case o.raw == nil && o.end == endSilent && !o.isStream && !isMarker: // a whole reply has no such event
		return 0, false
	case o.raw != nil && !o.passed:
		return o.raw.status, true
	case isMarker && o.end == endCut:
		return 0, true
	case isMarker:
		return http.StatusOK, true
	}
	return o.status, true
}

// Unwrap is for [http.ResponseController].
func (o *output) Unwrap() http.ResponseWriter { return o.w }

// Header implements [http.ResponseWriter].
func (o *output) Header() http.Header { return o.w.Header() }

// WriteHeader implements [http.ResponseWriter].
func (o *output) WriteHeader(status int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.setStatusLocked(status)
}

func (o *output) setStatusLocked(status int) {
	if o.status != 0 || status < 200 {
		return
	}
	o.status = status
	mediaType := o.w.Header().Get("Content-Type")
	o.isStream = strings.HasPrefix(mediaType, "text/event-stream") || strings.HasPrefix(mediaType, "application/x-ndjson")
}

// isChangedLocked reports whether a whole reply does not pass as it is.
func (o *output) isChangedLocked() bool {
	return o.raw != nil || o.rewrite != nil || o.end != endComplete
}

// passLocked sends p to the client.
func (o *output) passLocked(p []byte) error {
	o.passStatusLocked(o.status)
	if o.status >= 400 {
		o.onError(p)
	}
	_, err := o.w.Write(p)
	return err
}

func (o *output) passStatusLocked(status int) {
	if !o.passed {
		o.passed = true
		o.onStatus(status)
		o.w.WriteHeader(status)
	}
}

// Write implements [http.ResponseWriter].
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.setStatusLocked(http.StatusOK)
	switch {
	case o.raw != nil || o.stopped:
		return len(p), nil
	case o.isStream:
		return len(p), o.passEventsLocked(p)
	case o.isChangedLocked():
		o.body = append(o.body, p...)
		return len(p), nil
	}
	return len(p), o.passLocked(p)
}

// passEventsLocked passes on the events that p completes.
func (o *output) passEventsLocked(p []byte) error {
	separator := []byte("\n\n")
	if strings.HasPrefix(o.w.Header().Get("Content-Type"), "application/x-ndjson") {
		separator = separator[:1]
	}
	o.partial = append(o.partial, p...)
	for !o.stopped {
		i := bytes.Index(o.partial, separator)
		if i < 0 {
			return nil
		}
		event := bytes.Clone(o.partial[:i+len(separator)])
		o.partial = o.partial[i+len(separator):]
		if bytes.Contains(event, []byte(markerText)) {
			return o.stopLocked()
		}
		if err := o.passEventLocked(event); err != nil {
			return err
		}
		if o.events == o.stopAfter {
			return o.stopLocked()
		}
	}
	return nil
}

func (o *output) passEventLocked(event []byte) error {
	o.events++
	if o.rewrite != nil {
		var ok bool
		if event, ok = o.rewrite(o.protocol, event); !ok {
			o.end = endCut
			return o.stopLocked()
		}
	}
	if len(event) == 0 {
		return nil
	}
	o.last = event
	return o.passLocked(event)
}

// stopLocked ends a stream as o.end says, except for the loss of the connection.
func (o *output) stopLocked() error {
	o.stopped = true
	if o.stop != nil {
		defer o.stop()
	}
	if o.end != endMalformed {
		return nil
	}
	return o.passLocked(malformedEvent(o.last))
}

// malformedEvent returns an event whose data is half of that of another one.
func malformedEvent(event []byte) []byte {
	head, data, ok := bytes.Cut(event, []byte("data: "))
	data = bytes.TrimRight(data, "\n")
	if !ok || len(data) < 2 {
		head, data = nil, []byte(`{"id":"llmfake"`+strings.Repeat(" ", 15))
	}
	return bytes.Join([][]byte{head, []byte("data: "), data[:len(data)/2], []byte("\n\n")}, nil)
}

// FlushError is for [http.ResponseController].
func (o *output) FlushError() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.flushLocked()
}

func (o *output) flushLocked() error {
	if !o.passed {
		return nil
	}
	return http.NewResponseController(o.w).Flush()
}

// finish ends the reply when the Handler has returned. panicked is what it has panicked with,
// or nil.
func (o *output) finish(panicked any, wantsStream bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.raw != nil && !o.passed:
		o.writeRawLocked()
		return
	case panicked != nil && panicked != http.ErrAbortHandler:
		panic(panicked)
	case !o.isStream && o.isChangedLocked():
		o.finishWholeLocked(wantsStream)
		return
	case o.end == endCut && o.stopped:
		o.flushLocked()
		panic(http.ErrAbortHandler)
	case o.stopped:
		return
	case panicked != nil:
		panic(panicked)
	case o.status != 0:
		o.passStatusLocked(o.status)
	}
}

// writeRawLocked sends o.raw.
func (o *output) writeRawLocked() {
	h := o.w.Header()
	clear(h)
	for name, values := range o.raw.header {
		h[name] = values
	}
	h.Set("Content-Length", strconv.Itoa(len(o.raw.body)))
	o.passStatusLocked(o.raw.status)
	o.w.Write(o.raw.body)
}

// finishWholeLocked sends a reply that is not a stream and is to be changed.
func (o *output) finishWholeLocked(wantsStream bool) {
	h := o.w.Header()
	body := o.body
	if bytes.Contains(body, []byte(markerText)) { // the reply had not begun
		o.status, body = http.StatusOK, nil
		if wantsStream {
			h.Set("Content-Type", "text/event-stream; charset=utf-8")
		}
		switch o.end {
		case endCut:
			panic(http.ErrAbortHandler)
		case endMalformed:
			body = malformedEvent(nil)
		}
		o.end = endComplete
	}
	if o.rewrite != nil {
		var ok bool
		if body, ok = o.rewrite(o.protocol, body); !ok {
			panic(http.ErrAbortHandler)
		}
	}
	if o.status == 0 {
		panic(http.ErrAbortHandler)
	}
	sent := body
	switch o.end {
	case endCut:
		sent = body[:len(body)/2]
	case endMalformed:
		body = body[:len(body)/2]
		sent = body
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	o.passLocked(sent)
	if o.end == endCut {
		o.flushLocked()
		panic(http.ErrAbortHandler)
	}
}
