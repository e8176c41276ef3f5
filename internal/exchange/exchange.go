// Package exchange is the client's side of one HTTP request: the body is read, a reply or a
// stream is written, both with deadlines, and the request ends early if its client leaves,
// the host cancels it or a call for it is silent.
//
// It knows nothing of what is asked and answered. Headers and the bodies of errors come from
// a [Responder], and the bytes of a stream from a [Source].
package exchange

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// Options are what all exchanges of a server have in common. Zero durations mean none.
type Options struct {
	ReadTimeout  time.Duration // how long the client may pause while it sends a body
	WriteTimeout time.Duration // of each write; see connection
	KeepAlive    time.Duration // how long a stream may be silent before Framing.KeepAlive is written
	Timeout      time.Duration // how long a call may be silent: see Exchange.BeginCall

	// Shutdown ends requests that Interrupt ends or whose context the host cancels. It must be
	// comparable.
	Shutdown error
}

// A Responder makes what an Exchange sends besides the reply. Its methods may be called by several
// goroutines, but not concurrently, except for Log and Recovered. They must not call methods
// of the Exchange.
type Responder interface {
	// SetHeaders sets the headers that every reply has.
	SetHeaders(h http.Header, now time.Time)

	// ErrorReply sets the headers of the reply to a request that failed with err, and returns
	// its status and its body, which is JSON.
	ErrorReply(h http.Header, err error) (status int, body []byte)

	// Log is told of a LogEvent. Recovered is told of one that is a panic, with its value, while
	// the stack of the panic is there.
	Log(e LogEvent, err error)
	Recovered(e LogEvent, value any)
}

// A LogEvent is something that a [Responder] may log.
type LogEvent int

// The events.
const (
	Failed         LogEvent = iota // the request failed, and its client is told
	FailedLate                     // the request failed after its reply was complete
	Left                           // the request failed because the client left
	CannotFlush                    // the ResponseWriter cannot be flushed; only told once
	TimerPanicked                  // a panic when the idle timer ended the request or wrote to the stream
	WriterPanicked                 // a panic when a burst of events was written
)

// An Exchange is the client's side of one request. Several goroutines use it: that of
// ServeHTTP, the idle timer, the goroutine that writes bursts, those that call Interrupt, and
// those of a Backend that call Receive. Methods that the goroutine of ServeHTTP must call say
// so. The zero Exchange is not usable: see Init.
type Exchange struct {
	w         http.ResponseWriter
	r         *http.Request
	opts      *Options
	responder Responder
	life      lifetime

	// mu guards the fields below, every use of w, and the Source. It is not held while the
	// departure of the client is awaited, nor during Release functions. Methods that take it
	// are exported; the others are called with it held.
	mu             sync.Mutex
	conn           connection
	state          state
	status         int   // the HTTP status that was written, or StatusClientClosed
	err            error // why the request failed
	bodyRead       bool  // the body was read to its end
	readTimedOut   bool  // the body did not arrive in time
	readingStopped bool  // by stopReading
	callRuns       bool  // BeginCall was called and CallReturned was not
	exiting        bool  // the goroutine of ServeHTTP ends by runtime.Goexit
	aborted        bool  // the connection must be cut
	clientLeft     bool  // the client left before it had the whole reply
	cannotFlush    bool  // w does not support it
	firstWrite     time.Time
	idle           idleTimer
	stream         *stream // nil unless the reply is a stream

	// The storage of headers (budget: allocations of a whole request).
	contentType, contentLength [1]string
}

// Init begins the exchange for r. ctx is r's context, or derives from it without an end of its
// own, and now the current time. opts and responder must not be nil.
func (x *Exchange) Init(
	ctx context.Context, w http.ResponseWriter, r *http.Request, now time.Time, opts *Options, responder Responder,
) {
	x.w, x.r, x.opts, x.responder = w, r, opts, responder
	x.conn.ctl, x.conn.opts = *http.NewResponseController(w), opts
	x.conn.timer.init(now, x.fire)
	x.bodyRead = r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0
	x.life.start(ctx)
}

// isHTTP1 reports whether the connection serves one request at a time.
func (x *Exchange) isHTTP1() bool { return x.r.ProtoMajor < 2 }

// A Result is how far an exchange has got.
type Result struct {
	Status     int       // HTTP status; StatusClientClosed if the client left before one was sent, and zero if there is none yet
	Err        error     // why the request failed
	ClientLeft bool      // the client left before it had the whole reply
	FirstWrite time.Time // when the reply began to be written; zero if it did not
}

// Result returns how far the exchange has got.
func (x *Exchange) Result() Result {
	x.mu.Lock()
	defer x.mu.Unlock()
	return Result{Status: x.status, Err: x.err, ClientLeft: x.clientLeft, FirstWrite: x.firstWrite}
}

// IsStreaming reports whether a stream has begun and has not ended, so that the request has its
// status.
func (x *Exchange) IsStreaming() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.state == stateStreaming
}

// Close ends the use of the ResponseWriter: no goroutine writes after it. It reports whether
// the connection must be cut, by a panic with [http.ErrAbortHandler]. The goroutine of
// ServeHTTP calls it, after EndContext.
func (x *Exchange) Close() (aborted bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.setState(stateDone)
	x.conn.timer.close()
	if x.aborted || !x.isHTTP1() || !x.conn.write.lifted || x.opts.WriteTimeout == 0 {
		return x.aborted
	}
	// net/http still writes the end of a stream. With http.Server.WriteTimeout it sets a new
	// deadline for the next request of the connection; otherwise ours would remain for that, which
	// may be another handler's.
	if s, ok := x.r.Context().Value(http.ServerContextKey).(*http.Server); ok && s.WriteTimeout > 0 {
		x.conn.setDeadline(&x.conn.write, time.Now().Add(x.opts.WriteTimeout))
	}
	return false
}
