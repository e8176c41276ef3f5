//go:build !race

package llmhttp_test

// raceEnabled tells that allocations are not as usual.
const raceEnabled = false
