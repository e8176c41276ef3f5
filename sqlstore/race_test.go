//go:build race

package sqlstore

// raceEnabled reports whether the race detector is on. It makes SQLite, which is Go here, ten
// times slower.
const raceEnabled = true
