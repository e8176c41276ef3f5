// A request on its way to the Handler. A Server with a cassette gives each request to the Handler too,
// but only to decode it.

package llmfake

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"time"
)

// maxBody is the size of the largest request.
const maxBody = 64 << 20

// An exchange is a request to a Server and its reply.
type exchange struct {
	request *Request // the lock of the Server guards what it points to
	http    *http.Request
	out     *output
	probe   bool // the request is only decoded
}

type exchangeKey struct{}

// exchangeFrom returns the exchange that ctx belongs to. It may be nil.
func exchangeFrom(ctx context.Context) *exchange {
	ex, _ := ctx.Value(exchangeKey{}).(*exchange)
	return ex
}

func (ex *exchange) isProbe() bool { return ex != nil && ex.probe }

// origin returns the scheme and the host by which the client knows the server.
func (ex *exchange) origin() string {
	if ex == nil {
		return ""
	}
	return "http://" + ex.http.Host
}

// ServeHTTP serves a request. It makes a Server an [http.Handler], for a test that has an HTTP
// server of its own.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.enter() {
		http.Error(w, errClosed.Error(), http.StatusServiceUnavailable)
		return
	}
	defer s.running.Done()
	if strings.HasPrefix(r.URL.Path, s.imagePath) {
		s.images.ServeHTTP(w, r)
		return
	}
	if r.Body == nil {
		r.Body = http.NoBody
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	// A Server may be served by a server of the test, which does not end with it.
	stop := context.AfterFunc(s.ctx, func() {
		cancel()
		controller := http.NewResponseController(w)
		controller.SetReadDeadline(time.Now()) // what has no deadlines, such as a recorder, does not block
		controller.SetWriteDeadline(time.Now())
	})
	defer stop()
	body, rest := readBody(r)
	ex := &exchange{request: s.addRequest(r, body), http: r}
	defer s.endRequest(ex.request)
	ctx = context.WithValue(ctx, exchangeKey{}, ex)
	ex.out = &output{w: w, stop: cancel, onStatus: func(status int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		ex.request.Status = status
	}, onError: func(body []byte) { s.noteError(ex.request, body) }}
	r = withBody(r.WithContext(ctx), body)
	if rest != nil { // the Handler refuses it
		r.Body, r.ContentLength = rest, ex.http.ContentLength
		s.serve(ex, r)
		return
	}
	if s.replay != nil {
		s.replay.serve(s, ex, r, body)
		return
	}
	s.serve(ex, r)
}

// readBody reads the body of a request. If it is too long or cannot be read, it returns what it has
// read, and also the whole body, whose Read returns the error.
func readBody(r *http.Request) (body []byte, whole io.ReadCloser) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err == nil && len(body) <= maxBody {
		return body, nil
	}
	rest := io.Reader(r.Body)
	if err != nil {
		rest = failedReader{err}
	}
	return body, struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), rest), r.Body}
}

// A failedReader is a reader that returns an error.
type failedReader struct{ err error }

func (r failedReader) Read([]byte) (int, error) { return 0, r.err }

// withBody returns a copy of r with another body.
func withBody(r *http.Request, body []byte) *http.Request {
	r = r.WithContext(r.Context())
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return r
}

// serve gives a request to the Handler.
func (s *Server) serve(ex *exchange, r *http.Request) {
	defer func() {
		panicked := recover()
		s.mu.Lock()
		wantsStream := ex.request.Stream
		s.mu.Unlock()
		ex.out.finish(panicked, wantsStream)
	}()
	if err := s.applyChaos(ex, r); err != nil {
		s.handler.WriteError(ex.out, r, err)
		return
	}
	s.handler.ServeHTTP(ex.out, r)
}

// enter counts a request in progress. It reports false if the server is closed.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return false
	}
	s.running.Add(1)
	return true
}

// protocolOf returns the format of the requests for a path, as far as it can be told from that.
func protocolOf(path string) string {
	below := func(prefix string) bool { return path == prefix || strings.HasPrefix(path, prefix+"/") }
	switch {
	case below("/v1/messages"):
		return Messages
	case below("/v1/responses"):
		return Responses
	case below("/v1"):
		return ChatCompletions
	}
	return ""
}
