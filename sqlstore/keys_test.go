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
)

// What every KeyStore promises is tested by package llmhttptest.

var fullParams = KeyParams{
	Account: "acme", Name: "the key of “Zoë”", Scopes: []llmhttp.Endpoint{llmhttp.EndpointChat, "new"}, Models: []string{"small-*", ""},
	Expires: time.Date(2999, 1, 2, 3, 4, 5, 6000, time.UTC),
	Limits: llmhttp.Limits{
		Requests:   llmhttp.Rate{N: 60, Per: time.Minute, Burst: 7},
		Tokens:     llmhttp.Rate{N: -1, Per: math.MaxInt64, Burst: math.MaxInt},
		Quota:      llmhttp.Rate{N: math.MinInt, Per: 1},
		Concurrent: -3,
	},
}

func TestCreateKey(t *testing.T) {
	forEach(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, &Options{SecretPrefix: "acme-"})
		start := time.Now().Truncate(time.Microsecond)
		info, secret, err := s.CreateKey(t.Context(), fullParams)
		require.NoError(t, err)
		assert.Regexp(t, `^key_[a-z2-7]{20}$`, info.ID)
		assert.Regexp(t, `^acme-[\w-]{43}$`, secret)
		assert.Equal(t, secret[:len("acme-")+8], info.Prefix)
		assert.Equal(t, fullParams, info.Params())
		assert.WithinRange(t, info.Created, start, time.Now())
		assert.Zero(t, info.LastUsed)
		assert.Zero(t, info.Revoked)

		again, err := s.Key(t.Context(), info.ID)
		require.NoError(t, err)
		assert.Equal(t, info, again)
		key, err := s.Lookup(t.Context(), secret)
		require.NoError(t, err)
		assert.Equal(t, &info.Key, key)

		// Of the secret there is nothing but the hash.
		var hash string
		require.NoError(t, s.read.QueryRow("SELECT hash FROM llmhttp_secrets").Scan(&hash))
		assert.Equal(t, llmhttp.HashSecret(secret), hash)

		info, secret, err = s.CreateKey(t.Context(), KeyParams{})
		require.NoError(t, err)
		assert.Equal(t, info.ID, info.Account)
		assert.Equal(t, KeyParams{Account: info.ID}, info.Params())
		key, err = s.Lookup(t.Context(), secret)
		require.NoError(t, err)
		assert.Equal(t, &llmhttp.Key{ID: info.ID, Account: info.ID}, key)
	})
}

// However secrets begin, people can tell them apart by what is shown.
func TestPrefix(t *testing.T) {
	s := openStore(t, ":memory:", &Options{SecretPrefix: strings.Repeat("p", maxSecretPrefix)})
	one, secret, err := s.CreateKey(t.Context(), KeyParams{})
	require.NoError(t, err)
	assert.Equal(t, secret[:maxSecretPrefix+8], one.Prefix)
	other, _, err := s.RotateKey(t.Context(), one.ID, 0)
	require.NoError(t, err)
	assert.NotEqual(t, one.Prefix, other.Prefix)
}

func TestImportKey(t *testing.T) {
	forEach(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, nil)
		const secret = "sk-0123456789abcdef"
		_, err := s.Lookup(t.Context(), secret)
		require.ErrorIs(t, err, llmhttp.ErrKeyNotFound)
		info, err := s.ImportKey(t.Context(), secret, KeyParams{Account: "acme"})
		require.NoError(t, err)
		assert.Equal(t, secret[:4], info.Prefix)
		key, err := s.Lookup(t.Context(), secret)
		require.NoError(t, err, "what was unknown is known at once")
		assert.Equal(t, "acme", key.Account)

		_, err = s.ImportKey(t.Context(), secret, KeyParams{Account: "other"})
		require.ErrorContains(t, err, "there is a key with this secret")
		assert.NotContains(t, err.Error(), secret)
		assert.EqualValues(t, 1, count(t, s, "SELECT count(*) FROM llmhttp_keys"), "nothing is left of what failed")
		for _, bad := range []string{"", "sk-demo", "sk-0123456789abcdef\n", "sk-0123456789 abcdef", "sk-0123456789abcdé", strings.Repeat("x", 4097)} {
			_, err := s.ImportKey(t.Context(), bad, KeyParams{})
			assert.ErrorContains(t, err, "16 to 4096 printable characters")
		}
	})
}

func TestBadParams(t *testing.T) {
	s := openStore(t, ":memory:", nil)
	good, _, err := s.CreateKey(t.Context(), KeyParams{Account: "acme"})
	require.NoError(t, err)
	long := strings.Repeat("x", 1<<20)
	for want, params := range map[string]KeyParams{
		"Account is not valid UTF-8":   {Account: "\xff"},
		"Account is of 1048576 bytes":  {Account: long},
		"Name is not valid UTF-8":      {Name: "a\x00"},
		"Name is of 1048576 bytes":     {Name: long},
		"Scopes[1] is not valid UTF-8": {Scopes: []llmhttp.Endpoint{"chat", "\xff"}},
		"Scopes[0] is of":              {Scopes: []llmhttp.Endpoint{llmhttp.Endpoint(long)}},
		"Models[1] is not valid UTF-8": {Models: []string{"m", "\x00"}},
		"Models[0] is of":              {Models: []string{long}},
	} {
		_, _, err := s.CreateKey(t.Context(), params)
		assert.ErrorContains(t, err, "sqlstore: creating a key: "+want)
		_, err = s.UpdateKey(t.Context(), good.ID, func(p *KeyParams) error { *p = params; return nil })
		assert.ErrorContains(t, err, "sqlstore: updating a key: "+want)
	}
	after, err := s.Key(t.Context(), good.ID)
	require.NoError(t, err)
	assert.Equal(t, good, after)
	_, _, err = s.RotateKey(t.Context(), good.ID, -1)
	assert.ErrorContains(t, err, "overlap")
}

func TestUnknownKey(t *testing.T) {
	forEach(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, nil)
		_, _, err := s.CreateKey(t.Context(), KeyParams{Account: "acme"})
		require.NoError(t, err)
		for _, id := range []string{"", "key_x", "' OR '1'='1", "%", "\x00", "\xff", strings.Repeat("x", 1<<20)} {
			_, err := s.Key(t.Context(), id)
			assert.ErrorIs(t, err, llmhttp.ErrKeyNotFound)
			_, err = s.UpdateKey(t.Context(), id, func(*KeyParams) error { t.Error("called"); return nil })
			assert.ErrorIs(t, err, llmhttp.ErrKeyNotFound)
			assert.ErrorIs(t, s.RevokeKey(t.Context(), id), llmhttp.ErrKeyNotFound)
			_, _, err = s.RotateKey(t.Context(), id, 0)
			assert.ErrorIs(t, err, llmhttp.ErrKeyNotFound)
			if id != "" {
				_, err = s.ListKeys(t.Context(), KeyQuery{After: id})
				assert.ErrorIs(t, err, llmhttp.ErrKeyNotFound)
				list, err := s.ListKeys(t.Context(), KeyQuery{Account: id})
				assert.NoError(t, err)
				assert.Empty(t, list)
			}
		}
	})
}

func TestListKeys(t *testing.T) {
	forEach(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, nil)
		now := time.Now()
		var want, acme []string
		for i := range 25 {
			s.now = func() time.Time { return now.Add(time.Duration(i/3) * time.Second) } // some at the same time
			account := []string{"acme", "it's", "acme "}[i%3]
			info, _, err := s.CreateKey(t.Context(), KeyParams{Account: account})
			require.NoError(t, err)
			want = append(want, info.ID)
			if account == "acme" {
				acme = append(acme, info.ID)
			}
		}
		pages := func(q KeyQuery) (ids []string) {
			var last KeyInfo
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
			assert.ElementsMatch(t, want, pages(KeyQuery{Limit: limit}))
			assert.Equal(t, acme, pages(KeyQuery{Account: "acme", Limit: limit}))
		}
		assert.Len(t, pages(KeyQuery{Account: "it's"}), 8)
		assert.Empty(t, pages(KeyQuery{Account: "ACME"}))
		all, err := s.ListKeys(t.Context(), KeyQuery{Limit: math.MaxInt})
		require.NoError(t, err)
		assert.Len(t, all, 25)
	})
}

// Changes of many at once, in two processes as it were, are all there in the end.
func TestUpdateKey(t *testing.T) {
	forEngines(t, func(t *testing.T, dsn string) {
		stores := []*Store{openStore(t, dsn, nil), openStore(t, dsn, nil)}
		info, secret, err := stores[0].CreateKey(t.Context(), fullParams)
		require.NoError(t, err)
		const workers, times = 6, 10
		var all sync.WaitGroup
		for w := range workers {
			all.Go(func() {
				for i := range times {
					_, err := stores[w%2].UpdateKey(t.Context(), info.ID, func(p *KeyParams) error {
						p.Limits.Concurrent++
						p.Models = append(p.Models, fmt.Sprint(w, "-", i))
						return nil
					})
					assert.NoError(t, err)
				}
			})
		}
		all.Wait()
		after, err := stores[0].Key(t.Context(), info.ID)
		require.NoError(t, err)
		assert.Equal(t, fullParams.Limits.Concurrent+workers*times, after.Limits.Concurrent)
		assert.Len(t, after.Models, len(fullParams.Models)+workers*times)

		// What is changed here is seen here at once.
		s := stores[0]
		key, err := s.Lookup(t.Context(), secret)
		require.NoError(t, err)
		assert.Equal(t, &after.Key, key)
		want := KeyParams{Account: "other", Name: "n", Scopes: []llmhttp.Endpoint{}, Limits: llmhttp.Limits{Tokens: llmhttp.PerMinute(5)}}
		after, err = s.UpdateKey(t.Context(), info.ID, func(p *KeyParams) error { *p = want; return nil })
		require.NoError(t, err)
		assert.Equal(t, want, after.Params())
		key, err = s.Lookup(t.Context(), secret)
		require.NoError(t, err)
		assert.Equal(t, &after.Key, key)

		refusal := errors.New("no")
		_, err = s.UpdateKey(t.Context(), info.ID, func(p *KeyParams) error { p.Name = "changed"; return refusal })
		assert.ErrorIs(t, err, refusal)
		unchanged, err := s.Key(t.Context(), info.ID)
		require.NoError(t, err)
		assert.Equal(t, after, unchanged)
	})
}

func TestRevokeKey(t *testing.T) {
	forEngines(t, func(t *testing.T, dsn string) {
		here := openStore(t, dsn, &Options{KeyTTL: time.Hour})
		there := openStore(t, dsn, &Options{KeyTTL: 100 * time.Millisecond})
		info, secret, err := here.CreateKey(t.Context(), KeyParams{Account: "acme"})
		require.NoError(t, err)
		for _, s := range []*Store{here, there} {
			_, err := s.Lookup(t.Context(), secret)
			require.NoError(t, err)
		}
		require.NoError(t, here.RevokeKey(t.Context(), info.ID))
		_, err = here.Lookup(t.Context(), secret)
		assert.ErrorIs(t, err, llmhttp.ErrKeyNotFound)
		eventually(t, "the revocation elsewhere", func() bool {
			_, err := there.Lookup(t.Context(), secret)
			return errors.Is(err, llmhttp.ErrKeyNotFound)
		})
		after, err := here.Key(t.Context(), info.ID)
		require.NoError(t, err)
		assert.WithinRange(t, after.Revoked, info.Created, time.Now())

		require.NoError(t, there.RevokeKey(t.Context(), info.ID))
		again, err := here.Key(t.Context(), info.ID)
		require.NoError(t, err)
		assert.Equal(t, after, again, "it was revoked when it was first")
		_, err = here.UpdateKey(t.Context(), info.ID, func(*KeyParams) error { return nil })
		assert.ErrorIs(t, err, ErrKeyRevoked)
		_, _, err = here.RotateKey(t.Context(), info.ID, time.Hour)
		assert.ErrorIs(t, err, ErrKeyRevoked)
	})
}

// Who asks after a key was revoked, or its secret replaced, is not told of what
// was before, however many ask at the time.
func TestChangesWhileLookedUp(t *testing.T) {
	forEngines(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, &Options{KeyTTL: time.Hour})
		for round := range 20 {
			info, secret, err := s.CreateKey(t.Context(), KeyParams{})
			require.NoError(t, err)
			var changed atomic.Bool
			var before, after atomic.Int64
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					for after.Load() < 100 {
						late := changed.Load()
						_, err := s.Lookup(t.Context(), secret)
						switch {
						case late:
							after.Add(1)
							assert.ErrorIs(t, err, llmhttp.ErrKeyNotFound)
						case err == nil:
							before.Add(1)
						default:
							assert.ErrorIs(t, err, llmhttp.ErrKeyNotFound)
						}
						if before.Load()%10 == 0 {
							s.keys.forget(hashOf(secret)) // so that it is read again
						}
					}
				})
			}
			eventually(t, "a look at the key", func() bool { return before.Load() > 10 })
			if round%2 == 0 {
				err = s.RevokeKey(t.Context(), info.ID)
			} else {
				_, _, err = s.RotateKey(t.Context(), info.ID, 0)
			}
			changed.Store(err == nil)
			if err != nil {
				after.Store(100) // ends the loops
			}
			all.Wait()
			require.NoError(t, err)
		}
	})
}

// Keys that are rotated and updated by many at once, in two processes as it
// were, keep all of it.
func TestRotateWhileUpdating(t *testing.T) {
	forEngines(t, func(t *testing.T, dsn string) {
		stores := []*Store{openStore(t, dsn, nil), openStore(t, dsn, nil)}
		info, first, err := stores[0].CreateKey(t.Context(), KeyParams{})
		require.NoError(t, err)
		var mu sync.Mutex
		secrets := map[string]bool{first: true}
		const times = 8
		var all sync.WaitGroup
		for w := range 4 {
			all.Go(func() {
				for range times {
					_, err := stores[w%2].UpdateKey(t.Context(), info.ID, func(p *KeyParams) error { p.Limits.Concurrent++; return nil })
					assert.NoError(t, err)
				}
			})
			all.Go(func() {
				for range times {
					_, secret, err := stores[w%2].RotateKey(t.Context(), info.ID, time.Hour)
					assert.NoError(t, err)
					mu.Lock()
					secrets[secret] = true
					mu.Unlock()
				}
			})
		}
		all.Wait()
		after, err := stores[0].Key(t.Context(), info.ID)
		require.NoError(t, err)
		assert.Equal(t, 4*times, after.Limits.Concurrent)
		assert.Len(t, secrets, 4*times+1)
		lasting := 0
		for secret := range secrets {
			key, err := stores[1].Lookup(t.Context(), secret)
			require.NoError(t, err)
			assert.Equal(t, after.Limits, key.Limits)
			if key.Expires.IsZero() {
				lasting++
				assert.Equal(t, secret[:len(after.Prefix)], after.Prefix)
			}
		}
		assert.Equal(t, 1, lasting)
	})
}

func TestRotateKey(t *testing.T) {
	forEach(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, nil)
		now := time.Now().Truncate(time.Microsecond).UTC()
		s.now = func() time.Time { return now }
		info, first, err := s.CreateKey(t.Context(), fullParams)
		require.NoError(t, err)
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

		rotated, second, err := s.RotateKey(t.Context(), info.ID, time.Hour)
		require.NoError(t, err)
		assert.Equal(t, second[:len("sk-")+8], rotated.Prefix)
		rotated.Prefix = info.Prefix
		assert.Equal(t, info, rotated)
		assert.Equal(t, now.Add(time.Hour), expires(first))
		assert.Equal(t, fullParams.Expires, expires(second))

		// An overlap is never made longer.
		_, third, err := s.RotateKey(t.Context(), info.ID, 2*time.Hour)
		require.NoError(t, err)
		assert.Equal(t, now.Add(time.Hour), expires(first))
		assert.Equal(t, now.Add(2*time.Hour), expires(second))

		// Nor does it outlast the key.
		_, err = s.UpdateKey(t.Context(), info.ID, func(p *KeyParams) error { p.Expires = now.Add(90 * time.Minute); return nil })
		require.NoError(t, err)
		assert.Equal(t, now.Add(time.Hour), expires(first))
		assert.Equal(t, now.Add(90*time.Minute), expires(second))

		_, fourth, err := s.RotateKey(t.Context(), info.ID, 0)
		require.NoError(t, err)
		for _, gone := range []string{first, second, third} {
			assert.Zero(t, expires(gone))
		}
		assert.Equal(t, now.Add(90*time.Minute), expires(fourth))
		assert.EqualValues(t, 1, count(t, s, "SELECT count(*) FROM llmhttp_secrets"))

		_, fifth, err := s.RotateKey(t.Context(), info.ID, math.MaxInt64)
		require.NoError(t, err)
		require.NoError(t, s.RevokeKey(t.Context(), info.ID))
		assert.Zero(t, expires(fourth))
		assert.Zero(t, expires(fifth))
	})
}

func TestLastUsed(t *testing.T) {
	forEach(t, func(t *testing.T, dsn string) {
		s := openStore(t, dsn, nil)
		used, secret, err := s.CreateKey(t.Context(), KeyParams{})
		require.NoError(t, err)
		idle, _, err := s.CreateKey(t.Context(), KeyParams{})
		require.NoError(t, err)
		lastUsed := func(id string) time.Time {
			info, err := s.Key(t.Context(), id)
			require.NoError(t, err)
			return info.LastUsed
		}
		start := time.Now().Truncate(time.Microsecond)
		_, err = s.Lookup(t.Context(), secret)
		require.NoError(t, err)
		assert.Zero(t, lastUsed(used.ID), "it costs a request nothing")
		s.touch(t.Context())
		first := lastUsed(used.ID)
		assert.WithinRange(t, first, start, time.Now())
		assert.Zero(t, lastUsed(idle.ID))

		// Within a minute it is not written again, not by another process either.
		require.NoError(t, s.touchKeys(t.Context(), s.write, []keyUse{{used.ID, micros(first) + touchInterval.Microseconds() - 1}, {"gone", 1}}))
		assert.Equal(t, first, lastUsed(used.ID))
		later := micros(first) + touchInterval.Microseconds()
		require.NoError(t, s.touchKeys(t.Context(), s.write, []keyUse{{idle.ID, 5}, {used.ID, later}}))
		assert.Equal(t, fromMicros(later), lastUsed(used.ID))
		assert.Equal(t, fromMicros(5), lastUsed(idle.ID))
		require.NoError(t, s.touchKeys(t.Context(), s.write, []keyUse{{used.ID, micros(first)}}))
		assert.Equal(t, fromMicros(later), lastUsed(used.ID), "it never goes back")
	})
}

// Close stores what is known.
func TestLastUsedAtClose(t *testing.T) {
	forEngines(t, func(t *testing.T, dsn string) {
		s, err := Open(t.Context(), dsn, nil)
		require.NoError(t, err)
		info, secret, err := s.CreateKey(t.Context(), KeyParams{})
		require.NoError(t, err)
		_, err = s.Lookup(t.Context(), secret)
		require.NoError(t, err)
		require.NoError(t, s.Close())
		info, err = openStore(t, dsn, nil).Key(t.Context(), info.ID)
		require.NoError(t, err)
		assert.NotZero(t, info.LastUsed)
	})
}

func TestClosed(t *testing.T) {
	forEach(t, func(t *testing.T, dsn string) {
		s, err := Open(t.Context(), dsn, nil)
		require.NoError(t, err)
		info, secret, err := s.CreateKey(t.Context(), KeyParams{})
		require.NoError(t, err)
		require.NoError(t, s.Ping(t.Context()))
		require.NoError(t, s.Close())
		require.NoError(t, s.Close())
		_, lookup := s.Lookup(t.Context(), secret)
		_, key := s.Key(t.Context(), info.ID)
		_, _, create := s.CreateKey(t.Context(), KeyParams{})
		_, query := s.Query(t.Context(), llmhttp.UsageQuery{Account: "a", To: time.Now()})
		record := s.Record(t.Context(), llmhttp.UsageRecord{ID: "r"})
		for _, err := range []error{lookup, key, create, query, record, s.RevokeKey(t.Context(), info.ID), s.Ping(t.Context())} {
			assert.ErrorContains(t, err, ": the store is closed")
		}
	})
}
