package llmhttp

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

const redacted = "[redacted]"

// shortSecret is how short a presented secret is that is left alone: it is
// none, and would be found in every text.
const shortSecret = 8

// scrub takes the secret that r presents out of a text, where an error of
// somebody else's, or a client that put it in the wrong place, may have got it.
func scrub(r *http.Request, text string) string {
	secret, err := bearer(r.Header["Authorization"])
	if err != nil || len(secret) < shortSecret {
		return text
	}
	quoted := strconv.Quote(secret)
	escaped, _ := json.Marshal(secret)
	for _, form := range []string{secret, quoted[1 : len(quoted)-1], string(escaped[1 : len(escaped)-1])} {
		text = strings.ReplaceAll(text, form, redacted)
		// What is echoed of a client's text may end in the midst of it.
		for n := len(form) - 1; n >= shortSecret && strings.Contains(text, clipped); n-- {
			text = strings.ReplaceAll(text, form[:n]+clipped, redacted)
		}
	}
	return text
}

// scrubbed returns e without the secret that r presents.
func (e *Error) scrubbed(r *http.Request) *Error {
	clean := *e
	for _, s := range []*string{&clean.Type, &clean.Code, &clean.Param, &clean.Message} {
		*s = scrub(r, *s)
	}
	if clean.Err != nil {
		clean.Err = scrubError(r, clean.Err)
	}
	return &clean
}

// scrubError returns err, or one like it whose text does not have the secret
// that r presents.
func scrubError(r *http.Request, err error) error {
	text := errorText(err)
	clean := scrub(r, text)
	if clean == text {
		return err
	}
	if e, ok := err.(*Error); ok {
		return e.scrubbed(r)
	}
	return &scrubbedError{clean, err}
}

// A scrubbedError is like another, but does not give it away.
type scrubbedError struct {
	text string
	err  error
}

func (e *scrubbedError) Error() string        { return e.text }
func (e *scrubbedError) Is(target error) bool { return errors.Is(e.err, target) }

// errorText returns err's text, which may be the work of somebody who did not
// think of everything.
func errorText(err error) (text string) {
	defer func() {
		if p := recover(); p != nil {
			text = fmt.Sprintf("%T whose text panics: %v", err, p)
		}
	}()
	return err.Error()
}
