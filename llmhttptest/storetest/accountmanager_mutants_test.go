package storetest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llmhttptest/internal/kit"
	"github.com/llmhttp/llmhttp/manage"
)

func TestAccountManagerMutants(t *testing.T) {
	testMutants(t, accountSequences.Run, accountChecks, managerFixture(func(*managerHooks) {}), slices.Concat(accountMutants, creditMutants))
}

// foundKey returns a constructor of a store that changes what Lookup returns.
func foundKey(change func(k *llmhttp.Key)) func(testing.TB) AccountStore {
	return after(lookupOf, func(_ string, key **llmhttp.Key, err *error) {
		if *err == nil {
			changed := **key
			change(&changed)
			*key = &changed
		}
	})
}

// storingAccounts returns a constructor of a store that changes settings before it stores them.
func storingAccounts(change func(p *accountParams)) func(testing.TB) AccountStore {
	return managerFixture(func(m *managerHooks) {
		m.createAccount = func(ctx context.Context, id string, p accountParams) (accountInfo, error) {
			change(&p)
			return m.KeyStore.CreateAccount(ctx, id, p)
		}
		m.updateAccount = func(ctx context.Context, id string, f func(*accountParams) error) (accountInfo, error) {
			return m.KeyStore.UpdateAccount(ctx, id, func(p *accountParams) error {
				err := f(p)
				change(p)
				return err
			})
		}
	})
}

// addingCredit returns a constructor of a store with another AddCredit.
func addingCredit(add func(m *managerHooks, e creditEntry) (creditEntry, error)) func(testing.TB) AccountStore {
	return managerFixture(func(m *managerHooks) {
		m.addCredit = func(_ context.Context, e creditEntry) (creditEntry, error) { return add(m, e) }
	})
}

// accountMutants have faults in settings of accounts, or in Lookup.
var accountMutants = []mutant[AccountStore]{
	{"limits are dropped", randomCalls, storingAccounts(func(p *accountParams) { p.Limits.Tokens = llmhttp.Rate{} })},
	{"limits of end users are dropped", randomCalls, storingAccounts(func(p *accountParams) { p.PerUser.Concurrent = 0 })},
	{"labels are dropped", randomCalls, storingAccounts(func(p *accountParams) { p.Labels = nil })},
	{"no account is prepaid", randomCalls, storingAccounts(func(p *accountParams) { p.Prepaid = false })},
	{"no account is suspended", randomCalls, storingAccounts(func(p *accountParams) { p.Suspended = false })},
	{"an account that exists is replaced", randomCalls, managerFixture(func(m *managerHooks) {
		m.createAccount = func(ctx context.Context, id string, p accountParams) (accountInfo, error) {
			info, err := m.KeyStore.CreateAccount(ctx, id, p)
			if errors.Is(err, manage.ErrAccountExists) {
				return m.KeyStore.UpdateAccount(ctx, id, func(stored *accountParams) error { *stored = p; return nil })
			}
			return info, err
		}
	})},
	{"Lookup returns no subject", randomCalls, foundKey(func(k *llmhttp.Key) { k.Subjects = nil })},
	{"Lookup returns no limits of end users", randomCalls, foundKey(func(k *llmhttp.Key) { k.PerUser = llmhttp.Limits{} })},
	{"Lookup returns no labels", randomCalls, foundKey(func(k *llmhttp.Key) { k.Labels = nil })},
	{"Lookup adds the limits of the account to those of the key", randomCalls, foundKey(func(k *llmhttp.Key) {
		if len(k.Subjects) > 0 {
			k.Limits = k.Subjects[0].Limits
		}
	})},
	{"Lookup keeps what it has found", randomCalls, managerFixture(cacheLookups)},
	{"the status is ignored", randomCalls, before(accountsOf, func(q *accountQuery) { q.Status = "" })},
	{"the order is ignored", randomCalls, before(accountsOf, func(q *accountQuery) { q.Newest = false })},
	{"there is one page", randomCalls, before(accountsOf, func(q *accountQuery) { q.After = "" })},
	{"the limit is ignored", randomCalls, before(accountsOf, func(q *accountQuery) { q.Limit = 0 })},
	{"the search is case-sensitive", randomCalls, after(accountsOf, func(q accountQuery, page *[]accountInfo, _ *error) {
		*page = slices.DeleteFunc(*page, func(a accountInfo) bool { return !strings.Contains(a.ID+"\n"+a.Name, q.Search) })
	})},

	{"new settings are not validated", randomCalls, managerFixture(func(m *managerHooks) {
		m.createAccount = func(ctx context.Context, id string, p accountParams) (accountInfo, error) {
			if p.Validate() != nil {
				p = accountParams{}
			}
			return m.KeyStore.CreateAccount(ctx, id, p)
		}
	})},
	{"changed settings are not validated", randomCalls, storingAccounts(func(p *accountParams) {
		if p.Validate() != nil {
			*p = accountParams{}
		}
	})},
	{"an account may have any ID", randomCalls, managerFixture(func(m *managerHooks) {
		m.createAccount = func(ctx context.Context, id string, p accountParams) (accountInfo, error) {
			if id == "" {
				id = kit.Unique("account")
			}
			return m.KeyStore.CreateAccount(ctx, id, p)
		}
	})},
	{"IDs are case-insensitive", randomCalls, managerFixture(func(m *managerHooks) {
		m.createAccount = func(ctx context.Context, id string, p accountParams) (accountInfo, error) {
			return m.KeyStore.CreateAccount(ctx, strings.ToLower(id), p)
		}
	})},
	{"an unknown account is empty", randomCalls, after(accountOf, func(id string, info *accountInfo, err *error) {
		if *err != nil {
			*info, *err = accountInfo{ID: id}, nil
		}
	})},
	{"changes are lost", "ConcurrentChanges", managerFixture(func(m *managerHooks) {
		m.updateAccount = func(ctx context.Context, id string, change func(*accountParams) error) (accountInfo, error) {
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
	{"an entry counts each time", randomCalls, managerFixture(func(m *managerHooks) {
		var seen sync.Map
		m.addCredit = func(ctx context.Context, e creditEntry) (creditEntry, error) {
			if _, again := seen.LoadOrStore(e, true); again {
				e.ID = kit.Unique(e.ID)
			}
			return m.KeyStore.AddCredit(ctx, e)
		}
	})},
	{"another entry with a known ID is ignored", randomCalls, after(addCreditOf, func(e creditEntry, added *creditEntry, err *error) {
		if errors.Is(*err, manage.ErrCreditConflict) {
			*added, *err = e, nil
		}
	})},
	{"the note is dropped", randomCalls, before(addCreditOf, func(e *creditEntry) { e.Note = "" })},
	{"corrections do not count", randomCalls, before(addCreditOf, func(e *creditEntry) { e.Amount = max(e.Amount, 1) })},
	{"the order of entries is ignored", randomCalls, before(creditOf, func(q *creditQuery) { q.Newest = false })},
	{"entries have one page", randomCalls, before(creditOf, func(q *creditQuery) { q.After = "" })},
	{"entries have no limit", randomCalls, before(creditOf, func(q *creditQuery) { q.Limit = 0 })},
	{"an amount of zero is a correction", randomCalls, addingCredit(func(m *managerHooks, e creditEntry) (creditEntry, error) {
		if e.Amount == 0 {
			return e, nil
		}
		return m.KeyStore.AddCredit(context.Background(), e)
	})},
	{"the sum is the nearest that fits", randomCalls, addingCredit(func(m *managerHooks, e creditEntry) (creditEntry, error) {
		info, _ := m.KeyStore.Account(context.Background(), e.Account)
		e.Amount = info.Credit.Add(e.Amount).Sub(info.Credit)
		if e.Amount == 0 {
			return e, nil
		}
		return m.KeyStore.AddCredit(context.Background(), e)
	})},
	{"an entry of another account is a page's last", randomCalls, after(creditOf, func(_ creditQuery, _ *[]creditEntry, err *error) {
		if errors.Is(*err, manage.ErrCreditNotFound) {
			*err = nil
		}
	})},
	{"credit of an unknown account creates it", randomCalls, addingCredit(func(m *managerHooks, e creditEntry) (creditEntry, error) {
		_, _ = m.KeyStore.CreateAccount(context.Background(), e.Account, accountParams{})
		return m.KeyStore.AddCredit(context.Background(), e)
	})},
	{"the same entry twice at a time counts twice", "ConcurrentChanges", addingCredit(func(m *managerHooks, e creditEntry) (creditEntry, error) {
		entries, _ := m.KeyStore.ListCredit(context.Background(), creditQuery{Account: e.Account})
		time.Sleep(time.Millisecond)
		if !slices.ContainsFunc(entries, func(added creditEntry) bool { return added.ID == e.ID }) {
			id := e.ID
			e.ID = kit.Unique(id)
			added, err := m.KeyStore.AddCredit(context.Background(), e)
			added.ID = id
			return added, err
		}
		return m.KeyStore.AddCredit(context.Background(), e)
	})},
}
