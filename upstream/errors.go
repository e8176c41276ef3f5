// Error, which logs get and clients do not.

package upstream

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/upstream/internal/failure"
)

// An Error is a failure of a request to the server of a [Backend], with the
// details that are for logs and not for clients. It is the Err of the
// [llm.Error] that the Backend returns. Keys and the address of the server
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

func newError(d failure.Details) error {
	return &Error{
		Upstream: d.Server, Status: d.Status, Code: d.Code, Message: d.Message, RequestID: d.RequestID, cause: d.Cause, notSent: d.NotSent,
	}
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

// Is reports whether target is a cause of e. [llm.ErrNotSent] is one if the
// server has certainly not seen the request.
func (e *Error) Is(target error) bool {
	return target == llm.ErrNotSent && e.notSent || e.cause != nil && errors.Is(e.cause, target)
}

// As sets target to the [syscall.Errno] that caused e, if target is of that type and there is one.
func (e *Error) As(target any) bool {
	errno, ok := target.(*syscall.Errno)
	return ok && e.cause != nil && errors.As(e.cause, errno)
}
