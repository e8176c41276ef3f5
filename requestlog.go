// Log lines about errors whose details a client does not get, without the key of the request.

package llmhttp

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/llmhttp/llmhttp/internal/order"
	"github.com/llmhttp/llmhttp/internal/outage"
	"github.com/llmhttp/llmhttp/internal/panics"
)

// A requestLog logs errors of a request whose details are not sent to its client. Its methods
// may be called concurrently; its fields are set before other goroutines know of it, but for
// those that setKey and setContext set.
type requestLog struct {
	logger    *slog.Logger
	cred      *credential // is removed from what is logged
	requestID string
	scope     Scope               // valid if key is set
	key       atomic.Pointer[Key] // nil until it was found, which a KeyStore may not wait for
	warned    atomic.Uint32
	outages   *outage.Log // of the Handler; may be nil

	mu  sync.Mutex      // guards the field below
	ctx context.Context // of the request
}

// setContext sets the context of what is logged. An Observer that knew the one before may have
// started goroutines that log.
func (l *requestLog) setContext(ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ctx = ctx
}

func (l *requestLog) context() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ctx
}

// setKey sets what is known when the key was found. Other goroutines may know of l already.
func (l *requestLog) setKey(k *Key, scope Scope) {
	l.scope = scope
	l.key.Store(k)
}

// callAndLog calls a function of the host. If that returns an error or panics, callAndLog
// logs it with the message failure.
func (l *requestLog) callAndLog(failure string, call func() error) {
	l.callStore("", failure, call)
}

// callStore is callAndLog for a store whose errors are of a class: an outage does not fill the log.
func (l *requestLog) callStore(class ErrorClass, failure string, call func() error) {
	defer l.recoverAndLog(failure)
	if err := call(); err != nil {
		l.printFailure(class, failure, err)
	}
}

// outageClasses are the classes of errors of stores that fail each request while they are away.
var outageClasses = []ErrorClass{ClassKeyStore, ClassLimiter, ClassUsageStore}

// printFailure logs an error of a class, unless it is one of an outage that the log has already.
func (l *requestLog) printFailure(class ErrorClass, msg string, err error) {
	var outages *outage.Log
	if slices.Contains(outageClasses, class) {
		outages = l.outages
	}
	switch skipped, ok := outages.Allow(string(class)); {
	case ok && skipped > 0:
		l.print(slog.LevelError, msg, err, slog.Int("skipped", skipped))
	case ok:
		l.print(slog.LevelError, msg, err)
	}
}

// recoverAndLog recovers from a panic and logs it. It must be deferred.
func (l *requestLog) recoverAndLog(failure string) {
	if p := recover(); p != nil {
		l.print(slog.LevelError, failure, panics.New(p))
	}
}

// print logs err without the secrets in it. A log handler that panics affects nothing
// else.
func (l *requestLog) print(level slog.Level, msg string, err error, more ...slog.Attr) {
	defer func() { _ = recover() }()
	ctx := l.context()
	if !l.logger.Enabled(ctx, level) {
		return
	}
	redact := l.cred.redactor()
	var scope, keyID string
	if k := l.key.Load(); k != nil {
		scope, keyID = string(l.scope), k.ID
	}
	attrs := []slog.Attr{
		slog.String("request_id", l.requestID),
		slog.String("scope", scope),
		slog.String("key_id", keyID),
		slog.String("error", redact.text(panics.Text(err))),
	}
	if stack := stackOf(err); stack != "" {
		attrs = append(attrs, slog.String("stack", redact.text(stack)))
	}
	l.logger.LogAttrs(ctx, level, msg, append(attrs, more...)...)
}

// stackOf returns the stack of a panic that err is or wraps, or "".
func stackOf(err error) string {
	defer func() { _ = recover() }() // a method of err, such as Unwrap, panicked
	if p, ok := errors.AsType[*panics.Error](err); ok {
		return string(p.Stack)
	}
	return ""
}

// Mistakes of the host that no reply reports, besides those that the orderer finds.
const (
	misuseYieldAfterReturn = order.FirstOtherMisuse << iota
	misuseNoFlush
	misuseLateUsage
	misuseFewerImages
)

// misuseWarnings has the log message of each misuse, and what to do about it.
var misuseWarnings = []struct {
	misuse  order.Misuses
	message string
	advice  error
}{
	{order.UnknownChoice, "the Backend yielded choices that were not asked for",
		errors.New("llmhttp: they are dropped: choice indices must be less than ChatRequest.Choices")},
	{order.NilChunk, "the Backend yielded a nil chunk",
		errors.New("llmhttp: it is ignored: yield a chunk or an error")},
	{order.ContentAfterFinish, "the Backend yielded content of a choice after its FinishReason",
		errors.New("llmhttp: it is dropped: set FinishReason in the last chunk of the choice only")},
	{order.ConflictingUsage, "the Backend reported usages that contradict each other",
		errors.New(
			"llmhttp: the last one counts: Usage is the total of the request so far and not that of a chunk or of one call of a model",
		)},
	{misuseYieldAfterReturn, "the Backend called yield after its stream had returned",
		errors.New("llmhttp: the chunk is dropped: wait for goroutines that yield before the function of the stream returns")},
	{order.InvalidExtra, "the Backend set members of Extra beside the usage that are not JSON",
		errors.New("llmhttp: they are dropped: set valid JSON, such as null instead of NaN")},
	{order.TooLong, "the Backend exceeded the token limit of the request",
		errors.New("llmhttp: the text is cut: pass ChatRequest.TokenLimit on to the model")},
	{misuseNoFlush, "a stream is buffered",
		errors.New("llmhttp: the ResponseWriter of a middleware cannot be flushed: it needs a method Flush or Unwrap")},
	{misuseLateUsage, "the Backend reported usage after it, or the call of a model, had ended",
		errors.New("llmhttp: it is ignored: usage is recorded when the Backend returns, and that of StartCall when the call ends")},
	{order.FewerChoices, "the Backend yielded fewer choices than were asked for",
		errors.New(
			"llmhttp: the client gets no more: make as many as Choices of the request tells, or wrap a Backend that makes one with llmhttp.Choices",
		)},
	{misuseFewerImages, "the Backend made fewer images than were asked for",
		errors.New("llmhttp: the client gets no more: make as many as ImageRequest.Count tells")},
}

// warn logs the misuses in set that were not logged yet: each is logged once for a request.
func (l *requestLog) warn(set order.Misuses) {
	if set == 0 {
		return
	}
	set &^= order.Misuses(l.warned.Or(uint32(set)))
	for _, m := range misuseWarnings {
		if set&m.misuse != 0 {
			l.print(slog.LevelWarn, m.message, m.advice)
		}
	}
}
