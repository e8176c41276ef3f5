// The ResponseWriter of a request: events become messages.

package responsesws

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

// A responseWriter is the ResponseWriter of a request in process. As that of net/http, it has deadlines, tells when
// the client has left, and is used by one goroutine at a time, except for SetWriteDeadline and CloseNotify.
type responseWriter struct {
	c        *connection
	message  *message
	base     string // the previous_response_id of the request
	items    []byte // and its input
	header   http.Header
	deadline writeDeadline

	status   int
	streams  bool   // the reply is a stream of events
	body     []byte // of a reply that is none
	partial  []byte // an event that is not complete
	searched int    // how many bytes of partial have no end of an event
	scratch  []byte // memory for messages that differ from events
	complete bool   // the last event was sent
	failure  []byte // the message for an event "error", which is sent if no other end follows
}

// maxErrorBody bounds how many bytes are read of a reply that is not a stream, such as an error.
const maxErrorBody = 64 << 10

// Header implements [http.ResponseWriter].
func (w *responseWriter) Header() http.Header { return w.header }

// WriteHeader implements [http.ResponseWriter].
func (w *responseWriter) WriteHeader(status int) {
	if w.status != 0 || status < 200 {
		return
	}
	w.status = status
	w.streams = status == http.StatusOK && strings.HasPrefix(w.header.Get("Content-Type"), "text/event-stream")
}

// Write implements [http.ResponseWriter].
func (w *responseWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if !w.streams {
		w.body = append(w.body, p[:min(len(p), maxErrorBody-len(w.body))]...)
		return len(p), nil
	}
	if err := w.writeEvents(p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// FlushError is for [http.ResponseController]. Write has flushed.
func (w *responseWriter) FlushError() error { return nil }

// Flush implements [http.Flusher].
func (w *responseWriter) Flush() {}

// EnableFullDuplex is for [http.ResponseController]. The body is in memory.
func (w *responseWriter) EnableFullDuplex() error { return nil }

// SetReadDeadline is for [http.ResponseController]. The body is in memory.
func (w *responseWriter) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline is for [http.ResponseController]. After it, a write in progress fails too.
func (w *responseWriter) SetWriteDeadline(deadline time.Time) error {
	w.deadline.change(deadline)
	return nil
}

// CloseNotify implements [http.CloseNotifier]. A Handler tells by it a client that has left from a host
// that ends the context.
func (w *responseWriter) CloseNotify() <-chan bool {
	left := make(chan bool, 1)
	context.AfterFunc(w.c.left, func() { left <- true })
	return left
}

// writeEvents sends the events that are complete, and keeps the rest.
func (w *responseWriter) writeEvents(p []byte) error {
	rest := p
	if len(w.partial) > 0 {
		w.partial = append(w.partial, p...)
		rest = w.partial
	}
	end := endOfEvent(rest, w.searched)
	if end < 0 {
		w.keepPartial(rest)
		return nil
	}
	return w.c.write(&w.deadline, func() error {
		for ; end >= 0; end = endOfEvent(rest, 0) {
			if err := w.writeEvent(rest[:end]); err != nil {
				return err
			}
			rest = rest[end:]
		}
		w.keepPartial(rest)
		return nil
	})
}

// keepPartial keeps the beginning of an event.
func (w *responseWriter) keepPartial(b []byte) {
	switch {
	case len(b) == 0 && cap(w.partial) > maxSpare:
		w.partial = nil
	case len(b) == 0 || len(w.partial) == 0 || &b[0] != &w.partial[0]:
		w.partial = append(w.partial[:0], b...)
	}
	w.searched = len(b)
}

// endOfEvent returns the index behind the first event in b, or -1. The first searched bytes contain no end.
func endOfEvent(b []byte, searched int) int {
	from := max(searched-1, 0)
	if i := bytes.Index(b[from:], []byte("\n\n")); i >= 0 {
		return from + i + 2
	}
	return -1
}

// writeEvent sends the message for an event. Comments, which keep a stream of events alive, are none.
func (w *responseWriter) writeEvent(event []byte) error {
	typ, data := parseEvent(event)
	if len(data) == 0 {
		return nil
	}
	switch string(typ) {
	case "response.created", "response.in_progress", "response.completed", "response.incomplete", "response.failed":
		data = w.passLifecycle(string(typ), data)
	case "error":
		// A stream that fails has the event response.failed after it, which is the end for every client of a
		// WebSocket: they would take a second one for that of the next response.
		w.failure = errorMessage(http.StatusInternalServerError, errorOf(http.StatusInternalServerError, data), w.header, w.message.streamID)
		return nil
	}
	return w.c.writeMessage(w.addStreamID(data))
}

// addStreamID adds the stream to an object.
func (w *responseWriter) addStreamID(object []byte) []byte {
	id := w.message.streamID
	if id == "" || len(object) == 0 || object[len(object)-1] != '}' {
		return object
	}
	w.scratch = append(w.scratch[:0], object[:len(object)-1]...)
	w.scratch = append(append(append(w.scratch, `,"stream_id":"`...), id...), `"}`...)
	return w.scratch
}

// parseEvent returns the type and the data of an event.
func parseEvent(event []byte) (typ, data []byte) {
	for line := range bytes.SplitSeq(event, []byte("\n")) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "event":
			typ = value
		case "data":
			if data != nil {
				value = bytes.Join([][]byte{data, value}, []byte("\n"))
			}
			data = value
		}
	}
	return typ, data
}

// passLifecycle returns an event about the whole response, and keeps the conversation when it has ended.
func (w *responseWriter) passLifecycle(typ string, data []byte) []byte {
	if w.message.previous != w.base {
		data = setPrevious(data, w.message.previous)
	}
	switch typ {
	case "response.completed", "response.incomplete":
		w.keepConversation(data)
		w.complete = true
	case "response.failed":
		w.complete = true
	}
	return data
}

// keepConversation keeps the conversation that ends with the response of the event. That comes before the
// client gets the event, after which it may continue.
func (w *responseWriter) keepConversation(data []byte) {
	var event struct {
		Response struct {
			ID     string          `json:"id"`
			Store  bool            `json:"store"`
			Output json.RawMessage `json:"output"`
		} `json:"response"`
	}
	if json.Unmarshal(data, &event) != nil || event.Response.ID == "" {
		return
	}
	r := event.Response
	next := conversation{id: r.ID, base: r.ID}
	if !r.Store {
		next.base = w.base
		next.items = joinItems(withoutTrigger(w.items), listItems(r.Output))
	}
	w.c.h.history.keep(&w.c.history, w.message.streamID, next)
}

// setPrevious sets the previous_response_id of the response in an event to that of the client.
func setPrevious(data []byte, id string) []byte {
	members, _ := splitObject(data)
	for _, m := range members {
		if m.name != "response" {
			continue
		}
		inner, _ := splitObject(m.value)
		for _, n := range inner {
			if n.name == "previous_response_id" {
				quoted, _ := json.Marshal(id) // a text
				start := m.start + n.start
				return bytes.Join([][]byte{data[:start], quoted, data[start+len(n.value):]}, nil)
			}
		}
	}
	return data
}

// finish sends what is missing after the Handler has returned, or has left by a panic.
func (w *responseWriter) finish(panicked bool) {
	message, e := w.failure, errBrokenOff
	switch {
	case w.complete || w.c.left.Err() != nil:
		return
	case message != nil:
	case w.streams || panicked || w.status == 0:
	case w.message.warmup && w.status == http.StatusOK:
		w.c.sendWarmup(w)
		return
	case w.status >= 400:
		message = errorMessage(w.status, errorOf(w.status, w.body), w.header, w.message.streamID)
	default:
		e = errNoStream
	}
	if message == nil {
		message = errorMessage(e.status, mustMarshal(e), w.header, w.message.streamID)
	}
	_ = w.c.send(message) // if it fails, the client has left
}
