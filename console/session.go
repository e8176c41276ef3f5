package console

import (
	"crypto/rand"
	"crypto/sha256"
	"sync"
	"time"
)

// maxSessions bounds the memory of sessions. If there are more, the one that
// ends first is dropped.
const maxSessions = 10_000

// sessions are the sessions of people who have signed in. The zero value has
// none. It keeps hashes of the tokens, so that they cannot be read from memory
// that leaks, and looks up by them, so that times reveal nothing.
type sessions struct {
	mu     sync.Mutex // guards byHash
	byHash map[[sha256.Size]byte]session
}

type session struct {
	user User
	ends time.Time
}

// add starts a session and returns its token.
func (s *sessions) add(u User, ends, now time.Time) string {
	token := rand.Text() + rand.Text()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byHash == nil {
		s.byHash = make(map[[sha256.Size]byte]session)
	}
	if len(s.byHash) >= maxSessions {
		s.removeFirst(now)
	}
	s.byHash[sha256.Sum256([]byte(token))] = session{u, ends}
	return token
}

// removeFirst removes the sessions that have ended. If none has ended, it removes
// the session that ends first. The caller holds mu.
func (s *sessions) removeFirst(now time.Time) {
	before := len(s.byHash)
	var first [sha256.Size]byte
	var ends time.Time
	for hash, session := range s.byHash {
		if !now.Before(session.ends) {
			delete(s.byHash, hash)
		} else if ends.IsZero() || session.ends.Before(ends) {
			first, ends = hash, session.ends
		}
	}
	if len(s.byHash) == before {
		delete(s.byHash, first)
	}
}

// find returns the session with the given token unless it has ended.
func (s *sessions) find(token string, now time.Time) (session, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, ok := s.byHash[sha256.Sum256([]byte(token))]
	return found, ok && now.Before(found.ends)
}

// remove ends a session.
func (s *sessions) remove(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byHash, sha256.Sum256([]byte(token)))
}
