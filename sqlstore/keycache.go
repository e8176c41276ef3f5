package sqlstore

import (
	"container/list"
	"context"
	"crypto/sha256"
	"sync"
	"time"

	"github.com/llmhttp/llmhttp"
)

type secretHash = [sha256.Size]byte

// A keyCache remembers for a while what secrets are those of which keys, or of
// none, and when keys were used. It reads each secret once at a time.
type keyCache struct {
	ttl, grace time.Duration
	limit      int // of found and of unknown
	read       func(ctx context.Context, hash secretHash) (*llmhttp.Key, error)
	failed     func(err error) // is called now and then while keys are served though read fails

	ctx     context.Context // of reading
	running *sync.WaitGroup

	mu             sync.Mutex
	closed         bool
	entries        map[secretHash]*list.Element // of *entry
	found, unknown list.List                    // those used last are in front
	calls          map[secretHash]*call
	used           map[string]time.Time // when keys were used that are not in found any more
	epoch          int                  // how often something was forgotten
	warned         time.Time            // when failed was called last
}

// An entry is what is known of a secret.
type entry struct {
	hash  secretHash
	key   *llmhttp.Key // nil if it is that of none
	at    time.Time    // of which moment
	again time.Time    // when to ask again, if the database did not answer

	used, told time.Time // when it was looked up last, and when that was taken last
}

// A call reads a secret for all who look it up meanwhile.
type call struct {
	done  chan struct{}
	epoch int
	at    time.Time
	key   *llmhttp.Key
	err   error
}

const (
	// readTimeout bounds a look into the database.
	readTimeout = 5 * time.Second
	// readPause is for how long a database that did not answer is not asked
	// for a key that may be served nevertheless.
	readPause = time.Second
	// warnPause lies between warnings.
	warnPause = 10 * time.Second
)

func newKeyCache(s *Store) *keyCache {
	return &keyCache{
		ttl: max(s.opts.KeyTTL, 0), grace: max(s.opts.KeyGrace, 0), limit: s.opts.KeyCache,
		read: s.readKey,
		failed: func(err error) {
			s.log().Error("keys are served as they were: the database does not answer", "error", err)
		},
		ctx: s.ctx, running: &s.running,
		entries: make(map[secretHash]*list.Element),
		calls:   make(map[secretHash]*call),
		used:    make(map[string]time.Time),
	}
}

// lookup returns the key whose secret has the given hash. The error is
// ErrKeyNotFound, or that of read or of ctx.
func (c *keyCache) lookup(ctx context.Context, hash secretHash) (*llmhttp.Key, error) {
	now := time.Now()
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, errClosed
	}
	if element := c.entries[hash]; element != nil {
		e := element.Value.(*entry)
		if now.Sub(e.at) < c.ttl || now.Before(e.again) {
			e.used = now
			c.listOf(e).MoveToFront(element)
			key := e.key
			c.mu.Unlock()
			return result(key, nil)
		}
	}
	x := c.calls[hash]
	if x == nil {
		x = &call{done: make(chan struct{}), epoch: c.epoch, at: now}
		c.calls[hash] = x
		c.running.Go(func() { c.run(hash, x) })
	}
	c.mu.Unlock()
	select {
	case <-x.done:
		return result(x.key, x.err)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func result(key *llmhttp.Key, err error) (*llmhttp.Key, error) {
	if key == nil && err == nil {
		err = llmhttp.ErrKeyNotFound
	}
	return key, err
}

// run reads for x, whoever still waits for it.
func (c *keyCache) run(hash secretHash, x *call) {
	ctx, cancel := context.WithTimeout(c.ctx, readTimeout)
	defer cancel()
	key, err := c.read(ctx, hash)
	c.mu.Lock()
	stale, warn := false, false
	if c.calls[hash] == x {
		delete(c.calls, hash)
	}
	// What was read before something was forgotten may be that.
	if current := x.epoch == c.epoch; current && err == nil {
		c.put(&entry{hash: hash, key: key, at: x.at, used: x.at})
	} else if element := c.entries[hash]; current && element != nil && c.ctx.Err() == nil {
		e, now := element.Value.(*entry), time.Now()
		if end := e.at.Add(c.ttl + c.grace); e.key != nil && now.Before(end) {
			e.again, e.used = now.Add(min(readPause, end.Sub(now))), now
			key, stale = e.key, true
			if warn = now.Sub(c.warned) >= warnPause; warn {
				c.warned = now
			}
		}
	}
	c.mu.Unlock()
	if warn {
		c.failed(err)
	}
	if stale {
		err = nil
	}
	x.key, x.err = key, err
	close(x.done)
}

func (c *keyCache) listOf(e *entry) *list.List {
	if e.key == nil {
		return &c.unknown
	}
	return &c.found
}

// put stores e, in place of one of the same hash and perhaps of one that was
// not used for long. Strangers with secrets of no key push out only others of
// that kind.
func (c *keyCache) put(e *entry) {
	if old := c.entries[e.hash]; old != nil {
		before := old.Value.(*entry)
		if before.key != nil && e.key != nil && before.key.ID == e.key.ID {
			e.told = before.told
		}
		c.remove(old)
	}
	l := c.listOf(e)
	if l.Len() >= c.limit {
		c.remove(l.Back())
	}
	c.entries[e.hash] = l.PushFront(e)
}

func (c *keyCache) remove(element *list.Element) {
	e := element.Value.(*entry)
	c.listOf(e).Remove(element)
	delete(c.entries, e.hash)
	if e.key != nil && e.used.After(e.told) {
		c.note(e.key.ID, e.used)
	}
}

// note remembers that a key was used, of as many keys as the cache holds:
// beyond that it is forgotten.
func (c *keyCache) note(id string, used time.Time) {
	if last, ok := c.used[id]; used.After(last) && (ok || len(c.used) < c.limit) {
		c.used[id] = used
	}
}

// forget has the secrets with these hashes read again, and what is being read
// not remembered.
func (c *keyCache) forget(hashes ...secretHash) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epoch++
	clear(c.calls)
	for _, hash := range hashes {
		if element := c.entries[hash]; element != nil {
			c.remove(element)
		}
	}
}

// takeUsed returns when keys were used that were used since the last time.
func (c *keyCache) takeUsed() map[string]time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	used := c.used
	c.used = make(map[string]time.Time)
	for element := c.found.Front(); element != nil; element = element.Next() {
		if e := element.Value.(*entry); e.used.After(e.told) {
			e.told = e.used
			if e.used.After(used[e.key.ID]) {
				used[e.key.ID] = e.used
			}
		}
	}
	return used
}

// putUsed has takeUsed return again what it returned.
func (c *keyCache) putUsed(used map[string]time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, at := range used {
		c.note(id, at)
	}
}

// close has lookup fail. It reports whether it did not yet.
func (c *keyCache) close() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.closed
	c.closed = true
	return !was
}
