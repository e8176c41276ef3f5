// KeyStore: its keys and secrets.

package memory

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/manage"
)

// A KeyStore is a [manage.KeyManager] and [manage.AccountManager] in memory. It keeps hashes
// of the secrets instead of the secrets. The zero value is an empty store. Its methods are safe
// for concurrent use.
type KeyStore struct {
	mu       sync.RWMutex // guards the fields below, and those of the keys and accounts
	secrets  map[secretHash]*lookupResult
	keys     map[string]*managedKey // by ID
	order    []*managedKey          // in the order in which they were created
	accounts accounts
}

type secretHash = [sha256.Size]byte

// A lookupResult is what Lookup finds for a secret. It is immutable.
type lookupResult struct {
	key *llmhttp.Key // nil if the key is suspended or revoked, or its account is suspended
	of  *managedKey  // to which the secret belongs
}

// A managedKey is a key with its secrets.
type managedKey struct {
	info    manage.KeyInfo           // without LastUsed
	secrets map[secretHash]time.Time // expiry of each secret; zero means that it expires with the key
	usedAt  atomic.Int64             // Unix time in nanoseconds; zero means never
}

var (
	_ manage.KeyManager     = (*KeyStore)(nil)
	_ manage.AccountManager = (*KeyStore)(nil)
)

// NewKeyStore returns a KeyStore with one key for each secret. Each key has an account
// of its own, all scopes and no limits. NewKeyStore panics if a secret is empty.
func NewKeyStore(secrets ...string) *KeyStore {
	s := &KeyStore{}
	for _, secret := range secrets {
		s.Add(secret, nil)
	}
	return s
}

// Add stores a copy of key under secret and replaces the key that was there. If
// there is another key with the same ID, Add replaces its settings and adds the
// secret to it. An empty ID becomes "key_" and the first 12 hexadecimal digits of
// the SHA-256 of secret. An empty Account becomes the ID. A nil key stands for
// the zero Key. The Labels and the Data of key are not kept; its Subjects and
// PerUser are, and no other method changes them. If the account of key exists in the store,
// Lookup returns the limits, PerUser and Labels of that account instead of those of key.
//
// Add panics if secret is empty or if Key.Validate returns an error. No request can
// present an empty secret, so it is a mistake such as an environment variable that is
// not set.
func (s *KeyStore) Add(secret string, key *llmhttp.Key) {
	if secret == "" {
		panic("memory: empty secret")
	}
	if key != nil {
		if err := key.Validate(); err != nil {
			panic("memory: adding a key: " + err.Error())
		}
	}
	info := manage.KeyInfo{Prefix: secret[:min(len(secret)/4, infoPrefixLength)], Created: time.Now()}
	if key != nil {
		info.Key = *key
	}
	hash := hashSecret(secret)
	if info.ID == "" {
		info.ID = "key_" + hex.EncodeToString(hash[:6])
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeSecret(hash)
	s.addKey(info, hash)
}

// Remove removes a secret, and its key if that has no other secret. It does nothing if
// the secret is unknown. Requests that are in progress continue.
func (s *KeyStore) Remove(secret string) {
	hash := hashSecret(secret)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeSecret(hash)
}

// Lookup implements [llmhttp.KeyStore]. Its only error is
// [llmhttp.ErrKeyNotFound].
func (s *KeyStore) Lookup(ctx context.Context, secret string) (*llmhttp.Key, error) {
	hash := hashSecret(secret)
	s.mu.RLock()
	found := s.secrets[hash]
	s.mu.RUnlock()
	if found == nil || found.key == nil {
		return nil, llmhttp.ErrKeyNotFound
	}
	found.of.usedAt.Store(time.Now().UnixNano())
	return found.key, nil
}

func hashSecret(secret string) secretHash {
	var buf [128]byte // avoids an allocation; see BenchmarkKeyStore_Lookup
	return sha256.Sum256(append(buf[:0], secret...))
}

// addKey adds a secret to the key with the ID of info. It creates the key if it
// does not exist. The caller holds mu.
func (s *KeyStore) addKey(info manage.KeyInfo, hash secretHash) *managedKey {
	k := s.keys[info.ID]
	if k == nil {
		if s.keys == nil {
			s.keys, s.secrets = make(map[string]*managedKey), make(map[secretHash]*lookupResult)
		}
		k = &managedKey{secrets: make(map[secretHash]time.Time)}
		s.keys[info.ID] = k
		s.order = append(s.order, k)
	}
	k.info = info
	k.secrets[hash] = time.Time{}
	s.applyParams(k, info.Params())
	return k
}

// applyParams replaces the settings of k and what Lookup returns for its secrets. The
// caller holds mu.
func (s *KeyStore) applyParams(k *managedKey, p manage.KeyParams) {
	k.info.Key = llmhttp.Key{
		ID: k.info.ID, Account: cmp.Or(p.Account, k.info.ID), Scopes: slices.Clone(p.Scopes), Models: slices.Clone(p.Models), Expires: p.Expires, Limits: p.Limits,
		Subjects: slices.Clone(k.info.Subjects), PerUser: k.info.PerUser,
	}
	k.info.Name, k.info.Suspended = p.Name, p.Suspended
	for hash, expires := range k.secrets {
		found := &lookupResult{of: k}
		if account := s.accounts.byID[k.info.Account]; !k.info.Suspended && k.info.Revoked.IsZero() &&
			(account == nil || !account.info.Suspended) {
			key := k.info.Key
			if !expires.IsZero() && (key.Expires.IsZero() || expires.Before(key.Expires)) {
				key.Expires = expires
			}
			if account != nil {
				account.info.ApplyTo(&key)
			}
			found.key = &key
		}
		s.secrets[hash] = found
	}
}

// removeSecret removes a secret, and its key if that has no other. The caller
// holds mu.
func (s *KeyStore) removeSecret(hash secretHash) {
	delete(s.secrets, hash)
	for i, k := range s.order {
		if _, ok := k.secrets[hash]; !ok {
			continue
		}
		delete(k.secrets, hash)
		if len(k.secrets) == 0 {
			delete(s.keys, k.info.ID)
			s.order = slices.Delete(s.order, i, i+1)
		}
		return
	}
}

// copyInfo returns a KeyInfo that shares no memory with k.
func (k *managedKey) copyInfo() manage.KeyInfo {
	info := k.info
	info.Scopes, info.Models, info.Subjects = slices.Clone(info.Scopes), slices.Clone(info.Models), slices.Clone(info.Subjects)
	if used := k.usedAt.Load(); used != 0 {
		info.LastUsed = time.Unix(0, used)
	}
	return info
}
