package redislimit

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmhttp/llmhttp/internal/servertest"
)

// patient is a Timeout that only a Redis runs into that is away.
const patient = 20 * time.Second

// newClient returns a client of s.
func newClient(t testing.TB, s *servertest.Server) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: s.Addr(), ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// newLimiter returns a Limiter on the Redis that tests share. Its Timeout is
// long unless opts has one: machines that run tests are slow at times.
func newLimiter(t testing.TB, client redis.UniversalClient, opts *Options) *Limiter {
	t.Helper()
	if client == nil {
		client = newClient(t, servertest.SharedRedis(t))
	}
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Timeout == 0 {
		o.Timeout = patient
	}
	l := New(client, &o)
	t.Cleanup(func() { _ = l.Close() })
	return l
}
