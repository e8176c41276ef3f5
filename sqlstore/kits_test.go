package sqlstore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llmhttptest/storetest"
	"github.com/llmhttp/llmhttp/manage"
	"github.com/llmhttp/llmhttp/responsestore"
)

func newKeyStoreFixture(newDatabase func(testing.TB) string, opts Options) func(testing.TB) storetest.KeyStoreFixture {
	return func(t testing.TB) storetest.KeyStoreFixture {
		s := openStore(t, newDatabase(t), &opts)
		params := func(k *llmhttp.Key) manage.KeyParams {
			return manage.KeyParams{Account: k.Account, Scopes: k.Scopes, Models: k.Models, Expires: k.Expires, Limits: k.Limits}
		}
		return storetest.KeyStoreFixture{
			Store: s,
			Add: func(k *llmhttp.Key) (string, error) {
				info, secret, err := s.CreateKey(t.Context(), params(k))
				k.ID = info.ID
				return secret, err
			},
			AddSecret: func(secret string, k *llmhttp.Key) error {
				info, err := s.ImportKey(t.Context(), secret, params(k))
				k.ID = info.ID
				return err
			},
			Remove: func(_ string, k *llmhttp.Key) error { return s.RevokeKey(t.Context(), k.ID) },
		}
	}
}

func TestKeyStore(t *testing.T) {
	options := map[string]Options{
		"default":     {},
		"no TTL":      {KeyTTL: -1},
		"no cache":    {KeyCache: -1},
		"small cache": {KeyCache: 2, KeyTTL: time.Hour, KeyGrace: time.Hour},
	}
	for name, newDatabase := range databases {
		for optionsName, opts := range options {
			if name == "Memory" && optionsName != "default" {
				continue // the cache works as for a file
			}
			t.Run(name+" "+optionsName, func(t *testing.T) {
				t.Parallel()
				storetest.TestKeyStore(t, newKeyStoreFixture(newDatabase, opts))
			})
		}
	}
}

func newUsageStore(newDatabase func(testing.TB) string) func(testing.TB) llmhttp.UsageStore {
	return func(t testing.TB) llmhttp.UsageStore { return openStore(t, newDatabase(t), nil) }
}

func TestUsageStore(t *testing.T) {
	for name, newDatabase := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.TestUsageStore(t, newUsageStore(newDatabase))
		})
	}
}

func BenchmarkKeyStore(b *testing.B) {
	for name, newDatabase := range databases {
		b.Run(name, func(b *testing.B) {
			storetest.BenchmarkKeyStore(b, newKeyStoreFixture(newDatabase, Options{}))
		})
	}
}

func BenchmarkUsageStore(b *testing.B) {
	for name, newDatabase := range databases {
		b.Run(name, func(b *testing.B) { storetest.BenchmarkUsageStore(b, newUsageStore(newDatabase)) })
	}
}

func TestKeyManager(t *testing.T) {
	forEachDatabase(t, func(t *testing.T, dsn string) {
		storetest.TestKeyManager(t, func(t testing.TB) manage.KeyManager { return openStore(t, dsn, nil) })
	})
}

func TestAccountManager(t *testing.T) {
	forEachDatabase(t, func(t *testing.T, dsn string) {
		storetest.TestAccountManager(t, func(t testing.TB) storetest.AccountStore { return openStore(t, dsn, nil) })
	})
}

// Without a TTL, a Store sees each change by another one at once.
func TestAccountManager_TwoStores(t *testing.T) {
	forEachSharedDatabase(t, func(t *testing.T, dsn string) {
		storetest.TestAccountManager(t, func(t testing.TB) storetest.AccountStore {
			return struct {
				manage.AccountManager
				manage.KeyManager
			}{openStore(t, dsn, nil), openStore(t, dsn, &Options{KeyTTL: -1})}
		})
	})
}

func TestUsageReporter(t *testing.T) {
	forEachDatabase(t, func(t *testing.T, dsn string) {
		storetest.TestUsageReporter(t, func(t testing.TB) manage.UsageReporter {
			s := openStore(t, dsn, nil)
			for _, table := range []string{"records", "sums"} { // the kit needs an empty store
				_, err := s.db.write.Exec("DELETE FROM llmhttp_usage_" + table)
				require.NoError(t, err)
			}
			return s
		})
	})
}

func newResponseStore(newDatabase func(testing.TB) string) func(testing.TB) responsestore.Store {
	return func(t testing.TB) responsestore.Store { return openStore(t, newDatabase(t), nil) }
}

func TestResponseStore(t *testing.T) {
	for name, newDatabase := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.TestResponseStore(t, newResponseStore(newDatabase))
		})
	}
}
