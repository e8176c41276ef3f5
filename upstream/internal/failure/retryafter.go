// How long a server asks clients to wait.

package failure

import (
	"cmp"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxRetryAfter is the longest time that a server can ask clients to wait.
const maxRetryAfter = 366 * 24 * time.Hour

// retryAfter returns how long the header of a reply asks clients to wait, or 0.
func retryAfter(h http.Header, now time.Time) time.Duration {
	number := func(name string, unit time.Duration) time.Duration {
		f, err := strconv.ParseFloat(strings.TrimSpace(h.Get(name)), 64)
		if err != nil || !(f > 0) || math.IsInf(f, 1) {
			return 0
		}
		return time.Duration(min(f*float64(unit), float64(maxRetryAfter)))
	}
	if d := cmp.Or(number("Retry-After-Ms", time.Millisecond), number("Retry-After", time.Second)); d > 0 {
		return d
	}
	at, err := http.ParseTime(h.Get("Retry-After"))
	if err != nil {
		return 0
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date // the clock of the server may differ
	}
	return min(max(at.Sub(now), 0), maxRetryAfter)
}
