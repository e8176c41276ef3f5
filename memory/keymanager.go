// How the keys of a KeyStore are managed.

package memory

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/ascii"
	"github.com/llmhttp/llmhttp/internal/option"
	"github.com/llmhttp/llmhttp/manage"
)

const (
	secretPrefix     = "sk-"
	infoPrefixLength = 11 // characters of a secret in KeyInfo.Prefix

	defaultPage, maxPage = 100, 1000 // keys, accounts or entries in a page
)

// Key implements [manage.KeyManager].
func (s *KeyStore) Key(ctx context.Context, id string) (manage.KeyInfo, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	k := s.keys[id]
	if k == nil {
		return manage.KeyInfo{}, llmhttp.ErrKeyNotFound
	}
	return k.copyInfo(), nil
}

// KeyBySecret implements [manage.KeyManager].
func (s *KeyStore) KeyBySecret(ctx context.Context, hash string) (info manage.KeyInfo, ends time.Time, err error) {
	var secret secretHash
	if len(hash) != hex.EncodedLen(len(secret)) {
		return manage.KeyInfo{}, time.Time{}, llmhttp.ErrKeyNotFound
	}
	if _, err := hex.Decode(secret[:], []byte(hash)); err != nil {
		return manage.KeyInfo{}, time.Time{}, llmhttp.ErrKeyNotFound
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	found := s.secrets[secret]
	if found == nil {
		return manage.KeyInfo{}, time.Time{}, llmhttp.ErrKeyNotFound
	}
	ends = found.of.secrets[secret]
	if !ends.IsZero() && !time.Now().Before(ends) {
		return manage.KeyInfo{}, time.Time{}, llmhttp.ErrKeyNotFound
	}
	return found.of.copyInfo(), ends, nil
}

// ListKeys implements [manage.KeyManager]. Its cost grows with the number of keys in the store.
func (s *KeyStore) ListKeys(ctx context.Context, q manage.KeyQuery) ([]manage.KeyInfo, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	last := s.keys[q.After]
	if q.After != "" && last == nil {
		return nil, llmhttp.ErrKeyNotFound
	}
	q.Search = ascii.ToLower(q.Search)
	now := time.Now()
	selected := func(k *managedKey) bool { return k.matches(&q, now) }
	var page []manage.KeyInfo
	for k := range pageOf(s.order, last, q.Newest, q.Limit, selected) {
		page = append(page, k.copyInfo())
	}
	return page, nil
}

// pageOf returns an iterator over the elements of list that are selected and follow last, or
// over those from the first on if last is the zero value. It yields at most limit of them, with
// the defaults of [manage.KeyQuery].
func pageOf[T comparable](list []T, last T, newest bool, limit int, selected func(T) bool) iter.Seq[T] {
	var none T
	limit = min(option.Bound(limit, defaultPage), maxPage)
	return func(yield func(T) bool) {
		passed, n := last == none, 0
		for i := range list {
			e := list[i]
			if newest {
				e = list[len(list)-1-i]
			}
			switch {
			case !passed:
				passed = e == last
			case n == limit:
				return
			case selected(e):
				n++
				if !yield(e) {
					return
				}
			}
		}
	}
}

// matches reports whether q selects k. The search of q is in lower case.
func (k *managedKey) matches(q *manage.KeyQuery, now time.Time) bool {
	i := &k.info
	text := ascii.ToLower(strings.Join([]string{i.ID, i.Account, i.Name, i.Prefix}, "\n"))
	return (q.Account == "" || i.Account == q.Account) &&
		(q.Status == "" || i.Status(now) == q.Status) &&
		strings.Contains(text, q.Search)
}

// CreateKey implements [manage.KeyManager]. Secrets begin with "sk-".
func (s *KeyStore) CreateKey(ctx context.Context, params manage.KeyParams) (manage.KeyInfo, string, error) {
	if err := params.Validate(); err != nil {
		return manage.KeyInfo{}, "", fmt.Errorf("memory: creating a key: %w", err)
	}
	secret := llmhttp.NewSecret(secretPrefix)
	info := manage.KeyInfo{Prefix: secret[:infoPrefixLength], Created: time.Now()}
	info.ID = "key_" + strings.ToLower(rand.Text()[:20])
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.addKey(info, hashSecret(secret))
	s.applyParams(k, params)
	return k.copyInfo(), secret, nil
}

// UpdateKey implements [manage.KeyManager].
func (s *KeyStore) UpdateKey(ctx context.Context, id string, change func(*manage.KeyParams) error) (manage.KeyInfo, error) {
	return s.changeKey(id, func(k *managedKey) error {
		info := k.copyInfo()
		params := info.Params()
		if err := change(&params); err != nil {
			return err
		}
		changed := llmhttp.Key{ID: info.ID, Account: params.Account, Scopes: params.Scopes, Limits: params.Limits, Subjects: info.Subjects}
		if err := changed.Validate(); err != nil {
			return fmt.Errorf("memory: updating a key: %w", err)
		}
		s.applyParams(k, params)
		return nil
	})
}

// RotateKey implements [manage.KeyManager].
func (s *KeyStore) RotateKey(ctx context.Context, id string, overlap time.Duration) (info manage.KeyInfo, secret string, err error) {
	if overlap < 0 {
		return info, "", errors.New("memory: rotating a key: the overlap is negative")
	}
	secret = llmhttp.NewSecret(secretPrefix)
	info, err = s.changeKey(id, func(k *managedKey) error {
		now := time.Now()
		for hash, expires := range k.secrets {
			if end := now.Add(overlap); expires.IsZero() || end.Before(expires) {
				expires = end
			}
			k.secrets[hash] = expires
			if !now.Before(expires) {
				delete(k.secrets, hash)
				delete(s.secrets, hash)
			}
		}
		k.secrets[hashSecret(secret)] = time.Time{}
		k.info.Prefix = secret[:infoPrefixLength]
		s.applyParams(k, k.info.Params())
		return nil
	})
	if err != nil {
		return manage.KeyInfo{}, "", err
	}
	return info, secret, nil
}

// RevokeKey implements [manage.KeyManager].
func (s *KeyStore) RevokeKey(ctx context.Context, id string) error {
	_, err := s.changeKey(id, func(k *managedKey) error {
		k.info.Revoked = time.Now()
		s.applyParams(k, k.info.Params())
		return nil
	})
	if errors.Is(err, manage.ErrKeyRevoked) {
		err = nil
	}
	return err
}

// changeKey calls change with the key of the given ID, unless it is revoked, and
// returns the result.
func (s *KeyStore) changeKey(id string, change func(*managedKey) error) (manage.KeyInfo, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.keys[id]
	if k == nil {
		return manage.KeyInfo{}, llmhttp.ErrKeyNotFound
	}
	if !k.info.Revoked.IsZero() {
		return manage.KeyInfo{}, manage.ErrKeyRevoked
	}
	if err := change(k); err != nil {
		return manage.KeyInfo{}, err
	}
	return k.copyInfo(), nil
}
