// Errors of this package, and messages that tell errors to clients.

package responsesws

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// An apiError is an error that this package makes, in the form of the API.
type apiError struct {
	status         int
	code           string
	message, param string
}

// MarshalJSON implements [json.Marshaler].
func (e *apiError) MarshalJSON() ([]byte, error) {
	typ := "invalid_request_error"
	switch {
	case e.status >= 500:
		typ = "server_error"
	case e.status == http.StatusTooManyRequests:
		typ = "rate_limit_error"
	}
	return json.Marshal(struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    *string `json:"code"`
	}{e.message, typ, orNil(e.param), orNil(e.code)})
}

func orNil(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func badRequest(code, param, format string, args ...any) *apiError {
	return &apiError{status: http.StatusBadRequest, code: code, param: param, message: fmt.Sprintf(format, args...)}
}

var (
	errDraining = &apiError{
		status: http.StatusServiceUnavailable, message: "The server is shutting down. Create a new WebSocket connection to continue.",
	}
	errTooOld = badRequest("websocket_connection_limit_reached", "",
		"This WebSocket has reached the maximum age of a connection. Create a new WebSocket connection to continue.")
	errTooMany = badRequest("websocket_connection_limit_reached", "",
		"This WebSocket has reached the maximum number of responses of a connection. Create a new WebSocket connection to continue.")
	errBrokenOff = &apiError{status: http.StatusInternalServerError, message: "The response has ended before it was complete."}
	errNoStream  = &apiError{status: http.StatusInternalServerError, message: "The server has replied without a response."}
)

// errorMessage returns the message for an error: a JSON object, and the headers of the reply that has it.
// Codex reads the headers beside the error, and SDKs those in it.
func errorMessage(status int, object json.RawMessage, header http.Header, streamID string) []byte {
	var m struct {
		Type     string            `json:"type"`
		Status   int               `json:"status"`
		StreamID string            `json:"stream_id,omitempty"`
		Error    json.RawMessage   `json:"error"`
		Headers  map[string]string `json:"headers,omitempty"`
	}
	m.Type, m.Status, m.StreamID, m.Error = "error", status, streamID, object
	for name, values := range header {
		if len(values) == 0 { // so that it is not sent
			continue
		}
		if name == "Retry-After" || strings.HasPrefix(name, "X-") && name != "X-Accel-Buffering" {
			if m.Headers == nil {
				m.Headers = make(map[string]string)
			}
			m.Headers[strings.ToLower(name)] = values[0]
		}
	}
	if inner := bytes.TrimSpace(object); len(m.Headers) > 0 && len(inner) > 2 {
		headers, _ := json.Marshal(m.Headers) // of texts only
		m.Error = fmt.Appendf(nil, `%s,"headers":%s}`, inner[:len(inner)-1], headers)
	}
	b, err := json.Marshal(m)
	if err != nil { // the object is none
		return errorMessage(status, mustMarshal(&apiError{status: status, message: http.StatusText(status)}), header, streamID)
	}
	return b
}

// errorOf returns the member error of the body of a reply, or an error with the text of its status.
func errorOf(status int, body []byte) json.RawMessage {
	var reply struct {
		Error json.RawMessage `json:"error"`
	}
	if json.Unmarshal(body, &reply) == nil && len(reply.Error) > 0 && reply.Error[0] == '{' {
		return reply.Error
	}
	return mustMarshal(&apiError{status: status, message: http.StatusText(status)})
}

func mustMarshal(e *apiError) json.RawMessage {
	b, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	return b
}
