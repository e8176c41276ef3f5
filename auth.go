package llmhttp

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/llmhttp/llmhttp/internal/redact"
)

// KeyFrom returns the Key of the request that ctx belongs to, or nil if there
// is none. The Key must not be modified.
func KeyFrom(ctx context.Context) *Key {
	if q := requestFrom(ctx); q != nil {
		return q.key
	}
	return nil
}

// RequestIDFrom returns the ID of the request that ctx belongs to, or "" if
// there is none.
func RequestIDFrom(ctx context.Context) string {
	if q := requestFrom(ctx); q != nil {
		return q.accounting.record.ID
	}
	return ""
}

// maxSecret is the maximum length of a secret in bytes.
const maxSecret = 4096

// isWellFormed reports whether secret is printable ASCII without spaces, and
// not too long.
func isWellFormed(secret string) bool {
	return len(secret) <= maxSecret && !strings.ContainsFunc(secret, func(c rune) bool { return c <= ' ' || c >= 0x7f })
}

const codeInvalidKey = "invalid_api_key"

var (
	errNoKey = &Error{Status: http.StatusUnauthorized, Message: "You didn't provide an API key. You need to provide your API key in an " +
		"Authorization header using Bearer auth (i.e. Authorization: Bearer YOUR_KEY)."}
	errInvalidKey = &Error{Status: http.StatusUnauthorized, Code: codeInvalidKey, Message: "Incorrect API key provided."}
)

// A credential is the API key that a request presents.
type credential struct {
	r      *http.Request
	secret string // empty until the protocol was asked for it
}

// isIn reports whether text contains the API key.
func (c *credential) isIn(text string) bool {
	return len(c.secret) >= redact.MinSecret && strings.Contains(text, c.secret)
}

// redactor returns a redactor for the API key. It is only needed for errors
// and logs.
func (c *credential) redactor() redactor {
	if c.secret == "" {
		return newRedactor(BearerSecret(c.r))
	}
	return newRedactor(c.secret)
}

// authenticate finds the Key of the request. The reply is the same for keys
// that are unknown, malformed and expired.
func (q *request) authenticate() error {
	refused := errInvalidKey
	q.cred.secret = q.protocol.Secret(q.r)
	secret := q.cred.secret
	if secret == "" {
		refused = errNoKey
	}
	if secret == "" || !isWellFormed(secret) {
		secret = Anonymous
	}
	q.observer.stepClass = ClassKeyStore
	key, err := q.h.keys.Lookup(q.life.ctx, secret)
	switch {
	case errors.Is(err, ErrKeyNotFound):
		return refused
	case err == nil && key == nil:
		err = errors.New("llmhttp: the KeyStore returned neither a Key nor an error")
		fallthrough
	case err != nil:
		return q.life.storeError(err, "We could not check your API key. Please try again.")
	case !key.Expires.IsZero() && !q.accounting.record.Time.Before(key.Expires):
		return errInvalidKey
	}
	if key.ID == "" || key.Account == "" {
		key = namedKey(key, secret)
	}
	q.key, q.observer.stepClass = key, ClassInternal
	q.accounting.record.KeyID, q.accounting.record.Account = key.ID, key.Account
	return nil
}

// namedKey returns a copy of k whose ID and Account are set.
func namedKey(k *Key, secret string) *Key {
	named := *k
	if named.ID == "" {
		named.ID = "key_" + HashSecret(secret)[:12]
	}
	named.Account = cmp.Or(named.Account, named.ID)
	return &named
}

// A redactor removes the API key of a request from texts. Errors of the host can quote
// it, and so do errors about a request that has it in the wrong place.
type redactor struct{ r *redact.Redactor }

func newRedactor(secret string) redactor { return redactor{redact.New(secret)} }

func (r redactor) text(s string) string { return r.r.Text(s) }

// texts redacts texts in place.
func (r redactor) texts(texts ...*string) {
	for _, s := range texts {
		*s = r.text(*s)
	}
}

// errorInPlace redacts e and its cause, and returns e.
func (r redactor) errorInPlace(e *Error) *Error {
	r.texts(&e.Type, &e.Code, &e.Param, &e.Message)
	if e.Err != nil {
		e.Err = r.error(e.Err)
	}
	return e
}

// error returns err, or an error like it whose text is redacted.
func (r redactor) error(err error) error {
	text := errorText(err)
	clean := r.text(text)
	if clean == text {
		return err
	}
	if e, ok := err.(*Error); ok {
		redacted := *e
		return r.errorInPlace(&redacted)
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
