// Errors in the form of this API. chatError gives those of ChatRequest.Validate the names of the API:
// a check of the package's own is only for what chat completions do not have.

package messages

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/llmhttp/llmhttp/internal/contextlength"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/llm"
)

// statusOverloaded is the status of an overloaded_error.
const statusOverloaded = 529

// AppendError appends an error object.
func (*protocol) AppendError(b []byte, e *llm.Error, requestID string) (body []byte, status int) {
	status = e.Status
	if status == http.StatusServiceUnavailable {
		status = statusOverloaded
	}
	b = appendErrorObject(b, e, status)
	b = append(b, `,"request_id":`...)
	b = jsonwire.AppendString(b, requestID)
	return append(b, '}'), status
}

// appendErrorObject appends an error object without its last brace.
func appendErrorObject(b []byte, e *llm.Error, status int) []byte {
	b = append(b, `{"type":"error","error":{"type":`...)
	b = jsonwire.AppendString(b, errorType(status))
	b = append(b, `,"message":`...)
	b = jsonwire.AppendString(b, errorMessage(e))
	if e.Code == codeNoThreads {
		b = append(b, `,"details":{"error_code":"`+codeNoThreads+`"}`...)
	}
	return append(b, '}')
}

func errorType(status int) string {
	switch status {
	case http.StatusUnauthorized:
		return "authentication_error"
	case http.StatusPaymentRequired:
		return "billing_error"
	case http.StatusForbidden:
		return "permission_error"
	case http.StatusNotFound:
		return "not_found_error"
	case http.StatusConflict:
		return "conflict_error"
	case http.StatusRequestEntityTooLarge:
		return "request_too_large"
	case http.StatusTooManyRequests:
		return "rate_limit_error"
	case http.StatusServiceUnavailable, statusOverloaded:
		return "overloaded_error"
	case http.StatusGatewayTimeout:
		return "timeout_error"
	}
	if status < 500 {
		return "invalid_request_error"
	}
	return "api_error"
}

// errorMessage returns the message of e. For a prompt that is too long, it has the
// wording by which Claude Code recognises this error.
func errorMessage(e *llm.Error) string {
	if e.Code != contextlength.Code {
		return e.Message
	}
	const tooLong = "prompt is too long"
	if l, _ := contextlength.Find(e.Code, e.Type, e.Message); l.Max > 0 {
		return fmt.Sprintf("%s: %d tokens > %d maximum", tooLong, l.Tokens, l.Max)
	}
	if n := len(tooLong); len(e.Message) >= n && strings.EqualFold(e.Message[:n], tooLong) {
		return tooLong + e.Message[n:]
	}
	return tooLong + ": " + e.Message
}

// A requestError says what is wrong with a request.
type requestError struct {
	path    string // path of the wrong value, such as "messages.2.content.0.type"; empty for the whole body
	message string
	code    string // for logs: that of chat completions for this mistake; may be empty
}

func fieldError(path, format string, args ...any) *requestError {
	return &requestError{path: path, message: fmt.Sprintf(format, args...)}
}

func missingField(path string) *requestError {
	return fieldError(path, "Field required").withCode("missing_required_parameter")
}

func (e *requestError) withCode(code string) *requestError {
	e.code = code
	return e
}

func (e *requestError) Error() string {
	if e.path == "" {
		return e.message
	}
	return e.path + ": " + e.message
}

func (e *requestError) forClient() *llm.Error {
	return &llm.Error{Status: http.StatusBadRequest, Code: e.code, Param: e.path, Message: e.Error()}
}

// chatError returns the requestError for an error of ChatRequest.Validate. What only Validate
// checks has the same name in this API. Indices are left out, because a message of chat
// completions is not a turn of this API.
func chatError(err error) error {
	e, ok := errors.AsType[*llm.Error](err)
	if !ok {
		return err
	}
	param, _, _ := strings.Cut(e.Param, "[")
	message := strings.TrimPrefix(e.WithParam(param).Message, "Invalid '"+param+"': ")
	return &requestError{path: param, message: message, code: e.Code}
}

// prefixPath returns err, which is about a part of a value, with the path of that value
// before its own path. The elements of path are names and indices. Other errors, and nil,
// are returned unchanged.
func prefixPath(err error, path ...any) error {
	e, ok := errors.AsType[*requestError](err)
	if !ok {
		return err
	}
	var steps []string
	for _, step := range path {
		steps = append(steps, fmt.Sprint(step))
	}
	if e.path != "" {
		steps = append(steps, e.path)
	}
	return &requestError{strings.Join(steps, "."), e.message, e.code}
}
