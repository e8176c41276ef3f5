package sqlstore

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/manage"
)

// Package storetest tests what every KeyStore must do.

var fullParams = manage.KeyParams{
	Account: "acme",
	Name:    "the key of “Zoë”",
	Scopes:  []llmhttp.Scope{llmhttp.ScopeChat, "new"},
	Models:  []string{"small-*", ""},
	Expires: time.Date(2999, 1, 2, 3, 4, 5, 6000, time.UTC),
	Limits: llmhttp.Limits{
		Requests:   llmhttp.Rate{N: 60, Per: time.Minute, Burst: 7},
		Tokens:     llmhttp.Rate{N: -1, Per: math.MaxInt64, Burst: math.MaxInt},
		Quota:      llmhttp.Quota{Tokens: math.MinInt, Per: 1},
		Concurrent: -3,
	},
}

func TestStore_CreateKey(t *testing.T) {
	forEachDatabase(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, &Options{SecretPrefix: "acme-"})
		start := time.Now().Truncate(time.Microsecond)
		info, secret := createKey(t, s, fullParams)
		assert.Regexp(t, `^key_[a-z2-7]{20}$`, info.ID)
		assert.Regexp(t, `^acme-[\w-]{43}$`, secret)
		assert.Equal(t, secret[:len("acme-")+8], info.Prefix)
		assert.Equal(t, fullParams, info.Params())
		assert.WithinRange(t, info.Created, start, time.Now())
		assert.Zero(t, info.LastUsed)
		assert.Zero(t, info.Revoked)
		assert.Equal(t, info, getKey(t, s, info.ID))
		assert.Equal(t, &info.Key, lookup(t, s, secret))

		var hash string
		require.NoError(t, s.db.read.QueryRow("SELECT hash FROM llmhttp_secrets").Scan(&hash))
		assert.Equal(t, llmhttp.HashSecret(secret), hash)

		info, secret = createKey(t, s, manage.KeyParams{})
		assert.Equal(t, manage.KeyParams{Account: info.ID}, info.Params())
		assert.Equal(t, &llmhttp.Key{ID: info.ID, Account: info.ID}, lookup(t, s, secret))
	})
}

func TestStore_PrefixContainsRandomCharacters(t *testing.T) {
	s := openStore(t, ":memory:", &Options{SecretPrefix: strings.Repeat("p", maxSecretPrefix)})
	created, secret := createKey(t, s, manage.KeyParams{})
	assert.Equal(t, secret[:maxSecretPrefix+8], created.Prefix)
	rotated, _, err := s.RotateKey(t.Context(), created.ID, 0)
	require.NoError(t, err)
	assert.NotEqual(t, created.Prefix, rotated.Prefix)
}

func TestStore_ImportKey(t *testing.T) {
	forEachDatabase(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, nil)
		const secret = "sk-0123456789abcdef"
		_, err := s.Lookup(t.Context(), secret)
		require.ErrorIs(t, err, llmhttp.ErrKeyNotFound)
		info, err := s.ImportKey(t.Context(), secret, manage.KeyParams{Account: "acme"})
		require.NoError(t, err)
		assert.Equal(t, secret[:4], info.Prefix)
		assert.Equal(t, "acme", lookup(t, s, secret).Account, "the cache forgets that the secret was unknown")

		_, err = s.ImportKey(t.Context(), secret, manage.KeyParams{Account: "other"})
		require.ErrorContains(t, err, "another key has this secret")
		assert.NotContains(t, err.Error(), secret)
		assert.EqualValues(t, 1, queryInt(t, s, "SELECT count(*) FROM llmhttp_keys"), "a failed import stores nothing")
		for _, invalid := range []string{"", "sk-demo", "sk-0123456789abcdef\n", "sk-0123456789 abcdef", "sk-0123456789abcdé", strings.Repeat("x", 4097)} {
			_, err := s.ImportKey(t.Context(), invalid, manage.KeyParams{})
			assert.ErrorContains(t, err, "16 to 4096 printable ASCII characters")
		}
	})
}

// A key whose stored scopes are malformed, such as one of another program, can still be suspended.
func TestStore_MalformedStoredScopes(t *testing.T) {
	s := openStore(t, ":memory:", nil)
	info, _ := createKey(t, s, manage.KeyParams{})
	_, err := s.db.write.ExecContext(t.Context(), `UPDATE llmhttp_keys SET scopes = '["No Scope"]'`)
	require.NoError(t, err)
	changed, err := s.UpdateKey(t.Context(), info.ID, func(p *manage.KeyParams) error { p.Suspended = true; return nil })
	require.NoError(t, err)
	assert.True(t, changed.Suspended)
	_, err = s.UpdateKey(t.Context(), info.ID, func(p *manage.KeyParams) error { p.Scopes = append(p.Scopes, "chat"); return nil })
	assert.ErrorContains(t, err, "KeyParams.Scopes[0]")
}

func TestStore_InvalidParams(t *testing.T) {
	s := openStore(t, ":memory:", nil)
	info, _ := createKey(t, s, manage.KeyParams{Account: "acme"})
	long := strings.Repeat("x", 1<<20)
	for want, params := range map[string]manage.KeyParams{
		"Account is not valid UTF-8":   {Account: "\xff"},
		"Account has 1048576 bytes":    {Account: long},
		"Name is not valid UTF-8":      {Name: "a\x00"},
		"Name has 1048576 bytes":       {Name: long},
		"KeyParams.Scopes[1]: ":        {Scopes: []llmhttp.Scope{"chat", "\xff"}},
		"KeyParams.Scopes[0]: ":        {Scopes: []llmhttp.Scope{llmhttp.Scope(long)}},
		"Models[1] is not valid UTF-8": {Models: []string{"m", "\x00"}},
		"Models[0] has":                {Models: []string{long}},
	} {
		_, _, err := s.CreateKey(t.Context(), params)
		assert.ErrorContains(t, err, "sqlstore: creating a key: "+want)
		_, err = s.UpdateKey(t.Context(), info.ID, func(p *manage.KeyParams) error { *p = params; return nil })
		assert.ErrorContains(t, err, "sqlstore: updating a key: "+want)
	}
	assert.Equal(t, info, getKey(t, s, info.ID))
	_, _, err := s.RotateKey(t.Context(), info.ID, -1)
	assert.ErrorContains(t, err, "the overlap is negative")
}

func TestStore_UnknownKey(t *testing.T) {
	forEachDatabase(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, nil)
		createKey(t, s, manage.KeyParams{Account: "acme"})
		for _, id := range []string{"", "key_x", "' OR '1'='1", "%", "\x00", "\xff", strings.Repeat("x", 1<<20)} {
			_, err := s.Key(t.Context(), id)
			assert.ErrorIs(t, err, llmhttp.ErrKeyNotFound)
			_, err = s.UpdateKey(t.Context(), id, func(*manage.KeyParams) error { t.Error("called"); return nil })
			assert.ErrorIs(t, err, llmhttp.ErrKeyNotFound)
			assert.ErrorIs(t, s.RevokeKey(t.Context(), id), llmhttp.ErrKeyNotFound)
			_, _, err = s.RotateKey(t.Context(), id, 0)
			assert.ErrorIs(t, err, llmhttp.ErrKeyNotFound)
			if id == "" {
				continue // in a manage.KeyQuery, the empty string means all
			}
			_, err = s.ListKeys(t.Context(), manage.KeyQuery{After: id})
			assert.ErrorIs(t, err, llmhttp.ErrKeyNotFound)
			list, err := s.ListKeys(t.Context(), manage.KeyQuery{Account: id})
			assert.NoError(t, err)
			assert.Empty(t, list)
		}
	})
}

func TestStore_ListKeys(t *testing.T) {
	forEachDatabase(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, nil)
		now := time.Now()
		var all, acme []string
		for i := range 25 {
			s.db.now = func() time.Time { return now.Add(time.Duration(i/3) * time.Second) } // three keys per second
			account := []string{"acme", "it's", "acme "}[i%3]
			info, _ := createKey(t, s, manage.KeyParams{Account: account})
			all = append(all, info.ID)
			if account == "acme" {
				acme = append(acme, info.ID)
			}
		}
		// list reads all pages and checks that they are sorted by time.
		list := func(q manage.KeyQuery) (ids []string) {
			var last manage.KeyInfo
			for {
				page, err := s.ListKeys(t.Context(), q)
				require.NoError(t, err)
				for _, k := range page {
					assert.False(t, k.Created.Before(last.Created))
					ids, last = append(ids, k.ID), k
				}
				if len(page) == 0 || len(page) < q.Limit {
					return ids
				}
				q.After = last.ID
			}
		}
		for _, limit := range []int{1, 2, 5, 7, 25, 26} {
			assert.ElementsMatch(t, all, list(manage.KeyQuery{Limit: limit}))
			assert.Equal(t, acme, list(manage.KeyQuery{Account: "acme", Limit: limit}))
		}
		assert.Len(t, list(manage.KeyQuery{Account: "it's"}), 8)
		assert.Empty(t, list(manage.KeyQuery{Account: "ACME"}))
		page, err := s.ListKeys(t.Context(), manage.KeyQuery{Limit: math.MaxInt})
		require.NoError(t, err)
		assert.Len(t, page, 25)
	})
}

func TestStore_UpdateKey(t *testing.T) {
	forEachDatabase(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, nil)
		info, secret := createKey(t, s, fullParams)
		assert.Equal(t, &info.Key, lookup(t, s, secret))

		want := manage.KeyParams{Account: "other", Name: "n", Scopes: []llmhttp.Scope{}, Limits: llmhttp.Limits{Tokens: llmhttp.PerMinute(5)}}
		updated, err := s.UpdateKey(t.Context(), info.ID, func(p *manage.KeyParams) error { *p = want; return nil })
		require.NoError(t, err)
		assert.Equal(t, want, updated.Params())
		assert.Equal(t, updated, getKey(t, s, info.ID))
		assert.Equal(t, &updated.Key, lookup(t, s, secret), "the cache forgets the key")

		refused := errors.New("refused")
		_, err = s.UpdateKey(t.Context(), info.ID, func(p *manage.KeyParams) error { p.Name = "changed"; return refused })
		assert.ErrorIs(t, err, refused)
		after := getKey(t, s, info.ID)
		assert.True(t, after.LastUsed.After(updated.LastUsed), "the key was used after the update")
		after.LastUsed = updated.LastUsed
		assert.Equal(t, updated, after)
	})
}

// TestStore_ConcurrentChanges updates and rotates a key through two Stores. No
// change may be lost.
func TestStore_ConcurrentChanges(t *testing.T) {
	forEachSharedDatabase(t, func(t *testing.T, dsn string) {
		stores := []*Store{openStore(t, dsn, nil), openStore(t, dsn, nil)}
		info, first := createKey(t, stores[0], manage.KeyParams{})
		const workers, times = 4, 10
		var mu sync.Mutex
		secrets := map[string]bool{first: true}
		var running sync.WaitGroup
		for w := range workers {
			running.Go(func() {
				for i := range times {
					_, err := stores[w%2].UpdateKey(t.Context(), info.ID, func(p *manage.KeyParams) error {
						p.Limits.Concurrent++
						p.Models = append(p.Models, fmt.Sprint(w, "-", i))
						return nil
					})
					assert.NoError(t, err)
				}
			})
			running.Go(func() {
				for range times {
					_, secret, err := stores[w%2].RotateKey(t.Context(), info.ID, time.Hour)
					assert.NoError(t, err)
					mu.Lock()
					secrets[secret] = true
					mu.Unlock()
				}
			})
		}
		running.Wait()
		after := getKey(t, stores[0], info.ID)
		assert.Equal(t, workers*times, after.Limits.Concurrent)
		assert.Len(t, after.Models, workers*times)
		assert.Len(t, secrets, workers*times+1)
		unlimited := 0
		for secret := range secrets {
			key := lookup(t, stores[1], secret)
			assert.Equal(t, after.Limits, key.Limits)
			if key.Expires.IsZero() {
				unlimited++
				assert.Equal(t, secret[:len(after.Prefix)], after.Prefix)
			}
		}
		assert.Equal(t, 1, unlimited, "only the newest secret does not expire")
	})
}

func TestStore_RevokeKey(t *testing.T) {
	forEachSharedDatabase(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, &Options{KeyTTL: time.Hour})
		other := openStore(t, dsn, &Options{KeyTTL: 100 * time.Millisecond})
		info, secret := createKey(t, s, manage.KeyParams{Account: "acme"})
		lookup(t, s, secret)
		lookup(t, other, secret)

		require.NoError(t, s.RevokeKey(t.Context(), info.ID))
		_, err := s.Lookup(t.Context(), secret)
		assert.ErrorIs(t, err, llmhttp.ErrKeyNotFound)
		eventually(t, func() bool {
			_, err := other.Lookup(t.Context(), secret)
			return errors.Is(err, llmhttp.ErrKeyNotFound)
		}, "the other Store refuses the key")
		revoked := getKey(t, s, info.ID)
		assert.WithinRange(t, revoked.Revoked, info.Created, time.Now())

		require.NoError(t, other.RevokeKey(t.Context(), info.ID))
		assert.Equal(t, revoked, getKey(t, s, info.ID), "the second call changes nothing")
		_, err = s.UpdateKey(t.Context(), info.ID, func(*manage.KeyParams) error { return nil })
		assert.ErrorIs(t, err, manage.ErrKeyRevoked)
		_, _, err = s.RotateKey(t.Context(), info.ID, time.Hour)
		assert.ErrorIs(t, err, manage.ErrKeyRevoked)
	})
}

// TestStore_LookupAfterChange checks that a lookup that begins after a change
// sees the change, even if other lookups of the secret are in progress.
func TestStore_LookupAfterChange(t *testing.T) {
	changes := map[string]func(s *Store, id string) error{
		"revoke": func(s *Store, id string) error { return s.RevokeKey(t.Context(), id) },
		"rotate": func(s *Store, id string) error {
			_, _, err := s.RotateKey(t.Context(), id, 0)
			return err
		},
		"suspend the account": func(s *Store, id string) error {
			_, err := s.CreateAccount(t.Context(), id, manage.AccountParams{Suspended: true})
			return err
		},
	}
	forEachSharedDatabase(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, &Options{KeyTTL: time.Hour})
		for name, change := range changes {
			for range 10 {
				testLookupAfterChange(t, s, name, change)
			}
		}
	})
}

func testLookupAfterChange(t *testing.T, s *Store, name string, change func(s *Store, id string) error) {
	info, secret := createKey(t, s, manage.KeyParams{})
	var changed atomic.Bool
	var before, after atomic.Int64 // lookups that succeeded before, and that began after, the change
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for after.Load() < 100 {
				late := changed.Load()
				_, err := s.Lookup(t.Context(), secret)
				if err == nil && !late {
					before.Add(1)
				} else {
					assert.ErrorIs(t, err, llmhttp.ErrKeyNotFound, name)
				}
				if late {
					after.Add(1)
				}
				if before.Load()%10 == 0 {
					s.cache.Forget(llmhttp.HashSecret(secret)) // makes the next lookup read
				}
			}
		})
	}
	eventually(t, func() bool { return before.Load() > 10 }, "lookups succeed")
	err := change(s, info.ID)
	changed.Store(true)
	callers.Wait()
	require.NoError(t, err)
}

func TestStore_RotateKey(t *testing.T) {
	forEachDatabase(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, nil)
		now := time.Now().Truncate(time.Microsecond).UTC()
		s.db.now = func() time.Time { return now }
		info, first := createKey(t, s, fullParams)
		rotate := func(overlap time.Duration) (manage.KeyInfo, string) {
			info, secret, err := s.RotateKey(t.Context(), info.ID, overlap)
			require.NoError(t, err)
			return info, secret
		}
		// expires returns the expiry of a secret, or zero if it does not work.
		expires := func(secret string) time.Time {
			key, err := s.Lookup(t.Context(), secret)
			if errors.Is(err, llmhttp.ErrKeyNotFound) {
				return time.Time{}
			}
			require.NoError(t, err)
			assert.Equal(t, info.ID, key.ID)
			assert.Equal(t, info.Limits, key.Limits)
			return key.Expires
		}
		assert.Equal(t, fullParams.Expires, expires(first))

		rotated, second := rotate(time.Hour)
		assert.Equal(t, second[:len("sk-")+8], rotated.Prefix)
		assert.NotZero(t, rotated.LastUsed, "the key was used before the rotation")
		rotated.Prefix, rotated.LastUsed = info.Prefix, info.LastUsed
		assert.Equal(t, info, rotated)
		assert.Equal(t, now.Add(time.Hour), expires(first))
		assert.Equal(t, fullParams.Expires, expires(second))

		_, third := rotate(2 * time.Hour)
		assert.Equal(t, now.Add(time.Hour), expires(first), "an overlap is never extended")
		assert.Equal(t, now.Add(2*time.Hour), expires(second))

		_, err := s.UpdateKey(t.Context(), info.ID, func(p *manage.KeyParams) error { p.Expires = now.Add(90 * time.Minute); return nil })
		require.NoError(t, err)
		assert.Equal(t, now.Add(time.Hour), expires(first))
		assert.Equal(t, now.Add(90*time.Minute), expires(second), "an overlap ends with the key")

		_, fourth := rotate(0)
		assert.Zero(t, expires(first))
		assert.Zero(t, expires(second))
		assert.Zero(t, expires(third))
		assert.Equal(t, now.Add(90*time.Minute), expires(fourth))
		assert.EqualValues(t, 1, queryInt(t, s, "SELECT count(*) FROM llmhttp_secrets"), "expired secrets are deleted")

		_, fifth := rotate(math.MaxInt64)
		require.NoError(t, s.RevokeKey(t.Context(), info.ID))
		assert.Zero(t, expires(fourth))
		assert.Zero(t, expires(fifth))
	})
}
