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
	ids        map[string]string
}

func newTestCache(t *testing.T, opts Options) *testCache {
	c := &testCache{ids: make(map[string]string)}
	c.keyCache = newKeyCache(&database{ctx: t.Context()}, &opts, &c.background, c.readKey)
	return c
}

func (c *testCache) readKey(_ context.Context, hash string) (*llmhttp.Key, error) {
	if id := c.ids[hash]; id != "" {
		return &llmhttp.Key{ID: id, Account: "of " + id}, nil
	}
	return nil, llmhttp.ErrKeyNotFound
}

// get returns the IDs of the keys with the given hashes, or "none", or the text of an error.
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

// Package keycache tests what the options mean; this tests that they are passed on.
func TestKeyCache_Options(t *testing.T) {
	for name, test := range map[string]struct {
		opts Options
		want string
	}{
		"cached":        {Options{KeyTTL: time.Hour, KeyCache: 10}, "A"},
		"negative TTL":  {Options{KeyTTL: -1, KeyCache: 10}, "none"},
		"negative size": {Options{KeyTTL: time.Hour, KeyGrace: time.Hour, KeyCache: -1}, "none"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newTestCache(t, test.opts)
			c.ids["a"] = "A"
			assert.Equal(t, []string{"A"}, c.get("a"))
			assert.Contains(t, c.takeLastUsed(), "A", "uses are recorded in any case")
			delete(c.ids, "a")
			assert.Equal(t, []string{test.want}, c.get("a"))
		})
	}
}

func TestKeyCache_ForgetAccount(t *testing.T) {
	c := newTestCache(t, Options{KeyTTL: time.Hour, KeyCache: 10})
	c.ids["a"], c.ids["b"] = "A", "B"
	assert.Equal(t, []string{"A", "B", "none"}, c.get("a", "b", "suspended"))
	c.ids["a"], c.ids["b"], c.ids["suspended"] = "", "other", "S"
	c.forgetAccount("of A")
	assert.Equal(t, []string{"none", "B", "S"}, c.get("a", "b", "suspended"), "what is cached of other accounts stays")
}

func TestKeyCache_LastUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCache(t, Options{KeyTTL: time.Hour, KeyCache: 2})
		for _, hash := range []string{"a", "b", "c"} {
			c.ids[hash] = hash
		}
		c.ids["a2"] = "a" // another secret of the same key
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
		c.Forget("c")
		assert.Equal(t, map[string]time.Time{"c": start.Add(2 * time.Second)}, c.takeLastUsed())

		for i := range 100 {
			c.ids[fmt.Sprint(i)] = fmt.Sprint(i)
			c.get(fmt.Sprint(i))
		}
		assert.LessOrEqual(t, len(c.lastUsed), 4)
	})
}

func TestKeyCache_Close(t *testing.T) {
	c := newTestCache(t, Options{KeyTTL: time.Hour, KeyCache: 2})
	c.ids["a"] = "A"
	assert.Equal(t, []string{"A"}, c.get("a"))
	assert.True(t, c.Close(errClosed))
	assert.False(t, c.Close(errClosed))
	assert.Equal(t, []string{errClosed.Error()}, c.get("a"))
}
