package llmhttp

import (
	"errors"

	"github.com/llmhttp/llmhttp/internal/redact"
)

// A redactor removes a request's API key from texts, where an error of the
// host, or a client that put it in the wrong place, may have got it.
type redactor struct{ r *redact.Redactor }

func newRedactor(secret string) redactor { return redactor{redact.New(secret)} }

func (r redactor) text(s string) string { return r.r.Text(s) }

// error redacts an Error, and its cause, in place.
func (r redactor) error(e *Error) *Error {
	for _, s := range []*string{&e.Type, &e.Code, &e.Param, &e.Message} {
		*s = r.text(*s)
	}
	if e.Err != nil {
		e.Err = r.err(e.Err)
	}
	return e
}

// err returns err, or an error like it whose text is redacted.
func (r redactor) err(err error) error {
	text := errorText(err)
	clean := r.text(text)
	if clean == text {
		return err
	}
	if e, ok := err.(*Error); ok {
		redacted := *e
		return r.error(&redacted)
	}
	return &redactedError{clean, err}
}

// A redactedError is like err, but does not reveal its text.
type redactedError struct {
	text string
	err  error
}

func (e *redactedError) Error() string        { return e.text }
func (e *redactedError) Is(target error) bool { return errors.Is(e.err, target) }
