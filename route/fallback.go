// What the host decides about the error of a try.

package route

import (
	"errors"
	"net/http"

	"github.com/llmhttp/llmhttp/internal/contextlength"
	"github.com/llmhttp/llmhttp/llm"
)

// A Decision says what follows from the error of a try. See [Options].Fallback. The zero
// Decision leaves everything as it is without one.
type Decision struct {
	// TryNext tells whether another target is tried. Yes has no effect if the reply has
	// begun. No ends the request with the error.
	TryNext Choice

	// Failed tells whether the try counts as a failure of the target. Failures open its
	// circuit breaker. After No, the error neither counts nor lets the target rest for the
	// time of its RetryAfter, and the Router does not log it.
	Failed Choice

	// Err takes the place of the error if it is the one that the client gets. It should wrap
	// the error of the try, as Err of an [llm.Error], so that it is logged. Nil
	// keeps the error of the try.
	Err error
}

// A Choice is yes, no, or what a [Router] does by itself. The zero Choice is the last.
type Choice int

const (
	Yes Choice = iota + 1
	No
)

// apply changes the result of a try that has failed as d says.
func (d Decision) apply(res *result) {
	switch {
	case d.TryNext == No:
		res.final = true
	case d.TryNext == Yes && res.final:
		res.final, res.rank = false, rankRefused
	}
	switch d.Failed {
	case Yes:
		res.outcome, res.summary = outcomeFailure, summarize(res.err)
	case No:
		if res.outcome == outcomeFailure {
			res.outcome = outcomeNone
		}
		res.retryAfter, res.summary = 0, ""
	}
	if d.Err != nil {
		res.err = d.Err
	}
}

// IsContextLength reports whether err says that the prompt, or the prompt with the tokens that
// it asks for, is longer than the model's context. It knows the code "context_length_exceeded", and the
// codes, types and texts of the servers to which package upstream gives that code.
func IsContextLength(err error) bool {
	e, _ := errors.AsType[*llm.Error](err)
	if e == nil {
		return false
	}
	switch e.Status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		_, ok := contextlength.Find(e.Code, e.Type, e.Message)
		return ok
	}
	return false
}

// IsContentFilter reports whether err says that the prompt was refused for its content, by the
// code "content_filter" or "content_policy_violation". A reply that was cut for its content is
// no error.
func IsContentFilter(err error) bool {
	e, _ := errors.AsType[*llm.Error](err)
	return e != nil && (e.Code == "content_filter" || e.Code == "content_policy_violation")
}

// IsKeyRefused reports whether err says that a server has refused the key with which package
// upstream has sent the request: with status 401, 402 or 403. If the key is the client's own,
// the target has not failed.
func IsKeyRefused(err error) bool {
	switch upstreamStatus(err) {
	case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden:
		return true
	}
	return false
}

// upstreamStatus returns the status with which a server has replied, according to upstream.Error.
// It is 0 if there was no reply or err is not from package upstream.
func upstreamStatus(err error) int {
	e, ok := errors.AsType[interface {
		error
		UpstreamStatus() int
	}](err)
	if !ok {
		return 0
	}
	return e.UpstreamStatus()
}
