// TestKeyStore and its checks.

package storetest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llmhttptest/internal/kit"
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
	kit.Run(t, keyStoreSequences, keyChecks, newStore)
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

// isWellFormed reports whether a Handler would look up secret.
func isWellFormed(secret string) bool {
	const limit = 4096
	return len(secret) <= limit && !strings.ContainsFunc(secret, func(r rune) bool { return r <= ' ' || r > '~' })
}

// wantFound reports an error unless a Lookup returned want, or ErrKeyNotFound if want is nil.
func wantFound(t testing.TB, did string, got *llmhttp.Key, err error, want *llmhttp.Key) {
	t.Helper()
	switch {
	case want == nil && errors.Is(err, llmhttp.ErrKeyNotFound):
	case want == nil:
		kit.Wrong(t, did, fmt.Sprintf("%s and the error %v", describeKey(got), err), "ErrKeyNotFound")
	case err != nil || got == nil:
		kit.Wrong(t, did, fmt.Sprintf("%s and the error %v", describeKey(got), err), describeKey(want))
	default:
		kit.WantSame(t, did, normalKey(got), normalKey(want))
	}
}

func describeKey(k *llmhttp.Key) string {
	if k == nil {
		return "no key"
	}
	return fmt.Sprintf("the key %.60q", k.ID)
}

// newKey returns a key with a unique ID and account.
func newKey() *llmhttp.Key {
	return &llmhttp.Key{ID: kit.Unique("key"), Account: kit.Unique("account")}
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
			Cost:   llm.USD(0.1),
			Per:    31 * day,
			Since:  time.Date(2025, 3, 14, 12, 0, 0, 1000, time.UTC),
		},
		Concurrent: 3,
	}
	return k
}

// noLimits are Limits that permit nothing.
var noLimits = llmhttp.Limits{
	Requests:            llmhttp.Rate{N: -1},
	Tokens:              llmhttp.Rate{N: -1, Per: time.Hour},
	Quota:               llmhttp.Quota{Tokens: -5, Cost: -1, Per: -1},
	MaxCompletionTokens: -1,
	Concurrent:          -1,
}

func copyKey(k *llmhttp.Key) *llmhttp.Key {
	c := *k
	c.Scopes, c.Models = slices.Clone(k.Scopes), slices.Clone(k.Models)
	return &c
}

// normalKey returns a copy of k whose lists are sorted, with times in UTC. A nil list remains one, but
// for Labels there is no difference.
func normalKey(k *llmhttp.Key) llmhttp.Key {
	c := *copyKey(k)
	slices.Sort(c.Scopes)
	slices.Sort(c.Models)
	c.Labels = normalLabels(c.Labels)
	c.Subjects = slices.Clone(c.Subjects)
	for i := range c.Subjects {
		since := &c.Subjects[i].Limits.Quota.Since
		*since = since.UTC().Round(0)
	}
	return c
}

var keyChecks = []kit.Check[KeyStoreFixture]{{"ConcurrentCalls", checkKeyConcurrent}}

// wantLookup reports an error unless Lookup of secret returns want, or ErrKeyNotFound if want is nil.
func (f *KeyStoreFixture) wantLookup(t testing.TB, secret string, want *llmhttp.Key) {
	t.Helper()
	got, err := f.Store.Lookup(t.Context(), secret)
	wantFound(t, "Lookup, concurrently", got, err, want)
}

func checkKeyConcurrent(t testing.TB, f KeyStoreFixture) {
	const workers, rounds = 8, 12
	var secrets [workers]string
	var keys [workers]*llmhttp.Key
	for i := range secrets {
		secrets[i], keys[i] = f.mustAdd(t, newKey())
	}
	kit.Concurrently(t, workers, func(i int) {
		for round := range rounds {
			n := (i + round) % workers
			f.wantLookup(t, secrets[n], keys[n])
			f.wantLookup(t, llmhttp.NewSecret("sk-"), nil)
			key := newKey()
			secret, err := f.add(key)
			if f.wantLookup(t, secret, key); f.Remove != nil && err == nil {
				err = f.Remove(secret, copyKey(key))
				f.wantLookup(t, secret, nil)
			}
			if err != nil {
				kit.Wrong(t, "Add or Remove, concurrently", err, nil)
				return
			}
		}
	})
	for i, secret := range secrets {
		f.wantLookup(t, secret, keys[i])
	}
}
