package upstream

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/modelname"
)

const (
	maxMessage = 2 << 10 // the longest message of a server that is passed on, in bytes
	maxName    = 128     // the longest code, type or request ID
	maxParam   = 256     // the longest param
)

// reportedError returns the error that a reply with the status 2xx, or a chunk of one,
// reports in its body, or nil. member is the member "error" of the body, nil if
// there is none; hasResult says whether the body has a result as well.
func (c *call) reportedError(body []byte, member json.RawMessage, hasResult bool) error {
	isError := member != nil && !isNoError(member)
	if !isError && (hasResult || member == nil && !isErrorObject(body)) {
		return nil
	}
	e, ok := parseServerError(body)
	if !ok {
		return c.serverFailure(http.StatusInternalServerError, e, "an error without a message")
	}
	return c.serverFailure(e.status(), e, "")
}

// isErrorObject reports whether body is {"object":"error",...}, as vLLM sends it.
func isErrorObject(body []byte) bool {
	var v struct {
		Object string `json:"object"`
	}
	return len(body) <= maxErrorBody && json.Unmarshal(body, &v) == nil && v.Object == "error"
}

// serverFailure returns the error for a failure with the given status that the
// server reported as e. If text is not empty, it is logged in place of the
// message of e.
func (c *call) serverFailure(status int, e serverError, text string) error {
	message := redactText(c.redactor, oneLine(e.message, maxMessage))
	cause := &Error{
		Upstream: c.b.opts.Name, Status: c.resp.StatusCode, RequestID: c.requestID(),
		Code: redactName(c.redactor, oneLine(e.code, maxName)), Message: cmp.Or(text, message, "no message"),
	}
	out := &llmhttp.Error{Status: c.endpoint.clientStatus(status, e), Err: cause}
	switch out.Status {
	case http.StatusNotFound:
		if c.model.client == "" || !e.isAboutModel() {
			cause.cause = errors.ErrUnsupported
			return cause // the Handler replies that there is no such endpoint
		}
		out = llmhttp.ModelNotFound(c.model.client)
		out.Err = cause
		return out
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity, http.StatusTooManyRequests:
		out.Type, out.Code = redactName(c.redactor, oneLine(e.typ, maxName)), cause.Code
		out.Param = redactName(c.redactor, oneLine(e.param, maxParam))
		out.Message = modelname.Rename(message, c.model.server, c.model.client)
		if out.Message == "" && out.Status == http.StatusTooManyRequests {
			out.Message = messageRateLimit
		}
	default:
		out.Message = hiddenMessage(out.Status)
		if status == http.StatusNotFound {
			cause.Message += ": " + hintBaseURL
		}
	}
	out.RetryAfter = retryAfter(c.resp.Header, time.Now())
	out.NoRetry = c.resp.Header.Get("X-Should-Retry") == "false"
	return out
}

// clientStatus returns the status that the client gets if the server reported e with
// the given status. It is 502 for errors that only the operator can correct.
func (ep endpoint) clientStatus(status int, e serverError) int {
	switch status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		switch {
		case e.code == codeModelNotFound:
			return http.StatusNotFound
		case e.isAboutKey():
			return http.StatusBadGateway
		case e == serverError{} && status != http.StatusRequestEntityTooLarge:
			return http.StatusBadGateway // probably from a proxy in front of the server
		}
		return status
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		switch {
		case !ep.required || status == http.StatusNotFound && e.isAboutModel():
			return http.StatusNotFound
		case status == http.StatusNotFound && e.isAboutRequest():
			return http.StatusBadRequest
		}
	case http.StatusTooManyRequests:
		if e.code == codeQuota || e.typ == codeQuota {
			return http.StatusBadGateway // the account of the operator is used up
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
