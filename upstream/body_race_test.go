//go:build race

package upstream_test

// raceEnabled tells that pools forget at random.
const raceEnabled = true
