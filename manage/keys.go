package manage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/llmhttp/llmhttp"
)

// A KeyManager is a [llmhttp.KeyStore] whose keys can be listed and changed. A [llmhttp.Handler]
// does not need one; programs that manage keys do. Its methods are safe for
// concurrent use.
//
// Methods that take the ID of a key return an error that wraps
// [llmhttp.ErrKeyNotFound] if there is no such key.
type KeyManager interface {
	llmhttp.KeyStore

	// Key returns the key with the given ID.
	Key(ctx context.Context, id string) (KeyInfo, error)

	// KeyBySecret returns the key to which a secret belongs, and when the secret
	// stops working because of a rotation; a zero time means not before the key
	// does. hash is the [llmhttp.HashSecret] of the secret, so that programs need not keep
	// it. If the secret is unknown or a rotation has ended it, the error wraps
	// ErrKeyNotFound.
	//
	// Unlike Lookup, it also returns keys that are revoked, suspended or expired,
	// their Expires is that of their settings, it does not count as a use of the
	// key, and it reflects every change that any process has completed.
	KeyBySecret(ctx context.Context, hash string) (info KeyInfo, ends time.Time, err error)

	// ListKeys returns a page of keys, including those that are revoked, suspended or expired. A
	// page with fewer keys than the limit is the last. If there is no key q.After, the error wraps
	// ErrKeyNotFound.
	ListKeys(ctx context.Context, q KeyQuery) ([]KeyInfo, error)

	// CreateKey creates a key and returns its secret. The store does not keep the secret, which
	// therefore cannot be recovered later. If params.Validate returns an error, CreateKey returns it.
	CreateKey(ctx context.Context, params KeyParams) (info KeyInfo, secret string, err error)

	// UpdateKey calls change with the settings of a key and stores the result. Other changes of the
	// key wait meanwhile, so that no change is lost. If change returns an error, UpdateKey returns
	// it and changes nothing. change must not use the store, and may be called several times. If it
	// changes the Scopes or the Limits so that Validate returns an error for them, that is an error of
	// change. If the key is revoked, the error wraps [ErrKeyRevoked].
	UpdateKey(ctx context.Context, id string, change func(*KeyParams) error) (KeyInfo, error)

	// RotateKey adds a new secret to a key and returns it. The previous secrets stop working after
	// overlap, or earlier if that was already set. A zero overlap stops them at once; a negative
	// one is an error. The ID, limits and usage of the key stay the same. If the key is revoked,
	// the error wraps ErrKeyRevoked.
	RotateKey(ctx context.Context, id string, overlap time.Duration) (info KeyInfo, secret string, err error)

	// RevokeKey disables a key for good. Revoking a revoked key does nothing.
	RevokeKey(ctx context.Context, id string) error
}

// ErrKeyRevoked is wrapped by the errors of changes to a revoked key.
var ErrKeyRevoked = errors.New("manage: the key is revoked")

// KeyParams are the settings of a key in a [KeyManager]. A store may round times
// down to microseconds. It must keep the difference between nil and empty lists: see
// [llmhttp.Key].
type KeyParams struct {
	Account   string          // the account that pays; empty means the key's ID
	Name      string          // for display; may be empty and need not be unique
	Scopes    []llmhttp.Scope // nil means all, empty none
	Models    []string        // the allowed models; nil means all, empty none; * matches any text
	Expires   time.Time       // zero means never
	Limits    llmhttp.Limits
	Suspended bool // Lookup does not find the key until this is false again
}

// Validate returns an error that names the first field of p whose value is a mistake: Scopes or Limits
// whose Validate returns an error.
func (p *KeyParams) Validate() error {
	for i, s := range p.Scopes {
		if err := s.Validate(); err != nil {
			return fmt.Errorf("KeyParams.Scopes[%d]: %w", i, err)
		}
	}
	return p.Limits.Validate()
}

// A KeyInfo describes a key of a [KeyManager].
type KeyInfo struct {
	llmhttp.Key
	Name      string
	Prefix    string // the beginning of the newest secret, for display
	Suspended bool
	Created   time.Time
	LastUsed  time.Time // accurate to about two minutes; zero if never used
	Revoked   time.Time // zero if not revoked
}

// Params returns the settings of the key.
func (k *KeyInfo) Params() KeyParams {
	return KeyParams{
		Account: k.Account, Name: k.Name, Scopes: k.Scopes, Models: k.Models,
		Expires: k.Expires, Limits: k.Limits, Suspended: k.Suspended,
	}
}

// A KeyStatus says whether a key works.
type KeyStatus string

// The states of a key. A key that is in several of them has the last.
const (
	KeyActive    KeyStatus = "active"
	KeyExpired   KeyStatus = "expired"
	KeySuspended KeyStatus = "suspended"
	KeyRevoked   KeyStatus = "revoked"
)

// Status returns the state of the key at the given time.
func (k *KeyInfo) Status(now time.Time) KeyStatus {
	switch {
	case !k.Revoked.IsZero():
		return KeyRevoked
	case k.Suspended:
		return KeySuspended
	case !k.Expires.IsZero() && !now.Before(k.Expires):
		return KeyExpired
	}
	return KeyActive
}

// A KeyQuery selects a page of keys in the order in which they were created.
type KeyQuery struct {
	Account string    // empty means all accounts
	Status  KeyStatus // empty means every status
	Search  string    // a part of the ID, account, name or prefix in any case of ASCII letters; empty means every key
	After   string    // the ID of the last key of the previous page; empty means the first page
	Newest  bool      // newest first instead of oldest first
	Limit   int       // the maximum number of keys; zero means 100; negative, or more than 1000, means 1000
}
