package sqlstore

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
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

// An accountHost is a Handler on a Store, where each request costs one unit of money.
type accountHost struct {
	*Store
	handler http.Handler
}

func newAccountHost(t *testing.T, dsn string, opts *Options) *accountHost {
	s := openStore(t, dsn, opts)
	price := func(*llmhttp.UsageRecord) (llmhttp.Cost, error) { return llmhttp.Cost{Other: llm.MoneyUnit}, nil }
	return &accountHost{s, llmhttp.NewHandler(memory.Echo(), s, &llmhttp.Options{Usage: s, Price: price, Logger: discardLogger})}
}

// chat makes a request and returns the code of the error, the status if that has none, or "ok".
func (h *accountHost) chat(t *testing.T, secret, user string) string {
	t.Helper()
	body, err := json.Marshal(map[string]any{"model": "demo-chat", "user": user, "messages": []map[string]string{{"role": "user", "content": "Hello!"}}})
	require.NoError(t, err)
	r := httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(string(body))).WithContext(t.Context())
	r.Header.Set("Authorization", "Bearer "+secret)
	w := httptest.NewRecorder()
	h.handler.ServeHTTP(w, r)
	if w.Code == http.StatusOK {
		return "ok"
	}
	var reply struct{ Error struct{ Code string } }
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &reply))
	if reply.Error.Code == "" {
		return http.StatusText(w.Code)
	}
	return reply.Error.Code
}

// addCredit adds units of money to the credit of acme, and tells how many of the following
// requests with the secrets are served before one is refused, and how that one is.
func (h *accountHost) addCredit(t *testing.T, units llm.Money, secrets ...string) (served int, refused string) {
	t.Helper()
	addCredit(t, h.Store, "acme", units*llm.MoneyUnit)
	for served = range 100 {
		if refused = h.chat(t, secrets[served%len(secrets)], ""); refused != "ok" {
			break
		}
	}
	return served, refused
}

// The keys of a prepaid account share its credit. A top-up works at once, and a correction too.
func TestHandler_PrepaidAccount(t *testing.T) {
	forEachDatabase(t, func(t *testing.T, dsn string) {
		h := newAccountHost(t, dsn, nil)
		createAccount(t, h.Store, "acme", manage.AccountParams{Prepaid: true, Labels: []llmhttp.Label{{Name: "plan", Value: "small"}}})
		_, first := createKey(t, h.Store, manage.KeyParams{Account: "acme"})
		_, second := createKey(t, h.Store, manage.KeyParams{Account: "acme"})
		assert.Equal(t, "insufficient_quota", h.chat(t, first, ""), "an account without credit may use nothing")
		for _, units := range []llm.Money{3, 2, 1} {
			served, refused := h.addCredit(t, units, first, second)
			assert.EqualValues(t, units, served)
			assert.Equal(t, "insufficient_quota", refused)
			assert.Equal(t, "insufficient_quota", h.chat(t, second, ""))
		}
		served, _ := h.addCredit(t, -2, first, second)
		assert.Zero(t, served)
		served, _ = h.addCredit(t, 3, first, second)
		assert.Equal(t, 1, served, "a debt is paid first")

		info, err := h.Account(t.Context(), "acme")
		require.NoError(t, err)
		subject := info.Subject()
		used := mustQuery(t, h.Store, llmhttp.UsageQuery{Account: "acme", Subject: subject.ID, From: subject.Limits.Quota.Start(time.Now()), To: time.Now().Add(day)})
		require.Len(t, used, 1)
		assert.Equal(t, 7*llm.MoneyUnit, info.Credit)
		assert.Equal(t, 7*llm.MoneyUnit, used[0].Cost.Total())
		today := time.Now().UTC().Truncate(day)
		report, err := h.Report(t.Context(), manage.ReportQuery{Label: llmhttp.Label{Name: "plan", Value: "small"}, From: today.Add(-day), To: today.Add(2 * day)})
		require.NoError(t, err)
		assert.EqualValues(t, 7, report.Total().Requests, "each record has the labels of the account")

		_, err = h.UpdateAccount(t.Context(), "acme", func(p *manage.AccountParams) error { p.Suspended = true; return nil })
		require.NoError(t, err)
		assert.Equal(t, "invalid_api_key", h.chat(t, first, ""))
		_, err = h.UpdateAccount(t.Context(), "acme", func(p *manage.AccountParams) error { p.Prepaid, p.Suspended = false, false; return nil })
		require.NoError(t, err)
		assert.Equal(t, "ok", h.chat(t, first, ""), "an account that is not prepaid needs no credit")
	})
}

// A top-up by another process works within KeyTTL.
func TestHandler_PrepaidByOtherStore(t *testing.T) {
	forEachSharedDatabase(t, func(t *testing.T, dsn string) {
		h := newAccountHost(t, dsn, &Options{KeyTTL: 50 * time.Millisecond})
		other := openStore(t, dsn, nil)
		createAccount(t, other, "acme", manage.AccountParams{Prepaid: true})
		_, secret := createKey(t, other, manage.KeyParams{Account: "acme"})
		for range 2 {
			assert.Equal(t, "insufficient_quota", h.chat(t, secret, ""))
			addCredit(t, other, "acme", llm.MoneyUnit)
			eventually(t, func() bool { return h.chat(t, secret, "") == "ok" }, "the top-up works")
		}
	})
}

// The limits of an account hold for its keys together, and those of an end user for that one.
func TestHandler_LimitsOfAccount(t *testing.T) {
	forEachDatabase(t, func(t *testing.T, dsn string) {
		h := newAccountHost(t, dsn, nil)
		hour := func(n int) llmhttp.Limits { return llmhttp.Limits{Requests: llmhttp.Rate{N: n, Per: 1000 * time.Hour}} }
		createAccount(t, h.Store, "acme", manage.AccountParams{Limits: hour(5), PerUser: hour(2)})
		_, first := createKey(t, h.Store, manage.KeyParams{Account: "acme"})
		_, second := createKey(t, h.Store, manage.KeyParams{Account: "acme"})
		var got []string
		for _, user := range []string{"ann", "ann", "ann", "bob", "bob", "ann", "cid", "cid"} {
			got = append(got, h.chat(t, []string{first, second}[len(got)%2], user))
		}
		const ok, refused = "ok", "rate_limit_exceeded"
		assert.Equal(t, []string{ok, ok, refused, ok, ok, refused, ok, refused}, got, "ann may make two requests, and all together five")
	})
}
