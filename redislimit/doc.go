// Package redislimit is a [llmhttp.Limiter] on Redis: all processes that share
// a Redis limit as one.
//
//	client := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
//	limiter := redislimit.New(client, nil)
//	defer limiter.Close()
//	h := llmhttp.NewHandler(backend, keys, &llmhttp.Options{Limiter: limiter})
//
// A Take or an Adjust is one round trip, in which a script decides over all of
// its draws at once by the clock of Redis. Buckets are token buckets, as those
// of [llmhttp.NewLimiter] are, exact to the microsecond, and expire when they
// are full. Requests in progress are counted by leases, which their process
// renews: those of one that died come free by themselves.
//
// The buckets of one key have a slot of a Redis cluster in common. They survive
// a restart of a Redis that persists what it has, with appendfsync always in
// full, and otherwise perhaps without what was taken in the last seconds. One
// that was lost, or evicted by a Redis whose maxmemory-policy is not noeviction,
// is full again. Tokens are exact up to 2^53 of them, and rounded beyond.
//
// The scripts read the clock before they write, which they may since Redis 5;
// they are tested with 7.
package redislimit
