package console

import (
	"testing"
	"time"
)

// SetTime stops the clock of m at t.
func SetTime(m *Monitor, t time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = func() time.Time { return t }
}

// SlowAttempts makes sign-in attempts count for an hour until the test ends, so
// that a slow machine does not grant new ones meanwhile. It must be called before
// the console is made.
func SlowAttempts(t *testing.T) {
	address, name, refusals := attemptsPerAddress, attemptsPerName, refusalsPerAddress
	attemptsPerAddress.Per, attemptsPerName.Per, refusalsPerAddress.Per = time.Hour, time.Hour, time.Hour
	t.Cleanup(func() { attemptsPerAddress, attemptsPerName, refusalsPerAddress = address, name, refusals })
}

// AttemptsPerName is how many attempts for a name FewAttempts permits.
const AttemptsPerName = 4

// FewAttempts is SlowAttempts with AttemptsPerName, because hashing a password takes long.
func FewAttempts(t *testing.T) {
	SlowAttempts(t)
	attemptsPerName.N = AttemptsPerName
}

var IsLocal = isLocal
