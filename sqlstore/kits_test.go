package sqlstore

import (
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llmhttptest"
)

func keyFixture(dsn func(testing.TB) string, opts Options) func(testing.TB) llmhttptest.KeyStoreFixture {
	return func(t testing.TB) llmhttptest.KeyStoreFixture {
		s := openStore(t, dsn(t), &opts)
		params := func(k *llmhttp.Key) KeyParams {
			return KeyParams{Account: k.Account, Scopes: k.Scopes, Models: k.Models, Expires: k.Expires, Limits: k.Limits}
		}
		return llmhttptest.KeyStoreFixture{
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
	for name, dsn := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for kind, opts := range map[string]Options{
				"Default":  {},
				"Uncached": {KeyTTL: -1},
				"Crowded":  {KeyCache: 2, KeyTTL: time.Hour, KeyGrace: time.Hour},
			} {
				if name != "Memory" || kind == "Default" { // else it is SQLite
					t.Run(kind, func(t *testing.T) { llmhttptest.TestKeyStore(t, keyFixture(dsn, opts)) })
				}
			}
		})
	}
}

func usageStore(dsn func(testing.TB) string) func(testing.TB) llmhttp.UsageStore {
	return func(t testing.TB) llmhttp.UsageStore { return openStore(t, dsn(t), nil) }
}

func TestUsageStore(t *testing.T) {
	for name, dsn := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			llmhttptest.TestUsageStore(t, usageStore(dsn))
		})
	}
}

func BenchmarkKeyStore(b *testing.B) {
	for name, dsn := range databases {
		b.Run(name, func(b *testing.B) { llmhttptest.BenchmarkKeyStore(b, keyFixture(dsn, Options{})) })
	}
}

func BenchmarkUsageStore(b *testing.B) {
	for name, dsn := range databases {
		b.Run(name, func(b *testing.B) { llmhttptest.BenchmarkUsageStore(b, usageStore(dsn)) })
	}
}
