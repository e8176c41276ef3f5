// Package storetest tests and benchmarks stores: of keys, accounts, usage, quota events and responses.
//
//	func newUsage(t testing.TB) llmhttp.UsageStore { return openTestDatabase(t) }
//
//	func TestUsage(t *testing.T)      { storetest.TestUsageStore(t, newUsage) }
//	func BenchmarkUsage(b *testing.B) { storetest.BenchmarkUsageStore(b, newUsage) }
//
// The kits use unique names for everything they store. Stores may therefore share a database that
// already has content, and nothing need be deleted between tests. Run the kits with the race
// detector too, because some faults show only there.
//
// A store says that it does not have something optional by not implementing the
// interface, or by an error that wraps [errors.ErrUnsupported]. Subtests that can
// test nothing else are skipped and tell what is missing.
//
// A failure tells what was done, what was seen and what was wanted. A sequence of random calls that fails
// is reduced to a short one, for which the store is created again. The kits log the seed of their random
// numbers. To repeat a run, set the environment variable LLMHTTPTEST_SEED to it.
package storetest
