package memory_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llmhttptest/storetest"
	"github.com/llmhttp/llmhttp/manage"
	"github.com/llmhttp/llmhttp/memory"
)

func TestKeys(t *testing.T) {
	s := memory.NewKeyStore("sk-a", "sk-b")
	a, err := s.Lookup(t.Context(), "sk-a")
	require.NoError(t, err)
	id := "key_" + llmhttp.HashSecret("sk-a")[:12]
	assert.Equal(t, &llmhttp.Key{ID: id, Account: id}, a)
	b, err := s.Lookup(t.Context(), "sk-b")
	require.NoError(t, err)
	assert.NotEqual(t, a.Account, b.Account)
	_, err = s.Lookup(t.Context(), "sk-c")
	assert.ErrorIs(t, err, llmhttp.ErrKeyNotFound)
	assert.NotContains(t, err.Error(), "sk-c")

	s.Add("sk-a", &llmhttp.Key{ID: "alice"})
	again, err := s.Lookup(t.Context(), "sk-a")
	require.NoError(t, err)
	assert.Equal(t, &llmhttp.Key{ID: "alice", Account: "alice"}, again)
	assert.Equal(t, id, a.ID, "a key that was looked up does not change")

	s.Remove("sk-a")
	s.Remove("sk-a")
	_, err = s.Lookup(t.Context(), "sk-a")
	assert.ErrorIs(t, err, llmhttp.ErrKeyNotFound)
}

func TestKeyStore_EmptySecret(t *testing.T) {
	assert.PanicsWithValue(t, "memory: empty secret", func() { memory.NewKeyStore("sk-a", "") })
	var zero memory.KeyStore
	assert.PanicsWithValue(t, "memory: empty secret", func() { zero.Add("", nil) })
	zero.Remove("")
	_, err := zero.Lookup(t.Context(), "")
	assert.ErrorIs(t, err, llmhttp.ErrKeyNotFound)
	zero.Add("sk-a", nil)
	_, err = zero.Lookup(t.Context(), "sk-a")
	assert.NoError(t, err)
}

func BenchmarkKeyStore_Lookup(b *testing.B) {
	secret := llmhttp.NewSecret("sk-")
	s := memory.NewKeyStore(secret)
	ctx := b.Context()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := s.Lookup(ctx, secret); err != nil {
				b.Error(err)
			}
		}
	})
}

func TestKeyStore_AddPanicsIfLimitsAreInvalid(t *testing.T) {
	key := &llmhttp.Key{Limits: llmhttp.Limits{Tokens: llmhttp.Rate{Per: time.Hour}}}
	assert.PanicsWithValue(t, "memory: adding a key: Limits.Tokens.N: is zero, but Per or Burst is set", func() { new(memory.KeyStore).Add("secret", key) })
}

func TestKeyStore_DoesNotKeepData(t *testing.T) {
	var s memory.KeyStore
	s.Add("secret", &llmhttp.Key{ID: "a", Data: "data"})
	key, err := s.Lookup(t.Context(), "secret")
	require.NoError(t, err)
	assert.Nil(t, key.Data)
	info, err := s.Key(t.Context(), "a")
	require.NoError(t, err)
	assert.Nil(t, info.Data)
}

func TestKeyStore_Conformance(t *testing.T) {
	storetest.TestKeyManager(t, func(testing.TB) manage.KeyManager { return memory.NewKeyStore() })
}

func TestKeyStore_ListKeysLimit(t *testing.T) {
	s := memory.NewKeyStore()
	for i := range 1001 {
		s.Add(fmt.Sprint("secret-", i), nil)
	}
	for limit, want := range map[int]int{-1: 1000, 0: 100, 1: 1, 1000: 1000, 1001: 1000} {
		keys, err := s.ListKeys(t.Context(), manage.KeyQuery{Limit: limit})
		require.NoError(t, err)
		assert.Len(t, keys, want, limit)
	}
}

func TestKeyStore_AddAgain(t *testing.T) {
	s := memory.NewKeyStore()
	s.Add("sk-a", &llmhttp.Key{ID: "x"})
	s.Add("sk-b", &llmhttp.Key{ID: "x", Account: "acme"})
	for _, secret := range []string{"sk-a", "sk-b"} {
		k, err := s.Lookup(t.Context(), secret)
		require.NoError(t, err)
		assert.Equal(t, "acme", k.Account, "both secrets belong to one key")
	}
	s.Remove("sk-a")
	info, err := s.Key(t.Context(), "x")
	require.NoError(t, err)
	assert.NotZero(t, info.LastUsed)
	s.Add("sk-b", nil)
	_, err = s.Key(t.Context(), "x")
	assert.ErrorIs(t, err, llmhttp.ErrKeyNotFound, "a key without secrets is removed")
}

// The store keeps the subjects of a key, whatever else changes, but none that are a mistake then.
func TestKeyStore_Subjects(t *testing.T) {
	subjects := []llmhttp.Subject{
		{ID: llmhttp.SubjectID{Kind: "team", ID: "a"}, Limits: llmhttp.Limits{Concurrent: 3}},
		{ID: llmhttp.SubjectID{Kind: llmhttp.KindAccount, ID: "acme"}, Limits: llmhttp.Limits{Requests: llmhttp.PerMinute(5)}},
	}
	perUser := llmhttp.Limits{Concurrent: 1}
	s := memory.NewKeyStore()
	added := &llmhttp.Key{ID: "k", Account: "acme", Subjects: slices.Clone(subjects), PerUser: perUser}
	s.Add("sk-test-secret", added)
	added.Subjects[0].Limits = llmhttp.Limits{}
	check := func() {
		t.Helper()
		k, err := s.Lookup(t.Context(), "sk-test-secret")
		require.NoError(t, err)
		assert.Equal(t, subjects, k.Subjects)
		assert.Equal(t, perUser, k.PerUser)
	}
	check()
	info, err := s.UpdateKey(t.Context(), "k", func(p *manage.KeyParams) error { p.Limits.Concurrent = 9; return nil })
	require.NoError(t, err)
	info.Subjects[0].ID.ID = "changed"
	check()
	_, err = s.UpdateKey(t.Context(), "k", func(p *manage.KeyParams) error { p.Account = "other"; return nil })
	assert.ErrorContains(t, err, `Key.Subjects[1].ID.ID: is "acme", and the account of the key is "other"`)
	check()
}

func TestKeyStore_Accounts(t *testing.T) {
	storetest.TestAccountManager(t, func(testing.TB) storetest.AccountStore { return memory.NewKeyStore() })
}

// The limits of an account in the store hold, and not others with which a key was added.
func TestKeyStore_AddKeyOfAccount(t *testing.T) {
	account := llmhttp.Subject{ID: llmhttp.SubjectID{Kind: llmhttp.KindAccount, ID: "acme"}, Limits: llmhttp.Limits{Concurrent: 1}}
	team := llmhttp.Subject{ID: llmhttp.SubjectID{Kind: "team", ID: "a"}, Limits: llmhttp.Limits{Concurrent: 2}}
	s := memory.NewKeyStore()
	_, err := s.CreateAccount(t.Context(), "acme", manage.AccountParams{Limits: llmhttp.Limits{Concurrent: 5}})
	require.NoError(t, err)
	added := &llmhttp.Key{ID: "k", Account: "acme", Subjects: []llmhttp.Subject{account, team}, PerUser: llmhttp.Limits{Concurrent: 1}}
	s.Add("sk-test-secret", added)
	k, err := s.Lookup(t.Context(), "sk-test-secret")
	require.NoError(t, err)
	account.Limits.Concurrent = 5
	assert.Equal(t, []llmhttp.Subject{team, account}, k.Subjects)
	assert.Zero(t, k.PerUser)
	assert.Equal(t, 1, added.Subjects[0].Limits.Concurrent)
}
