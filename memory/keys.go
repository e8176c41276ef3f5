package memory

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"sync"

	"github.com/llmhttp/llmhttp"
)

// A KeyStore is a [llmhttp.KeyStore] in memory. It keeps hashes of the secrets
// instead of the secrets. The zero value is an empty store. Its methods are safe
// for concurrent use.
type KeyStore struct {
	mu   sync.RWMutex // guards keys
	keys map[[sha256.Size]byte]*llmhttp.Key
}

var _ llmhttp.KeyStore = (*KeyStore)(nil)

// Keys returns a KeyStore with one key for each secret. Each key has an account
// of its own, all scopes and no limits. Keys panics if a secret is empty.
func Keys(secrets ...string) *KeyStore {
	s := &KeyStore{}
	for _, secret := range secrets {
		s.Add(secret, nil)
	}
	return s
}

// Add stores a copy of key under secret and replaces the key that was there. An
// empty ID becomes "key_" and the first 12 hexadecimal digits of the SHA-256 of
// secret. An empty Account becomes the ID. A nil key stands for the zero Key.
//
// Add panics if secret is empty. No request can present an empty secret, so it
// is a mistake such as an environment variable that is not set.
func (s *KeyStore) Add(secret string, key *llmhttp.Key) {
	if secret == "" {
		panic("memory: empty secret")
	}
	var k llmhttp.Key
	if key != nil {
		k = *key
	}
	hash := hashSecret(secret)
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

// Remove removes the key with the given secret. It does nothing if there is no
// such key. Requests that are in progress continue.
func (s *KeyStore) Remove(secret string) {
	hash := hashSecret(secret)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.keys, hash)
}

// Lookup implements [llmhttp.KeyStore]. Its only error is
// [llmhttp.ErrKeyNotFound].
func (s *KeyStore) Lookup(ctx context.Context, secret string) (*llmhttp.Key, error) {
	hash := hashSecret(secret)
	s.mu.RLock()
	key := s.keys[hash]
	s.mu.RUnlock()
	if key == nil {
		return nil, llmhttp.ErrKeyNotFound
	}
	return key, nil
}

func hashSecret(secret string) [sha256.Size]byte { return sha256.Sum256([]byte(secret)) }
