package keycache_test

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/proctest"
	"github.com/llmhttp/llmhttp/keycache"
	"github.com/llmhttp/llmhttp/llm"
)

// newCache returns a Cache with a TTL and a Grace, and the other options at their defaults.
func newCache(store llmhttp.KeyStore, ttl, grace time.Duration) *keycache.Cache {
	return keycache.New(store, &keycache.Options{TTL: ttl, Grace: grace})
}

// A countedStore is a KeyStore whose answers a test sets. It must not be used concurrently with set.
type countedStore struct {
	mu      sync.Mutex // guards the fields below
	key     *llmhttp.Key
	err     error
	latency time.Duration
	lookups int
}

func (s *countedStore) Lookup(ctx context.Context, secret string) (*llmhttp.Key, error) {
	s.mu.Lock()
	s.lookups++
	key, err, latency := s.key, s.err, s.latency
	s.mu.Unlock()
	select {
	case <-time.After(latency):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return key, err
}

func (s *countedStore) set(key *llmhttp.Key, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.key, s.err = key, err
}

func (s *countedStore) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lookups
}

// captureDefaultLog makes slog.Default() write to what it returns, until the test ends.
func captureDefaultLog(t *testing.T) *proctest.Buffer {
	log, before := new(proctest.Buffer), slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(log, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return log
}

func TestCache(t *testing.T) {
	log := captureDefaultLog(t)
	synctest.Test(t, func(t *testing.T) {
		first, second := &llmhttp.Key{ID: "1"}, &llmhttp.Key{ID: "2"}
		unavailable := fmt.Errorf("cannot look up %s", testSecret)
		store := &countedStore{key: first}
		keys := newCache(store, 10*time.Second, time.Minute)
		get := func() (*llmhttp.Key, error) { return keys.Lookup(t.Context(), testSecret) }

		key, err := get()
		require.NoError(t, err)
		assert.Same(t, first, key)
		store.set(second, nil)
		time.Sleep(10*time.Second - 1)
		key, _ = get()
		assert.Same(t, first, key, "within ttl")
		time.Sleep(time.Nanosecond)
		key, _ = get()
		assert.Same(t, second, key, "after ttl")
		assert.Equal(t, 2, store.count())

		store.set(nil, unavailable)
		time.Sleep(70*time.Second - 2) // the second key was read a nanosecond before the end of the first
		key, err = get()
		require.NoError(t, err)
		assert.Same(t, second, key, "within grace")
		time.Sleep(time.Nanosecond)
		_, err = get()
		assert.ErrorContains(t, err, "cannot look up [redacted]", "after grace")

		store.set(nil, fmt.Errorf("no such key: %w", llmhttp.ErrKeyNotFound))
		_, err = get()
		assert.ErrorIs(t, err, llmhttp.ErrKeyNotFound)
		lookups := store.count()
		_, err = get()
		assert.Equal(t, llmhttp.ErrKeyNotFound, err, "what is cached has no text of the store")
		assert.Equal(t, lookups, store.count())
	})
	assert.Contains(t, log.String(), "serving cached keys")
	assert.NotContains(t, log.String(), testSecret)
}

// An *Error is an answer of the store, unless it says that the store has failed.
func TestCache_Errors(t *testing.T) {
	captureDefaultLog(t)
	for status, isServed := range map[int]bool{403: false, 429: false, 500: true, 503: true} {
		synctest.Test(t, func(t *testing.T) {
			store := &countedStore{key: &llmhttp.Key{ID: "1"}}
			keys := newCache(store, time.Second, time.Hour)
			_, err := keys.Lookup(t.Context(), testSecret)
			require.NoError(t, err)
			time.Sleep(time.Second)
			store.set(nil, llm.Errorf(status, "", "no"))
			_, err = keys.Lookup(t.Context(), testSecret)
			assert.Equal(t, isServed, err == nil, status)
		})
	}
}

func TestCache_NegativeTTL(t *testing.T) {
	store := &countedStore{key: &llmhttp.Key{ID: "1"}}
	keys := newCache(store, -1, time.Hour)
	for range 3 {
		_, err := keys.Lookup(t.Context(), testSecret)
		require.NoError(t, err)
	}
	assert.Equal(t, 3, store.count())
	assert.Panics(t, func() { keycache.New(nil, nil) })
}

// Concurrent lookups share one, which goes on when the request that began it has ended, and sees the
// values of its context.
func TestCache_SharedLookup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &countedStore{key: &llmhttp.Key{ID: "1"}, latency: time.Second}
		type name struct{}
		seen := make(chan any, 1)
		keys := newCache(llmhttp.KeyStoreFunc(func(ctx context.Context, secret string) (*llmhttp.Key, error) {
			seen <- ctx.Value(name{})
			return store.Lookup(ctx, secret)
		}), 0, 0)
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), name{}, "first"), time.Millisecond)
		defer cancel()
		_, err := keys.Lookup(ctx, testSecret)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, "first", <-seen)
		var callers sync.WaitGroup
		for range 100 {
			callers.Go(func() {
				key, err := keys.Lookup(t.Context(), testSecret)
				assert.NoError(t, err)
				assert.Equal(t, "1", key.ID)
			})
		}
		callers.Wait()
		assert.Equal(t, 1, store.count())
	})
}

// A secret that a panic or an error of the store has is in no log, whatever interfaces of package slog the error has,
// and in no error.
func TestCache_SecretIsNotLogged(t *testing.T) {
	for name, fail := range map[string]func(secret string) error{
		"panic with a text":      func(secret string) error { panic("bad secret " + secret) },
		"panic with an error":    func(secret string) error { panic(fmt.Errorf("bad secret %q", secret)) },
		"panic with a struct":    func(secret string) error { panic(struct{ Secret string }{secret}) },
		"error":                  func(secret string) error { return fmt.Errorf("bad secret %s", secret) },
		"error that is verbose":  func(secret string) error { return verboseError{secret} },
		"error that is resolved": func(secret string) error { return loggedError{secret} },
	} {
		t.Run(name, func(t *testing.T) {
			log := captureDefaultLog(t)
			synctest.Test(t, func(t *testing.T) {
				failing := false
				keys := newCache(llmhttp.KeyStoreFunc(func(_ context.Context, secret string) (*llmhttp.Key, error) {
					if failing {
						return nil, fail(secret)
					}
					return &llmhttp.Key{ID: "1"}, nil
				}), time.Second, time.Minute)
				_, err := keys.Lookup(t.Context(), testSecret)
				require.NoError(t, err)
				failing = true
				time.Sleep(2 * time.Second)
				_, err = keys.Lookup(t.Context(), testSecret)
				require.NoError(t, err, "within grace")
				time.Sleep(time.Hour)
				_, err = keys.Lookup(t.Context(), testSecret)
				require.Error(t, err, "after grace")
				assert.NotContains(t, err.Error(), testSecret)
			})
			assert.Contains(t, log.String(), "serving cached keys")
			assert.NotContains(t, log.String(), testSecret)
		})
	}
	keys := newCache(llmhttp.KeyStoreFunc(func(_ context.Context, secret string) (*llmhttp.Key, error) {
		return nil, fmt.Errorf("%s: %w", secret, llmhttp.ErrKeyNotFound)
	}), 0, 0)
	_, err := keys.Lookup(t.Context(), testSecret)
	require.ErrorIs(t, err, llmhttp.ErrKeyNotFound)
	assert.NotContains(t, err.Error(), testSecret)
}

// A verboseError tells a secret with %+v only, and a loggedError to package slog only.
type (
	verboseError struct{ secret string }
	loggedError  struct{ secret string }
)

func (e verboseError) Error() string              { return "bad secret" }
func (e verboseError) Format(s fmt.State, _ rune) { fmt.Fprint(s, "bad secret ", e.secret) }
func (e loggedError) Error() string               { return "bad secret" }
func (e loggedError) LogValue() slog.Value        { return slog.StringValue(e.secret) }

// The cache has a bound, and unknown secrets take no place of keys.
func TestCache_Bounded(t *testing.T) {
	lookups := 0
	keys := newCache(llmhttp.KeyStoreFunc(func(_ context.Context, secret string) (*llmhttp.Key, error) {
		lookups++
		if secret == testSecret {
			return &llmhttp.Key{ID: "1"}, nil
		}
		return nil, llmhttp.ErrKeyNotFound
	}), time.Hour, 0)
	_, err := keys.Lookup(t.Context(), testSecret)
	require.NoError(t, err)
	var before, after runtime.MemStats
	for i := range 40_000 {
		if i == 20_000 {
			runtime.GC()
			runtime.ReadMemStats(&before)
		}
		_, err := keys.Lookup(t.Context(), fmt.Sprint("unknown ", i))
		require.ErrorIs(t, err, llmhttp.ErrKeyNotFound)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	assert.Less(t, int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(1<<20), "nothing is kept of 20,000 more unknown secrets")
	lookups = 0
	_, err = keys.Lookup(t.Context(), testSecret)
	require.NoError(t, err)
	assert.Zero(t, lookups)
}
