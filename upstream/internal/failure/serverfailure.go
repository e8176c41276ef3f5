// What the client gets of an error that the server has sent.

package failure

import (
	"cmp"
	"errors"
	"net/http"
	"time"

	"github.com/llmhttp/llmhttp/internal/modelname"
	"github.com/llmhttp/llmhttp/llm"
)

const (
	maxMessage = 2 << 10 // the longest message of a server that is passed on, in bytes
	maxName    = 128     // the longest code, type or request ID
	maxParam   = 256     // the longest param
)

// serverFailure returns the error for a failure with the given status that the server
// reported as e. If logText is not empty, it is logged in place of the message of e.
func (c *Call) serverFailure(status int, e serverError, logText string) error {
	d := Details{
		Server: c.Server, Status: c.Response.StatusCode, RequestID: c.requestID(),
		Code: redactName(c.Redactor, oneLine(e.code, maxName)), Message: cmp.Or(logText, redactText(c.Redactor, e.message), "no message"),
	}
	clientStatus := e.clientStatus(status, c.Required)
	if clientStatus == http.StatusNotFound {
		return c.notFound(e, d)
	}
	header := c.Response.Header
	clientErr := &llm.Error{
		Status: clientStatus, RetryAfter: retryAfter(header, time.Now()), NoRetry: header.Get("X-Should-Retry") == "false",
	}
	switch clientStatus {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity, http.StatusTooManyRequests:
		if clientStatus != http.StatusTooManyRequests && e.isTooLong() {
			e.normalizeTooLong()
			clientErr.Status = http.StatusBadRequest
		}
		clientErr.Type = redactName(c.Redactor, oneLine(e.typ, maxName))
		clientErr.Param = redactName(c.Redactor, oneLine(e.param, maxParam))
		if !isNumber(e.code) { // clients look for words
			clientErr.Code = redactName(c.Redactor, oneLine(e.code, maxName))
		}
		clientErr.Message = modelname.Rename(redactText(c.Redactor, e.message), c.Model.Server, c.Model.Client)
		if clientErr.Message == "" && clientStatus == http.StatusTooManyRequests {
			clientErr.Message = messageRateLimit
		}
	default:
		clientErr.Message = hiddenMessage(clientStatus)
		if status == http.StatusNotFound {
			d.Message += ": " + hintBaseURL
		}
	}
	clientErr.Err = c.Wrap(d)
	return clientErr
}

// notFound returns the error for a failure of which the client gets the status 404.
func (c *Call) notFound(e serverError, d Details) error {
	if c.Model.Client == "" || !e.isAboutModel() {
		d.Cause = errors.ErrUnsupported
		return c.Wrap(d) // the Handler replies that there is no such endpoint
	}
	clientErr := llm.ModelNotFound(c.Model.Client)
	clientErr.Err = c.Wrap(d)
	return clientErr
}

// clientStatus returns the status that the client gets if the server reported e with
// the given status. required says that every server has the endpoint. It is 502 for errors that only the operator can correct.
func (e *serverError) clientStatus(status int, required bool) int {
	switch status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		switch {
		case e.code == codeModelNotFound:
			return http.StatusNotFound
		case e.isAboutKey(), e.isAboutAccount():
			return http.StatusBadGateway
		case *e == serverError{} && status != http.StatusRequestEntityTooLarge:
			return http.StatusBadGateway // probably from a proxy in front of the server
		}
		return status
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		switch {
		case !required || status == http.StatusNotFound && e.isAboutModel():
			return http.StatusNotFound
		case status == http.StatusNotFound && e.isAboutRequest():
			return http.StatusBadRequest
		}
	case http.StatusTooManyRequests:
		if e.isAboutAccount() {
			return http.StatusBadGateway
		}
		return status
	case http.StatusRequestTimeout, http.StatusGatewayTimeout, 522, 524: // the last two are Cloudflare's
		return http.StatusGatewayTimeout
	case http.StatusServiceUnavailable, 529: // Anthropic's
		return http.StatusServiceUnavailable
	}
	return http.StatusBadGateway
}

// hiddenMessage returns the message for a client that gets no details.
func hiddenMessage(status int) string {
	switch status {
	case http.StatusServiceUnavailable:
		return messageOverloaded
	case http.StatusGatewayTimeout:
		return messageTimeout
	}
	return messageFailed
}
