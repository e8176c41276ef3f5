// Package keycache caches the answers of a store of API keys: which secrets belong to which keys, and
// which are unknown.
package keycache

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// Options configures a [Cache]. The functions must not be nil.
type Options[K any] struct {
	TTL   time.Duration // how long an answer is served
	Grace time.Duration // how long after that a key is served if the store fails
	Size  int           // the number of cached keys, and of unknown secrets; zero caches nothing

	// Read asks the store. secret is what Lookup got. It must return when ctx is done, which is after
	// ReadTimeout at the latest.
	Read func(ctx context.Context, hash, secret string) (*K, error)

	Unknown   error                // what an error of Read wraps if the secret is unknown
	IsFailure func(err error) bool // another error of Read tells that the store has failed
	Warn      func(err error)      // called at most once in WarnInterval while old keys are served

	Context func(ctx context.Context) context.Context // of Read; ctx is that of the first Lookup
	Start   func(read func())                         // calls read on another goroutine
}

// Times of a [Cache].
const (
	ReadTimeout  = 5 * time.Second  // for one call of Read
	StaleTime    = time.Second      // for which an old key is served before the next Read
	WarnInterval = 10 * time.Second // between warnings
)

// A Cache caches keys by the hashes of their secrets. Concurrent lookups of a secret share one call
// of Read. Its methods may be called concurrently.
type Cache[K any] struct {
	opts Options[K]

	mu      sync.Mutex // guards the fields below
	closed  error      // nil until Close was called
	entries map[string]*list.Element
	known   list.List           // of *entry with a key, most recently used first
	unknown list.List           // of *entry without a key, separate so that invalid secrets evict no keys
	reads   map[string]*read[K] // in progress, whose results may be cached, by hash
	warned  time.Time           // when Warn was last called
}

// An entry is a cached answer of the store.
type entry[K any] struct {
	hash       string
	key        *K        // nil if the secret is unknown
	readAt     time.Time // when the read began
	staleUntil time.Time // until then the entry is served although it is older than TTL
}

// A read is a call of Read in progress.
type read[K any] struct {
	begun time.Time
	done  chan struct{} // closed when key and err are set
	key   *K
	err   error
}

// New returns a Cache.
func New[K any](opts Options[K]) *Cache[K] {
	return &Cache[K]{opts: opts, entries: make(map[string]*list.Element), reads: make(map[string]*read[K])}
}

// Lookup returns the key whose secret has the given hash. The error is Options.Unknown, one of Read
// or of ctx, or that of Close. Once ctx is done, Lookup only returns what is cached. The secret is
// passed to Read and not kept.
func (c *Cache[K]) Lookup(ctx context.Context, hash, secret string) (*K, error) {
	now := time.Now()
	c.mu.Lock()
	if err := c.closed; err != nil {
		c.mu.Unlock()
		return nil, err
	}
	if e := c.fresh(hash, now); e != nil {
		c.mu.Unlock()
		if e.key == nil {
			return nil, c.opts.Unknown
		}
		return e.key, nil
	}
	if err := ctx.Err(); err != nil {
		c.mu.Unlock()
		return nil, err
	}
	r := c.reads[hash]
	if r == nil {
		r = &read[K]{begun: now, done: make(chan struct{})}
		c.reads[hash] = r
		c.opts.Start(func() { c.run(ctx, hash, secret, r) })
	}
	c.mu.Unlock()
	select {
	case <-r.done:
		return r.key, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// fresh returns the entry for hash, or nil if there is none that may be served. The caller holds mu.
func (c *Cache[K]) fresh(hash string, now time.Time) *entry[K] {
	element := c.entries[hash]
	if element == nil {
		return nil
	}
	e := element.Value.(*entry[K])
	if now.Sub(e.readAt) >= c.opts.TTL && !now.Before(e.staleUntil) {
		return nil
	}
	c.listFor(e).MoveToFront(element)
	return e
}

var (
	errNoAnswer = errors.New("keycache: the store did not return")
	errNoKey    = errors.New("keycache: the store returned neither a key nor an error")
)

// run asks the store for r and caches the result. It continues when the callers that wait for r have
// gone, and ends r even if Read calls runtime.Goexit.
func (c *Cache[K]) run(ctx context.Context, hash, secret string, r *read[K]) {
	ctx, cancel := context.WithTimeout(c.opts.Context(ctx), ReadTimeout)
	defer cancel()
	var key *K
	err := errNoAnswer
	defer func() { c.end(hash, r, key, err) }()
	key, err = c.ask(ctx, hash, secret)
}

// ask calls Read. A panic of it is an error, because it is not on the goroutine of a request.
func (c *Cache[K]) ask(ctx context.Context, hash, secret string) (key *K, err error) {
	defer func() {
		if p := recover(); p != nil {
			key, err = nil, fmt.Errorf("keycache: the store panicked: %v\n%s", p, debug.Stack())
		}
	}()
	key, err = c.opts.Read(ctx, hash, secret)
	switch {
	case err != nil:
		return nil, err
	case key == nil:
		return nil, errNoKey
	}
	return key, nil
}

// end caches the result of r, and wakes those that wait for it.
func (c *Cache[K]) end(hash string, r *read[K], key *K, err error) {
	r.key, r.err = key, err
	defer close(r.done)
	if warning := c.add(hash, r); warning != nil {
		c.opts.Warn(warning)
	}
}

// add caches the result of r. If the store has failed it sets the result to that before, and returns
// the failure if it is to be told.
func (c *Cache[K]) add(hash string, r *read[K]) (warning error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	current := c.reads[hash] == r // otherwise the key was forgotten, and the result may be outdated
	if current {
		delete(c.reads, hash)
	}
	switch now := time.Now(); {
	case r.err == nil || errors.Is(r.err, c.opts.Unknown):
		if current {
			c.insert(&entry[K]{hash: hash, key: r.key, readAt: r.begun})
		}
	case c.opts.IsFailure(r.err):
		stale := c.stale(hash, now)
		if stale == nil {
			return nil
		}
		if now.Sub(c.warned) >= WarnInterval {
			c.warned, warning = now, r.err
		}
		r.key, r.err = stale, nil
	}
	return warning
}

// stale returns the cached key for hash if it may be served although the store has failed, and nil
// otherwise. The key is then served for StaleTime before the next read. The caller holds mu.
func (c *Cache[K]) stale(hash string, now time.Time) *K {
	element := c.entries[hash]
	if element == nil || c.closed != nil {
		return nil
	}
	e := element.Value.(*entry[K])
	end := e.readAt.Add(c.opts.TTL + c.opts.Grace)
	if e.key == nil || !now.Before(end) {
		return nil
	}
	e.staleUntil = now.Add(min(StaleTime, end.Sub(now)))
	return e.key
}

func (c *Cache[K]) listFor(e *entry[K]) *list.List {
	if e.key == nil {
		return &c.unknown
	}
	return &c.known
}

// insert adds e in place of an entry with the same hash. If the list of e is full it evicts the
// least recently used entry. The caller holds mu.
func (c *Cache[K]) insert(e *entry[K]) {
	if c.opts.Size <= 0 {
		return
	}
	c.remove(c.entries[e.hash])
	l := c.listFor(e)
	if l.Len() >= c.opts.Size {
		c.remove(l.Back())
	}
	c.entries[e.hash] = l.PushFront(e)
}

// remove removes an element, which may be nil. The caller holds mu.
func (c *Cache[K]) remove(element *list.Element) {
	if element == nil {
		return
	}
	e := element.Value.(*entry[K])
	c.listFor(e).Remove(element)
	delete(c.entries, e.hash)
}

// Forget removes the entries with the given hashes. The results of reads of them that are in progress
// are not cached.
func (c *Cache[K]) Forget(hashes ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, hash := range hashes {
		delete(c.reads, hash)
		c.remove(c.entries[hash])
	}
}

// ForgetIf removes the entries of the keys for which is returns true, and those of unknown secrets,
// which may be those of such keys. The results of reads in progress are not cached.
func (c *Cache[K]) ForgetIf(is func(key *K) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.reads)
	for _, element := range c.entries {
		if e := element.Value.(*entry[K]); e.key == nil || is(e.key) {
			c.remove(element)
		}
	}
}

// Close makes Lookup fail with err. It reports whether this is the first call.
func (c *Cache[K]) Close(err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := c.closed == nil
	if first {
		c.closed = err
	}
	return first
}

// Len returns the number of cached keys and of cached unknown secrets.
func (c *Cache[K]) Len() (known, unknown int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known.Len(), c.unknown.Len()
}
