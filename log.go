package llmhttp

import (
	"errors"
	"log/slog"
)

// A requestLog logs what the client of a request is not told.
type requestLog struct {
	logger *slog.Logger
	life   *lifetime
	cred   *credential
	record *UsageRecord
	warned misuse // guarded by the response's mu
}

// try calls a function of the host, and logs an error or a panic.
func (l *requestLog) try(failure string, call func() error) {
	defer l.recoverAndLog(failure)
	if err := call(); err != nil {
		l.print(slog.LevelError, failure, err)
	}
}

// recoverAndLog is to be deferred.
func (l *requestLog) recoverAndLog(failure string) {
	if p := recover(); p != nil {
		l.print(slog.LevelError, failure, newPanicError(p))
	}
}

// print logs err without the secrets in it. A log handler that panics affects nothing
// else.
func (l *requestLog) print(level slog.Level, msg string, err error) {
	defer func() { _ = recover() }()
	if !l.logger.Enabled(l.life.ctx, level) {
		return
	}
	redact := l.cred.redactor()
	attrs := []slog.Attr{
		slog.String("request_id", l.record.ID),
		slog.String("endpoint", string(l.record.Endpoint)),
		slog.String("key_id", l.record.KeyID),
		slog.String("error", redact.text(errorText(err))),
	}
	if stack := stackOf(err); stack != "" {
		attrs = append(attrs, slog.String("stack", redact.text(stack)))
	}
	l.logger.LogAttrs(l.life.ctx, level, msg, attrs...)
}

// stackOf returns the stack of a panic that err is or wraps, or "".
func stackOf(err error) string {
	defer func() { _ = recover() }() // a method of err, such as Unwrap, panicked
	if p, ok := errors.AsType[*panicError](err); ok {
		return string(p.stack)
	}
	return ""
}
