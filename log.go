// LogRequests, an Observer that logs a line for each request.

package llmhttp

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp/internal/forwarded"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/panics"
	"github.com/llmhttp/llmhttp/llm"
)

// LogRequests returns an Observer that logs a line for each request that has
// ended, with the message "request" at level Info: who sent it, what was asked
// for, the result, what it used, and durations in milliseconds. If l is nil, slog.Default() is used.
//
// client is the RemoteAddr of the request without its port; behind load balancers, [TrustProxies]
// sets it. What was used has the names of [Units], and cost is the total of the Cost of the
// [UsageRecord], a decimal number in a string, such as "0.0125". estimated and unpriced are true if
// the record says so. user is the end user as it is recorded. Attributes that do not apply, are
// not known or are zero are left out, so a request without a price has no cost.
//
// The lines contain no API keys, no messages, no replies, and no queries of URLs. Of a request that
// was refused they have the code and the param of the error, which names a part of the request, and
// the model that the client asked for if its key may not use it. They leave out the texts of errors
// caused by the client, for which [ErrorClass.IsClientError] returns true, because these can quote
// the request. If end users are personal data that the log should not have, let Options.User
// replace them, for example with [HashUser]. Handlers of l get the context of the request, for example to add the ID of a trace.
func LogRequests(l *slog.Logger) Observer {
	return func(ctx context.Context, r *http.Request) (context.Context, Observation) {
		return ctx, Observation{Ended: func(s *RequestSummary) {
			logger := cmp.Or(l, slog.Default())
			if logger.Enabled(ctx, slog.LevelInfo) {
				logger.LogAttrs(ctx, slog.LevelInfo, "request", s.logAttrs(requestFrom(ctx), r)...)
			}
		}}
	}
}

// logAttrs returns the attributes of the line for r. q may be nil.
func (s *RequestSummary) logAttrs(q *request, hr *http.Request) []slog.Attr {
	r := &s.Record
	path := hr.URL.Path
	// The path of a Pattern has no secret, and making a redactor costs as much as the rest of
	// the line (budget: examples/gateway 0.5 KB).
	if _, pattern, _ := strings.Cut(hr.Pattern, " "); q != nil && path != pattern {
		path = q.cred.redactor().text(path)
	}
	attrs := append(make([]slog.Attr, 0, 26),
		slog.String("request_id", r.RequestID), slog.String("client", forwarded.WithoutPort(hr.RemoteAddr)),
		slog.String("method", jsonwire.Clip(hr.Method, 16)), slog.String("path", jsonwire.Clip(path, 256)), slog.Int("status", s.Status))
	text := func(name, value string) {
		if value != "" {
			attrs = append(attrs, slog.String(name, value))
		}
	}
	number := func(name string, n int64) {
		if n != 0 {
			attrs = append(attrs, slog.Int64(name, n))
		}
	}
	duration := func(name string, d time.Duration) {
		if d != 0 {
			attrs = append(attrs, slog.Float64(name, float64(d.Microseconds())/1000))
		}
	}
	text("protocol", r.Protocol)
	text("scope", string(s.Scope))
	text("account", r.Account)
	text("key", r.KeyID)
	text("user", r.User)
	text("model", r.Model)
	text("requested_model", s.Requested)
	text("target", r.Target)
	number("tries", int64(len(s.Tries)))
	if s.Request != nil { // otherwise it is not known
		attrs = append(attrs, slog.Bool("streamed", s.Streamed))
	}
	for name, n := range r.Units.All() {
		number(name, *n)
	}
	if r.Estimated {
		attrs = append(attrs, slog.Bool("estimated", true))
	}
	if cost := r.Cost.Total(); cost != 0 {
		attrs = append(attrs, slog.String("cost", cost.String()))
	}
	if r.Unpriced {
		attrs = append(attrs, slog.Bool("unpriced", true))
	}
	duration("admitted_ms", s.Admitted)
	duration("first_token_ms", s.FirstToken)
	duration("duration_ms", s.Duration)
	text("error_class", string(s.ErrorClass))
	text("limit", s.Refused.Limit)
	if kind := s.Refused.Subject.Kind; kind != KindKey {
		text("limit_subject", kind)
	}
	if e, ok := errors.AsType[*llm.Error](s.Err); ok && e != nil {
		text("code", jsonwire.Clip(e.Code, 64))
		text("param", jsonwire.Clip(e.Param, 128))
	}
	if s.Err != nil && !s.ErrorClass.IsClientError() {
		attrs = append(attrs, slog.String("error", panics.Text(s.Err)))
	}
	if s.PriceErr != nil {
		attrs = append(attrs, slog.String("price_error", panics.Text(s.PriceErr)))
	}
	if s.RecordErr != nil {
		attrs = append(attrs, slog.String("record_error", panics.Text(s.RecordErr)))
	}
	if s.SaveErr != nil {
		attrs = append(attrs, slog.String("save_error", panics.Text(s.SaveErr)))
	}
	return attrs
}
