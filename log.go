package llmhttp

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
)

// A requestLog logs errors of a request whose details are not sent to its client.
type requestLog struct {
	q      *request
	warned misuseSet // guarded by q.res.mu
}

// callAndLog calls a function of the host. If that returns an error or panics, callAndLog
// logs it with the message failure.
func (l *requestLog) callAndLog(failure string, call func() error) {
	defer l.recoverAndLog(failure)
	if err := call(); err != nil {
		l.print(slog.LevelError, failure, err)
	}
}

// recoverAndLog recovers from a panic and logs it. It must be deferred.
func (l *requestLog) recoverAndLog(failure string) {
	if p := recover(); p != nil {
		l.print(slog.LevelError, failure, newPanicError(p))
	}
}

// print logs err without the secrets in it. A log handler that panics affects nothing
// else.
func (l *requestLog) print(level slog.Level, msg string, err error) {
	defer func() { _ = recover() }()
	logger, ctx, record := l.q.h.opts.Logger, l.q.life.ctx, l.q.accounting.record
	if !logger.Enabled(ctx, level) {
		return
	}
	redact := l.q.cred.redactor()
	attrs := []slog.Attr{
		slog.String("request_id", record.ID),
		slog.String("endpoint", string(record.Endpoint)),
		slog.String("key_id", record.KeyID),
		slog.String("error", redact.text(errorText(err))),
	}
	if stack := stackOf(err); stack != "" {
		attrs = append(attrs, slog.String("stack", redact.text(stack)))
	}
	logger.LogAttrs(ctx, level, msg, attrs...)
}

// stackOf returns the stack of a panic that err is or wraps, or "".
func stackOf(err error) string {
	defer func() { _ = recover() }() // a method of err, such as Unwrap, panicked
	if p, ok := errors.AsType[*panicError](err); ok {
		return string(p.stack)
	}
	return ""
}

// A misuseSet is a set of mistakes of the host that no reply reports. Each is logged once
// for a request.
type misuseSet uint

const (
	misuseUnknownChoice misuseSet = 1 << iota
	misuseNilChunk
	misuseContentAfterFinish
	misuseConflictingUsage
	misuseYieldAfterReturn
	misuseInvalidExtra
	misuseTooLong
	misuseNoFlush
	misuseLateUsage
)

// misuseWarnings has the log message of each misuse, and what to do about it.
var misuseWarnings = []struct {
	misuse  misuseSet
	message string
	advice  error
}{
	{misuseUnknownChoice, "the Backend yielded choices that were not asked for",
		errors.New("llmhttp: they are dropped: choice indices must be less than ChatRequest.Choices")},
	{misuseNilChunk, "the Backend yielded a nil chunk",
		errors.New("llmhttp: it is ignored: yield a chunk or an error")},
	{misuseContentAfterFinish, "the Backend yielded content of a choice after its FinishReason",
		errors.New("llmhttp: it is dropped: set FinishReason in the last chunk of the choice only")},
	{misuseConflictingUsage, "the Backend reported usages that contradict each other",
		errors.New("llmhttp: the last one counts: Usage is the total of the request so far and not that of a chunk or of one call of a model")},
	{misuseYieldAfterReturn, "the Backend called yield after its stream had returned",
		errors.New("llmhttp: the chunk is dropped: wait for goroutines that yield before the function of the stream returns")},
	{misuseInvalidExtra, "the Backend set members of Extra beside the usage that are not JSON",
		errors.New("llmhttp: they are dropped: set valid JSON, such as null instead of NaN")},
	{misuseTooLong, "the Backend exceeded the token limit of the request",
		errors.New("llmhttp: the text is cut: pass ChatRequest.TokenLimit on to the model")},
	{misuseNoFlush, "a stream is buffered",
		errors.New("llmhttp: the ResponseWriter of a middleware cannot be flushed: it needs a method Flush or Unwrap")},
	{misuseLateUsage, "the Backend called ReportUsage after it had returned",
		errors.New("llmhttp: it is ignored: the usage is recorded when the Backend returns")},
}

// warn logs the misuses in set that were not logged yet. q.res.mu must not be held.
func (l *requestLog) warn(set misuseSet) {
	l.q.res.mu.Lock()
	defer l.q.res.mu.Unlock()
	l.warnLocked(set)
}

// warnLocked is like warn. q.res.mu is held.
func (l *requestLog) warnLocked(set misuseSet) {
	set &^= l.warned
	l.warned |= set
	for _, m := range misuseWarnings {
		if set&m.misuse != 0 {
			l.print(slog.LevelWarn, m.message, m.advice)
		}
	}
}

// LogRequests returns an Observer that logs a line for each request that has
// ended, with the message "request" at level Info: who sent it, what was asked
// for, the result, and durations in milliseconds. Attributes that do not apply are
// left out. If l is nil, slog.Default() is used.
//
// The lines contain no API keys, no messages, no replies, and no queries of URLs.
// Of a request that was refused they have the code and the param of the error, which
// names a part of the request, and the model that the client asked for if its key
// may not use it. They leave out the texts of errors caused by the client, for which [ErrorClass.IsClientError]
// returns true, because these can quote the request. Handlers of l get the context
// of the request, for example to add the ID of a trace.
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
	text("requested_model", s.Requested)
	text("target", s.Target())
	number("tries", len(s.Tries))
	if s.Operation == OperationChat && s.Request != nil { // it is not known of others
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
	if e, ok := errors.AsType[*Error](s.Err); ok && e != nil {
		text("code", jsonwire.Clip(e.Code, 64))
		text("param", jsonwire.Clip(e.Param, 128))
	}
	if s.Err != nil && !s.ErrorClass.IsClientError() {
		attrs = append(attrs, slog.String("error", errorText(s.Err)))
	}
	if s.RecordErr != nil {
		attrs = append(attrs, slog.String("record_error", errorText(s.RecordErr)))
	}
	if s.SaveErr != nil {
		attrs = append(attrs, slog.String("save_error", errorText(s.SaveErr)))
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
