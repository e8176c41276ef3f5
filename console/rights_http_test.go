package console_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/console"
	"github.com/llmhttp/llmhttp/llm"
	"github.com/llmhttp/llmhttp/manage"
	"github.com/llmhttp/llmhttp/memory"
)

// rotate rotates a key in the console.
func (v *visitor) rotate(id, overlap string) *reply {
	v.t.Helper()
	return v.post("key/rotate?id="+id, url.Values{"nonce": {v.nonce("key/rotate?id=" + id)}, "overlap": {overlap}})
}

// isSignedIn reports whether the session of v has not ended.
func (v *visitor) isSignedIn() bool {
	v.t.Helper()
	return v.get("keys").url.Path == "/console/keys"
}

// unusedNonce is a nonce that no form has used.
const unusedNonce = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

// changes returns the replies to all forms that change a key, by their paths.
func (v *visitor) changes(id string) map[string]int {
	v.t.Helper()
	statuses := make(map[string]int)
	for path, form := range map[string]url.Values{
		"key": {"name": {"taken over"}}, "key/rotate": {"nonce": {unusedNonce}, "overlap": {"0"}}, "key/revoke": {}, "key/suspend": {}, "key/resume": {},
	} {
		statuses[path] = v.post(path+"?id="+id, form).status
	}
	for _, path := range []string{"key/rotate", "key/revoke"} {
		statuses["GET "+path] = v.get(path + "?id=" + id).status
	}
	return statuses
}

// requireRefused checks that v cannot change a key, and that nothing has changed.
func (v *visitor) requireRefused(id string, status int) {
	v.t.Helper()
	before, err := v.h.keys.Key(v.t.Context(), id)
	require.NoError(v.t, err)
	for path, got := range v.changes(id) {
		if status != http.StatusUnauthorized || !strings.HasPrefix(path, "GET ") { // a GET leads to the sign-in
			assert.Equal(v.t, status, got, path)
		}
	}
	after, err := v.h.keys.Key(v.t.Context(), id)
	require.NoError(v.t, err)
	after.LastUsed = before.LastUsed
	assert.Equal(v.t, before, after)
}

// call calls the API with a key in the playground, and returns the status.
func (v *visitor) call(id string) int {
	v.t.Helper()
	r, err := http.NewRequestWithContext(v.t.Context(), http.MethodPost, v.h.URL+"/console/playground/chat?key="+id, strings.NewReader(chatBody))
	require.NoError(v.t, err)
	r.Header.Set("Content-Type", "application/json")
	response, err := v.client.Do(r)
	require.NoError(v.t, err)
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	require.NoError(v.t, err)
	return response.StatusCode
}

// A rotation without overlap ends all sessions of the previous secret, so that a
// leaked key can be rotated away by its owner and by an administrator.
func TestRights_RotationEndsSessions(t *testing.T) {
	for _, by := range []string{"the owner", "an administrator"} {
		h := newHost(t, nil)
		info, leaked := h.mustCreate(t, manage.KeyParams{})
		thief, rotating := h.newOwner(t, leaked), h.newOwner(t, leaked)
		if by == "an administrator" {
			rotating = h.newAdmin(t)
		}
		require.True(t, thief.isSignedIn(), by)
		page := rotating.rotate(info.ID, "0").body
		secret := secretIn(t, page)
		assert.Equal(t, by == "the owner", strings.Contains(page, "Sign in with the new one"), by)

		assert.False(t, thief.isSignedIn(), by)
		thief.requireRefused(info.ID, http.StatusUnauthorized)
		assert.Equal(t, http.StatusUnauthorized, thief.call(info.ID), by)
		assert.Equal(t, http.StatusForbidden, thief.post("sign-in", url.Values{"key": {leaked}}).status, by)
		assert.Equal(t, http.StatusOK, h.chat(t, secret), by)
		owner := h.newOwner(t, secret)
		assert.True(t, owner.isSignedIn(), by)
		assert.NotEqual(t, secret, secretIn(t, owner.rotate(info.ID, "0").body), by)
		assert.False(t, owner.isSignedIn(), "the secret of this session is replaced too")
	}
}

// A session ends when the overlap of its secret ends.
func TestRights_SessionEndsWithOverlap(t *testing.T) {
	h := newHost(t, nil)
	info, secret := h.mustCreate(t, manage.KeyParams{})
	v := h.newOwner(t, secret)
	_, _, err := h.keys.RotateKey(t.Context(), info.ID, time.Hour)
	require.NoError(t, err)
	assert.True(t, v.isSignedIn(), "the secret still works")
	_, newest, err := h.keys.RotateKey(t.Context(), info.ID, time.Nanosecond)
	require.NoError(t, err)
	assert.False(t, v.isSignedIn())
	assert.True(t, h.newOwner(t, newest).isSignedIn())
}

// A secret in its overlap makes nothing that works longer than itself.
func TestRights_SecretInOverlap(t *testing.T) {
	h := newHost(t, nil)
	own, secret := h.mustCreate(t, manage.KeyParams{Account: "acme", Name: "own"})
	early := h.newOwner(t, secret) // signed in before the rotation
	admin := h.newAdmin(t)
	newest := secretIn(t, admin.rotate(own.ID, "2h").body)
	late := h.newOwner(t, secret)
	longer, _ := h.mustCreate(t, manage.KeyParams{Account: "acme", Expires: time.Now().Add(3 * time.Hour)})
	endless, _ := h.mustCreate(t, manage.KeyParams{Account: "acme"})
	for _, v := range []*visitor{early, late} {
		shorter, _ := h.mustCreate(t, manage.KeyParams{Account: "acme", Expires: time.Now().Add(time.Hour)})
		for _, id := range []string{own.ID, longer.ID, endless.ID} {
			v.requireRefused(id, http.StatusForbidden)
		}
		assert.Equal(t, http.StatusForbidden, v.post("keys/new", url.Values{"nonce": {unusedNonce}}).status)
		assert.Contains(t, v.get("key/rotate?id="+own.ID).body, "Sign in with its new secret")
		page := v.get("key?id=" + own.ID).body
		assert.Contains(t, page, "Sign in with its new secret")
		assert.NotContains(t, page, "Revoke")
		assert.Equal(t, http.StatusOK, v.call(own.ID), "the secret can call the API anyway")
		assert.Equal(t, http.StatusForbidden, v.call(endless.ID))

		later := url.Values{"expires": {"3h"}, "was.expires": {"x"}}
		assert.Equal(t, http.StatusUnprocessableEntity, v.post("key?id="+shorter.ID, later).status)
		assert.NotEmpty(t, secretIn(t, v.rotate(shorter.ID, "0").body), "a key that ends earlier")
	}
	assert.Equal(t, http.StatusOK, h.chat(t, newest))
	assert.NotEmpty(t, secretIn(t, h.newOwner(t, newest).rotate(own.ID, "0").body), "the new secret can do everything")
}

// People who have signed in with a key can look at the other keys of the account, and
// manage and use those that are within theirs.
func TestRights_KeysWithinOwn(t *testing.T) {
	soon := time.Now().Add(time.Hour)
	trial := manage.KeyParams{
		Account: "acme", Name: "trial", Scopes: []llmhttp.Scope{"chat", "models"}, Models: []string{"demo-*"}, Expires: soon,
		Limits: llmhttp.Limits{
			Requests: llmhttp.PerMinute(100), Tokens: llmhttp.PerMinute(10_000), Quota: llmhttp.Quota{Tokens: 100_000, Cost: llm.USD(5)},
			MaxCompletionTokens: 100, Concurrent: 2,
		},
	}
	h := newHost(t, nil)
	own, secret := h.mustCreate(t, trial)
	v := h.newOwner(t, secret)
	for name, change := range map[string]func(*manage.KeyParams){
		"scopes":                func(p *manage.KeyParams) { p.Scopes = nil },
		"models":                func(p *manage.KeyParams) { p.Models = nil },
		"expiry":                func(p *manage.KeyParams) { p.Expires = time.Time{} },
		"later expiry":          func(p *manage.KeyParams) { p.Expires = soon.Add(time.Second) },
		"requests":              func(p *manage.KeyParams) { p.Limits.Requests = llmhttp.Rate{} },
		"more requests":         func(p *manage.KeyParams) { p.Limits.Requests.N++ },
		"burst":                 func(p *manage.KeyParams) { p.Limits.Requests.Burst = 101 },
		"tokens":                func(p *manage.KeyParams) { p.Limits.Tokens = llmhttp.Rate{} },
		"quota":                 func(p *manage.KeyParams) { p.Limits.Quota = llmhttp.Quota{} },
		"quota of costs":        func(p *manage.KeyParams) { p.Limits.Quota.Cost = 0 },
		"max completion tokens": func(p *manage.KeyParams) { p.Limits.MaxCompletionTokens = 0 },
		"concurrent":            func(p *manage.KeyParams) { p.Limits.Concurrent = 3 },
	} {
		p := trial
		p.Name = "production"
		change(&p)
		other, _ := h.mustCreate(t, p)
		v.requireRefused(other.ID, http.StatusForbidden)
		assert.Equal(t, http.StatusForbidden, v.call(other.ID), name)
		assert.Equal(t, http.StatusForbidden, v.get("playground/models?key="+other.ID).status, name)
		assert.NotContains(t, v.get("playground?key="+other.ID).body, `value="`+other.ID, name)
		page := v.get("key?id=" + other.ID)
		assert.Equal(t, http.StatusOK, page.status, name)
		for _, button := range []string{"Playground</a>\n", "Rotate", "Revoke", "Save"} {
			assert.NotContains(t, strings.ReplaceAll(page.body, `<a href="/console/playground">Playground</a>`, ""), button, name)
		}
	}
	p := trial
	p.Name, p.Limits.Concurrent = "weaker", 1
	weaker, _ := h.mustCreate(t, p)
	assert.Equal(t, http.StatusOK, v.call(weaker.ID))
	assert.Equal(t, http.StatusOK, v.post("key?id="+weaker.ID, url.Values{"name": {"renamed"}, "was.name": {"weaker"}}).status)
	assert.NotEmpty(t, secretIn(t, v.rotate(weaker.ID, "0").body))
	assert.Equal(t, http.StatusOK, v.post("key/revoke?id="+weaker.ID, nil).status)
	assert.Equal(t, http.StatusOK, v.call(own.ID))
	assert.NotEmpty(t, secretIn(t, v.rotate(own.ID, "0").body), "the own key")
}

// A client that sends a form slowly does not keep the rights that it had when it began.
func TestRights_SlowForm(t *testing.T) {
	h := newHost(t, nil)
	info, leaked := h.mustCreate(t, manage.KeyParams{})
	thief := h.newOwner(t, leaked)
	base, err := url.Parse(h.URL + "/console/")
	require.NoError(t, err)
	conn, err := net.Dial("tcp", base.Host)
	require.NoError(t, err)
	defer conn.Close()
	form := url.Values{"nonce": {unusedNonce}, "overlap": {"0"}}.Encode()
	_, err = fmt.Fprintf(conn, "POST /console/key/rotate?id=%s HTTP/1.1\r\nHost: %s\r\nCookie: %s\r\nContent-Type: application/x-www-form-urlencoded\r\n"+
		"Content-Length: %d\r\nExpect: 100-continue\r\n\r\n", info.ID, base.Host, thief.client.Jar.Cookies(base)[0], len(form))
	require.NoError(t, err)
	reader := bufio.NewReader(conn)
	line, err := reader.ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, line, "100 Continue", "the server waits for the form")
	_, err = reader.ReadString('\n')
	require.NoError(t, err)

	_, secret, err := h.keys.RotateKey(t.Context(), info.ID, 0)
	require.NoError(t, err)
	_, err = io.WriteString(conn, form)
	require.NoError(t, err)
	response, err := http.ReadResponse(reader, nil)
	require.NoError(t, err)
	defer response.Body.Close()
	assert.Equal(t, http.StatusUnauthorized, response.StatusCode)
	assert.Equal(t, http.StatusOK, h.chat(t, secret), "the owner is not locked out")
}

// A person who is no administrator and has no account sees nothing.
func TestRights_NoAccount(t *testing.T) {
	h := newHost(t, func(_ *host, o *console.Options) {
		o.SignIn = nil
		o.User = func(*http.Request) (console.User, error) {
			return console.User{Name: "eve", Grant: &manage.KeyParams{}}, nil
		}
	})
	info, _ := h.mustCreate(t, manage.KeyParams{Name: "marker-key", Account: "marker"})
	h.mustRecord(t, record("1", time.Now(), "marker", info.ID, "marker-model", 100))
	v := h.newVisitor(t)
	for _, path := range append(pagesOf(info.ID), "usage?by=account", "usage/table.csv?by=account", "usage?by=model") {
		r := v.get(path)
		assert.Equal(t, http.StatusForbidden, r.status, path)
		assert.NotContains(t, r.body, "marker", path)
	}
	for _, path := range postsOf(info.ID) {
		if path != "sign-out" { // there is none
			assert.Equal(t, http.StatusForbidden, v.post(path, url.Values{"nonce": {unusedNonce}}).status, path)
		}
	}
	after, err := h.keys.ListKeys(t.Context(), manage.KeyQuery{})
	require.NoError(t, err)
	assert.Equal(t, []manage.KeyInfo{info}, after)
}

// The own key is offered in the playground however old it is, and a search finds all
// others that the person may use.
func TestPlayground_Keys(t *testing.T) {
	h := newHost(t, nil)
	limits := llmhttp.Limits{Concurrent: 5}
	usable, _ := h.mustCreate(t, manage.KeyParams{Account: "acme", Name: "old and usable", Limits: limits})
	own, secret := h.mustCreate(t, manage.KeyParams{Account: "acme", Name: "own", Limits: limits})
	for i := range 60 {
		h.mustCreate(t, manage.KeyParams{Account: "acme", Name: fmt.Sprint("newer ", i)})
	}
	v, admin := h.newOwner(t, secret), h.newAdmin(t)
	page := v.get("playground").body
	for _, id := range []string{own.ID, usable.ID} {
		assert.Contains(t, page, `<option value="`+id)
	}
	assert.Equal(t, 2, strings.Count(page, "<option value="))
	assert.NotContains(t, page, "Find a key")

	page = admin.get("playground?mode=images").body
	assert.Equal(t, 50, strings.Count(page, "<option value="))
	assert.NotContains(t, page, own.ID)
	assert.Contains(t, page, "Only the newest 50 of your keys are offered")
	page = admin.get("playground?mode=images&search=OLD+and").body
	assert.Equal(t, 1, strings.Count(page, "<option value="))
	assert.Contains(t, page, `<option value="`+usable.ID)
	assert.Contains(t, page, `data-mode="images"`)
	assert.Contains(t, admin.get("playground?search=nothing").body, "No active key that you may use matches.")
	page = admin.get("playground?key=" + own.ID).body
	assert.Equal(t, 50, strings.Count(page, "<option value="))
	assert.Contains(t, page, `<option value="`+own.ID+`" selected`)
}

// The list of models takes nothing from the limits of the key.
func TestPlayground_ModelsAreFree(t *testing.T) {
	h := newHost(t, nil)
	info, secret := h.mustCreate(t, manage.KeyParams{
		Models: []string{"demo-chat"}, Limits: llmhttp.Limits{Requests: llmhttp.Rate{N: 2, Per: 24 * time.Hour}, Concurrent: 1},
	})
	v := h.newOwner(t, secret)
	for range 5 {
		r := v.get("playground/models?key=" + info.ID)
		require.Equal(t, http.StatusOK, r.status)
		assert.Contains(t, r.body, "demo-chat")
		assert.NotContains(t, r.body, "demo-image", "the models of the key")
	}
	assert.Equal(t, http.StatusOK, v.call(info.ID))
	assert.Equal(t, http.StatusOK, v.call(info.ID))
	assert.Equal(t, http.StatusTooManyRequests, v.call(info.ID), "the limit of the key holds for other requests")
}

// The playground works whatever the name of the server is, although its requests have no
// secret.
func TestPlayground_NamedHost(t *testing.T) {
	h := newHost(t, func(_ *host, o *console.Options) {
		o.SignIn = nil
		o.User = func(*http.Request) (console.User, error) { return console.User{Name: "ada", Admin: true}, nil }
	})
	info, _ := h.mustCreate(t, manage.KeyParams{})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.URL+"/console/playground/chat?key="+info.ID, strings.NewReader(chatBody))
	require.NoError(t, err)
	r.Host = "llm.acme.test"
	r.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	assert.Equal(t, http.StatusOK, response.StatusCode)
}

// failingBackend fails in the middle of each stream.
var failingBackend = llmhttp.BackendFunc(func(context.Context, *llm.ChatRequest) llm.ChatStream {
	return func(yield func(*llm.ChatChunk, error) bool) {
		if yield(llm.TextChunk("Once upon"), nil) {
			yield(nil, &llm.Error{Status: http.StatusServiceUnavailable, Message: "the model is out of memory"})
		}
	}
})

// The playground reaches an API that is below a prefix.
func TestPlayground_Prefix(t *testing.T) {
	h := newHost(t, func(h *host, o *console.Options) {
		o.APIPrefix = "/llm"
		o.API = llmhttp.NewHandler(memory.Echo(), console.NewKeyStore(h.keys), &llmhttp.Options{Prefix: "/llm"})
	})
	key, secret := h.mustCreate(t, manage.KeyParams{})
	v := h.newOwner(t, secret)
	assert.Equal(t, http.StatusOK, v.get("playground/models?key="+key.ID).status)
	assert.Equal(t, http.StatusOK, v.call(key.ID))
	assert.Contains(t, v.get("playground").body, h.URL+"/llm/v1")
}

// A stream that fails ends with its error, and not with a broken connection.
func TestPlayground_StreamError(t *testing.T) {
	h := newHostWithBackend(t, memory.NewKeyStore(), memory.NewUsageStore(), failingBackend, nil)
	info, secret := h.mustCreate(t, manage.KeyParams{})
	v := h.newOwner(t, secret)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.URL+"/console/playground/chat?key="+info.ID, strings.NewReader(strings.Replace(chatBody, "{", `{"stream": true, `, 1)))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	response, err := v.client.Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	assert.NoError(t, err)
	assert.Contains(t, string(body), "the model is out of memory")
	assert.NotContains(t, string(body), "[DONE]")
}
