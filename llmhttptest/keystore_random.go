package llmhttptest

import (
	"errors"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
)

// A keyCall is an addKey, lookUp or removeKey.
type keyCall interface{ call(k *keyTest) }

var keySequences = sequences[KeyStoreFixture, keyCall]{
	count: 25, generate: randomKeyCalls,
	begin: func(t testing.TB, f KeyStoreFixture) func(keyCall) {
		k := &keyTest{
			TB: t, KeyStoreFixture: f, word: unique("sk"),
			keys: map[string]string{}, secrets: map[string]*llmhttp.Key{}, held: map[*llmhttp.Key]*llmhttp.Key{},
		}
		if f.Store == nil {
			t.Fatal("KeyStoreFixture.Store is nil, want a KeyStore")
		}
		return func(c keyCall) {
			c.call(k)
			k.wantHeld()
		}
	},
	simpler: simplerEach(simplerFields[keyCall]), describe: describeFields[keyCall],
	causes: []cause[keyCall]{
		{"Remove removes too little or too much, or Lookup uses an outdated cache.", anyKeyCall(func(removeKey) bool { return true })},
		{"Lookup writes to a Key that it has returned, which requests in progress read.", anyKeyCall(func(c lookUp) bool { return c.Marked })},
		{
			"secrets are normalised or cut. Look up HashSecret of the whole secret.",
			anyKeyCall(func(c addKey) bool { return c.Secret != "" }),
		},
		{
			"secrets are normalised, cut or matched by a pattern, become part of the text of a query, or overflow a column or buffer; or something other than a secret is accepted.",
			anyKeyCall(func(c lookUp) bool { return c.Form != "" || c.Byte != 0 }),
		},
		{
			"the store changes the expiry of an expired key, or reports the key with another error than ErrKeyNotFound.",
			anyKeyCall(func(c addKey) bool { return hasExpired(c.Settings.Expires) }),
		},
		{
			"the store does not tell nil Scopes or Models, which allow everything, from empty ones, which allow nothing.",
			anyKeyCall(func(c addKey) bool { return isEmpty(c.Settings.Scopes) || isEmpty(c.Settings.Models) }),
		},
		{"the error of a query without a result is passed on, or not checked.", func(calls []keyCall) bool {
			return !anyKeyCall(func(addKey) bool { return true })(calls)
		}},
		{
			"the store drops, rounds, joins or normalises a field, makes a nil list empty, or keeps the Key that it was passed; or it changes a Key that it has returned.",
			func([]keyCall) bool { return true },
		},
	},
}

// anyKeyCall returns a function that reports whether a call has a type and a property.
func anyKeyCall[C any](has func(c C) bool) func([]keyCall) bool {
	return anyCall(func(c keyCall) bool {
		typed, ok := c.(C)
		return ok && has(typed)
	})
}

func hasExpired(at time.Time) bool { return !at.IsZero() && !time.Now().Before(at) }

func isEmpty[T any](list []T) bool { return list != nil && len(list) == 0 }

// A keyTest makes calls of a store and keeps what it should have.
type keyTest struct {
	testing.TB
	KeyStoreFixture

	word    string                        // a part of IDs, accounts and chosen secrets
	keys    map[string]string             // secrets by the names of keys in calls
	secrets map[string]*llmhttp.Key       // nil if the key was removed
	held    map[*llmhttp.Key]*llmhttp.Key // copies of what Lookup has returned
}

// wantHeld reports an error if a Key changed that Lookup has returned.
func (k *keyTest) wantHeld() {
	for key, was := range k.held {
		if !reflect.DeepEqual(key, was) {
			k.Errorf("a Key changed that Lookup had returned: %s", diffFields(*key, *was))
		}
	}
}

// addKey adds a key, and overwrites what it has passed.
type addKey struct {
	Name     string      // of the key in calls
	Secret   string      // a form of the test's word; empty lets the fixture choose the secret
	Settings llmhttp.Key // the ends of its ID and Account
}

func (c addKey) call(k *keyTest) {
	if c.Settings.Limits.Validate() != nil {
		return
	}
	key := copyKey(&c.Settings)
	key.ID = k.word + strconv.Itoa(len(k.secrets)) + key.ID
	key.Account = k.word + key.Account
	secret, err := formOf(c.Secret, k.word, nil), error(nil)
	if c.Secret == "" {
		secret, err = k.add(key)
	} else if _, exists := k.secrets[secret]; exists {
		return
	} else {
		err = k.AddSecret(secret, key)
	}
	switch _, exists := k.secrets[secret]; {
	case err != nil && hasExpired(key.Expires): // a store may refuse it
		return
	case err != nil:
		k.Fatal(err)
	case exists:
		k.Error("two keys were added under the same secret, want unique secrets")
	}
	k.keys[c.Name], k.secrets[secret] = secret, copyKey(key)
	overwrite(key)
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

// lookUp looks up the secret of a key, or the test's word if there is no such key.
type lookUp struct {
	Name string
	Form string // see formOf
	Byte int    // the number of a byte to change

	// Marked changes the Keys that Lookup has returned while it runs, to see whether it writes to
	// them, if only the values that they have. Then the result does not count.
	Marked bool
}

func (c lookUp) call(k *keyTest) {
	secret, ok := k.keys[c.Name]
	if !ok {
		secret = k.word
	}
	text := []byte(formOf(c.Form, secret, k.secrets[secret]))
	if len(text) == 0 {
		return
	}
	if c.Byte > 0 {
		text[c.Byte%len(text)] ^= 1
	}
	if c.Marked {
		k.lookupMarked(string(text))
		return
	}
	got, err := k.Store.Lookup(k.Context(), string(text))
	want := k.secrets[string(text)]
	mayFail := want == nil && !isWellFormed(string(text)) || want != nil && hasExpired(want.Expires) && errors.Is(err, llmhttp.ErrKeyNotFound)
	if fault := lookupFault(got, err, want); fault != "" && (err == nil || !mayFail) {
		k.Errorf("Lookup: %s", fault)
	}
	if got != nil && k.held[got] == nil {
		k.held[got] = copyKey(got)
	}
}

func (k *keyTest) lookupMarked(secret string) {
	marked := *fullKey()
	for key := range k.held {
		*key = marked
	}
	_, _ = k.Store.Lookup(k.Context(), secret)
	for key, was := range k.held {
		if diff := diffFields(*key, marked); diff != "" {
			k.Errorf("Lookup wrote to a Key that an earlier one had returned, and which had another content meanwhile: %s", diff)
		}
		*key = *copyKey(was)
	}
}

type removeKey struct{ Name string }

func (c removeKey) call(k *keyTest) {
	secret := k.keys[c.Name]
	key := k.secrets[secret]
	if key == nil {
		return
	}
	if err := k.Remove(secret, copyKey(key)); err != nil {
		k.Fatalf("Remove returned the error %v, want nil", err)
	}
	k.secrets[secret] = nil
}

// secretForms are forms of a secret that have names.
var secretForms = map[string]func(s string) string{
	"upper case":      strings.ToUpper,
	"lower case":      strings.ToLower,
	"swapped case":    swapCase,
	"other last byte": func(s string) string { return s[:len(s)-1] + string(s[len(s)-1]^1) },
	"no first byte":   func(s string) string { return s[1:] },
	"no last byte":    func(s string) string { return s[:len(s)-1] },
	"first half":      func(s string) string { return s[:len(s)/2] },
	"second half":     func(s string) string { return s[len(s)/2:] },
	"first bytes":     func(s string) string { return s[:min(3, len(s))] },
	"first bytes, %":  func(s string) string { return s[:min(3, len(s))] + "%" },
	"first bytes, *":  func(s string) string { return s[:min(3, len(s))] + "*" },
	"wildcards":       func(s string) string { return strings.Repeat("_", len(s)) },
	"hash":            llmhttp.HashSecret,
	"upper-case hash": func(s string) string { return strings.ToUpper(llmhttp.HashSecret(s)) },
	"4095 bytes":      func(s string) string { return s + strings.Repeat("x", max(0, 4095-len(s))) },
	"4096 bytes":      func(s string) string { return s + strings.Repeat("x", max(0, 4095-len(s))) + "0" },
	"4096 others":     func(s string) string { return s + strings.Repeat("x", max(0, 4095-len(s))) + "1" },
}

// chosenForms are forms of secrets that callers can choose. Each is similar to the next.
var chosenForms = []string{
	"#", "#x", "#X", "#%", "#_", "#'", `#"`, `#\`, "#--", "#*", "#?", "#$1", "#:", "#=", "#+/~",
	"swapped case", "no last byte", "hash", "4095 bytes", "4096 bytes", "4096 others",
}

// lookupForms are forms of secrets, and texts that are none.
var lookupForms = slices.Concat(slices.Sorted(maps.Keys(secretForms)), chosenForms, []string{
	"##", "#,#", "# ", "#\n", "#\x00", " #", "x#", `"#"`, "Bearer #", "<ID>", "<account>",
	"x", "%", "' OR '1'='1", "'OR'1'='1'--", `"OR""="`, "\\", "\x00", "\xff\xfe", "\u2028", "sk-", "undefined", "nil",
	strings.Repeat("x", 4096), strings.Repeat("x", 1<<20), strings.Repeat("%", 4096), strings.Repeat("\xff", 5000),
}, trickyNames())

// formOf returns a form of the secret of key, which may be nil: the secret if form is empty, one of
// secretForms, or a text in which # stands for the secret.
func formOf(form, secret string, key *llmhttp.Key) string {
	if form == "" {
		return secret
	}
	if f := secretForms[form]; f != nil {
		return f(secret)
	}
	if key != nil {
		form = strings.NewReplacer("<ID>", key.ID, "<account>", key.Account).Replace(form)
	}
	return strings.ReplaceAll(form, "#", secret)
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

// randomKey returns settings without an account. The name becomes the ID.
func randomKey(rng *rand.Rand, name string) llmhttp.Key {
	full := fullKey()
	return llmhttp.Key{
		ID:     name,
		Scopes: pick(rng, full.Scopes, nil, []llmhttp.Scope{}),
		Models: pick(rng, full.Models, nil, []string{}, []string{name}),
		Expires: pick(rng, full.Expires, time.Time{}, time.Date(2100, 2, 3, 4, 5, 6, 7000, time.FixedZone("east", 5*3600+1800)),
			time.Now().Add(-time.Hour).Truncate(time.Microsecond), time.Unix(1, 0)),
		Limits: pick(rng, full.Limits, llmhttp.Limits{}, noLimits),
	}
}

// randomKeyCalls adds three keys, removes two, and looks up secrets. All sequences together use each
// name and each form.
func randomKeyCalls(rng *rand.Rand, f KeyStoreFixture, sequence int) (calls []keyCall) {
	const adds, forms = 3, 7
	names := trickyNames()
	var added, live []string
	for step := range 8 * adds {
		switch n := len(added); {
		case step%8 == 0:
			name := names[(adds*sequence+n)%len(names)]
			c := addKey{Name: string(rune('a' + n)), Settings: randomKey(rng, name)}
			c.Settings.Account = pick(rng, "", name)
			if f.AddSecret != nil && n > 0 && (n == 1 || sequence%3 > 0) {
				c.Secret = chosenForms[(2*sequence+n)%len(chosenForms)]
			}
			added, live = append(added, c.Name), append(live, c.Name)
			calls = append(calls, c, lookUp{Name: c.Name})
		case step%8 == 4 && n > 1 && f.Remove != nil:
			i := rng.IntN(n - 1)
			calls = append(calls, removeKey{live[i]}, lookUp{Name: live[i]}, lookUp{Name: pick(rng, without(live, i)...)})
			live = without(live, i)
		case step%2 == 0:
			calls = append(calls, lookUp{Name: pick(rng, live...), Form: lookupForms[(forms*sequence+step/2-n)%len(lookupForms)]})
		default:
			calls = append(calls, pick(rng, lookUp{Name: pick(rng, added...)}, lookUp{Name: pick(rng, live...), Marked: true},
				lookUp{Name: pick(rng, live...), Byte: 1 + rng.IntN(100)}))
		}
	}
	return calls
}
