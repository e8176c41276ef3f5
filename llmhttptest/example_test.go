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

func ExampleTestBackend() {
	// func TestEcho(t *testing.T)
	_ = func(t *testing.T) {
		llmhttptest.TestBackend(t, memory.Echo(), llmhttptest.BackendOptions{
			ChatModel: memory.ModelChat,
		})
	}
}
