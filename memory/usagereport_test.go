package memory_test

import (
	"testing"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llmhttptest"
	"github.com/llmhttp/llmhttp/memory"
)

func TestUsageStore_ReporterConformance(t *testing.T) {
	llmhttptest.TestUsageReporter(t, func(testing.TB) llmhttp.UsageReporter { return memory.NewUsageStore() })
}
