// The cache of keys, which is a Cache of package keycache.

package sqlstore

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/keycache"
	"github.com/llmhttp/llmhttp/manage"
)

// A keyCache caches the keys of the database, and remembers when each was last used.
type keyCache struct {
	*keycache.Cache
	maxUses int // the largest size of lastUsed

	closing sync.Mutex      // held while reads begin
	closed  atomic.Bool     // set once, with closing held
	running *sync.WaitGroup // counts reads

	mu       sync.Mutex           // guards the field below
	lastUsed map[string]time.Time // by key ID, since the last takeLastUsed
}

// newKeyCache returns a cache of the keys that read reads. running counts its reads.
func newKeyCache(
	db *database,
	opts *Options,
	running *sync.WaitGroup,
	read func(ctx context.Context, hash string) (*llmhttp.Key, error),
) *keyCache {
	c := &keyCache{maxUses: 2 * cmp.Or(max(opts.KeyCache, 0), defaultKeyCache), running: running, lastUsed: make(map[string]time.Time)}
	store := llmhttp.KeyStoreFunc(func(ctx context.Context, secret string) (*llmhttp.Key, error) {
		if !c.beginRead() {
			return nil, errClosed
		}
		defer running.Done()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(db.ctx, cancel)()
		return read(ctx, llmhttp.HashSecret(secret))
	})
	c.Cache = keycache.New(store, &keycache.Options{
		TTL: opts.KeyTTL, Grace: opts.KeyGrace, Size: opts.KeyCache, Logger: opts.logger(),
	})
	return c
}

// beginRead adds a read to running, or reports false after close.
func (c *keyCache) beginRead() bool {
	c.closing.Lock()
	defer c.closing.Unlock()
	if c.closed.Load() {
		return false
	}
	c.running.Add(1)
	return true
}

// close makes lookup fail with errClosed. It reports whether this is the first call. Afterwards no
// read begins.
func (c *keyCache) close() bool {
	c.closing.Lock()
	defer c.closing.Unlock()
	return !c.closed.Swap(true)
}

// lookup returns the key for secret, and notes that it is used. The error is ErrKeyNotFound,
// errClosed, or an error of the database or of ctx.
func (c *keyCache) lookup(ctx context.Context, secret string) (*llmhttp.Key, error) {
	if c.closed.Load() {
		return nil, errClosed
	}
	key, err := c.Lookup(ctx, secret)
	if err == nil {
		c.mu.Lock()
		c.noteUse(key.ID, time.Now())
		c.mu.Unlock()
	}
	return key, err
}

// noteUse records that the key with the given ID was used. It bounds the size of lastUsed: uses of
// further keys are not recorded. The caller holds mu.
func (c *keyCache) noteUse(id string, at time.Time) {
	last, ok := c.lastUsed[id]
	if at.After(last) && (ok || len(c.lastUsed) < c.maxUses) {
		c.lastUsed[id] = at
	}
}

// forgetAccount removes the entries of keys of the account with the given ID.
func (c *keyCache) forgetAccount(id string) {
	c.ForgetIf(func(key *llmhttp.Key) bool { return key.Account == id })
}

// addUses sets the LastUsed of keys that were used since the last takeLastUsed.
func (c *keyCache) addUses(keys []manage.KeyInfo) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range keys {
		if at := c.lastUsed[keys[i].ID]; at.After(keys[i].LastUsed) {
			keys[i].LastUsed = fromMicros(micros(at))
		}
	}
}

// takeLastUsed returns when keys were last used, by ID. Keys that were not used
// since the previous call are missing.
func (c *keyCache) takeLastUsed() map[string]time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	used := c.lastUsed
	c.lastUsed = make(map[string]time.Time)
	return used
}

// restoreLastUsed adds the result of takeLastUsed again, so that the next call of
// takeLastUsed includes it.
func (c *keyCache) restoreLastUsed(used map[string]time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, at := range used {
		c.noteUse(id, at)
	}
}
