// Keys: KeyStore, Key and Scope, how the key of a request is found, what it allows, and how its secret is
// removed from texts. A credential is the secret that a request presents.

package llmhttp

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/llmhttp/llmhttp/internal/callctx"
	"github.com/llmhttp/llmhttp/internal/modelname"
	"github.com/llmhttp/llmhttp/internal/redact"
	"github.com/llmhttp/llmhttp/llm"
)

// A KeyStore finds the [Key] for a secret. It must be safe for concurrent use. It does not see the
// request: rules about addresses or headers need middleware.
type KeyStore interface {
	// Lookup returns the Key for secret, or an error wrapping [ErrKeyNotFound] if
	// there is none. If it returns an [*llm.Error], the client gets that; any other
	// error becomes a 503.
	//
	// The secret is never empty. For a request without a well-formed secret it is
	// [Anonymous], which no client can present. A store that does not contain
	// Anonymous returns ErrKeyNotFound, as for any other unknown secret. The Handler
	// also looks up a new secret, at most once a minute, to find out whether one was
	// needed: see Options.Accept.TrustedOrigins.
	//
	// The Handler checks expiry, scopes and limits; Lookup need not. The Handler
	// does not modify the Key, so a store may return the same one many times. A
	// store that keeps Keys in another form must preserve the difference between
	// nil Scopes and Models, which allow everything, and empty ones, which allow
	// nothing.
	//
	// Stores should keep [HashSecret] of the secret instead of the secret and
	// look up by it, so that neither a leak of the store nor the time of a
	// comparison reveals a secret.
	//
	// The Handler sets no timeout for Lookup, and does not always notice that the
	// client has left, because the body of the request has not been read yet. A
	// store that may hang must limit how long it waits.
	Lookup(ctx context.Context, secret string) (*Key, error)
}

// The KeyStoreFunc type is an adapter to use an ordinary function as a [KeyStore].
type KeyStoreFunc func(ctx context.Context, secret string) (*Key, error)

// Lookup returns f(ctx, secret).
func (f KeyStoreFunc) Lookup(ctx context.Context, secret string) (*Key, error) { return f(ctx, secret) }

// ErrKeyNotFound is returned by a [KeyStore] for an unknown secret.
var ErrKeyNotFound = errors.New("llmhttp: no such key")

// Anonymous is the secret that a [Handler] passes to [KeyStore.Lookup] for a
// request without a well-formed secret. It contains a space and so is not
// well-formed itself: no client can present it.
const Anonymous = "(no secret)"

// A Key describes what the holder of a secret may do.
type Key struct {
	// ID identifies the key in logs, records and limits. It is not secret. If
	// empty, a part of the secret's hash is used.
	ID string

	// Account is the account to which usage is recorded and reported. If empty,
	// the ID is used.
	Account string

	// Scopes are the kinds of requests that the key may make. Nil means all, empty none, so
	// that a program that removes the last scope of a key does not allow all. A store must
	// keep the difference, which omitempty of encoding/json loses.
	Scopes []Scope

	// Models are the models that the key may use; a * stands for any text. Nil
	// means all, empty none, as for Scopes.
	Models []string

	// Expires is when the key stops working. Zero means never.
	Expires time.Time

	// Limits are the limits on the use of the key. The zero Limits set none but those of Options.
	Limits Limits

	// Subjects are what else the use of the key counts toward, such as its account and a
	// team, each with limits of its own, from the narrowest to the widest: see [Subject]. A
	// request is admitted by the limits of the key and of all of them, or takes nothing
	// from any. Stores that keep accounts, those of packages memory and sqlstore, set that of
	// the key. A KeyStore that wraps one adds others in a copy of the Key, as for Data.
	//
	// Subjects that Validate refuses are a mistake of the KeyStore: requests get a 500, and
	// the cause is logged.
	Subjects []Subject

	// PerUser are the limits of each end user on whose behalf requests of the key are made: see
	// Options.User. They are checked when the body of a request was read, for chats, counts of
	// their tokens and other operations that call a model. The rates and Concurrent of a user hold
	// for all keys of the account together: see [UserSubject]. So PerUser should be the same in all
	// keys of an account. The zero Limits set none.
	//
	// Requests that name no end user share the limits of one. With a Quota they get a 400,
	// because a UsageStore, which must be able to sum for [KindUser], does not sum for it.
	//
	// Stores that keep accounts set it to that of the key's account.
	PerUser Limits

	// Labels are recorded with each request of the key: see [ValidateLabels]. Stores that
	// keep accounts set those of the key's account; a KeyStore that wraps one adds those of a key.
	Labels []Label

	// Data is the host's own data about the holder of the key, such as a tenant. A
	// Backend gets it by [KeyFrom]. The Handler does not read, compare, log or copy what it
	// refers to. Requests of the key use it concurrently, so it must not change, or must
	// be safe for concurrent use. Stores do not keep it: a KeyStore that wraps one sets it
	// in a copy of the Key that Lookup returns.
	Data any
}

// A Scope is a kind of requests that a [Key] may be allowed to make, in every format in which
// they can be made. [Scopes] returns those of this module; hosts may have others.
type Scope string

// AllowsModel reports whether k may use the model of the given ID.
func (k *Key) AllowsModel(id string) bool {
	return k.Models == nil || slices.ContainsFunc(k.Models, func(pattern string) bool { return modelname.Match(pattern, id) })
}

// Validate returns an error that names the first field of k whose value is a mistake: Scopes that are
// malformed, those of its Limits or PerUser, Subjects out of bounds, or Labels out of bounds: see
// [Scope.Validate], [Subject] and [ValidateLabels]. Programs and stores call it when a key is made; a
// [Handler] checks only what identifies the Subjects.
func (k *Key) Validate() error {
	for i, s := range k.Scopes {
		if err := s.Validate(); err != nil {
			return fmt.Errorf("Key.Scopes[%d]: %w", i, err)
		}
	}
	if err := ValidateLabels(k.Labels); err != nil {
		return fmt.Errorf("Key.Labels: %w", err)
	}
	if err := checkSubjects(k.Subjects, cmp.Or(k.Account, k.ID)); err != nil {
		return err
	}
	if err := k.PerUser.Validate(); err != nil {
		return fmt.Errorf("Key.PerUser: %w", err)
	}
	for i := range k.Subjects {
		if err := k.Subjects[i].Limits.Validate(); err != nil {
			return fmt.Errorf("Key.Subjects[%d].%w", i, err)
		}
	}
	return k.Limits.Validate()
}

// AllowsScope reports whether k may make requests of a scope.
func (k *Key) AllowsScope(s Scope) bool {
	return k.Scopes == nil || slices.Contains(k.Scopes, s)
}

// HashSecret returns the SHA-256 hash of secret in hexadecimal. It cannot be
// reversed for secrets made by [NewSecret], which are random; it can be for
// passwords that people choose.
func HashSecret(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// NewSecret returns a new secret: prefix and 256 random bits in base64url.
// OpenAI's prefix is "sk-".
func NewSecret(prefix string) string {
	var b [32]byte
	rand.Read(b[:]) // never fails
	return prefix + base64.RawURLEncoding.EncodeToString(b[:])
}

// AllowAll returns a KeyStore that admits every request, with or without a secret, on behalf of
// account. Use it only where something else controls access. It may be wrapped in another KeyStore.
//
// A Handler with such a KeyStore, or with one that knows its clients by something else
// than a secret, refuses requests of web pages that are not in Options.Accept.TrustedOrigins.
func AllowAll(account string) KeyStore {
	key := &Key{ID: account, Account: account}
	return KeyStoreFunc(func(context.Context, string) (*Key, error) { return key, nil })
}

// KeyFrom returns the Key of the request that ctx belongs to. It returns nil if ctx
// does not belong to a request of a Handler, or if the Handler has not found the Key
// yet. The Key must not be modified.
func KeyFrom(ctx context.Context) *Key {
	if q := requestFrom(ctx); q != nil {
		return q.log.key.Load()
	}
	return nil
}

// RequestIDFrom returns the ID of the request that ctx belongs to. It returns "" if
// ctx does not belong to a request of a Handler.
func RequestIDFrom(ctx context.Context) string { return callctx.RequestID(ctx) }

// maxSecret is the maximum length of a secret in bytes.
const maxSecret = 4096

// isWellFormed reports whether secret is printable ASCII without spaces, and not too long.
func isWellFormed(secret string) bool {
	return len(secret) <= maxSecret && !strings.ContainsFunc(secret, func(c rune) bool { return c <= ' ' || c >= 0x7f })
}

const codeInvalidKey = "invalid_api_key"

var (
	errNoKey = &llm.Error{Status: http.StatusUnauthorized, Message: "You didn't provide an API key. You need to provide your API key in an " +
		"Authorization header using Bearer auth (i.e. Authorization: Bearer YOUR_KEY)."}
	errInvalidKey = &llm.Error{Status: http.StatusUnauthorized, Code: codeInvalidKey, Message: "Incorrect API key provided."}
)

// A credential is the API key that a request presents. Its methods may be called concurrently:
// an Observer may log while the key is looked for.
type credential struct {
	r *http.Request

	mu     sync.Mutex // guards the field below
	secret string     // empty until the protocol was asked for it
}

// set sets the API key that the protocol has found.
func (c *credential) set(secret string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.secret = secret
}

// get returns the API key, or "" if it is not known or the request presents none.
func (c *credential) get() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.secret
}

// isIn reports whether text contains the API key.
func (c *credential) isIn(text string) bool {
	secret := c.get()
	return len(secret) >= redact.MinSecret && strings.Contains(text, secret)
}

// redactor returns a redactor for the API key. It is only needed for errors and logs.
func (c *credential) redactor() redactor {
	secret := c.get()
	if secret == "" {
		return newRedactor(BearerSecret(c.r))
	}
	return newRedactor(secret)
}

// clientError returns the Error that the client gets for err. Its Status, Type and Message
// are set, and the API key is redacted.
func (c *credential) clientError(err error) *llm.Error {
	return c.redactor().errorInPlace(completeError(c.r, err))
}

// authenticate finds the Key of the request. The reply is the same for keys that are unknown,
// malformed and expired.
func (q *request) authenticate() error {
	refused := errInvalidKey
	secret := q.protocol().Secret(q.routed)
	q.cred.set(secret)
	if secret == "" {
		refused = errNoKey
	}
	if secret == "" || !isWellFormed(secret) {
		secret = Anonymous
	}
	var key *Key
	err := q.inCall(ClassKeyStore, func() (err error) {
		key, err = q.h.keys.Lookup(q.client.Context(), secret)
		return err
	})
	switch {
	case errors.Is(err, ErrKeyNotFound):
		return refused
	case err == nil && key == nil:
		err = errors.New("llmhttp: the KeyStore returned neither a Key nor an error")
		fallthrough
	case err != nil:
		return q.client.CauseOr(storeError(ClassKeyStore, err, "We could not check your API key. Please try again."))
	case !key.Expires.IsZero() && !q.record.Time.Before(key.Expires):
		return errInvalidKey
	}
	if err := q.inCall(ClassKeyStore, func() error { return q.checkOrigin(secret) }); err != nil {
		return err
	}
	if key.ID == "" || key.Account == "" {
		key = namedKey(key, secret)
	}
	if err := checkSubjects(key.Subjects, key.Account); err != nil {
		return classify(ClassKeyStore, fmt.Errorf("llmhttp: key %s: %w", key.ID, err))
	}
	q.key = key
	q.record.KeyID, q.record.Account, q.record.Subjects = key.ID, key.Account, recordedSubjects(key.Subjects)
	q.log.setKey(key, q.route.binding.scope)
	q.ledger.open(key, q.route.binding.op)
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

// errorInPlace redacts e and its cause, and returns e.
func (r redactor) errorInPlace(e *llm.Error) *llm.Error { return r.r.InPlace(e) }

// error returns err, or an error like it whose text is redacted.
func (r redactor) error(err error) error { return r.r.Error(err) }

// checkOrigin refuses a request that may come from a web page which is not trusted, unless
// it has presented a secret that was needed.
func (q *request) checkOrigin(secret string) error {
	err := q.h.origins.Check(q.r)
	if err == nil || secret != Anonymous && q.h.anonymous.needsSecret(q.client.Context(), q.h.keys) {
		return nil
	}
	return err
}

// anonymousLifetime is how long the answer of an anonymousCache is used.
const anonymousLifetime = time.Minute

// An anonymousCache caches whether a KeyStore admits unknown secrets, so that only one
// request a minute looks one up.
type anonymousCache struct {
	current    atomic.Pointer[anonymousAnswer]
	refreshing atomic.Bool
}

type anonymousAnswer struct {
	admitted bool
	until    time.Time
}

// needsSecret reports whether a request with a secret needed the right one. If the store fails, it
// assumes what the store said before, or that the secret was needed.
func (c *anonymousCache) needsSecret(ctx context.Context, keys KeyStore) bool {
	a := c.current.Load()
	if a == nil || time.Now().After(a.until) && c.refreshing.CompareAndSwap(false, true) {
		defer c.refreshing.Store(false)
		admitted, err := admitsUnknown(ctx, keys)
		switch {
		case err != nil && a == nil:
			return true
		case err != nil:
			admitted = a.admitted
		}
		a = &anonymousAnswer{admitted: admitted, until: time.Now().Add(anonymousLifetime)}
		c.current.Store(a)
	}
	return !a.admitted
}

// admitsUnknown reports whether there is a Key for a secret that nobody has.
func admitsUnknown(ctx context.Context, keys KeyStore) (bool, error) {
	key, err := keys.Lookup(ctx, NewSecret("sk-"))
	if _, refused := errors.AsType[*llm.Error](err); refused || errors.Is(err, ErrKeyNotFound) {
		return false, nil
	}
	return key != nil, err
}
