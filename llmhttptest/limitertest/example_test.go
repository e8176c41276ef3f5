package limitertest_test

import (
	"testing"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llmhttptest/limitertest"
)

// A Limiter that uses only the clock of its own process can be tested in a bubble too.
func Example() {
	newLimiter := func(t testing.TB) llmhttp.Limiter {
		return llmhttp.NewLimiter()
	}

	// func TestLimiter(t *testing.T)
	_ = func(t *testing.T) { limitertest.TestLimiter(t, newLimiter) }

	// func TestLimiterInBubble(t *testing.T)
	_ = func(t *testing.T) { limitertest.TestLimiterInBubble(t, newLimiter) }

	// func BenchmarkLimiter(b *testing.B)
	_ = func(b *testing.B) { limitertest.BenchmarkLimiter(b, newLimiter) }
}
