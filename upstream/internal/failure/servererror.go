// Reads the error that a server has sent, in the forms of several servers.

package failure

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/llmhttp/llmhttp/internal/contextlength"
)

// A serverError is the content of an error that the server reported.
type serverError struct {
	message, typ, param, code string

	status int                  // that the error has as one of its members, or stands for; zero if there is none
	length contextlength.Length // of a prompt that is too long, where members have it; zero if not
}

// textError returns an error whose body is a text.
func textError(text string) serverError { return serverError{message: oneLine(text, maxMessage)} }

const (
	codeModelNotFound = "model_not_found"
	codeQuota         = "insufficient_quota"
	codeInvalidKey    = "invalid_api_key"
)

// MaxBody is the largest body of an error that is parsed, in bytes. Some
// servers repeat the part of the request that is wrong.
const MaxBody = 1 << 20

// The members of an object with an error that are texts or numbers, by what servers call them. The first that is not
// empty counts.
var (
	messageMembers = []string{
		"message", "msg", // FastAPI has "msg" in a list
		"error_msg",       // Baidu
		"status_msg",      // MiniMax
		"detail", "error", // as texts: FastAPI, Ollama, TGI, xAI
	}
	typeMembers  = []string{"type", "error_type"} // TGI
	codeMembers  = []string{"code", "error_code", "status_code"}
	paramMembers = []string{"param"}
)

// objectMembers are the members that have an error as an object or a list of objects or texts, by what servers call
// them: OpenAI and most others, MiniMax, FastAPI, Cloudflare, and Mistral, which has that of FastAPI in "message".
var objectMembers = []string{"error", memberMiniMax, "detail", "errors", "message"}

// memberMiniMax is the member with MiniMax's errors. Replies that have succeeded have it too, with the code 0.
const memberMiniMax = "base_resp"

// maxNesting bounds how deep an error may be in its body.
const maxNesting = 8

// parseServerError parses the body of an error: {"error":{...}}, {"error":"..."}, {"message":"..."} and so on, each
// perhaps in an array. The result is false if body is none of these.
func parseServerError(body []byte) (serverError, bool) {
	var v any
	if len(body) > MaxBody || json.Unmarshal(body, &v) != nil {
		return serverError{}, false
	}
	var e serverError
	e.add(v, 0)
	e.message = oneLine(e.message, maxMessage)
	return e, e != serverError{}
}

// add adds what v has: an object, a text or a list, of which the first element counts unless all are texts.
func (e *serverError) add(v any, depth int) {
	if depth > maxNesting {
		return
	}
	switch v := v.(type) {
	case string:
		e.message = cmp.Or(e.message, v)
	case []any:
		var texts []string
		for _, element := range v {
			if text, ok := element.(string); ok {
				texts = append(texts, text)
			}
		}
		switch {
		case len(v) == 0:
		case len(texts) == len(v):
			e.message = cmp.Or(e.message, strings.Join(texts, "; "))
		default:
			e.add(v[0], depth+1)
		}
	case map[string]any:
		e.addObject(v, depth)
	}
}

// addObject adds what an object has. What an inner object has counts more.
func (e *serverError) addObject(object map[string]any, depth int) {
	for _, name := range objectMembers {
		switch inner := object[name].(type) {
		case []any:
			e.add(inner, depth+1)
		case map[string]any:
			if name == memberMiniMax && textOf(inner["status_code"]) == "0" {
				continue
			}
			e.add(inner, depth+1)
			switch {
			case name == memberMiniMax:
				e.status = miniMaxStatuses[e.code]
			case name == "error" && *e != (serverError{}):
				return // the members around it are others
			}
		}
	}
	e.message = cmp.Or(e.message, firstText(object, messageMembers))
	e.code = cmp.Or(e.code, firstText(object, codeMembers))
	if path, ok := object["loc"].([]any); ok { // FastAPI, whose types are those of a validator
		e.param = cmp.Or(e.param, paramOf(path))
	} else {
		e.typ = cmp.Or(e.typ, firstText(object, typeMembers))
	}
	e.param = cmp.Or(e.param, firstText(object, paramMembers))
	e.addForwarded(object)
	tokens, _ := object["n_prompt_tokens"].(float64) // llama.cpp
	most, _ := object["n_ctx"].(float64)
	if tokens > most && most >= 1 && tokens < 1e15 {
		e.length = contextlength.Length{Tokens: int(tokens), Max: int(most)}
	}
}

// addForwarded adds the error of another server that this one has forwarded, as OpenRouter does:
// {"message":"Provider returned error","metadata":{"raw":"{\"error\":{...}}"}}.
func (e *serverError) addForwarded(object map[string]any) {
	metadata, _ := object["metadata"].(map[string]any)
	raw, _ := metadata["raw"].(string)
	if raw == "" || raw[0] == '<' {
		return
	}
	inner, ok := parseServerError([]byte(raw))
	if !ok {
		inner = textError(raw)
	}
	e.message = strings.TrimPrefix(e.message+": "+inner.message, ": ")
	e.param = cmp.Or(e.param, inner.param)
	if isNumber(e.code) && inner.code != "" {
		e.code = inner.code
	}
}

// firstText returns the first of the members that is a text or a number and not empty.
func firstText(object map[string]any, members []string) string {
	for _, name := range members {
		if text := textOf(object[name]); text != "" {
			return text
		}
	}
	return ""
}

// paramOf returns the path of a validation error of FastAPI, such as ["body","messages",0,"role"], as a param.
func paramOf(path []any) string {
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
	return b.String()
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

// isFailure reports whether body, the JSON of a reply with the status 200 or of an event, is an error and not a part
// of a reply that has no result yet.
func isFailure(body []byte) bool {
	var v any
	if len(body) > MaxBody || json.Unmarshal(body, &v) != nil {
		return false
	}
	object, ok := v.(map[string]any)
	if !ok {
		return false
	}
	if object["object"] == "error" || object["type"] == "error" {
		return true
	}
	if _, isChunk := object["choices"].([]any); isChunk {
		return false
	}
	var e serverError
	e.add(v, 0)
	return e.message != ""
}

// isNoError reports whether the value of a member "error" means success.
func isNoError(value []byte) bool {
	return slices.Contains([]string{"null", "false", `""`, "0"}, string(value))
}

// statuses are the HTTP statuses of errors by their codes and types, in lower case.
var statuses = map[string]int{
	codeModelNotFound: http.StatusNotFound,

	codeInvalidKey: http.StatusUnauthorized, "authentication_error": http.StatusUnauthorized, "permission_error": http.StatusUnauthorized,

	codeQuota: http.StatusTooManyRequests, "rate_limit_exceeded": http.StatusTooManyRequests, "rate_limit_error": http.StatusTooManyRequests,
	"ratelimiterror": http.StatusTooManyRequests, "tokens": http.StatusTooManyRequests, "requests": http.StatusTooManyRequests,

	"overloaded": http.StatusServiceUnavailable, "overloaded_error": http.StatusServiceUnavailable,
	"service_unavailable": http.StatusServiceUnavailable, "unavailable_error": http.StatusServiceUnavailable,

	"billing_error": http.StatusPaymentRequired, "not_found_error": http.StatusNotFound, "request_too_large": http.StatusRequestEntityTooLarge,

	"timeout": http.StatusGatewayTimeout, "timeout_error": http.StatusGatewayTimeout, "request_timeout": http.StatusGatewayTimeout,

	"invalid_request_error": http.StatusBadRequest, "badrequesterror": http.StatusBadRequest, "bad_request": http.StatusBadRequest,
	"validation": http.StatusBadRequest, "content_filter": http.StatusBadRequest, "content_policy_violation": http.StatusBadRequest,
	"invalid_prompt": http.StatusBadRequest,
}

// miniMaxStatuses are the HTTP statuses of the codes of MiniMax, which reports errors with the status 200
// (https://platform.minimax.io/docs/api-reference/errorcode).
var miniMaxStatuses = map[string]int{
	"1001": http.StatusGatewayTimeout, "1002": http.StatusTooManyRequests, "1004": http.StatusUnauthorized, "1008": http.StatusPaymentRequired,
	"1026": http.StatusBadRequest, "1027": http.StatusBadRequest, "1039": http.StatusTooManyRequests, "1042": http.StatusBadRequest,
	"2013": http.StatusBadRequest, "2049": http.StatusUnauthorized, "2056": http.StatusPaymentRequired,
}

// impliedStatus returns the HTTP status that matches e. It is used for errors in replies with the status 200.
func (e *serverError) impliedStatus() int {
	switch {
	case e.isTooLong():
		return http.StatusBadRequest
	case e.status != 0:
		return e.status
	}
	if n, err := strconv.Atoi(e.code); err == nil && n >= 400 && n <= 599 {
		return n
	}
	for _, name := range []string{e.code, e.typ} {
		if status := statuses[strings.ToLower(name)]; status != 0 {
			return status
		}
	}
	return http.StatusInternalServerError
}

// isTooLong reports whether e says that the prompt is too long.
func (e *serverError) isTooLong() bool {
	_, ok := contextlength.Find(e.code, e.typ, e.message)
	return ok
}

// normalizeTooLong gives an error that says that the prompt is too long OpenAI's code for it, and a message with both
// numbers where they are known.
func (e *serverError) normalizeTooLong() {
	if l, _ := contextlength.Find(e.code, e.typ, e.message); l == (contextlength.Length{}) && e.length != l {
		e.message = strings.TrimSpace(fmt.Sprintf("%s (prompt is too long: %d tokens > %d maximum)", e.message, e.length.Tokens, e.length.Max))
	}
	e.code = contextlength.Code
}

// isNumber reports whether a code is a number and no word, such as 400 or 3051.
func isNumber(code string) bool {
	return code != "" && strings.Trim(code, "0123456789") == ""
}

// billingPattern matches Anthropic's error with the status 400 for an account without credit: "Your credit balance is too
// low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits." DeepSeek's is "Insufficient
// Balance".
var billingPattern = regexp.MustCompile(`(?i)\bcredit balance is too low\b|^insufficient balance`)

// isAboutAccount reports whether e says that the account of the operator is used up.
func (e *serverError) isAboutAccount() bool {
	return e.code == codeQuota || e.typ == codeQuota || e.typ == "billing_error" || billingPattern.MatchString(e.message)
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
