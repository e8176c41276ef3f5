package console_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/manage"
)

// The pages of the list have each key once, in both directions, and keep the
// search and the filters.
func TestKeys_Pages(t *testing.T) {
	h := newHost(t, nil)
	var ids []string
	for i := range 120 {
		info, _ := h.mustCreate(t, manage.KeyParams{Name: fmt.Sprint("app ", i), Account: "acme"})
		ids = append(ids, info.ID)
		h.mustCreate(t, manage.KeyParams{Name: "not found"})
	}
	slices.Reverse(ids)
	v := h.newAdmin(t)
	idsOf := func(body string) (found []string) {
		for _, part := range strings.Split(body, `<span class="sub">key_`)[1:] {
			id, _, _ := strings.Cut(part, "<")
			found = append(found, "key_"+id)
		}
		return found
	}
	link := func(body, rel string) string {
		i := strings.LastIndex(body, `" rel="`+rel+`">`)
		if i < 0 {
			return ""
		}
		return "keys" + strings.ReplaceAll(body[strings.LastIndex(body[:i], `"`)+1:i], "&amp;", "&")
	}
	first := v.get("keys?search=APP&account=acme&status=active").body
	second := v.get(link(first, "next")).body
	third := v.get(link(second, "next")).body
	assert.Equal(t, ids[:50], idsOf(first))
	assert.Equal(t, ids[50:100], idsOf(second))
	assert.Equal(t, ids[100:], idsOf(third))
	assert.Empty(t, link(first, "prev"))
	assert.Empty(t, link(third, "next"))
	back := v.get(link(third, "prev")).body
	assert.Equal(t, ids[50:100], idsOf(back))
	again := v.get(link(back, "prev")).body
	assert.Equal(t, ids[:50], idsOf(again))
	assert.Empty(t, link(again, "prev"))
	assert.Equal(t, http.StatusNotFound, v.get("keys?after=key_unknown").status)
}

// A key may have the scopes of endpoints of the host: they are entered, and have a box from then on. One
// that may be a typing error is pointed out.
func TestKeys_ScopesOfHosts(t *testing.T) {
	h := newHost(t, nil)
	info, _ := h.mustCreate(t, manage.KeyParams{Name: "a"})
	v := h.newAdmin(t)
	scopes := func() []llmhttp.Scope {
		after, err := h.keys.Key(t.Context(), info.ID)
		require.NoError(t, err)
		return after.Scopes
	}
	send := func(was string, values ...string) *reply {
		return v.post("key?id="+info.ID, url.Values{"scopes": values, "was.scopes": {was}})
	}
	page := send("all", "chat", " classify, chats ")
	require.Equal(t, http.StatusOK, page.status)
	assert.Equal(t, []llmhttp.Scope{"chat", "classify", "chats"}, scopes())
	body := v.get("key?id=" + info.ID).body
	assert.Contains(t, body, `name="scopes" value="classify" checked`)
	assert.Contains(t, body, `value="" aria-label="Other scopes"`)
	assert.Contains(t, body, `llmhttp has no endpoint with the scope &#34;chats&#34;: did you mean &#34;chat&#34;?`)

	send("chat,classify,chats", "chat", "classify", "")
	assert.Equal(t, []llmhttp.Scope{"chat", "classify"}, scopes())
	assert.NotContains(t, v.get("key?id="+info.ID).body, "did you mean")
	send("chat,classify", "")
	assert.Equal(t, []llmhttp.Scope{}, scopes(), "an empty field is no scope")
	for _, mistake := range []string{"Classify", "chat,all", "classify,,chat"} {
		assert.Equal(t, http.StatusUnprocessableEntity, send("none", mistake).status, mistake)
	}
	assert.Equal(t, []llmhttp.Scope{}, scopes())
}

// An administrator can edit every setting of a key.
func TestKeys_Edit(t *testing.T) {
	h := newHost(t, nil)
	info, _ := h.mustCreate(t, manage.KeyParams{Name: "before"})
	v := h.newAdmin(t)
	form := url.Values{
		"name": {"after"}, "account": {"acme"}, "expires": {"2099-01-31"}, "scopes": {"chat", "models"}, "models": {"demo-*, other"},
		"requests": {"60/min,burst=10"}, "tokens": {"20k/min"}, "quota": {"1M/month"}, "max-completion-tokens": {"4000"}, "concurrent": {"4"},
		"was.name": {"before"}, "was.scopes": {"all"}, "was.models": {"all"},
	}
	require.Equal(t, http.StatusOK, v.post("key?id="+info.ID, form).status)
	after, err := h.keys.Key(t.Context(), info.ID)
	require.NoError(t, err)
	assert.Equal(t, manage.KeyParams{
		Name: "after", Account: "acme", Expires: time.Date(2099, 1, 31, 0, 0, 0, 0, time.UTC), Scopes: []llmhttp.Scope{"chat", "models"}, Models: []string{"demo-*", "other"},
		Limits: llmhttp.Limits{
			Requests: llmhttp.Rate{N: 60, Per: time.Minute, Burst: 10}, Tokens: llmhttp.PerMinute(20_000), Quota: llmhttp.Quota{Tokens: 1_000_000},
			MaxCompletionTokens: 4000, Concurrent: 4,
		},
	}, after.Params())
	for field, value := range map[string]string{"expires": "soon", "scopes": "Nonsense", "requests": "many", "tokens": "1/x", "quota": "x", "concurrent": "x", "max-completion-tokens": "x", "name": strings.Repeat("x", 600)} {
		assert.Equal(t, http.StatusUnprocessableEntity, v.post("key?id="+info.ID, url.Values{field: {value}, "was." + field: {"x y"}}).status, field)
	}
	unchanged, err := h.keys.Key(t.Context(), info.ID)
	require.NoError(t, err)
	assert.Equal(t, after, unchanged)
}
