// Handler and Options: which upgrades are accepted, and the end of all connections.

package responsesws

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// Options configure a [Handler]. The zero value is ready to use.
type Options struct {
	// TrustedOrigins are the origins of web pages that may open a connection, besides those of the host
	// that the request names, such as "https://app.example.com". "*" trusts every page.
	TrustedOrigins []string

	// MaxConnections is how many connections are open at once; further upgrades get a 503. Zero means
	// 4096; negative means no limit.
	MaxConnections int

	// MaxPerClient is how many of them have the same key in the Authorization header or, without one, the same
	// remote address; further upgrades get a 429. Zero means 256; negative means no limit.
	MaxPerClient int

	// MaxAge is how long a connection may be open. A response that is in progress then is completed. Zero
	// means 60 minutes, as OpenAI has it; negative means no limit.
	MaxAge time.Duration

	// MaxResponses is how many responses a connection may have, one after the other or not. Zero means
	// 10,000; negative means no limit.
	MaxResponses int

	// MaxActive is how many responses of a connection may be in progress at once. Zero means 16, as OpenAI has
	// it; negative means no limit.
	MaxActive int

	// MaxWaiting is how many requests of a connection may wait for others of the same stream_id, or for MaxActive.
	// All of them together have at most MaxMessage bytes. Further ones get an error with the status 429. Zero
	// means 16; negative means no limit.
	MaxWaiting int

	// MaxMessage is the maximum size of a message of a client in bytes. The Handler behind it bounds the
	// whole request, with the conversation that it continues, by its own MaxBody. Zero means 16 MiB;
	// negative means no limit.
	MaxMessage int64

	// ReadTimeout is how long a client may pause within a message. Zero means 1 minute; negative means no
	// timeout.
	ReadTimeout time.Duration

	// KeepAlive is how long a connection may be silent before a ping is sent, so that proxies do not close
	// it. A client that does not answer and sends nothing else within a minute has left. Zero means 30 seconds; negative
	// means never.
	KeepAlive time.Duration

	// MaxHistory is how many bytes of conversations a connection keeps, to continue them; the oldest is
	// forgotten first. Zero means 16 MiB; negative means no limit.
	MaxHistory int64

	// MaxTotalHistory is how many bytes all connections keep together; what was used least recently is
	// forgotten first. Zero means 256 MiB; negative means no limit.
	MaxTotalHistory int64

	// Compress compresses messages if the client supports that, with permessage-deflate and without a
	// context between messages. It saves bandwidth and costs time and memory for each message.
	Compress bool

	// Logger receives panics of the Handler behind it at level Error, and contents of neither requests nor
	// responses. If nil, slog.Default() is used.
	Logger *slog.Logger
}

// withDefaults returns a copy of o with the defaults and without negative bounds.
func (o *Options) withDefaults() Options {
	var c Options
	if o != nil {
		c = *o
	}
	c.MaxConnections = bound(c.MaxConnections, 4096)
	c.MaxPerClient = bound(c.MaxPerClient, 256)
	c.MaxAge = bound(c.MaxAge, 60*time.Minute)
	c.MaxResponses = bound(c.MaxResponses, 10_000)
	c.MaxActive = bound(c.MaxActive, 16)
	c.MaxWaiting = bound(c.MaxWaiting, 16)
	c.MaxMessage = bound(c.MaxMessage, 16<<20)
	c.ReadTimeout = bound(c.ReadTimeout, time.Minute)
	c.KeepAlive = bound(c.KeepAlive, 30*time.Second)
	c.MaxHistory = bound(c.MaxHistory, 16<<20)
	c.MaxTotalHistory = bound(c.MaxTotalHistory, 256<<20)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// bound returns the bound that an option sets: byDefault if n is zero, and the largest T if n is negative.
func bound[T ~int | ~int64](n, byDefault T) T {
	switch {
	case n == 0:
		return byDefault
	case n > 0:
		return n
	}
	return unbounded[T]()
}

// unbounded returns the largest T, which nothing exceeds.
func unbounded[T ~int | ~int64]() T {
	largest := T(1)
	for largest<<1 > 0 {
		largest = largest<<1 | 1
	}
	return largest
}

// A Handler serves the Responses API over WebSockets, and passes other requests to the Handler
// behind it. Its methods may be called concurrently.
type Handler struct {
	next    http.Handler
	opts    Options
	origins http.CrossOriginProtection
	anyPage bool // every origin is trusted
	history histories

	mu          sync.Mutex // guards the fields below
	connections map[*connection]struct{}
	slots       int            // of connections, also of those that are being opened
	clients     map[string]int // slots of each client
	draining    bool
	drained     chan struct{} // closed when draining is set and slots is zero
}

// New returns a Handler in front of next, which is a [llmhttp.Handler] with package responses, or middleware
// around one. It keeps a copy of opts; nil means the zero Options. It panics if next is nil or one of the
// TrustedOrigins is malformed.
//
// [llmhttp.Handler]: https://pkg.go.dev/github.com/llmhttp/llmhttp#Handler
func New(next http.Handler, opts *Options) *Handler {
	if next == nil {
		panic("responsesws: nil Handler")
	}
	h := &Handler{
		next: next, opts: opts.withDefaults(), connections: make(map[*connection]struct{}), clients: make(map[string]int),
		drained: make(chan struct{}),
	}
	h.history.max, h.history.maxTotal = h.opts.MaxHistory, h.opts.MaxTotalHistory
	for _, origin := range h.opts.TrustedOrigins {
		if origin == "*" {
			h.anyPage = true
		} else if err := h.origins.AddTrustedOrigin(strings.ToLower(origin)); err != nil {
			panic("responsesws: Options.TrustedOrigins must have schemes and hosts, such as https://app.example.com: " + origin)
		}
	}
	return h
}

// ServeHTTP serves a WebSocket until it is closed, or passes the request to the Handler behind it.
// It recovers from panics of requests in process, and logs them.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !isUpgrade(r) {
		h.next.ServeHTTP(w, r)
		return
	}
	reply := &recorder{header: make(http.Header)}
	h.next.ServeHTTP(reply, r)
	if reply.status != http.StatusUpgradeRequired {
		reply.replay(w)
		return
	}
	if err := h.checkOrigin(r); err != nil {
		err.reply(w)
		return
	}
	client := clientOf(r)
	if err := h.enter(client); err != nil {
		err.reply(w)
		return
	}
	defer h.leave(client)
	for name, values := range reply.header {
		if strings.HasPrefix(name, "X-") && name != "X-Accel-Buffering" {
			w.Header()[name] = values
		}
	}
	if c := h.accept(w, r); c != nil {
		c.serve()
	}
}

// isUpgrade reports whether r asks for a WebSocket at the path of the API.
func isUpgrade(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/v1/responses") &&
		strings.EqualFold(r.Header.Get("Upgrade"), "websocket") && r.ProtoMajor == 1
}

// checkOrigin refuses an upgrade of a web page that is not trusted.
func (h *Handler) checkOrigin(r *http.Request) *apiError {
	if h.anyPage {
		return nil
	}
	changes := *r
	changes.Method = http.MethodPost // a GET, which is to change nothing, is always permitted
	if h.origins.Check(&changes) == nil {
		return nil
	}
	return &apiError{
		status: http.StatusForbidden, code: "origin_not_allowed",
		message: "WebSockets of web pages of this origin are not allowed, because it is none of the server's trusted origins.",
	}
}

// clientOf returns what tells one client from another. The same key with another spelling of the scheme, or more
// spaces, is the same client.
func clientOf(r *http.Request) string {
	if header := r.Header.Get("Authorization"); header != "" {
		if _, secret, ok := strings.Cut(header, " "); ok {
			return strings.Trim(secret, " ")
		}
		return header
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	return host
}

// enter takes a slot for a connection of a client, unless there is none.
func (h *Handler) enter(client string) *apiError {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.draining:
		return errDraining
	case h.slots >= h.opts.MaxConnections:
		return &apiError{
			status: http.StatusServiceUnavailable, code: "websocket_connections_exceeded",
			message: "The server has too many WebSockets. Please try again later, or use POST.",
		}
	case h.clients[client] >= h.opts.MaxPerClient:
		return &apiError{
			status: http.StatusTooManyRequests, code: "websocket_connections_exceeded",
			message: "You have too many WebSockets. Close one, or use POST.",
		}
	}
	h.slots++
	h.clients[client]++
	return nil
}

// leave gives the slot back.
func (h *Handler) leave(client string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.slots--
	if h.clients[client]--; h.clients[client] == 0 {
		delete(h.clients, client)
	}
	if h.draining && h.slots == 0 {
		close(h.drained)
	}
}

// accept upgrades the connection. If that fails, the client has its reply and accept returns nil.
func (h *Handler) accept(w http.ResponseWriter, r *http.Request) *connection {
	hijacked := &hijacker{ResponseWriter: w}
	mode := websocket.CompressionDisabled
	if h.opts.Compress {
		mode = websocket.CompressionNoContextTakeover
	}
	ws, err := websocket.Accept(hijacked, r, &websocket.AcceptOptions{InsecureSkipVerify: true, CompressionMode: mode}) // after checkOrigin
	if err != nil {
		if hijacked.err != nil {
			h.opts.Logger.ErrorContext(r.Context(), "responsesws: the connection cannot be taken over: does middleware hide http.Hijacker?",
				"error", hijacked.err)
		}
		return nil
	}
	ws.SetReadLimit(-1) // see connection.read
	return newConnection(h, ws, hijacked.socket, r)
}

// add makes Drain and Shutdown end c.
func (h *Handler) add(c *connection) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.connections[c] = struct{}{}
	if h.draining {
		c.end(endDraining)
	}
}

func (h *Handler) remove(c *connection) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.connections, c)
}

// Drain refuses new connections and new responses with 503, and closes each connection as soon as none of its
// responses is in progress. It does not wait, and is made for [http.Server.RegisterOnShutdown], because an
// http.Server does not know its WebSockets. The Handler behind it completes or interrupts the responses
// in progress, as its Shutdown says.
func (h *Handler) Drain() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.draining {
		return
	}
	h.draining = true
	if h.slots == 0 {
		close(h.drained)
	}
	for c := range h.connections {
		c.end(endDraining)
	}
}

// Shutdown is Drain, and waits until no connection is left. When ctx is done it cuts those that remain, whose
// requests end as those of clients that have left, and returns the error of ctx. It may be called several
// times.
func (h *Handler) Shutdown(ctx context.Context) error {
	h.Drain()
	select {
	case <-h.drained:
		return nil
	case <-ctx.Done():
	}
	h.mu.Lock()
	remaining := slices.Collect(maps.Keys(h.connections))
	h.mu.Unlock()
	for _, c := range remaining {
		c.socket.Close() // the read fails
	}
	return ctx.Err()
}

// A recorder keeps the reply to an upgrade, which is an error and so is short.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements [http.ResponseWriter].
func (r *recorder) Header() http.Header { return r.header }

// WriteHeader implements [http.ResponseWriter].
func (r *recorder) WriteHeader(status int) {
	if r.status == 0 && status >= 200 {
		r.status = status
	}
}

// Write implements [http.ResponseWriter].
func (r *recorder) Write(p []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	return r.body.Write(p)
}

// replay writes the reply to w.
func (r *recorder) replay(w http.ResponseWriter) {
	for name, values := range r.header {
		w.Header()[name] = values
	}
	if r.status != 0 {
		w.WriteHeader(r.status)
	}
	_, _ = w.Write(r.body.Bytes()) // the client may have left
}

// reply replies to an upgrade with e.
func (e *apiError) reply(w http.ResponseWriter) {
	body, _ := json.Marshal(map[string]any{"error": e}) // of texts only
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.status)
	_, _ = w.Write(body) // the client may have left
}
