package llmhttptest

import (
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

func TestAccountManagerMutants(t *testing.T) {
	testMutants(t, nil, accountChecks, accountFixture(func(*accountHooks) {}), slices.Concat(accountMutants, creditMutants))
}

type (
	accountInfo   = manage.AccountInfo
	accountParams = manage.AccountParams
	creditEntry   = manage.CreditEntry
)

// accountHooks is a correct AccountStore. Mutants replace its functions.
type accountHooks struct {
	*memory.KeyStore

	lookup func(ctx context.Context, secret string) (*llmhttp.Key, error)
	info   func(ctx context.Context, id string) (accountInfo, error)
	list   func(ctx context.Context, q manage.AccountQuery) ([]accountInfo, error)
	create func(ctx context.Context, id string, p accountParams) (accountInfo, error)
	update func(ctx context.Context, id string, change func(*accountParams) error) (accountInfo, error)
	add    func(ctx context.Context, e creditEntry) (creditEntry, error)
	credit func(ctx context.Context, q manage.CreditQuery) ([]creditEntry, error)
}

func (m *accountHooks) Lookup(ctx context.Context, secret string) (*llmhttp.Key, error) {
	return m.lookup(ctx, secret)
}

func (m *accountHooks) Account(ctx context.Context, id string) (accountInfo, error) {
	return m.info(ctx, id)
}

func (m *accountHooks) ListAccounts(ctx context.Context, q manage.AccountQuery) ([]accountInfo, error) {
	return m.list(ctx, q)
}

func (m *accountHooks) CreateAccount(ctx context.Context, id string, p accountParams) (accountInfo, error) {
	return m.create(ctx, id, p)
}

func (m *accountHooks) UpdateAccount(ctx context.Context, id string, change func(*accountParams) error) (accountInfo, error) {
	return m.update(ctx, id, change)
}

func (m *accountHooks) AddCredit(ctx context.Context, e creditEntry) (creditEntry, error) {
	return m.add(ctx, e)
}

func (m *accountHooks) ListCredit(ctx context.Context, q manage.CreditQuery) ([]creditEntry, error) {
	return m.credit(ctx, q)
}

// accountFixture returns a constructor of an AccountStore with a fault.
func accountFixture(fault func(*accountHooks)) func(testing.TB) AccountStore {
	return func(testing.TB) AccountStore {
		s := memory.NewKeyStore()
		m := &accountHooks{
			KeyStore: s, lookup: s.Lookup, info: s.Account, list: s.ListAccounts, create: s.CreateAccount, update: s.UpdateAccount, add: s.AddCredit, credit: s.ListCredit,
		}
		fault(m)
		return m
	}
}

// foundKey returns a constructor of a store that changes what Lookup returns.
func foundKey(change func(k *llmhttp.Key)) func(testing.TB) AccountStore {
	return accountFixture(func(m *accountHooks) {
		m.lookup = func(ctx context.Context, secret string) (*llmhttp.Key, error) {
			key, err := m.KeyStore.Lookup(ctx, secret)
			if err != nil {
				return nil, err
			}
			changed := *key
			change(&changed)
			return &changed, nil
		}
	})
}

// storingAccounts returns a constructor of a store that changes settings before it stores them.
func storingAccounts(change func(p *accountParams)) func(testing.TB) AccountStore {
	return accountFixture(func(m *accountHooks) {
		m.create = func(ctx context.Context, id string, p accountParams) (accountInfo, error) {
			change(&p)
			return m.KeyStore.CreateAccount(ctx, id, p)
		}
		m.update = func(ctx context.Context, id string, f func(*accountParams) error) (accountInfo, error) {
			return m.KeyStore.UpdateAccount(ctx, id, func(p *accountParams) error {
				err := f(p)
				change(p)
				return err
			})
		}
	})
}

// listingAccounts returns a constructor of a store that changes queries.
func listingAccounts(change func(q *manage.AccountQuery)) func(testing.TB) AccountStore {
	return accountFixture(func(m *accountHooks) {
		m.list = func(ctx context.Context, q manage.AccountQuery) ([]accountInfo, error) {
			change(&q)
			return m.KeyStore.ListAccounts(ctx, q)
		}
	})
}

// addingCredit returns a constructor of a store with another AddCredit.
func addingCredit(add func(m *accountHooks, e creditEntry) (creditEntry, error)) func(testing.TB) AccountStore {
	return accountFixture(func(m *accountHooks) {
		m.add = func(_ context.Context, e creditEntry) (creditEntry, error) { return add(m, e) }
	})
}

// listingCredit returns a constructor of a store that changes queries of credit.
func listingCredit(change func(q *manage.CreditQuery)) func(testing.TB) AccountStore {
	return accountFixture(func(m *accountHooks) {
		m.credit = func(ctx context.Context, q manage.CreditQuery) ([]creditEntry, error) {
			change(&q)
			return m.KeyStore.ListCredit(ctx, q)
		}
	})
}

// accountMutants have faults in settings of accounts, or in Lookup.
var accountMutants = []mutant[AccountStore]{
	{"limits are dropped", "RandomChanges", storingAccounts(func(p *accountParams) { p.Limits.Tokens = llmhttp.Rate{} })},
	{"limits of end users are dropped", "RandomChanges", storingAccounts(func(p *accountParams) { p.PerUser.Concurrent = 0 })},
	{"labels are dropped", "RandomChanges", storingAccounts(func(p *accountParams) { p.Labels = nil })},
	{"no account is prepaid", "RandomChanges", storingAccounts(func(p *accountParams) { p.Prepaid = false })},
	{"no account is suspended", "RandomChanges", storingAccounts(func(p *accountParams) { p.Suspended = false })},
	{"an account that exists is replaced", "RandomChanges", accountFixture(func(m *accountHooks) {
		m.create = func(ctx context.Context, id string, p accountParams) (accountInfo, error) {
			info, err := m.KeyStore.CreateAccount(ctx, id, p)
			if errors.Is(err, manage.ErrAccountExists) {
				return m.KeyStore.UpdateAccount(ctx, id, func(stored *accountParams) error { *stored = p; return nil })
			}
			return info, err
		}
	})},
	{"Lookup returns no subject", "RandomChanges", foundKey(func(k *llmhttp.Key) { k.Subjects = nil })},
	{"Lookup returns no limits of end users", "RandomChanges", foundKey(func(k *llmhttp.Key) { k.PerUser = llmhttp.Limits{} })},
	{"Lookup returns no labels", "RandomChanges", foundKey(func(k *llmhttp.Key) { k.Labels = nil })},
	{"Lookup adds the limits of the account to those of the key", "RandomChanges", foundKey(func(k *llmhttp.Key) {
		if len(k.Subjects) > 0 {
			k.Limits = k.Subjects[0].Limits
		}
	})},
	{"Lookup keeps what it has found", "RandomChanges", accountFixture(func(m *accountHooks) {
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
	})},
	{"the status is ignored", "RandomChanges", listingAccounts(func(q *manage.AccountQuery) { q.Status = "" })},
	{"the order is ignored", "RandomChanges", listingAccounts(func(q *manage.AccountQuery) { q.Newest = false })},
	{"there is one page", "RandomChanges", listingAccounts(func(q *manage.AccountQuery) { q.After = "" })},
	{"the limit is ignored", "RandomChanges", listingAccounts(func(q *manage.AccountQuery) { q.Limit = 0 })},
	{"the search is case-sensitive", "RandomChanges", accountFixture(func(m *accountHooks) {
		m.list = func(ctx context.Context, q manage.AccountQuery) ([]accountInfo, error) {
			page, err := m.KeyStore.ListAccounts(ctx, q)
			return slices.DeleteFunc(page, func(a accountInfo) bool { return !strings.Contains(a.ID+"\n"+a.Name, q.Search) }), err
		}
	})},

	{"new settings are not validated", "Mistakes", accountFixture(func(m *accountHooks) {
		m.create = func(ctx context.Context, id string, p accountParams) (accountInfo, error) {
			if p.Validate() != nil {
				p = accountParams{}
			}
			return m.KeyStore.CreateAccount(ctx, id, p)
		}
	})},
	{"changed settings are not validated", "Mistakes", storingAccounts(func(p *accountParams) {
		if p.Validate() != nil {
			*p = accountParams{}
		}
	})},
	{"an account may have any ID", "Mistakes", accountFixture(func(m *accountHooks) {
		m.create = func(ctx context.Context, id string, p accountParams) (accountInfo, error) {
			if id == "" {
				id = unique("account")
			}
			return m.KeyStore.CreateAccount(ctx, id, p)
		}
	})},
	{"IDs are case-insensitive", "Texts", accountFixture(func(m *accountHooks) {
		m.create = func(ctx context.Context, id string, p accountParams) (accountInfo, error) {
			return m.KeyStore.CreateAccount(ctx, strings.ToLower(id), p)
		}
	})},
	{"an unknown account is empty", "UnknownAccount", accountFixture(func(m *accountHooks) {
		m.info = func(ctx context.Context, id string) (accountInfo, error) {
			info, err := m.KeyStore.Account(ctx, id)
			if err != nil {
				return accountInfo{ID: id}, nil
			}
			return info, nil
		}
	})},
	{"changes are lost", "ConcurrentChanges", accountFixture(func(m *accountHooks) {
		m.update = func(ctx context.Context, id string, change func(*accountParams) error) (accountInfo, error) {
			info, err := m.KeyStore.Account(ctx, id)
			if err != nil {
				return accountInfo{}, err
			}
			if err := change(&info.AccountParams); err != nil {
				return accountInfo{}, err
			}
			time.Sleep(time.Millisecond)
			return m.KeyStore.UpdateAccount(ctx, id, func(p *accountParams) error { *p = info.AccountParams; return nil })
		}
	})},
}

// creditMutants have faults in the credit of accounts.
var creditMutants = []mutant[AccountStore]{
	{"an entry counts each time", "RandomChanges", accountFixture(func(m *accountHooks) {
		var seen sync.Map
		m.add = func(ctx context.Context, e creditEntry) (creditEntry, error) {
			if _, again := seen.LoadOrStore(e, true); again {
				e.ID = unique(e.ID)
			}
			return m.KeyStore.AddCredit(ctx, e)
		}
	})},
	{"another entry with a known ID is ignored", "RandomChanges", addingCredit(func(m *accountHooks, e creditEntry) (creditEntry, error) {
		added, err := m.KeyStore.AddCredit(context.Background(), e)
		if errors.Is(err, manage.ErrCreditConflict) {
			return e, nil
		}
		return added, err
	})},
	{"the note is dropped", "RandomChanges", addingCredit(func(m *accountHooks, e creditEntry) (creditEntry, error) {
		e.Note = ""
		return m.KeyStore.AddCredit(context.Background(), e)
	})},
	{"corrections do not count", "RandomChanges", addingCredit(func(m *accountHooks, e creditEntry) (creditEntry, error) {
		e.Amount = max(e.Amount, 1)
		return m.KeyStore.AddCredit(context.Background(), e)
	})},
	{"the order of entries is ignored", "RandomChanges", listingCredit(func(q *manage.CreditQuery) { q.Newest = false })},
	{"entries have one page", "RandomChanges", listingCredit(func(q *manage.CreditQuery) { q.After = "" })},
	{"entries have no limit", "RandomChanges", listingCredit(func(q *manage.CreditQuery) { q.Limit = 0 })},
	{"an amount of zero is a correction", "Mistakes", addingCredit(func(m *accountHooks, e creditEntry) (creditEntry, error) {
		if e.Amount == 0 {
			return e, nil
		}
		return m.KeyStore.AddCredit(context.Background(), e)
	})},
	{"the sum is the nearest that fits", "SumOfCredit", addingCredit(func(m *accountHooks, e creditEntry) (creditEntry, error) {
		info, _ := m.KeyStore.Account(context.Background(), e.Account)
		e.Amount = info.Credit.Add(e.Amount).Sub(info.Credit)
		if e.Amount == 0 {
			return e, nil
		}
		return m.KeyStore.AddCredit(context.Background(), e)
	})},
	{"an entry of another account is a page's last", "UnknownAccount", accountFixture(func(m *accountHooks) {
		m.credit = func(ctx context.Context, q manage.CreditQuery) ([]creditEntry, error) {
			page, err := m.KeyStore.ListCredit(ctx, q)
			if errors.Is(err, manage.ErrCreditNotFound) {
				return nil, nil
			}
			return page, err
		}
	})},
	{"credit of an unknown account creates it", "UnknownAccount", addingCredit(func(m *accountHooks, e creditEntry) (creditEntry, error) {
		_, _ = m.KeyStore.CreateAccount(context.Background(), e.Account, accountParams{})
		return m.KeyStore.AddCredit(context.Background(), e)
	})},
	{"the same entry twice at a time counts twice", "ConcurrentChanges", addingCredit(func(m *accountHooks, e creditEntry) (creditEntry, error) {
		entries, _ := m.KeyStore.ListCredit(context.Background(), manage.CreditQuery{Account: e.Account})
		time.Sleep(time.Millisecond)
		if !slices.ContainsFunc(entries, func(added creditEntry) bool { return added.ID == e.ID }) {
			id := e.ID
			e.ID = unique(id)
			added, err := m.KeyStore.AddCredit(context.Background(), e)
			added.ID = id
			return added, err
		}
		return m.KeyStore.AddCredit(context.Background(), e)
	})},
}
