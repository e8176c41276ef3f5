package sqlstore

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/keycache"
	"github.com/llmhttp/llmhttp/manage"
)

// A keyCache caches the keys of the database, and remembers when each was last used.
type keyCache struct {
	*keycache.Cache[llmhttp.Key]
	maxUses int // the largest size of lastUsed

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
	size := max(opts.KeyCache, 0)
	return &keyCache{
		Cache: keycache.New(keycache.Options[llmhttp.Key]{
			TTL: max(opts.KeyTTL, 0), Grace: max(opts.KeyGrace, 0), Size: size,
			Read:      func(ctx context.Context, hash, _ string) (*llmhttp.Key, error) { return read(ctx, hash) },
			Unknown:   llmhttp.ErrKeyNotFound,
			IsFailure: func(error) bool { return true },
			Warn: func(err error) {
				opts.logger().Error("the database does not answer; serving cached keys", "error", err)
			},
			Context: func(context.Context) context.Context { return db.ctx },
			Start:   running.Go,
		}),
		maxUses:  2 * cmp.Or(size, defaultKeyCache),
		lastUsed: make(map[string]time.Time),
	}
}

// lookup returns the key whose secret has the given hash, and notes that it is used. The error is
// ErrKeyNotFound, errClosed, or an error of the database or of ctx.
func (c *keyCache) lookup(ctx context.Context, hash string) (*llmhttp.Key, error) {
	key, err := c.Lookup(ctx, hash, "")
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
