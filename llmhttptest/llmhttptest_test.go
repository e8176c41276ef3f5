package llmhttptest_test

import (
	"context"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/modeltest"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llmhttptest"
	"github.com/llmhttp/llmhttp/memory"
)

// These tests run the kits for the implementations of this module.

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
	llmhttptest.TestBackend(t, llmhttp.NewSwappableBackend(modeltest.New()), echoModels)
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
