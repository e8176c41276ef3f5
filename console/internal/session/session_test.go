package session

import (
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/memory"
)

// newTestSessions returns the sessions of a process.
func newTestSessions(t *testing.T, secret string) *sessions {
	s, err := newSessions([]byte(secret), "session")
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

func TestKnownAddrs(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	var k knownAddrs
	assert.False(t, k.has("ada", "192.0.2.1", now))
	k.add("ada", "192.0.2.1", now)
	assert.True(t, k.has("ada", "192.0.2.1", now.Add(knownFor-1)))
	assert.False(t, k.has("ada", "192.0.2.1", now.Add(knownFor)))
	assert.False(t, k.has("ada", "192.0.2.2", now))
	assert.False(t, k.has("grace", "192.0.2.1", now))
	for i := range maxKnownAddrs {
		k.add("ada", strconv.Itoa(i), now.Add(time.Second))
	}
	assert.Len(t, k.last, maxKnownAddrs, "memory is bounded")
	assert.False(t, k.has("ada", "192.0.2.1", now), "the oldest is forgotten")
	assert.True(t, k.has("ada", "0", now))
}

// The session of a key does not last longer than the secret.
func TestSignIn_SessionEndsWithSecret(t *testing.T) {
	s, err := New(Config{Keys: true, Duration: time.Hour}, memory.NewKeyStore())
	require.NoError(t, err)
	now := time.Now()
	for expires, want := range map[time.Time]time.Time{
		{}:                     now.Add(time.Hour),
		now.Add(time.Minute):   now.Add(time.Minute),
		now.Add(2 * time.Hour): now.Add(time.Hour),
	} {
		sess, ok := s.sessions.decode(s.newSession(&Person{Key: &llmhttp.Key{Expires: expires}, Secret: "hash"}), now)
		require.True(t, ok)
		assert.Equal(t, "hash", sess.Secret)
		assert.WithinRange(t, time.Unix(sess.Ends, 0), want.Add(-time.Second), want.Add(time.Minute/2))
	}
}

func TestSignIn_Duration(t *testing.T) {
	for duration, want := range map[time.Duration]time.Duration{0: 12 * time.Hour, -1: forever, time.Minute: time.Minute, math.MaxInt64: forever} {
		s, err := New(Config{Keys: true, Duration: duration}, memory.NewKeyStore())
		require.NoError(t, err)
		now := time.Now()
		cookie := s.newSession(&Person{Key: &llmhttp.Key{}, Secret: "hash"})
		_, ok := s.sessions.decode(cookie, now.Add(want-time.Minute))
		assert.True(t, ok, duration)
		_, ok = s.sessions.decode(cookie, now.Add(want+time.Minute))
		assert.False(t, ok, duration)

		w := httptest.NewRecorder()
		s.setSession(w, httptest.NewRequest(http.MethodGet, "/", nil), "/", cookie)
		assert.Equal(t, int(min(want/time.Second, math.MaxInt32)), w.Result().Cookies()[0].MaxAge, duration)
	}
}
