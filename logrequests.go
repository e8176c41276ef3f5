package llmhttp

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
)

// LogRequests returns an Observer that logs a line for each request that has
// ended, with the message "request" at level Info: who sent it, what was asked
// for, the result, and durations in milliseconds. Attributes that do not apply are
// left out. If l is nil, slog.Default() is used.
//
// The lines contain no API keys, no messages, no replies, and no queries of URLs.
// They do not contain the errors that [ErrorClass.IsClientError] reports, which
// can quote the request. Handlers of l get the context of the request, for example
// to add the ID of a trace.
func LogRequests(l *slog.Logger) Observer {
	return func(ctx context.Context, r *http.Request) (context.Context, Observation) {
		return ctx, Observation{Ended: func(s *RequestSummary) {
			logger := l
			if logger == nil {
				logger = slog.Default()
			}
			if logger.Enabled(ctx, slog.LevelInfo) {
				logger.LogAttrs(ctx, slog.LevelInfo, "request", s.logAttrs(requestFrom(ctx), r)...)
			}
		}}
	}
}

// logAttrs returns the attributes of the line for r. q may be nil.
func (s *RequestSummary) logAttrs(q *request, r *http.Request) []slog.Attr {
	path := r.URL.Path
	if q != nil {
		path = q.cred.redactor().text(path)
	}
	attrs := append(make([]slog.Attr, 0, 24),
		slog.String("request_id", s.ID), slog.String("client", clientAddress(r)),
		slog.String("method", jsonwire.Clip(r.Method, 16)), slog.String("path", jsonwire.Clip(path, 256)), slog.Int("status", s.Status))
	text := func(name, value string) {
		if value != "" {
			attrs = append(attrs, slog.String(name, value))
		}
	}
	number := func(name string, n int) {
		if n != 0 {
			attrs = append(attrs, slog.Int(name, n))
		}
	}
	duration := func(name string, d time.Duration) {
		if d != 0 {
			attrs = append(attrs, slog.Float64(name, float64(d.Microseconds())/1000))
		}
	}
	text("protocol", s.Protocol)
	text("endpoint", string(s.Endpoint))
	text("account", s.Account)
	text("key", s.KeyID)
	text("model", s.Model)
	text("target", s.Target())
	number("tries", len(s.Tries))
	if s.Operation == OperationChat {
		attrs = append(attrs, slog.Bool("streamed", s.Streamed))
	}
	number("prompt_tokens", s.Usage.PromptTokens)
	number("completion_tokens", s.Usage.CompletionTokens)
	number("images", s.Images)
	duration("admitted_ms", s.Admitted)
	duration("first_token_ms", s.FirstToken)
	duration("duration_ms", s.Duration)
	text("error_class", string(s.ErrorClass))
	text("limit", s.Limit)
	if s.Err != nil && !s.ErrorClass.IsClientError() {
		attrs = append(attrs, slog.String("error", errorText(s.Err)))
	}
	if s.RecordErr != nil {
		attrs = append(attrs, slog.String("record_error", errorText(s.RecordErr)))
	}
	return attrs
}

// clientAddress returns the address of the client, without its port.
func clientAddress(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
