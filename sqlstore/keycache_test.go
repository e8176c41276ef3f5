package sqlstore

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
)

// A fakeTable is what a keyCache reads.
type fakeTable struct {
	*keyCache
	running sync.WaitGroup

	mu    sync.Mutex
	keys  map[string]*llmhttp.Key
	err   error
	takes time.Duration
	reads int
	warns int
}

func newFakeTable(t *testing.T, opts Options) *fakeTable {
	f := &fakeTable{keys: make(map[string]*llmhttp.Key)}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	f.keyCache = newKeyCache(&Store{opts: opts, ctx: ctx})
	f.keyCache.running = &f.running
	f.failed = func(error) { f.warns++ }
	f.read = func(ctx context.Context, hash secretHash) (*llmhttp.Key, error) {
		f.mu.Lock()
		f.reads++
		key, err, takes := f.keys[string(hash[:])], f.err, f.takes
		f.mu.Unlock()
		select {
		case <-time.After(takes):
			return key, err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return f
}

func hashOf(secret string) secretHash { return sha256.Sum256([]byte(secret)) }

func (f *fakeTable) set(secret, id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	hash := hashOf(secret)
	if id == "" {
		delete(f.keys, string(hash[:]))
	} else {
		f.keys[string(hash[:])] = &llmhttp.Key{ID: id}
	}
}

func (f *fakeTable) fail(err error, takes time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err, f.takes = err, takes
}

// get returns the ID of the key, or what went wrong.
func (f *fakeTable) get(secret string) string {
	key, err := f.lookup(context.Background(), hashOf(secret))
	switch {
	case errors.Is(err, llmhttp.ErrKeyNotFound):
		return "none"
	case err != nil:
		return err.Error()
	}
	return key.ID
}

func TestCacheTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeTable(t, Options{KeyTTL: 10 * time.Second, KeyCache: 10})
		f.set("a", "A")
		assert.Equal(t, []string{"A", "none"}, []string{f.get("a"), f.get("b")})
		f.set("a", "")
		f.set("b", "B")
		time.Sleep(10*time.Second - 1)
		assert.Equal(t, []string{"A", "none"}, []string{f.get("a"), f.get("b")})
		assert.Equal(t, 2, f.reads)
		time.Sleep(time.Nanosecond)
		assert.Equal(t, []string{"none", "B"}, []string{f.get("a"), f.get("b")})
		assert.Equal(t, 4, f.reads)

		// What is read is as old as when it was begun to read.
		f.fail(nil, 4*time.Second)
		time.Sleep(10 * time.Second)
		assert.Equal(t, "B", f.get("b"))
		time.Sleep(6 * time.Second)
		assert.Equal(t, "B", f.get("b"))
		assert.Equal(t, 6, f.reads)
	})
}

func TestCacheWithoutTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeTable(t, Options{KeyTTL: -1, KeyCache: 10})
		f.set("a", "A")
		assert.Equal(t, "A", f.get("a"))
		f.set("a", "")
		assert.Equal(t, "none", f.get("a"))
	})
}

func TestCacheReadsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeTable(t, Options{KeyTTL: time.Second, KeyCache: 10})
		f.set("a", "A")
		f.fail(nil, time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := f.lookup(ctx, hashOf("a")) // the first to ask, and to leave
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() { assert.Equal(t, "A", f.get("a")) })
		}
		all.Wait()
		assert.Equal(t, 1, f.reads)
	})
}

// A change is seen by who asks after it, whatever was on its way before.
func TestCacheForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeTable(t, Options{KeyTTL: time.Hour, KeyCache: 10})
		f.set("a", "A")
		f.set("b", "B")
		assert.Equal(t, "A", f.get("a"))
		f.set("a", "")
		f.forget(hashOf("a"), hashOf("c"))
		assert.Equal(t, "none", f.get("a"))

		f.fail(nil, time.Second)
		early := make(chan string)
		go func() { early <- f.get("b") }() // reads that there is b
		synctest.Wait()
		f.set("b", "")
		f.forget(hashOf("b"))
		assert.Equal(t, "none", f.get("b"))
		<-early
		assert.Equal(t, "none", f.get("b"))
	})
}

func TestCacheGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeTable(t, Options{KeyTTL: 10 * time.Second, KeyGrace: time.Minute, KeyCache: 10})
		f.set("a", "A")
		assert.Equal(t, []string{"A", "none"}, []string{f.get("a"), f.get("b")})
		f.fail(errors.New("away"), time.Second)
		time.Sleep(10 * time.Second)
		assert.Equal(t, []string{"A", "A", "A"}, []string{f.get("a"), f.get("a"), f.get("a")})
		assert.Equal(t, 3, f.reads, "a database that is away is not asked for each request")
		time.Sleep(readPause)
		assert.Equal(t, []string{"A", "away"}, []string{f.get("a"), f.get("b")}, "what was unknown need not be so any more")
		assert.Equal(t, 5, f.reads)
		assert.Equal(t, 1, f.warns)
		time.Sleep(warnPause)
		assert.Equal(t, "A", f.get("a"))
		assert.Equal(t, 2, f.warns)

		f.fail(nil, 0) // it is back
		f.set("a", "")
		time.Sleep(readPause)
		assert.Equal(t, "none", f.get("a"))

		f.set("a", "A")
		time.Sleep(10 * time.Second)
		assert.Equal(t, "A", f.get("a"))
		f.fail(errors.New("away"), 0)
		time.Sleep(70*time.Second - 1)
		assert.Equal(t, "A", f.get("a"))
		time.Sleep(time.Nanosecond)
		assert.Equal(t, "away", f.get("a"))
	})
}

func TestCacheWithoutGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeTable(t, Options{KeyTTL: 10 * time.Second, KeyCache: 10})
		f.set("a", "A")
		assert.Equal(t, "A", f.get("a"))
		f.fail(errors.New("away"), time.Hour)
		time.Sleep(10 * time.Second)
		start := time.Now()
		assert.Equal(t, context.DeadlineExceeded.Error(), f.get("a"))
		assert.Equal(t, readTimeout, time.Since(start))
	})
}

// Strangers do not push out the keys that are there, nor fill the memory.
func TestCacheBounds(t *testing.T) {
	f := newFakeTable(t, Options{KeyTTL: time.Hour, KeyCache: 10})
	for i := range 10 {
		f.set(fmt.Sprint(i), fmt.Sprint("K", i))
		f.get(fmt.Sprint(i))
	}
	for i := range 1000 {
		assert.Equal(t, "none", f.get(fmt.Sprint("stranger", i)))
	}
	assert.Len(t, f.entries, 20)
	reads := f.reads
	for i := range 10 {
		assert.Equal(t, fmt.Sprint("K", i), f.get(fmt.Sprint(i)))
	}
	assert.Equal(t, reads, f.reads)

	// The one that was not used for longest goes.
	f.get("0")
	f.set("new", "N")
	f.get("new")
	reads = f.reads
	f.get("0")
	assert.Equal(t, reads, f.reads)
	f.get("1")
	assert.Equal(t, reads+1, f.reads)
	assert.Equal(t, 10, f.found.Len())
	assert.Equal(t, 10, f.unknown.Len())
}

func TestCacheTellsUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeTable(t, Options{KeyTTL: time.Hour, KeyCache: 2})
		for _, s := range []string{"a", "b", "c", "d"} {
			f.set(s, s)
		}
		f.set("a2", "a") // rotated
		start := time.Now()
		f.get("a")
		time.Sleep(time.Second)
		f.get("a2")
		f.get("none")
		f.get("b")
		f.get("c") // a is not cached any more
		want := map[string]time.Time{"a": start.Add(time.Second), "b": start.Add(time.Second), "c": start.Add(time.Second)}
		assert.Equal(t, want, f.takeUsed())
		assert.Empty(t, f.takeUsed())
		f.putUsed(map[string]time.Time{"a": start})
		assert.Equal(t, map[string]time.Time{"a": start}, f.takeUsed())
		time.Sleep(time.Second)
		f.get("c")
		f.forget(hashOf("c"))
		assert.Equal(t, map[string]time.Time{"c": start.Add(2 * time.Second)}, f.takeUsed())

		for i := range 100 { // nobody takes it
			f.set(fmt.Sprint(i), fmt.Sprint(i))
			f.get(fmt.Sprint(i))
		}
		assert.LessOrEqual(t, len(f.used), 2)
	})
}

func TestCacheClosed(t *testing.T) {
	f := newFakeTable(t, Options{KeyTTL: time.Hour, KeyCache: 2})
	f.set("a", "A")
	assert.Equal(t, "A", f.get("a"))
	require.True(t, f.close())
	assert.False(t, f.close())
	assert.Equal(t, errClosed.Error(), f.get("a"))
}

func TestLookupAllocates(t *testing.T) {
	s := openStore(t, ":memory:", nil)
	_, secret, err := s.CreateKey(t.Context(), KeyParams{})
	require.NoError(t, err)
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		if _, err := s.Lookup(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
	}))
}
