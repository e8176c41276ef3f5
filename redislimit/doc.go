// Package redislimit provides a [llmhttp.Limiter] on Redis. All processes that
// use the same Redis share their limits.
//
//	client := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
//	limiter, err := redislimit.New(client, nil)
//	if err != nil {
//		return err
//	}
//	defer limiter.Close()
//	h := llmhttp.NewHandler(backend, keys, &llmhttp.Options{Limiter: limiter})
//
// # Token buckets
//
// A Take or an Adjust is one round trip. A script checks and changes all its buckets in one step,
// by the clock of Redis. Times are exact to the microsecond. Up to 2^53 tokens are exact; larger
// numbers are rounded. A bucket expires in Redis when it is full.
//
// # Requests in progress
//
// Each request in progress is a lease of a slot. Its process renews it until the request
// ends. The leases of a process that died expire after [Options.Lease].
//
// # Quotas
//
// What a request has reserved of a [llmhttp.Quota] is a lease, too. When the request ends,
// a lease of what it has used takes its place, which expires when the sums of all processes
// include that. So processes together exceed a Quota only by what requests use beyond their
// reservations. That does not hold for what was used while Redis fails or loses its data; then
// processes may not see what the others have used in the last seconds.
//
// # Several subjects
//
// On a Redis Cluster and on a Ring, subjects are on different nodes, unless the Prefix has a hash
// tag. A call then takes one round trip for each subject. If a subject refuses or a node fails,
// the Limiter gives back what it has taken from the subjects before, before the call returns.
// Until then, other calls may be refused because of it. Tokens that cannot be given back, because
// their node fails just then, are missing until their bucket has refilled; leases expire.
//
// # Data in Redis
//
// The names in Redis begin with [Options.Prefix] and the kind and the ID of the subject as a
// hash tag, so that a Redis Cluster keeps all data of a subject on one node. All characters of
// both that are special in a URL are escaped as in a URL:
//
//	llmhttp:{key/key_1}:requests             a bucket
//	llmhttp:{key/key_1}/concurrent           the leases of a slot
//	llmhttp:{key/key_1}/quota_tokens/acme    the leases of a quota in the account acme
//
// Buckets survive a restart if Redis persists its data. With any setting but
// appendfsync always, what was taken in the last seconds may be lost. A bucket
// that is lost is full again. So is one that Redis evicts, which it does not do
// with the maxmemory-policy noeviction.
//
// The scripts need Redis 5 or later, and are tested with Redis 7.
package redislimit
