package redact

import (
	"errors"

	"github.com/llmhttp/llmhttp/internal/panics"
	"github.com/llmhttp/llmhttp/llm"
)

// Error returns err, or an error like it whose text has no secret. That is an [*llm.Error] if err is
// one, and otherwise for [errors.Is] what err is.
func (r *Redactor) Error(err error) error {
	text := panics.Text(err)
	clean := r.Text(text)
	if clean == text {
		return err
	}
	if e, ok := err.(*llm.Error); ok {
		redacted := *e
		return r.InPlace(&redacted)
	}
	return &redactedError{clean, err}
}

// InPlace removes secrets from e and its cause, and returns e.
func (r *Redactor) InPlace(e *llm.Error) *llm.Error {
	for _, s := range []*string{&e.Type, &e.Code, &e.Param, &e.Message} {
		*s = r.Text(*s)
	}
	if e.Err != nil {
		e.Err = r.Error(e.Err)
	}
	return e
}

// A redactedError is like err, but does not reveal its text.
type redactedError struct {
	text string
	err  error
}

func (e *redactedError) Error() string        { return e.text }
func (e *redactedError) Is(target error) bool { return errors.Is(e.err, target) }
