package failure

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	at := func(t time.Time) string { return t.Format(http.TimeFormat) }
	for name, test := range map[string]struct {
		header http.Header
		want   time.Duration
	}{
		"none":                  {http.Header{}, 0},
		"seconds":               {http.Header{"Retry-After": {"7"}}, 7 * time.Second},
		"fraction of a second":  {http.Header{"Retry-After": {"0.25"}}, 250 * time.Millisecond},
		"milliseconds":          {http.Header{"Retry-After-Ms": {"125.0"}, "Retry-After": {"7"}}, 125 * time.Millisecond},
		"invalid milliseconds":  {http.Header{"Retry-After-Ms": {"soon"}, "Retry-After": {"7"}}, 7 * time.Second},
		"zero":                  {http.Header{"Retry-After": {"0"}}, 0},
		"negative":              {http.Header{"Retry-After": {"-7"}}, 0},
		"text":                  {http.Header{"Retry-After": {"soon"}}, 0},
		"not a number":          {http.Header{"Retry-After": {"NaN"}}, 0},
		"infinite":              {http.Header{"Retry-After": {"Infinity"}}, 0},
		"overflow":              {http.Header{"Retry-After": {"1e999"}}, 0},
		"very long":             {http.Header{"Retry-After": {"1e300"}}, maxRetryAfter},
		"date":                  {http.Header{"Retry-After": {at(now.Add(time.Hour))}}, time.Hour},
		"date of another clock": {http.Header{"Date": {at(now.AddDate(-20, 0, 0))}, "Retry-After": {at(now.AddDate(-20, 0, 0).Add(time.Minute))}}, time.Minute},
		"date in the past":      {http.Header{"Retry-After": {at(now.Add(-time.Hour))}}, 0},
		"date years ahead":      {http.Header{"Retry-After": {at(now.AddDate(9, 0, 0))}}, maxRetryAfter},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, test.want, retryAfter(test.header, now)) })
	}
}
