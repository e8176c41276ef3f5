package storetest

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/manage"
)

func TestKeyManagerMutants(t *testing.T) {
	run := func(t testing.TB, newStore func(t testing.TB) AccountStore) {
		keyManagerSequences.Run(t, func(t testing.TB) manage.KeyManager { return newStore(t) })
	}
	testMutants(t, run, nil, managerFixture(func(*managerHooks) {}), slices.Concat(keyChangeMutants, keyListMutants))
}

// foundBySecret returns a constructor of a store that changes what KeyBySecret returns.
func foundBySecret(change func(info *keyInfo, ends *time.Time, err *error)) func(testing.TB) AccountStore {
	return managerFixture(func(m *managerHooks) {
		m.bySecret = func(ctx context.Context, hash string) (keyInfo, time.Time, error) {
			info, ends, err := m.KeyStore.KeyBySecret(ctx, hash)
			change(&info, &ends, &err)
			return info, ends, err
		}
	})
}

// creating returns a constructor of a store that changes the settings of new keys.
func creating(change func(p *keyParams)) func(testing.TB) AccountStore {
	return managerFixture(func(m *managerHooks) {
		m.create = func(ctx context.Context, p keyParams) (keyInfo, string, error) {
			change(&p)
			return m.KeyStore.CreateKey(ctx, p)
		}
	})
}

// created returns a constructor of a store that changes what CreateKey returns.
func created(change func(info *keyInfo, secret *string)) func(testing.TB) AccountStore {
	return managerFixture(func(m *managerHooks) {
		m.create = func(ctx context.Context, p keyParams) (keyInfo, string, error) {
			info, secret, err := m.KeyStore.CreateKey(ctx, p)
			change(&info, &secret)
			return info, secret, err
		}
	})
}

// updating returns a constructor of a store that calls wrap instead of change.
func updating(wrap func(p *keyParams, change func(*keyParams) error) error) func(testing.TB) AccountStore {
	return managerFixture(func(m *managerHooks) {
		m.update = func(ctx context.Context, id string, change func(*keyParams) error) (keyInfo, error) {
			return m.KeyStore.UpdateKey(ctx, id, func(p *keyParams) error { return wrap(p, change) })
		}
	})
}

// rotating returns a constructor of a store with another overlap.
func rotating(overlap func(time.Duration) time.Duration) func(testing.TB) AccountStore {
	return managerFixture(func(m *managerHooks) {
		m.rotate = func(ctx context.Context, id string, d time.Duration) (keyInfo, string, error) {
			return m.KeyStore.RotateKey(ctx, id, overlap(d))
		}
	})
}

// searchingKeys returns a constructor of a store that compares keys with the text of a
// search in another way.
func searchingKeys(match func(k *keyInfo, search string) bool) func(testing.TB) AccountStore {
	return managerFixture(func(m *managerHooks) {
		m.list = func(ctx context.Context, q keyQuery) ([]keyInfo, error) {
			search, limit := q.Search, q.Limit
			q.Search, q.Limit = "", -1
			keys, err := m.KeyStore.ListKeys(ctx, q)
			keys = slices.DeleteFunc(keys, func(k keyInfo) bool { return search != "" && !match(&k, search) })
			if limit > 0 {
				keys = keys[:min(limit, len(keys))]
			}
			return keys, err
		}
	})
}

// cacheLookups makes Lookup keep what it has found.
func cacheLookups(m *managerHooks) {
	var cache sync.Map
	m.lookup = func(ctx context.Context, secret string) (*llmhttp.Key, error) {
		if found, ok := cache.Load(secret); ok {
			return found.(*llmhttp.Key), nil
		}
		key, err := m.KeyStore.Lookup(ctx, secret)
		if err == nil {
			cache.Store(secret, key)
		}
		return key, err
	}
}

// keyTexts returns the texts of a key that a search compares, in lower case.
func keyTexts(k *keyInfo) string {
	return strings.ToLower(strings.Join([]string{k.ID, k.Account, k.Name, k.Prefix}, "\n"))
}

// keyChangeMutants have faults in methods that change keys, or in Lookup.
var keyChangeMutants = []mutant[AccountStore]{
	{"models are dropped", randomCalls, creating(func(p *keyParams) { p.Models = nil })},
	{"scopes are dropped", randomCalls, creating(func(p *keyParams) { p.Scopes = nil })},
	{"the name is dropped", randomCalls, creating(func(p *keyParams) { p.Name = "" })},
	{"the expiry is dropped", randomCalls, creating(func(p *keyParams) { p.Expires = time.Time{} })},
	{"limits are dropped", randomCalls, creating(func(p *keyParams) { p.Limits = llmhttp.Limits{} })},
	{"the secret is not that of the key", randomCalls, created(func(_ *keyInfo, secret *string) { *secret += "x" })},
	{"the prefix is the whole secret", randomCalls, created(func(info *keyInfo, secret *string) { info.Prefix = *secret })},
	{"a key without an account has none", randomCalls, created(func(info *keyInfo, _ *string) {
		if info.Account == info.ID {
			info.Account = ""
		}
	})},

	{"a change makes empty scopes nil", randomCalls, updating(func(p *keyParams, change func(*keyParams) error) error {
		p.Scopes = slices.Concat(p.Scopes)
		return change(p)
	})},
	{"a change makes nil models empty", randomCalls, updating(func(p *keyParams, change func(*keyParams) error) error {
		if p.Models == nil {
			p.Models = []string{}
		}
		return change(p)
	})},

	{"a refused change is stored", randomCalls, managerFixture(func(m *managerHooks) {
		m.update = func(ctx context.Context, id string, change func(*keyParams) error) (keyInfo, error) {
			var refused error
			info, err := m.KeyStore.UpdateKey(ctx, id, func(p *keyParams) error { refused = change(p); return nil })
			return info, cmp.Or(refused, err)
		}
	})},
	{"the error of change is another", randomCalls, updating(func(p *keyParams, change func(*keyParams) error) error {
		if change(p) != nil {
			return errors.New("invalid settings")
		}
		return nil
	})},
	{"new limits are not validated", randomCalls, creating(func(p *keyParams) {
		if p.Limits.Validate() != nil {
			p.Limits = llmhttp.Limits{}
		}
	})},
	{"new scopes are not validated", randomCalls, creating(func(p *keyParams) { p.Scopes = withoutInvalid(p.Scopes) })},
	{"changed scopes are not validated", randomCalls, updating(func(p *keyParams, change func(*keyParams) error) error {
		err := change(p)
		p.Scopes = withoutInvalid(p.Scopes)
		return err
	})},
	{"changed limits are not validated", randomCalls, updating(func(p *keyParams, change func(*keyParams) error) error {
		limits := p.Limits
		err := change(p)
		if p.Limits.Validate() != nil {
			p.Limits = limits
		}
		return err
	})},
	{"limits are not updated", randomCalls, updating(func(p *keyParams, change func(*keyParams) error) error {
		limits := p.Limits
		err := change(p)
		p.Limits = limits
		return err
	})},

	{"Lookup ignores Suspended", randomCalls, managerFixture(func(m *managerHooks) {
		m.update = func(ctx context.Context, id string, change func(*keyParams) error) (keyInfo, error) {
			suspended := false
			info, err := m.KeyStore.UpdateKey(ctx, id, func(p *keyParams) error {
				err := change(p)
				suspended, p.Suspended = p.Suspended, false
				return err
			})
			info.Suspended = suspended
			return info, err
		}
	})},
	{"Lookup keeps what it has found", randomCalls, managerFixture(cacheLookups)},

	{"there is no overlap", randomCalls, rotating(func(d time.Duration) time.Duration { return min(d, 0) })},
	{"the overlap is at least an hour", randomCalls, rotating(func(d time.Duration) time.Duration {
		if d < 0 {
			return d
		}
		return max(d, time.Hour)
	})},
	{"a negative overlap is zero", randomCalls, rotating(func(d time.Duration) time.Duration { return max(d, 0) })},
	{"a rotation is a new key", randomCalls, managerFixture(func(m *managerHooks) {
		m.rotate = func(ctx context.Context, id string, d time.Duration) (keyInfo, string, error) {
			if d < 0 {
				return keyInfo{}, "", errors.New("negative overlap")
			}
			old, err := m.KeyStore.Key(ctx, id)
			if err != nil {
				return keyInfo{}, "", err
			}
			return m.KeyStore.CreateKey(ctx, old.Params())
		}
	})},

	{"the end of a secret is that of its key", randomCalls, foundBySecret(func(info *keyInfo, ends *time.Time, _ *error) { *ends = info.Expires })},
	{"secrets have no end", randomCalls, foundBySecret(func(_ *keyInfo, ends *time.Time, _ *error) { *ends = time.Time{} })},
	{"a missing secret has another error", randomCalls, foundBySecret(func(_ *keyInfo, _ *time.Time, err *error) {
		if *err != nil {
			*err = errNoRows
		}
	})},
	{"revoked keys have no secrets", randomCalls, foundBySecret(func(info *keyInfo, _ *time.Time, err *error) {
		if !info.Revoked.IsZero() {
			*err = llmhttp.ErrKeyNotFound
		}
	})},
	{"the expiry is that of the secret", randomCalls, foundBySecret(func(info *keyInfo, ends *time.Time, _ *error) { info.Expires = *ends })},
	{"KeyBySecret is a use of the key", randomCalls, foundBySecret(func(info *keyInfo, _ *time.Time, _ *error) { info.LastUsed = time.Now() })},
	{"secrets are cached", randomCalls, managerFixture(func(m *managerHooks) {
		found := make(map[string]keyInfo)
		m.bySecret = func(ctx context.Context, hash string) (keyInfo, time.Time, error) {
			info, ends, err := m.KeyStore.KeyBySecret(ctx, hash)
			if cached, ok := found[hash]; ok && err != nil {
				return cached, time.Time{}, nil
			}
			if err == nil {
				found[hash] = info
			}
			return info, ends, err
		}
	})},

	{"a revoked key is suspended", randomCalls, managerFixture(func(m *managerHooks) {
		m.revoke = func(ctx context.Context, id string) error {
			_, err := m.KeyStore.UpdateKey(ctx, id, func(p *keyParams) error { p.Suspended = true; return nil })
			return err
		}
	})},
	{"revoking again is an error", randomCalls, managerFixture(func(m *managerHooks) {
		m.revoke = func(ctx context.Context, id string) error {
			if info, err := m.KeyStore.Key(ctx, id); err == nil && !info.Revoked.IsZero() {
				return manage.ErrKeyRevoked
			}
			return m.KeyStore.RevokeKey(ctx, id)
		}
	})},
	{"changing a revoked key succeeds", randomCalls, managerFixture(func(m *managerHooks) {
		m.update = func(ctx context.Context, id string, change func(*keyParams) error) (keyInfo, error) {
			info, err := m.KeyStore.UpdateKey(ctx, id, change)
			if errors.Is(err, manage.ErrKeyRevoked) {
				err = nil
			}
			return info, err
		}
	})},
	{"a revoked key is deleted", randomCalls, after(keyOf, func(_ string, info *keyInfo, err *error) {
		if !info.Revoked.IsZero() {
			*err = llmhttp.ErrKeyNotFound
		}
	})},

	{"a missing key has another error", randomCalls, after(keyOf, func(_ string, _ *keyInfo, err *error) {
		if *err != nil {
			*err = errNoRows
		}
	})},
	{"revoking a missing key succeeds", randomCalls, managerFixture(func(m *managerHooks) {
		m.revoke = func(ctx context.Context, id string) error {
			_ = m.KeyStore.RevokeKey(ctx, id)
			return nil
		}
	})},
	{"a missing After begins the list", randomCalls, managerFixture(func(m *managerHooks) {
		m.list = func(ctx context.Context, q keyQuery) ([]keyInfo, error) {
			if _, err := m.KeyStore.Key(ctx, q.After); err != nil {
				q.After = ""
			}
			return m.KeyStore.ListKeys(ctx, q)
		}
	})},
}

// keyListMutants have faults in ListKeys.
var keyListMutants = []mutant[AccountStore]{
	{"Newest is ignored", randomCalls, before(listOf, func(q *keyQuery) { q.Newest = false })},
	{"After is ignored", randomCalls, managerFixture(func(m *managerHooks) {
		calls := 0
		m.list = func(ctx context.Context, q keyQuery) ([]keyInfo, error) {
			if calls++; calls < 100 { // or the list would never end
				q.After = ""
			}
			return m.KeyStore.ListKeys(ctx, q)
		}
	})},
	{"a negative Limit lists nothing", randomCalls, after(listOf, func(q keyQuery, keys *[]keyInfo, _ *error) {
		if q.Limit < 0 {
			*keys = nil
		}
	})},
	{"Limit is ignored", randomCalls, before(listOf, func(q *keyQuery) { q.Limit = 0 })},
	{"pages have one key less", randomCalls, before(listOf, func(q *keyQuery) { q.Limit = max(q.Limit-1, 0) })},
	{"keys are sorted by ID", randomCalls, after(listOf, func(_ keyQuery, keys *[]keyInfo, _ *error) {
		slices.SortFunc(*keys, func(a, b keyInfo) int { return strings.Compare(a.ID, b.ID) })
	})},
	{"the account is ignored", randomCalls, before(listOf, func(q *keyQuery) { q.Account = "" })},

	{"case is not ignored", randomCalls, searchingKeys(func(k *keyInfo, search string) bool {
		return strings.Contains(strings.Join([]string{k.ID, k.Account, k.Name, k.Prefix}, "\n"), search)
	})},
	{"only names are searched", randomCalls, searchingKeys(func(k *keyInfo, search string) bool {
		return strings.Contains(strings.ToLower(k.Name), strings.ToLower(search))
	})},
	{"prefixes are not searched", randomCalls, searchingKeys(func(k *keyInfo, search string) bool {
		return strings.Contains(strings.TrimSuffix(keyTexts(k), strings.ToLower(k.Prefix)), strings.ToLower(search))
	})},
	{"only the beginning is compared", randomCalls, searchingKeys(func(k *keyInfo, search string) bool {
		return strings.Contains("\n"+keyTexts(k), "\n"+strings.ToLower(search))
	})},
	{"% matches any text", randomCalls, searchingKeys(func(k *keyInfo, search string) bool {
		return strings.Contains(keyTexts(k), strings.ToLower(strings.ReplaceAll(search, "%", "")))
	})},
	{"_ matches any character", randomCalls, searchingKeys(func(k *keyInfo, search string) bool {
		return strings.Contains(strings.Map(blank, keyTexts(k)), strings.Map(blank, strings.ToLower(search)))
	})},
	{"the status is ignored", randomCalls, before(listOf, func(q *keyQuery) { q.Status = "" })},
	{"expired keys are active", randomCalls, before(listOf, func(q *keyQuery) {
		if q.Status == manage.KeyExpired {
			q.Status = manage.KeyActive
		}
	})},
	{"the search is ignored", randomCalls, before(listOf, func(q *keyQuery) { q.Search = "" })},
}

// blank replaces the characters that the searches distinguish only if _ is not a wildcard.
func blank(r rune) rune {
	if strings.ContainsRune("_% ", r) {
		return '_'
	}
	return r
}

// withoutInvalid returns the scopes that are valid.
func withoutInvalid(scopes []llmhttp.Scope) []llmhttp.Scope {
	return slices.DeleteFunc(slices.Clone(scopes), func(s llmhttp.Scope) bool { return s.Validate() != nil })
}
