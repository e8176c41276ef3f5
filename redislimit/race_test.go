//go:build race

package redislimit

// raceEnabled reports whether the race detector is on, which makes many calls take long.
const raceEnabled = true
