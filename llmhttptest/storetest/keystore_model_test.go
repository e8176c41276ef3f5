package storetest

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/llmhttp/llmhttp"
)

// A keyMap is a simple correct KeyStore. Mutants replace its functions.
type keyMap struct {
	mu   sync.Mutex
	keys map[string]*llmhttp.Key // guarded by mu

	normalize func(secret string) string        // runs before secrets are compared
	save      func(k *llmhttp.Key) *llmhttp.Key // returns what is stored
	load      func(k *llmhttp.Key) *llmhttp.Key // returns what Lookup returns
	lookup    lookupFunc                        // replaces find
	remove    func(m *keyMap, secret string)    // removes secret, which is normalised
}

type lookupFunc func(m *keyMap, ctx context.Context, secret string) (*llmhttp.Key, error)

func (m *keyMap) Lookup(ctx context.Context, secret string) (*llmhttp.Key, error) {
	return m.lookup(m, ctx, secret)
}

func (m *keyMap) find(_ context.Context, secret string) (*llmhttp.Key, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.keys[m.normalize(secret)]
	if k == nil {
		return nil, llmhttp.ErrKeyNotFound
	}
	return m.load(k), nil
}

func (m *keyMap) Add(secret string, k *llmhttp.Key) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.keys[m.normalize(secret)] = m.save(k)
	return nil
}

func (m *keyMap) Remove(secret string, _ *llmhttp.Key) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.remove(m, m.normalize(secret))
	return nil
}

func sameKey(k *llmhttp.Key) *llmhttp.Key { return k }

// keyFixture returns a constructor of a keyMap with a fault.
func keyFixture(fault func(*keyMap)) func(testing.TB) KeyStoreFixture {
	return func(testing.TB) KeyStoreFixture {
		m := &keyMap{
			keys: map[string]*llmhttp.Key{}, normalize: strings.Clone, save: copyKey, load: sameKey, lookup: (*keyMap).find,
			remove: func(m *keyMap, secret string) { delete(m.keys, secret) },
		}
		fault(m)
		return KeyStoreFixture{Store: m, AddSecret: m.Add, Remove: m.Remove}
	}
}

func correctKeys(t testing.TB) KeyStoreFixture { return keyFixture(func(*keyMap) {})(t) }

// adding returns a constructor of a store whose Add has a fault.
func adding(add func(f KeyStoreFixture, k *llmhttp.Key) (string, error)) func(testing.TB) KeyStoreFixture {
	return func(t testing.TB) KeyStoreFixture {
		f := correctKeys(t)
		correct := f
		f.Add = func(k *llmhttp.Key) (string, error) { return add(correct, k) }
		return f
	}
}

// saving returns a constructor of a store that changes the keys it stores.
func saving(change func(k *llmhttp.Key)) func(testing.TB) KeyStoreFixture {
	return keyFixture(func(m *keyMap) {
		m.save = func(k *llmhttp.Key) *llmhttp.Key { k = copyKey(k); change(k); return k }
	})
}

// normalizing returns a constructor of a store that changes secrets before it
// compares them.
func normalizing(normalize func(string) string) func(testing.TB) KeyStoreFixture {
	return keyFixture(func(m *keyMap) { m.normalize = normalize })
}

// lookup returns a constructor of a store with another Lookup.
func lookup(f lookupFunc) func(testing.TB) KeyStoreFixture {
	return keyFixture(func(m *keyMap) { m.lookup = f })
}

// matching returns a constructor of a store whose Lookup returns the first key
// that matches.
func matching(match func(secret, stored string, k *llmhttp.Key) bool) func(testing.TB) KeyStoreFixture {
	return lookup(func(m *keyMap, _ context.Context, s string) (*llmhttp.Key, error) {
		for stored, k := range m.keys {
			if match(s, stored, k) {
				return k, nil
			}
		}
		return nil, llmhttp.ErrKeyNotFound
	})
}

// failing returns a constructor of a store whose Lookup fails for some secrets.
func failing(err error, fails func(secret string) bool) func(testing.TB) KeyStoreFixture {
	return lookup(func(m *keyMap, ctx context.Context, s string) (*llmhttp.Key, error) {
		if fails(s) {
			return nil, err
		}
		return m.find(ctx, s)
	})
}

// cancelled returns a constructor of a store whose Lookup returns k and err if
// its context is done.
func cancelled(k *llmhttp.Key, err error) func(testing.TB) KeyStoreFixture {
	return lookup(func(m *keyMap, ctx context.Context, s string) (*llmhttp.Key, error) {
		if ctx.Err() != nil {
			return k, err
		}
		return m.find(ctx, s)
	})
}
