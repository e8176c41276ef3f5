package llmhttptest

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
	"github.com/llmhttp/llmhttp/memory"
)

func TestKeyManagerMutants(t *testing.T) {
	testMutants(t, nil, managerChecks, managerFixture(func(*managerHooks) {}), slices.Concat(keyChangeMutants, keyListMutants))
}

type (
	keyInfo   = manage.KeyInfo
	keyParams = manage.KeyParams
	keyQuery  = manage.KeyQuery
)

// managerHooks is a correct KeyManager. Mutants replace its functions.
type managerHooks struct {
	manage.KeyManager

	lookup   func(ctx context.Context, secret string) (*llmhttp.Key, error)
	key      func(ctx context.Context, id string) (keyInfo, error)
	bySecret func(ctx context.Context, hash string) (keyInfo, time.Time, error)
	list     func(ctx context.Context, q keyQuery) ([]keyInfo, error)
	create   func(ctx context.Context, p keyParams) (keyInfo, string, error)
	update   func(ctx context.Context, id string, change func(*keyParams) error) (keyInfo, error)
	rotate   func(ctx context.Context, id string, overlap time.Duration) (keyInfo, string, error)
	revoke   func(ctx context.Context, id string) error
}

func (m *managerHooks) Lookup(ctx context.Context, secret string) (*llmhttp.Key, error) {
	return m.lookup(ctx, secret)
}

func (m *managerHooks) Key(ctx context.Context, id string) (keyInfo, error) { return m.key(ctx, id) }

func (m *managerHooks) KeyBySecret(ctx context.Context, hash string) (keyInfo, time.Time, error) {
	return m.bySecret(ctx, hash)
}

func (m *managerHooks) ListKeys(ctx context.Context, q keyQuery) ([]keyInfo, error) {
	return m.list(ctx, q)
}

func (m *managerHooks) CreateKey(ctx context.Context, p keyParams) (keyInfo, string, error) {
	return m.create(ctx, p)
}

func (m *managerHooks) UpdateKey(ctx context.Context, id string, change func(*keyParams) error) (keyInfo, error) {
	return m.update(ctx, id, change)
}

func (m *managerHooks) RotateKey(ctx context.Context, id string, overlap time.Duration) (keyInfo, string, error) {
	return m.rotate(ctx, id, overlap)
}

func (m *managerHooks) RevokeKey(ctx context.Context, id string) error { return m.revoke(ctx, id) }

// managerFixture returns a constructor of a KeyManager with a fault.
func managerFixture(fault func(*managerHooks)) func(testing.TB) manage.KeyManager {
	return func(testing.TB) manage.KeyManager {
		s := memory.NewKeyStore()
		m := &managerHooks{
			KeyManager: s, lookup: s.Lookup, key: s.Key, bySecret: s.KeyBySecret, list: s.ListKeys, create: s.CreateKey, update: s.UpdateKey, rotate: s.RotateKey, revoke: s.RevokeKey,
		}
		fault(m)
		return m
	}
}

// foundBySecret returns a constructor of a store that changes what KeyBySecret returns.
func foundBySecret(change func(info *keyInfo, ends *time.Time, err *error)) func(testing.TB) manage.KeyManager {
	return managerFixture(func(m *managerHooks) {
		m.bySecret = func(ctx context.Context, hash string) (keyInfo, time.Time, error) {
			info, ends, err := m.KeyManager.KeyBySecret(ctx, hash)
			change(&info, &ends, &err)
			return info, ends, err
		}
	})
}

// creating returns a constructor of a store that changes the settings of new keys.
func creating(change func(p *keyParams)) func(testing.TB) manage.KeyManager {
	return managerFixture(func(m *managerHooks) {
		m.create = func(ctx context.Context, p keyParams) (keyInfo, string, error) {
			change(&p)
			return m.KeyManager.CreateKey(ctx, p)
		}
	})
}

// created returns a constructor of a store that changes what CreateKey returns.
func created(change func(info *keyInfo, secret *string)) func(testing.TB) manage.KeyManager {
	return managerFixture(func(m *managerHooks) {
		m.create = func(ctx context.Context, p keyParams) (keyInfo, string, error) {
			info, secret, err := m.KeyManager.CreateKey(ctx, p)
			change(&info, &secret)
			return info, secret, err
		}
	})
}

// updating returns a constructor of a store that calls wrap instead of change.
func updating(wrap func(p *keyParams, change func(*keyParams) error) error) func(testing.TB) manage.KeyManager {
	return managerFixture(func(m *managerHooks) {
		m.update = func(ctx context.Context, id string, change func(*keyParams) error) (keyInfo, error) {
			return m.KeyManager.UpdateKey(ctx, id, func(p *keyParams) error { return wrap(p, change) })
		}
	})
}

// rotating returns a constructor of a store with another overlap.
func rotating(overlap func(time.Duration) time.Duration) func(testing.TB) manage.KeyManager {
	return managerFixture(func(m *managerHooks) {
		m.rotate = func(ctx context.Context, id string, d time.Duration) (keyInfo, string, error) {
			return m.KeyManager.RotateKey(ctx, id, overlap(d))
		}
	})
}

// listingKeys returns a constructor of a store that changes queries.
func listingKeys(change func(q *keyQuery)) func(testing.TB) manage.KeyManager {
	return managerFixture(func(m *managerHooks) {
		m.list = func(ctx context.Context, q keyQuery) ([]keyInfo, error) {
			change(&q)
			return m.KeyManager.ListKeys(ctx, q)
		}
	})
}

// searchingKeys returns a constructor of a store that compares keys with the text of a
// search in another way.
func searchingKeys(match func(k *keyInfo, search string) bool) func(testing.TB) manage.KeyManager {
	return managerFixture(func(m *managerHooks) {
		m.list = func(ctx context.Context, q keyQuery) ([]keyInfo, error) {
			search := q.Search
			q.Search = ""
			keys, err := m.KeyManager.ListKeys(ctx, q)
			return slices.DeleteFunc(keys, func(k keyInfo) bool { return search != "" && !match(&k, search) }), err
		}
	})
}

// keyTexts returns the texts of a key that a search compares, in lower case.
func keyTexts(k *keyInfo) string {
	return strings.ToLower(strings.Join([]string{k.ID, k.Account, k.Name, k.Prefix}, "\n"))
}

// keyChangeMutants have faults in methods that change keys, or in Lookup.
var keyChangeMutants = []mutant[manage.KeyManager]{
	{"models are dropped", "CreatedKey", creating(func(p *keyParams) { p.Models = nil })},
	{"scopes are dropped", "CreatedKey", creating(func(p *keyParams) { p.Scopes = nil })},
	{"the name is dropped", "CreatedKey", creating(func(p *keyParams) { p.Name = "" })},
	{"the expiry is dropped", "CreatedKey", creating(func(p *keyParams) { p.Expires = time.Time{} })},
	{"limits are dropped", "CreatedKey", creating(func(p *keyParams) { p.Limits = llmhttp.Limits{} })},
	{"the secret is not that of the key", "CreatedKey", created(func(_ *keyInfo, secret *string) { *secret += "x" })},
	{"the prefix is the whole secret", "CreatedKey", created(func(info *keyInfo, secret *string) { info.Prefix = *secret })},
	{"a key without an account has none", "CreatedKey", created(func(info *keyInfo, _ *string) {
		if info.Account == info.ID {
			info.Account = ""
		}
	})},

	{"a change makes empty scopes nil", "NilAndEmptyLists", updating(func(p *keyParams, change func(*keyParams) error) error {
		p.Scopes = slices.Concat(p.Scopes)
		return change(p)
	})},
	{"a change makes nil models empty", "NilAndEmptyLists", updating(func(p *keyParams, change func(*keyParams) error) error {
		if p.Models == nil {
			p.Models = []string{}
		}
		return change(p)
	})},

	{"a refused change is stored", "UpdatedKey", managerFixture(func(m *managerHooks) {
		m.update = func(ctx context.Context, id string, change func(*keyParams) error) (keyInfo, error) {
			var refused error
			info, err := m.KeyManager.UpdateKey(ctx, id, func(p *keyParams) error { refused = change(p); return nil })
			return info, cmp.Or(refused, err)
		}
	})},
	{"the error of change is another", "UpdatedKey", updating(func(p *keyParams, change func(*keyParams) error) error {
		if change(p) != nil {
			return errors.New("invalid settings")
		}
		return nil
	})},
	{"new limits are not validated", "InvalidLimits", creating(func(p *keyParams) {
		if p.Limits.Validate() != nil {
			p.Limits = llmhttp.Limits{}
		}
	})},
	{"changed limits are not validated", "InvalidLimits", updating(func(p *keyParams, change func(*keyParams) error) error {
		limits := p.Limits
		err := change(p)
		if p.Limits.Validate() != nil {
			p.Limits = limits
		}
		return err
	})},
	{"limits are not updated", "UpdatedKey", updating(func(p *keyParams, change func(*keyParams) error) error {
		limits := p.Limits
		err := change(p)
		p.Limits = limits
		return err
	})},

	{"Lookup ignores Suspended", "SuspendedKey", managerFixture(func(m *managerHooks) {
		m.update = func(ctx context.Context, id string, change func(*keyParams) error) (keyInfo, error) {
			suspended := false
			info, err := m.KeyManager.UpdateKey(ctx, id, func(p *keyParams) error {
				err := change(p)
				suspended, p.Suspended = p.Suspended, false
				return err
			})
			info.Suspended = suspended
			return info, err
		}
	})},
	{"Lookup keeps what it has found", "SuspendedKey", managerFixture(func(m *managerHooks) {
		var cache sync.Map
		m.lookup = func(ctx context.Context, secret string) (*llmhttp.Key, error) {
			if found, ok := cache.Load(secret); ok {
				return found.(*llmhttp.Key), nil
			}
			key, err := m.KeyManager.Lookup(ctx, secret)
			if err == nil {
				cache.Store(secret, key)
			}
			return key, err
		}
	})},

	{"there is no overlap", "RotatedKey", rotating(func(d time.Duration) time.Duration { return min(d, 0) })},
	{"the overlap is at least an hour", "RotatedKey", rotating(func(d time.Duration) time.Duration {
		if d < 0 {
			return d
		}
		return max(d, time.Hour)
	})},
	{"a negative overlap is zero", "RotatedKey", rotating(func(d time.Duration) time.Duration { return max(d, 0) })},
	{"a rotation is a new key", "RotatedKey", managerFixture(func(m *managerHooks) {
		m.rotate = func(ctx context.Context, id string, d time.Duration) (keyInfo, string, error) {
			if d < 0 {
				return keyInfo{}, "", errors.New("negative overlap")
			}
			old, err := m.KeyManager.Key(ctx, id)
			if err != nil {
				return keyInfo{}, "", err
			}
			return m.KeyManager.CreateKey(ctx, old.Params())
		}
	})},

	{"the end of a secret is that of its key", "KeyBySecret", foundBySecret(func(info *keyInfo, ends *time.Time, _ *error) { *ends = info.Expires })},
	{"secrets have no end", "KeyBySecret", foundBySecret(func(_ *keyInfo, ends *time.Time, _ *error) { *ends = time.Time{} })},
	{"a missing secret has another error", "KeyBySecret", foundBySecret(func(_ *keyInfo, _ *time.Time, err *error) {
		if *err != nil {
			*err = errNoRows
		}
	})},
	{"revoked keys have no secrets", "KeyBySecret", foundBySecret(func(info *keyInfo, _ *time.Time, err *error) {
		if !info.Revoked.IsZero() {
			*err = llmhttp.ErrKeyNotFound
		}
	})},
	{"the expiry is that of the secret", "KeyBySecret", foundBySecret(func(info *keyInfo, ends *time.Time, _ *error) { info.Expires = *ends })},
	{"KeyBySecret is a use of the key", "KeyBySecret", foundBySecret(func(info *keyInfo, _ *time.Time, _ *error) { info.LastUsed = time.Now() })},
	{"secrets are cached", "KeyBySecret", managerFixture(func(m *managerHooks) {
		found := make(map[string]keyInfo)
		m.bySecret = func(ctx context.Context, hash string) (keyInfo, time.Time, error) {
			info, ends, err := m.KeyManager.KeyBySecret(ctx, hash)
			if cached, ok := found[hash]; ok && err != nil {
				return cached, time.Time{}, nil
			}
			if err == nil {
				found[hash] = info
			}
			return info, ends, err
		}
	})},

	{"a revoked key is suspended", "RevokedKey", managerFixture(func(m *managerHooks) {
		m.revoke = func(ctx context.Context, id string) error {
			_, err := m.KeyManager.UpdateKey(ctx, id, func(p *keyParams) error { p.Suspended = true; return nil })
			return err
		}
	})},
	{"revoking again is an error", "RevokedKey", managerFixture(func(m *managerHooks) {
		m.revoke = func(ctx context.Context, id string) error {
			if info, err := m.KeyManager.Key(ctx, id); err == nil && !info.Revoked.IsZero() {
				return manage.ErrKeyRevoked
			}
			return m.KeyManager.RevokeKey(ctx, id)
		}
	})},
	{"changing a revoked key succeeds", "RevokedKey", managerFixture(func(m *managerHooks) {
		m.update = func(ctx context.Context, id string, change func(*keyParams) error) (keyInfo, error) {
			info, err := m.KeyManager.UpdateKey(ctx, id, change)
			if errors.Is(err, manage.ErrKeyRevoked) {
				err = nil
			}
			return info, err
		}
	})},
	{"a revoked key is deleted", "RevokedKey", managerFixture(func(m *managerHooks) {
		m.key = func(ctx context.Context, id string) (keyInfo, error) {
			info, err := m.KeyManager.Key(ctx, id)
			if !info.Revoked.IsZero() {
				return keyInfo{}, llmhttp.ErrKeyNotFound
			}
			return info, err
		}
	})},

	{"a missing key has another error", "UnknownKey", managerFixture(func(m *managerHooks) {
		m.key = func(ctx context.Context, id string) (keyInfo, error) {
			info, err := m.KeyManager.Key(ctx, id)
			if err != nil {
				err = errNoRows
			}
			return info, err
		}
	})},
	{"revoking a missing key succeeds", "UnknownKey", managerFixture(func(m *managerHooks) {
		m.revoke = func(ctx context.Context, id string) error {
			_ = m.KeyManager.RevokeKey(ctx, id)
			return nil
		}
	})},
	{"a missing After begins the list", "UnknownKey", managerFixture(func(m *managerHooks) {
		m.list = func(ctx context.Context, q keyQuery) ([]keyInfo, error) {
			if _, err := m.KeyManager.Key(ctx, q.After); err != nil {
				q.After = ""
			}
			return m.KeyManager.ListKeys(ctx, q)
		}
	})},
}

// keyListMutants have faults in ListKeys.
var keyListMutants = []mutant[manage.KeyManager]{
	{"Newest is ignored", "Pages", listingKeys(func(q *keyQuery) { q.Newest = false })},
	{"After is ignored", "Pages", managerFixture(func(m *managerHooks) {
		calls := 0
		m.list = func(ctx context.Context, q keyQuery) ([]keyInfo, error) {
			if calls++; calls < 100 { // or the list would never end
				q.After = ""
			}
			return m.KeyManager.ListKeys(ctx, q)
		}
	})},
	{"a negative Limit lists nothing", "Pages", managerFixture(func(m *managerHooks) {
		m.list = func(ctx context.Context, q keyQuery) ([]keyInfo, error) {
			if q.Limit < 0 {
				return nil, nil
			}
			return m.KeyManager.ListKeys(ctx, q)
		}
	})},
	{"Limit is ignored", "Pages", listingKeys(func(q *keyQuery) { q.Limit = 0 })},
	{"pages have one key less", "Pages", listingKeys(func(q *keyQuery) { q.Limit = max(q.Limit-1, 0) })},
	{"keys are sorted by ID", "Pages", managerFixture(func(m *managerHooks) {
		m.list = func(ctx context.Context, q keyQuery) ([]keyInfo, error) {
			keys, err := m.KeyManager.ListKeys(ctx, q)
			slices.SortFunc(keys, func(a, b keyInfo) int { return strings.Compare(a.ID, b.ID) })
			return keys, err
		}
	})},
	{"the account is ignored", "Pages", listingKeys(func(q *keyQuery) { q.Account = "" })},

	{"case is not ignored", "Search", searchingKeys(func(k *keyInfo, search string) bool {
		return strings.Contains(strings.Join([]string{k.ID, k.Account, k.Name, k.Prefix}, "\n"), search)
	})},
	{"only names are searched", "Search", searchingKeys(func(k *keyInfo, search string) bool {
		return strings.Contains(strings.ToLower(k.Name), strings.ToLower(search))
	})},
	{"prefixes are not searched", "Search", searchingKeys(func(k *keyInfo, search string) bool {
		return strings.Contains(strings.TrimSuffix(keyTexts(k), strings.ToLower(k.Prefix)), strings.ToLower(search))
	})},
	{"only the beginning is compared", "Search", searchingKeys(func(k *keyInfo, search string) bool {
		return strings.Contains("\n"+keyTexts(k), "\n"+strings.ToLower(search))
	})},
	{"% matches any text", "Search", searchingKeys(func(k *keyInfo, search string) bool {
		return strings.Contains(keyTexts(k), strings.ToLower(strings.ReplaceAll(search, "%", "")))
	})},
	{"_ matches any character", "Search", searchingKeys(func(k *keyInfo, search string) bool {
		return strings.Contains(strings.Map(blank, keyTexts(k)), strings.Map(blank, strings.ToLower(search)))
	})},
	{"the status is ignored", "Search", listingKeys(func(q *keyQuery) { q.Status = "" })},
	{"expired keys are active", "Search", listingKeys(func(q *keyQuery) {
		if q.Status == manage.KeyExpired {
			q.Status = manage.KeyActive
		}
	})},
	{"the search is ignored", "Search", listingKeys(func(q *keyQuery) { q.Search = "" })},
}

// blank replaces the characters that the searches of the check distinguish only if _ is
// not a wildcard.
func blank(r rune) rune {
	if strings.ContainsRune("_% ", r) {
		return '_'
	}
	return r
}
