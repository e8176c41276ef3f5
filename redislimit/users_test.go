package redislimit

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/servertest"
)

// A million end users do not exhaust Redis: each takes some hundred bytes, until the buckets would
// be full. One in debt is not forgotten.
func TestManyUsers_NoRace(t *testing.T) {
	const users = 1_000_000
	client := newClient(t, servertest.Redis(t))
	l := newLimiter(t, client, nil)
	memory := func() int {
		info, err := client.Info(t.Context(), "memory").Result()
		require.NoError(t, err)
		_, value, _ := strings.Cut(info, "used_memory:")
		n, err := strconv.Atoi(strings.Fields(value)[0])
		require.NoError(t, err)
		return n
	}
	// No bucket is full again, and its key gone, before the last one is counted.
	rate := llmhttp.Rate{N: 24, Per: 24 * time.Hour}
	owes := llmhttp.BucketAmount{Subject: llmhttp.UserSubject("acme", "in debt"), Bucket: llmhttp.BucketTokens, Rate: rate, Amount: 600}
	require.NoError(t, l.Adjust(t.Context(), owes))
	before := memory()
	var next atomic.Int64
	var calls sync.WaitGroup
	for range 64 {
		calls.Go(func() {
			for n := next.Add(1); n <= users; n = next.Add(1) {
				d := llmhttp.BucketAmount{Subject: llmhttp.UserSubject("acme", fmt.Sprint("user ", n)), Bucket: llmhttp.BucketRequests, Rate: rate, Amount: 1}
				_, err := l.Take(t.Context(), d)
				assert.NoError(t, err)
			}
		})
	}
	calls.Wait()
	each := (memory() - before) / users
	t.Logf("%d users take %d bytes each", users, each)
	assert.Less(t, each, 500)
	for range 100 {
		key, err := client.RandomKey(t.Context()).Result()
		require.NoError(t, err)
		ttl, err := client.TTL(t.Context(), key).Result()
		require.NoError(t, err)
		assert.Positive(t, ttl, "a key that does not expire")
	}
	owes.Amount = 1
	levels, err := l.Take(t.Context(), owes)
	require.NoError(t, err)
	assert.Positive(t, levels[0].RetryAfter, "a user in debt is forgotten")
}
