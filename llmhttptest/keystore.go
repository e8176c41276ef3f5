package llmhttptest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
)

// A KeyStoreFixture is a [llmhttp.KeyStore] to be tested, and how to put keys
// into it. At least one of Add and AddSecret is required.
type KeyStoreFixture struct {
	Store llmhttp.KeyStore

	// Add stores a key under a secret that the store, or Add, makes up, and
	// returns the secret. If the store makes up the key's ID or other fields
	// as well, Add sets them in key.
	//
	// If Add is nil, AddSecret is called with what [llmhttp.NewSecret] returns.
	Add func(key *llmhttp.Key) (secret string, err error)

	// AddSecret stores a key under the given secret. It is nil if the store
	// lets nobody choose.
	AddSecret func(secret string, key *llmhttp.Key) error

	// Remove removes the key that was added with secret. The key is the same as
	// in the call that added it. After Remove, Lookup must not find the key. If
	// Remove is nil, removal is not tested.
	Remove func(secret string, key *llmhttp.Key) error
}

// TestKeyStore tests a [llmhttp.KeyStore]. It calls newStore for each of its
// subtests, which add keys and look them up, and also secrets that are nearly
// those of keys.
//
// The secrets it looks up are of any form. Those that a Handler lets pass, of
// up to 4096 bytes of printable ASCII, must be reported with
// [llmhttp.ErrKeyNotFound] where there is no key; for others, which a database
// may be unable to compare, any error will do.
//
// The lists of a Key may come back in another order, and an expired key may be
// reported as not found. Stores must tell nil from empty lists, and keep times
// and durations to the microsecond.
func TestKeyStore(t *testing.T, newStore func(t testing.TB) KeyStoreFixture) {
	t.Helper()
	runChecks(t, keyChecks, newStore)
}

// add adds a copy of key, and returns its secret and what is to be found.
func (f *KeyStoreFixture) add(key llmhttp.Key) (secret string, stored *llmhttp.Key, err error) {
	k := copyKey(&key)
	switch {
	case f.Store == nil:
		return "", nil, errors.New("KeyStoreFixture.Store is nil")
	case f.Add != nil:
		secret, err = f.Add(k)
	case f.AddSecret != nil:
		secret = llmhttp.NewSecret("sk-")
		err = f.AddSecret(secret, k)
	default:
		return "", nil, errors.New("KeyStoreFixture.Add and AddSecret are nil")
	}
	if err == nil && secret == "" {
		err = errors.New("no secret")
	}
	if err != nil {
		return "", nil, fmt.Errorf("adding a key: %w", err)
	}
	return secret, copyKey(k), nil
}

func (f *KeyStoreFixture) mustAdd(t testing.TB, key llmhttp.Key) (secret string, stored *llmhttp.Key) {
	t.Helper()
	secret, stored, err := f.add(key)
	if err != nil {
		t.Fatal(err)
	}
	return secret, stored
}

// expect reports an error unless secret is that of want.
func (f *KeyStoreFixture) expect(t testing.TB, secret string, want *llmhttp.Key) {
	t.Helper()
	switch got, err := f.Store.Lookup(t.Context(), secret); {
	case err != nil:
		t.Errorf("Lookup of key %q: error %v", want.ID, err)
	case got == nil:
		t.Errorf("Lookup of key %q: neither a key nor an error", want.ID)
	case !sameKey(got, want):
		t.Errorf("Lookup of key %q:\n got %+v\nwant %+v", want.ID, *got, *want)
	}
}

// expectNone reports an error if secret, which is described by what, is that
// of a key, or if that it is not is reported wrongly.
func (f *KeyStoreFixture) expectNone(t testing.TB, secret, what string) {
	t.Helper()
	switch got, err := f.Store.Lookup(t.Context(), secret); {
	case err == nil && got == nil:
		t.Errorf("Lookup of %s: neither a key nor an error, want ErrKeyNotFound", what)
	case err == nil:
		t.Errorf("Lookup of %s: found key %q, want ErrKeyNotFound", what, got.ID)
	case !errors.Is(err, llmhttp.ErrKeyNotFound) && isToken(secret):
		t.Errorf("Lookup of %s: error %v, which does not wrap ErrKeyNotFound", what, err)
	}
}

// isToken reports whether a Handler would look up secret.
func isToken(secret string) bool {
	const limit = 4096
	return len(secret) <= limit && !strings.ContainsFunc(secret, func(r rune) bool { return r <= ' ' || r > '~' })
}

// newKey returns a key whose names are unique.
func newKey() llmhttp.Key {
	return llmhttp.Key{ID: unique("key"), Account: unique("account")}
}

// sampleKeys returns keys that have each of their fields set.
func sampleKeys() []llmhttp.Key {
	full := newKey()
	full.Scopes = []llmhttp.Endpoint{llmhttp.EndpointChat, llmhttp.EndpointUsage}
	full.Models = []string{"demo-*", "vendor/model:free", "*", `it's "one"`, "\u6a21\u578b", "a,b", ""}
	full.Expires = time.Now().Add(1000 * time.Hour).Truncate(time.Microsecond)
	full.Limits = llmhttp.Limits{
		Requests:   llmhttp.Rate{N: 60, Per: time.Minute, Burst: 7},
		Tokens:     llmhttp.Rate{N: math.MaxInt32, Per: 1500 * time.Millisecond, Burst: math.MaxInt32 - 1},
		Quota:      llmhttp.Rate{N: 1000, Per: 31 * 24 * time.Hour, Burst: 1},
		Concurrent: 3,
	}
	none := newKey() // negative limits are the opposite of none
	none.Limits = llmhttp.Limits{
		Requests:   llmhttp.Rate{N: -1},
		Tokens:     llmhttp.Rate{N: -1, Per: time.Hour},
		Quota:      llmhttp.Rate{N: -5},
		Concurrent: -1,
	}
	other := newKey()
	other.Account = full.Account // which may have several keys
	other.Expires = time.Date(2100, 2, 3, 4, 5, 6, 7000, time.FixedZone("east", 5*3600+1800))
	keys := []llmhttp.Key{newKey(), full, none, other}
	for _, name := range names() {
		k := newKey()
		k.ID += name
		k.Account += name
		k.Models = []string{name}
		keys = append(keys, k)
	}
	return keys
}

func copyKey(k *llmhttp.Key) *llmhttp.Key {
	c := *k
	c.Scopes, c.Models = slices.Clone(k.Scopes), slices.Clone(k.Models)
	return &c
}

// sameKey reports whether a and b entitle to the same.
func sameKey(a, b *llmhttp.Key) bool {
	return a.ID == b.ID && a.Account == b.Account && a.Limits == b.Limits &&
		sameList(a.Scopes, b.Scopes) && sameList(a.Models, b.Models) &&
		a.Expires.IsZero() == b.Expires.IsZero() && a.Expires.Equal(b.Expires)
}

// sameList compares lists whose order does not matter.
func sameList[T ~string](a, b []T) bool {
	return (a == nil) == (b == nil) && slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}
