package llmhttptest_test

import (
	"context"
	"flag"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llmhttptest"
	"github.com/llmhttp/llmhttp/memory"
)

// What this module has of its own is tested here.

func newKeys(testing.TB) llmhttptest.KeyStoreFixture {
	store := memory.Keys("sk-demo")
	return llmhttptest.KeyStoreFixture{
		Store:     store,
		AddSecret: func(secret string, key *llmhttp.Key) error { store.Add(secret, key); return nil },
		Remove:    func(secret string, _ *llmhttp.Key) error { store.Remove(secret); return nil },
	}
}

func newUsage(testing.TB) llmhttp.UsageStore { return memory.NewUsageStore() }

func newLimiter(testing.TB) llmhttp.Limiter { return llmhttp.NewLimiter() }

func TestMemoryKeys(t *testing.T) { llmhttptest.TestKeyStore(t, newKeys) }
func TestUsageBuffer(t *testing.T) {
	llmhttptest.TestUsageStore(t, func(t testing.TB) llmhttp.UsageStore {
		b := llmhttp.NewUsageBuffer(memory.NewUsageStore(), 7, time.Millisecond)
		t.Cleanup(func() {
			if err := b.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
		return b
	})
}

func TestMemoryUsage(t *testing.T)      { llmhttptest.TestUsageStore(t, newUsage) }
func TestInProcessLimiter(t *testing.T) { llmhttptest.TestLimiter(t, newLimiter) }
func TestLimiterInBubble(t *testing.T)  { llmhttptest.TestLimiterInBubble(t, newLimiter) }
func BenchmarkMemoryKeys(b *testing.B)  { llmhttptest.BenchmarkKeyStore(b, newKeys) }
func BenchmarkMemoryUsage(b *testing.B) { llmhttptest.BenchmarkUsageStore(b, newUsage) }
func BenchmarkInProcess(b *testing.B)   { llmhttptest.BenchmarkLimiter(b, newLimiter) }

var echoModels = llmhttptest.BackendOptions{
	ChatModel:      memory.ModelChat,
	ImageModel:     memory.ModelImageSmall,
	EmbeddingModel: memory.ModelEmbed,
}

func TestEcho(t *testing.T) {
	llmhttptest.TestBackend(t, memory.Echo(), echoModels)
}

func TestSlowEcho(t *testing.T) {
	slow := &memory.Backend{Delay: time.Millisecond}
	llmhttptest.TestBackend(t, slow, llmhttptest.BackendOptions{ChatModel: memory.ModelChat, Prompt: "One and two make three."})
}

func TestForwarder(t *testing.T) {
	llmhttptest.TestBackend(t, llmhttp.Forwarder{Backend: memory.Echo()}, echoModels)
}

func TestScripted(t *testing.T) {
	one := memory.Scripted(memory.Say("Hello, "), memory.Say("world!"), memory.Finish(llmhttp.FinishStop))
	b := llmhttp.BackendFunc(func(ctx context.Context, req *llmhttp.ChatRequest) llmhttp.ChatStream {
		if req.Choices() > 1 {
			return llmhttp.Fail(llmhttp.Errorf(400, "unsupported_value", "There is only one choice."))
		}
		return one.Chat(ctx, req)
	})
	llmhttptest.TestBackend(t, b, llmhttptest.BackendOptions{ChatModel: "any", AnyModel: true})
}

// TestBenchmarks runs each benchmark once.
func TestBenchmarks(t *testing.T) {
	benchtime := flag.Lookup("test.benchtime")
	before := benchtime.Value.String()
	defer func() { _ = benchtime.Value.Set(before) }()
	if err := benchtime.Value.Set("3x"); err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]func(*testing.B){
		"KeyStore": BenchmarkMemoryKeys, "UsageStore": BenchmarkMemoryUsage, "Limiter": BenchmarkInProcess,
	} {
		ok := false
		testing.Benchmark(func(b *testing.B) {
			f(b)
			ok = !b.Failed()
		})
		if !ok {
			t.Errorf("Benchmark%s failed", name)
		}
	}
}
