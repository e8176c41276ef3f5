package keycache_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/proctest"
	"github.com/llmhttp/llmhttp/keycache"
	"github.com/llmhttp/llmhttp/llm"
)

// A testCache is a Cache over a fake store, whose keys have the account "of" and their ID.
type testCache struct {
	*keycache.Cache
	log *proctest.Buffer

	mu      sync.Mutex // guards the fields below
	ids     map[string]string
	err     error         // the result of each read, if not nil
	latency time.Duration // of each read
	reads   int
}

func newTestCache(opts keycache.Options) *testCache {
	c := &testCache{ids: make(map[string]string), log: new(proctest.Buffer)}
	opts.Logger = slog.New(slog.NewTextHandler(c.log, nil))
	c.Cache = keycache.New(llmhttp.KeyStoreFunc(c.read), &opts)
	return c
}

func (c *testCache) read(ctx context.Context, secret string) (*llmhttp.Key, error) {
	c.mu.Lock()
	c.reads++
	id, err, latency := c.ids[secret], c.err, c.latency
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

// set stores the key of a secret. An empty ID removes the key.
func (c *testCache) set(secret, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ids[secret] = id
}

// setReads sets the error and the latency of reads.
func (c *testCache) setReads(err error, latency time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err, c.latency = err, latency
}

// count returns how often the store was asked.
func (c *testCache) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reads
}

func (c *testCache) warnings() int { return strings.Count(c.log.String(), "serving cached keys") }

// get returns the IDs of the keys with the given secrets, or "none", or the text of an error.
func (c *testCache) get(secrets ...string) (results []string) {
	for _, secret := range secrets {
		key, err := c.Lookup(context.Background(), secret)
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

// A key in use is read again before its TTL ends, while requests get the cached one. The TTL still
// bounds how old that is.
func TestCache_Refresh(t *testing.T) {
	for ttl, begin := range map[time.Duration]time.Duration{10 * time.Second: 5 * time.Second, 2 * time.Second: time.Second, time.Minute: 55 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			c := newTestCache(keycache.Options{TTL: ttl})
			c.set("a", "A")
			assert.Equal(t, []string{"A", "none"}, c.get("a", "b"))
			time.Sleep(begin - 1)
			assert.Equal(t, []string{"A"}, c.get("a"))
			assert.Equal(t, 2, c.count(), "too early")
			c.set("a", "new A")
			c.set("b", "B")
			c.setReads(nil, time.Second/2)
			time.Sleep(time.Nanosecond)
			start := time.Now()
			assert.Equal(t, []string{"A", "A", "none"}, c.get("a", "a", "b"))
			assert.Zero(t, time.Since(start), "no request waits for the store")
			time.Sleep(time.Second / 2)
			synctest.Wait()
			assert.Equal(t, 3, c.count(), "one read, and none of an unknown secret")
			assert.Equal(t, []string{"new A"}, c.get("a"))

			// A store that hangs delays nothing within the TTL of the last answer. After that
			// nothing old is served.
			c.setReads(nil, time.Hour)
			c.set("a", "")
			time.Sleep(ttl - time.Second/2 - 1)
			start = time.Now()
			assert.Equal(t, []string{"new A"}, c.get("a"))
			assert.Zero(t, time.Since(start))
			time.Sleep(time.Nanosecond)
			assert.Equal(t, []string{context.DeadlineExceeded.Error()}, c.get("a"))
			assert.Equal(t, 5*time.Second, time.Since(start), "the read in the background has begun before")
			assert.Zero(t, c.warnings())
		})
	}
}

func TestCache_ConcurrentLookupsShareOneRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCache(keycache.Options{TTL: time.Second, Size: 10})
		c.set("a", "A")
		c.setReads(nil, time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := c.Lookup(ctx, "a")
		assert.ErrorIs(t, err, context.DeadlineExceeded, "the first caller leaves while the read is in progress")
		var callers sync.WaitGroup
		for range 100 {
			callers.Go(func() { assert.Equal(t, []string{"A"}, c.get("a")) })
		}
		callers.Wait()
		assert.Equal(t, 1, c.count())
	})
}

func TestCache_Forget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCache(keycache.Options{TTL: time.Hour, Size: 10})
		c.set("a", "A")
		c.set("b", "B")
		assert.Equal(t, []string{"A"}, c.get("a"))
		c.set("a", "")
		c.Forget(llmhttp.HashSecret("a"), llmhttp.HashSecret("c"))
		assert.Equal(t, []string{"none"}, c.get("a"))

		// The result of a read that began before forget is not cached.
		c.setReads(nil, time.Second)
		early := make(chan []string)
		go func() { early <- c.get("b") }()
		synctest.Wait()
		c.set("b", "")
		c.Forget(llmhttp.HashSecret("b"))
		assert.Equal(t, []string{"none"}, c.get("b"))
		assert.Equal(t, []string{"B"}, <-early)
		assert.Equal(t, []string{"none"}, c.get("b"))
	})
}

func TestCache_ForgetIf(t *testing.T) {
	unavailable := errors.New("unavailable")
	synctest.Test(t, func(t *testing.T) {
		c := newTestCache(keycache.Options{TTL: time.Hour, Grace: time.Hour, Size: 10})
		c.set("a", "A")
		c.set("b", "B")
		assert.Equal(t, []string{"A", "B", "none"}, c.get("a", "b", "suspended"))
		c.set("a", "")
		c.set("b", "other")
		c.set("suspended", "S")
		c.ForgetIf(func(k *llmhttp.Key) bool { return k.Account == "of A" })
		assert.Equal(t, []string{"none", "B", "S"}, c.get("a", "b", "suspended"), "what is cached of other accounts stays")

		// The results of reads that began before are not cached.
		c.setReads(nil, time.Second)
		c.set("c", "before")
		early := make(chan []string)
		go func() { early <- c.get("c") }()
		synctest.Wait()
		c.set("c", "after")
		c.ForgetIf(func(*llmhttp.Key) bool { return false })
		assert.Equal(t, []string{"after"}, c.get("c"))
		assert.Equal(t, []string{"before"}, <-early)

		// A read in progress that fails gets the cached key of another account.
		time.Sleep(time.Hour)
		c.setReads(unavailable, time.Second)
		go func() { early <- c.get("b") }()
		synctest.Wait()
		c.ForgetIf(func(*llmhttp.Key) bool { return false })
		assert.Equal(t, []string{"B"}, <-early)
	})
}

// Once its context is done, Lookup returns only what is cached.
func TestCache_DoneContext(t *testing.T) {
	c := newTestCache(keycache.Options{TTL: time.Second, Size: 10})
	c.ids["a"] = "key"
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := c.Lookup(ctx, "a")
	assert.ErrorIs(t, err, context.Canceled)
	assert.Zero(t, c.count())
	_, err = c.Lookup(t.Context(), "a")
	assert.NoError(t, err)
	key, err := c.Lookup(ctx, "a")
	assert.NoError(t, err)
	assert.Equal(t, "key", key.ID)
}

func TestCache_Eviction(t *testing.T) {
	c := newTestCache(keycache.Options{TTL: time.Hour, Size: 10})
	var secrets, ids []string
	for i := range 10 {
		secrets, ids = append(secrets, fmt.Sprint(i)), append(ids, fmt.Sprint("K", i))
		c.set(secrets[i], ids[i])
	}
	assert.Equal(t, ids, c.get(secrets...))
	for i := range 1000 {
		assert.Equal(t, []string{"none"}, c.get(fmt.Sprint("unknown", i)))
	}
	reads := c.count()
	assert.Equal(t, ids, c.get(secrets...))
	assert.Equal(t, reads, c.count(), "unknown secrets evict no keys")

	c.set("new", "N")
	c.get("0", "new")
	reads = c.count()
	c.get("0")
	assert.Equal(t, reads, c.count())
	c.get("1")
	assert.Equal(t, reads+1, c.count(), "the least recently used key was evicted")
}

// A store that panics, exits its goroutine or returns nothing fails the lookup. It ends neither the
// process nor the wait of others.
func TestCache_BrokenStore(t *testing.T) {
	for name, read := range map[string]func() (*llmhttp.Key, error){
		"panic":   func() (*llmhttp.Key, error) { panic("broken") },
		"exit":    func() (*llmhttp.Key, error) { runtime.Goexit(); return nil, nil },
		"nothing": func() (*llmhttp.Key, error) { return nil, nil },
	} {
		t.Run(name, func(t *testing.T) {
			reads := 0
			c := newCache(llmhttp.KeyStoreFunc(func(context.Context, string) (*llmhttp.Key, error) {
				reads++
				return read()
			}), time.Hour, 0)
			for range 2 {
				_, err := c.Lookup(t.Context(), "a")
				assert.ErrorContains(t, err, "keycache: the KeyStore ")
			}
			assert.Equal(t, 2, reads, "nothing is cached")
		})
	}
}

// An error that is an answer is neither cached nor replaced by an old key.
func TestCache_Refused(t *testing.T) {
	refused := llm.Errorf(403, "", "refused").Error()
	synctest.Test(t, func(t *testing.T) {
		c := newTestCache(keycache.Options{TTL: time.Second, Grace: time.Hour, Size: 10})
		c.set("a", "A")
		assert.Equal(t, []string{"A"}, c.get("a"))
		time.Sleep(time.Second)
		c.setReads(llm.Errorf(403, "", "refused"), 0)
		assert.Equal(t, []string{refused, refused}, c.get("a", "a"))
		assert.Equal(t, 3, c.count())
		assert.Zero(t, c.warnings())
	})
}

// While the store fails, keys are served within the grace. Only the first request after the TTL waits
// for the store, and no request once it has failed.
func TestCache_Grace(t *testing.T) {
	unavailable := errors.New("unavailable")
	synctest.Test(t, func(t *testing.T) {
		c := newTestCache(keycache.Options{TTL: 10 * time.Second, Grace: time.Minute})
		c.set("a", "A")
		assert.Equal(t, []string{"A", "none"}, c.get("a", "b"))
		c.setReads(unavailable, time.Second)
		start := time.Now()
		time.Sleep(20 * time.Second)
		assert.Equal(t, []string{"A", "A", "A"}, c.get("a", "a", "a"))
		assert.Equal(t, 21*time.Second, time.Since(start))
		assert.Equal(t, 3, c.count(), "only the first of the three lookups reads")
		assert.Equal(t, 1, c.warnings())
		time.Sleep(time.Second)
		c.setReads(nil, time.Hour) // hangs
		assert.Equal(t, []string{"A", "A"}, c.get("a", "a"))
		assert.Equal(t, 22*time.Second, time.Since(start), "nobody waits")
		synctest.Wait()
		assert.Equal(t, 4, c.count())
		c.setReads(unavailable, 0)
		assert.Equal(t, []string{"unavailable"}, c.get("b"), "an unknown secret may be known by now")
		time.Sleep(15 * time.Second)
		c.get("a")
		synctest.Wait()
		assert.Equal(t, 2, c.warnings())

		c.setReads(nil, 0)
		c.set("a", "")
		time.Sleep(time.Second)
		c.get("a")
		synctest.Wait()
		assert.Equal(t, []string{"none"}, c.get("a"), "the store answers again")

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

// Neither the error nor the panic of a store reveals the secret, to the caller or the log, also in
// the background.
func TestCache_RevealsNoSecret(t *testing.T) {
	for name, fail := range map[string]func(secret string) error{
		"error": func(secret string) error { return fmt.Errorf("cannot look up %s", secret) },
		"panic": func(secret string) error { panic("cannot look up " + secret) },
		"panic with an error": func(secret string) error {
			panic(fmt.Errorf("cannot look up %s: %w", secret, llmhttp.ErrKeyNotFound))
		},
		"unknown": func(secret string) error { return fmt.Errorf("cannot look up %s: %w", secret, llmhttp.ErrKeyNotFound) },
	} {
		for _, wait := range []time.Duration{0, 7 * time.Second, 20 * time.Second} { // first, in the background, within the grace
			synctest.Test(t, func(t *testing.T) {
				log, failing := new(proctest.Buffer), wait == 0
				c := keycache.New(llmhttp.KeyStoreFunc(func(_ context.Context, secret string) (*llmhttp.Key, error) {
					if failing {
						return nil, fail(secret)
					}
					return &llmhttp.Key{ID: "1"}, nil
				}), &keycache.Options{Grace: time.Minute, Logger: slog.New(slog.NewTextHandler(log, nil))})
				_, err := c.Lookup(t.Context(), testSecret)
				assert.Equal(t, failing, err != nil)
				failing = true
				time.Sleep(wait)
				_, next := c.Lookup(t.Context(), testSecret)
				synctest.Wait()
				assert.NotContains(t, fmt.Sprint(err, next, log.String()), testSecret, name)
				if name != "unknown" {
					assert.NotErrorIs(t, errors.Join(err, next), llmhttp.ErrKeyNotFound, name)
				}
				if wait != 0 && name != "unknown" {
					assert.Contains(t, log.String(), "cannot look up [redacted]", name)
				}
			})
		}
	}
}
