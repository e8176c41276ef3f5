package llmhttptest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
)

var keyChecks = []check[KeyStoreFixture]{
	{"Found", checkKeyFound},
	{"NilAndEmpty", checkKeyNil},
	{"Expired", checkKeyExpired},
	{"Unknown", checkKeyUnknown},
	{"Similar", checkKeySimilar},
	{"Odd", checkKeyOdd},
	{"Chosen", checkKeyChosen},
	{"Aliased", checkKeyAliased},
	{"Removed", checkKeyRemoved},
	{"Cancelled", checkKeyCancelled},
	{"Concurrent", checkKeyConcurrent},
}

func checkKeyFound(t testing.TB, f KeyStoreFixture) {
	secrets, stored := []string{}, []*llmhttp.Key{}
	for _, key := range sampleKeys() {
		s, k := f.mustAdd(t, key)
		if slices.Contains(secrets, s) {
			t.Fatal("two keys were added with the same secret")
		}
		secrets, stored = append(secrets, s), append(stored, k)
	}
	for range 2 { // in case the second time comes from a cache
		for i, s := range secrets {
			f.expect(t, s, stored[i])
		}
	}
}

func checkKeyNil(t testing.TB, f KeyStoreFixture) {
	for _, lists := range []struct {
		scopes []llmhttp.Endpoint
		models []string
	}{
		{nil, nil},
		{[]llmhttp.Endpoint{}, []string{}},
		{nil, []string{}},
		{[]llmhttp.Endpoint{}, nil},
	} {
		key := newKey()
		key.Scopes, key.Models = lists.scopes, lists.models
		secret, want := f.mustAdd(t, key)
		got, err := f.Store.Lookup(t.Context(), secret)
		if err != nil || got == nil {
			t.Errorf("Lookup of key %q: %v, error %v", want.ID, got, err)
			continue
		}
		if (got.Scopes == nil) != (lists.scopes == nil) || len(got.Scopes) > 0 {
			t.Errorf("Scopes are %#v, want %#v: nil means everything, empty nothing", got.Scopes, lists.scopes)
		}
		if (got.Models == nil) != (lists.models == nil) || len(got.Models) > 0 {
			t.Errorf("Models are %#v, want %#v: nil means everything, empty nothing", got.Models, lists.models)
		}
	}
}

func checkKeyExpired(t testing.TB, f KeyStoreFixture) {
	for _, expires := range []time.Time{time.Unix(1, 0), time.Now().Add(-time.Hour).Truncate(time.Microsecond)} {
		key := newKey()
		key.Expires = expires
		secret, want, err := f.add(key)
		if err != nil {
			t.Skipf("there is no key that has expired: %v", err)
		}
		if _, err := f.Store.Lookup(t.Context(), secret); errors.Is(err, llmhttp.ErrKeyNotFound) {
			continue
		}
		f.expect(t, secret, want)
	}
}

func checkKeyUnknown(t testing.TB, f KeyStoreFixture) {
	f.expectNone(t, llmhttp.NewSecret("sk-"), "a new secret")
	f.mustAdd(t, newKey())
	for range 2 { // in case the second time comes from a cache
		f.expectNone(t, llmhttp.NewSecret("sk-"), "a new secret")
	}
}

func checkKeySimilar(t testing.TB, f KeyStoreFixture) {
	key := newKey()
	secret, stored := f.mustAdd(t, key)
	other, _ := f.mustAdd(t, newKey())
	start := secret[:min(3, len(secret))]
	for what, s := range map[string]string{
		"the upper case of a secret":          strings.ToUpper(secret),
		"the lower case of a secret":          strings.ToLower(secret),
		"the other case of a secret":          swapCase(secret),
		"a secret twice":                      secret + secret,
		"two secrets":                         secret + "," + other,
		"a secret without its first byte":     secret[1:],
		"a secret without its last byte":      secret[:len(secret)-1],
		"half a secret":                       secret[:len(secret)/2],
		"the other half of a secret":          secret[len(secret)/2:],
		"the start of a secret":               start,
		"a secret and a byte":                 secret + "x",
		"a secret and a space":                secret + " ",
		"a secret and a line break":           secret + "\n",
		"a secret and a NUL byte":             secret + "\x00",
		"a space and a secret":                " " + secret,
		"a byte and a secret":                 "x" + secret,
		"a secret in quotes":                  `"` + secret + `"`,
		"a secret with its scheme":            "Bearer " + secret,
		"a secret and a wildcard":             secret + "%",
		"the start of a secret and wildcards": start + "%",
		"the start of a secret and a star":    start + "*",
		"wildcards":                           strings.Repeat("_", len(secret)),
		"a secret with a long tail":           secret + strings.Repeat("x", max(1, 4096-len(secret))),
		"the hash of a secret":                llmhttp.HashSecret(secret),
		"the hash of a secret, in upper case": strings.ToUpper(llmhttp.HashSecret(secret)),
		"a key's ID":                          stored.ID,
		"a key's account":                     stored.Account,
	} {
		if s != "" && s != secret {
			f.expectNone(t, s, what)
		}
	}
	for i := range secret {
		changed := []byte(secret)
		changed[i] ^= 1
		f.expectNone(t, string(changed), fmt.Sprintf("a secret whose byte %d is changed", i))
	}
	f.expect(t, secret, stored)
}

func swapCase(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z':
			return r ^ 0x20
		}
		return r
	}, s)
}

func checkKeyOdd(t testing.TB, f KeyStoreFixture) {
	secret, stored := f.mustAdd(t, newKey())
	odd := append(names(), "x", "%", "' OR '1'='1", "'OR'1'='1'--", `"OR""="`, "\\", "\x00", "\xff\xfe", "\u2028", "sk-", "undefined", "nil",
		strings.Repeat("x", 4096), strings.Repeat("x", 1<<20), strings.Repeat("%", 4096), strings.Repeat("\xff", 5000))
	for _, s := range odd {
		f.expectNone(t, s, fmt.Sprintf("the secret %.40q", s))
	}
	f.expect(t, secret, stored)
}

// checkKeyChosen checks that secrets that are nearly alike are not the same.
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
	stored := make([]*llmhttp.Key, len(secrets))
	for i, s := range secrets {
		f.expectNone(t, s, fmt.Sprintf("the secret %.60q", s))
		key := newKey()
		if err := f.AddSecret(s, &key); err != nil {
			t.Fatalf("adding a key with the secret %.60q: %v", s, err)
		}
		stored[i] = copyKey(&key)
	}
	for i, s := range secrets {
		f.expect(t, s, stored[i])
	}
}

// checkKeyAliased checks that a key stays what it was, in the store and in the
// hands of who has looked it up.
func checkKeyAliased(t testing.TB, f KeyStoreFixture) {
	fixture := f
	var passed []*llmhttp.Key
	if add := f.Add; add != nil {
		fixture.Add = func(key *llmhttp.Key) (string, error) {
			passed = append(passed, key)
			return add(key)
		}
	}
	if add := f.AddSecret; add != nil {
		fixture.AddSecret = func(secret string, key *llmhttp.Key) error {
			passed = append(passed, key)
			return add(secret, key)
		}
	}
	secret, want := fixture.mustAdd(t, sampleKeys()[1])
	got, err := f.Store.Lookup(t.Context(), secret)
	if err != nil || got == nil {
		t.Fatalf("Lookup of key %q: %v, error %v", want.ID, got, err)
	}
	for _, key := range passed {
		spoil(key)
	}
	f.expect(t, secret, want)
	if !sameKey(got, want) {
		t.Errorf("a key that was looked up changed with the one that was added:\n got %+v\nwant %+v", *got, *want)
	}
	for _, key := range sampleKeys()[:4] {
		f.mustAdd(t, key)
	}
	if f.Remove != nil {
		if err := f.Remove(secret, copyKey(want)); err != nil {
			t.Fatalf("removing key %q: %v", want.ID, err)
		}
	}
	if !sameKey(got, want) {
		t.Errorf("a key that was looked up changed when others were added and it was removed:\n got %+v\nwant %+v", *got, *want)
	}
}

// spoil changes all of k that is within reach.
func spoil(k *llmhttp.Key) {
	for i := range k.Scopes {
		k.Scopes[i] = "spoiled"
	}
	for i := range k.Models {
		k.Models[i] = "spoiled"
	}
	*k = llmhttp.Key{ID: "spoiled", Account: "spoiled", Expires: time.Unix(1, 0), Limits: llmhttp.Limits{Concurrent: 99}}
}

func checkKeyRemoved(t testing.TB, f KeyStoreFixture) {
	if f.Remove == nil {
		t.Skip("KeyStoreFixture.Remove is nil")
	}
	gone, key := f.mustAdd(t, newKey())
	sibling := newKey()
	sibling.Account = key.Account
	kept, want := f.mustAdd(t, sibling)
	f.expect(t, gone, key)
	if err := f.Remove(gone, copyKey(key)); err != nil {
		t.Fatalf("removing key %q: %v", key.ID, err)
	}
	for range 2 {
		f.expectNone(t, gone, "a key that was removed")
		f.expect(t, kept, want)
	}
}

func checkKeyCancelled(t testing.TB, f KeyStoreFixture) {
	secret, want := f.mustAdd(t, newKey())
	other, _ := f.mustAdd(t, newKey())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 3 {
		switch got, err := f.Store.Lookup(ctx, secret); {
		case errors.Is(err, llmhttp.ErrKeyNotFound):
			t.Errorf("Lookup of a key with a cancelled context: error %v, which says that there is no such key", err)
		case err == nil && (got == nil || !sameKey(got, want)):
			t.Errorf("Lookup of a key with a cancelled context: %+v, want %+v or an error", got, *want)
		}
		if got, err := f.Store.Lookup(ctx, llmhttp.NewSecret("sk-")); err == nil {
			t.Errorf("Lookup of a new secret with a cancelled context: %+v, want an error", got)
		}
	}
	f.expect(t, secret, want)
	f.expectNone(t, other+"x", "a secret and a byte")
}

func checkKeyConcurrent(t testing.TB, f KeyStoreFixture) {
	const workers, rounds = 8, 12
	var secrets [workers]string
	var stored [workers]*llmhttp.Key
	for i := range secrets {
		secrets[i], stored[i] = f.mustAdd(t, newKey())
	}
	together(t, workers, func(i int) {
		for round := range rounds {
			n := (i + round) % workers
			f.expect(t, secrets[n], stored[n])
			f.expectNone(t, llmhttp.NewSecret("sk-"), "a new secret")
			secret, key, err := f.add(newKey())
			if err != nil {
				t.Error(err)
				return
			}
			f.expect(t, secret, key)
			if f.Remove == nil {
				continue
			}
			if err := f.Remove(secret, copyKey(key)); err != nil {
				t.Errorf("removing key %q: %v", key.ID, err)
				return
			}
			f.expectNone(t, secret, "a key that was removed")
		}
	})
	for i := range secrets {
		f.expect(t, secrets[i], stored[i])
	}
}
