package exchange

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/internal/bounded"
)

var (
	errShutdown = errors.New("shutdown")
	errSilent   = errors.New("silent")
	errFailed   = errors.New("failed")
)

// A client is a ResponseWriter that notes what is done with it, as the connection of a client
// that leaves when hangUp is called.
type client struct {
	header http.Header
	left   chan bool
	broken bool          // writes fail
	slow   time.Duration // how long a write takes

	mu         sync.Mutex
	done       []string // what was done with the connection, in order
	deadline   time.Time
	brokenBody bool // reads of the body fail

	began          time.Time
	writeDeadlines []string
}

func newClient() *client {
	return &client{header: http.Header{}, left: make(chan bool, 1), began: time.Now()}
}

func (c *client) note(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done = append(c.done, fmt.Sprintf(format, args...))
}

func (c *client) notes() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.done...)
}

// breakBody makes reads of the body fail, unless the client is only slow.
func (c *client) breakBody(slow bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.brokenBody = !slow
}

func (c *client) Header() http.Header      { return c.header }
func (c *client) WriteHeader(status int)   { c.note("status %d", status) }
func (c *client) FlushError() error        { c.note("flush"); return nil }
func (c *client) CloseNotify() <-chan bool { return c.left }

// SetWriteDeadline notes whether the deadline has passed, and when it was set.
func (c *client) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	what := "none"
	if !t.IsZero() {
		what = fmt.Sprint(time.Until(t))
	}
	c.writeDeadlines = append(c.writeDeadlines, fmt.Sprintf("%s at %s", what, time.Since(c.began)))
	return nil
}

func (c *client) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = t
	return nil
}

func (c *client) Write(p []byte) (int, error) {
	time.Sleep(c.slow)
	if c.broken {
		return 0, errors.New("broken pipe")
	}
	if len(p) > 100 {
		c.note("%d bytes", len(p))
	} else {
		c.note("%s", p)
	}
	return len(p), nil
}

// A host is a Responder that notes its events beside what is done with the connection.
type host struct{ c *client }

func (h host) SetHeaders(header http.Header, _ time.Time) { header.Set("X-Host", "yes") }
func (h host) Log(e LogEvent, err error)                  { h.c.note("event %d: %v", e, err) }
func (h host) Recovered(e LogEvent, p any)                { h.c.note("panic %d: %v", e, p) }

func (h host) ErrorReply(header http.Header, err error) (int, []byte) {
	header.Set("X-Error", "yes")
	return 503, []byte(err.Error())
}

// A source is a Source whose start and failure are words.
type source struct{ started bool }

func (s *source) HasStarted() bool                         { return s.started }
func (s *source) AppendFailure(b []byte, err error) []byte { return fmt.Appendf(b, "fail(%v)", err) }

func (s *source) AppendStart(b []byte) []byte {
	s.started = true
	return append(b, "start "...)
}

// newExchange returns an exchange of a request without a body. cancel cancels its context.
func newExchange(t *testing.T, c *client, opts Options) (x *Exchange, cancel context.CancelFunc) {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	opts.Shutdown = errShutdown
	x = new(Exchange)
	x.Init(ctx, c, httptest.NewRequestWithContext(ctx, "GET", "/", nil), time.Now(), &opts, host{c})
	return x, cancel
}

// call is BeginCall, which must succeed.
func call(t *testing.T, x *Exchange) {
	_, err := x.BeginCall(errSilent)
	require.NoError(t, err)
}

// finish does what ServeHTTP does at the end.
func finish(x *Exchange) (aborted bool) {
	x.EndContext()
	return x.Close()
}

// say appends a text to the stream by Receive.
func say(x *Exchange, text string) error {
	return x.Receive(func(_ time.Time, out *Buffer) error {
		out.B = append(out.B, text...)
		return nil
	})
}

var framing = StreamFormat{ContentType: "text/x", KeepAlive: "alive "}

func TestReply(t *testing.T) {
	for name, test := range map[string]struct {
		size    int
		release bool
		want    []string
	}{
		"small":              {10, false, []string{"status 200", "xxxxxxxxxx", "flush"}},
		"small, with a slot": {10, true, []string{"release", "status 200", "xxxxxxxxxx", "flush"}},
		"large":              {70_000, false, []string{"status 200", "32768 bytes", "4464 bytes", "32768 bytes", "flush"}},
		"large, with a slot": {70_000, true, []string{"status 200", "32768 bytes", "4464 bytes", "release", "32768 bytes", "flush"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient()
			x, _ := newExchange(t, c, Options{WriteTimeout: time.Second})
			var release func()
			if test.release {
				release = func() { c.note("release") }
			}
			require.NoError(t, x.Reply(200, "application/json", &Buffer{[]byte(strings.Repeat("x", test.size))}, release))
			assert.Equal(t, test.want, c.notes())
			assert.Equal(t, fmt.Sprint(test.size), c.header.Get("Content-Length"))
			assert.Equal(t, "application/json", c.header.Get("Content-Type"))
			assert.Equal(t, "yes", c.header.Get("X-Host"))
			assert.Equal(t, 200, x.Result().Status)
			assert.False(t, finish(x))
		})
	}
}

// A reply ends the connection if the client still sends or the call still runs, for which
// net/http would wait.
func TestReply_ClosesTheConnection(t *testing.T) {
	for name, test := range map[string]struct {
		use  func(x *Exchange)
		want string
	}{
		"nothing read":   {func(*Exchange) {}, "close"},
		"body read":      {func(x *Exchange) { x.ReadBody(nil, 100) }, ""},
		"call runs":      {func(x *Exchange) { x.ReadBody(nil, 100); call(t, x) }, "close"},
		"call returned":  {func(x *Exchange) { x.ReadBody(nil, 100); call(t, x); x.CallReturned() }, ""},
		"body too large": {func(x *Exchange) { x.ReadBody(nil, 1) }, "close"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient()
			x := new(Exchange)
			x.Init(t.Context(), c, httptest.NewRequest("POST", "/", strings.NewReader("body")), time.Now(), &Options{Shutdown: errShutdown}, host{c})
			test.use(x)
			require.NoError(t, x.Reply(200, "application/json", &Buffer{[]byte("{}")}, nil))
			assert.Equal(t, test.want, c.header.Get("Connection"))
			finish(x)
		})
	}
}

// A pausedBody is the body of a client that sends a byte after each pause.
type pausedBody struct {
	c     *client
	pause time.Duration
	bytes int
}

func (b *pausedBody) Close() error { return nil }

func (b *pausedBody) Read(p []byte) (int, error) {
	if b.bytes == 0 {
		return 0, io.EOF
	}
	until := time.Now().Add(b.pause)
	for time.Now().Before(until) {
		b.c.mu.Lock()
		deadline, broken := b.c.deadline, b.c.brokenBody
		b.c.mu.Unlock()
		if broken {
			return 0, io.ErrUnexpectedEOF
		}
		if !deadline.IsZero() && !time.Now().Before(deadline) {
			return 0, os.ErrDeadlineExceeded
		}
		time.Sleep(min(b.pause, 100*time.Millisecond))
	}
	b.bytes--
	p[0] = 'x'
	return 1, nil
}

// A write that takes too long gets a deadline that has passed, and others get none.
func TestWriteTimeout(t *testing.T) {
	const timeout = 10 * time.Second
	for name, test := range map[string]struct {
		slow      time.Duration // each write
		pause     time.Duration // between writes
		size      int           // of the end
		options   Options
		deadlines []string
	}{
		"in time":                       {9 * time.Second, time.Minute, 10, Options{WriteTimeout: timeout}, []string{"none at 0s"}},
		"late, but successful":          {11 * time.Second, time.Minute, 10, Options{WriteTimeout: timeout}, []string{"none at 0s", "0s at 10s", "none at 11s", "0s at 1m21s", "none at 1m22s"}},
		"all pieces of a large end":     {6 * time.Second, time.Second, 80 << 10, Options{WriteTimeout: timeout}, []string{"none at 0s", "0s at 18.25s", "none at 19s", "0s at 19s", "none at 25s"}},
		"while it was to be kept alive": {11 * time.Second, time.Second / 2, 10, Options{WriteTimeout: timeout, KeepAlive: time.Second}, []string{"none at 0s", "0s at 10s", "none at 11s", "0s at 21.5s", "none at 22.5s"}},
		"no timeout":                    {time.Hour, time.Second, 10, Options{}, []string{"none at 0s"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newClient()
				c.slow = test.slow
				x, _ := newExchange(t, c, test.options)
				x.BeginStream(framing, new(source))
				call(t, x)
				say(x, "a ")
				time.Sleep(test.pause)
				require.NoError(t, x.EndStream(func(out *Buffer) error { out.B = append(out.B, make([]byte, test.size)...); return nil }, nil))
				finish(x)
				time.Sleep(time.Hour) // no timer runs
				assert.Equal(t, test.deadlines, c.writeDeadlines)
			})
		})
	}
}

func TestReadBody(t *testing.T) {
	for name, test := range map[string]struct {
		pause       time.Duration
		bytes       int
		interrupt   time.Duration
		leave       time.Duration
		want        string
		err         error
		wantTimeout bool
	}{
		"whole":                       {time.Second, 3, 0, 0, "xxx", nil, false},
		"too large":                   {0, 6, 0, 0, "xxxxxx", bounded.ErrTooLarge, false},
		"a pause":                     {time.Minute, 3, 0, 0, "", os.ErrDeadlineExceeded, true},
		"pauses, each of them short":  {9 * time.Second, 5, 0, 0, "xxxxx", nil, false},
		"interrupted":                 {9 * time.Second, 5, 20 * time.Second, 0, "xx", errShutdown, false},
		"the client leaves":           {9 * time.Second, 5, 0, 19 * time.Second, "xx", ErrClientLeft, false},
		"net/http cancels at timeout": {time.Minute, 3, 0, 15 * time.Second, "", os.ErrDeadlineExceeded, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newClient()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				r := httptest.NewRequestWithContext(ctx, "POST", "/", nil)
				r.Body, r.ContentLength = &pausedBody{c, test.pause, test.bytes}, -1
				x := new(Exchange)
				x.Init(ctx, c, r, time.Now(), &Options{ReadTimeout: 10 * time.Second, Shutdown: errShutdown}, host{c})
				if test.interrupt > 0 {
					time.AfterFunc(test.interrupt, x.Interrupt)
				}
				if test.leave > 0 {
					time.AfterFunc(test.leave, func() { c.left <- true; cancel(); c.breakBody(test.wantTimeout) })
				}
				got, err := x.ReadBody(nil, 5)
				assert.ErrorIs(t, err, test.err)
				assert.Equal(t, test.want, string(got))
				body, ok := err.(*BodyError)
				assert.Equal(t, test.wantTimeout, ok && body.TimedOut)
				if test.wantTimeout { // the client is told, although net/http has cancelled the context
					x.Fail(err, nil)
					assert.Equal(t, 503, x.Result().Status)
				}
				finish(x)
			})
		})
	}
}

func TestStream(t *testing.T) {
	const silence = 10 * time.Second
	for name, test := range map[string]struct {
		framing     StreamFormat
		serve       func(x *Exchange) error
		want        string // what is done with the connection, without flushes
		wantAborted bool
	}{
		"complete": {framing, func(x *Exchange) error {
			say(x, "a ")
			time.Sleep(time.Second)
			say(x, "b ")
			return x.EndStream(func(out *Buffer) error { out.B = append(out.B, "end"...); return nil }, nil)
		}, "a |b |end", false},
		"a burst shares a write": {framing, func(x *Exchange) error {
			say(x, "a ")
			say(x, "b ")
			say(x, "c ")
			time.Sleep(time.Second)
			return say(x, "d ")
		}, "a |b c |d ", false},
		"what is produced waits": {framing, func(x *Exchange) error {
			time.Sleep(time.Nanosecond)
			x.Produce(func(_ time.Time, out *Buffer) error { out.B = append(out.B, "held "...); return nil })
			time.Sleep(time.Second)
			return say(x, "a ")
		}, "held a ", false},
		"kept alive": {framing, func(x *Exchange) error {
			time.Sleep(silence + 1)
			return say(x, "a ")
		}, "alive |a ", false},
		"nothing may keep it alive": {StreamFormat{ContentType: "text/x"}, func(x *Exchange) error {
			time.Sleep(2*silence + 1)
			return say(x, "a ")
		}, "a ", false},
		"starts early": {StreamFormat{ContentType: "text/x", KeepAlive: "alive ", StartsEarly: true}, func(x *Exchange) error {
			time.Sleep(silence + startDelay + 1)
			return say(x, "a ")
		}, "start |alive |a ", false},
		"starts early, and nothing may keep it alive": {StreamFormat{ContentType: "text/x", StartsEarly: true}, func(x *Exchange) error {
			time.Sleep(3 * silence)
			return say(x, "a ")
		}, "start |a ", false},
		"fails": {framing, func(x *Exchange) error {
			say(x, "a ")
			return errFailed
		}, "a |event 0: failed|fail(failed)", true},
		"fails, and ends cleanly": {StreamFormat{ContentType: "text/x", EndsCleanly: true}, func(x *Exchange) error {
			say(x, "a ")
			return errFailed
		}, "a |event 0: failed|fail(failed)", false},
		"fails before it began": {framing, func(*Exchange) error { return errFailed }, "event 0: failed|status 503|failed", false},
		"the source fails": {framing, func(x *Exchange) error {
			say(x, "a ")
			return x.Receive(func(_ time.Time, out *Buffer) error { return errFailed })
		}, "a |event 0: failed|fail(failed)", true},
		"the end fails": {framing, func(x *Exchange) error {
			say(x, "a ")
			return x.EndStream(func(*Buffer) error { return errFailed }, nil)
		}, "a |event 0: failed|fail(failed)", true},
		"the end panics": {framing, func(x *Exchange) (err error) {
			say(x, "a ")
			x.Produce(func(_ time.Time, out *Buffer) error { out.B = append(out.B, "b "...); return nil })
			defer func() { err = recover().(error) }()
			return x.EndStream(func(out *Buffer) error { out.B = append(out.B, "c "...); panic(errFailed) }, nil)
		}, "a |event 0: failed|b c fail(failed)", true},
		"fails after its end": {framing, func(x *Exchange) error {
			x.EndStream(func(out *Buffer) error { out.B = append(out.B, "end"...); return nil }, nil)
			return errFailed
		}, "end|event 1: failed", false},
		"the goroutine exits": {StreamFormat{ContentType: "text/x", EndsCleanly: true}, func(x *Exchange) error {
			say(x, "a ")
			x.FailExiting(errFailed, nil)
			return errFailed
		}, "a |event 0: failed|fail(failed)", true},
		"interrupted": {framing, func(x *Exchange) error {
			say(x, "a ")
			x.Interrupt()
			return say(x, "b ")
		}, "a |event 0: shutdown|fail(shutdown)", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newClient()
				x, _ := newExchange(t, c, Options{KeepAlive: silence})
				x.BeginStream(test.framing, new(source))
				call(t, x)
				time.Sleep(time.Nanosecond) // the first bytes are no burst
				if err := test.serve(x); err != nil {
					x.Fail(err, nil)
				}
				assert.Equal(t, test.wantAborted, finish(x))
				synctest.Wait()
				assert.Equal(t, test.want, strings.ReplaceAll(strings.Join(c.notes(), "|"), "|flush", ""))
				if x.Result().Status == 200 {
					assert.Equal(t, "text/x", c.header.Get("Content-Type"))
				}
			})
		})
	}
}

// The time that a slow client takes is no silence of the caller of Receive.
func TestStream_SlowClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient()
		c.slow = time.Minute
		x, _ := newExchange(t, c, Options{})
		x.BeginStream(framing, new(source))
		call(t, x)
		time.Sleep(time.Second)
		require.NoError(t, say(x, "a "))
		assert.Equal(t, x.conn.timer.at(time.Now()), x.idle.lastProgress)
		finish(x)
	})
}

// A client that does not take what is written has left.
func TestStream_BrokenConnection(t *testing.T) {
	c := newClient()
	c.broken = true
	x, _ := newExchange(t, c, Options{})
	x.BeginStream(framing, new(source))
	call(t, x)
	time.Sleep(burstGap)
	assert.Equal(t, ErrClientLeft, say(x, "a "))
	assert.Equal(t, ErrClientLeft, x.Cause())
	x.Fail(errFailed, nil)
	assert.True(t, x.Result().ClientLeft)
	assert.True(t, finish(x))
}

// The slot of a request is released before its client can know that it has ended, and not
// while the exchange is locked.
func TestEndStream_ReleasesBeforeTheLastPiece(t *testing.T) {
	c := newClient()
	x, _ := newExchange(t, c, Options{})
	x.BeginStream(framing, new(source))
	call(t, x)
	err := x.EndStream(func(out *Buffer) error { out.B = append(out.B, "end"...); return nil }, func() {
		c.note("release %d", x.Result().Status)
	})
	require.NoError(t, err)
	assert.Equal(t, []string{"release 200", "end", "flush"}, c.notes())
	finish(x)
}

func TestSilence(t *testing.T) {
	errOther := errors.New("other")
	for name, test := range map[string]struct {
		serve func(x *Exchange)
		want  error
	}{
		"silent":            {func(*Exchange) { time.Sleep(61 * time.Second) }, errSilent},
		"in time":           {func(*Exchange) { time.Sleep(59 * time.Second) }, nil},
		"another's silence": {func(x *Exchange) { x.BeginCall(errOther); time.Sleep(time.Hour) }, errOther},
		"another call": {func(x *Exchange) {
			time.Sleep(40 * time.Second)
			x.BeginCall(errOther)
			time.Sleep(40 * time.Second)
		}, nil},
		"progress": {func(x *Exchange) {
			for range 10 {
				time.Sleep(40 * time.Second)
				x.Receive(func(time.Time, *Buffer) error { return nil })
			}
		}, nil},
		"stopped": {func(x *Exchange) { x.StopTimeout(); time.Sleep(time.Hour) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newClient()
				x, _ := newExchange(t, c, Options{Timeout: time.Minute})
				call(t, x)
				test.serve(x)
				assert.Equal(t, test.want, x.Result().Err)
				assert.Equal(t, test.want, x.Cause())
				if test.want != nil {
					assert.Equal(t, 503, x.Result().Status)
					assert.Equal(t, test.want, say(x, "late"))
					x.Fail(errFailed, nil)
					assert.Equal(t, test.want, x.Result().Err, "the first error is that of the request")
				}
				finish(x)
			})
		})
	}
}

// A panic on the goroutine of the timer ends the request and not the process.
func TestSilence_Panic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient()
		x, _ := newExchange(t, c, Options{KeepAlive: time.Second})
		x.BeginStream(StreamFormat{StartsEarly: true}, panickingSource{})
		call(t, x)
		<-x.Context().Done()
		assert.Equal(t, ErrClientLeft, x.Cause())
		assert.Equal(t, []string{"panic 4: start"}, c.notes())
		finish(x)
	})
}

type panickingSource struct{ Source }

func (panickingSource) HasStarted() bool          { return false }
func (panickingSource) AppendStart([]byte) []byte { panic("start") }

func TestInterrupt(t *testing.T) {
	c := newClient()
	x, _ := newExchange(t, c, Options{})
	x.Interrupt()
	assert.Empty(t, c.notes(), "while the request is read, its own goroutine replies")
	assert.Equal(t, errShutdown, x.Cause())
	_, err := x.BeginCall(errSilent)
	assert.Equal(t, errShutdown, err)
	x.Fail(err, nil)
	assert.Equal(t, 503, x.Result().Status)
	finish(x)
	x.Interrupt()
	assert.Equal(t, []string{"event 0: shutdown", "status 503", "shutdown", "flush"}, c.notes())
}

func TestCause(t *testing.T) {
	deadline := errors.New("deadline")
	for name, test := range map[string]struct {
		cancel func(c *client, cancel context.CancelCauseFunc)
		want   error
		status int
	}{
		"the client leaves":       {func(c *client, cancel context.CancelCauseFunc) { c.left <- true; cancel(nil) }, ErrClientLeft, StatusClientClosed},
		"the host cancels":        {func(_ *client, cancel context.CancelCauseFunc) { cancel(nil) }, errShutdown, 503},
		"the host gives a reason": {func(_ *client, cancel context.CancelCauseFunc) { cancel(deadline) }, errShutdown, 503},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newClient()
				ctx, cancel := context.WithCancelCause(t.Context())
				x := new(Exchange)
				x.Init(ctx, c, httptest.NewRequest("GET", "/", nil), time.Now(), &Options{Shutdown: errShutdown}, host{c})
				call(t, x)
				assert.NoError(t, x.Cause())
				test.cancel(c, cancel)
				assert.Equal(t, test.want, x.Cause())
				assert.Equal(t, test.want, x.CauseOr(errFailed))
				_, after := x.AfterClient()
				assert.Equal(t, test.want == ErrClientLeft, after)
				x.Fail(x.CauseOr(errFailed), nil)
				assert.Equal(t, test.status, x.Result().Status)
				finish(x)
			})
		})
	}
}

// What goes on after the client has left ends with the request.
func TestAfterClient(t *testing.T) {
	c := newClient()
	x, cancel := newExchange(t, c, Options{})
	call(t, x)
	_, ok := x.AfterClient()
	assert.False(t, ok)
	c.left <- true
	cancel()
	after, ok := x.AfterClient()
	require.True(t, ok)
	x.Fail(ErrClientLeft, nil)
	assert.NoError(t, after.Err(), "the Backend may still run")
	finish(x)
	assert.Error(t, after.Err())
	_, ok = x.AfterClient()
	assert.False(t, ok)
}

// SetContext adds values, and the end of the request still has its cause.
func TestSetContext(t *testing.T) {
	type key struct{}
	c := newClient()
	x, _ := newExchange(t, c, Options{})
	outer := x.Context()
	x.SetContext(context.WithValue(outer, key{}, "v"))
	assert.Equal(t, "v", x.Context().Value(key{}))
	call(t, x)
	x.Interrupt()
	assert.Equal(t, errShutdown, context.Cause(x.Context()))
	assert.Equal(t, errShutdown, context.Cause(outer))
	finish(x)
}

// While the exchange finds out whether a client has left or the host has cancelled the
// request, it holds no lock that another goroutine may wait for.
func TestCause_NoLockIsHeldWhileTheDepartureOfAClientIsAwaited(t *testing.T) {
	const canceled, waiting = time.Second, 100 * time.Millisecond // less than departureGrace
	for name, test := range map[string]struct {
		timeout time.Duration
		end     func(x *Exchange)
		want    int
	}{
		"the call fails":             {time.Hour, func(x *Exchange) { x.Fail(errFailed, nil) }, 503},
		"the call is silent":         {canceled, func(*Exchange) {}, 503},
		"the request is interrupted": {time.Hour, func(x *Exchange) { x.Interrupt() }, 503},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newClient()
				x, cancel := newExchange(t, c, Options{Timeout: test.timeout})
				time.AfterFunc(canceled-1, cancel)
				call(t, x)
				probed := false
				time.AfterFunc(canceled+waiting, func() {
					probed = true
					for name, mu := range map[string]*sync.Mutex{"Exchange": &x.mu, "lifetime": &x.life.mu, "departureWait": &x.life.departure.mu} {
						if assert.True(t, mu.TryLock(), name) {
							mu.Unlock()
						}
					}
				})
				time.Sleep(canceled)
				test.end(x)
				time.Sleep(time.Second)
				assert.Equal(t, test.want, x.Result().Status)
				assert.True(t, probed)
				finish(x)
			})
		})
	}
}

// A request that ends while another goroutine finds out why does not wait for it.
func TestEndContext_WhileTheDepartureOfAClientIsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, cancel := newExchange(t, newClient(), Options{})
		cancel()
		cause := make(chan error)
		go func() { cause <- x.Cause() }()
		synctest.Wait()
		start := time.Now()
		x.EndContext()
		assert.Equal(t, ErrClientLeft, <-cause, "it is not known")
		assert.Equal(t, ErrClientLeft, x.Cause())
		assert.Zero(t, time.Since(start))
	})
}
