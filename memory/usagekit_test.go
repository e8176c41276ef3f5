package memory_test

import (
	"testing"

	"github.com/llmhttp/llmhttp/llmhttptest/storetest"
	"github.com/llmhttp/llmhttp/manage"
	"github.com/llmhttp/llmhttp/memory"
)

func TestUsageStore_ReporterConformance(t *testing.T) {
	storetest.TestUsageReporter(t, func(testing.TB) manage.UsageReporter { return memory.NewUsageStore() })
}
