// Classes of errors, and how an error becomes the llm.Error that a client gets. The texts of errors are in
// these places:
//
//   - 429: the functions at the end of limit.go, such as errRateLimit
//   - 400 about a parameter: package invalid, and in package llm package param
//   - 401 and 403: errNoKey and errInvalidKey in auth.go, request.serve in request.go
//   - 404 and 405: llm.ModelNotFound, Handler.findRoute in routes.go, notfound.go
//   - others: this file, and bodyError in request.go
//   - of errors of other servers: upstream/internal/failure
//
// Tests compare whole error objects: search them and the documents for a text before changing it, and write
// the golden conversations with go test -run TestGolden -update . afterwards. What docs/wire-format.md says
// that another server sends does not change.

package llmhttp

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/llmhttp/llmhttp/internal/panics"
	"github.com/llmhttp/llmhttp/internal/retryheader"
	"github.com/llmhttp/llmhttp/internal/unsupported"
	"github.com/llmhttp/llmhttp/llm"
)

const (
	messageInternal = "The server had an error while processing your request. Sorry about that!"
	messageTimeout  = "The model did not answer in time."
)

// completeError returns a copy of the Error in err, or an Error caused by err,
// with Status, Type and Message set.
func completeError(r *http.Request, err error) (e *llm.Error) {
	defer func() {
		if p := recover(); p != nil { // a method of err, such as Unwrap, panicked
			e = &llm.Error{Status: http.StatusInternalServerError, Type: errorType(500, ""), Message: messageInternal, Err: panics.New(p)}
		}
	}()
	var found *llm.Error
	switch {
	case errors.As(err, &found) && found != nil:
		e = new(llm.Error)
		*e = *found
		if e.Status < 400 || e.Status > 599 {
			e.Status = http.StatusInternalServerError
		}
		e.Message = cmp.Or(e.Message, http.StatusText(e.Status))
	case isUnsupported(err):
		e = errUnknownURL(r)
		e.Err = err
	case errors.Is(err, context.DeadlineExceeded):
		e = &llm.Error{Status: http.StatusGatewayTimeout, Message: messageTimeout, Err: err}
	default:
		e = &llm.Error{Status: http.StatusInternalServerError, Message: messageInternal, Err: err}
	}
	e.Type = cmp.Or(e.Type, errorType(e.Status, e.Code))
	return e
}

// isUnsupported reports whether err tells that there is no such operation: see [As].
func isUnsupported(err error) bool {
	defer func() { _ = recover() }() // a method of err, such as Unwrap, panicked
	return unsupported.Is(err)
}

// errorType returns the type of an error that does not set one.
func errorType(status int, code string) string {
	switch {
	case code == codeQuota:
		return codeQuota
	case status == http.StatusTooManyRequests:
		return "requests"
	case status >= 500:
		return "server_error"
	}
	return "invalid_request_error"
}

// setErrorHeaders sets the headers that an error reply has in every protocol.
func setErrorHeaders(h http.Header, e *llm.Error) {
	if allow, ok := errors.AsType[allowedMethods](e.Err); ok {
		h.Set("Allow", allow.Error())
	}
	if e.Status == http.StatusUnauthorized && h.Get("Www-Authenticate") == "" {
		challenge := "Bearer"
		if e.Code == codeInvalidKey {
			challenge = `Bearer error="invalid_token"`
		}
		h.Set("Www-Authenticate", challenge)
	}
	retryheader.Set(h, e, e.Code == codeQuota)
}

// An ErrorClass tells in one word why a request failed. There are few, so they
// can be the label of a metric. See [RequestSummary].
type ErrorClass string

// The classes of errors.
const (
	ClassInvalidRequest ErrorClass = "invalid_request" // a status of 4xx that is not one of the next four
	ClassAuthentication ErrorClass = "authentication"  // 401
	ClassPermission     ErrorClass = "permission"      // 403
	ClassNotFound       ErrorClass = "not_found"       // 404 and 405: an unknown model or URL
	ClassRateLimit      ErrorClass = "rate_limit"      // 429: a limit of the key, or one of the Backend
	ClassCanceled       ErrorClass = "canceled"        // the client left
	ClassTimeout        ErrorClass = "timeout"         // 504: the Backend was silent, or a deadline passed
	ClassShutdown       ErrorClass = "shutdown"        // Shutdown refused or interrupted the request
	ClassKeyStore       ErrorClass = "key_store"       // the KeyStore failed
	ClassLimiter        ErrorClass = "limiter"         // the Limiter failed
	ClassUsageStore     ErrorClass = "usage_store"     // the query of the UsageStore failed
	ClassResponseStore  ErrorClass = "response_store"  // the store of responses failed: the error wraps ErrResponseStore
	ClassBackend        ErrorClass = "backend"         // the Backend failed, or what it returned is invalid
	ClassInternal       ErrorClass = "internal"        // any other failure of the server
)

// IsClientError reports whether the client caused the error. The text of such an
// error may quote the request.
func (c ErrorClass) IsClientError() bool {
	switch c {
	case ClassInvalidRequest, ClassAuthentication, ClassPermission, ClassNotFound, ClassRateLimit:
		return true
	}
	return false
}

// classifyStatus returns the class of an error with a status from 400 to 599. The class of a 5xx
// other than 504 is failing.
func classifyStatus(status int, failing ErrorClass) ErrorClass {
	switch status {
	case http.StatusUnauthorized:
		return ClassAuthentication
	case http.StatusForbidden:
		return ClassPermission
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return ClassNotFound
	case http.StatusTooManyRequests:
		return ClassRateLimit
	case http.StatusGatewayTimeout:
		return ClassTimeout
	}
	if status < http.StatusInternalServerError {
		return ClassInvalidRequest
	}
	return failing
}

// Errors that end a request before its Backend does. As causes of the context
// they tell the Backend why.
var (
	errShutdown = &llm.Error{
		Status:     http.StatusServiceUnavailable,
		RetryAfter: time.Second,
		Message:    "The server is shutting down. Please try again.",
	}
	errSilent = &llm.Error{Status: http.StatusGatewayTimeout, Message: messageTimeout, Err: context.DeadlineExceeded}
)

// errStoreSilent is errSilent for a call of another part of the host, such as a store: see
// silenceOf.
var errStoreSilent = &llm.Error{Status: http.StatusServiceUnavailable, RetryAfter: time.Second,
	Message: "The server could not get what it needs in time. Please try again.", Err: context.DeadlineExceeded}

var (
	errGoexit   = errors.New("llmhttp: runtime.Goexit was called")
	errNoError  = errors.New("llmhttp: WriteError was called without an error")
	errNilError = errors.New("llmhttp: a nil *Error was returned as an error")
)

// isResponseStoreError reports whether err wraps ErrResponseStore. It does not if a method of
// err, such as Unwrap, panics.
func isResponseStoreError(err error) bool {
	defer func() { _ = recover() }()
	return errors.Is(err, ErrResponseStore)
}

// isNilError reports whether err is or wraps a nil *Error. It is not if a method of
// err, such as Unwrap, panics.
func isNilError(err error) bool {
	defer func() { _ = recover() }()
	e, ok := errors.AsType[*llm.Error](err)
	return ok && e == nil
}
