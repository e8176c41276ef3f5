package llmhttptest

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/manage"
)

// An accountTest makes random changes in a store and, in the simplest way, in a model of it.
type accountTest struct {
	testing.TB
	AccountStore
	rng *rand.Rand

	word     string // a part of the names of all accounts
	accounts []*modelAccount
	keys     []*modelKey
}

// A modelAccount is what the store should have of an account.
type modelAccount struct {
	info    manage.AccountInfo
	entries []manage.CreditEntry
}

// A modelKey is what the store should have of a key.
type modelKey struct{ id, secret, account string }

// checkAccountRandom compares what a store returns with a model after each of many changes.
func checkAccountRandom(t testing.TB, s AccountStore) {
	rng := newRand(t)
	for range 3 {
		a := &accountTest{TB: t, AccountStore: s, rng: rng, word: unique("Word")}
		a.createAccount()
		for range 100 {
			pick(rng, a.createAccount, a.updateAccount, a.updateAccount, a.addCredit, a.addCredit, a.repeatCredit, a.createKey, a.moveKey)()
			a.compareAccount()
			a.compareAccountPage()
			a.compareCreditPage()
			a.compareKeys()
			if t.Failed() {
				return
			}
		}
	}
}

// account returns the account with the given ID, or nil if there is none.
func (a *accountTest) account(id string) *modelAccount {
	for _, m := range a.accounts {
		if m.info.ID == id {
			return m
		}
	}
	return nil
}

// anyAccount returns one of the accounts.
func (a *accountTest) anyAccount() *modelAccount { return pick(a.rng, a.accounts...) }

func (a *accountTest) randomLimits(quota bool) (l llmhttp.Limits) {
	if a.rng.IntN(2) == 0 {
		return l
	}
	l.Requests = pick(a.rng, llmhttp.Rate{}, llmhttp.PerMinute(7), llmhttp.Rate{N: -1, Per: time.Hour})
	l.Tokens = pick(a.rng, llmhttp.Rate{}, llmhttp.Rate{N: 1000, Per: day, Burst: 10})
	l.MaxCompletionTokens, l.Concurrent = pick(a.rng, 0, -1, 100), pick(a.rng, 0, -1, 3)
	if quota {
		l.Quota = pick(a.rng, llmhttp.Quota{}, llmhttp.Quota{Tokens: 5, Since: noon}, llmhttp.Quota{Cost: 1, Per: 31 * day})
	}
	return l
}

func (a *accountTest) randomParams() manage.AccountParams {
	p := manage.AccountParams{
		Name: pick(a.rng, a.word, "red "+a.word, a.word+" Blue"), Prepaid: a.rng.IntN(2) == 0, Suspended: a.rng.IntN(4) == 0,
		PerUser: a.randomLimits(true),
		Labels: pick(
			a.rng,
			nil,
			[]llmhttp.Label{},
			[]llmhttp.Label{{Name: "team", Value: "x"}, {Name: "Team"}},
			[]llmhttp.Label{{Name: "a", Value: `"`}},
		),
	}
	p.Limits = a.randomLimits(!p.Prepaid)
	return p
}

// createAccount creates an account that may exist, or that keys may have named or have as their ID.
func (a *accountTest) createAccount() {
	ids := []string{unique("Account")}
	for _, k := range a.keys {
		ids = append(ids, k.account)
	}
	id, p := pick(a.rng, ids...), a.randomParams()
	time.Sleep(time.Microsecond) // so that no two have the same time
	info, err := a.CreateAccount(a.Context(), id, p)
	if a.account(id) != nil {
		if !errors.Is(err, manage.ErrAccountExists) {
			a.Errorf("CreateAccount with an ID that exists returned the error %v, want ErrAccountExists", err)
		}
		return
	}
	if err != nil || info.Created.IsZero() {
		a.Fatalf("CreateAccount returned an account created at %v and the error %v, want the time and nil", info.Created, err)
	}
	a.accounts = append(a.accounts, &modelAccount{info: manage.AccountInfo{ID: id, AccountParams: p, Created: info.Created}})
	a.wantAccount("CreateAccount", &info)
}

// updateAccount changes an account, or refuses to.
func (a *accountTest) updateAccount() {
	m, p := a.anyAccount(), a.randomParams()
	var refused error
	if a.rng.IntN(4) == 0 {
		refused = errors.New("refused")
	}
	info, err := a.UpdateAccount(a.Context(), m.info.ID, func(stored *manage.AccountParams) error {
		if got := (&manage.AccountInfo{AccountParams: *stored}); diffAccounts(
			got,
			&manage.AccountInfo{AccountParams: m.info.AccountParams},
		) != "" {
			a.Errorf("UpdateAccount called change with %+v, want %+v", *stored, m.info.AccountParams)
		}
		*stored = p
		return refused
	})
	if !errors.Is(err, refused) {
		a.Errorf("UpdateAccount returned the error %v, want %v", err, refused)
	}
	if refused == nil {
		m.info.AccountParams = p
		a.wantAccount("UpdateAccount", &info)
	}
}

// addCredit adds an entry.
func (a *accountTest) addCredit() {
	m := a.anyAccount()
	e := manage.CreditEntry{
		ID:      unique("entry"),
		Account: m.info.ID,
		Amount:  1 + llmhttp.Money(a.rng.Int64N(100)),
		Note:    pick(a.rng, "", "invoice 7"),
	}
	if a.rng.IntN(2) == 0 {
		e.Amount = -e.Amount
	}
	got, err := a.AddCredit(a.Context(), e)
	m.info.Credit += e.Amount
	e.Time, e.Total = got.Time, m.info.Credit
	if err != nil || got != e || got.Time.IsZero() {
		a.Errorf("AddCredit returned %+v and the error %v, want %+v with a time", got, err, e)
	}
	m.entries = append(m.entries, e)
}

// repeatCredit adds an entry again, or another one with its ID.
func (a *accountTest) repeatCredit() {
	m := a.anyAccount()
	if len(m.entries) == 0 {
		return
	}
	want := pick(a.rng, m.entries...)
	again := want
	again.Time, again.Total = time.Time{}, 0
	conflict := true
	switch other := a.anyAccount().info.ID; a.rng.IntN(4) {
	case 0:
		again.Amount = -again.Amount
	case 1:
		again.Note += "!"
	case 2:
		again.Account, conflict = other, other != m.info.ID
	default:
		conflict = false
	}
	got, err := a.AddCredit(a.Context(), again)
	switch {
	case conflict && !errors.Is(err, manage.ErrCreditConflict):
		a.Errorf("AddCredit of %+v returned %+v and the error %v although there is %+v, want ErrCreditConflict", again, got, err, want)
	case !conflict && (err != nil || !sameEntry(&got, &want)):
		a.Errorf("AddCredit of %+v again returned %+v and the error %v", want, got, err)
	}
}

// createKey creates a key of an account that exists or not, or of the account with its own ID.
func (a *accountTest) createKey() {
	account := pick(a.rng, a.anyAccount().info.ID, unique("account"), "")
	info, secret := mustCreate(a, a.AccountStore, manage.KeyParams{Account: account})
	a.keys = append(a.keys, &modelKey{info.ID, secret, info.Account})
}

// moveKey changes the account of a key.
func (a *accountTest) moveKey() {
	if len(a.keys) == 0 {
		return
	}
	k, account := pick(a.rng, a.keys...), a.anyAccount().info.ID
	if _, err := a.UpdateKey(a.Context(), k.id, func(p *manage.KeyParams) error { p.Account = account; return nil }); err != nil {
		a.Errorf("UpdateKey returned the error %v, want nil", err)
	}
	k.account = account
}

// wantAccount reports an error unless got is what the store should have of the account. It then
// changes got, which belongs to the caller.
func (a *accountTest) wantAccount(method string, got *manage.AccountInfo) {
	a.Helper()
	want := a.account(got.ID)
	if want == nil {
		a.Errorf("%s returned an account with the ID %q, which does not exist", method, got.ID)
		return
	}
	if diff := diffAccounts(got, &want.info); diff != "" {
		a.Errorf("%s returned an account with another %s: %+v, want %+v", method, diff, *got, want.info)
	}
	for i := range got.Labels {
		got.Labels[i].Name = "changed by the caller"
	}
}

func (a *accountTest) compareAccount() {
	got, err := a.Account(a.Context(), a.anyAccount().info.ID)
	if err != nil {
		a.Errorf("Account returned the error %v, want nil", err)
		return
	}
	a.wantAccount("Account", &got)
}

// pageOf returns the page of list that a query with this order and limit should return after the
// element for which isLast returns true, or from the first on if there is none.
func pageOf[T any](list []T, newest bool, limit int, isLast func(T) bool) []T {
	list = slices.Clone(list)
	if newest {
		slices.Reverse(list)
	}
	list = list[slices.IndexFunc(list, isLast)+1:]
	if limit > 0 {
		list = list[:min(limit, len(list))]
	}
	return list
}

func (a *accountTest) compareAccountPage() {
	q := manage.AccountQuery{
		Search: pick(a.rng, a.word, strings.ToUpper(a.word[1:]), "RED "+a.word, a.word+" ", a.anyAccount().info.ID[2:]),
		Status: pick(a.rng, "", manage.AccountActive, manage.AccountSuspended),
		Newest: a.rng.IntN(2) == 0, Limit: pick(a.rng, -1, 0, 1, 2, 5),
	}
	if a.rng.IntN(2) == 0 {
		q.After = a.anyAccount().info.ID
	}
	page, err := a.ListAccounts(a.Context(), q)
	if err != nil {
		a.Errorf("ListAccounts(%+v) returned the error %v, want nil", q, err)
	}
	following := pageOf(a.accounts, q.Newest, 0, func(m *modelAccount) bool { return m.info.ID == q.After })
	selected := slices.DeleteFunc(following, func(m *modelAccount) bool {
		text := strings.ToLower(m.info.ID + "\n" + m.info.Name)
		return q.Status != "" && m.info.Status() != q.Status || !strings.Contains(text, strings.ToLower(q.Search))
	})
	var want, got []string
	for _, m := range pageOf(selected, false, q.Limit, func(*modelAccount) bool { return false }) {
		want = append(want, m.info.ID)
	}
	for i := range page {
		got = append(got, page[i].ID)
		a.wantAccount("ListAccounts", &page[i])
	}
	if !slices.Equal(got, want) {
		a.Errorf("ListAccounts(%+v) returned the accounts %v, want %v", q, got, want)
	}
}

func (a *accountTest) compareCreditPage() {
	m := a.anyAccount()
	q := manage.CreditQuery{Account: m.info.ID, Newest: a.rng.IntN(2) == 0, Limit: pick(a.rng, -1, 0, 1, 2, 5)}
	if len(m.entries) > 0 && a.rng.IntN(2) == 0 {
		q.After = pick(a.rng, m.entries...).ID
	}
	got, err := a.ListCredit(a.Context(), q)
	want := pageOf(m.entries, q.Newest, q.Limit, func(e manage.CreditEntry) bool { return e.ID == q.After })
	if err != nil || !slices.EqualFunc(got, want, func(a, b manage.CreditEntry) bool { return sameEntry(&a, &b) }) {
		a.Errorf("ListCredit(%+v) returned %+v and the error %v, want %+v", q, got, err, want)
	}
}

// compareKeys looks up all keys.
func (a *accountTest) compareKeys() {
	for _, k := range a.keys {
		account := manage.AccountInfo{ID: k.account}
		if m := a.account(k.account); m != nil {
			account = m.info
		}
		a.wantKey(k, &account)
	}
}

// wantKey reports an error unless Lookup of k returns what belongs to its account.
func (a *accountTest) wantKey(k *modelKey, account *manage.AccountInfo) {
	a.Helper()
	got, err := a.Lookup(a.Context(), k.secret)
	if account.Suspended {
		if !errors.Is(err, llmhttp.ErrKeyNotFound) {
			a.Errorf("Lookup of a key whose account is suspended returned %+v and the error %v, want ErrKeyNotFound", got, err)
		}
		return
	}
	if err != nil {
		a.Errorf("Lookup returned the error %v, want a key of the account %+v", err, account)
		return
	}
	want := llmhttp.Key{ID: k.id, Account: account.ID, PerUser: normalLimits(account.PerUser), Labels: normalLabels(account.Labels)}
	if subject := account.Subject(); subject.Limits != (llmhttp.Limits{}) {
		want.Subjects = []llmhttp.Subject{subject}
	}
	found := *got
	found.PerUser, found.Labels = normalLimits(got.PerUser), normalLabels(got.Labels)
	found.Subjects = nil
	for _, subject := range got.Subjects {
		found.Subjects = append(found.Subjects, llmhttp.Subject{ID: subject.ID, Limits: normalLimits(subject.Limits)})
	}
	if !reflect.DeepEqual(found, want) {
		a.Errorf("Lookup returned %+v for a key of the account %+v, want %+v", found, account, want)
	}
}

// normalLimits makes limits comparable with ==.
func normalLimits(l llmhttp.Limits) llmhttp.Limits {
	l.Quota.Since = l.Quota.Since.UTC().Round(0)
	return l
}

// normalLabels returns a sorted copy of labels, which is nil if there are none.
func normalLabels(labels []llmhttp.Label) []llmhttp.Label {
	if len(labels) == 0 {
		return nil
	}
	return slices.SortedFunc(slices.Values(labels), func(a, b llmhttp.Label) int { return strings.Compare(a.Name, b.Name) })
}

// diffAccounts returns the name of what differs in two accounts, or "".
func diffAccounts(a, b *manage.AccountInfo) string {
	switch {
	case a.ID != b.ID:
		return "ID"
	case a.Name != b.Name:
		return "name"
	case normalLimits(a.Limits) != normalLimits(b.Limits):
		return "limits"
	case normalLimits(a.PerUser) != normalLimits(b.PerUser):
		return "limits of end users"
	case !slices.Equal(normalLabels(a.Labels), normalLabels(b.Labels)):
		return "labels"
	case a.Prepaid != b.Prepaid || a.Suspended != b.Suspended:
		return "state"
	case !a.Created.Equal(b.Created):
		return "time"
	case a.Credit != b.Credit:
		return "credit"
	}
	return ""
}

// sameEntry reports whether two entries are the same.
func sameEntry(a, b *manage.CreditEntry) bool {
	c, d := *a, *b
	c.Time, d.Time = time.Time{}, time.Time{}
	return c == d && a.Time.Equal(b.Time)
}
