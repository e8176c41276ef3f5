package console

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// newTestSessions returns the sessions of a process.
func newTestSessions(t *testing.T, secret string) *sessions {
	s, err := newSessions([]byte(secret))
	require.NoError(t, err)
	return s
}

func TestSessions(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	s := newTestSessions(t, "one secret")
	value := s.encode(session{Admin: "ada", Ends: now.Add(time.Minute).Unix()})
	assert.NotContains(t, value, "ada")
	for _, process := range []*sessions{s, newTestSessions(t, "one secret")} {
		found, ok := process.decode(value, now)
		assert.True(t, ok)
		assert.Equal(t, "ada", found.Admin)
		_, ok = process.decode(value, now.Add(time.Minute))
		assert.False(t, ok, "the session has ended")
	}
	for _, other := range []*sessions{newTestSessions(t, "another secret"), newTestSessions(t, ""), newTestSessions(t, "")} {
		_, ok := other.decode(value, now)
		assert.False(t, ok, "another secret")
	}
	for i := range value {
		changed := value[:i] + string(value[i]^1) + value[i+1:]
		_, ok := s.decode(changed, now)
		assert.False(t, ok, "a changed character")
	}
	for _, wrong := range []string{"", value[1:], value + "A", strings.Repeat("A", 200)} {
		_, ok := s.decode(wrong, now)
		assert.False(t, ok, wrong)
	}
}

func TestSessions_End(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	s := newTestSessions(t, "")
	first := s.encode(session{Admin: "ada", Ends: now.Add(time.Minute).Unix()})
	other := s.encode(session{Admin: "ada", Ends: now.Add(time.Hour).Unix()})
	s.end("nonsense", now)
	s.end(first, now)
	_, ok := s.decode(first, now)
	assert.False(t, ok)
	_, ok = s.decode(other, now)
	assert.True(t, ok, "another session of the same person")
	for range maxEnded + 10 {
		s.end(s.encode(session{Ends: now.Add(time.Hour).Unix()}), now)
	}
	assert.Len(t, s.ended, maxEnded, "memory is bounded")
	s.end(other, now.Add(time.Hour-1))
	_, ok = s.decode(other, now.Add(time.Hour-1))
	assert.False(t, ok)
}
