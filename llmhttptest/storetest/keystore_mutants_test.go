package storetest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llmhttptest/internal/kit"
)

// expiredError returns a Lookup that returns err for expired keys.
func expiredError(err error) lookupFunc {
	return func(m *keyMap, ctx context.Context, s string) (*llmhttp.Key, error) {
		k, e := m.find(ctx, s)
		if e == nil && !k.Expires.IsZero() && k.Expires.Before(time.Now()) {
			return nil, err
		}
		return k, e
	}
}

// joinModels stores lists as one text.
func joinModels(k *llmhttp.Key) {
	if k.Models != nil {
		k.Models = strings.Split(strings.Join(k.Models, ","), ",")
	}
}

func TestKeyStoreMutants(t *testing.T) {
	testMutants(t, keyStoreSequences.Run, keyChecks, correctKeys, keyMutants)
}

var keyMutants = []mutant[KeyStoreFixture]{
	{"scopes are dropped", randomCalls, saving(func(k *llmhttp.Key) { k.Scopes = nil })},
	{"models are joined with commas", randomCalls, saving(joinModels)},
	{"a burst is dropped", randomCalls, saving(func(k *llmhttp.Key) { k.Limits.Tokens.Burst = 0 })},
	{"negative rates become zero", randomCalls, saving(func(k *llmhttp.Key) { k.Limits.Requests.N = max(0, k.Limits.Requests.N) })},
	{"negative concurrency becomes zero", randomCalls, saving(func(k *llmhttp.Key) { k.Limits.Concurrent = max(0, k.Limits.Concurrent) })},
	{"periods are rounded to seconds", randomCalls, saving(func(k *llmhttp.Key) { k.Limits.Tokens.Per = k.Limits.Tokens.Per.Truncate(time.Second) })},
	{"expiry is rounded to seconds", randomCalls, saving(func(k *llmhttp.Key) { k.Expires = k.Expires.Truncate(time.Second) })},
	{"expiry loses its time zone", randomCalls, saving(func(k *llmhttp.Key) { k.Expires = wallClock(k.Expires) })},
	{"no expiry becomes 1970", randomCalls, saving(func(k *llmhttp.Key) {
		if k.Expires.IsZero() {
			k.Expires = time.Unix(0, 0)
		}
	})},
	{"accounts are lower-cased", randomCalls, saving(func(k *llmhttp.Key) { k.Account = strings.ToLower(k.Account) })},
	{"IDs are trimmed", randomCalls, saving(func(k *llmhttp.Key) { k.ID = strings.TrimSpace(k.ID) })},
	{"all keys have one secret", randomCalls, adding(func(f KeyStoreFixture, k *llmhttp.Key) (string, error) { return "sk-same", f.AddSecret("sk-same", k) })},
	{"secrets are empty", randomCalls, adding(func(f KeyStoreFixture, k *llmhttp.Key) (string, error) { return "", f.AddSecret("", k) })},
	{"Add fails", randomCalls, adding(func(KeyStoreFixture, *llmhttp.Key) (string, error) { return "", errors.New("full") })},
	{"the fixture has no Add", randomCalls, func(testing.TB) KeyStoreFixture { return KeyStoreFixture{Store: &keyMap{}} }},
	{"the fixture has no Store", randomCalls, func(testing.TB) KeyStoreFixture { return KeyStoreFixture{} }},

	{"empty scopes become nil", randomCalls, saving(func(k *llmhttp.Key) { k.Scopes = slices.Concat(k.Scopes) })},
	{"empty models become nil", randomCalls, saving(func(k *llmhttp.Key) { k.Models = slices.Concat(k.Models) })},
	{"nil models become empty", randomCalls, saving(func(k *llmhttp.Key) { k.Models = append([]string{}, k.Models...) })},
	{"empty models become one empty model", randomCalls, saving(joinModels)},

	{"expired keys become valid", randomCalls, saving(func(k *llmhttp.Key) {
		if k.Expires.Before(time.Now()) {
			k.Expires = time.Time{}
		}
	})},
	{"expired keys are another error", randomCalls, lookup(expiredError(errors.New("expired")))},

	{"an unknown secret is neither a key nor an error", randomCalls, lookup(func(m *keyMap, ctx context.Context, s string) (*llmhttp.Key, error) {
		k, _ := m.find(ctx, s)
		return k, nil
	})},
	{"an unknown secret is another error", randomCalls, lookup(func(m *keyMap, ctx context.Context, s string) (*llmhttp.Key, error) {
		k, err := m.find(ctx, s)
		if err != nil {
			err = errors.New("no rows in result set")
		}
		return k, err
	})},
	{"an unknown secret is an empty key", randomCalls, lookup(func(m *keyMap, ctx context.Context, s string) (*llmhttp.Key, error) {
		if k, err := m.find(ctx, s); err == nil {
			return k, nil
		}
		return &llmhttp.Key{}, nil
	})},
	{"any key is returned", randomCalls, matching(func(string, string, *llmhttp.Key) bool { return true })},

	{"case is ignored", randomCalls, normalizing(strings.ToLower)},
	{"spaces are trimmed", randomCalls, normalizing(strings.TrimSpace)},
	{"the scheme is trimmed", randomCalls, normalizing(func(s string) string { return strings.TrimPrefix(s, "Bearer ") })},
	{"quotes are trimmed", randomCalls, normalizing(func(s string) string { return strings.Trim(s, `"`) })},
	{"a NUL byte ends the secret", randomCalls, normalizing(func(s string) string { s, _, _ = strings.Cut(s, "\x00"); return s })},
	{"only the first bytes are compared", randomCalls, normalizing(func(s string) string { return s[:min(len(s), 20)] })},
	{"only the last bytes are compared", randomCalls, normalizing(func(s string) string { return s[max(0, len(s)-20):] })},
	{"the last byte is not compared", randomCalls, normalizing(func(s string) string { return s[:len(s)-1] })},
	{"prefixes match", randomCalls, matching(func(s, stored string, _ *llmhttp.Key) bool { return strings.HasPrefix(stored, s) })},
	{"secrets are compared with LIKE", randomCalls, matching(func(s, stored string, _ *llmhttp.Key) bool {
		prefix, wildcard := strings.CutSuffix(s, "%")
		return stored == prefix || wildcard && strings.HasPrefix(stored, prefix)
	})},
	{"the hash of a secret matches", randomCalls, matching(func(s, stored string, _ *llmhttp.Key) bool {
		return stored == s || llmhttp.HashSecret(stored) == s
	})},
	{"the ID of a key matches", randomCalls, matching(func(s, stored string, k *llmhttp.Key) bool { return stored == s || k.ID == s })},

	{"a quote breaks the query", randomCalls, failing(errors.New("syntax error"), func(s string) bool { return strings.Contains(s, "'OR'") })},
	{"a quote makes the query match everything", randomCalls, matching(func(s, stored string, _ *llmhttp.Key) bool {
		return stored == s || strings.Contains(s, "' OR '")
	})},
	{"a long secret panics", randomCalls, normalizing(func(s string) string {
		var buf [4000]byte
		_ = buf[len(s)-1]
		return s
	})},
	{"a long secret is another error", randomCalls, failing(errors.New("value too long"), func(s string) bool { return len(s) > 255 })},

	{"only the first 72 bytes are compared", randomCalls, normalizing(func(s string) string { return s[:min(len(s), 72)] })},
	{"only the first 4095 bytes are compared", randomCalls, normalizing(func(s string) string { return s[:min(len(s), 4095)] })},
	{"punctuation is trimmed", randomCalls, normalizing(func(s string) string { return strings.Trim(s, "*%_'") })},

	{"the Key that was added is kept", randomCalls, keyFixture(func(m *keyMap) { m.save = sameKey })},
	{"the lists that were added are kept", randomCalls, keyFixture(func(m *keyMap) {
		m.save = func(k *llmhttp.Key) *llmhttp.Key { c := *k; return &c }
	})},
	{"Lookup always returns the same Key", randomCalls, keyFixture(func(m *keyMap) {
		var shared llmhttp.Key
		m.load = func(k *llmhttp.Key) *llmhttp.Key { shared = *copyKey(k); return &shared }
	})},
	{"Lookup sorts the shared lists in place", randomCalls, keyFixture(func(m *keyMap) {
		m.load = func(k *llmhttp.Key) *llmhttp.Key { slices.Reverse(k.Models); return k }
	})},
	{"Lookup writes the same account to the shared Key each time", randomCalls, keyFixture(func(m *keyMap) {
		accounts := map[*llmhttp.Key]string{}
		m.load = func(k *llmhttp.Key) *llmhttp.Key {
			if _, ok := accounts[k]; !ok {
				accounts[k] = k.Account
			}
			k.Account = accounts[k]
			return k
		}
	})},
	{"removed keys are cleared", randomCalls, keyFixture(func(m *keyMap) {
		m.remove = func(m *keyMap, s string) { *m.keys[s] = llmhttp.Key{}; delete(m.keys, s) }
	})},

	{"nothing is removed", randomCalls, keyFixture(func(m *keyMap) { m.remove = func(*keyMap, string) {} })},
	{"all keys are removed", randomCalls, keyFixture(func(m *keyMap) { m.remove = func(m *keyMap, _ string) { clear(m.keys) } })},
	{"all keys of the account are removed", randomCalls, keyFixture(func(m *keyMap) {
		m.remove = func(m *keyMap, s string) {
			account := m.keys[s].Account
			for s, k := range m.keys {
				if k.Account == account {
					delete(m.keys, s)
				}
			}
		}
	})},
	{"a removed key is another error", randomCalls, keyFixture(func(m *keyMap) {
		removed := map[string]bool{}
		m.remove = func(m *keyMap, s string) { removed[s] = true }
		m.lookup = func(m *keyMap, ctx context.Context, s string) (*llmhttp.Key, error) {
			if removed[s] {
				return nil, errors.New("revoked")
			}
			return m.find(ctx, s)
		}
	})},

	{"a cancelled Lookup finds no key", randomCalls, cancelled(nil, llmhttp.ErrKeyNotFound)},
	{"a cancelled Lookup finds an empty key", randomCalls, cancelled(&llmhttp.Key{}, nil)},
	{"a cancelled Lookup returns neither a key nor an error", randomCalls, cancelled(nil, nil)},

	{"the secret is stored in a shared variable", "ConcurrentCalls", keyFixture(func(m *keyMap) {
		var mu sync.Mutex
		var current string
		m.lookup = func(m *keyMap, ctx context.Context, s string) (*llmhttp.Key, error) {
			mu.Lock()
			current = s
			mu.Unlock()
			time.Sleep(time.Microsecond)
			mu.Lock()
			defer mu.Unlock()
			return m.find(ctx, current)
		}
	})},
	{"concurrent additions are lost", "ConcurrentCalls", keyFixture(func(m *keyMap) {
		additions := 0
		m.save = func(k *llmhttp.Key) *llmhttp.Key { // reads, waits and writes
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
}

func TestKeyStore_AcceptsCorrectStores(t *testing.T) {
	t.Run("with Add only", func(t *testing.T) {
		TestKeyStore(t, func(t testing.TB) KeyStoreFixture {
			f := correctKeys(t)
			return KeyStoreFixture{Store: f.Store, Add: func(k *llmhttp.Key) (string, error) {
				k.ID = kit.Unique("chosen-by-the-store")
				secret := llmhttp.NewSecret("sk-")
				return secret, f.AddSecret(secret, k)
			}}
		})
	})
	t.Run("with AddSecret only", func(t *testing.T) {
		TestKeyStore(t, func(t testing.TB) KeyStoreFixture {
			f := correctKeys(t)
			f.Remove = nil
			return f
		})
	})
	t.Run("expired keys are not found", func(t *testing.T) {
		TestKeyStore(t, lookup(expiredError(llmhttp.ErrKeyNotFound)))
	})
}
