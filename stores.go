package llmhttp

import (
	"context"
	"errors"
	"time"
)

// A KeyManager is a [KeyStore] whose keys can be listed and changed. A [Handler]
// does not need one; programs that manage keys do. Its methods are safe for
// concurrent use.
//
// Methods that take the ID of a key return an error that wraps
// [ErrKeyNotFound] if there is no such key.
type KeyManager interface {
	KeyStore

	// Key returns the key with the given ID.
	Key(ctx context.Context, id string) (KeyInfo, error)

	// ListKeys returns a page of keys, including those that are revoked,
	// suspended or expired. A page with fewer keys than the limit is the
	// last. If there is no key q.After, the error wraps ErrKeyNotFound.
	ListKeys(ctx context.Context, q KeyQuery) ([]KeyInfo, error)

	// CreateKey creates a key and returns its secret. The store does not keep
	// the secret, which therefore cannot be recovered later.
	CreateKey(ctx context.Context, params KeyParams) (info KeyInfo, secret string, err error)

	// UpdateKey calls change with the settings of a key and stores the result.
	// Other changes of the key wait meanwhile, so that no change is lost. If
	// change returns an error, UpdateKey returns it and changes nothing.
	// change must not use the store, and may be called several times. If the
	// key is revoked, the error wraps [ErrKeyRevoked].
	UpdateKey(ctx context.Context, id string, change func(*KeyParams) error) (KeyInfo, error)

	// RotateKey adds a new secret to a key and returns it. The previous
	// secrets stop working after overlap, or earlier if that was already set.
	// A zero overlap stops them at once; a negative one is an error. The ID,
	// limits and usage of the key stay the same. If the key is revoked, the
	// error wraps ErrKeyRevoked.
	RotateKey(ctx context.Context, id string, overlap time.Duration) (info KeyInfo, secret string, err error)

	// RevokeKey disables a key for good. Revoking a revoked key does nothing.
	RevokeKey(ctx context.Context, id string) error
}

// ErrKeyRevoked is wrapped by the errors of changes to a revoked key.
var ErrKeyRevoked = errors.New("llmhttp: the key is revoked")

// KeyParams are the settings of a key in a [KeyManager]. A store may round times
// down to microseconds.
type KeyParams struct {
	Account   string     // the account that pays; empty means the key's ID
	Name      string     // for display; may be empty and need not be unique
	Scopes    []Endpoint // the allowed endpoints; nil means all, empty none
	Models    []string   // the allowed models; nil means all, empty none; * matches any text
	Expires   time.Time  // zero means never
	Limits    Limits
	Suspended bool // Lookup does not find the key until this is false again
}

// A KeyInfo describes a key of a [KeyManager].
type KeyInfo struct {
	Key
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
	Limit   int       // the maximum number of keys, at most 1000; zero or negative means 100
}

// A UsageReporter is a [UsageStore] that can sum up the usage of several accounts
// and keys. A [Handler] does not need one; programs that report usage do. Its
// methods are safe for concurrent use.
type UsageReporter interface {
	UsageStore

	// ReportUsage returns the sums for q by group and model. They are sorted
	// by Start, Account, KeyID and Model, as Go compares strings.
	ReportUsage(ctx context.Context, q ReportQuery) ([]ReportSum, error)
}

// A ReportQuery selects usage and says how to group it.
type ReportQuery struct {
	Account  string    // empty means all accounts
	KeyID    string    // empty means all keys
	From, To time.Time // midnights in UTC; To is exclusive
	By       ReportGroup

	// Limit is the maximum number of groups. If there are more, those with the
	// most tokens are returned, and of groups with equally many those with the
	// most requests. Zero or negative means no limit.
	Limit int
}

// A ReportGroup says what a [ReportSum] adds up.
type ReportGroup string

// The groups of a [ReportQuery].
const (
	ByTotal   ReportGroup = ""
	ByDay     ReportGroup = "day" // days begin at midnight in UTC
	ByKey     ReportGroup = "key" // keys of different accounts are different keys
	ByAccount ReportGroup = "account"
)

// A ReportSum is the usage of one model in one group. Start is that of the day
// with ByDay, and otherwise the From of the query.
type ReportSum struct {
	KeyID   string // only with ByKey
	Account string // only with ByKey and ByAccount
	UsageSum
}

// A ResponseStore stores the responses of the protocol in package responses, so
// that clients can continue a conversation from the ID of a response. It is in
// this package so that stores need not import the protocol.
//
// A response belongs to an account: for another account it does not exist. A
// ResponseStore must be safe for concurrent use.
type ResponseStore interface {
	// SaveResponse stores r. When it returns nil, r survives the end of the
	// process if the store is on disk. Saving a response of the same account and
	// ID again replaces it. SaveResponse must not retain or modify r.
	SaveResponse(ctx context.Context, r *StoredResponse) error

	// LoadResponse returns the response of an account, or an error wrapping
	// [ErrResponseNotFound] if there is none or if it has expired. The caller
	// must not modify what it returns.
	LoadResponse(ctx context.Context, account, id string) (*StoredResponse, error)

	// LoadItems returns those items with the given IDs that are in responses of an
	// account, at most one for each ID, in any order. If several items have
	// the same ID, any of them is returned. Items of expired and deleted
	// responses do not exist. The caller must not modify what it returns.
	LoadItems(ctx context.Context, account string, ids []string) ([]StoredItem, error)

	// DeleteResponse deletes a response of an account and its items, or returns
	// an error wrapping [ErrResponseNotFound] if there is none.
	DeleteResponse(ctx context.Context, account, id string) error
}

// ErrResponseNotFound is returned by a [ResponseStore] for an unknown response.
var ErrResponseNotFound = errors.New("llmhttp: no such response")

// A StoredResponse is a response in a [ResponseStore].
type StoredResponse struct {
	ID       string
	Account  string
	Previous string       // the ID of the response that this one continues; "" if none
	Created  time.Time    // stores may round times down to microseconds
	Expires  time.Time    // when the store may delete the response; zero means never
	Body     []byte       // JSON of the response without its items
	Input    []StoredItem // the items of the request, in order, without those of earlier responses
	Output   []StoredItem // the items of the reply, in order
}

// A StoredItem is an item of a response.
type StoredItem struct {
	ID   string // not unique: a client may send an item again
	Body []byte // JSON
}
