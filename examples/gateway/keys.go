package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/llmhttp/llmhttp"
)

// A keyStore holds keys that can be replaced.
type keyStore struct{ current atomic.Pointer[keys] }

// keys are keys by the hashes of their secrets.
type keys map[string]*llmhttp.Key

// Lookup implements [llmhttp.KeyStore].
func (s *keyStore) Lookup(_ context.Context, secret string) (*llmhttp.Key, error) {
	if key := (*s.current.Load())[llmhttp.HashSecret(secret)]; key != nil {
		return key, nil
	}
	return nil, llmhttp.ErrKeyNotFound
}

func newKeys(configs []keyConfig) (keys, error) {
	if len(configs) == 0 {
		return nil, errors.New("keys: must not be empty")
	}
	store := make(keys)
	ids := make(map[string]bool)
	for i := range configs {
		k, field := &configs[i], fmt.Sprintf("keys[%d]", i)
		switch {
		case k.ID == "":
			return nil, fmt.Errorf("%s.id: must not be empty", field)
		case ids[k.ID]:
			return nil, fmt.Errorf("%s.id: another key has the ID %q", field, k.ID)
		}
		ids[k.ID] = true
		hash, err := k.hash(field)
		if err != nil {
			return nil, err
		}
		if other := store[hash]; other != nil {
			return nil, fmt.Errorf("%s: key %q has the same secret", field, other.ID)
		}
		if store[hash], err = k.key(field); err != nil {
			return nil, err
		}
	}
	return store, nil
}

// hash returns the hash of the secret, as [llmhttp.HashSecret] does.
func (k *keyConfig) hash(field string) (string, error) {
	if (k.SecretEnv == "") == (k.SecretHash == "") {
		return "", fmt.Errorf("%s: must have either secret_env or secret_hash", field)
	}
	if k.SecretEnv != "" {
		secret, err := environment(field+".secret_env", k.SecretEnv)
		return llmhttp.HashSecret(secret), err
	}
	if b, err := hex.DecodeString(k.SecretHash); err != nil || len(b) != sha256.Size {
		return "", fmt.Errorf("%s.secret_hash: must be a SHA-256 hash of %d hexadecimal digits", field, 2*sha256.Size)
	}
	return strings.ToLower(k.SecretHash), nil
}

// key returns the key without its secret. Its errors name the field that is not valid.
func (k *keyConfig) key(field string) (*llmhttp.Key, error) {
	for i, scope := range k.Scopes {
		if endpoints := llmhttp.Scopes(); !slices.Contains(endpoints, scope) {
			return nil, fmt.Errorf("%s.scopes[%d]: %q is not one of %q", field, i, scope, endpoints)
		}
	}
	limits, err := k.Limits.limits(field + ".limits")
	if err != nil {
		return nil, err
	}
	key := &llmhttp.Key{ID: k.ID, Account: k.Account, Scopes: k.Scopes, Models: k.Models, Expires: k.Expires, Limits: limits}
	if key.PerUser, err = k.PerUser.limits(field + ".per_user"); err != nil {
		return nil, err
	}
	for i := range k.Subjects {
		s := &k.Subjects[i]
		subject := llmhttp.Subject{ID: llmhttp.SubjectID{Kind: s.Kind, ID: s.ID}}
		if subject.Limits, err = s.Limits.limits(fmt.Sprintf("%s.subjects[%d].limits", field, i)); err != nil {
			return nil, err
		}
		key.Subjects = append(key.Subjects, subject)
	}
	if err := key.Validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	return key, nil
}

func (l *limitsConfig) limits(field string) (limits llmhttp.Limits, err error) {
	if l.Concurrent < 0 {
		return limits, fmt.Errorf("%s.concurrent: must not be negative", field)
	}
	if l.Completion < 0 {
		return limits, fmt.Errorf("%s.max_completion_tokens: must not be negative", field)
	}
	limits.Concurrent, limits.MaxCompletionTokens = l.Concurrent, l.Completion
	if limits.Requests, err = l.Requests.rate(field + ".requests"); err != nil {
		return limits, err
	}
	if limits.Tokens, err = l.Tokens.rate(field + ".tokens"); err != nil {
		return limits, err
	}
	if q := l.Quota; q != nil {
		if q.Tokens <= 0 {
			return limits, fmt.Errorf("%s.quota.tokens: must be positive", field)
		}
		limits.Quota = llmhttp.Quota{Tokens: q.Tokens, Per: time.Duration(q.Per)}
	}
	if err := limits.Validate(); err != nil {
		return limits, fmt.Errorf("%s: %w", field, err)
	}
	return limits, nil
}

// rate returns the Rate of r, which is nil if there is no limit.
func (r *rateConfig) rate(field string) (llmhttp.Rate, error) {
	switch {
	case r == nil:
		return llmhttp.Rate{}, nil
	case r.N <= 0:
		return llmhttp.Rate{}, fmt.Errorf("%s.n: must be positive", field)
	case r.Burst < 0:
		return llmhttp.Rate{}, fmt.Errorf("%s.burst: must not be negative", field)
	}
	return llmhttp.Rate{N: r.N, Per: time.Duration(r.Per), Burst: r.Burst}, nil
}
