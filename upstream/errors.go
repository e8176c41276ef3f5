package upstream

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/pattern"
)

// An Error is what went wrong between a [Backend] and its server. It is the Err
// of the [llmhttp.Error] that tells the client less, and is meant for logs.
// Keys and addresses are taken out of all of it.
//
// [errors.Is] finds what it comes from, such as [context.DeadlineExceeded], and
// [errors.As] an error number of the system.
type Error struct {
	Upstream  string // Options.Name
	Status    int    // of the server's reply; 0 if there was none
	Code      string // of the server's error, if it told one
	Message   string // what went wrong; of the server's error, if it told one
	RequestID string // what the server calls the request, if it told

	cause error
}

// Error returns all of e in a line.
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
		fmt.Fprintf(&b, " (its request %s)", e.RequestID)
	}
	return b.String()
}

// Is reports whether e comes from target. There is no Unwrap: the texts of what
// it comes from may tell addresses.
func (e *Error) Is(target error) bool { return e.cause != nil && errors.Is(e.cause, target) }

// As finds the error number of the system that e comes from, for a
// [syscall.Errno]: its text tells no address.
func (e *Error) As(target any) bool {
	errno, ok := target.(*syscall.Errno)
	return ok && e.cause != nil && errors.As(e.cause, errno)
}

// What clients are told of what is the operator's.
const (
	messageFailed      = "The model's server had an error. Please try again."
	messageUnavailable = "The model's server could not be reached. Please try again."
	messageOverloaded  = "The model is overloaded. Please try again."
	messageTimeout     = "The model did not answer in time."
	messageRateLimit   = "Rate limit reached. Please try again later."
)

// messageFor returns what the client is told with a status of the operator's.
func messageFor(status int) string {
	switch status {
	case http.StatusServiceUnavailable:
		return messageOverloaded
	case http.StatusGatewayTimeout:
		return messageTimeout
	}
	return messageFailed
}

// longMessage is how long a server's message may be, in bytes.
const longMessage = 2 << 10

// failure returns an error that is the operator's: the client is told status
// and message, and text, with what it comes from, is logged.
func (c *call) failure(status int, message, text string, cause error) *llmhttp.Error {
	e := &Error{Upstream: c.b.opts.Name, cause: cause}
	if c.resp != nil {
		e.Status, e.RequestID = c.resp.StatusCode, c.requestID()
	}
	if cause != nil {
		text += ": " + transportText(cause)
	}
	e.Message = c.b.scrub.text(text, c.key)
	return &llmhttp.Error{Status: status, Message: message, Err: e}
}

// requestID returns what the server calls the request.
func (c *call) requestID() string {
	return c.b.scrub.text(oneLine(c.resp.Header.Get("X-Request-Id"), 128), c.key)
}

// broken returns the error of a call whose request or reply broke off with err.
func (c *call) broken(err error) error {
	if c.client.Err() != nil {
		return context.Cause(c.client)
	}
	switch {
	case context.Cause(c.ctx) == errSilent:
		e := c.failure(http.StatusGatewayTimeout, messageTimeout, errSilent.Error(), nil)
		e.Err.(*Error).cause = context.DeadlineExceeded
		return e
	case errors.Is(err, errTooLarge), errors.Is(err, errEventTooLarge):
		return c.failure(http.StatusBadGateway, messageFailed, err.Error(), nil)
	case c.resp == nil:
		return c.failure(http.StatusBadGateway, messageUnavailable, "no reply", err)
	}
	return c.failure(http.StatusBadGateway, messageFailed, "the reply broke off", err)
}

// malformed returns the error of a reply that cannot be decoded.
func (c *call) malformed(err error) error {
	if e, ok := errors.AsType[*llmhttp.Error](err); ok {
		return e
	}
	return c.failure(http.StatusBadGateway, messageFailed, "the reply is not as it should be: "+err.Error(), nil)
}

const (
	// errorSize is how large the body of an error may be. Some repeat what is
	// wrong with a request, which may be most of it.
	errorSize = 1 << 20

	// errorTimeout is how long that body may take, if SilenceTimeout is not
	// shorter: the status says most of it.
	errorTimeout = 5 * time.Second
)

const hintBaseURL = "is the base URL right?"

// refused returns the error that a reply with another status than 2xx is.
func (c *call) refused() error {
	status := c.resp.StatusCode
	switch {
	case status >= 300 && status < 400:
		return c.failure(http.StatusBadGateway, messageFailed, "a redirect, which is not followed: "+hintBaseURL, nil)
	case status < 400:
		return c.failure(http.StatusBadGateway, messageFailed, "a status that was not asked for", nil)
	}
	buf := getBuffer()
	defer putBuffer(buf)
	patience := errorTimeout
	if d := c.b.opts.SilenceTimeout; d > 0 {
		patience = min(patience, d)
	}
	timer := time.AfterFunc(patience, func() { c.cancel(errSilent) })
	defer timer.Stop()
	if err := c.readAll(buf, errorSize); err != nil && c.client.Err() != nil {
		return c.broken(err)
	}
	told, ok := readTold(buf.b)
	if !ok {
		media, _, _ := mime.ParseMediaType(c.resp.Header.Get("Content-Type"))
		if status == http.StatusUnprocessableEntity && media == "text/plain" && len(buf.b) > 0 {
			// What is in front of a server does not know of this status.
			return c.refusal(status, toldError{message: string(buf.b)}, "")
		}
		return c.refusal(status, toldError{}, fmt.Sprintf("%s, with %d bytes of %s", http.StatusText(status), len(buf.b), cmp.Or(media, "no type")))
	}
	return c.refusal(status, told, "")
}

// errorIn returns the error that the whole of a reply with a status of 2xx is,
// or nil if it is none.
func (c *call) errorIn(body []byte) error {
	body = bytes.TrimSpace(body)
	switch {
	case len(body) == 0:
		return c.failure(http.StatusBadGateway, messageFailed, "the reply is empty", nil)
	case body[0] == '<':
		return c.failure(http.StatusBadGateway, messageFailed, "the reply is a page of HTML: "+hintBaseURL, nil)
	}
	var space [64]byte
	head := space[:0]
	for _, char := range body[:min(len(body), len(space))] {
		if char > ' ' {
			head = append(head, char)
		}
	}
	rest, found := bytes.CutPrefix(head, []byte(`{"error":`))
	value, _, _ := bytes.Cut(rest, []byte{','})
	if slices.Contains(noErrors, string(value)) {
		// What has no reply beside it is an error all the same.
		found = !bytes.Contains(body, []byte(`"choices"`)) && !bytes.Contains(body, []byte(`"data"`))
	}
	if found || bytes.HasPrefix(head, []byte(`{"object":"error"`)) {
		if told, ok := readTold(body); ok {
			return c.refusal(told.status(), told, "")
		}
	}
	return nil
}

// reported returns the error that was found in a reply, as its text raw has it.
func (c *call) reported(raw []byte) error {
	told, ok := readTold(slices.Concat([]byte(`{"error":`), raw, []byte{'}'}))
	if !ok {
		return c.refusal(http.StatusInternalServerError, told, "an error that does not say what it is")
	}
	return c.refusal(told.status(), told, "")
}

// refusal returns the error for what a server told with a status. If it told
// nothing in a form that is known, text says what there was instead.
func (c *call) refusal(status int, told toldError, text string) error {
	clean := func(s string, n int) string { return c.b.scrub.text(oneLine(s, n), c.key) }
	name := func(s string, n int) string { return c.b.scrub.name(oneLine(s, n), c.key) }
	message := clean(told.message, longMessage)
	e := &Error{
		Upstream: c.b.opts.Name, Status: c.resp.StatusCode, RequestID: c.requestID(),
		Code: name(told.code, 128), Message: cmp.Or(text, message, "no message"),
	}
	out := &llmhttp.Error{Status: c.verdict(status, told), Err: e}
	switch out.Status {
	case http.StatusNotFound:
		if c.model.ours == "" || !told.isModel() {
			e.cause = errors.ErrUnsupported
			return e // for which the Handler has words of its own
		}
		out = llmhttp.ModelNotFound(c.model.ours)
		out.Err = e
		return out
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity, http.StatusTooManyRequests:
		out.Type, out.Code, out.Param = name(told.typ, 128), e.Code, name(told.param, 256)
		if out.Message = c.translate(message); out.Message == "" && out.Status == http.StatusTooManyRequests {
			out.Message = messageRateLimit
		}
	default:
		out.Message = messageFor(out.Status)
		if status == http.StatusNotFound {
			e.Message += ": " + hintBaseURL
		}
	}
	out.RetryAfter = retryAfter(c.resp.Header, time.Now())
	out.NoRetry = c.resp.Header.Get("X-Should-Retry") == "false"
	return out
}

// verdict returns the status that the client is told when the server told one.
func (c *call) verdict(status int, told toldError) int {
	switch status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		switch {
		case told.code == codeModel:
			return http.StatusNotFound
		case told.isCredentials():
			return http.StatusBadGateway
		case told == toldError{} && status != http.StatusRequestEntityTooLarge:
			return http.StatusBadGateway // a page, of something in front of the server
		}
		return status
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		switch {
		case c.optional || status == http.StatusNotFound && told.isModel():
			return http.StatusNotFound // other endpoints than that of chats need not be there
		case status == http.StatusNotFound && told.isOfRequest():
			return http.StatusBadRequest
		}
	case http.StatusTooManyRequests:
		if told.code == codeQuota || told.typ == codeQuota {
			return http.StatusBadGateway // it is the operator's account
		}
		return status
	case http.StatusRequestTimeout, http.StatusGatewayTimeout, 522, 524:
		return http.StatusGatewayTimeout
	case http.StatusServiceUnavailable, 529:
		return http.StatusServiceUnavailable
	}
	return http.StatusBadGateway
}

// translate puts the client's name of the model in the place of the server's.
func (c *call) translate(message string) string {
	return pattern.Rename(message, c.model.theirs, c.model.ours)
}

// longestWait bounds what a server says of when to try again.
const longestWait = 366 * 24 * time.Hour

// retryAfter returns how long a server says to wait, or 0 if it does not.
func retryAfter(h http.Header, now time.Time) time.Duration {
	number := func(name string, unit time.Duration) time.Duration {
		f, err := strconv.ParseFloat(strings.TrimSpace(h.Get(name)), 64)
		if err != nil || !(f > 0) || math.IsInf(f, 1) {
			return 0
		}
		return time.Duration(min(f*float64(unit), float64(longestWait)))
	}
	if d := cmp.Or(number("Retry-After-Ms", time.Millisecond), number("Retry-After", time.Second)); d > 0 {
		return d
	}
	at, err := http.ParseTime(h.Get("Retry-After"))
	if err != nil {
		return 0
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date // its clock may not be ours
	}
	return min(max(at.Sub(now), 0), longestWait)
}
