package llmhttp

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// An exchange is a request being served.
//
// It is served on one goroutine. Others may write to it, or end it, while the
// Backend works: the watch over its silence, the one that writes what a burst
// has brought, and Shutdown. So once the Backend was called, mu is held for
// each write, and guards what they share: from phase to sse, but for streamed,
// and target, tries, err, status and headers.
type exchange struct {
	// What each chunk needs is together, so that it is soon found in memory.
	mu        sync.Mutex
	arrived   time.Time // by the real clock, for durations
	w         http.ResponseWriter
	h         *Handler
	r         *http.Request
	phase     phase
	receiving bool // the body
	dead      bool // it has failed: nothing more is written
	abort     bool // cut the connection
	streamed  bool
	stopped   error // why the Backend's stream was to stop, once it was
	watch     watch
	chunks    int
	first     time.Duration
	sse       *sseWriter
	shape     shaper // of a chat

	next, prev *exchange                // in the list of those active; guarded by h.mu
	entered    bool                     // is in that list
	rc         *http.ResponseController // made when it is first needed
	ctx        requestContext
	end        func(*RequestSummary) // the Observer's, or nil

	key     *Key
	secret  string
	record  *UsageRecord // of records, as stores take a list
	records [1]UsageRecord
	grant   grant

	reached  bool   // the Backend was called, so usage is recorded
	settled  bool   // it was
	target   string // of a Backend that picks, with which try it is; guarded by mu
	tries    int
	reported *Usage      // of anything but a chat, as the Backend has it
	prompt   int         // tokens, estimated
	late     lateContext // for the record, which is due after the request

	err     error
	status  int
	headers headerValues
}

// A phase is how far the reply got.
type phase int

const (
	reading   phase = iota // the request; nobody but the exchange's goroutine may reply
	working                // the Backend is; nothing is written
	streaming              // the head of a stream is written
	replied                // the whole reply is
)

func newExchange(h *Handler, w http.ResponseWriter, r *http.Request) *exchange {
	x := &exchange{h: h, w: w, r: r, arrived: time.Now()}
	x.record = &x.records[0]
	x.record.Time = x.arrived.Round(0) // without the monotonic clock
	x.ctx.parent, x.ctx.x = r.Context(), x
	x.watch.due.Store(notDue)
	return x
}

// identify gives the request its ID and time.
func (x *exchange) identify() {
	// Should a host's func panic, there is an ID and a time all the same.
	defer func() {
		if x.record.ID == "" {
			x.record.ID = newID("req_")
		}
	}()
	if x.h.opts.RequestID != nil {
		x.record.ID = x.h.opts.RequestID(x.r)
	}
	if x.h.opts.Now != nil {
		x.record.Time = x.h.opts.Now()
	}
}

// observe tells the Observer of the request.
func (x *exchange) observe() {
	if x.h.opts.Observe == nil {
		return
	}
	ctx, end := x.h.opts.Observe(&valueContext{x.ctx.parent, x}, x.r)
	if ctx != nil {
		x.ctx.parent = ctx
	}
	x.end = end
}

// finish does what is due however the request ended.
func (x *exchange) finish() {
	x.stopWatch()
	x.settle()
	x.release()
	x.ctx.end(nil)
	x.tellObserver()
	x.allowLastWrite()
	x.h.leave(x)
	if x.abort {
		panic(http.ErrAbortHandler)
	}
}

func (x *exchange) tellObserver() {
	if x.end == nil {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			x.log(slog.LevelError, "observer panicked", newPanicError(p))
		}
	}()
	x.mu.Lock()
	e := &RequestSummary{
		UsageRecord: *x.record, Status: x.status, Err: x.err, Streamed: x.streamed,
		Chunks: x.chunks, FirstChunk: x.first, Duration: time.Since(x.arrived),
		Target: x.target, Tries: x.tries,
	}
	x.mu.Unlock()
	if e.Err != nil {
		e.Err = scrubError(x.r, e.Err)
	}
	x.end(e)
}

// fail ends the request with err, in the way that is left: a status, an error
// event, or nothing where nobody listens any more.
func (x *exchange) fail(err error) {
	x.release() // before the client can know
	x.peek()
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.dead {
		return
	}
	x.failLocked(err)
}

func (x *exchange) failLocked(err error) {
	if e, ok := err.(*Error); ok && e == nil {
		err = errNil
	}
	gone := err == errGone || x.cause() == errGone
	x.dead = true
	x.err = err
	defer func() { x.abort = x.phase == streaming }()
	x.ctx.end(err)
	if gone {
		// err is only what came of it.
		if x.phase == reading || x.phase == working {
			x.status = statusGone
			x.w.WriteHeader(statusGone) // for logs of a host
		}
		x.log(slog.LevelDebug, "client left", err)
		return
	}
	if x.phase == replied {
		x.log(slog.LevelError, "failed after the reply", err)
		return
	}
	told := tell(x.r, err)
	switch {
	case err == errShutdown:
		x.log(slog.LevelInfo, "shutting down", err)
	case told.Status >= 500:
		x.log(slog.LevelError, "request failed", err)
	}
	if x.phase == streaming {
		x.sse.fail(told)
		return
	}
	x.status = told.Status
	x.writeHeaders()
	x.allowWrite(time.Since(x.arrived))
	writeError(x.w, x.r, told, &x.headers)
	x.phase = replied
}

// interrupt ends the request from another goroutine than its own.
func (x *exchange) interrupt(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.interruptLocked(err)
}

func (x *exchange) interruptLocked(err error) {
	if x.dead || x.phase == replied {
		return
	}
	if x.phase == reading {
		// Its own goroutine will notice, if need be because it cannot read on.
		x.ctx.end(err)
		if x.receiving {
			x.control().SetReadDeadline(time.Now())
		}
		return
	}
	x.failLocked(err)
	x.flush()
}

// cause returns why the request was ended, or nil if it was not.
func (x *exchange) cause() error {
	cause := x.ctx.why()
	switch {
	case cause == nil, cause == errGone, cause == errShutdown, cause == errSilent:
		return cause
	case errors.Is(x.r.Context().Err(), context.Canceled):
		return errGone
	}
	return cause // such as a deadline that a host has set
}

// work marks that the Backend is to answer the request now, and will be billed
// for. It returns an error if the request was ended in the meantime.
func (x *exchange) work() error {
	if err := x.wait(); err != nil {
		return err
	}
	x.reached = true
	return nil
}

// wait marks that the Backend, or what stands beside it, is called now, and
// watches how long it takes.
func (x *exchange) wait() error {
	if err := x.cause(); err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.dead {
		return x.err
	}
	switch x.phase {
	case working:
		x.watch.spoke = time.Since(x.arrived)
	case reading:
		x.phase = working
		x.startWatch()
		if x.r.ProtoMajor >= 2 {
			// There a deadline that passes ends the stream, even if nothing is
			// being written.
			x.setWriteDeadline(time.Time{})
		}
	}
	return nil
}

// backendError returns why a Backend failed: a request that was ended has
// failed for that reason, whatever its Backend says.
func (x *exchange) backendError(err error) error {
	if cause := x.cause(); cause != nil {
		return cause
	}
	return err
}

// newID returns prefix and 128 random bits in hexadecimal.
func newID(prefix string) string {
	var raw [16]byte
	binary.LittleEndian.PutUint64(raw[:8], rand.Uint64())
	binary.LittleEndian.PutUint64(raw[8:], rand.Uint64())
	var text [48]byte
	n := copy(text[:], prefix)
	n += hex.Encode(text[n:], raw[:])
	return string(text[:n])
}
