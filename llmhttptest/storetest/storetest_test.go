package storetest_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llmhttptest/internal/mutanttest"
	"github.com/llmhttp/llmhttp/llmhttptest/storetest"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/usagebuffer"
)

func newKeys(testing.TB) storetest.KeyStoreFixture {
	store := memory.NewKeyStore("sk-demo")
	return storetest.KeyStoreFixture{
		Store:     store,
		AddSecret: func(secret string, key *llmhttp.Key) error { store.Add(secret, key); return nil },
		Remove:    func(secret string, _ *llmhttp.Key) error { store.Remove(secret); return nil },
	}
}

func newUsage(testing.TB) llmhttp.UsageStore { return memory.NewUsageStore() }

func TestKeyStore_Memory(t *testing.T)   { storetest.TestKeyStore(t, newKeys) }
func TestUsageStore_Memory(t *testing.T) { storetest.TestUsageStore(t, newUsage) }

func TestUsageStore_Buffer(t *testing.T) {
	storetest.TestUsageStore(t, func(t testing.TB) llmhttp.UsageStore {
		b := usagebuffer.New(memory.NewUsageStore(), &usagebuffer.Options{BatchSize: 7, Delay: time.Millisecond})
		t.Cleanup(func() { assert.NoError(t, b.Close(context.Background())) })
		return b
	})
}

func BenchmarkKeyStore_Memory(b *testing.B)   { storetest.BenchmarkKeyStore(b, newKeys) }
func BenchmarkUsageStore_Memory(b *testing.B) { storetest.BenchmarkUsageStore(b, newUsage) }

func TestBenchmarks_Succeed(t *testing.T) {
	mutanttest.Bench(t, BenchmarkKeyStore_Memory, BenchmarkUsageStore_Memory)
}
