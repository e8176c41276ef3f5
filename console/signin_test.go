package console_test

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/console"
	"github.com/llmhttp/llmhttp/console/passwordhash"
	"github.com/llmhttp/llmhttp/manage"
	"github.com/llmhttp/llmhttp/memory"
)

// Without the right password, sign-in does not tell which names exist: all have the same
// limit, and the same replies.
func TestSignIn_NamesAreAlike(t *testing.T) {
	console.FewAttempts(t)
	var address atomic.Value
	address.Store("")
	h := newHost(t, func(_ *host, o *console.Options) {
		o.SignIn.ClientAddr = func(*http.Request) string { return address.Load().(string) }
	})
	v := h.newVisitor(t)
	attempt := func(name string, i int) (status int, body string) {
		address.Store(fmt.Sprint(name, " ", i))
		r := v.post("sign-in", url.Values{"name": {name}, "password": {"wrong password"}})
		return r.status, r.body
	}
	for i := range console.AttemptsPerName + 3 {
		status, body := attempt(adminName, i)
		for _, name := range []string{"nobody", strings.Repeat("x", 10_000)} {
			otherStatus, otherBody := attempt(name, i)
			assert.Equal(t, status, otherStatus, "attempt %d", i)
			assert.Equal(t, body, otherBody, "attempt %d", i)
		}
		want := http.StatusForbidden
		if i >= console.AttemptsPerName {
			want = http.StatusTooManyRequests
		}
		assert.Equal(t, want, status, "attempt %d", i)
	}
}

// Attempts of others do not lock out an administrator at an address that the process
// knows, because the administrator has signed in there or has used a session there.
func TestSignIn_KnownAddresses(t *testing.T) {
	console.FewAttempts(t)
	const secret = "0123456789abcdef0123456789abcdef"
	var address atomic.Value
	start := func() *host {
		return newHostWithStores(t, memory.NewKeyStore(), memory.NewUsageStore(), func(_ *host, o *console.Options) {
			o.SignIn.SessionSecret = []byte(secret)
			o.SignIn.ClientAddr = func(*http.Request) string { return address.Load().(string) }
			o.SignIn.Admins["grace"] = quickHash("another password")
		})
	}
	first, second := start(), start()
	address.Store("192.0.2.1")
	v := first.newAdmin(t)
	v.h = second
	require.True(t, v.isSignedIn(), "a process that has not seen the sign-in sees the session")

	for _, h := range []*host{first, second} {
		for i := range console.AttemptsPerName {
			address.Store(fmt.Sprint("203.0.113.", i))
			for _, name := range []string{adminName, "grace"} {
				h.newVisitor(t).post("sign-in", url.Values{"name": {name}, "password": {"wrong"}})
			}
		}
		signIn := func(addr, name, password string) int {
			address.Store(addr)
			return h.newVisitor(t).post("sign-in", url.Values{"name": {name}, "password": {password}}).status
		}
		assert.Equal(t, http.StatusTooManyRequests, signIn("192.0.2.2", adminName, adminPassword), "an unknown address")
		assert.Equal(t, http.StatusOK, signIn("192.0.2.1", adminName, adminPassword))
		assert.Equal(t, http.StatusTooManyRequests, signIn("192.0.2.1", "grace", "another password"), "an address is known for one name")
		for range 8 {
			signIn("192.0.2.1", adminName, "wrong")
		}
		assert.Equal(t, http.StatusTooManyRequests, signIn("192.0.2.1", adminName, adminPassword), "the limit of the address holds for it too")
	}
}

// Attempts of others do not lock out an administrator who signs in for the first time, at an
// address that nobody knows: the first attempts of a network do not count against the name.
func TestSignIn_NewNetworks(t *testing.T) {
	console.FewAttemptsPerName(t)
	var address atomic.Value
	h := newHost(t, func(_ *host, o *console.Options) {
		o.SignIn.ClientAddr = func(*http.Request) string { return address.Load().(string) }
	})
	signIn := func(addr, name, password string) int {
		address.Store(addr)
		return h.newVisitor(t).post("sign-in", url.Values{"name": {name}, "password": {password}}).status
	}
	const free = 3
	for n, name := range []string{adminName, "nobody"} { // which are alike
		attacker := "203.0.113.1 of " + name
		for i := range free + console.AttemptsPerName {
			assert.Equal(t, http.StatusForbidden, signIn(attacker, name, "wrong"), "attempt %d for %s", i, name)
		}
		assert.Equal(t, http.StatusTooManyRequests, signIn(attacker, name, "wrong"), name)
		for i := range free {
			assert.Equal(t, http.StatusForbidden, signIn(fmt.Sprintf("2001:db8:%d:%d::/64", n, i), name, "wrong"), name)
		}
		assert.Equal(t, http.StatusTooManyRequests, signIn(fmt.Sprintf("2001:db8:%d:99::/64", n), name, "wrong"), "of the network of others, for %s", name)
		for i := range free {
			assert.Equal(t, http.StatusForbidden, signIn("198.51.100.1 of "+name, name, "wrong"), "attempt %d for %s", i, name)
		}
		assert.Equal(t, http.StatusTooManyRequests, signIn("198.51.100.1 of "+name, name, adminPassword), name)
	}
	assert.Equal(t, http.StatusOK, signIn("192.0.2.1", adminName, adminPassword), "of another network")
}

// Attempts of others at the same address do not lock out an administrator whose password is
// generated, also at the first sign-in. Wrong passwords for the name are like all others.
func TestSignIn_GeneratedPassword(t *testing.T) {
	password, hash := passwordhash.Generate()
	for what, admins := range map[string]map[string]string{
		"with a chosen password":    {adminName: adminHash(), "grace": hash},
		"without a chosen password": {"grace": hash},
	} {
		t.Run(what, func(t *testing.T) {
			console.FewAttempts(t)
			h := newHost(t, func(_ *host, o *console.Options) { o.SignIn.Admins = admins })
			signIn := func(name, password string) *reply {
				return h.newVisitor(t).post("sign-in", url.Values{"name": {name}, "password": {password}})
			}
			for i := range console.AttemptsPerName + 1 {
				got, want := signIn("grace", strings.Repeat("A", len(password))), signIn("nobody", password)
				assert.Equal(t, want.status, got.status, "attempt %d", i)
				assert.Equal(t, want.body, got.body, "attempt %d", i)
			}
			for range 10 {
				signIn("grace", "wrong")
			}
			assert.Equal(t, http.StatusTooManyRequests, signIn("grace", "wrong").status)
			assert.Equal(t, http.StatusTooManyRequests, signIn(adminName, password).status, "a password of somebody else")
			for range 12 {
				assert.Equal(t, http.StatusOK, signIn("grace", password).status)
			}
			assert.Contains(t, h.auditLog(), "grace: sign in")
		})
	}
}

// A browser in which an administrator has signed in keeps its way in during an attack on
// the name, at processes that have never seen it.
func TestSignIn_KnownBrowser(t *testing.T) {
	console.FewAttempts(t)
	const secret, otherPassword = "0123456789abcdef0123456789abcdef", "another password"
	other := quickHash(otherPassword)
	var address atomic.Value
	start := func(secret, hash string) *host {
		return newHost(t, func(_ *host, o *console.Options) {
			o.SignIn.SessionSecret = []byte(secret)
			o.SignIn.ClientAddr = func(*http.Request) string { return address.Load().(string) }
			o.SignIn.Admins = map[string]string{adminName: hash, "grace": other}
		})
	}
	signIn := func(v *visitor, name, password string) int {
		return v.post("sign-in", url.Values{"name": {name}, "password": {password}}).status
	}
	attack := func(h *host) { // on both names, and from the last address that the visitor has
		for i := range console.AttemptsPerName {
			address.Store(fmt.Sprint("203.0.113.", i))
			for _, name := range []string{adminName, "grace"} {
				signIn(h.newVisitor(t), name, "wrong")
			}
		}
		address.Store("198.51.100.1")
		for range 10 {
			h.newVisitor(t).post("sign-in", url.Values{"key": {"sk-wrong"}})
		}
	}
	address.Store("192.0.2.1")
	v := start(secret, adminHash()).newAdmin(t)
	require.Equal(t, http.StatusOK, v.post("sign-out", nil).status)

	v.h = start(secret, adminHash()) // after a restart, and at another address
	attack(v.h)
	assert.Equal(t, http.StatusTooManyRequests, signIn(v.h.newVisitor(t), adminName, adminPassword), "a browser that is not known")
	address.Store("198.51.100.2")
	assert.Equal(t, http.StatusTooManyRequests, signIn(v, "grace", otherPassword), "a cookie of another name")
	address.Store("198.51.100.1")
	assert.Equal(t, http.StatusOK, signIn(v, adminName, adminPassword))
	for i := range 10 {
		address.Store(fmt.Sprint("198.51.100.", 10+i))
		assert.Equal(t, http.StatusForbidden, signIn(v, adminName, "wrong"))
	}
	assert.Equal(t, http.StatusTooManyRequests, signIn(v, adminName, adminPassword), "a stolen cookie does not help to guess the password")

	for what, h := range map[string]*host{
		"another password": start(secret, other),
		"another secret":   start(strings.ToUpper(secret), adminHash()),
	} {
		attack(h)
		address.Store("198.51.100.3")
		v.h = h
		password := adminPassword
		if what == "another password" {
			password = otherPassword
		}
		assert.Equal(t, http.StatusTooManyRequests, signIn(v, adminName, password), what)
	}
}

// The cookie of a known browser is not that of a session.
func TestSignIn_BrowserIsNoSession(t *testing.T) {
	console.FewAttempts(t)
	h := newHost(t, nil)
	v := h.newAdmin(t)
	page, err := url.Parse(h.URL + "/console/sign-in")
	require.NoError(t, err)
	values := make(map[string]string)
	for _, c := range v.client.Jar.Cookies(page) {
		values[c.Name] = c.Value
	}
	require.Len(t, values, 2)
	for name, want := range map[string]bool{"llmhttp_console": true, "llmhttp_console_browser": false} {
		visitor := h.newVisitor(t)
		visitor.client.Jar.SetCookies(page, []*http.Cookie{{Name: "llmhttp_console", Value: values[name], Path: "/"}})
		assert.Equal(t, want, visitor.isSignedIn(), name)
	}
}

// Behind a proxy that is trusted, each client has its own limit. Clients cannot choose
// their address.
func TestSignIn_TrustedProxies(t *testing.T) {
	console.SlowAttempts(t)
	wrong := url.Values{"name": {adminName}, "password": {"wrong"}}
	from := func(h *host, forwardedFor string) *visitor {
		v := h.newVisitor(t)
		v.header.Set("X-Forwarded-For", forwardedFor)
		return v
	}
	trusting := newHost(t, func(_ *host, o *console.Options) {
		o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	})
	for i := range 10 {
		v := from(trusting, fmt.Sprintf("198.51.100.%d, 203.0.113.7", i)) // the client claims an address
		assert.Equal(t, http.StatusForbidden, v.post("sign-in", wrong).status)
	}
	right := url.Values{"name": {adminName}, "password": {adminPassword}}
	assert.Equal(t, http.StatusTooManyRequests, from(trusting, "203.0.113.7").post("sign-in", right).status)
	assert.Equal(t, http.StatusOK, from(trusting, "203.0.113.8").post("sign-in", right).status)
	trusting.mu.Lock()
	assert.Equal(t, "203.0.113.8", trusting.audit[len(trusting.audit)-1].Addr)
	trusting.mu.Unlock()

	plain := newHost(t, nil)
	for i := range 10 {
		assert.Equal(t, http.StatusForbidden, from(plain, fmt.Sprint("203.0.113.", i)).post("sign-in", wrong).status)
	}
	assert.Equal(t, http.StatusTooManyRequests, from(plain, "203.0.113.99").post("sign-in", right).status, "without trusted proxies, the header is not read")
}

// Strangers and people with keys do not displace the entries of administrators.
func TestAudit_Flood(t *testing.T) {
	console.SlowAttempts(t)
	var requests atomic.Int64
	var failures atomic.Int64
	flooding := false
	h := newHost(t, func(_ *host, o *console.Options) {
		o.SignIn.ClientAddr = func(r *http.Request) string {
			if flooding {
				return fmt.Sprint("address ", requests.Add(1))
			}
			return "192.0.2.1"
		}
		o.Audit = func(_ context.Context, e console.AuditEntry) {
			if e.Action == console.ActionSignInFailed {
				failures.Add(1)
			}
		}
	})
	admin := h.newAdmin(t)
	created := admin.post("keys/new", url.Values{"nonce": {admin.nonce("keys/new")}, "name": {"first of all"}})
	owner := h.newOwner(t, secretIn(t, created.body))
	keys, err := h.keys.ListKeys(t.Context(), manage.KeyQuery{})
	require.NoError(t, err)
	path := "key?id=" + keys[0].ID
	require.Equal(t, http.StatusOK, owner.post(path, url.Values{"name": {"entry of the owner"}, "was.name": {"first of all"}}).status)

	v := h.newVisitor(t)
	v.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for range 100 { // from one address
		v.post("sign-in", url.Values{"key": {"sk-wrong"}})
	}
	assert.Equal(t, int64(8+1), failures.Load(), "those that were checked, and one entry for those that were refused")
	flooding = true
	for range 1500 { // each from another address
		v.post("sign-in", url.Values{"key": {"sk-wrong"}})
	}
	flooding = false
	page := admin.get("audit").body
	for _, want := range []string{"name: none to &#34;first of all&#34;", "entry of the owner", "sign in failed"} {
		assert.Contains(t, page, want)
	}

	owner.client.CheckRedirect = v.client.CheckRedirect
	for i := range 1100 {
		owner.post(path, url.Values{"name": {fmt.Sprint(i)}, "was.name": {"x"}})
	}
	page = admin.get("audit").body
	assert.Contains(t, page, "name: none to &#34;first of all&#34;")
	assert.NotContains(t, page, "entry of the owner")
	assert.Less(t, strings.Count(page, "<tr>"), 2100, "memory is bounded")
}
