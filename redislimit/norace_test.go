//go:build !race

package redislimit

const raceEnabled = false
