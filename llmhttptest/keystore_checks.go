package llmhttptest

import (
	"context"
	"errors"
	"testing"

	"github.com/llmhttp/llmhttp"
)

var keyChecks = []check[KeyStoreFixture]{
	{"CancelledContext", "every error of a query is reported as ErrKeyNotFound, or is ignored.", checkKeyCancelled},
	{"ConcurrentCalls", "the state of one call is visible to others, or an update is not atomic.", checkKeyConcurrent},
}

// wantLookup reports an error unless Lookup of secret returns want, or ErrKeyNotFound if want is nil.
func (f *KeyStoreFixture) wantLookup(t testing.TB, secret string, want *llmhttp.Key) {
	t.Helper()
	got, err := f.Store.Lookup(t.Context(), secret)
	if fault := lookupFault(got, err, want); fault != "" {
		t.Errorf("Lookup: %s", fault)
	}
}

func checkKeyCancelled(t testing.TB, f KeyStoreFixture) {
	secret, want := f.mustAdd(t, newKey())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 3 {
		got, err := f.Store.Lookup(ctx, secret)
		if fault := lookupFault(got, err, want); fault != "" && (err == nil || errors.Is(err, llmhttp.ErrKeyNotFound)) {
			t.Errorf("Lookup with a cancelled context: %s or another error", fault)
		}
		if got, err := f.Store.Lookup(ctx, llmhttp.NewSecret("sk-")); err == nil {
			t.Errorf("Lookup of a new secret with a cancelled context returned %s and no error, want an error", describeKey(got))
		}
	}
	f.wantLookup(t, secret, want)
	f.wantLookup(t, secret+"x", nil)
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
			f.wantLookup(t, secrets[n], keys[n])
			f.wantLookup(t, llmhttp.NewSecret("sk-"), nil)
			key := newKey()
			secret, err := f.add(key)
			if f.wantLookup(t, secret, key); f.Remove != nil && err == nil {
				err = f.Remove(secret, copyKey(key))
				f.wantLookup(t, secret, nil)
			}
			if err != nil {
				unexplained(t).Errorf("adding or removing a key returned the error %v, want nil", err)
				return
			}
		}
	})
	for i, secret := range secrets {
		f.wantLookup(t, secret, keys[i])
	}
}
