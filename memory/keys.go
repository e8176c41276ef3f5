package memory

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"sync"

	"github.com/llmhttp/llmhttp"
)

// A KeyStore is a [llmhttp.KeyStore] in memory. It keeps hashes of secrets, not
// the secrets. The zero value is an empty store; its methods are safe for
// concurrent use.
type KeyStore struct {
	mu   sync.RWMutex
	keys map[[sha256.Size]byte]*llmhttp.Key
}

var _ llmhttp.KeyStore = (*KeyStore)(nil)

// Keys returns a KeyStore with a key for each secret, as [KeyStore.Add] makes
// it: an account for itself, which may do everything without limits. It panics
// if a secret is empty.
func Keys(secrets ...string) *KeyStore {
	s := &KeyStore{}
	for _, secret := range secrets {
		s.Add(secret, nil)
	}
	return s
}

// Add stores a copy of key as the one whose secret is given, in place of any
// that had that secret before. A key without an ID gets one, "key_" and the
// first 12 digits of the secret's hash, and one without an Account gets its ID
// as such. A nil key is an empty one.
//
// Add panics if secret is empty: nobody could present it, so it is a mistake,
// such as an environment variable that is not set.
func (s *KeyStore) Add(secret string, key *llmhttp.Key) {
	if secret == "" {
		panic("memory: empty secret")
	}
	var k llmhttp.Key
	if key != nil {
		k = *key
	}
	hash := hashOfSecret(secret)
	if k.ID == "" {
		k.ID = "key_" + hex.EncodeToString(hash[:6])
	}
	if k.Account == "" {
		k.Account = k.ID
	}
	k.Scopes, k.Models = slices.Clone(k.Scopes), slices.Clone(k.Models)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keys == nil {
		s.keys = make(map[[sha256.Size]byte]*llmhttp.Key)
	}
	s.keys[hash] = &k
}

// Remove removes the key with the given secret, if there is one. Requests that
// it has begun go on.
func (s *KeyStore) Remove(secret string) {
	hash := hashOfSecret(secret)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.keys, hash)
}

// Lookup implements [llmhttp.KeyStore]. It fails only with
// [llmhttp.ErrKeyNotFound].
func (s *KeyStore) Lookup(ctx context.Context, secret string) (*llmhttp.Key, error) {
	hash := hashOfSecret(secret)
	s.mu.RLock()
	key := s.keys[hash]
	s.mu.RUnlock()
	if key == nil {
		return nil, llmhttp.ErrKeyNotFound
	}
	return key, nil
}

// hashOfSecret allocates nothing for secrets of the usual length.
func hashOfSecret(secret string) [sha256.Size]byte {
	var buf [128]byte
	return sha256.Sum256(append(buf[:0], secret...))
}
