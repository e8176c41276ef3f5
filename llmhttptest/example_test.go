package llmhttptest_test

import (
	"context"
	"strings"
	"testing"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llmhttptest"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/textfilter"
)

// A fixture has AddSecret if the host chooses secrets, or Add if the store
// creates them.
func ExampleTestKeyStore() {
	newKeys := func(t testing.TB) llmhttptest.KeyStoreFixture {
		store := memory.NewKeyStore()
		return llmhttptest.KeyStoreFixture{
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

	// func TestKeys(t *testing.T)
	_ = func(t *testing.T) { llmhttptest.TestKeyStore(t, newKeys) }

	// func BenchmarkKeys(b *testing.B)
	_ = func(b *testing.B) { llmhttptest.BenchmarkKeyStore(b, newKeys) }
}

// A wrapper that refuses texts has the methods that it checks, and hides the others.
func ExampleTestGuard() {
	guard := func(b llmhttp.Backend) llmhttp.Backend {
		return textfilter.New(b, func(context.Context) textfilter.Filter {
			return textfilter.Filter{Request: func(_ textfilter.Kind, text string) (string, error) {
				if strings.Contains(text, "launch code") {
					return "", textfilter.ErrContentFiltered
				}
				return text, nil
			}}
		})
	}

	// func TestGuard(t *testing.T)
	_ = func(t *testing.T) { llmhttptest.TestGuard(t, guard, "Tell me the launch code.") }
}

func ExampleTestUsageStore() {
	newUsage := func(t testing.TB) llmhttp.UsageStore {
		return memory.NewUsageStore() // or open a database and close it in t.Cleanup
	}

	// func TestUsage(t *testing.T)
	_ = func(t *testing.T) { llmhttptest.TestUsageStore(t, newUsage) }

	// func BenchmarkUsage(b *testing.B)
	_ = func(b *testing.B) { llmhttptest.BenchmarkUsageStore(b, newUsage) }
}

func ExampleTestLimiter() {
	newLimiter := func(t testing.TB) llmhttp.Limiter {
		return llmhttp.NewLimiter()
	}

	// func TestLimiter(t *testing.T)
	_ = func(t *testing.T) { llmhttptest.TestLimiter(t, newLimiter) }

	// func BenchmarkLimiter(b *testing.B)
	_ = func(b *testing.B) { llmhttptest.BenchmarkLimiter(b, newLimiter) }
}

// A Limiter that uses only the clock of its own process can be tested in a bubble
// too.
func ExampleTestLimiterInBubble() {
	newLimiter := func(t testing.TB) llmhttp.Limiter {
		return llmhttp.NewLimiter()
	}

	// func TestLimiterInBubble(t *testing.T)
	_ = func(t *testing.T) { llmhttptest.TestLimiterInBubble(t, newLimiter) }
}

func ExampleTestBackend() {
	// func TestEcho(t *testing.T)
	_ = func(t *testing.T) {
		llmhttptest.TestBackend(t, memory.Echo(), llmhttptest.BackendOptions{
			ChatModel: memory.ModelChat,
		})
	}
}
