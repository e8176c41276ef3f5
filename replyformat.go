// What an exchange sends besides the reply, as its Responder: headers, among them those about limits,
// bodies of errors, and lines of the log.

package llmhttp

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/llmhttp/llmhttp/internal/exchange"
	"github.com/llmhttp/llmhttp/internal/headertext"
	"github.com/llmhttp/llmhttp/internal/panics"
)

// A replyFormat makes what an exchange sends besides the reply, and logs what happens to it:
// it is the [exchange.Responder] of a request.
type replyFormat struct {
	protocol Protocol
	arrived  *time.Time
	log      *requestLog // has the ID and the credential of the request

	// mu guards the fields below, because other goroutines than that of ServeHTTP may reply.
	mu     sync.Mutex
	limits limitStates
	added  *[]headerField // by SetReplyHeader; nil if there are none
	begun  bool           // the reply has its headers
}

// limitStates are the last known states of the rate limits of a subject, or of a request.
type limitStates struct{ requests, tokens limitState }

// A limitState is the state of a limit, if it is known.
type limitState struct {
	known bool
	info  LimitInfo
}

// get returns the state, or nil if it is not known.
func (s *limitState) get() *LimitInfo {
	if !s.known {
		return nil
	}
	return &s.info
}

// setLimits sets the states that every reply tells about.
func (f *replyFormat) setLimits(l limitStates) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.limits = l
}

// SetHeaders implements [exchange.Responder].
func (f *replyFormat) SetHeaders(h http.Header, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.begun = true
	if f.added != nil {
		for _, field := range *f.added {
			h[field.name] = []string{field.value}
		}
	}
	f.protocol.SetHeaders(h, ReplyInfo{
		RequestID: f.log.requestID, Processing: now.Sub(*f.arrived),
		Requests: f.limits.requests.get(), Tokens: f.limits.tokens.get(),
	})
}

// ErrorReply implements [exchange.Responder].
func (f *replyFormat) ErrorReply(h http.Header, err error) (status int, body []byte) {
	e := f.log.cred.clientError(err)
	setErrorHeaders(h, e)
	body, status = f.protocol.AppendError(nil, e, f.log.requestID)
	if status < 200 || status > 599 { // a mistake of the Protocol, which net/http would answer by a panic
		status = e.Status
	}
	return status, body
}

// Log implements [exchange.Responder].
func (f *replyFormat) Log(e exchange.LogEvent, err error) {
	switch e {
	case exchange.Failed:
		f.logFailure(err)
	case exchange.FailedLate:
		f.log.print(slog.LevelError, "failed after the reply", err)
	case exchange.Left:
		f.log.print(slog.LevelDebug, "client left", err)
	case exchange.CannotFlush:
		f.log.warn(misuseNoFlush)
	}
}

// logFailure logs why a request failed whose client does not see that.
func (f *replyFormat) logFailure(err error) {
	switch e := f.log.cred.clientError(err); {
	case err == errShutdown:
		f.log.print(slog.LevelInfo, "shutting down", err)
	case e.Status >= 500:
		f.log.printFailure(classOf(err), "request failed", err)
	case isUnsupported(e.Err):
		f.log.print(slog.LevelDebug, "not supported", err)
	}
}

// Recovered implements [exchange.Responder].
func (f *replyFormat) Recovered(e exchange.LogEvent, p any) {
	message := "idle timer panicked"
	if e == exchange.WriterPanicked {
		message = "writing a stream failed"
	}
	f.log.print(slog.LevelError, message, panics.New(p))
}

// A headerField is a header of a reply that the host sets. The name is canonical.
type headerField struct{ name, value string }

var (
	errNoRequest  = errors.New("llmhttp: SetReplyHeader: the context does not belong to a request of a Handler")
	errReplyBegun = errors.New("llmhttp: SetReplyHeader: the reply has begun")
)

// add implements SetReplyHeader.
func (f *replyFormat) add(field headerField) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.begun {
		return errReplyBegun
	}
	if f.added == nil {
		f.added = new([]headerField)
	}
	others := slices.DeleteFunc(*f.added, func(other headerField) bool { return other.name == field.name })
	*f.added = append(others, field)
	return nil
}

// newHeaderField returns a field, or an error if a host cannot set it.
func newHeaderField(name, value string) (headerField, error) {
	canonical, err := headertext.ReplyField(name, value)
	if err != nil {
		err = fmt.Errorf("llmhttp: SetReplyHeader: %w", err)
	}
	return headerField{canonical, value}, err
}
