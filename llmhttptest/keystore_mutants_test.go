package llmhttptest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
)

// A keyMap is a KeyStore in its plainest form, with places for faults.
type keyMap struct {
	mu   sync.Mutex
	keys map[string]*llmhttp.Key

	normal func(secret string) string                                           // of secrets, before they are compared
	keep   func(k *llmhttp.Key) *llmhttp.Key                                    // what is stored of a key
	show   func(k *llmhttp.Key) *llmhttp.Key                                    // what is returned of one
	lookup func(m *keyMap, ctx context.Context, s string) (*llmhttp.Key, error) // instead
	remove func(m *keyMap, secret string)                                       // instead
}

func (m *keyMap) Lookup(ctx context.Context, secret string) (*llmhttp.Key, error) {
	if m.lookup != nil {
		return m.lookup(m, ctx, secret)
	}
	return m.find(secret)
}

func (m *keyMap) find(secret string) (*llmhttp.Key, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.keys[m.normal(secret)]
	if k == nil {
		return nil, llmhttp.ErrKeyNotFound
	}
	return m.show(k), nil
}

func (m *keyMap) add(secret string, k *llmhttp.Key) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.keys[m.normal(secret)] = m.keep(k)
	return nil
}

func (m *keyMap) delete(secret string, _ *llmhttp.Key) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.remove != nil {
		m.remove(m, secret)
		return nil
	}
	delete(m.keys, m.normal(secret))
	return nil
}

func sameSecret(s string) string { return s }

func sameKeyAgain(k *llmhttp.Key) *llmhttp.Key { return k }

// keyFixture returns a fixture of a keyMap with a fault.
func keyFixture(fault func(*keyMap)) func(testing.TB) KeyStoreFixture {
	return func(testing.TB) KeyStoreFixture {
		m := &keyMap{keys: map[string]*llmhttp.Key{}, normal: sameSecret, keep: copyKey, show: sameKeyAgain}
		fault(m)
		return KeyStoreFixture{Store: m, AddSecret: m.add, Remove: m.delete}
	}
}

// keeps is the fault of a store that changes what it keeps.
func keeps(change func(k *llmhttp.Key)) func(testing.TB) KeyStoreFixture {
	return keyFixture(func(m *keyMap) {
		m.keep = func(k *llmhttp.Key) *llmhttp.Key { k = copyKey(k); change(k); return k }
	})
}

// normalizes is the fault of a store that takes some secrets for others.
func normalizes(normal func(string) string) func(testing.TB) KeyStoreFixture {
	return keyFixture(func(m *keyMap) { m.normal = normal })
}

// looks is the fault of a store that looks up in its own way.
func looks(lookup func(m *keyMap, ctx context.Context, s string) (*llmhttp.Key, error)) func(testing.TB) KeyStoreFixture {
	return keyFixture(func(m *keyMap) { m.lookup = lookup })
}

func TestKeyStoreMutants(t *testing.T) {
	testMutants(t, keyChecks, keyFixture(func(*keyMap) {}), []mutant[KeyStoreFixture]{
		{"no scopes", "Found", keeps(func(k *llmhttp.Key) { k.Scopes = nil })},
		{"models in one text", "Found", keeps(func(k *llmhttp.Key) {
			if k.Models != nil {
				k.Models = strings.Split(strings.Join(k.Models, ","), ",")
			}
		})},
		{"no burst", "Found", keeps(func(k *llmhttp.Key) { k.Limits.Tokens.Burst = 0 })},
		{"no negative limits", "Found", keeps(func(k *llmhttp.Key) { k.Limits.Requests.N = max(0, k.Limits.Requests.N) })},
		{"no negative concurrency", "Found", keeps(func(k *llmhttp.Key) { k.Limits.Concurrent = max(0, k.Limits.Concurrent) })},
		{"periods in seconds", "Found", keeps(func(k *llmhttp.Key) { k.Limits.Tokens.Per = k.Limits.Tokens.Per.Truncate(time.Second) })},
		{"expiry in seconds", "Found", keeps(func(k *llmhttp.Key) { k.Expires = k.Expires.Truncate(time.Second) })},
		{"expiry without its zone", "Found", keeps(func(k *llmhttp.Key) {
			e := k.Expires
			k.Expires = time.Date(e.Year(), e.Month(), e.Day(), e.Hour(), e.Minute(), e.Second(), e.Nanosecond(), time.UTC)
		})},
		{"never expiring becomes 1970", "Found", keeps(func(k *llmhttp.Key) {
			if k.Expires.IsZero() {
				k.Expires = time.Unix(0, 0)
			}
		})},
		{"account in lower case", "Found", keeps(func(k *llmhttp.Key) { k.Account = strings.ToLower(k.Account) })},
		{"trimmed ID", "Found", keeps(func(k *llmhttp.Key) { k.ID = strings.TrimSpace(k.ID) })},
		{"one secret for all", "Found", func(t testing.TB) KeyStoreFixture {
			f := keyFixture(func(*keyMap) {})(t)
			f.Add = func(k *llmhttp.Key) (string, error) { return "sk-same", f.AddSecret("sk-same", k) }
			return f
		}},
		{"no secret", "Found", func(t testing.TB) KeyStoreFixture {
			f := keyFixture(func(*keyMap) {})(t)
			f.Add = func(k *llmhttp.Key) (string, error) { return "", f.AddSecret("", k) }
			return f
		}},
		{"adding fails", "Found", func(t testing.TB) KeyStoreFixture {
			f := keyFixture(func(*keyMap) {})(t)
			f.AddSecret = func(string, *llmhttp.Key) error { return errors.New("full") }
			return f
		}},
		{"no Add", "Found", func(t testing.TB) KeyStoreFixture { return KeyStoreFixture{Store: &keyMap{}} }},
		{"no Store", "Found", func(t testing.TB) KeyStoreFixture { return KeyStoreFixture{} }},

		{"empty scopes become nil", "NilAndEmpty", keeps(func(k *llmhttp.Key) {
			if len(k.Scopes) == 0 {
				k.Scopes = nil
			}
		})},
		{"empty models become nil", "NilAndEmpty", keeps(func(k *llmhttp.Key) {
			if len(k.Models) == 0 {
				k.Models = nil
			}
		})},
		{"nil models become empty", "NilAndEmpty", keeps(func(k *llmhttp.Key) {
			if len(k.Models) == 0 {
				k.Models = []string{}
			}
		})},
		{"empty models become one empty text", "NilAndEmpty", keeps(func(k *llmhttp.Key) {
			if k.Models != nil {
				k.Models = strings.Split(strings.Join(k.Models, ","), ",")
			}
		})},

		{"expired keys are renewed", "Expired", keeps(func(k *llmhttp.Key) {
			if !k.Expires.IsZero() && k.Expires.Before(time.Now()) {
				k.Expires = time.Time{}
			}
		})},
		{"expired keys are failures", "Expired", looks(func(m *keyMap, _ context.Context, s string) (*llmhttp.Key, error) {
			k, err := m.find(s)
			if err == nil && !k.Expires.IsZero() && k.Expires.Before(time.Now()) {
				return nil, errors.New("expired")
			}
			return k, err
		})},

		{"neither key nor error", "Unknown", looks(func(m *keyMap, _ context.Context, s string) (*llmhttp.Key, error) {
			k, _ := m.find(s)
			return k, nil
		})},
		{"another error", "Unknown", looks(func(m *keyMap, _ context.Context, s string) (*llmhttp.Key, error) {
			k, err := m.find(s)
			if err != nil {
				err = errors.New("no rows in result set")
			}
			return k, err
		})},
		{"unknown is nobody", "Unknown", looks(func(m *keyMap, _ context.Context, s string) (*llmhttp.Key, error) {
			if k, err := m.find(s); err == nil {
				return k, nil
			}
			return &llmhttp.Key{}, nil
		})},
		{"any key will do", "Unknown", looks(func(m *keyMap, _ context.Context, s string) (*llmhttp.Key, error) {
			for _, k := range m.keys {
				return k, nil
			}
			return nil, llmhttp.ErrKeyNotFound
		})},

		{"case is ignored", "Similar", normalizes(strings.ToLower)},
		{"spaces are trimmed", "Similar", normalizes(strings.TrimSpace)},
		{"the scheme is cut off", "Similar", normalizes(func(s string) string { return strings.TrimPrefix(s, "Bearer ") })},
		{"quotes are cut off", "Similar", normalizes(func(s string) string { return strings.Trim(s, `"`) })},
		{"text ends at NUL", "Similar", normalizes(func(s string) string { s, _, _ = strings.Cut(s, "\x00"); return s })},
		{"only the start counts", "Similar", normalizes(func(s string) string { return s[:min(len(s), 20)] })},
		{"only the end counts", "Similar", normalizes(func(s string) string { return s[max(0, len(s)-20):] })},
		{"the last byte does not count", "Similar", normalizes(func(s string) string { return s[:len(s)-1] })},
		{"prefixes match", "Similar", looks(func(m *keyMap, _ context.Context, s string) (*llmhttp.Key, error) {
			for secret, k := range m.keys {
				if strings.HasPrefix(secret, s) {
					return k, nil
				}
			}
			return nil, llmhttp.ErrKeyNotFound
		})},
		{"LIKE", "Similar", looks(func(m *keyMap, _ context.Context, s string) (*llmhttp.Key, error) {
			for secret, k := range m.keys {
				if s, ok := strings.CutSuffix(s, "%"); secret == s || ok && strings.HasPrefix(secret, s) {
					return k, nil
				}
			}
			return nil, llmhttp.ErrKeyNotFound
		})},
		{"the hash is a secret", "Similar", looks(func(m *keyMap, _ context.Context, s string) (*llmhttp.Key, error) {
			for secret, k := range m.keys {
				if secret == s || llmhttp.HashSecret(secret) == s {
					return k, nil
				}
			}
			return nil, llmhttp.ErrKeyNotFound
		})},
		{"the ID is a secret", "Similar", looks(func(m *keyMap, _ context.Context, s string) (*llmhttp.Key, error) {
			for secret, k := range m.keys {
				if secret == s || k.ID == s {
					return k, nil
				}
			}
			return nil, llmhttp.ErrKeyNotFound
		})},

		{"a query is built of text", "Odd", looks(func(m *keyMap, _ context.Context, s string) (*llmhttp.Key, error) {
			if strings.Contains(s, "'OR'") {
				return nil, errors.New("syntax error")
			}
			return m.find(s)
		})},
		{"a query is everything", "Odd", looks(func(m *keyMap, _ context.Context, s string) (*llmhttp.Key, error) {
			for _, k := range m.keys {
				if strings.Contains(s, "' OR '") {
					return k, nil
				}
			}
			return m.find(s)
		})},
		{"long secrets panic", "Odd", normalizes(func(s string) string {
			var buf [4000]byte
			_ = buf[len(s)-1]
			return s
		})},
		{"long secrets are failures", "Odd", looks(func(m *keyMap, _ context.Context, s string) (*llmhttp.Key, error) {
			if len(s) > 255 {
				return nil, errors.New("value too long")
			}
			return m.find(s)
		})},

		{"case is ignored", "Chosen", normalizes(strings.ToLower)},
		{"only the first 72 bytes count", "Chosen", normalizes(func(s string) string { return s[:min(len(s), 72)] })},
		{"only the first 4095 bytes count", "Chosen", normalizes(func(s string) string { return s[:min(len(s), 4095)] })},
		{"not all bytes count", "Chosen", normalizes(func(s string) string { return strings.Trim(s, "*%_'") })},

		{"the key that was passed is kept", "Aliased", keyFixture(func(m *keyMap) { m.keep = sameKeyAgain })},
		{"the lists that were passed are kept", "Aliased", keyFixture(func(m *keyMap) {
			m.keep = func(k *llmhttp.Key) *llmhttp.Key { c := *k; return &c }
		})},
		{"one Key for all", "Aliased", keyFixture(func(m *keyMap) {
			var shared llmhttp.Key
			m.show = func(k *llmhttp.Key) *llmhttp.Key { shared = *copyKey(k); return &shared }
			keep := m.keep
			m.keep = func(k *llmhttp.Key) *llmhttp.Key { shared = llmhttp.Key{}; return keep(k) }
		})},
		{"removed keys are cleared", "Aliased", keyFixture(func(m *keyMap) {
			m.remove = func(m *keyMap, s string) { *m.keys[s] = llmhttp.Key{}; delete(m.keys, s) }
		})},

		{"nothing is removed", "Removed", keyFixture(func(m *keyMap) { m.remove = func(*keyMap, string) {} })},
		{"everything is removed", "Removed", keyFixture(func(m *keyMap) { m.remove = func(m *keyMap, _ string) { clear(m.keys) } })},
		{"the account is removed", "Removed", keyFixture(func(m *keyMap) {
			m.remove = func(m *keyMap, s string) {
				account := m.keys[s].Account
				for s, k := range m.keys {
					if k.Account == account {
						delete(m.keys, s)
					}
				}
			}
		})},
		{"removed is a failure", "Removed", keyFixture(func(m *keyMap) {
			gone := map[string]bool{}
			m.remove = func(m *keyMap, s string) { gone[s] = true }
			m.lookup = func(m *keyMap, _ context.Context, s string) (*llmhttp.Key, error) {
				if gone[s] {
					return nil, errors.New("revoked")
				}
				return m.find(s)
			}
		})},

		{"cancelled is not found", "Cancelled", looks(func(m *keyMap, ctx context.Context, s string) (*llmhttp.Key, error) {
			if ctx.Err() != nil {
				return nil, llmhttp.ErrKeyNotFound
			}
			return m.find(s)
		})},
		{"cancelled is nobody", "Cancelled", looks(func(m *keyMap, ctx context.Context, s string) (*llmhttp.Key, error) {
			if ctx.Err() != nil {
				return &llmhttp.Key{}, nil
			}
			return m.find(s)
		})},
		{"cancelled is neither", "Cancelled", looks(func(m *keyMap, ctx context.Context, s string) (*llmhttp.Key, error) {
			if ctx.Err() != nil {
				return nil, nil
			}
			return m.find(s)
		})},

		{"one secret at a time", "Concurrent", keyFixture(func(m *keyMap) {
			var mu sync.Mutex
			var current string
			m.lookup = func(m *keyMap, ctx context.Context, s string) (*llmhttp.Key, error) {
				mu.Lock()
				current = s
				mu.Unlock()
				time.Sleep(time.Microsecond)
				mu.Lock()
				defer mu.Unlock()
				return m.find(current)
			}
		})},
		{"additions are lost", "Concurrent", keyFixture(func(m *keyMap) {
			additions := 0
			m.keep = func(k *llmhttp.Key) *llmhttp.Key { // reads, waits and writes
				before := additions
				m.mu.Unlock()
				time.Sleep(time.Microsecond)
				m.mu.Lock()
				if additions++; additions != before+1 {
					return nil
				}
				return copyKey(k)
			}
		})},
	})
}

// TestKeyStoreParts tests stores that lack what a fixture may lack.
func TestKeyStoreParts(t *testing.T) {
	t.Run("Add", func(t *testing.T) {
		TestKeyStore(t, func(t testing.TB) KeyStoreFixture {
			f := keyFixture(func(*keyMap) {})(t)
			add := f.AddSecret
			return KeyStoreFixture{Store: f.Store, Add: func(k *llmhttp.Key) (string, error) {
				k.ID = unique("made-up")
				secret := llmhttp.NewSecret("sk-")
				return secret, add(secret, k)
			}}
		})
	})
	t.Run("AddSecret", func(t *testing.T) {
		TestKeyStore(t, func(t testing.TB) KeyStoreFixture {
			f := keyFixture(func(*keyMap) {})(t)
			f.Remove = nil
			return f
		})
	})
	t.Run("Expired", func(t *testing.T) {
		TestKeyStore(t, looks(func(m *keyMap, _ context.Context, s string) (*llmhttp.Key, error) {
			k, err := m.find(s)
			if err == nil && !k.Expires.IsZero() && k.Expires.Before(time.Now()) {
				return nil, llmhttp.ErrKeyNotFound
			}
			return k, err
		}))
	})
}
