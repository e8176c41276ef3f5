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
)

// A KeyStore tells who presents an API key. It must be safe for concurrent use.
type KeyStore interface {
	// Lookup returns the Key with the given secret, which is never empty.
	// If there is none it returns an error wrapping [ErrKeyNotFound]. An
	// [*Error] is told to the client; any other error refuses the request
	// with 503.
	//
	// The Handler checks expiry, scopes and limits; Lookup need not.
	// A returned Key is never changed, so a store may share and cache it.
	// Stores that keep Keys elsewhere must tell nil Scopes and Models, which
	// allow everything, from empty ones, which allow nothing.
	//
	// Stores should keep [HashSecret] of the secret instead of the secret,
	// and look up by it: then neither a leak of the store nor the time a
	// comparison takes tells a secret.
	Lookup(ctx context.Context, secret string) (*Key, error)
}

// A KeyFunc is a [KeyStore] that calls itself to look up a key.
type KeyFunc func(ctx context.Context, secret string) (*Key, error)

// Lookup returns f(ctx, secret).
func (f KeyFunc) Lookup(ctx context.Context, secret string) (*Key, error) { return f(ctx, secret) }

// ErrKeyNotFound is what a [KeyStore] returns for a secret it does not know.
var ErrKeyNotFound = errors.New("llmhttp: no such key")

// A Key is what a secret entitles its bearer to.
type Key struct {
	ID      string     // names the key in logs and records, and its limits; not a secret; if empty, part of the secret's hash
	Account string     // who pays: usage is recorded and reported per account; if empty, the ID
	Scopes  []Endpoint // what it may call: nil means everything, empty nothing
	Models  []string   // likewise the models; a * stands for any text
	Expires time.Time  // when it stops working; zero means never
	Limits  Limits
}

// An Endpoint is what a [Key] may be allowed to call.
type Endpoint string

// The endpoints of the format.
const (
	EndpointChat       Endpoint = "chat"       // POST /v1/chat/completions
	EndpointImages     Endpoint = "images"     // POST /v1/images/generations
	EndpointEmbeddings Endpoint = "embeddings" // POST /v1/embeddings
	EndpointModels     Endpoint = "models"     // GET /v1/models and /v1/models/{id}
	EndpointUsage      Endpoint = "usage"      // GET /v1/dashboard/billing/usage
)

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

// HashSecret returns the SHA-256 hash of secret in hexadecimal. Secrets made
// by [NewSecret] have so many possible values that it cannot be reversed;
// passwords that people choose do not.
func HashSecret(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// NewSecret returns a new secret: prefix and 256 random bits in base64url.
// The format's own prefix is "sk-".
func NewSecret(prefix string) string {
	var b [32]byte
	rand.Read(b[:]) // never fails
	return prefix + base64.RawURLEncoding.EncodeToString(b[:])
}

// AllowAll returns a KeyStore that admits every request, with or without a
// key, on behalf of account. Use it only where something else keeps strangers
// out. Handlers admit requests without a key only if it is passed to
// [NewHandler] itself, not wrapped in another KeyStore.
func AllowAll(account string) KeyStore {
	return &allowAll{Key{ID: account, Account: account}}
}

type allowAll struct{ key Key }

func (a *allowAll) Lookup(context.Context, string) (*Key, error) { return &a.key, nil }

// KeyFrom returns the Key of the request that ctx is of, or nil if there is
// none. Backends, and what they call, may ask for it.
func KeyFrom(ctx context.Context) *Key {
	if x, _ := ctx.Value(exchangeKey{}).(*exchange); x != nil {
		return x.key
	}
	return nil
}

// RequestIDFrom returns the ID of the request that ctx is of, or "" if there
// is none.
func RequestIDFrom(ctx context.Context) string {
	if x, _ := ctx.Value(exchangeKey{}).(*exchange); x != nil {
		return x.record.ID
	}
	return ""
}

// maxSecret is how long a secret may be, in bytes.
const maxSecret = 4096

// bearer returns the secret of the Authorization headers, or an error in the
// words of the format. A scheme other than Bearer is no key.
func bearer(headers []string) (string, *Error) {
	if len(headers) == 0 {
		return "", errNoKey
	}
	if len(headers) > 1 {
		return "", errBadKey
	}
	scheme, secret, _ := strings.Cut(headers[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", errNoKey
	}
	secret = strings.Trim(secret, " ")
	if secret == "" {
		return "", errNoKey
	}
	if len(secret) > maxSecret {
		return "", errBadKey
	}
	for i := range len(secret) {
		if c := secret[i]; c <= ' ' || c >= 0x7f {
			return "", errBadKey
		}
	}
	return secret, nil
}

const codeBadKey = "invalid_api_key"

var (
	errNoKey = &Error{Status: http.StatusUnauthorized, Message: "You didn't provide an API key. You need to provide your API key in an " +
		"Authorization header using Bearer auth (i.e. Authorization: Bearer YOUR_KEY)."}
	errBadKey = &Error{Status: http.StatusUnauthorized, Code: codeBadKey, Message: "Incorrect API key provided."}
)

// authenticate finds the Key of the request. Keys that are unknown, malformed
// or expired all get the same answer.
func (x *exchange) authenticate() error {
	secret, refused := bearer(x.r.Header["Authorization"])
	if refused != nil && !x.h.keyless {
		return refused
	}
	x.secret = secret
	key, err := x.h.keys.Lookup(x.ctx, secret)
	switch {
	case errors.Is(err, ErrKeyNotFound):
		return errBadKey
	case err != nil:
		if cause := x.cause(); cause != nil {
			return cause
		}
		if e, ok := errors.AsType[*Error](err); ok && e != nil {
			return err
		}
		return &Error{Status: http.StatusServiceUnavailable, RetryAfter: time.Second, Message: messageKeys, Err: err}
	case key == nil:
		return &Error{Status: http.StatusServiceUnavailable, RetryAfter: time.Second, Message: messageKeys,
			Err: errors.New("the KeyStore returned neither a Key nor an error")}
	case !key.Expires.IsZero() && !x.record.Time.Before(key.Expires):
		return errBadKey
	}
	if key.ID == "" || key.Account == "" {
		named := *key
		if named.ID == "" {
			named.ID = "key_" + HashSecret(secret)[:12]
		}
		if named.Account == "" {
			named.Account = named.ID
		}
		key = &named
	}
	x.key = key
	x.record.KeyID, x.record.Account = key.ID, key.Account
	return nil
}

const messageKeys = "We could not check your API key. Please try again."

// maxModelID is how long a model's ID may be, in bytes.
const maxModelID = 512

// useModel refuses a model that the key may not use as if it did not exist.
func (x *exchange) useModel(id string) error {
	if len(id) > maxModelID || !x.key.AllowsModel(id) || (len(x.secret) >= shortSecret && strings.Contains(id, x.secret)) {
		return ModelNotFound(id)
	}
	x.record.Model = id
	return nil
}
