// Random calls of a KeyManager.

package storetest

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llmhttptest/internal/kit"
	"github.com/llmhttp/llmhttp/manage"
)

var (
	keyStoreSequences   = managerSequences(25, randomKeyStoreCalls)
	keyManagerSequences = managerSequences(16, randomKeyManagerCalls)
)

func hasExpired(at time.Time) bool { return !at.IsZero() && !time.Now().Before(at) }

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
	"##", "#,#", "# ", "#\n", "#\x00", " #", "x#", `"#"`, "Bearer #", "<id>", "<account>",
	"x", "%", "' OR '1'='1", "'OR'1'='1'--", `"OR""="`, "\\", "\x00", "\xff\xfe", "\u2028", "sk-", "undefined", "nil",
	strings.Repeat("x", 4096), strings.Repeat("x", 1<<20), strings.Repeat("%", 4096), strings.Repeat("\xff", 5000),
}, kit.TrickyNames())

// formOf returns a form of a secret: the secret if form is empty, one of secretForms, or a text in
// which # stands for the secret.
func formOf(form, secret string) string {
	if f := secretForms[form]; f != nil {
		return f(secret)
	}
	if form == "" {
		return secret
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

// A callRand makes the calls of a sequence.
type callRand struct {
	*rand.Rand
	sequence int
	calls    []managerCall
}

func (r *callRand) add(calls ...managerCall) { r.calls = append(r.calls, calls...) }

// nth returns an element of list. All sequences together use all if each uses count of them.
func nth[T any](r *callRand, list []T, n, count int) T { return list[(r.sequence*count+n)%len(list)] }

// keyParams returns settings of a key. The name becomes a part of them.
func (r *callRand) keyParams(name string, limits ...llmhttp.Limits) manage.KeyParams {
	full := fullKey()
	return manage.KeyParams{
		Account: kit.Pick(r.Rand, "#", "a#", "a#", "b#"+name), Name: name,
		Scopes: kit.Pick(r.Rand, full.Scopes, nil, []llmhttp.Scope{}), Models: kit.Pick(r.Rand, full.Models, nil, []string{}, []string{name}),
		Expires: kit.Pick(r.Rand, full.Expires, time.Time{}, time.Time{}, time.Date(2100, 2, 3, 4, 5, 6, 7000, time.FixedZone("east", 5*3600+1800)),
			time.Now().Add(-time.Hour).Truncate(time.Microsecond), time.Unix(1, 0)),
		Limits: kit.Pick(r.Rand, append(limits, full.Limits, noLimits, llmhttp.Limits{}, llmhttp.Limits{MaxCompletionTokens: 100})...),
	}
}

// randomKeyStoreCalls adds three keys, removes two, and looks up secrets.
func randomKeyStoreCalls(r *callRand, f KeyStoreFixture) {
	const keys, forms = 3, 7
	var added, live []string
	for step := range 8 * keys {
		switch n := len(added); {
		case step%8 == 0:
			c := createKey{Key: string(rune('a' + n)), KeyParams: r.keyParams(nth(r, kit.TrickyNames(), n, keys))}
			if f.AddSecret != nil && n > 0 && (n == 1 || r.sequence%3 > 0) {
				c.Secret = nth(r, chosenForms, n, 2)
			}
			added, live = append(added, c.Key), append(live, c.Key)
			r.add(c, lookupKey{Key: c.Key})
		case step%8 == 4 && n > 1 && f.Remove != nil:
			i := r.IntN(n - 1)
			removed := live[i]
			live = kit.Without(live, i)
			r.add(revokeKey{removed}, lookupKey{Key: removed}, lookupKey{Key: kit.Pick(r.Rand, live...)})
		case step%2 == 0:
			r.add(lookupKey{Key: kit.Pick(r.Rand, live...), Form: nth(r, lookupForms, step/2-n, forms)})
		default:
			r.add(kit.Pick(r.Rand, lookupKey{Key: kit.Pick(r.Rand, added...)}, lookupKey{Key: kit.Pick(r.Rand, live...), Marked: true},
				lookupKey{Key: kit.Pick(r.Rand, live...), Cancelled: true}, lookupKey{Key: "unknown", Cancelled: true},
				lookupKey{Key: kit.Pick(r.Rand, live...), Byte: 1 + r.IntN(100)}))
		}
	}
}

// invalidLimits are Limits that Validate refuses.
var invalidLimits = llmhttp.Limits{Requests: llmhttp.Rate{Burst: 1}}

// invalidScopes are Scopes of which Validate refuses one.
var invalidScopes = []llmhttp.Scope{llmhttp.ScopeChat, "Not a scope"}

// managerParams returns settings of a key, which may be invalid.
func (r *callRand) managerParams() manage.KeyParams {
	p := r.keyParams(kit.Pick(r.Rand, `50%_\ #`, "50 xx #"), invalidLimits)
	p.Account = kit.Pick(r.Rand, p.Account, "")
	p.Suspended = r.IntN(4) == 0
	if r.IntN(8) == 0 {
		p.Scopes = invalidScopes
	}
	return p
}

// listKeys adds a search, and queries of a page and of a state.
func (r *callRand) listKeys(n int, names []string) {
	search := nth(r, []string{"#", "XX #", `0%_\ #`, "50_xx #", "50%#", "<id>", "<prefix>", "A#"}, n, 5)
	status := nth(r, []manage.KeyStatus{manage.KeyActive, manage.KeyExpired, manage.KeySuspended, manage.KeyRevoked}, n, 5)
	newest := r.IntN(2) == 0
	r.add(
		listKeys{manage.KeyQuery{Search: search, Newest: newest}},
		listKeys{manage.KeyQuery{
			Account: kit.Pick(r.Rand, "", "a#"), After: kit.Pick(r.Rand, "", kit.Pick(r.Rand, names...)), Newest: newest, Limit: nth(r, []int{-1, 1, 2, 3}, n, 5),
		}},
		listKeys{manage.KeyQuery{Account: kit.Pick(r.Rand, "", "a#"), Status: status, Newest: newest}},
	)
}

// randomKeyManagerCalls creates five keys and makes other calls for them, and for an unknown one.
func randomKeyManagerCalls(r *callRand, _ manage.KeyManager) {
	names := []string{kit.Pick(r.Rand, kit.TrickyNames()...)}
	for n := range 5 {
		p := r.managerParams() // of a change that is refused, suspends or is invalid, or is another
		p.Suspended = n == 1
		switch n {
		case 2:
			p.Limits = invalidLimits
		case 3:
			p.Scopes = invalidScopes
		}
		names = append(names, string(rune('a'+n)))
		r.add(createKey{Key: names[n+1], KeyParams: r.managerParams()}, keyBySecret{Key: names[n+1]},
			updateKey{names[n+1], n == 0, p}, lookupKey{Key: names[n+1]})
		for range 4 {
			name, secret := kit.Pick(r.Rand, names...), r.IntN(3)
			switch r.IntN(7) {
			case 0, 1:
				r.add(updateKey{name, r.IntN(5) == 0, r.managerParams()}, lookupKey{Key: name})
			case 2, 3:
				r.add(keyBySecret{Key: name}, rotateKey{name, kit.Pick(r.Rand, 0, time.Hour, 2*time.Hour)},
					lookupKey{Key: name, Secret: 1 + r.IntN(2)}, keyBySecret{Key: name, Secret: 1 + r.IntN(2)})
			case 4:
				r.add(readKey{name}, keyBySecret{Key: name, Form: kit.Pick(r.Rand, append(kit.TrickyNames(), "no first byte", "#00", "<secret>")...)})
			case 5:
				r.add(lookupKey{Key: name, Secret: secret, Marked: r.IntN(4) == 0})
			default:
				r.add(keyBySecret{Key: name, Secret: secret})
			}
		}
		r.listKeys(n, names)
	}
	name := kit.Pick(r.Rand, names[1:]...)
	r.add(rotateKey{name, -1}, revokeKey{name}, readKey{name}, lookupKey{Key: name}, keyBySecret{Key: name}, updateKey{Key: name}, rotateKey{Key: name},
		revokeKey{name}, revokeKey{names[0]})
	r.listKeys(5, names)
}
