package upstream

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"time"

	"github.com/llmhttp/llmhttp/internal/bounded"
	"github.com/llmhttp/llmhttp/llm"
)

// These methods of a call return the errors of a Backend:
//
//	interruptedError  sending the request or reading the reply failed
//	statusError       the status is not 2xx
//	reportedError     the status is 2xx, but the reply or a chunk reports an error
//	errorEvent        the stream has an event of the type error
//	invalidReply      the reply cannot be used
//	malformedReply    the reply cannot be decoded
//	fetchError        an image could not be fetched
//
// serverFailure builds those that the server sent, and newFailure the others.

// The messages for clients that get no details of a failure.
const (
	messageFailed      = "The model's server had an error. Please try again."
	messageUnavailable = "The model's server could not be reached. Please try again."
	messageOverloaded  = "The model is overloaded. Please try again."
	messageTimeout     = "The model did not answer in time."
	messageRateLimit   = "Rate limit reached. Please try again later."
)

const hintBaseURL = "is the base URL right?"

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
	logText := fmt.Sprintf("%s, with %d bytes of %s", http.StatusText(status), len(body), cmp.Or(media, "unknown type"))
	return c.serverFailure(status, serverError{}, logText)
}

// reportedError returns the error that a reply with the status 2xx, or a chunk of one,
// reports in its body, or nil. member is the member "error" of the body, nil if
// there is none; hasResult says whether the body has a result as well.
func (c *call) reportedError(body []byte, member json.RawMessage, hasResult bool) error {
	isError := member != nil && !isNoError(member)
	if !isError && (hasResult || member == nil && !isErrorObject(body)) {
		return nil
	}
	e, ok := parseServerError(body)
	if !ok {
		return c.serverFailure(http.StatusInternalServerError, e, "an error without a message")
	}
	return c.serverFailure(e.status(), e, "")
}

// isErrorObject reports whether body is {"object":"error",...}, as vLLM sends it.
func isErrorObject(body []byte) bool {
	var v struct {
		Object string `json:"object"`
	}
	return len(body) <= maxErrorBody && json.Unmarshal(body, &v) == nil && v.Object == "error"
}

// errorEvent returns the error for an event of the type error.
func (c *call) errorEvent(data []byte) error {
	e, ok := parseServerError(data)
	if !ok {
		e.message = string(data)
	}
	return c.serverFailure(e.status(), e, "")
}

// invalidReply returns the error for a reply that cannot be used. logText says why.
func (c *call) invalidReply(logText string) error {
	return c.newFailure(http.StatusBadGateway, messageFailed, logText, nil)
}

// malformedReply returns the error for a reply that cannot be decoded.
func (c *call) malformedReply(err error) error {
	return c.invalidReply("the reply is not valid: " + err.Error())
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

// fetchError returns the error for an image that could not be fetched because of err.
func (c *call) fetchError(err error) error {
	if cause := c.callerCause(); cause != nil {
		return cause
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return c.newFailure(http.StatusGatewayTimeout, messageTimeout, "fetching an image", err)
	}
	return c.newFailure(http.StatusBadGateway, messageFailed, "fetching an image", err)
}

// newFailure returns an error with a status and message for the client, and a text and
// cause for logs. cause may be nil.
func (c *call) newFailure(status int, clientMessage, logText string, cause error) *llm.Error {
	e := &Error{Upstream: c.b.opts.Name, cause: cause, notSent: c.notSent()}
	if c.resp != nil {
		e.Status, e.RequestID = c.resp.StatusCode, c.requestID()
	}
	if cause != nil {
		logText += ": " + describeNetError(cause)
	}
	e.Message = redactText(c.redactor, logText)
	return &llm.Error{Status: status, Message: clientMessage, Err: e}
}

// requestID returns the ID that the server gave to the request.
func (c *call) requestID() string {
	return redactText(c.redactor, oneLine(c.resp.Header.Get("X-Request-Id"), maxName))
}
