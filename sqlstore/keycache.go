package sqlstore

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/manage"
)

// A keyCache caches which secrets belong to which keys, and which secrets are
// unknown. Concurrent lookups of a secret share one read of the database. The
// cache also remembers when each key was last used.
type keyCache struct {
	ttl, grace time.Duration
	limit      int // of the entries in each of known and unknown; zero if nothing is cached
	maxUses    int // the largest size of lastUsed
	read       func(ctx context.Context, hash string) (*llmhttp.Key, error)
	warn       func(err error) // called at most once in warnInterval while stale keys are served

	ctx     context.Context // of calls to read
	running *sync.WaitGroup // counts calls to read

	mu       sync.Mutex // guards the fields below
	closed   bool
	entries  map[string]*list.Element // by hash; elements of known and unknown
	known    list.List                // of *cacheEntry with a key, most recently used first
	unknown  list.List                // of *cacheEntry without a key, separate so that invalid secrets evict no keys
	reads    map[string]*keyRead      // reads in progress whose results may be cached, by hash
	lastUsed map[string]time.Time     // by key ID, since the last takeLastUsed
	warned   time.Time                // when warn was last called
}

// A cacheEntry is a cached answer of the database.
type cacheEntry struct {
	hash       string
	key        *llmhttp.Key // nil if the secret is unknown
	readAt     time.Time    // when the read began
	staleUntil time.Time    // until then the entry is served although it is older than ttl
}

// A keyRead is a read of the database in progress.
type keyRead struct {
	begun time.Time
	done  chan struct{} // closed when key and err are set
	key   *llmhttp.Key
	err   error
}

const (
	readTimeout  = 5 * time.Second  // for one read of the database
	staleTime    = time.Second      // for which a stale key is served before the next read
	warnInterval = 10 * time.Second // between warnings
)

func newKeyCache(db *database, opts *Options, running *sync.WaitGroup) *keyCache {
	return &keyCache{
		ttl:   max(opts.KeyTTL, 0),
		grace: max(opts.KeyGrace, 0),
		limit: max(opts.KeyCache, 0),

		maxUses: 2 * cmp.Or(max(opts.KeyCache, 0), defaultKeyCache),

		read: func(ctx context.Context, hash string) (*llmhttp.Key, error) { return readKeyByHash(ctx, db, hash) },
		warn: func(err error) {
			opts.logger().Error("the database does not answer; serving cached keys", "error", err)
		},
		ctx:      db.ctx,
		running:  running,
		entries:  make(map[string]*list.Element),
		reads:    make(map[string]*keyRead),
		lastUsed: make(map[string]time.Time),
	}
}

// lookup returns the key whose secret has the given hash. The error is
// ErrKeyNotFound, errClosed, or an error of read or of ctx.
func (c *keyCache) lookup(ctx context.Context, hash string) (*llmhttp.Key, error) {
	now := time.Now()
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, errClosed
	}
	if e := c.freshEntry(hash, now); e != nil {
		defer c.mu.Unlock()
		if e.key == nil {
			return nil, llmhttp.ErrKeyNotFound
		}
		c.noteUse(e.key.ID, now)
		return e.key, nil
	}
	r := c.reads[hash]
	if r == nil {
		r = &keyRead{begun: now, done: make(chan struct{})}
		c.reads[hash] = r
		c.running.Go(func() { c.runRead(hash, r) })
	}
	c.mu.Unlock()
	select {
	case <-r.done:
		return r.key, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// freshEntry returns the entry for hash, or nil if there is none that may be
// served. The caller holds mu.
func (c *keyCache) freshEntry(hash string, now time.Time) *cacheEntry {
	element := c.entries[hash]
	if element == nil {
		return nil
	}
	e := element.Value.(*cacheEntry)
	if now.Sub(e.readAt) >= c.ttl && !now.Before(e.staleUntil) {
		return nil
	}
	c.listFor(e).MoveToFront(element)
	return e
}

// noteUse records that the key with the given ID was used. It bounds the size
// of lastUsed: uses of further keys are not recorded. The caller holds mu.
func (c *keyCache) noteUse(id string, at time.Time) {
	last, ok := c.lastUsed[id]
	if at.After(last) && (ok || len(c.lastUsed) < c.maxUses) {
		c.lastUsed[id] = at
	}
}

// runRead reads the key for r and caches the result. It continues when the
// callers that wait for r have gone.
func (c *keyCache) runRead(hash string, r *keyRead) {
	ctx, cancel := context.WithTimeout(c.ctx, readTimeout)
	defer cancel()
	key, err := c.read(ctx, hash)
	now := time.Now()
	var warning error

	c.mu.Lock()
	current := c.reads[hash] == r // otherwise the key was forgotten, and the result may be outdated
	if current {
		delete(c.reads, hash)
	}
	if err == nil || errors.Is(err, llmhttp.ErrKeyNotFound) {
		if current {
			c.add(&cacheEntry{hash: hash, key: key, readAt: r.begun})
		}
	} else if stale := c.staleKey(hash, now); stale != nil {
		if now.Sub(c.warned) >= warnInterval {
			c.warned, warning = now, err
		}
		key, err = stale, nil
	}
	if err == nil {
		c.noteUse(key.ID, now)
	}
	c.mu.Unlock()

	if warning != nil {
		c.warn(warning)
	}
	r.key, r.err = key, err
	close(r.done)
}

// staleKey returns the cached key for hash if it may be served although the
// database does not answer, and nil otherwise. The key is then served for
// staleTime before the next read. The caller holds mu.
func (c *keyCache) staleKey(hash string, now time.Time) *llmhttp.Key {
	element := c.entries[hash]
	if element == nil || c.ctx.Err() != nil {
		return nil
	}
	e := element.Value.(*cacheEntry)
	end := e.readAt.Add(c.ttl + c.grace)
	if e.key == nil || !now.Before(end) {
		return nil
	}
	e.staleUntil = now.Add(min(staleTime, end.Sub(now)))
	return e.key
}

func (c *keyCache) listFor(e *cacheEntry) *list.List {
	if e.key == nil {
		return &c.unknown
	}
	return &c.known
}

// add adds e in place of an entry with the same hash. If the list of e is full
// it evicts the least recently used entry. The caller holds mu.
func (c *keyCache) add(e *cacheEntry) {
	if c.limit == 0 {
		return
	}
	c.remove(c.entries[e.hash])
	l := c.listFor(e)
	if l.Len() >= c.limit {
		c.remove(l.Back())
	}
	c.entries[e.hash] = l.PushFront(e)
}

// remove removes an element, which may be nil. The caller holds mu.
func (c *keyCache) remove(element *list.Element) {
	if element == nil {
		return
	}
	e := element.Value.(*cacheEntry)
	c.listFor(e).Remove(element)
	delete(c.entries, e.hash)
}

// forget removes the entries with the given hashes. The results of reads in
// progress are not cached.
func (c *keyCache) forget(hashes ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, hash := range hashes {
		delete(c.reads, hash)
		c.remove(c.entries[hash])
	}
}

// forgetAccount removes the entries of keys of the account with the given ID, and those of
// unknown secrets, which may be those of such keys. The results of reads in progress are not
// cached.
func (c *keyCache) forgetAccount(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.reads)
	for _, element := range c.entries {
		if e := element.Value.(*cacheEntry); e.key == nil || e.key.Account == id {
			c.remove(element)
		}
	}
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

// close makes lookup fail. It reports whether this is the first call.
func (c *keyCache) close() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := !c.closed
	c.closed = true
	return first
}
