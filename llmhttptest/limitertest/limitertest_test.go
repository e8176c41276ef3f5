package limitertest_test

import (
	"testing"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llmhttptest/internal/mutanttest"
	"github.com/llmhttp/llmhttp/llmhttptest/limitertest"
)

func newLimiter(testing.TB) llmhttp.Limiter { return llmhttp.NewLimiter() }

func TestLimiter_InProcess(t *testing.T) { limitertest.TestLimiter(t, newLimiter) }
func TestLimiterInBubble(t *testing.T)   { limitertest.TestLimiterInBubble(t, newLimiter) }

func BenchmarkLimiter_InProcess(b *testing.B) { limitertest.BenchmarkLimiter(b, newLimiter) }

func TestBenchmarkLimiter_Succeeds(t *testing.T) { mutanttest.Bench(t, BenchmarkLimiter_InProcess) }
