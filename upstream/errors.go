package upstream

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/bounded"
)

// An Error is a failure of a request to the server of a [Backend], with the
// details that are for logs and not for clients. It is the Err of the
// [llmhttp.Error] that the Backend returns. Keys and the address of the server
// are removed from all its fields.
//
// [errors.Is] matches the causes of an Error, such as
// [context.DeadlineExceeded]. [errors.As] finds a [syscall.Errno] among them,
// and nothing else, because other errors contain addresses.
type Error struct {
	Upstream  string // Options.Name
	Status    int    // HTTP status of the reply; 0 if there was none
	Code      string // code that the server gave; may be empty
	Message   string // what went wrong, in the words of the server if it gave any
	RequestID string // X-Request-Id of the reply; may be empty

	cause   error
	notSent bool
}

// Error returns all fields of e in one line.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Upstream)
	b.WriteString(": ")
	if e.Status != 0 {
		fmt.Fprintf(&b, "status %d: ", e.Status)
	}
	if e.Code != "" {
		b.WriteString(e.Code + ": ")
	}
	b.WriteString(e.Message)
	if e.RequestID != "" {
		fmt.Fprintf(&b, " (upstream request %s)", e.RequestID)
	}
	return b.String()
}

// UpstreamStatus returns Status. Package route looks for this method, because it
// cannot import this package.
func (e *Error) UpstreamStatus() int { return e.Status }

// Is reports whether target is a cause of e. [llmhttp.ErrNotSent] is one if the
// server has certainly not seen the request.
func (e *Error) Is(target error) bool {
	return target == llmhttp.ErrNotSent && e.notSent || e.cause != nil && errors.Is(e.cause, target)
}

// As sets target to the [syscall.Errno] that caused e, if target is of that
// type and there is one.
func (e *Error) As(target any) bool {
	errno, ok := target.(*syscall.Errno)
	return ok && e.cause != nil && errors.As(e.cause, errno)
}

// The messages for clients that get no details of a failure.
const (
	messageFailed      = "The model's server had an error. Please try again."
	messageUnavailable = "The model's server could not be reached. Please try again."
	messageOverloaded  = "The model is overloaded. Please try again."
	messageTimeout     = "The model did not answer in time."
	messageRateLimit   = "Rate limit reached. Please try again later."
)

const hintBaseURL = "is the base URL right?"

// newFailure returns an error with a status and message for the client, and text
// and cause for logs. cause may be nil.
func (c *call) newFailure(status int, message, text string, cause error) *llmhttp.Error {
	e := &Error{Upstream: c.b.opts.Name, cause: cause, notSent: c.notSent()}
	if c.resp != nil {
		e.Status, e.RequestID = c.resp.StatusCode, c.requestID()
	}
	if cause != nil {
		text += ": " + describeNetError(cause)
	}
	e.Message = redactText(c.redactor, text)
	return &llmhttp.Error{Status: status, Message: message, Err: e}
}

// invalidReply returns the error for a reply that cannot be used. text says why.
func (c *call) invalidReply(text string) error {
	return c.newFailure(http.StatusBadGateway, messageFailed, text, nil)
}

// malformedReply returns the error for a reply that cannot be decoded.
func (c *call) malformedReply(err error) error {
	return c.invalidReply("the reply is not valid: " + err.Error())
}

// interruptedError returns the error for a request or reply that failed with err before
// it was complete.
func (c *call) interruptedError(err error) error {
	if cause := c.callerCause(); cause != nil {
		return cause
	}
	switch {
	case context.Cause(c.ctx) == errIdle:
		e := c.newFailure(http.StatusGatewayTimeout, messageTimeout, errIdle.Error(), nil)
		e.Err.(*Error).cause = context.DeadlineExceeded
		return e
	case errors.Is(err, bounded.ErrTooLarge):
		return c.invalidReply("the reply is too large")
	case errors.Is(err, errEventTooLarge):
		return c.invalidReply(err.Error())
	case c.resp == nil:
		return c.newFailure(http.StatusBadGateway, messageUnavailable, "no reply", err)
	}
	return c.newFailure(http.StatusBadGateway, messageFailed, "the reply was interrupted", err)
}

// errorTimeout limits reading the body of an error, unless IdleTimeout is shorter. If
// it runs out, the error has only the status.
const errorTimeout = 5 * time.Second

// statusError returns the error for a reply whose status is not 2xx.
func (c *call) statusError() error {
	status := c.resp.StatusCode
	switch {
	case status >= 300 && status < 400:
		return c.invalidReply("the reply is a redirect, which is not followed: " + hintBaseURL)
	case status < 400:
		return c.invalidReply("the reply has an unexpected status")
	}
	timeout := errorTimeout
	if d := c.b.opts.IdleTimeout; d >= 0 {
		timeout = min(timeout, d)
	}
	defer c.endAfter(timeout).Stop()
	body, err := bounded.ReadAll(c.body, nil, -1, maxErrorBody)
	if cause := c.callerCause(); err != nil && cause != nil {
		return cause
	}
	if e, ok := parseServerError(body); ok {
		return c.serverFailure(status, e, "")
	}
	media, _, _ := mime.ParseMediaType(c.resp.Header.Get("Content-Type"))
	if status == http.StatusUnprocessableEntity && media == "text/plain" && len(body) > 0 {
		// Rust servers that use axum send such errors. Proxies do not use this status.
		return c.serverFailure(status, serverError{message: string(body)}, "")
	}
	return c.serverFailure(status, serverError{}, fmt.Sprintf("%s, with %d bytes of %s", http.StatusText(status), len(body), cmp.Or(media, "unknown type")))
}

// problemOf returns what is wrong with body, of a reply with the status 2xx, if it is
// empty or HTML.
func problemOf(body []byte) string {
	body = bytes.TrimSpace(body)
	switch {
	case len(body) == 0:
		return "the reply is empty"
	case body[0] == '<':
		return "the reply is an HTML page: " + hintBaseURL
	}
	return ""
}

// requestID returns the ID that the server gave to the request.
func (c *call) requestID() string {
	return redactText(c.redactor, oneLine(c.resp.Header.Get("X-Request-Id"), maxName))
}
