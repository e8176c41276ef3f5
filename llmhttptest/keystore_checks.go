package llmhttptest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
)

var keyChecks = []check[KeyStoreFixture]{
	{"RoundTrip", "the store drops, rounds, joins or normalises a field of the key.", checkKeyRoundTrip},
	{
		"NilAndEmptyLists",
		"the store does not tell nil Scopes or Models, which allow everything, from empty ones, which allow nothing.",
		checkKeyNilLists,
	},
	{
		"ExpiredKey",
		"the store changes the expiry of an expired key, or reports the key with another error than ErrKeyNotFound.",
		checkKeyExpired,
	},
	{"UnknownSecret", "the error of a query without a result is passed on, or not checked.", checkKeyUnknown},
	{
		"SimilarSecrets",
		"secrets are normalised, cut or matched by a pattern, or something other than a secret is accepted.",
		checkKeySimilar,
	},
	{"UnusualSecrets", "secrets become part of the text of a query, or overflow a column or buffer.", checkKeyUnusual},
	{"ChosenSecrets", "secrets are normalised or cut. Look up HashSecret of the whole secret.", checkKeyChosen},
	{"KeysDoNotChange", "the store keeps the Key that it was passed, or writes to a Key that it has returned.", checkKeysDoNotChange},
	{"RemovedKey", "Remove removes too little or too much, or Lookup uses an outdated cache.", checkKeyRemoved},
	{"CancelledContext", "every error of a query is reported as ErrKeyNotFound, or is ignored.", checkKeyCancelled},
	{"ConcurrentCalls", "the state of one call is visible to others, or an update is not atomic.", checkKeyConcurrent},
}

func checkKeyRoundTrip(t testing.TB, f KeyStoreFixture) {
	keys := make(map[string]*llmhttp.Key)
	for _, key := range sampleKeys() {
		secret, _ := f.mustAdd(t, key)
		if keys[secret] != nil {
			t.Fatal("two keys were added under the same secret, want unique secrets")
		}
		keys[secret] = key
	}
	for range 2 { // the second result may come from a cache
		for secret, key := range keys {
			f.wantKey(t, secret, key)
		}
	}
}

func checkKeyNilLists(t testing.TB, f KeyStoreFixture) {
	for _, scopes := range [][]llmhttp.Scope{nil, {}} {
		for _, models := range [][]string{nil, {}} {
			key := newKey()
			key.Scopes, key.Models = scopes, models
			secret, _ := f.mustAdd(t, key)
			f.wantKey(t, secret, key)
		}
	}
}

func checkKeyExpired(t testing.TB, f KeyStoreFixture) {
	for _, expires := range []time.Time{time.Unix(1, 0), time.Now().Add(-time.Hour).Truncate(time.Microsecond)} {
		key := newKey()
		key.Expires = expires
		secret, err := f.add(key)
		if err != nil {
			t.Skipf("the store does not accept an expired key: %v", err)
		}
		if _, err := f.Store.Lookup(t.Context(), secret); !errors.Is(err, llmhttp.ErrKeyNotFound) {
			f.wantKey(t, secret, key)
		}
	}
}

func checkKeyUnknown(t testing.TB, f KeyStoreFixture) {
	f.wantNotFound(t, llmhttp.NewSecret("sk-"), "a new secret in an empty store")
	f.mustAdd(t, newKey())
	secret := llmhttp.NewSecret("sk-")
	for range 2 { // the second result may come from a cache
		f.wantNotFound(t, secret, "a new secret")
	}
}

func checkKeySimilar(t testing.TB, f KeyStoreFixture) {
	secret, key := f.mustAdd(t, newKey())
	other, _ := f.mustAdd(t, newKey())
	start := secret[:min(3, len(secret))]
	for what, s := range map[string]string{
		"a secret in upper case":                     strings.ToUpper(secret),
		"a secret in lower case":                     strings.ToLower(secret),
		"a secret with upper and lower case swapped": swapCase(secret),
		"a secret repeated":                          secret + secret,
		"two secrets":                                secret + "," + other,
		"a secret without its first byte":            secret[1:],
		"a secret without its last byte":             secret[:len(secret)-1],
		"the first half of a secret":                 secret[:len(secret)/2],
		"the second half of a secret":                secret[len(secret)/2:],
		"the first bytes of a secret":                start,
		"a secret followed by a byte":                secret + "x",
		"a secret followed by a space":               secret + " ",
		"a secret followed by a line break":          secret + "\n",
		"a secret followed by a NUL byte":            secret + "\x00",
		"a secret after a space":                     " " + secret,
		"a secret after a byte":                      "x" + secret,
		"a secret in quotes":                         `"` + secret + `"`,
		"a secret with its scheme":                   "Bearer " + secret,
		"a secret followed by a wildcard":            secret + "%",
		"the first bytes of a secret and a wildcard": start + "%",
		"the first bytes of a secret and a star":     start + "*",
		"a wildcard for each byte":                   strings.Repeat("_", len(secret)),
		"a secret with a long tail":                  secret + strings.Repeat("x", max(1, 4096-len(secret))),
		"the hash of a secret":                       llmhttp.HashSecret(secret),
		"the hash of a secret in upper case":         strings.ToUpper(llmhttp.HashSecret(secret)),
		"the ID of a key":                            key.ID,
		"the account of a key":                       key.Account,
	} {
		if s != "" && s != secret {
			f.wantNotFound(t, s, what)
		}
	}
	for i := range secret {
		changed := []byte(secret)
		changed[i] ^= 1
		f.wantNotFound(t, string(changed), fmt.Sprintf("a secret whose byte %d is changed", i))
	}
	f.wantKey(t, secret, key)
}

// swapCase returns s with upper and lower case of ASCII letters swapped.
func swapCase(s string) string {
	return strings.Map(func(r rune) rune {
		if lower := r | 0x20; 'a' <= lower && lower <= 'z' {
			return r ^ 0x20
		}
		return r
	}, s)
}

func checkKeyUnusual(t testing.TB, f KeyStoreFixture) {
	secret, key := f.mustAdd(t, newKey())
	for _, s := range append(trickyNames(), "x", "%", "' OR '1'='1", "'OR'1'='1'--", `"OR""="`, "\\", "\x00", "\xff\xfe", "\u2028", "sk-", "undefined", "nil",
		strings.Repeat("x", 4096), strings.Repeat("x", 1<<20), strings.Repeat("%", 4096), strings.Repeat("\xff", 5000)) {
		f.wantNotFound(t, s, fmt.Sprintf("the secret %.40q", s))
	}
	f.wantKey(t, secret, key)
}

// checkKeyChosen adds keys with similar secrets.
func checkKeyChosen(t testing.TB, f KeyStoreFixture) {
	if f.AddSecret == nil {
		t.Skip("KeyStoreFixture.AddSecret is nil")
	}
	base := unique("sk")
	long := base + strings.Repeat("x", 4095-len(base))
	secrets := []string{
		base, swapCase(base), base + "x", base + "X", base[:len(base)-1], base + "%", base + "_", base + "'", base + `"`, base + `\`, base + "--",
		base + "*", base + "?", base + "$1", base + ":", base + "=", base + "+/~", long + "0", long + "1", long, llmhttp.HashSecret(base),
	}
	keys := make([]*llmhttp.Key, len(secrets))
	for i, s := range secrets {
		f.wantNotFound(t, s, fmt.Sprintf("the secret %.60q", s))
		keys[i] = newKey()
		if err := f.AddSecret(s, keys[i]); err != nil {
			t.Fatalf("AddSecret(%.60q) returned the error %v, want nil", s, err)
		}
	}
	for i, s := range secrets {
		f.wantKey(t, s, keys[i])
	}
}

func checkKeysDoNotChange(t testing.TB, f KeyStoreFixture) {
	secret, passed := f.mustAdd(t, fullKey())
	want := copyKey(passed)
	got := f.wantKey(t, secret, want)
	if t.Failed() {
		return
	}
	f.wantNotWritten(t, secret, got)
	returned := copyKey(got)
	wantUnchanged := func(when string) {
		t.Helper()
		if !reflect.DeepEqual(got, returned) {
			t.Errorf("a Key that Lookup had returned changed when %s: it is %+v, want %+v", when, *got, *returned)
		}
	}
	overwrite(passed)
	f.wantKey(t, secret, want)
	wantUnchanged("the Key that was added was overwritten")
	for _, key := range []*llmhttp.Key{newKey(), fullKey(), newKey()} {
		other, _ := f.mustAdd(t, key)
		f.wantKey(t, other, key)
	}
	f.wantNotFound(t, llmhttp.NewSecret("sk-"), "a new secret")
	wantUnchanged("other keys were added and looked up")
	f.wantKey(t, secret, want)
	wantUnchanged("it was looked up again")
	if f.Remove != nil {
		f.mustRemove(t, secret, want)
		f.wantNotFound(t, secret, "a key that was removed")
		wantUnchanged("it was removed")
	}
}

// wantNotWritten checks that a Lookup does not write to key, which an earlier one
// returned, not even the values that it already had: a Handler may read it at the
// same time. To see that, it changes key for the time of a Lookup.
func (f *KeyStoreFixture) wantNotWritten(t testing.TB, secret string, key *llmhttp.Key) {
	t.Helper()
	original := *key
	changed := original
	changed.ID, changed.Account = unique("changed"), unique("changed")
	changed.Expires = original.Expires.Add(time.Hour)
	changed.Limits.Concurrent++
	*key = changed
	_, err := f.Store.Lookup(t.Context(), secret)
	if !reflect.DeepEqual(key, &changed) {
		t.Errorf(
			"a Key that Lookup had returned was written to by the next Lookup, which returned the error %v; want it unchanged, because requests in progress read it",
			err,
		)
	}
	*key = original
}

// overwrite changes k and everything that it points to.
func overwrite(k *llmhttp.Key) {
	for i := range k.Scopes {
		k.Scopes[i] = "overwritten"
	}
	for i := range k.Models {
		k.Models[i] = "overwritten"
	}
	*k = llmhttp.Key{ID: "overwritten", Account: "overwritten", Expires: time.Unix(1, 0), Limits: llmhttp.Limits{Concurrent: 99}}
}

func checkKeyRemoved(t testing.TB, f KeyStoreFixture) {
	if f.Remove == nil {
		t.Skip("KeyStoreFixture.Remove is nil")
	}
	removed, key := f.mustAdd(t, newKey())
	sibling := newKey()
	sibling.Account = key.Account
	kept, _ := f.mustAdd(t, sibling)
	f.wantKey(t, removed, key)
	f.mustRemove(t, removed, key)
	for range 2 { // the second result may come from a cache
		f.wantNotFound(t, removed, "a key that was removed")
		f.wantKey(t, kept, sibling)
	}
}

func checkKeyCancelled(t testing.TB, f KeyStoreFixture) {
	secret, want := f.mustAdd(t, newKey())
	other, _ := f.mustAdd(t, newKey())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 3 {
		got, err := f.Store.Lookup(ctx, secret)
		switch {
		case errors.Is(err, llmhttp.ErrKeyNotFound):
			t.Errorf(
				"Lookup of a key with a cancelled context returned the error %v, want the key or an error that does not wrap ErrKeyNotFound",
				err,
			)
		case err == nil && (got == nil || diffKeys(got, want) != ""):
			t.Errorf("Lookup of a key with a cancelled context returned %+v and no error, want %+v or an error", got, *want)
		}
		if got, err := f.Store.Lookup(ctx, llmhttp.NewSecret("sk-")); err == nil {
			t.Errorf("Lookup of a new secret with a cancelled context returned %+v and no error, want an error", got)
		}
	}
	f.wantKey(t, secret, want)
	f.wantNotFound(t, other+"x", "a secret followed by a byte")
}

func checkKeyConcurrent(t testing.TB, f KeyStoreFixture) {
	const workers, rounds = 8, 12
	var secrets [workers]string
	var keys [workers]*llmhttp.Key
	for i := range secrets {
		secrets[i], keys[i] = f.mustAdd(t, newKey())
	}
	runConcurrently(t, workers, func(i int) {
		for round := range rounds {
			n := (i + round) % workers
			f.wantKey(t, secrets[n], keys[n])
			f.wantNotFound(t, llmhttp.NewSecret("sk-"), "a new secret")
			key := newKey()
			secret, err := f.add(key)
			if err != nil {
				t.Error(err)
				return
			}
			f.wantKey(t, secret, key)
			if f.Remove == nil {
				continue
			}
			if err := f.Remove(secret, copyKey(key)); err != nil {
				t.Errorf("removing key %q returned the error %v, want nil", key.ID, err)
				return
			}
			f.wantNotFound(t, secret, "a key that was removed")
		}
	})
	for i, secret := range secrets {
		f.wantKey(t, secret, keys[i])
	}
}
