package llmhttp

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp/internal/pattern"
	"github.com/llmhttp/llmhttp/internal/redact"
)

// A KeyStore finds the [Key] for a secret. It must be safe for concurrent use.
type KeyStore interface {
	// Lookup returns the Key for secret, or an error wrapping [ErrKeyNotFound] if
	// there is none. If it returns an [*Error], the client gets that; any other
	// error becomes a 503.
	//
	// The secret is never empty. For a request without a well-formed secret it is
	// [Anonymous], which no client can present. A store that does not contain
	// Anonymous returns ErrKeyNotFound, as for any other unknown secret.
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
	Lookup(ctx context.Context, secret string) (*Key, error)
}

// The KeyFunc type is an adapter to use an ordinary function as a [KeyStore].
type KeyFunc func(ctx context.Context, secret string) (*Key, error)

// Lookup returns f(ctx, secret).
func (f KeyFunc) Lookup(ctx context.Context, secret string) (*Key, error) { return f(ctx, secret) }

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

	// Scopes are the endpoints that the key may call. Nil means all, empty none.
	Scopes []Endpoint

	// Models are the models that the key may use; a * stands for any text. Nil
	// means all, empty none.
	Models []string

	// Expires is when the key stops working. Zero means never.
	Expires time.Time

	// Limits are the limits on the use of the key. The zero Limits set none.
	Limits Limits
}

// An Endpoint is a scope of a [Key].
type Endpoint string

// The endpoints of the API.
const (
	EndpointChat       Endpoint = "chat"       // POST /v1/chat/completions
	EndpointImages     Endpoint = "images"     // POST /v1/images/generations
	EndpointEmbeddings Endpoint = "embeddings" // POST /v1/embeddings
	EndpointModels     Endpoint = "models"     // GET /v1/models and /v1/models/{id}
	EndpointUsage      Endpoint = "usage"      // GET /v1/dashboard/billing/usage and subscription
)

// Endpoints returns all endpoints, for programs that check the scopes of keys.
func Endpoints() []Endpoint {
	return []Endpoint{EndpointChat, EndpointImages, EndpointEmbeddings, EndpointModels, EndpointUsage}
}

// AllowsModel reports whether k may use the model of the given ID.
func (k *Key) AllowsModel(id string) bool {
	if k.Models == nil {
		return true
	}
	for _, p := range k.Models {
		if pattern.Match(p, id) {
			return true
		}
	}
	return false
}

// AllowsEndpoint reports whether k may call e.
func (k *Key) AllowsEndpoint(e Endpoint) bool {
	if k.Scopes == nil {
		return true
	}
	for _, s := range k.Scopes {
		if s == e {
			return true
		}
	}
	return false
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

// AllowAll returns a KeyStore that admits every request, with or without a
// secret, on behalf of account. Use it only where something else controls
// access. It may be wrapped in another KeyStore.
func AllowAll(account string) KeyStore {
	key := &Key{ID: account, Account: account}
	return KeyFunc(func(context.Context, string) (*Key, error) { return key, nil })
}

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
		return q.account.record.ID
	}
	return ""
}

// maxSecret is the maximum length of a secret in bytes.
const maxSecret = 4096

// isWellFormed reports whether secret is printable ASCII without spaces, and
// not too long.
func isWellFormed(secret string) bool {
	if len(secret) > maxSecret {
		return false
	}
	for i := range len(secret) {
		if c := secret[i]; c <= ' ' || c >= 0x7f {
			return false
		}
	}
	return true
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
	q.recorder.serverError = ClassKeyStore
	key, err := q.h.keys.Lookup(q.life.ctx, secret)
	switch {
	case errors.Is(err, ErrKeyNotFound):
		return refused
	case err == nil && key == nil:
		err = errors.New("llmhttp: the KeyStore returned neither a Key nor an error")
		fallthrough
	case err != nil:
		return q.life.storeError(err, "We could not check your API key. Please try again.")
	case !key.Expires.IsZero() && !q.account.record.Time.Before(key.Expires):
		return errInvalidKey
	}
	if key.ID == "" || key.Account == "" {
		key = namedKey(key, secret)
	}
	q.key, q.recorder.serverError = key, ClassInternal
	q.account.record.KeyID, q.account.record.Account = key.ID, key.Account
	return nil
}

// namedKey returns a copy of k whose ID and Account are set.
func namedKey(k *Key, secret string) *Key {
	named := *k
	if named.ID == "" {
		named.ID = "key_" + HashSecret(secret)[:12]
	}
	if named.Account == "" {
		named.Account = named.ID
	}
	return &named
}
