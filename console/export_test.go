package console

import (
	"testing"
	"time"

	"github.com/llmhttp/llmhttp/console/internal/session"
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
	address, name, network, refusals := session.AttemptsPerAddress, session.AttemptsPerName, session.AttemptsPerNetwork, session.RefusalsPerAddress
	session.AttemptsPerAddress.Per, session.AttemptsPerName.Per, session.RefusalsPerAddress.Per = time.Hour, time.Hour, time.Hour
	t.Cleanup(func() {
		session.AttemptsPerAddress, session.AttemptsPerName, session.AttemptsPerNetwork, session.RefusalsPerAddress = address, name, network, refusals
	})
}

// AttemptsPerName is how many attempts for a name FewAttempts permits.
const AttemptsPerName = 4

// FewAttempts is SlowAttempts with AttemptsPerName, because hashing a password takes long. The
// first attempts of a network count against the name too.
func FewAttempts(t *testing.T) {
	FewAttemptsPerName(t)
	session.AttemptsPerNetwork.N = -1
}

// FewAttemptsPerName is FewAttempts, but the first attempts of a network do not count.
func FewAttemptsPerName(t *testing.T) {
	SlowAttempts(t)
	session.AttemptsPerName.N = AttemptsPerName
}
