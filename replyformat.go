package llmhttp

import (
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/llmhttp/llmhttp/internal/exchange"
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
	switch {
	case err == errShutdown:
		f.log.print(slog.LevelInfo, "shutting down", err)
	case f.log.cred.clientError(err).Status >= 500:
		f.log.printFailure(classOf(err), "request failed", err)
	}
}

// Recovered implements [exchange.Responder].
func (f *replyFormat) Recovered(e exchange.LogEvent, p any) {
	message := "idle timer panicked"
	if e == exchange.WriterPanicked {
		message = "writing a stream failed"
	}
	f.log.print(slog.LevelError, message, newPanicError(p))
}
