package llmhttptest

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/llmhttp/llmhttp"
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
	runChecks(t, accountChecks, newStore)
}

var accountChecks = []check[AccountStore]{
	{
		"RandomChanges",
		"a setting is dropped, Lookup uses an outdated cache, a page is not in order, or an entry counts twice.",
		checkAccountRandom,
	},
	{
		"Mistakes",
		"the ID, AccountParams.Validate or CreditEntry.Validate is not checked, or what was refused is stored.",
		checkAccountMistakes,
	},
	{"SumOfCredit", "the sum of the entries overflows.", checkAccountSum},
	{"Texts", "texts are compared without regard to case or spaces, or have a meaning in a query.", checkAccountTexts},
	{"UnknownAccount", "the error of a query without a result is passed on, or not checked.", checkAccountUnknown},
	{"ConcurrentChanges", "a change reads an account, or the sum of its entries, without a lock.", checkAccountConcurrent},
}

// mustCreateAccount creates an account with a unique ID.
func mustCreateAccount(t testing.TB, s AccountStore, p manage.AccountParams) manage.AccountInfo {
	t.Helper()
	info, err := s.CreateAccount(t.Context(), unique("account"), p)
	if err != nil {
		t.Fatalf("CreateAccount returned the error %v, want nil", err)
	}
	return info
}

// mustAddCredit adds an entry with a unique ID.
func mustAddCredit(t testing.TB, s AccountStore, account string, amount llmhttp.Money) manage.CreditEntry {
	t.Helper()
	e, err := s.AddCredit(t.Context(), manage.CreditEntry{ID: unique("entry"), Account: account, Amount: amount})
	if err != nil {
		t.Fatalf("AddCredit of %v returned the error %v, want nil", amount, err)
	}
	return e
}

// wantCredit reports an error unless the account has entries with the given amounts and their sum.
func wantCredit(t testing.TB, s AccountStore, account string, amounts ...llmhttp.Money) {
	t.Helper()
	entries, err := s.ListCredit(t.Context(), manage.CreditQuery{Account: account})
	var got []llmhttp.Money
	var sum llmhttp.Money
	for i := range entries {
		got = append(got, entries[i].Amount)
		sum = sum.Add(entries[i].Amount)
	}
	if err != nil || !slices.Equal(got, amounts) {
		t.Errorf("ListCredit returned the amounts %v and the error %v, want %v", got, err, amounts)
	}
	if info, err := s.Account(t.Context(), account); err != nil || info.Credit != sum {
		t.Errorf("Account returned the credit %v and the error %v, want %v", info.Credit, err, sum)
	}
}

func checkAccountMistakes(t testing.TB, s AccountStore) {
	info := mustCreateAccount(t, s, manage.AccountParams{Name: "before"})
	quota := llmhttp.Limits{Quota: llmhttp.Quota{Tokens: 1}}
	invalid := llmhttp.Limits{Requests: llmhttp.Rate{Burst: 1}}
	for _, p := range []manage.AccountParams{
		{Name: "\xff"}, {Limits: invalid}, {PerUser: invalid}, {Labels: []llmhttp.Label{{}}}, {Prepaid: true, Limits: quota},
	} {
		id := unique("account")
		if _, err := s.CreateAccount(t.Context(), id, p); err == nil {
			t.Errorf("CreateAccount with the settings %+v returned no error", p)
		}
		if _, err := s.Account(t.Context(), id); !errors.Is(err, manage.ErrAccountNotFound) {
			t.Errorf("Account returned the error %v for an account that was refused, want ErrAccountNotFound", err)
		}
		if _, err := s.UpdateAccount(t.Context(), info.ID, func(stored *manage.AccountParams) error { *stored = p; return nil }); err == nil {
			t.Errorf("UpdateAccount with the settings %+v returned no error", p)
		}
	}
	if after, err := s.Account(t.Context(), info.ID); err != nil || after.Name != "before" {
		t.Errorf("Account returned the name %q and the error %v after changes that were refused, want %q", after.Name, err, "before")
	}
	for _, id := range []string{"", "a\nb", "\xff", strings.Repeat("x", 513)} {
		if _, err := s.CreateAccount(t.Context(), id, manage.AccountParams{}); err == nil {
			t.Errorf("CreateAccount with the ID %q returned no error", id)
		}
	}
	for _, e := range []manage.CreditEntry{
		{ID: "", Amount: 1}, {ID: "\x00", Amount: 1}, {ID: unique("entry"), Amount: 1, Note: "\xff"}, {ID: unique("entry")},
	} {
		e.Account = info.ID
		if _, err := s.AddCredit(t.Context(), e); err == nil {
			t.Errorf("AddCredit of %+v returned no error", e)
		}
	}
	wantCredit(t, s, info.ID)
}

func checkAccountSum(t testing.TB, s AccountStore) {
	for _, bound := range []llmhttp.Money{math.MaxInt64, math.MinInt64 + 1} {
		account := mustCreateAccount(t, s, manage.AccountParams{Prepaid: true}).ID
		unit := max(min(bound, 1), -1)
		if e := mustAddCredit(t, s, account, bound); e.Total != bound {
			t.Errorf("AddCredit returned the total %v, want %v", e.Total, bound)
		}
		mustAddCredit(t, s, account, -unit)
		mustAddCredit(t, s, account, unit)
		for _, amount := range []llmhttp.Money{2 * unit, bound} { // MinInt64 + 1 - 1 fits
			if e, err := s.AddCredit(t.Context(), manage.CreditEntry{ID: unique("entry"), Account: account, Amount: amount}); err == nil {
				t.Errorf("AddCredit of %v to the credit %v returned the total %v, want an error", amount, bound, e.Total)
			}
		}
		wantCredit(t, s, account, bound, -unit, unit)
	}
}

func checkAccountTexts(t testing.TB, s AccountStore) {
	prefix := unique("account")
	var accounts []manage.AccountInfo
	for _, text := range trickyNames() {
		if strings.ContainsFunc(text, unicode.IsControl) {
			continue
		}
		p := manage.AccountParams{Name: text, Labels: []llmhttp.Label{{Name: "text", Value: text[:min(len(text), 256)]}}}
		info, err := s.CreateAccount(t.Context(), prefix+text, p)
		if err != nil {
			t.Fatalf("CreateAccount with the text %q returned the error %v, want nil", text, err)
		}
		e := manage.CreditEntry{ID: prefix + text, Account: info.ID, Amount: 1, Note: text}
		if added, err := s.AddCredit(t.Context(), e); err != nil || added.ID != e.ID || added.Account != e.Account || added.Note != text {
			t.Errorf("AddCredit of %+v returned %+v and the error %v", e, added, err)
		}
		accounts = append(accounts, info)
	}
	for _, want := range accounts {
		wantCredit(t, s, want.ID, 1)
		got, err := s.Account(t.Context(), want.ID)
		if diff := diffAccounts(&got, &want); err != nil || diff != "credit" {
			t.Errorf("Account %q has another %s, or the error %v; want only another credit", want.ID, diff, err)
		}
		_, secret := mustCreate(t, s, manage.KeyParams{Account: want.ID})
		if k, err := s.Lookup(t.Context(), secret); err != nil || k.Account != want.ID || !slices.Equal(k.Labels, want.Labels) {
			t.Errorf("Lookup of a key of the account %q returned %+v and the error %v, want the labels %v", want.ID, k, err, want.Labels)
		}
	}
	for _, search := range []string{prefix + "%", prefix + "_", prefix + "*", prefix + "'", prefix + `back\S`, prefix + "PLAIN "} {
		page, err := s.ListAccounts(t.Context(), manage.AccountQuery{Search: search})
		var got, want []string
		for i := range page {
			got = append(got, page[i].ID)
		}
		for i := range accounts {
			if strings.Contains(strings.ToLower(accounts[i].ID), strings.ToLower(search)) {
				want = append(want, accounts[i].ID)
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("ListAccounts with the search %q returned the accounts %q and the error %v, want %q", search, got, err, want)
		}
	}
}

func checkAccountUnknown(t testing.TB, s AccountStore) {
	known := mustCreateAccount(t, s, manage.AccountParams{})
	other := mustAddCredit(t, s, mustCreateAccount(t, s, manage.AccountParams{}).ID, 1)
	for _, id := range append(trickyNames(), unique("account"), "\xff", "") {
		_, err := s.Account(t.Context(), id)
		_, updateErr := s.UpdateAccount(t.Context(), id, func(*manage.AccountParams) error { return nil })
		_, creditErr := s.ListCredit(t.Context(), manage.CreditQuery{Account: id})
		_, addErr := s.AddCredit(t.Context(), manage.CreditEntry{ID: unique("entry"), Account: id, Amount: 1})
		errs := []error{err, updateErr, creditErr, addErr}
		if id != "" {
			_, err = s.ListAccounts(t.Context(), manage.AccountQuery{After: id})
			errs = append(errs, err)
		}
		for i, err := range errs {
			if !errors.Is(err, manage.ErrAccountNotFound) {
				t.Errorf("call %d with the unknown ID %q returned the error %v, want ErrAccountNotFound", i, id, err)
			}
		}
	}
	for _, id := range []string{unique("entry"), other.ID, "\xff"} {
		if _, err := s.ListCredit(t.Context(), manage.CreditQuery{Account: known.ID, After: id}); !errors.Is(
			err,
			manage.ErrCreditNotFound,
		) {
			t.Errorf("ListCredit after %q, which the account does not have, returned the error %v, want ErrCreditNotFound", id, err)
		}
	}
}

func checkAccountConcurrent(t testing.TB, s AccountStore) {
	const workers, times = 4, 8
	account := mustCreateAccount(t, s, manage.AccountParams{}).ID
	prefix := unique("entry")
	runConcurrently(t, workers, func(worker int) {
		for i := range times {
			if _, err := s.UpdateAccount(t.Context(), account, func(p *manage.AccountParams) error { p.Limits.Concurrent++; return nil }); err != nil {
				t.Errorf("UpdateAccount returned the error %v, want nil", err)
			}
			e := manage.CreditEntry{ID: prefix + string(rune('a'+i)), Account: account, Amount: 1} // of all workers
			if got, err := s.AddCredit(t.Context(), e); err != nil || got.ID != e.ID || got.Amount != 1 {
				t.Errorf("AddCredit returned %+v and the error %v, want the entry", got, err)
			}
			e.ID = unique("entry")
			if _, err := s.AddCredit(t.Context(), e); err != nil {
				t.Errorf("AddCredit returned the error %v, want nil", err)
			}
		}
	})
	info, err := s.Account(t.Context(), account)
	if err != nil || info.Limits.Concurrent != workers*times || info.Credit != workers*times+times {
		t.Errorf("after %d changes and entries, of which %d are different, Account returned Concurrent %d, the credit %v and the error %v",
			workers*times, workers*times+times, info.Limits.Concurrent, info.Credit, err)
	}
	entries, err := s.ListCredit(t.Context(), manage.CreditQuery{Account: account})
	for i := range entries {
		if entries[i].Total != llmhttp.Money(i+1) {
			t.Errorf("entry %d has the total %v, want %v", i, entries[i].Total, llmhttp.Money(i+1))
		}
	}
	if err != nil || len(entries) != workers*times+times {
		t.Errorf("ListCredit returned %d entries and the error %v, want %d", len(entries), err, workers*times+times)
	}
}
