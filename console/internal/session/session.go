// Package session signs people in: it checks passwords and keys, bounds the attempts, and keeps sessions, which are
// in cookies. It also remembers which forms were sent.
package session

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"sync"
	"time"
)

// A session says who has signed in. It is stored in the cookie of the browser,
// encrypted and authenticated, so that any process with the same secret accepts it.
type session struct {
	ID       string
	Admin    string // the name of an administrator, or empty
	Password string // identifies the hash of the administrator's password
	Secret   string // the HashSecret of the secret with which another person has signed in
	Ends     int64  // in seconds since 1970
}

// maxEnded bounds the memory of sessions that were ended by signing out.
const maxEnded = 10_000

// sessions encodes and decodes sessions. It remembers those that were ended by
// signing out in this process.
type sessions struct {
	aead cipher.AEAD

	mu    sync.Mutex       // guards ended
	ended map[string]int64 // the Ends of sessions by ID
}

// newSessions returns sessions for a secret. If the secret is empty, it is random. Cookies
// of one purpose are no cookies of another.
func newSessions(secret []byte, purpose string) (*sessions, error) {
	if len(secret) == 0 {
		secret = []byte(rand.Text() + rand.Text())
	}
	key, err := hkdf.Key(sha256.New, secret, nil, "llmhttp console "+purpose, 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, err
	}
	return &sessions{aead: aead, ended: make(map[string]int64)}, nil
}

// encode returns the value of a cookie. It gives the session a new ID.
func (s *sessions) encode(sess session) string {
	sess.ID = rand.Text()
	text, err := json.Marshal(sess)
	if err != nil {
		panic(err) // strings and numbers can be encoded
	}
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, text, nil))
}

// decode returns the session of a cookie unless it has ended.
func (s *sessions) decode(value string, now time.Time) (sess session, ok bool) {
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(value)
	if err != nil {
		return session{}, false
	}
	text, err := s.aead.Open(nil, nil, sealed, nil)
	if err != nil || json.Unmarshal(text, &sess) != nil || now.Unix() >= sess.Ends {
		return session{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ended := s.ended[sess.ID]
	return sess, !ended
}

// end makes decode refuse a session from now on.
func (s *sessions) end(value string, now time.Time) {
	sess, ok := s.decode(value, now)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ended) >= maxEnded {
		s.makeRoom(now)
	}
	s.ended[sess.ID] = sess.Ends
}

// makeRoom deletes the sessions that have expired from ended, and the one that
// expires next. The caller holds mu.
func (s *sessions) makeRoom(now time.Time) {
	first := ""
	for id, ends := range s.ended {
		switch {
		case now.Unix() >= ends:
			delete(s.ended, id)
		case first == "" || ends < s.ended[first]:
			first = id
		}
	}
	delete(s.ended, first)
}
