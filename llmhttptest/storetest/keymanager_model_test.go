package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/manage"
	"github.com/llmhttp/llmhttp/memory"
)

type (
	keyInfo       = manage.KeyInfo
	keyParams     = manage.KeyParams
	keyQuery      = manage.KeyQuery
	accountInfo   = manage.AccountInfo
	accountParams = manage.AccountParams
	accountQuery  = manage.AccountQuery
	creditEntry   = manage.CreditEntry
	creditQuery   = manage.CreditQuery
)

// managerHooks is a correct AccountStore. Mutants replace its functions.
type managerHooks struct {
	*memory.KeyStore

	lookup   func(ctx context.Context, secret string) (*llmhttp.Key, error)
	key      func(ctx context.Context, id string) (keyInfo, error)
	bySecret func(ctx context.Context, hash string) (keyInfo, time.Time, error)
	list     func(ctx context.Context, q keyQuery) ([]keyInfo, error)
	create   func(ctx context.Context, p keyParams) (keyInfo, string, error)
	update   func(ctx context.Context, id string, change func(*keyParams) error) (keyInfo, error)
	rotate   func(ctx context.Context, id string, overlap time.Duration) (keyInfo, string, error)
	revoke   func(ctx context.Context, id string) error

	account       func(ctx context.Context, id string) (accountInfo, error)
	accounts      func(ctx context.Context, q accountQuery) ([]accountInfo, error)
	createAccount func(ctx context.Context, id string, p accountParams) (accountInfo, error)
	updateAccount func(ctx context.Context, id string, change func(*accountParams) error) (accountInfo, error)
	addCredit     func(ctx context.Context, e creditEntry) (creditEntry, error)
	credit        func(ctx context.Context, q creditQuery) ([]creditEntry, error)
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
func (m *managerHooks) Account(ctx context.Context, id string) (accountInfo, error) {
	return m.account(ctx, id)
}
func (m *managerHooks) ListAccounts(ctx context.Context, q accountQuery) ([]accountInfo, error) {
	return m.accounts(ctx, q)
}
func (m *managerHooks) CreateAccount(ctx context.Context, id string, p accountParams) (accountInfo, error) {
	return m.createAccount(ctx, id, p)
}
func (m *managerHooks) UpdateAccount(ctx context.Context, id string, change func(*accountParams) error) (accountInfo, error) {
	return m.updateAccount(ctx, id, change)
}
func (m *managerHooks) AddCredit(ctx context.Context, e creditEntry) (creditEntry, error) {
	return m.addCredit(ctx, e)
}
func (m *managerHooks) ListCredit(ctx context.Context, q creditQuery) ([]creditEntry, error) {
	return m.credit(ctx, q)
}

// managerFixture returns a constructor of an AccountStore with a fault.
func managerFixture(fault func(*managerHooks)) func(testing.TB) AccountStore {
	return func(testing.TB) AccountStore {
		s := memory.NewKeyStore()
		m := &managerHooks{
			KeyStore: s, lookup: s.Lookup, key: s.Key, bySecret: s.KeyBySecret, list: s.ListKeys, create: s.CreateKey, update: s.UpdateKey, rotate: s.RotateKey, revoke: s.RevokeKey,
			account: s.Account, accounts: s.ListAccounts, createAccount: s.CreateAccount, updateAccount: s.UpdateAccount, addCredit: s.AddCredit, credit: s.ListCredit,
		}
		fault(m)
		return m
	}
}

func lookupOf(m *managerHooks) *func(context.Context, string) (*llmhttp.Key, error) { return &m.lookup }
func keyOf(m *managerHooks) *func(context.Context, string) (keyInfo, error)         { return &m.key }
func listOf(m *managerHooks) *func(context.Context, keyQuery) ([]keyInfo, error)    { return &m.list }
func accountOf(m *managerHooks) *func(context.Context, string) (accountInfo, error) {
	return &m.account
}
func accountsOf(m *managerHooks) *func(context.Context, accountQuery) ([]accountInfo, error) {
	return &m.accounts
}
func addCreditOf(m *managerHooks) *func(context.Context, creditEntry) (creditEntry, error) {
	return &m.addCredit
}
func creditOf(m *managerHooks) *func(context.Context, creditQuery) ([]creditEntry, error) {
	return &m.credit
}

// before returns a constructor of a store that changes the argument of a method.
func before[A, R any](method func(*managerHooks) *func(context.Context, A) (R, error), change func(a *A)) func(testing.TB) AccountStore {
	return managerFixture(func(m *managerHooks) {
		f := method(m)
		correct := *f
		*f = func(ctx context.Context, a A) (R, error) { change(&a); return correct(ctx, a) }
	})
}

// after returns a constructor of a store that changes the results of a method.
func after[A, R any](method func(*managerHooks) *func(context.Context, A) (R, error), change func(a A, r *R, err *error)) func(testing.TB) AccountStore {
	return managerFixture(func(m *managerHooks) {
		f := method(m)
		correct := *f
		*f = func(ctx context.Context, a A) (R, error) {
			r, err := correct(ctx, a)
			change(a, &r, &err)
			return r, err
		}
	})
}
