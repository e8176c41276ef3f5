// Package redislimit provides a [llmhttp.Limiter] on Redis. All processes that
// use the same Redis share their limits.
//
//	client := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
//	limiter := redislimit.New(client, nil)
//	defer limiter.Close()
//	h := llmhttp.NewHandler(backend, keys, &llmhttp.Options{Limiter: limiter})
//
// # Token buckets
//
// A Take or an Adjust is one round trip. A script checks and changes all its
// buckets in one step, by the clock of Redis. Times are exact to the
// microsecond. Up to 2^53 tokens are exact; larger numbers are rounded. A
// bucket expires in Redis when it is full.
//
// # Requests in progress
//
// Each request in progress is a lease. Its process renews it until the request
// ends. The leases of a process that died expire after [Options.Lease].
//
// # Data in Redis
//
// The names in Redis begin with [Options.Prefix] and the ID of the key as a
// hash tag, so that a Redis Cluster keeps all data of a key on one node:
//
//	llmhttp:{key_1}:requests    a bucket
//	llmhttp:{key_1}/leases      the leases of the key
//
// Buckets survive a restart if Redis persists its data. With any setting but
// appendfsync always, what was taken in the last seconds may be lost. A bucket
// that is lost is full again. So is one that Redis evicts, which it does not do
// with the maxmemory-policy noeviction.
//
// The scripts need Redis 5 or later, and are tested with Redis 7.
package redislimit
