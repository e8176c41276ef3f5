// Serve, which runs an http.Server and stops it.

package llmhttp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"time"

	"github.com/llmhttp/llmhttp/internal/option"
)

// ServeOptions configure [Serve]. The zero value is ready to use.
type ServeOptions struct {
	// Usage is closed when no request is left that could add a record. Nil means Options.Usage of
	// the Handler if that has this method, or wraps what has it as [StoreAs] describes, so it seldom
	// needs to be set. Other Handlers may go on to use a Buffer of package usagebuffer.
	Usage interface {
		Close(ctx context.Context) error
	}

	// Delay is how long the server still accepts connections and requests after the
	// context of Serve is done. Set it to the time in which a load balancer notices that
	// a readiness check fails. Zero and negative mean no delay.
	Delay time.Duration

	// DrainTimeout is how long requests in progress may go on after Delay before they are
	// interrupted. Zero means 10 seconds; negative means no limit.
	DrainTimeout time.Duration

	// FlushTimeout is how long Usage.Close may take after the last request. Zero means 5
	// seconds; negative means no limit.
	FlushTimeout time.Duration
}

const (
	defaultDrainTimeout = 10 * time.Second
	defaultFlushTimeout = 5 * time.Second

	// closeGrace is how long net/http may take to write the ends of replies that were
	// interrupted, and then requests to end whose connections were closed.
	closeGrace = time.Second
)

// Serve serves HTTP on the listeners until ctx is done, and then stops the server without
// losing requests or usage. Without listeners it listens on the TCP address server.Addr, or
// on ":http" if that is empty. h is the Handler that server.Handler is or contains; other
// parts of server.Handler may go on as long as requests to h. For TLS, pass listeners of
// [crypto/tls.NewListener]. Nil opts mean the zero ServeOptions. Serve panics if server or h
// is nil. Unless the WriteByteTimeout of server.HTTP2 is set, Serve sets it to
// Options.Bounds.WriteTimeout of h.
//
// When ctx is done, Serve takes these steps:
//
//  1. It serves normally for Delay. A readiness check of the host that depends on ctx
//     fails from now on.
//  2. It closes the listeners and idle connections. New requests on other connections are
//     refused with 503. Requests in progress may go on for DrainTimeout.
//  3. It interrupts those that remain, as [Handler.Shutdown] does, and logs their number
//     with the Logger of h. Replies end with the errors of the API.
//  4. After at most two seconds it closes all connections, also those of clients that do
//     not read. Requests have another second to end.
//  5. It closes Usage, with a context of its own.
//
// So it takes at most Delay, DrainTimeout, FlushTimeout and three seconds. If a listener
// fails, Serve begins with step 2 at once.
//
// Serve returns the errors of the listeners and of Usage.Close, joined, and an error if
// requests have not ended because they ignore their context; a record that such a request
// makes later gets to Usage after Close. It returns nil if ctx was done and nothing
// was lost, even if requests were interrupted. Afterwards server and h cannot be used again,
// and the listeners are closed.
//
// Ctx must not be the BaseContext of server: that would end all requests in step 1. If ctx
// comes from [os/signal.NotifyContext], a second signal does nothing until its stop function
// is called. With context.AfterFunc(ctx, stop), a second signal ends the process at once,
// and what is in Usage is lost.
func Serve(ctx context.Context, server *http.Server, h *Handler, opts *ServeOptions, listeners ...net.Listener) error {
	if server == nil || h == nil {
		panic("llmhttp: Serve needs an http.Server and a Handler")
	}
	boundHTTP2Writes(server, h.opts.Bounds.WriteTimeout)
	d := drainer{server: server, handler: h}
	if opts != nil {
		d.opts = *opts
	}
	if option.IsNil(d.opts.Usage) {
		d.opts.Usage, _ = StoreAs[interface {
			Close(ctx context.Context) error
		}](h.opts.Usage)
	}
	if len(listeners) == 0 {
		l, err := net.Listen("tcp", cmp.Or(server.Addr, ":http"))
		if err != nil {
			return errors.Join(err, d.drain())
		}
		listeners = []net.Listener{l}
	}
	served := make(chan error, len(listeners))
	for _, l := range listeners {
		go func() { served <- server.Serve(l) }()
	}
	if err := d.awaitEnd(ctx, served); err != nil {
		served <- err // to be received again below
	}
	errs := []error{d.drain()}
	for range listeners {
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// boundHTTP2Writes makes the server close connections of HTTP/2 that accept no data for that
// time, unless it is negative or the host has set another time. On such a connection,
// the deadlines of a Handler cannot end a stream.
func boundHTTP2Writes(server *http.Server, timeout time.Duration) {
	var config http.HTTP2Config
	if server.HTTP2 != nil {
		config = *server.HTTP2
	}
	if timeout <= 0 || config.WriteByteTimeout != 0 {
		return
	}
	config.WriteByteTimeout = timeout
	server.HTTP2 = &config
}

// A drainer stops a server.
type drainer struct {
	server  *http.Server
	handler *Handler
	opts    ServeOptions
}

// awaitEnd waits until ctx is done and Delay has passed, and then returns nil. If a listener
// ends before that, awaitEnd returns what it sent to served.
func (d *drainer) awaitEnd(ctx context.Context, served <-chan error) error {
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	if d.opts.Delay <= 0 {
		return nil
	}
	delay := time.NewTimer(d.opts.Delay)
	defer delay.Stop()
	select {
	case err := <-served:
		return err
	case <-delay.C:
		return nil
	}
}

// drain ends the requests, the connections and Usage, in this order.
func (d *drainer) drain() error {
	timeout := cmp.Or(d.opts.DrainTimeout, defaultDrainTimeout)
	closing, cancel := withTimeout(timeout, interruptGrace+closeGrace)
	defer cancel()
	closed := make(chan error, 1)
	go func() { closed <- d.server.Shutdown(closing) }() // closes the listeners first

	draining, cancel := withTimeout(timeout, 0)
	defer cancel()
	if interrupted, _ := d.handler.drain(draining); interrupted > 0 {
		d.handler.opts.Logger.Warn("requests were interrupted", "count", interrupted)
	}
	err := <-closed
	if closing.Err() != nil {
		err = d.server.Close()
	}
	return errors.Join(err, d.awaitRequests(), d.flush())
}

// awaitRequests waits until the requests have ended whose connections were closed. It
// returns an error if some have not.
func (d *drainer) awaitRequests() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	if left := d.handler.awaitDrained(ctx); left > 0 {
		return fmt.Errorf("llmhttp: %d requests have not ended: their Backends ignore the context", left)
	}
	return nil
}

func (d *drainer) flush() error {
	if option.IsNil(d.opts.Usage) {
		return nil
	}
	ctx, cancel := withTimeout(cmp.Or(d.opts.FlushTimeout, defaultFlushTimeout), 0)
	defer cancel()
	return d.opts.Usage.Close(ctx)
}

// withTimeout returns a context that ends after timeout and more, or never if timeout is
// negative.
func withTimeout(timeout, more time.Duration) (context.Context, context.CancelFunc) {
	if timeout < 0 {
		return context.WithCancel(context.Background())
	}
	return context.WithTimeout(context.Background(), min(timeout, math.MaxInt64-more)+more)
}
