package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp"
)

// A testCache is a keyCache over a fake database.
type testCache struct {
	*keyCache
	background sync.WaitGroup
	warnings   int

	mu      sync.Mutex // guards the fields below
	ids     map[string]string
	err     error         // the result of each read, if not nil
	latency time.Duration // of each read
	reads   int
}

func newTestCache(t *testing.T, opts Options) *testCache {
	c := &testCache{ids: make(map[string]string)}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	c.keyCache = newKeyCache(&database{ctx: ctx}, &opts, &c.background)
	c.keyCache.warn = func(error) { c.warnings++ }
	c.keyCache.read = c.readKey
	return c
}

func (c *testCache) readKey(ctx context.Context, hash string) (*llmhttp.Key, error) {
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
		err = llmhttp.ErrKeyNotFound
	}
	if err != nil {
		return nil, err
	}
	return &llmhttp.Key{ID: id, Account: "of " + id}, nil
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
		key, err := c.lookup(context.Background(), hash)
		switch {
		case errors.Is(err, llmhttp.ErrKeyNotFound):
			results = append(results, "none")
		case err != nil:
			results = append(results, err.Error())
		default:
			results = append(results, key.ID)
		}
	}
	return results
}

func TestKeyCache_TTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCache(t, Options{KeyTTL: 10 * time.Second, KeyCache: 10})
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

func TestKeyCache_NegativeTTLDisablesCache(t *testing.T) {
	c := newTestCache(t, Options{KeyTTL: -1, KeyCache: 10})
	c.set("a", "A")
	assert.Equal(t, []string{"A"}, c.get("a"))
	c.set("a", "")
	assert.Equal(t, []string{"none"}, c.get("a"))
}

func TestKeyCache_NegativeSizeDisablesCache(t *testing.T) {
	c := newTestCache(t, Options{KeyTTL: time.Hour, KeyGrace: time.Hour, KeyCache: -1})
	c.set("a", "A")
	assert.Equal(t, []string{"A"}, c.get("a"))
	assert.Contains(t, c.takeLastUsed(), "A", "uses are recorded nevertheless")
	c.set("a", "")
	assert.Equal(t, []string{"none"}, c.get("a"))
	assert.Empty(t, c.entries)
}

func TestKeyCache_ConcurrentLookupsShareOneRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCache(t, Options{KeyTTL: time.Second, KeyCache: 10})
		c.set("a", "A")
		c.setReads(nil, time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := c.lookup(ctx, "a")
		assert.ErrorIs(t, err, context.DeadlineExceeded, "the first caller leaves while the read is in progress")
		var callers sync.WaitGroup
		for range 100 {
			callers.Go(func() { assert.Equal(t, []string{"A"}, c.get("a")) })
		}
		callers.Wait()
		assert.Equal(t, 1, c.reads)
	})
}

func TestKeyCache_Forget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCache(t, Options{KeyTTL: time.Hour, KeyCache: 10})
		c.set("a", "A")
		c.set("b", "B")
		assert.Equal(t, []string{"A"}, c.get("a"))
		c.set("a", "")
		c.forget("a", "c")
		assert.Equal(t, []string{"none"}, c.get("a"))

		// The result of a read that began before forget is not cached.
		c.setReads(nil, time.Second)
		early := make(chan []string)
		go func() { early <- c.get("b") }()
		synctest.Wait()
		c.set("b", "")
		c.forget("b")
		assert.Equal(t, []string{"none"}, c.get("b"))
		assert.Equal(t, []string{"B"}, <-early)
		assert.Equal(t, []string{"none"}, c.get("b"))
	})
}

func TestKeyCache_ForgetAccount(t *testing.T) {
	unavailable := errors.New("unavailable")
	synctest.Test(t, func(t *testing.T) {
		c := newTestCache(t, Options{KeyTTL: time.Hour, KeyGrace: time.Hour, KeyCache: 10})
		c.set("a", "A")
		c.set("b", "B")
		assert.Equal(t, []string{"A", "B", "none"}, c.get("a", "b", "suspended"))
		c.set("a", "")
		c.set("b", "other")
		c.set("suspended", "S")
		c.forgetAccount("of A")
		assert.Equal(t, []string{"none", "B", "S"}, c.get("a", "b", "suspended"), "what is cached of other accounts stays")

		// The results of reads that began before are not cached.
		c.setReads(nil, time.Second)
		c.set("c", "before")
		early := make(chan []string)
		go func() { early <- c.get("c") }()
		synctest.Wait()
		c.set("c", "after")
		c.forgetAccount("any")
		assert.Equal(t, []string{"after"}, c.get("c"))
		assert.Equal(t, []string{"before"}, <-early)

		// A read in progress that fails gets the cached key of another account.
		time.Sleep(time.Hour)
		c.setReads(unavailable, time.Second)
		go func() { early <- c.get("b") }()
		synctest.Wait()
		c.forgetAccount("any")
		assert.Equal(t, []string{"B"}, <-early)
	})
}

func TestKeyCache_Grace(t *testing.T) {
	unavailable := errors.New("unavailable")
	synctest.Test(t, func(t *testing.T) {
		c := newTestCache(t, Options{KeyTTL: 10 * time.Second, KeyGrace: time.Minute, KeyCache: 10})
		c.set("a", "A")
		assert.Equal(t, []string{"A", "none"}, c.get("a", "b"))
		c.setReads(unavailable, time.Second)
		time.Sleep(10 * time.Second)
		assert.Equal(t, []string{"A", "A", "A"}, c.get("a", "a", "a"))
		assert.Equal(t, 3, c.reads, "only the first of the three lookups reads")
		time.Sleep(staleTime)
		assert.Equal(t, []string{"A", "unavailable"}, c.get("a", "b"), "an unknown secret may be known by now")
		assert.Equal(t, 5, c.reads)
		assert.Equal(t, 1, c.warnings)
		time.Sleep(warnInterval)
		assert.Equal(t, []string{"A"}, c.get("a"))
		assert.Equal(t, 2, c.warnings)

		c.setReads(nil, 0)
		c.set("a", "")
		time.Sleep(staleTime)
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

func TestKeyCache_ReadTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCache(t, Options{KeyTTL: 10 * time.Second, KeyCache: 10})
		c.set("a", "A")
		assert.Equal(t, []string{"A"}, c.get("a"))
		c.setReads(nil, time.Hour)
		time.Sleep(10 * time.Second)
		start := time.Now()
		assert.Equal(t, []string{context.DeadlineExceeded.Error()}, c.get("a"))
		assert.Equal(t, readTimeout, time.Since(start))
	})
}

func TestKeyCache_Eviction(t *testing.T) {
	c := newTestCache(t, Options{KeyTTL: time.Hour, KeyCache: 10})
	var hashes, ids []string
	for i := range 10 {
		hashes, ids = append(hashes, fmt.Sprint(i)), append(ids, fmt.Sprint("K", i))
		c.set(hashes[i], ids[i])
	}
	assert.Equal(t, ids, c.get(hashes...))
	for i := range 1000 {
		assert.Equal(t, []string{"none"}, c.get(fmt.Sprint("unknown", i)))
	}
	assert.Equal(t, 10, c.known.Len())
	assert.Equal(t, 10, c.unknown.Len())
	assert.Len(t, c.entries, 20)
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

func TestKeyCache_LastUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCache(t, Options{KeyTTL: time.Hour, KeyCache: 2})
		for _, hash := range []string{"a", "b", "c"} {
			c.set(hash, hash)
		}
		c.set("a2", "a") // another secret of the same key
		start := time.Now()
		c.get("a")
		time.Sleep(time.Second)
		c.get("a2", "none", "b", "c") // evicts a
		assert.Equal(t, map[string]time.Time{"a": start.Add(time.Second), "b": start.Add(time.Second), "c": start.Add(time.Second)}, c.takeLastUsed())
		assert.Empty(t, c.takeLastUsed())
		c.restoreLastUsed(map[string]time.Time{"a": start})
		assert.Equal(t, map[string]time.Time{"a": start}, c.takeLastUsed())
		time.Sleep(time.Second)
		c.get("c")
		c.forget("c")
		assert.Equal(t, map[string]time.Time{"c": start.Add(2 * time.Second)}, c.takeLastUsed())

		for i := range 100 {
			c.set(fmt.Sprint(i), fmt.Sprint(i))
			c.get(fmt.Sprint(i))
		}
		assert.LessOrEqual(t, len(c.lastUsed), 4)
	})
}

func TestKeyCache_Close(t *testing.T) {
	c := newTestCache(t, Options{KeyTTL: time.Hour, KeyCache: 2})
	c.set("a", "A")
	assert.Equal(t, []string{"A"}, c.get("a"))
	assert.True(t, c.close())
	assert.False(t, c.close())
	assert.Equal(t, []string{errClosed.Error()}, c.get("a"))
}
