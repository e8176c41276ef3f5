package storetest_test

import (
	"testing"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llmhttptest/storetest"
	"github.com/llmhttp/llmhttp/memory"
)

// A fixture has AddSecret if the host chooses secrets, or Add if the store creates them.
func Example() {
	newKeys := func(t testing.TB) storetest.KeyStoreFixture {
		store := memory.NewKeyStore()
		return storetest.KeyStoreFixture{
			Store: store,
			AddSecret: func(secret string, key *llmhttp.Key) error {
				store.Add(secret, key)
				return nil
			},
			Remove: func(secret string, key *llmhttp.Key) error {
				store.Remove(secret)
				return nil
			},
		}
	}
	newUsage := func(t testing.TB) llmhttp.UsageStore {
		return memory.NewUsageStore() // or open a database and close it in t.Cleanup
	}

	// func TestKeys(t *testing.T)
	_ = func(t *testing.T) { storetest.TestKeyStore(t, newKeys) }

	// func TestUsage(t *testing.T)
	_ = func(t *testing.T) { storetest.TestUsageStore(t, newUsage) }

	// func BenchmarkUsage(b *testing.B)
	_ = func(b *testing.B) { storetest.BenchmarkUsageStore(b, newUsage) }
}
