package llmhttp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/llmhttp/llmhttp/internal/keycache"
)

const (
	defaultKeyTTL = 10 * time.Second

	// maxCachedKeys is the number of keys that CacheKeys keeps, and of unknown secrets.
	maxCachedKeys = 10_000
)

// CacheKeys returns a KeyStore that caches what store returns. For ttl it answers without asking
// store, also that a secret is unknown. So a key that is changed, revoked or added in store is so
// for clients within ttl. After it, the next Lookup asks store again. If store then fails, the old
// key is served until grace has passed too, with an attempt each second, and slog.Default() is told
// every 10 seconds. A ttl of zero means 10 seconds; negative means that nothing is cached. A grace
// of zero or less means none.
//
// Requests with the same secret that come at the same time share one Lookup of store. It has the values of
// the context of one of them, and goes on if that request ends, for at most 5 seconds: store must return
// when its context is done. An error that wraps [ErrKeyNotFound] tells that the secret is unknown. An
// [*Error] with a status below 500 is passed on and not cached. Any other error, and a panic, is a failure.
//
// At most 10,000 keys are kept, and as many unknown secrets, which take no place of the keys; the
// least recently used ones are dropped. Secrets are kept as their [HashSecret] only. A store of
// package sqlstore has such a cache already. CacheKeys panics if store is nil.
func CacheKeys(store KeyStore, ttl, grace time.Duration) KeyStore {
	if isNil(store) {
		panic("llmhttp: CacheKeys of a nil KeyStore")
	}
	if ttl == 0 {
		ttl = defaultKeyTTL
	}
	cache := keycache.New(keycache.Options[Key]{
		TTL: max(ttl, 0), Grace: max(grace, 0), Size: maxCachedKeys, Unknown: ErrKeyNotFound, IsFailure: isStoreFailure,
		Read: func(ctx context.Context, _, secret string) (*Key, error) { return lookupRedacted(ctx, store, secret) },
		Warn: func(err error) {
			// Only the text is redacted, and not what slog may ask err for in place of it.
			slog.Default().Error("llmhttp: the KeyStore does not answer; serving cached keys", "error", errorText(err))
		},
		Context: context.WithoutCancel,
		Start:   func(read func()) { go read() },
	})
	return KeyStoreFunc(func(ctx context.Context, secret string) (*Key, error) {
		return cache.Lookup(ctx, HashSecret(secret), secret)
	})
}

// lookupRedacted looks up the secret in store. An error, also that of a panic, does not quote the secret: it may
// be logged.
func lookupRedacted(ctx context.Context, store KeyStore, secret string) (key *Key, err error) {
	defer func() {
		if p := recover(); p != nil {
			key, err = nil, fmt.Errorf("the KeyStore panicked: %v\n%s", p, debug.Stack())
		}
		if err != nil {
			err = newRedactor(secret).error(err)
		}
	}()
	return store.Lookup(ctx, secret)
}

// isStoreFailure reports whether an error of a KeyStore says that it has failed: any but an *Error
// that refuses a key.
func isStoreFailure(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return !ok || e == nil || e.Status >= http.StatusInternalServerError || e.Status < http.StatusBadRequest
}
