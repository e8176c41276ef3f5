// Package keycache has a [llmhttp.KeyStore] that caches the keys of another one, such as a database: requests with
// a key in use do not wait for that, and are served for a while if it fails.
//
//	keys := keycache.New(store, &keycache.Options{TTL: time.Minute, Grace: time.Hour})
//	h := llmhttp.NewHandler(backend, keys, nil)
package keycache

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/option"
	"github.com/llmhttp/llmhttp/internal/panics"
	"github.com/llmhttp/llmhttp/internal/redact"
	"github.com/llmhttp/llmhttp/llm"
)

const (
	defaultTTL  = 10 * time.Second
	defaultSize = 10_000

	lookupTimeout = 5 * time.Second  // for one Lookup of the store
	retryDelay    = time.Second      // after a Lookup of the store for a cached key that failed
	warnInterval  = 10 * time.Second // between warnings
)

// Options configure a [Cache]. The zero value is ready to use.
type Options struct {
	// TTL is how long an answer of the store is served, also that a secret is unknown. So a key
	// that is changed, revoked or added in the store is so for clients within TTL. Zero means 10
	// seconds; negative means that nothing is cached.
	TTL time.Duration

	// Grace is how long after TTL a key is still served if the store fails. Zero and negative
	// mean no grace.
	Grace time.Duration

	// Size is the maximum number of cached keys, and of cached unknown secrets. Zero means 10,000;
	// negative means that nothing is cached.
	Size int

	// Logger is told every 10 seconds that keys are served although the store fails. Nil means
	// slog.Default(). Secrets are not logged.
	Logger *slog.Logger
}

// A Cache is a [llmhttp.KeyStore] that caches what another one returns. It may be used concurrently.
//
// A key is read again before its TTL has passed: from half of it on, or from 5 seconds before its
// end if that is later, the first Lookup starts to read it in the background, and requests are served
// the cached key meanwhile. So a slow store delays no request with a key in use, and a key is never
// served for longer than TTL after the store was asked. If the store fails and there is a
// Grace, the key is served until that has passed too, with an attempt each second.
//
// Requests with the same secret that come at the same time share one Lookup of the store. It has the
// values of the context of one of them, and goes on if that request ends, for at most 5 seconds: the store
// must return when its context is done. An error that wraps [llmhttp.ErrKeyNotFound] tells that the secret is
// unknown. An [*llm.Error] with a status below 500 is passed on and not cached. Any other error, and a panic,
// is a failure.
//
// Unknown secrets take no place of keys; the least recently used ones of both are dropped. Secrets
// are kept as their [llmhttp.HashSecret] only. A store of package sqlstore has such a cache already. A
// Cache has no other methods of the store than Lookup: give a console the store itself.
type Cache struct {
	store      llmhttp.KeyStore
	ttl, grace time.Duration
	size       int
	logger     *slog.Logger // nil means slog.Default()

	mu      sync.Mutex // guards the fields below and the entries
	entries map[string]*list.Element
	known   list.List        // of *entry with a key, most recently used first
	unknown list.List        // of *entry without a key, separate so that invalid secrets evict no keys
	reads   map[string]*read // in progress, whose results may be cached, by hash
	warned  time.Time        // when a warning was last logged
}

// A entry is a cached answer of the store.
type entry struct {
	hash    string
	key     *llmhttp.Key // nil if the secret is unknown
	readAt  time.Time    // when the read began
	failing bool         // the store has failed since
	retryAt time.Time    // zero unless a read has failed since
}

// A read is a Lookup of the store in progress.
type read struct {
	begun time.Time
	done  chan struct{} // closed when key and err are set
	key   *llmhttp.Key
	err   error
}

// New returns a Cache for store. Nil opts mean the zero Options. It panics if
// store is nil.
func New(store llmhttp.KeyStore, opts *Options) *Cache {
	if option.IsNil(store) {
		panic("keycache: a cache of a nil KeyStore")
	}
	var o Options
	if opts != nil {
		o = *opts
	}
	ttl := max(cmp.Or(o.TTL, defaultTTL), 0)
	return &Cache{
		store: store, ttl: ttl, grace: min(max(o.Grace, 0), math.MaxInt64-ttl), size: max(cmp.Or(o.Size, defaultSize), 0),
		logger: o.Logger, entries: make(map[string]*list.Element), reads: make(map[string]*read),
	}
}

// Lookup returns the key for a secret. The error is [llmhttp.ErrKeyNotFound], one of the store or that of
// ctx. Once ctx is done, it only returns what is cached.
func (c *Cache) Lookup(ctx context.Context, secret string) (*llmhttp.Key, error) {
	hash, now := llmhttp.HashSecret(secret), time.Now()
	c.mu.Lock()
	e := c.entry(hash)
	isServed := e != nil && c.serves(e, now)
	if err := ctx.Err(); err != nil && !isServed {
		c.mu.Unlock()
		return nil, err
	}
	var r *read
	if !isServed || ctx.Err() == nil && c.refreshes(e, now) {
		r = c.startRead(ctx, hash, secret, now)
	}
	c.mu.Unlock()
	if isServed {
		if e.key == nil {
			return nil, llmhttp.ErrKeyNotFound
		}
		return e.key, nil
	}
	select {
	case <-r.done:
		return r.key, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// entry returns the entry for hash and notes that it is used, or returns nil. The caller holds mu.
func (c *Cache) entry(hash string) *entry {
	element := c.entries[hash]
	if element == nil {
		return nil
	}
	e := element.Value.(*entry)
	c.listFor(e).MoveToFront(element)
	return e
}

// serves reports whether e may be served without waiting for the store. The caller holds mu.
func (c *Cache) serves(e *entry, now time.Time) bool {
	age := now.Sub(e.readAt)
	return age < c.ttl || e.failing && e.key != nil && age < c.ttl+c.grace
}

// refreshes reports whether e is to be read again while it is served. The caller holds mu.
func (c *Cache) refreshes(e *entry, now time.Time) bool {
	begin := c.ttl - min(c.ttl/2, lookupTimeout)
	return e.key != nil && now.Sub(e.readAt) >= begin && !now.Before(e.retryAt)
}

// startRead returns the read of hash that is in progress, or starts one. The caller holds mu.
func (c *Cache) startRead(ctx context.Context, hash, secret string, now time.Time) *read {
	r := c.reads[hash]
	if r == nil {
		r = &read{begun: now, done: make(chan struct{})}
		c.reads[hash] = r
		go c.read(context.WithoutCancel(ctx), hash, secret, r)
	}
	return r
}

var (
	errKeyStoreExited = errors.New("keycache: the KeyStore did not return")
	errNoKeyNoError   = errors.New("keycache: the KeyStore returned neither a key nor an error")
)

// read asks the store for r and caches the result. It continues when the callers that wait for r have
// gone, and ends r even if the store calls runtime.Goexit.
func (c *Cache) read(ctx context.Context, hash, secret string, r *read) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	var key *llmhttp.Key
	err := errKeyStoreExited
	defer func() { c.end(hash, r, key, err) }()
	key, err = c.ask(ctx, secret)
}

// ask looks up secret in the store. No error, which may be logged, has the secret. A panic is an
// error that wraps nothing, because it is not on the goroutine of a request and no answer.
func (c *Cache) ask(ctx context.Context, secret string) (key *llmhttp.Key, err error) {
	defer func() {
		if p := recover(); p != nil {
			key, err = nil, errors.New(redact.New(secret).Text(fmt.Sprintf("keycache: the KeyStore panicked: %v\n%s", p, debug.Stack())))
		}
	}()
	key, err = c.store.Lookup(ctx, secret)
	switch {
	case err != nil:
		return nil, redact.New(secret).Error(err)
	case key == nil:
		return nil, errNoKeyNoError
	}
	return key, nil
}

// end caches the result of r, and wakes those that wait for it.
func (c *Cache) end(hash string, r *read, key *llmhttp.Key, err error) {
	r.key, r.err = key, err
	defer close(r.done)
	if c.add(hash, r) {
		cmp.Or(c.logger, slog.Default()).Error("keycache: the KeyStore does not answer; serving cached keys", "error", panics.Text(err)) // its text alone is redacted
	}
}

// add caches the result of r. If the store has failed and the cached key may be served, it sets the
// result to that, and reports whether the failure is to be logged.
func (c *Cache) add(hash string, r *read) (warn bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	isCurrent := c.reads[hash] == r // otherwise the key was forgotten, and the result may be outdated
	if isCurrent {
		delete(c.reads, hash)
	}
	if r.err == nil || errors.Is(r.err, llmhttp.ErrKeyNotFound) {
		if isCurrent {
			c.insert(&entry{hash: hash, key: r.key, readAt: r.begun})
		}
		return false
	}
	element := c.entries[hash]
	if element == nil {
		return false
	}
	now, e := time.Now(), element.Value.(*entry)
	e.retryAt, e.failing = now.Add(retryDelay), isStoreFailure(r.err)
	if !e.failing || e.key == nil || !c.serves(e, now) {
		return false
	}
	r.key, r.err = e.key, nil
	if warn = now.Sub(c.warned) >= warnInterval; warn {
		c.warned = now
	}
	return warn
}

// isStoreFailure reports whether an error of a KeyStore says that it has failed: any but an *Error
// that refuses a key.
func isStoreFailure(err error) bool {
	e, ok := errors.AsType[*llm.Error](err)
	return !ok || e == nil || e.Status >= http.StatusInternalServerError || e.Status < http.StatusBadRequest
}

func (c *Cache) listFor(e *entry) *list.List {
	if e.key == nil {
		return &c.unknown
	}
	return &c.known
}

// insert adds e in place of an entry with the same hash. If the list of e is full it evicts the
// least recently used entry. The caller holds mu.
func (c *Cache) insert(e *entry) {
	if c.size == 0 {
		return
	}
	c.remove(c.entries[e.hash])
	l := c.listFor(e)
	if l.Len() >= c.size {
		c.remove(l.Back())
	}
	c.entries[e.hash] = l.PushFront(e)
}

// remove removes an element, which may be nil. The caller holds mu.
func (c *Cache) remove(element *list.Element) {
	if element == nil {
		return
	}
	e := element.Value.(*entry)
	c.listFor(e).Remove(element)
	delete(c.entries, e.hash)
}

// Forget drops what is cached of the secrets with the given hashes, as [llmhttp.HashSecret] returns
// them: the next Lookup asks the store. Answers to questions in progress are not cached.
func (c *Cache) Forget(hashes ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, hash := range hashes {
		delete(c.reads, hash)
		c.remove(c.entries[hash])
	}
}

// ForgetIf drops the cached keys for which is returns true, and all unknown secrets, which may be
// those of such keys. Answers to questions in progress are not cached. is must not use the cache.
func (c *Cache) ForgetIf(is func(key *llmhttp.Key) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.reads)
	for _, element := range c.entries {
		if e := element.Value.(*entry); e.key == nil || is(e.key) {
			c.remove(element)
		}
	}
}
