package upstream

import (
	"cmp"
	"encoding/json"
	"net/http"
	"regexp"
	"strconv"
	"strings"
)

// A toldError is an error as a server told it.
type toldError struct{ message, typ, param, code string }

const (
	codeModel = "model_not_found"
	codeQuota = "insufficient_quota"
	codeKey   = "invalid_api_key"
)

// noErrors are the values of an error that is none, in a reply that is one.
var noErrors = []string{"null", "false", `""`, "0"}

// readTold reads the body of an error, in any of the forms that servers of the
// API have: {"error":{...}}, {"error":"..."}, {"message":"..."}, each perhaps
// in an array, and {"detail":...}. It reports whether it was one.
func readTold(body []byte) (toldError, bool) {
	var v any
	if json.Unmarshal(body, &v) != nil {
		return toldError{}, false
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
	t := toldError{
		message: cmp.Or(textOf(object["message"]), textOf(object["msg"])),
		typ:     textOf(object["type"]),
		param:   textOf(object["param"]),
		code:    textOf(object["code"]),
	}
	switch detail := object["detail"].(type) {
	case string:
		t.message = cmp.Or(t.message, detail)
	case []any:
		if len(detail) > 0 {
			t.readDetail(detail[0])
		}
	}
	return t, t != toldError{}
}

// readDetail reads the first of the faults that FastAPI found with a request.
func (t *toldError) readDetail(fault any) {
	object, _ := fault.(map[string]any)
	t.message = cmp.Or(t.message, textOf(object["msg"]))
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
	t.param = cmp.Or(t.param, b.String())
}

// textOf returns a string or an integer as text, and "" for anything else.
func textOf(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return ""
}

// isOfRequest reports whether a 404 is about what a request asks for, such as a
// file, and not about its URL.
func (t *toldError) isOfRequest() bool {
	return t.typ == "invalid_request_error" && !strings.Contains(t.message, "URL")
}

// status returns the HTTP status that t is one of, where it came with another.
func (t *toldError) status() int {
	if n, err := strconv.Atoi(t.code); err == nil && n >= 400 && n <= 599 {
		return n
	}
	for _, name := range []string{t.code, t.typ} {
		switch strings.ToLower(name) {
		case codeModel:
			return http.StatusNotFound
		case codeKey, "authentication_error", "permission_error":
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

// These tell what a message is about that has no code to tell it.
var (
	modelPattern = regexp.MustCompile("(?i)(^|[\\s\"'`(])model\\b")
	keyIsPattern = regexp.MustCompile(`(?i)\bAPI key (is )?(not valid|invalid|expired|missing|required)|\b(invalid|incorrect|missing) API key`)
)

// isModel reports whether t, which says that something was not found, says so
// of a model.
func (t *toldError) isModel() bool {
	return t.code == codeModel || t.param == "model" || modelPattern.MatchString(t.message)
}

// isCredentials reports whether t says that the key is not right, which some
// servers do with the status of a bad request.
func (t *toldError) isCredentials() bool {
	return t.code == codeKey || t.typ == "authentication_error" || keyIsPattern.MatchString(t.message)
}
