package console_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/console"
	"github.com/llmhttp/llmhttp/manage"
	"github.com/llmhttp/llmhttp/memory"
)

// pagesOf returns the paths of all pages about a key, and postsOf those of all
// forms.
func pagesOf(id string) []string {
	q := "?id=" + url.QueryEscape(id)
	return []string{
		"", "overview", "keys", "keys?after=" + url.QueryEscape(id), "keys/new", "key" + q, "key/rotate" + q, "key/revoke" + q,
		"usage", "usage?by=key", "usage/table.csv?by=key", "playground", "playground/models?key=" + url.QueryEscape(id), "audit",
		"accounts", "accounts/new", "account" + q,
	}
}

func postsOf(id string) []string {
	q := "?id=" + url.QueryEscape(id)
	return []string{"keys/new", "key" + q, "key/rotate" + q, "key/revoke" + q, "key/suspend" + q, "key/resume" + q, "playground/chat?key=" + url.QueryEscape(id), "sign-out",
		"accounts/new", "account" + q, "account/credit" + q}
}

func TestSecurity_WithoutSignIn(t *testing.T) {
	h := newHost(t, nil)
	info, _ := h.mustCreate(t, manage.KeyParams{Name: "marker"})
	v := h.newVisitor(t)
	for _, path := range pagesOf(info.ID) {
		r := v.get(path)
		assert.Equal(t, "/console/sign-in", r.url.Path, path)
		assert.NotContains(t, r.body, "marker", path)
	}
	for _, path := range postsOf(info.ID) {
		assert.Equal(t, http.StatusUnauthorized, v.post(path, url.Values{"name": {"changed"}}).status, path)
	}
	after, err := h.keys.Key(t.Context(), info.ID)
	require.NoError(t, err)
	assert.Equal(t, info, after)
}

func TestSecurity_CrossOrigin(t *testing.T) {
	h := newHost(t, nil)
	info, secret := h.mustCreate(t, manage.KeyParams{})
	v := h.newAdmin(t)
	for _, header := range []http.Header{
		{"Sec-Fetch-Site": {"cross-site"}},
		{"Sec-Fetch-Site": {"same-site"}},
		{"Origin": {"https://evil.example"}},
		{"Origin": {"null"}},
	} {
		v.header = header
		for _, path := range append(postsOf(info.ID), "sign-in") {
			r := v.post(path, url.Values{"name": {"changed"}, "nonce": {"ABCDEFGHIJKLMNOPQRSTUVWXYZ"}})
			assert.Equal(t, http.StatusForbidden, r.status, "%s with %v", path, header)
		}
	}
	assert.Equal(t, http.StatusOK, h.chat(t, secret), "the key works")
	after, err := h.keys.Key(t.Context(), info.ID)
	require.NoError(t, err)
	after.LastUsed = time.Time{}
	assert.Equal(t, info, after)

	v.header = http.Header{"Sec-Fetch-Site": {"same-origin"}, "Origin": {h.URL}}
	assert.Equal(t, http.StatusOK, v.post("key/revoke?id="+info.ID, nil).status)
	assert.Equal(t, http.StatusUnauthorized, h.chat(t, secret))
}

func TestSecurity_Headers(t *testing.T) {
	h := newHost(t, nil)
	info, _ := h.mustCreate(t, manage.KeyParams{})
	admin, stranger := h.newAdmin(t), h.newVisitor(t)
	for _, path := range append(pagesOf(info.ID), "sign-in", "nothing", "key?id=nothing") {
		for _, v := range []*visitor{admin, stranger} {
			r := v.get(path)
			policy := r.header.Get("Content-Security-Policy")
			assert.Contains(t, policy, "default-src 'none'", path)
			assert.NotContains(t, policy, "unsafe-eval", path)
			if strings.HasPrefix(r.header.Get("Content-Type"), "text/html") {
				assert.NotContains(t, policy, "unsafe-inline", path)
				assert.Contains(t, policy, "frame-ancestors 'none'", path)
				assert.NotRegexp(t, `<script>|<script [^>]*>[^<]|<style| style=| on[a-z]+=`, r.body, path)
			}
			assert.Equal(t, "nosniff", r.header.Get("X-Content-Type-Options"), path)
			assert.Equal(t, "DENY", r.header.Get("X-Frame-Options"), path)
			if !strings.HasPrefix(path, "playground/") || v == stranger {
				assert.Equal(t, "no-store", r.header.Get("Cache-Control"), path)
			}
		}
	}
}

func TestSecurity_Cookie(t *testing.T) {
	h := newHost(t, nil)
	form := url.Values{"name": {adminName}, "password": {adminPassword}}.Encode()
	for host, secure := range map[string]bool{"127.0.0.1:8080": false, "localhost": false, "[::1]:80": false, "llm.example.com": true, "10.0.0.7:8080": true, "127.0.0.1.example.com": true} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.URL+"/console/sign-in", strings.NewReader(form))
		require.NoError(t, err)
		r.Host = host
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		response, err := http.DefaultTransport.RoundTrip(r)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Len(t, response.Cookies(), 2, host)
		for _, c := range response.Cookies() {
			assert.True(t, c.HttpOnly)
			assert.Equal(t, http.SameSiteStrictMode, c.SameSite)
			assert.Equal(t, secure, c.Secure, host)
		}
		session, browser := response.Cookies()[0], response.Cookies()[1]
		assert.Equal(t, "/console/", session.Path)
		assert.Equal(t, 12*60*60, session.MaxAge)
		assert.Equal(t, "/console/sign-in", browser.Path)
		assert.Equal(t, 30*24*60*60, browser.MaxAge)
	}
}

// A proxy does not change whether a cookie has Secure, also if it sends the address of the console as the Host and
// does not tell that it is one. Only a request that came from this machine itself is exempt.
func TestSecurity_CookieBehindProxy(t *testing.T) {
	h := newHost(t, nil)
	form := url.Values{"name": {adminName}, "password": {adminPassword}}.Encode()
	for name, test := range map[string]struct {
		header map[string]string
		secure bool
	}{
		"direct":            {nil, false},
		"direct by browser": {map[string]string{"Origin": "http://127.0.0.1:8080", "Referer": "http://127.0.0.1:8080/console/sign-in"}, false},
		"X-Forwarded-For":   {map[string]string{"X-Forwarded-For": "192.0.2.1"}, true},
		"X-Forwarded-Proto": {map[string]string{"X-Forwarded-Proto": "https"}, true},
		"Forwarded":         {map[string]string{"Forwarded": "for=192.0.2.1"}, true},
		"Via":               {map[string]string{"Via": "1.1 proxy"}, true},
		"X-Real-IP":         {map[string]string{"X-Real-IP": "192.0.2.1"}, true},
		"silent proxy":      {map[string]string{"Origin": "https://console.example.com", "Sec-Fetch-Site": "same-origin"}, true},
		"only a Referer":    {map[string]string{"Referer": "https://console.example.com/console/"}, true},
		"no Origin to tell": {map[string]string{"Origin": "null", "Sec-Fetch-Site": "same-origin"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.URL+"/console/sign-in", strings.NewReader(form))
			require.NoError(t, err)
			r.Host = "127.0.0.1:8080"
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			for name, value := range test.header {
				r.Header.Set(name, value)
			}
			response, err := http.DefaultTransport.RoundTrip(r)
			require.NoError(t, err)
			require.NoError(t, response.Body.Close())
			require.Len(t, response.Cookies(), 2)
			for _, c := range response.Cookies() {
				assert.Equal(t, test.secure, c.Secure, c.Name)
			}
		})
	}
}

func TestSecurity_SignOut(t *testing.T) {
	h := newHost(t, nil)
	v := h.newAdmin(t)
	base, err := url.Parse(h.URL + "/console/")
	require.NoError(t, err)
	cookies := v.client.Jar.Cookies(base)
	assert.Contains(t, v.get("keys").body, "API keys")
	assert.Equal(t, http.StatusOK, v.post("sign-out", nil).status)
	assert.Empty(t, v.client.Jar.Cookies(base))
	v.client.Jar.SetCookies(base, cookies)
	assert.Equal(t, "/console/sign-in", v.get("keys").url.Path, "the session has ended on the server too")
	assert.Equal(t, []string{"ada: sign in", "ada: sign out"}, h.auditLog())
}

// Two processes with the same secret accept each other's sessions. A session ends
// with the password and with the secret.
func TestSecurity_SessionsOfOthers(t *testing.T) {
	keys := memory.NewKeyStore()
	start := func(password, secret string) *host {
		return newHostWithStores(t, keys, memory.NewUsageStore(), func(_ *host, o *console.Options) {
			o.SignIn.SessionSecret = []byte(secret)
			if password != "" {
				o.SignIn.Admins[adminName] = quickHash(password)
			}
		})
	}
	const secret = "0123456789abcdef0123456789abcdef"
	first := start("", secret)
	_, key := first.mustCreate(t, manage.KeyParams{Account: "acme"})
	v, owner := first.newAdmin(t), first.newOwner(t, key)
	for _, test := range []struct {
		what         string
		h            *host
		admin, owner bool
	}{
		{"a copy", start("", secret), true, true},
		{"another secret", start("", strings.ToUpper(secret)), false, false},
		{"no secret", start("", ""), false, false},
		{"another password", start("another password", secret), false, true},
	} {
		v.h, owner.h = test.h, test.h
		assert.Equal(t, test.admin, v.get("keys").url.Path == "/console/keys", test.what) // cookies do not depend on the port
		assert.Equal(t, test.owner, owner.get("keys").url.Path == "/console/keys", test.what)
	}
	_, err := console.New(keys, &console.Options{SignIn: &console.SignIn{Keys: true, SessionSecret: []byte("short")}})
	assert.EqualError(t, err, "console: SignIn.SessionSecret has 5 bytes; it must have at least 32")
}

func TestSecurity_SignInAttempts(t *testing.T) {
	console.SlowAttempts(t)
	address := "198.51.100.1"
	h := newHost(t, func(_ *host, o *console.Options) {
		o.SignIn.ClientAddr = func(*http.Request) string { return address }
		o.Audit = func(_ context.Context, e console.AuditEntry) {
			assert.Equal(t, address, e.Addr, "the audit log has the same address")
		}
	})
	_, secret := h.mustCreate(t, manage.KeyParams{})
	v := h.newVisitor(t)
	for i := range 10 {
		form := url.Values{"name": {adminName}, "password": {"wrong"}}
		if i%2 == 0 {
			form = url.Values{"key": {"sk-wrong"}}
		}
		assert.Equal(t, http.StatusForbidden, v.post("sign-in", form).status)
	}
	right := url.Values{"name": {adminName}, "password": {adminPassword}}
	assert.Equal(t, http.StatusTooManyRequests, v.post("sign-in", right).status)
	assert.Equal(t, http.StatusTooManyRequests, v.post("sign-in", url.Values{"key": {secret}}).status)
	address = "198.51.100.2"
	assert.Equal(t, http.StatusOK, v.post("sign-in", right).status, "other clients can sign in")

	for i := range 20 { // from many addresses, for one name
		address = fmt.Sprint("203.0.113.", i)
		v.post("sign-in", url.Values{"name": {adminName}, "password": {"wrong"}})
	}
	address = "198.51.100.3"
	assert.Equal(t, http.StatusTooManyRequests, v.post("sign-in", right).status)
}

func TestSecurity_WrongCredentials(t *testing.T) {
	h := newHost(t, nil)
	_, expired := h.mustCreate(t, manage.KeyParams{Expires: time.Now().Add(-time.Hour)})
	_, suspended := h.mustCreate(t, manage.KeyParams{Suspended: true})
	h.keys.(*memory.KeyStore).Add(llmhttp.Anonymous, &llmhttp.Key{ID: "of requests without a key"})
	v := h.newVisitor(t)
	var texts []string
	for _, form := range []url.Values{
		{"name": {adminName}, "password": {""}}, {"name": {"nobody"}, "password": {adminPassword}}, {"name": {adminPassword}, "password": {adminPassword}},
		{"key": {""}}, {"key": {llmhttp.Anonymous}}, {"key": {"sk-unknown"}}, {"key": {expired}}, {"key": {suspended}},
	} {
		r := v.post("sign-in", form)
		assert.Equal(t, http.StatusForbidden, r.status, form)
		_, rest, _ := strings.Cut(r.body, `role="alert">`)
		text, _, _ := strings.Cut(rest, "<")
		texts = append(texts, text)
	}
	assert.Equal(t, []string{texts[0], texts[0], texts[0]}, texts[:3], "the reply does not tell whether the name exists")
	assert.Equal(t, "/console/sign-in", v.get("keys").url.Path)
	for _, e := range h.auditLog() {
		assert.Contains(t, []string{"ada: sign in failed", ": sign in failed"}, e)
	}
	assert.NotContains(t, h.log.String(), adminPassword)
}

func TestSecurity_OpenRedirect(t *testing.T) {
	h := newHost(t, nil)
	v := h.newVisitor(t)
	v.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for next, want := range map[string]string{
		"": "", "keys?search=a&status=active": "keys?search=a&status=active", "//evil.example": "", "/\\evil.example": "", "https://evil.example": "",
		"\\\\evil.example": "", "../../evil": "", "javascript:alert(1)": "", "key\r\nSet-Cookie: a=b": "",
	} {
		r := v.post("sign-in", url.Values{"name": {adminName}, "password": {adminPassword}, "next": {next}})
		if r.status == http.StatusTooManyRequests {
			t.Fatal("too many attempts")
		}
		assert.Equal(t, "/console/"+want, r.header.Get("Location"), next)
	}
}

// TestSecurity_Secrets checks that a secret is in one reply and nowhere else.
func TestSecurity_Secrets(t *testing.T) {
	h := newHost(t, nil)
	v := h.newAdmin(t)
	form := url.Values{"nonce": {v.nonce("keys/new")}, "name": {"new"}}
	created := v.post("keys/new", form)
	secret := secretIn(t, created.body)
	assert.Equal(t, http.StatusOK, h.chat(t, secret))
	assert.Equal(t, 1, strings.Count(created.body, secret))
	assert.NotContains(t, created.url.String(), secret)
	assert.Equal(t, http.StatusConflict, v.post("keys/new", form).status, "reloading makes no second key")

	keys, err := h.keys.ListKeys(t.Context(), manage.KeyQuery{})
	require.NoError(t, err)
	require.Len(t, keys, 1)
	id := keys[0].ID
	form = url.Values{"nonce": {v.nonce("key/rotate?id=" + id)}, "overlap": {"1h"}}
	rotated := secretIn(t, v.post("key/rotate?id="+id, form).body)
	assert.Equal(t, http.StatusConflict, v.post("key/rotate?id="+id, form).status)
	assert.Equal(t, http.StatusOK, h.chat(t, rotated))
	h.newOwner(t, rotated)

	for _, s := range []string{secret, rotated} {
		random := strings.TrimPrefix(s, keys[0].Prefix)[4:]
		for _, path := range pagesOf(id) {
			assert.NotContains(t, v.get(path).body, random, path)
		}
		assert.NotContains(t, h.log.String(), random)
		h.mu.Lock()
		assert.NotContains(t, fmt.Sprint(h.audit), random)
		h.mu.Unlock()
	}
	assert.NotContains(t, h.log.String(), adminPassword)
}

// TestSecurity_OthersAreInvisible checks that keys and usage of other accounts
// look like those that do not exist.
func TestSecurity_OthersAreInvisible(t *testing.T) {
	h := newHost(t, nil)
	mine, secret := h.mustCreate(t, manage.KeyParams{Account: "mine", Name: "my key"})
	other, otherSecret := h.mustCreate(t, manage.KeyParams{Account: "other", Name: "their key"})
	h.mustRecord(t, record("1", time.Now(), "mine", mine.ID, "my-model", 100), record("2", time.Now(), "other", other.ID, "their-model", 100))
	v := h.newOwner(t, secret)

	assert.Contains(t, v.get("keys").body, "my key")
	assert.Contains(t, v.get("usage?by=model").body, "my-model")
	q := "?id=" + other.ID
	for _, path := range []string{
		"keys", "keys?account=other", "keys?search=their", "usage?by=model", "usage?by=key", "usage?by=account", "usage?by=user", "usage?by=label&label=team", "usage/table.csv?by=user",
		"usage?account=other&by=model", "usage?key=" + other.ID + "&by=model",
		"usage/table.csv?account=other&by=model", "usage/table.csv?by=key", "playground", "playground?key=" + other.ID,
	} {
		r := v.get(path)
		assert.Equal(t, http.StatusOK, r.status, path)
		for _, hidden := range []string{"their", other.Prefix} {
			assert.NotContains(t, strings.ReplaceAll(r.body, `value="their"`, ""), hidden, path)
		}
	}
	for _, path := range []string{"key" + q, "key/rotate" + q, "key/revoke" + q, "keys?after=" + other.ID, "keys?before=" + other.ID, "playground/models?key=" + other.ID} {
		r, unknown := v.get(path), v.get(strings.ReplaceAll(path, other.ID, "key_unknown"))
		assert.Equal(t, http.StatusNotFound, r.status, path)
		assert.Equal(t, unknown.body, r.body, path)
	}
	for _, path := range []string{"key" + q, "key/rotate" + q, "key/revoke" + q, "playground/chat?key=" + other.ID} {
		assert.Equal(t, http.StatusNotFound, v.post(path, url.Values{"name": {"changed"}, "nonce": {"ABCDEFGHIJKLMNOPQRSTUVWXYZ"}}).status, path)
	}
	for _, path := range []string{"overview", "audit", "keys/new"} {
		assert.Contains(t, []int{http.StatusForbidden, http.StatusNotFound}, v.get(path).status, path)
	}
	assert.Equal(t, http.StatusOK, h.chat(t, otherSecret))
	after, err := h.keys.Key(t.Context(), other.ID)
	require.NoError(t, err)
	assert.Equal(t, "their key", after.Name)
}

// TestSecurity_Owner checks that people who have signed in with a key cannot give
// themselves more than they have.
func TestSecurity_Owner(t *testing.T) {
	h := newHost(t, nil)
	expires := time.Now().Add(100 * time.Hour)
	own, secret := h.mustCreate(t, manage.KeyParams{
		Account: "acme", Models: []string{"demo-*"}, Expires: expires, Limits: llmhttp.Limits{Requests: llmhttp.PerMinute(1000)},
	})
	strong, _ := h.mustCreate(t, manage.KeyParams{Account: "acme", Name: "strong"})
	weak, _ := h.mustCreate(t, manage.KeyParams{
		Account: "acme", Scopes: []llmhttp.Scope{"chat"}, Models: []string{"demo-chat"},
		Expires: time.Now().Add(time.Hour), Limits: llmhttp.Limits{Requests: llmhttp.PerMinute(10)},
	})
	v := h.newOwner(t, secret)

	v.post("key?id="+own.ID, url.Values{"name": {"renamed"}, "account": {"other"}, "scopes": {"all"}, "models": {"all"}, "requests": {"none"}, "was.requests": {"1/m"}, "quota": {"5/m"}})
	after, err := h.keys.Key(t.Context(), own.ID)
	require.NoError(t, err)
	want := own.Params()
	want.Name = "renamed"
	assert.Equal(t, want, after.Params(), "only the name has changed")

	later := url.Values{"name": {"renamed"}, "was.name": {"renamed"}, "expires": {"never"}, "was.expires": {"x"}}
	assert.Equal(t, http.StatusUnprocessableEntity, v.post("key?id="+own.ID, later).status)
	later.Set("expires", "2h")
	assert.Equal(t, http.StatusOK, v.post("key?id="+own.ID, later).status, "an earlier expiry is allowed")

	nonce := url.Values{"nonce": {v.nonce("key/rotate?id=" + weak.ID)}, "overlap": {"0"}}
	for _, path := range []string{"key/rotate?id=", "key/revoke?id=", "key?id=", "playground/chat?key="} {
		assert.Equal(t, http.StatusForbidden, v.post(path+strong.ID, nonce).status, path)
	}
	assert.Equal(t, http.StatusForbidden, v.post("keys/new", nonce).status)
	assert.Equal(t, http.StatusForbidden, v.post("key/suspend?id="+weak.ID, nil).status)
	assert.Equal(t, http.StatusForbidden, v.post("key/resume?id="+weak.ID, nil).status)
	assert.NotEmpty(t, secretIn(t, v.post("key/rotate?id="+weak.ID, nonce).body), "a key that allows less can be rotated")
	assert.NotContains(t, v.get("playground").body, strong.ID)
	assert.Contains(t, v.get("keys").body, "strong", "all keys of the account are shown")

	require.NoError(t, h.keys.RevokeKey(t.Context(), own.ID))
	assert.Equal(t, "/console/sign-in", v.get("keys").url.Path, "the session ends with the key")
}

func TestSecurity_Grant(t *testing.T) {
	expires := time.Now().Add(100 * time.Hour).UTC().Truncate(time.Second)
	grant := &manage.KeyParams{
		Account: "ignored", Models: []string{"demo-*"}, Expires: expires, Limits: llmhttp.Limits{Requests: llmhttp.PerMinute(5)}, Suspended: true,
	}
	h := newHost(t, func(_ *host, o *console.Options) {
		o.SignIn = nil
		o.User = func(*http.Request) (console.User, error) {
			return console.User{Name: "grace", Account: "acme", Grant: grant}, nil
		}
	})
	v := h.newVisitor(t)
	for expiry, status := range map[string]int{"": http.StatusOK, "3h": http.StatusOK, "never": http.StatusUnprocessableEntity, "2999-01-01": http.StatusUnprocessableEntity} {
		form := url.Values{"nonce": {v.nonce("keys/new")}, "name": {"n" + expiry}, "models": {"all"}, "requests": {"9/s"}, "account": {"other"}, "expires": {expiry}}
		assert.Equal(t, status, v.post("keys/new", form).status, expiry)
	}
	keys, err := h.keys.ListKeys(t.Context(), manage.KeyQuery{})
	require.NoError(t, err)
	require.Len(t, keys, 2)
	for _, k := range keys {
		assert.Equal(t, "acme", k.Account)
		assert.Equal(t, grant.Models, k.Models)
		assert.Equal(t, grant.Limits, k.Limits)
		assert.False(t, k.Expires.After(expires))
		assert.False(t, k.Expires.IsZero())
		assert.False(t, k.Suspended)
	}
}

// A mistake in the limits of a Grant makes no key. The log tells what it is.
func TestSecurity_GrantWithInvalidLimits(t *testing.T) {
	h := newHost(t, func(_ *host, o *console.Options) {
		o.SignIn = nil
		o.User = func(*http.Request) (console.User, error) {
			return console.User{Name: "grace", Account: "acme", Grant: &manage.KeyParams{Limits: llmhttp.Limits{Tokens: llmhttp.Rate{Burst: 5}}}}, nil
		}
	})
	v := h.newVisitor(t)
	assert.Equal(t, http.StatusInternalServerError, v.post("keys/new", url.Values{"nonce": {v.nonce("keys/new")}}).status)
	keys, err := h.keys.ListKeys(t.Context(), manage.KeyQuery{})
	require.NoError(t, err)
	assert.Empty(t, keys)
	assert.Contains(t, h.log.String(), "Limits.Tokens.N: is zero")
}

const hostile = `<script>alert(1)</script>"'><img src=x onerror=alert(2)>{{.}}${alert(3)}`

// newHostileHost returns a host whose stores have markup in every text.
func newHostileHost(t testing.TB) (h *host, key manage.KeyInfo) {
	h = newHost(t, nil)
	key, _ = h.mustCreate(t, manage.KeyParams{
		Name: hostile, Account: hostile, Models: []string{hostile}, Scopes: []llmhttp.Scope{"chat"},
	})
	h.mustCreateAccount(t, "web", manage.AccountParams{Name: hostile, Labels: []llmhttp.Label{{Name: "team", Value: hostile}}}, 1)
	first := record("1", time.Now(), hostile, key.ID, hostile, 1000)
	first.User, first.Labels = hostile, []llmhttp.Label{{Name: "team", Value: hostile}}
	require.NoError(t, h.usage.Record(t.Context(), first,
		record("2", time.Now(), hostile, hostile, "=1+1", 1000), record("3", time.Now(), "-a", "@b", "+c", 1)))
	return h, key
}

func TestSecurity_HostileTexts(t *testing.T) {
	h, key := newHostileHost(t)
	v := h.newAdmin(t)
	paths := append(pagesOf(key.ID), "usage?by=model", "usage?by=account", "usage?by=user", "usage?by=label&label=team", "usage?measure=parts", "usage?measure="+url.QueryEscape(hostile), "usage?account="+url.QueryEscape(hostile), "keys?search="+url.QueryEscape(hostile),
		"usage?key="+url.QueryEscape(hostile), "usage?by=label&user="+url.QueryEscape(hostile)+"&label="+url.QueryEscape(hostile)+"&model="+url.QueryEscape(hostile),
		"key?id="+url.QueryEscape(hostile), "playground?key="+url.QueryEscape(hostile), "sign-in?next="+url.QueryEscape(hostile), url.PathEscape(hostile))
	for _, path := range paths {
		r := v.get(path)
		if strings.HasPrefix(r.header.Get("Content-Type"), "text/html") {
			assert.NotContains(t, r.body, "<script>", path)
			assert.NotContains(t, r.body, "<img src=x", path)
		}
	}
	assert.Contains(t, v.get("keys").body, "&lt;script&gt;alert(1)")
	for _, query := range []string{"by=model", "by=key", "by=account", "by=user", "by=label&label=team"} {
		assert.Contains(t, findPart(t, v.get("usage?"+query).body, `class="chart"`, "</section>"), "&lt;script&gt;alert(1)", "the name of a series")
	}

	form := v.post("key?id="+key.ID, url.Values{"scopes": {hostile}, "was.scopes": {"chat"}}).body // which no store takes
	assert.NotContains(t, form, "<script>")
	assert.Contains(t, form, `value="&lt;script&gt;alert(1)`)

	for _, by := range []string{"model", "key", "account"} {
		r := v.get("usage/table.csv?by=" + by)
		assert.Equal(t, "text/csv; charset=utf-8", r.header.Get("Content-Type"))
		assert.NotRegexp(t, `(?m)^"?[=+@-]`, r.body, "spreadsheets do not take a text for a formula")
	}
	v.post("key?id="+key.ID, url.Values{"name": {hostile + "2"}, "was.name": {hostile}})
	assert.NotContains(t, v.get("audit").body, "<script>")
	assert.Contains(t, v.get("audit").body, "&lt;script&gt;")
}

// The audit log says who changed what, from where. Without Options.Audit it is in
// the log of the host.
func TestSecurity_AuditLog(t *testing.T) {
	h := newHost(t, func(_ *host, o *console.Options) { o.Audit = nil })
	v := h.newAdmin(t)
	secret := secretIn(t, v.post("keys/new", url.Values{"nonce": {v.nonce("keys/new")}, "name": {"one"}, "requests": {"60/min"}}).body)
	keys, err := h.keys.ListKeys(t.Context(), manage.KeyQuery{})
	require.NoError(t, err)
	q := "?id=" + keys[0].ID
	v.post("key"+q, url.Values{"name": {"two"}, "was.name": {"one"}})
	h.newOwner(t, secret).post("key"+q, url.Values{"name": {"three"}, "was.name": {"two"}})
	v.post("key/rotate"+q, url.Values{"nonce": {v.nonce("key/rotate" + q)}, "overlap": {"1h"}})
	v.post("key/suspend"+q, nil)
	v.post("key/resume"+q, nil)
	v.post("key/revoke"+q, nil)
	v.post("key/revoke?id=unknown", nil)
	id := keys[0].ID
	wants := []string{
		`msg="console: sign in" user=ada key="" detail="" addr=127.0.0.1`,
		`msg="console: create key" user=ada key=` + id + ` detail="name: none to \"one\"; requests: none to \"60/m\"" addr=127.0.0.1`,
		`msg="console: update key" user=ada key=` + id + ` detail="name: \"one\" to \"two\"" addr=127.0.0.1`,
		`msg="console: sign in" user=` + id,
		`msg="console: update key" user=` + id + ` key=` + id + ` detail="name: \"two\" to \"three\""`,
		`msg="console: rotate key" user=ada key=` + id + ` detail="overlap: 1h"`,
		`msg="console: suspend key" user=ada`, `msg="console: resume key" user=ada`, `msg="console: revoke key" user=ada key=` + id,
	}
	rest := h.log.String()
	for _, want := range wants {
		_, after, ok := strings.Cut(rest, want)
		require.True(t, ok, "%s in %s", want, rest)
		rest = after
	}
	assert.NotContains(t, rest, "revoke key", "a change that failed is not in the log")
	page := v.get("audit").body
	for _, want := range []string{"create key", "name: &#34;two&#34; to &#34;three&#34;", "127.0.0.1"} {
		assert.Contains(t, page, want)
	}
}

func TestSecurity_ErrorsAreNotShown(t *testing.T) {
	h := newHostWithStores(t, failingKeys{memory.NewKeyStore()}, memory.NewUsageStore(), func(_ *host, o *console.Options) {
		o.SignIn = nil
		o.User = func(*http.Request) (console.User, error) { return console.User{Name: "ada", Admin: true}, nil }
	})
	r := h.newVisitor(t).get("keys")
	assert.Equal(t, http.StatusInternalServerError, r.status)
	assert.NotContains(t, r.body, "marker")
	assert.Contains(t, h.log.String(), "marker")
}

// failingKeys fails to list keys.
type failingKeys struct{ manage.KeyManager }

func (failingKeys) ListKeys(context.Context, manage.KeyQuery) ([]manage.KeyInfo, error) {
	return nil, errors.New("marker")
}

// A form that is too long is refused.
func TestSecurity_LongForm(t *testing.T) {
	h := newHost(t, nil)
	v := h.newAdmin(t)
	r := v.post("keys/new", url.Values{"nonce": {v.nonce("keys/new")}, "name": {strings.Repeat("x", 100_000)}})
	assert.Equal(t, http.StatusBadRequest, r.status)
	keys, err := h.keys.ListKeys(t.Context(), manage.KeyQuery{})
	require.NoError(t, err)
	assert.Empty(t, keys)
}

// Requests from outside cannot name the key of the playground.
func TestSecurity_PlaygroundKeys(t *testing.T) {
	keys := memory.NewKeyStore()
	info, _, err := keys.CreateKey(t.Context(), manage.KeyParams{})
	require.NoError(t, err)
	api := llmhttp.NewHandler(memory.Echo(), console.NewKeyStore(keys), nil)
	for _, header := range []http.Header{{"Authorization": {"Bearer " + info.ID}}, {"Authorization": {"Bearer " + llmhttp.Anonymous}}, {}} {
		r := httptest.NewRequest(http.MethodGet, "/v1/models?key="+info.ID, bytes.NewReader(nil))
		r.Header = header
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		assert.Equal(t, http.StatusUnauthorized, w.Code)
	}
}
