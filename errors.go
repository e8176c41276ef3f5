package llmhttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// An Error is a failure the client is told about.
//
// Other errors are logged, and clients learn only the status: 404 for one that
// wraps [errors.ErrUnsupported], 504 for [context.DeadlineExceeded], else 500.
type Error struct {
	Status     int           // HTTP status, 400 to 599; anything else becomes 500
	Type       string        // as in the API's error object; derives from Status if empty
	Code       string        // likewise; null on the wire if empty
	Param      string        // the parameter at fault, by its path; null on the wire if empty
	Message    string        // for the client; the status's own text if empty
	RetryAfter time.Duration // when to try again, if that helps; zero or negative says nothing
	NoRetry    bool          // tells clients that retry by themselves that it will not help
	Err        error         // the cause: logged, never sent
}

// Errorf returns an Error with a formatted message. The result of %w in format
// is part of the message, and so of what the client is told: put causes in Err.
func Errorf(status int, code, format string, args ...any) *Error {
	return &Error{Status: status, Code: code, Message: sprintf(format, args)}
}

// ModelNotFound returns the error for a model that does not exist, or that the
// key may not use.
func ModelNotFound(model string) *Error {
	return Errorf(http.StatusNotFound, "model_not_found", "The model `%s` does not exist or you do not have access to it.", echo(model))
}

// Error returns e's message and cause, for logs.
func (e *Error) Error() string {
	if e == nil {
		return "<nil>"
	}
	s := fmt.Sprintf("%d", e.Status)
	if e.Code != "" {
		s += " " + e.Code
	}
	if e.Message != "" {
		s += ": " + e.Message
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns e.Err.
func (e *Error) Unwrap() error {
	if e == nil {
		return nil
	}
	return e.Err
}

// errNil stands for a nil *Error that was returned as an error.
var errNil = errors.New("llmhttp: an error that is a nil *Error")

// errorType is the type of an error that does not say.
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

const codeQuota = "insufficient_quota"

const messageInternal = "The server had an error while processing your request. Sorry about that!"

// tell returns what the client of r is told of err: a complete Error, with the
// cause in it where err is not one already.
func tell(r *http.Request, err error) *Error {
	var e *Error
	switch {
	case errors.As(err, &e) && e != nil:
		told := *e
		if told.Status < 400 || told.Status > 599 {
			told.Status = http.StatusInternalServerError
		}
		if told.Message == "" {
			told.Message = http.StatusText(told.Status)
		}
		e = &told
	case errors.Is(err, errors.ErrUnsupported):
		e = errUnknownURL(r)
		e.Err = err
	case errors.Is(err, context.DeadlineExceeded):
		e = &Error{Status: http.StatusGatewayTimeout, Message: "The model did not answer in time.", Err: err}
	default:
		e = &Error{Status: http.StatusInternalServerError, Message: messageInternal, Err: err}
	}
	if e.Type == "" {
		e.Type = errorType(e.Status, e.Code)
	}
	return e.scrubbed(r)
}

// WriteError replies to r as the Handler would have if it failed with err,
// which must not be nil. It lets middleware in front of a Handler speak the
// API's language. Nothing may have been written to w.
func WriteError(w http.ResponseWriter, r *http.Request, err error) {
	h := w.Header()
	if h.Get(headerRequestID) == "" {
		id := RequestIDFrom(r.Context())
		if id == "" {
			id = newID("req_")
		}
		h.Set(headerRequestID, id)
	}
	if h.Get(headerProcessing) == "" {
		h.Set(headerProcessing, "0")
	}
	writeError(w, r, tell(r, err), new(headerValues))
}

// writeError writes a complete Error as the reply.
func writeError(w http.ResponseWriter, r *http.Request, e *Error, values *headerValues) {
	h := w.Header()
	if m, ok := errors.AsType[*wrongMethod](e.Err); ok {
		h.Set("Allow", m.allows())
	}
	if e.Status == http.StatusUnauthorized && h.Get("Www-Authenticate") == "" {
		challenge := "Bearer"
		if e.Code == codeBadKey {
			challenge = `Bearer error="invalid_token"`
		}
		h.Set("Www-Authenticate", challenge)
	}
	if e.RetryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(int64((e.RetryAfter+time.Second-1)/time.Second), 10))
		h.Set("Retry-After-Ms", strconv.FormatInt(int64((e.RetryAfter+time.Millisecond-1)/time.Millisecond), 10))
	}
	if retry := shouldRetry(e); retry != "" {
		h.Set("X-Should-Retry", retry)
	}
	body := e.appendJSON(nil)
	writeHead(w, e.Status, len(body), values)
	w.Write(body) // a client that has left needs no reply
}

// patience is how long a RetryAfter is that the official clients do not wait
// for: they would come again much too soon.
const patience = time.Minute

// shouldRetry tells clients what their own rules for the status get wrong.
func shouldRetry(e *Error) string {
	switch {
	case e.NoRetry, e.Code == codeQuota, e.Status == http.StatusNotImplemented, e.RetryAfter > patience:
		return "false"
	case e.Status == http.StatusTooManyRequests && e.RetryAfter > 0:
		return "true"
	}
	return ""
}

// appendJSON appends the error object of the format, all of whose members are
// required. It begins with "error", by which go-openai knows one in a stream.
func (e *Error) appendJSON(b []byte) []byte {
	nullable := func(s string) []byte {
		if s == "" {
			return append(b, "null"...)
		}
		return appendString(b, s)
	}
	b = appendString(append(b, `{"error":{"message":`...), e.Message)
	b = appendString(append(b, `,"type":`...), e.Type)
	b = append(b, `,"param":`...)
	b = nullable(e.Param)
	b = append(b, `,"code":`...)
	b = nullable(e.Code)
	return append(b, "}}"...)
}
