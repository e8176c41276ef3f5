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
	ids        map[string]string // by the hash of the secret
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

// set stores the ID of the key with the given secret. An empty one removes the key.
func (c *testCache) set(secret, id string) { c.ids[llmhttp.HashSecret(secret)] = id }

// get returns the IDs of the keys with the given secrets, or "none", or the text of an error.
func (c *testCache) get(secrets ...string) (results []string) {
	for _, secret := range secrets {
		key, err := c.lookup(context.Background(), secret)
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

// Package llmhttp tests what the options mean; this tests that they are passed on.
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
			c.set("a", "A")
			assert.Equal(t, []string{"A"}, c.get("a"))
			assert.Contains(t, c.takeLastUsed(), "A", "uses are recorded in any case")
			c.set("a", "")
			assert.Equal(t, []string{test.want}, c.get("a"))
		})
	}
}

func TestKeyCache_ForgetAccount(t *testing.T) {
	c := newTestCache(t, Options{KeyTTL: time.Hour, KeyCache: 10})
	c.set("a", "A")
	c.set("b", "B")
	assert.Equal(t, []string{"A", "B", "none"}, c.get("a", "b", "suspended"))
	c.set("a", "")
	c.set("b", "other")
	c.set("suspended", "S")
	c.forgetAccount("of A")
	assert.Equal(t, []string{"none", "B", "S"}, c.get("a", "b", "suspended"), "what is cached of other accounts stays")
}

func TestKeyCache_LastUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCache(t, Options{KeyTTL: time.Hour, KeyCache: 2})
		for _, id := range []string{"a", "b", "c"} {
			c.set(id, id)
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
		c.Forget(llmhttp.HashSecret("c"))
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
	assert.False(t, c.beginRead(), "the cache reads nothing in the background either")
}
