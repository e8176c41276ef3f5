// Keeps sets of attributes, to save CPU time.

package otelllm

import "sync"

// maxCached is how many values a cache keeps. More values are needed only if there
// are many accounts. Those that a cache does not keep are created for each request.
const maxCached = 2_000

// A cache keeps what create returns for a key. It may be used concurrently.
// Without it, making sets of attributes would take longer than the measurements
// (budget: whole 0.5 KB with otelllm, in docs/performance.md; BenchmarkObserve).
type cache[K comparable, V any] struct {
	create func(K) V

	mu     sync.RWMutex // guards values
	values map[K]V
}

func newCache[K comparable, V any](create func(K) V) *cache[K, V] {
	return &cache[K, V]{create: create, values: make(map[K]V)}
}

// get returns the value for key, which is created if there is none. If the cache
// is full, the value is not kept.
func (c *cache[K, V]) get(key K) V {
	c.mu.RLock()
	v, ok := c.values[key]
	c.mu.RUnlock()
	if ok {
		return v
	}
	v = c.create(key)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.values) < maxCached {
		c.values[key] = v
	}
	return v
}
