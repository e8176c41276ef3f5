// What the end of a try means for the request and for the target.

package route

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"syscall"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/unsupported"
	"github.com/llmhttp/llmhttp/llm"
)

// A result tells what the end of a try means for its call and for its target.
type result struct {
	err     error   // nil if the target answered
	outcome outcome // for the target's circuit breaker
	final   bool    // the call ends with err; otherwise another target is tried
	retry   bool    // the same target may be tried again in the next round

	rank       rank          // the rank of err; not used if final
	retryAfter time.Duration // for how long the target wants no requests
	summary    string        // describes a failure or a 429, for logs and Status; otherwise empty
}

// A rank orders the errors of a call: the client gets the one with the highest
// rank.
type rank int

const (
	rankUnsupported rank = iota + 1
	rankNotFound
	rankRefused // another target may answer what this one has refused
	rankFailure
	rankLimit
)

// Error codes that classify distinguishes from others with the same status.
const (
	codeQuota         = "insufficient_quota" // of a 429: waiting does not help
	codeModelNotFound = "model_not_found"    // of a 404
)

// classify returns the result of a try for which the target returned err.
func classify(err error) result {
	e, _ := errors.AsType[*llm.Error](err)
	if e == nil && unsupported.Is(err) {
		return result{err: err, rank: rankUnsupported}
	}
	if e == nil {
		e = &llm.Error{Status: http.StatusInternalServerError}
	}
	res := result{err: err, outcome: outcomeSuccess}
	switch status := statusOf(e); {
	case status == http.StatusTooManyRequests:
		res.rank, res.retry = rankLimit, e.Code != codeQuota
	case status == http.StatusRequestTimeout, status >= 500:
		res.rank, res.retry = rankFailure, status != http.StatusNotImplemented
		if !isRefusal(err) {
			res.outcome = outcomeFailure
		}
	case status == http.StatusNotFound && e.Code == codeModelNotFound:
		res.rank = rankNotFound
		return res
	default:
		res.final = true
		return res
	}
	res.retry = res.retry && !e.NoRetry
	res.retryAfter, res.summary = e.RetryAfter, summarize(err)
	return res
}

// isRefusal reports whether err is from a server that refused this request with a
// status of 4xx, according to upstream.Error. The server may answer other requests.
func isRefusal(err error) bool {
	switch status := upstreamStatus(err); status {
	case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusProxyAuthRequired, http.StatusRequestTimeout:
		return false // the cause is the operator's account or the server, not the request
	default:
		return status >= 400 && status < 500
	}
}

// statusOf returns the status with which a Handler would reply.
func statusOf(e *llm.Error) int {
	if e.Status < 400 || e.Status > 599 {
		return http.StatusInternalServerError
	}
	return e.Status
}

// codePattern matches the codes that summarize may log. Some servers send a text, which
// may contain secrets, in place of a code.
var codePattern = regexp.MustCompile(`^[a-z0-9_]{1,64}$`)

// summarize describes an error by its status, followed by its code or by the
// operating system's name of it. It leaves out the error's text, which may
// contain addresses and secrets.
func summarize(err error) string {
	s := "500"
	if e, _ := errors.AsType[*llm.Error](err); e != nil {
		s = strconv.Itoa(statusOf(e))
		if codePattern.MatchString(e.Code) {
			return s + " " + e.Code
		}
	} else if errors.Is(err, context.DeadlineExceeded) {
		s = "504"
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		s += " " + errno.Error() // such as "connection refused"
	}
	return s
}

// A targetError adds the name of the target to its error, for the log. Clients
// see only the message of an [llm.Error] that it wraps.
type targetError struct {
	target string
	err    error
}

func (e *targetError) Error() string { return fmt.Sprintf("route: target %q: %v", e.target, e.err) }

func (e *targetError) Unwrap() error { return e.err }

// errNoTarget is why there is no model if no target may serve a request.
var errNoTarget = errors.New("route: no target is allowed for the request")

// errCannotCount is the error of a token count if no target can count.
var errCannotCount = fmt.Errorf("route: no target counts tokens: %w", errors.ErrUnsupported)

func errUnsupported(op llmhttp.Operation) error {
	return fmt.Errorf("route: no target supports %s: %w", op, errors.ErrUnsupported)
}
