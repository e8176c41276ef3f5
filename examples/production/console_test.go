package main

import (
	"crypto/rand"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp/console/passwordhash"
)

// TestConsole creates a key in the console, uses it, and sees its usage, on
// PostgreSQL and with two copies behind a load balancer.
func TestConsole(t *testing.T) {
	hash, err := passwordhash.New("correct horse")
	require.NoError(t, err)
	t.Setenv("LLMHTTP_CONSOLE_SECRET", rand.Text()+rand.Text())
	f := newFleet(t, 0, "-console", "ada:"+hash, "-usage-delay", "10ms")
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	client := &http.Client{Jar: jar}
	read := func(response *http.Response, err error) string {
		t.Helper()
		require.NoError(t, err)
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, response.StatusCode, "%s", body)
		return string(body)
	}
	find := func(pattern, text string) string {
		t.Helper()
		match := regexp.MustCompile(pattern).FindStringSubmatch(text)
		require.NotNil(t, match, text)
		return match[1]
	}
	base := f.url + "/console/"
	assert.Contains(t, read(client.PostForm(base+"sign-in", url.Values{"name": {"ada"}, "password": {"correct horse"}})), "models", "the overview has the target")
	nonce := find(`name="nonce" value="(\w+)"`, read(client.Get(base+"keys/new")))
	created := read(client.PostForm(base+"keys/new", url.Values{"nonce": {nonce}, "name": {"my key"}, "account": {"acme"}, "requests": {"60/min"}}))
	secret := find(`<input id="secret" value="([^"]+)"`, created)

	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url+"/v1/chat/completions",
		strings.NewReader(`{"model": "demo-chat", "messages": [{"role": "user", "content": "Hello!"}]}`))
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+secret)
	r.Header.Set("Content-Type", "application/json")
	read(http.DefaultClient.Do(r))
	eventually(t, func(c *assert.CollectT) {
		assert.Contains(c, read(client.Get(base+"usage?by=key")), "my key")
	})
	key := base + "key?" + url.Values{"id": {find(`key\?id=(key_\w+)`, created)}}.Encode()
	for range 2 { // one on each copy
		assert.Contains(t, read(client.Get(key)), "of 60 used")
	}
}

// Behind load balancers that -trusted-proxies names, each client has its own limit of
// sign-in attempts.
func TestConsole_TrustedProxies(t *testing.T) {
	hash, err := passwordhash.New("correct horse")
	require.NoError(t, err)
	p := start(t, newCommand(nil, "-demo", "-dsn", t.TempDir()+"/llmhttp.db", "-console", "ada:"+hash, "-trusted-proxies", "192.0.2.1, 127.0.0.0/8"))
	attempt := func(client string) int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+"/console/sign-in", strings.NewReader("key=sk-wrong"))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("X-Forwarded-For", client)
		response, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		return response.StatusCode
	}
	var statuses []int
	for range 20 {
		statuses = append(statuses, attempt("203.0.113.1"))
	}
	assert.Contains(t, statuses, http.StatusTooManyRequests)
	assert.Equal(t, http.StatusForbidden, attempt("203.0.113.2"))
}

// examples/inmemory prints the password of its console.
func TestInmemoryConsole(t *testing.T) {
	p := start(t, exec.Command(inmemory, "-addr", "127.0.0.1:0", "-console"))
	p.awaitOutput(t, "Password: ")
	eventually(t, func(c *assert.CollectT) {
		password := regexp.MustCompile(`Console: ` + regexp.QuoteMeta(p.url) + `/console/\nName: admin\nPassword: (\S+)\n`).FindStringSubmatch(p.Output.String())
		require.NotNil(c, password)
		jar, err := cookiejar.New(nil)
		require.NoError(c, err)
		client := &http.Client{Jar: jar}
		response, err := client.PostForm(p.url+"/console/sign-in", url.Values{"name": {"admin"}, "password": {password[1]}})
		require.NoError(c, err)
		defer response.Body.Close()
		assert.Equal(c, "/console/overview", response.Request.URL.Path)
		page, err := io.ReadAll(response.Body)
		require.NoError(c, err)
		assert.Contains(c, string(page), "Requests in flight")
	})
}
