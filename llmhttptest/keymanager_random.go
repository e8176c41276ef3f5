package llmhttptest

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/manage"
)

var (
	keyStoreSequences   = managerSequences(25, randomKeyStoreCalls)
	keyManagerSequences = managerSequences(16, randomKeyManagerCalls)
)

// managerCauses tell the cause by the last call, which has failed, and by those that it needs.
var managerCauses = []cause[managerCall]{
	{"the sum of the entries overflows.", last(func(c addCredit) bool { return max(c.Amount, -c.Amount) > 1000 })},
	{"CreditEntry.Validate is not called, an entry counts twice or loses a part, or another entry with its ID is not a conflict.", last(is[addCredit])},
	{"pages overlap, leave out entries or are not in order, or After may be an entry of another account.", last(is[listCredit])},
	{"pages overlap, leave out keys or are not in order.", last(func(c listKeys) bool { return c.Newest || c.After != "" || c.Limit != 0 })},
	{"pages overlap, leave out accounts or are not in order.", last(func(c listAccounts) bool { return c.Newest || c.After != "" || c.Limit != 0 })},
	{"the state of a key is not that of KeyInfo.Status.", last(func(c listKeys) bool { return c.Status != "" })},
	{"keys of other accounts are listed.", last(func(c listKeys) bool { return c.Account != "" })},
	{"a search ignores the text, the case of letters or one of ID, account, name and prefix, or takes characters for a pattern.", last(is[listKeys])},
	{"a search or the status is ignored, or a search compares the case of letters, leaves out ID or name, or takes characters for a pattern.", last(is[listAccounts])},
	{"the error of a query without a result is passed on, or not checked.", func(calls []managerCall) bool {
		return !has(is[createKey])(calls) && !has(is[createAccount])(calls)
	}},
	{"an ID or AccountParams.Validate is not checked, or a setting is dropped or normalised.", last(is[createAccount])},
	{"AccountParams.Validate is not called, a change that was refused is stored, or a setting is dropped.", last(is[updateAccount])},
	{"Lookup uses an outdated cache, ignores Suspended, or does not do what AccountInfo.ApplyTo does.", has(is[createAccount])},
	{"Lookup writes to a Key that it has returned, which requests in progress read.", last(func(c lookupKey) bool { return c.Marked })},
	{
		"secrets are normalised, cut or matched by a pattern, become part of the text of a query, or overflow a column or buffer; or something other than a secret is accepted. Look up HashSecret of the whole secret.",
		last(func(c lookupKey) bool { return c.Form != "" || c.Byte != 0 }),
	},
	{"secrets are normalised or cut. Look up HashSecret of the whole secret.", has(func(c createKey) bool { return c.Secret != "" })},
	{"a key that was revoked or removed still works, can be changed or is unknown, or others no longer work; or Lookup uses an outdated cache.", has(is[revokeKey])},
	{"previous secrets work too long or too short, or a rotation makes another key.", has(is[rotateKey])},
	{"KeyParams.Validate is not called, a change that was refused is stored, or a change drops a setting or makes nil lists empty.", last(is[updateKey])},
	{"Lookup ignores Suspended or uses an outdated cache, or a change that was refused is stored.", has(is[updateKey])},
	{"the hash is not that of HashSecret, or KeyBySecret counts as a use, or an end or an expiry is not that of the secret or key.", last(is[keyBySecret])},
	{
		"the store does not tell nil Scopes or Models, which allow everything, from empty ones, which allow nothing.",
		has(func(c createKey) bool { return isEmpty(c.Scopes) || isEmpty(c.Models) }),
	},
	{
		"the store changes the expiry of an expired key, or reports the key with another error than ErrKeyNotFound.",
		has(func(c createKey) bool { return hasExpired(c.Expires) }),
	},
	{
		"a setting is dropped, rounded, joined, normalised or not validated, or a nil list becomes empty; or the store keeps a Key that it was passed, or changes one that it has returned.",
		func([]managerCall) bool { return true },
	},
}

// has returns a function that reports whether a call has a type and a property.
func has[C any](property func(c C) bool) func([]managerCall) bool {
	return anyCall(func(c managerCall) bool {
		typed, ok := c.(C)
		return ok && property(typed)
	})
}

// last is has for the last call.
func last[C any](property func(c C) bool) func([]managerCall) bool {
	return func(calls []managerCall) bool { return len(calls) > 0 && has(property)(calls[len(calls)-1:]) }
}

func is[C any](C) bool { return true }

func isEmpty[T any](list []T) bool { return list != nil && len(list) == 0 }

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
}, trickyNames())

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
		Account: pick(r.Rand, "#", "a#", "a#", "b#"+name), Name: name,
		Scopes: pick(r.Rand, full.Scopes, nil, []llmhttp.Scope{}), Models: pick(r.Rand, full.Models, nil, []string{}, []string{name}),
		Expires: pick(r.Rand, full.Expires, time.Time{}, time.Time{}, time.Date(2100, 2, 3, 4, 5, 6, 7000, time.FixedZone("east", 5*3600+1800)),
			time.Now().Add(-time.Hour).Truncate(time.Microsecond), time.Unix(1, 0)),
		Limits: pick(r.Rand, append(limits, full.Limits, noLimits, llmhttp.Limits{}, llmhttp.Limits{MaxCompletionTokens: 100})...),
	}
}

// randomKeyStoreCalls adds three keys, removes two, and looks up secrets.
func randomKeyStoreCalls(r *callRand, f KeyStoreFixture) {
	const keys, forms = 3, 7
	var added, live []string
	for step := range 8 * keys {
		switch n := len(added); {
		case step%8 == 0:
			c := createKey{Key: string(rune('a' + n)), KeyParams: r.keyParams(nth(r, trickyNames(), n, keys))}
			if f.AddSecret != nil && n > 0 && (n == 1 || r.sequence%3 > 0) {
				c.Secret = nth(r, chosenForms, n, 2)
			}
			added, live = append(added, c.Key), append(live, c.Key)
			r.add(c, lookupKey{Key: c.Key})
		case step%8 == 4 && n > 1 && f.Remove != nil:
			i := r.IntN(n - 1)
			removed := live[i]
			live = without(live, i)
			r.add(revokeKey{removed}, lookupKey{Key: removed}, lookupKey{Key: pick(r.Rand, live...)})
		case step%2 == 0:
			r.add(lookupKey{Key: pick(r.Rand, live...), Form: nth(r, lookupForms, step/2-n, forms)})
		default:
			r.add(pick(r.Rand, lookupKey{Key: pick(r.Rand, added...)}, lookupKey{Key: pick(r.Rand, live...), Marked: true},
				lookupKey{Key: pick(r.Rand, live...), Byte: 1 + r.IntN(100)}))
		}
	}
}

// invalidLimits are Limits that Validate refuses.
var invalidLimits = llmhttp.Limits{Requests: llmhttp.Rate{Burst: 1}}

// invalidScopes are Scopes of which Validate refuses one.
var invalidScopes = []llmhttp.Scope{llmhttp.ScopeChat, "Not a scope"}

// managerParams returns settings of a key, which may be invalid.
func (r *callRand) managerParams() manage.KeyParams {
	p := r.keyParams(pick(r.Rand, `50%_\ #`, "50 xx #"), invalidLimits)
	p.Account = pick(r.Rand, p.Account, "")
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
			Account: pick(r.Rand, "", "a#"), After: pick(r.Rand, "", pick(r.Rand, names...)), Newest: newest, Limit: nth(r, []int{-1, 1, 2, 3}, n, 5),
		}},
		listKeys{manage.KeyQuery{Account: pick(r.Rand, "", "a#"), Status: status, Newest: newest}},
	)
}

// randomKeyManagerCalls creates five keys and makes other calls for them, and for an unknown one.
func randomKeyManagerCalls(r *callRand, _ manage.KeyManager) {
	names := []string{pick(r.Rand, trickyNames()...)}
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
			name, secret := pick(r.Rand, names...), r.IntN(3)
			switch r.IntN(7) {
			case 0, 1:
				r.add(updateKey{name, r.IntN(5) == 0, r.managerParams()}, lookupKey{Key: name})
			case 2, 3:
				r.add(keyBySecret{Key: name}, rotateKey{name, pick(r.Rand, 0, time.Hour, 2*time.Hour)},
					lookupKey{Key: name, Secret: 1 + r.IntN(2)}, keyBySecret{Key: name, Secret: 1 + r.IntN(2)})
			case 4:
				r.add(readKey{name}, keyBySecret{Key: name, Form: pick(r.Rand, append(trickyNames(), "no first byte", "#00", "<secret>")...)})
			case 5:
				r.add(lookupKey{Key: name, Secret: secret, Marked: r.IntN(4) == 0})
			default:
				r.add(keyBySecret{Key: name, Secret: secret})
			}
		}
		r.listKeys(n, names)
	}
	name := pick(r.Rand, names[1:]...)
	r.add(rotateKey{name, -1}, revokeKey{name}, readKey{name}, lookupKey{Key: name}, keyBySecret{Key: name}, updateKey{Key: name}, rotateKey{Key: name},
		revokeKey{name}, revokeKey{names[0]})
	r.listKeys(5, names)
}
