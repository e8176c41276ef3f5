package console

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
	KeyID    string // of the API key with which another person has signed in
	Ends     int64  // in seconds since 1970
}

// maxEnded bounds the memory of sessions that were ended by signing out.
const maxEnded = 10_000

// sessions encodes and decodes sessions. It remembers those that were ended by
// signing out, in this process.
type sessions struct {
	aead cipher.AEAD

	mu    sync.Mutex       // guards ended
	ended map[string]int64 // the Ends of sessions by ID
}

// newSessions returns sessions for a secret. If the secret is empty, it is random.
func newSessions(secret []byte) (*sessions, error) {
	if len(secret) == 0 {
		secret = []byte(rand.Text() + rand.Text())
	}
	key, err := hkdf.Key(sha256.New, secret, nil, "llmhttp console session", 32)
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

// encode returns the value of a cookie. It sets the ID of s.
func (m *sessions) encode(s session) string {
	s.ID = rand.Text()
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // strings and numbers can be encoded
	}
	return base64.RawURLEncoding.EncodeToString(m.aead.Seal(nil, nil, text, nil))
}

// decode returns the session of a cookie unless it has ended.
func (m *sessions) decode(value string, now time.Time) (s session, ok bool) {
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(value)
	if err != nil {
		return session{}, false
	}
	text, err := m.aead.Open(nil, nil, sealed, nil)
	if err != nil || json.Unmarshal(text, &s) != nil || now.Unix() >= s.Ends {
		return session{}, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ended := m.ended[s.ID]
	return s, !ended
}

func (m *sessions) end(value string, now time.Time) {
	s, ok := m.decode(value, now)
	if !ok {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.ended) >= maxEnded {
		m.forget(now)
	}
	m.ended[s.ID] = s.Ends
}

// forget makes room in ended. It deletes the sessions that have expired, and the
// one that expires next. The caller holds mu.
func (m *sessions) forget(now time.Time) {
	first := ""
	for id, ends := range m.ended {
		switch {
		case now.Unix() >= ends:
			delete(m.ended, id)
		case first == "" || ends < m.ended[first]:
			first = id
		}
	}
	delete(m.ended, first)
}
