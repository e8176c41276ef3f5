// TestAccountManager and its checks.

package storetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/internal/ascii"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/llmhttptest/internal/kit"
	"github.com/llmhttp/llmhttp/manage"
)

// An AccountStore keeps accounts, and the keys that they limit.
type AccountStore interface {
	manage.AccountManager
	manage.KeyManager
}

// TestAccountManager tests a [manage.AccountManager], and what its accounts change in the Keys
// that Lookup returns. It calls newStore once for each subtest. Test the store with
// [TestKeyManager] too.
func TestAccountManager(t *testing.T, newStore func(t testing.TB) AccountStore) {
	t.Helper()
	kit.Run(t, accountSequences, accountChecks, newStore)
}

var accountChecks = []kit.Check[AccountStore]{
	{"ConcurrentChanges", checkAccountConcurrent},
}

// account returns the account with an ID, or nil.
func (m *managerTest) account(id string) *manage.AccountInfo {
	i := slices.IndexFunc(m.accounts, func(a *manage.AccountInfo) bool { return a.ID == id })
	if i < 0 {
		return nil
	}
	return m.accounts[i]
}

// unknownAccount returns ErrAccountNotFound if a is nil.
func unknownAccount(a *manage.AccountInfo) error {
	if a == nil {
		return manage.ErrAccountNotFound
	}
	return nil
}

// accountParams returns settings that the caller may keep.
func (m *managerTest) accountParams(p manage.AccountParams) manage.AccountParams {
	p.Name, p.Labels = m.text(p.Name), slices.Clone(p.Labels)
	return p
}

// wantAccount reports an error unless got is what the store should have of an account. It then
// overwrites the Labels of got, which belong to the caller.
func (m *managerTest) wantAccount(method string, got manage.AccountInfo, want *manage.AccountInfo) {
	m.Helper()
	m.wantAccountParams(method, got.AccountParams, want.AccountParams)
	clear(got.Labels)
	got.AccountParams = want.AccountParams
	kit.WantSame(m, method, got, *want)
}

func (m *managerTest) wantAccountParams(method string, got, want manage.AccountParams) {
	m.Helper()
	got.Labels, want.Labels = normalLabels(got.Labels), normalLabels(want.Labels)
	kit.WantSame(m, method, got, want)
}

// normalLabels returns a sorted copy of labels, which is nil if there are none.
func normalLabels(labels []llmhttp.Label) []llmhttp.Label {
	if len(labels) == 0 {
		return nil
	}
	return slices.SortedFunc(slices.Values(labels), func(a, b llmhttp.Label) int { return strings.Compare(a.Name, b.Name) })
}

type createAccount struct {
	Account string
	manage.AccountParams
}

func (c createAccount) call(m *managerTest) {
	id := m.text(c.Account)
	time.Sleep(time.Microsecond) // so that no two have the same time
	got, err := m.CreateAccount(m.Context(), id, m.accountParams(c.AccountParams))
	info, want := manage.AccountInfo{ID: id, AccountParams: m.accountParams(c.AccountParams), Created: got.Created}, error(nil)
	switch subject := info.Subject(); {
	case subject.ID.Validate() != nil, info.Validate() != nil:
		want = errAny
	case m.account(id) != nil:
		want = manage.ErrAccountExists
	}
	if m.failed("CreateAccount", err, want) {
		return
	}
	if got.Created.IsZero() {
		kit.Wrong(m, "CreateAccount", "no Created", "the time")
	}
	m.accounts = append(m.accounts, &info)
	m.wantAccount("CreateAccount", got, &info)
}

type updateAccount struct {
	Account string
	Refused bool // change returns an error
	manage.AccountParams
}

func (c updateAccount) call(m *managerTest) {
	a, params := m.account(m.text(c.Account)), m.accountParams(c.AccountParams)
	got, err := m.UpdateAccount(m.Context(), m.text(c.Account), func(stored *manage.AccountParams) error {
		if a != nil {
			m.wantAccountParams("change", *stored, a.AccountParams)
		}
		*stored = m.accountParams(c.AccountParams)
		if c.Refused {
			return errRefused
		}
		return nil
	})
	want := unknownAccount(a)
	if want == nil && c.Refused {
		want = errRefused
	} else if want == nil && params.Validate() != nil {
		want = errAny
	}
	if !m.failed("UpdateAccount", err, want) {
		a.AccountParams = params
		m.wantAccount("UpdateAccount", got, a)
	}
}

type readAccount struct{ Account string }

func (c readAccount) call(m *managerTest) {
	a := m.account(m.text(c.Account))
	got, err := m.Account(m.Context(), m.text(c.Account))
	if !m.failed("Account", err, unknownAccount(a)) {
		m.wantAccount("Account", got, a)
	}
}

type addCredit struct{ manage.CreditEntry }

func (c addCredit) call(m *managerTest) {
	e := c.CreditEntry
	e.ID, e.Account, e.Note = m.text(e.ID), m.text(e.Account), m.text(e.Note)
	got, err := m.AddCredit(m.Context(), e)
	e.Time, e.Total = got.Time, got.Total
	a := m.account(e.Account)
	same := slices.IndexFunc(m.entries, func(added manage.CreditEntry) bool { return added.ID == e.ID })
	want := unknownAccount(a)
	switch {
	case e.Validate() != nil, a == nil && same >= 0:
		want = errAny
	case a == nil:
	case same >= 0:
		added := m.entries[same]
		if e.Account != added.Account || e.Amount != added.Amount || e.Note != added.Note {
			want = manage.ErrCreditConflict
		}
		e = added
	case a.Credit.Add(e.Amount).Sub(e.Amount) != a.Credit:
		want = errAny
	default:
		e.Total = a.Credit + e.Amount
	}
	if m.failed("AddCredit", err, want) {
		return
	}
	if same < 0 {
		m.entries = append(m.entries, e)
		a.Credit = e.Total
	}
	kit.WantSame(m, "AddCredit", got, e)
	if got.Time.IsZero() {
		kit.Wrong(m, "AddCredit", "no Time", "the time")
	}
}

// listAccounts lists accounts. After is a text.
type listAccounts struct{ manage.AccountQuery }

func (c listAccounts) call(m *managerTest) {
	q, want := c.AccountQuery, error(nil)
	q.Search, q.After = m.search(q.Search), m.text(q.After)
	last := m.account(q.After)
	if q.After != "" {
		want = unknownAccount(last)
	}
	page, err := m.ListAccounts(m.Context(), q)
	if m.failed("ListAccounts", err, want) {
		return
	}
	isLast := func(a *manage.AccountInfo) bool { return a == last }
	wantPage(m, "ListAccounts", page, m.accounts, q.Newest, q.Limit, isLast, func(a *manage.AccountInfo) bool {
		return (q.Status == "" || q.Status == a.Status()) && strings.Contains(ascii.ToLower(a.ID+"\n"+a.Name), ascii.ToLower(q.Search))
	}, m.wantAccount)
}

// listCredit lists the credit entries of an account.
type listCredit struct{ manage.CreditQuery }

func (c listCredit) call(m *managerTest) {
	q := c.CreditQuery
	q.Account, q.After = m.text(q.Account), m.text(q.After)
	isLast := func(e manage.CreditEntry) bool { return e.ID == q.After && e.Account == q.Account }
	want := unknownAccount(m.account(q.Account))
	if want == nil && q.After != "" && !slices.ContainsFunc(m.entries, isLast) {
		want = manage.ErrCreditNotFound
	}
	page, err := m.ListCredit(m.Context(), q)
	if m.failed("ListCredit", err, want) {
		return
	}
	isOf := func(e manage.CreditEntry) bool { return e.Account == q.Account }
	wantPage(m, "ListCredit", page, m.entries, q.Newest, q.Limit, isLast, isOf, func(method string, got, want manage.CreditEntry) {
		kit.WantSame(m, method, got, want)
	})
}

func checkAccountConcurrent(t testing.TB, s AccountStore) {
	const workers, times = 4, 8
	account, prefix := kit.Unique("account"), kit.Unique("entry")
	_, err := s.CreateAccount(t.Context(), account, manage.AccountParams{})
	kit.Must(t, "CreateAccount", err)
	kit.Concurrently(t, workers, func(int) {
		for i := range times {
			_, err := s.UpdateAccount(t.Context(), account, func(p *manage.AccountParams) error { p.Limits.Concurrent++; return nil })
			if err != nil {
				kit.Wrong(t, "UpdateAccount, concurrently", err, nil)
			}
			for _, id := range []string{prefix + string(rune('a'+i)), kit.Unique("entry")} { // the first is that of all workers
				got, err := s.AddCredit(t.Context(), manage.CreditEntry{ID: id, Account: account, Amount: 1})
				if err != nil || got.ID != id || got.Amount != 1 {
					kit.Wrong(t, "AddCredit, concurrently", fmt.Sprintf("%s and the error %v", kit.Describe(got), err), "the entry")
				}
			}
		}
	})
	info, err := s.Account(t.Context(), account)
	kit.Must(t, "Account", err)
	const entries = workers*times + times
	kit.WantSame(t, fmt.Sprintf("%d changes and %d different entries, concurrently", workers*times, entries),
		struct{ Concurrent, Credit llm.Money }{llm.Money(info.Limits.Concurrent), info.Credit},
		struct{ Concurrent, Credit llm.Money }{workers * times, entries})
	list, err := s.ListCredit(t.Context(), manage.CreditQuery{Account: account})
	kit.Must(t, "ListCredit", err)
	for i, e := range list {
		if want := llm.Money(i + 1); e.Total != want {
			kit.Wrong(t, "ListCredit", fmt.Sprintf("Total %v of entry %d", e.Total, i), want)
		}
	}
	if len(list) != entries {
		kit.Wrong(t, "ListCredit", fmt.Sprintf("%d entries", len(list)), entries)
	}
}
