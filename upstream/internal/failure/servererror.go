package failure

import (
	"cmp"
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A serverError is the content of an error that the server reported.
type serverError struct{ message, typ, param, code string }

const (
	codeModelNotFound = "model_not_found"
	codeQuota         = "insufficient_quota"
	codeInvalidKey    = "invalid_api_key"
)

// MaxBody is the largest body of an error that is parsed, in bytes. Some
// servers repeat the part of the request that is wrong.
const MaxBody = 1 << 20

// parseServerError parses the body of an error. Servers send {"error":{...}},
// {"error":"..."} or {"message":"..."}, each perhaps in an array, and
// {"detail":...}. The result is false if body is none of these.
func parseServerError(body []byte) (serverError, bool) {
	var v any
	if len(body) > MaxBody || json.Unmarshal(body, &v) != nil {
		return serverError{}, false
	}
	if list, ok := v.([]any); ok && len(list) > 0 {
		v = list[0]
	}
	object, _ := v.(map[string]any)
	switch inner := object["error"].(type) {
	case map[string]any:
		object = inner
	case string:
		if object["message"] == nil {
			object["message"] = inner
		}
	}
	e := serverError{
		message: cmp.Or(textOf(object["message"]), textOf(object["msg"])),
		typ:     textOf(object["type"]),
		param:   textOf(object["param"]),
		code:    textOf(object["code"]),
	}
	switch detail := object["detail"].(type) {
	case string:
		e.message = cmp.Or(e.message, detail)
	case []any:
		if len(detail) > 0 {
			e.addDetail(detail[0])
		}
	}
	return e, e != serverError{}
}

// addDetail sets the message and the param from a validation error of FastAPI:
// {"loc":["body","messages",0,"role"],"msg":"field required"}.
func (e *serverError) addDetail(detail any) {
	object, _ := detail.(map[string]any)
	e.message = cmp.Or(e.message, textOf(object["msg"]))
	path, _ := object["loc"].([]any)
	var b strings.Builder
	for i, step := range path {
		switch step := step.(type) {
		case string:
			if i == 0 && step == "body" {
				continue
			}
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			b.WriteString(step)
		case float64:
			b.WriteString("[" + textOf(step) + "]")
		}
	}
	e.param = cmp.Or(e.param, b.String())
}

// textOf returns a string or number as text, and "" for any other value.
func textOf(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return ""
}

// isNoError reports whether the value of a member "error" means success.
func isNoError(value []byte) bool {
	return slices.Contains([]string{"null", "false", `""`, "0"}, string(value))
}

// status returns the HTTP status that matches the code or type of e. It is used for
// errors in replies with the status 200.
func (e *serverError) status() int {
	if n, err := strconv.Atoi(e.code); err == nil && n >= 400 && n <= 599 {
		return n
	}
	for _, name := range []string{e.code, e.typ} {
		switch strings.ToLower(name) {
		case codeModelNotFound:
			return http.StatusNotFound
		case codeInvalidKey, "authentication_error", "permission_error":
			return http.StatusUnauthorized
		case codeQuota, "rate_limit_exceeded", "rate_limit_error", "ratelimiterror", "tokens", "requests":
			return http.StatusTooManyRequests
		case "overloaded", "overloaded_error", "service_unavailable", "unavailable_error":
			return http.StatusServiceUnavailable
		case "timeout", "timeout_error", "request_timeout":
			return http.StatusGatewayTimeout
		case "invalid_request_error", "badrequesterror", "bad_request", "context_length_exceeded",
			"content_filter", "content_policy_violation", "invalid_prompt":
			return http.StatusBadRequest
		}
	}
	return http.StatusInternalServerError
}

var (
	modelPattern      = regexp.MustCompile("(?i)(^|[\\s\"'`(])model\\b")
	invalidKeyPattern = regexp.MustCompile(
		`(?i)\bAPI key (is )?(not valid|invalid|expired|missing|required)|\b(invalid|incorrect|missing) API key`,
	)
)

// isAboutModel reports whether e, an error with the status 404, says that the
// model does not exist.
func (e *serverError) isAboutModel() bool {
	return e.code == codeModelNotFound || e.param == "model" || modelPattern.MatchString(e.message)
}

// isAboutRequest reports whether e, an error with the status 404, says that
// something in the request does not exist, such as a file, and not the URL.
func (e *serverError) isAboutRequest() bool {
	return e.typ == "invalid_request_error" && !strings.Contains(e.message, "URL")
}

// isAboutKey reports whether e says that the key of the Backend is not valid. Some
// servers send such an error with the status 400.
func (e *serverError) isAboutKey() bool {
	return e.code == codeInvalidKey || e.typ == "authentication_error" || invalidKeyPattern.MatchString(e.message)
}
