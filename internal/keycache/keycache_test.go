package keycache

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// A testKey is what the tests cache.
type testKey struct{ ID, Account string }

var (
	errUnknown = errors.New("unknown")
	errClosed  = errors.New("closed")
	errRefused = errors.New("refused")
)

// A testCache is a Cache over a fake store.
type testCache struct {
	*Cache[testKey]
	background sync.WaitGroup
	warnings   int

	mu      sync.Mutex // guards the fields below
	ids     map[string]string
	err     error         // the result of each read, if not nil
	latency time.Duration // of each read
	reads   int
}

func newTestCache(t *testing.T, opts Options[testKey]) *testCache {
	c := &testCache{ids: make(map[string]string)}
	opts.Read, opts.Unknown, opts.Start = c.readKey, errUnknown, c.background.Go
	opts.IsFailure = func(err error) bool { return err != errRefused }
	opts.Warn = func(error) { c.warnings++ }
	opts.Context = context.WithoutCancel
	c.Cache = New(opts)
	return c
}

func (c *testCache) readKey(ctx context.Context, hash, _ string) (*testKey, error) {
	c.mu.Lock()
	c.reads++
	id, err, latency := c.ids[hash], c.err, c.latency
	c.mu.Unlock()
	select {
	case <-time.After(latency):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err == nil && id == "" {
		err = errUnknown
	}
	if err != nil {
		return nil, err
	}
	return &testKey{ID: id, Account: "of " + id}, nil
}

// set stores the key of a hash. An empty ID removes the key.
func (c *testCache) set(hash, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ids[hash] = id
}

// setReads sets the error and the latency of reads.
func (c *testCache) setReads(err error, latency time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err, c.latency = err, latency
}

// get returns the IDs of the keys with the given hashes, or "none", or the
// text of an error.
func (c *testCache) get(hashes ...string) (results []string) {
	for _, hash := range hashes {
		key, err := c.Lookup(context.Background(), hash, "")
		switch {
		case errors.Is(err, errUnknown):
			results = append(results, "none")
		case err != nil:
			results = append(results, err.Error())
		default:
			results = append(results, key.ID)
		}
	}
	return results
}

func TestCache_TTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCache(t, Options[testKey]{TTL: 10 * time.Second, Size: 10})
		c.set("a", "A")
		assert.Equal(t, []string{"A", "none"}, c.get("a", "b"))
		c.set("a", "")
		c.set("b", "B")
		time.Sleep(10*time.Second - 1)
		assert.Equal(t, []string{"A", "none"}, c.get("a", "b"))
		assert.Equal(t, 2, c.reads)
		time.Sleep(time.Nanosecond)
		assert.Equal(t, []string{"none", "B"}, c.get("a", "b"))
		assert.Equal(t, 4, c.reads)

		// The TTL starts when the read begins.
		c.setReads(nil, 4*time.Second)
		time.Sleep(10 * time.Second)
		assert.Equal(t, []string{"B"}, c.get("b"))
		time.Sleep(6 * time.Second)
		assert.Equal(t, []string{"B"}, c.get("b"))
		assert.Equal(t, 6, c.reads)
	})
}

func TestCache_NoTTL(t *testing.T) {
	c := newTestCache(t, Options[testKey]{Size: 10})
	c.set("a", "A")
	assert.Equal(t, []string{"A"}, c.get("a"))
	c.set("a", "")
	assert.Equal(t, []string{"none"}, c.get("a"))
}

func TestCache_NoSize(t *testing.T) {
	c := newTestCache(t, Options[testKey]{TTL: time.Hour, Grace: time.Hour, Size: 0})
	c.set("a", "A")
	assert.Equal(t, []string{"A"}, c.get("a"))
	c.set("a", "")
	assert.Equal(t, []string{"none"}, c.get("a"))
	known, unknown := c.Len()
	assert.Zero(t, known+unknown)
}

func TestCache_ConcurrentLookupsShareOneRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCache(t, Options[testKey]{TTL: time.Second, Size: 10})
		c.set("a", "A")
		c.setReads(nil, time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := c.Lookup(ctx, "a", "")
		assert.ErrorIs(t, err, context.DeadlineExceeded, "the first caller leaves while the read is in progress")
		var callers sync.WaitGroup
		for range 100 {
			callers.Go(func() { assert.Equal(t, []string{"A"}, c.get("a")) })
		}
		callers.Wait()
		assert.Equal(t, 1, c.reads)
	})
}

func TestCache_Forget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCache(t, Options[testKey]{TTL: time.Hour, Size: 10})
		c.set("a", "A")
		c.set("b", "B")
		assert.Equal(t, []string{"A"}, c.get("a"))
		c.set("a", "")
		c.Forget("a", "c")
		assert.Equal(t, []string{"none"}, c.get("a"))

		// The result of a read that began before forget is not cached.
		c.setReads(nil, time.Second)
		early := make(chan []string)
		go func() { early <- c.get("b") }()
		synctest.Wait()
		c.set("b", "")
		c.Forget("b")
		assert.Equal(t, []string{"none"}, c.get("b"))
		assert.Equal(t, []string{"B"}, <-early)
		assert.Equal(t, []string{"none"}, c.get("b"))
	})
}

func TestCache_ForgetIf(t *testing.T) {
	unavailable := errors.New("unavailable")
	synctest.Test(t, func(t *testing.T) {
		c := newTestCache(t, Options[testKey]{TTL: time.Hour, Grace: time.Hour, Size: 10})
		c.set("a", "A")
		c.set("b", "B")
		assert.Equal(t, []string{"A", "B", "none"}, c.get("a", "b", "suspended"))
		c.set("a", "")
		c.set("b", "other")
		c.set("suspended", "S")
		c.ForgetIf(func(k *testKey) bool { return k.Account == "of A" })
		assert.Equal(t, []string{"none", "B", "S"}, c.get("a", "b", "suspended"), "what is cached of other accounts stays")

		// The results of reads that began before are not cached.
		c.setReads(nil, time.Second)
		c.set("c", "before")
		early := make(chan []string)
		go func() { early <- c.get("c") }()
		synctest.Wait()
		c.set("c", "after")
		c.ForgetIf(func(*testKey) bool { return false })
		assert.Equal(t, []string{"after"}, c.get("c"))
		assert.Equal(t, []string{"before"}, <-early)

		// A read in progress that fails gets the cached key of another account.
		time.Sleep(time.Hour)
		c.setReads(unavailable, time.Second)
		go func() { early <- c.get("b") }()
		synctest.Wait()
		c.ForgetIf(func(*testKey) bool { return false })
		assert.Equal(t, []string{"B"}, <-early)
	})
}

func TestCache_Grace(t *testing.T) {
	unavailable := errors.New("unavailable")
	synctest.Test(t, func(t *testing.T) {
		c := newTestCache(t, Options[testKey]{TTL: 10 * time.Second, Grace: time.Minute, Size: 10})
		c.set("a", "A")
		assert.Equal(t, []string{"A", "none"}, c.get("a", "b"))
		c.setReads(unavailable, time.Second)
		time.Sleep(10 * time.Second)
		assert.Equal(t, []string{"A", "A", "A"}, c.get("a", "a", "a"))
		assert.Equal(t, 3, c.reads, "only the first of the three lookups reads")
		time.Sleep(StaleTime)
		assert.Equal(t, []string{"A", "unavailable"}, c.get("a", "b"), "an unknown secret may be known by now")
		assert.Equal(t, 5, c.reads)
		assert.Equal(t, 1, c.warnings)
		time.Sleep(WarnInterval)
		assert.Equal(t, []string{"A"}, c.get("a"))
		assert.Equal(t, 2, c.warnings)

		c.setReads(nil, 0)
		c.set("a", "")
		time.Sleep(StaleTime)
		assert.Equal(t, []string{"none"}, c.get("a"), "the database answers again")

		c.set("a", "A")
		time.Sleep(10 * time.Second)
		assert.Equal(t, []string{"A"}, c.get("a"))
		c.setReads(unavailable, 0)
		time.Sleep(70*time.Second - 1)
		assert.Equal(t, []string{"A"}, c.get("a"))
		time.Sleep(time.Nanosecond)
		assert.Equal(t, []string{"unavailable"}, c.get("a"), "the grace has ended")
	})
}

func TestCache_ReadTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCache(t, Options[testKey]{TTL: 10 * time.Second, Size: 10})
		c.set("a", "A")
		assert.Equal(t, []string{"A"}, c.get("a"))
		c.setReads(nil, time.Hour)
		time.Sleep(10 * time.Second)
		start := time.Now()
		assert.Equal(t, []string{context.DeadlineExceeded.Error()}, c.get("a"))
		assert.Equal(t, ReadTimeout, time.Since(start))
	})
}

// Once its context is done, Lookup returns only what is cached.
func TestCache_DoneContext(t *testing.T) {
	c := newTestCache(t, Options[testKey]{TTL: time.Second, Size: 10})
	c.ids["a"] = "key"
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := c.Lookup(ctx, "a", "")
	assert.ErrorIs(t, err, context.Canceled)
	assert.Zero(t, c.reads)
	_, err = c.Lookup(t.Context(), "a", "")
	assert.NoError(t, err)
	key, err := c.Lookup(ctx, "a", "")
	assert.NoError(t, err)
	assert.Equal(t, "key", key.ID)
}

func TestCache_Eviction(t *testing.T) {
	c := newTestCache(t, Options[testKey]{TTL: time.Hour, Size: 10})
	var hashes, ids []string
	for i := range 10 {
		hashes, ids = append(hashes, fmt.Sprint(i)), append(ids, fmt.Sprint("K", i))
		c.set(hashes[i], ids[i])
	}
	assert.Equal(t, ids, c.get(hashes...))
	for i := range 1000 {
		assert.Equal(t, []string{"none"}, c.get(fmt.Sprint("unknown", i)))
	}
	known, unknown := c.Len()
	assert.Equal(t, []int{10, 10, 20}, []int{known, unknown, len(c.entries)})
	reads := c.reads
	assert.Equal(t, ids, c.get(hashes...))
	assert.Equal(t, reads, c.reads, "unknown secrets evict no keys")

	c.set("new", "N")
	c.get("0", "new")
	reads = c.reads
	c.get("0")
	assert.Equal(t, reads, c.reads)
	c.get("1")
	assert.Equal(t, reads+1, c.reads, "the least recently used key was evicted")
}

// A store that panics, exits its goroutine or returns nothing fails the lookup. It ends neither the
// process nor the wait of others.
func TestCache_BrokenStore(t *testing.T) {
	for name, read := range map[string]func() (*testKey, error){
		"panic":   func() (*testKey, error) { panic("broken") },
		"exit":    func() (*testKey, error) { runtime.Goexit(); return nil, nil },
		"nothing": func() (*testKey, error) { return nil, nil },
	} {
		t.Run(name, func(t *testing.T) {
			c := newTestCache(t, Options[testKey]{TTL: time.Hour, Size: 10})
			c.opts.Read = func(context.Context, string, string) (*testKey, error) { return read() }
			_, err := c.Lookup(t.Context(), "a", "")
			assert.ErrorContains(t, err, "keycache: the store ")
			known, unknown := c.Len()
			assert.Zero(t, known+unknown)
		})
	}
}

// An error that is an answer is neither cached nor replaced by an old key.
func TestCache_Refused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCache(t, Options[testKey]{TTL: time.Second, Grace: time.Hour, Size: 10})
		c.set("a", "A")
		assert.Equal(t, []string{"A"}, c.get("a"))
		time.Sleep(time.Second)
		c.setReads(errRefused, 0)
		assert.Equal(t, []string{"refused", "refused"}, c.get("a", "a"))
		assert.Equal(t, 3, c.reads)
		assert.Zero(t, c.warnings)
	})
}

func TestCache_Close(t *testing.T) {
	c := newTestCache(t, Options[testKey]{TTL: time.Hour, Size: 2})
	c.set("a", "A")
	assert.Equal(t, []string{"A"}, c.get("a"))
	assert.True(t, c.Close(errClosed))
	assert.False(t, c.Close(errClosed))
	assert.Equal(t, []string{errClosed.Error()}, c.get("a"))
}

// A secret is passed to Read, and what is cached has only its hash.
func TestCache_KeepsNoSecret(t *testing.T) {
	c := newTestCache(t, Options[testKey]{TTL: time.Hour, Size: 10})
	c.opts.Read = func(_ context.Context, hash, secret string) (*testKey, error) {
		if hash == "known" {
			return &testKey{ID: hash}, nil
		}
		return nil, fmt.Errorf("%s: %w", secret, errUnknown)
	}
	for _, hash := range []string{"known", "other"} {
		_, err := c.Lookup(t.Context(), hash, "sk-secret")
		assert.Equal(t, hash == "other", errors.Is(err, errUnknown))
	}
	assert.Empty(t, c.reads)
	for hash, element := range c.entries {
		assert.NotContains(t, fmt.Sprintf("%s %+v", hash, *element.Value.(*entry[testKey])), "sk-secret")
	}
	_, err := c.Lookup(t.Context(), "other", "sk-secret")
	assert.Equal(t, errUnknown, err)
}
