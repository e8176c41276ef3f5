package llm

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp/internal/param"
)

// An Error is an error whose message the client gets.
//
// The text of any other error is logged and not sent. The client gets a 404 if it
// wraps [errors.ErrUnsupported], unless a system call has failed with that, a 504 if
// it wraps [context.DeadlineExceeded], and a 500 otherwise.
type Error struct {
	Status     int           // HTTP status from 400 to 599; any other value becomes 500
	Type       string        // as in the API's error object; derived from Status and Code if empty
	Code       string        // as in the API's error object; null if empty
	Param      string        // the path of the parameter at fault; null if empty
	Message    string        // for the client; http.StatusText of Status if empty
	RetryAfter time.Duration // how long the client should wait before it tries again; not sent if zero or negative
	NoRetry    bool          // tells clients that retry automatically not to; replies with status 401 and 501 always do
	Err        error         // the cause, which is logged and not sent; may be nil
}

// ErrNotSent is wrapped by the error of a Backend that has sent no part of the
// request to a model, for example because the client left before there was a
// connection. The request is then recorded without tokens. Without ErrNotSent, a
// request whose client leaves before there is a reply is charged for its prompt.
var ErrNotSent = errors.New("llmhttp: the request was not sent to a model")

// Errorf returns an Error with a formatted message. An error formatted with %w
// becomes part of the message and so is sent to the client: put causes in Err.
func Errorf(status int, code, format string, args ...any) *Error {
	e := &Error{Status: status, Code: code, Message: format}
	if len(args) > 0 {
		e.Message = fmt.Sprintf(format, args...)
	}
	return e
}

// ModelNotFound returns the error for a model that does not exist, or that the client may not use.
func ModelNotFound(model string) *Error {
	return Errorf(http.StatusNotFound, "model_not_found", "The model `%s` does not exist or you do not have access to it.", param.Echo(model))
}

// asError returns err, or the Error that a client gets for it if it is a *param.Error.
func asError(err error) error {
	if e, ok := errors.AsType[*param.Error](err); ok {
		return &Error{Status: e.Status, Code: e.Code, Param: e.Param, Message: e.Message}
	}
	return err
}

// WithParam returns a copy of e with another name for the parameter at fault, also where
// Message quotes it. It is for a Protocol whose parameters have other names than those of
// a [ChatRequest]: see [ChatRequest.Validate].
func (e *Error) WithParam(param string) *Error {
	renamed := *e
	renamed.Param = param
	if e.Param != "" {
		renamed.Message = strings.ReplaceAll(e.Message, "'"+e.Param+"'", "'"+param+"'")
	}
	return &renamed
}

// Error returns the status, code, message and cause of e, for logs.
func (e *Error) Error() string {
	if e == nil {
		return "<nil>"
	}
	s := strconv.Itoa(e.Status)
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
