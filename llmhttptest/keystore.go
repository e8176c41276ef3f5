package llmhttptest

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
)

// A KeyStoreFixture is a [llmhttp.KeyStore] with functions that change its keys.
// Store is required, and at least one of Add and AddSecret.
type KeyStoreFixture struct {
	Store llmhttp.KeyStore

	// Add stores key under a new secret and returns the secret. If the store
	// chooses the ID or other fields, Add sets them in key.
	//
	// If Add is nil, the kit calls AddSecret with secrets of [llmhttp.NewSecret].
	Add func(key *llmhttp.Key) (secret string, err error)

	// AddSecret stores key under secret, and sets fields as Add does. It is nil
	// if the store does not let callers choose secrets.
	AddSecret func(secret string, key *llmhttp.Key) error

	// Remove removes the key with the given secret. key has the fields that it had after Add. Once
	// Remove returns, Lookup must not find the key. If Remove is nil, the kit does not test
	// removal.
	Remove func(secret string, key *llmhttp.Key) error
}

// TestKeyStore tests a [llmhttp.KeyStore]. It calls newStore once for each
// subtest.
//
// The subtests look up secrets of every form. For an unknown secret that a
// Handler can pass to Lookup, which is printable ASCII of up to 4096 bytes, the
// error must wrap [llmhttp.ErrKeyNotFound]. For other secrets, which a database
// may be unable to compare, any error is accepted.
//
// A store may return the lists of a Key in another order, may report an expired
// key as not found, and may round times and durations to microseconds.
func TestKeyStore(t *testing.T, newStore func(t testing.TB) KeyStoreFixture) {
	t.Helper()
	runChecks(t, keyChecks, newStore)
}

// add stores key, which the store may keep, and returns its secret.
func (f *KeyStoreFixture) add(key *llmhttp.Key) (secret string, err error) {
	switch {
	case f.Store == nil:
		return "", errors.New("KeyStoreFixture.Store is nil, want a KeyStore")
	case f.Add != nil:
		secret, err = f.Add(key)
	case f.AddSecret != nil:
		secret = llmhttp.NewSecret("sk-")
		err = f.AddSecret(secret, key)
	default:
		return "", errors.New("KeyStoreFixture.Add and AddSecret are nil, want at least one of them")
	}
	switch {
	case err != nil:
		return "", fmt.Errorf("adding key %q returned the error %w, want nil", key.ID, err)
	case secret == "":
		return "", fmt.Errorf("adding key %q returned an empty secret", key.ID)
	}
	return secret, nil
}

// mustAdd stores key and returns its secret and key.
func (f *KeyStoreFixture) mustAdd(t testing.TB, key *llmhttp.Key) (string, *llmhttp.Key) {
	t.Helper()
	secret, err := f.add(key)
	if err != nil {
		t.Fatal(err)
	}
	return secret, key
}

func (f *KeyStoreFixture) mustRemove(t testing.TB, secret string, key *llmhttp.Key) {
	t.Helper()
	if err := f.Remove(secret, copyKey(key)); err != nil {
		t.Fatalf("removing key %q returned the error %v, want nil", key.ID, err)
	}
}

// wantKey reports an error unless Lookup of secret returns want. It returns the
// Key that Lookup returned.
func (f *KeyStoreFixture) wantKey(t testing.TB, secret string, want *llmhttp.Key) *llmhttp.Key {
	t.Helper()
	got, err := f.Store.Lookup(t.Context(), secret)
	if err != nil || got == nil {
		t.Errorf("Lookup of key %q returned %v and the error %v, want the key", want.ID, got, err)
	} else if diff := diffKeys(got, want); diff != "" {
		t.Errorf("Lookup of key %q returned another key: %s", want.ID, diff)
	}
	return got
}

// wantNotFound reports an error unless Lookup of secret reports that there is no
// such key. what describes the secret.
func (f *KeyStoreFixture) wantNotFound(t testing.TB, secret, what string) {
	t.Helper()
	got, err := f.Store.Lookup(t.Context(), secret)
	switch {
	case err == nil && got == nil:
		t.Errorf("Lookup of %s returned neither a key nor an error, want ErrKeyNotFound", what)
	case err == nil:
		t.Errorf("Lookup of %s returned key %q, want ErrKeyNotFound", what, got.ID)
	case !errors.Is(err, llmhttp.ErrKeyNotFound) && isWellFormed(secret):
		t.Errorf("Lookup of %s returned the error %v, want one that wraps ErrKeyNotFound", what, err)
	}
}

// isWellFormed reports whether a Handler would look up secret.
func isWellFormed(secret string) bool {
	const limit = 4096
	return len(secret) <= limit && !strings.ContainsFunc(secret, func(r rune) bool { return r <= ' ' || r > '~' })
}

// newKey returns a key with a unique ID and account.
func newKey() *llmhttp.Key {
	return &llmhttp.Key{ID: unique("key"), Account: unique("account")}
}

// fullKey returns a key that has every field set.
func fullKey() *llmhttp.Key {
	k := newKey()
	k.Scopes = []llmhttp.Scope{llmhttp.ScopeChat, llmhttp.ScopeUsage}
	k.Models = []string{"demo-*", "vendor/model:free", "*", `it's "one"`, "\u6a21\u578b", "a,b", ""}
	k.Expires = time.Now().Add(1000 * time.Hour).Truncate(time.Microsecond)
	k.Limits = llmhttp.Limits{
		Requests: llmhttp.Rate{N: 60, Per: time.Minute, Burst: 7},
		Tokens:   llmhttp.Rate{N: math.MaxInt32, Per: 1500 * time.Millisecond, Burst: math.MaxInt32 - 1},
		Quota: llmhttp.Quota{
			Tokens: 1000,
			Cost:   llmhttp.MoneyUnit / 10,
			Per:    31 * day,
			Since:  time.Date(2025, 3, 14, 12, 0, 0, 1000, time.UTC),
		},
		Concurrent: 3,
	}
	return k
}

// sampleKeys returns keys that between them use every kind of value.
func sampleKeys() []*llmhttp.Key {
	full, refused, sibling := fullKey(), newKey(), newKey()
	refused.Limits = llmhttp.Limits{ // a negative N permits nothing
		Requests:   llmhttp.Rate{N: -1},
		Tokens:     llmhttp.Rate{N: -1, Per: time.Hour},
		Quota:      llmhttp.Quota{Tokens: -5, Cost: -1, Per: -1},
		Concurrent: -1,
	}
	sibling.Account = full.Account // an account may have several keys
	sibling.Expires = time.Date(2100, 2, 3, 4, 5, 6, 7000, time.FixedZone("east", 5*3600+1800))
	keys := []*llmhttp.Key{newKey(), full, refused, sibling}
	for _, name := range trickyNames() {
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

// diffKeys describes the fields in which got differs from want, or returns "".
func diffKeys(got, want *llmhttp.Key) string {
	var diffs []string
	g, w := reflect.ValueOf(normalKey(got)), reflect.ValueOf(normalKey(want))
	for i := range g.NumField() {
		if a, b := g.Field(i).Interface(), w.Field(i).Interface(); !reflect.DeepEqual(a, b) {
			diffs = append(diffs, fmt.Sprintf("%s is %#v, want %#v", g.Type().Field(i).Name, a, b))
		}
	}
	return strings.Join(diffs, "; ")
}

// normalKey returns a copy of k for comparison by reflect.DeepEqual. The order of lists
// and the zones of times do not matter, but a nil list differs from an empty one.
func normalKey(k *llmhttp.Key) llmhttp.Key {
	c := *copyKey(k)
	slices.Sort(c.Scopes)
	slices.Sort(c.Models)
	c.Expires = c.Expires.UTC().Round(0)
	c.Limits.Quota.Since = c.Limits.Quota.Since.UTC().Round(0)
	return c
}
