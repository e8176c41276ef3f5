// Package retryheader tells clients whether and when they should repeat a request that has failed.
package retryheader

import (
	"net/http"
	"strconv"
	"time"

	"github.com/llmhttp/llmhttp/llm"
)

// Max is the longest RetryAfter of an error reply. If a client would have to wait longer, for example for
// more tokens than a bucket can hold, the error has NoRetry.
const Max = 366 * 24 * time.Hour

// Set sets the headers of a reply with e. never tells that no time makes the request succeed.
func Set(h http.Header, e *llm.Error, never bool) {
	if e.RetryAfter > 0 {
		wait := min(e.RetryAfter, Max)
		h.Set("Retry-After", strconv.FormatInt(int64((wait+time.Second-1)/time.Second), 10))
		h.Set("Retry-After-Ms", strconv.FormatInt(int64((wait+time.Millisecond-1)/time.Millisecond), 10))
	}
	if retry := shouldRetry(e, never); retry != "" {
		h.Set("X-Should-Retry", retry)
	}
}

// maxSDKWait is the longest RetryAfter that all official SDKs wait for. With a
// longer one, openai-node retries after its own backoff of at most 8 seconds.
const maxSDKWait = time.Minute

// shouldRetry returns the value of X-Should-Retry, which overrides what the
// official SDKs derive from the status, or "". The SDKs do not retry a 401. Claude Code
// does, ten times and without a message, unless the header forbids it; Anthropic's API
// sends it too.
func shouldRetry(e *llm.Error, never bool) string {
	switch {
	case never, e.NoRetry,
		e.Status == http.StatusUnauthorized,
		e.Status == http.StatusNotImplemented,
		e.RetryAfter > maxSDKWait:
		return "false"
	case e.Status == http.StatusTooManyRequests && e.RetryAfter > 0:
		return "true"
	}
	return ""
}
