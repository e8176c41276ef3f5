package console_test

import (
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/console"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/manage"
	"github.com/llmhttp/llmhttp/memory"
	"github.com/llmhttp/llmhttp/sqlstore"
)

// accounts returns the accounts of the host, whose store must keep some.
func (h *host) accounts() manage.AccountManager { return h.keys.(manage.AccountManager) }

// mustCreateAccount creates an account with a credit.
func (h *host) mustCreateAccount(t testing.TB, id string, p manage.AccountParams, credit llm.Money) manage.AccountInfo {
	t.Helper()
	info, err := h.accounts().CreateAccount(t.Context(), id, p)
	require.NoError(t, err)
	if credit != 0 {
		_, err = h.accounts().AddCredit(t.Context(), manage.CreditEntry{ID: "credit of " + id, Account: id, Amount: credit, Note: "first payment"})
		require.NoError(t, err)
	}
	return info
}

// account returns an account of the host.
func (h *host) account(t testing.TB, id string) manage.AccountInfo {
	t.Helper()
	info, err := h.accounts().Account(t.Context(), id)
	require.NoError(t, err)
	return info
}

// credit returns the credit entries of an account, oldest first.
func (h *host) credit(t testing.TB, id string) []manage.CreditEntry {
	t.Helper()
	entries, err := h.accounts().ListCredit(t.Context(), manage.CreditQuery{Account: id})
	require.NoError(t, err)
	return entries
}

// newEntry returns the ID of the form for credit on the page of an account.
func (v *visitor) newEntry(id string) string {
	v.t.Helper()
	return findPart(v.t, v.get("account?id="+url.QueryEscape(id)).body, `name="entry" value="`, `"`)
}

// The list has pages, a search and a filter.
func TestAccounts_List(t *testing.T) {
	h := newHost(t, nil)
	v := h.newAdmin(t)
	assert.Contains(t, v.get("accounts").body, "No accounts yet.")
	for i := range 51 {
		h.mustCreateAccount(t, fmt.Sprint("acme-", i), manage.AccountParams{Name: fmt.Sprint("Acme ", i), Suspended: i == 7}, 0)
		h.mustCreateAccount(t, fmt.Sprint("other-", i), manage.AccountParams{}, 0)
	}
	first := v.get("accounts?search=ACME").body
	assert.Contains(t, first, `<a href="/console/account?id=acme-50">Acme 50</a><span class="sub">acme-50</span>`)
	assert.NotContains(t, first, "other-")
	assert.NotContains(t, first, `"sub">acme-0<`)
	second := v.get("accounts?search=ACME&after=acme-1").body
	assert.Contains(t, first, `href="?after=acme-1&amp;search=ACME" rel="next"`)
	assert.Contains(t, second, `"sub">acme-0<`)
	assert.Contains(t, second, `href="?before=acme-0&amp;search=ACME" rel="prev"`)
	suspended := v.get("accounts?status=suspended").body
	assert.Equal(t, 1, strings.Count(suspended, `<th scope="row">`))
	assert.Contains(t, suspended, "acme-7")
	assert.Equal(t, http.StatusNotFound, v.get("accounts?after=nobody").status)
}

// An administrator can set everything of an account.
func TestAccounts_Edit(t *testing.T) {
	h := newHost(t, nil)
	v := h.newAdmin(t)
	form := url.Values{
		"id": {"acme"}, "name": {"Acme Inc."}, "labels": {"team=red, plan = pro=1"}, "suspended": {"yes"},
		"requests": {"60/min"}, "tokens": {"20k/min"}, "quota": {"20usd/month"}, "max-completion-tokens": {"4000"}, "concurrent": {"4"},
		"user-requests": {"6/min"}, "user-tokens": {"2k/min"}, "user-quota": {"1usd/month"}, "user-max-completion-tokens": {"400"}, "user-concurrent": {"2"},
	}
	want := manage.AccountParams{
		Name: "Acme Inc.", Labels: []llmhttp.Label{{Name: "team", Value: "red"}, {Name: "plan", Value: "pro=1"}}, Suspended: true,
		Limits: llmhttp.Limits{
			Requests: llmhttp.PerMinute(60), Tokens: llmhttp.PerMinute(20_000), Quota: llmhttp.Quota{Cost: llm.USD(20)}, MaxCompletionTokens: 4000, Concurrent: 4,
		},
		PerUser: llmhttp.Limits{
			Requests: llmhttp.PerMinute(6), Tokens: llmhttp.PerMinute(2000), Quota: llmhttp.Quota{Cost: llm.MoneyUnit}, MaxCompletionTokens: 400, Concurrent: 2,
		},
	}
	created := v.post("accounts/new", form)
	require.Equal(t, http.StatusOK, created.status)
	assert.Equal(t, "/console/account?id=acme", created.url.RequestURI())
	assert.Equal(t, want, h.account(t, "acme").AccountParams)
	for _, text := range []string{"Acme Inc.", `<span class="badge suspended">suspended</span>`, "team=red, plan=pro=1", "20usd/month", "$0.00 of $20.00 used", ", $20.00 left", "1usd/month"} {
		assert.Contains(t, created.body, text)
	}

	// A form that shows these settings and changes some of them.
	shown := make(url.Values)
	for name := range form {
		if name != "id" {
			value := findPart(t, created.body, `name="was.`+name+`" value="`, `"`)
			shown["was."+name], shown[name] = []string{value}, []string{value}
		}
	}
	shown["prepaid"], shown["suspended"], shown["quota"], shown["labels"] = []string{"yes"}, nil, []string{"none"}, []string{""}
	_, err := h.accounts().UpdateAccount(t.Context(), "acme", func(p *manage.AccountParams) error { p.Limits.Concurrent = 9; return nil })
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, v.post("account?id=acme", shown).status)
	want.Prepaid, want.Suspended, want.Labels, want.Limits.Quota, want.Limits.Concurrent = true, false, nil, llmhttp.Quota{}, 9
	assert.Equal(t, want, h.account(t, "acme").AccountParams, "what somebody else has changed meanwhile stays")
	assert.Equal(t, []string{"ada: sign in", "ada: create account", "ada: update account"}, h.auditLog())
	audit := v.get("audit").body
	assert.Contains(t, audit, `<a href="/console/account?id=acme">acme</a>`)
	assert.Contains(t, audit, "prepaid: none to &#34;yes&#34;; suspended: &#34;yes&#34; to none; quota: &#34;20usd/month&#34; to none")
}

// A field with a mistake is marked, and nothing changes.
func TestAccounts_Mistakes(t *testing.T) {
	h := newHost(t, nil)
	v := h.newAdmin(t)
	h.mustCreateAccount(t, "acme", manage.AccountParams{Limits: llmhttp.Limits{Quota: llmhttp.Quota{Tokens: 5}}}, 0)
	h.mustCreateAccount(t, "plain", manage.AccountParams{}, someCredit)
	before := []manage.AccountInfo{h.account(t, "acme"), h.account(t, "plain")}
	for _, test := range []struct{ path, id, field, value, problem string }{
		{"accounts/new", "", "id", "", "must be text of 1 to"},
		{"accounts/new", "", "id", "acme", "there is an account with this ID"},
		{"accounts/new", "new", "quota", "5", "has no period"},
		{"account?id=plain", "", "name", strings.Repeat("x", 513), "must be text of 0 to 512 bytes"},
		{"account?id=plain", "", "name", "a\tb", "must be text"},
		{"account?id=plain", "", "labels", "red", "&#34;red&#34; has no value, unlike team=red"},
		{"account?id=plain", "", "labels", "a=1,a=2", "there are two labels with the name"},
		{"account?id=plain", "", "requests", "many", "has no period"},
		{"account?id=plain", "", "user-tokens", "1/x", "is not a period"},
		{"account?id=acme", "", "prepaid", "yes", "must be empty, because the account is prepaid"},
		{"account/credit?id=plain", "", "amount", "", "must be a decimal number"},
		{"account/credit?id=plain", "", "amount", "1e3", "must be a decimal number"},
		{"account/credit?id=plain", "", "amount", "0.00", "must not be zero"},
		{"account/credit?id=plain", "", "amount", "9223372036", "the credit would become too large"},
		{"account/credit?id=plain", "", "note", strings.Repeat("x", 513), "must be text of 0 to 512 bytes"},
	} {
		form := url.Values{"id": {test.id}, "entry": {unusedNonce}, "amount": {"1"}}
		form.Set(test.field, test.value)
		r := v.post(test.path, form)
		assert.Equal(t, http.StatusUnprocessableEntity, r.status, test)
		field := test.field
		if field == "prepaid" {
			field = "quota" // of which the value is the mistake
		}
		assert.Contains(t, tagOf(t, r.body, field), `aria-invalid="true"`, test)
		assert.Contains(t, findPart(t, r.body, `id="`+field+`-error">`, "<"), test.problem, test)
		assert.Equal(t, 1, strings.Count(r.body, ` aria-invalid="true"`), test)
	}
	assert.Equal(t, before, []manage.AccountInfo{h.account(t, "acme"), h.account(t, "plain")})
	all, err := h.accounts().ListAccounts(t.Context(), manage.AccountQuery{})
	require.NoError(t, err)
	assert.Len(t, all, 2)
	assert.Equal(t, []string{"ada: sign in"}, h.auditLog())
	assert.Equal(t, http.StatusBadRequest, v.post("account/credit?id=plain", url.Values{"amount": {"1"}}).status, "a form without its entry")
}

// someCredit is an amount to which 9223372036 cannot be added.
const someCredit = 5 * llm.MoneyUnit

// A form for credit that is sent twice adds once.
func TestAccounts_Credit(t *testing.T) {
	t.Run("memory", func(t *testing.T) { testCredit(t, newHost(t, nil)) })
	t.Run("SQLite", func(t *testing.T) {
		store, err := sqlstore.Open(t.Context(), "file:"+filepath.Join(t.TempDir(), "llm.db"), nil)
		require.NoError(t, err)
		t.Cleanup(func() { store.Close() })
		testCredit(t, newHostWithStores(t, store, store, nil))
	})
}

func testCredit(t *testing.T, h *host) {
	v := h.newAdmin(t)
	h.mustCreateAccount(t, "acme", manage.AccountParams{Prepaid: true}, 0)
	_, secret := h.mustCreate(t, manage.KeyParams{Account: "acme"})
	assert.Equal(t, http.StatusTooManyRequests, h.chat(t, secret), "nothing is paid")

	form := url.Values{"entry": {v.newEntry("acme")}, "amount": {"$12.50"}, "note": {"invoice 7"}}
	for range 2 {
		assert.Equal(t, "/console/account", v.post("account/credit?id=acme", form).url.Path)
	}
	require.Len(t, h.credit(t, "acme"), 1)
	form.Set("amount", "13")
	assert.Equal(t, http.StatusConflict, v.post("account/credit?id=acme", form).status)
	require.Equal(t, http.StatusOK, h.chat(t, secret), "a key of the account can use what is paid")
	correction := url.Values{"entry": {v.newEntry("acme")}, "amount": {"-2.25"}}
	page := v.post("account/credit?id=acme", correction).body
	assert.Equal(t, llm.MoneyUnit*1025/100, h.account(t, "acme").Credit)
	for _, text := range []string{`<td class="number">$12.50</td><td class="number">$12.50</td><td class="long">invoice 7</td>`, `<td class="number">-$2.25</td><td class="number">$10.25</td>`} {
		assert.Contains(t, page, text)
	}

	r := record("1", time.Now(), "acme", "key", "m", 0)
	r.Cost = llmhttp.Cost{Output: llm.USD(4)}
	h.mustRecord(t, r)
	assert.Regexp(t, `(?s)credit</span><span class="limit-value">\$10.25</span>.*\$4.00 of \$10.25 used, \$6.25 left`, v.get("account?id=acme").body)
	r.ID, r.Cost.Output = "2", 7*llm.MoneyUnit
	h.mustRecord(t, r)
	assert.Contains(t, v.get("account?id=acme").body, ", -$0.75")

	h.mu.Lock()
	defer h.mu.Unlock()
	var details []string
	for _, e := range h.audit {
		if e.Action == console.ActionAddCredit {
			assert.Equal(t, "acme", e.Account)
			details = append(details, e.Detail)
		}
	}
	assert.Equal(t, []string{
		`amount: 12.5; note: "invoice 7"; entry: console_` + form.Get("entry"), `amount: -2.25; note: none; entry: console_` + correction.Get("entry"),
	}, details)
}

// The ledger of the credit has pages.
func TestAccounts_CreditPages(t *testing.T) {
	h := newHost(t, nil)
	v := h.newAdmin(t)
	h.mustCreateAccount(t, "acme", manage.AccountParams{}, 0)
	for i := range 51 {
		_, err := h.accounts().AddCredit(t.Context(), manage.CreditEntry{ID: fmt.Sprint("e", i), Account: "acme", Amount: llm.MoneyUnit, Note: fmt.Sprint("note ", i, ".")})
		require.NoError(t, err)
	}
	first := v.get("account?id=acme").body
	assert.Contains(t, first, "note 50.")
	assert.NotContains(t, first, "note 0.")
	assert.Contains(t, first, `href="?after=e1&amp;id=acme" rel="next"`)
	second := v.get("account?id=acme&after=e1").body
	assert.Contains(t, second, "note 0.")
	assert.NotContains(t, second, "note 1.")
	assert.Equal(t, http.StatusNotFound, v.get("account?id=acme&after=nothing").status)
}

// People who are not administrators see the own account at most, and change none.
func TestAccounts_Rights(t *testing.T) {
	h := newHost(t, nil)
	h.mustCreateAccount(t, "mine", manage.AccountParams{Name: "My company", Prepaid: true}, llm.MoneyUnit)
	h.mustCreateAccount(t, "theirs", manage.AccountParams{Name: "Hidden company"}, 7*llm.MoneyUnit)
	_, secret := h.mustCreate(t, manage.KeyParams{Account: "mine"})
	_, other := h.mustCreate(t, manage.KeyParams{Account: "without settings"})
	before := []manage.AccountInfo{h.account(t, "mine"), h.account(t, "theirs")}
	v := h.newOwner(t, secret)

	own := v.get("account")
	assert.Equal(t, http.StatusOK, own.status)
	assert.Contains(t, v.get("account?id=mine").body, "My company")
	for _, text := range []string{"My company", "$0.00 of $1.00 used, $1.00 left", "first payment", `<a href="/console/account" aria-current="page">Account</a>`} {
		assert.Contains(t, own.body, text)
	}
	for _, text := range []string{"<form class", "Add credit", "Save", `href="/console/accounts`} {
		assert.NotContains(t, own.body, text)
	}
	for _, query := range []string{"theirs", "nothing"} {
		r := v.get("account?id=" + query)
		assert.Equal(t, http.StatusNotFound, r.status)
		assert.Equal(t, v.get("account?id=unknown").body, r.body)
	}
	for _, path := range []string{"accounts", "accounts?search=hidden", "accounts/new"} {
		r := v.get(path)
		assert.Equal(t, http.StatusForbidden, r.status, path)
		assert.NotContains(t, r.body, "Hidden", path)
	}
	form := url.Values{"id": {"new"}, "name": {"changed"}, "entry": {unusedNonce}, "amount": {"1000"}}
	for _, path := range []string{"accounts/new", "account?id=mine", "account?id=theirs", "account/credit?id=mine", "account/credit?id=theirs", "account/credit?id=unknown"} {
		assert.Equal(t, http.StatusForbidden, v.post(path, form).status, path)
	}
	assert.Equal(t, before, []manage.AccountInfo{h.account(t, "mine"), h.account(t, "theirs")})
	assert.Len(t, h.credit(t, "mine"), 1)
	_, err := h.accounts().Account(t.Context(), "new")
	assert.ErrorIs(t, err, manage.ErrAccountNotFound)

	without := h.newOwner(t, other).get("account")
	assert.Equal(t, http.StatusOK, without.status)
	assert.Contains(t, without.body, "This account has no limits.")
	assert.Equal(t, http.StatusNotFound, h.newAdmin(t).get("account?id=without+settings").status)
	assert.Equal(t, http.StatusNotFound, h.newAdmin(t).get("account").status)
}

// TestBrowser_Accounts lets an administrator sell credit to an account, whose owner sees it.
func TestBrowser_Accounts(t *testing.T) {
	h := newHost(t, nil)
	_, secret := h.mustCreate(t, manage.KeyParams{Account: "acme", Name: "app"})
	b := newTab(t, h)
	b.signIn()
	b.open("accounts")
	b.click("Create an account")
	b.fill("#id", "acme")
	b.fill("#user-requests", "often")
	b.click("Create")
	b.waitFor(".error", `"often" has no period`)
	b.expectProblem("422")
	eventually(t, func() bool { return evaluate[string](b, "document.activeElement.id") == "user-requests" }, "the field with the mistake has the focus")
	b.fill("#user-requests", "2/h")
	b.run(chromedp.Click(chromedp.CSS("[name=prepaid]")))
	b.click("Create")
	b.waitFor("h1", "prepaid")
	require.Equal(t, http.StatusTooManyRequests, h.chat(t, secret), "nothing is paid")
	b.fill("#amount", "5")
	b.fill("#note", "invoice 7")
	b.click("Add credit")
	b.waitFor("table", "invoice 7")
	b.waitFor(".limit", "$5.00 left")
	require.Equal(t, http.StatusOK, h.chat(t, secret))
	b.run(chromedp.NavigateBack()) // to the form that was sent
	b.waitFor("h1", "prepaid")
	b.click("Keys")
	b.waitFor("tbody", "app")
	assert.Len(t, h.credit(t, "acme"), 1)

	owner := newTab(t, h)
	owner.open("account")
	owner.fill("#key", secret)
	owner.click("Sign in with the key")
	owner.waitFor("h1", "Account acme")
	owner.waitFor("#credit + .scroll", "$5.00")
	assert.Zero(t, evaluate[int](owner, "document.querySelectorAll('main form').length"))
}

// A suspended account ends the sessions of its keys, and the playground refuses them.
func TestAccounts_Suspended(t *testing.T) {
	h := newHost(t, nil)
	h.mustCreateAccount(t, "acme", manage.AccountParams{}, 0)
	info, secret := h.mustCreate(t, manage.KeyParams{Account: "acme"})
	owner, admin := h.newOwner(t, secret), h.newAdmin(t)
	assert.Equal(t, http.StatusOK, admin.call(info.ID))
	require.Equal(t, http.StatusOK, admin.post("account?id=acme", url.Values{"suspended": {"yes"}}).status)
	assert.False(t, owner.isSignedIn())
	owner.requireRefused(info.ID, http.StatusUnauthorized)
	assert.Equal(t, http.StatusForbidden, owner.post("sign-in", url.Values{"key": {secret}}).status)
	assert.Equal(t, http.StatusUnauthorized, admin.call(info.ID))
	page := admin.get("key?id=" + info.ID).body
	assert.Contains(t, page, "The account is suspended")
	assert.NotContains(t, page, `href="/console/playground?key=`)
	require.Equal(t, http.StatusOK, admin.post("account?id=acme", url.Values{"was.suspended": {"yes"}}).status)
	assert.True(t, owner.isSignedIn())
	assert.Equal(t, http.StatusOK, admin.call(info.ID))
}

// The limits of an account hold in the playground too.
func TestAccounts_PlaygroundLimits(t *testing.T) {
	h := newHost(t, nil)
	h.mustCreateAccount(t, "acme", manage.AccountParams{Limits: llmhttp.Limits{Requests: llmhttp.Rate{N: 1, Per: time.Hour}}}, 0)
	info, _ := h.mustCreate(t, manage.KeyParams{Account: "acme"})
	v := h.newAdmin(t)
	assert.Equal(t, http.StatusOK, v.get("playground/models?key="+info.ID).status)
	assert.Equal(t, http.StatusOK, v.call(info.ID), "the list of models has taken nothing")
	assert.Equal(t, http.StatusTooManyRequests, v.call(info.ID))
	assert.Contains(t, v.get("account?id=acme").body, "1 of 1 used, free again in ")
}

// A console over a store without accounts has no pages for them.
func TestAccounts_StoreWithout(t *testing.T) {
	h := newHostWithStores(t, struct{ manage.KeyManager }{memory.NewKeyStore()}, memory.NewUsageStore(), nil)
	info, secret := h.mustCreate(t, manage.KeyParams{})
	admin, owner := h.newAdmin(t), h.newOwner(t, secret)
	for _, v := range []*visitor{admin, owner} {
		assert.NotContains(t, v.get("keys").body, `href="/console/account`)
		assert.NotContains(t, v.get("key?id="+info.ID).body, `href="/console/account`)
		for _, path := range []string{"accounts", "accounts/new", "account", "account?id=" + info.ID} {
			assert.Equal(t, http.StatusNotFound, v.get(path).status, path)
		}
		for _, path := range []string{"accounts/new", "account?id=" + info.ID, "account/credit?id=" + info.ID} {
			assert.Equal(t, http.StatusNotFound, v.post(path, nil).status, path)
		}
	}
	assert.Equal(t, http.StatusOK, admin.call(info.ID))
}

// Pages of accounts have texts of the host and of people as they are.
func TestAccounts_HostileTexts(t *testing.T) {
	h := newHost(t, nil)
	id := hostile
	h.mustCreateAccount(t, id, manage.AccountParams{Name: hostile, Labels: []llmhttp.Label{{Name: "team", Value: hostile}}}, 0)
	_, err := h.accounts().AddCredit(t.Context(), manage.CreditEntry{ID: hostile, Account: id, Amount: 1, Note: hostile})
	require.NoError(t, err)
	info, _ := h.mustCreate(t, manage.KeyParams{Account: id})
	v := h.newAdmin(t)
	v.post("account?id="+url.QueryEscape(id), url.Values{"name": {hostile + "2"}, "was.name": {hostile}})
	q := url.QueryEscape(id)
	for _, path := range []string{"accounts", "accounts?search=" + q, "account?id=" + q, "accounts/new?id=" + q, "account?id=" + q + "2", "key?id=" + info.ID, "audit"} {
		body := v.get(path).body
		assert.NotContains(t, body, "<script>", path)
		assert.NotContains(t, body, "<img src=x", path)
	}
	assert.Equal(t, hostile+"2", h.account(t, id).Name)
	invalid := v.post("accounts/new", url.Values{"id": {hostile}, "name": {hostile}, "labels": {hostile}, "quota": {hostile}}).body
	assert.NotContains(t, invalid, "<script>")
}
