package redislimit

import (
	"os"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/servertest"
	"github.com/llmhttp/llmhttp/llmhttptest"
)

func TestMain(m *testing.M) {
	status := m.Run()
	servertest.Close()
	os.Exit(status)
}

func TestLimiter(t *testing.T) {
	llmhttptest.TestLimiter(t, func(t testing.TB) llmhttp.Limiter { return newLimiter(t, nil, nil) })
}

func TestLimiterOnCluster(t *testing.T) {
	s := servertest.Redis(t, servertest.Cluster())
	llmhttptest.TestLimiter(t, func(t testing.TB) llmhttp.Limiter {
		c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{s.Addr()}})
		t.Cleanup(func() { _ = c.Close() })
		return newLimiter(t, c, nil)
	})
}

func BenchmarkLimiter(b *testing.B) {
	llmhttptest.BenchmarkLimiter(b, func(b testing.TB) llmhttp.Limiter { return newLimiter(b, nil, nil) })
}
