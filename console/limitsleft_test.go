package console_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/manage"
	"github.com/llmhttp/llmhttp/memory"
)

// The page of a key whose account has used its budget up says so, and lists tell what is left.
func TestLimits_OfTheAccount(t *testing.T) {
	h := newHost(t, nil)
	h.mustCreateAccount(t, "acme", manage.AccountParams{
		Limits:  llmhttp.Limits{Quota: llmhttp.Quota{Cost: llm.USD(2)}, Requests: llmhttp.PerMinute(60)},
		PerUser: llmhttp.Limits{Concurrent: 3},
	}, 0)
	h.mustCreateAccount(t, "prepaid", manage.AccountParams{Prepaid: true}, 5*llm.MoneyUnit)
	unlimited, secret := h.mustCreate(t, manage.KeyParams{Name: "unlimited", Account: "acme"})
	limited, _ := h.mustCreate(t, manage.KeyParams{Name: "limited", Account: "prepaid", Limits: llmhttp.Limits{Quota: llmhttp.Quota{Tokens: 2_000_000}}})
	plain, _ := h.mustCreate(t, manage.KeyParams{Name: "plain"})
	v := h.newAdmin(t)
	row := func(page, name string) string { return findPart(t, v.get(page).body, ">"+name+"</a>", "</tr>") }

	page := v.get("key?id=" + unlimited.ID).body
	assert.NotContains(t, page, "is used up")
	assert.Contains(t, findPart(t, page, "Limits of account acme", "Limits of each end user"), "$0.00 of $2.00 used")
	assert.Contains(t, findPart(t, page, "Limits of each end user", "</section>"), "concurrent</span><span class=\"limit-value\">3<")
	assert.Contains(t, row("keys", "unlimited"), `<td class="number">$2.00<span class="sub">of 2usd/month</span></td>`)
	assert.Contains(t, row("accounts", "acme"), `<td class="number">$2.00<span class="sub">of 2usd/month</span></td>`)
	assert.Contains(t, row("accounts", "prepaid"), `<td class="number">$5.00<span class="sub">of $5.00</span></td>`)
	assert.NotContains(t, v.get("key?id="+plain.ID).body, "Limits of ")

	h.mustRecord(t, record("1", time.Now(), "acme", unlimited.ID, "m", 1_000_000), record("2", time.Now(), "prepaid", limited.ID, "m", 1_000_000))
	require.Equal(t, http.StatusTooManyRequests, h.chat(t, secret))
	for _, v := range []*visitor{v, h.newOwner(t, secret)} {
		page = v.get("key?id=" + unlimited.ID).body
		assert.Contains(t, page, "Requests are refused: the quota of account acme is used up.")
		assert.Contains(t, findPart(t, page, "Limits of account acme", "Limits of each end user"), "$2.00 of $2.00 used")
		assert.Contains(t, findPart(t, v.get("keys").body, ">unlimited</a>", "</tr>"), `<td class="number">$0.00<span`)
	}
	assert.Contains(t, row("keys", "limited"), `<td class="number">750`+"\u202f"+`000<span class="sub">of 2000000/month</span></td>`, "of the key less is left than of its account")
	assert.Contains(t, row("keys", "plain"), `<td class="number">–</td>`)
	assert.Contains(t, row("accounts", "prepaid"), `<td class="number">$3.00<span class="sub">of $5.00</span></td>`)
	h.mustRecord(t, record("3", time.Now(), "prepaid", limited.ID, "m", 2_000_000))
	assert.Contains(t, row("accounts", "prepaid"), `<td class="number">-$1.00<`)
	assert.Contains(t, v.get("key?id="+limited.ID).body, "Requests are refused: the quota of this key is used up.")
}

// teamKeys are keys of which all belong to a team.
type teamKeys struct{ manage.KeyManager }

func (k teamKeys) Key(ctx context.Context, id string) (manage.KeyInfo, error) {
	info, err := k.KeyManager.Key(ctx, id)
	info.Subjects = []llmhttp.Subject{
		{ID: llmhttp.SubjectID{Kind: "team", ID: "red"}, Limits: llmhttp.Limits{Requests: llmhttp.PerMinute(30)}},
		{ID: llmhttp.SubjectID{Kind: llmhttp.KindAccount, ID: info.Account}, Limits: llmhttp.Limits{Tokens: llmhttp.PerMinute(40)}},
	}
	info.PerUser.Requests = llmhttp.PerMinute(7)
	return info, err
}

// Keys of a host can have other subjects, which have limits too.
func TestLimits_OfSubjects(t *testing.T) {
	h := newHostWithStores(t, teamKeys{memory.NewKeyStore()}, memory.NewUsageStore(), nil)
	info, _ := h.mustCreate(t, manage.KeyParams{Account: "acme"})
	page := h.newAdmin(t).get("key?id=" + info.ID).body
	assert.Contains(t, findPart(t, page, "Limits of team red", "<h3>"), "0 of 30 used")
	assert.Contains(t, findPart(t, page, "Limits of account acme", "<h3>"), "0 of 40 used")
	assert.Contains(t, findPart(t, page, "Limits of each end user", "</section>"), `<span class="limit-value">7/m<`)
}

// A form that was saved says so on the page to which it leads, and only there.
func TestForms_SayWhatTheyHaveDone(t *testing.T) {
	h := newHost(t, nil)
	h.mustCreateAccount(t, "acme", manage.AccountParams{}, 0)
	info, _ := h.mustCreate(t, manage.KeyParams{Name: "before"})
	v := h.newAdmin(t)
	for _, test := range []struct {
		path string
		form url.Values
		want string
	}{
		{"key?id=" + info.ID, url.Values{"name": {"after"}, "was.name": {"before"}}, "The changes were saved."},
		{"key?id=" + info.ID, url.Values{"name": {"after"}, "was.name": {"after"}}, "Nothing was changed: these were the settings already."},
		{"key/suspend?id=" + info.ID, nil, "The key was suspended."},
		{"key/resume?id=" + info.ID, nil, "The key was resumed."},
		{"key/revoke?id=" + info.ID, nil, "The key was revoked."},
		{"account?id=acme", url.Values{"name": {"Acme"}}, "The changes were saved."},
		{"account/credit?id=acme", url.Values{"entry": {v.newEntry("acme")}, "amount": {"5"}}, "The credit was added."},
		{"accounts/new", url.Values{"id": {"new"}}, "The account was created."},
	} {
		r := v.post(test.path, test.form)
		require.Equal(t, http.StatusOK, r.status, test.path)
		assert.Contains(t, r.body, `<p class="notice" role="status">`+test.want+`</p>`, test.path)
		assert.NotContains(t, v.get(strings.TrimPrefix(r.url.RequestURI(), "/console/")).body, test.want, "it is shown once")
	}
	for _, path := range []string{"key?id=" + info.ID, "keys", "account?id=acme"} {
		assert.NotContains(t, v.get(path).body, `class="notice"`, path)
	}
}
