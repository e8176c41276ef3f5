//go:build !race

package llmhttp_test

// raceEnabled reports whether the race detector is on, which changes the number of
// allocations.
const raceEnabled = false
