package llmhttptest_test

import (
	"context"
	"flag"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/modeltest"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llmhttptest"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/usagebuffer"
)

// These tests run the kits for the implementations of this module.

func newKeys(testing.TB) llmhttptest.KeyStoreFixture {
	store := memory.NewKeyStore("sk-demo")
	return llmhttptest.KeyStoreFixture{
		Store:     store,
		AddSecret: func(secret string, key *llmhttp.Key) error { store.Add(secret, key); return nil },
		Remove:    func(secret string, _ *llmhttp.Key) error { store.Remove(secret); return nil },
	}
}

func newUsage(testing.TB) llmhttp.UsageStore { return memory.NewUsageStore() }

func newLimiter(testing.TB) llmhttp.Limiter { return llmhttp.NewLimiter() }

func TestKeyStore_Memory(t *testing.T)        { llmhttptest.TestKeyStore(t, newKeys) }
func TestUsageStore_Memory(t *testing.T)      { llmhttptest.TestUsageStore(t, newUsage) }
func TestLimiter_InProcess(t *testing.T)      { llmhttptest.TestLimiter(t, newLimiter) }
func TestLimiterInBubble(t *testing.T)        { llmhttptest.TestLimiterInBubble(t, newLimiter) }
func BenchmarkKeyStore_Memory(b *testing.B)   { llmhttptest.BenchmarkKeyStore(b, newKeys) }
func BenchmarkUsageStore_Memory(b *testing.B) { llmhttptest.BenchmarkUsageStore(b, newUsage) }
func BenchmarkLimiter_InProcess(b *testing.B) { llmhttptest.BenchmarkLimiter(b, newLimiter) }

func TestUsageStore_Buffer(t *testing.T) {
	llmhttptest.TestUsageStore(t, func(t testing.TB) llmhttp.UsageStore {
		b := usagebuffer.New(memory.NewUsageStore(), &usagebuffer.Options{BatchSize: 7, Delay: time.Millisecond})
		t.Cleanup(func() { assert.NoError(t, b.Close(context.Background())) })
		return b
	})
}

var echoModels = llmhttptest.BackendOptions{
	ChatModel:       modeltest.Chat,
	ImageModel:      modeltest.Image,
	EmbeddingModel:  modeltest.Embed,
	RerankModel:     modeltest.Rerank,
	ModerationModel: modeltest.Judge,
	CompletionModel: modeltest.Finish,
}

func TestBackend_Echo(t *testing.T) {
	llmhttptest.TestBackend(t, modeltest.New(), echoModels)
}

func TestBackend_SlowEcho(t *testing.T) {
	slow := &memory.Backend{Delay: time.Millisecond}
	llmhttptest.TestBackend(t, slow, llmhttptest.BackendOptions{ChatModel: modeltest.Chat, Prompt: "One and two make three."})
}

func TestBackend_Swap(t *testing.T) {
	llmhttptest.TestBackend(t, llmhttp.NewSwap(modeltest.New()), echoModels)
}

func TestBackend_Scripted(t *testing.T) {
	one := memory.Scripted(memory.Say("Hello, "), memory.Say("world!"), memory.Finish(llm.FinishStop))
	b := llmhttp.BackendFunc(func(ctx context.Context, req *llm.ChatRequest) llm.ChatStream {
		if req.Choices() > 1 {
			return llm.Fail(llm.Errorf(400, "unsupported_value", "N must be 1."))
		}
		return one.Chat(ctx, req)
	})
	llmhttptest.TestBackend(t, b, llmhttptest.BackendOptions{ChatModel: "any", AnyModel: true})
}

func TestBenchmarks_Succeed(t *testing.T) {
	benchtime := flag.Lookup("test.benchtime")
	before := benchtime.Value.String()
	defer func() { assert.NoError(t, benchtime.Value.Set(before)) }()
	require.NoError(t, benchtime.Value.Set("3x"))
	for name, f := range map[string]func(*testing.B){
		"KeyStore": BenchmarkKeyStore_Memory, "UsageStore": BenchmarkUsageStore_Memory, "Limiter": BenchmarkLimiter_InProcess,
	} {
		failed := true
		testing.Benchmark(func(b *testing.B) {
			f(b)
			failed = b.Failed()
		})
		assert.False(t, failed, "Benchmark%s", name)
	}
}
