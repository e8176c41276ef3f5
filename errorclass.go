package llmhttp

import "net/http"

// An ErrorClass tells in one word why a request failed. There are few, so they
// can be the label of a metric. See [RequestSummary].
type ErrorClass string

// The classes of errors.
const (
	ClassInvalidRequest ErrorClass = "invalid_request" // a status of 4xx that is not one of the next four
	ClassAuthentication ErrorClass = "authentication"  // 401
	ClassPermission     ErrorClass = "permission"      // 403
	ClassNotFound       ErrorClass = "not_found"       // 404 and 405: an unknown model or URL
	ClassRateLimit      ErrorClass = "rate_limit"      // 429: a limit of the key, or one of the Backend
	ClassCanceled       ErrorClass = "canceled"        // the client left
	ClassTimeout        ErrorClass = "timeout"         // 504: the Backend was silent, or a deadline passed
	ClassShutdown       ErrorClass = "shutdown"        // Shutdown refused or interrupted the request
	ClassKeyStore       ErrorClass = "key_store"       // the KeyStore failed
	ClassLimiter        ErrorClass = "limiter"         // the Limiter failed
	ClassUsageStore     ErrorClass = "usage_store"     // the query of the UsageStore failed
	ClassBackend        ErrorClass = "backend"         // the Backend failed, or what it returned is invalid
	ClassInternal       ErrorClass = "internal"        // any other failure of the server
)

// IsClientError reports whether the client caused the error. The text of such an
// error may quote the request.
func (c ErrorClass) IsClientError() bool {
	switch c {
	case ClassInvalidRequest, ClassAuthentication, ClassPermission, ClassNotFound, ClassRateLimit:
		return true
	}
	return false
}

// classifyStatus returns the class of an error with a status from 400 to 599.
// The class of a 5xx other than 504 is failing.
func classifyStatus(status int, failing ErrorClass) ErrorClass {
	switch status {
	case http.StatusUnauthorized:
		return ClassAuthentication
	case http.StatusForbidden:
		return ClassPermission
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return ClassNotFound
	case http.StatusTooManyRequests:
		return ClassRateLimit
	case http.StatusGatewayTimeout:
		return ClassTimeout
	}
	if status < http.StatusInternalServerError {
		return ClassInvalidRequest
	}
	return failing
}
