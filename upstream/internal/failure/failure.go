// Package failure makes the errors of a Backend of package upstream: what a client and a log get if
// the server reports an error, breaks the connection, is silent or sends what cannot be used.
package failure

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"slices"

	"github.com/llmhttp/llmhttp/internal/modelname"
	"github.com/llmhttp/llmhttp/internal/redact"
	"github.com/llmhttp/llmhttp/llm"
)

// A Call is a request to a server, with what its errors tell. Its methods return the errors:
//
//	Unavailable  the server could not be reached
//	Broken       the reply broke off
//	Timeout      the server was silent for too long
//	Status       the status is not 2xx
//	Reported     the status is 2xx, but the reply or a chunk reports an error
//	Event        the stream has an event of the type error
//	Invalid      the reply cannot be used
//	Malformed    the reply cannot be decoded
//	Unreadable   the same, unless the reply is an error
//
// The client gets details only of errors that it can act on. Texts for logs may contain anything but line
// breaks: the Redactor removes keys and addresses from them.
type Call struct {
	Server   string              // the name of the server in logs
	Model    modelname.Names     // both are empty if the request is not about a model
	Required bool                // every server has the endpoint, so a 404 has another cause
	Redactor *redact.Redactor    // see NewRedactor
	NotSent  func() bool         // reports whether it is certain that the server got no part of the request
	Wrap     func(Details) error // makes the Err of an llm.Error

	Response *http.Response // its body is not read; nil until there is a reply
}

// Details are what a log gets of a failure, and clients do not. Keys and addresses are removed.
type Details struct {
	Server    string
	Status    int    // of the reply; 0 if there was none
	Code      string // that the server gave; may be empty
	Message   string
	RequestID string // that the server gave; may be empty
	Cause     error  // whose text may contain secrets; may be nil
	NotSent   bool   // the server has certainly not seen the request
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

// Unavailable returns the error for a server that could not be asked. cause may be nil.
func (c *Call) Unavailable(logText string, cause error) error {
	return c.failure(http.StatusBadGateway, messageUnavailable, logText, cause)
}

// Broken returns the error for a reply that broke off. cause may be nil.
func (c *Call) Broken(logText string, cause error) error {
	return c.failure(http.StatusBadGateway, messageFailed, logText, cause)
}

// Timeout returns the error for a server that was silent for too long. Its cause is
// context.DeadlineExceeded.
func (c *Call) Timeout(logText string) error {
	d := c.details(logText)
	d.Cause = context.DeadlineExceeded
	return &llm.Error{Status: http.StatusGatewayTimeout, Message: messageTimeout, Err: c.Wrap(d)}
}

// Invalid returns the error for a reply that cannot be used. logText says why.
func (c *Call) Invalid(logText string) error { return c.Broken(logText, nil) }

// Malformed returns the error for a reply that cannot be decoded.
func (c *Call) Malformed(err error) error {
	return c.Invalid("the reply is not valid: " + err.Error())
}

// Status returns the error for a reply whose status is not 2xx, with the beginning of its body, which may
// be incomplete. A body that is larger than MaxBody is not parsed.
func (c *Call) Status(body []byte) error {
	status := c.Response.StatusCode
	switch {
	case status >= 300 && status < 400:
		return c.Invalid("the reply is a redirect, which is not followed: " + hintBaseURL)
	case status < 400:
		return c.Invalid("the reply has an unexpected status")
	}
	if e, ok := parseServerError(body); ok {
		return c.serverFailure(status, e, "")
	}
	media := c.MediaType()
	if status == http.StatusUnprocessableEntity && media == "text/plain" && len(body) > 0 {
		// Rust servers that use axum send such errors. Proxies do not use this status.
		return c.serverFailure(status, textError(string(body)), "")
	}
	logText := fmt.Sprintf("%s, with %d bytes of %s", http.StatusText(status), len(body), cmp.Or(media, "unknown type"))
	return c.serverFailure(status, serverError{}, logText)
}

// UnreadableStatus is Status for a body that cannot be read because of err.
func (c *Call) UnreadableStatus(err error) error {
	status := c.Response.StatusCode
	if status < 400 {
		return c.Status(nil)
	}
	return c.serverFailure(status, serverError{}, http.StatusText(status)+": "+err.Error())
}

// MediaType returns the media type of the reply, or "" if it has none.
func (c *Call) MediaType() string {
	media, _, _ := mime.ParseMediaType(c.Response.Header.Get("Content-Type"))
	return media
}

// Reported returns the error that a reply with the status 2xx, or a chunk of one,
// reports in its body, or nil. member is the member "error" of the body, nil if
// there is none; hasResult says whether the body has a result as well: a body without one may be an
// error without that member.
func (c *Call) Reported(body []byte, member json.RawMessage, hasResult bool) error {
	isError := member != nil && !isNoError(member)
	if !isError && (hasResult || !isFailure(body)) {
		return nil
	}
	e, ok := parseServerError(body)
	if !ok {
		return c.serverFailure(http.StatusInternalServerError, e, "an error without a message")
	}
	return c.serverFailure(e.impliedStatus(), e, "")
}

// Decode decodes body, a reply with the status 2xx or an event, into v. If body has another type, the error is the one
// that body reports, if it reports one.
func (c *Call) Decode(body []byte, v any) (err error) {
	if u, ok := v.(json.Unmarshaler); ok { // json.Unmarshal would read body twice
		err = u.UnmarshalJSON(body)
	} else {
		err = json.Unmarshal(body, v)
	}
	if err != nil {
		return c.Unreadable(body, err)
	}
	return nil
}

// Unreadable returns the error for body, a reply with the status 2xx or an event that is not what it should be: the
// error that it reports, if it reports one.
func (c *Call) Unreadable(body []byte, err error) error {
	if e, ok := parseServerError(body); ok && e.message != "" {
		return c.serverFailure(e.impliedStatus(), e, "")
	}
	return c.Malformed(err)
}

// MayReport reports whether a reply or a chunk with these members may be an error although it has some of what belongs to
// a result, such as a usage. Reported tells whether it is one.
func MayReport(members llm.Extra) bool {
	for name := range members {
		if slices.Contains(objectMembers, name) || slices.Contains(messageMembers, name) {
			return true
		}
	}
	return false
}

// Event returns the error for an event of the type error.
func (c *Call) Event(data []byte) error {
	e, ok := parseServerError(data)
	if !ok {
		e = textError(string(data))
	}
	return c.serverFailure(e.impliedStatus(), e, "")
}

// Whole returns the error for the body of a reply with the status 2xx that is empty or HTML, or nil.
func (c *Call) Whole(body []byte) error {
	body = bytes.TrimSpace(body)
	switch {
	case len(body) == 0:
		return c.Invalid("the reply is empty")
	case body[0] == '<':
		return c.Invalid("the reply is an HTML page: " + hintBaseURL)
	}
	return nil
}

// UnknownUsage returns the error for logs about a usage whose members have none of the known names.
func (c *Call) UnknownUsage(members []string) error {
	return c.Wrap(c.details(fmt.Sprintf("the usage has only members that are not known: %q", members)))
}

// failure returns an error with a status and message for the client, and a text and cause for logs. cause may
// be nil.
func (c *Call) failure(status int, clientMessage, logText string, cause error) error {
	if cause != nil {
		logText += ": " + describeNetError(cause)
	}
	d := c.details(logText)
	d.Cause = cause
	return &llm.Error{Status: status, Message: clientMessage, Err: c.Wrap(d)}
}

// details returns the details of a failure that the server has not reported.
func (c *Call) details(logText string) Details {
	d := Details{Server: c.Server, Message: redactText(c.Redactor, logText), NotSent: c.NotSent()}
	if c.Response != nil {
		d.Status, d.RequestID = c.Response.StatusCode, c.requestID()
	}
	return d
}

// requestID returns the ID that the server gave to the request.
func (c *Call) requestID() string {
	h := c.Response.Header
	return redactText(c.Redactor, oneLine(cmp.Or(h.Get("X-Request-Id"), h.Get("Request-Id")), maxName)) // Request-Id is Anthropic's
}
